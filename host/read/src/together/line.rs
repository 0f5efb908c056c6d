//! Conversion of times from one recording to another.

use std::path::{Path, PathBuf};

use kymo_event::{
    Batch, Duration, EventKind, EventRef, Gap, Moment, Time, TimeUnit, TraceInfo, Value, WallClock,
};

use crate::{OpenError, Source};

/// Relation between the times of two recordings.
#[derive(Debug)]
pub(super) enum Line {
    /// They are the same recording.
    Itself,
    /// Both use this clock.
    Same(String),
    /// Both have dates: conversion from the one's times to dates, and from dates to the other's times.
    Dates(WallClock, WallClock),
    /// Both have events with the same name, and the line goes through the first and the last of them.
    Through(Through),
}

/// Common events.
#[derive(Debug)]
pub(super) struct Through {
    /// Times of the first and the last one, by the recording's own clock and by the other.
    own: (Time, Time),
    other: (Time, Time),
    event: String,
    count: usize,
    /// Largest distance of a common event from the line, in the unit of the other recording.
    off: u64,
    unit: TimeUnit,
    /// Difference between the two clocks' rates in millionths, if both count time.
    drift: Option<u64>,
}

/// Largest plausible difference between two clocks' rates in millionths. On-chip oscillators differ by up to 10,000.
const DRIFT: u64 = 20_000;

impl Through {
    fn time(&self, time: Time) -> Time {
        let since = i128::from(time.0) - i128::from(self.own.0.0);
        let passed = self.scaled(since);
        let time = i128::from(self.other.0.0) + passed;
        Time(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    fn scaled(&self, passed: i128) -> i128 {
        let between = |(first, last): (Time, Time)| i128::from(last.0) - i128::from(first.0);
        match (between(self.own), between(self.other)) {
            (own @ 1.., other @ 1..) => {
                let whole = passed.div_euclid(own).saturating_mul(other);
                // Both are less than 2^64, so the product fits.
                let (rest, own) = (passed.rem_euclid(own) as u128, own as u128);
                let rest = (rest * other as u128 + own / 2) / own;
                whole.saturating_add(rest as i128)
            }
            _ => passed,
        }
    }
}

impl Line {
    /// Converts a time to the other recording's clock.
    pub fn time(&self, time: Time) -> Time {
        match self {
            // Some events have no known time.
            _ if time == Time(i64::MIN) => time,
            Self::Itself | Self::Same(_) => time,
            Self::Dates(date, back) => Time(back.unix_ns(Time(date.unix_ns(time)))),
            Self::Through(line) => line.time(time),
        }
    }

    /// Converts a duration to the other recording's clock.
    pub fn duration(&self, duration: Duration) -> Duration {
        match self {
            Self::Through(line) => {
                let scaled = line.scaled(duration.0.into());
                Duration(scaled.clamp(0, u64::MAX.into()) as u64)
            }
            _ => duration,
        }
    }

    /// Converts the durations in an event to the other recording's clock.
    pub fn rescale(&self, kind: &mut EventKind) {
        let durations: &mut [&mut Duration] = match kind {
            EventKind::Call(call) => &mut [&mut call.duration, &mut call.self_time],
            EventKind::Gap(Gap::TimeBackward { by }) => &mut [by],
            EventKind::Gap(Gap::Clock(gap)) => &mut [&mut gap.at_least],
            EventKind::Gap(Gap::MissingExit { ago }) => &mut [ago],
            _ => &mut [],
        };
        for duration in durations {
            **duration = self.duration(**duration);
        }
    }

    /// Returns a remark if the two recordings may not be from the same run.
    pub fn remark(&self) -> Option<String> {
        let Self::Through(Through { event, drift, .. }) = self else {
            return None;
        };
        let drift = drift.filter(|drift| *drift > DRIFT)?;
        Some(format!(
            "its events `{event}` are {}.{} % further apart or closer than those that they are put onto, more than clocks \
             differ: are they of the same run?",
            drift / 10_000,
            drift / 1_000 % 10
        ))
    }

    /// Describes the conversion for the user.
    pub fn about(&self) -> Option<String> {
        match self {
            Self::Itself => None,
            Self::Same(clock) => Some(format!(
                "the same times, as both record by the clock {clock}"
            )),
            Self::Dates(..) => Some("times moved by the dates that both tell".to_owned()),
            Self::Through(line) => {
                let Through {
                    event, count, off, ..
                } = line;
                let unit = line.unit.suffix();
                let events = match count {
                    1 => format!("times moved by the event `{event}` of both"),
                    2 => format!("times on the line through the 2 events `{event}` of both"),
                    count => format!(
                        "times on the line through the first and last of {count} events `{event}`; the others lie within \
                         {off} {unit} of it"
                    ),
                };
                Some(events)
            }
        }
    }
}

/// Returns the index of the recording whose times do not change: the first that counts nanoseconds.
pub(super) fn reference(sources: &[(PathBuf, Box<dyn Source>)]) -> usize {
    let is_time = |(_, source): &(PathBuf, Box<dyn Source>)| source.info().unit.is_time();
    sources.iter().position(is_time).unwrap_or(0)
}

fn refused(path: &Path, message: String) -> OpenError {
    OpenError::Together {
        path: path.to_owned(),
        message,
    }
}

/// Relates the recordings by their own properties.
pub(super) fn known(sources: &[(PathBuf, Box<dyn Source>)]) -> Result<Vec<Line>, OpenError> {
    let number = reference(sources);
    let Some((to, other)) = sources.get(number) else {
        return Ok(Vec::new());
    };
    let other = other.info();
    let lines = sources.iter().enumerate().map(|(index, (path, source))| {
        timed(path, source.info())?;
        match index == number {
            true => Ok(Line::Itself),
            false => between(source.info(), other).map_err(|why| {
                let to = to.display();
                refused(
                    path,
                    format!("nothing tells how its clock goes with that of {to}: {why}"),
                )
            }),
        }
    });
    lines.collect()
}

/// Relates the times of one recording to those of another.
fn between(own: &TraceInfo, other: &TraceInfo) -> Result<Line, String> {
    for info in [own, other] {
        if !info.unit.is_time() {
            let unit = info.unit.suffix();
            return Err(format!("one of them counts {unit}, not time"));
        }
    }
    match (&own.clock, &other.clock) {
        (Some(clock), Some(same)) if clock == same => return Ok(Line::Same(clock.clone())),
        _ => {}
    }
    // A guest and its host, or two guests of one host.
    if let (Some(moved), session) | (session, Some(moved)) =
        (own.moved_to_session, other.moved_to_session)
    {
        let sessions = [session, own.session, other.session];
        if sessions.contains(&Some(moved)) {
            return Ok(Line::Same("of the guest's host".to_owned()));
        }
    }
    match (&own.wall_clock, &other.wall_clock) {
        (Some(date), Some(other)) => {
            let back = other.moments().iter().map(|moment| Moment {
                time: Time(moment.unix_ns),
                unix_ns: moment.time.0,
            });
            Ok(Line::Dates(
                date.clone(),
                WallClock::new(back).unwrap_or_default(),
            ))
        }
        (own, other) => {
            let who = match (own, other) {
                (None, None) => "neither tells",
                (None, _) => "it does not tell",
                (_, None) => "that one does not tell",
                _ => "",
            };
            Err(format!(
                "{who} dates, and they do not record by the same clock"
            ))
        }
    }
}

/// Rejects a recording without times.
fn timed(path: &Path, info: &TraceInfo) -> Result<(), OpenError> {
    match info.untimed {
        true => Err(refused(path, "it has no times".to_owned())),
        false => Ok(()),
    }
}

/// Relates the recordings by common events. `reopen` opens a recording again, because its events are searched
/// beforehand.
pub(super) fn through(
    sources: &[(PathBuf, Box<dyn Source>)],
    event: &str,
    reopen: impl Fn(usize, &Path) -> Result<Box<dyn Source>, OpenError>,
) -> Result<Vec<Line>, OpenError> {
    let number = reference(sources);
    let mut found = Vec::new();
    for (index, (path, source)) in sources.iter().enumerate() {
        timed(path, source.info())?;
        if !path.is_file() && !path.is_dir() {
            let message =
                "events that all have are looked for beforehand, and this can be read only once";
            return Err(refused(path, message.to_owned()));
        }
        let mut source = reopen(index, path)?;
        let times = times(&mut *source, event).map_err(|error| refused(path, error.to_string()))?;
        if times.is_empty() {
            return Err(refused(path, format!("it has no event `{event}`")));
        }
        found.push((path, source.info().unit, times));
    }
    let Some((to, unit, other)) = found.get(number) else {
        return Ok(Vec::new());
    };
    let lines = found.iter().enumerate().map(|(index, (path, own_unit, own))| {
        if index == number {
            return Ok(Line::Itself);
        }
        let to = to.display();
        if own.len() != other.len() {
            let (own, other) = (own.len(), other.len());
            return Err(refused(
                path,
                format!("it has {own} events `{event}`, and {to} has {other}: which of them are the same is not known"),
            ));
        }
        let ends = |times: &[Time]| {
            let first = times.first().copied().unwrap_or_default();
            (first, times.last().copied().unwrap_or_default())
        };
        let (own_ends, other_ends) = (ends(own), ends(other));
        let is_line = own_ends.0 < own_ends.1 && other_ends.0 < other_ends.1;
        if !is_line && own_unit != unit || !own_unit.is_time() && own.len() == 1 {
            let (own, other) = (own_unit.suffix(), unit.suffix());
            return Err(refused(
                path,
                format!("it counts {own}, and {to} {other}: that takes two events `{event}` at different times"),
            ));
        }
        if own.len() > 1 && !is_line {
            return Err(refused(path, format!("its events `{event}` are not in the order of those of {to}")));
        }
        let mut line = Through {
            own: own_ends,
            other: other_ends,
            event: event.to_owned(),
            count: own.len(),
            off: 0,
            unit: *unit,
            drift: None,
        };
        let off = own.iter().zip(other).map(|(own, other)| line.time(*own).0.abs_diff(other.0));
        line.off = off.max().unwrap_or(0);
        if is_line && own_unit.is_time() {
            line.drift = Some(line.scaled(1_000_000).abs_diff(1_000_000) as u64);
        }
        Ok(Line::Through(line))
    });
    lines.collect()
}

/// Largest number of common events.
const MOST: usize = 1 << 20;

/// Returns the times of the events with this name.
fn times(source: &mut dyn Source, event: &str) -> Result<Vec<Time>, String> {
    let number = match event.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => event.parse().ok(),
    };
    let mut times = Vec::new();
    let mut batch = Batch::default();
    while source.fill(&mut batch).map_err(|error| error.to_string())? {
        times.extend(
            batch
                .iter()
                .filter(|it| is_it(it, event, number))
                .map(|it| it.row.time),
        );
        if times.len() > MOST {
            return Err(format!("it has more than {MOST} events `{event}`"));
        }
    }
    Ok(times)
}

/// Returns whether an event has this name, is a marker with this name or text, or has this value.
fn is_it(event: &EventRef<'_>, text: &str, number: Option<u64>) -> bool {
    let Some(event) = event.event else {
        return false;
    };
    if let EventKind::Marker { label: None, value } = event.kind
        && number == Some(value)
    {
        return true;
    }
    let is_number = |value: &Value| match value {
        Value::Unsigned(it) | Value::Hex(it) => number == Some(*it),
        _ => false,
    };
    let mut fields = event.fields.iter();
    event.says(|printed| printed == text)
        || fields.any(|field| field.name == "value" && is_number(&field.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_goes_with_its_host_and_with_its_other_guests() {
        let host = |number| TraceInfo {
            session: Some(number),
            ..TraceInfo::default()
        };
        let guest = |number| TraceInfo {
            moved_to_session: Some(number),
            ..TraceInfo::default()
        };
        for (own, other, same) in [
            (guest(7), host(7), true),
            (host(7), guest(7), true),
            (guest(7), guest(7), true),
            (guest(7), host(8), false),
            (guest(7), guest(8), false),
            (host(7), host(8), false),
            (guest(7), TraceInfo::default(), false),
        ] {
            let line = between(&own, &other);
            assert_eq!(line.is_ok(), same, "{line:?}");
            let is_same = matches!(line, Ok(Line::Same(_)));
            assert_eq!(is_same, same);
        }
    }

    #[test]
    fn a_line_goes_through_its_ends_whatever_they_are() {
        let through = |own: (i64, i64), other: (i64, i64)| Through {
            own: (Time(own.0), Time(own.1)),
            other: (Time(other.0), Time(other.1)),
            event: String::new(),
            count: 2,
            off: 0,
            unit: TimeUnit::Nanoseconds,
            drift: None,
        };
        let line = through((100, 1100), (5_000, 12_000));
        for (own, other) in [
            (100, 5_000),
            (1100, 12_000),
            (600, 8_500),
            (0, 4_300),
            (2100, 19_000),
        ] {
            assert_eq!(line.time(Time(own)), Time(other), "{own}");
        }
        let wide = (i64::MIN, i64::MAX);
        let line = Line::Through(through(wide, wide));
        for time in [i64::MIN + 1, -1, 0, 7, i64::MAX] {
            assert_eq!(line.time(Time(time)), Time(time));
        }
        assert_eq!(line.duration(Duration(12)), Duration(12));
        // A single time does not determine the rate.
        let line = through((10, 10), (-5, -5));
        assert_eq!(line.time(Time(12)), Time(-3));
    }
}
