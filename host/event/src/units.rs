//! Newtypes for numbers that must not be mixed up.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A timestamp: nanoseconds since the origin of the trace's clock (the target's start, or the Unix epoch if the
    /// source knows it). It can be negative, as CTF's clock offsets can.
    Time(i64), "{}"
);
number!(
    /// A span of time in nanoseconds.
    Duration(u64), "{}"
);
number!(
    /// A span of time in picoseconds, for averages of a few ticks. The maximum is seven months.
    Picoseconds(u64), "{}"
);
number!(
    /// A value of a target's counter, or the difference of two.
    Ticks(u64), "{}"
);
number!(
    /// A run-time address on the target. Addresses of Thumb code are even: readers clear the mode bit.
    Addr(u64), "{:#x}"
);
number!(
    /// A CPU, numbered from 0.
    Cpu(u32), "{}"
);
number!(
    /// A thread, as the target identifies it: the address of its control block, or the number that its system assigned.
    /// Two targets, or one target at different times, can use one value for two threads.
    Tid(u64), "{:#x}"
);
number!(
    /// An interrupt, as the architecture numbers it (on Cortex-M the exception number; on Linux the line, the softirq
    /// or the signal).
    Irq(u32), "{}"
);
number!(
    /// An address space: an index into [`Identities::spaces`](crate::Identities::spaces).
    SpaceId(u32), "{}"
);
number!(
    /// A function: an index into [`Identities::functions`](crate::Identities::functions).
    FunctionId(u32), "{}"
);
number!(
    /// A thread: an index into [`Identities::threads`](crate::Identities::threads).
    ThreadId(u32), "{}"
);
number!(
    /// An interrupt: an index into [`Identities::interrupts`](crate::Identities::interrupts).
    InterruptId(u32), "{}"
);
number!(
    /// A stream of the trace: an index into [`TraceInfo::streams`](crate::TraceInfo::streams).
    StreamId(u32), "{}"
);

/// Unit of [`Time`] and [`Duration`] in a trace. A trace without time counts something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Executed instructions, for hardware trace without time.
    Instructions,
    /// CPU cycles.
    Cycles,
    /// Ticks of a clock whose frequency the trace does not state.
    Ticks,
}

impl TimeUnit {
    /// All units.
    pub const ALL: [Self; 4] = [
        Self::Nanoseconds,
        Self::Instructions,
        Self::Cycles,
        Self::Ticks,
    ];

    /// Its name in machine-readable output, as a suffix of `total_` and the like.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::Ticks => "ticks",
        }
    }

    /// Whether it is a unit of time.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Nanoseconds)
    }
}

impl Time {
    /// The time from `earlier` to this one; `None` if `earlier` is later.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        u64::try_from(i128::from(self.0) - i128::from(earlier.0))
            .ok()
            .map(Duration)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the maximum.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add_unsigned(duration.0))
    }
}

impl Add for Duration {
    type Output = Self;

    /// Saturates at the maximum.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Duration {
    /// Formats it for messages: in a unit close to its size, with as many decimals as needed (`800 ns`, `12.5 us`, `4
    /// ms`), never rounded.
    pub fn with_unit(self) -> String {
        let (one, width, unit) = match self.0 {
            0..1_000 => (1, 0, "ns"),
            1_000..1_000_000 => (1_000, 3, "us"),
            1_000_000..1_000_000_000 => (1_000_000, 6, "ms"),
            _ => (1_000_000_000, 9, "s"),
        };
        let (whole, rest) = (self.0 / one, self.0 % one);
        if rest == 0 {
            return format!("{whole} {unit}");
        }
        let decimals = format!("{rest:0width$}");
        format!("{whole}.{} {unit}", decimals.trim_end_matches('0'))
    }
}

impl Sub for Duration {
    type Output = Self;

    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Ticks {
    /// Converts to nanoseconds, rounding down and saturating at the maximum.
    pub fn to_ns(self, hz: u64) -> u64 {
        let ns = u128::from(self.0) * 1_000_000_000 / u128::from(hz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_sentences_have_fitting_units() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_050, "1.05 us"),
            (4_000_000, "4 ms"),
            (1_000_001, "1.000001 ms"),
            (61_500_000_000, "61.5 s"),
            (u64::MAX, "18446744073.709551615 s"),
        ] {
            assert_eq!(Duration(ns).with_unit(), text);
        }
    }

    #[test]
    fn time_stops_at_its_ends() {
        assert_eq!(Time(5).since(Time(-5)), Some(Duration(10)));
        assert_eq!(Time(-5).since(Time(5)), None);
        assert_eq!(
            Time(i64::MAX).since(Time(i64::MIN)),
            Some(Duration(u64::MAX))
        );
        assert_eq!(Time(i64::MAX) + Duration(1), Time(i64::MAX));
        assert_eq!(Duration(1) - Duration(2), Duration(0));
        assert_eq!(Ticks(25_000_000).to_ns(25_000_000), 1_000_000_000);
        assert_eq!(Ticks(u64::MAX).to_ns(1), u64::MAX);
        assert_eq!(Ticks(1).to_ns(0), 1_000_000_000);
    }
}
