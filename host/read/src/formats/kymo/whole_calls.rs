//! Splits calls that are one record each into entries and exits.
//!
//! In duration mode a target records a call at its end, so a caller's record follows those of its callees. This source
//! moves the entry of each call to its beginning. For that it buffers up to [`WAITING`] events. A longer recording is
//! read [twice](early), to find calls that began before the events already output. In a recording that is read as it
//! arrives, such a call stays one event ([`EventKind::Call`]): it counts once, with the times of its record. A remark
//! states the number of these calls.
//!
//! Without records of thread switches, each thread then has its own stream: a call's duration is that of its record,
//! whatever other threads did meanwhile. Which thread other events belong to is unknown then: a packet names only the
//! thread that ran when it was begun.
//!
//! A call that was open when the recording was read has only an entry. Each readout reports it again, and its own
//! record follows when it has ended; only the first of these reports makes an entry. A call whose entry would come too
//! late is one event: that of its own record or, without one, that of the last readout.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use kymo_event::{
    Batch, CallEnd, Duration, Event, EventKind, EventRef, FunctionId, Gap, Row, RowKind, StreamId,
    StreamInfo, ThreadId, Time, TraceInfo, Wanted, WholeCall,
};

use crate::{ReadError, Source};
use contexts::Contexts;
use early::Early;
use key::Key;
use recursion::LastBegun;

mod contexts;
mod early;
mod key;
mod recursion;

/// Maximum number of buffered events.
pub(super) const WAITING: usize = 1 << 19;

/// Maximum number of open calls that are remembered. Others have no entries before their records.
pub(super) const OPEN: usize = 1 << 16;

/// Maximum number of threads whose last calls are remembered.
const THREADS: usize = 1 << 12;

/// A buffered output.
#[derive(Debug)]
enum Item {
    /// An event that is not a call.
    Row(Row),
    Event(Box<Event>),
    /// The entry of a call.
    Enter(Row),
    /// The event of a call's record itself, with its name and fields.
    OfCall(Box<Event>),
    /// An exit, or a missing one, with the self time from its record.
    Exit(Box<Event>, Duration),
    /// A call that began before the output so far; and whether it contains calls of the same function.
    Late(Box<Event>, bool),
}

/// A call stack, whose calls nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Track {
    Thread(ThreadId),
    /// The stream, if its calls name no thread.
    Stream(StreamId),
}

impl Track {
    fn of(event: &Event) -> Self {
        match event.thread {
            Some(thread) => Self::Thread(thread),
            None => Self::Stream(event.stream),
        }
    }
}

/// A completed call that may be a callee of a later record's call.
#[derive(Clone, Copy, Debug)]
struct Inner {
    begin: Time,
    end: Time,
}

/// An open call that a readout has reported.
#[derive(Debug)]
struct OpenCall {
    begin: Time,
    /// The time of the last readout that reported it: records of one readout are of different calls.
    reported: Time,
    /// The last such record, if the entry would have come too late.
    late: Option<Box<Event>>,
}

/// State of a call in the reports of earlier readouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It has not been reported.
    No,
    /// It has an entry.
    Entered,
    /// Its entry would have come too late.
    Late,
    /// It is open, but [`OPEN`] is exceeded.
    Excess,
}

/// Source that splits the calls of another source.
#[derive(Debug)]
pub(super) struct WholeCalls<S> {
    source: S,
    /// A second source of the same events, for the first of two passes.
    before: Option<S>,
    read: Batch,
    is_over: bool,
    /// The error that ended the source early.
    failure: Option<ReadError>,
    calls: Splitter,
}

/// Splits calls, and sorts entries and exits.
#[derive(Debug)]
pub(super) struct Splitter {
    /// Whether names and fields of calls' records are wanted.
    fields: bool,
    waiting: BinaryHeap<Reverse<(Key, usize)>>,
    items: Vec<Option<Item>>,
    free: Vec<usize>,
    number: i64,
    /// The time of the latest output.
    given: Time,
    cut: u64,
    inner: HashMap<Track, Vec<Inner>>,
    /// The streams of threads, by the recorded stream and the thread.
    streams: HashMap<(StreamId, ThreadId), StreamId>,
    /// Whether the trace itself records thread switches.
    has_switches: bool,
    /// Open calls that readouts have reported, the outermost first.
    open: HashMap<(Track, FunctionId), Vec<OpenCall>>,
    /// Total number of calls in `open`.
    open_calls: usize,
    /// Records of open calls that were not remembered.
    excess: u64,
    begun: LastBegun,
    /// Number of call records so far.
    records: u64,
    early: Early,
    contexts: Contexts,
}

impl<S: Source> WholeCalls<S> {
    pub(super) fn new(source: S, wanted: Wanted) -> Self {
        Self {
            source,
            before: None,
            read: Batch::default(),
            is_over: false,
            failure: None,
            calls: Splitter::new(wanted),
        }
    }

    /// Adds a first pass over `before`, another source of the same events, for recordings that may exceed the buffer.
    pub(super) fn read_before(self, before: S) -> Self {
        Self {
            before: Some(before),
            ..self
        }
    }

    /// Runs the first pass: finds the calls whose entries must be output before their records are read.
    fn find_early(&mut self, mut before: S) {
        // Both passes use the same identities.
        let identities = &mut self.source.info_mut().identities;
        before.info_mut().identities = identities.clone();
        let mut calls = Splitter::new(Wanted::Meaning);
        calls.early = Early::Finding(Vec::new());
        // If the first pass fails, the second one fails too, and reports it.
        while let Ok(true) = before.fill(&mut self.read) {
            for event in self.read.iter() {
                calls.take(event);
                while calls.waiting.len() > WAITING {
                    let _ = calls.pop();
                }
            }
        }
        std::mem::swap(
            &mut self.source.info_mut().identities,
            &mut before.info_mut().identities,
        );
        self.calls.early = calls.early.found();
    }
}

impl Splitter {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            fields: wanted >= Wanted::Everything,
            waiting: BinaryHeap::new(),
            items: Vec::new(),
            free: Vec::new(),
            number: 0,
            given: Time(i64::MIN),
            cut: 0,
            inner: HashMap::new(),
            streams: HashMap::new(),
            has_switches: false,
            open: HashMap::new(),
            open_calls: 0,
            excess: 0,
            begun: LastBegun::default(),
            records: 0,
            early: Early::default(),
            contexts: Contexts::default(),
        }
    }

    fn add(&mut self, key: Key, item: Item) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        if let Some(slot) = self.items.get_mut(place) {
            *slot = Some(item);
        }
        self.waiting.push(Reverse((key, place)));
    }

    /// Adds an event.
    pub(super) fn take(&mut self, event: EventRef<'_>) {
        let call = match event.event.map(|event| (&event.kind, event)) {
            Some((EventKind::Call(call), event)) => Some((*call, event)),
            _ => None,
        };
        self.number += 1;
        match call {
            Some((call, event)) => self.take_call(call, event),
            None => {
                let kind = event.row.kind;
                self.has_switches |= matches!(kind, RowKind::SwitchedIn | RowKind::SwitchedOut);
                let item = match event.event {
                    Some(event) => Item::Event(Box::new(event.clone())),
                    None => Item::Row(*event.row),
                };
                self.contexts.follow(event, self.number, self.given);
                self.add(Key::of_record(event.row.time, self.number), item);
            }
        }
    }

    /// Splits a call.
    fn take_call(&mut self, call: WholeCall, event: &Event) {
        let number = self.number;
        let end = event.time;
        let began = Time(end.0.saturating_sub_unsigned(call.duration.0));
        let is_open = call.end == CallEnd::Open;
        let track = Track::of(event);
        let known = self.known(track, call, (began, end));
        let (begin, is_recursive) = match is_open {
            true => (began, true),
            false => (
                self.nest(track, began, end),
                self.begun.add(track, call.function, began),
            ),
        };
        let place = match begin == end && !is_open {
            // Between the calls that ended before and after it.
            true => (end, number),
            false => self.contexts.place(begin, event, is_open),
        };
        // A readout reports the outermost call first, and the innermost call returns first.
        let order = if is_open { number } else { -number };
        let key = Key::of_entry(place, end, order);
        let mut enter = Row::new(RowKind::Enter, place.0, event.stream)
            .at(event.cpu, event.thread)
            .function(Some(call.function));
        enter.record = false;
        let is_late = known == Known::No && place.0 < self.given;
        let is_early = self.early.take(self.records, is_late, key, enter);
        self.records += 1;
        let is_cut = is_late && !is_early;
        self.cut += u64::from(is_cut);
        if is_open {
            if is_cut || known == Known::Late {
                self.remember_late(track, call.function, began, event);
            }
        } else if is_cut || known == Known::Late {
            let late = Item::Late(Box::new(event.clone()), is_recursive);
            return self.add(Key::of_record(end, number), late);
        }
        let mut rest = Event {
            kind: EventKind::Other,
            ..event.clone()
        };
        if call.end == CallEnd::Returned && !self.fields {
            rest.name = "".into();
            rest.fields.clear();
        }
        if known == Known::No && !is_early && !is_cut {
            self.add(key, Item::Enter(enter));
        }
        match call.end {
            CallEnd::Returned => {
                let exit = Event {
                    kind: EventKind::Exit {
                        function: Some(call.function),
                    },
                    named: true,
                    ..rest
                };
                let exit = Item::Exit(Box::new(exit), call.self_time);
                self.add(Key::of_record(end, number), exit);
            }
            CallEnd::Open => {
                self.add(Key::of_record(end, number), Item::OfCall(Box::new(rest)));
            }
            CallEnd::Lost => {
                let ago = Duration(end.0.saturating_sub(enter.time.0).unsigned_abs());
                let gap = Gap::MissingExit { ago };
                let gap = Event {
                    kind: EventKind::Gap(gap),
                    ..rest
                };
                let exit = Item::Exit(Box::new(gap), call.self_time);
                self.add(Key::of_record(end, number), exit);
            }
        }
    }

    /// The output stream of a thread's calls. At this time `has_switches` is known from the records read so far.
    fn stream(&mut self, info: &mut TraceInfo, of: StreamId, thread: Option<ThreadId>) -> StreamId {
        let Some(thread) = thread.filter(|_| !self.has_switches) else {
            return of;
        };
        if let Some(known) = self.streams.get(&(of, thread)) {
            return *known;
        }
        let next = u32::try_from(info.streams.len()).ok();
        let (Some(next), Some(known)) = (next, info.stream(of)) else {
            return of;
        };
        if known.thread.is_some() || self.streams.len() >= THREADS {
            return of;
        }
        let name = match info.identities.thread_name(thread) {
            Some(name) => format!("{}/{name}", known.name),
            None => format!("{}/{}", known.name, info.identities.tid(thread)),
        };
        let (space, cpu) = (known.space, known.cpu);
        info.streams.push(StreamInfo {
            name,
            space,
            cpu,
            thread: Some(thread),
            ..StreamInfo::default()
        });
        self.streams.insert((of, thread), StreamId(next));
        StreamId(next)
    }

    /// Whether it is unknown which thread a stream's events belong to, except calls.
    fn hides_thread(&self, info: &TraceInfo, stream: StreamId) -> bool {
        !self.has_switches
            && self.records > 0
            && info.stream(stream).is_some_and(|of| of.thread.is_none())
    }

    /// Looks up the call in earlier readouts; an open call is remembered.
    fn known(&mut self, track: Track, call: WholeCall, (begin, end): (Time, Time)) -> Known {
        let is_open = call.end == CallEnd::Open;
        // Times converted from ticks may be off by 1 ns, and recursive calls may begin within 1 ns.
        let is_it = |other: &OpenCall| {
            other.begin.0.abs_diff(begin.0) <= 1 && !(is_open && other.reported == end)
        };
        let how = |call: &OpenCall| match call.late {
            Some(_) => Known::Late,
            None => Known::Entered,
        };
        let place = (track, call.function);
        // A readout reports the outermost call first, and the innermost call returns first.
        if let Some(known) = self.open.get_mut(&place) {
            let found = match is_open {
                true => known.iter().position(is_it),
                false => known.iter().rposition(is_it),
            };
            if let Some(index) = found {
                if is_open && let Some(call) = known.get_mut(index) {
                    call.reported = end;
                    return how(call);
                }
                let call = known.remove(index);
                self.open_calls -= 1;
                if known.is_empty() {
                    self.open.remove(&place);
                }
                return how(&call);
            }
        }
        if !is_open {
            return Known::No;
        }
        if self.open_calls >= OPEN {
            self.excess += 1;
            return Known::Excess;
        }
        self.open_calls += 1;
        self.open.entry(place).or_default().push(OpenCall {
            begin,
            reported: end,
            late: None,
        });
        Known::No
    }

    /// Remembers the record of an open call whose entry would come too late.
    fn remember_late(&mut self, track: Track, function: FunctionId, begin: Time, event: &Event) {
        let known = self.open.get_mut(&(track, function));
        let mut calls = known.into_iter().flatten().rev();
        let is_it = |call: &&mut OpenCall| call.begin.0.abs_diff(begin.0) <= 1;
        if let Some(call) = calls.find(|call| is_it(call) && call.reported == event.time) {
            call.late = Some(Box::new(event.clone()));
        }
    }

    /// Handles the end of all records: outputs the last readout's report of each open call that has neither an entry
    /// nor its own record.
    pub(super) fn end(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.open_calls = 0;
        let calls = open.into_values().flatten();
        let mut late: Vec<Box<Event>> = calls.filter_map(|call| call.late).collect();
        late.sort_by_key(|event| (event.time, event.stream, event.thread));
        for event in late {
            self.number += 1;
            let key = Key::of_record(event.time, self.number);
            self.add(key, Item::Late(event, true));
        }
    }

    /// The beginning of a call, moved to those of its callees if it is later: times converted from ticks may be 1 ns
    /// too late.
    fn nest(&mut self, track: Track, begin: Time, end: Time) -> Time {
        if self.inner.len() >= THREADS {
            self.inner.clear();
        }
        let inner = self.inner.entry(track).or_default();
        let mut first = begin;
        while let Some(last) = inner.last()
            && last.begin.0.saturating_add(1) >= begin.0
        {
            first = first.min(last.begin);
            inner.pop();
        }
        if let Some(before) = inner.last() {
            first = first.max(before.end.min(begin));
        }
        if inner.len() >= WAITING {
            inner.clear();
        }
        inner.push(Inner { begin: first, end });
        first
    }

    /// The time of the next output; `None` if nothing is buffered.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.waiting.peek().map(|Reverse((key, _))| key.time)
    }

    /// Removes the earliest waiting item.
    fn pop(&mut self) -> Option<Item> {
        let Reverse((key, place)) = self.waiting.pop()?;
        self.free.push(place);
        self.given = self.given.max(key.time);
        self.items.get_mut(place)?.take()
    }

    /// Outputs the next item.
    pub(super) fn give(&mut self, info: &mut TraceInfo, batch: &mut Batch) {
        let Some(Reverse((next, _))) = self.waiting.peek() else {
            return;
        };
        if let Some(mut row) = self.early.next(*next) {
            row.stream = self.stream(info, row.stream, row.thread());
            return batch.push(row);
        }
        match self.pop() {
            Some(Item::Row(mut row)) => {
                if !row.kind.is_of_call() && self.hides_thread(info, row.stream) {
                    row = row.at(row.cpu(), None);
                }
                batch.push(row);
            }
            Some(Item::Event(mut event)) => {
                if self.hides_thread(info, event.stream) {
                    event.thread = None;
                }
                batch.push_event(*event);
            }
            Some(Item::Enter(mut row)) => {
                row.stream = self.stream(info, row.stream, row.thread());
                batch.push(row);
            }
            Some(Item::OfCall(mut event)) => {
                event.stream = self.stream(info, event.stream, event.thread);
                if self.has_switches {
                    // The reader recorded it, whichever thread ran then.
                    event.thread = info.stream(event.stream).and_then(|of| of.thread);
                }
                batch.push_event(*event);
            }
            Some(Item::Exit(mut event, own)) => {
                event.stream = self.stream(info, event.stream, event.thread);
                batch.push_exit(*event, own);
            }
            Some(Item::Late(mut event, is_recursive)) => {
                event.stream = self.stream(info, event.stream, event.thread);
                let row = Row::new(RowKind::Rare, event.time, event.stream);
                batch.push_both(&row.recursive(is_recursive), *event);
            }
            None => {}
        }
    }

    /// Adds a remark on the calls that stayed one event since the last remark.
    pub(super) fn remark(&mut self, info: &mut TraceInfo) {
        if self.cut > 0 {
            let remark = format!(
                "{} calls began too long before their ends to be put in order: each is one event at its end, with the \
                 times of its record, and no caller of those within it",
                self.cut
            );
            info.remarks.push(remark);
            self.cut = 0;
        }
        if self.excess > 0 {
            info.remarks.push(format!(
                "more than {OPEN} calls were open at once: {} records of others, made while they were open, are events alone",
                self.excess
            ));
            self.excess = 0;
        }
    }
}

impl<S: Source> Source for WholeCalls<S> {
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        if let Some(before) = self.before.take() {
            self.find_early(before);
        }
        batch.clear();
        while batch.is_empty() {
            while !self.is_over && self.calls.waiting.len() <= WAITING {
                match self.source.fill(&mut self.read) {
                    Ok(true) => self.read.iter().for_each(|event| self.calls.take(event)),
                    Ok(false) => self.is_over = true,
                    Err(error) => {
                        self.is_over = true;
                        self.failure = Some(error);
                    }
                }
                if self.is_over {
                    self.calls.end();
                }
            }
            let most = if self.is_over { 0 } else { WAITING };
            while self.calls.waiting.len() > most && !batch.is_full() {
                self.calls.give(self.source.info_mut(), batch);
            }
            if self.is_over && self.calls.waiting.is_empty() {
                self.calls.remark(self.source.info_mut());
                return self.failure.take().map_or(Ok(!batch.is_empty()), Err);
            }
        }
        Ok(true)
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }
}

#[cfg(test)]
mod tests;
