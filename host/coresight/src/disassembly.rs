//! Disassembly of instructions by the crate `yaxpeax-arm`, with a supplement for A32 and T32 instructions that it
//! lacks.
//!
//! Targets of direct branches are from our own [classification](crate::instruction), as absolute addresses, because the
//! flow follows these. Instructions unknown to both (VFP of half precision, MVE but for what it shares with
//! Advanced SIMD, SVE and SME of A64) are shown as data (`.inst`), even if the crate mistakes them for
//! coprocessor instructions.

use std::fmt::Write as _;

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::{armv7, armv8};

use crate::instruction::{self, Class, Waypoints};
use crate::isa::Isa;

mod supplement;

/// Disassembler for all instruction sets.
#[derive(Debug)]
pub struct Disassembler {
    a64: armv8::a64::InstDecoder,
    a32: armv7::InstDecoder,
    t32: armv7::InstDecoder,
    text: String,
}

impl Default for Disassembler {
    fn default() -> Self {
        Disassembler {
            a64: armv8::a64::InstDecoder::default(),
            a32: armv7::InstDecoder::default(),
            t32: armv7::InstDecoder::default_thumb(),
            text: String::new(),
        }
    }
}

impl Disassembler {
    /// Text of the instruction at `address`: mnemonic, a space, operands. `bytes` is the memory from there on. `None`
    /// if the instruction is unknown, or the bytes end within it.
    pub fn text(&mut self, isa: Isa, address: u64, bytes: &[u8]) -> Option<&str> {
        self.text.clear();
        if supplement::write(isa, bytes, &mut self.text).is_some() {
            return Some(&self.text);
        }
        if supplement::is_taken_for_another(isa, bytes) {
            return None;
        }
        let of_coprocessor = supplement::as_a32(isa, bytes);
        let (isa, bytes) = match &of_coprocessor {
            Some(word) => (Isa::A32, word.as_slice()),
            None => (isa, bytes),
        };
        let mut reader = U8Reader::new(bytes);
        match isa {
            Isa::A64 => {
                let instruction = self.a64.decode(&mut reader).ok()?;
                write!(self.text, "{instruction}").ok()?;
            }
            Isa::A32 if is_pair_with_pc(bytes) => return None,
            Isa::A32 => {
                let instruction = self.a32.decode(&mut reader).ok()?;
                write!(self.text, "{instruction}").ok()?;
            }
            Isa::T32 => {
                let instruction = self.t32.decode(&mut reader).ok()?;
                write!(self.text, "{instruction}").ok()?;
            }
            Isa::ThumbEe | Isa::Jazelle | Isa::Unknown => return None,
        }
        // The crate's text for undefined encodings, and for a few unknown ones.
        if self.text.starts_with("invalid") {
            return None;
        }
        if let Some(at) = self.text.rfind('$') {
            let ours = instruction::decode(isa, address, bytes, Waypoints::default());
            let target = match ours {
                Some(ours) if ours.class == Class::Branch => Some(ours.target),
                _ => resolve(address, self.text.get(at + 1..)?, &self.text),
            };
            if let Some(target) = target {
                self.text.truncate(at);
                let _ = write!(self.text, "{target:#x}");
            }
        }
        Some(&self.text)
    }

    /// Writes the opcode in the format of listings, then the instruction with its operands in a separate column.
    /// Returns its size in bytes; `None` if the bytes end within it.
    pub fn write(
        &mut self,
        isa: Isa,
        address: u64,
        bytes: &[u8],
        out: &mut String,
    ) -> Option<usize> {
        let size =
            usize::from(instruction::decode(isa, address, bytes, Waypoints::default())?.size);
        let opcode = Opcode::of(isa, bytes.get(..size)?);
        // Writing into a String cannot fail.
        let _ = match opcode {
            Opcode::Word(word) => write!(out, "{word:08x}   "),
            Opcode::Half(half) => write!(out, "{half:04x}       "),
            Opcode::Halves(first, second) => write!(out, "{first:04x} {second:04x}  "),
        };
        self.write_text(isa, address, bytes, opcode, out);
        Some(size)
    }

    fn write_text(
        &mut self,
        isa: Isa,
        address: u64,
        bytes: &[u8],
        opcode: Opcode,
        out: &mut String,
    ) {
        match self.text(isa, address, bytes) {
            Some(text) => match text.split_once(' ') {
                Some((mnemonic, operands)) => {
                    let _ = write!(out, "{mnemonic:<7} {operands}");
                }
                None => out.push_str(text),
            },
            None => {
                let _ = match opcode {
                    Opcode::Word(word) => write!(out, ".inst   {word:#010x}"),
                    Opcode::Half(half) => write!(out, ".inst.n {half:#06x}"),
                    Opcode::Halves(first, second) => {
                        write!(out, ".inst.w {first:#06x}{second:04x}")
                    }
                };
            }
        }
    }
}

/// Bytes of an instruction as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Of A64 and A32.
    Word(u32),
    /// Of T32, 16 bits.
    Half(u16),
    /// Of T32, 32 bits.
    Halves(u16, u16),
}

impl Opcode {
    /// Opcode of an instruction's bytes; missing bytes count as 0.
    pub fn of(isa: Isa, bytes: &[u8]) -> Self {
        let half = |at: usize| {
            let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or_default());
            byte(at) | byte(at + 1) << 8
        };
        match (isa, bytes.len()) {
            (Isa::T32, 0..=2) => Opcode::Half(half(0)),
            (Isa::T32, _) => Opcode::Halves(half(0), half(2)),
            _ => Opcode::Word(u32::from(half(0)) | u32::from(half(2)) << 16),
        }
    }
}

/// Whether an A32 instruction is an LDRD or STRD whose first register is r15, which is unpredictable (Arm DDI 0406C,
/// A8.8.72): `yaxpeax-arm` panics on it.
fn is_pair_with_pc(bytes: &[u8]) -> bool {
    let Opcode::Word(word) = Opcode::of(Isa::A32, bytes) else {
        return false;
    };
    word & 0x0e10_f0d0 == 0x0000_f0d0
}

/// Resolves `+0x10` or `-0x10` relative to the address of an instruction, or to its page for `adrp`.
fn resolve(address: u64, offset: &str, text: &str) -> Option<u64> {
    let (is_back, digits) = match offset.split_at_checked(1)? {
        ("+", digits) => (false, digits),
        ("-", digits) => (true, digits),
        _ => return None,
    };
    let offset = u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
    let base = if text.starts_with("adrp") {
        address & !0xfff
    } else {
        address
    };
    Some(if is_back {
        base.wrapping_sub(offset)
    } else {
        base.wrapping_add(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(isa: Isa, address: u64, bytes: &[u8]) -> String {
        let mut out = String::new();
        Disassembler::default().write(isa, address, bytes, &mut out);
        out
    }

    #[test]
    fn targets_are_addresses() {
        let a64 = |word: u32| line(Isa::A64, 0x1b78, &word.to_le_bytes());
        assert_eq!(a64(0x54ff_ffc1), "54ffffc1   b.ne    0x1b70");
        assert_eq!(a64(0x9000_0041), "90000041   adrp    x1, 0x9000");
        assert_eq!(a64(0x3600_0041), "36000041   tbz     w1, #0x0, 0x1b80");
        assert_eq!(a64(0xd65f_03c0), "d65f03c0   ret");
        assert_eq!(a64(0x692e_7696), "692e7696   .inst   0x692e7696");
        let a32 = |word: u32| line(Isa::A32, 0x1000, &word.to_le_bytes());
        assert_eq!(a32(0xfa00_0001), "fa000001   blx     0x100c");
        assert_eq!(a32(0xeeb7_0ae0), "eeb70ae0   vcvt.f64.f32 d0, s1");
        assert_eq!(a32(0xf3b7_6588), "f3b76588   vrsqrte.f16 d6, d8");
        assert_eq!(a32(0xee06_4939), "ee064939   .inst   0xee064939");
        assert_eq!(a32(0xee06_4f30), "ee064f30   mcr     p15, 0, r4, c6, c0, 1");
        assert_eq!(a32(0xe000_f0d0), "e000f0d0   .inst   0xe000f0d0");
        assert_eq!(a32(0xe1c4_60f8), "e1c460f8   strd    r6, r7, [r4, 0x8]");
        let t32 = |bytes: &[u8]| line(Isa::T32, 0x1000, bytes);
        assert_eq!(t32(&[0xfe, 0xd0]), "d0fe       beq     0x1000");
        assert_eq!(t32(&[0, 0xf0, 1, 0xf8]), "f000 f801  bl.w    0x1006");
        assert_eq!(t32(&[0x10, 0xbd]), "bd10       pop     {r4, pc}");
        assert_eq!(
            t32(&[0x00, 0xfe, 0x2c, 0x48]),
            "fe00 482c  .inst.w 0xfe00482c"
        );
        assert_eq!(
            t32(&[0x56, 0xea, 0xc4, 0xbb]),
            "ea56 bbc4  .inst.w 0xea56bbc4"
        );
        assert_eq!(t32(&[0x10]), "");
    }
}
