//! Classification of instructions for following a trace: waypoints, their targets, links and returns.
//!
//! A waypoint is an instruction for which the trace has an atom: branches, ISB, and by configuration WFI, WFE, DMB and
//! DSB. Encodings are from the Arm Architecture Reference Manuals (DDI 0487 for A64, DDI 0406 for A32 and T32, DDI 0553
//! for the loops of Armv8.1-M).

mod a32;
mod a64;
mod t32;

use crate::isa::Isa;

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
    /// Whether the instructions of an IT block count as conditional. The reference tool does so only for ETMv4.
    pub counts_it: bool,
}

/// Classifies the instruction at `address`. `bytes` is the memory from there on.
///
/// `None` if the bytes end within it, or if the instruction set is unknown or not supported.
pub fn decode(isa: Isa, address: u64, bytes: &[u8], waypoints: Waypoints) -> Option<Instruction> {
    let mut instruction = match isa {
        Isa::A64 => a64::decode(address, word(bytes)?),
        Isa::A32 => a32::decode(address, word(bytes)?),
        Isa::T32 => {
            let first = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
            let is_wide = first & 0xf800 >= 0xe800;
            let second = if is_wide {
                u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?)
            } else {
                0
            };
            t32::decode(address, u32::from(first) << 16 | u32::from(second), is_wide)
        }
        Isa::ThumbEe | Isa::Jazelle | Isa::Unknown => return None,
    };
    let is_waypoint = match instruction.class {
        Class::Wait => waypoints.waits,
        Class::Barrier => waypoints.barriers,
        _ => true,
    };
    if !is_waypoint {
        instruction.class = Class::Other;
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
