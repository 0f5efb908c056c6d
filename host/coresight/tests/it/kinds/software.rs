//! All packets of STM and ITM.

use std::collections::HashSet;

use kymo_coresight::element::{Element, ItmMessage, Software, StmKind, StmMessage, Unsynced};
use kymo_coresight::frames::TraceId;
use kymo_coresight::listing::Packet;
use kymo_coresight::{Protocol, itm, stm};

use super::{assert_same, continued, decode};
use crate::encoder::program::Random;

/// Nibbles, the low half of a byte first.
#[derive(Default)]
struct Nibbles(Vec<u8>);

impl Nibbles {
    fn all(&mut self, nibbles: &[u8]) {
        self.0.extend(nibbles);
    }

    /// A number, the most significant nibble first.
    fn number(&mut self, number: u64, nibbles: u32) {
        self.0.extend(
            (0..nibbles)
                .rev()
                .map(|at| (number >> (4 * at)) as u8 & 0xf),
        );
    }

    fn bytes(&self) -> Vec<u8> {
        let pairs = self.0.chunks(2);
        pairs
            .map(|pair| pair[0] | pair.get(1).copied().unwrap_or_default() << 4)
            .collect()
    }
}

/// A random trace of an STM, and its elements.
pub fn trace_of_an_stm(seed: u64) -> (Vec<u8>, Vec<Element>) {
    let mut random = Random(seed);
    let is_gray = random.once_in(2);
    let mut trace = Nibbles::default();
    trace.all(&[0xf; 21]);
    trace.all(&[0, 0xf, 0, 0, if is_gray { 4 } else { 3 }]);
    let mut expected = vec![Element::NoSync(Unsynced::Init)];
    // The version packet sets both to 0.
    let (mut place, mut is_placed, mut time) = ((0, 0), false, 0u64);
    for _ in 0..200 {
        let value = random.below(usize::MAX) as u64 | (random.below(usize::MAX) as u64) << 32;
        let mut message = StmMessage {
            kind: StmKind::Data,
            place: Some(place),
            value,
            bits: 0,
            is_marker: false,
            timestamp: None,
        };
        let (mut is_marker, mut has_time) = (random.once_in(2), random.once_in(2));
        let mut is_null = false;
        let size = random.below(5);
        match random.below(12) {
            0 => {
                trace.all(&[1]);
                trace.number(value & 0xff, 2);
                (place, is_placed) = ((value as u16 & 0xff, 0), true);
                continue;
            }
            1 => {
                trace.all(&[3]);
                trace.number(value & 0xff, 2);
                (place.1, is_placed) = (place.1 & 0xff00 | value as u16 & 0xff, true);
                continue;
            }
            2 => {
                trace.all(&[0xf, 3]);
                trace.number(value & 0xffff, 4);
                (place.1, is_placed) = (value as u16, true);
                continue;
            }
            3 => {
                if random.once_in(2) {
                    trace.all(&[0]);
                    continue;
                }
                // A null packet with a timestamp only carries the time.
                is_null = true;
                has_time = true;
                trace.all(&[0xf, 0, 1]);
            }
            4 => {
                trace.all(&[0xf; 21]);
                trace.all(&[0]);
                continue;
            }
            5 => {
                has_time |= !is_marker;
                message.bits = 0;
                is_marker = true;
                trace.all(if has_time { &[0xe] } else { &[0xf, 0xe] });
            }
            6 => {
                is_marker = false;
                message.kind = StmKind::Trigger;
                message.bits = 8;
                trace.all(if has_time { &[0xf, 0, 7] } else { &[0xf, 0, 6] });
                trace.number(value & 0xff, 2);
            }
            7 => {
                (is_marker, has_time) = (false, false);
                message.kind = StmKind::Frequency;
                message.bits = 32;
                trace.all(&[0xf, 0, 8]);
                trace.number(value & 0xffff_ffff, 8);
            }
            8 => {
                (is_marker, has_time) = (false, false);
                message.bits = 8;
                if random.once_in(2) {
                    message.kind = StmKind::MasterError;
                    trace.all(&[2]);
                    place.1 = 0;
                } else {
                    message.kind = StmKind::GlobalError;
                    trace.all(&[0xf, 2]);
                    place = (0, 0);
                }
                message.place = Some(place);
                trace.number(value & 0xff, 2);
            }
            _ => {
                // D4 has opcodes of its own. D8 to D64 count from 4, or from 8 with marker and timestamp.
                let opcode: &[u8] = match (size, is_marker, has_time) {
                    (0, false, false) => &[0xc],
                    (0, true, true) => &[0xd],
                    (0, false, true) => &[0xf, 0xc],
                    (0, true, false) => &[0xf, 0xd],
                    (size, false, false) => &[3 + size as u8],
                    (size, true, true) => &[7 + size as u8],
                    (size, false, true) => &[0xf, 3 + size as u8],
                    (size, true, false) => &[0xf, 7 + size as u8],
                };
                trace.all(opcode);
                message.bits = [4, 8, 16, 32, 64][size];
                trace.number(
                    value & u64::MAX >> (64 - message.bits),
                    u32::from(message.bits) / 4,
                );
            }
        }
        if has_time {
            // The low nibbles that changed, or more of them; 14 and 16 nibbles are encoded as 13 and 14.
            let most = 1 << random.below(31);
            let next = time.wrapping_add(random.below(most) as u64);
            let gray = |time: u64| if is_gray { time ^ time >> 1 } else { time };
            let changed = (gray(next) ^ gray(time))
                .checked_ilog2()
                .map_or(0, |bit| bit / 4 + 1);
            let nibbles = match changed + random.below(3) as u32 {
                13 => 14,
                15.. => 16,
                nibbles => nibbles,
            };
            trace.all(&[match nibbles {
                14 => 13,
                16 => 14,
                nibbles => nibbles as u8,
            }]);
            trace.number(gray(next), nibbles);
            time = next;
            message.timestamp = Some(next);
        }
        if is_null {
            continue;
        }
        if message.kind != StmKind::Data && !is_placed {
            message.place = None;
        }
        message.is_marker = is_marker;
        message.value = match message.bits {
            0 => 0,
            bits => value & u64::MAX >> (64 - bits),
        };
        expected.push(Element::Software(Software::Stm(message)));
    }
    // Pads to a whole number of bytes.
    if trace.0.len() % 2 == 1 {
        trace.all(&[0]);
    }
    expected.push(Element::End(Unsynced::EndOfTrace));
    (trace.bytes(), expected)
}

#[test]
fn packets_of_an_stm() {
    let mut seen = HashSet::new();
    for seed in 0..60 {
        let (trace, expected) = trace_of_an_stm(seed);
        let (packets, found) = decode(&Protocol::Stm(TraceId(1)), &trace);
        for packet in packets {
            let Packet::Stm(packet) = packet else {
                panic!("a packet of an STM")
            };
            seen.insert((packet.kind, packet.is_marker, packet.timestamp.is_some()));
        }
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
    use stm::Kind;
    for kind in [
        Kind::Data4,
        Kind::Data8,
        Kind::Data16,
        Kind::Data32,
        Kind::Data64,
    ] {
        for (is_marker, has_time) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(seen.contains(&(kind, is_marker, has_time)), "{kind:?}");
        }
    }
    assert!(seen.contains(&(Kind::Null, false, true)));
    for kind in [
        Kind::Async,
        Kind::Version,
        Kind::Frequency,
        Kind::Null,
        Kind::Trigger,
        Kind::GlobalError,
        Kind::MasterError,
        Kind::Master8,
        Kind::Channel8,
        Kind::Channel16,
        Kind::Flag,
    ] {
        assert!(seen.iter().any(|(seen, ..)| *seen == kind), "{kind:?}");
    }
}

/// STPv2 has masters of 16 bits. The reference library takes the packet for a reserved one.
#[test]
fn masters_of_16_bits_of_an_stm() {
    let mut trace = Nibbles::default();
    trace.all(&[0xf; 21]);
    trace.all(&[0, 0xf, 0, 0, 3]);
    // M16, C8, D8.
    trace.all(&[0xf, 1, 0xa, 0xb, 0xc, 0xd, 3, 0, 7, 4, 5, 6]);
    let (packets, found) = decode(&Protocol::Stm(TraceId(1)), &trace.bytes());
    let Some(Packet::Stm(packet)) = packets.get(2) else {
        panic!("{packets:?}");
    };
    let mut text = String::new();
    stm::describe(packet, &mut text).expect("text");
    assert_eq!(text, "M16:Set current master; Master=0xabcd");
    let message = found.iter().find_map(|element| match element {
        Element::Software(Software::Stm(message)) => Some((message.place, message.value)),
        _ => None,
    });
    assert_eq!(message, Some((Some((0xabcd, 7)), 0x56)));
}

#[test]
fn packets_of_an_itm() {
    let mut seen = HashSet::new();
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
        let mut expected = vec![Element::NoSync(Unsynced::Init)];
        let (mut page, mut total, mut global) = (0u32, 0u64, 0u64);
        let (mut overflowed, mut is_whole) = (false, false);
        for _ in 0..200 {
            let size = random.below(3);
            let wide = [1u8, 2, 4][size];
            let value = random.below(usize::MAX) as u32 & u32::MAX >> (32 - 8 * wide);
            let source = random.below(32) as u8;
            let message = match random.below(9) {
                0 | 1 => {
                    bytes.push((source << 3) | (size as u8 + 1));
                    bytes.extend(&value.to_le_bytes()[..usize::from(wide)]);
                    let port = page * 32 + u32::from(source);
                    ItmMessage::Software {
                        port,
                        value,
                        bytes: wide,
                    }
                }
                2 => {
                    bytes.push((source << 3) | 4 | (size as u8 + 1));
                    bytes.extend(&value.to_le_bytes()[..usize::from(wide)]);
                    ItmMessage::Hardware {
                        discriminator: source,
                        value,
                        bytes: wide,
                    }
                }
                3 => {
                    let (ticks, delay) = match random.once_in(2) {
                        true => {
                            let ticks = 1 + random.below(6) as u32;
                            bytes.push((ticks as u8) << 4);
                            (ticks, 0)
                        }
                        false => {
                            let bits = 7 * (1 + random.below(4));
                            let ticks = random.below(1 << bits) as u32;
                            let delay = random.below(4) as u8;
                            bytes.push(0xc0 | delay << 4);
                            continued(ticks.into(), &mut bytes);
                            (ticks, delay)
                        }
                    };
                    total += u64::from(ticks);
                    ItmMessage::LocalTimestamp {
                        ticks,
                        delay,
                        total,
                    }
                }
                4 => {
                    // The low bits that changed; the fourth byte also contains whether the upper ones did.
                    let count = 1 + random.below(4);
                    let bits = [7, 14, 21, 26][count - 1];
                    let low = random.below(1 << bits) as u64;
                    let wraps = count == 4 && random.once_in(2);
                    bytes.push(0x94);
                    for number in 0..count {
                        let more = u8::from(number + 1 < count) << 7;
                        bytes.push((low >> (7 * number)) as u8 & 0x7f | more);
                    }
                    if count == 4 {
                        let last = bytes.last_mut().expect("a byte");
                        *last = *last & 0x1f | u8::from(wraps) << 6;
                    }
                    global = global >> bits << bits | low;
                    is_whole &= !wraps;
                    if !is_whole {
                        continue;
                    }
                    ItmMessage::GlobalTimestamp(global)
                }
                5 => {
                    let high = random.below(1 << 22) as u64;
                    bytes.push(0xb4);
                    for number in 0..4 {
                        let more = u8::from(number < 3) << 7;
                        bytes.push((high >> (7 * number)) as u8 & 0x7f | more);
                    }
                    global = high << 26 | global & 0x3ff_ffff;
                    is_whole = true;
                    ItmMessage::GlobalTimestamp(global)
                }
                6 => {
                    page = random.below(8) as u32;
                    bytes.push(0x08 | (page as u8) << 4);
                    continue;
                }
                7 => {
                    bytes.push(0x70);
                    (overflowed, total) = (true, 0);
                    continue;
                }
                _ => {
                    bytes.extend([0, 0, 0, 0, 0, 0x80]);
                    continue;
                }
            };
            let overflowed = std::mem::take(&mut overflowed);
            expected.push(Element::Software(Software::Itm {
                message,
                overflowed,
            }));
        }
        expected.push(Element::End(Unsynced::EndOfTrace));
        let (packets, found) = decode(&Protocol::Itm(TraceId(1)), &bytes);
        for packet in packets {
            let Packet::Itm(packet) = packet else {
                panic!("a packet of an ITM")
            };
            seen.insert(packet.kind);
        }
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
    use itm::Kind;
    for kind in [
        Kind::Async,
        Kind::Overflow,
        Kind::Software,
        Kind::Hardware,
        Kind::LocalTimestamp,
        Kind::GlobalTimestamp1,
        Kind::GlobalTimestamp2,
        Kind::Extension,
    ] {
        assert!(seen.contains(&kind), "{kind:?}");
    }
}
