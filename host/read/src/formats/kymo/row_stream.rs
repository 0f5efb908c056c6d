//! One stream of a recording as rows, straight from its bytes: what [`Stream`](super::stream::Stream) gives
//! by way of CTF, in a tenth of the time.
//!
//! Packets were [checked](super::quick_check) beforehand. Records are checked again while they are decoded: where
//! [`check`](super::records::check) would cut a packet, its rows end. An exit or the end of an interrupt
//! handler that does not say what it ends has no function or interrupt here; the reconstruction of calls knows.

use std::collections::VecDeque;
use std::ops::Range;

use kymo_event::{Batch, Cpu, Event, EventKind, Gap, Identities, Row, RowKind, StreamId, Time};
use kymo_wire::event::{ByteOrder, EventId, METADATA_STREAM, PacketHeader};

use super::clocks::Correction;
use super::feed::Input;
use super::header_table::{HeaderTable, Size, load};
use super::interned::Interned;
use super::other::{Other, of_kind};
use super::packets::{Damaged, Fault};
use super::rare::Record;
use super::records::HOLE;
use super::straight::{Run, Straight};
use super::stream_packets::StreamPackets;
use super::streams::StreamKind;
use super::ticks::Scale;
use crate::dialects::kymo::Dialect;

/// What the streams of a recording have in common.
pub(super) struct Shared<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) decoder: &'a mut Decoder,
    pub(super) identities: &'a mut Identities,
    /// Takes what cannot be read of the stream at hand.
    pub(super) damage: &'a mut dyn FnMut(u64, String),
}

/// What decoding needs besides the bytes.
#[derive(Debug)]
pub(super) struct Decoder {
    table: HeaderTable,
    scale: Scale,
    interned: Interned,
}

impl Decoder {
    pub(super) fn new(dialect: &Dialect) -> Self {
        Self {
            table: HeaderTable::new(dialect.layout),
            scale: Scale::new(dialect.clock_hz),
            interned: Interned::new(),
        }
    }
}

/// Reads the rows of one stream, of a processor or of a thread.
#[derive(Debug)]
pub(super) struct RowStream {
    packets: StreamPackets,
    kind: StreamKind,
    /// What makes its times those of another processor's clock.
    correction: Option<Correction>,
    /// Where the input ends: damage up to there is all the rest.
    end: usize,
    /// What all rows have, with the processor and the thread that runs.
    row: Row,
    /// The thread that the packet names, from which others are counted; 0 for none.
    base: u64,
    open: Option<Open>,
    /// The counters of the last packet of each processor.
    previous: Vec<Previous>,
    /// What is to be reported behind the last event of the packet at hand.
    behind: Vec<Gap>,
    /// Whether the first of these is the end of a packet that was lost before it was saved.
    cut_before: bool,
    last: Option<Time>,
    ready: VecDeque<Event>,
    ended: bool,
    /// The times of the first and of the last of the events that are records.
    pub(super) span: Option<(Time, Time)>,
}

/// The packet whose records are being decoded.
#[derive(Clone, Debug)]
struct Open {
    /// Its bytes in the input, with those that are no records.
    bytes: Range<usize>,
    /// How many of them are its head and records.
    content: usize,
    /// The tick at which it ends.
    end: u64,
    /// Where the next record begins, from the packet's beginning on.
    at: usize,
    /// The tick of the last record.
    clock: u64,
    /// How many exits may come that name no function: one for each entry. More than there can be where no
    /// exit is named.
    entered: u64,
}

/// The counters in a packet.
#[derive(Clone, Copy, Debug)]
struct Previous {
    cpu: u16,
    sequence: u32,
    discarded: u32,
}

/// Processors whose last packet is remembered, of those that share one stream.
const MOST_PROCESSORS: usize = 256;

/// Why decoding records has stopped.
enum Stop {
    /// The next event is of this time, and its turn has not come; or there is no room for it.
    At(Time),
    /// Something has to be reported first.
    Ready,
    /// There are no more records in the packet.
    End,
    /// The rest of the packet, from the record at this place on, cannot be read.
    Fault(usize, Fault),
}

impl RowStream {
    pub(super) fn new(
        id: StreamId,
        kind: StreamKind,
        input: Input,
        correction: Option<Correction>,
    ) -> Self {
        Self {
            end: input.bytes.len(),
            packets: StreamPackets::new(input),
            kind,
            correction,
            row: Row::new(RowKind::Other, Time(0), id),
            base: 0,
            open: None,
            previous: Vec::new(),
            behind: Vec::new(),
            cut_before: false,
            last: None,
            ready: VecDeque::new(),
            ended: false,
            span: None,
        }
    }

    /// Adds events to the batch: up to this time, as many as there is room for. Gives the time of the next
    /// one.
    pub(super) fn run(
        &mut self,
        shared: &mut Shared<'_>,
        limit: Time,
        batch: &mut Batch,
    ) -> Option<Time> {
        loop {
            while let Some(event) = self.ready.front() {
                if batch.is_full() || event.time > limit {
                    return Some(event.time);
                }
                if let Some(event) = self.ready.pop_front() {
                    batch.push_event(event);
                }
            }
            if self.ended {
                return None;
            }
            let stop = match shared.dialect.layout.order {
                ByteOrder::Big => self.records::<true>(shared, limit, batch),
                ByteOrder::Little => self.records::<false>(shared, limit, batch),
            };
            match stop {
                Stop::At(time) => return Some(time),
                Stop::Ready => {}
                Stop::End => self.next_packet(shared),
                Stop::Fault(at, fault) => self.cut(at, fault),
            }
        }
    }

    /// Decodes records of the packet at hand.
    #[inline]
    fn records<const BIG: bool>(
        &mut self,
        shared: &mut Shared<'_>,
        limit: Time,
        batch: &mut Batch,
    ) -> Stop {
        let Shared {
            dialect,
            decoder,
            identities,
            ..
        } = shared;
        let Decoder {
            table,
            scale,
            interned,
        } = &mut **decoder;
        let Some(open) = &mut self.open else {
            return Stop::End;
        };
        let bytes: &[u8] = &self.packets.input.bytes;
        let content = bytes.get(open.bytes.clone()).unwrap_or(&[]);
        let content = content.get(..open.content).unwrap_or(content);
        let from = batch.len();
        let mut room = Batch::ROWS.saturating_sub(from);
        let mut last = self.last.unwrap_or(NEVER);
        let (mut at, mut clock, mut entered) = (open.at, open.clock, open.entered);
        let mut straight = Straight {
            table,
            interned,
            row: self.row,
            content,
            stop: 0,
        };
        // What comes later, or has no time, is for the loop below.
        let last_tick = match self.correction {
            None => scale.ticks(limit).min(open.end),
            Some(_) => 0,
        };
        let stop = loop {
            // Within a packet, ticks don't go back; so times don't, if they have not up to here.
            let is_call = content
                .get(at)
                .is_some_and(|first| table.get(*first).is_call());
            if is_call
                && clock < last_tick
                && let Some(near) = scale.near(clock)
                && near.time(clock) >= last
            {
                straight.stop = last_tick.min(clock.saturating_add(near.reach));
                let mut run = Run {
                    at,
                    clock,
                    entered,
                    room,
                };
                straight.row = self.row;
                straight.run::<BIG>(&mut run, &near, dialect, identities, batch);
                if run.room < room {
                    last = scale.time(run.clock).unwrap_or(last);
                }
                (at, clock, entered, room) = (run.at, run.clock, run.entered, run.room);
            }
            let Straight { interned, .. } = &mut straight;
            let head = load(BIG, content, at);
            let Some(first) = content.get(at) else {
                break Stop::End;
            };
            if head == 0 && is_hole(content, at) {
                break Stop::Fault(at, Fault::Hole);
            }
            let header = table.get(*first);
            let mut size = usize::from(header.size);
            if size == 0 {
                match table.size(content, at) {
                    Size::Bytes(bytes) => size = bytes,
                    Size::Cut => size = usize::MAX - at,
                    Size::Unknown(id) => break Stop::Fault(at, Fault::UnknownEvent { at, id }),
                }
            }
            let next = at + size;
            if next > content.len() {
                let found = content.len() - at;
                break Stop::Fault(at, Fault::EventCut { at, found });
            }
            let elapsed = (head >> header.time_shift).wrapping_sub(clock) & header.time_mask;
            let tick = clock.wrapping_add(elapsed);
            if header.id == EventId::Exit && entered == 0 {
                break Stop::Fault(at, Fault::ExitWithoutEnter { at });
            }
            if tick > open.end {
                let (end, found) = (open.end, tick);
                break Stop::Fault(at, Fault::EventLate { at, end, found });
            }
            let next_head = load(BIG, content, next);
            if next_head == 0 && content.get(next - 1) == Some(&0) && is_hole(content, next) {
                // The hole may have begun inside this record.
                break Stop::Fault(at, Fault::Hole);
            }
            let mut time = match scale.time(tick) {
                Some(time) => time,
                None => self.last.unwrap_or_default().max(last),
            };
            if let Some(correction) = &self.correction {
                time = correction.apply(time);
            }
            if time < last {
                let by = last.since(time).unwrap_or_default();
                let gap = Gap::TimeBackward { by };
                self.ready.push_back(gap_event(&self.row, last, gap));
                last = time;
                break Stop::Ready;
            }
            if time > limit || room == 0 {
                break Stop::At(time);
            }
            match header.id {
                EventId::Enter | EventId::EnterLong => {
                    entered += 1;
                    let number = (head >> header.function_shift) as u32 & header.function_mask;
                    let function = interned.function(dialect, identities, number);
                    let row = of_kind(&self.row, RowKind::Enter, time);
                    batch.push(row.function(Some(function)));
                }
                EventId::Exit => {
                    entered -= 1;
                    batch.push(of_kind(&self.row, RowKind::Exit, time));
                }
                id => {
                    let record = Record::new(dialect.layout, id, content, at, size);
                    let mut other = Other {
                        dialect,
                        identities,
                        interned,
                        base: self.base,
                        row: &mut self.row,
                    };
                    entered += u64::from(other.push(&record, time, batch));
                }
            }
            (at, clock, last) = (next, tick, time);
            room -= 1;
        };
        (open.at, open.clock, open.entered) = (at, clock, entered);
        if last > NEVER {
            self.last = Some(last);
        }
        if let Some(rows) = batch.rows().get(from..)
            && let (Some(first), Some(last)) = (rows.first(), rows.last())
        {
            let (start, end) = self.span.unwrap_or((first.time, last.time));
            self.span = Some((start.min(first.time), end.max(last.time)));
        }
        stop
    }

    /// The rest of the packet at hand, from a record on, cannot be read.
    fn cut(&mut self, at: usize, fault: Fault) {
        let Some(open) = self.open.take() else {
            return;
        };
        if std::mem::take(&mut self.cut_before) {
            // That is reported now.
            self.behind.remove(0);
        }
        self.packets.cut(Damaged {
            bytes: open.bytes.start + at..open.bytes.end,
            fault,
        });
    }

    /// Goes to the next packet: tells what is missing in front of it, and what it begins with.
    fn next_packet(&mut self, shared: &mut Shared<'_>) {
        self.open = None;
        self.cut_before = false;
        let Some(head) = self.packets.peek().copied() else {
            self.report_damage(shared);
            self.close();
            self.ended = true;
            return;
        };
        let cut = !self.behind.is_empty();
        self.close();
        let scale = shared.decoder.scale;
        let begin = scale.time(head.begin).map(|begin| match &self.correction {
            Some(correction) => correction.apply(begin),
            None => begin,
        });
        let first = self.previous.is_empty();
        if first {
            self.last = begin;
        }
        let damaged = self.report_damage(shared);
        let Some((packet, is_last)) = self.packets.next() else {
            return;
        };
        let mut lost_before = cut || damaged || (first && head.sequence > 0);
        if first && head.sequence > 0 {
            let packets = head.sequence.into();
            self.gap(if damaged {
                Gap::LostPackets {
                    packets: Some(packets),
                }
            } else {
                Gap::Overwritten { packets }
            });
        }
        let [packets, events] = self.lost(&head);
        if let Some(lost) = packets {
            lost_before = true;
            self.gap(lost);
        }
        // The counter of discarded events tells how many went missing between the last packet's
        // end and this one's, not where. Recorders leave a packet when they cannot go on in it,
        // so most often it was before this one; but what happened after the last packet of all
        // (the buffer was full) can only be recorded in it.
        match events {
            Some(lost) if is_last => self.behind.push(lost),
            Some(lost) => {
                lost_before = true;
                self.gap(lost);
            }
            None => {}
        }
        if head.flags & PacketHeader::FLAG_CUT != 0 && packet.cut.is_none() {
            self.cut_before = true;
            let gap = Gap::Damage {
                offset: packet.bytes.start as u64,
                bytes: Some(0),
                message: "the end of this packet was lost before it was saved".to_owned(),
            };
            self.behind.insert(0, gap);
        }
        let cpu = match self.kind {
            StreamKind::Cpu if head.cpu != METADATA_STREAM => Some(Cpu(head.cpu.into())),
            _ => None,
        };
        let Shared {
            dialect,
            decoder,
            identities,
            ..
        } = shared;
        let thread = decoder.interned.thread(dialect, identities, head.thread);
        self.row = self.row.at(cpu, thread);
        self.base = head.thread;
        let nested = head.flags & PacketHeader::FLAG_NESTED != 0;
        self.open = Some(Open {
            content: ((packet.header.content_bits / 8) as usize).min(packet.bytes.len()),
            bytes: packet.bytes,
            end: head.end,
            at: dialect.layout.header_bytes(),
            clock: head.begin,
            entered: if nested { u64::MAX / 2 } else { 0 },
        });
        // Without a loss, the entries of these interrupts are in the trace.
        if lost_before && head.isr_depth > 0 {
            self.last = self.last.max(begin);
            let depth = head.isr_depth.into();
            self.gap(Gap::InInterrupt { depth });
        }
    }

    /// What the counters of a packet say is missing since the packet before: packets, and events.
    fn lost(&mut self, head: &PacketHeader) -> [Option<Gap>; 2] {
        let now = Previous {
            cpu: head.cpu,
            sequence: head.sequence,
            discarded: head.discarded,
        };
        let mut previous = self.previous.iter_mut();
        let before = previous.find(|it| it.cpu == now.cpu);
        let before = before.map(|it| std::mem::replace(it, now));
        if before.is_none() {
            if self.previous.len() == MOST_PROCESSORS {
                self.previous.remove(0);
            }
            self.previous.push(now);
        }
        let lost = |now: u32, before: u32| Some(now.wrapping_sub(before)).filter(|it| *it != 0);
        let packets = before.and_then(|before| lost(now.sequence, before.sequence.wrapping_add(1)));
        let events = lost(now.discarded, before.map_or(0, |before| before.discarded));
        [
            packets.map(|lost| Gap::LostPackets {
                // More than half of the numbers gone: it went backward, another run or packets out of order.
                packets: (lost <= u32::MAX / 2).then_some(lost.into()),
            }),
            events.map(|lost| Gap::Discarded {
                events: Some(lost.into()),
            }),
        ]
    }

    /// Reports what belongs behind the last event of a packet.
    fn close(&mut self) {
        for gap in std::mem::take(&mut self.behind) {
            self.gap(gap);
        }
    }

    /// Tells of the damage in front of the next packet; whether there was any.
    fn report_damage(&mut self, shared: &mut Shared<'_>) -> bool {
        let mut any = false;
        while let Some(Damaged { bytes, fault }) = self.packets.damage() {
            let offset = bytes.start as u64;
            (shared.damage)(offset, fault.to_string());
            self.gap(Gap::Damage {
                offset,
                // Of a packet that lacks its end nothing was passed over, also at the end of all.
                bytes: (bytes.end < self.end || bytes.is_empty()).then_some(bytes.len() as u64),
                message: fault.to_string(),
            });
            any = true;
        }
        any
    }

    /// Tells of a gap behind the last event.
    fn gap(&mut self, gap: Gap) {
        let event = gap_event(&self.row, self.last.unwrap_or_default(), gap);
        self.ready.push_back(event);
    }
}

/// Earlier than any time.
const NEVER: Time = Time(i64::MIN);

/// Whether there are only zeros where a record should begin.
#[cold]
fn is_hole(content: &[u8], at: usize) -> bool {
    let rest = content.get(at..).unwrap_or(&[]);
    rest.first_chunk::<HOLE>()
        .is_some_and(|bytes| *bytes == [0; HOLE])
}

/// A gap with the place of its stream.
fn gap_event(place: &Row, time: Time, gap: Gap) -> Event {
    Event {
        time,
        stream: place.stream,
        cpu: place.cpu(),
        thread: place.thread(),
        kind: EventKind::Gap(gap),
        named: false,
        record: false,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    }
}
