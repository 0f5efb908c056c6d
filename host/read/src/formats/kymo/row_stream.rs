//! Fast decoder of one stream: turns bytes directly into rows, in a tenth of the time that
//! [`Stream`](super::stream::Stream) takes through CTF.
//!
//! Packets were [checked](super::quick_check) beforehand. Decoding checks the records again: a packet's rows end
//! where [`check`](super::records::check) would cut it. An unnamed exit has no function here, and an unnamed end of
//! an interrupt handler no interrupt; the reconstruction of calls adds them.

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

/// State shared by all streams of a recording.
pub(super) struct Shared<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) decoder: &'a mut Decoder,
    pub(super) identities: &'a mut Identities,
    /// Called with the offset and the description of each damage in the current stream.
    pub(super) damage: &'a mut dyn FnMut(u64, String),
}

/// Tables and caches of the decoder.
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

/// Decoder of the stream of one processor or thread.
#[derive(Debug)]
pub(super) struct RowStream {
    packets: StreamPackets,
    kind: StreamKind,
    /// Converts the stream's times to another processor's clock.
    correction: Option<Correction>,
    /// The end of the input; damage that reaches it covers everything that remains.
    end: usize,
    /// The template of all rows, with the processor and the running thread.
    row: Row,
    /// The thread in the packet header, the base of relative thread numbers; 0 for none.
    base: u64,
    open: Option<Open>,
    /// The counters in each processor's previous packet.
    previous: Vec<Previous>,
    /// Gaps to report after the last event of the current packet.
    behind: Vec<Gap>,
    /// Whether the first entry of `behind` reports a packet whose end was lost before it was saved.
    cut_before: bool,
    last: Option<Time>,
    ready: VecDeque<Event>,
    ended: bool,
    /// The times of the first and last events that are records.
    pub(super) span: Option<(Time, Time)>,
}

/// The packet whose records are being decoded.
#[derive(Clone, Debug)]
struct Open {
    /// Its range in the input, including padding.
    bytes: Range<usize>,
    /// The size of its header and records in bytes.
    content: usize,
    /// The tick of its end.
    end: u64,
    /// The offset of the next record in the packet.
    at: usize,
    /// The tick of the last record.
    clock: u64,
    /// The number of unnamed exits that may follow: one per entry. A huge number where the packet leaves all
    /// exits unnamed.
    entered: u64,
}

/// The counters in a packet.
#[derive(Clone, Copy, Debug)]
struct Previous {
    cpu: u16,
    sequence: u32,
    discarded: u32,
}

/// Maximum number of processors in one stream whose previous packet is remembered.
const MOST_PROCESSORS: usize = 256;

/// The reason why decoding has stopped.
enum Stop {
    /// The next event has this time, which is after the limit, or the batch is full.
    At(Time),
    /// Events in `ready` must be returned first.
    Ready,
    /// The packet has no more records.
    End,
    /// The rest of the packet, from the record at this offset on, cannot be read.
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

    /// Adds events up to time `limit` to the batch, as many as fit. Returns the time of the next
    /// event.
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

    /// Decodes records of the current packet.
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
        // The fast path handles records up to this tick; the loop below handles all others.
        let last_tick = match self.correction {
            None => scale.ticks(limit).min(open.end),
            Some(_) => 0,
        };
        let stop = loop {
            // Ticks never go back within a packet, so times stay monotonic if they are so up to here.
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

    /// Cuts the current packet at the record at `at`, and reports the rest as damage.
    fn cut(&mut self, at: usize, fault: Fault) {
        let Some(open) = self.open.take() else {
            return;
        };
        if std::mem::take(&mut self.cut_before) {
            // The damage reported here replaces it.
            self.behind.remove(0);
        }
        self.packets.cut(Damaged {
            bytes: open.bytes.start + at..open.bytes.end,
            fault,
        });
    }

    /// Starts the next packet: reports the loss before it, and sets its initial context.
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
        // The counter of discarded events shows how many were lost between the ends of the last
        // packet and of this one, but not where. Recorders close a packet when they cannot continue
        // in it, so the loss was usually before this packet. Only the last packet of the stream may
        // report a loss after it, because the buffer was full then.
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

    /// Computes the packets and events lost since the previous packet, from the counters of both.
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
                // A difference of more than half the range went backward: another run, or packets out of order.
                packets: (lost <= u32::MAX / 2).then_some(lost.into()),
            }),
            events.map(|lost| Gap::Discarded {
                events: Some(lost.into()),
            }),
        ]
    }

    /// Reports the gaps after the last event of a packet.
    fn close(&mut self) {
        for gap in std::mem::take(&mut self.behind) {
            self.gap(gap);
        }
    }

    /// Reports the damage before the next packet; returns whether there was any.
    fn report_damage(&mut self, shared: &mut Shared<'_>) -> bool {
        let mut any = false;
        while let Some(Damaged { bytes, fault }) = self.packets.damage() {
            let offset = bytes.start as u64;
            (shared.damage)(offset, fault.to_string());
            self.gap(Gap::Damage {
                offset,
                // Bytes are counted only where the reader skipped them and continued. A packet without its
                // end has an empty range: nothing was skipped, also at the end of the input.
                bytes: (bytes.end < self.end || bytes.is_empty()).then_some(bytes.len() as u64),
                message: fault.to_string(),
            });
            any = true;
        }
        any
    }

    /// Adds a gap after the last event.
    fn gap(&mut self, gap: Gap) {
        let event = gap_event(&self.row, self.last.unwrap_or_default(), gap);
        self.ready.push_back(event);
    }
}

/// Earlier than any time.
const NEVER: Time = Time(i64::MIN);

/// Whether a record would begin with a [`HOLE`] of zeros.
#[cold]
fn is_hole(content: &[u8], at: usize) -> bool {
    let rest = content.get(at..).unwrap_or(&[]);
    rest.first_chunk::<HOLE>()
        .is_some_and(|bytes| *bytes == [0; HOLE])
}

/// A gap event with the stream, processor and thread of `place`.
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
