//! Incremental reader: decodes packets as they arrive (`kymo show --follow`).
//!
//! Each stream's packets go through the same reader as those of a complete recording, except that
//! the end of the packets is temporary. The streams are merged by time on a best-effort basis: an
//! event is delayed until every other stream has a later one, until the others are so far behind
//! that they probably have no events, or until the caller requests all events.
//!
//! Processors whose clocks differ are ordered by the wall-clock records received so far
//! ([`clocks`](super::clocks)). Events already returned stay as they were. Later wall-clock records change a
//! clock's correction only if the difference exceeds their uncertainty.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use kymo_ctf::Plan;
use kymo_ctf::metadata::Metadata;
use kymo_event::{Batch, Event, Moment, SpaceKind, StreamId, Time, TraceInfo, WallClock};
use kymo_wire::event::{Layout, METADATA_STREAM, PacketHeader};
use kymo_wire::packet::EVENT_STREAM;

use super::Identity;
use super::clock_checks::keep;
use super::clocks::{Clocks, Correction, Moments};
use super::describe::{Description, Unusable, check_version};
use super::feed::{Notes, PacketNote};
use super::marker_names::MarkerNames;
use super::names::Facts;
use super::packets::{Damaged, Packet, Piece, Pieces};
use super::quick_check::QuickCheck;
use super::record::Newest;
use super::source::{First, stream_info, take_origin};
use super::stream::{RINGS, Stream};
use super::streams::{StreamKind, StreamNumber};
use super::whole_calls::Splitter;
use super::write::{Program, metadata_text};
use crate::dialects::kymo::Dialect;
use crate::source::add_damage;
use crate::{Declarations, OpenError, OpenOptions};
use queue::{Feed, Queue};

mod queue;

/// Maximum lag of a stream behind the newest packet of all streams, in nanoseconds; streams further
/// behind are no longer waited for. Several times the delay after which a target sends a partly filled packet.
const PATIENCE: i64 = 500_000_000;

/// Reader of packets that are still arriving.
#[derive(Debug)]
pub struct Live {
    plan: Arc<Plan>,
    dialect: Dialect,
    info: TraceInfo,
    /// The program's event declarations in the metadata.
    declared: Declarations,
    parts: Vec<Part>,
    /// The index of each part in `parts`, by its kind and key.
    places: HashMap<(StreamKind, (u8, u16)), usize>,
    /// The parts that have a next event, in the order of these events.
    order: BinaryHeap<Reverse<(Time, usize)>>,
    /// The parts without a decoded event that have unread packets.
    hungry: Vec<usize>,
    /// Events of the packet of names; they have no times, so they are not merged.
    names: VecDeque<Event>,
    /// The stream of the packet of names, once one has arrived.
    names_stream: Option<StreamId>,
    /// Number of events of that packet already returned: the target sends it again when it has grown.
    names_given: usize,
    /// Reader of packets of names, where each is sent only once.
    names_reader: Option<NamesReader>,
    /// The latest end of any packet.
    newest: Time,
    /// Splits calls into entries and exits, once there are packets that record a call as one record.
    calls: Option<Splitter>,
    /// Output buffer of `calls`.
    split: Batch,
    /// Whether all packets have arrived.
    is_over: bool,
    /// Whether packets may be repeated after a reconnect.
    may_repeat: bool,
    /// The stream of the last packet.
    current: Option<usize>,
    /// Limits on waiting for other streams, instead of [`PATIENCE`].
    bounds: Option<Bounds>,
    /// The offset in the input of the newest packet of all streams.
    newest_offset: usize,
}

/// Limits on waiting for other streams when reading from a pipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The number of streams expected.
    pub(super) streams: usize,
    /// An event is delayed until this many bytes have arrived after its packet.
    pub(super) bytes: usize,
}

/// State of one stream.
#[derive(Debug)]
struct Part {
    kind: StreamKind,
    /// The `stream_id` and `cpu_id` of its packets.
    key: (u8, u16),
    newest: Newest,
    queue: Queue,
    notes: Notes,
    stream: Stream,
    head: Option<Event>,
    /// The stream's wall-clock records.
    moments: Moments,
    /// Correction applied to the stream's times.
    correction: Option<Correction>,
    /// Whether packets may be unread: set when one arrives, cleared when the stream has no further event.
    fed: bool,
    /// Number of packets received.
    packets: u64,
}

/// Reader of packets of names, and the facts read so far.
#[derive(Debug)]
struct NamesReader {
    queue: Queue,
    stream: Stream,
    facts: Facts,
}

impl NamesReader {
    fn new(plan: &Arc<Plan>, id: StreamId) -> Self {
        let (queue, notes) = (Queue::default(), Notes::default());
        let feed = Feed::new(&queue, &notes);
        Self {
            queue,
            stream: Stream::over(plan, id, StreamKind::Metadata, feed, notes),
            facts: Facts::default(),
        }
    }
}

impl Live {
    /// Creates a reader for a target with this identity. `origin` is the time of tick 0 of its clock, in
    /// nanoseconds since 1970 in UTC, if known.
    ///
    /// # Errors
    /// [`OpenError::Identity`] if the identity is not valid for a recording; `name` is for the message.
    pub fn of_target(
        identity: &Identity,
        name: &str,
        origin: Option<i64>,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let described = || {
            check_version(identity.protocol, Some(identity.layout.shape))?;
            let mut text = metadata_text(identity, "", origin, &Program::default(), true);
            MarkerNames::default().write(&mut text);
            let parsed = Metadata::parse(text.as_bytes()).map_err(|error| error.to_string())?;
            Self::described(parsed.metadata, options)
        };
        described().map_err(|why: Unusable| why.of_identity(name.into()))
    }

    pub(super) fn described(
        mut metadata: Metadata,
        options: &OpenOptions,
    ) -> Result<Self, Unusable> {
        let origin = take_origin(&mut metadata).map(|unix_ns| Moment {
            time: Time(0),
            unix_ns,
        });
        let plan = Plan::new(metadata).map_err(|error| error.to_string())?;
        let description = Description::new(plan.metadata(), options.wanted)?;
        Ok(Self {
            info: TraceInfo {
                wall_clock: WallClock::new(origin),
                ..description.info()
            },
            plan: Arc::new(plan),
            declared: description.declared,
            dialect: description.dialect,
            parts: Vec::new(),
            places: HashMap::new(),
            order: BinaryHeap::new(),
            hungry: Vec::new(),
            names: VecDeque::new(),
            names_stream: None,
            names_given: 0,
            names_reader: None,
            newest: Time(0),
            calls: None,
            is_over: false,
            split: Batch::default(),
            may_repeat: true,
            current: None,
            bounds: None,
            newest_offset: 0,
        })
    }

    /// Disables the detection of repeated packets, for inputs where each packet occurs once.
    pub(super) fn once(self) -> Self {
        Self {
            may_repeat: false,
            ..self
        }
    }

    /// Limits waiting for other streams by these bounds.
    pub(super) fn within(self, bounds: Bounds) -> Self {
        Self {
            bounds: Some(bounds),
            ..self
        }
    }

    /// Facts about the trace so far.
    pub const fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Facts about the trace, for callers that add to them.
    pub(super) const fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    /// The layout of the packets.
    pub const fn layout(&self) -> Layout {
        self.dialect.layout
    }

    /// Adds a packet. Repeated packets (after a reconnect) are ignored. An unreadable packet is reported as
    /// [damage](TraceInfo::damage); its sequence number will be missing.
    pub fn push(&mut self, packet: Vec<u8>) {
        let layout = self.dialect.layout;
        let whole = match Pieces::new(layout, &packet, &[]).next() {
            Some(Piece::Packet(whole @ Packet { cut: None, .. })) => Ok(whole),
            Some(Piece::Packet(Packet { cut: Some(cut), .. }) | Piece::Damage(cut)) => {
                Err(cut.fault.to_string())
            }
            None => return,
        };
        let whole = match whole {
            Ok(whole) => whole,
            Err(message) => {
                self.info.add_damage(kymo_event::Damage {
                    stream: "link".to_owned(),
                    offset: 0,
                    message,
                });
                return;
            }
        };
        self.push_whole(whole, packet, None, Vec::new());
    }

    /// Adds a packet that is valid or was repaired, and the damage before it.
    pub(super) fn push_whole(
        &mut self,
        whole: Packet,
        packet: Vec<u8>,
        note: Option<PacketNote>,
        damaged: Vec<Damaged>,
    ) {
        let header = whole.header;
        if header.cpu == METADATA_STREAM {
            self.take_names(packet);
            return self.left_out(damaged);
        }
        let hz = self.dialect.clock_hz;
        let end = u128::from(header.end) * 1_000_000_000 / u128::from(hz.max(1));
        let end = Time(i64::try_from(end).unwrap_or(i64::MAX));
        if header.flags & PacketHeader::FLAG_CALLS != 0 {
            let wanted = self.dialect.wanted;
            self.calls.get_or_insert_with(|| Splitter::new(wanted));
        }
        let kind = StreamKind::of_file("", Some(&header));
        let index = self.part(kind, &header);
        self.look_for_moments(index, whole, &packet, end);
        let correction = self
            .parts
            .get(index)
            .and_then(|part| part.correction.as_ref());
        let end = correction.map_or(end, |correction| correction.apply(end));
        self.newest = self.newest.max(end);
        self.current = Some(index);
        if let Some(note) = &note {
            self.newest_offset = self.newest_offset.max(note.offset);
        }
        if let Some(part) = self.parts.get_mut(index)
            && !(self.may_repeat && part.newest.has(&header))
        {
            part.newest.add(&header);
            for damaged in damaged {
                part.notes.left_out(part.packets, damaged);
            }
            part.packets += 1;
            part.queue.push((packet, note));
            if !std::mem::replace(&mut part.fed, true) && part.head.is_none() {
                self.hungry.push(index);
            }
        }
    }

    /// Ends the input, which has `bytes` bytes; `damaged` is the damage after the last packet.
    pub(super) fn end(&mut self, damaged: Vec<Damaged>, bytes: usize) {
        self.finish();
        for part in &mut self.parts {
            part.stream.end_at(bytes);
        }
        self.left_out(damaged);
    }

    /// Declares that all packets have arrived.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// Reports the damage after the last packet.
    fn left_out(&mut self, damaged: Vec<Damaged>) {
        let current = self.current.and_then(|index| self.parts.get_mut(index));
        let Some(part) = current else {
            for Damaged { bytes, fault } in damaged {
                self.info.add_damage(kymo_event::Damage {
                    stream: StreamKind::Cpu.file_name(0),
                    offset: bytes.start as u64,
                    message: fault.to_string(),
                });
            }
            return;
        };
        if damaged.is_empty() {
            return;
        }
        for damaged in damaged {
            part.notes.left_out(part.packets, damaged);
        }
        if !std::mem::replace(&mut part.fed, true)
            && part.head.is_none()
            && let Some(index) = self.current
        {
            self.hungry.push(index);
        }
    }

    /// Collects the wall-clock records of a packet that ends at `end`; if there are any, compares the
    /// clocks again.
    fn look_for_moments(&mut self, index: usize, packet: Packet, bytes: &[u8], end: Time) {
        let Some(clock) = self.plan.metadata().clocks.first() else {
            return;
        };
        let layout = self.dialect.layout;
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        if part.kind != StreamKind::Cpu || part.newest.has(&packet.header) {
            return;
        }
        let check = QuickCheck::new(layout);
        let (found, _) = Moments::find(&check, bytes, &mut std::iter::once(packet), clock);
        if found.is_empty() {
            return;
        }
        part.moments.append(found);
        let streams = self.parts.iter();
        let streams = streams.map(|part| (part.kind, part.key.1, part.moments.clone()));
        let mut clocks = Clocks::compare(&streams.collect::<Vec<_>>());
        clocks.follow(self.parts.iter().map(|part| {
            let cpu = u32::from(part.key.1) % RINGS;
            let leads =
                |other: &Part| other.kind == StreamKind::Cpu && u32::from(other.key.1) == cpu;
            // A processor's items use its clock.
            (part.kind == StreamKind::Items).then(|| self.parts.iter().position(leads))?
        }));
        self.info.wall_clock = self.info.wall_clock.take().or(clocks.wall);
        let worth = clocks
            .printed
            .iter()
            .map(|printed| printed.uncertainty_ns)
            .max();
        let worth = worth.unwrap_or(0);
        for (part, correction) in self.parts.iter_mut().zip(clocks.corrections) {
            let Some(correction) = correction else {
                continue;
            };
            let at = |correction: &Correction| correction.apply(end).0;
            let known = part.correction.as_ref();
            if known.is_none_or(|known| at(known).abs_diff(at(&correction)) > worth) {
                part.stream.correct(correction.clone());
                part.correction = Some(correction);
                self.info.clock_corrections.clone_from(&clocks.printed);
            }
        }
    }

    /// The index of a packet's stream in `parts`; adds new streams.
    fn part(&mut self, kind: StreamKind, header: &PacketHeader) -> usize {
        let (number, key) = (header.cpu, (header.stream, header.cpu));
        if let Some(index) = self.places.get(&(kind, key)) {
            return *index;
        }
        let name = kind.file_name(number);
        let first = First {
            number: StreamNumber::of(header),
            flags: header.flags,
            thread: header.thread,
        };
        let id = self.add_stream(name, kind, &first);
        let (queue, notes) = (Queue::default(), Notes::default());
        let feed = Feed::new(&queue, &notes);
        self.parts.push(Part {
            kind,
            key,
            newest: Newest::default(),
            queue,
            stream: Stream::over(&self.plan, id, kind, feed, notes.clone()),
            notes,
            packets: 0,
            head: None,
            moments: Moments::default(),
            correction: None,
            fed: false,
        });
        let index = self.parts.len() - 1;
        self.places.insert((kind, key), index);
        index
    }

    /// Adds a stream to the trace.
    fn add_stream(&mut self, name: String, kind: StreamKind, first: &First) -> StreamId {
        let identities = &mut self.info.identities;
        let info = stream_info(&self.dialect, identities, name, kind, first);
        if kind == StreamKind::Thread
            && let Some(space) = identities.space_mut(self.dialect.space)
        {
            space.kind = SpaceKind::Process;
            self.info.wall_times = true;
        }
        self.info.streams.push(info);
        let last = self.info.streams.len() - 1;
        StreamId(u32::try_from(last).unwrap_or(u32::MAX))
    }

    /// The stream of names.
    fn names_stream(&mut self) -> StreamId {
        if let Some(id) = self.names_stream {
            return id;
        }
        let kind = StreamKind::Metadata;
        let first = First {
            number: StreamNumber {
                cpu: METADATA_STREAM,
                stream: EVENT_STREAM,
            },
            flags: 0,
            thread: 0,
        };
        let id = self.add_stream(kind.file_name(METADATA_STREAM), kind, &first);
        self.names_stream = Some(id);
        id
    }

    /// Adds a packet of names. A target's packet holds all earlier names, followed by the new ones.
    fn take_names(&mut self, packet: Vec<u8>) {
        let id = self.names_stream();
        let mut reader = match self.names_reader.take() {
            Some(reader) => reader,
            None => NamesReader::new(&self.plan, id),
        };
        reader.queue.push((packet, None));
        reader.stream.go_on();
        let (names, mut count) = (&mut self.names, 0);
        let given = match self.may_repeat {
            true => self.names_given,
            false => 0,
        };
        let each = |event| {
            count += 1;
            if count > given {
                names.push_back(event);
            }
        };
        let NamesReader { stream, facts, .. } = &mut reader;
        let moved = facts.read(&mut self.info, stream, &self.dialect, each);
        self.names_given = self.names_given.max(count);
        let checks = facts.checks();
        keep(&mut self.info, checks.checks(self.dialect.clock_hz, 0));
        checks.remark(&mut self.info);
        if let Some(moved) = moved {
            self.dialect.moved = moved;
        }
        if !self.may_repeat {
            self.names_reader = Some(reader);
        }
    }

    /// Returns the next event; `None` if none is available now. With `all`, also returns events that
    /// are delayed for merging with slower streams.
    pub fn next(&mut self, all: bool) -> Option<Event> {
        let mut event = self.next_as_recorded(all)?;
        self.declared.describe(&mut event);
        Some(event)
    }

    fn next_as_recorded(&mut self, all: bool) -> Option<Event> {
        if let Some(event) = self.names.pop_front() {
            return Some(event);
        }
        loop {
            let next = self.merge(all);
            let Some(calls) = &mut self.calls else {
                return next;
            };
            match next {
                Some(event) => {
                    self.split.clear();
                    self.split.push_event(event);
                    self.split.iter().for_each(|event| calls.take(event));
                }
                None => break,
            }
        }
        // A caller's record follows those of its callees; waiting for it is limited as for streams.
        let calls = self.calls.as_mut()?;
        if self.is_over && all {
            calls.end();
        }
        let Some(next) = calls.next_time() else {
            calls.remark(&mut self.info);
            return None;
        };
        if !all && self.newest.0.saturating_sub(next.0) < PATIENCE {
            return None;
        }
        self.split.clear();
        calls.give(&mut self.info, &mut self.split);
        self.split.get(0).map(|event| event.to_event())
    }

    /// The next event of all streams, with calls as single events.
    fn merge(&mut self, all: bool) -> Option<Event> {
        while let Some(index) = self.hungry.pop() {
            let Some(part) = self.parts.get_mut(index) else {
                continue;
            };
            part.stream.go_on();
            let TraceInfo {
                identities,
                damage,
                more_damage,
                ..
            } = &mut self.info;
            part.head = part
                .stream
                .next(&self.dialect, identities, &mut |offset, message| {
                    let stream = part.kind.file_name(part.key.1);
                    add_damage(damage, more_damage, &stream, offset, message);
                });
            // After one event, there may be more.
            part.fed = part.head.is_some();
            if let Some(event) = &part.head {
                self.order.push(Reverse((event.time, index)));
            }
        }
        let Reverse((time, index)) = *self.order.peek()?;
        let (streams, is_due) = match self.bounds {
            None => {
                let behind = self.newest.0.saturating_sub(time.0);
                (self.parts.len(), behind >= PATIENCE)
            }
            Some(Bounds { streams, bytes }) => {
                let packet = self.parts.get(index).map_or(0, |part| part.stream.offset());
                let behind = self.newest_offset.saturating_sub(packet);
                (self.parts.len().max(streams), behind > bytes)
            }
        };
        if self.order.len() < streams && !all && !is_due {
            return None;
        }
        self.order.pop();
        let part = self.parts.get_mut(index)?;
        if part.fed {
            self.hungry.push(index);
        }
        part.head.take()
    }
}
