//! Disassembly of instructions that `yaxpeax-arm` does not know or mistakes for others (A32 and T32), and of the
//! aliases of `SYS`, which it does not name (A64).
//!
//! The spelling is that of `yaxpeax-arm`: registers `sb`, `fp`, `ip`, conditions `hs` and `lo`, numbers without `#`.
//! Encodings are those of Arm DDI 0487, part F.

use std::fmt::Write as _;

use crate::isa::Isa;

mod a32;
mod a64;
mod neon;
mod t32;
mod vfp;

/// Writes the instruction at the beginning of `bytes`. Returns `None` and writes nothing if it is not one of these.
pub(super) fn write(isa: Isa, bytes: &[u8], out: &mut String) -> Option<()> {
    let half = |at: usize| {
        Some(u32::from(u16::from_le_bytes([
            *bytes.get(at)?,
            *bytes.get(at + 1)?,
        ])))
    };
    let begin = out.len();
    let written = match isa {
        Isa::A64 => a64::write(half(2)? << 16 | half(0)?, out),
        Isa::A32 => a32::write(half(2)? << 16 | half(0)?, out),
        Isa::T32 => t32::write(half(0)?, half(2), out),
        _ => None,
    };
    if written.is_none() {
        out.truncate(begin);
    }
    written
}

/// Converts a T32 coprocessor instruction to the A32 instruction with the same meaning.
pub(super) fn as_a32(isa: Isa, bytes: &[u8]) -> Option<[u8; 4]> {
    let &[a, b, c, d, ..] = bytes else {
        return None;
    };
    (isa == Isa::T32 && t32::is_of_coprocessor(b)).then_some([c, d, a, b])
}

/// Whether `yaxpeax-arm` mistakes the instruction for another one: Armv8 instructions in the encoding space of
/// coprocessors, and of instructions with invalid operands.
pub(super) fn is_taken_for_another(isa: Isa, bytes: &[u8]) -> bool {
    let &[a, b, c, d, ..] = bytes else {
        return false;
    };
    let word = match isa {
        Isa::A32 => u32::from_le_bytes([a, b, c, d]),
        Isa::T32 if b & 0xe0 == 0xe0 && b >> 3 != 0x1c => u32::from_le_bytes([c, d, a, b]),
        _ => return false,
    };
    // CSEL and similar, and 64-bit shifts: encoded as ORRS with a PC or SP, or with a must-be-zero bit set.
    if isa == Isa::T32 && word & 0xfff0_0000 == 0xea50_0000 {
        return word & 0x8000 != 0 || matches!(word & 0xf, 13 | 15);
    }
    let is_of_coprocessor = matches!(word >> 24 & 0xf, 0xc..=0xe)
        && (isa == Isa::A32 || t32::is_of_coprocessor((word >> 24) as u8));
    let is_unconditional = word >> 28 == 0xf;
    match word >> 8 & 0xf {
        _ if !is_of_coprocessor => false,
        // VFP outside of this supplement, half precision, complex numbers, dot products: never a custom coprocessor.
        8..=11 => true,
        12 | 13 => is_unconditional,
        // MVE, except for system and debug registers. Where T32 has both, the M profile's MVE is more likely than debug
        // registers; MRRC and MCRR of p15, which read clocks, can be VMOV of two lanes there.
        number @ (14 | 15) => {
            let is_a32 = isa == Isa::A32;
            let moves = word & 0x0f00_0010 == 0x0e00_0010
                || word & 0x0fe0_0000 == 0x0c40_0000 && (is_a32 || number == 15);
            let debugs = word & 0x0e00_f000 == 0x0c00_5000 && number == 14 && is_a32;
            is_unconditional || !(moves || debugs)
        }
        _ => false,
    }
}

const CONDITIONS: [&str; 16] = [
    "eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "", "",
];

const REGISTERS: [&str; 16] = [
    "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "sb", "r10", "fp", "ip", "sp", "lr", "pc",
];

/// Bits `low..low + count` of an instruction.
const fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

const fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

/// Name of the register in a four-bit field.
fn reg(word: u32, low: u32) -> &'static str {
    REGISTERS
        .get(bits(word, low, 4) as usize)
        .copied()
        .unwrap_or_default()
}

/// Condition suffix of an A32 instruction.
fn condition(word: u32) -> &'static str {
    CONDITIONS
        .get((word >> 28) as usize)
        .copied()
        .unwrap_or_default()
}

/// Writes `dmb`, `dsb` or `isb`, selected by bits 4 to 7, with its option.
fn barrier(word: u32, out: &mut String) -> Option<()> {
    const OPTIONS: [&str; 16] = [
        "", "oshld", "oshst", "osh", "", "nshld", "nshst", "nsh", "", "ishld", "ishst", "ish", "",
        "ld", "st", "sy",
    ];
    let option = bits(word, 0, 4);
    let name = match (bits(word, 4, 4), option) {
        (4, 0) => return write_all(out, "ssbb"),
        (4, 4) => return write_all(out, "pssbb"),
        (4, _) => "dsb",
        (5, _) => "dmb",
        (6, _) => "isb",
        _ => return None,
    };
    match OPTIONS.get(option as usize).filter(|it| !it.is_empty()) {
        Some(of) if name != "isb" || option == 15 => write!(out, "{name} {of}").ok(),
        _ => write!(out, "{name} {option:#x}").ok(),
    }
}

fn write_all(out: &mut String, text: &str) -> Option<()> {
    out.push_str(text);
    Some(())
}

/// Writes a mnemonic with three registers.
fn three(out: &mut String, [name, condition]: [&str; 2], [a, b, c]: [&str; 3]) -> Option<()> {
    write!(out, "{name}{condition} {a}, {b}, {c}").ok()
}

/// Writes a dual multiplication of halfwords (`smlad` and similar), by its addend, and by whether the halves are
/// exchanged.
fn halves(
    out: &mut String,
    [name, without, condition]: [&str; 3],
    is_other: bool,
    suffix: &str,
    [to, n, m, added]: [&str; 4],
) -> Option<()> {
    let suffix = if is_other { suffix } else { "" };
    if added == "pc" {
        return write!(out, "{without}{suffix}{condition} {to}, {n}, {m}").ok();
    }
    write!(out, "{name}{suffix}{condition} {to}, {n}, {m}, {added}").ok()
}

/// Writes a load-acquire or store-release, by its size, exclusiveness and operands.
fn ordered(
    out: &mut String,
    condition: &str,
    size: &str,
    (is_load, is_exclusive): (bool, bool),
    [status, to, second, base]: [&str; 4],
) -> Option<()> {
    let exclusive = if is_exclusive { "ex" } else { "" };
    let name = if is_load { "lda" } else { "stl" };
    write!(out, "{name}{exclusive}{size}{condition} ").ok()?;
    if is_exclusive && !is_load {
        write!(out, "{status}, ").ok()?;
    }
    write!(out, "{to}, ").ok()?;
    if size == "d" {
        write!(out, "{second}, ").ok()?;
    }
    write!(out, "[{base}]").ok()
}

/// Writes `srs`, which stores to the stack of a mode.
fn store_return_state(out: &mut String, when: &str, writes_back: bool, mode: u32) -> Option<()> {
    let back = if writes_back { "!" } else { "" };
    write!(out, "srs{when} sp{back}, {mode:#x}").ok()
}

/// Writes `crc32b` and similar.
fn checksum(out: &mut String, is_castagnoli: bool, size: u32, operands: [&str; 3]) -> Option<()> {
    let size = ["b", "h", "w"].get(size as usize)?;
    let c = if is_castagnoli { "c" } else { "" };
    out.push_str("crc32");
    three(out, [c, size], operands)
}
