//! Counts of what an export wrote, changed and omitted.
//!
//! Other tools' formats can rarely represent everything in a trace, and a viewer shows a repaired call much like a
//! complete one. Every export therefore also returns counts, for the command line to show.

use kymo_analysis::clock_repair::ClockRepairCounts;
use kymo_analysis::replay::{Replay, Window};
use kymo_event::{Batch, Cut, EventKind, RowKind};

use crate::cut::within;

/// Counts of events exported, omitted or changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Exported records of the input: those that are selected and in the window. What the reader added to them (gaps
    /// and the second halves of switches) is not counted, as in `kymo info`.
    pub events: u64,
    /// Events added for what was open when the window began, in a format that can be read as a trace again.
    pub opened: u64,
    /// Nearest times of the exported trace before and after the window, in such a format.
    pub cut: Cut,
    /// Events that were processed but not selected.
    pub excluded: u64,
    /// Events of the output beyond these, which are no records of the trace: gaps, and what was concluded.
    pub added: u64,
    /// Exported gaps.
    pub gaps: u64,
    /// Number of events missing according to the gaps that report it.
    pub lost_events: u64,
    /// Gaps with an unknown number of lost events.
    pub unknown_losses: u64,
    /// Calls whose end was inferred.
    pub repaired: u64,
    /// Exits of calls whose entry is not in the trace.
    pub orphans: u64,
    /// Calls still open at the end of the trace.
    pub open: u64,
    /// Calls still open when recording was turned off.
    pub recording_off: u64,
    /// Calls that may be shorter than the selection requires, because their ends were not awaited.
    pub undecided: u64,
    /// Calls too deep to be followed; their time is added to their caller's.
    pub too_deep: u64,
    /// Elements with a later time than recorded, because the format can't go back in time.
    pub held: u64,
    /// Elements with an earlier time than recorded, because the clock was ahead.
    pub moved: u64,
    /// Nanoseconds added to every time, because the format has no time before its origin.
    pub shifted_ns: u64,
    /// Events that the format cannot represent: mostly thread switches without a known processor.
    pub left_out: u64,
    /// Input events that are not events of the output: they carry names and facts, which the output has elsewhere.
    pub names: u64,
    /// Fields that the format cannot represent; their events are in the output.
    pub fields_left_out: u64,
}

impl Summary {
    /// Counts the events of a batch that are in the window.
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

    /// Counts the events of a batch that were not kept as excluded.
    pub(crate) fn exclude(&mut self, batch: &Batch, kept: &Batch) {
        let events = |batch: &Batch| {
            let mut all = Self::default();
            all.take(batch, Window::default());
            all.events
        };
        self.excluded += events(batch).saturating_sub(events(kept));
    }

    /// Copies the counts of time corrections for a clock that stepped back.
    pub(crate) fn count_steps(&mut self, counts: &ClockRepairCounts) {
        self.moved = counts.moved;
    }

    /// Copies the counts of call reconstruction.
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

/// One line of text: only the counts that are not 0.
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
            (
                self.added,
                "event added that is no record: a gap, or concluded",
                "events added that are no records: gaps, or concluded",
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
