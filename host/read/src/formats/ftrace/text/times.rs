//! Correction of times that do not fit between those of neighbouring lines.

use kymo_event::{Batch, Cpu, Gap, Time};
use kymo_ftrace::text::{self, Line, TextEvent, TextKind};

use super::{TextSource, id};
use crate::formats::ftrace::output;

/// Largest disorder of lines of one CPU, in ns.
const OUT_OF_ORDER: i64 = 1_000_000;

/// Smallest step ahead of the last time, in ns, that is checked for being wrong.
const PAUSE: i64 = 1_000_000_000;

/// Number of lines in which the next line of a CPU is searched.
const LINES: usize = 256;

/// Remark about such times.
const WRONG: &str = "times of some lines do not fit those before and behind them: these lines stand at the time of the line before";

impl TextSource {
    /// Returns the time of a line. Corrects a wrong time of a single line. A clock that continues from an earlier time
    /// is a step back.
    pub(super) fn time_of(
        &mut self,
        event: &TextEvent<'_>,
        place: usize,
        batch: &mut Batch,
    ) -> Option<Time> {
        let time = Time(i64::try_from(event.time?).unwrap_or(i64::MAX));
        if let TextKind::Call { .. } = event.kind {
            // These are printed at their ends, with the times of their starts.
            return Some(time);
        }
        let state = self.states.get_mut(place)?;
        let before = *state.stated.get_or_insert(time);
        let ahead = time.0.saturating_sub(before.0);
        if (-OUT_OF_ORDER..=PAUSE).contains(&ahead) {
            state.stated = Some(before.max(time));
            return Some(time);
        }
        // The next line matches the line before, and not this one.
        let near = |time: Time, since: Time| time.0.saturating_sub(since.0) >= -OUT_OF_ORDER;
        let is_wrong = self
            .time_behind(event.cpu)
            .is_some_and(|next| near(next, before) && (ahead < 0 || !near(next, time)));
        let by = time
            .since(before)
            .or(before.since(time))
            .unwrap_or_default();
        if is_wrong {
            self.remark(WRONG);
        }
        let state = self.states.get_mut(place)?;
        let last = state.last;
        if !is_wrong {
            state.stated = Some(time);
        }
        if is_wrong || ahead < 0 {
            let gap = Gap::TimeBackward { by };
            let gap = output::gap(gap, last, id(place), event.cpu.map(Cpu));
            self.output.put(gap, batch);
        }
        if is_wrong {
            return Some(before);
        }
        if ahead < 0 {
            self.info.steps_back = true;
            if let Some(state) = self.states.get_mut(place) {
                state.last = time;
            }
        }
        Some(time)
    }

    /// Returns whether an event is the rest of a line that something has broken in two, or cut: it has no time, but the
    /// event behind it has, or it is the last one of a text with times.
    pub(super) fn is_part(&self, event: &TextEvent<'_>) -> bool {
        if event.time.is_some() || self.is_untimed {
            return false;
        }
        let mut lines = self.input.ahead().take(LINES);
        let next = lines.find_map(|line| match text::line(&line) {
            Line::Event(event) => Some(event.time.is_some()),
            _ => None,
        });
        next.unwrap_or(self.has_times)
    }

    /// Returns the time of the next line of a CPU, if that line is available.
    fn time_behind(&self, cpu: Option<u32>) -> Option<Time> {
        let mut lines = self.input.ahead().take(LINES);
        lines.find_map(|line| match text::line(&line) {
            Line::Event(event) if event.cpu == cpu => {
                Some(Time(i64::try_from(event.time?).unwrap_or(i64::MAX)))
            }
            _ => None,
        })
    }
}
