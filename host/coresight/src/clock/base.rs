//! Choice of the time base of a recording: timestamps, cycles or instructions.

use super::Measure;
use crate::element::Element;
use crate::flow::{EtmV4Options, Flow, Sink};
use crate::input::{Buffer, Part};
use crate::listing::{Packet, PacketDecoder};
use crate::source::Protocol;
use crate::{etmv3, etmv4, ptm};

/// Smallest timestamp that does not fit into an event's signed time.
const TOO_LATE: u64 = 1 << 63;

/// Distance before [`TOO_LATE`] in which a trace may begin and run past it: two years at 1 GHz.
const AHEAD: u64 = 1 << 56;

/// Number of packets searched for timestamps if the source is not configured to send any: registers are not always
/// recorded. A source with fewer packets may have had no time to send two timestamps.
const LOOKED_AT: usize = 1 << 16;

/// Time base of these sources: timestamps if all have them, else cycles if all count them, else instructions. A source
/// that ran only briefly needs no two timestamps if another one has them. Also returns the offset to subtract from
/// timestamps. Each source is given by the [parts](crate::input::traces) that it wrote.
pub fn measure(buffers: &[Buffer], traces: &[Vec<Part>]) -> (Measure, u64) {
    let times = traces.iter().filter_map(|parts| time_of(buffers, parts));
    let times: Vec<_> = times.collect();
    let is_late = times
        .iter()
        .any(|time| time.first.is_some_and(|first| first >= TOO_LATE - AHEAD));
    let has_clock = times.iter().any(|time| time.is_clock);
    let measures = times.into_iter().map(|time| match time {
        Times { is_clock: true, .. } => Measure::Timestamps,
        Times { is_short: true, .. } if has_clock => Measure::Timestamps,
        time => time.without,
    });
    let measure = measures.fold(Measure::Timestamps, |all, one| match (all, one) {
        (Measure::Timestamps, Measure::Timestamps) => Measure::Timestamps,
        (Measure::Instructions, _) | (_, Measure::Instructions) => Measure::Instructions,
        // A source without timestamps has cycles only if it is configured to count them.
        _ => Measure::Cycles,
    });
    (measure, if is_late { TOO_LATE } else { 0 })
}

/// Smallest of the sources' first timestamps, if any.
pub fn first_timestamp(buffers: &[Buffer], traces: &[Vec<Part>]) -> Option<u64> {
    let times = traces.iter().filter_map(|parts| time_of(buffers, parts));
    times.filter_map(|time| time.first).min()
}

/// Timestamps among elements. Bytes that look like a timestamp after damage, before synchronization, are no element.
#[derive(Default)]
struct Stamps {
    first: Option<u64>,
    /// Whether two different ones were found; only then the timestamps form a clock.
    is_clock: bool,
}

impl Sink for Stamps {
    fn element(&mut self, _: usize, element: Element) {
        if let Element::Timestamp { value, .. } = element {
            self.is_clock |= *self.first.get_or_insert(value) != value;
        }
    }
}

/// Times of a source.
struct Times {
    /// First timestamp.
    first: Option<u64>,
    /// Whether two timestamps differ.
    is_clock: bool,
    /// Whether it ended so early that two timestamps need not be in it.
    is_short: bool,
    /// Time base without timestamps.
    without: Measure,
}

/// Times of a source; `None` if nothing in it needs a time.
fn time_of(buffers: &[Buffer], parts: &[Part]) -> Option<Times> {
    let first = parts.first()?;
    let protocol = buffers
        .get(first.buffer)?
        .sources
        .get(first.source)?
        .protocol;
    let stamps = protocol.has_timestamps();
    let cycles = match &protocol {
        Protocol::EtmV4(config) => config.counts_cycles(),
        Protocol::EtmV3(config) => config.is_cycle_accurate(),
        Protocol::Ptm(config) => config.is_cycle_accurate(),
        Protocol::Stm(_) | Protocol::Itm(_) => return None,
    };
    let without = match cycles {
        true => Measure::Cycles,
        false => Measure::Instructions,
    };
    let mut has_executed = false;
    let mut found = Stamps::default();
    let mut looked_at = 0;
    'parts: for part in parts {
        let Some(buffer) = buffers.get(part.buffer) else {
            continue;
        };
        let (Some(stream), Some(code)) = (
            buffer.frames.streams.get(part.stream),
            buffer.code.get(part.source),
        ) else {
            continue;
        };
        let mut flow = Flow::new(&protocol, EtmV4Options::default(), code);
        for segment in stream.segments() {
            flow.begin(&segment, &mut found);
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            for packet in PacketDecoder::new(&protocol, bytes, segment.start) {
                has_executed |= executes(&packet);
                flow.packet(&packet, &mut found);
                if found.is_clock {
                    break 'parts;
                }
                looked_at += 1;
                if has_executed && !stamps && looked_at >= LOOKED_AT {
                    break 'parts;
                }
            }
        }
        // The last timestamp may wait for the instructions before it.
        flow.finish(&mut found);
    }
    let times = Times {
        first: found.first,
        is_clock: found.is_clock,
        is_short: looked_at < LOOKED_AT && (stamps || found.first.is_some()),
        without,
    };
    (has_executed || found.is_clock).then_some(times)
}

/// Whether a packet reports executed instructions.
fn executes(packet: &Packet) -> bool {
    match packet {
        Packet::EtmV4(packet) => matches!(packet.fields, etmv4::Fields::Atoms(_)),
        Packet::EtmV3(packet) => matches!(packet.fields, etmv3::Fields::PHeader { .. }),
        Packet::Ptm(packet) => matches!(packet.fields, ptm::Fields::Atoms(_)),
        Packet::Stm(_) | Packet::Itm(_) => false,
    }
}
