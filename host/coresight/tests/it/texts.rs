//! Comparison of A32 and T32 disassembly with binutils: random words of the instruction groups in our supplement, and
//! real code.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_coresight::disassembly::Disassembler;
use kymo_coresight::isa::Isa;

use crate::data;

/// Groups of random words: mask and value of the fixed bits, which include fields that must be 0 or 1.
const A32: [(u32, u32); 33] = [
    (0x0f00_0e10, 0x0e00_0a00),
    (0x0f00_0e50, 0x0e00_0a40),
    (0x0f30_0e00, 0x0d10_0a00),
    (0x0f30_0e00, 0x0d00_0a00),
    (0x0fff_0e80, 0x0cbd_0a00),
    (0x0fff_0e80, 0x0d2d_0a00),
    (0x0fe0_0ed0, 0x0c40_0a10),
    (0x0fe0_0f7f, 0x0e00_0a10),
    (0x0fef_0fff, 0x0ee1_0a10),
    (0x0f9f_0f5f, 0x0e00_0b10),
    (0xff80_0e50, 0xfe00_0a00),
    (0xffbf_0e50, 0xfeb8_0a40),
    (0xffbf_0ed0, 0xfeb9_0a40),
    (0x0f80_0f10, 0x0600_0f10),
    (0x0f80_03f0, 0x0680_0070),
    (0x0fb0_0030, 0x06a0_0010),
    (0x0ff0_0030, 0x0680_0010),
    (0x0fff_0ff0, 0x06bf_0f30),
    (0x0fff_0ff0, 0x06bf_0fb0),
    (0x0fff_0ff0, 0x06ff_0f30),
    (0x0ff0_0090, 0x0700_0010),
    (0x0fd0_f0f0, 0x0710_f010),
    (0x0ff0_00d0, 0x0750_0010),
    (0x0fa0_0070, 0x07a0_0050),
    (0x0fe0_0070, 0x07c0_0010),
    (0xffff_fff0, 0xf57f_f050),
    (0xff70_f000, 0xf550_f000),
    (0x0ff0_0090, 0x0120_0080),
    (0x0ff0_0090, 0x0140_0080),
    (0xfe80_0000, 0xf200_0000),
    (0xfe80_0000, 0xf280_0000),
    (0xffb0_0010, 0xf3b0_0000),
    (0xff10_0000, 0xf400_0000),
];

const T32: [(u32, u32); 24] = [
    (0xff00_0e10, 0xee00_0a00),
    (0xff00_0e50, 0xee00_0a40),
    (0xff30_0e00, 0xed10_0a00),
    (0xff30_0e00, 0xed00_0a00),
    (0xffff_0e80, 0xecbd_0a00),
    (0xffff_0e80, 0xed2d_0a00),
    (0xffe0_0ed0, 0xec40_0a10),
    (0xffe0_0f7f, 0xee00_0a10),
    (0xff9f_0f5f, 0xee00_0b10),
    (0xff80_0e50, 0xfe00_0a00),
    (0xff00_0f10, 0xee00_0f10),
    (0xfff0_00e0, 0xfb20_0000),
    (0xfff0_00e0, 0xfb40_0000),
    (0xfff0_00e0, 0xfb50_0000),
    (0xfff0_00f0, 0xfb70_0000),
    (0xffe0_00e0, 0xfbc0_00c0),
    (0xffff_fff0, 0xf3bf_8f50),
    (0xfff0_0fcf, 0xe8c0_0f8f),
    (0xfff0_0fcf, 0xe8d0_0f8f),
    (0xfff0_f000, 0xf8b0_f000),
    (0xef80_0000, 0xef00_0000),
    (0xef80_0000, 0xef80_0000),
    (0xffb0_0010, 0xffb0_0000),
    (0xff10_0000, 0xf900_0000),
];

/// Prefixes of the mnemonics in our supplement.
const OURS: [&str; 59] = [
    "vmla", "vmls", "vnml", "vmul", "vnmul", "vadd", "vsub", "vdiv", "vfm", "vfnm", "vmov", "vneg",
    "vabs", "vsqrt", "vcmp", "vcvt", "vrint", "vsel", "vmaxnm", "vminnm", "vldr", "vstr", "vpush",
    "vpop", "vldm", "vstm", "vmrs", "vmsr", "vdup", "ubfx", "sbfx", "bf", "rev", "rbit", "uxt",
    "sxt", "ssat", "usat", "pkh", "sel", "udiv", "sdiv", "sm", "usad", "uadd", "usub", "shadd",
    "uhsub", "qsub8", "dmb", "dsb", "isb", "clrex", "pld", "lda", "stl", "v", "sha", "aes",
];

struct Line {
    isa: Isa,
    address: u64,
    bytes: Vec<u8>,
    text: String,
}

fn objdump(arguments: &[&str], file: &Path) -> Option<String> {
    let found = Command::new("arm-none-eabi-objdump")
        .args(arguments)
        .arg(file)
        .output();
    let Ok(found) = found else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no arm-none-eabi-objdump");
        return None;
    };
    assert!(found.status.success(), "{}", file.display());
    Some(String::from_utf8_lossy(&found.stdout).into_owned())
}

/// Instructions of a listing with tabs between address, opcode, mnemonic and operands; without data and undefined
/// instructions.
fn lines(listing: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (address, rest) = line.trim_start().split_once(":\t")?;
        let (opcode, text) = rest.split_once('\t')?;
        let opcode = opcode.trim();
        let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let (isa, bytes) = match opcode.split_once(' ') {
            Some((first, second)) => {
                let halves = [number(first)? as u16, number(second)? as u16];
                (Isa::T32, halves.map(u16::to_le_bytes).concat())
            }
            None if opcode.len() == 4 => {
                (Isa::T32, (number(opcode)? as u16).to_le_bytes().to_vec())
            }
            None => (Isa::A32, number(opcode)?.to_le_bytes().to_vec()),
        };
        let is_defined = !["UN", "undefined", "illegal"]
            .iter()
            .any(|it| text.contains(it));
        let text = text.split(['@', ';', '<']).next()?.trim();
        (is_defined && !text.starts_with('.')).then(|| Line {
            isa,
            address: u64::from_str_radix(address, 16).unwrap_or_default(),
            bytes,
            text: text.replace('\t', " "),
        })
    };
    listing.lines().filter_map(line).collect()
}

/// Converts a text to our spelling of registers, conditions and numbers.
fn in_one_spelling(text: &str) -> String {
    let text = text.to_lowercase().replace(['#', '{', '}'], "");
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((&text, ""));
    let mnemonic = mnemonic.trim_end_matches(".w").trim_end_matches(".n");
    let (root, kind) = mnemonic.split_once('.').unwrap_or((mnemonic, ""));
    let root = match root.split_at_checked(root.len().saturating_sub(2)) {
        Some((root, "cs")) => format!("{root}hs"),
        Some((root, "cc")) => format!("{root}lo"),
        _ => root.to_owned(),
    };
    // binutils has the type of VSHL by an amount as signed, the manual as neither.
    let is_amount = operands
        .split(',')
        .nth(2)
        .is_some_and(|operand| !operand.contains(['d', 'q']));
    let kind = match kind.strip_prefix('s') {
        Some(width) if root == "vshl" && is_amount => format!("i{width}"),
        _ => kind.to_owned(),
    };
    let mut out = format!("{root}.{kind}");
    let operands = operands.split([' ', ',']).filter(|it| !it.is_empty());
    for operand in operands {
        let bare = operand.trim_matches(['[', ']', '!', '-']);
        let number = match bare.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => None,
        };
        let signed = operand
            .parse::<i32>()
            .ok()
            .filter(|number| *number < -0xffff);
        if let Some(number) = signed {
            // Immediate numbers of vectors, which are bits.
            out.push_str(&format!(" {}", number.cast_unsigned()));
            continue;
        }
        let bare_in_ours = match (bare, number) {
            ("r9", _) => "sb".to_owned(),
            ("sl", _) => "r10".to_owned(),
            ("un", _) => "nsh".to_owned(),
            ("unst", _) => "nshst".to_owned(),
            (_, Some(number)) => number.to_string(),
            _ => bare
                .strip_prefix("cr")
                .map_or(bare.to_owned(), |it| format!("c{it}")),
        };
        out.push(' ');
        out.push_str(&operand.replace(bare, &bare_in_ours));
    }
    out
}

/// Immediate numbers of `vmov` as they are encoded, which is how binutils shows them.
fn is_immediate(text: &str) -> bool {
    text.starts_with("vmov") && text.contains('#')
}

/// Compares instructions of our supplement. Returns the number of compared ones, and those without text.
fn compare(lines: &[Line], is_random: bool) -> (usize, Vec<String>) {
    let mut disassembler = Disassembler::default();
    let (mut compared, mut unknown) = (0, Vec::new());
    for line in lines {
        let ours = disassembler.text(line.isa, line.address, &line.bytes);
        let Some(ours) = ours else {
            unknown.push(line.text.clone());
            continue;
        };
        let is_ours = OURS.iter().any(|root| line.text.starts_with(root));
        // binutils prints `asr #0` for a shift by 32.
        if !is_ours || is_immediate(&line.text) || line.text.ends_with("asr #0") {
            continue;
        }
        let (ours, theirs) = (in_one_spelling(ours), in_one_spelling(&line.text));
        // In an IT block binutils adds the condition, which is not in the instruction itself.
        let is_in_it = || {
            let ((a, of_a), (b, of_b)) = (ours.split_once('.')?, theirs.split_once('.')?);
            (line.isa == Isa::T32 && b.len() == a.len() + 2 && b.starts_with(a) && of_a == of_b)
                .then_some(())
        };
        let is_same = ours == theirs || !is_random && is_in_it().is_some();
        assert!(is_same, "{:02x?} {ours:?}, expected {theirs:?}", line.bytes);
        compared += 1;
    }
    (compared, unknown)
}

/// Random words of groups, as a file.
fn random(
    groups: &[(u32, u32)],
    of: usize,
    bytes: impl Fn(u32) -> Vec<u8>,
) -> tempfile::NamedTempFile {
    let mut seed = 1_u64;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for (fixed, value) in groups {
        for number in 0..of {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mut word = (seed >> 32) as u32 & !fixed | value;
            if fixed >> 28 == 0 {
                // Unconditional, or with one of 14 conditions.
                let condition = [0xe, number as u32 % 14][number & 1];
                word = word & 0x0fff_ffff | condition << 28;
            }
            file.write_all(&bytes(word)).expect("written");
        }
    }
    file
}

#[test]
fn random_words() {
    let a32 = random(&A32, 500, |word| word.to_le_bytes().to_vec());
    let t32 = random(&T32, 500, |word| {
        let halves = [(word >> 16) as u16, word as u16];
        halves.map(u16::to_le_bytes).concat()
    });
    let raw = ["-D", "-b", "binary", "-m", "armv8-r"];
    let Some(listing) = objdump(&raw, a32.path()) else {
        return;
    };
    let (compared, _) = compare(&lines(&listing), true);
    assert!(compared > 8_800, "{compared}");
    let raw = ["-D", "-b", "binary", "-m", "armv8-r", "-M", "force-thumb"];
    let listing = objdump(&raw, t32.path()).unwrap_or_default();
    let (compared, _) = compare(&lines(&listing), true);
    assert!(compared > 5_800, "{compared}");
}

#[test]
fn a64_has_waits_and_transactions() {
    let mut disassembler = Disassembler::default();
    // As binutils has them; the first two are of the captures ete-wfet and tme_simple.
    for (word, expected) in [
        (0xd503_1000_u32, "wfet x0"),
        (0xd523_3060, "tstart x0"),
        (0xd503_103f, "wfit xzr"),
        (0xd523_3161, "ttest x1"),
        (0xd503_307f, "tcommit"),
    ] {
        let text = disassembler.text(Isa::A64, 0, &word.to_le_bytes());
        assert_eq!(text, Some(expected), "{word:08x}");
    }
}

/// All of `SYS`, with and without a register: each instruction with a name in binutils has the same name here.
#[test]
fn aliases_of_sys() {
    let words: Vec<u32> = (0..1 << 14)
        .flat_map(|number: u32| [0xd508_0000 | number << 5, 0xd508_001f | number << 5])
        .collect();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes).expect("written");
    let found = Command::new("aarch64-linux-gnu-objdump")
        .args(["-D", "-z", "-b", "binary", "-m", "aarch64"])
        .arg(file.path())
        .output();
    let Ok(found) = found else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no aarch64-linux-gnu-objdump");
        return;
    };
    let listing = String::from_utf8_lossy(&found.stdout);
    let theirs: Vec<String> = listing
        .lines()
        .filter_map(|line| line.split_once('\t')?.1.split_once('\t'))
        .map(|(_, text)| {
            text.split("//")
                .next()
                .unwrap_or_default()
                .trim()
                .replace('\t', " ")
        })
        .collect();
    assert_eq!(theirs.len(), words.len());
    let mut disassembler = Disassembler::default();
    let mut named = 0;
    for (word, theirs) in words.iter().zip(&theirs) {
        let ours = disassembler.text(Isa::A64, 0, &word.to_le_bytes());
        let ours = ours.unwrap_or_default();
        // Newer versions of binutils may know more names. A name without a register does not print register 0 of the
        // word.
        let is_plain = theirs.starts_with("sys") || word & 31 == 0 && !theirs.contains(',');
        if is_plain {
            continue;
        }
        assert_eq!(ours, theirs, "{word:08x}");
        named += 1;
    }
    assert!(named > 240, "{named}");
}

/// Vector instructions unknown to the disassembler (half precision, MVE) have no text. They must not get the text of
/// another instruction (of a coprocessor).
#[test]
fn vectors_without_text_are_data() {
    let a32 = [
        (0xfe00_0000, 0xf200_0000),
        (0xff10_0000, 0xf400_0000),
        (0xfe00_0800, 0xfc00_0800),
        (0xff00_0800, 0xfe00_0800),
        (0xfe00_0c00, 0xec00_0800),
        (0xff00_0c00, 0xee00_0800),
    ];
    let t32 = [
        (0xef00_0000, 0xef00_0000),
        (0xff10_0000, 0xf900_0000),
        (0xfe00_0800, 0xfc00_0800),
        (0xff00_0800, 0xfe00_0800),
        (0xfe00_0c00, 0xec00_0800),
        (0xff00_0c00, 0xee00_0800),
    ];
    // Of the M profile: MVE, shifts of 64 bits, conditional selection.
    let mve = [
        (0xef00_0000, 0xef00_0000),
        (0xff00_0800, 0xee00_0800),
        (0xff00_0800, 0xfe00_0800),
        (0xfe00_0800, 0xec00_0800),
        (0xfe00_0800, 0xfc00_0800),
        (0xfff0_0000, 0xea50_0000),
    ];
    let thumb = &["-M", "force-thumb"][..];
    for (groups, is_thumb, machine, options) in [
        (&a32, false, "armv8-a", &[][..]),
        (&t32, true, "armv8-a", thumb),
        (&mve, true, "armv8.1-m.main", thumb),
    ] {
        let words = random(groups, 1000, |word| match is_thumb {
            true => [(word >> 16) as u16, word as u16]
                .map(u16::to_le_bytes)
                .concat(),
            false => word.to_le_bytes().to_vec(),
        });
        let raw = ["-D", "-z", "-b", "binary", "-m", machine];
        let Some(listing) = objdump(&[&raw, options].concat(), words.path()) else {
            return;
        };
        let mut disassembler = Disassembler::default();
        let (mut with_text, mut all) = (0, 0);
        for line in lines(&listing).iter().filter(|line| line.bytes.len() == 4) {
            all += 1;
            let ours = disassembler.text(line.isa, line.address, &line.bytes);
            // Undefined instructions, or undefined operands.
            let Some(ours) = ours.filter(|_| !line.text.is_empty()) else {
                continue;
            };
            with_text += 1;
            let mnemonic = |text: &str| {
                let text = in_one_spelling(text);
                text.split(' ').next().unwrap_or_default().to_owned()
            };
            let (ours, theirs) = (mnemonic(ours), mnemonic(&line.text));
            // Shifts of a register have two names.
            let is_shift = theirs == "movs." && ours.starts_with(['l', 'a', 'r']);
            assert!(
                ours == theirs || is_shift,
                "{machine}: {:02x?} {ours:?}, expected {theirs:?}",
                line.bytes
            );
        }
        assert!(with_text > 100 && all > 1_500, "{with_text} of {all}");
    }
}

/// The C and mathematical libraries of the compiler for one kind of processor, and the compiler's own.
fn libraries(options: &[&str]) -> Vec<PathBuf> {
    let path = |name: &str| {
        let mut gcc = Command::new("arm-none-eabi-gcc");
        let found = gcc.args(options).arg(format!("-print-file-name={name}"));
        let found = found.output().ok()?.stdout;
        let path = PathBuf::from(String::from_utf8_lossy(&found).trim());
        path.is_file().then_some(path)
    };
    ["libc.a", "libm.a", "libgcc.a"]
        .into_iter()
        .filter_map(path)
        .collect()
}

#[test]
fn real_code() {
    let mut files = Vec::new();
    for options in [
        ["-marm", "-march=armv5te+fp", "-mfloat-abi=hard"],
        ["-mthumb", "-march=armv7e-m+fp.dp", "-mfloat-abi=hard"],
    ] {
        files.extend(libraries(&options));
    }
    if let Some(folder) = data::folder() {
        files.push(folder.join("snapshots/r5f-freertos/freertos.out"));
        files.push(folder.join("snapshots/r5f-zephyr/zephyr.elf"));
    }
    for file in files {
        let Some(listing) = objdump(&["-d"], &file) else {
            return;
        };
        let lines = lines(&listing);
        let (_, unknown) = compare(&lines, false);
        // A program contains data among its code; FLDMX and FSTMX save registers with unknown contents.
        let kinds = unknown
            .iter()
            .filter(|text| !text.starts_with("fldm") && !text.starts_with("fstm"))
            .collect::<HashSet<_>>();
        let all = lines.len();
        assert!(
            kinds.len() * 2_000 < all,
            "{} of {all}: {kinds:?}",
            file.display()
        );
    }
}

/// Checks that the texts are those of objdump, in our spelling.
#[test]
fn instructions_of_the_m_profile_have_their_names() {
    let mut disassembler = Disassembler::default();
    for (first, second, expected) in [
        (0xf3ef_u16, 0x8109_u16, "mrs r1, psp"),
        (0xf3ef, 0x8114, "mrs r1, control"),
        (0xf381, 0x8811, "msr basepri, r1"),
        (0xf380, 0x8888, "msr msp_ns, r0"),
        (0xe97f, 0xe97f, "sg"),
        (0xe89f, 0x9003, "clrm {r0, r1, ip, apsr}"),
        (0x4774, 0, "bxns lr"),
        (0x479c, 0, "blxns r3"),
    ] {
        let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
        let text = disassembler.text(Isa::T32, 0x100, &bytes);
        assert_eq!(text, Some(expected));
    }
}

#[test]
fn a32_has_eret_and_mvn_of_a_number() {
    let mut disassembler = Disassembler::default();
    for (word, expected) in [
        (0xe160_006e_u32, "eret"),
        (0xe3e0_4007, "mvn r4, 0x7"),
        (0x03f0_44ff, "mvnseq r4, 0xff000000"),
    ] {
        let text = disassembler.text(Isa::A32, 0x100, &word.to_le_bytes());
        assert_eq!(text, Some(expected));
    }
}
