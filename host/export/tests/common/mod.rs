//! What the tests of all formats share: traces made by hand, and a timeline to read them back
//! into.
#![allow(
    dead_code,
    reason = "every test binary compiles all of it and uses a part"
)]

pub mod json;
pub mod proto;
pub mod timeline;
pub mod traces;

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

use kymo_event::{Event, TraceInfo};
use kymo_export::{Destination, Options, Summary, by_name, export};
use kymo_symbols::Symbols;

/// A trace made by hand.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What is known of it.
    pub info: TraceInfo,
    /// Its events.
    pub events: Vec<Event>,
}

impl Trace {
    /// Its events as a source that does not fail.
    pub fn source(&self) -> impl Iterator<Item = Result<Event, Infallible>> {
        self.events.iter().cloned().map(Ok)
    }

    /// The name of a function, as the trace itself gives it.
    pub fn function(&self, address: kymo_event::Addr) -> String {
        self.info
            .functions
            .iter()
            .find(|function| function.address == address)
            .map_or_else(|| address.to_string(), |function| function.name.clone())
    }

    /// Exports it to a format of one file.
    pub fn export_with(&self, format: &str, options: &Options) -> (Vec<u8>, Summary) {
        let mut out = Vec::new();
        let summary = export(
            by_name(format).unwrap(),
            &self.info,
            &mut self.source(),
            &Symbols::new(),
            Destination::Writer(Box::new(&mut out)),
            options,
        )
        .unwrap();
        (out, summary)
    }

    /// Exports it to a format of one file, with the usual options.
    pub fn export(&self, format: &str) -> (Vec<u8>, Summary) {
        self.export_with(format, &Options::default())
    }

    /// Exports it to a format that is a directory.
    pub fn export_to(&self, format: &str, directory: &Path) -> Summary {
        export(
            by_name(format).unwrap(),
            &self.info,
            &mut self.source(),
            &Symbols::new(),
            Destination::Directory(directory),
            &Options::default(),
        )
        .unwrap()
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
