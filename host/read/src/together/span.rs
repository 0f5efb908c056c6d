//! Detection of recordings whose time ranges do not overlap, although they should be of one run.

use kymo_event::{Time, TimeUnit};

/// Time range of a recording's events; `None` without an event that has a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span(Option<(Time, Time)>);

impl Span {
    /// Extends the range to the time of the next event.
    #[inline]
    pub fn meet(&mut self, time: Time) {
        // Some events have no known time.
        if time != Time(i64::MIN) {
            let (begin, end) = self.0.unwrap_or((time, time));
            self.0 = Some((begin.min(time), end.max(time)));
        }
    }
}

/// Returns a remark for each further recording whose range does not overlap with that of the first.
pub(super) fn apart<'a>(
    mut all: impl Iterator<Item = (&'a str, Span)>,
    unit: TimeUnit,
) -> Vec<String> {
    let Some((first, Span(Some((begin, end))))) = all.next() else {
        return Vec::new();
    };
    let shown = |from: Time, to: Time| match unit {
        TimeUnit::Nanoseconds => format!("from {} to {} s", seconds(from), seconds(to)),
        _ => format!("from {} to {} {}", from.0, to.0, unit.suffix()),
    };
    let apart = all.filter_map(|(name, Span(span))| {
        let (from, to) = span.filter(|(from, to)| *to < begin || *from > end)?;
        Some(format!(
            "{name} has nothing at the time of {first}, so that they may not be of one run: it is {}, {first} {}",
            shown(from, to),
            shown(begin, end),
        ))
    });
    apart.collect()
}

/// Formats a time in seconds, with nanosecond digits.
fn seconds(time: Time) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    let time = time.0.unsigned_abs();
    format!("{sign}{}.{:09}", time / 1_000_000_000, time % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(times: &[i64]) -> Span {
        let mut span = Span::default();
        times.iter().for_each(|time| span.meet(Time(*time)));
        span
    }

    #[test]
    fn only_spans_without_anything_in_common_are_reported() {
        let of = |all: &[Span]| {
            let named = ["a", "b", "c"].into_iter().zip(all.iter().copied());
            apart(named, TimeUnit::Nanoseconds)
        };
        let unknown = span(&[i64::MIN]);
        assert_eq!(unknown, Span::default());
        assert_eq!(of(&[span(&[3, 9]), span(&[9, 12]), span(&[1, 3])]), [""; 0]);
        assert_eq!(of(&[span(&[3, 9]), unknown]), [""; 0]);
        assert_eq!(of(&[unknown, span(&[3, 9])]), [""; 0]);
        assert_eq!(
            of(&[span(&[9, 3]), span(&[10, 1_000_000_020]), span(&[-7, 2])]),
            [
                "b has nothing at the time of a, so that they may not be of one run: \
                 it is from 0.000000010 to 1.000000020 s, a from 0.000000003 to 0.000000009 s",
                "c has nothing at the time of a, so that they may not be of one run: \
                 it is from -0.000000007 to 0.000000002 s, a from 0.000000003 to 0.000000009 s",
            ]
        );
    }
}
