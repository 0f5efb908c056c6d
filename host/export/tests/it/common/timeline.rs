//! Timeline as a viewer builds it, with checks that any timeline must pass.

use std::collections::{BTreeMap, BTreeSet};

use kymo_analysis::calls::{Callee, Calls, How, Step};
use kymo_event::Batch;

use super::Trace;

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Begin of a slice.
    Begin(String),
    /// End of the innermost slice.
    End,
    /// An instant.
    Instant(String),
    /// The value of a counter.
    Counter(String),
}

/// An entry of a row, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time in nanoseconds.
    pub time: i64,
    pub what: What,
    /// Names and values of annotations.
    pub notes: BTreeMap<String, String>,
}

/// A row: a thread, an interrupt, a CPU, or the gaps of a stream.
#[derive(Clone, Debug, Default)]
pub struct ViewerRow {
    pub name: String,
    /// The name of its process; empty if the row is a process.
    pub process: String,
    pub entries: Vec<Entry>,
}

/// A slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    pub name: String,
    pub begin: i64,
    pub end: i64,
    pub depth: usize,
    /// Notes of its begin and end.
    pub notes: BTreeMap<String, String>,
}

/// All rows, by number.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub rows: BTreeMap<u64, ViewerRow>,
    /// The names of processes, by number.
    pub processes: BTreeMap<u64, String>,
}

impl Timeline {
    /// Checks that every row has a unique name (a counter's is unique within its process), that time does not go back
    /// in a row, and that its slices are balanced.
    pub fn check(&self) {
        let mut names = BTreeSet::new();
        for (number, row) in &self.rows {
            assert!(!row.name.is_empty(), "row {number} has no name");
            let is_counter = |entry: &Entry| matches!(entry.what, What::Counter(_));
            let process = row.entries.iter().any(is_counter).then_some(&row.process);
            assert!(
                names.insert((process, &row.name)),
                "two rows {:?}",
                row.name
            );
            let mut depth = 0;
            let mut last = i64::MIN;
            for entry in &row.entries {
                assert!(entry.time >= last, "{:?} goes back: {entry:?}", row.name);
                last = entry.time;
                match entry.what {
                    What::Begin(_) => depth += 1,
                    What::End => {
                        assert!(depth > 0, "{:?}: an end too many: {entry:?}", row.name);
                        depth -= 1;
                    }
                    What::Instant(_) | What::Counter(_) => {}
                }
            }
            assert_eq!(depth, 0, "{:?}: slices are left open", row.name);
        }
    }

    /// The row with this name.
    pub fn row(&self, name: &str) -> &ViewerRow {
        let mut rows = self.rows.values();
        rows.find(|row| row.name == name)
            .unwrap_or_else(|| panic!("no row {name:?} in {:?}", self.names()))
    }

    /// The names of the rows.
    pub fn names(&self) -> Vec<&str> {
        self.rows.values().map(|row| row.name.as_str()).collect()
    }

    /// The slices of calls in all rows, in order.
    pub fn calls(&self) -> Vec<Slice> {
        let calls = |row: &&ViewerRow| {
            let of_cpu = row.name.strip_prefix("CPU ");
            !row.name.starts_with("gaps of ")
                && of_cpu.is_none_or(|cpu| cpu.parse::<u32>().is_err())
        };
        let rows = self.rows.values().filter(calls);
        let mut slices: Vec<Slice> = rows.flat_map(ViewerRow::slices).collect();
        slices.sort();
        slices
    }
}

/// Name, begin and end of each slice.
pub fn spans(slices: &[Slice]) -> Vec<(&str, i64, i64)> {
    let slices = slices.iter();
    slices
        .map(|slice| (slice.name.as_str(), slice.begin, slice.end))
        .collect()
}

impl ViewerRow {
    /// The slices, in the order in which they end.
    pub fn slices(&self) -> Vec<Slice> {
        let mut open: Vec<(String, &Entry)> = Vec::new();
        let mut slices = Vec::new();
        for entry in &self.entries {
            match &entry.what {
                What::Begin(name) => open.push((name.clone(), entry)),
                What::End => {
                    let (name, begin) = open.pop().expect("an end too many");
                    let mut notes = begin.notes.clone();
                    notes.extend(entry.notes.clone());
                    slices.push(Slice {
                        name,
                        begin: begin.time,
                        end: entry.time,
                        depth: open.len(),
                        notes,
                    });
                }
                What::Instant(_) | What::Counter(_) => {}
            }
        }
        slices
    }

    /// The values of counters, with their times.
    pub fn counters(&self) -> Vec<(i64, &str)> {
        let entries = self.entries.iter();
        entries
            .filter_map(|entry| match &entry.what {
                What::Counter(value) => Some((entry.time, value.as_str())),
                _ => None,
            })
            .collect()
    }

    /// The instants: time and name.
    pub fn instants(&self) -> Vec<(i64, &str)> {
        let entries = self.entries.iter();
        entries
            .filter_map(|entry| match &entry.what {
                What::Instant(name) => Some((entry.time, name.as_str())),
                _ => None,
            })
            .collect()
    }
}

/// The calls that the analysis finds in a trace, as slices with the notes that an export must contain; times are
/// unchanged.
pub fn expected_calls(trace: &Trace) -> Vec<Slice> {
    let mut calls = Calls::new(&trace.info, Default::default());
    let mut slices = Vec::new();
    let identities = &trace.info.identities;
    let mut take = |step: Step<'_>| {
        let Step::End(end) = step else { return };
        let Some(begin) = end.begin else { return };
        let name = match end.callee {
            Callee::Function(function) => trace.function(function),
            Callee::Interrupt(irq) => {
                let number = identities.irq(irq);
                identities.interrupt_name(irq).map_or_else(
                    || format!("irq {number}"),
                    |name| format!("{name} (irq {number})"),
                )
            }
            Callee::Unknown => "(unknown function)".to_owned(),
        };
        let mut notes = BTreeMap::new();
        let mut note = |name: &str, value: &str| notes.insert(name.to_owned(), value.to_owned());
        match end.how {
            How::Repaired(repair) => note("closed by inference", repair.name()),
            How::Jumped => note("left by", "longjmp"),
            How::RecordingOff => note("still open", "when recording was turned off"),
            How::Open => note("still open", "at the end of the trace"),
            How::NoEnd => note("end", "not recorded"),
            How::Returned | How::Orphan => None,
        };
        if end.doubt.loss {
            note("doubtful", "events were lost while it was open");
        }
        if end.doubt.clock {
            note("doubtful time", "the clock was uncertain meanwhile");
        }
        if end.doubt.interrupt {
            note(
                "doubtful interruption",
                "the beginning of an interrupt is missing",
            );
        }
        slices.push(Slice {
            name,
            begin: begin.0,
            end: end.time.0,
            depth: end.depth as usize,
            notes,
        });
    };
    let events: Batch = trace.events.iter().cloned().collect();
    for event in events.iter() {
        calls.push(event, &mut take);
    }
    calls.finish(&mut take);
    slices.sort();
    slices
}
