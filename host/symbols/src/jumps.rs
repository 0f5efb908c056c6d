//! Detects programs that call `longjmp` without recording it in the trace.
//!
//! The recorder counts the depth of calls, so that an exit need not name its function if a reader knows it. A `longjmp`
//! abandons functions without an exit: unless it is marked, the count stays too high, and later exits are attributed to
//! abandoned functions. Wrappers in `libkymo.a`, which the linker inserts with `--wrap`, write the marks. A trace does
//! not show that they are missing, but the program does.
//!
//! The presence of `__wrap_longjmp` does not prove that it is used (without `--gc-sections` the library's wrappers are
//! always linked), and the presence of `longjmp` does not prove that it is called (`-u` links it in any case). So if
//! the function is in the file, its code is searched for calls from outside of the wrappers. If it is imported, the
//! symbol table tells: a used function has a relocation, and without `--wrap` the wrapper's reference to
//! `__real_longjmp` stays undefined.

use std::ops::Range;

use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
};

use crate::elf::is_code;

/// Names of `longjmp` in C libraries, as the linker sees them.
const JUMPS: [&str; 4] = ["longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"];

/// Names of `setjmp` in C libraries.
const PLACES: [&str; 3] = ["setjmp", "_setjmp", "__sigsetjmp"];

/// Functions that change the stack of a thread for another one.
const SWITCHES: [&str; 2] = ["swapcontext", "setcontext"];

/// The function with which the C library ends a thread in a static program: it jumps, but nothing follows.
const END_OF_THREAD: &str = "unwind_stop";

/// A program that calls `longjmp` and was not linked with the wrappers that record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmarkedJumps {
    /// The jump functions that it uses.
    functions: Vec<&'static str>,
    /// The `setjmp` functions in the program, as far as they are known.
    places: Vec<&'static str>,
    /// Whether wrappers exist for its architecture.
    wrappers: bool,
}

impl UnmarkedJumps {
    /// The jump functions that it uses, by their linker names. There is at least one.
    pub fn functions(&self) -> &[&'static str] {
        &self.functions
    }

    /// The missing linker options, for GCC or Clang; `None` for an architecture without wrappers.
    pub fn options(&self) -> Option<String> {
        let all = self.places.iter().chain(&self.functions);
        let options = all.map(|name| format!(",--wrap={name},-u,{name}"));
        self.wrappers
            .then(|| format!("-Wl{}", options.collect::<String>()))
    }
}

/// Relevant symbols of a program.
#[derive(Default)]
struct Known {
    /// Jump functions: the name, and the address if it is in the file.
    jumps: Vec<(&'static str, Option<u64>)>,
    places: Vec<&'static str>,
    /// Jump functions that have a wrapper.
    wrapped: Vec<&'static str>,
    /// Jump functions whose wrapper has an undefined target.
    unresolved: Vec<&'static str>,
    /// Code that may jump without a mark: the wrappers, and [`END_OF_THREAD`].
    exempt: Vec<Range<u64>>,
}

impl Known {
    fn of<'d>(file: &impl Object<'d>, mode_bits: u64) -> Self {
        let mut known = Self::default();
        for symbol in file.symbols() {
            let Ok(name) = symbol.name() else { continue };
            // Linkers write `longjmp@GLIBC_2.2.5`.
            let name = name.split('@').next().unwrap_or(name);
            let address = symbol.address() & !mode_bits;
            if let Some(jump) = one_of(&JUMPS, name) {
                let address = (!symbol.is_undefined()).then_some(address);
                known.jumps.push((jump, address));
            }
            known.places.extend(one_of(&PLACES, name));
            if let Some(real) = name.strip_prefix("__real_")
                && symbol.is_undefined()
            {
                known.unresolved.extend(one_of(&JUMPS, real));
            }
            let wrapped = name.strip_prefix("__wrap_");
            known
                .wrapped
                .extend(wrapped.and_then(|wrapped| one_of(&JUMPS, wrapped)));
            if wrapped.is_some() || name == END_OF_THREAD {
                let end = address.saturating_add(symbol.size());
                known.exempt.push(address..end);
            }
        }
        known
    }
}

fn one_of(names: &[&'static str], name: &str) -> Option<&'static str> {
    names.iter().find(|known| **known == name).copied()
}

/// The unmarked jumps of a program. `None` if there are none, or if that cannot be determined: without a symbol table
/// wrappers have no names.
pub(crate) fn unmarked<'d>(file: &impl Object<'d>) -> Option<UnmarkedJumps> {
    let architecture = file.architecture();
    let thumb = u64::from(architecture == Architecture::Arm);
    let known = Known::of(file, thumb);
    let unmarked = |(name, address): &(&'static str, Option<u64>)| {
        let unwrapped = !known.wrapped.contains(name) || known.unresolved.contains(name);
        let unmarked = match address {
            Some(address) => is_called(file, *address, &known.exempt).unwrap_or(unwrapped),
            None => unwrapped && is_used(file, name),
        };
        unmarked.then_some(*name)
    };
    let mut functions: Vec<_> = known.jumps.iter().filter_map(unmarked).collect();
    let mut places = known.places.clone();
    for names in [&mut functions, &mut places] {
        names.sort_unstable();
        names.dedup();
    }
    let no_wrappers = [Architecture::PowerPc, Architecture::PowerPc64];
    (!functions.is_empty()).then(|| UnmarkedJumps {
        functions,
        places,
        wrappers: !no_wrappers.contains(&architecture),
    })
}

/// By what a program changes its stack for another one, of which no trace tells; the first such function that it calls.
pub(crate) fn switches_stacks<'d>(file: &impl Object<'d>) -> Option<&'static str> {
    let thumb = u64::from(file.architecture() == Architecture::Arm);
    file.symbols().find_map(|symbol| {
        let name = symbol.name().ok()?;
        let name = one_of(&SWITCHES, name.split('@').next()?)?;
        let is_called = match symbol.is_undefined() {
            true => is_used(file, name),
            false => is_called(file, symbol.address() & !thumb, &[]).unwrap_or(false),
        };
        is_called.then_some(name)
    })
}

/// Whether code outside of `exempt` refers to the function at `target`; `None` if that cannot be determined: there is
/// no code in the file, or not all branches of its architecture are supported.
fn is_called<'d>(file: &impl Object<'d>, target: u64, exempt: &[Range<u64>]) -> Option<bool> {
    let branch = Branch::of(file.architecture()).filter(|_| file.is_little_endian())?;
    let mut searched = None;
    for section in file.sections().filter(is_code) {
        let Ok(code) = section.data() else { continue };
        if code.is_empty() {
            continue;
        }
        let places = (0..code.len()).step_by(branch.step());
        let mut calls = places.filter(|offset| {
            let at = section.address().wrapping_add(*offset as u64);
            let bytes = code.get(*offset..).unwrap_or_default();
            branch.leads_to(bytes, at, target) && !exempt.iter().any(|range| range.contains(&at))
        });
        if calls.next().is_some() {
            return Some(true);
        }
        searched = branch.is_complete().then_some(false);
    }
    searched
}

/// Whether the file has a relocation for an imported function.
fn is_used<'d>(file: &impl Object<'d>, name: &str) -> bool {
    let Some(mut relocations) = file.dynamic_relocations() else {
        return false;
    };
    relocations.any(|(_, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return false;
        };
        let symbols = file.dynamic_symbol_table();
        let symbol = symbols.and_then(|symbols| symbols.symbol_by_index(index).ok());
        symbol.is_some_and(|symbol| symbol.name() == Ok(name))
    })
}

/// Branch encodings of an architecture. Data would have to contain exactly the offset to the function to look like a
/// branch, so instruction boundaries need not be known.
#[derive(Clone, Copy)]
enum Branch {
    Thumb,
    Aarch64,
    X86,
    Riscv,
}

impl Branch {
    fn of(architecture: Architecture) -> Option<Self> {
        match architecture {
            Architecture::Arm => Some(Self::Thumb),
            Architecture::Aarch64 => Some(Self::Aarch64),
            Architecture::X86_64 => Some(Self::X86),
            Architecture::Riscv32 | Architecture::Riscv64 => Some(Self::Riscv),
            _ => None,
        }
    }

    /// Alignment of instructions in bytes.
    const fn step(self) -> usize {
        match self {
            Self::Thumb | Self::Riscv => 2,
            Self::Aarch64 => 4,
            Self::X86 => 1,
        }
    }

    /// Whether a function without any branch to it is certainly not called. The branches of RISC-V's 16-bit
    /// instructions have such short offsets, and are so frequent, that too much data would look like one.
    const fn is_complete(self) -> bool {
        !matches!(self, Self::Riscv)
    }

    /// Whether `code`, at address `at`, begins with a reference to `target`.
    fn leads_to(self, code: &[u8], at: u64, target: u64) -> bool {
        let offset = match self {
            Self::Thumb => {
                // A constant in the code, for a call by register or a linker's veneer.
                let word = code.first_chunk().map(|word| u32::from_le_bytes(*word));
                if word.is_some_and(|word| u64::from(word) == target | 1) && at.is_multiple_of(4) {
                    return true;
                }
                thumb(code)
            }
            Self::Aarch64 => aarch64(code),
            Self::X86 => x86(code),
            Self::Riscv => riscv(code),
        };
        offset.is_some_and(|offset| at.wrapping_add_signed(offset) == target)
    }
}

/// Offset of `BL` and `B.W`, from their own address (Arm Architecture Reference Manual, encodings T1 and T4).
fn thumb(code: &[u8]) -> Option<i64> {
    let [a, b, c, d] = *code.first_chunk()?;
    let first = u32::from(u16::from_le_bytes([a, b]));
    let second = u32::from(u16::from_le_bytes([c, d]));
    if first >> 11 != 0b11110 || second & 0x9000 != 0x9000 {
        return None;
    }
    let sign = first >> 10 & 1;
    let bit = |position: u32| !(second >> position ^ sign) & 1;
    let offset =
        sign << 24 | bit(13) << 23 | bit(11) << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1;
    Some(sign_extended(offset, 25) + 4)
}

/// Offset of `B` and `BL`, from their own address (Arm Architecture Reference Manual).
fn aarch64(code: &[u8]) -> Option<i64> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    (word >> 26 & 0x1F == 0b00101).then(|| sign_extended(word, 26) * 4)
}

/// Offset of `CALL` and `JMP` with 32 bits, from their own address (Intel SDM, volume 2).
fn x86(code: &[u8]) -> Option<i64> {
    let [operation, distance @ ..] = code.first_chunk::<5>()?;
    matches!(operation, 0xE8 | 0xE9).then(|| i64::from(i32::from_le_bytes(*distance)) + 5)
}

/// Offset of `JAL`, and of `AUIPC` followed by `JALR`, from their own address (RISC-V Unprivileged ISA, chapters 2.4
/// and 2.5).
fn riscv(code: &[u8]) -> Option<i64> {
    const JAL: u32 = 0x6F;
    const AUIPC: u32 = 0x17;
    const JALR: u32 = 0x67;
    let word = u32::from_le_bytes(*code.first_chunk()?);
    match word & 0x7F {
        JAL => {
            let offset = (word >> 31) << 20
                | (word & 0xF_F000)
                | (word >> 20 & 1) << 11
                | (word >> 21 & 0x3FF) << 1;
            Some(sign_extended(offset, 21))
        }
        AUIPC => {
            let next = u32::from_le_bytes(*code.get(4..)?.first_chunk()?);
            let register = word >> 7 & 0x1F;
            let jumps = next & 0x707F == JALR && next >> 15 & 0x1F == register;
            let upper = i64::from((word & 0xFFFF_F000).cast_signed());
            jumps.then(|| upper + sign_extended(next >> 20, 12))
        }
        _ => None,
    }
}

/// Sign-extends the lowest `bits` bits.
fn sign_extended(value: u32, bits: u32) -> i64 {
    let unused = 32 - bits;
    i64::from((value << unused).cast_signed() >> unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_branches() {
        // As GNU as writes them.
        let thumb_of = |first: u16, second: u16| {
            let [a, b] = first.to_le_bytes();
            let [c, d] = second.to_le_bytes();
            thumb(&[a, b, c, d])
        };
        assert_eq!(thumb_of(0xF000, 0xF800), Some(4), "bl .+4");
        assert_eq!(thumb_of(0xF7FF, 0xFFFE), Some(0), "bl .");
        assert_eq!(thumb_of(0xF000, 0xB87E), Some(0x100), "b.w .+0x100");
        assert_eq!(
            thumb_of(0xF400, 0xD000),
            Some(4 - 0x0100_0000),
            "bl, the farthest"
        );
        assert_eq!(thumb_of(0xF000, 0x8000), None, "a conditional branch");
        assert_eq!(thumb(&[0x00, 0xF0]), None);
        let aarch64_of = |word: u32| aarch64(&word.to_le_bytes());
        assert_eq!(aarch64_of(0x9400_0040), Some(0x100), "bl .+0x100");
        assert_eq!(aarch64_of(0x17FF_FFFF), Some(-4), "b .-4");
        assert_eq!(aarch64_of(0xD65F_03C0), None, "ret");
        let riscv_of = |words: [u32; 2]| riscv(&words.map(u32::to_le_bytes).concat());
        assert_eq!(riscv_of([0x0000_106F, 0]), Some(0x1000), "j .+0x1000");
        assert_eq!(riscv_of([0xFFDF_F0EF, 0]), Some(-4), "jal .-4");
        let call = [0x0000_1097, 0xFFC0_80E7];
        assert_eq!(riscv_of(call), Some(0xFFC), "auipc ra,1; jalr -4(ra)");
        assert_eq!(
            riscv_of([0x0000_1097, 0xFFC3_00E7]),
            None,
            "by another register"
        );
        assert_eq!(x86(&[0xE8, 0xFB, 0xFF, 0xFF, 0xFF]), Some(0), "call .");
        assert_eq!(x86(&[0xE9, 0, 1, 0, 0]), Some(0x105));
        assert_eq!(x86(&[0xE9, 0, 1, 0]), None);
    }
}
