//! Reader for streams of RTEMS event recording, versions 9 (RTEMS 5) and 10 (RTEMS 6): decodes items, computes their
//! times, and merges the records of all processors in order of time.
//!
//! A stream is a format word, a magic number, then items of 8 or 12 bytes in the target's byte order: 22 bits of a
//! counter, 10 bits of an event number, and a word of data (`cpukit/include/rtems/recorddata.h`). A target sends the
//! stream over TCP, writes it to a file, or dumps it to its console as base64, perhaps compressed. Six modules read it:
//!
//! | module | input | output |
//! |---|---|---|
//! | `container` | any input: a file, a console log, base64, zlib | the bytes of each dump in it |
//! | `plausible` | bytes decoded from text | the same bytes, up to the first missing line |
//! | `stream` | bytes | items, the target's [`Header`], thread names |
//! | `chunks` | items of version 9 | the items that the target had not overwritten before it sent them |
//! | `timeline` | items with 22 bits of a counter | [`Record`]s with nanoseconds of uptime |
//! | `merge` | the records of each processor | the records of all processors in order of time |
//!
//! [`Reader`] combines them, and pulls from any [`Read`](std::io::Read). Its memory is bounded for every input.
//!
//! # Times
//! A target records its uptime at intervals ([`EventId::UPTIME_LOW`], [`EventId::UPTIME_HIGH`]). Records in front of a
//! processor's first pair wait for it, and their times are computed backwards from it. Records behind a pair count from
//! the last one. All processors share one counter, so the times of a processor without a pair are known up to whole
//! wraparounds from the other processors. They are set to the latest time at which the records can have been sent. Such
//! records begin with [`EventId::UNRELIABLE_TIME`].
//!
//! ```
//! use kymo_rtems_record::Reader;
//!
//! # fn main() -> Result<(), kymo_rtems_record::Error> {
//! // A 32-bit little-endian target: the header, then one pair of uptime items and a user event.
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
