//! Packets of STM and ITM to elements: messages with master and channel or port, and complete timestamps.

use super::Sink;
use crate::element::{Element, ItmMessage, Software, StmKind, StmMessage, Unsynced};
use crate::{itm, stm};

/// State common to both protocols: begin and end. Bytes without synchronization are packets of their own.
#[derive(Clone, Debug)]
struct Progress {
    /// Reason of the next start of decoding, until the first packet.
    begins: Option<Unsynced>,
    last_packet: usize,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            begins: Some(Unsynced::Init),
            last_packet: 0,
        }
    }
}

impl Progress {
    /// Decodes the next packet.
    fn packet(&mut self, at: usize, sink: &mut impl Sink) {
        self.last_packet = at;
        if let Some(why) = self.begins.take() {
            sink.element(at, Element::NoSync(why));
        }
    }

    fn finish(&self, sink: &mut impl Sink) {
        sink.element(self.last_packet, Element::End(Unsynced::EndOfTrace));
    }
}

/// Converts the packets of one STM to elements.
#[derive(Clone, Debug, Default)]
pub struct StmFlow {
    progress: Progress,
    /// Whether the trace had a master or channel.
    is_placed: bool,
    /// Whether it had a packet that sets both to 0.
    is_reset: bool,
}

impl StmFlow {
    /// Decodes the next packet.
    pub fn packet(&mut self, packet: &stm::Packet, sink: &mut impl Sink) {
        use stm::Kind;
        let (at, kind) = (packet.start(), packet.kind);
        self.progress.packet(at, sink);
        let (of, bits) = match kind {
            Kind::Data4 => (StmKind::Data, 4),
            Kind::Data8 => (StmKind::Data, 8),
            Kind::Data16 => (StmKind::Data, 16),
            Kind::Data32 => (StmKind::Data, 32),
            Kind::Data64 => (StmKind::Data, 64),
            Kind::Flag => (StmKind::Data, 0),
            Kind::Trigger => (StmKind::Trigger, 8),
            Kind::Frequency => (StmKind::Frequency, 32),
            Kind::MasterError => (StmKind::MasterError, 8),
            Kind::GlobalError => (StmKind::GlobalError, 8),
            Kind::Version => {
                self.is_reset = true;
                return;
            }
            Kind::Master8 | Kind::Master16 | Kind::Channel8 | Kind::Channel16 => {
                self.is_placed = true;
                return;
            }
            Kind::BadSequence | Kind::Reserved => {
                return sink.element(at, Element::NoSync(Unsynced::BadPacket));
            }
            Kind::NotSync | Kind::Async | Kind::Null | Kind::IncompleteEot => {
                return;
            }
        };
        // Other messages are of no channel, and have one as in the reference's listing.
        let is_placed = self.is_placed || self.is_reset && of == StmKind::Data;
        let message = StmMessage {
            kind: of,
            place: is_placed.then_some((packet.master, packet.channel)),
            value: packet.value,
            bits,
            is_marker: packet.is_marker || kind == Kind::Flag,
            timestamp: packet.timestamp.map(|(value, _)| value),
        };
        self.is_reset |= kind == Kind::GlobalError;
        sink.element(at, Element::Software(Software::Stm(message)));
    }

    /// Restarts decoding.
    pub fn reset(&mut self, why: Unsynced) {
        self.progress.begins = Some(why);
        (self.is_placed, self.is_reset) = (false, false);
    }

    /// Ends the trace.
    pub fn finish(&self, sink: &mut impl Sink) {
        self.progress.finish(sink);
    }
}

/// Converts the packets of one ITM to elements.
#[derive(Clone, Debug, Default)]
pub struct ItmFlow {
    progress: Progress,
    /// Page of the stimulus ports.
    page: u32,
    /// Whether messages before the next one are lost.
    overflowed: bool,
    /// Sum of the local timestamps, in ticks.
    ticks: u64,
    /// Global timestamp, and whether its upper bits are known.
    global: u64,
    is_global_whole: bool,
}

/// Maximum number of bits of a global timestamp in its first packet.
const LOW_BITS: u32 = 26;

impl ItmFlow {
    /// Decodes the next packet.
    pub fn packet(&mut self, packet: &itm::Packet, sink: &mut impl Sink) {
        use itm::Kind;
        let itm::Packet {
            kind,
            start: at,
            source,
            value,
            size,
            ..
        } = *packet;
        self.progress.packet(at, sink);
        let message = match kind {
            Kind::Software => ItmMessage::Software {
                port: self.page * 32 + u32::from(source),
                value: value as u32,
                bytes: size,
            },
            Kind::Hardware => ItmMessage::Hardware {
                discriminator: source,
                value: value as u32,
                bytes: size,
            },
            Kind::LocalTimestamp => {
                self.ticks = self.ticks.saturating_add(value);
                ItmMessage::LocalTimestamp {
                    ticks: value as u32,
                    delay: source,
                    total: self.ticks,
                }
            }
            Kind::GlobalTimestamp1 => {
                // Only the bits in the packet are replaced. If upper bits changed, another packet carries them.
                let bits = [7, 14, 21, LOW_BITS][usize::from(size.clamp(1, 4) - 1)];
                let mask = (1u64 << bits) - 1;
                self.global = self.global & !mask | value & mask;
                self.is_global_whole &= source & 2 == 0;
                if !self.is_global_whole {
                    return;
                }
                ItmMessage::GlobalTimestamp(self.global)
            }
            Kind::GlobalTimestamp2 => {
                self.global = value << LOW_BITS | self.global & ((1 << LOW_BITS) - 1);
                self.is_global_whole = true;
                ItmMessage::GlobalTimestamp(self.global)
            }
            Kind::Extension => {
                if size == 2 && source == 0 {
                    self.page = value as u32;
                }
                return;
            }
            Kind::Overflow => {
                self.overflowed = true;
                self.ticks = 0;
                return;
            }
            Kind::BadSequence | Kind::Reserved => {
                return sink.element(at, Element::NoSync(Unsynced::BadPacket));
            }
            Kind::NotSync | Kind::Async | Kind::IncompleteEot => return,
        };
        let overflowed = std::mem::take(&mut self.overflowed);
        let element = Software::Itm {
            message,
            overflowed,
        };
        sink.element(at, Element::Software(element));
    }

    /// Restarts decoding.
    pub fn reset(&mut self, why: Unsynced) {
        let progress = Progress {
            begins: Some(why),
            ..self.progress
        };
        *self = ItmFlow {
            progress,
            ..ItmFlow::default()
        };
    }

    /// Ends the trace.
    pub fn finish(&self, sink: &mut impl Sink) {
        self.progress.finish(sink);
    }
}
