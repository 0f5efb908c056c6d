//! Conversion of a target's clock ticks to nanoseconds, fast enough to run for every record.

use kymo_event::Time;

/// Conversion factors for a clock that counts from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    hz: u64,
    /// Nanoseconds per tick where that is a whole number (1 GHz, 25 MHz), valid for up to `most` ticks; else 0.
    factor: u64,
    most: u64,
    /// The fraction of a nanosecond per tick, in units of 2^-64 ns, rounded up.
    part: u64,
}

/// Converts the ticks after a base tick by multiplication, in fixed point with units of 2^-64 ns.
///
/// Rounding up adds less than one unit per tick, so the sum is less than 1/hz of a nanosecond too large. This never
/// changes the whole nanoseconds, because the exact value is a multiple of 1/hz.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    tick: u64,
    ns: u64,
    /// The fraction of a nanosecond in the base tick's time, in units of 2^-64 ns.
    rest: u64,
    /// Whole nanoseconds per tick.
    whole: u64,
    part: u64,
    /// The largest distance from the base tick for which [`time`](Self::time) is valid, in ticks.
    pub(super) reach: u64,
}

impl Near {
    #[inline(always)]
    pub(super) const fn time(&self, tick: u64) -> Time {
        let ticks = tick.wrapping_sub(self.tick);
        // The product of two 64-bit numbers plus a third one fits into 128 bits.
        let parts = ticks as u128 * self.part as u128 + self.rest as u128;
        let ns = self.ns.wrapping_add(ticks.wrapping_mul(self.whole));
        Time(ns.wrapping_add((parts >> 64) as u64) as i64)
    }
}

/// `numerator / denominator` nanoseconds in units of 2^-64 ns, rounded up. The denominator is the larger one.
const fn parts(numerator: u64, denominator: u64) -> u64 {
    let parts = ((numerator as u128) << 64).div_ceil(denominator as u128);
    // The denominator is at most 2^62.
    parts as u64
}

const NANO: u64 = 1_000_000_000;

impl Scale {
    /// `hz` is at least 1.
    pub(super) const fn new(hz: u64) -> Self {
        let factor = match NANO.checked_rem(hz) {
            Some(0) => NANO / hz,
            _ => 0,
        };
        Self {
            hz,
            factor,
            most: match (i64::MAX as u64).checked_div(factor) {
                Some(most) => most,
                None => 0,
            },
            part: match NANO.checked_rem(hz) {
                Some(rest) => parts(rest, hz),
                None => 0,
            },
        }
    }

    /// Prepares the conversion of ticks from `tick` on; `None` where the times exceed 64 bits.
    pub(super) fn near(&self, tick: u64) -> Option<Near> {
        let (seconds, ticks) = (tick.checked_div(self.hz)?, tick.checked_rem(self.hz)?);
        let behind = ticks.checked_mul(NANO)?;
        let ns = seconds.checked_mul(NANO)?.checked_add(behind / self.hz)?;
        // `reach` ticks last less than 2^62 ns.
        i64::try_from(ns.checked_add(1 << 62)?).ok()?;
        let whole = NANO / self.hz;
        let reach = (u64::MAX / self.hz).min((1 << 62) / (whole + 1));
        (4..=1 << 62).contains(&self.hz).then(|| Near {
            tick,
            ns,
            rest: parts(behind % self.hz, self.hz),
            whole,
            part: self.part,
            reach: reach - 2,
        })
    }

    /// Converts a tick to a time, rounded down; `None` if that exceeds 292 years.
    #[inline(always)]
    pub(super) fn time(&self, ticks: u64) -> Option<Time> {
        if ticks <= self.most {
            return Some(Time((ticks * self.factor) as i64));
        }
        self.divided(ticks)
    }

    /// A tick whose time is at or before `time`, close to the last such tick; 0 for times before the first tick.
    pub(super) fn ticks(&self, time: Time) -> u64 {
        let ns = u64::try_from(time.0).unwrap_or(0);
        let (seconds, ns) = (ns / NANO, ns % NANO);
        let below = match ns.checked_mul(self.hz) {
            Some(parts) => parts / NANO,
            None => ns.saturating_mul(self.hz / NANO),
        };
        seconds.saturating_mul(self.hz).saturating_add(below)
    }

    #[inline]
    fn divided(&self, ticks: u64) -> Option<Time> {
        let (seconds, rest) = (ticks.checked_div(self.hz)?, ticks.checked_rem(self.hz)?);
        // Seconds and the remainder separately: two 64-bit divisions are faster than a 128-bit one.
        let ns = match rest.checked_mul(NANO) {
            Some(rest) => rest / self.hz,
            None => {
                u64::try_from(u128::from(rest) * u128::from(NANO) / u128::from(self.hz)).ok()?
            }
        };
        let ns = seconds.checked_mul(NANO)?.checked_add(ns)?;
        i64::try_from(ns).ok().map(Time)
    }
}

#[cfg(test)]
mod tests {
    use kymo_ctf::metadata::Clock;

    use super::*;

    #[test]
    fn times_are_those_of_ctf() {
        let rates = [1, 3, 32_768, 25_000_000, 168_000_000, NANO, 2_593_991_000];
        for hz in rates.into_iter().chain([7_000_000_000, 40_000_000_001]) {
            let (scale, clock) = (Scale::new(hz), Clock::new("", hz));
            let ends = [
                u64::MAX,
                u64::MAX / 2,
                i64::MAX as u64 / NANO * hz.min(1 << 20),
            ];
            let near = ends
                .into_iter()
                .flat_map(|end| (0..3).map(move |back| end - back));
            let spread = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + 12_345]);
            for ticks in near.chain(spread).chain([0]) {
                let time = scale.time(ticks).map(|time| time.0);
                assert_eq!(time, clock.nanoseconds(ticks), "{ticks} at {hz} Hz");
                if let Some(time) = time
                    && scale.ticks(Time(time)) < u64::MAX
                {
                    let found = scale.time(scale.ticks(Time(time)));
                    assert!(found <= Some(Time(time)), "{time} ns at {hz} Hz");
                }
                let Some(near) = scale.near(ticks) else {
                    continue;
                };
                let reach = near.reach;
                let further = [0, 1, 2, 3, 999, 123_456_789, reach / 3, reach - 1, reach];
                let further = further.into_iter().filter(|it| *it <= reach);
                for tick in further.filter_map(|it| ticks.checked_add(it)) {
                    let found = near.time(tick).0;
                    let time = clock.nanoseconds(tick);
                    assert_eq!(Some(found), time, "{tick} from {ticks} on at {hz} Hz");
                }
            }
        }
    }
}
