//! Stream writer: packets of events that conform to given metadata.
//!
//! The metadata is a [`Metadata`](crate::metadata::Metadata), built by hand (see
//! [`standard`](crate::metadata::standard) for the usual headers) or parsed;
//! [`Metadata::to_tsdl`](crate::metadata::Metadata::to_tsdl) gives the text for the file `metadata`. The writer checks
//! values against it, so the output is always readable.

mod bits;
mod datum;
mod directory;
mod header;

use std::io::Write;
use std::sync::Arc;

use crate::error::{FieldError, WriteError};
use crate::metadata::{ByteOrder, FieldClass, Form, IntegerClass, Role, Scope};
use crate::plan::{IntegerNode, Node, NodeId, Plan, Program};
use bits::{Bits, MAX_VARIABLE, variable};
pub use datum::Datum;
use datum::{Encoder, in_form};
pub(crate) use datum::{Item, View};
pub use directory::{StreamFile, TraceWriter};
use header::{Selectors, check_context, stamp};

/// The magic number at the start of every packet.
const MAGIC: u64 = 0xc1fc_1fc1;

/// Writes one stream.
///
/// The writer holds a packet in memory until it ends, because its header states its size. When the packet is large
/// enough (see [`packet_size`](Self::packet_size)), end it and begin another one.
#[derive(Debug)]
pub struct StreamWriter<W> {
    plan: Arc<Plan>,
    class: usize,
    out: W,
    bits: Bits,
    open: bool,
    /// Fields of the packet context that are filled in when the packet ends: bit position and class.
    end: Option<Later>,
    content_size: Option<Later>,
    packet_size: Option<Later>,
    discarded: Option<Later>,
    /// A packet without a size has been written, so no other can follow it.
    endless: bool,
    sequence: u64,
    instance: u64,
    clocks: Vec<u64>,
    /// Clock values before the current event.
    saved: Vec<u64>,
    slots: Vec<Option<u64>>,
    last: Option<ByteOrder>,
    /// Selectors of the layouts of packet headers and event headers.
    packet_selectors: Selectors,
    event_selectors: Selectors,
    /// The clock that event headers record.
    stamp: Option<usize>,
    /// Readers may interpret its times as steps back.
    steps_back: bool,
    /// The id in the last event header.
    event_id: Option<u64>,
    /// Clock values before an attempt to encode a header.
    tried: Vec<u64>,
}

/// A field whose value is not yet known.
#[derive(Debug, Clone, Copy)]
struct Later {
    at: u64,
    class: IntegerClass,
}

/// Result of encoding a scope.
type Encoded = Result<(), FieldError>;

impl<W: Write> StreamWriter<W> {
    /// Creates a writer for a stream of the class at position `stream_class`.
    ///
    /// # Errors
    /// When there is no such class, or its packets have sizes or times at positions where they cannot be filled in.
    pub fn new(plan: Arc<Plan>, stream_class: usize, out: W) -> Result<Self, WriteError> {
        let Some(class) = plan.streams.get(stream_class) else {
            return Err(WriteError::NoClass {
                what: "stream class",
                index: stream_class,
            });
        };
        check_context(&plan, class.packet_context)?;
        let selectors = |program: Option<Program>| {
            program.map_or_else(Selectors::default, |it| Selectors::of(&plan, it.full))
        };
        let packet_selectors = selectors(plan.packet_header);
        let event_selectors = selectors(class.event_header);
        let stamped = |it: &Program| header::any(&plan, it.full, &|it| it.class.clock.is_some());
        let stamp = class.event_header.filter(stamped).and(class.clock);
        let stamp = stamp.map(|clock| clock.0 as usize);
        Ok(Self {
            class: stream_class,
            out,
            bits: Bits::default(),
            open: false,
            end: None,
            content_size: None,
            packet_size: None,
            discarded: None,
            endless: false,
            sequence: 0,
            instance: 0,
            clocks: vec![0; plan.metadata().clocks.len()],
            saved: vec![0; plan.metadata().clocks.len()],
            slots: vec![None; plan.slots],
            last: None,
            packet_selectors,
            event_selectors,
            stamp,
            steps_back: class.steps_back,
            event_id: None,
            tried: Vec::new(),
            plan,
        })
    }

    /// Sets the stream's number within its class, for packet headers that have a `stream_instance_id`.
    #[must_use]
    pub fn instance(mut self, instance: u64) -> Self {
        self.instance = instance;
        self
    }

    /// Counts packets as lost before the next one, so that readers see the gap.
    pub fn skip_packets(&mut self, count: u64) {
        self.sequence = self.sequence.wrapping_add(count);
    }

    /// Current size of the open packet, in bytes.
    #[must_use]
    pub fn packet_size(&self) -> u64 {
        self.bits.position().div_ceil(8)
    }

    /// Begins a packet at a time, in ticks of the stream's clock.
    ///
    /// `context` has the members of the packet context that the writer cannot fill in by itself, in order: those
    /// without a role, and the CPU.
    ///
    /// # Errors
    /// When a packet is open, when an earlier one has no size, or when a value does not suit its field.
    pub fn begin_packet(&mut self, ticks: u64, context: &[Datum<'_>]) -> Result<(), WriteError> {
        self.begin_packet_with(ticks, context.iter().copied())
    }

    /// As `begin_packet`, for values in any representation.
    pub(crate) fn begin_packet_with<'d, I: Item<'d>>(
        &mut self,
        ticks: u64,
        context: impl ExactSizeIterator<Item = I>,
    ) -> Result<(), WriteError> {
        if self.open {
            return Err(WriteError::Order(
                "a packet begins before the last one has ended",
            ));
        }
        if self.endless {
            return Err(WriteError::Order(
                "a packet begins behind one that has no size",
            ));
        }
        self.bits.clear();
        self.clocks.fill(0);
        (
            self.end,
            self.content_size,
            self.packet_size,
            self.discarded,
        ) = (None, None, None, None);
        self.last = None;
        self.packet_header().map_err(|error| WriteError::Field {
            scope: Scope::PacketHeader,
            error,
        })?;
        self.packet_context(ticks, context)
            .map_err(|error| WriteError::Field {
                scope: Scope::PacketContext,
                error,
            })?;
        self.open = true;
        Ok(())
    }

    fn packet_header(&mut self) -> Encoded {
        let plan = Arc::clone(&self.plan);
        let Some(program) = plan.packet_header else {
            return Ok(());
        };
        let stream_id = plan
            .metadata()
            .streams
            .get(self.class)
            .map_or(0, |class| class.id);
        let uuid = plan.metadata().uuid.map_or([0; 16], |uuid| uuid.0);
        let instance = self.instance;
        let header = plan.metadata().packet_header.iter();
        let classes = header.flat_map(|header| &header.members);
        let uuid_at = classes
            .enumerate()
            .find(|(_, member)| match &member.class {
                FieldClass::Array(array) => array.is_uuid,
                FieldClass::Blob(blob) => blob.is_uuid,
                _ => false,
            })
            .map(|(index, _)| index);
        let printed = |node: &IntegerNode| {
            let value = match node.class.role {
                Some(Role::Magic) => MAGIC,
                Some(Role::StreamId) => stream_id,
                Some(Role::StreamInstanceId) => instance,
                _ => 0,
            };
            Ok((value, 1))
        };
        let selectors = std::mem::take(&mut self.packet_selectors);
        let result = self.first_that_fits(selectors.tries(), |this, number| {
            this.encode(|encoder| {
                let Some(Node::Struct { align, members }) = plan.node(program.full) else {
                    return Ok(());
                };
                encoder.bits.align(*align);
                for (index, member) in members.of(&plan.children).iter().enumerate() {
                    if uuid_at == Some(index) {
                        encoder.uuid(member.node, uuid)?;
                    } else {
                        encoder.header(member.node, &selectors, number, &mut { printed })?;
                    }
                }
                Ok(())
            })
        });
        self.packet_selectors = selectors;
        result
    }

    /// Tries the layouts of a header until one fits. If none does, it returns the error that a new packet would avoid,
    /// if there is one, or else the first.
    fn first_that_fits(
        &mut self,
        tries: usize,
        mut attempt: impl FnMut(&mut Self, usize) -> Encoded,
    ) -> Encoded {
        let mut reported = None;
        let (at, last) = (self.bits.position(), self.last);
        let byte = self.bits.bytes().last().copied();
        self.tried.clone_from(&self.clocks);
        for number in 0..tries {
            let Err(error) = attempt(self, number) else {
                return Ok(());
            };
            let mendable = matches!(error, FieldError::Time { .. });
            if reported.is_none() || mendable {
                reported = Some(error);
            }
            self.bits.go_back(at, byte);
            self.last = last;
            self.clocks.copy_from_slice(&self.tried);
        }
        reported.map_or(Ok(()), Err)
    }

    fn packet_context<'d, I: Item<'d>>(
        &mut self,
        ticks: u64,
        context: impl ExactSizeIterator<Item = I>,
    ) -> Encoded {
        let found = context.len() as u64;
        let plan = Arc::clone(&self.plan);
        let Some(program) = plan
            .streams
            .get(self.class)
            .and_then(|stream| stream.packet_context)
        else {
            return none_given(0, found);
        };
        let Some(Node::Struct { align, members }) = plan.node(program.full) else {
            return Ok(());
        };
        self.bits.align(*align);
        let mut given = context;
        let mut used = 0;
        for member in members.of(&plan.children) {
            match plan.node(member.node) {
                Some(Node::Integer(node)) if header::is_known(node) => {
                    self.packet_field(node, ticks)?;
                }
                _ => {
                    let datum = given.next().ok_or(FieldError::Count {
                        expected: found + 1,
                        found,
                    })?;
                    used += 1;
                    self.encode(|encoder| encoder.node(member.node, datum))?;
                }
            }
        }
        none_given(used, found)
    }

    /// Writes a field of the packet context that the writer fills in, now or at the end of the packet.
    fn packet_field(&mut self, node: &IntegerNode, ticks: u64) -> Encoded {
        self.bits.align(node.class.align);
        let later = Some(Later {
            at: self.bits.position(),
            class: node.class,
        });
        let mut printed = (0, MAX_VARIABLE);
        match node.class.role {
            Some(Role::TimestampBegin) => printed = stamp(&mut self.clocks, node, ticks, false)?,
            Some(Role::TimestampEnd) => self.end = later,
            Some(Role::ContentSize) => self.content_size = later,
            Some(Role::PacketSize) => self.packet_size = later,
            Some(Role::EventsDiscarded) => self.discarded = later,
            Some(Role::PacketSeqNum) => printed = (self.sequence & mask(node.class.size), 1),
            _ => {}
        }
        self.encode(|encoder| encoder.padded(node, i128::from(printed.0), printed.1))
    }

    /// Writes an event of the class at position `event_class`, at a time in ticks of the stream's clock.
    ///
    /// `fields` has the members of the stream's event context, of the event's context and of the payload, concatenated
    /// in this order.
    ///
    /// # Errors
    /// When no packet is open, there is no such class, or a value does not suit its field. Then nothing of the event
    /// has been written; if its time does not fit, it can be written into a new packet.
    pub fn event(
        &mut self,
        event_class: usize,
        ticks: u64,
        fields: &[Datum<'_>],
    ) -> Result<(), WriteError> {
        self.event_with(event_class, ticks, fields.iter().copied())
    }

    /// As `event`, for values in any representation.
    pub(crate) fn event_with<'d, I: Item<'d>>(
        &mut self,
        event_class: usize,
        ticks: u64,
        fields: impl ExactSizeIterator<Item = I>,
    ) -> Result<(), WriteError> {
        if !self.open {
            return Err(WriteError::Order("an event outside of a packet"));
        }
        let plan = Arc::clone(&self.plan);
        let class = plan
            .metadata()
            .streams
            .get(self.class)
            .and_then(|class| class.events.get(event_class));
        let Some(class) = class else {
            return Err(WriteError::NoClass {
                what: "event class",
                index: event_class,
            });
        };
        let before = (self.bits.position(), self.last);
        self.saved.copy_from_slice(&self.clocks);
        let start = self.bits.bytes().last().copied();
        let result = self.event_scopes(&plan, event_class, class.id, ticks, fields);
        match result {
            Ok(()) if self.bits.position() == before.0 => Err(WriteError::Field {
                scope: Scope::EventFields,
                error: FieldError::Unsupported("an event of no size"),
            }),
            Ok(()) => Ok(()),
            Err((scope, error)) => {
                self.bits.go_back(before.0, start);
                self.last = before.1;
                self.clocks.copy_from_slice(&self.saved);
                Err(WriteError::Field { scope, error })
            }
        }
    }

    fn event_scopes<'d, I: Item<'d>>(
        &mut self,
        plan: &Plan,
        event_class: usize,
        id: u64,
        ticks: u64,
        mut fields: impl ExactSizeIterator<Item = I>,
    ) -> Result<(), (Scope, FieldError)> {
        let Some(stream) = plan.streams.get(self.class) else {
            return Ok(());
        };
        let event = stream.events.get(event_class);
        self.event_id = None;
        if let Some(program) = stream.event_header {
            self.event_header(program, id, ticks)
                .map_err(|error| (Scope::EventHeader, error))?;
        }
        if self.event_id.is_none() && event_class > 0 {
            let what =
                "an event of another class than the first, in a stream whose events have no id";
            return Err((Scope::EventHeader, FieldError::Unsupported(what)));
        }
        let found = fields.len();
        let scopes = [
            (Scope::StreamEventContext, stream.event_context),
            (Scope::EventContext, event.and_then(|event| event.context)),
            (Scope::EventFields, event.and_then(|event| event.fields)),
        ];
        for (scope, program) in scopes {
            let Some(program) = program else { continue };
            let count = members(plan, program.full);
            let data = fields.by_ref().take(count);
            self.encode(|encoder| encoder.root(program.full, data))
                .map_err(|error| (scope, error))?;
        }
        let used = (found - fields.len()) as u64;
        none_given(used, found as u64).map_err(|error| (Scope::EventFields, error))
    }

    fn event_header(&mut self, program: Program, id: u64, ticks: u64) -> Encoded {
        let steps_back = self.steps_back;
        let selectors = std::mem::take(&mut self.event_selectors);
        let result = self.first_that_fits(selectors.tries(), |this, number| {
            let mut clocks = std::mem::take(&mut this.clocks);
            let result =
                this.encode(|encoder| {
                    encoder.event_id = None;
                    encoder.header(program.full, &selectors, number, &mut |node| match node
                        .class
                        .role
                    {
                        Some(Role::EventId) => Ok((id, 1)),
                        _ => stamp(&mut clocks, node, ticks, steps_back),
                    })
                });
            this.clocks = clocks;
            result?;
            if this.event_id.is_some_and(|printed| printed != id) {
                return Err(FieldError::Option);
            }
            let clock = this.stamp.and_then(|clock| this.clocks.get(clock));
            match clock.filter(|now| **now != ticks) {
                Some(&from) => Err(FieldError::Time {
                    from,
                    to: ticks,
                    size: 0,
                }),
                None => Ok(()),
            }
        });
        self.event_selectors = selectors;
        result
    }

    /// Ends the packet at a time in ticks, and writes it to the output.
    ///
    /// `discarded` is the number of events dropped since the beginning of the stream.
    ///
    /// # Errors
    /// When no packet is open, when its size or end time does not fit its field, or when the output fails.
    pub fn end_packet(&mut self, ticks: u64, discarded: u64) -> Result<(), WriteError> {
        if !std::mem::take(&mut self.open) {
            return Err(WriteError::Order("a packet ends before it has begun"));
        }
        let content = self.bits.position();
        self.bits.align(8);
        let packet = self.bits.position();
        if content != packet && self.content_size.is_none() {
            return Err(WriteError::Order(
                "a packet that does not end at a byte needs a content_size",
            ));
        }
        self.endless = self.content_size.is_none() && self.packet_size.is_none();
        let patches = [
            (self.content_size, content),
            (self.packet_size, packet),
            (self.end, ticks),
            (self.discarded, discarded),
        ];
        for (later, value) in patches {
            let Some(Later { at, class }) = later else {
                continue;
            };
            // Counters wrap and partial times keep their low bits; a size must be exact.
            let counts = matches!(class.role, Some(Role::EventsDiscarded | Role::TimestampEnd));
            let value = if counts {
                value & mask(class.size)
            } else {
                value
            };
            if value > mask(class.size) {
                let error = FieldError::Range {
                    size: class.size,
                    signed: false,
                    found: value.into(),
                };
                return Err(WriteError::Field {
                    scope: Scope::PacketContext,
                    error,
                });
            }
            if class.form == Form::Variable {
                let (bytes, _) = variable(value.into(), false, MAX_VARIABLE);
                self.bits.put_bytes_at(at, &bytes);
            } else {
                let bits = in_form(&class, value);
                self.bits.put_at(at, bits, class.size, class.byte_order);
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.out.write_all(self.bits.bytes())?;
        Ok(())
    }

    /// Returns the output, flushed.
    ///
    /// # Errors
    /// When a packet is open, or the output fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if self.open {
            return Err(WriteError::Order(
                "the stream ends before its last packet has",
            ));
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn encode(&mut self, encode: impl FnOnce(&mut Encoder<'_, '_>) -> Encoded) -> Encoded {
        let mut encoder = Encoder {
            plan: &self.plan,
            bits: &mut self.bits,
            slots: &mut self.slots,
            last: self.last,
            event_id: self.event_id,
        };
        let result = encode(&mut encoder);
        (self.last, self.event_id) = (encoder.last, encoder.event_id);
        result
    }
}

const fn mask(size: u32) -> u64 {
    u64::MAX >> (64 - size)
}

/// Number of members of a scope's root structure.
fn members(plan: &Plan, root: NodeId) -> usize {
    match plan.node(root) {
        Some(Node::Struct { members, .. }) => members.of(&plan.children).len(),
        _ => 0,
    }
}

/// Rejects surplus values.
const fn none_given(used: u64, found: u64) -> Encoded {
    if used == found {
        return Ok(());
    }
    Err(FieldError::Count {
        expected: used,
        found,
    })
}
