//! Reads a target's clock and compares it with this computer's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kymo_wire::clock_check::{HostCheck, TickCheck};
use kymo_wire::link::Command;

use super::{Target, protocol};
use crate::LinkError;
use crate::reply::Words;

/// Number of requests for one comparison; the fastest answer counts.
const QUESTIONS: u32 = 3;

/// Distance between two compared readings, in multiples of the first one's uncertainty (half a round-trip time), so that
/// the rate is accurate to a few percent.
const APART: u32 = 40;

/// Least and greatest distance between the two readings.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// A reading of a target's clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Its ticks.
    pub ticks: u64,
    /// How the clock compares with the program's periodic tick, if the target reports it.
    pub tick: Option<TickCheck>,
    /// The time of the reading.
    at: Instant,
    /// The same time since 1970 UTC.
    pub(super) wall: Duration,
    /// Uncertainty of both times, either way.
    pub(super) half: Duration,
}

impl Target {
    /// Reads the target's clock several times and returns the reading with the least uncertainty.
    pub(super) fn ask_clock(&mut self, questions: u32) -> Result<ClockReading, LinkError> {
        let mut best: Option<ClockReading> = None;
        for _ in 0..questions {
            let request = self.next_request();
            // In this order: then the target's answer is at most `half` before or after the middle, however long this
            // thread is preempted between any two of these lines.
            let requested = self.clock.now();
            let wall = SystemTime::now();
            self.send(request, Command::Time)?;
            let deadline = requested + self.timeouts.reply;
            let Some(text) = self.reply(request, Command::Time, deadline)? else {
                continue;
            };
            let half = self.clock.since(requested) / 2;
            let words = Words(&text);
            let ticks = words.number("ticks");
            let ticks = ticks.map_err(|source| protocol(Command::Time, source))?;
            // A time before 1970 is not worth recording.
            let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
            if best.is_none_or(|best| half < best.half) {
                best = Some(ClockReading {
                    ticks,
                    tick: tick_check(&words),
                    at: requested + half,
                    wall: since + half,
                    half,
                });
            }
        }
        best.ok_or_else(|| LinkError::TimedOut {
            command: Command::Time.to_string(),
            waited: self.timeouts.reply * questions,
        })
    }

    /// Reads the target's clock, for a later comparison.
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`LinkError::Protocol`].
    pub fn read_clock(&mut self) -> Result<ClockReading, LinkError> {
        self.identity()?;
        self.ask_clock(QUESTIONS)
    }

    /// Reads the clock again and compares its progress with this computer's clock; `None` if it went back. Waits if the
    /// two readings would be too close to each other.
    ///
    /// # Errors
    /// As [`read_clock`](Self::read_clock).
    pub fn compare_clock(
        &mut self,
        first: &ClockReading,
    ) -> Result<(ClockReading, Option<HostCheck>), LinkError> {
        let apart = (first.half * APART).clamp(SHORTEST, LONGEST);
        self.clock
            .sleep(apart.saturating_sub(self.clock.since(first.at)));
        let second = self.ask_clock(QUESTIONS)?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let check = second
            .ticks
            .checked_sub(first.ticks)
            .map(|clock| HostCheck {
                clock,
                ns: ns(second.at.saturating_duration_since(first.at)),
                uncertainty: ns(first.half + second.half),
            });
        Ok((second, check))
    }
}

/// The comparison with the periodic tick, if the reply has one.
fn tick_check(words: &Words<'_>) -> Option<TickCheck> {
    let number = |key| words.number(key).ok();
    Some(TickCheck {
        clock: number("tick_clock")?,
        count: number("tick_count")?.try_into().ok()?,
        hz: number("tick_hz")?.try_into().ok()?,
    })
}
