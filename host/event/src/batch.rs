//! Events as a source hands them out: many at once, in rows of 40 bytes.
//!
//! A source that reads millions of events a second must not allocate for each, and an analysis that
//! only rebuilds calls must not pay for names and fields. So an event is a [`Row`] (time, kind, where
//! it happened, which function, one word of payload), and only what a row can't say stands beside it
//! as a whole [`Event`]. How much that is says [`Wanted`].

use std::ops::Range;

use crate::{
    Addr, Cpu, Duration, Event, EventKind, FunctionId, InterruptId, Numbers, StreamId, ThreadId,
    Time,
};

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

/// What an event means, as far as a [`Row`] says it. [`EventKind`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RowKind {
    /// [`EventKind::Enter`]: function, and the call site in the word.
    Enter,
    /// [`EventKind::Exit`]: function, if the source names it.
    Exit,
    /// [`EventKind::SwitchedIn`].
    SwitchedIn,
    /// [`EventKind::SwitchedOut`].
    SwitchedOut,
    /// [`EventKind::IsrEnter`]: interrupt.
    IsrEnter,
    /// [`EventKind::IsrExit`]: interrupt, if the source names it.
    IsrExit,
    /// [`EventKind::SetJmp`]: the environment in the word.
    SetJmp,
    /// [`EventKind::LongJmp`]: the environment in the word.
    LongJmp,
    /// [`EventKind::Time`].
    Time,
    /// [`EventKind::Other`]: of no meaning that is known here.
    Other,
    /// Any other [`EventKind`]: the [`Event`] beside the row tells.
    Rare,
}

/// Stands for something that is not known.
const NONE: u32 = u32::MAX;

/// One event of a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub time: Time,
    /// A call site, the environment of a jump, or of an exit one more than the nanoseconds of its call's self time, or of
    /// all of its time; 0 for none.
    word: u64,
    /// The function, or the interrupt.
    item: u32,
    thread: u32,
    cpu: u32,
    /// The stream it stands in.
    pub stream: StreamId,
    /// The place of its event among those of the batch.
    event: u32,
    /// What it means.
    pub kind: RowKind,
    /// [`Event::named`].
    pub named: bool,
    /// [`Event::record`].
    pub record: bool,
    /// Whether the word of an exit is the time of its whole call.
    is_whole: bool,
}

impl Row {
    /// An event of which nothing else is known. It is a record of the input.
    #[inline]
    pub const fn new(kind: RowKind, time: Time, stream: StreamId) -> Self {
        Self {
            time,
            word: 0,
            item: NONE,
            thread: NONE,
            cpu: NONE,
            stream,
            event: NONE,
            kind,
            named: false,
            record: true,
            is_whole: false,
        }
    }

    /// On this processor, in this thread.
    #[inline]
    #[must_use]
    pub fn at(mut self, cpu: Option<Cpu>, thread: Option<ThreadId>) -> Self {
        self.cpu = cpu.map_or(NONE, |cpu| cpu.0);
        self.thread = thread.map_or(NONE, |thread| thread.0);
        self
    }

    /// Of this function.
    #[inline]
    #[must_use]
    pub fn function(mut self, function: Option<FunctionId>) -> Self {
        self.item = function.map_or(NONE, |function| function.0);
        self
    }

    /// Of this interrupt.
    #[inline]
    #[must_use]
    pub fn interrupt(mut self, interrupt: Option<InterruptId>) -> Self {
        self.item = interrupt.map_or(NONE, |interrupt| interrupt.0);
        self
    }

    /// With this call site, or environment of a jump.
    #[inline]
    #[must_use]
    pub const fn word(mut self, word: Addr) -> Self {
        self.word = word.0;
        self
    }

    /// Of an exit: its call took so long, as the source states. That is by the wall where its entry is not in the trace.
    #[must_use]
    pub const fn took(mut self, wall: Duration) -> Self {
        self.word = wall.0.saturating_add(1);
        self.is_whole = true;
        self
    }

    /// The processor it happened on, if known.
    #[inline]
    pub const fn cpu(&self) -> Option<Cpu> {
        match self.cpu {
            NONE => None,
            cpu => Some(Cpu(cpu)),
        }
    }

    /// The thread, as [`Event::thread`].
    #[inline]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.thread {
            NONE => None,
            thread => Some(ThreadId(thread)),
        }
    }

    /// Processor and thread in one: two events with the same place have the same of both.
    #[inline]
    pub const fn place(&self) -> u64 {
        (self.cpu as u64) << 32 | self.thread as u64
    }

    /// The function of an enter or exit, if it is named.
    #[inline]
    pub const fn of_function(&self) -> Option<FunctionId> {
        match self.item {
            NONE => None,
            function => Some(FunctionId(function)),
        }
    }

    /// The interrupt that is entered or left, if it is named.
    #[inline]
    pub const fn of_interrupt(&self) -> Option<InterruptId> {
        match self.item {
            NONE => None,
            interrupt => Some(InterruptId(interrupt)),
        }
    }

    /// The call site of an enter, if the source records it.
    #[inline]
    pub const fn call_site(&self) -> Option<Addr> {
        match self.word {
            0 => None,
            word => Some(Addr(word)),
        }
    }

    /// Of an exit, the time that its call took less that of all calls that it made, where the source measured that: some of these
    /// may not be in the trace.
    #[inline]
    pub const fn self_time(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit, 1..) if !self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// Of an exit, the time that its call took, where the source states it and the times of entry and exit do not tell.
    #[inline]
    pub const fn wall(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit, 1..) if self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// Whether it is an exit that says no more than when its call ended.
    #[inline]
    pub const fn is_plain_exit(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, 0))
    }

    /// The environment of a jump.
    #[inline]
    pub const fn environment(&self) -> Addr {
        Addr(self.word)
    }

    /// The same in a table of several traces, where it has these numbers, and another time.
    #[inline]
    #[must_use]
    pub fn renumbered(mut self, numbers: &Numbers, time: Time) -> Self {
        self.time = time;
        self.stream = numbers.stream(self.stream);
        self.thread = match self.thread {
            NONE => NONE,
            thread => numbers.thread(ThreadId(thread)).0,
        };
        self.item = match (self.kind, self.item) {
            (_, NONE) => NONE,
            (RowKind::IsrEnter | RowKind::IsrExit, irq) => numbers.interrupt(InterruptId(irq)).0,
            (_, function) => numbers.function(FunctionId(function)).0,
        };
        self
    }

    /// Of an exit whose source states a duration: with that in another unit.
    #[must_use]
    pub fn rescaled(mut self, scale: impl Fn(Duration) -> Duration) -> Self {
        if self.kind == RowKind::Exit && self.word > 0 {
            self.word = scale(Duration(self.word - 1)).0.saturating_add(1);
        }
        self
    }

    /// Whether an event stands beside it.
    #[inline]
    pub const fn has_event(&self) -> bool {
        self.event != NONE
    }

    /// The kind of an event, where a row can say it.
    fn of_kind(event: &Event) -> Self {
        let row = |kind| Self::new(kind, event.time, event.stream);
        match &event.kind {
            EventKind::Enter {
                function,
                call_site,
            } => row(RowKind::Enter)
                .function(Some(*function))
                .word(call_site.unwrap_or_default()),
            EventKind::Exit { function } => row(RowKind::Exit).function(*function),
            EventKind::SwitchedIn => row(RowKind::SwitchedIn),
            EventKind::SwitchedOut => row(RowKind::SwitchedOut),
            EventKind::IsrEnter { irq } => row(RowKind::IsrEnter).interrupt(Some(*irq)),
            EventKind::IsrExit { irq } => row(RowKind::IsrExit).interrupt(*irq),
            EventKind::SetJmp { env } => row(RowKind::SetJmp).word(*env),
            EventKind::LongJmp { env } => row(RowKind::LongJmp).word(*env),
            EventKind::Time => row(RowKind::Time),
            EventKind::Other => row(RowKind::Other),
            _ => row(RowKind::Rare),
        }
    }

    /// What it means, as far as it says so; [`EventKind::Other`] where the event beside it does.
    fn meaning(&self) -> EventKind {
        match self.kind {
            RowKind::Enter => match self.of_function() {
                Some(function) => EventKind::Enter {
                    function,
                    call_site: self.call_site(),
                },
                None => EventKind::Other,
            },
            RowKind::Exit => EventKind::Exit {
                function: self.of_function(),
            },
            RowKind::SwitchedIn => EventKind::SwitchedIn,
            RowKind::SwitchedOut => EventKind::SwitchedOut,
            RowKind::IsrEnter => match self.of_interrupt() {
                Some(irq) => EventKind::IsrEnter { irq },
                None => EventKind::Other,
            },
            RowKind::IsrExit => EventKind::IsrExit {
                irq: self.of_interrupt(),
            },
            RowKind::SetJmp => EventKind::SetJmp {
                env: self.environment(),
            },
            RowKind::LongJmp => EventKind::LongJmp {
                env: self.environment(),
            },
            RowKind::Time => EventKind::Time,
            RowKind::Other | RowKind::Rare => EventKind::Other,
        }
    }
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

    /// Adds an exit whose source measured the [self time](Row::self_time) of the call.
    pub fn push_exit(&mut self, exit: Event, self_time: Duration) {
        self.push_event(exit);
        if let Some(row) = self.rows.last_mut() {
            row.word = self_time.0.saturating_add(1);
        }
    }

    /// Adds an event with what only its row says: the times of an exit.
    pub fn push_both(&mut self, row: &Row, event: Event) {
        self.push_event(event);
        if let Some(pushed) = self.rows.last_mut() {
            (pushed.word, pushed.is_whole) = (row.word, row.is_whole);
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
