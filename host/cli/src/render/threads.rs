//! Display names of threads.

use kymo_event::{Tid, TraceInfo};

/// Names threads uniquely: by their names where these suffice, else by name and number.
#[derive(Debug)]
pub struct ThreadNames {
    /// Whether thread ids are small numbers (of Linux), not addresses.
    decimal: bool,
    /// Whether names never identify threads, because a system's processes name their threads freely.
    all_ambiguous: bool,
    /// Names that several threads share, in alphabetical order.
    ambiguous: Vec<String>,
    widest: usize,
}

impl ThreadNames {
    /// Collects the names of a trace's threads that are known in advance.
    pub fn new(info: &TraceInfo) -> Self {
        let threads = info.identities.threads().iter();
        let named = threads.filter_map(|thread| Some((thread.tid, thread.name.as_deref()?)));
        let named: Vec<(Tid, &str)> = named.collect();
        let mut names: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
        names.sort_unstable();
        let pairs = names.iter().zip(names.iter().skip(1));
        let twice = pairs.filter(|(one, other)| one == other);
        let mut ambiguous: Vec<String> = twice.map(|(name, _)| (*name).to_owned()).collect();
        ambiguous.dedup();
        let mut threads = Self {
            decimal: info.numbered_threads
                || info.streams.iter().any(|stream| stream.thread.is_some()),
            all_ambiguous: info.numbered_threads,
            ambiguous,
            widest: 0,
        };
        let shown = named.iter().map(|(id, name)| threads.name(*id, Some(name)));
        threads.widest = shown.map(|name| name.chars().count()).max().unwrap_or(10);
        threads
    }

    /// The display name of a thread: its name; name and number if it shares the name; the number alone without a
    /// name.
    pub fn name(&self, thread: Tid, name: Option<&str>) -> String {
        let number = || {
            if self.decimal {
                thread.0.to_string()
            } else {
                thread.to_string()
            }
        };
        match name {
            None | Some("") => number(),
            Some(name) if self.is_shared(name) => format!("{name}:{}", number()),
            Some(name) => name.to_owned(),
        }
    }

    fn is_shared(&self, name: &str) -> bool {
        if self.all_ambiguous {
            return true;
        }
        let known = |other: &String| other.as_str().cmp(name);
        self.ambiguous.binary_search_by(known).is_ok()
    }

    /// The width of the longest name, in characters.
    pub fn widest(&self) -> usize {
        self.widest
    }
}

/// A name cut or filled up to the width of a column.
pub fn cell(name: &str, width: usize) -> String {
    format!("{:<width$}", cut(name, width))
}

/// Truncates a text to a width, with a `~` at the end.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['~'])
        .collect()
}
