//! Packet sequences: writers of packets in a Perfetto trace, and the state that they need not repeat.
//!
//! Perfetto's state is kept by sequence: which names have numbers, when the packet before was, to
//! which track an event belongs if it doesn't say. Every track of ours writes a sequence of its
//! own, so that an event needs to say none of that: the begin of a call takes some 15 bytes.
//!
//! Times are distances from the packet before (an incremental clock, which every sequence has for
//! itself). That clock is set by a snapshot, always to the origin of the trace, also where a
//! sequence starts anew after a loss: `trace_processor` demands that the clock which it shows, and
//! to which a snapshot ties ours, never goes back from one snapshot to the next.

use kymo_event::Time;

use super::fields::*;
use super::wire::{Chunk, Message, Packets, Word};
use crate::names::{NameId, Names};

/// Packets on their way to the file, and the scale of time on which they stand.
pub(super) struct Output {
    /// Whole packets, not yet written.
    pub packets: Packets,
    /// What is added to every time: Perfetto has none below 0.
    pub shift: u64,
    /// The first time of the trace, shifted.
    origin: u64,
    /// How many things were put later than they were recorded.
    pub held: u64,
}

impl Output {
    /// For a trace that begins at this time.
    pub fn new(first: Time) -> Self {
        let shift = if first.0 < 0 {
            first.0.unsigned_abs()
        } else {
            0
        };
        Self {
            packets: Packets::default(),
            shift,
            origin: u64::try_from(first.0).unwrap_or(0),
            held: 0,
        }
    }

    /// A time on the scale of the file: nanoseconds from 0, as far as Perfetto can count.
    #[inline]
    fn scale(&self, time: Time) -> u64 {
        let shifted = time.0.saturating_add_unsigned(self.shift);
        shifted.max(0).cast_unsigned()
    }
}

/// One writer of packets, with the track to which its events belong.
pub(super) struct Sequence {
    /// Its number, and that of its track.
    id: u32,
    /// Whether a packet has been written.
    begun: bool,
    /// Why something is missing before the next packet; 0 if nothing is.
    loss: u64,
    /// The time of the last packet, on the scale of the file.
    last: u64,
    /// The time from which the next packet counts: that of the last one, or the origin where the
    /// clock was set anew.
    reference: u64,
    /// Whether the state that packets rely on has been given.
    ready: bool,
    /// Which names have been given, by [`NameId`].
    interned: Vec<bool>,
    /// What every plain packet begins with, up to the time: tag, length and sequence.
    head: Option<Word>,
}

/// The tag and the length of a packet, which its length does not count.
const OUTER: usize = 2;

/// What plain packets of a sequence begin with.
fn head(id: u32) -> Option<Word> {
    let head = Chunk::of(|file| {
        // Its length is put in later.
        file.message(trace::PACKET, |_| {});
        file.number(trace_packet::TRUSTED_PACKET_SEQUENCE_ID, id.into())
            .tag_of_number(trace_packet::TIMESTAMP);
    });
    head?.word()
}

/// An event that needs no more than a type and a name, as it stands in every packet.
pub(super) fn plain_event(kind: u64, name: Option<(NameId, bool)>) -> Option<Chunk> {
    Chunk::of(|packet| {
        packet.message(trace_packet::TRACK_EVENT, |event| {
            event.number(track_event::TYPE, kind);
            if let Some((name, has_source)) = name {
                event.number(track_event::NAME_IID, iid(name));
                if has_source {
                    event.number(track_event::SOURCE_LOCATION_IID, iid(name));
                }
            }
        });
    })
}

impl Sequence {
    /// A sequence of this number, which no other has; not 0.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            begun: false,
            loss: 0,
            last: 0,
            reference: 0,
            ready: false,
            interned: Vec::new(),
            head: head(id),
        }
    }

    /// The number of its track (`uuid`).
    pub fn track(&self) -> u64 {
        u64::from(self.id)
    }

    /// Marks that something is missing before the next packet. `reason` is one of the bits of
    /// `DataLossReason`. A reader forgets its state over a loss, so it is given anew.
    pub fn lose(&mut self, reason: u64) {
        self.loss |= trace_packet::DATA_LOSS_PRESENT | reason;
        self.ready = false;
    }

    /// Describes the track. `write` gives all but its number.
    pub fn describe(&mut self, output: &mut Output, write: impl FnOnce(&mut Message<'_>)) {
        let uuid = self.track();
        self.packet(output, |packet| {
            packet.message(trace_packet::TRACK_DESCRIPTOR, |track| {
                track.number(track_descriptor::UUID, uuid);
                write(track);
            });
        });
    }

    /// A packet at a time with such an event, if it needs no more than that: the name has been given (if it has
    /// one), and time goes on. Else nothing is written.
    ///
    /// It does not set `SEQ_NEEDS_INCREMENTAL_STATE`, which would be a seventh of the bytes. A reader uses that flag
    /// only to skip packets whose state it has missed. In a file no state is missed: after a loss it is given
    /// again before the next packet.
    #[inline(always)]
    pub fn plain(
        &mut self,
        output: &mut Output,
        time: Time,
        name: Option<NameId>,
        event: &Chunk,
    ) -> bool {
        let now = output.scale(time);
        // (What is ready has had a packet at or behind the origin.)
        let given = name.is_none_or(|name| self.interned.get(name.index()) == Some(&true));
        if !self.ready || !given || now < self.last {
            return false;
        }
        let (Some(head), Some(distance)) = (self.head, Word::varint(now - self.reference)) else {
            return false;
        };
        (self.last, self.reference) = (now, now);
        output.packets.add_three(head, distance, event, OUTER);
        true
    }

    /// A packet at a time; `name` is that which an event in it refers to. What would stand before
    /// the packet before is held at its time.
    pub fn timed(
        &mut self,
        output: &mut Output,
        time: Time,
        name: Option<(NameId, &Names<'_>)>,
        write: impl FnOnce(&mut Message<'_>),
    ) {
        self.prepare(output);
        let wanted = output.scale(time);
        let earliest = self.last.max(output.origin);
        if wanted < earliest {
            output.held += 1;
        }
        let now = wanted.max(earliest);
        let distance = now - self.reference;
        (self.last, self.reference) = (now, now);
        let name = name.filter(|(id, _)| self.is_new(*id));
        self.packet(output, |packet| {
            packet
                .number(
                    trace_packet::SEQUENCE_FLAGS,
                    trace_packet::SEQ_NEEDS_INCREMENTAL_STATE,
                )
                .number(trace_packet::TIMESTAMP, distance);
            if let Some((id, names)) = name {
                packet.message(trace_packet::INTERNED_DATA, |data| {
                    data.message(interned_data::EVENT_NAMES, |entry| {
                        entry
                            .number(event_name::IID, iid(id))
                            .text(event_name::NAME, names.get(id));
                    });
                    if let Some(source) = names.source(id) {
                        data.message(interned_data::SOURCE_LOCATIONS, |entry| {
                            entry
                                .number(source_location::IID, iid(id))
                                .text(source_location::FILE_NAME, &source.file)
                                .text(source_location::FUNCTION_NAME, names.get(id));
                            if let Some(line) = source.line {
                                entry.number(source_location::LINE_NUMBER, line.into());
                            }
                        });
                    }
                });
            }
            write(packet);
        });
    }

    /// A packet of this sequence.
    fn packet(&mut self, output: &mut Output, write: impl FnOnce(&mut Message<'_>)) {
        let first = !std::mem::replace(&mut self.begun, true);
        let id = u64::from(self.id);
        output.packets.add(|file| {
            file.message(trace::PACKET, |packet| {
                packet.number(trace_packet::TRUSTED_PACKET_SEQUENCE_ID, id);
                if first {
                    packet.number(trace_packet::FIRST_PACKET_ON_SEQUENCE, 1);
                }
                write(packet);
            });
        });
    }

    /// Gives the state that packets with times rely on, if it has not been given or was lost.
    fn prepare(&mut self, output: &mut Output) {
        if std::mem::replace(&mut self.ready, true) {
            return;
        }
        self.interned.clear();
        let origin = output.origin;
        self.reference = origin;
        let loss = std::mem::take(&mut self.loss);
        let track = self.track();
        self.packet(output, |packet| {
            packet.number(
                trace_packet::SEQUENCE_FLAGS,
                trace_packet::SEQ_INCREMENTAL_STATE_CLEARED,
            );
            if loss != 0 {
                packet.number(trace_packet::PREVIOUS_PACKET_DROPPED, loss);
            }
            packet
                .message(trace_packet::TRACE_PACKET_DEFAULTS, |defaults| {
                    defaults
                        .number(
                            trace_packet_defaults::TIMESTAMP_CLOCK_ID,
                            clock::FIRST_OF_SEQUENCE,
                        )
                        .message(trace_packet_defaults::TRACK_EVENT_DEFAULTS, |event| {
                            event.number(track_event_defaults::TRACK_UUID, track);
                        });
                })
                .message(trace_packet::CLOCK_SNAPSHOT, |snapshot| {
                    snapshot
                        .message(clock_snapshot::CLOCKS, |shown| {
                            shown
                                .number(clock::CLOCK_ID, clock::BUILTIN_CLOCK_BOOTTIME)
                                .number(clock::TIMESTAMP, origin);
                        })
                        .message(clock_snapshot::CLOCKS, |own| {
                            own.number(clock::CLOCK_ID, clock::FIRST_OF_SEQUENCE)
                                .number(clock::TIMESTAMP, origin)
                                .number(clock::IS_INCREMENTAL, 1);
                        });
                });
        });
    }

    /// Whether a name has to be given, which it is then.
    fn is_new(&mut self, name: NameId) -> bool {
        if self.interned.len() <= name.index() {
            self.interned.resize(name.index() + 1, false);
        }
        self.interned
            .get_mut(name.index())
            .is_some_and(|given| !std::mem::replace(given, true))
    }
}

/// The number of a name in the file, and of where the function of that name stands in the source: 0
/// means none there.
pub(super) fn iid(name: NameId) -> u64 {
    u64::from(name.0) + 1
}
