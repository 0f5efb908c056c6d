//! Streams of RTEMS's event recording, versions 9 (RTEMS 5) and 10 (RTEMS 6): items, their times, and the order of all
//! processors' records.
//!
//! A stream is a format word, a magic number, then items of 8 or 12 bytes in the target's byte order: 22 bits of a
//! counter, 10 bits of an event number, and a word of data (`cpukit/include/rtems/recorddata.h`). A target sends it
//! over TCP, writes it to a file, or dumps it to its console as base64, perhaps compressed. Five layers read it:
//!
//! | module | from | to |
//! |---|---|---|
//! | `container` | any input: a file, a console's log, base64, zlib | the bytes of each dump in it |
//! | `plausible` | the bytes of a text | the same up to where lines of it are missing |
//! | `stream` | bytes | items, the target's [`Header`], the names of its threads |
//! | `chunks` | items of version 9 | those that the target had not overwritten before they were sent |
//! | `timeline` | items with 22 bits of a counter | [`Record`]s with nanoseconds of uptime |
//! | `merge` | the records of each processor | the records of all of them in the order of time |
//!
//! [`Reader`] is all of them, and pulls from any [`Read`](std::io::Read); memory is bounded whatever the input says.
//!
//! # Times
//! A target records its uptime now and then ([`EventId::UPTIME_LOW`], [`EventId::UPTIME_HIGH`]). Records before the first
//! pair of a processor wait for it and are placed backwards from it; those behind count on from the last pair. A
//! processor without any pair is placed by the others: their counter is the same, so its records are known but for
//! whole wraparounds, and are put as late as they can have been sent. Such records begin with
//! [`EventId::UNRELIABLE_TIME`].
//!
//! ```
//! use kymo_rtems_record::Reader;
//!
//! # fn main() -> Result<(), kymo_rtems_record::Error> {
//! // A target of 32 bits, little endian: header, then one pair of uptime and an event of the user's.
//! let mut bytes = vec![0x11; 4];
//! let words: &[u32] = &[
//!     0x82e1_4ec1, // magic
//!     1, 10, // version 10
//!     10, 0, // processors up to 0
//!     6, 256, // items in each processor's ring
//!     4, 1_000_000, // counter of 1 MHz
//!     9, 0, // what follows is processor 0's
//!     100 << 10 | 323, 0, // uptime, fraction of a second
//!     100 << 10 | 322, 5, // uptime, seconds
//!     107 << 10 | 512, 42, // event 0 of the user
//! ];
//! bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
//!
//! let mut reader = Reader::new(&bytes[..]);
//! let mut records = Vec::new();
//! while reader.read(&mut records)? {}
//! let last = records.last().expect("records");
//! assert_eq!((last.event.name(10), last.data), ("USER_0", 42));
//! assert_eq!(last.time, 5_000_007_000);
//! assert_eq!(reader.header().frequency, 1_000_000);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod base64;
mod chunks;
mod container;
mod error;
mod event;
mod fuzzing;
mod input;
mod merge;
mod names;
mod plausible;
mod reader;
mod record;
mod stream;
mod timeline;

pub use container::{BEGIN, Kind, probe};
pub use error::{Error, Fault};
pub use event::EventId;
#[doc(hidden)]
pub use fuzzing::fuzz;
pub use names::{EventNames, NamesError};
pub use reader::{Reader, Statistics};
pub use record::{Record, ThreadName};
pub use stream::{ByteOrder, Format, Header, MAGIC, MOST_CPUS, WordSize};
