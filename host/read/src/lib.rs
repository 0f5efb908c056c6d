//! Every trace format to Kymo's events.
//!
//! [`open()`] looks at what is in a file or directory, never at what it is called, and gives a
//! [`Source`]: what is known of the trace as a whole ([`TraceInfo`]), then its events, a batch at a time,
//! all streams merged by time, with memory that depends on the number of streams and not on the
//! length of the trace.
//!
//! | input | module |
//! |---|---|
//! | a trace directory that Kymo wrote | [`kymo`] |
//! | a raw Kymo file: the identity line, then packets (`kymo_save`, a saved dump) | [`kymo`] |
//! | a CTF trace directory that `kymo export` wrote | `ctf`: the events that were exported |
//! | a CTF trace directory of LTTng's | `ctf`: threads, interrupts, system calls, functions |
//! | any other CTF trace directory | `ctf`: events with their names and fields |
//! | a trace.dat of Linux's ftrace, its raw pages, or the kernel's text | `ftrace`: functions, threads, interrupts, system calls |
//! | recordings of SEGGER SystemView, what it left in memory | [`systemview`] |
//! | a recording of RTEMS's events: a stream, a dump, a console's log | [`rtems_record`] |
//! | Arm hardware trace: perf.data, OpenCSD's snapshots | [`coresight`]: functions, threads, exceptions of the whole path |
//! | what a target with Zephyr's instrumentation subsystem sent | [`zephyr_instrumentation`] |
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
//! use kymo_event::{Batch, EventKind};
//! use kymo_read::{Events, OpenOptions};
//!
//! let mut source = kymo_read::open("trace".as_ref(), &OpenOptions::default())?;
//! let mut events = 0;
//! let mut batch = Batch::default();
//! while source.fill(&mut batch)? {
//!     events += batch.len();
//! }
//! for thread in source.info().identities.threads() {
//!     println!("thread {} is {:?}", thread.tid, thread.name);
//! }
//! // What is not in a hurry takes events as a whole.
//! let mut source = kymo_read::open("trace".as_ref(), &OpenOptions::default())?;
//! for event in Events::new(&mut *source) {
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

mod ahead;
mod bytes;
pub use bytes::Bytes;
mod code;
mod declared;
mod dialects;
mod error;
mod fields;
mod formats;
mod fuzzing;
mod linux;
mod open;
mod peek;
mod source;
mod summary;
mod together;

pub use formats::ftrace::FtraceTrace;
pub use formats::{coresight, kymo, rtems_record, systemview, zephyr_instrumentation};
pub mod profile_table;

pub use ahead::read_ahead;
pub use code::resolve_code;
pub use declared::{Declarations, describe_events};
pub use dialects::mapping::{Mapping, MappingError};
pub use error::{OpenError, ReadError};
pub use open::{
    CtfTrace, OpenOptions, Saved, ctf_traces, default_threads, folder_of_metadata, open, saved,
};
pub use source::{Events, Source, label_marker, label_markers};
pub use summary::{StreamSummary, Summary};

#[doc(hidden)]
pub use fuzzing::fuzz_open;

pub use kymo_event::TraceInfo;
