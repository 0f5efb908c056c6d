//! Shared by the tests of all formats: synthetic traces, and a timeline that is read back from a file.
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

/// A synthetic trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Description of the trace before its first event.
    pub info: TraceInfo,
    /// Its events.
    pub events: Vec<Event>,
}

/// Number of events in a batch: small, so that a trace has several batches.
const BATCH: usize = 7;

impl Trace {
    /// Passes the events in batches to `take`, each with the description of the trace up to there.
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

    /// The name of a function in the trace itself.
    pub fn function(&self, id: FunctionId) -> String {
        let function = self.info.identities.function(id).expect("a function");
        let address = function.address.unwrap_or_default();
        let name = function.name.as_deref().map(str::to_owned);
        name.unwrap_or_else(|| address.to_string())
    }

    /// Exports the trace.
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

    /// Exports the trace to a format with one file.
    pub fn export_with(&self, format: &str, options: &Options) -> (Vec<u8>, Summary) {
        let mut out = Vec::new();
        let destination = Destination::Writer(Box::new(&mut out));
        let summary = self.write(format, &Arc::default(), destination, options);
        let summary = summary.unwrap();
        (out, summary)
    }

    /// Exports the trace to a format with one file, with default options.
    pub fn export(&self, format: &str) -> (Vec<u8>, Summary) {
        self.export_with(format, &Options::default())
    }

    /// Exports the trace to a format that is a directory.
    pub fn export_to(&self, format: &str, directory: &Path) -> Summary {
        let destination = Destination::Directory(directory);
        let summary = self.write(format, &Arc::default(), destination, &Options::default());
        summary.unwrap()
    }
}

/// Reports that a test did not run. The message goes directly to standard error, because the harness hides the output
/// of tests that pass.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Reports that a test did not run because a requirement is missing that a build server has; if `CI` is `true`, it
/// fails.
pub fn missing(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    skipped(why);
}
