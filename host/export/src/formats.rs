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

    /// These and another one. It takes the place of one of the same name; an ending of files' names that it
    /// shares with one before is that one's.
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

    /// The format whose files end so. A format whose ending says nothing is found by its name only.
    pub fn by_path(&self, path: &Path) -> Option<&'static Format> {
        let extension = path.extension()?.to_str()?;
        self.iter()
            .find(|format| format.extensions.contains(&extension))
    }
}
