//! A32.

use super::{Class, Instruction, Purpose, barrier, coprocessor_barrier, offset};
use crate::isa::Isa;

pub(super) fn decode(address: u64, word: u32) -> Instruction {
    let mut instruction = Instruction {
        size: 4,
        next_isa: Isa::A32,
        ..Instruction::default()
    };
    let is_unconditional_space = word >> 28 == 0xf;
    instruction.is_conditional = word >> 28 < 0xe;
    if let Some(purpose) = indirect(word) {
        instruction.class = Class::Indirect;
        instruction.purpose = purpose;
        instruction.links = purpose == Purpose::Call;
        return instruction;
    }
    if word & 0x0e00_0000 == 0x0a00_0000 {
        let distance = offset(word, 0, 24, 4) + 8;
        let mut target = address.wrapping_add_signed(distance);
        if is_unconditional_space {
            // BLX: into T32, with half a word more by bit 24.
            instruction.next_isa = Isa::T32;
            target = target.wrapping_add(u64::from(word >> 23 & 2));
        }
        instruction.class = Class::Branch;
        instruction.target = target & 0xffff_ffff;
        instruction.links = is_unconditional_space || word & 0x0100_0000 != 0;
        if instruction.links {
            instruction.purpose = Purpose::Call;
        }
        return instruction;
    }
    instruction.class = match word {
        _ if word & 0xfff0_0000 == 0xf570_0000 => barrier(word),
        _ if word & 0x0fff_0f00 == 0x0e07_0f00 => coprocessor_barrier(word),
        // WFE, WFI.
        _ if !is_unconditional_space && word & 0x0fff_fffe == 0x0320_f002 => Class::Wait,
        _ => Class::Other,
    };
    instruction
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
    if word >> 28 == 0xf {
        // RFE.
        return (word & 0xfe50_0000 == 0xf810_0000).then_some(Purpose::None);
    }
    let writes_pc = word & 0xf000 == 0xf000;
    Some(match word {
        // BX and BLX by register, BXJ.
        _ if word & 0x0ff0_00f0 == 0x0120_0030 => Purpose::Call,
        _ if word & 0x0ff0_00f0 == 0x0120_0010 => implied(word & 0xf == 14),
        _ if word & 0x0ff0_00f0 == 0x0120_0020 => Purpose::None,
        // ERET, in the encoding space of MSR and similar.
        _ if word & 0x0fff_ffff == 0x0160_006e => Purpose::None,
        // LDM with the PC among the registers; from the stack it is a POP.
        _ if word & 0x0e10_8000 == 0x0810_8000 => implied(word & 0x0fff_a000 == 0x08bd_8000),
        // LDR to the PC; from the stack it is a POP.
        _ if writes_pc && word & 0x0e50_0000 == 0x0410_0000 => {
            implied(word & 0x01ff_0000 == 0x009d_0000)
        }
        _ if writes_pc && word & 0x0e50_0010 == 0x0610_0000 => Purpose::None,
        // MOV and shifts to the PC.
        _ if writes_pc && word & 0x0fe0_0000 == 0x01a0_0000 => implied(word & 0x0010_0fff == 0x00e),
        // Miscellaneous instructions and MSR are no data processing.
        _ if word & 0x0f90_0080 == 0x0100_0000 => return None,
        // Multiplications, synchronization, loads and stores of half words cannot write the PC.
        _ if word & 0x0e00_0090 == 0x0000_0090 => return None,
        _ if word & 0x0f90_0090 == 0x0100_0080 => return None,
        _ if writes_pc && word & 0x0fb0_0000 == 0x0320_0000 => return None,
        // Data processing to the PC, except for comparisons.
        _ if writes_pc && word & 0x0e00_0000 == 0x0200_0000 => {
            return (word & 0x0f90_0000 != 0x0310_0000).then_some(Purpose::None);
        }
        _ if writes_pc && word & 0x0e00_0000 == 0 => Purpose::None,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_targets() {
        // bl .+8, b .-0
        assert_eq!(decode(0x8000, 0xeb00_0000).target, 0x8008);
        assert_eq!(decode(0x8000, 0xeaff_fffe).target, 0x8000);
        // blx with half a word more
        let blx = decode(0x8000, 0xfb00_0000);
        assert_eq!(
            (blx.target, blx.next_isa, blx.links),
            (0x800a, Isa::T32, true)
        );
    }

    #[test]
    fn tells_returns() {
        assert_eq!(decode(0, 0xe12f_ff1e).purpose, Purpose::ImpliedReturn);
        assert_eq!(decode(0, 0xe8bd_8010).purpose, Purpose::ImpliedReturn);
        assert_eq!(decode(0, 0xe1a0_f00e).purpose, Purpose::ImpliedReturn);
        assert_eq!(decode(0, 0xe1a0_0001).class, Class::Other);
        assert!(decode(0, 0x0a00_0000).is_conditional);
        // eret, and smc, which is none
        assert_eq!(decode(0, 0xe160_006e).class, Class::Indirect);
        assert_eq!(decode(0, 0xe160_0070).class, Class::Other);
    }
}
