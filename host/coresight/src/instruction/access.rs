//! Instructions that load or store, which have atoms where TRCCONFIGR.INSTP0 says so (Arm IHI 0064).
//!
//! SVE and SME are not among them: no core with such a trace unit has those.

use super::t32;
use crate::isa::Isa;

/// Whether an instruction reads memory, and whether it writes memory. An atomic update does both; a hint to fetch in
/// advance does neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub loads: bool,
    pub stores: bool,
}

const NONE: Access = Access {
    loads: false,
    stores: false,
};
const LOAD: Access = Access {
    loads: true,
    stores: false,
};
const STORE: Access = Access {
    loads: false,
    stores: true,
};
const BOTH: Access = Access {
    loads: true,
    stores: true,
};

/// An instruction in which one bit distinguishes loads from stores.
const fn by_bit(word: u32, bit: u32) -> Access {
    if word >> bit & 1 == 1 { LOAD } else { STORE }
}

/// Access of an instruction of a known instruction set.
pub(super) fn of(isa: Isa, word: u32) -> Access {
    match isa {
        Isa::A64 => of_a64(word),
        Isa::A32 => of_a32(word),
        _ => of_t32(word),
    }
}

/// Access of an A64 instruction (DDI 0487, "Loads and stores").
fn of_a64(word: u32) -> Access {
    let is_vector = word >> 26 & 1 == 1;
    let size = word >> 30;
    let option = word >> 22 & 3;
    match word {
        _ if word & 0x0a00_0000 != 0x0800_0000 => NONE,
        // CASP, CAS.
        _ if word & 0xbfa0_7c00 == 0x0820_7c00 || word & 0x3fa0_7c00 == 0x08a0_7c00 => BOTH,
        // Exclusive and ordered; vectors by structure.
        _ if word & 0x3f00_0000 == 0x0800_0000 || word & 0xbe00_0000 == 0x0c00_0000 => {
            by_bit(word, 22)
        }
        // Literal; the last size is a prefetch.
        _ if word & 0x3b00_0000 == 0x1800_0000 => match is_vector || size < 3 {
            true => LOAD,
            false => NONE,
        },
        // Tags: LDG and LDGM, or stores.
        _ if word & 0xff20_0000 == 0xd920_0000 => match word & 0xc00 == 0 && option & 1 == 1 {
            true => LOAD,
            false => STORE,
        },
        // SET; CPY.
        _ if word & 0x3b20_0c00 == 0x1900_0400 => {
            if option == 3 {
                STORE
            } else {
                BOTH
            }
        }
        // LDIAPP, STILP; ordered with an offset.
        _ if word & 0x3b20_0c00 == 0x1900_0800 => by_bit(word, 22),
        _ if word & 0x3b20_0c00 == 0x1900_0000 => {
            if option == 0 {
                STORE
            } else {
                LOAD
            }
        }
        // Pairs.
        _ if word & 0x3a00_0000 == 0x2800_0000 => by_bit(word, 22),
        // Atomic updates; 64 bytes, LDAPR.
        _ if word & 0x3f20_0c00 == 0x3820_0000 => match word >> 12 & 0xf {
            0b1100 | 0b1101 => LOAD,
            0b1001..=0b1011 => STORE,
            _ => BOTH,
        },
        // LDRAA, LDRAB.
        _ if word & 0x3b20_0400 == 0x3820_0400 => LOAD,
        // One register; the last size has a prefetch.
        _ if word & 0x3a00_0000 == 0x3800_0000 => match option {
            _ if is_vector => by_bit(word, 22),
            0 => STORE,
            2 if size == 3 => NONE,
            _ => LOAD,
        },
        _ => NONE,
    }
}

/// Access of a coprocessor or floating-point instruction, whose encoding A32 and T32 share below the top four bits.
fn of_coprocessor(word: u32) -> Access {
    // Transfers of two registers have the space of loads and stores without any form of address.
    let has_address = word & 0x01a0_0000 != 0;
    match word & 0x0e00_0000 == 0x0c00_0000 && has_address {
        true => by_bit(word, 20),
        false => NONE,
    }
}

/// Access of an A32 instruction (DDI 0406, A5.3 and A5.7).
fn of_a32(word: u32) -> Access {
    if word >> 28 == 0xf {
        return match word {
            // SRS.
            _ if word & 0x0e50_0000 == 0x0840_0000 => STORE,
            // Vectors by structure.
            _ if word & 0x0f10_0000 == 0x0400_0000 => by_bit(word, 21),
            _ => of_coprocessor(word),
        };
    }
    match word {
        // One register, with an immediate or a register as the offset.
        _ if word & 0x0e00_0000 == 0x0400_0000 || word & 0x0e00_0010 == 0x0600_0000 => {
            by_bit(word, 20)
        }
        _ if word & 0x0e00_0000 == 0x0800_0000 => by_bit(word, 20),
        // SWP, SWPB; exclusive and ordered.
        _ if word & 0x0fb0_00f0 == 0x0100_0090 => BOTH,
        _ if word & 0x0f80_00f0 == 0x0180_0090 => by_bit(word, 20),
        // LDRD, which has the bit of stores.
        _ if word & 0x0e10_00f0 == 0x0000_00d0 => LOAD,
        // Half words, signed bytes, STRD.
        _ if word & 0x0e00_0090 == 0x0000_0090 && word & 0x60 != 0 => by_bit(word, 20),
        _ => of_coprocessor(word),
    }
}

/// Access of a T32 instruction (DDI 0553, C2.2), given with its first half word in bits 31:16.
fn of_t32(word: u32) -> Access {
    if !t32::is_wide(word) {
        return match word >> 27 {
            // Literal.
            0b01001 => LOAD,
            // Register offset: STR, STRH, STRB, LDRSB, then loads.
            0b01010 | 0b01011 => {
                if word >> 25 & 7 < 3 {
                    STORE
                } else {
                    LOAD
                }
            }
            // Immediate offset, stack, multiple.
            0b01100..=0b10011 | 0b11000 | 0b11001 => by_bit(word, 27),
            // PUSH, POP.
            0b10110 | 0b10111 if word & 0x0600_0000 == 0x0400_0000 => by_bit(word, 27),
            _ => NONE,
        };
    }
    match word {
        // CLRM, SG, VSCCLRM: they have the space of loads.
        _ if word & 0xffff_0000 == 0xe89f_0000 || word == 0xe97f_e97f => NONE,
        _ if word & 0xffbf_0e00 == 0xec9f_0a00 => NONE,
        // Multiple.
        _ if word & 0xfe40_0000 == 0xe800_0000 => by_bit(word, 20),
        // TT: the space of STREX.
        _ if word & 0xfff0_f000 == 0xe840_f000 => NONE,
        // Two registers, exclusive, ordered.
        _ if word & 0xfe40_0000 == 0xe840_0000 => by_bit(word, 20),
        // Vectors by structure.
        _ if word & 0xff10_0000 == 0xf900_0000 => by_bit(word, 21),
        // One register; bytes and half words to the PC are hints to fetch.
        _ if word & 0xfe00_0000 == 0xf800_0000 => {
            match word & 0x0010_f000 == 0x0010_f000 && word & 0x0040_0000 == 0 {
                true => NONE,
                false => by_bit(word, 20),
            }
        }
        // In the second space of coprocessors, the vector units 8 to 13 compute.
        _ if word & 0xfe00_0000 == 0xfc00_0000 && matches!(word >> 8 & 0xf, 8..=13) => NONE,
        _ if word & 0xec00_0000 == 0xec00_0000 => of_coprocessor(word),
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_that_others_use_are_no_accesses() {
        // Of T32: CLRM, SG, VSCCLRM, TT, PLD, MRRC, VMOV of two registers; of A64: PRFM, both forms.
        for word in [
            0xe89f_0001,
            0xe97f_e97f,
            0xec9f_0a01,
            0xe841_f000,
            0xf890_f000,
            0xec51_0f00,
            0xec51_0b10,
        ] {
            assert_eq!(of_t32(word), NONE, "{word:08x}");
        }
        for word in [0xf980_0000, 0xd800_0000, 0xf8a1_4800] {
            assert_eq!(of_a64(word), NONE, "{word:08x}");
        }
        // LDR to the PC, whose size is that of words, is a load.
        assert_eq!(of_t32(0xf8d0_f000), LOAD);
    }

    #[test]
    fn updates_do_both() {
        // LDADD, SWP, CAS, CASP; SWP of A32.
        for word in [0xb821_0041, 0xf821_8041, 0xc8a1_7c41, 0x4820_7c82] {
            assert_eq!(of_a64(word), BOTH, "{word:08x}");
        }
        assert_eq!(of_a32(0xe100_0091), BOTH);
        // LDAPR, LDAR, STLR.
        assert_eq!(of_a64(0xb8bf_c020), LOAD);
        assert_eq!(of_a64(0x88df_fc20), LOAD);
        assert_eq!(of_a64(0x889f_fc20), STORE);
    }
}
