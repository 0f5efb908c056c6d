//! T32: an instruction is given with its first half word in bits 31:16.

use super::{Class, Instruction, Purpose, barrier, coprocessor_barrier, offset};
use crate::isa::Isa;

pub(super) fn decode(address: u64, word: u32) -> Instruction {
    let size = if is_wide(word) { 4 } else { 2 };
    let mut instruction = Instruction {
        size,
        next_isa: Isa::T32,
        ..Instruction::default()
    };
    if let Some(direct) = direct(address, word) {
        instruction.class = Class::Branch;
        instruction.target = direct.target & 0xffff_ffff;
        instruction.is_conditional = direct.is_conditional;
        instruction.links = direct.links;
        if direct.links {
            instruction.purpose = Purpose::Call;
        }
        instruction.counts_loop = direct.counts_loop;
        if direct.is_to_a32 {
            instruction.next_isa = Isa::A32;
        }
        return instruction;
    }
    if let Some(purpose) = indirect(word) {
        instruction.class = Class::Indirect;
        instruction.purpose = purpose;
        instruction.links = purpose == Purpose::Call;
        return instruction;
    }
    instruction.class = match word {
        _ if word & 0xffff_ff00 == 0xf3bf_8f00 => barrier(word),
        _ if word & 0xffff_0f00 == 0xee07_0f00 => coprocessor_barrier(word),
        // WFE, WFI: wide and narrow.
        0xf3af_8002 | 0xf3af_8003 => Class::Wait,
        _ if word & 0xffef_0000 == 0xbf20_0000 => Class::Wait,
        _ => Class::Other,
    };
    if word & 0xff00_0000 == 0xbf00_0000 && word & 0x000f_0000 != 0 {
        instruction.it_length = 4 - (word >> 16 & 0xf).trailing_zeros() as u8;
    }
    instruction
}

/// Whether an instruction has a second half word.
pub(super) const fn is_wide(word: u32) -> bool {
    word >= 0xe800_0000
}

struct Direct {
    target: u64,
    is_conditional: bool,
    links: bool,
    is_to_a32: bool,
    counts_loop: bool,
}

fn direct(address: u64, word: u32) -> Option<Direct> {
    let pc = address.wrapping_add(4);
    let to = |distance: i64, is_conditional, links| Direct {
        target: pc.wrapping_add_signed(distance),
        is_conditional,
        links,
        is_to_a32: false,
        counts_loop: false,
    };
    let over_loop = |distance: i64| Direct {
        counts_loop: true,
        ..to(distance, false, false)
    };
    let high = |low: u32, bits: u32| word >> 16 >> low & ((1u32 << bits) - 1);
    Some(match word {
        // B with a condition, 16 bits; 0xDE and 0xDF are UDF and SVC.
        _ if word >> 28 == 0xd && word & 0x0e00_0000 != 0x0e00_0000 => {
            to(offset(word, 16, 8, 2), true, false)
        }
        // B, 16 bits.
        _ if word & 0xf800_0000 == 0xe000_0000 => to(offset(word, 16, 11, 2), false, false),
        // B with a condition, 32 bits.
        _ if word & 0xf800_d000 == 0xf000_8000 && word & 0x0380_0000 != 0x0380_0000 => {
            let bits = high(10, 1) << 19
                | (word >> 11 & 1) << 18
                | (word >> 13 & 1) << 17
                | high(0, 6) << 11
                | word & 0x7ff;
            to(offset(bits, 0, 20, 2), true, false)
        }
        // B and BL, 32 bits.
        _ if word & 0xf800_9000 == 0xf000_9000 => to(far(word), false, word & 0x4000 != 0),
        // BLX: into A32, from an aligned PC.
        _ if word & 0xf800_d001 == 0xf000_c000 => Direct {
            target: (pc & !3).wrapping_add_signed(far(word & !1)),
            is_conditional: false,
            links: true,
            is_to_a32: true,
            counts_loop: false,
        },
        // CBZ, CBNZ: forwards only.
        _ if word & 0xf500_0000 == 0xb100_0000 => {
            to(i64::from(high(9, 1) << 6 | high(3, 5) << 1), true, false)
        }
        // LE, LETP: backwards.
        _ if matches!(word & 0xffff_f001, 0xf00f_c001 | 0xf02f_c001 | 0xf01f_c001) => {
            over_loop(-i64::from(loop_distance(word)))
        }
        // WLS, WLSTP: forwards.
        _ if word & 0xfff0_f001 == 0xf040_c001 || word & 0xffc0_f001 == 0xf000_c001 => {
            over_loop(i64::from(loop_distance(word)))
        }
        _ => return None,
    })
}

/// Distance of B and BL: a sign, two bits stored as the inverted XOR with it, and 21 bits.
fn far(word: u32) -> i64 {
    let sign = word >> 26 & 1;
    let first = !(word >> 13 ^ sign) & 1;
    let second = !(word >> 11 ^ sign) & 1;
    let bits = sign << 23 | first << 22 | second << 21 | (word >> 16 & 0x3ff) << 11 | word & 0x7ff;
    offset(bits, 0, 24, 2)
}

/// Distance of an Armv8.1-M loop instruction.
fn loop_distance(word: u32) -> u32 {
    (word & 0x7fe) << 1 | word >> 10 & 2
}

/// Purpose of an instruction that writes the PC other than by a direct branch; `None` for other instructions.
fn indirect(word: u32) -> Option<Purpose> {
    let implied = |is_return: bool| {
        if is_return {
            Purpose::ImpliedReturn
        } else {
            Purpose::None
        }
    };
    Some(match word {
        // BX, BLX by register.
        _ if word & 0xff80_0000 == 0x4780_0000 => Purpose::Call,
        _ if word & 0xff80_0000 == 0x4700_0000 => implied(word & 0x0078_0000 == 0x0070_0000),
        // POP with the PC, 16 bits.
        _ if word & 0xff00_0000 == 0xbd00_0000 => Purpose::ImpliedReturn,
        // MOV and ADD to the PC.
        _ if word & 0xfd87_0000 == 0x4487_0000 => implied(word & 0xffff_0000 == 0x46f7_0000),
        // BXJ; TBB, TBH; RFE; SUBS PC, LR and ERET.
        _ if word & 0xfff0_d000 == 0xf3c0_8000 => Purpose::None,
        _ if word & 0xfff0_ffe0 == 0xe8d0_f000 => Purpose::None,
        _ if matches!(word & 0xffd0_0000, 0xe810_0000 | 0xe990_0000) => Purpose::None,
        _ if word & 0xfff0_d000 == 0xf3d0_8000 => Purpose::None,
        // LDR to the PC: immediates, literal, register.
        _ if word & 0xfff0_f000 == 0xf8d0_f000 || word & 0xff7f_f000 == 0xf85f_f000 => {
            Purpose::None
        }
        _ if word & 0xfff0_f800 == 0xf850_f800 => implied(word & 0x000f_0f00 == 0x000d_0b00),
        _ if word & 0xfff0_ffc0 == 0xf850_f000 => Purpose::None,
        // LDM with the PC among the registers.
        _ if word & 0xfe50_8000 == 0xe810_8000 => implied(word & 0x0fff_0000 == 0x08bd_0000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_targets() {
        // bl .+4: f000 f800; b.n .: e7fe; beq.n .+4: d000; cbz r0, .+4: b100
        assert_eq!(decode(0x100, 0xf000_f800).target, 0x104);
        assert_eq!(decode(0x100, 0xe7fe_0000).target, 0x100);
        assert_eq!(decode(0x100, 0xd000_0000).target, 0x104);
        assert_eq!(decode(0x100, 0xb108_0000).target, 0x106);
        // bl .-4: f7ff fffe
        assert_eq!(decode(0x100, 0xf7ff_fffe).target, 0x100);
        // blx .+4: f000 e800
        let blx = decode(0x102, 0xf000_e800);
        assert_eq!((blx.target, blx.next_isa), (0x104, Isa::A32));
    }

    #[test]
    fn counts_what_an_it_makes_conditional() {
        // it eq; itt eq; itttt eq
        assert_eq!(decode(0, 0xbf08_0000).it_length, 1);
        assert_eq!(decode(0, 0xbf04_0000).it_length, 2);
        assert_eq!(decode(0, 0xbf01_0000).it_length, 4);
        assert_eq!(decode(0, 0xbf00_0000).it_length, 0);
    }
}
