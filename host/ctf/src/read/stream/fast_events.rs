//! Batch decoder of events by the [fast path](crate::plan::fast_path), within the bytes in memory.
//!
//! It makes no decisions: anything but a simple event that is completely in memory and inside its packet ends the
//! batch, and is left to the walk.

use std::ops::Range;

use super::super::bits::zero_byte;
use super::{EventRecord, NO_TIME, StreamReader};
use crate::metadata::{ByteOrder, ClockId, Metadata};
use crate::plan::fast_path::{REGISTERS, ROOM, Step, round_up};
use crate::plan::header_table::HeaderTable;

/// Maximum number of events in a batch: large enough that the setup cost per batch is negligible.
const BATCH: usize = 64;

/// Decoded events of one packet.
#[derive(Debug)]
pub(super) struct Batch {
    /// Storage for the events.
    records: Vec<EventRecord>,
    /// Number of events.
    count: usize,
    /// Number of events returned so far.
    given: usize,
    /// Upper bound of their times.
    latest: i64,
}

impl Batch {
    pub fn new() -> Self {
        Self {
            records: vec![EventRecord::default(); BATCH],
            count: 0,
            given: 0,
            latest: i64::MAX,
        }
    }

    /// The time of the next event.
    #[inline(always)]
    pub fn next_time(&self) -> Option<i64> {
        if self.given >= self.count {
            return None;
        }
        self.record(self.given).map(|record| record.time)
    }

    /// Returns the range of events that are not later than `limit`, at least one; `None` if all have been returned.
    #[inline(always)]
    pub fn take(&mut self, limit: i64) -> Option<Range<usize>> {
        let first = self.given;
        let rest = self.records.get(first..self.count)?;
        let later = match self.latest > limit {
            true => rest.iter().position(|record| record.time > limit),
            false => None,
        };
        let taken = later.map_or(rest.len(), |count| count.max(1));
        self.given += taken;
        (taken > 0).then_some(first..self.given)
    }

    /// Returns the index of the next event; `None` if all have been returned.
    #[inline(always)]
    pub const fn take_one(&mut self) -> Option<usize> {
        if self.given >= self.count {
            return None;
        }
        self.given += 1;
        Some(self.given - 1)
    }

    #[inline(always)]
    pub fn record(&self, index: usize) -> Option<&EventRecord> {
        self.records.get(index)
    }

    /// Moves all remaining events of another batch to the end of this one.
    pub fn append(&mut self, other: &mut Self) {
        let events = other.records.get(other.given..other.count).unwrap_or(&[]);
        self.latest = match self.count {
            0 => other.latest,
            _ => self.latest.max(other.latest),
        };
        self.records.truncate(self.count);
        self.records.extend_from_slice(events);
        self.count = self.records.len();
        other.given = other.count;
    }

    /// Removes all events.
    pub const fn clear(&mut self) {
        (self.count, self.given) = (0, 0);
    }

    /// Number of events.
    pub const fn len(&self) -> usize {
        self.count
    }

    pub fn records(&self, range: Range<usize>) -> &[EventRecord] {
        self.records.get(range).unwrap_or(&[])
    }

    /// Replaces the content with an event that was decoded by the walk.
    pub fn hold(&mut self, event: EventRecord) {
        if let Some(first) = self.records.first_mut() {
            *first = event;
        }
        (self.count, self.given, self.latest) = (1, 0, event.time);
    }
}

impl StreamReader {
    /// Decodes the next events of the packet; `false` if the next one is not simple.
    #[inline(never)]
    pub(super) fn decode_batch(&mut self) -> bool {
        (self.batch.count, self.batch.given) = (0, 0);
        let stream = self.view.plan.streams.get(self.view.packet.stream_class);
        match stream.and_then(|stream| Some(stream.header_table.as_ref()?.order)) {
            Some(ByteOrder::Little) => self.decode::<true>(),
            Some(ByteOrder::Big) => self.decode::<false>(),
            None => None,
        };
        self.batch.count > 0
    }

    fn decode<const LITTLE: bool>(&mut self) -> Option<()> {
        let order = if LITTLE {
            ByteOrder::Little
        } else {
            ByteOrder::Big
        };
        let stream = self.view.plan.streams.get(self.view.packet.stream_class)?;
        let leads: &HeaderTable = stream.header_table.as_ref()?;
        let (bytes, origin) = self.view.window.from(self.view.packet.offset + self.at / 8);
        let origin = (origin - self.view.packet.offset) * 8;
        let limit = self
            .content_end
            .min(self.data_end.unwrap_or(u64::MAX))
            .min(origin + bytes.len() as u64 * 8);
        let clock = stream.clock.map(|clock| clock.0 as usize);
        let mut ticks = match clock {
            Some(clock) => *self.clocks.get(clock)?,
            None => 0,
        };
        let mut at = self.at;
        let (records, mut count) = (self.batch.records.as_mut_slice(), 0);
        let mut seen = ticks;
        for record in records.iter_mut() {
            let start = round_up(at, leads.align);
            let place = ((start - origin) / 8) as usize;
            let Some(head) = bytes.get(place..).and_then(<[u8]>::first_chunk::<ROOM>) else {
                break;
            };
            let Some(entry) = leads.of(head, order, stream) else {
                break;
            };
            let mask = entry.time.mask;
            let mut now = (ticks & !mask) | entry.time.of(head, order);
            if now < ticks {
                // The field wrapped once; a 64-bit one went back.
                now = now.wrapping_add(mask.wrapping_add(1));
            }
            record.parts = entry.parts;
            let mut end = start + entry.end;
            if !entry.settled {
                let header = entry.parts.starts[0];
                let event = stream.events.get(entry.parts.class as usize)?;
                let (own, behind) = event.fast_path.as_ref()?.ahead(start + u64::from(header));
                let [own, fields] = own.map(|place| (place - start) as u32);
                (record.parts.starts, end) = ([header, own, fields], behind);
            }
            if !entry.rest.is_empty() {
                match walk::<LITTLE>(&entry.rest, end, origin, bytes) {
                    Some(found) => end = found,
                    None => break,
                }
            }
            if end > limit {
                break;
            }
            (record.ticks, record.start) = (now, start);
            // The event is in memory, so 32 bits suffice for its size.
            record.end = (end - start) as u32;
            (record.padding, record.lead) = ((start - at) as u16, entry.number);
            seen |= now;
            count += 1;
            (at, ticks) = (end, now);
        }
        let records = records.get_mut(..count)?;
        let mut latest = i64::MIN;
        match stream.scale {
            Some(scale) if scale.nanoseconds(seen).is_some() => {
                // An upper bound of all ticks.
                for record in records {
                    record.time = scale.usual(record.ticks);
                    latest = latest.max(record.time);
                }
            }
            _ => {
                for record in records {
                    record.time = unusual(&self.view.plan.metadata, stream.clock, record.ticks);
                    latest = latest.max(record.time);
                }
            }
        }
        self.batch.latest = latest;
        self.batch.count = count;
        self.at = at;
        if let Some(clock) = clock
            && let Some(clock) = self.clocks.get_mut(clock)
        {
            *clock = ticks;
        }
        Some(())
    }
}

/// The time of a tick, for clocks that the fast conversion does not support, or very large values.
fn unusual(metadata: &Metadata, clock: Option<ClockId>, ticks: u64) -> i64 {
    let clock = clock.and_then(|clock| metadata.clocks.get(clock.0 as usize));
    let time = clock.and_then(|clock| clock.nanoseconds(ticks));
    time.unwrap_or(NO_TIME)
}

/// The end of a payload that begins at `at`; `bytes` begin at `origin`.
#[inline(never)]
fn walk<const LITTLE: bool>(steps: &[Step], mut at: u64, origin: u64, bytes: &[u8]) -> Option<u64> {
    /// Maximum number of array elements: so positions never overflow.
    const MAX_COUNT: u64 = 1 << 20;
    let mut registers = [0u64; REGISTERS];
    for step in steps {
        match *step {
            Step::Skip { align, bits } => at = round_up(at, align) + bits,
            Step::String => {
                at = round_up(at, 8);
                let index = ((at - origin) / 8) as usize;
                let length = zero_byte(bytes.get(index..)?)?;
                at += (length as u64 + 1) * 8;
            }
            Step::Length {
                align,
                size,
                register,
            } => {
                at = round_up(at, align);
                let index = ((at - origin) / 8) as usize;
                let field = *bytes.get(index..)?.first_chunk::<8>()?;
                let value = if LITTLE {
                    u64::from_le_bytes(field) << (64 - size) >> (64 - size)
                } else {
                    u64::from_be_bytes(field) >> (64 - size)
                };
                *registers.get_mut(usize::from(register))? = value;
                at += u64::from(size);
            }
            Step::Array {
                align,
                bits,
                register,
            } => {
                let count = *registers.get(usize::from(register))?;
                if count > MAX_COUNT {
                    return None;
                }
                at = round_up(at, align) + count * bits;
            }
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::Arc;

    use super::super::{Message, StreamReader};
    use crate::metadata::{Metadata, Scope};
    use crate::plan::Plan;
    use crate::read::{Value, Visitor};

    const METADATA: &str = r#"/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 16; align = 8; } := u16;
        typealias integer { size = 32; align = 8; } := u32;
        trace { major = 1; minor = 8; byte_order = le; };
        clock { name = c; freq = 3000000; offset_s = 17; };
        typealias integer { size = 27; align = 1; map = clock.c.value; } := u27c;
        typealias integer { size = 64; align = 8; map = clock.c.value; } := u64c;
        stream {
            event.header := struct {
                enum : integer { size = 5; align = 1; } { compact = 0 ... 30, extended = 31 } id;
                variant <id> {
                    struct { u27c timestamp; } compact;
                    struct { u32 id; u64c timestamp; } extended;
                } v;
            } align(8);
            event.context := struct { u32 thread; };
        };
        event { id = 0; name = "named"; fields := struct { u16 n; string s; u8 last; }; };
        event { id = 1; name = "list"; fields := struct { u16 len; u32 items[len]; u8 more; }; };
        event { id = 70; name = "bits"; fields := struct { integer { size = 3; } a; integer { size = 13; } b; }; };
        event { id = 2; name = "chosen"; fields := struct {
            enum : u8 { one = 0, two = 1 } tag; variant <tag> { u8 one; u32 two; } value; }; };
    "#;

    /// A stream with events of all classes.
    fn stream(events: u32) -> Vec<u8> {
        let mut state = 7u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32
        };
        let (mut bytes, mut time) = (Vec::new(), 0u64);
        for _ in 0..events {
            time += u64::from(random() % 100_000);
            let id: u32 = [0, 1, 70, 2][random() as usize % 4];
            if id > 30 || random() % 16 == 0 {
                bytes.push(31);
                bytes.extend_from_slice(&id.to_le_bytes());
                bytes.extend_from_slice(&time.to_le_bytes());
            } else {
                bytes.extend_from_slice(&(id | (time as u32) << 5).to_le_bytes());
            }
            bytes.extend_from_slice(&random().to_le_bytes());
            match id {
                0 => {
                    bytes.extend_from_slice(&[1, 2]);
                    bytes.extend((0..random() % 20).map(|i| b'a' + i as u8));
                    bytes.extend_from_slice(&[0, 9]);
                }
                1 => {
                    let count = random() % 9;
                    bytes.extend_from_slice(&(count as u16).to_le_bytes());
                    (0..count).for_each(|_| bytes.extend_from_slice(&random().to_le_bytes()));
                    bytes.push(3);
                }
                2 => match random() % 2 {
                    0 => bytes.extend_from_slice(&[0, 5]),
                    _ => bytes.extend_from_slice(&[1, 5, 6, 7, 8]),
                },
                _ => bytes.extend_from_slice(&(random() as u16).to_le_bytes()),
            }
        }
        bytes
    }

    /// Records every value.
    struct Values<const NESTED: bool>(Vec<String>);

    impl<'a, const NESTED: bool> Visitor<'a> for Values<NESTED> {
        const NESTED: bool = NESTED;

        fn value(&mut self, name: &'a str, value: Value<'a>) {
            self.0.push(format!("{name} {value:?}"));
        }
    }

    /// Everything that a reader with windows of this size reports about events.
    fn reported(plan: &Arc<Plan>, bytes: &[u8], chunk: usize) -> Vec<String> {
        let input = Box::new(Cursor::new(bytes.to_vec()));
        let mut reader = StreamReader::with_chunk(plan.clone(), input, chunk);
        let mut lines = Vec::new();
        while let Some(message) = reader.next_message().unwrap() {
            let Message::Event(event) = message else {
                continue;
            };
            const EVENT: [Scope; 4] = [
                Scope::EventHeader,
                Scope::StreamEventContext,
                Scope::EventContext,
                Scope::EventFields,
            ];
            let mut values = Values::<true>(Vec::new());
            for scope in EVENT {
                event.visit(scope, &mut values);
            }
            let mut all = Values::<true>(Vec::new());
            event.visit_all(&mut all);
            assert_eq!(all.0, values.0);
            let mut alone = Values::<false>(Vec::new());
            event.visit_all(&mut alone);
            assert_eq!(alone.0, values.0);
            let place = (event.offset(), event.size(), event.number());
            let time = (event.ticks(), event.time_ns());
            lines.push(format!(
                "{} {place:?} {time:?} {:?}",
                event.name(),
                values.0
            ));
        }
        lines
    }

    #[test]
    fn quickly_or_not_the_same_is_found() {
        let parsed = Metadata::parse(METADATA.as_bytes()).unwrap();
        let plan = Arc::new(Plan::new(parsed.metadata).unwrap());
        let quick = plan.streams[0].header_table.as_ref();
        assert!(quick.is_some(), "the header has a fast path");
        let bytes = stream(5_000);
        // Windows of a few bytes disable the fast path.
        let slowly = reported(&plan, &bytes, 8);
        assert_eq!(slowly.len(), 5_000);
        let quickly = reported(&plan, &bytes, 256 << 10);
        for (quickly, slowly) in quickly.iter().zip(&slowly) {
            assert_eq!(quickly, slowly);
        }
        assert_eq!(quickly.len(), slowly.len());
    }
}
