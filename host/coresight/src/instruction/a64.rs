//! A64.

use super::{Class, Instruction, Purpose, offset};
use crate::isa::Isa;

pub(super) fn decode(address: u64, word: u32) -> Instruction {
    let mut instruction = Instruction {
        size: 4,
        next_isa: Isa::A64,
        ..Instruction::default()
    };
    if let Some(distance) = direct(word) {
        instruction.class = Class::Branch;
        instruction.target = address.wrapping_add_signed(distance);
        instruction.links = word & 0xfc00_0000 == 0x9400_0000;
        if instruction.links {
            instruction.purpose = Purpose::Call;
        }
        // CBZ, CBNZ, TBZ, TBNZ, B.cond, BC.cond.
        instruction.is_conditional =
            word & 0x7c00_0000 == 0x3400_0000 || word & 0xff00_0000 == 0x5400_0000;
        if word & 0x7e00_0000 == 0x7400_0000 {
            instruction.is_conditional = true;
            instruction.purpose = Purpose::Compare;
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
        // DSB, DMB and ISB with any option.
        _ if word & 0xffff_f09f == 0xd503_309f => match word >> 5 & 3 {
            0 | 1 => Class::Barrier,
            2 => Class::Isb,
            _ => Class::Other,
        },
        // WFE, WFI; WFET, WFIT.
        0xd503_205f | 0xd503_207f => Class::Wait,
        _ if word & 0xffff_ffc0 == 0xd503_1000 => Class::Wait,
        _ if word & 0xffff_ffe0 == 0xd523_3060 => Class::TransactionStart,
        _ => Class::Other,
    };
    instruction
}

/// Distance to the target of a direct branch, in bytes.
fn direct(word: u32) -> Option<i64> {
    Some(match word >> 24 {
        0x14..=0x17 | 0x94..=0x97 => offset(word, 0, 26, 4),
        0x54 => offset(word, 5, 19, 4),
        0x34 | 0x35 | 0xb4 | 0xb5 => offset(word, 5, 19, 4),
        0x36 | 0x37 | 0xb6 | 0xb7 => offset(word, 5, 14, 4),
        // Compare and branch (FEAT_CMPBR): registers, bytes and half words, immediates.
        0x74 if word >> 14 & 3 != 1 => offset(word, 5, 9, 4),
        0xf4 if word >> 14 & 3 == 0 => offset(word, 5, 9, 4),
        0x75 | 0xf5 if word >> 14 & 1 == 0 => offset(word, 5, 9, 4),
        _ => return None,
    })
}

fn indirect(word: u32) -> Option<Purpose> {
    let call_or_jump = if word & 0x0020_0000 != 0 {
        Purpose::Call
    } else {
        Purpose::None
    };
    Some(match word {
        // BR, BLR.
        _ if word & 0xffdf_fc1f == 0xd61f_0000 => call_or_jump,
        // BRAA, BRAB, BLRAA, BLRAB, and those without a modifier.
        _ if word & 0xffdf_f800 == 0xd71f_0800 => call_or_jump,
        _ if word & 0xffdf_f81f == 0xd61f_081f => call_or_jump,
        // RET, RETAA, RETAB, RETAASPPC and RETABSPPC with a label or a register.
        _ if word & 0xffff_fc1f == 0xd65f_0000 => Purpose::Return,
        _ if word & 0xffff_fbe0 == 0xd65f_0be0 => Purpose::Return,
        _ if word & 0xffc0_001f == 0x5500_001f => Purpose::Return,
        // ERET, ERETAA, ERETAB; TEXIT returns likewise.
        0xd69f_03e0 | 0xd69f_0bff | 0xd69f_0fff => Purpose::ExceptionReturn,
        0xd6ff_03e0 | 0xd6ff_07e0 => Purpose::ExceptionReturn,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(word: u32) -> Instruction {
        decode(0x1000, word)
    }

    #[test]
    fn finds_targets_forwards_and_backwards() {
        assert_eq!(at(0x1400_0001).target, 0x1004);
        assert_eq!(at(0x97ff_ffff).target, 0xffc);
        assert!(at(0x97ff_ffff).links);
        // b.ne .-4
        assert_eq!(at(0x54ff_ffe1).target, 0xffc);
        // tbz x0, #0, .+8
        assert_eq!(at(0x3600_0040).target, 0x1008);
    }

    #[test]
    fn tells_calls_from_returns() {
        assert_eq!(at(0xd63f_0000).purpose, Purpose::Call);
        assert_eq!(at(0xd65f_03c0).purpose, Purpose::Return);
        assert_eq!(at(0xd69f_03e0).purpose, Purpose::ExceptionReturn);
        assert_eq!(at(0xd503_3fdf).class, Class::Isb);
        assert_eq!(at(0xd503_201f).class, Class::Other);
        // cblo x7, #31, .+8; b.al would be no comparison.
        let compared = at(0xf4df_0047);
        assert_eq!(compared.purpose, Purpose::Compare);
        assert!(compared.is_conditional && compared.target == 0x1008);
    }
}
