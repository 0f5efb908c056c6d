//! The registry of output formats: one module each.
//!
//! To add one here, write its module and add its `FORMAT` to [`BUILT_IN`]. Another crate adds its own with
//! [`Formats::with`].

mod csv;
mod ctf;
mod flamegraph;
mod folded;
mod json_lines;
mod lttng;
mod perfetto;
mod trace_event;

use std::path::Path;

use crate::Format;

/// All formats of this crate, in the order in which a help text lists them.
static BUILT_IN: &[&Format] = &[
    &perfetto::FORMAT,
    &trace_event::FORMAT,
    &folded::FORMAT,
    &flamegraph::FORMAT,
    &ctf::FORMAT,
    &ctf::FORMAT_2,
    &lttng::FORMAT,
    &csv::FORMAT,
    &json_lines::FORMAT,
];

/// The formats that a user can choose from.
#[derive(Clone, Debug)]
pub struct Formats {
    list: Vec<&'static Format>,
}

impl Default for Formats {
    /// [`built_in`](Self::built_in).
    fn default() -> Self {
        Self::built_in()
    }
}

impl Formats {
    /// The formats of this crate.
    pub fn built_in() -> Self {
        Self {
            list: BUILT_IN.to_vec(),
        }
    }

    /// Adds a format. It replaces one of the same name; a file extension that two formats share belongs to the earlier
    /// one.
    #[must_use]
    pub fn with(mut self, format: &'static Format) -> Self {
        match self.list.iter_mut().find(|known| known.name == format.name) {
            Some(known) => *known = format,
            None => self.list.push(format),
        }
        self
    }

    /// All of them, in the order in which a help text lists them.
    pub fn iter(&self) -> impl Iterator<Item = &'static Format> {
        self.list.iter().copied()
    }

    /// The format of this name.
    pub fn by_name(&self, name: &str) -> Option<&'static Format> {
        self.iter().find(|format| format.name == name)
    }

    /// The format with this file extension. A format without extensions is found only by its name.
    pub fn by_path(&self, path: &Path) -> Option<&'static Format> {
        let extension = path.extension()?.to_str()?;
        self.iter()
            .find(|format| format.extensions.contains(&extension))
    }
}
