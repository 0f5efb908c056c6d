//! What became of a trace on its way into another tool's file.
//!
//! Another tool's file can seldom say all that a trace says, and a viewer shows a repaired call
//! much like a whole one. So every export also returns numbers, for the command line to show.

use kymo_analysis::clock_repair::ClockRepairCounts;
use kymo_analysis::replay::{Replay, Window};
use kymo_event::{Batch, Cut, EventKind, RowKind};

use crate::cut::within;

/// What an export took, and what it had to leave out or change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Records of the input taken: those in the window that are selected. What the reader added to them, gaps and the
    /// second halves of switches, is not counted, as in what `kymo info` counts.
    pub events: u64,
    /// Events that were added for what was open when the window began: of a format that is read as a trace again.
    pub opened: u64,
    /// Where the trace that was taken goes on before and behind the window, of such a format.
    pub cut: Cut,
    /// Events that were not asked for, as far as they were looked at.
    pub excluded: u64,
    /// Gaps taken.
    pub gaps: u64,
    /// Events that the gaps say are missing, as far as they say so.
    pub lost_events: u64,
    /// Gaps that hide an unknown number of events.
    pub unknown_losses: u64,
    /// Calls that were closed by inference.
    pub repaired: u64,
    /// Exits of calls whose beginning is not in the trace.
    pub orphans: u64,
    /// Calls that had not ended when the trace did.
    pub open: u64,
    /// Calls that had not ended when recording was turned off.
    pub recording_off: u64,
    /// Calls that may be shorter than what was asked for: their ends could not be waited for.
    pub undecided: u64,
    /// Calls so deep that they were not followed; their time is their caller's.
    pub too_deep: u64,
    /// Things that were put later than they were recorded, because the format can't go back in time.
    pub held: u64,
    /// Things that were put earlier than they were recorded, because the clock was ahead then.
    pub moved: u64,
    /// Nanoseconds added to every time, because the format has no time before its origin.
    pub shifted_ns: u64,
    /// Events that the format has no place for: switches of threads on no known processor, mostly.
    pub left_out: u64,
    /// Events of the input that are not in the output as events: they tell names and facts, which stand elsewhere in it.
    pub names: u64,
    /// Fields of events that the format has no place for; the events are there.
    pub fields_left_out: u64,
}

impl Summary {
    /// Counts the events of a batch: those in the window as taken.
    pub(crate) fn take(&mut self, batch: &Batch, window: Window) {
        let whole = window == Window::default();
        if whole && !batch.has_events() {
            self.events += batch.records();
            return;
        }
        for row in batch.rows() {
            let gap = match batch.event_of(row).map(|event| &event.kind) {
                Some(EventKind::Gap(gap)) if row.kind == RowKind::Rare => Some(gap),
                _ => None,
            };
            if !whole && !within(window, row.time) {
                self.excluded += u64::from(row.record);
                continue;
            }
            self.events += u64::from(row.record);
            let Some(gap) = gap else {
                continue;
            };
            self.gaps += 1;
            match gap.lost_events() {
                Some(events) => self.lost_events = self.lost_events.saturating_add(events),
                None => self.unknown_losses += 1,
            }
        }
    }

    /// Counts as not asked for what of a batch was not kept.
    pub(crate) fn exclude(&mut self, batch: &Batch, kept: &Batch) {
        let events = |batch: &Batch| {
            let mut all = Self::default();
            all.take(batch, Window::default());
            all.events
        };
        self.excluded += events(batch).saturating_sub(events(kept));
    }

    /// Takes over what was done to the times of a clock that stepped back.
    pub(crate) fn count_steps(&mut self, counts: &ClockRepairCounts) {
        self.moved = counts.moved;
    }

    /// Takes over what was counted while calls were rebuilt.
    pub(crate) fn count_calls(&mut self, replay: &Replay) {
        let counts = replay.counts();
        self.repaired = counts.unwound + counts.lost;
        self.orphans = counts.orphans;
        self.open = counts.open;
        self.recording_off = counts.recording_off;
        self.too_deep = counts.too_deep;
        if let Some(chosen) = replay.chosen() {
            self.events = self.events.saturating_sub(chosen.left_out);
            self.excluded += chosen.left_out;
            self.undecided = chosen.undecided;
        }
    }
}

/// One line for people: only what there is.
impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |n: u64, one: &str, more: &str| {
            let what = if n == 1 { one } else { more };
            format!("{n} {what}")
        };
        f.write_str(&count(self.events, "event", "events"))?;
        for (n, one, more) in [
            (
                self.opened,
                "event added for what was open when the window began",
                "events added for what was open when the window began",
            ),
            (self.gaps, "gap", "gaps"),
            (
                self.lost_events,
                "event known to be lost",
                "events known to be lost",
            ),
            (
                self.unknown_losses,
                "loss of unknown size",
                "losses of unknown size",
            ),
            (
                self.repaired,
                "call closed by inference",
                "calls closed by inference",
            ),
            (
                self.orphans,
                "exit of a call that was not seen to begin",
                "exits of calls that were not seen to begin",
            ),
            (
                self.open,
                "call still open at the end",
                "calls still open at the end",
            ),
            (
                self.recording_off,
                "call still open when recording was turned off",
                "calls still open when recording was turned off",
            ),
            (
                self.undecided,
                "call whose duration could not be waited for",
                "calls whose durations could not be waited for",
            ),
            (
                self.too_deep,
                "call too deep to follow",
                "calls too deep to follow",
            ),
            (
                self.held,
                "time held because it went back",
                "times held because they went back",
            ),
            (
                self.moved,
                "event moved back by as much as the clock was ahead",
                "events moved back by as much as the clock was ahead",
            ),
            (
                self.shifted_ns,
                "ns added to every time",
                "ns added to every time",
            ),
            (
                self.left_out,
                "event left out: this format has no place for it",
                "events left out: this format has no place for them",
            ),
            (
                self.names,
                "event that tells a name or a fact, which stand with other events",
                "events that tell names and facts, which stand with other events",
            ),
            (
                self.fields_left_out,
                "field left out: its event has no such one in this format",
                "fields left out: their events have no such ones in this format",
            ),
        ] {
            if n != 0 {
                write!(f, ", {}", count(n, one, more))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_there_is_and_nothing_else() {
        let mut summary = Summary {
            events: 2,
            ..Summary::default()
        };
        assert_eq!(summary.to_string(), "2 events");
        summary.gaps = 1;
        summary.lost_events = 37;
        summary.left_out = 1;
        assert_eq!(
            summary.to_string(),
            "2 events, 1 gap, 37 events known to be lost, 1 event left out: this format has no place for it"
        );
    }
}
