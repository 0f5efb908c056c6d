//! Times at which a traced thread left its CPU and came back, from the kernel's context switches.
//!
//! A trace of user code ends at the entry into the kernel and resumes when the same or another thread leaves the kernel.
//! Contexts name the thread on both sides, but not what the CPU ran in between. The kernel's records do: where tracing
//! pauses, its switches are inserted between the elements. Elsewhere the trace itself has each switch, at the
//! instruction that made it, and the records are not used.

use kymo_coresight::calls::Edge;
use kymo_coresight::memory::Running;

use super::{Item, What};

/// Limit of elements between the end of a pause and the first instruction after it.
const HELD: usize = 1 << 12;

/// Limit of switches in which a thread is looked for.
const LOOK: usize = 64;

/// Inserts context switches between the elements of one CPU.
#[derive(Debug, Default)]
pub(super) struct OffCpu {
    /// Switches of the CPU, in the order of time.
    switches: Vec<(i64, Running)>,
    /// Time after the last instruction.
    end: i64,
    /// Thread of the trace.
    thread: Option<u32>,
    /// Time of the last element before the pause, with its bounds.
    last: Option<(i64, (i64, i64))>,
    /// Elements since tracing resumed, up to the first that tells which thread runs.
    held: Vec<Item>,
}

impl OffCpu {
    /// Creates the state for a CPU with these switches. Nothing was traced after `end`.
    pub fn new(switches: &[(u64, Running)], end: u64) -> Self {
        let time = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let switches = switches.iter();
        OffCpu {
            switches: switches.map(|(at, to)| (time(*at), *to)).collect(),
            end: time(end),
            ..OffCpu::default()
        }
    }

    /// Stops the use of switches, because the trace's times are no longer those of the kernel.
    pub fn disable(&mut self) {
        self.switches.clear();
    }

    /// Appends an element to `out`, after the switches before it.
    pub fn add(&mut self, mut item: Item, out: &mut Vec<Item>) {
        let next = match &item.what {
            What::Edge(Edge::Thread { thread }) => Some(*thread),
            What::Edge(Edge::Arrive(_) | Edge::Exception(_)) | What::End => self.thread,
            other => {
                let begins = matches!(
                    other,
                    What::Edge(Edge::TraceOn) | What::Pause | What::Restart
                );
                let is_pause = begins && !self.switches.is_empty() || !self.held.is_empty();
                if is_pause && self.held.len() < HELD {
                    self.held.push(item);
                    return;
                }
                self.thread
            }
        };
        if let What::End = item.what {
            self.leave(&mut item, out);
        } else if !self.held.is_empty() {
            self.resume(next, &item, out);
        }
        self.last = Some((item.time, item.bounds));
        self.thread = next;
        out.push(item);
    }

    /// Appends the elements of a pause that ends with `item`, with the switches in it.
    fn resume(&mut self, next: Option<u32>, item: &Item, out: &mut Vec<Item>) {
        let mut held = self.held.drain(..).peekable();
        let between = self.last.filter(|(_, bounds)| {
            // Thread numbers can be those of another PID namespace than the recording's.
            ran(&self.switches, self.thread, *bounds) && ran(&self.switches, next, item.bounds)
        });
        if let Some((since, _)) = between {
            let first = at(&self.switches, since);
            let switches = self.switches.get(first..).unwrap_or_default();
            let mut runs = self.thread;
            for (time, to) in switches.iter().take_while(|(time, _)| *time <= item.time) {
                let Some(to) = thread(*to) else { continue };
                let time = since.max(*time);
                if std::mem::replace(&mut runs, to) != to {
                    while let Some(before) = held.next_if(|held| held.time < time) {
                        out.push(before);
                    }
                    out.push(runs_at(time, to, item.offset));
                }
            }
        }
        out.extend(held);
    }

    /// Appends the switch away from the thread that ran last, if it was before the end of the recording. The end of
    /// the trace then is no earlier.
    fn leave(&mut self, end: &mut Item, out: &mut Vec<Item>) {
        out.append(&mut self.held);
        let Some((since, bounds)) = self.last else {
            return;
        };
        if !ran(&self.switches, self.thread, bounds) {
            return;
        }
        let switches = self.switches.get(at(&self.switches, since)..);
        let mut switches = switches.unwrap_or_default().iter();
        let left = switches.find(|(_, to)| thread(*to).is_some_and(|to| to != self.thread));
        if let Some((time, _)) = left
            && *time <= self.end
        {
            let time = since.max(*time);
            out.push(runs_at(time, None, end.offset));
            end.time = end.time.max(time);
        }
    }
}

/// Index of the switch that is in effect at a time.
fn at(switches: &[(i64, Running)], time: i64) -> usize {
    let after = switches.partition_point(|(at, _)| *at <= time);
    after.saturating_sub(1)
}

/// Whether a CPU ran a thread in a range of time: among the first or last switches of the range, as a range without
/// timestamps contains all of them.
fn ran(switches: &[(i64, Running)], wanted: Option<u32>, (begin, end): (i64, i64)) -> bool {
    let behind = switches.partition_point(|(time, _)| *time <= end);
    let within = switches.get(at(switches, begin)..behind);
    let within = within.unwrap_or_default();
    let is_wanted = |(_, to): &(i64, Running)| thread(*to) == Some(wanted);
    let mut first = within.iter().take(LOOK);
    let mut last = within.iter().rev().take(LOOK);
    wanted.is_some() && (first.any(is_wanted) || last.any(is_wanted))
}

/// Thread after a switch: `None` if the record does not tell, `Some(None)` if no thread of the recording runs.
fn thread(to: Running) -> Option<Option<u32>> {
    match to {
        // The idle task, or a thread of another PID namespace.
        Running::Thread(0) | Running::Untraced => Some(None),
        Running::Thread(thread) => Some(Some(thread)),
        Running::Dead | Running::Unknown => None,
    }
}

fn runs_at(time: i64, thread: Option<u32>, offset: u64) -> Item {
    Item {
        time,
        bounds: (time, time),
        offset,
        what: What::Runs(thread),
    }
}
