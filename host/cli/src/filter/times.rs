//! Times and durations of the command line.

use std::str::FromStr;

use kymo_event::{Bound, Duration, Time};

use crate::diagnostic::Report;
use crate::render::unit;

/// A time or duration of the command line: in seconds or with a unit, or without a unit in the trace's own unit,
/// which is unknown until the trace is open.
#[derive(Clone, Debug)]
pub struct Given {
    /// The text as given.
    pub text: String,
    /// In nanoseconds.
    time: Option<Bound>,
    /// The plain number, if it has no unit.
    count: Option<Bound>,
    /// The reading of a counter, if it exceeds the range of times.
    counter: Option<u64>,
}

impl Given {
    /// Its value in the open trace.
    pub fn bound(&self) -> Option<Bound> {
        match unit::get().is_time() {
            true => self.time,
            false => self.count,
        }
    }

    /// The absolute time, in nanoseconds or as a number without a unit.
    pub fn at(&self, is_time: bool) -> Option<i64> {
        match if is_time { self.time } else { self.count } {
            Some(Bound::At(Time(time))) => Some(time),
            _ => None,
        }
    }

    /// The absolute time, with `origin` subtracted from readings of a counter. A reading beyond the range of times is
    /// one before the subtraction.
    pub fn tick(&self, origin: u64) -> Option<i64> {
        let reading = || i64::try_from(i128::from(self.counter?) - i128::from(origin)).ok();
        self.at(false).or_else(reading)
    }

    /// The time after the start of the trace (`+N`), in nanoseconds or as a number without a unit.
    pub fn after_start(&self, is_time: bool) -> Option<u64> {
        match if is_time { self.time } else { self.count } {
            Some(Bound::AfterStart(Duration(span))) => Some(span),
            _ => None,
        }
    }

    /// Its value as a duration in the open trace.
    pub fn duration(&self) -> Option<Duration> {
        match self.bound()? {
            Bound::At(Time(count)) => Some(Duration(u64::try_from(count).ok()?)),
            Bound::AfterStart(_) => None,
        }
    }

    /// Refuses a unit of time in a trace that has none, and seconds beyond the range of times.
    pub fn check(&self, option: &str) -> Result<(), Report> {
        if self.bound().is_some() {
            return Ok(());
        }
        let (text, unit) = (&self.text, unit::get());
        if unit.is_time() {
            let report = Report::new(format_args!(
                "{option} {text}: expected at most 9223372036 seconds"
            ));
            return Err(report.help("a number without a unit is seconds; ns, us and ms are units"));
        }
        if self.counter.is_some() {
            let report = Report::new(format_args!("{option} {text}: no times go that far"));
            return Err(report.help("`kymo info` tells from when to when the trace is"));
        }
        let report = Report::new(format_args!(
            "{option} {text}: the times of this trace are no seconds"
        ));
        Err(report.help(format!(
            "they count {}: give a number without a unit",
            unit.suffix()
        )))
    }
}

/// Parses a time: seconds, or with a unit; with a `+`, after the first event. Without a unit it may be in the trace's
/// unit.
pub fn given(text: &str) -> Result<Given, String> {
    let time = bound(text);
    let count = match text.strip_prefix('+') {
        Some(digits) => digits
            .parse()
            .ok()
            .map(|it| Bound::AfterStart(Duration(it))),
        None => text.parse().ok().map(|it| Bound::At(Time(it))),
    };
    let counter = text.parse().ok().filter(|_| count.is_none());
    if let (Err(error), None, None) = (&time, count, counter) {
        return Err(error.clone());
    }
    Ok(Given {
        text: text.to_owned(),
        time: time.ok(),
        count,
        counter,
    })
}

/// Parses a duration, or a count in the trace's unit.
pub(super) fn given_duration(text: &str) -> Result<Given, String> {
    let is_count = text.parse::<u64>().is_ok();
    if let Err(error) = duration(text)
        && !is_count
    {
        return Err(error);
    }
    given(text)
}

/// Reads a time: seconds, or with a unit; with a `+`, after the first event.
pub(super) fn bound(text: &str) -> Result<Bound, String> {
    let expected = || {
        format!("expected a time such as 12.5, +250ms, 80us or +5ns (s if no unit), found {text:?}")
    };
    let (after, digits) = match text.strip_prefix('+') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, unit) = [
        ("ns", 1i128),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ]
    .into_iter()
    .find_map(|(unit, ns)| Some((digits.strip_suffix(unit)?, ns)))
    .unwrap_or((digits, 1_000_000_000));
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) if !after => (-1, digits),
        _ => (1, digits),
    };
    let nanoseconds = decimal(digits.trim(), unit).ok_or_else(expected)?;
    if after {
        let distance = u64::try_from(nanoseconds).map_err(|_| expected())?;
        return Ok(Bound::AfterStart(Duration(distance)));
    }
    let time = i64::try_from(sign * nanoseconds).map_err(|_| expected())?;
    Ok(Bound::At(Time(time)))
}

/// Reads a span of time: seconds, or with a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    match bound(text) {
        Ok(Bound::At(Time(ns))) if ns >= 0 => Ok(Duration(ns.unsigned_abs())),
        _ => Err(format!(
            "expected a duration such as 50ms, 80us or 1.5 (s if no unit), found {text:?}"
        )),
    }
}

/// A decimal number times `unit`, rounded down, exactly.
pub(super) fn decimal(digits: &str, unit: i128) -> Option<i128> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let number = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            i128::from_str(text).ok()
        }
    };
    // Decimals beyond nine are below 1 ns even in seconds, so they are dropped.
    let part = part.get(..part.len().min(9)).unwrap_or(part);
    let scale = 10i128.pow(u32::try_from(part.len()).ok()?);
    let part = number(part)?.checked_mul(unit)? / scale;
    number(whole)?.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests;
