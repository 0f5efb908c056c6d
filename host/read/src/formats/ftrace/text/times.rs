//! Times of lines that do not fit those around them.

use kymo_event::{Batch, Cpu, Gap, Time};
use kymo_ftrace::text::{self, Line, TextEvent, TextKind};

use super::{TextSource, id};
use crate::formats::ftrace::output;

/// Lines of one CPU may be so many nanoseconds out of order.
const OUT_OF_ORDER: i64 = 1_000_000;

/// A time that is so many nanoseconds behind the one before is looked at: it may be a wrong one.
const PAUSE: i64 = 1_000_000_000;

/// So many lines are looked at for the next one of a CPU.
const LINES: usize = 256;

/// What a user should know of such times.
const WRONG: &str = "times of some lines do not fit those before and behind them: these lines stand at the time of the line before";

impl TextSource {
    /// The time of a line. One line's wrong time is put right; a clock that goes on from an earlier time steps back.
    pub(super) fn time_of(
        &mut self,
        event: &TextEvent<'_>,
        place: usize,
        batch: &mut Batch,
    ) -> Option<Time> {
        let time = Time(i64::try_from(event.time?).unwrap_or(i64::MAX));
        if let TextKind::Call { .. } = event.kind {
            // These come at their ends, with the times of their beginnings.
            return Some(time);
        }
        let state = self.states.get_mut(place)?;
        let before = *state.stated.get_or_insert(time);
        let ahead = time.0.saturating_sub(before.0);
        if (-OUT_OF_ORDER..=PAUSE).contains(&ahead) {
            state.stated = Some(before.max(time));
            return Some(time);
        }
        // The next line fits the one before, and not this one.
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

    /// The time of the next line of a CPU, as far as that is there.
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
