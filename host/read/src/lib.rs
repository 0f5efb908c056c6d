//! Readers for all trace formats, which convert them to Kymo's event model.
//!
//! [`open()`] recognizes a file or directory by its content, never by its name, and returns a [`Source`]. A source
//! provides the properties of the whole trace ([`TraceInfo`]) and its events in batches, with all streams merged by
//! time. Memory depends on the number of streams, not on the length of the trace.
//!
//! | input | module |
//! |---|---|
//! | a trace directory of Kymo | [`kymo`] |
//! | a raw Kymo file: the identity line, then packets (`kymo_save`, a saved dump) | [`kymo`] |
//! | a CTF trace directory from `kymo export` | `ctf`: the exported events |
//! | a CTF trace directory of LTTng | `ctf`: threads, interrupts, system calls, functions |
//! | any other CTF trace directory | `ctf`: events with their names and fields |
//! | a Linux ftrace trace.dat, its raw pages, or the kernel's text | `ftrace`: functions, threads, interrupts, system calls |
//! | recordings of SEGGER SystemView, or its buffer in a memory dump | [`systemview`] |
//! | an RTEMS event recording: a stream, a dump, a console log | [`rtems_record`] |
//! | Arm hardware trace: perf.data, OpenCSD snapshots | [`coresight`]: functions, threads and exceptions of the complete execution path |
//! | data sent by a target with Zephyr's instrumentation subsystem | [`zephyr_instrumentation`] |
//!
//! A format module handles bytes and fields. A dialect (`dialects/`) defines the *meaning* of an event. So all packets
//! of a target pass through one CTF reader (`kymo-ctf`) and one table of meanings, whatever transport they used.
//!
//! Missing or unreadable data does not end reading: it becomes a [`Gap`](kymo_event::Gap) event at its time, and
//! skipped bytes also become an entry of [`TraceInfo::damage`]. [`ReadError`] is for errors after which reading cannot
//! continue.
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
//! // Code that is not time-critical can iterate over single events.
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
mod reused;

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
