//! Which part of a trace to look at, by thread and time.
//!
//! Elements carry neither: a context says which thread runs from there on, a timestamp that what came before it happened
//! before. A [`Tracker`] follows both through the elements of one source.

use std::collections::BTreeSet;

use crate::element::Element;
use crate::source::Protocol;

/// Which part of a trace to look at; all of it by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these threads, by their numbers.
    pub threads: Option<BTreeSet<u32>>,
    /// From this timestamp on, in ticks of the trace's clock.
    pub begin: Option<u64>,
    /// Up to this timestamp.
    pub end: Option<u64>,
}

/// Follows thread and time through the elements of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracker<'a> {
    protocol: Protocol,
    selection: &'a Selection,
    /// The thread whose trace it is, if it is one's alone.
    only: Option<u32>,
    thread: Option<u32>,
    time: Option<u64>,
    is_selected: bool,
}

impl<'a> Tracker<'a> {
    /// Begins a source. `only` is the thread whose trace it is, if it is one's alone.
    pub fn new(protocol: &Protocol, only: Option<u32>, selection: &'a Selection) -> Self {
        let mut tracker = Tracker {
            protocol: *protocol,
            selection,
            only,
            thread: None,
            time: None,
            is_selected: true,
        };
        tracker.select();
        tracker
    }

    /// Takes the next element. Whether it is a context of another thread than before.
    #[inline]
    pub fn take(&mut self, element: &Element) -> bool {
        match element {
            Element::Context(context) => {
                let before = self.thread();
                self.thread = self.protocol.thread_of(context);
                self.select();
                self.thread() != before
            }
            Element::Timestamp { value, .. } => {
                self.time = Some(*value);
                self.select();
                false
            }
            _ => false,
        }
    }

    fn select(&mut self) {
        let Selection {
            threads,
            begin,
            end,
        } = self.selection;
        let is_chosen = |threads: &BTreeSet<u32>| {
            let thread = self.thread();
            thread.is_some_and(|thread| threads.contains(&thread))
        };
        // What comes before the first timestamp is at no known time.
        self.is_selected = threads.as_ref().is_none_or(is_chosen)
            && begin.is_none_or(|begin| self.time.is_some_and(|time| time >= begin))
            && end.is_none_or(|end| self.time.is_some_and(|time| time <= end));
    }

    /// Whether what comes next is selected.
    #[inline]
    pub fn is_selected(&self) -> bool {
        self.is_selected
    }

    /// The thread that runs.
    pub fn thread(&self) -> Option<u32> {
        self.only.or(self.thread)
    }

    /// The last timestamp.
    pub fn time(&self) -> Option<u64> {
        self.time
    }
}
