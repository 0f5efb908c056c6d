//! Output of dialects: rows of a batch. Whole events are created only for meanings that a row cannot represent, or if
//! names and fields are wanted.

use kymo_event::{
    Addr, Batch, Cpu, Duration, Event, EventKind, EventRef, Field, FunctionId, Gap, Identities,
    InterruptId, InterruptKind, Irq, Row, RowKind, SpaceId, StreamId, ThreadId, Tid, Time, Wanted,
};

use crate::fields::{self, Pool};
use crate::reused::Threads;

/// Direct-mapped cache in front of [`Identities`], whose tables need a hash and a comparison of keys.
#[derive(Debug)]
struct Cache<Id> {
    /// Key, space and identity.
    entries: Box<[(u64, SpaceId, Id)]>,
    /// Entry of the last lookup.
    last: (u64, SpaceId, Id),
}

/// Number of entries of a [`Cache`]: 16 bytes each, 32 KiB.
const ENTRIES: u32 = 2048;

/// Space of an empty entry. No trace has so many spaces.
const NO_SPACE: SpaceId = SpaceId(u32::MAX);

impl<Id: Copy> Cache<Id> {
    fn new(none: Id) -> Self {
        Self {
            entries: vec![(0, NO_SPACE, none); ENTRIES as usize].into(),
            last: (0, NO_SPACE, none),
        }
    }

    /// Like [`get`](Self::get), for keys that are mostly the same as in the last call.
    #[inline(always)]
    fn get_again(
        &mut self,
        space: SpaceId,
        key: u64,
        intern: impl FnOnce() -> Option<Id>,
    ) -> Option<Id> {
        if (self.last.0, self.last.1) != (key, space) {
            self.last = (key, space, self.get(space, key, intern)?);
        }
        Some(self.last.2)
    }

    /// Replaces the identity of a key.
    fn set(&mut self, space: SpaceId, key: u64, id: Id) {
        self.last = (key, space, id);
        if let Some(entry) = self.entries.get_mut(Self::place(space, key)) {
            *entry = self.last;
        }
    }

    /// Returns the slot of a key.
    #[inline(always)]
    const fn place(space: SpaceId, key: u64) -> usize {
        /// Odd number near 2^64 divided by the golden ratio (Fibonacci hashing).
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let hash = (key ^ (space.0 as u64) << 48).wrapping_mul(SPREAD);
        (hash >> (u64::BITS - ENTRIES.ilog2())) as usize
    }

    /// Returns the identity of a key. Calls `intern` if it is not in the cache.
    #[inline(always)]
    fn get(&mut self, space: SpaceId, key: u64, intern: impl FnOnce() -> Option<Id>) -> Option<Id> {
        let entry = self.entries.get_mut(Self::place(space, key))?;
        if (entry.0, entry.1) != (key, space) {
            *entry = (key, space, intern()?);
        }
        Some(entry.2)
    }
}

/// Caches of recent identities.
#[derive(Debug)]
pub(crate) struct Caches {
    functions: Cache<FunctionId>,
    threads: Cache<ThreadId>,
    /// Threads that have run or ended.
    pub(crate) reused: Threads,
    interrupts: Cache<InterruptId>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            functions: Cache::new(FunctionId(0)),
            threads: Cache::new(ThreadId(0)),
            reused: Threads::default(),
            interrupts: Cache::new(InterruptId(0)),
        }
    }
}

impl Caches {
    /// Returns the cached functions of a space.
    pub(crate) fn known_functions(&self, space: SpaceId) -> KnownFunctions<'_> {
        let entries = self.functions.entries.first_chunk();
        KnownFunctions { entries, space }
    }
}

/// Cached functions of a space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownFunctions<'c> {
    entries: Option<&'c [(u64, SpaceId, FunctionId); ENTRIES as usize]>,
    space: SpaceId,
}

impl KnownFunctions<'_> {
    /// Returns the function of a number, if it is cached.
    #[inline(always)]
    pub(crate) fn find(&self, number: u64) -> Option<FunctionId> {
        let place = Cache::<FunctionId>::place(self.space, number);
        let entry = self.entries?.get(place)?;
        ((entry.0, entry.1) == (number, self.space)).then_some(entry.2)
    }
}

/// Times of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Time 0, in nanoseconds of the trace's clock.
    pub(crate) origin: i64,
    /// Time of the last event.
    pub(crate) last: Option<Time>,
    /// Earliest and latest time.
    pub(crate) start: Option<Time>,
    pub(crate) end: Option<Time>,
}

/// Receiver of records' meanings.
pub(crate) struct Sink<'a> {
    pub(crate) identities: &'a mut Identities,
    pub(crate) caches: &'a mut Caches,
    pub(crate) batch: &'a mut Batch,
    /// Parts of earlier events, for reuse.
    pub(crate) pool: &'a mut Pool,
    pub(crate) wanted: Wanted,
    /// Event classes of the current stream class whose events are wanted with their details; `None` if all are.
    pub(crate) built: Option<&'a [bool]>,
    pub(crate) stream: StreamId,
    /// Index of the stream among those of all traces.
    pub(crate) index: usize,
    /// CPU in the packet.
    pub(crate) cpu: Option<Cpu>,
    pub(crate) clock: Clock,
    /// Time of the current record.
    pub(crate) time: Time,
    /// Function that converts the fields of a record.
    pub(crate) fields: fn(&kymo_ctf::Event<'_>, &mut Pool) -> Vec<Field>,
}

impl Sink<'_> {
    /// Begins a record with this time, in nanoseconds from the clock's origin. A record without a time gets the time of
    /// the stream's last event.
    #[inline]
    pub(crate) fn begin(&mut self, time: Option<i64>) {
        let clock = &mut self.clock;
        let time = time.map(|ns| Time(ns.saturating_sub(clock.origin)));
        let time = time.or(clock.last).unwrap_or_default();
        self.time = time;
        match (clock.last, clock.end) {
            (Some(last), Some(end)) if time >= last => {
                clock.last = Some(time);
                if time > end {
                    clock.end = Some(time);
                }
            }
            _ => self.step(time),
        }
    }

    /// Handles the first record of a stream, or one whose time goes back.
    #[cold]
    fn step(&mut self, time: Time) {
        let last = self.clock.last.replace(time);
        let clock = &mut self.clock;
        clock.start = Some(clock.start.map_or(time, |start| start.min(time)));
        clock.end = Some(clock.end.map_or(time, |end| end.max(time)));
        let by = last.and_then(|last| Some((last, last.since(time)?)));
        if let Some((last, by)) = by
            && by > Duration(0)
        {
            let gap = Event {
                time: last,
                kind: EventKind::Gap(Gap::TimeBackward { by }),
                record: false,
                stamp: None,
                ..self.event_of(EventKind::Other, self.cpu, None)
            };
            self.batch.push_event(gap);
        }
    }

    /// Returns a row for the current record.
    #[inline]
    pub(crate) const fn row(&self, kind: RowKind) -> Row {
        Row::new(kind, self.time, self.stream)
    }

    /// Adds a record whose meaning is this row.
    #[inline]
    pub(crate) fn common(&mut self, record: &kymo_ctf::Event<'_>, row: Row) {
        if self.wanted >= Wanted::Everything && self.builds(record) {
            self.with_details(record, row);
        } else {
            self.batch.push(row);
        }
    }

    /// Whether the details of a record's class are wanted.
    #[inline]
    pub(crate) fn builds(&self, record: &kymo_ctf::Event<'_>) -> bool {
        let class = record.class_index();
        self.built
            .is_none_or(|built| built.get(class).copied().unwrap_or(true))
    }

    /// Adds a record of unknown meaning.
    #[inline]
    pub(crate) fn other(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        cpu: Option<Cpu>,
        thread: Option<ThreadId>,
    ) {
        let row = self.row(RowKind::Other).at(cpu, thread);
        if self.wanted == Wanted::Meaning || !self.builds(record) {
            self.batch.push(row);
        } else {
            self.with_details(record, row);
        }
    }

    #[inline(never)]
    fn with_details(&mut self, record: &kymo_ctf::Event<'_>, row: Row) {
        let event = EventRef {
            row: &row,
            event: None,
        };
        let event = Event {
            name: name(record, self.pool).into(),
            fields: (self.fields)(record, self.pool),
            ..event.to_event()
        };
        self.batch.push_both(&row, event);
    }

    /// Adds a record whose meaning no row can represent. Its name is `named`, or that of its class.
    #[inline(never)]
    pub(crate) fn rare(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        kind: EventKind,
        (cpu, thread): (Option<Cpu>, Option<ThreadId>),
        named: Option<String>,
    ) {
        let has_label = matches!(kind, EventKind::Marker { .. } | EventKind::Counter { .. });
        let builds = named.is_some() || has_label || self.builds(record);
        let mut event = self.event_of(kind, cpu, thread);
        if self.wanted > Wanted::Meaning && builds {
            let own = named.unwrap_or_else(|| name(record, self.pool));
            event.name = own.into();
            event.fields = (self.fields)(record, self.pool);
        }
        self.batch.push_event(event);
    }

    /// Adds a record whose meaning a row may be able to represent.
    pub(crate) fn whole(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        kind: EventKind,
        (cpu, thread): (Option<Cpu>, Option<ThreadId>),
    ) {
        let row = match kind {
            EventKind::Enter {
                function,
                call_site,
            } => {
                let row = self.row(RowKind::Enter).function(Some(function));
                row.word(call_site.unwrap_or_default())
            }
            EventKind::Exit { function } => self.row(RowKind::Exit).function(function),
            EventKind::SwitchedIn => self.row(RowKind::SwitchedIn),
            EventKind::SwitchedOut => self.row(RowKind::SwitchedOut),
            EventKind::IsrEnter { irq } => self.row(RowKind::IsrEnter).interrupt(Some(irq)),
            EventKind::IsrExit { irq } => self.row(RowKind::IsrExit).interrupt(irq),
            EventKind::Other => return self.other(record, cpu, thread),
            kind => return self.rare(record, kind, (cpu, thread), None),
        };
        self.common(record, row.at(cpu, thread));
    }

    /// Adds an additional event that follows from the record.
    #[inline(never)]
    pub(crate) fn besides(&mut self, kind: EventKind, cpu: Option<Cpu>, thread: Option<ThreadId>) {
        let event = Event {
            record: false,
            stamp: None,
            ..self.event_of(kind, cpu, thread)
        };
        self.batch.push_event(event);
    }

    fn event_of(&self, kind: EventKind, cpu: Option<Cpu>, thread: Option<ThreadId>) -> Event {
        Event {
            time: self.time,
            stream: self.stream,
            cpu,
            thread,
            kind,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        }
    }

    /// Returns the function at an address.
    #[inline]
    pub(crate) fn function_at(&mut self, space: SpaceId, address: Addr) -> Option<FunctionId> {
        self.function(space, address.0, |identities| {
            Some(identities.function_at(space, address))
        })
    }

    /// Returns the function of a number. Calls `intern` if it is not cached.
    #[inline]
    pub(crate) fn function(
        &mut self,
        space: SpaceId,
        number: u64,
        intern: impl FnOnce(&mut Identities) -> Option<FunctionId>,
    ) -> Option<FunctionId> {
        let identities = &mut *self.identities;
        let functions = &mut self.caches.functions;
        functions.get(space, number, || intern(identities))
    }

    /// Clears the function cache, because something was mapped over known functions.
    pub(crate) fn forget_functions(&mut self) {
        let entries = self.caches.functions.entries.iter_mut();
        entries.for_each(|entry| entry.1 = NO_SPACE);
    }

    /// Returns the thread of this number.
    #[inline]
    pub(crate) fn thread(&mut self, space: SpaceId, number: u64) -> Option<ThreadId> {
        let identities = &mut *self.identities;
        let threads = &mut self.caches.threads;
        threads.get_again(space, number, || {
            Some(identities.thread(space, Tid(number)))
        })
    }

    /// Returns the thread that is created with this number, which an earlier one may have had.
    pub(crate) fn created(&mut self, space: SpaceId, number: u64) -> ThreadId {
        let reused = &self.caches.reused;
        let thread = reused.created(self.identities, space, Tid(number));
        self.caches.threads.set(space, number, thread);
        thread
    }

    /// Returns the thread with this number in a process.
    pub(crate) fn thread_in(&mut self, space: SpaceId, number: u64, process: u64) -> ThreadId {
        let key = (space, Tid(number), process);
        let reused = &mut self.caches.reused;
        let thread = reused.of_process(self.identities, key);
        // The cache has the latest thread with the number.
        let latest = self.identities.thread(space, Tid(number));
        self.caches.threads.set(space, number, latest);
        thread
    }

    /// Returns the interrupt of this kind and number, if the number is valid.
    #[inline]
    pub(crate) fn interrupt(
        &mut self,
        space: SpaceId,
        kind: InterruptKind,
        number: u64,
    ) -> Option<InterruptId> {
        let identities = &mut *self.identities;
        let irq = u32::try_from(number).ok().map(Irq)?;
        let key = number | (kind as u64) << 32;
        let interrupts = &mut self.caches.interrupts;
        interrupts.get(space, key, || Some(identities.interrupt(space, kind, irq)))
    }
}

/// Returns the name of an event, or its number if it has no name.
fn name(event: &kymo_ctf::Event<'_>, pool: &mut Pool) -> String {
    match event.name() {
        "" => format!("event {}", event.class().id),
        name => pool.text(name),
    }
}

/// Returns the fields of a record, for most dialects.
pub(crate) fn all_fields(record: &kymo_ctf::Event<'_>, pool: &mut Pool) -> Vec<Field> {
    fields::all(record, pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_an_entry_and_spaces_are_told_apart() {
        let mut cache = Cache::new(0u32);
        // More keys than entries, in two spaces, several times: each lookup finds its own.
        for _ in 0..3 {
            for key in 0..u64::from(ENTRIES) * 2 {
                for space in [SpaceId(0), SpaceId(1)] {
                    let own = key as u32 * 2 + space.0;
                    assert_eq!(cache.get(space, key, || Some(own)), Some(own));
                }
            }
        }
        assert_eq!(cache.get(SpaceId(2), 1, || None), None);
        assert_eq!(cache.get(SpaceId(2), 1, || Some(7)), Some(7));
        assert_eq!(cache.get(SpaceId(2), 1, || None), Some(7));
    }
}
