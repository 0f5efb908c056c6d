//! Time of day, derived from a trace's own clock.

use crate::Time;

/// One point in time on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Time of the trace's clock.
    pub time: Time,
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub unix_ns: i64,
}

/// Mapping from a trace's clock to the time of day: points at which both are known, with linear interpolation between
/// them.
///
/// Clocks of processors are off by some parts in a million, cheap ones by a percent. Where two points disagree by more,
/// the time of day was set in between: then the first point holds until the second.
///
/// The default has no point: the trace's clock is itself the time of day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    /// Sorted by time.
    moments: Vec<Moment>,
}

impl WallClock {
    /// Deviation in percent beyond which the clock is considered to have been set.
    const OFF: i128 = 5;

    /// Creates a clock from these points; `None` if there are none. Of several points with the same time the first is
    /// used.
    pub fn new(moments: impl IntoIterator<Item = Moment>) -> Option<Self> {
        let mut moments: Vec<_> = moments.into_iter().collect();
        moments.sort_by_key(|moment| moment.time);
        moments.dedup_by_key(|moment| moment.time);
        (!moments.is_empty()).then_some(Self { moments })
    }

    /// Its points, sorted by time.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Whether both clocks ran at about the same rate between two points.
    pub fn in_step(one: Moment, other: Moment) -> bool {
        let (own, wall) = apart(one, other);
        own > 0 && (wall - own).abs() <= own * Self::OFF / 100
    }

    /// Returns the time of day at `time`, in nanoseconds since 1970-01-01 00:00 UTC.
    pub fn unix_ns(&self, time: Time) -> i64 {
        let behind = self.moments.partition_point(|moment| moment.time <= time);
        let next = self.moments.get(behind);
        let Some(last) = self.moments.get(behind.saturating_sub(1)) else {
            return time.0;
        };
        let since = i128::from(time.0) - i128::from(last.time.0);
        let passed = match next {
            Some(next) if behind > 0 && Self::in_step(*last, *next) => {
                let (own, wall) = apart(*last, *next);
                since * wall / own
            }
            _ => since,
        };
        let ns = i128::from(last.unix_ns) + passed;
        ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The time between two points on either clock: the trace's, then the time of day.
fn apart(one: Moment, other: Moment) -> (i128, i128) {
    (
        i128::from(other.time.0) - i128::from(one.time.0),
        i128::from(other.unix_ns) - i128::from(one.unix_ns),
    )
}

/// A time of day, displayed as in RFC 3339, in UTC with nanoseconds: `2026-11-21T17:20:00.000000001Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date(
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub i64,
);

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, ns) = (
            self.0.div_euclid(1_000_000_000),
            self.0.rem_euclid(1_000_000_000),
        );
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z"
        )
    }
}

/// Error for a text that is not a [`Date`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDate;

impl std::fmt::Display for NoDate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("expected a date in UTC from 1678 to 2261, as in 2026-11-21T17:20:00.5Z")
    }
}

impl std::error::Error for NoDate {}

impl std::str::FromStr for Date {
    type Err = NoDate;

    /// Parses a date as [`Display`](std::fmt::Display) writes it. The fraction, the seconds, the time of day and the
    /// `Z` are optional; a space may replace the `T`.
    fn from_str(text: &str) -> Result<Self, NoDate> {
        let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
        let (day, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
        let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
        // The comparison with `civil` below rejects dates such as February 30.
        let [year, month, day] = numbers(day, '-', [4, 2, 2]).ok_or(NoDate)?;
        let days = days(year, month, day);
        let with_seconds = format!("{time}:00");
        let time = numbers(time, ':', [2; 3]).or_else(|| numbers(&with_seconds, ':', [2; 3]));
        let [hour, minute, second] = time.ok_or(NoDate)?;
        let digits = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let ns = format!("{fraction:0<9}").parse::<i64>().unwrap_or(0);
        let is_time = hour < 24 && minute < 60 && second < 60;
        let is_near = (1678..=2261).contains(&year);
        if civil(days) != (year, month, day) || !digits || !is_time || !is_near {
            return Err(NoDate);
        }
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        Ok(Self(seconds * 1_000_000_000 + ns))
    }
}

/// Parses three numbers with exactly `digits` digits each, separated by `between`.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; the inverse of [`civil`].
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day = (153 * month + 2) / 5 + day - 1 + 365 * year + year / 4 - year / 100;
    era * 146_097 + day - 719_468
}

/// The date `days` days after 1970-01-01 in the Gregorian calendar. Years begin in March, so that the leap day is the
/// last day of a year; 400 years have 146,097 days.
const fn civil(days: i64) -> (i64, i64, i64) {
    // 1970-01-01 is day 719,468 of that count from the year 0.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn clock(moments: &[(i64, i64)]) -> WallClock {
        let moments = moments.iter().map(|(time, unix_ns)| Moment {
            time: Time(*time),
            unix_ns: *unix_ns,
        });
        WallClock::new(moments).unwrap()
    }

    #[test]
    fn between_moments_it_goes_as_they_do() {
        // 100 parts in a million fast.
        let clock = clock(&[(10 * S, 1000 * S), (20 * S, 1010 * S + 1_000_000)]);
        assert_eq!(clock.unix_ns(Time(10 * S)), 1000 * S);
        assert_eq!(clock.unix_ns(Time(15 * S)), 1005 * S + 500_000);
        assert_eq!(clock.unix_ns(Time(20 * S)), 1010 * S + 1_000_000);
        // Outside the points, the rate is that of the trace's clock.
        assert_eq!(clock.unix_ns(Time(0)), 990 * S);
        assert_eq!(clock.unix_ns(Time(25 * S)), 1015 * S + 1_000_000);
        assert_eq!(clock.unix_ns(Time(i64::MIN)), i64::MIN + 990 * S);
    }

    #[test]
    fn a_clock_that_was_set_jumps_where_that_is_known() {
        for jump in [-500 * S, 500 * S] {
            let clock = clock(&[(0, 1000 * S), (10 * S, 1010 * S + jump)]);
            assert_eq!(clock.unix_ns(Time(10 * S - 1)), 1010 * S - 1);
            assert_eq!(clock.unix_ns(Time(10 * S)), 1010 * S + jump);
        }
        assert_eq!(WallClock::new([]), None);
        let twice = clock(&[(5, 7), (5, 9), (1, 3)]);
        assert_eq!(twice.moments().len(), 2);
        assert_eq!(twice.unix_ns(Time(5)), 7);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000007Z"),
            (951_782_399, "2000-02-28T23:59:59.000000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000000007Z"),
            (951_868_800, "2000-03-01T00:00:00.000000007Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000000007Z"),
            (1_795_281_605, "2026-11-21T17:20:05.000000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000007Z"),
            (-1, "1969-12-31T23:59:59.000000007Z"),
        ] {
            assert_eq!(Date(seconds * S + 7).to_string(), text);
            assert_eq!(text.parse(), Ok(Date(seconds * S + 7)));
        }
        for (text, same) in [
            ("2026-11-21", "2026-11-21T00:00:00Z"),
            ("2026-11-21 17:20", "2026-11-21T17:20:00.000Z"),
            ("2026-11-21T17:20:05.5", "2026-11-21T17:20:05.500000000Z"),
        ] {
            assert_eq!(text.parse::<Date>(), same.parse());
            assert!(text.parse::<Date>().is_ok(), "{text}");
        }
        for text in [
            "",
            "2026-02-30",
            "2026-13-01",
            "2026-11-21T24:00",
            "2026-11-21T1:00",
            "2026-11-21T10:00:00.1234567890",
            "1600-01-01",
            "2026-11-21T10:00+01:00",
            "-026-11-21",
        ] {
            assert_eq!(text.parse::<Date>(), Err(NoDate), "{text}");
        }
        assert_eq!(Date(i64::MAX).to_string(), "2262-04-11T23:47:16.854775807Z");
        assert_eq!(Date(i64::MIN).to_string(), "1677-09-21T00:12:43.145224192Z");
    }
}
