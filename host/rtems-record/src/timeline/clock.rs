//! Exact times: nanoseconds with a 64-bit fraction.

use super::TIME_MASK;

/// Nanoseconds per tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    whole: u64,
    /// Fraction in units of 2^-64 ns.
    fraction: u64,
}

const NS: u64 = 1_000_000_000;

impl Scale {
    /// Creates the scale of a counter with this frequency in Hz; at least 1.
    pub fn new(frequency: u64) -> Self {
        let frequency = u128::from(frequency.max(1));
        let rest = u128::from(NS) % frequency;
        Self {
            whole: (u128::from(NS) / frequency) as u64,
            // Less than 2^64, because the remainder is less than the frequency.
            fraction: ((rest << 64) / frequency) as u64,
        }
    }

    /// Converts ticks to nanoseconds, rounded down.
    pub fn ns(&self, ticks: u64) -> i64 {
        self.span(ticks).floor()
    }

    /// Converts ticks to an exact span of time.
    pub fn span(&self, ticks: u64) -> Moment {
        let fraction = u128::from(ticks) * u128::from(self.fraction);
        let whole = u128::from(ticks) * u128::from(self.whole) + (fraction >> 64);
        Moment {
            whole: i64::try_from(whole).unwrap_or(i64::MAX),
            fraction: fraction as u64,
        }
    }
}

/// Exact time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    whole: i64,
    fraction: u64,
}

impl Moment {
    /// Creates a time from nanoseconds.
    pub const fn of_ns(ns: i64) -> Self {
        Self {
            whole: ns,
            fraction: 0,
        }
    }

    /// Creates a time from an uptime of the target: seconds, and a fraction in units of 2^-32 s.
    pub fn of_uptime(seconds: u64, fraction: u64) -> Self {
        let bintime = u128::from(seconds & 0xFFFF_FFFF) << 32 | u128::from(fraction & 0xFFFF_FFFF);
        let ns = (bintime * u128::from(NS)) << 32;
        Self {
            whole: i64::try_from(ns >> 64).unwrap_or(i64::MAX),
            fraction: ns as u64,
        }
    }

    /// Returns the nanoseconds, rounded down.
    pub const fn floor(self) -> i64 {
        self.whole
    }

    /// Returns the nanoseconds, rounded to the nearest.
    pub const fn round(self) -> i64 {
        self.whole.saturating_add((self.fraction >> 63) as i64)
    }

    /// Returns the time this number of ticks later, or earlier if the number is negative.
    pub fn after(self, ticks: i64, scale: &Scale) -> Self {
        if ticks < 0 {
            return self.before(ticks.unsigned_abs(), scale);
        }
        let span = scale.span(ticks.unsigned_abs());
        let (fraction, carry) = self.fraction.overflowing_add(span.fraction);
        let whole = self.whole.saturating_add(span.whole);
        Self {
            whole: whole.saturating_add(i64::from(carry)),
            fraction,
        }
    }

    fn before(self, ticks: u64, scale: &Scale) -> Self {
        let span = scale.span(ticks);
        let (fraction, borrow) = self.fraction.overflowing_sub(span.fraction);
        let whole = self.whole.saturating_sub(span.whole);
        Self {
            whole: whole.saturating_sub(i64::from(borrow)),
            fraction,
        }
    }
}

/// Clock for a counter of which items show 22 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    base: Moment,
    /// Ticks since the base.
    ticks: u64,
    /// Last 22-bit counter value.
    seen: u32,
}

/// Number of ticks after which the base is moved, long before products overflow.
const MOST_TICKS: u64 = 1 << 32;

impl Clock {
    /// Sets the time for a counter value.
    pub fn set(&mut self, base: Moment, seen: u32) {
        *self = Self {
            base,
            ticks: 0,
            seen,
        };
    }

    /// Advances to a counter value, and returns the time in nanoseconds.
    #[inline]
    pub fn advance(&mut self, seen: u32, scale: &Scale) -> i64 {
        self.ticks += u64::from(seen.wrapping_sub(self.seen) & TIME_MASK);
        self.seen = seen;
        if self.ticks >= MOST_TICKS {
            self.rebase(scale);
        }
        self.now(scale)
    }

    #[cold]
    fn rebase(&mut self, scale: &Scale) {
        self.base = self.moment(scale);
        self.ticks = 0;
    }

    /// Moves the counter back by a number of ticks.
    #[cold]
    pub fn go_back(&mut self, ticks: u32, scale: &Scale) {
        self.base = self.moment(scale).before(ticks.into(), scale);
        self.ticks = 0;
        self.seen = self.seen.wrapping_sub(ticks) & TIME_MASK;
    }

    /// Returns the time of the last counter value, in nanoseconds.
    #[inline]
    pub fn now(&self, scale: &Scale) -> i64 {
        // Rounds to the nearest nanosecond: the uptime is in units of 2^-32 s, rounded down.
        const HALF: u128 = 1 << 63;
        let of_base = u128::from(self.base.fraction) + HALF;
        let fraction = u128::from(self.ticks) * u128::from(scale.fraction) + of_base;
        // Fewer than 2^33 ticks of at most 10^9 ns: 63 bits.
        let whole = (self.ticks.wrapping_mul(scale.whole)).wrapping_add((fraction >> 64) as u64);
        self.base.whole.saturating_add_unsigned(whole)
    }

    /// Returns the exact time of the last counter value.
    pub fn moment(&self, scale: &Scale) -> Moment {
        // Fewer than 2^33 ticks.
        self.base.after(self.ticks.cast_signed(), scale)
    }

    /// Returns the last counter value.
    pub const fn seen(&self) -> u32 {
        self.seen
    }

    /// Skips ticks that no item shows.
    pub fn skip(&mut self, ticks: u64) {
        self.ticks = self.ticks.saturating_add(ticks.min(MOST_TICKS / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_for_any_frequency_and_distance() {
        for frequency in [
            1,
            3,
            32_768,
            100_000_000,
            999_999_937,
            4_000_000_000,
            u64::MAX,
        ] {
            let scale = Scale::new(frequency);
            let mut clock = Clock::default();
            clock.set(Moment::of_uptime(7, 1 << 31), 5);
            let (mut seen, mut ticks) = (5_u32, 0_u64);
            for step in 0..5_000_u32 {
                let delta = step.wrapping_mul(2_654_435_761) & TIME_MASK;
                seen = (seen + delta) & TIME_MASK;
                ticks += u64::from(delta);
                let exact =
                    7_500_000_000 + u128::from(ticks) * u128::from(NS) / u128::from(frequency);
                let exact = i64::try_from(exact).unwrap_or(i64::MAX);
                let found = clock.advance(seen, &scale);
                // One is rounded down, the other to the nearest.
                assert!(
                    found.abs_diff(exact) <= 1,
                    "{frequency}: {found} of {exact}"
                );
            }
            let back = clock.moment(&scale).before(ticks, &scale);
            if frequency > 3 {
                assert!((back.floor() - 7_500_000_000).abs() <= 1, "{back:?}");
            }
        }
        let second = Moment::of_uptime(u64::MAX, u64::MAX);
        assert_eq!(second.floor(), 4_294_967_295_999_999_999);
    }
}
