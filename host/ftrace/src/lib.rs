//! Linux ftrace: what the kernel's tracer leaves, in all its forms.
//!
//! - [`Trace`] is a trace.dat of version 6 or 7 (or what a directory of raw pages and format files says), [`Records`]
//!   its records in the order of time.
//! - [`EventFormat`] and [`PrintFormat`] are the kernel's descriptions of events, parsed and evaluated.
//! - [`Report`] writes records as `trace-cmd report` does.
//! - [`DatFile`] is a trace.dat to be written.
//!
//! No input makes it panic, hang or take memory without bound; what cannot be read is reported with its place, and what
//! follows is read.
//!
//! Sources: `trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`; the kernel's `Documentation/trace/ftrace.rst`, `events.rst`,
//! `ring-buffer-design.rst`.
#![forbid(unsafe_code)]

mod clock;
mod cursor;
mod dat;
mod decompress;
mod error;
mod flags;
mod format;
mod fuzzing;
mod order;
mod page;
mod records;
mod report;
mod symbols;
pub mod text;
mod write;

pub use clock::{CpuShift, Sample, Timing};
pub use cursor::{CpuCursor, CpuData, Next, Record};
pub use dat::{Buffer, Guest, MAGIC, Options, Trace};
pub use decompress::Compression;
pub use error::Error;
pub use flags::latency;
pub use format::{EventFormat, FieldFormat, Formats, PrintFormat, Scope, Shape};
#[doc(hidden)]
pub use fuzzing::fuzz;
pub use order::Order;
pub use page::{Entry, Lost, Page, PageLayout};
pub use records::{Place, Records, Step};
pub use report::{Report, Style};
pub use symbols::{Comms, PrintkFormats, Symbol, Symbols};
pub use write::DatFile;
