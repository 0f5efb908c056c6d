//! Decoder of one stream: packets, their events, and the losses between them.

mod fast_events;
mod frame;
mod packet;
mod show;
mod skip;
mod view;

use std::cell::Cell;
use std::io::Read;
use std::sync::Arc;

use fast_events::Batch;
pub(super) use frame::{Frames, Next};
use packet::Previous;
pub use skip::{Resume, Skipped};
pub(super) use view::View;

use super::bits::{Cursor, Stop};
use super::event::{Event, Events, Gap, Packet};
use super::trace::Source;
use super::walk::{Sink, Walk};
use super::window::{Shortage, Window};
use crate::error::{DecodeError, DecodeErrorKind as Kind};
use crate::metadata::{Clock, Role, Scope, Uuid};
use crate::plan::header_table::Parts;
use crate::plan::{IntegerNode, Plan};

/// Chunk size in bytes of a reader that is used on its own.
pub(super) const CHUNK: usize = 256 << 10;

/// One message of a stream. It borrows from the reader until the next call.
#[derive(Debug, Clone, Copy)]
pub enum Message<'a> {
    /// A packet begins.
    Packet(Packet<'a>),
    /// A loss before the next packet.
    Gap(Gap),
    /// An event.
    Event(Event<'a>),
}

/// The next messages of a stream: one message, or all events at once that are known to be consecutive. It borrows from
/// the reader until the next call.
#[derive(Debug, Clone, Copy)]
pub enum Run<'a> {
    /// A packet begins.
    Packet(Packet<'a>),
    /// A loss before the next packet.
    Gap(Gap),
    /// Consecutive events of one packet, at least one.
    Events(Events<'a>),
}

/// The next message that is not an event.
#[derive(Debug, Clone, Copy)]
enum Step {
    Packet,
    Gap(Gap),
}

/// A decoded event. Positions are in bits: that of the event from the start of the packet, those of its parts from the
/// start of the event (an event fits into memory, so 32 bits suffice).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EventRecord {
    /// The time in nanoseconds, or [`NO_TIME`].
    pub time: i64,
    /// The clock value, in streams that have a clock.
    pub ticks: u64,
    pub start: u64,
    /// Its class, and the positions of its contexts and payload.
    pub parts: Parts,
    pub end: u32,
    /// Padding before it that counts as part of it, in bits.
    pub padding: u16,
    /// The number of its header entry, or [`NO_ENTRY`].
    pub lead: u16,
}

/// Marks an event decoded by the walk.
const NO_ENTRY: u16 = u16::MAX;

/// Marks an event without a time (no clock, or one that cannot be converted): merging returns it at once.
pub(super) const NO_TIME: i64 = i64::MIN;

/// Values of the fields with roles.
#[derive(Debug, Clone, Copy, Default)]
struct Roles {
    magic: Option<u64>,
    stream_id: Option<u64>,
    stream_instance: Option<u64>,
    packet_size: Option<u64>,
    content_size: Option<u64>,
    begin: Option<u64>,
    end: Option<u64>,
    discarded: Option<u64>,
    sequence: Option<u64>,
    cpu: Option<u64>,
    event_id: Option<u64>,
}

/// Extracts times, ids and sizes from a walk.
struct Decode<'s> {
    clocks: &'s mut [u64],
    roles: Roles,
    /// The UUID of the trace, and whether a packet header had another one.
    uuid: Option<Uuid>,
    foreign: bool,
    /// Whether times may step back.
    steps_back: bool,
}

impl<'a> Sink<'a> for Decode<'_> {
    const FIELDS: bool = false;

    #[inline]
    fn integer(&mut self, _: &'a str, node: &'a IntegerNode, value: u64, size: u32) {
        let class = &node.class;
        if let Some(role) = class.role {
            let roles = &mut self.roles;
            let place = match role {
                Role::Magic => &mut roles.magic,
                Role::StreamId => &mut roles.stream_id,
                Role::StreamInstanceId => &mut roles.stream_instance,
                Role::PacketSize => &mut roles.packet_size,
                Role::ContentSize => &mut roles.content_size,
                Role::TimestampBegin => &mut roles.begin,
                Role::TimestampEnd => &mut roles.end,
                Role::EventsDiscarded => &mut roles.discarded,
                Role::PacketSeqNum => &mut roles.sequence,
                Role::CpuId => &mut roles.cpu,
                Role::EventId => &mut roles.event_id,
            };
            *place = Some(value);
            if role == Role::TimestampEnd {
                return;
            }
        }
        if let Some(clock) = class.clock
            && let Some(clock) = self.clocks.get_mut(clock.0 as usize)
        {
            let next = if self.steps_back {
                Clock::approach
            } else {
                Clock::follow
            };
            *clock = next(*clock, value, size);
        }
    }

    fn uuid(&mut self, bytes: &'a [u8]) {
        self.foreign |= self.uuid.is_some_and(|uuid| uuid.0 != *bytes);
    }
}

/// Reads one stream of packets.
///
/// Memory does not grow with the stream: the reader holds one chunk, or a whole event if that is larger.
#[derive(Debug)]
pub struct StreamReader {
    /// The current packet, and the part of the stream in memory.
    view: View,
    /// State of the open packet: position of the next event (0 before its head is decoded), and end of the content
    /// (`u64::MAX`: the end of the stream).
    open: bool,
    at: u64,
    content_end: u64,
    /// Position in the packet where the stream ends, once known.
    data_end: Option<u64>,
    /// Number of events of this packet returned so far.
    events: u64,
    /// Number of packets begun.
    packets: u64,
    clocks: Vec<u64>,
    /// Clock values before the current event, restored if it has to be decoded again.
    saved: Vec<u64>,
    batch: Batch,
    /// The next message, if it is not in the batch.
    pending: Option<Step>,
    previous: Vec<Previous>,
    /// Losses to report before the events of the packet.
    gaps: [Option<Gap>; 2],
    /// Discarded events to report behind those of the packet, and whether they are reported before them instead.
    behind: Option<Gap>,
    counts_before: bool,
    /// The stream's further files, and the number of the current one.
    following: std::vec::IntoIter<Source>,
    file: u32,
    /// Whether no packet of the current file has been read: neither one that the file before it has, nor another.
    begins_file: bool,
    announce: bool,
    /// Set after an error: nothing follows unless the damage is [skipped](Self::skip).
    failed: bool,
    /// The error that ended the stream, until it is skipped.
    error: Option<DecodeError>,
    /// Whether packets with the UUID of another trace are errors.
    refuse_foreign: bool,
}

impl StreamReader {
    /// Creates a reader of the packets in `input`.
    #[must_use]
    pub fn new(plan: Arc<Plan>, input: impl Read + Send + 'static) -> Self {
        Self::of(plan, Box::new(input))
    }

    /// As `new`, for a boxed input.
    pub(crate) fn of(plan: Arc<Plan>, input: Box<dyn Read + Send>) -> Self {
        Self::with_chunk(plan, input, CHUNK)
    }

    pub(super) fn with_chunk(plan: Arc<Plan>, input: Box<dyn Read + Send>, chunk: usize) -> Self {
        let clocks = vec![0; plan.metadata().clocks.len()];
        Self {
            view: View::new(plan, Window::new(input, chunk)),
            open: false,
            at: 0,
            content_end: 0,
            data_end: None,
            events: 0,
            packets: 0,
            saved: clocks.clone(),
            clocks,
            batch: Batch::new(),
            pending: None,
            previous: Vec::new(),
            gaps: [None; 2],
            behind: None,
            counts_before: false,
            following: Vec::new().into_iter(),
            file: 0,
            begins_file: false,
            announce: false,
            failed: false,
            error: None,
            refuse_foreign: false,
        }
    }

    /// Reports discarded events before the packet that counts them: Kymo's recorder counts them at the begin of a packet,
    /// while most tracers do at its end.
    #[must_use]
    pub const fn counting_before(mut self) -> Self {
        self.counts_before = true;
        self
    }

    /// Sets the files that follow.
    pub(super) fn followed_by(mut self, files: Vec<Source>) -> Self {
        self.following = files.into_iter();
        self
    }

    /// Sets whether a packet with the UUID of another trace is an error: it is if other streams have the right one.
    pub(super) fn refuse_foreign(&mut self, refuse: bool) {
        self.refuse_foreign = refuse;
    }

    /// Returns the next message, `None` at the end of the stream.
    ///
    /// # Errors
    /// The error in the next packet or event. Nothing follows an error, unless the damage is [skipped](Self::skip).
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, DecodeError> {
        Ok(match self.ready()? {
            Some(_) => self.take_one(),
            None => None,
        })
    }

    /// As [`next_message`](Self::next_message), but returns all decoded events at once: the fastest way to read a
    /// stream.
    ///
    /// ```
    /// # use kymo_ctf::{DecodeError, Run, StreamReader};
    /// /// Number of events of each class.
    /// fn count(reader: &mut StreamReader) -> Result<Vec<u64>, DecodeError> {
    ///     let mut counts = Vec::new();
    ///     while let Some(run) = reader.next_run()? {
    ///         if let Run::Events(events) = run {
    ///             for event in events {
    ///                 let class = event.class_index();
    ///                 counts.resize(counts.len().max(class + 1), 0);
    ///                 counts[class] += 1;
    ///             }
    ///         }
    ///     }
    ///     Ok(counts)
    /// }
    /// # let plan = kymo_ctf::Plan::new(kymo_ctf::metadata::Metadata::new(kymo_ctf::metadata::ByteOrder::Little)).unwrap();
    /// # assert_eq!(count(&mut StreamReader::new(plan.into(), std::io::empty())), Ok(vec![]));
    /// ```
    ///
    /// # Errors
    /// Those of [`next_message`](Self::next_message).
    pub fn next_run(&mut self) -> Result<Option<Run<'_>>, DecodeError> {
        Ok(match self.ready()? {
            Some(_) => self.take(i64::MAX),
            None => None,
        })
    }

    /// Continues after the end of the stream, because more data may have arrived since. It applies to an end between
    /// packets, for programs that follow a trace while it is written. An end in the middle of a packet is an error, and
    /// remains one.
    pub fn go_on(&mut self) {
        self.view.window.go_on();
    }

    /// Finds the next message and returns its time in nanoseconds ([`NO_TIME`] if it has none), by which streams are
    /// merged; `None` at the end of the stream.
    #[inline(always)]
    pub(super) fn ready(&mut self) -> Result<Option<i64>, DecodeError> {
        match self.batch.next_time() {
            Some(time) => Ok(Some(time)),
            None => self.find_next(),
        }
    }

    /// The time of the next event, if it has been decoded.
    #[inline(always)]
    pub(super) fn next_time(&self) -> Option<i64> {
        self.batch.next_time()
    }

    /// Returns the message found by [`ready`](Self::ready), with following events whose time is not later than `limit`.
    #[inline(always)]
    pub(super) fn take(&mut self, limit: i64) -> Option<Run<'_>> {
        let Some(range) = self.batch.take(limit) else {
            return Some(match self.pending.take()? {
                Step::Packet => Run::Packet(Packet { view: &self.view }),
                Step::Gap(gap) => Run::Gap(gap),
            });
        };
        let first = self.events;
        self.events += range.len() as u64;
        let records = self.batch.records(range);
        Some(Run::Events(Events::new(&self.view, records, first)))
    }

    /// Returns the message found by [`ready`](Self::ready).
    #[inline(always)]
    pub(super) fn take_one(&mut self) -> Option<Message<'_>> {
        let Some(index) = self.batch.take_one() else {
            return Some(match self.pending.take()? {
                Step::Packet => Message::Packet(Packet { view: &self.view }),
                Step::Gap(gap) => Message::Gap(gap),
            });
        };
        self.events += 1;
        let record = self.batch.record(index)?;
        Some(Message::Event(Event::new(
            &self.view,
            record,
            self.events - 1,
        )))
    }

    #[inline(never)]
    fn find_next(&mut self) -> Result<Option<i64>, DecodeError> {
        if self.failed {
            return Ok(None);
        }
        if self.pending.is_none() {
            if self.open && !self.announce && self.decode_batch() {
                return Ok(self.batch.next_time());
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    (self.error, self.failed) = (Some(error), true);
                    return Err(error);
                }
            }
        }
        Ok(Some(match &self.pending {
            Some(step) => self.time(step).unwrap_or(NO_TIME),
            None => self.batch.next_time().unwrap_or(NO_TIME),
        }))
    }

    /// Finds the next message by the walk: either pending, or an event, alone in the batch. `false` at the end.
    fn step(&mut self) -> Result<bool, DecodeError> {
        loop {
            if let Some(gap) = self.gaps.iter_mut().find_map(Option::take) {
                self.pending = Some(Step::Gap(gap));
                return Ok(true);
            }
            if std::mem::take(&mut self.announce) {
                self.pending = Some(Step::Packet);
                return Ok(true);
            }
            if self.open {
                let found = self.next_event();
                if let Ok(true) = found {
                    return Ok(true);
                }
                if let Some(gap) = self.discarded() {
                    self.pending = Some(Step::Gap(gap));
                    return Ok(true);
                }
                found?;
                self.close_packet()?;
            }
            if !self.open_packet()? && !self.next_file()? {
                return Ok(false);
            }
        }
    }

    /// Begins the next file of the stream; `false` if there is none.
    fn next_file(&mut self) -> Result<bool, DecodeError> {
        let Some(source) = self.following.next() else {
            return Ok(false);
        };
        self.file += 1;
        self.begins_file = true;
        self.view.packet.offset = 0;
        self.view.packet.size = Some(0);
        let input = source.open();
        let input = input.map_err(|error| self.error(Kind::Io(error.kind()), 0))?;
        self.view.window.begin(input);
        Ok(true)
    }

    /// The merge time of a message that is not an event, in nanoseconds.
    fn time(&self, step: &Step) -> Option<i64> {
        let ticks = match step {
            Step::Packet => self.view.packet.begin_ticks,
            Step::Gap(gap) => gap.from_ticks.or(self.view.packet.begin_ticks),
        };
        self.view.clock()?.nanoseconds(ticks?)
    }

    fn error(&self, kind: Kind, at: u64) -> DecodeError {
        let offset = self.view.packet.offset.saturating_mul(8).saturating_add(at);
        DecodeError {
            kind,
            offset,
            file: self.file,
            packet: self.packets.saturating_sub(1),
            event: self.events,
        }
    }

    /// The end of decoding: of the content or of the stream.
    fn limit(&self) -> u64 {
        self.content_end.min(self.data_end.unwrap_or(u64::MAX))
    }

    /// Reads the bytes up to bit `upto` of the packet, keeping those from bit `keep` on, or records that the stream
    /// ends before.
    fn fill(&mut self, keep: u64, upto: u64) -> Result<(), DecodeError> {
        let first = self.view.packet.offset + keep / 8;
        let behind = self.view.packet.offset.saturating_add(upto.div_ceil(8));
        match self.view.window.fill(first, behind) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.data_end = Some(
                    self.view
                        .window
                        .end()
                        .saturating_sub(self.view.packet.offset)
                        .saturating_mul(8),
                );
                Ok(())
            }
            Err(Shortage::Io(kind)) => Err(self.error(Kind::Io(kind), keep)),
            Err(Shortage::TooLarge(limit)) => Err(self.error(Kind::TooLarge { limit }, keep)),
        }
    }

    /// Converts the error of a walk. Reaching beyond the content is reported as truncation if the stream ends early.
    fn fault(&self, kind: Kind, at: u64) -> DecodeError {
        match (kind, self.data_end) {
            (Kind::BeyondContent { .. }, Some(end))
                if end < self.content_end && self.content_end != u64::MAX =>
            {
                self.error(
                    Kind::Truncated {
                        missing: self.content_end - end,
                    },
                    end,
                )
            }
            _ => self.error(kind, at),
        }
    }

    /// Decodes the next event of the packet; `false` when there is none.
    fn next_event(&mut self) -> Result<bool, DecodeError> {
        self.saved.copy_from_slice(&self.clocks);
        if self.content_end == u64::MAX && self.data_end.is_none() {
            // Such a packet ends with the stream: check whether that ends here.
            self.fill(self.at, self.at.saturating_add(1))?;
        }
        loop {
            if self.at >= self.limit() {
                if let Some(end) = self
                    .data_end
                    .filter(|end| *end < self.content_end && self.content_end != u64::MAX)
                {
                    return Err(self.error(
                        Kind::Truncated {
                            missing: self.content_end - end,
                        },
                        end,
                    ));
                }
                return Ok(false);
            }
            match self.decode_event() {
                Ok(()) => return Ok(true),
                Err(Stop::Fault(kind, at)) => return Err(self.fault(kind, at)),
                Err(Stop::More(upto)) => {
                    self.clocks.copy_from_slice(&self.saved);
                    self.fill(self.at, upto)?;
                }
            }
        }
    }

    fn decode_event(&mut self) -> Result<(), Stop> {
        let plan: &Plan = &self.view.plan;
        let Some(stream) = plan.streams.get(self.view.packet.stream_class) else {
            return Ok(());
        };
        let (bytes, first) = self.view.window.from(self.view.packet.offset);
        let origin = (first - self.view.packet.offset) * 8;
        let limit = self.content_end.min(self.data_end.unwrap_or(u64::MAX));
        let mut cursor = Cursor::new(bytes, origin, self.at, limit, plan.mixed);
        let mut decode = Decode {
            clocks: &mut self.clocks,
            roles: Roles::default(),
            uuid: plan.metadata.uuid,
            foreign: false,
            steps_back: stream.steps_back,
        };
        let mut walk = Walk {
            plan,
            slots: &self.view.slots,
            scope: Scope::EventHeader,
            empties: Cell::new(0),
        };
        let start = cursor.at;
        if let Some(program) = stream.event_header {
            walk.node(program.skip, "", &mut cursor, &mut decode)?;
        }
        let (mut ticks, mut time) = (0, NO_TIME);
        if let Some(clock) = stream.clock {
            ticks = decode.clocks.get(clock.0 as usize).copied().unwrap_or(0);
            let clock = plan.metadata.clocks.get(clock.0 as usize);
            time = clock
                .and_then(|clock| clock.nanoseconds(ticks))
                .unwrap_or(NO_TIME);
        }
        let class = match decode.roles.event_id {
            Some(id) => stream.event(id),
            None => (!stream.events.is_empty()).then_some(0),
        }
        .ok_or_else(|| {
            let found = decode.roles.event_id.unwrap_or(0);
            Stop::Fault(Kind::UnknownEvent { found }, start)
        })?;
        let stream_context = cursor.at;
        if let Some(program) = stream.event_context {
            walk.scope = Scope::StreamEventContext;
            walk.node(program.skip, "", &mut cursor, &mut decode)?;
        }
        let mut own = [cursor.at; 2];
        if let Some(event) = stream.events.get(class) {
            if let Some(program) = event.context {
                walk.scope = Scope::EventContext;
                walk.node(program.skip, "", &mut cursor, &mut decode)?;
            }
            own[1] = cursor.at;
            if let Some(program) = event.fields {
                walk.scope = Scope::EventFields;
                walk.node(program.skip, "", &mut cursor, &mut decode)?;
            }
        }
        let end = cursor.at;
        if end == start {
            return Err(Stop::Fault(Kind::EmptyEvent, start));
        }
        // An event fits into memory, so 32 bits suffice for its positions.
        let within = |at: u64| u32::try_from(at - start).unwrap_or(u32::MAX);
        self.batch.hold(EventRecord {
            time,
            ticks,
            start,
            parts: Parts {
                class: u32::try_from(class).unwrap_or(u32::MAX),
                starts: [stream_context, own[0], own[1]].map(within),
            },
            end: within(end),
            padding: 0,
            lead: NO_ENTRY,
        });
        self.at = end;
        Ok(())
    }
}
