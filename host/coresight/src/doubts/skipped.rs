//! Trace between a loss and the next synchronization, which is not decoded.

use crate::etmv4::{Fields, Kind};
use crate::frames::Stream;
use crate::listing::PacketDecoder;
use crate::source::Protocol;

/// ETMv4 or ETE trace after an overflow, discarded elements or a bad packet, and before the trace information at which
/// decoding resumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Bytes up to the synchronization.
    pub bytes: u64,
    /// Packets that these bytes would decode to.
    pub packets: u64,
    /// Overflows among them.
    pub overflows: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Start of the segment; nothing is decoded yet.
    Begin,
    Lost,
    Synchronized,
    Decoding,
}

impl Skipped {
    /// Adds the skipped trace of another stream.
    pub fn add(&mut self, other: Skipped) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.overflows += other.overflows;
    }

    /// Counts the skipped trace of a stream.
    pub(super) fn of(protocol: &Protocol, stream: &Stream<'_>) -> Self {
        let mut skipped = Skipped::default();
        for segment in stream.segments() {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            let (mut state, mut first) = (State::Begin, None);
            let PacketDecoder::EtmV4(mut decoder) =
                PacketDecoder::new(protocol, bytes, segment.start)
            else {
                continue;
            };
            loop {
                // Most packets are atoms and addresses, which change nothing here.
                while state == State::Decoding
                    && (decoder.next_atoms().is_some() || decoder.next_address().is_some())
                {
                }
                let Some(packet) = decoder.next() else { break };
                if state == State::Lost && packet.kind != Kind::Async {
                    first.get_or_insert(packet.start);
                    skipped.packets += 1;
                    skipped.overflows += u64::from(packet.kind == Kind::Overflow);
                }
                state = match (state, packet.kind) {
                    (State::Begin | State::Lost, Kind::Async) => {
                        let first = first.take().unwrap_or(packet.start);
                        skipped.bytes += (packet.start - first) as u64;
                        State::Synchronized
                    }
                    (State::Synchronized, _) if matches!(packet.fields, Fields::TraceInfo(_)) => {
                        State::Decoding
                    }
                    (
                        State::Decoding,
                        Kind::Overflow
                        | Kind::Discard
                        | Kind::BadSequence
                        | Kind::BadTraceMode
                        | Kind::Reserved
                        | Kind::ReservedConfig,
                    ) => State::Lost,
                    (state, _) => state,
                };
            }
            if let Some(first) = first {
                skipped.bytes += (segment.end - first) as u64;
            }
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use crate::doubts::Doubts;
    use crate::element::Unsynced;
    use crate::etmv4::Config;
    use crate::flow::{EtmV4Options, Flow};
    use crate::frames::{Stream, TraceId};
    use crate::memory::Memory;
    use crate::source::Protocol;

    use super::Skipped;

    #[test]
    fn what_an_overflow_hides_is_counted_up_to_the_next_synchronization() {
        const SYNCHRONIZATION: [u8; 15] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 1, 0];
        // Overflow; trace on and atoms; once more; at the end, without a synchronization.
        let lost: &[u8] = &[0, 5, 0x04, 0xf7, 0xf7, 0, 5, 0x04, 0xf7];
        let bytes = [&SYNCHRONIZATION, lost, &SYNCHRONIZATION, lost].concat();
        let protocol = Protocol::EtmV4(Config::default());
        let stream = Stream::unformatted(TraceId::NONE, &bytes, 0);
        let memory = Memory::default();
        let mut flow = Flow::new(&protocol, EtmV4Options::default(), &memory);
        let (mut elements, mut doubts) = (Vec::new(), Doubts::default());
        flow.run_stream(&protocol, &stream, &mut elements);
        for (at, element) in &elements {
            doubts.any(*at, element);
        }
        doubts.locate(&stream);
        doubts.messages(&protocol, &stream);
        assert_eq!(doubts.unsynced[&Unsynced::Overflow].count, 2);
        let expected = Skipped {
            bytes: 14,
            packets: 12,
            overflows: 2,
        };
        assert_eq!(doubts.skipped, expected);
    }
}
