//! Reader and writer for Linux ftrace data: trace.dat files, raw ring-buffer pages and text.
//!
//! - [`Trace`] holds a trace.dat of version 6 or 7, or the contents of a directory of raw pages and format files.
//!   [`Records`] iterates over its records in order of time.
//! - [`EventFormat`] and [`PrintFormat`] parse and evaluate the kernel's descriptions of events.
//! - [`Report`] writes records as `trace-cmd report` does.
//! - [`DatFile`] writes a trace.dat.
//!
//! No input causes a panic, a hang or unbounded memory use. Unreadable data is reported with its offset, and reading
//! continues behind it.
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
