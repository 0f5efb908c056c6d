//! Single- and double-precision floating point (VFP), with the same encoding in A32 and T32.

use std::fmt::Write as _;

use super::{bit, bits, condition, reg};

/// Floating-point register of 32 or 64 bits.
#[derive(Clone, Copy)]
enum Float {
    Single(u32),
    Double(u32),
}

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Float::Single(number) => write!(f, "s{number}"),
            Float::Double(number) => write!(f, "d{number}"),
        }
    }
}

/// Register of a four-bit field and a separate bit.
const fn float(word: u32, low: u32, beside: u32, is_double: bool) -> Float {
    let (field, one) = (bits(word, low, 4), bits(word, beside, 1));
    if is_double {
        Float::Double(one << 4 | field)
    } else {
        Float::Single(field << 1 | one)
    }
}

const fn destination(word: u32, is_double: bool) -> Float {
    float(word, 12, 22, is_double)
}

const fn first(word: u32, is_double: bool) -> Float {
    float(word, 16, 7, is_double)
}

const fn second(word: u32, is_double: bool) -> Float {
    float(word, 0, 5, is_double)
}

const fn precision(is_double: bool) -> &'static str {
    if is_double { "f64" } else { "f32" }
}

/// Writes an instruction of coprocessors 10 and 11.
pub(super) fn write(word: u32, out: &mut String) -> Option<()> {
    if word & 0x0c00_0e00 != 0x0c00_0a00 || bits(word, 24, 4) == 15 {
        return None;
    }
    let is_always = word >> 28 == 15;
    match (bit(word, 25), bit(word, 4)) {
        (false, _) if is_always => None,
        (false, _) => load_or_store(word, out),
        (true, true) if is_always => None,
        (true, true) => transfer(word, out),
        (true, false) if is_always => always(word, out),
        (true, false) => operation(word, out),
    }
}

fn load_or_store(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let is_double = bit(word, 8);
    let (is_before, is_up) = (bit(word, 24), bit(word, 23));
    let (writes_back, is_load) = (bit(word, 21), bit(word, 20));
    let register = destination(word, is_double);
    let count = bits(word, 0, 8);
    if is_before && !writes_back {
        let name = if is_load { "vldr" } else { "vstr" };
        write!(out, "{name}{condition} {register}, [{}", reg(word, 16)).ok()?;
        let offset = count * 4;
        return match (is_up, offset) {
            (true, 0) => write!(out, "]").ok(),
            (true, _) => write!(out, ", {offset:#x}]").ok(),
            (false, _) => write!(out, ", -{offset:#x}]").ok(),
        };
    }
    let when = match (is_before, is_up) {
        (false, true) => "ia",
        (true, false) => "db",
        (false, false) if !writes_back => return two(word, out),
        _ => return None,
    };
    let (begin, registers, letter) = match register {
        Float::Double(begin) if count.is_multiple_of(2) => (begin, count / 2, 'd'),
        Float::Single(begin) => (begin, count, 's'),
        Float::Double(_) => return None,
    };
    let end = begin + registers;
    if registers == 0 || end > 32 || letter == 'd' && registers > 16 {
        return None;
    }
    match (reg(word, 16), writes_back, is_load, is_up) {
        ("sp", true, true, true) => write!(out, "vpop{condition} ").ok()?,
        ("sp", true, false, false) => write!(out, "vpush{condition} ").ok()?,
        (base, back, _, _) => {
            let name = if is_load { "vldm" } else { "vstm" };
            let back = if back { "!" } else { "" };
            write!(out, "{name}{when}{condition} {base}{back}, ").ok()?;
        }
    }
    match registers {
        1 => write!(out, "{{{letter}{begin}}}").ok(),
        _ => write!(out, "{{{letter}{begin}-{letter}{}}}", end - 1).ok(),
    }
}

/// Writes `vmov` between two core registers and one 64-bit or two 32-bit registers.
fn two(word: u32, out: &mut String) -> Option<()> {
    if word & 0x0fe0_00d0 != 0x0c40_0010 {
        return None;
    }
    let condition = condition(word);
    let (a, b) = (reg(word, 12), reg(word, 16));
    let to_core = bit(word, 20);
    let floats = match second(word, bit(word, 8)) {
        Float::Single(31) => return None,
        Float::Single(number) => format!("s{number}, s{}", number + 1),
        Float::Double(number) => format!("d{number}"),
    };
    match to_core {
        true => write!(out, "vmov{condition} {a}, {b}, {floats}").ok(),
        false => write!(out, "vmov{condition} {floats}, {a}, {b}").ok(),
    }
}

/// Writes transfers between a core register and a floating-point register.
fn transfer(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let core = reg(word, 12);
    let to_core = bit(word, 20);
    if !bit(word, 8) {
        return match bits(word, 21, 3) {
            0 if word & 0x6f == 0 => {
                let float = first(word, false);
                match to_core {
                    true => write!(out, "vmov{condition} {core}, {float}").ok(),
                    false => write!(out, "vmov{condition} {float}, {core}").ok(),
                }
            }
            7 if word & 0xef == 0 => system(word, out),
            _ => None,
        };
    }
    if word & 0xf != 0 {
        return None;
    }
    if bit(word, 23) && !to_core {
        let size = match (bit(word, 22), bits(word, 5, 2)) {
            (false, 0) => 32,
            (false, 1) => 16,
            (true, 0) => 8,
            _ => return None,
        };
        let Float::Double(number) = first(word, true) else {
            return None;
        };
        return match bit(word, 21) {
            false => write!(out, "vdup{condition}.{size} d{number}, {core}").ok(),
            true if number.is_multiple_of(2) => {
                write!(out, "vdup{condition}.{size} q{}, {core}", number / 2).ok()
            }
            true => None,
        };
    }
    let lane = bits(word, 21, 1) << 2 | bits(word, 5, 2);
    let (size, index) = match (bit(word, 22), bits(word, 5, 2)) {
        (true, _) => (8, lane),
        (false, 1 | 3) => (16, lane >> 1),
        (false, 0) => (32, lane >> 2),
        (false, _) => return None,
    };
    let of = first(word, true);
    if !to_core {
        return write!(out, "vmov{condition}.{size} {of}[{index}], {core}").ok();
    }
    let sign = match (size, bit(word, 23)) {
        (32, true) => return None,
        (32, false) => "",
        (_, true) => "u",
        (_, false) => "s",
    };
    write!(out, "vmov{condition}.{sign}{size} {core}, {of}[{index}]").ok()
}

/// Writes `vmrs` and `vmsr`.
fn system(word: u32, out: &mut String) -> Option<()> {
    let name = match bits(word, 16, 4) {
        0 => "fpsid",
        1 => "fpscr",
        5 => "mvfr2",
        6 => "mvfr1",
        7 => "mvfr0",
        8 => "fpexc",
        9 => "fpinst",
        10 => "fpinst2",
        _ => return None,
    };
    let condition = condition(word);
    match (bit(word, 20), reg(word, 12)) {
        (true, "pc") if name == "fpscr" => write!(out, "vmrs{condition} apsr_nzcv, fpscr").ok(),
        (true, core) => write!(out, "vmrs{condition} {core}, {name}").ok(),
        (false, core) => write!(out, "vmsr{condition} {name}, {core}").ok(),
    }
}

/// Operation number in bits 20, 21 and 23.
const fn operation_of(word: u32) -> u32 {
    bits(word, 23, 1) << 2 | bits(word, 20, 2)
}

fn operation(word: u32, out: &mut String) -> Option<()> {
    let is_double = bit(word, 8);
    let name = match (operation_of(word), bit(word, 6)) {
        (0, false) => "vmla",
        (0, true) => "vmls",
        (1, false) => "vnmls",
        (1, true) => "vnmla",
        (2, false) => "vmul",
        (2, true) => "vnmul",
        (3, false) => "vadd",
        (3, true) => "vsub",
        (4, false) => "vdiv",
        (5, false) => "vfnms",
        (5, true) => "vfnma",
        (6, false) => "vfma",
        (6, true) => "vfms",
        (7, false) => return immediate(word, out),
        (7, true) => return of_one(word, out),
        _ => return None,
    };
    three(out, [name, condition(word)], word, is_double)
}

fn three(out: &mut String, [name, condition]: [&str; 2], word: u32, is_double: bool) -> Option<()> {
    let (d, n, m) = (
        destination(word, is_double),
        first(word, is_double),
        second(word, is_double),
    );
    write!(
        out,
        "{name}{condition}.{} {d}, {n}, {m}",
        precision(is_double)
    )
    .ok()
}

/// Writes `vmov` of an immediate: sign, three bits of exponent and four of fraction.
fn immediate(word: u32, out: &mut String) -> Option<()> {
    if word & 0xa0 != 0 {
        return None;
    }
    let is_double = bit(word, 8);
    let exponent = (bits(word, 16, 3) ^ 4) as i32 - 3;
    let value = f64::from(16 + bits(word, 0, 4)) / 16.0 * f64::powi(2.0, exponent);
    let value = if bit(word, 19) { -value } else { value };
    let register = destination(word, is_double);
    let precision = precision(is_double);
    write!(
        out,
        "vmov{}.{precision} {register}, {value:?}",
        condition(word)
    )
    .ok()
}

/// Writes operations with one operand: moves, comparisons, conversions.
fn of_one(word: u32, out: &mut String) -> Option<()> {
    let is_double = bit(word, 8);
    let is_other = bit(word, 7);
    let condition = condition(word);
    let precision = precision(is_double);
    let (d, m) = (destination(word, is_double), second(word, is_double));
    let name = match (bits(word, 16, 4), is_other) {
        (0, false) => "vmov",
        (0, true) => "vabs",
        (1, false) => "vneg",
        (1, true) => "vsqrt",
        (2 | 3, _) => {
            let half = if is_other { 't' } else { 'b' };
            return match bit(word, 16) {
                false => {
                    let m = second(word, false);
                    write!(out, "vcvt{half}{condition}.{precision}.f16 {d}, {m}").ok()
                }
                true => {
                    let d = destination(word, false);
                    write!(out, "vcvt{half}{condition}.f16.{precision} {d}, {m}").ok()
                }
            };
        }
        (4, false) => "vcmp",
        (4, true) => "vcmpe",
        (5, _) if word & 0x2f == 0 => {
            let e = if is_other { "e" } else { "" };
            return write!(out, "vcmp{e}{condition}.{precision} {d}, 0.0").ok();
        }
        (6, false) => "vrintr",
        (6, true) => "vrintz",
        (7, false) => "vrintx",
        (7, true) => {
            let d = destination(word, !is_double);
            let to = self::precision(!is_double);
            return write!(out, "vcvt{condition}.{to}.{precision} {d}, {m}").ok();
        }
        (8, _) => {
            let sign = if is_other { 's' } else { 'u' };
            let m = second(word, false);
            return write!(out, "vcvt{condition}.{precision}.{sign}32 {d}, {m}").ok();
        }
        (9, true) if is_double => {
            let d = destination(word, false);
            return write!(out, "vjcvt{condition}.s32.f64 {d}, {m}").ok();
        }
        (10 | 11 | 14 | 15, _) => return fixed(word, out),
        (12 | 13, _) => {
            let sign = if bit(word, 16) { 's' } else { 'u' };
            let r = if is_other { "" } else { "r" };
            let d = destination(word, false);
            return write!(out, "vcvt{r}{condition}.{sign}32.{precision} {d}, {m}").ok();
        }
        _ => return None,
    };
    write!(out, "{name}{condition}.{precision} {d}, {m}").ok()
}

/// Writes conversions between fixed point and floating point in one register.
fn fixed(word: u32, out: &mut String) -> Option<()> {
    let is_double = bit(word, 8);
    let size = if bit(word, 7) { 32 } else { 16 };
    let sign = if bit(word, 16) { 'u' } else { 's' };
    let fraction = size - i64::from(bits(word, 0, 4) << 1 | bits(word, 5, 1));
    let condition = condition(word);
    let precision = precision(is_double);
    let d = destination(word, is_double);
    if fraction < 0 {
        return None;
    }
    match bit(word, 18) {
        false => write!(
            out,
            "vcvt{condition}.{precision}.{sign}{size} {d}, {d}, {fraction:#x}"
        ),
        true => write!(
            out,
            "vcvt{condition}.{sign}{size}.{precision} {d}, {d}, {fraction:#x}"
        ),
    }
    .ok()
}

/// Writes unconditional instructions.
fn always(word: u32, out: &mut String) -> Option<()> {
    let is_double = bit(word, 8);
    let rounding = ['a', 'n', 'p', 'm'].get(bits(word, 16, 2) as usize)?;
    if !bit(word, 23) {
        let which = ["eq", "vs", "ge", "gt"].get(bits(word, 20, 2) as usize)?;
        return (!bit(word, 6)).then(|| three(out, ["vsel", which], word, is_double))?;
    }
    match (bits(word, 20, 2), bit(word, 6)) {
        (0, false) => three(out, ["vmaxnm", ""], word, is_double),
        (0, true) => three(out, ["vminnm", ""], word, is_double),
        (3, true) if bits(word, 18, 2) == 2 && !bit(word, 7) => {
            let (d, m) = (destination(word, is_double), second(word, is_double));
            write!(out, "vrint{rounding}.{} {d}, {m}", precision(is_double)).ok()
        }
        (3, true) if bits(word, 18, 2) == 3 => {
            let sign = if bit(word, 7) { 's' } else { 'u' };
            let (d, m) = (destination(word, false), second(word, is_double));
            write!(
                out,
                "vcvt{rounding}.{sign}32.{} {d}, {m}",
                precision(is_double)
            )
            .ok()
        }
        _ => None,
    }
}
