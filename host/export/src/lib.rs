//! Exports of Kymo's traces to other tools' file formats.
//!
//! Users can view a trace in a tool that they know: a timeline in Perfetto, a flame graph in a browser, a spreadsheet,
//! or any reader of CTF. Each [`Format`] is one module and one line of [`Formats`]; an [`Export`] writes a trace batch
//! by batch in one of them.
//!
//! All of them stream: memory grows with the traced program (its threads, depth and functions; for the two that add up
//! stacks, with the number of different stacks), never with the length of the trace. Information that a format can't
//! represent is never dropped silently: it is annotated in the file where the format allows that, and always counted in
//! the [`Summary`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use kymo_event::{Addr, Batch, Row, RowKind, Space, StreamId, Tid, Time, TraceInfo};
//! use kymo_export::{Destination, Export, Formats, Options};
//! use kymo_symbols::Symbols;
//!
//! // The metadata and events of a source.
//! let mut info = TraceInfo::default();
//! let space = info.identities.add_space(Space::default());
//! let function = info.identities.function_at(space, Addr(0x1000));
//! let thread = info.identities.thread(space, Tid(1));
//! let mut batch = Batch::default();
//! for (kind, time) in [(RowKind::Enter, 10), (RowKind::Exit, 35)] {
//!     let row = Row::new(kind, Time(time), StreamId(0)).at(None, Some(thread));
//!     batch.push(row.function(Some(function)));
//! }
//!
//! let mut text = Vec::new();
//! let symbols = Arc::new(Symbols::new());
//! let options = Options::default();
//! let mut export = Export::new(
//!     Formats::built_in().by_name("folded").unwrap(),
//!     &info,
//!     &symbols,
//!     Destination::Writer(Box::new(&mut text)),
//!     &options,
//! )?;
//! export.batch(&info, &batch)?;
//! let summary = export.finish(&info)?;
//! assert_eq!(summary.events, 2);
//! assert_eq!(text, b"thread 1;0x1000 25\n");
//! # Ok::<(), kymo_export::ExportError>(())
//! ```
//!
//! # Formats of other crates
//! A format is a value: another crate defines one with its own [`Sink`] and adds it to the list that it offers its
//! users. This one writes how often each function is called:
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::io::{self, Write};
//!
//! use kymo_event::{Batch, RowKind, TraceInfo, Wanted};
//! use kymo_export::{Context, Destination, Format, Formats, Shape, Sink, Summary};
//!
//! static COUNTS: Format = Format {
//!     name: "counts",
//!     extensions: &["counts"],
//!     about: "how often each function is called",
//!     shape: Shape::File,
//!     binary: false,
//!     wanted: Wanted::Meaning,
//!     takes: kymo_export::Takes::Events { in_order: false },
//!     names_program: false,
//!     merges_threads: false,
//!     open: |_info, context, destination| {
//!         Ok(Box::new(Counts { context, out: destination.writer()?, counts: Vec::new() }))
//!     },
//! };
//!
//! struct Counts<'a> {
//!     context: Context<'a>,
//!     out: Box<dyn Write + 'a>,
//!     counts: Vec<u64>,
//! }
//!
//! impl Sink for Counts<'_> {
//!     fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
//!         self.counts.resize(info.identities.functions().len(), 0);
//!         for row in batch.rows().iter().filter(|row| row.kind == RowKind::Enter) {
//!             if let Some(function) = row.of_function() {
//!                 self.counts[function.0 as usize] += 1;
//!             }
//!         }
//!         Ok(())
//!     }
//!
//!     fn finish(mut self: Box<Self>, info: &TraceInfo, _: &mut Summary) -> io::Result<()> {
//!         for (function, count) in info.identities.functions().iter().zip(&self.counts) {
//!             let name = self.context.symbols.name_of(function).unwrap_or("?");
//!             writeln!(self.out, "{count} {name}")?;
//!         }
//!         self.out.flush()
//!     }
//! }
//!
//! let formats = Formats::built_in().with(&COUNTS);
//! assert_eq!(formats.by_path("trace.counts".as_ref()).unwrap().name, "counts");
//! assert!(formats.by_name("perfetto").is_some());
//! # use std::sync::Arc;
//! # use kymo_event::{Row, Space, StreamId, Time};
//! # let mut info = TraceInfo::default();
//! # let space = info.identities.add_space(Space::default());
//! # let function = info.identities.function_named(space, "main");
//! # let mut batch = Batch::default();
//! # batch.push(Row::new(RowKind::Enter, Time(1), StreamId(0)).function(Some(function)));
//! # let mut text = Vec::new();
//! # let symbols = Arc::new(kymo_symbols::Symbols::new());
//! # let destination = Destination::Writer(Box::new(&mut text));
//! # let options = kymo_export::Options::default();
//! # let mut export = kymo_export::Export::new(&COUNTS, &info, &symbols, destination, &options)?;
//! # export.batch(&info, &batch)?;
//! # export.finish(&info)?;
//! # assert_eq!(text, b"1 main\n");
//! # Ok::<(), kymo_export::ExportError>(())
//! ```
#![forbid(unsafe_code)]

pub mod csv;
mod cut;
mod end_notes;
mod error;
mod export;
mod format;
mod formats;
mod gaps;
pub mod json;
mod listing;
mod names;
mod output;
mod processes;
mod stacks;
mod summary;
mod timeline;
mod tracks;

pub use error::ExportError;
pub use export::{Export, Options};
pub use format::{Context, Destination, Format, Shape, Sink, Takes};
pub use formats::Formats;
pub use summary::Summary;
