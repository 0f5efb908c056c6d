//! Records and dumps of Zephyr's instrumentation subsystem (`subsys/instrumentation` in its tree).
//!
//! Such a target answers `dump_trace` and `dump_profile` with raw records between two marks
//! ([`BEGIN`], [`END`]), without a length, an escape, a version, or a word on how wide its pointers
//! are and how long the names of its threads. So where a dump ends, and what is in it, can only be
//! found together, from the structure of the records: [`detect()`] finds their [`Layout`], [`Scanner`]
//! the end while the bytes still come, [`Walk`] the records and what is damaged between them.
//!
//! This is a crate of its own because both who talks to such a target (`kymo-link`) and who reads what
//! it sent (`kymo-read`) need it, and neither may use the other. It stands alone.
//!
//! ```
//! use kymo_zephyr_instrumentation::{Hints, Kind, Piece, Walk, detect};
//!
//! // What came between the marks: one record of a 32-bit target with names of 8 bytes.
//! let mut body = vec![0]; // an entry
//! body.extend(0x101_u32.to_le_bytes()); // callee
//! body.extend(0x205_u32.to_le_bytes()); // caller
//! body.extend(1_500_u64.to_le_bytes()); // nanoseconds
//! body.push(0); // CPU 0, priority 0
//! body.extend(0x2000_0000_u32.to_le_bytes()); // thread
//! body.extend(*b"main\0\0\0\0");
//!
//! let layout = detect(&body, &Hints::default()).expect("records");
//! assert_eq!(layout.kind(), Kind::Trace);
//! assert_eq!(layout.size(), 30);
//! for piece in Walk::new(&body, layout) {
//!     if let Piece::Record { bytes, .. } = piece {
//!         let record = layout.record(bytes).expect("of a trace");
//!         assert_eq!((record.callee, record.time_ns), (0x101, 1_500));
//!         assert_eq!(record.name, b"main");
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod detect;
mod place;
mod record;
mod scan;
mod scanner;

pub use detect::{Hints, detect, detect_near, detect_undamaged, is_certain};
pub use place::Position;
pub use record::{ByteOrder, Entry, Kind, Layout, NAME_BYTES, PointerWidth, Record, RecordType};
pub use scan::{BEGIN, END, End, Piece, Walk, find_begin, find_end, is_begin};
pub use scanner::Scanner;
