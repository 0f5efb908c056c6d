//! Parsers for the replies of Zephyr's instrumentation, which find them among other text on the line.
//!
//! The target writes a reply at once, in an interrupt, so that it is contiguous; but it may follow half a line that the
//! program was just writing. The functions here take all text received so far, and return a reply's content with its
//! range, so that the rest can be shown as console text.

use std::ops::Range;

use kymo_event::Addr;

use crate::Sets;

/// Features of a target's firmware: the reply to `status`.
///
/// It does not tell the target's state: Zephyr has no command for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status {
    /// Whether it can record calls (`CONFIG_INSTRUMENTATION_MODE_CALLGRAPH`).
    pub trace: bool,
    /// Whether it keeps a table of functions (`CONFIG_INSTRUMENTATION_MODE_STATISTICAL`).
    pub profile: bool,
    /// Whether trigger and stopper survive a reboot. `None` from firmware of before 2025-10, which always retained
    /// them.
    pub retained: Option<bool>,
}

/// Beginning of the complaint about an unknown command; the text that the target received follows.
pub(crate) const COMPLAINT: &[u8] = b"invalid command ";

impl Status {
    /// Whether this is `longer` without its first field.
    pub(super) fn is_end_of(self, longer: Self) -> bool {
        (self.retained, longer.retained) == (None, Some(self.profile))
            && longer.profile == self.trace
    }
}

/// A reply and its range.
pub(super) type Found<T> = (T, Range<usize>);

/// The complete lines of a text without their ends, each with its range (including its end).
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], Range<usize>)> {
    let mut start = 0;
    text.split_inclusive(|byte| *byte == b'\n')
        .filter_map(move |line| {
            let range = start..start + line.len();
            start = range.end;
            let line = line.strip_suffix(b"\n")?;
            Some((line.strip_suffix(b"\r").unwrap_or(line), range))
        })
}

/// The last `pong` at the end of a line.
pub(super) fn pong(text: &[u8]) -> Option<Found<()>> {
    let found = lines(text).filter_map(|(line, range)| {
        let before = line.strip_suffix(b"pong")?.len();
        Some(((), range.start + before..range.end))
    });
    found.last()
}

/// The last complaint about an unknown command: the text that the target received.
pub(super) fn invalid(text: &[u8]) -> Option<Found<Vec<u8>>> {
    let found = lines(text).filter_map(|(line, range)| {
        let at = find(line, COMPLAINT)?;
        let understood = line.get(at + COMPLAINT.len()..)?.to_vec();
        Some((understood, range.start + at..range.end))
    });
    found.last()
}

/// Whether the target complains about `identify`, which is Kymo's question.
pub(crate) fn complains(text: &[u8]) -> bool {
    invalid(text).is_some_and(|(understood, _)| understood.ends_with(b"identify"))
}

/// Everything that could be the reply to `status`. A line of the program's can look the same, as can a reply of two
/// digits after another digit, so there may be several.
pub(super) fn statuses(text: &[u8]) -> Vec<Found<Status>> {
    let mut found = Vec::new();
    for (line, range) in lines(text) {
        for fields in [3, 2] {
            let length = 2 * fields - 1;
            let Some(before) = line.len().checked_sub(length) else {
                continue;
            };
            if let Some(status) = line.get(before..).and_then(status) {
                found.push((status, range.start + before..range.end));
                if before == 0 {
                    // The whole line: a shorter reading is impossible.
                    break;
                }
            }
        }
    }
    found
}

/// Parses a status of two or three digits.
fn status(text: &[u8]) -> Option<Status> {
    let flag = |byte: &u8| match byte {
        b'0' => Some(false),
        b'1' => Some(true),
        _ => None,
    };
    match text {
        [trace, b' ', profile, b' ', retained] => Some(Status {
            trace: flag(trace)?,
            profile: flag(profile)?,
            retained: Some(flag(retained)?),
        }),
        [trace, b' ', profile] => Some(Status {
            trace: flag(trace)?,
            profile: flag(profile)?,
            retained: None,
        }),
        _ => None,
    }
}

/// The last reply to `listsets`: two consecutive lines.
pub(super) fn sets(text: &[u8]) -> Option<Found<Sets>> {
    let mut trigger: Option<Found<Option<Addr>>> = None;
    let mut found = None;
    for (line, range) in lines(text) {
        let before = trigger.take();
        if let Some((address, at)) = set(line, b"trigger: ") {
            trigger = Some((address, range.start + at..range.end));
        } else if let (Some((trigger, begin)), Some((stopper, 0))) =
            (before, set(line, b"stopper: "))
        {
            let sets = Sets {
                trigger,
                stopper,
                once: false,
            };
            found = Some((sets, begin.start..range.end));
        }
    }
    found
}

/// The address at the end of a line, after `label`, and the position of the label.
fn set(line: &[u8], label: &[u8]) -> Option<(Option<Addr>, usize)> {
    let at = find(line, label)?;
    let value = std::str::from_utf8(line.get(at + label.len()..)?).ok()?;
    if value == "not set." {
        return Some((None, at));
    }
    let address = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
    // 0 means none: the target never reports it as an address.
    Some(((address != 0).then_some(Addr(address)), at))
}

/// Whether the target reports its start: Zephyr's banner, or the start message of the subsystem.
pub(super) fn booting(text: &[u8]) -> bool {
    [&b"*** Booting Zephyr OS"[..], b"-*-INSTR-INIT-*-"]
        .iter()
        .any(|mark| find(text, mark).is_some())
}

/// Position of the first `pattern`.
fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len())
        .position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text around a reply.
    fn rest(text: &[u8], range: Range<usize>) -> String {
        let mut rest = text.to_vec();
        rest.drain(range);
        String::from_utf8(rest).unwrap()
    }

    const ALL: Status = Status {
        trace: true,
        profile: true,
        retained: Some(true),
    };

    #[test]
    fn a_pong_is_found_in_the_middle_of_a_line() {
        let text = b"Philosopher 3 EApong\r\nTING\r\n";
        let ((), range) = pong(text).unwrap();
        assert_eq!(rest(text, range), "Philosopher 3 EATING\r\n");
        assert_eq!(pong(b"pong"), None, "its line may go on");
        assert_eq!(pong(b"pong!\r\n"), None);
        assert_eq!(pong(b"pong\npong\r\nx"), Some(((), 5..11)), "the last");
    }

    #[test]
    fn what_was_not_understood_is_told() {
        let (what, range) = invalid(b"xinvalid command pingpi\r\n").unwrap();
        assert_eq!((what.as_slice(), range), (&b"pingpi"[..], 1..25));
        assert_eq!(invalid(b"invalid command pi"), None);
    }

    #[test]
    fn a_status_has_two_or_three_fields() {
        let old = Status {
            retained: None,
            ..ALL
        };
        assert_eq!(statuses(b"1 1 1\r\n"), [(ALL, 0..7)]);
        assert_eq!(statuses(b"1 1\r\n"), [(old, 0..5)]);
        assert_eq!(statuses(b"1 1 1"), [], "more may come");
        assert_eq!(statuses(b"1 2 1\r\n1 1 1 1\r\nfoo\r\n")[0].0, ALL);
        // After a digit of the console's, both readings are possible.
        let both: Vec<_> = statuses(b"level 1 1 1\r\n")
            .into_iter()
            .map(|f| f.0)
            .collect();
        assert_eq!(both, [ALL, old]);
        assert!(old.is_end_of(ALL) && !ALL.is_end_of(old) && !old.is_end_of(old));
    }

    #[test]
    fn sets_are_two_lines_together() {
        let text = b"EAtrigger: 0x829\r\nstopper: not set.\r\nTING\r\n";
        let (found, range) = sets(text).unwrap();
        assert_eq!(found.trigger, Some(Addr(0x829)));
        assert_eq!(found.stopper, None);
        assert_eq!(rest(text, range), "EATING\r\n");
        assert_eq!(sets(b"trigger: 0x829\r\nx\r\nstopper: 0x829\r\n"), None);
        assert_eq!(sets(b"trigger: 0x829\r\nstopper: 0x829"), None);
        let all = sets(b"trigger: 0xffffffffffffffff\nstopper: 0x1\n")
            .unwrap()
            .0;
        assert_eq!(all.trigger, Some(Addr(u64::MAX)));
        assert_eq!(sets(b"trigger: 0x10000000000000000\nstopper: 0x1\n"), None);
    }

    #[test]
    fn a_start_is_noticed() {
        assert!(booting(b"*** Booting Zephyr OS build v4.4 ***\r\n"));
        assert!(booting(b"-*-INSTR-INIT-*-\r\n"));
        assert!(!booting(b"*** Hello ***"));
    }
}
