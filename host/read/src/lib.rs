//! Every trace format to Kymo's events.
//!
//! [`open()`] looks at what is in a file or directory, never at what it is called, and gives a
//! [`Source`]: what is known of the trace as a whole ([`TraceInfo`]), then its events one by one,
//! all streams merged by time, with memory that depends on the number of streams and not on the
//! length of the trace.
//!
//! | input | module |
//! |---|---|
//! | a trace directory that Kymo wrote | [`native`] |
//! | a raw Kymo file: the identity line, then packets (`kymo_save`, a saved dump) | [`native`] |
//! | a CTF trace directory that `kymo export` wrote | `ctf`: the events that were exported |
//! | a CTF trace directory of LTTng's | `ctf`: threads, interrupts, system calls, functions |
//! | any other CTF trace directory | `ctf`: events with their names and fields |
//! | what a target with Zephyr's instrumentation subsystem sent | [`zephyr`] |
//!
//! A format knows bytes and fields; what an event *means* is said by a dialect (`dialects/`), so
//! that the packets of a target, whichever way they came here, go through one CTF reader
//! (`kymo-ctf`) and one table of meanings.
//!
//! What is missing or cannot be read does not end the reading: it becomes a
//! [`Gap`](kymo_event::Gap) event at its place in time, and an entry of
//! [`TraceInfo::damage`] where bytes were passed over. [`ReadError`] is for what leaves nothing to
//! go on with.
//!
//! ```no_run
//! use kymo_event::EventKind;
//! use kymo_read::{Events, OpenOptions};
//!
//! let mut source = kymo_read::open("trace".as_ref(), &OpenOptions::default())?;
//! for (thread, name) in &source.info().threads {
//!     println!("thread {thread} is {name}");
//! }
//! for event in Events(&mut *source) {
//!     let event = event?;
//!     match event.kind {
//!         EventKind::Enter { function, .. } => println!("{} ns: enter {function}", event.time),
//!         EventKind::Gap(gap) => println!("{} ns: {gap}", event.time),
//!         _ => {}
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod bytes;
mod ctf;
mod dialects;
mod error;
mod fields;
mod open;
mod source;
mod summary;

pub mod native;
pub mod profile_table;
pub mod zephyr;

pub use dialects::mapping::{Mapping, MappingError};
pub use error::{OpenError, ReadError};
pub use open::{CtfTrace, OpenOptions, Saved, ctf_traces, folder_of_metadata, open, saved};
pub use source::{Events, Source, label_marker, label_markers};
pub use summary::{StreamSummary, Summary};

pub use kymo_event::TraceInfo;
