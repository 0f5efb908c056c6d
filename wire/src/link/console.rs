//! A recording as lines of text for a console: the last words of a target that dies without a host to read it.
//!
//! ```text
//! *** kymo dump begins: keep this text, and give it to kymo ***
//! kymo:000000:a3ltbyBpZGVudGlmeTogcHJvdG9jb2w9MyB3b3JkPTMyIG9yZGVyPWxl:7c1e0b55
//! ...
//! *** kymo dump ends: lines=72 bytes=3412 crc=1a2b3c4d ***
//! ```
//!
//! After a reset the last line also has what survived: `verified=6 unverified=1 refused=1` before its end.
//!
//! The bytes are those of a raw file: the identity line, then packets. Each line has 48 of them (the last one may have
//! fewer) in base64 without padding, between its number and the CRC-32 of both. So a line is recognised at any
//! position, after any prefix of a terminal, and damaged or missing lines are detected. Other lines may be in between.
//!
//! The bytes are not compressed: packets of calls are too dense. Of those of Lua on a Cortex-M3 zlib saves 1 % in blocks of
//! 1 KiB and 8 % in blocks of 4 KiB, LZ4 nothing (November 2026).

use super::crc::Crc32;
use super::text::Text;

/// Start of the line before a dump.
pub const BEGIN: &str = "*** kymo dump begins";

/// Start of the line after a dump, before its words.
pub const END: &str = "*** kymo dump ends:";

/// Start of a line of a dump.
pub const LINE: &str = "kymo:";

/// Bytes per line.
pub const LINE_BYTES: usize = 48;

/// Length of the longest line: prefix, number, base64, checksum, and end of line.
pub const LINE_TEXT: usize = LINE.len() + 6 + 1 + LINE_BYTES / 3 * 4 + 1 + 8 + 2;

/// Limit of the number of lines in a dump: line numbers have six hexadecimal digits.
pub const MAX_LINES: u32 = 1 << 24;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Computes the checksum of a line.
fn checksum(number: u32, bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&number.to_le_bytes());
    crc.update(bytes);
    crc.value()
}

/// Appends a number with this many hexadecimal digits.
fn hexadecimal(text: &mut Text<'_>, number: u32, digits: u32) {
    for digit in (0..digits).rev() {
        let value = (number >> (4 * digit) & 15) as usize;
        text.add_bytes(b"0123456789abcdef".get(value..=value).unwrap_or_default());
    }
}

/// Writes line `number`, with at most [`LINE_BYTES`] bytes.
pub fn write_line(number: u32, bytes: &[u8], text: &mut Text<'_>) {
    text.add(LINE);
    hexadecimal(text, number, 6);
    text.add(":");
    for three in bytes.chunks(3) {
        let mut bits = 0u32;
        for place in 0..3 {
            bits = bits << 8 | three.get(place).copied().map_or(0, u32::from);
        }
        // Two bytes take three digits, one byte takes two.
        for place in 0..=three.len() {
            let digit = (bits >> (18 - 6 * place) & 63) as usize;
            text.add_bytes(DIGITS.get(digit..=digit).unwrap_or_default());
        }
    }
    text.add(":");
    hexadecimal(text, checksum(number, bytes), 8);
    text.end_line();
}

/// Longest line after a dump.
pub const END_TEXT: usize = 160;

/// Numbers of the packets that survived a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survived {
    /// Those that their checksums verify.
    pub verified: u32,
    /// Those without a checksum: their records are consistent, but their values may be damaged.
    pub unverified: u32,
    /// Damaged ones, which are not in the dump.
    pub refused: u32,
    /// The recording is of duration mode, and calls that had not ended are not in the dump.
    pub lacks_open_calls: bool,
}

impl Survived {
    /// Counts a packet that is in the dump.
    pub fn add(&mut self, verified: bool) {
        match verified {
            true => self.verified += 1,
            false => self.unverified += 1,
        }
    }
}

/// Writes the line after a dump, which had so many lines and bytes and this CRC-32; after a reset also what survived.
#[inline(always)]
pub fn write_end(
    (lines, bytes, crc): (u32, u32, u32),
    survived: Option<Survived>,
    text: &mut Text<'_>,
) {
    text.add(END)
        .word("lines", lines.into())
        .word("bytes", bytes.into())
        .key("crc");
    hexadecimal(text, crc, 8);
    if let Some(survived) = survived {
        text.word("verified", survived.verified.into())
            .word("unverified", survived.unverified.into())
            .word("refused", survived.refused.into());
        if survived.lacks_open_calls {
            text.word_of("open_calls", "absent");
        }
    }
    text.add(" ***").end_line();
}

/// Content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the line, from 0 on.
    pub number: u32,
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Line {
    /// Returns the bytes of the line.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn value_of(digit: u8) -> Option<u32> {
    let place = DIGITS.iter().position(|it| *it == digit)?;
    u32::try_from(place).ok()
}

fn number_of(text: &[u8], digits: usize) -> Option<u32> {
    let text = text.get(..digits)?;
    let text = core::str::from_utf8(text).ok()?;
    let plain = !text.starts_with('+');
    u32::from_str_radix(text, 16).ok().filter(|_| plain)
}

/// Parses the part of a line after [`LINE`]; ignores what follows. Returns `None` if it is damaged, or something else.
pub fn read_line(text: &[u8]) -> Option<Line> {
    let number = number_of(text, 6)?;
    let text = text.get(6..)?.strip_prefix(b":")?;
    let end = text.iter().take(LINE_TEXT).position(|byte| *byte == b':')?;
    let (digits, rest) = text.split_at(end);
    let expected = number_of(rest.get(1..)?, 8)?;
    let mut line = Line {
        number,
        bytes: [0; LINE_BYTES],
        length: 0,
    };
    for four in digits.chunks(4) {
        let mut bits = 0;
        for place in 0..4 {
            bits = bits << 6 | four.get(place).map_or(Some(0), |digit| value_of(*digit))?;
        }
        for place in 0..four.len().checked_sub(1).filter(|count| *count > 0)? {
            *line.bytes.get_mut(line.length)? = (bits >> (16 - 8 * place)) as u8;
            line.length += 1;
        }
    }
    (checksum(number, line.bytes()) == expected).then_some(line)
}

/// Parses the words after [`END`]: the lines, bytes and CRC-32 of a dump. [`read_survived`] parses those behind them.
pub fn read_end(text: &str) -> Option<(u32, u32, u32)> {
    let mut words = text.split_ascii_whitespace();
    let mut word = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
    let lines = word("lines")?.parse().ok()?;
    let bytes = word("bytes")?.parse().ok()?;
    let crc = number_of(word("crc")?.as_bytes(), 8)?;
    Some((lines, bytes, crc))
}

/// Parses what survived a reset, from the words after [`END`]; `None` if the dump is not one of survivors.
pub fn read_survived(text: &str) -> Option<Survived> {
    let word = |name: &str| {
        let values = text.split_ascii_whitespace();
        let mut values = values.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.next()?.parse().ok()
    };
    Some(Survived {
        verified: word("verified")?,
        unverified: word("unverified")?,
        refused: word("refused")?,
        lacks_open_calls: text.contains(" open_calls=absent"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_and_damage_is_noticed() {
        let bytes: [u8; LINE_BYTES] = core::array::from_fn(|n| (n * 37 + 250) as u8);
        for length in 0..=LINE_BYTES {
            let mut room = [0; LINE_TEXT];
            let mut text = Text::new(&mut room);
            write_line(0xABC + length as u32, &bytes[..length], &mut text);
            let whole = text.bytes().strip_suffix(b"\r\n").expect("all of it");
            let inside = whole.strip_prefix(LINE.as_bytes()).expect("it begins so");
            let line = read_line(inside).expect("a line");
            assert_eq!(line.number, 0xABC + length as u32);
            assert_eq!(line.bytes(), &bytes[..length]);
            let mut room = [0; LINE_TEXT];
            for at in 0..inside.len() {
                let damaged = &mut room[..inside.len()];
                damaged.copy_from_slice(inside);
                damaged[at] ^= 1;
                let other = read_line(damaged);
                // Some bits of the last digit are unused.
                assert!(other.is_none_or(|other| other == line), "{length} {at}");
                assert!(read_line(&inside[..at]).is_none_or(|other| other == line));
            }
        }
        assert_eq!(read_line(b"000000"), None);
        assert_eq!(read_line(b"+00000::00000000"), None);
    }

    #[test]
    fn base64_is_that_of_others() {
        let mut room = [0; LINE_TEXT];
        let mut text = Text::new(&mut room);
        write_line(1, b"kymo identify", &mut text);
        let text = core::str::from_utf8(text.bytes()).expect("text");
        assert!(
            text.starts_with("kymo:000001:a3ltbyBpZGVudGlmeQ:"),
            "{text}"
        );
    }

    #[test]
    fn the_end_reads_back() {
        let mut room = [0; END_TEXT];
        let mut text = Text::new(&mut room);
        write_end((72, 3412, 0x1A2B_3C4D), None, &mut text);
        let text = core::str::from_utf8(text.bytes()).expect("text");
        assert_eq!(
            text,
            "*** kymo dump ends: lines=72 bytes=3412 crc=1a2b3c4d ***\r\n"
        );
        let words = text.strip_prefix(END).expect("it begins so");
        assert_eq!(read_end(words), Some((72, 3412, 0x1A2B_3C4D)));
        assert_eq!(read_survived(words), None);
        assert_eq!(read_end(" lines=72 bytes="), None);

        let survived = Survived {
            verified: u32::MAX,
            unverified: u32::MAX - 1,
            refused: u32::MAX - 2,
            lacks_open_calls: true,
        };
        let mut room = [0; END_TEXT];
        let mut text = Text::new(&mut room);
        write_end((u32::MAX, u32::MAX, 1), Some(survived), &mut text);
        let text = core::str::from_utf8(text.bytes()).expect("text");
        let words = text.strip_prefix(END).expect("it begins so");
        assert!(words.ends_with(" ***\r\n"), "{words}");
        assert_eq!(read_end(words), Some((u32::MAX, u32::MAX, 1)));
        assert_eq!(read_survived(words), Some(survived));
    }
}
