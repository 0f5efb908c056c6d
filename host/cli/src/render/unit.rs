//! Unit of the times in the shown trace: nanoseconds, or another such as instructions in a trace without time.
//!
//! A process shows one trace, and all columns, headings and members use its unit. It is therefore global, and set when
//! the trace is opened.

use std::sync::atomic::{AtomicU8, Ordering};

use kymo_event::{Duration, TimeUnit};

static UNIT: AtomicU8 = AtomicU8::new(0);

/// Sets the unit of times.
pub fn set(unit: TimeUnit) {
    let number = TimeUnit::ALL.iter().position(|known| *known == unit);
    UNIT.store(number.unwrap_or_default() as u8, Ordering::Relaxed);
}

/// Returns the unit of times.
pub fn get() -> TimeUnit {
    let number = usize::from(UNIT.load(Ordering::Relaxed));
    TimeUnit::ALL.get(number).copied().unwrap_or_default()
}

/// Suffix of a heading of times in another unit than nanoseconds, such as ` [instr.]`.
pub fn heading() -> String {
    match get() {
        TimeUnit::Nanoseconds => String::new(),
        TimeUnit::Instructions => " [instr.]".to_owned(),
        unit => format!(" [{}]", unit.suffix()),
    }
}

/// Formats a duration for a sentence, in the trace's unit: `12.5 us`, `7 ticks`.
pub fn in_words(duration: Duration) -> String {
    match get() {
        TimeUnit::Nanoseconds => duration.with_unit(),
        unit => format!("{} {}", duration.0, unit.suffix()),
    }
}

/// Renames the members in lines of JSON after the unit: `total_ns` becomes `total_instructions`.
///
/// Only names of members precede `":`, because a quote within a value has a backslash before it.
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
