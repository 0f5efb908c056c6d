//! Conditional instructions of ETMv4, and loads and stores of ETMv3.

use kymo_coresight::element::{ConditionalResult, Element, Unsynced};
use kymo_coresight::flow::{EtmV4Options, Flow};
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::memory::{Image, Images, MemorySpace};
use kymo_coresight::{Protocol, etmv3, etmv4};

use super::{assert_same, continued, decode};
use crate::encoder::program::Random;

/// Generator of conditional instructions, with keys as a trace unit counts them.
struct Conditionals {
    keys: u32,
    instruction: u32,
    result: u32,
    bytes: Vec<u8>,
    expected: Vec<Element>,
}

impl Conditionals {
    fn instruction(&mut self, step: bool) {
        if step {
            self.instruction = (self.instruction + 1) % self.keys;
        }
        let key = self.instruction;
        self.expected.push(Element::Conditional { key });
    }

    fn catch_up(&mut self) {
        while self.instruction != self.result {
            self.instruction(true);
        }
    }

    fn result(&mut self, result: ConditionalResult) {
        let key = self.result;
        self.expected
            .push(Element::ConditionalResult { key, result });
    }

    /// Adds one packet.
    fn packet(&mut self, random: &mut Random, has_flags: bool) {
        let tokens = match has_flags {
            false => [
                ConditionalResult::Failed,
                ConditionalResult::Passed,
                ConditionalResult::Unknown,
            ],
            true => [0b0010, 0b1000, 0b0110].map(ConditionalResult::Flags),
        };
        match random.below(9) {
            0 => {
                self.instruction = random.below(self.keys as usize) as u32;
                self.bytes.push(0x6c);
                continued(self.instruction.into(), &mut self.bytes);
                self.instruction(false);
            }
            1 => {
                // A special key: that of an instruction whose result is not traced by its key.
                let special = self.keys + random.below(2) as u32;
                self.bytes.push(0x6c);
                continued(special.into(), &mut self.bytes);
                self.expected.push(Element::Conditional { key: special });
                self.instruction = (self.instruction + 1) % self.keys;
            }
            2 => {
                let form = random.below(3) as u8;
                self.bytes.push(0x40 | form);
                self.instruction(form != 1);
                if form == 2 {
                    self.instruction(false);
                }
            }
            3 => {
                let (count, again) = (1 + random.below(63) as u8, random.once_in(2));
                self.bytes.extend([0x6d, count << 1 | u8::from(again)]);
                (0..count).for_each(|_| self.instruction(true));
                if again {
                    self.instruction(false);
                }
            }
            4 => {
                self.bytes.push(0x43);
                self.expected.push(Element::ConditionalFlush);
            }
            5 => {
                let both = random.once_in(2);
                let implied = [random.once_in(2), random.once_in(2)];
                let bits = u8::from(implied[0]) | u8::from(implied[1]) << 1;
                self.bytes
                    .push(if both { 0x68 | bits } else { 0x6e | bits & 1 });
                for implied in &implied[..if both { 2 } else { 1 }] {
                    let key = random.below(self.keys as usize) as u32;
                    let result = random.below(16) as u8;
                    continued(u64::from(key) << 4 | u64::from(result), &mut self.bytes);
                    self.result = key;
                    if *implied {
                        self.catch_up();
                    }
                    self.result(match (has_flags, result & 1) {
                        (true, _) => ConditionalResult::Flags(result),
                        (false, 1) => ConditionalResult::Passed,
                        (false, _) => ConditionalResult::Failed,
                    });
                }
            }
            6 => {
                let (step, token) = (random.below(2) as u8, random.below(3));
                self.bytes.push(0x48 | step << 2 | token as u8);
                self.result = (self.result + 1 + u32::from(step)) % self.keys;
                self.catch_up();
                self.result(tokens[token]);
            }
            7 => {
                // Up to six tokens of two bits; the rest are ones.
                let count = random.below(7);
                let mut bits = 0xfffu16;
                for number in 0..count {
                    let token = random.below(3);
                    bits = bits & !(3 << (2 * number)) | (token as u16) << (2 * number);
                    self.result = (self.result + 1) % self.keys;
                    self.result(tokens[token]);
                }
                self.bytes.extend([0x50 | (bits >> 8) as u8, bits as u8]);
            }
            _ => {
                let token = random.below(3);
                self.bytes.push(0x44 | token as u8);
                self.result = self.result.checked_sub(1).unwrap_or(self.keys - 1);
                self.result(tokens[token]);
            }
        }
    }
}

#[test]
fn conditional_instructions_and_their_results() {
    for (seed, has_flags) in (0..40).map(|seed| (seed, seed % 2 == 1)) {
        let mut random = Random(seed);
        let keys = 3 + random.below(60) as u32;
        let config = etmv4::Config {
            idr0: 0x2800_0ea1 | 1 << 6 | u32::from(has_flags) << 12,
            configr: 0xc1 | 1 << 8,
            idr12: keys + 2,
            idr13: 2,
            ..etmv4::Config::default()
        };
        let mut trace = Conditionals {
            keys,
            instruction: 0,
            result: 0,
            bytes: [&[0; 11][..], &[0x80, 0x01, 0x00]].concat(),
            expected: vec![Element::NoSync(Unsynced::Init)],
        };
        (0..200).for_each(|_| trace.packet(&mut random, has_flags));
        // The atom after them commits them. The address is unknown, so it results in no range.
        trace.bytes.push(0xf7);
        trace.expected.push(Element::End(Unsynced::EndOfTrace));
        let (_, found) = decode(&Protocol::EtmV4(config), &trace.bytes);
        assert_same(&found, &trace.expected, &format!("seed {seed}"));
    }
}

#[test]
fn conditional_instructions_are_cancelled_with_the_branch_before() {
    let config = etmv4::Config {
        idr0: 0x2800_0ea1 | 1 << 6,
        configr: 0xc1 | 1 << 8,
        idr8: 8,
        idr12: 8,
        ..etmv4::Config::default()
    };
    let begin = [&[0; 11][..], &[0x80, 0x01, 0x00]].concat();
    // An atom, two instructions with keys 1 and 2, a cancel of one, the explicit key 5, an atom, a commit of one.
    let behind = [0xf7, 0x40, 0x40, 0x2e, 0x01, 0x6c, 0x05, 0xf7, 0x2d, 0x01];
    let (_, found) = decode(&Protocol::EtmV4(config), &[&begin[..], &behind].concat());
    let expected = [
        Element::NoSync(Unsynced::Init),
        Element::Conditional { key: 5 },
        Element::End(Unsynced::EndOfTrace),
    ];
    assert_same(&found, &expected, "a cancel");
}

#[test]
fn function_returns_count_on_cores_that_have_them() {
    let m = etmv4::Config {
        idr1: 0x4100_f420,
        idr8: 8,
        is_m_profile: true,
        ..etmv4::Config::default()
    };
    let begin = [&[0; 11][..], &[0x80, 0x01, 0x00]].concat();
    // The return of a function, and that of an exception. The first is committed, the second is cancelled.
    let behind = [0x05, 0x07, 0x2d, 0x01, 0x2e, 0x01];
    let trace = [&begin[..], &behind].concat();
    let (_, found) = decode(&Protocol::EtmV4(m), &trace);
    let expected = [
        Element::NoSync(Unsynced::Init),
        Element::End(Unsynced::EndOfTrace),
    ];
    assert_same(&found, &expected, "a commit and a cancel");
    // Other cores do not have this packet: the following bytes are unreliable, for example an event.
    let a = etmv4::Config {
        is_m_profile: false,
        ..m
    };
    let trace = [&begin[..], &[0x05, 0x71]].concat();
    let (_, found) = decode(&Protocol::EtmV4(a), &trace);
    let expected = [
        Element::NoSync(Unsynced::Init),
        Element::NoSync(Unsynced::BadPacket),
        Element::End(Unsynced::EndOfTrace),
    ];
    assert_same(&found, &expected, "a core of the A profile");
}

#[test]
fn data_of_an_etmv3() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let (has_values, has_addresses) =
            [(true, true), (true, false), (false, true)][random.below(3)];
        let config = etmv3::Config {
            cr: u32::from(has_values) << 2 | u32::from(has_addresses) << 3,
            idr: 0x4100_f250,
            ..etmv3::Config::default()
        };
        let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
        // I-sync: no context ID; an address, A32.
        bytes.extend([0x08, 0x20, 0x00, 0x10, 0x00, 0x00]);
        let mut expected = Vec::new();
        let mut last = 0u32;
        let mut waiting = [None; 4];
        let mut kinds = Vec::new();
        for _ in 0..300 {
            // An address with only the low bits that differ, or with all bits.
            let mut address = |bytes: &mut Vec<u8>, random: &mut Random| {
                let new = match random.below(3) {
                    0 => last ^ random.below(0x80) as u32,
                    1 => last ^ random.below(0x4000) as u32,
                    _ => random.below(usize::MAX) as u32,
                };
                let mut rest = new;
                let mut left = 32 - (last ^ new).leading_zeros();
                for number in 0..5 {
                    let goes_on = left > 7 && number < 4;
                    let low = if number == 4 { rest & 0xf } else { rest & 0x7f };
                    bytes.push(low as u8 | u8::from(goes_on) << 7);
                    if !goes_on {
                        break;
                    }
                    (rest, left) = (rest >> 7, left - 7);
                }
                last = new;
                new
            };
            let size = random.below(4);
            let wide = [0, 1, 2, 4][size];
            let number =
                random.below(usize::MAX) as u32 & (0xffff_ffffu64 >> (32 - 8 * wide)) as u32;
            let has_address = has_addresses && random.once_in(2);
            let a = u8::from(has_address) << 5;
            let size_bits = (size as u8) << 2;
            let kind = random.below(6);
            kinds.push(kind);
            match kind {
                0 => {
                    // If no values are traced, the size is not encoded.
                    let size_bits = if has_values { size_bits } else { 0 };
                    bytes.push(0x02 | a | size_bits);
                    let address = has_address.then(|| address(&mut bytes, &mut random));
                    let number = if has_values { number } else { 0 };
                    if has_values {
                        bytes.extend(&number.to_le_bytes()[..wide]);
                    }
                    let value = Some(number);
                    expected.push(Element::Data { address, value });
                }
                // A value out of order, if values are traced.
                1 if has_values => {
                    let tag = 1 + random.below(3) as u8;
                    bytes.push(0x50 | a | tag << 2);
                    let address = has_address.then(|| address(&mut bytes, &mut random));
                    waiting[usize::from(tag)] = address;
                }
                2 if has_values => {
                    let tag = 1 + random.below(3) as u8;
                    bytes.push(tag << 5 | size_bits);
                    bytes.extend(&number.to_le_bytes()[..wide]);
                    let address = waiting[usize::from(tag)].take();
                    let value = Some(number);
                    expected.push(Element::Data { address, value });
                }
                3 => {
                    bytes.push(0x62);
                    expected.push(Element::DataSuppressed);
                }
                4 => {
                    bytes.push(if has_address { 0x7a } else { 0x6a });
                    let address = has_address.then(|| address(&mut bytes, &mut random));
                    let value = None;
                    expected.push(Element::Data { address, value });
                }
                _ if has_values => {
                    bytes.push(0x50);
                    expected.push(Element::StoreFailed);
                }
                _ => {}
            }
        }
        let (packets, found) = decode(&Protocol::EtmV3(config), &bytes);
        let of_data = |element: &&Element| {
            matches!(
                element,
                Element::Data { .. } | Element::StoreFailed | Element::DataSuppressed
            )
        };
        let found: Vec<_> = found.iter().filter(of_data).copied().collect();
        for packet in packets {
            let Packet::EtmV3(packet) = packet else {
                panic!("a packet of an ETMv3")
            };
            let is_wrong = matches!(
                packet.kind,
                etmv3::Kind::Reserved | etmv3::Kind::BadSequence | etmv3::Kind::BadTraceMode
            );
            assert!(!is_wrong, "seed {seed}: {packet:?}");
        }
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
}

#[test]
fn an_exception_of_an_etmv3_cuts_in_where_the_flow_was() {
    // At 0x1000 `b 0x1010`, there `bx lr`.
    let mut code = vec![0; 0x14];
    code[..4].copy_from_slice(&0xea00_0002u32.to_le_bytes());
    code[0x10..].copy_from_slice(&0xe12f_ff1eu32.to_le_bytes());
    let code: Images = [Image {
        name: String::new(),
        address: 0x1000,
        file_offset: 0,
        bytes: code.into(),
        space: MemorySpace::ANY,
    }]
    .into_iter()
    .collect();
    let branch = |address: u32, exception: Option<u8>| {
        let bits = address >> 2;
        let flag = u8::from(exception.is_some()) << 6;
        let mut bytes = vec![(bits as u8 & 0x3f) << 1 | 0x81];
        bytes.extend([6, 13, 20].map(|shift| (bits >> shift) as u8 | 0x80));
        bytes.push((bits >> 27) as u8 & 7 | 8 | flag);
        bytes.extend(exception);
        bytes
    };
    // An executed instruction, then FIQ; or an instruction that the exception cancels.
    let (atom, fiq, cancels) = (vec![0x84], Some(15 << 1), Some(15 << 1 | 0x20));
    let config = etmv3::Config {
        idr: 0x4100_f250,
        ..etmv3::Config::default()
    };
    let protocol = Protocol::EtmV3(config);
    for (packets, expected) in [
        (vec![branch(0x2000, fiq)], 0x1000),
        (vec![atom.clone(), branch(0x2000, fiq)], 0x1010),
        (vec![atom.clone(), branch(0x2000, cancels)], 0x1000),
        (
            vec![vec![0x88], branch(0x1234, None), branch(0x2000, fiq)],
            0x1234,
        ),
    ] {
        let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
        bytes.extend([0x08, 0x20, 0x00, 0x10, 0x00, 0x00]);
        bytes.extend(packets.concat());
        let mut elements = Vec::new();
        let mut flow = Flow::new(&protocol, EtmV4Options::default(), &code);
        flow.run(PacketDecoder::new(&protocol, &bytes, 0), &mut elements);
        let found = elements.iter().find_map(|(_, element)| match element {
            Element::Exception { return_address, .. } => Some(*return_address),
            _ => None,
        });
        assert_eq!(found, Some(Some(expected)), "{elements:?}");
    }
}
