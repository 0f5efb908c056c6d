//! Events as a source hands them out: many at once, in rows of 40 bytes.
//!
//! A source that reads millions of events a second must not allocate for each, and an analysis that
//! only rebuilds calls must not pay for names and fields. So an event is a [`Row`] (time, kind, where
//! it happened, which function, one word of payload), and only what a row can't say stands beside it
//! as a whole [`Event`]. How much that is says [`Wanted`].

mod row;

use std::ops::Range;

use crate::{Addr, Duration, Event, EventKind, FunctionId, Time};
use row::NONE;
pub use row::{Row, RowKind};

/// What a consumer needs to know of events. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// What they mean: enough for calls and times.
    #[default]
    Meaning,
    /// Names and fields of everything but calls, thread switches and interrupts.
    Details,
    /// Names and fields of all.
    Everything,
    /// The same in the order of the records, for lists of these. Some sources know better when something happened than
    /// the places of its records say, and give the others that order: a kernel writes the record of a call after the call
    /// began, and that of a thread switch before the thread leaves.
    Records,
}

/// A run of events in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    /// Where [runs](Run) of calls are.
    runs: Vec<(u32, u32)>,
    events: Vec<Event>,
    /// Events of batches before: their texts and lists can be used again.
    spare: Vec<Event>,
}

/// Spare events that are kept.
const SPARE: usize = 256;

impl Batch {
    /// A source ends a batch after so many events (a few more are no harm).
    pub const ROWS: usize = 4096;

    /// Adds an event that its row says all of.
    #[inline]
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Begins a run of calls, all with the stream, processor and thread of `place`.
    #[inline]
    pub fn run(&mut self, place: &Row) -> Run<'_> {
        Run {
            from: self.rows.len(),
            place: *place,
            batch: self,
        }
    }

    /// Where runs of calls are, in order. Sources need not tell of any.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs
            .iter()
            .map(|(from, to)| *from as usize..*to as usize)
    }

    /// Adds an event with all that is known of it.
    pub fn push_event(&mut self, event: Event) {
        let mut row = Row::of_kind(&event).at(event.cpu, event.thread);
        row.named = event.named;
        row.record = event.record;
        row.event = u32::try_from(self.events.len()).unwrap_or(NONE);
        self.rows.push(row);
        self.events.push(event);
    }

    /// Adds an exit, or a missing one, whose source measured the [self time](Row::self_time) of the call.
    pub fn push_exit(&mut self, exit: Event, self_time: Duration) {
        self.push_event(exit);
        if let Some(row) = self.rows.last_mut() {
            row.word = self_time.0.saturating_add(1);
        }
    }

    /// Adds an event with what only its row says: the times of an exit, that the call of an enter was found open, and the
    /// function that runs.
    pub fn push_both(&mut self, row: &Row, event: Event) {
        self.push_event(event);
        if let Some(pushed) = self.rows.last_mut() {
            (pushed.word, pushed.is_whole) = (row.word, row.is_whole);
            if row.kind == RowKind::Other {
                pushed.item = row.item;
            }
        }
    }

    /// Adds an event of another batch.
    pub fn push_ref(&mut self, event: EventRef<'_>) {
        match event.event {
            Some(whole) => self.push_both(event.row, whole.clone()),
            None => self.push(*event.row),
        }
    }

    /// Whether it is time to hand it out.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= Self::ROWS
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Its rows.
    #[inline]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The event beside a row of this batch, if there is one.
    #[inline]
    pub fn event_of(&self, row: &Row) -> Option<&Event> {
        self.events.get(row.event as usize)
    }

    /// How many of its events are [records](Event::record) of the input.
    pub fn records(&self) -> u64 {
        let (mut records, mut at) = (0, 0);
        let single = |from, to| {
            let rows = self.rows.get(from..to).unwrap_or(&[]);
            rows.iter().filter(|row| row.record).count()
        };
        for run in self.runs() {
            records += single(at, run.start) + run.len();
            at = run.end;
        }
        (records + single(at, self.rows.len())) as u64
    }

    /// Whether events stand beside rows: if none do, rows say all, and none is [rare](RowKind::Rare).
    pub const fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events beside rows, for adding to their fields and labels. What a row says too (time, place,
    /// meaning) is to stay as it is.
    pub fn events_mut(&mut self) -> &mut [Event] {
        &mut self.events
    }

    /// An event by its place.
    pub fn get(&self, index: usize) -> Option<EventRef<'_>> {
        let row = self.rows.get(index)?;
        Some(EventRef {
            row,
            event: self.event_of(row),
        })
    }

    /// Its events.
    pub fn iter(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.rows.iter().map(|row| EventRef {
            row,
            event: self.event_of(row),
        })
    }

    /// Empties it, for the next events.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.runs.clear();
        let room = SPARE.saturating_sub(self.spare.len());
        self.spare.extend(self.events.drain(..).take(room));
        self.events.clear();
    }

    /// An event that is not needed any more, if there is one: a source can take its texts and lists
    /// for others.
    pub fn spare(&mut self) -> Option<Event> {
        self.spare.pop()
    }
}

/// A run of calls that is being added to a [`Batch`]: entries and exits of one stream, processor and thread, with no
/// events beside them and in the order of time, so that who takes them has to look at that only once.
#[derive(Debug)]
pub struct Run<'a> {
    batch: &'a mut Batch,
    from: usize,
    place: Row,
}

impl Run<'_> {
    /// Adds an entry, which is not before the call added last.
    #[inline(always)]
    pub fn enter(&mut self, function: FunctionId, time: Time) {
        self.push(RowKind::Enter, function.0, 0, time);
    }

    /// The same with its call site, where the source records it; else 0.
    #[inline(always)]
    pub fn enter_from(&mut self, function: FunctionId, call_site: Addr, time: Time) {
        self.push(RowKind::Enter, function.0, call_site.0, time);
    }

    /// Adds an exit that does not name its function, not before the call added last.
    #[inline(always)]
    pub fn exit(&mut self, time: Time) {
        self.exit_of(None, time);
    }

    /// Adds an exit of a function, if it is named, not before the call added last.
    #[inline(always)]
    pub fn exit_of(&mut self, function: Option<FunctionId>, time: Time) {
        let item = function.map_or(NONE, |function| function.0);
        self.push(RowKind::Exit, item, 0, time);
    }

    #[inline(always)]
    fn push(&mut self, kind: RowKind, item: u32, word: u64, time: Time) {
        self.batch.rows.push(Row {
            word,
            item,
            cpu: self.place.cpu,
            thread: self.place.thread,
            ..Row::new(kind, time, self.place.stream)
        });
    }

    /// Ends it.
    #[inline]
    pub fn end(self) {
        let (from, to) = (self.from, self.batch.rows.len());
        // There is no batch of so many rows.
        if let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(to))
            && from < to
        {
            self.batch.runs.push((from, to));
        }
    }
}

impl FromIterator<Event> for Batch {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut batch = Self::default();
        for event in events {
            batch.push_event(event);
        }
        batch
    }
}

/// One event of a batch: its row, and all that is known of it where that was wanted.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// The row.
    pub row: &'a Row,
    /// The event beside it.
    pub event: Option<&'a Event>,
}

impl EventRef<'_> {
    /// What it means. Not cheap: for the straight path there is [`Row::kind`].
    pub fn kind(&self) -> EventKind {
        self.event
            .map_or_else(|| self.row.meaning(), |event| event.kind.clone())
    }

    /// The event as a whole; without a name and fields, if they were not [wanted](Wanted).
    pub fn to_event(&self) -> Event {
        match self.event {
            Some(event) => event.clone(),
            None => Event {
                time: self.row.time,
                stream: self.row.stream,
                cpu: self.row.cpu(),
                thread: self.row.thread(),
                kind: self.row.meaning(),
                named: self.row.named,
                record: self.row.record,
                stamp: None,
                name: "".into(),
                fields: Vec::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, StreamId, ThreadId};

    #[test]
    fn a_row_is_small_and_says_what_its_event_says() {
        assert_eq!(size_of::<Row>(), 40);
        let event = Event {
            time: Time(5),
            stream: StreamId(1),
            cpu: Some(Cpu(2)),
            thread: Some(ThreadId(3)),
            kind: EventKind::Enter {
                function: FunctionId(4),
                call_site: Some(Addr(6)),
            },
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        };
        let mut batch = Batch::default();
        batch.push_event(event.clone());
        batch.push(*batch.get(0).unwrap().row);
        let mut alone = batch.rows()[0];
        alone.event = NONE;
        batch.push(alone);
        for seen in batch.iter() {
            assert_eq!(seen.to_event(), event);
        }
    }
}
