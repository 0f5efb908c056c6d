//! Records and dumps of Zephyr's instrumentation subsystem (`subsys/instrumentation` in its tree).
//!
//! The target answers `dump_trace` and `dump_profile` with raw records between two marks ([`BEGIN`], [`END`]). There is
//! no length, escape or version, and neither the pointer width nor the length of thread names is stated. So the end of
//! a dump and its content can only be found together, from the structure of the records: [`detect()`] finds their
//! [`Layout`], [`Scanner`] the end while bytes still arrive, [`Walk`] the records and the damage between them.
//!
//! It is a crate of its own because both the link to such a target (`kymo-link`) and the reader of its dumps
//! (`kymo-read`) need it, and neither may depend on the other. It has no dependencies on other crates of Kymo.
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
