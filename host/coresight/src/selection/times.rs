//! Instructions in a time window, by the interpolation of a [`Clock`].

use std::ops::Range;

use crate::clock::{Clock, Measure, Placed, UNKNOWN};
use crate::element::Element;
use crate::flow::{EtmV4Options, Flow, Sink};
use crate::input::{Buffer, Part};
use crate::perf::TimeConversion;
use crate::source::Protocol;

/// Instructions of one source that ran from `begin` to `end`, for a trace with timestamps: for each of its parts,
/// counted from the part's beginning. They begin and end at boundaries of ranges. All ranges in the tick of a bound are
/// included.
pub fn within(
    buffers: &[Buffer],
    parts: &[Part],
    options: EtmV4Options,
    (conversion, origin): (Option<TimeConversion>, u64),
    (begin, end): (Option<i64>, Option<i64>),
) -> Vec<Range<u64>> {
    let mut finder = Finder {
        clock: Clock::new(Measure::Timestamps, conversion, origin),
        placed: Vec::new(),
        instructions: 0,
        begin,
        end,
        first: None,
        at_end: None,
        behind: None,
    };
    let mut starts = Vec::new();
    for part in parts {
        starts.push(finder.instructions);
        finder.clock.pause(&mut finder.placed);
        let Some(buffer) = buffers.get(part.buffer) else {
            continue;
        };
        let (Some(stream), Some(source), Some(code)) = (
            buffer.frames.streams.get(part.stream),
            buffer.sources.get(part.source),
            buffer.code.get(part.source),
        ) else {
            continue;
        };
        finder.clock.restarts_at_timestamps = matches!(source.protocol, Protocol::Ptm(_));
        let mut flow = Flow::new(&source.protocol, options, code);
        flow.run_stream(&source.protocol, stream, &mut finder);
    }
    finder.clock.finish(None, &mut finder.placed);
    finder.look();
    let first = finder.first.unwrap_or(u64::MAX);
    let behind = finder.behind.map(|behind| finder.at_end.unwrap_or(behind));
    let behind = behind.unwrap_or(u64::MAX);
    let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
    let parts = starts.iter().zip(ends);
    parts
        .map(|(start, next)| {
            let chosen = first.max(*start)..behind.min(next);
            match chosen.is_empty() {
                true => 0..0,
                false => chosen.start - start..chosen.end - start,
            }
        })
        .collect()
}

/// Finds the first and last ranges of a time window.
struct Finder {
    clock: Clock<u64>,
    /// First instructions of ranges, as counts, with their times.
    placed: Vec<Placed<u64>>,
    instructions: u64,
    begin: Option<i64>,
    end: Option<i64>,
    first: Option<u64>,
    /// Last range that begins at the end of the window; ranges that end at that time end before it.
    at_end: Option<u64>,
    /// First range after the window.
    behind: Option<u64>,
}

impl Finder {
    fn look(&mut self) {
        for placed in self.placed.drain(..) {
            let (time, instruction) = (placed.time, placed.what);
            // Ranges before the first timestamp have no known time.
            let is_known = time != UNKNOWN;
            let has_begun = self.begin.is_none_or(|begin| is_known && time >= begin);
            if self.first.is_none() && has_begun {
                self.first = Some(instruction);
            }
            let Some(end) = self.end.filter(|_| is_known) else {
                continue;
            };
            if time == end && self.begin != Some(end) {
                self.at_end = Some(instruction);
            } else if time > end && self.behind.is_none() {
                self.behind = Some(instruction);
            }
        }
    }
}

impl Sink for Finder {
    fn element(&mut self, _: usize, element: Element) {
        let (clock, placed) = (&mut self.clock, &mut self.placed);
        match element {
            Element::Range(range) => {
                clock.push(self.instructions, self.instructions, placed);
                self.instructions += u64::from(range.count);
            }
            Element::RangeWithoutPath { count, .. } => self.instructions += u64::from(count),
            Element::Timestamp { value, cycles } => {
                clock.timestamp_with_cycles(self.instructions, value, cycles, placed);
                self.look();
            }
            Element::TraceOn { .. } => clock.gap(),
            Element::NoSync(_) => clock.pause(placed),
            _ => {}
        }
        self.clock
            .count(self.instructions, &element, &mut self.placed);
    }
}
