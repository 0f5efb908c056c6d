//! Check of a target's stated clock rate.
//!
//! Readers convert ticks to nanoseconds with the rate that a program is configured with. If that rate is wrong, all
//! times and durations are, and nothing in the events shows it. So this module compares the clock with other sources of
//! time.

use std::fmt;

/// Relative difference of rates beyond which a clock is reported as wrong.
const TOLERANCE: f64 = 0.1;

/// Number of periods without any tick after which the tick is reported as absent.
const ABSENT: f64 = 100.0;

/// Source of time that a clock was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockReference {
    /// The program's own periodic tick, with its nominal frequency.
    Tick {
        /// Ticks per second.
        hz: u32,
    },
    /// The clock of the computer that received the recording.
    Host,
    /// The time of day, as recorded from time to time.
    TimeOfDay,
}

/// Comparison of a target's clock with another source of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockCheck {
    /// The other source.
    pub reference: ClockReference,
    /// Range of the clock's true rate, relative to the stated rate: least and greatest possible value.
    pub rate: (f64, f64),
    /// No tick was seen at all.
    pub absent: bool,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockVerdict {
    /// The rates differ by at most a tenth.
    Agrees,
    /// They differ by more.
    Differs,
    /// The comparison is too inexact for a result.
    Unverified,
}

impl ClockVerdict {
    /// The name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Unverified => "unverified",
        }
    }
}

impl ClockCheck {
    /// Compares a clock of `clock_hz` that advanced by `clock` ticks from the first of `count + 1` periodic ticks to
    /// now. One periodic tick may be late, and the next one may be due.
    pub fn by_tick(clock_hz: u64, tick_hz: u32, clock: u64, count: u32) -> Self {
        let periods = clock as f64 * f64::from(tick_hz) / clock_hz.max(1) as f64;
        let count = f64::from(count);
        Self {
            reference: ClockReference::Tick { hz: tick_hz },
            rate: (
                periods / (count + 1.0),
                if count > 1.0 {
                    periods / (count - 1.0)
                } else {
                    f64::INFINITY
                },
            ),
            absent: count == 0.0,
        }
    }

    /// Compares a clock that advanced by `own` nanoseconds, at its stated rate, while another one advanced by `ns`,
    /// plus or minus `uncertainty`.
    pub fn by_clock(reference: ClockReference, own: f64, ns: f64, uncertainty: f64) -> Self {
        let least = ns - uncertainty;
        Self {
            reference,
            rate: (
                own / (ns + uncertainty).max(1.0),
                if least > 0.0 {
                    own / least
                } else {
                    f64::INFINITY
                },
            ),
            absent: false,
        }
    }

    /// Result of the comparison.
    pub fn verdict(&self) -> ClockVerdict {
        let (least, most) = self.rate;
        let is_slow = most < 1.0 - TOLERANCE;
        let is_fast = least > if self.absent { ABSENT } else { 1.0 + TOLERANCE };
        if is_slow || is_fast {
            ClockVerdict::Differs
        } else if most - least <= 2.0 * TOLERANCE {
            ClockVerdict::Agrees
        } else {
            ClockVerdict::Unverified
        }
    }

    /// The middle of the range of the rate; `None` if the range has no upper limit.
    pub fn likely_rate(&self) -> Option<f64> {
        let (least, most) = self.rate;
        most.is_finite().then_some(f64::midpoint(least, most))
    }

    /// Combined result of all comparisons of a clock: `Differs` if any differs, else `Agrees` if any agrees.
    pub fn overall(checks: &[Self]) -> ClockVerdict {
        let any = |verdict| checks.iter().any(|check| check.verdict() == verdict);
        if any(ClockVerdict::Differs) {
            ClockVerdict::Differs
        } else if any(ClockVerdict::Agrees) {
            ClockVerdict::Agrees
        } else {
            ClockVerdict::Unverified
        }
    }
}

impl fmt::Display for ClockReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick { hz } => write!(f, "its periodic tick ({hz} Hz)"),
            Self::Host => f.write_str("the clock of this computer"),
            Self::TimeOfDay => f.write_str("the time of day in the recording"),
        }
    }
}

/// Formats it as a clause: `agrees with its periodic tick (1000 Hz)`.
impl fmt::Display for ClockCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = self.reference;
        match (self.verdict(), self.likely_rate()) {
            (ClockVerdict::Agrees, _) => write!(f, "agrees with {reference}"),
            (ClockVerdict::Unverified, _) => write!(f, "too short to compare with {reference}"),
            (ClockVerdict::Differs, _) if self.absent => {
                write!(f, "cannot be compared: {reference} does not come")
            }
            (ClockVerdict::Differs, Some(rate)) if rate > 0.0 => {
                write!(f, "runs at {rate:.3} times its rate by {reference}")
            }
            (ClockVerdict::Differs, _) if self.rate.1 == 0.0 => {
                write!(f, "stands still by {reference}")
            }
            (ClockVerdict::Differs, _) => {
                write!(
                    f,
                    "runs at more than {:.1} times its rate by {reference}",
                    self.rate.0
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_shows_what_is_wrong_and_nothing_before_it_can() {
        let check = |clock, count| ClockCheck::by_tick(25_000_000, 1000, clock, count);
        for (clock, count, verdict, text) in [
            (
                0,
                0,
                ClockVerdict::Unverified,
                "too short to compare with its periodic tick (1000 Hz)",
            ),
            (
                75_000,
                3,
                ClockVerdict::Unverified,
                "too short to compare with its periodic tick (1000 Hz)",
            ),
            (
                2_500_000,
                100,
                ClockVerdict::Agrees,
                "agrees with its periodic tick (1000 Hz)",
            ),
            (
                2_700_000,
                100,
                ClockVerdict::Agrees,
                "agrees with its periodic tick (1000 Hz)",
            ),
            (
                2_800_000,
                100,
                ClockVerdict::Differs,
                "runs at 1.120 times its rate by its periodic tick (1000 Hz)",
            ),
            (
                25_000_000,
                100,
                ClockVerdict::Differs,
                "runs at 10.001 times its rate by its periodic tick (1000 Hz)",
            ),
            (
                250_000,
                100,
                ClockVerdict::Differs,
                "runs at 0.100 times its rate by its periodic tick (1000 Hz)",
            ),
            (
                0,
                100,
                ClockVerdict::Differs,
                "stands still by its periodic tick (1000 Hz)",
            ),
            (
                2_500_000,
                0,
                ClockVerdict::Unverified,
                "too short to compare with its periodic tick (1000 Hz)",
            ),
            (
                2_600_000,
                0,
                ClockVerdict::Differs,
                "cannot be compared: its periodic tick (1000 Hz) does not come",
            ),
            (
                2_600_000,
                1,
                ClockVerdict::Differs,
                "runs at more than 52.0 times its rate by its periodic tick (1000 Hz)",
            ),
        ] {
            let check = check(clock, count);
            assert_eq!(check.verdict(), verdict, "{clock} {count}");
            assert_eq!(check.to_string(), text, "{clock} {count}");
        }
    }

    #[test]
    fn another_clock_is_as_good_as_it_was_read() {
        let check = |own, ns, uncertainty| {
            ClockCheck::by_clock(ClockReference::Host, own, ns, uncertainty).verdict()
        };
        assert_eq!(check(1e9, 1e9, 1e6), ClockVerdict::Agrees);
        assert_eq!(check(1e9, 1e9, 1e9), ClockVerdict::Unverified);
        assert_eq!(check(1e8, 1e9, 1e8), ClockVerdict::Differs);
        assert_eq!(check(0.0, 1e9, 1e6), ClockVerdict::Differs);
        assert_eq!(check(0.0, 0.0, 0.0), ClockVerdict::Unverified);
        assert_eq!(check(1.2e9, 1e9, 2e8), ClockVerdict::Unverified);
    }

    #[test]
    fn one_difference_outweighs_an_agreement() {
        let agrees = ClockCheck::by_clock(ClockReference::Host, 1.0e9, 1.0e9, 0.0);
        let differs = ClockCheck::by_clock(ClockReference::TimeOfDay, 2.0e9, 1.0e9, 0.0);
        assert_eq!(ClockCheck::overall(&[]), ClockVerdict::Unverified);
        assert_eq!(ClockCheck::overall(&[agrees]), ClockVerdict::Agrees);
        assert_eq!(
            ClockCheck::overall(&[agrees, differs]),
            ClockVerdict::Differs
        );
    }
}
