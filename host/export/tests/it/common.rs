//! What the tests of all formats share: traces made by hand, and a timeline to read them back
//! into.
#![allow(
    dead_code,
    reason = "every test binary compiles all of it and uses a part"
)]

pub mod json;
pub mod proto;
pub mod python;
pub mod timeline;
pub mod traces;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use kymo_event::{Batch, Event, EventKind, FunctionId, TraceInfo};
use kymo_export::{Destination, Export, ExportError, Formats, Options, Summary};
use kymo_symbols::Symbols;

/// A trace made by hand.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What is known of it before its first event.
    pub info: TraceInfo,
    /// Its events.
    pub events: Vec<Event>,
}

/// So many events come in a batch: few, so that there are borders.
const BATCH: usize = 7;

impl Trace {
    /// Gives its events in batches, each with what is known of the trace by then.
    pub fn batches(&self, mut take: impl FnMut(&TraceInfo, &Batch)) -> TraceInfo {
        let mut info = self.info.clone();
        for events in self.events.chunks(BATCH) {
            for event in events {
                match &event.kind {
                    EventKind::ThreadName { thread, name } => {
                        info.identities.name_thread(*thread, name);
                    }
                    EventKind::IsrName { irq, name } => {
                        info.identities.name_interrupt(*irq, name);
                    }
                    _ => {}
                }
            }
            take(&info, &events.iter().cloned().collect());
        }
        info
    }

    /// The name of a function, as the trace itself gives it.
    pub fn function(&self, id: FunctionId) -> String {
        let function = self.info.identities.function(id).expect("a function");
        let address = function.address.unwrap_or_default();
        let name = function.name.as_deref().map(str::to_owned);
        name.unwrap_or_else(|| address.to_string())
    }

    /// Exports it.
    pub fn write(
        &self,
        format: &str,
        symbols: &Arc<Symbols>,
        destination: Destination<'_>,
        options: &Options,
    ) -> Result<Summary, ExportError> {
        let format = Formats::built_in().by_name(format).unwrap();
        let mut export = Export::new(format, &self.info, symbols, destination, options)?;
        let info = self.batches(|info, batch| {
            export.batch(info, batch).unwrap();
        });
        export.finish(&info)
    }

    /// Exports it to a format of one file.
    pub fn export_with(&self, format: &str, options: &Options) -> (Vec<u8>, Summary) {
        let mut out = Vec::new();
        let destination = Destination::Writer(Box::new(&mut out));
        let summary = self.write(format, &Arc::default(), destination, options);
        let summary = summary.unwrap();
        (out, summary)
    }

    /// Exports it to a format of one file, with the usual options.
    pub fn export(&self, format: &str) -> (Vec<u8>, Summary) {
        self.export_with(format, &Options::default())
    }

    /// Exports it to a format that is a directory.
    pub fn export_to(&self, format: &str, directory: &Path) -> Summary {
        let destination = Destination::Directory(directory);
        let summary = self.write(format, &Arc::default(), destination, &Options::default());
        summary.unwrap()
    }
}

/// Says that a test could not be made, past the harness, which keeps what passing tests print.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// The same of something that a machine which tests everything has to have: where `CI` is `true`,
/// its absence is a failure.
pub fn missing(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    skipped(why);
}
