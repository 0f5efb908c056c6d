//! Comparison of instruction classes with a disassembler's output, for random words and the code of the captures.

use kymo_coresight::instruction::{self, Class, Instruction, Purpose, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::Layout;
use yaxpeax_arch::{Decoder as _, LengthedInstruction as _, U8Reader};
use yaxpeax_arm::{armv7, armv8};

use crate::data;

const ALL: Waypoints = Waypoints {
    waits: true,
    barriers: true,
    loads: false,
    stores: false,
    counts_it: false,
};

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Iterator for Random {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Some((self.0 >> 32) as u32)
    }
}

/// Disassembler that returns an instruction's text and size, if it knows the instruction.
struct Texts {
    a64: armv8::a64::InstDecoder,
    a32: armv7::InstDecoder,
    t32: armv7::InstDecoder,
}

impl Texts {
    fn new() -> Self {
        Texts {
            a64: armv8::a64::InstDecoder::default(),
            a32: armv7::InstDecoder::armv7(),
            t32: armv7::InstDecoder::armv7_thumb(),
        }
    }

    fn of(&self, isa: Isa, bytes: &[u8]) -> Option<(String, u64)> {
        let mut reader = U8Reader::new(bytes);
        if isa == Isa::A64 {
            let found = self.a64.decode(&mut reader).ok()?;
            return Some((found.to_string(), 4));
        }
        let decoder = if isa == Isa::T32 {
            &self.t32
        } else {
            &self.a32
        };
        let found = decoder.decode(&mut reader).ok()?;
        let text = found.to_string();
        (text != "invalid").then_some((text, found.len().to_const().into()))
    }
}

/// The class of an instruction of A64, from its text.
fn class_of_a64(text: &str) -> (Class, Purpose) {
    let mnemonic = text.split(' ').next().unwrap_or_default();
    match mnemonic {
        "b" | "cbz" | "cbnz" | "tbz" | "tbnz" => (Class::Branch, Purpose::None),
        "bl" => (Class::Branch, Purpose::Call),
        "br" | "braa" | "brab" | "braaz" | "brabz" => (Class::Indirect, Purpose::None),
        "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => (Class::Indirect, Purpose::Call),
        "eret" | "eretaa" | "eretab" => (Class::Indirect, Purpose::ExceptionReturn),
        "isb" => (Class::Isb, Purpose::None),
        "dmb" | "dsb" | "ssbb" | "pssbb" => (Class::Barrier, Purpose::None),
        "wfi" | "wfe" => (Class::Wait, Purpose::None),
        _ if mnemonic.starts_with("ret") => (Class::Indirect, Purpose::Return),
        _ if mnemonic.starts_with("b.") || mnemonic.starts_with("bc.") => {
            (Class::Branch, Purpose::None)
        }
        _ => (Class::Other, Purpose::None),
    }
}

/// The class of an instruction of A32 or T32, from its text, and whether it links.
fn class_of_32(text: &str) -> (Class, bool) {
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let mnemonic = mnemonic.trim_end_matches(".w");
    let conditions = [
        "eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al",
    ];
    let is = |root: &str| {
        let rest = mnemonic.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || conditions.contains(&rest))
    };
    let is_direct = operands.contains('$');
    if is("b") || is("cbz") || is("cbnz") {
        return (Class::Branch, false);
    }
    if is("bl") || is("blx") {
        let class = if is_direct {
            Class::Branch
        } else {
            Class::Indirect
        };
        return (class, true);
    }
    if is("bx") || is("bxj") || is("eret") || is("tbb") || is("tbh") || mnemonic.starts_with("rfe")
    {
        return (Class::Indirect, false);
    }
    if is("isb") {
        return (Class::Isb, false);
    }
    if is("dsb") || is("dmb") {
        return (Class::Barrier, false);
    }
    if is("wfi") || is("wfe") {
        return (Class::Wait, false);
    }
    let loads_list = mnemonic.starts_with("ldm") || is("pop");
    if loads_list {
        let list = operands.split('{').nth(1).unwrap_or_default();
        return match list.contains("pc") {
            true => (Class::Indirect, false),
            false => (Class::Other, false),
        };
    }
    let writes = [
        "ldr", "mov", "mvn", "add", "adc", "sub", "sbc", "rsb", "rsc", "and", "eor", "orr", "bic",
        "lsl", "lsr", "asr", "ror", "rrx",
    ];
    let writes = writes.iter().any(|root| {
        let rest = mnemonic.strip_prefix(root);
        rest.is_some_and(|rest| {
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            rest.is_empty() || conditions.contains(&rest)
        })
    });
    match writes && operands.split(',').next() == Some("pc") {
        true => (Class::Indirect, false),
        false => (Class::Other, false),
    }
}

fn check_a64(texts: &Texts, address: u64, word: u32) -> bool {
    let bytes = word.to_le_bytes();
    let ours = instruction::decode(Isa::A64, address, &bytes, ALL).expect("four bytes");
    let Some((text, _)) = texts.of(Isa::A64, &bytes) else {
        return false;
    };
    let (class, purpose) = class_of_a64(&text);
    assert_eq!(
        (ours.class, ours.purpose),
        (class, purpose),
        "{word:08x} {text}"
    );
    if class == Class::Branch {
        let offset = ours.target.wrapping_sub(address) as i64;
        let expected = match offset {
            0.. => format!("$+{offset:#x}"),
            _ => format!("$-{:#x}", -offset),
        };
        assert!(text.ends_with(&expected), "{word:08x} {text} {offset:#x}");
        let mnemonic = text.split(' ').next();
        let is_conditional = !matches!(mnemonic, Some("b" | "bl"));
        assert_eq!(ours.is_conditional, is_conditional, "{word:08x} {text}");
    }
    true
}

/// Whether the manual calls the instruction UNPREDICTABLE, which explains a difference and is no problem, because no
/// compiler generates it. Random words often are: the PC as an operand that may not be the PC, fields that must be 0 or
/// 1.
fn is_unpredictable(isa: Isa, bytes: &[u8], ours: Class, theirs: Class) -> bool {
    let first = u16::from_le_bytes([bytes[0], bytes[1]]);
    match (isa, ours, theirs) {
        // The destination, or a field that must be 0, is 15.
        (Isa::A32, Class::Indirect, Class::Other) => bytes[1] >> 4 == 15,
        (Isa::T32, Class::Indirect, Class::Other) => first & 0xff70 == 0xf850,
        // 32-bit data processing, TBB, and barriers.
        (Isa::T32, Class::Other, _) => first >= 0xe800,
        _ => false,
    }
}

fn check_32(texts: &Texts, isa: Isa, bytes: &[u8], is_random: bool) -> Option<Instruction> {
    let ours = instruction::decode(isa, 0x8000, bytes, ALL)?;
    let (text, size) = texts.of(isa, bytes)?;
    assert_eq!(u64::from(ours.size), size, "{bytes:02x?} {text}");
    let (class, links) = class_of_32(&text);
    let is_same = (ours.class, ours.links) == (class, links);
    if !(is_same || is_random && is_unpredictable(isa, bytes, ours.class, class)) {
        let found = (ours.class, ours.links);
        let bytes = &bytes[..size as usize];
        panic!("{isa:?} {bytes:02x?} {text}: {found:?}, expected {class:?} {links}");
    }
    Some(ours)
}

#[test]
fn random_words_of_a64() {
    let texts = Texts::new();
    let mut known = 0;
    for word in Random(1).take(200_000) {
        known += u32::from(check_a64(&texts, 0x40_0000, word));
    }
    // A sixth of all words are branches; many of the others are no instructions.
    assert!(known > 60_000, "{known}");
    // System instructions, which are rare among random words.
    for word in Random(2).take(20_000) {
        check_a64(&texts, 0x40_0000, 0xd500_0000 | word & 0x3f_ffff);
        check_a64(&texts, 0x40_0000, 0xd600_0000 | word & 0x1ff_ffff);
    }
}

#[test]
fn random_words_of_a32_and_t32() {
    let texts = Texts::new();
    for word in Random(3).take(200_000) {
        check_32(&texts, Isa::A32, &word.to_le_bytes(), true);
        check_32(&texts, Isa::T32, &word.to_le_bytes(), true);
    }
}

/// What a disassembler's text says of an access: whether it loads, and whether it stores.
fn access_of(isa: Isa, text: &str) -> (bool, bool) {
    let mnemonic = text.split([' ', '.']).next().unwrap_or_default();
    let is = |roots: &[&str]| roots.iter().any(|root| mnemonic.starts_with(root));
    let updates: &[&str] = match isa {
        Isa::A64 => &[
            "cas", "swp", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax",
            "ldumin", "stadd", "stclr", "steor", "stset", "stsmax", "stsmin", "stumax", "stumin",
        ],
        _ => &["swp"],
    };
    match mnemonic {
        _ if is(updates) => (true, true),
        // Of branches the class is another.
        _ if is(&["ld", "pop", "vld", "vpop", "vldm"]) => (true, false),
        _ if is(&["st", "push", "vst", "vpush"]) => (false, true),
        _ if is(&["srs"]) && isa != Isa::A64 => (false, true),
        _ => (false, false),
    }
}

/// Whether the disassembler takes for an access what is none by the manual, or names none.
fn is_taken_for_access(isa: Isa, text: &str, bytes: &[u8]) -> bool {
    match isa {
        // The highest bit of vectors by structure has to be 0.
        Isa::A64 => text.starts_with("invalid") || text.contains('{') && bytes[3] & 0xbe == 0x8c,
        // A table branch whose other fields are not those of one; CLRM; a hint.
        Isa::T32 => {
            text.starts_with("tb")
                || bytes.starts_with(&[0x9f, 0xe8])
                || text.starts_with("ldrsb.w pc")
        }
        _ => false,
    }
}

fn check_access(texts: &Texts, isa: Isa, bytes: &[u8]) -> bool {
    let is = |loads, stores| {
        let waypoints = Waypoints {
            loads,
            stores,
            ..ALL
        };
        instruction::decode(isa, 0x8000, bytes, waypoints).map(|found| found.class)
    };
    let plain = is(false, false);
    let Some((text, size)) = texts.of(isa, bytes) else {
        return false;
    };
    if plain != Some(Class::Other) {
        return false;
    }
    let ours = (
        is(true, false) == Some(Class::Access),
        is(false, true) == Some(Class::Access),
    );
    let bytes = &bytes[..size as usize];
    if !is_taken_for_access(isa, &text, bytes) {
        assert_eq!(ours, access_of(isa, &text), "{isa:?} {bytes:02x?} {text}");
    }
    ours != (false, false)
}

#[test]
fn loads_and_stores_of_random_words() {
    let texts = Texts::new();
    let mut accesses = 0;
    for word in Random(5).take(100_000) {
        for isa in [Isa::A64, Isa::A32, Isa::T32] {
            accesses += u32::from(check_access(&texts, isa, &word.to_le_bytes()));
        }
        // Random words of T32 are seldom wide.
        let wide = (word & !0xf800 | 0xe800).to_le_bytes();
        accesses += u32::from(check_access(&texts, Isa::T32, &wide));
        // The space of loads and stores of A64.
        let access = (word & !0x0a00_0000 | 0x0800_0000).to_le_bytes();
        accesses += u32::from(check_access(&texts, Isa::A64, &access));
    }
    assert!(accesses > 50_000, "{accesses}");
}

#[test]
fn code_of_the_captures() {
    let Some(folder) = data::folder() else { return };
    let texts = Texts::new();
    for name in ["usr/bin/fib", "usr/lib/aarch64-linux-gnu/ld-2.31.so"] {
        let file = std::fs::read(folder.join("perf/symfs").join(name)).expect("a file");
        let words = file.chunks_exact(4).filter_map(|word| word.try_into().ok());
        for word in words {
            check_a64(&texts, 0x40_0000, u32::from_le_bytes(word));
        }
    }
    let file = std::fs::read(folder.join("snapshots/r5f-freertos/freertos.out")).expect("a file");
    let layout = Layout::of_elf(&file).expect("an ELF file");
    let mut at = 0;
    let (mut a32, mut t32) = (0, 0);
    while at + 4 <= file.len() {
        let address = layout.address_of(at as u64);
        let isa = address.and_then(|address| layout.isa_at(address).flatten());
        let Some(isa) = isa else {
            at += 2;
            continue;
        };
        match check_32(&texts, isa, &file[at..], false) {
            Some(found) => {
                a32 += u32::from(isa == Isa::A32);
                t32 += u32::from(isa == Isa::T32);
                at += usize::from(found.size);
            }
            // The disassembler does not know it, but its size is certain.
            None => {
                let size = instruction::decode(isa, 0, &file[at..], ALL);
                at += size.map_or(2, |found| usize::from(found.size));
            }
        }
    }
    assert!(a32 > 1000 && t32 > 10_000, "{a32} {t32}");
}
