//! Batches of events, in rows of 40 bytes.
//!
//! A source that reads millions of events a second must not allocate for each, and an analysis that only reconstructs
//! calls must not pay for names and fields. So an event is a [`Row`] (time, kind, stream, CPU, thread, function, one
//! word of payload), accompanied by a whole [`Event`] only where a row is not enough. [`Wanted`] selects how much that
//! is.

mod row;

use std::ops::Range;

use crate::{Addr, Duration, Event, EventKind, FunctionId, Time};
use row::NONE;
pub use row::{Row, RowKind};

/// Level of detail that a consumer needs. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// The meaning of events: enough for calls and times.
    #[default]
    Meaning,
    /// Also names and fields of all events except calls, thread switches and interrupts.
    Details,
    /// Names and fields of all events.
    Everything,
    /// As `Everything`, but in the order of the records, for lists of records. Some sources know the time of an event
    /// better than the position of its record tells, and order events by it at the other levels: a kernel writes the
    /// record of a call after the call began, and that of a thread switch before the thread is descheduled.
    Records,
}

/// A batch of events ordered by time.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    /// Ranges of rows that are [runs](Run) of calls.
    runs: Vec<(u32, u32)>,
    events: Vec<Event>,
    /// Events of earlier batches, whose strings and vectors can be reused.
    spare: Vec<Event>,
}

/// Maximum number of spare events.
const SPARE: usize = 256;

impl Batch {
    /// Number of rows after which a source ends a batch (a few more do no harm).
    pub const ROWS: usize = 4096;

    /// Adds an event that its row represents completely.
    #[inline]
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Begins a run of calls that all have the stream, CPU and thread of `place`.
    #[inline]
    pub fn run(&mut self, place: &Row) -> Run<'_> {
        Run {
            from: self.rows.len(),
            place: *place,
            batch: self,
        }
    }

    /// The row ranges of runs of calls, in order. Sources need not mark runs.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs
            .iter()
            .map(|(from, to)| *from as usize..*to as usize)
    }

    /// Adds a whole event.
    pub fn push_event(&mut self, event: Event) {
        let mut row = Row::of_kind(&event).at(event.cpu, event.thread);
        row.named = event.named;
        row.record = event.record;
        row.event = u32::try_from(self.events.len()).unwrap_or(NONE);
        self.rows.push(row);
        self.events.push(event);
    }

    /// Adds an exit or a missing exit, with the [self time](Row::self_time) of the call that the source measured.
    pub fn push_exit(&mut self, exit: Event, self_time: Duration) {
        self.push_event(exit);
        if let Some(row) = self.rows.last_mut() {
            row.word = self_time.0.saturating_add(1);
        }
    }

    /// Adds an event with the facts that only its row has: the stated duration or self time of an exit, that the call
    /// of an entry was found open, and the running function of a row of kind `Other`.
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

    /// Whether it has enough events to be handed to the consumer.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= Self::ROWS
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Its rows.
    #[inline]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The event beside a row of this batch, if it has one.
    #[inline]
    pub fn event_of(&self, row: &Row) -> Option<&Event> {
        self.events.get(row.event as usize)
    }

    /// The number of its events that are [records](Event::record) of the input.
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

    /// Whether any row has an event beside it. If none has, the rows are complete, and none is [rare](RowKind::Rare).
    pub const fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events beside rows, for adding fields and labels. Callers must not change what a row also holds (time, CPU,
    /// thread, meaning).
    pub fn events_mut(&mut self) -> &mut [Event] {
        &mut self.events
    }

    /// The event with this index.
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

    /// Removes all events, so that it can be filled again.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.runs.clear();
        let room = SPARE.saturating_sub(self.spare.len());
        self.spare.extend(self.events.drain(..).take(room));
        self.events.clear();
    }

    /// Takes an unused event, if there is one, so that a source can reuse its strings and vectors.
    pub fn spare(&mut self) -> Option<Event> {
        self.spare.pop()
    }
}

/// Run of calls under construction in a [`Batch`]: entries and exits of one stream, CPU and thread, ordered by time and
/// without events beside them. Consumers check these properties only once per run.
#[derive(Debug)]
pub struct Run<'a> {
    batch: &'a mut Batch,
    from: usize,
    place: Row,
}

impl Run<'_> {
    /// Adds an entry. `time` must not be earlier than that of the previous call.
    #[inline(always)]
    pub fn enter(&mut self, function: FunctionId, time: Time) {
        self.push(RowKind::Enter, function.0, 0, time);
    }

    /// Adds an entry with its call site; 0 if the source does not record it.
    #[inline(always)]
    pub fn enter_from(&mut self, function: FunctionId, call_site: Addr, time: Time) {
        self.push(RowKind::Enter, function.0, call_site.0, time);
    }

    /// Adds an exit that does not name its function. `time` must not be earlier than that of the previous call.
    #[inline(always)]
    pub fn exit(&mut self, time: Time) {
        self.exit_of(None, time);
    }

    /// Adds an exit, with its function if the source names it. `time` must not be earlier than that of the previous
    /// call.
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

    /// Ends the run.
    #[inline]
    pub fn end(self) {
        let (from, to) = (self.from, self.batch.rows.len());
        // No batch has that many rows.
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

/// One event of a batch: its row, and the whole event if it exists.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// The row.
    pub row: &'a Row,
    /// The event beside it.
    pub event: Option<&'a Event>,
}

impl EventRef<'_> {
    /// Its meaning. Slower than [`Row::kind`], which fast paths should use.
    pub fn kind(&self) -> EventKind {
        self.event
            .map_or_else(|| self.row.meaning(), |event| event.kind.clone())
    }

    /// Converts to a whole event; name and fields are empty if they were not [wanted](Wanted).
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
