//! What times count in the trace that is shown: nanoseconds, or instructions where a trace has no time.
//!
//! A process shows one trace, and every column, heading and member of it counts the same, so it is said once, when the
//! trace is opened.

use std::sync::atomic::{AtomicU8, Ordering};

use kymo_event::{Duration, TimeUnit};

static UNIT: AtomicU8 = AtomicU8::new(0);

/// From here on times are shown in this unit.
pub fn set(unit: TimeUnit) {
    let number = TimeUnit::ALL.iter().position(|known| *known == unit);
    UNIT.store(number.unwrap_or_default() as u8, Ordering::Relaxed);
}

/// The unit of times.
pub fn get() -> TimeUnit {
    let number = usize::from(UNIT.load(Ordering::Relaxed));
    TimeUnit::ALL.get(number).copied().unwrap_or_default()
}

/// What stands behind a heading of times that are not time: ` [instr.]`.
pub fn heading() -> String {
    match get() {
        TimeUnit::Nanoseconds => String::new(),
        TimeUnit::Instructions => " [instr.]".to_owned(),
        unit => format!(" [{}]", unit.suffix()),
    }
}

/// A duration in a sentence: `12.5 us`, or `7 ticks` where the trace has those.
pub fn in_words(duration: Duration) -> String {
    match get() {
        TimeUnit::Nanoseconds => duration.with_unit(),
        unit => format!("{} {}", duration.0, unit.suffix()),
    }
}

/// Names the members of lines of JSON by the unit: `total_ns` is `total_instructions` then.
///
/// Only a member's name stands before `":`: within a value, the quote has a backslash before it.
pub fn name_members(line: &mut Vec<u8>) {
    name_members_by(get(), line);
}

fn name_members_by(unit: TimeUnit, line: &mut Vec<u8>) {
    if unit.is_time() {
        return;
    }
    const OLD: &[u8] = b"_ns\":";
    let mut named = Vec::with_capacity(line.len() + line.len() / 4);
    let mut rest = line.as_slice();
    while let Some(found) = rest.windows(OLD.len()).position(|bytes| bytes == OLD) {
        let (before, behind) = rest.split_at(found);
        named.extend_from_slice(before);
        named.push(b'_');
        named.extend_from_slice(unit.suffix().as_bytes());
        named.extend_from_slice(b"\":");
        rest = behind.get(OLD.len()..).unwrap_or_default();
    }
    named.extend_from_slice(rest);
    *line = named;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_the_unit() {
        let line = br#"{"total_ns":1,"text":"a_ns\":","self_ns":2}"#;
        let mut same = line.to_vec();
        name_members_by(TimeUnit::Nanoseconds, &mut same);
        assert_eq!(same, line);
        let mut other = line.to_vec();
        name_members_by(TimeUnit::Cycles, &mut other);
        let expected = br#"{"total_cycles":1,"text":"a_ns\":","self_cycles":2}"#;
        assert_eq!(other, expected);
    }
}
