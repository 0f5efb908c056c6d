//! Clocks: conversion of ticks to time.

use super::{About, ClockOrigin, Uuid};

/// Index of a clock in [`Metadata::clocks`](super::Metadata::clocks).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockId(pub u32);

/// A clock of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// Its name, unique in the trace; in CTF 2 its id.
    pub name: String,
    /// Its identity, which shows that clocks of two traces are the same. In CTF 2 its unique id, if that is a UUID.
    pub uuid: Option<Uuid>,
    /// Further facts about it.
    pub about: About,
    /// Description for display.
    pub description: Option<String>,
    /// Frequency in hertz.
    pub frequency: u64,
    /// Uncertainty in ticks.
    pub precision: u64,
    /// Maximum error relative to its origin, in ticks. Only CTF 2 has this.
    pub accuracy: Option<u64>,
    /// Offset of tick 0 from the origin in whole seconds ...
    pub offset_seconds: i64,
    /// ... plus ticks.
    pub offset_ticks: i64,
    /// Whether the origin is shared by all clocks with this flag (in practice 1970-01-01 UTC).
    pub absolute: bool,
    /// Another origin. Only CTF 2 has this.
    pub origin: Option<ClockOrigin>,
}

impl Clock {
    /// Creates a clock with an offset of zero and unknown precision.
    #[must_use]
    pub fn new(name: impl Into<String>, frequency: u64) -> Self {
        Self {
            name: name.into(),
            uuid: None,
            about: About::NONE,
            description: None,
            frequency,
            precision: 0,
            accuracy: None,
            offset_seconds: 0,
            offset_ticks: 0,
            absolute: false,
            origin: None,
        }
    }

    /// Updates the clock `ticks` from a field with its lowest `size` bits: returns the next time that has these bits.
    ///
    /// Equal bits mean that no time has passed, and a value smaller by one means that the field wrapped once. `size` is
    /// 1 to 64.
    #[must_use]
    pub fn follow(ticks: u64, value: u64, size: u32) -> u64 {
        let mask = u64::MAX >> (64 - size.clamp(1, 64));
        let (high, value) = (ticks & !mask, value & mask);
        if value >= ticks & mask {
            high | value
        } else {
            (high | value).wrapping_add(mask).wrapping_add(1)
        }
    }

    /// As `follow`, for a stream whose times may step back a little: a step of less than a quarter of the range is a
    /// step back rather than a wraparound. A clock does not step back below 0.
    #[must_use]
    pub fn approach(ticks: u64, value: u64, size: u32) -> u64 {
        let mask = u64::MAX >> (64 - size.clamp(1, 64));
        let back = ticks.wrapping_sub(value) & mask;
        if back > mask / 4 || back > ticks {
            return Self::follow(ticks, value, size);
        }
        ticks - back
    }

    /// Converts a tick to nanoseconds from the clock's origin, rounded down, with exact integer arithmetic.
    ///
    /// `None` if the result does not fit 64 bits (some 292 years) or the frequency is 0.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> Option<i64> {
        const NANO: i64 = 1_000_000_000;
        if self.frequency == NANO as u64 && self.offset_ticks == 0 {
            // The usual case, executed for every event.
            let offset = self.offset_seconds.checked_mul(NANO)?;
            return offset.checked_add_unsigned(ticks);
        }
        let frequency = i128::from(self.frequency);
        let ticks = i128::from(ticks) + i128::from(self.offset_ticks);
        let nanoseconds = match (i64::try_from(ticks), i64::try_from(frequency)) {
            // Two 64-bit divisions are several times faster than one of 128 bits.
            (Ok(ticks), Ok(frequency @ 1..=NANO)) => {
                let (seconds, rest) = (ticks.div_euclid(frequency), ticks.rem_euclid(frequency));
                i128::from(seconds) * i128::from(NANO) + i128::from(rest * NANO / frequency)
            }
            _ => (ticks * i128::from(NANO)).checked_div_euclid(frequency)?,
        };
        i64::try_from(i128::from(self.offset_seconds) * i128::from(NANO) + nanoseconds).ok()
    }
}

/// Precomputed conversion of many ticks, without a division, which would take longer than decoding an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Nanoseconds in `2^shift` ticks, if that is a whole number (as with 1 GHz, 25 MHz, 80 MHz); otherwise 0.
    factor: u64,
    shift: u32,
    frequency: u64,
    /// 2^64 / frequency, rounded down.
    reciprocal: u64,
    /// Added to the nanoseconds.
    offset: i64,
    /// Added to the ticks.
    offset_ticks: u64,
}

impl Scale {
    /// Returns `None` for unusual clocks, which need [`Clock::nanoseconds`].
    pub fn new(clock: &Clock) -> Option<Self> {
        const NANO: u64 = 1_000_000_000;
        let usual = (2..=NANO).contains(&clock.frequency);
        // Without its factors of two, the frequency must divide 10^9 without its factors of two.
        let twos = clock.frequency.trailing_zeros();
        let shift = twos.saturating_sub(NANO.trailing_zeros());
        let ticks = clock.frequency.checked_shr(shift).unwrap_or(0);
        let whole = NANO.checked_rem(ticks) == Some(0);
        Some(Self {
            factor: if whole { NANO / ticks } else { 0 },
            shift,
            frequency: clock.frequency,
            reciprocal: ((1u128 << 64) / u128::from(clock.frequency.max(2))) as u64,
            offset: clock.offset_seconds.checked_mul(NANO as i64)?,
            offset_ticks: u64::try_from(clock.offset_ticks).ok()?,
        })
        .filter(|_| usual)
    }

    /// As [`Clock::nanoseconds`], but `None` for unusual ticks, too.
    #[inline(always)]
    pub fn nanoseconds(&self, ticks: u64) -> Option<i64> {
        let ticks = ticks.checked_add(self.offset_ticks)?;
        let nanoseconds = if self.factor > 0 {
            ticks.checked_mul(self.factor)? >> self.shift
        } else {
            let (seconds, rest) = self.divide(ticks);
            // Less than 10^18.
            let (below, _) = self.divide(rest * 1_000_000_000);
            seconds.checked_mul(1_000_000_000)?.checked_add(below)?
        };
        self.offset.checked_add_unsigned(nanoseconds)
    }

    /// As `nanoseconds`, for ticks up to a value for which it has returned a result.
    #[inline(always)]
    pub fn usual(&self, ticks: u64) -> i64 {
        let ticks = ticks.wrapping_add(self.offset_ticks);
        let nanoseconds = if self.factor > 0 {
            ticks.wrapping_mul(self.factor) >> self.shift
        } else {
            let (seconds, rest) = self.divide(ticks);
            let (below, _) = self.divide(rest.wrapping_mul(1_000_000_000));
            seconds.wrapping_mul(1_000_000_000).wrapping_add(below)
        };
        self.offset.wrapping_add_unsigned(nanoseconds)
    }

    /// Quotient and remainder by the frequency. The product with the reciprocal is at most 1 too small.
    #[inline(always)]
    fn divide(&self, number: u64) -> (u64, u64) {
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = number - quotient * self.frequency;
        if rest >= self.frequency {
            (quotient + 1, rest - self.frequency)
        } else {
            (quotient, rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_is_exact_and_rounds_down() {
        let mut clock = Clock::new("c", 80_000_000);
        clock.offset_seconds = 1_700_000_000;
        assert_eq!(clock.nanoseconds(1), Some(1_700_000_000_000_000_012));
        clock.offset_ticks = -3;
        assert_eq!(clock.nanoseconds(0), Some(1_699_999_999_999_999_962));
        clock.frequency = 3_000_000_000;
        assert_eq!(clock.nanoseconds(5), Some(1_700_000_000_000_000_000));
        assert_eq!(clock.nanoseconds(2), Some(1_699_999_999_999_999_999));
    }

    #[test]
    fn partial_values_move_the_clock_forward() {
        let cases = [
            (0x1_00ff, 0xff, 8, 0x1_00ff, "equal: no time has passed"),
            (
                0x1_00ff,
                0xfe,
                8,
                0x1_01fe,
                "one step back is one turn of the counter",
            ),
            (0x1_0001, 0xfe, 8, 0x1_00fe, "forward"),
            (u64::MAX, 5, 64, 5, "64 bits replace"),
            (u64::MAX, 0, 8, 0, "the top goes round too"),
        ];
        for (ticks, value, size, expected, why) in cases {
            assert_eq!(Clock::follow(ticks, value, size), expected, "{why}");
        }
    }

    #[test]
    fn a_little_back_is_no_turn_forward() {
        let cases = [
            (0x1_0080, 0x7f, 8, 0x1_007f, "one back"),
            (
                0x1_0001,
                0xfe,
                8,
                0x1_00fe - 0x100,
                "back over the end of a turn",
            ),
            (0x1_0080, 0x41, 8, 0x1_0041, "nearly a quarter"),
            (0x1_0080, 0x40, 8, 0x1_0140, "a quarter is a turn"),
            (0x1_0080, 0x80, 8, 0x1_0080, "equal"),
            (0x1_0080, 0x81, 8, 0x1_0081, "forward"),
            (0x05, 0xfe, 8, 0xfe, "nothing is before 0"),
        ];
        for (ticks, value, size, expected, why) in cases {
            assert_eq!(Clock::approach(ticks, value, size), expected, "{why}");
        }
    }

    #[test]
    fn a_scale_converts_as_its_clock() {
        for frequency in [
            2,
            3,
            7,
            32_768,
            1_024_000,
            25_000_000,
            80_000_000,
            999_999_999,
            1_000_000_000,
        ] {
            let mut clock = Clock::new("c", frequency);
            for (seconds, more) in [(0, 0), (1_700_000_000, 5), (-3, 1)] {
                (clock.offset_seconds, clock.offset_ticks) = (seconds, more);
                let scale = Scale::new(&clock).unwrap();
                let steps = (0..2_000u64).flat_map(|n| {
                    [
                        n,
                        n * 0x1234_5678_9abc,
                        u64::MAX - n,
                        n * frequency,
                        n * frequency + frequency - 1,
                    ]
                });
                for ticks in steps {
                    // Sums beyond 64 bits are not supported.
                    let found = scale.nanoseconds(ticks);
                    assert!(
                        found.is_none() || found == clock.nanoseconds(ticks),
                        "{frequency} {ticks}"
                    );
                    assert!(found.is_some() || ticks > 1 << 40, "{frequency} {ticks}");
                }
            }
        }
        assert!(Scale::new(&Clock::new("c", 0)).is_none());
        assert!(Scale::new(&Clock::new("c", 2_000_000_000)).is_none());
    }

    #[test]
    fn overflow_and_frequency_zero_are_none() {
        assert_eq!(Clock::new("c", 0).nanoseconds(1), None);
        assert_eq!(Clock::new("c", 1_000_000_000).nanoseconds(u64::MAX), None);
        assert_eq!(Clock::new("c", 1).nanoseconds(u64::MAX), None);
    }
}
