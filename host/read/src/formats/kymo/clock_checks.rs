//! Checks of a target's clock in a recording: comparisons with the periodic tick, and with a host's clock.

use kymo_event::{ClockCheck, ClockReference, ClockVerdict, TraceInfo};
use kymo_wire::clock_check::{HostCheck, TickCheck};
use kymo_wire::event::{
    ByteOrder, EventId, Layout, METADATA_STREAM, MetadataType, OTHER_BYTES, PacketHeader, Shape,
};
use kymo_wire::link::Mode;
use kymo_wire::packet::EVENT_STREAM;

use super::Identity;
use super::packets::{Packet, Piece, Pieces};
use super::records::number;

/// Facts about the clock in the packet of names, and its comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckFacts {
    /// The width in bits of the hardware counter that the target extends.
    bits: Option<u32>,
    tick: Option<TickCheck>,
    host: Option<HostCheck>,
    /// Number of names and other facts that the target had no memory for.
    pub(super) lost: u64,
}

impl CheckFacts {
    /// Adds a metadata record of this type and value.
    pub(super) fn add(&mut self, layout: Layout, kind: u64, value: &[u8]) {
        if kind == MetadataType::TickCheck as u64 {
            self.tick = TickCheck::decode(layout.order, value);
        } else if kind == MetadataType::HostCheck as u64 {
            self.host = HostCheck::decode(layout.order, value);
        } else if kind == MetadataType::Clock as u64 {
            let bits = value.get(8..12);
            self.bits = bits.map(|bits| number(layout.order, bits) as u32);
        }
    }

    /// Adds remarks: on facts that the target had no memory for, and on pauses that may be longer than shown, because
    /// the counter can wrap around in them and no tick detects it.
    pub(super) fn remark(self, info: &mut TraceInfo) {
        if self.lost > 0 {
            let remark = format!(
                "the target had no memory for {} names of threads and interrupts or other facts: give it more \
                 (kymo_config.metadata); no event is missing because of that",
                self.lost
            );
            info.remarks.retain(|other| {
                !other.contains(" names of threads and interrupts or other facts: ")
            });
            info.remarks.push(remark);
        }
        let hz = info.clock_hz.unwrap_or(0).max(1);
        let Some(turn) = self.bits.and_then(|bits| 1_u64.checked_shl(bits)) else {
            return;
        };
        // The same condition as on the target (`sure_clock`): at least four ticks per wraparound, or the counter wraps
        // around once per tick (SysTick as both), which takes less than twice the range of its bits.
        let is_seen = |tick: TickCheck| {
            let period = hz.checked_div(tick.hz.into());
            period.is_some_and(|period| {
                period <= turn.div_ceil(4) || (turn..2 * turn).contains(&period)
            })
        };
        if self.tick.is_some_and(is_seen) {
            return;
        }
        let tick = match self.tick {
            None => "the program has no periodic tick (kymo_config.tick_hz)".to_owned(),
            Some(tick) => format!("its periodic tick ({} Hz) comes too seldom", tick.hz),
        };
        // Later packets may contain more about the tick.
        info.remarks.retain(|other| {
            !other.contains(" may be shown too short: the target's clock goes round")
        });
        let remark = format!(
            "pauses of {} and more between two events may be shown too short: the target's clock goes round in \
             that time, and {tick}",
            seconds(turn as f64 / hz as f64)
        );
        info.remarks.push(remark);
    }

    /// Evaluates the comparisons of a clock of `clock_hz`. The trace spans `span` of its ticks.
    pub(super) fn checks(self, clock_hz: u64, span: u64) -> Vec<ClockCheck> {
        let mut tick = self.tick;
        if let Some(tick) = &mut tick
            && tick.count == 0
        {
            // Without a single tick, the target never recorded how long it waited for one.
            tick.clock = tick.clock.max(span);
        }
        clock_checks(clock_hz, tick, self.host)
    }
}

/// Formats a time with one decimal and a unit.
fn seconds(seconds: f64) -> String {
    match seconds {
        0.1.. => format!("{seconds:.1} s"),
        0.0001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.1} us", seconds * 1e6),
    }
}

/// Evaluates comparisons of a clock of `clock_hz`.
pub fn clock_checks(
    clock_hz: u64,
    tick: Option<TickCheck>,
    host: Option<HostCheck>,
) -> Vec<ClockCheck> {
    let tick = tick.map(|tick| ClockCheck::by_tick(clock_hz, tick.hz, tick.clock, tick.count));
    let host = host.map(|host| {
        let own = host.clock as f64 * 1e9 / clock_hz.max(1) as f64;
        let (ns, uncertainty) = (host.ns as f64, host.uncertainty as f64);
        ClockCheck::by_clock(ClockReference::Host, own, ns, uncertainty)
    });
    tick.into_iter().chain(host).collect()
}

/// Adds the host's check of the target's clock to a trace that was just fetched.
pub fn add_host_check(info: &mut TraceInfo, host: Option<HostCheck>) {
    let mut checks = info.clock_checks.take().unwrap_or_default();
    checks.extend(clock_checks(info.clock_hz.unwrap_or(0), None, host));
    keep(info, checks);
}

/// Stores the checks of a trace's clock, and adds a remark for each that shows a difference.
pub(super) fn keep(info: &mut TraceInfo, checks: Vec<ClockCheck>) {
    // Replaces the remarks of earlier checks: checks are repeated when more data arrives.
    info.remarks
        .retain(|other| !other.starts_with("times may be wrong: the target's clock ("));
    for check in &checks {
        if check.verdict() == ClockVerdict::Differs {
            let hz = info.clock_hz.unwrap_or(0);
            let remark = format!(
                "times may be wrong: the target's clock ({hz} Hz as it is configured) {check}"
            );
            info.remarks.push(remark);
        }
    }
    info.clock_checks = Some(checks);
}

/// An empty packet of events that reports the number of discarded events, to be appended to a dump; `None` if the
/// last packet reports it already.
///
/// A target in stream mode whose buffer is full has no room for such a packet. Only for targets with one stream: with
/// several, it is unknown which one lost the events.
pub fn loss_packet(identity: &Identity, bytes: &[u8], discarded: u64) -> Option<Vec<u8>> {
    let layout = identity.layout;
    if identity.streams != 1 || identity.mode != Mode::Stream {
        return None;
    }
    let mut last = None;
    for piece in Pieces::new(layout, bytes, &[]).heads_only() {
        if let Piece::Packet(Packet { header, .. }) = piece
            && header.stream == EVENT_STREAM
            && header.cpu != METADATA_STREAM
        {
            last = Some(header);
        }
    }
    let last = last.filter(|last| u64::from(last.discarded) < discarded)?;
    let head = layout.header_bytes();
    let bits = head as u32 * 8;
    let header = PacketHeader {
        sequence: last.sequence.wrapping_add(1),
        discarded: discarded as u32,
        begin: last.end,
        content_bits: bits,
        packet_bits: bits,
        ..last
    };
    let mut packet = vec![0; head];
    header.write(layout, &mut packet);
    Some(packet)
}

/// A packet of names with the comparison of the target's clock with this computer's, to be appended to the packets
/// of a dump.
pub fn host_check_packet(identity: &Identity, bytes: &[u8], check: &HostCheck) -> Vec<u8> {
    let layout = identity.layout;
    fact_packet(
        layout,
        bytes,
        MetadataType::HostCheck,
        &check.encode(layout.order),
    )
}

/// A packet of names with one fact, to be appended to a dump.
fn fact_packet(layout: Layout, bytes: &[u8], kind: MetadataType, value: &[u8]) -> Vec<u8> {
    let (mut sequence, mut clock, mut discarded, mut flags) = (0, 0, 0, 0);
    for piece in Pieces::new(layout, bytes, &[]).heads_only() {
        if let Piece::Packet(packet) = piece
            && packet.header.cpu == METADATA_STREAM
        {
            sequence += 1;
            // The new packet has no time of its own: it must not be later than the recorded ones.
            clock = packet.header.end;
            // Keeps the counter of facts without room, so that no new loss is reported.
            discarded = packet.header.discarded;
            flags = packet.header.flags & PacketHeader::FLAG_FACTS;
        }
    }
    let head = layout.header_bytes();
    let content = (head + OTHER_BYTES + 4 + value.len()) as u32 * 8;
    let header = PacketHeader {
        stream: EVENT_STREAM,
        flags,
        isr_depth: 0,
        cpu: METADATA_STREAM,
        sequence,
        discarded,
        begin: clock,
        end: clock,
        content_bits: content,
        packet_bits: content,
        thread: 0,
    };
    let mut packet = vec![0; head];
    header.write(layout, &mut packet);
    let mut put = |value: u64, bytes: usize| match layout.order {
        ByteOrder::Little => packet.extend(value.to_le_bytes().iter().take(bytes)),
        ByteOrder::Big => packet.extend(value.to_be_bytes().iter().skip(8 - bytes)),
    };
    put(
        Shape::other_header(layout.order, EventId::Metadata, clock),
        OTHER_BYTES,
    );
    put(kind as u64, 2);
    put(value.len() as u64, 2);
    packet.extend(value);
    packet
}

#[cfg(test)]
mod tests {
    use kymo_fixtures::recorder::{CORTEX_M, identity, ten_packets};

    use super::*;

    fn headers(bytes: &[u8]) -> Vec<PacketHeader> {
        let pieces = Pieces::new(CORTEX_M, bytes, &[]).heads_only();
        let headers = pieces.filter_map(|piece| match piece {
            Piece::Packet(packet) => Some(packet.header),
            Piece::Damage(_) => None,
        });
        headers.collect()
    }

    #[test]
    fn what_a_full_target_lost_at_the_end_stands_in_a_packet_of_its_own() {
        let mut target = identity(CORTEX_M);
        let mut bytes = ten_packets().bytes();
        assert!(loss_packet(&target, &bytes, 7).is_none(), "it has room");
        target.mode = Mode::Stream;
        assert!(loss_packet(&target, &bytes, 0).is_none(), "nothing is lost");
        let packet = loss_packet(&target, &bytes, 7).unwrap();
        bytes.extend(packet);
        let headers = headers(&bytes);
        let [.., before, last] = headers.as_slice() else {
            panic!("{headers:?}")
        };
        assert_eq!((last.discarded, last.begin), (7, before.end));
        assert_eq!(last.sequence, before.sequence + 1);
        assert!(loss_packet(&target, &bytes, 7).is_none(), "it is told");
    }

    #[test]
    fn a_counter_that_goes_round_unseen_is_remarked_on() {
        let remarks = |bits: u32, tick_hz: Option<u32>| {
            let order = CORTEX_M.order;
            let mut bytes = ten_packets().bytes();
            let mut clock = 25_000_000_u64.to_le_bytes().to_vec();
            clock.extend(bits.to_le_bytes());
            let tick = tick_hz.map(|hz| {
                let check = TickCheck {
                    hz,
                    ..TickCheck::default()
                };
                (MetadataType::TickCheck, check.encode(order).to_vec())
            });
            // A program without a build id records an empty one.
            let facts = [
                (MetadataType::BuildId, Vec::new()),
                (MetadataType::Clock, clock),
            ];
            for (kind, value) in facts.into_iter().chain(tick) {
                let packet = fact_packet(CORTEX_M, &bytes, kind, &value);
                bytes.extend(packet);
            }
            let options = crate::OpenOptions::default();
            let mut target = identity(CORTEX_M);
            target.build_id = ([0; 32], 0);
            let source = super::super::open_dump(&target, bytes, &[], "test", &options).unwrap();
            assert_eq!(source.info().build_id, None);
            source.info().remarks.clone()
        };
        let [remark] = &remarks(32, None)[..] else {
            panic!("one remark");
        };
        assert!(remark.starts_with("pauses of 171.8 s and more"), "{remark}");
        assert!(remark.ends_with("(kymo_config.tick_hz)"), "{remark}");
        assert!(remarks(24, Some(2))[0].contains("(2 Hz) comes too seldom"));
        // Ticks often enough; the counter as its own timer; a counter that does not wrap around.
        assert_eq!(remarks(24, Some(100)), [""; 0]);
        assert_eq!(remarks(17, Some(100)), [""; 0]);
        assert_eq!(remarks(64, None), [""; 0]);
    }

    #[test]
    fn a_packet_of_ours_takes_over_what_names_did_not_find_room() {
        let layout = CORTEX_M;
        let header = PacketHeader {
            stream: EVENT_STREAM,
            flags: PacketHeader::FLAG_FACTS,
            isr_depth: 0,
            cpu: METADATA_STREAM,
            sequence: 0,
            discarded: 5,
            begin: 1,
            end: 1,
            content_bits: layout.header_bytes() as u32 * 8,
            packet_bits: layout.header_bytes() as u32 * 8,
            thread: 0,
        };
        let mut bytes = vec![0; layout.header_bytes()];
        header.write(layout, &mut bytes).expect("room");
        let check = HostCheck::default();
        bytes.extend(host_check_packet(&identity(layout), &bytes, &check));
        let counts = headers(&bytes);
        let counts: Vec<(u32, u8)> = counts.iter().map(|it| (it.discarded, it.flags)).collect();
        assert_eq!(counts, [(5, PacketHeader::FLAG_FACTS); 2]);
    }
}
