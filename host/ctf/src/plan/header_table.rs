//! Header table: maps the first bits of an event to its layout. Holds [entries](HeaderEntry), one for each form of
//! header and event class.
//!
//! In nearly all traces the tags and the id of a header are in its first bits, the *key*. So one table lookup yields
//! the position of the time, the event class, the positions of its parts, and the end of the last part of known size;
//! only parts after that have to be decoded. For keys without an entry (an id that comes later, or a large one) the
//! search uses the [form](Header::form) of the header.

use super::fast_path::{Bits, Form, Header, Payload, ROOM, Step, round_up};
use super::field_program::{self, Op};
use super::{Plan, StreamPlan};
use crate::metadata::{ByteOrder, Scope};

/// Maximum size in bits of keys that are all in the table ...
const SMALL_KEY: u32 = 8;
/// ... and the number of entries for larger keys, which hold small ids only.
const MOST_KEYS: u64 = 4096;
/// Marks a key without an entry.
const NO_ENTRY: u16 = u16::MAX;

/// Layout of events of one class with one form of header.
#[derive(Debug)]
pub(crate) struct HeaderEntry {
    /// The lowest bits of the clock; empty if the header has no time.
    pub time: Bits,
    /// Positions of the parts.
    pub parts: Parts,
    /// End of the last part of known size, in bits from the start of the header. Unless `settled` it depends on the
    /// position of the event.
    pub end: u64,
    pub settled: bool,
    /// Range of the stream's event context in bytes from the start of the header, if it consists of whole bytes and is
    /// `settled`: otherwise padding may depend on the position of the event.
    pub context: Option<(u32, u32)>,
    /// Its index among the entries of the stream class.
    pub number: u16,
    /// Steps for everything after the last part of known size.
    pub rest: Box<[Step]>,
    /// The field program of the whole event, and the index of the operation after the header; empty if there is none.
    ops: Box<[Op]>,
    body: usize,
    /// The same program without operations that only show nesting.
    values: Box<[Op]>,
}

impl HeaderEntry {
    /// The program that shows all fields.
    #[inline(always)]
    pub fn all(&self) -> Option<&[Op]> {
        (!self.ops.is_empty()).then_some(&self.ops)
    }

    /// The program that shows only the fields without inner fields.
    #[inline(always)]
    pub fn values(&self) -> Option<&[Op]> {
        (!self.ops.is_empty()).then_some(&self.values)
    }

    /// The program that shows the header.
    pub fn header(&self) -> Option<&[Op]> {
        self.all()?.get(..self.body)
    }

    /// The program that shows everything after the header. Its operations begin with those of the header.
    pub fn body(&self) -> Option<&[Op]> {
        self.all()?.get(self.body..)
    }
}

/// Positions of the parts of an event, in bits from the start of its header.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    /// Index of the event class in its stream class.
    pub class: u32,
    /// Positions of the stream's event context, the event context, and the payload.
    pub starts: [u32; 3],
}

/// The entries of a stream class.
#[derive(Debug)]
pub(crate) struct HeaderTable {
    pub order: ByteOrder,
    /// Events begin at multiples of this, a multiple of 8.
    pub align: u32,
    /// Extraction of the key from the first 8 bytes.
    shift: u8,
    mask: u64,
    /// The entry for each key, or [`NO_ENTRY`].
    by_key: Box<[u16]>,
    /// One entry for each form of header and event class; `None` for events that are not simple.
    entries: Box<[Option<HeaderEntry>]>,
    header: Header,
}

/// A range of bits of a header.
#[derive(Clone, Copy, PartialEq)]
struct Range {
    start: u32,
    end: u32,
}

impl Range {
    fn of(bits: Bits) -> Self {
        let start = u32::from(bits.offset);
        Self {
            start,
            end: start + u32::from(bits.size),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    const fn size(self) -> u32 {
        self.end - self.start
    }
}

impl HeaderTable {
    /// Creates the table of a stream class with such headers.
    pub fn new(plan: &Plan, header: Header, stream: &StreamPlan) -> Option<Self> {
        let classes = stream.events.len();
        let mut entries = Vec::new();
        for form in &header.forms {
            for (class, event) in (0u32..).zip(&stream.events) {
                let payload = event.fast_path.as_ref();
                let number = u16::try_from(entries.len()).ok()?;
                let entry = |payload| HeaderEntry::new(&header, form, class, number, payload);
                entries.push(payload.and_then(entry));
            }
        }
        if entries.len() >= usize::from(NO_ENTRY) {
            return None;
        }
        // The tags, and the ids adjacent to them.
        let mut key = header.tags().map(Range::of).reduce(Range::with);
        for id in header.forms.iter().filter_map(|form| form.id) {
            let (id, before) = (Range::of(id), key.unwrap_or(Range::of(id)));
            let both = before.with(id);
            if both.size() <= SMALL_KEY || both == before {
                key = Some(both);
            }
        }
        let key = key.filter(|key| key.end <= u64::BITS);
        let key = key.unwrap_or(Range { start: 0, end: 0 });
        let shift = match header.order {
            ByteOrder::Little => key.start,
            ByteOrder::Big => (u64::BITS - key.end) % u64::BITS,
        };
        // The largest key, which is also the mask: ids may have 64 bits.
        let mask = u64::MAX
            .checked_shl(key.size())
            .map_or(u64::MAX, |above| !above);
        let keys = match key.size() <= SMALL_KEY {
            true => mask + 1,
            false => mask.min(stream.dense.len() as u64).min(MOST_KEYS),
        };
        let by_key = (0..keys).map(|value| {
            let mut bytes = [0; ROOM];
            let first = match header.order {
                ByteOrder::Little => (value << shift).to_le_bytes(),
                ByteOrder::Big => (value << shift).to_be_bytes(),
            };
            bytes[..8].copy_from_slice(&first);
            let reported = |bits: Bits| Range::of(bits).with(key) == key;
            let found = header.form(&bytes).filter(|form| {
                let form = header.forms.get(usize::from(*form));
                header.tags().all(reported) && form.is_some_and(|form| form.id.is_none_or(reported))
            });
            let index = found.and_then(|_| find(&header, stream, &bytes));
            index
                .and_then(|index| u16::try_from(index).ok())
                .unwrap_or(NO_ENTRY)
        });
        let by_key: Box<[u16]> = by_key.collect();
        // A small key that determines a form completely belongs to few classes.
        let reported = |entry: &HeaderEntry| {
            let form = header.forms.get(usize::from(entry.number) / classes.max(1));
            let id = form.and_then(|form| form.id).map(Range::of);
            key.size() <= SMALL_KEY && id.is_none_or(|id| id.with(key) == key)
        };
        for (number, entry) in (0u16..).zip(&mut entries) {
            if let Some(entry) = entry
                && (!reported(entry) || by_key.contains(&number))
            {
                entry.show(plan, &header, stream);
            }
        }
        Some(Self {
            order: header.order,
            align: header.align,
            shift: shift as u8,
            mask,
            by_key,
            entries: (classes > 0).then(|| entries.into())?,
            header,
        })
    }

    /// All entries in order.
    pub fn all(&self) -> &[Option<HeaderEntry>] {
        &self.entries
    }

    /// The entry with this number.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&HeaderEntry> {
        self.entries.get(usize::from(number))?.as_ref()
    }

    /// The entry of the event with the header at the start of `bytes`; `None` if it is not simple, or does not conform
    /// to the metadata.
    #[inline(always)]
    pub fn of(
        &self,
        bytes: &[u8; ROOM],
        order: ByteOrder,
        stream: &StreamPlan,
    ) -> Option<&HeaderEntry> {
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[..8]);
        let key = (super::fast_path::integer(first, order) >> self.shift) & self.mask;
        let index = self.by_key.get(key as usize).copied().unwrap_or(NO_ENTRY);
        match self.entries.get(usize::from(index)) {
            Some(entry) => entry.as_ref(),
            None => self.search(bytes, stream),
        }
    }

    #[inline(never)]
    fn search(&self, bytes: &[u8; ROOM], stream: &StreamPlan) -> Option<&HeaderEntry> {
        self.entries
            .get(find(&self.header, stream, bytes)?)?
            .as_ref()
    }
}

/// The number of the entry of the event with this header.
fn find(header: &Header, stream: &StreamPlan, bytes: &[u8; ROOM]) -> Option<usize> {
    let form = usize::from(header.form(bytes)?);
    let class = match header.forms.get(form)?.id {
        Some(id) => stream.event(id.of(bytes, header.order))?,
        None => 0,
    };
    (class < stream.events.len()).then_some(form * stream.events.len() + class)
}

impl HeaderEntry {
    /// Creates the entry of an event class with a form of header.
    fn new(
        header: &Header,
        form: &Form,
        class: u32,
        number: u16,
        payload: &Payload,
    ) -> Option<Self> {
        let (settled, [own, fields], end) = payload.ahead_of(u64::from(form.end), header.align);
        let within = |at: u64| u32::try_from(at).ok();
        let starts = [form.end, within(own)?, within(fields)?];
        let [from, to, _] = starts;
        let is_bytes = settled && (from | to).is_multiple_of(8);
        Some(Self {
            time: form.time.unwrap_or(Bits::NONE),
            parts: Parts { class, starts },
            context: is_bytes.then_some((from / 8, to / 8)),
            // An event of no size is an error, which the walk reports.
            end: Some(end).filter(|end| *end > 0)?,
            settled,
            number,
            rest: payload.rest.clone(),
            ops: Box::default(),
            body: 0,
            values: Box::default(),
        })
    }

    /// Compiles its field program.
    fn show(&mut self, plan: &Plan, header: &Header, stream: &StreamPlan) {
        let form = usize::from(self.number) / stream.events.len().max(1);
        let event = stream.events.get(self.parts.class as usize);
        let found = || {
            let scopes = [
                (Scope::StreamEventContext, stream.event_context),
                (Scope::EventContext, event?.context),
                (Scope::EventFields, event?.fields),
            ];
            let node = stream.event_header?.full;
            let choices = header.shapes.get(form)?;
            field_program::event(plan, (node, header.align, choices), scopes)
        };
        if let Some((ops, body)) = found() {
            self.values = field_program::values(&ops);
            (self.ops, self.body) = (ops, body);
        }
    }
}

impl Payload {
    /// Like [`ahead`](Self::ahead), for events that begin at a multiple of `align`, relative to that; also returns
    /// whether the result is independent of the event's position.
    fn ahead_of(&self, at: u64, align: u32) -> (bool, [u64; 2], u64) {
        let parts = [self.contexts[0].0, self.contexts[1].0, self.first.0];
        let (starts, end) = self.ahead(at);
        (parts.into_iter().all(|it| it <= align), starts, end)
    }

    /// The positions of the event context and the payload if the stream's event context begins at `at`, and the end of
    /// the first part of known size.
    pub fn ahead(&self, at: u64) -> ([u64; 2], u64) {
        let [stream, own] = self.contexts;
        let context = round_up(at, stream.0) + stream.1;
        let fields = round_up(context, own.0) + own.1;
        let (align, bits) = self.first;
        ([context, fields], round_up(fields, align) + bits)
    }
}
