//! `printf` format strings.

use std::fmt::Write;

/// Piece of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// Conversion that takes an argument, and one more for each width or precision that is a star.
    Conversion(Conversion),
}

/// `%[flags][width][.precision][length]letter`, for `%p` with the letters behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Whether the width is an argument.
    pub(crate) star_width: bool,
    /// Whether the precision is an argument.
    pub(crate) star_precision: bool,
    /// Length of a number: -2 for char, -1 for short, 0 for int, 1 for long, 2 for long long.
    pub(crate) length: i8,
    /// `d`, `u`, `x`, `s`, `p`, ...
    pub(crate) letter: char,
    /// Letters behind `p`: `s`, `S`, `I4`, `M`, ...
    pub(crate) pointer: String,
}

/// Largest width and precision. Bounds numbers in a damaged file; the kernel's columns are narrow.
const WIDEST: usize = 4096;

/// Splits a format string into pieces.
pub(crate) fn pieces(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(rest.get(..at).unwrap_or_default());
        let behind = rest.get(at + 1..).unwrap_or_default();
        if let Some(behind) = behind.strip_prefix('%') {
            text.push('%');
            rest = behind;
        } else if let Some((conversion, behind)) = conversion(behind) {
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Conversion(conversion));
            rest = behind;
        } else {
            text.push('%');
            rest = behind;
        }
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

fn conversion(text: &str) -> Option<(Conversion, &str)> {
    let mut it = Conversion::default();
    let mut rest = text.chars();
    let mut next = rest.next()?;
    let mut in_precision = false;
    loop {
        match next {
            '-' => it.left = true,
            '+' => it.plus = true,
            ' ' => it.space = true,
            '#' => it.alternate = true,
            '0' if !in_precision && it.width == 0 => it.zeros = true,
            '0'..='9' => {
                let digit = next.to_digit(10)? as usize;
                let number = match in_precision {
                    true => it.precision.get_or_insert(0),
                    false => &mut it.width,
                };
                *number = (*number * 10 + digit).min(WIDEST);
            }
            '.' => {
                in_precision = true;
                it.precision = Some(0);
            }
            '*' if in_precision => it.star_precision = true,
            '*' => it.star_width = true,
            'h' => it.length -= 1,
            'l' => it.length += 1,
            'L' | 'q' | 'j' => it.length = 2,
            'z' | 'Z' | 't' => it.length = 1,
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' | 's' => {
                it.letter = next;
                return Some((it, rest.as_str()));
            }
            'p' => {
                it.letter = next;
                let behind = rest.as_str();
                let count = pointer_letters(behind);
                it.pointer = behind.get(..count)?.to_owned();
                return Some((it, behind.get(count..)?));
            }
            _ => return None,
        }
        next = rest.next()?;
    }
}

/// Returns the number of letters behind `%p` that belong to it.
fn pointer_letters(behind: &str) -> usize {
    let bytes = behind.as_bytes();
    let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
    let one_of = |place: usize, letters: &[u8]| usize::from(letters.contains(&at(place)));
    match at(0) {
        b'F' | b'S' | b'f' | b's' => 1,
        b'M' | b'm' => 1 + one_of(1, b"RF"),
        b'U' => 1 + one_of(1, b"LlBb"),
        b'h' => 1 + one_of(1, b"CDN"),
        b'I' | b'i' => match at(1) {
            b'4' => 2 + one_of(2, b"hnbl"),
            b'6' => 2 + one_of(2, b"c"),
            b'S' => {
                let more = bytes.iter().skip(2).take_while(|it| b"pfsc".contains(it));
                2 + more.count()
            }
            _ => 1,
        },
        b'x' | b'K' => 1,
        _ => 0,
    }
}

impl Conversion {
    /// Returns a copy with the width and precision that are arguments filled in.
    pub(crate) fn with_stars(&self, mut argument: impl FnMut() -> i64) -> Self {
        let mut set = self.clone();
        let size =
            |value: i64| usize::try_from(value.unsigned_abs()).map_or(WIDEST, |it| it.min(WIDEST));
        if self.star_width {
            let width = argument();
            set.left |= width < 0;
            set.width = size(width);
        }
        if self.star_precision {
            let precision = argument();
            set.precision = (precision >= 0).then(|| size(precision));
        }
        set
    }

    /// Appends a number. `long_size` is that of the traced machine.
    pub(crate) fn push_number(&self, value: u64, long_size: usize, out: &mut String) {
        let bits = match self.length {
            ..=-2 => 8,
            -1 => 16,
            0 => 32,
            1 => 8 * long_size as u32,
            _ => 64,
        };
        let bits = bits.clamp(8, 64);
        let unsigned = value << (64 - bits) >> (64 - bits);
        let signed = (value << (64 - bits)).cast_signed() >> (64 - bits);
        let mut digits = String::new();
        let mut sign = "";
        // Writing to a string cannot fail.
        let _ = match self.letter {
            'd' | 'i' => {
                sign = match signed {
                    ..0 => "-",
                    _ if self.plus => "+",
                    _ if self.space => " ",
                    _ => "",
                };
                write!(digits, "{}", signed.unsigned_abs())
            }
            'x' => write!(digits, "{unsigned:x}"),
            'X' => write!(digits, "{unsigned:X}"),
            'o' => write!(digits, "{unsigned:o}"),
            'c' => {
                let character = char::from((value & 0xff) as u8);
                return self.push_padded(character.encode_utf8(&mut [0; 4]), out);
            }
            _ => write!(digits, "{unsigned}"),
        };
        if self.alternate && unsigned != 0 {
            sign = match self.letter {
                'x' => "0x",
                'X' => "0X",
                'o' => "0",
                _ => sign,
            };
        }
        let fill = match self.precision {
            Some(least) => least.saturating_sub(digits.len()),
            None if self.zeros && !self.left => {
                self.width.saturating_sub(digits.len() + sign.len())
            }
            None => 0,
        };
        let all = format!("{sign}{:0<fill$}{digits}", "");
        self.push_padded(&all, out);
    }

    /// Appends a text, truncated to the precision and padded to the width.
    pub(crate) fn push_text(&self, text: &str, out: &mut String) {
        let cut = self.precision.map_or(text, |most| {
            let end = text
                .char_indices()
                .nth(most)
                .map_or(text.len(), |(at, _)| at);
            text.get(..end).unwrap_or(text)
        });
        self.push_padded(cut, out);
    }

    fn push_padded(&self, text: &str, out: &mut String) {
        let missing = self.width.saturating_sub(text.chars().count());
        if !self.left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
        out.push_str(text);
        if self.left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
    }

    /// Returns the length in bytes, which `%*ph` has as its width.
    pub(crate) const fn bytes(&self) -> usize {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(format: &str, value: u64) -> String {
        let mut out = String::new();
        for piece in pieces(format) {
            match piece {
                Piece::Text(text) => out.push_str(&text),
                Piece::Conversion(conversion) => conversion.push_number(value, 8, &mut out),
            }
        }
        out
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        assert_eq!(number("%d", u64::from(u32::MAX)), "-1");
        assert_eq!(number("%ld", u64::from(u32::MAX)), "4294967295");
        assert_eq!(number("[%03llu] 100%%", 7), "[007] 100%");
        assert_eq!(number("%-5d|%5d|%#x", 42), "42   |   42|0x2a");
        assert_eq!(number("%hhd %hu", 0xfff), "-1 4095");
        assert_eq!(number("%.4x", 0xab), "00ab");
        assert_eq!(number("%c", 65), "A");
        assert_eq!(number("% d%", 5), " 5%");
    }
}
