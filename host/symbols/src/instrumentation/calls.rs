//! Search for calls and jumps to given addresses in code. Functions end with jumps to hooks if the compiler converted a
//! tail call.
//!
//! The code is not disassembled: every offset at which an instruction can begin is tested, and data looks like a call
//! to exactly one of these addresses once in four billion offsets.

use std::collections::BTreeSet;

use object::{Architecture, Object, ObjectSection};

/// Finds calls of some functions.
#[derive(Debug)]
pub(super) struct Finder {
    processor: Processor,
    little_endian: bool,
    targets: BTreeSet<u64>,
    /// Words that contain the address of one of the functions.
    slots: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Processor {
    X86 { is_64: bool },
    Arm,
    Aarch64,
    RiscV,
    PowerPc,
}

impl Finder {
    /// Creates a finder for the functions at `targets`, or stubs that lead to them. `None` for an architecture whose
    /// calls are not supported.
    pub fn new<'d>(
        file: &impl Object<'d>,
        targets: BTreeSet<u64>,
        slots: BTreeSet<u64>,
    ) -> Option<Self> {
        let processor = match file.architecture() {
            Architecture::X86_64 | Architecture::X86_64_X32 => Processor::X86 { is_64: true },
            Architecture::I386 => Processor::X86 { is_64: false },
            Architecture::Arm => Processor::Arm,
            Architecture::Aarch64 | Architecture::Aarch64_Ilp32 => Processor::Aarch64,
            Architecture::Riscv32 | Architecture::Riscv64 => Processor::RiscV,
            Architecture::PowerPc | Architecture::PowerPc64 => Processor::PowerPc,
            _ => return None,
        };
        let mut finder = Self {
            processor,
            little_endian: file.is_little_endian(),
            targets,
            slots,
        };
        if processor == (Processor::X86 { is_64: true }) {
            finder.add_stubs(file);
        }
        Some(finder)
    }

    /// Stubs of x86-64 jump through a word, whichever table contains them.
    fn add_stubs<'d>(&mut self, file: &impl Object<'d>) {
        const MARK: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];
        for section in file.sections() {
            let is_stubs = section.name().is_ok_and(|name| name.starts_with(".plt"));
            let (true, Ok(data)) = (is_stubs, section.data()) else {
                continue;
            };
            let mut stubs = Vec::new();
            self.find(section.address(), data, &mut |address| stubs.push(address));
            for address in stubs {
                self.targets.insert(address);
                let Ok(at) = usize::try_from(address - section.address()) else {
                    continue;
                };
                // A prefix, and a landing mark for indirect branch tracking.
                let before = data.get(..at).unwrap_or(&[]);
                let (prefix, before) = match before.strip_suffix(&[0xF2]) {
                    Some(before) => (1, before),
                    None => (0, before),
                };
                self.targets.insert(address - prefix);
                if before.ends_with(&MARK) {
                    self.targets.insert(address - prefix - 4);
                }
            }
        }
    }

    /// Passes the addresses of all calls in the code at `start` to `found`.
    pub fn find(&self, start: u64, code: &[u8], found: &mut dyn FnMut(u64)) {
        let step = match self.processor {
            Processor::X86 { .. } => 1,
            Processor::Arm | Processor::RiscV => 2,
            Processor::Aarch64 | Processor::PowerPc => 4,
        };
        for at in (0..code.len()).step_by(step) {
            let Some(code) = code.get(at..) else { return };
            let address = start.wrapping_add(at as u64);
            if self.is_call(address, code) {
                found(address);
            }
        }
    }

    fn is_call(&self, address: u64, code: &[u8]) -> bool {
        let leads = |target: Option<u64>| target.is_some_and(|it| self.targets.contains(&it));
        match self.processor {
            Processor::X86 { is_64 } => self.x86(address, code, is_64),
            Processor::Aarch64 => leads(self.word(code).and_then(|word| {
                (word & 0x7C00_0000 == 0x1400_0000)
                    .then(|| address.wrapping_add_signed(signed(word, 26) * 4))
            })),
            Processor::PowerPc => leads(self.word(code).and_then(|word| {
                (word & 0xFC00_0002 == 0x4800_0000)
                    .then(|| address.wrapping_add_signed(signed(word & !3, 26)))
            })),
            Processor::Arm => leads(self.thumb(address, code)) || leads(self.arm(address, code)),
            Processor::RiscV => leads(self.risc_v(address, code)),
        }
    }

    fn word(&self, code: &[u8]) -> Option<u32> {
        let bytes = *code.first_chunk()?;
        Some(match self.little_endian {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        })
    }

    /// `call` and `jmp`, directly or through a word.
    fn x86(&self, address: u64, code: &[u8], is_64: bool) -> bool {
        let to = |bytes: &[u8], length: u64| {
            let offset = i32::from_le_bytes(*bytes.first_chunk()?);
            let target = address
                .wrapping_add(length)
                .wrapping_add_signed(offset.into());
            Some(if is_64 {
                target
            } else {
                target & u64::from(u32::MAX)
            })
        };
        match code {
            [0xE8 | 0xE9, rest @ ..] => to(rest, 5).is_some_and(|it| self.targets.contains(&it)),
            [0xFF, 0x15 | 0x25, rest @ ..] if is_64 => {
                to(rest, 6).is_some_and(|it| self.slots.contains(&it))
            }
            _ => false,
        }
    }

    /// `bl`, `blx` and the long `b`.
    fn thumb(&self, address: u64, code: &[u8]) -> Option<u64> {
        let half = |at: usize| {
            let bytes = *code.get(at..)?.first_chunk()?;
            Some(u32::from(u16::from_le_bytes(bytes)))
        };
        let (first, second) = (half(0)?, half(2)?);
        let (link, thumb) = (second >> 14 & 1, second >> 12 & 1);
        if first >> 11 != 0b11110 || second >> 15 == 0 || (link, thumb) == (0, 0) {
            return None;
        }
        let sign = first >> 10 & 1;
        let bit = |at: u32| !(second >> at ^ sign) & 1;
        let offset = sign << 24
            | bit(13) << 23
            | bit(11) << 22
            | (first & 0x3FF) << 12
            | (second & 0x7FF) << 1;
        let from = address.wrapping_add(4);
        // `blx` switches to Arm code, relative to a word-aligned address.
        let from = if thumb == 0 { from & !3 } else { from };
        Some(from.wrapping_add_signed(signed(offset, 25)) & u64::from(u32::MAX))
    }

    /// `bl`, `blx` and `b` of Arm code.
    fn arm(&self, address: u64, code: &[u8]) -> Option<u64> {
        let word = self.word(code)?;
        let offset = signed(word, 24) * 4;
        let half = i64::from(word >> 24 & 1) * 2;
        let offset = match word >> 24 {
            0xFA | 0xFB => offset + half,
            other if other & 0xE == 0xA => offset,
            _ => return None,
        };
        (address & 3 == 0)
            .then(|| address.wrapping_add(8).wrapping_add_signed(offset) & u64::from(u32::MAX))
    }

    /// `jal`, and `auipc` with `jalr`.
    fn risc_v(&self, address: u64, code: &[u8]) -> Option<u64> {
        let word = self.word(code)?;
        let fields = |parts: &[(u32, u32, u32)]| {
            let put = |all, (from, bits, to): &(u32, u32, u32)| {
                all | (word >> from & ((1 << bits) - 1)) << to
            };
            parts.iter().fold(0, put)
        };
        let offset = match word & 0x7F {
            0x6F => signed(
                fields(&[(31, 1, 20), (12, 8, 12), (20, 1, 11), (21, 10, 1)]),
                21,
            ),
            0x17 => {
                let next = self.word(code.get(4..)?)?;
                let same = next >> 15 & 31 == word >> 7 & 31;
                if next & 0x707F != 0x67 || !same {
                    return None;
                }
                signed(word & 0xFFFF_F000, 32) + signed(next >> 20, 12)
            }
            // The short jumps.
            _ if word & 3 == 1 && matches!(word >> 13 & 7, 1 | 5) => signed(
                fields(&[
                    (12, 1, 11),
                    (11, 1, 4),
                    (9, 2, 8),
                    (8, 1, 10),
                    (7, 1, 6),
                    (6, 1, 7),
                    (3, 3, 1),
                    (2, 1, 5),
                ]),
                12,
            ),
            _ => return None,
        };
        Some(address.wrapping_add_signed(offset))
    }
}

/// Sign-extends the lowest `bits` of a number.
fn signed(word: u32, bits: u32) -> i64 {
    let unused = 64 - bits;
    (u64::from(word) << unused).cast_signed() >> unused
}

/// Whether a function only returns.
pub(super) fn returns_at_once(architecture: Architecture, code: &[u8]) -> bool {
    let (mark, returns): (&[u8], &[&[u8]]) = match architecture {
        Architecture::X86_64 | Architecture::X86_64_X32 => {
            (&[0xF3, 0x0F, 0x1E, 0xFA], &[&[0xC3], &[0xF3, 0xC3]])
        }
        Architecture::I386 => (&[0xF3, 0x0F, 0x1E, 0xFB], &[&[0xC3], &[0xF3, 0xC3]]),
        Architecture::Aarch64 => (&[0x5F, 0x24, 0x03, 0xD5], &[&[0xC0, 0x03, 0x5F, 0xD6]]),
        Architecture::Arm => (&[], &[&[0x70, 0x47], &[0x1E, 0xFF, 0x2F, 0xE1]]),
        Architecture::Riscv32 | Architecture::Riscv64 => {
            (&[], &[&[0x82, 0x80], &[0x67, 0x80, 0, 0]])
        }
        _ => return false,
    };
    let code = code.strip_prefix(mark).unwrap_or(code);
    returns.iter().any(|it| code.starts_with(it))
}
