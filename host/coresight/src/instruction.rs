//! Classification of instructions for following a trace: waypoints, their targets, links and returns.
//!
//! A waypoint is an instruction for which the trace has an atom: branches, ISB, and by configuration WFI, WFE, DMB,
//! DSB, loads and stores. Encodings are from the Arm Architecture Reference Manuals (DDI 0487 for A64, DDI 0406 for A32
//! and T32, DDI 0553 for the loops of Armv8.1-M).

mod a32;
mod a64;
mod access;
mod t32;

use crate::isa::Isa;
use access::Access;

/// Class of an instruction in instruction trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// Not a waypoint.
    #[default]
    Other,
    /// A branch whose target is in the instruction.
    Branch,
    /// A branch whose target is in a register or in memory.
    Indirect,
    /// An instruction synchronization barrier.
    Isb,
    /// A data barrier, if the configuration makes it a waypoint.
    Barrier,
    /// WFI or WFE, if the configuration makes it a waypoint.
    Wait,
    /// The start of a transaction.
    TransactionStart,
    /// A load or store, if the configuration makes it a waypoint.
    Access,
}

/// Purpose of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Purpose {
    /// Nothing special.
    #[default]
    None,
    /// A call: it stores the return address.
    Call,
    /// A return of A64.
    Return,
    /// An exception return of A64.
    ExceptionReturn,
    /// A return by convention in A32 and T32: `BX LR`, `POP {PC}`, ...
    ImpliedReturn,
    /// A comparison that branches (FEAT_CMPBR). It is conditional, but the reference tool's listings do not show that.
    Compare,
}

/// Properties of an instruction that following a trace needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Instruction {
    /// Size in bytes.
    pub size: u8,
    /// Its class in the trace.
    pub class: Class,
    /// Purpose of a branch.
    pub purpose: Purpose,
    /// Whether a branch stores the return address.
    pub links: bool,
    /// Whether it is conditional.
    pub is_conditional: bool,
    /// Target of a direct branch.
    pub target: u64,
    /// Instruction set at the target of a taken direct branch.
    pub next_isa: Isa,
    /// For a T32 IT instruction, the number of following instructions that it makes conditional.
    pub it_length: u8,
    /// Whether it begins or ends a loop of Armv8.1-M, whose count determines whether its branch is taken.
    pub counts_loop: bool,
}

/// Additional waypoints besides branches, and the treatment of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waypoints {
    /// Whether WFI and WFE are waypoints.
    pub waits: bool,
    /// Whether DMB and DSB are waypoints.
    pub barriers: bool,
    /// Whether loads are waypoints.
    pub loads: bool,
    /// Whether stores are waypoints.
    pub stores: bool,
    /// Whether the instructions of an IT block count as conditional. The reference tool does so only for ETMv4.
    pub counts_it: bool,
}

impl Waypoints {
    /// Whether loads or stores are waypoints.
    pub fn has_accesses(self) -> bool {
        self.loads || self.stores
    }

    fn has(self, access: Access) -> bool {
        self.loads && access.loads || self.stores && access.stores
    }
}

/// Classifies the instruction at `address`. `bytes` is the memory from there on.
///
/// `None` if the bytes end within it, or if the instruction set is unknown or not supported.
pub fn decode(isa: Isa, address: u64, bytes: &[u8], waypoints: Waypoints) -> Option<Instruction> {
    let word = match isa {
        Isa::A64 | Isa::A32 => word(bytes)?,
        // The first half word in bits 31:16, as the manuals print it.
        Isa::T32 => {
            let first = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
            let second = match first & 0xf800 >= 0xe800 {
                true => u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?),
                false => 0,
            };
            u32::from(first) << 16 | u32::from(second)
        }
        Isa::ThumbEe | Isa::Jazelle | Isa::Unknown => return None,
    };
    let mut instruction = match isa {
        Isa::A64 => a64::decode(address, word),
        Isa::A32 => a32::decode(address, word),
        _ => t32::decode(address, word),
    };
    let is_waypoint = match instruction.class {
        Class::Wait => waypoints.waits,
        Class::Barrier => waypoints.barriers,
        _ => true,
    };
    if !is_waypoint {
        instruction.class = Class::Other;
    }
    let may_be_access = instruction.class == Class::Other && waypoints.has_accesses();
    if may_be_access && waypoints.has(access::of(isa, word)) {
        instruction.class = Class::Access;
    }
    Some(instruction)
}

/// Whether the bytes of a straight run of instructions contain WFI or WFIT. The wait for interrupts there is not
/// execution time.
pub fn waits_for_interrupt(isa: Isa, bytes: &[u8]) -> bool {
    match isa {
        Isa::A64 => words(bytes).any(|word| word == 0xd503_207f || word & !0x1f == 0xd503_1020),
        Isa::A32 => words(bytes).any(|word| word & 0x0fff_ffff == 0x0320_f003),
        Isa::T32 => {
            let halves = bytes.chunks_exact(2);
            let mut halves = halves.map(|half| u16::from_le_bytes([half[0], half[1]]));
            while let Some(first) = halves.next() {
                let second = if first >= 0xe800 { halves.next() } else { None };
                if matches!((first, second), (0xbf30, None) | (0xf3af, Some(0x8003))) {
                    return true;
                }
            }
            false
        }
        Isa::ThumbEe | Isa::Jazelle | Isa::Unknown => false,
    }
}

/// Whether a run of A32 or T32 instructions ends with a return from an exception: `eret`, `rfe`, `subs pc, lr, #n` and
/// others that write the PC and the flags, `ldm` with the PC and `^` (Arm DDI 0406, B9.3). The M profile has none of
/// these.
///
/// Linux enters its handlers through such an instruction, with an address from a table behind the vectors. That is no
/// return.
pub fn returns_from_exception(isa: Isa, bytes: &[u8]) -> bool {
    let mut last = bytes.rchunks_exact(4);
    let mut last = || words(last.next().unwrap_or_default()).next();
    let (word, before) = (last(), last());
    match (isa, word) {
        // ldr lr, [pc, lr, lsl #2]
        _ if isa == Isa::A32 && before == Some(0xe79f_e10e) => false,
        (Isa::A32, Some(word)) if word >> 28 == 0xf => word & 0xfe50_ffff == 0xf810_0a00,
        (Isa::A32, Some(word)) => {
            let is_multiply = word & 0x0200_0090 == 0x90;
            let compares = word >> 23 & 3 == 2;
            let is_data = word & 0x0c10_f000 == 0x0010_f000 && !is_multiply && !compares;
            let loads = word & 0x0e50_8000 == 0x0850_8000;
            is_data || loads || word & 0x0fff_ffff == 0x0160_006e
        }
        // ldr.w lr, [r0, lr, lsl #2]
        _ if isa == Isa::T32 && before == Some(0xe02e_f850) => false,
        (Isa::T32, Some(word)) => {
            // The first half is the upper one.
            let word = word.rotate_left(16);
            let subtracts = word & 0xffff_ff00 == 0xf3de_8f00;
            subtracts || matches!(word & 0xffd0_ffff, 0xe810_c000 | 0xe990_c000)
        }
        _ => false,
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = bytes.chunks_exact(4);
    words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

/// Returns a lower bound, at most `limit`, of the A64 instructions at the start of `bytes` that are neither waypoints
/// nor words with an upper half of zeros.
pub(crate) fn plain_run(bytes: &[u8], limit: u32) -> u32 {
    let words = bytes.chunks_exact(4).take(limit as usize);
    let plain = words.take_while(|word| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        // Branches, exceptions and system instructions have 101 there (DDI 0487, C4.1).
        word >> 26 & 7 != 5 && word >> 16 != 0
    });
    plain.count() as u32
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// Returns a sign-extended field of an instruction, as a byte offset in units of `scale` bytes.
fn offset(word: u32, low: u32, bits: u32, scale: i64) -> i64 {
    i64::from((word << (32 - low - bits)) as i32 >> (32 - bits)) * scale
}

/// Returns the barrier of an option field in bits 7:4 of DSB, DMB and ISB of A32 and T32.
fn barrier(word: u32) -> Class {
    match word >> 4 & 0xf {
        4 | 5 => Class::Barrier,
        6 => Class::Isb,
        _ => Class::Other,
    }
}

/// Returns the barrier that a write to CP15 performs (c7, the low byte of the instruction).
fn coprocessor_barrier(word: u32) -> Class {
    match word & 0xff {
        0x95 => Class::Isb,
        0x9a | 0xba => Class::Barrier,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_from_exceptions_are_known_by_their_opcodes() {
        let returns = |isa, words: &[u32]| {
            let halves = if isa == Isa::T32 { 16 } else { 0 };
            let words = words.iter().map(|word| word.rotate_left(halves));
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            returns_from_exception(isa, &bytes)
        };
        // subs pc, lr, #4; movs pc, lr; rfeia sp!; ldm sp!, {r0-r3, pc}^; eret
        for word in [
            0xe25e_f004,
            0xe1b0_f00e,
            0xf8bd_0a00,
            0xe8fd_800f,
            0xe160_006e,
        ] {
            assert!(returns(Isa::A32, &[word]), "{word:#x}");
        }
        // sub pc, lr, #4; mov pc, lr; ldm sp!, {r0-r3, pc}; cmp with 15 where it has no register; mul; bx lr
        for word in [
            0xe24e_f004,
            0xe1a0_f00e,
            0xe8bd_800f,
            0xe150_f001,
            0xe010_f192,
            0xe12f_ff1e,
        ] {
            assert!(!returns(Isa::A32, &[word]), "{word:#x}");
        }
        // subs pc, lr, #4; eret; rfeia sp!; rfedb sp
        for word in [0xf3de_8f04, 0xf3de_8f00, 0xe9bd_c000, 0xe81d_c000] {
            assert!(returns(Isa::T32, &[word]), "{word:#x}");
        }
        // pop {r4, pc}; tbb [pc, r0]
        for word in [0xe8bd_8010, 0xe8df_f000] {
            assert!(!returns(Isa::T32, &[word]), "{word:#x}");
        }
        // mov r0, sp; movs pc, lr; and the same with the table of Linux's vectors.
        assert!(returns(Isa::A32, &[0xe1a0_000d, 0xe1b0_f00e]));
        assert!(!returns(Isa::A32, &[0xe79f_e10e, 0xe1b0_f00e]));
        assert!(!returns(Isa::T32, &[0xf850_e02e, 0xf3de_8f00]));
        assert!(!returns(Isa::A32, &[]));
    }

    #[test]
    fn waits_are_found_at_the_borders_of_instructions() {
        let waits = |isa, halves: &[u16]| {
            let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            waits_for_interrupt(isa, &bytes)
        };
        assert!(waits(Isa::A64, &[0x201f, 0xd503, 0x207f, 0xd503]));
        assert!(waits(Isa::A64, &[0x1023, 0xd503]), "WFIT");
        assert!(!waits(Isa::A64, &[0x205f, 0xd503]), "WFE");
        assert!(!waits(Isa::A64, &[0, 0x207f, 0xd503, 0]));
        assert!(waits(Isa::A32, &[0xf003, 0xe320]));
        assert!(waits(Isa::T32, &[0xbf00, 0xbf30]));
        assert!(waits(Isa::T32, &[0xf3af, 0x8003]));
        // The second half of another instruction.
        assert!(!waits(Isa::T32, &[0xf8df, 0xbf30]));
        assert!(!waits(Isa::ThumbEe, &[0xbf30]));
    }
}
