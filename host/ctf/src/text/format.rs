//! Fast formatting of values, in the formats of C's `printf` and babeltrace2.
//!
//! The formatting of the standard library is general, and takes longer for a number than decoding the event that
//! contains it. So this module converts eight digits at a time, checks eight bytes of a text at a time, and formats
//! short floating point numbers with six significant digits in exact integer arithmetic. Everything else uses the
//! standard library.

use super::line::Out;
use crate::metadata::{Base, IntegerClass, Mappings, Value64};

/// The character 0, eight times.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number below 10^8, the first one in the lowest byte. All are computed at once, in the bytes of
/// a word.
#[inline(always)]
const fn eight(number: u32) -> u64 {
    // Split into two groups of four digits, then four of two, then eight; the products are exact quotients for all
    // possible values.
    let (high, low) = ((number / 10_000) as u64, (number % 10_000) as u64);
    let fours = high | low << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

/// Appends a number below 10^8 in decimal.
#[inline(always)]
fn short(out: &mut impl Out, value: u32) {
    let digits = eight(value);
    // The last digit is shown even if it is 0.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    out.word((digits | ZEROS) >> (zeros * 8), 8 - zeros as usize);
}

/// Appends a number in decimal.
#[inline(always)]
pub(super) fn decimal(out: &mut impl Out, value: u64) {
    if value < 10 {
        out.byte(b'0' + value as u8);
    } else if value < EIGHT {
        short(out, value as u32);
    } else {
        out.aside(|out| long(out, value));
    }
}

/// The least number of more than eight digits.
const EIGHT: u64 = 100_000_000;

fn long(out: &mut impl Out, value: u64) {
    let (high, low) = (value / EIGHT, (value % EIGHT) as u32);
    match high < EIGHT {
        true => short(out, high as u32),
        false => long(out, high),
    }
    out.word(eight(low) | ZEROS, 8);
}

/// Appends a number in decimal, with a sign if it is negative.
#[inline(always)]
pub(super) fn signed(out: &mut impl Out, value: i64) {
    if value < 0 {
        out.byte(b'-');
    }
    decimal(out, value.unsigned_abs());
}

/// Appends nanoseconds as seconds with nine decimals, in brackets and followed by a space.
#[inline(always)]
pub(super) fn seconds(out: &mut impl Out, nanoseconds: i64) {
    const NANO: u64 = 1_000_000_000;
    out.byte(b'[');
    if nanoseconds < 0 {
        out.byte(b'-');
    }
    let nanoseconds = nanoseconds.unsigned_abs();
    let (seconds, rest) = (nanoseconds / NANO, (nanoseconds % NANO) as u32);
    decimal(out, seconds);
    let first = rest / EIGHT as u32;
    out.put(&[b'.', b'0' + first as u8], 2);
    let digits = eight(rest - first * EIGHT as u32) | ZEROS;
    let behind = u64::from_le_bytes(*b"] ......");
    let digits = u128::from(digits) | u128::from(behind) << 64;
    out.put(&digits.to_le_bytes(), 10);
}

/// Appends a number in upper-case hexadecimal without leading zeros.
#[inline(always)]
pub(super) fn hexadecimal(out: &mut impl Out, value: u64) {
    let high = value >> 32;
    let (digits, length) = match high {
        0 => (nibbles(value as u32), hex_length(value)),
        _ => {
            let length = hex_length(high);
            out.word(nibbles(high as u32) >> (64 - length * 8), length);
            (nibbles(value as u32), 8)
        }
    };
    out.word(digits >> (64 - length * 8), length);
}

/// Number of digits of a number below 2^32.
#[inline(always)]
const fn hex_length(value: u64) -> usize {
    (67 - (value | 1).leading_zeros() as usize) / 4
}

/// The eight hexadecimal digits of a number, the first one in the lowest byte.
#[inline(always)]
const fn nibbles(value: u32) -> u64 {
    let value = value as u64;
    let fours = (value | value << 16) & 0x0000_ffff_0000_ffff;
    let twos = (fours | fours << 8) & 0x00ff_00ff_00ff_00ff;
    let ones = (twos | twos << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Adding 6 makes digits above 9 at least 16, which marks them as letters.
    let letters = ((ones + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (ones + ZEROS + letters * 7).swap_bytes()
}

pub(super) fn integer(out: &mut impl Out, value: Value64, class: &IntegerClass) {
    if class.base == Base::Decimal {
        match value {
            Value64::Unsigned(value) => decimal(out, value),
            Value64::Signed(value) => signed(out, value),
        }
        return;
    }
    // Bases other than ten show the bits of a negative number, rounded up to whole digits.
    let size = class.size.clamp(1, 64);
    let shown = match class.base {
        Base::Octal => size.next_multiple_of(3).min(64),
        Base::Hexadecimal => size.next_multiple_of(4),
        Base::Binary | Base::Decimal => size,
    };
    let bits = match value {
        Value64::Unsigned(value) => value,
        Value64::Signed(value) => value as u64 & (u64::MAX >> (64 - shown)),
    };
    match class.base {
        Base::Binary => {
            let width = class.size as usize;
            out.bytes(format!("0b{bits:0width$b}").as_bytes());
        }
        Base::Octal => out.bytes(format!("0{bits:o}").as_bytes()),
        Base::Hexadecimal | Base::Decimal => {
            out.bytes(b"0x");
            hexadecimal(out, bits);
        }
    }
}

pub(super) fn bits(out: &mut impl Out, value: u64, flags: &Mappings) {
    out.bytes(b"0x");
    hexadecimal(out, value);
    let mut separator = " { ";
    for flag in flags.flags(value) {
        out.bytes(separator.as_bytes());
        quoted(out, flag.as_bytes());
        separator = ", ";
    }
    if separator == ", " {
        out.bytes(b" }");
    }
}

pub(super) fn enumeration(
    out: &mut impl Out,
    value: Value64,
    class: &IntegerClass,
    mappings: &Mappings,
) {
    let mut labels = mappings.labels(value);
    match (labels.next(), labels.next()) {
        (None, _) => out.bytes(b"( <unknown> : container = "),
        (Some(only), None) => label(out, only),
        (Some(first), Some(second)) => {
            out.bytes(b"( { ");
            quoted(out, first.as_bytes());
            for label in std::iter::once(second).chain(labels) {
                out.bytes(b", ");
                quoted(out, label.as_bytes());
            }
            out.bytes(b" } : container = ");
        }
    }
    integer(out, value, class);
    out.bytes(b" )");
}

/// Appends the text before the number of an enumeration that has one label.
pub(super) fn label(out: &mut impl Out, label: &str) {
    out.bytes(b"( ");
    quoted(out, label.as_bytes());
    out.bytes(b" : container = ");
}

pub(super) fn boolean(out: &mut impl Out, value: bool) {
    out.bytes(if value { b"true" } else { b"false" });
}

pub(super) fn blob(out: &mut impl Out, bytes: &[u8]) {
    out.byte(b'{');
    for byte in bytes {
        out.bytes(format!(" {byte:02x}").as_bytes());
    }
    out.bytes(b" }");
}

/// Appends the text before an element of an array; for the first indices from a table, with its length.
#[inline(always)]
pub(super) fn index(out: &mut impl Out, index: u64) {
    const COUNT: usize = 100;
    static FIRST: [([u8; 16], usize); COUNT] = {
        let mut table = [(*b", [0] = ........", 8); COUNT];
        // The first element has no comma.
        table[0] = (*b" [0] = .........", 7);
        let mut index = 1;
        while index < COUNT {
            let low = b'0' + (index % 10) as u8;
            if index < 10 {
                table[index].0[3] = low;
            } else {
                table[index] = (*b", [00] = .......", 9);
                table[index].0[3] = b'0' + (index / 10) as u8;
                table[index].0[4] = low;
            }
            index += 1;
        }
        table
    };
    match FIRST.get(index as usize) {
        Some((text, length)) => {
            out.put(text, *length);
        }
        None => {
            out.bytes(b", [");
            decimal(out, index);
            out.bytes(b"] = ");
        }
    }
}

/// The number of bytes before the first one that may need escaping, out of eight. It includes all that do, and also `#`
/// and `&`, which makes the test cheaper.
#[inline(always)]
const fn plain(word: u64) -> usize {
    /// Repeats a byte eight times.
    const fn all(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    /// The high bit of the first byte that is 0, possibly also of later bytes.
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(all(1)) & !word
    }
    let control = zeros(word & all(0xe0));
    let question_delete = zeros((word | all(0x40)) ^ all(0x7f));
    let quotes = zeros((word & all(0xfa)) ^ all(b'"'));
    let backslash = zeros(word ^ all(b'\\'));
    let found = (control | question_delete | quotes | backslash) & all(0x80);
    found.trailing_zeros() as usize / 8
}

/// Appends a byte of a text, escaped.
fn escaped(out: &mut impl Out, byte: u8) {
    let escape = match byte {
        0 => "\\0",
        0x07 => "\\a",
        0x08 => "\\b",
        0x0c => "\\f",
        b'\n' => "\\n",
        b'\r' => "\\r",
        b'\t' => "\\t",
        0x0b => "\\v",
        0x1b => "\\e",
        b'\\' => "\\\\",
        b'\'' => "\\'",
        b'"' => "\\\"",
        b'?' => "\\?",
        0x01..b' ' | 0x7f => {
            return out.bytes(format!("\\x{byte:02x}").as_bytes());
        }
        _ => return out.byte(byte),
    };
    out.bytes(escape.as_bytes());
}

/// Appends a text in quotes.
pub(super) fn quoted(out: &mut impl Out, bytes: &[u8]) {
    out.byte(b'"');
    text::<false, _>(out, bytes, bytes.len());
    out.byte(b'"');
}

/// Appends a text of `limit` bytes, or, if it `ENDS` with a zero byte, up to that; returns its length. The bytes after
/// it may be read.
#[inline(always)]
pub(super) fn text<const ENDS: bool, O: Out>(out: &mut O, bytes: &[u8], limit: usize) -> usize {
    let limit = limit.min(bytes.len());
    let mut at = 0;
    loop {
        let chunk = bytes.get(at..at + 8).and_then(<[u8]>::first_chunk);
        let word = match chunk {
            Some(chunk) => u64::from_le_bytes(*chunk),
            // Treat the bytes after the end of memory as zeros.
            None => bytes
                .iter()
                .skip(at)
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let length = plain(word).min(limit - at);
        out.word(word, length);
        at += length;
        if length == 8 {
            continue;
        }
        let byte = (word >> (length * 8)) as u8;
        if at == limit || ENDS && byte == 0 {
            return at;
        }
        out.aside(|out| escaped(out, byte));
        at += 1;
    }
}

/// Appends a number with six significant digits, as C's `%g` does.
pub(super) fn float(out: &mut impl Out, value: f64) {
    out.aside(|out| {
        if !usual(out, value) {
            unusual(out, value);
        }
    });
}

/// The same for numbers shown without an exponent, in exact integer arithmetic, so that ties round to an even digit as
/// in C. Returns whether the number is one.
fn usual(out: &mut impl Out, value: f64) -> bool {
    const POWERS: [u64; 11] = [
        1,
        10,
        100,
        1_000,
        10_000,
        100_000,
        1_000_000,
        10_000_000,
        100_000_000,
        1_000_000_000,
        10_000_000_000,
    ];
    let size = value.abs();
    if value == 0.0 {
        out.bytes(if value.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        });
        return true;
    }
    // Numbers that would round up to a million have an exponent; NaN is not in the range.
    if !(1e-4..999_999.0).contains(&size) {
        return false;
    }
    // The number of decimals that makes six digits significant: 5 minus the exponent.
    let exponent = match size {
        size if size >= 1.0 => POWERS
            .iter()
            .skip(1)
            .take_while(|&&power| size >= power as f64)
            .count() as i32,
        size if size >= 0.1 => -1,
        size if size >= 0.01 => -2,
        size if size >= 0.001 => -3,
        _ => -4,
    };
    let decimals = (5 - exponent) as usize;
    let Some(&power) = POWERS.get(decimals) else {
        return false;
    };
    let bits = size.to_bits();
    let (mantissa, shift) = (bits & ((1 << 52) - 1) | 1 << 52, 1075 - (bits >> 52) as i32);
    // At most 53 and 34 bits; the binary point is 33 to 66 bits from the end.
    let product = u128::from(mantissa) * u128::from(power);
    let (whole, rest) = (product >> shift, product & ((1 << shift) - 1));
    let half = 1u128 << (shift - 1);
    let up = rest > half || rest == half && whole & 1 == 1;
    let number = whole as u64 + u64::from(up);
    if number >= 1_000_000 {
        // It was rounded up to one more digit.
        return false;
    }
    if value.is_sign_negative() {
        out.byte(b'-');
    }
    // Six digits; trailing zeros are not shown.
    let digits = eight(number as u32) >> 16;
    let shown = 8 - digits.leading_zeros() as usize / 8;
    let digits = digits | ZEROS;
    match usize::try_from(exponent) {
        Ok(exponent) => {
            let whole = exponent + 1;
            out.word(digits, whole);
            if let Some(rest) = shown.checked_sub(whole).filter(|rest| *rest > 0) {
                out.byte(b'.');
                out.word(digits >> (whole * 8), rest);
            }
        }
        Err(_) => {
            // The exponent determines the position of the first nonzero digit.
            out.word(u64::from_le_bytes(*b"0.000..."), (1 - exponent) as usize);
            out.word(digits, shown);
        }
    }
    true
}

fn unusual(out: &mut impl Out, value: f64) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let name = if value.is_nan() { "nan" } else { "inf" };
        return out.bytes(format!("{sign}{name}").as_bytes());
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| match digits.split_once('.') {
        Some(_) => digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        None => digits.to_owned(),
    };
    let text = if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        trimmed(&format!("{value:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    };
    out.bytes(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_like_c() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.718_21, "-2.71821"),
            (1e6, "1e+06"),
            (123_456.0, "123456"),
            (0.0001, "0.0001"),
            (0.000_012_3, "1.23e-05"),
            (1.666_666_7, "1.66667"),
            (999_999.5, "1e+06"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (1e100, "1e+100"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            float(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn usual_floats_like_any() {
        let mut state = 1u64;
        let mut count = 0;
        for step in 0..200_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(step | 1);
            let value = match step % 4 {
                // Random bits with an exponent near 0; eighths, which are ties; decimals; integers.
                0 => f64::from_bits(state >> 12 | (1_000 + (state & 63)) << 52),
                1 => (state >> 44) as f64 / 8.0,
                2 => (state >> 40) as f64 / 1e6,
                _ => -((state >> 44) as f64),
            };
            let (mut quick, mut slow) = (Vec::new(), Vec::new());
            if usual(&mut quick, value) {
                count += 1;
                unusual(&mut slow, value);
                assert_eq!(quick, slow, "{value}");
            }
        }
        assert!(count > 100_000, "{count} were usual");
    }

    #[test]
    fn numbers_as_the_standard_library_writes_them() {
        for shift in 0..64 {
            for value in [
                1u64 << shift,
                (1 << shift) - 1,
                u64::MAX >> shift,
                10u64.pow(shift % 20),
            ] {
                let mut out = Vec::new();
                decimal(&mut out, value);
                out.push(b' ');
                signed(&mut out, value as i64);
                out.push(b' ');
                hexadecimal(&mut out, value);
                out.push(b' ');
                seconds(&mut out, value as i64);
                let (sign, time) = (
                    if (value as i64) < 0 { "-" } else { "" },
                    (value as i64).unsigned_abs(),
                );
                let (whole, rest) = (time / 1_000_000_000, time % 1_000_000_000);
                let expected = format!(
                    "{value} {} {value:X} [{sign}{whole}.{rest:09}] ",
                    value as i64
                );
                assert_eq!(String::from_utf8_lossy(&out), expected);
            }
        }
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = Vec::new();
        quoted(&mut out, b"a'\n\"\x01\xc3");
        assert_eq!(out, b"\"a\\'\\n\\\"\\x01\xc3\"");
    }
}
