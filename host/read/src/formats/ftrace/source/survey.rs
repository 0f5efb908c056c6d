//! Survey of a trace before its records are read: the kinds of records, and remarks.

use kymo_event::InterruptKind;
use kymo_ftrace::{Records, Step, Trace};

use super::event_id;
use crate::formats::ftrace::meaning::Meaning;
use crate::formats::ftrace::numbered_calls::{Names, Syscall};
use crate::formats::ftrace::{BEGINNINGS, Beginnings, NO_ENDS};

/// Number of records that are examined to determine the kind of function trace.
const LOOKED_AT: usize = 20_000;

/// Kinds of the records at the beginning of a trace.
#[derive(Default)]
pub(super) struct Kinds {
    pub(super) entries: u64,
    pub(super) exits: u64,
    pub(super) functions: u64,
    pub(super) switches: u64,
    /// Exits whose calls ended just before the record's timestamp.
    local: u64,
    /// Starts and ends of interrupts, softirqs, named system calls, and numbered ones.
    spans: [(u64, u64); 4],
    /// Names of system calls by number.
    pub(super) names: Names,
}

/// Places of system calls in [`Kinds::spans`].
const NAMED: usize = 2;
const NUMBERED: usize = 3;

/// Usual largest number of ticks from the end of a call to the record of its exit.
const SOON: u64 = 100_000;

impl Kinds {
    /// Returns whether records have timestamps of the clock that the kernel uses for the times of calls: its `local`
    /// clock.
    pub(super) const fn is_local(&self) -> bool {
        self.exits > 0 && self.local * 4 >= self.exits * 3
    }

    /// Examines the first records. (That the trace has formats of an event says nothing: tracefs has those of all.)
    pub(super) fn of(trace: &Trace, meanings: &[Option<Meaning>], bytes: &[u8]) -> Self {
        let mut kinds = Self::default();
        let mut records = Records::new(trace, bytes);
        let mut left = LOOKED_AT;
        while let Some((_, step)) = records.next(trace, bytes) {
            if let Step::Record(record) = step {
                match meaning_of(trace, meanings, record.data) {
                    Some(Meaning::Entry { .. }) => kinds.entries += 1,
                    Some(Meaning::Exit(exit)) => {
                        let ended = trace.scope().field(&exit.rettime, record.data);
                        let since = record.ticks.checked_sub(ended);
                        kinds.exits += 1;
                        kinds.local += u64::from(since.is_some_and(|since| since < SOON));
                    }
                    Some(Meaning::Function { .. }) => kinds.functions += 1,
                    Some(Meaning::Switch(_)) => kinds.switches += 1,
                    Some(meaning) => {
                        kinds.span(meaning);
                        kinds.system_call(trace, meaning, (record.ticks, record.data));
                    }
                    None => {}
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        kinds
    }

    /// Learns the names of numbers.
    fn system_call(&mut self, trace: &Trace, meaning: &Meaning, (ticks, data): (u64, &[u8])) {
        let ticks = Some(ticks);
        let number = |bytes: &[u8]| (trace.order.number(bytes) as u32).cast_signed();
        let task = data.get(4..8).map_or(0, number);
        match meaning {
            Meaning::CallEntry { name } => self.names.enter(task, Syscall::Named(name), ticks),
            Meaning::NumberedEntry { id } => {
                let number = trace.scope().field(id, data) as u32;
                self.names
                    .enter(task, Syscall::Numbered(number.cast_signed()), ticks);
            }
            Meaning::CallExit { .. } | Meaning::NumberedExit { .. } => self.names.exit(task),
            _ => {}
        }
    }

    fn span(&mut self, meaning: &Meaning) {
        let (place, begins): (usize, _) = match meaning {
            Meaning::IrqEntry { .. } => (0, true),
            Meaning::IrqExit { .. } => (0, false),
            Meaning::KindEntry { kind, .. } if *kind == InterruptKind::Soft => (1, true),
            Meaning::KindExit { kind, .. } if *kind == InterruptKind::Soft => (1, false),
            Meaning::CallEntry { .. } => (NAMED, true),
            Meaning::CallExit { .. } => (NAMED, false),
            Meaning::NumberedEntry { .. } => (NUMBERED, true),
            Meaning::NumberedExit { .. } => (NUMBERED, false),
            _ => return,
        };
        if let Some((beginnings, ends)) = self.spans.get_mut(place) {
            *beginnings += u64::from(begins);
            *ends += u64::from(!begins);
        }
    }

    /// Returns whether there are function calls with ends, or system calls.
    pub(super) const fn has_calls(&self) -> bool {
        let [_, _, named, numbered] = self.spans;
        self.entries + self.exits + named.0 + named.1 + numbered.0 + numbered.1 > 0
    }

    /// Returns the kinds that have only beginnings.
    pub(super) fn beginnings(&self) -> Beginnings {
        let [interrupts, softirqs, named, numbered] = self.spans;
        let calls = (named.0 + numbered.0, named.1 + numbered.1);
        let alone = |(begins, ends)| begins >= BEGINNINGS && ends == 0;
        Beginnings {
            interrupts: alone(interrupts),
            softirqs: alone(softirqs),
            calls: alone(calls),
        }
    }
}

fn meaning_of<'m>(
    trace: &Trace,
    meanings: &'m [Option<Meaning>],
    data: &[u8],
) -> Option<&'m Meaning> {
    meanings.get(event_id(trace, data)?)?.as_ref()
}

/// Returns a remark about a second trace.dat in the file.
pub(super) fn second_file(offset: u64) -> String {
    format!(
        "another trace.dat begins at offset {offset:#x}: it is not read; cut the file there to read it apart"
    )
}

/// Returns the remarks about a trace.
pub(super) fn remarks(trace: &Trace, kinds: &Kinds) -> Vec<String> {
    let options = &trace.options;
    let mut remarks = Vec::new();
    if let Some(clock) = trace.clock().filter(|_| !trace.has_nanoseconds()) {
        remarks.push(format!(
            "times are not nanoseconds but ticks of the clock {clock}: the trace does not tell how long one takes"
        ));
    }
    for stats in &options.cpu_stats {
        let number = |name: &str| -> Option<u64> {
            let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        let cpu = number("CPU:").unwrap_or(0);
        for (name, what) in [
            ("overrun:", "overwrote events that had not been read"),
            ("dropped events:", "dropped events"),
        ] {
            if let Some(count) = number(name).filter(|count| *count > 0) {
                remarks.push(format!("the kernel {what}: {count} on CPU {cpu}"));
            }
        }
    }
    if kinds.entries > 0 && kinds.exits > 0 && !kinds.is_local() {
        remarks.push(
            "calls begin and end with their records, some 100 ns late: the kernel took their times by another clock than \
             those of records"
                .to_owned(),
        );
    }
    remarks.extend(kinds.beginnings().remark());
    if kinds.functions > 0 {
        remarks.push(NO_ENDS.to_owned());
    }
    if trace.text.is_some() {
        remarks.push("the file holds text of a latency tracer, which is not read".to_owned());
    }
    for guest in &options.guests {
        remarks.push(format!(
            "guest {:?} was traced along: its file has the trace id {:#x}",
            guest.name, guest.trace_id
        ));
    }
    remarks
}
