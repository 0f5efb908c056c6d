//! Reader of one stream through CTF: the events of its packets, and the gaps between them.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use kymo_ctf::{GapKind, Message, Packet, Plan, StreamReader};
use kymo_event::{Cpu, Duration, Event, Gap, Identities, StreamId, ThreadId, Time};
use kymo_wire::event::{METADATA_STREAM, PacketHeader};

use super::clocks::Correction;
use super::feed::{Feed, Input, Notes};
use super::packets::Damaged;
use super::streams::StreamKind;
use crate::dialects::kymo::{Context, Dialect};

/// Reader of one stream's events.
#[derive(Debug)]
pub(super) struct Stream {
    reader: StreamReader,
    notes: Notes,
    kind: StreamKind,
    /// Converts the stream's times to another processor's clock.
    correction: Option<Correction>,
    /// The end of the input; damage that reaches it covers everything that remains.
    end: usize,
    context: Context,
    /// The gaps that the CTF reader reported before the next packet.
    lost: Vec<Gap>,
    /// Number of names and other facts that the target had no memory for.
    pub(super) facts_lost: u64,
    /// Gaps to report after the last event of the current packet.
    behind: Vec<Gap>,
    /// The current packet: its number, and its offset in the input.
    packet: Option<(u64, usize)>,
    last: Option<Time>,
    ready: VecDeque<Event>,
    ended: bool,
}

impl Stream {
    pub(super) fn new(plan: &Arc<Plan>, id: StreamId, kind: StreamKind, input: Input) -> Self {
        let end = input.bytes.len();
        let (feed, notes) = Feed::new(input);
        Self {
            end,
            ..Self::over(plan, id, kind, feed, notes)
        }
    }

    /// Creates a reader of the packets from `feed`, which are all valid; `feed` makes a note on each.
    pub(super) fn over(
        plan: &Arc<Plan>,
        id: StreamId,
        kind: StreamKind,
        feed: impl Read + Send + 'static,
        notes: Notes,
    ) -> Self {
        Self {
            reader: StreamReader::new(Arc::clone(plan), feed).counting_before(),
            notes,
            kind,
            correction: None,
            end: usize::MAX,
            context: Context::new(id),
            lost: Vec::new(),
            facts_lost: 0,
            behind: Vec::new(),
            packet: None,
            last: None,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Sets the correction of the stream's times.
    pub(super) fn corrected(self, correction: Option<Correction>) -> Self {
        Self { correction, ..self }
    }

    /// Changes the correction, from the next event on.
    pub(super) fn correct(&mut self, correction: Correction) {
        self.correction = Some(correction);
    }

    /// Sets the size of the input in bytes.
    pub(super) fn end_at(&mut self, bytes: usize) {
        self.end = bytes;
    }

    /// The offset in the input of the last event's packet.
    pub(super) fn offset(&self) -> usize {
        self.packet.map_or(0, |(_, offset)| offset)
    }

    /// Resumes reading after the end, because more packets may have arrived.
    pub(super) fn go_on(&mut self) {
        self.reader.go_on();
        self.ended = false;
    }

    /// Returns the next event; `None` at the end of the stream. Calls `damage` with the offset and the
    /// description of each unreadable range.
    pub(super) fn next(
        &mut self,
        dialect: &Dialect,
        identities: &mut Identities,
        damage: &mut dyn FnMut(u64, String),
    ) -> Option<Event> {
        while self.ready.is_empty() && !self.ended {
            let event = self.advance(dialect, identities, damage);
            if event.is_some() {
                return event;
            }
        }
        self.ready.pop_front()
    }

    /// Handles the next result of the CTF reader. Returns an event directly if nothing precedes it,
    /// else queues it in `ready`.
    fn advance(
        &mut self,
        dialect: &Dialect,
        identities: &mut Identities,
        damage: &mut dyn FnMut(u64, String),
    ) -> Option<Event> {
        match self.reader.next_message() {
            Ok(Some(Message::Event(event))) => {
                let mut time = event.time_ns().map(Time).or(self.last).unwrap_or_default();
                if let Some(correction) = &self.correction {
                    time = correction.apply(time);
                }
                let back = self.last.and_then(|last| last.since(time));
                if let Some(by) = back.filter(|by| *by > Duration(0)) {
                    let gap = self.context.gap(self.last, Gap::TimeBackward { by });
                    self.ready.push_back(gap);
                }
                let event = dialect.event(identities, &mut self.context, time, &event);
                self.last = Some(time);
                if self.ready.is_empty() {
                    return Some(event);
                }
                self.ready.push_back(event);
            }
            Ok(Some(Message::Gap(gap))) => self.lost.push(match gap.kind {
                GapKind::Packets => Gap::LostPackets { packets: gap.count },
                GapKind::Events | GapKind::EarlierEvents => Gap::Discarded { events: gap.count },
            }),
            Ok(Some(Message::Packet(packet))) => {
                let mut head = Head::of(&packet);
                if let Some(correction) = &self.correction {
                    head.begin = head.begin.map(|begin| correction.apply(begin));
                }
                let thread = dialect.thread(identities, head.thread);
                self.begin(&head, thread, damage);
            }
            Ok(None) => {
                self.report_damage(u64::MAX, damage);
                self.close();
                self.ended = true;
            }
            Err(error) => {
                // The packets were checked before, so the metadata does not match them.
                self.close();
                let offset = self.packet.map_or(0, |(_, offset)| offset) as u64;
                damage(offset, error.to_string());
                self.gap(Gap::Damage {
                    offset,
                    bytes: None,
                    message: error.to_string(),
                });
                self.ended = true;
            }
        }
        None
    }

    /// Reports the loss before a packet, and sets the packet's initial context.
    fn begin(
        &mut self,
        head: &Head,
        thread: Option<ThreadId>,
        damage: &mut dyn FnMut(u64, String),
    ) {
        let cut = !self.behind.is_empty();
        self.close();
        let first = self.packet.is_none();
        let note = self.notes.next_packet();
        self.packet = Some((head.number, note.map_or(0, |note| note.offset)));
        if first {
            self.last = head.begin;
        }
        let damaged = self.report_damage(head.number, damage);
        let mut lost_before = cut || damaged || (first && head.sequence > 0);
        if first && head.sequence > 0 {
            let packets = head.sequence;
            self.gap(if damaged {
                Gap::LostPackets {
                    packets: Some(packets),
                }
            } else {
                Gap::Overwritten { packets }
            });
        }
        // The counter of discarded events shows how many were lost between the ends of the last
        // packet and of this one, but not where. Recorders close a packet when they cannot continue
        // in it, so the loss was usually before this packet. Only the last packet of the stream may
        // report a loss after it, because the buffer was full then.
        let last = note.is_some_and(|note| note.last);
        let facts = self.kind == StreamKind::Metadata
            && head.flags & u64::from(PacketHeader::FLAG_FACTS) != 0;
        for lost in std::mem::take(&mut self.lost) {
            if let (true, Gap::Discarded { events }) = (facts, &lost) {
                self.facts_lost += events.unwrap_or(0);
                continue;
            }
            if last && matches!(lost, Gap::Discarded { .. }) {
                self.behind.push(lost);
            } else {
                lost_before = true;
                self.gap(lost);
            }
        }
        if head.flags & u64::from(PacketHeader::FLAG_CUT) != 0 && !note.is_some_and(|note| note.cut)
        {
            let gap = Gap::Damage {
                offset: self.packet.map_or(0, |(_, offset)| offset) as u64,
                bytes: Some(0),
                message: "the end of this packet was lost before it was saved".to_owned(),
            };
            self.behind.insert(0, gap);
        }
        self.context.cpu = match self.kind {
            StreamKind::Cpu if head.cpu != u64::from(METADATA_STREAM) => {
                u32::try_from(head.cpu).ok().map(Cpu)
            }
            StreamKind::Items if head.flags & u64::from(PacketHeader::FLAG_THREAD) == 0 => {
                u32::try_from(head.cpu).ok().map(|ring| Cpu(ring % RINGS))
            }
            _ => None,
        };
        // A processor's items do not record thread switches.
        self.context.thread = match self.kind {
            StreamKind::Items if self.context.cpu.is_some() => None,
            _ => thread,
        };
        self.context.base = head.thread;
        let nested = head.flags & u64::from(PacketHeader::FLAG_NESTED) != 0;
        let thread = self.context.thread;
        self.context.nesting.packet(nested, lost_before, thread);
        // Without a loss, the entries of these interrupts are in the trace.
        if lost_before && head.depth > 0 {
            self.last = self.last.max(head.begin);
            self.gap(Gap::InInterrupt { depth: head.depth });
        }
    }

    /// Reports the gaps after the last event of a packet.
    fn close(&mut self) {
        for gap in std::mem::take(&mut self.behind) {
            self.gap(gap);
        }
    }

    /// Reports the damage before a packet; returns whether there was any.
    fn report_damage(&mut self, packet: u64, damage: &mut dyn FnMut(u64, String)) -> bool {
        let mut any = false;
        while let Some(Damaged { bytes, fault }) = self.notes.damage_before(packet) {
            let offset = bytes.start as u64;
            damage(offset, fault.to_string());
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
        let gap = self.context.gap(self.last, gap);
        self.ready.push_back(gap);
    }
}

/// The stream numbers of a processor's item rings are congruent modulo this number.
pub(super) const RINGS: u32 = 256;

/// The packet header fields used here.
struct Head {
    number: u64,
    begin: Option<Time>,
    sequence: u64,
    cpu: u64,
    flags: u64,
    thread: u64,
    depth: u32,
}

impl Head {
    fn of(packet: &Packet<'_>) -> Self {
        let info = packet.info();
        let field = |name| {
            packet
                .field(name)
                .and_then(|value| value.as_u64())
                .unwrap_or(0)
        };
        Self {
            number: info.number,
            begin: packet.begin_ns().map(Time),
            sequence: info.seq_num.unwrap_or(0),
            cpu: info.cpu_id.unwrap_or(0),
            flags: field("flags"),
            thread: field("thread"),
            depth: u32::try_from(field("isr_depth")).unwrap_or(0),
        }
    }
}
