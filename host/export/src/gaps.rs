//! Duration of gaps in a timeline.
//!
//! A [`Gap`] has the time of the last event before a loss and no length; a viewer shows the whole interval without
//! information. It ends at the next event of the stream. Several gaps can begin at one event. A selection of calls does
//! not change gaps, so they are found in the events themselves. They are given out where the replay comes to them: batches are cut
//! elsewhere with other numbers of threads, and a file must not depend on that.

use std::collections::VecDeque;

use kymo_analysis::replay::Window;
use kymo_event::{
    Batch, Event, EventKind, Filter, Gap, RowKind, StreamId, StreamInfo, Time, TraceInfo,
};

use crate::cut::within;

/// Greatest number of stored gaps that began before the window and may extend into it.
const KEPT: usize = 64;

/// The gaps of a trace.
pub(crate) struct Gaps {
    window: Window,
    /// Which gaps are shown, by stream and processor.
    filter: Filter,
    /// Number of open gaps of each stream that has any.
    open: Vec<(StreamId, usize)>,
    /// Gaps before the window that have not ended.
    before: Vec<Event>,
    /// What was found and is not given out yet.
    found: VecDeque<Found>,
    /// How many [places](Found::Place) are among these.
    places: u64,
    /// Gaps that were given out before the replay came to them.
    ahead: u64,
    /// The time of the last event.
    last: Time,
    /// Number of gaps that may extend into the window and were dropped because `before` was full.
    pub left_out: u64,
}

/// A step that waits.
enum Found {
    Gap {
        event: Box<Event>,
        time: Time,
        lost: bool,
    },
    End(StreamId, Time),
    /// All that belongs to the event of one gap stands before this.
    Place,
}

/// A gap's effect on a timeline.
pub(crate) enum GapStep<'a> {
    /// A gap begins, or is an instant if nothing is lost in it.
    Gap {
        /// The event.
        event: &'a Event,
        /// Its gap.
        gap: &'a Gap,
        /// Beginning of the interval: the window may begin later than the gap.
        time: Time,
        /// Whether it has a length, because something is lost in it.
        lost: bool,
    },
    /// The latest gap of a stream ends.
    End(StreamId, Time),
}

impl Gaps {
    /// Creates the tracker for the gaps in a window that a filter selects.
    pub fn new(window: Window, filter: &Filter) -> Self {
        Self {
            window,
            filter: filter.clone(),
            open: Vec::new(),
            before: Vec::new(),
            found: VecDeque::new(),
            places: 0,
            ahead: 0,
            last: Time(0),
            left_out: 0,
        }
    }

    /// Finds gaps and the events that end them.
    pub fn take(&mut self, info: &TraceInfo, batch: &Batch) {
        // Most batches have no gap, and this runs for every event.
        let none = self.open.is_empty() && self.before.is_empty();
        if none && self.window.end == Time(i64::MAX) && !batch.has_events() {
            self.last = batch.rows().last().map_or(self.last, |row| row.time);
            return;
        }
        for row in batch.rows() {
            if row.time > self.window.end {
                // Gaps that are open then extend to the end of the window.
                self.last = self.window.end;
                break;
            }
            self.last = row.time;
            if row.kind != RowKind::Rare && self.open.is_empty() && self.before.is_empty() {
                continue;
            }
            let event = batch.event_of(row);
            match event.map(|event| (event, &event.kind)) {
                Some((event, EventKind::Gap(gap))) => {
                    self.gap(info, event, gap);
                    self.found.push_back(Found::Place);
                    self.places += 1;
                }
                _ => self.other(row.stream, row.time),
            }
        }
    }

    /// Gives out what was found up to the next gap, to which the replay has come.
    pub fn reached(&mut self, out: &mut impl FnMut(GapStep<'_>)) {
        match self.ahead.checked_sub(1) {
            Some(ahead) => self.ahead = ahead,
            None => {
                self.give(out);
            }
        }
    }

    /// Gives out, at the end of a batch, the gaps to which the replay has not come: the selection leaves out their events.
    pub fn settle(&mut self, out: &mut impl FnMut(GapStep<'_>)) {
        while self.places > 0 {
            self.ahead += u64::from(self.give(out));
        }
    }

    /// Gives out what was found up to the next gap; whether there was one.
    fn give(&mut self, out: &mut impl FnMut(GapStep<'_>)) -> bool {
        while let Some(found) = self.found.pop_front() {
            match found {
                Found::Place => {
                    self.places -= 1;
                    return true;
                }
                Found::End(stream, time) => out(GapStep::End(stream, time)),
                Found::Gap { event, time, lost } => {
                    if let EventKind::Gap(gap) = &event.kind {
                        out(GapStep::Gap {
                            event: &event,
                            gap,
                            time,
                            lost,
                        });
                    }
                }
            }
        }
        false
    }

    fn gap(&mut self, info: &TraceInfo, event: &Event, gap: &Gap) {
        let unknown = StreamInfo::default();
        let stream = info.stream(event.stream).unwrap_or(&unknown);
        if !self.filter.wants_stream(stream) || !self.filter.keeps_gap(None, event.cpu) {
            return;
        }
        let lost = gap.is_loss();
        if !within(self.window, event.time) {
            if lost && self.before.len() < KEPT {
                self.before.push(event.clone());
            } else {
                self.left_out += u64::from(lost);
            }
            return;
        }
        self.begin_window();
        self.found.push_back(Found::Gap {
            event: Box::new(event.clone()),
            time: event.time,
            lost,
        });
        if lost {
            self.count(event.stream);
        }
    }

    fn count(&mut self, stream: StreamId) {
        match self.open.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, count)) => *count += 1,
            None => self.open.push((stream, 1)),
        }
    }

    /// Ends the gaps of a stream at an event that is not a gap.
    fn other(&mut self, stream: StreamId, time: Time) {
        if time < self.window.begin {
            return self.before.retain(|gap| gap.stream != stream);
        }
        self.begin_window();
        if let Some(at) = self.open.iter().position(|(known, _)| *known == stream) {
            let (_, count) = self.open.swap_remove(at);
            for _ in 0..count {
                self.found.push_back(Found::End(stream, time));
            }
        }
    }

    /// Adds the gaps from before the window that extend into it.
    fn begin_window(&mut self) {
        for event in std::mem::take(&mut self.before) {
            self.count(event.stream);
            self.found.push_back(Found::Gap {
                event: Box::new(event),
                time: self.window.begin,
                lost: true,
            });
        }
    }

    /// Gives out the rest, and ends open gaps at the last event.
    pub fn finish(&mut self, out: &mut impl FnMut(GapStep<'_>)) {
        while self.give(out) {}
        self.open.sort_unstable();
        for (stream, count) in std::mem::take(&mut self.open) {
            for _ in 0..count {
                out(GapStep::End(stream, self.last));
            }
        }
    }
}
