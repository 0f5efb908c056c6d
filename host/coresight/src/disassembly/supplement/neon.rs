//! Advanced SIMD (NEON) with the encoding of A32, to which that of T32 is converted.

use std::fmt::Write as _;

use super::{bit, bits};

mod structures;

/// Vector register, of 64 bits (`d`) or 128 (`q`).
#[derive(Clone, Copy)]
struct Vector {
    number: u32,
    is_quad: bool,
}

impl std::fmt::Display for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_quad {
            true => write!(f, "q{}", self.number / 2),
            false => write!(f, "d{}", self.number),
        }
    }
}

/// Returns the vector of a four-bit field and a separate bit. `None` for a quad register with an odd number.
fn vector(word: u32, low: u32, beside: u32, is_quad: bool) -> Option<Vector> {
    let number = bits(word, beside, 1) << 4 | bits(word, low, 4);
    (!is_quad || number & 1 == 0).then_some(Vector { number, is_quad })
}

fn destination(word: u32, is_quad: bool) -> Option<Vector> {
    vector(word, 12, 22, is_quad)
}

fn first(word: u32, is_quad: bool) -> Option<Vector> {
    vector(word, 16, 7, is_quad)
}

fn second(word: u32, is_quad: bool) -> Option<Vector> {
    vector(word, 0, 5, is_quad)
}

/// Converts an Advanced SIMD instruction of T32 to the A32 instruction with the same meaning.
pub(super) const fn as_a32(word: u32) -> Option<u32> {
    match word >> 24 {
        0xef | 0xff => Some(0xf200_0000 | word >> 4 & 0x0100_0000 | word & 0x00ff_ffff),
        0xf9 if !bit(word, 20) => Some(0xf400_0000 | word & 0x00ff_ffff),
        _ => None,
    }
}

/// Writes an instruction of A32.
pub(super) fn write(word: u32, out: &mut String) -> Option<()> {
    if word & 0xff10_0000 == 0xf400_0000 {
        return match bit(word, 23) {
            false => structures::registers(word, out),
            true => structures::lane(word, out),
        };
    }
    if word & 0xfe00_0000 != 0xf200_0000 {
        return None;
    }
    if !bit(word, 23) {
        return same_length(word, out);
    }
    match (bits(word, 20, 2), bit(word, 4)) {
        (_, true) if bits(word, 19, 3) == 0 && !bit(word, 7) => immediate(word, out),
        (_, true) => shift(word, out),
        (3, false) if !bit(word, 24) => extract(word, out),
        (3, false) if !bit(word, 11) => two_registers(word, out),
        (3, false) if !bit(word, 10) => table(word, out),
        (3, false) => duplicate(word, out),
        (_, false) if bit(word, 6) => scalar(word, out),
        (_, false) => lengths(word, out),
    }
}

const fn sign(word: u32) -> char {
    if bit(word, 24) { 'u' } else { 's' }
}

/// Writes an instruction with two sources of the destination's length.
fn same_length(word: u32, out: &mut String) -> Option<()> {
    let (is_u, is_quad, size) = (bit(word, 24), bit(word, 6), bits(word, 20, 2));
    let d = destination(word, is_quad)?;
    let (n, m) = (first(word, is_quad)?, second(word, is_quad)?);
    let width = 8 << size;
    let (opcode, is_odd) = (bits(word, 8, 4), bit(word, 4));
    let choose = |even, odd| if is_odd { odd } else { even };
    let (high, is_half) = (bit(word, 21), bit(word, 20));
    let float = match (opcode, is_odd, is_u, high) {
        (0xc, true, false, _) => Some(if high { "vfms" } else { "vfma" }),
        (0xd, false, false, _) => Some(if high { "vsub" } else { "vadd" }),
        (0xd, false, true, true) => Some("vabd"),
        (0xd, false, true, false) if !is_quad => Some("vpadd"),
        (0xd, true, false, _) => Some(if high { "vmls" } else { "vmla" }),
        (0xd, true, true, false) => Some("vmul"),
        (0xe, false, false, false) => Some("vceq"),
        (0xe, false, true, _) => Some(if high { "vcgt" } else { "vcge" }),
        (0xe, true, true, _) => Some(if high { "vacgt" } else { "vacge" }),
        (0xf, false, false, _) => Some(if high { "vmin" } else { "vmax" }),
        (0xf, false, true, _) if !is_quad => Some(if high { "vpmin" } else { "vpmax" }),
        (0xf, true, false, _) => Some(if high { "vrsqrts" } else { "vrecps" }),
        (0xf, true, true, _) => Some(if high { "vminnm" } else { "vmaxnm" }),
        _ => None,
    };
    if let Some(name) = float {
        let width = if is_half { 16 } else { 32 };
        return write!(out, "{name}.f{width} {d}, {n}, {m}").ok();
    }
    // By the sign: all sizes, or all but 64 bits.
    let by_sign = match opcode {
        0x0 => Some((choose("vhadd", "vqadd"), is_odd)),
        0x1 if !is_odd => Some(("vrhadd", false)),
        0x2 => Some((choose("vhsub", "vqsub"), is_odd)),
        0x3 => Some((choose("vcgt", "vcge"), false)),
        0x4 => Some((choose("vshl", "vqshl"), true)),
        0x5 => Some((choose("vrshl", "vqrshl"), true)),
        0x6 => Some((choose("vmax", "vmin"), false)),
        0x7 => Some((choose("vabd", "vaba"), false)),
        0xa if !is_quad => Some((choose("vpmax", "vpmin"), false)),
        _ => None,
    };
    if let Some((name, has_64)) = by_sign {
        if size == 3 && !has_64 {
            return None;
        }
        // Shifts have the amount in the first register.
        let (n, m) = if matches!(opcode, 4 | 5) {
            (m, n)
        } else {
            (n, m)
        };
        let sign = sign(word);
        return write!(out, "{name}.{sign}{width} {d}, {n}, {m}").ok();
    }
    let (name, kind) = match (opcode, is_odd, is_u) {
        (0x1, true, _) => return bitwise(word, [d, n, m], out),
        (0x8, false, false) => ("vadd", "i"),
        (0x8, false, true) => ("vsub", "i"),
        (0x8, true, false) if size < 3 => ("vtst", ""),
        (0x8, true, true) if size < 3 => ("vceq", "i"),
        (0x9, false, false) if size < 3 => ("vmla", "i"),
        (0x9, false, true) if size < 3 => ("vmls", "i"),
        (0x9, true, false) if size < 3 => ("vmul", "i"),
        (0x9, true, true) if size == 0 => ("vmul", "p"),
        (0xb, false, false) if matches!(size, 1 | 2) => ("vqdmulh", "s"),
        (0xb, false, true) if matches!(size, 1 | 2) => ("vqrdmulh", "s"),
        (0xb, true, false) if size < 3 && !is_quad => ("vpadd", "i"),
        (0xb, true, true) if matches!(size, 1 | 2) => ("vqrdmlah", "s"),
        (0xc, true, true) if matches!(size, 1 | 2) => ("vqrdmlsh", "s"),
        (0xc, false, _) if is_quad => {
            let name = match (is_u, size) {
                (false, 0) => "sha1c",
                (false, 1) => "sha1p",
                (false, 2) => "sha1m",
                (false, _) => "sha1su0",
                (true, 0) => "sha256h",
                (true, 1) => "sha256h2",
                (true, 2) => "sha256su1",
                (true, _) => return None,
            };
            return write!(out, "{name}.32 {d}, {n}, {m}").ok();
        }
        _ => return None,
    };
    write!(out, "{name}.{kind}{width} {d}, {n}, {m}").ok()
}

fn bitwise(word: u32, [d, n, m]: [Vector; 3], out: &mut String) -> Option<()> {
    let name = match (bit(word, 24), bits(word, 20, 2)) {
        (false, 0) => "vand",
        (false, 1) => "vbic",
        (false, 2) if n.number == m.number => return write!(out, "vmov {d}, {n}").ok(),
        (false, 2) => "vorr",
        (false, _) => "vorn",
        (true, 0) => "veor",
        (true, 1) => "vbsl",
        (true, 2) => "vbit",
        (true, _) => "vbif",
    };
    write!(out, "{name} {d}, {n}, {m}").ok()
}

/// Writes an instruction with an immediate number (Arm DDI 0487, `AdvSIMDExpandImm`).
fn immediate(word: u32, out: &mut String) -> Option<()> {
    let d = destination(word, bit(word, 6))?;
    let value = bits(word, 24, 1) << 7 | bits(word, 16, 3) << 4 | bits(word, 0, 4);
    let (mode, is_inverse) = (bits(word, 8, 4), bit(word, 5));
    let moved = if is_inverse { "vmvn" } else { "vmov" };
    let combined = if is_inverse { "vbic" } else { "vorr" };
    let (name, width, value) = match mode {
        0..=7 => {
            let name = if mode & 1 == 0 { moved } else { combined };
            (name, "i32", value << (8 * (mode >> 1)))
        }
        8..=11 => {
            let name = if mode & 1 == 0 { moved } else { combined };
            (name, "i16", value << (8 * (mode >> 1 & 1)))
        }
        12 => (moved, "i32", value << 8 | 0xff),
        13 => (moved, "i32", value << 16 | 0xffff),
        14 if !is_inverse => ("vmov", "i8", value),
        14 => {
            let bytes = (0..8).filter(|at| value >> at & 1 != 0);
            let value = bytes.fold(0u64, |all, at| all | 0xff << (8 * at));
            return write!(out, "vmov.i64 {d}, {value:#x}").ok();
        }
        _ if is_inverse => return None,
        _ => {
            // A sign, three bits of exponent, four of fraction.
            let exponent = if value & 0x40 == 0 {
                0x4000_0000
            } else {
                0x3e00_0000
            };
            let bits = (value & 0x80) << 24 | exponent | (value & 0x3f) << 19;
            return write!(out, "vmov.f32 {d}, {:?}", f32::from_bits(bits)).ok();
        }
    };
    write!(out, "{name}.{width} {d}, {value:#x}").ok()
}

/// Writes a shift by an immediate amount, or a conversion of fixed-point numbers.
fn shift(word: u32, out: &mut String) -> Option<()> {
    let (is_u, is_quad, field) = (bit(word, 24), bit(word, 6), bits(word, 16, 6));
    let is_64 = bit(word, 7);
    let size = match (is_64, field) {
        (true, _) => 64,
        (false, 32..) => 32,
        (false, 16..) => 16,
        (false, 8..) => 8,
        (false, _) => return None,
    };
    let right = if is_64 { 64 - field } else { size * 2 - field };
    let left = if is_64 { field } else { field - size };
    let opcode = bits(word, 8, 4);
    let sign = sign(word);
    let of_sign = |name: &str| Some((name.to_owned(), format!("{sign}{size}")));
    let (named, amount) = match opcode {
        0 => (of_sign("vshr"), right),
        1 => (of_sign("vsra"), right),
        2 => (of_sign("vrshr"), right),
        3 => (of_sign("vrsra"), right),
        4 if is_u => (Some(("vsri".to_owned(), size.to_string())), right),
        5 if is_u => (Some(("vsli".to_owned(), size.to_string())), left),
        5 => (Some(("vshl".to_owned(), format!("i{size}"))), left),
        6 if is_u => (Some(("vqshlu".to_owned(), format!("s{size}"))), left),
        7 => (of_sign("vqshl"), left),
        _ => (None, 0),
    };
    if let Some((name, kind)) = named {
        let (d, m) = (destination(word, is_quad)?, second(word, is_quad)?);
        return write!(out, "{name}.{kind} {d}, {m}, {amount:#x}").ok();
    }
    if is_64 {
        return None;
    }
    let wide = size * 2;
    let narrow = match (opcode, is_u, is_quad) {
        (8, false, false) => Some(("vshrn", 'i')),
        (8, false, true) => Some(("vrshrn", 'i')),
        (8, true, false) => Some(("vqshrun", 's')),
        (8, true, true) => Some(("vqrshrun", 's')),
        (9, _, false) => Some(("vqshrn", sign)),
        (9, _, true) => Some(("vqrshrn", sign)),
        _ => None,
    };
    if let (Some((name, kind)), 8..=32) = (narrow, size) {
        let (d, m) = (destination(word, false)?, second(word, true)?);
        return write!(out, "{name}.{kind}{wide} {d}, {m}, {right:#x}").ok();
    }
    match opcode {
        10 if !is_quad => {
            let (d, m) = (destination(word, true)?, second(word, false)?);
            match left {
                0 if size.is_power_of_two() && field == size => {
                    write!(out, "vmovl.{sign}{size} {d}, {m}").ok()
                }
                _ => write!(out, "vshll.{sign}{size} {d}, {m}, {left:#x}").ok(),
            }
        }
        12..=15 if size == 32 => {
            let (d, m) = (destination(word, is_quad)?, second(word, is_quad)?);
            let width = if opcode < 14 { 16 } else { 32 };
            let kinds = match opcode & 1 {
                0 => format!("f{width}.{sign}{width}"),
                _ => format!("{sign}{width}.f{width}"),
            };
            write!(out, "vcvt.{kinds} {d}, {m}, {:#x}", 64 - field).ok()
        }
        _ => None,
    }
}

fn extract(word: u32, out: &mut String) -> Option<()> {
    let (is_quad, at) = (bit(word, 6), bits(word, 8, 4));
    let (d, n) = (destination(word, is_quad)?, first(word, is_quad)?);
    let m = second(word, is_quad)?;
    (is_quad || at < 8).then_some(())?;
    write!(out, "vext.8 {d}, {n}, {m}, {at:#x}").ok()
}

/// Writes an instruction with one source.
fn two_registers(word: u32, out: &mut String) -> Option<()> {
    let (is_quad, size) = (bit(word, 6), bits(word, 18, 2));
    let width = 8 << size;
    let (group, opcode) = (bits(word, 16, 2), bits(word, 7, 4));
    let plain = |name: &str, kind: &str, out: &mut String| {
        let (d, m) = (destination(word, is_quad)?, second(word, is_quad)?);
        write!(out, "{name}.{kind} {d}, {m}").ok()
    };
    let sized =
        |name: &str, kind: &str, out: &mut String| plain(name, &format!("{kind}{width}"), out);
    match (group, opcode) {
        (0, 0) if size < 3 => sized("vrev64", "", out),
        (0, 1) if size < 2 => sized("vrev32", "", out),
        (0, 2) if size < 1 => sized("vrev16", "", out),
        (0, 4) if size < 3 => sized("vpaddl", "s", out),
        (0, 5) if size < 3 => sized("vpaddl", "u", out),
        (0, 6 | 7) if size == 0 => {
            let name = match (opcode, is_quad) {
                (6, false) => "aese",
                (6, true) => "aesd",
                (_, false) => "aesmc",
                (_, true) => "aesimc",
            };
            let (d, m) = (destination(word, true)?, second(word, true)?);
            write!(out, "{name}.8 {d}, {m}").ok()
        }
        (0, 8) if size < 3 => sized("vcls", "s", out),
        (0, 9) if size < 3 => sized("vclz", "i", out),
        (0, 10) if size == 0 => sized("vcnt", "", out),
        (0, 11) if size == 0 => {
            let (d, m) = (destination(word, is_quad)?, second(word, is_quad)?);
            write!(out, "vmvn {d}, {m}").ok()
        }
        (0, 12) if size < 3 => sized("vpadal", "s", out),
        (0, 13) if size < 3 => sized("vpadal", "u", out),
        (0, 14) if size < 3 => sized("vqabs", "s", out),
        (0, 15) if size < 3 => sized("vqneg", "s", out),
        (1, 5) if size == 2 && is_quad => plain("sha1h", "32", out),
        (1, 5 | 13) => None,
        (1, _) => {
            let is_float = opcode > 7;
            if size == 3 || is_float && size == 0 {
                return None;
            }
            let (name, kind) = match opcode & 7 {
                0 => ("vcgt", 's'),
                1 => ("vcge", 's'),
                2 => ("vceq", 'i'),
                3 => ("vcle", 's'),
                4 => ("vclt", 's'),
                6 => ("vabs", 's'),
                _ => ("vneg", 's'),
            };
            let kind = if is_float { 'f' } else { kind };
            sized(name, &kind.to_string(), out)?;
            match opcode & 7 {
                0..=4 => write!(out, ", 0x0").ok(),
                _ => Some(()),
            }
        }
        (2, 0) if size == 0 => {
            let (d, m) = (destination(word, is_quad)?, second(word, is_quad)?);
            write!(out, "vswp {d}, {m}").ok()
        }
        (2, 1) if size < 3 => sized("vtrn", "", out),
        (2, 2) if size < 2 + u32::from(is_quad) => sized("vuzp", "", out),
        (2, 3) if size < 2 + u32::from(is_quad) => sized("vzip", "", out),
        (2, 4 | 5) if size < 3 => {
            let (name, kind) = match (opcode, is_quad) {
                (4, false) => ("vmovn", 'i'),
                (4, true) => ("vqmovun", 's'),
                (_, false) => ("vqmovn", 's'),
                (_, true) => ("vqmovn", 'u'),
            };
            let (d, m) = (destination(word, false)?, second(word, true)?);
            write!(out, "{name}.{kind}{} {d}, {m}", width * 2).ok()
        }
        (2, 6) if size < 3 && !is_quad => {
            let (d, m) = (destination(word, true)?, second(word, false)?);
            write!(out, "vshll.i{width} {d}, {m}, {width:#x}").ok()
        }
        (2, 7) if size == 2 => {
            let name = if is_quad { "sha256su0" } else { "sha1su1" };
            let (d, m) = (destination(word, true)?, second(word, true)?);
            write!(out, "{name}.32 {d}, {m}").ok()
        }
        (2, 12) if size == 1 && !is_quad => {
            let (d, m) = (destination(word, false)?, second(word, true)?);
            write!(out, "vcvt.f16.f32 {d}, {m}").ok()
        }
        (2, 14) if size == 1 && !is_quad => {
            let (d, m) = (destination(word, true)?, second(word, false)?);
            write!(out, "vcvt.f32.f16 {d}, {m}").ok()
        }
        (2, 8 | 9 | 10 | 11 | 13 | 15) if matches!(size, 1 | 2) => {
            let name = match opcode {
                8 => "vrintn",
                9 => "vrintx",
                10 => "vrinta",
                11 => "vrintz",
                13 => "vrintm",
                _ => "vrintp",
            };
            sized(name, "f", out)
        }
        (3, 0..=7) if matches!(size, 1 | 2) => {
            let name = ["vcvta", "vcvtn", "vcvtp", "vcvtm"];
            let name = name.get(opcode as usize / 2)?;
            let sign = if opcode & 1 == 0 { 's' } else { 'u' };
            plain(name, &format!("{sign}{width}.f{width}"), out)
        }
        (3, 8 | 9) if size == 2 => sized(estimate(opcode), "u", out),
        (3, 10 | 11) if matches!(size, 1 | 2) => sized(estimate(opcode), "f", out),
        (3, 12..) if matches!(size, 1 | 2) => {
            let kinds = match opcode {
                12 => format!("f{width}.s{width}"),
                13 => format!("f{width}.u{width}"),
                14 => format!("s{width}.f{width}"),
                _ => format!("u{width}.f{width}"),
            };
            plain("vcvt", &kinds, out)
        }
        _ => None,
    }
}

const fn estimate(opcode: u32) -> &'static str {
    if opcode & 1 == 0 { "vrecpe" } else { "vrsqrte" }
}

fn table(word: u32, out: &mut String) -> Option<()> {
    let (d, n) = (destination(word, false)?, first(word, false)?);
    let (m, more) = (second(word, false)?, bits(word, 8, 2));
    let last = n.number + more;
    (last < 32).then_some(())?;
    let name = if bit(word, 6) { "vtbx" } else { "vtbl" };
    match more {
        0 => write!(out, "{name}.8 {d}, {{{n}}}, {m}").ok(),
        _ => write!(out, "{name}.8 {d}, {{{n}-d{last}}}, {m}").ok(),
    }
}

fn duplicate(word: u32, out: &mut String) -> Option<()> {
    if bits(word, 7, 5) != 0x18 {
        return None;
    }
    let (d, m) = (destination(word, bit(word, 6))?, second(word, false)?);
    let field = bits(word, 16, 4);
    let shift = field.trailing_zeros();
    (shift < 3).then_some(())?;
    let (width, at) = (8 << shift, field >> (shift + 1));
    write!(out, "vdup.{width} {d}, {m}[{at}]").ok()
}

/// Writes an instruction whose operands have different lengths.
fn lengths(word: u32, out: &mut String) -> Option<()> {
    let (is_u, size, opcode) = (bit(word, 24), bits(word, 20, 2), bits(word, 8, 4));
    let (width, sign) = (8 << size, sign(word));
    let mut put = |name: &str, kind: char, width: u32, [d, n, m]: [bool; 3]| {
        let d = destination(word, d)?;
        let (n, m) = (first(word, n)?, second(word, m)?);
        write!(out, "{name}.{kind}{width} {d}, {n}, {m}").ok()
    };
    const LONG: [bool; 3] = [true, false, false];
    const WIDE: [bool; 3] = [true, true, false];
    const NARROW: [bool; 3] = [false, true, true];
    let doubling = matches!(size, 1 | 2) && !is_u;
    match opcode {
        0 => put("vaddl", sign, width, LONG),
        1 => put("vaddw", sign, width, WIDE),
        2 => put("vsubl", sign, width, LONG),
        3 => put("vsubw", sign, width, WIDE),
        4 => put(
            if is_u { "vraddhn" } else { "vaddhn" },
            'i',
            width * 2,
            NARROW,
        ),
        5 => put("vabal", sign, width, LONG),
        6 => put(
            if is_u { "vrsubhn" } else { "vsubhn" },
            'i',
            width * 2,
            NARROW,
        ),
        7 => put("vabdl", sign, width, LONG),
        8 => put("vmlal", sign, width, LONG),
        9 if doubling => put("vqdmlal", 's', width, LONG),
        10 => put("vmlsl", sign, width, LONG),
        11 if doubling => put("vqdmlsl", 's', width, LONG),
        12 => put("vmull", sign, width, LONG),
        13 if doubling => put("vqdmull", 's', width, LONG),
        14 if !is_u && size == 0 => put("vmull", 'p', 8, LONG),
        14 if !is_u && size == 2 => put("vmull", 'p', 64, LONG),
        _ => None,
    }
}

/// Writes an instruction with a scalar: one element of a register.
fn scalar(word: u32, out: &mut String) -> Option<()> {
    let (size, opcode, number) = (bits(word, 20, 2), bits(word, 8, 4), bits(word, 0, 4));
    let (m, at) = match size {
        1 => (number & 7, bits(word, 5, 1) << 1 | number >> 3),
        2 => (number, bits(word, 5, 1)),
        _ => return None,
    };
    let (width, sign, is_u) = (8 << size, sign(word), bit(word, 24));
    let mut put = |name: &str, kind: char, [d, n]: [bool; 2]| {
        let (d, n) = (destination(word, d)?, first(word, n)?);
        write!(out, "{name}.{kind}{width} {d}, {n}, d{m}[{at}]").ok()
    };
    // The bit of the sign is that of the length.
    let same = [is_u, is_u];
    const LONG: [bool; 2] = [true, false];
    match opcode {
        0 => put("vmla", 'i', same),
        1 => put("vmla", 'f', same),
        2 => put("vmlal", sign, LONG),
        3 if !is_u => put("vqdmlal", 's', LONG),
        4 => put("vmls", 'i', same),
        5 => put("vmls", 'f', same),
        6 => put("vmlsl", sign, LONG),
        7 if !is_u => put("vqdmlsl", 's', LONG),
        8 => put("vmul", 'i', same),
        9 => put("vmul", 'f', same),
        10 => put("vmull", sign, LONG),
        11 if !is_u => put("vqdmull", 's', LONG),
        12 => put("vqdmulh", 's', same),
        13 => put("vqrdmulh", 's', same),
        14 => put("vqrdmlah", 's', same),
        15 => put("vqrdmlsh", 's', same),
        _ => None,
    }
}
