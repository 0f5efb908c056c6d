//! Packet sequences: writers of packets in a Perfetto trace, with state that packets need not repeat.
//!
//! Perfetto keeps state per sequence: interned names, the time of the packet before, and the default track of events.
//! Every track here writes its own sequence, so that an event needs none of these: the begin of a call takes some 15
//! bytes.
//!
//! Times are distances from the packet before (an incremental clock, local to each sequence). A snapshot sets that
//! clock, always to the origin of the trace, even when a sequence restarts after a loss: `trace_processor` requires
//! that the displayed clock, to which a snapshot relates ours, never goes back from one snapshot to the next.

use kymo_event::Time;

use super::fields::*;
use super::wire::{Chunk, Message, Packets, Word};
use crate::names::{NameId, Names};

/// Buffered packets, and the time scale of the file.
pub(super) struct Output {
    /// Complete packets that have not been written yet.
    pub packets: Packets,
    /// Offset added to every time: Perfetto has no negative times.
    pub shift: u64,
    /// The first time of the trace, shifted.
    origin: u64,
    /// Number of elements that were put later than recorded.
    pub held: u64,
}

impl Output {
    /// Creates the output of a trace that begins at this time.
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

    /// Converts a time to the scale of the file: nanoseconds from 0, within Perfetto's range.
    #[inline]
    fn scale(&self, time: Time) -> u64 {
        let shifted = time.0.saturating_add_unsigned(self.shift);
        shifted.max(0).cast_unsigned()
    }
}

/// A packet sequence, with the track of its events.
pub(super) struct Sequence {
    /// Its number, and that of its track.
    id: u32,
    /// Whether a packet has been written.
    begun: bool,
    /// The reason of a loss before the next packet; 0 if nothing is lost.
    loss: u64,
    /// The time of the last packet, on the scale of the file.
    last: u64,
    /// The time to which the next packet is relative: that of the last one, or the origin if the clock was set again.
    reference: u64,
    /// Whether the state that packets depend on has been written.
    ready: bool,
    /// Which names have been written, by [`NameId`].
    interned: Vec<bool>,
    /// Beginning of every plain packet, up to the time: tag, length and sequence.
    head: Option<Word>,
}

/// Bytes of a packet's tag and length, which the length does not include.
const OUTER: usize = 2;

/// Beginning of a sequence's plain packets.
fn head(id: u32) -> Option<Word> {
    let head = Chunk::of(|file| {
        // The length is inserted later.
        file.message(trace::PACKET, |_| {});
        file.number(trace_packet::TRUSTED_PACKET_SEQUENCE_ID, id.into())
            .tag_of_number(trace_packet::TIMESTAMP);
    });
    head?.word()
}

/// An event with only a type and a name, as it is encoded in every packet.
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
    /// Creates a sequence with this unique number, which is not 0.
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

    /// Marks a loss before the next packet. `reason` is one of the bits of `DataLossReason`. A reader discards its
    /// state at a loss, so the state is written again.
    pub fn lose(&mut self, reason: u64) {
        self.loss |= trace_packet::DATA_LOSS_PRESENT | reason;
        self.ready = false;
    }

    /// Describes the track. `write` adds all fields but its number.
    pub fn describe(&mut self, output: &mut Output, write: impl FnOnce(&mut Message<'_>)) {
        let uuid = self.track();
        self.packet(output, |packet| {
            packet.message(trace_packet::TRACK_DESCRIPTOR, |track| {
                track.number(track_descriptor::UUID, uuid);
                write(track);
            });
        });
    }

    /// Writes a packet with such an event at a time, if that suffices: the name, if any, has been written, and time
    /// does not go back. Otherwise writes nothing.
    ///
    ///  It does not set `SEQ_NEEDS_INCREMENTAL_STATE`, which would be a seventh of the bytes. A reader uses that flag
    /// only to skip packets whose state it has missed. In a file no state is missed: after a loss it is written again
    /// before the next packet.
    #[inline(always)]
    pub fn plain(
        &mut self,
        output: &mut Output,
        time: Time,
        name: Option<NameId>,
        event: &Chunk,
    ) -> bool {
        let now = output.scale(time);
        // (When `ready` is set, there has been a packet at or after the origin.)
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

    /// Writes a packet at a time; `name` is the one that an event in it refers to. A time before that of the last
    /// packet is raised to it.
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

    /// Writes a packet of this sequence.
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

    /// Writes the state that packets with times depend on, unless it has been written and not lost since.
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

    /// Whether a name has to be written; marks it as written.
    fn is_new(&mut self, name: NameId) -> bool {
        if self.interned.len() <= name.index() {
            self.interned.resize(name.index() + 1, false);
        }
        self.interned
            .get_mut(name.index())
            .is_some_and(|given| !std::mem::replace(given, true))
    }
}

/// The file's number of a name, and of the source location of its function: 0 means none there.
pub(super) fn iid(name: NameId) -> u64 {
    u64::from(name.0) + 1
}
