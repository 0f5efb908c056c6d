//! Escapes for text from outside: traces, targets, file names.
//!
//! A terminal obeys control characters, so a name in a trace could move the cursor, set the window's title or hide
//! other lines. Every text that is not this program's own is escaped before it is printed: with [`escape_from`] in
//! lines that are built in a string, [`escaped`] for a single text, [`Console`] for a target's output, and
//! [`TerminalWriter`] for an export to a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a character must not reach a terminal: controls (C0, DEL, C1), and those that change the
/// direction of the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a byte of UTF-8 may belong to such a character. Excludes nearly all text quickly.
fn may_be_unsafe(byte: u8) -> bool {
    byte < b' ' || matches!(byte, 0x7f | 0xc2 | 0xe2)
}

/// Adds a character as an escape sequence of Rust and C: `\x1b`, `\n`, `\u{202e}`.
fn push_escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Writing to a string can't fail.
        c if u32::from(c) < 0x100 => _ = write!(out, "\\x{:02x}", u32::from(c)),
        c => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
    }
}

/// Replaces unsafe characters after `start` by escape sequences.
pub fn escape_from(out: &mut String, start: usize) {
    let text = out.get(start..).unwrap_or_default();
    // Without a branch per byte, so that the compiler can vectorize the loop.
    let clean = !text
        .bytes()
        .fold(false, |any, byte| any | may_be_unsafe(byte));
    if clean || !text.contains(is_unsafe) {
        return;
    }
    let text = text.to_owned();
    out.truncate(start);
    for c in text.chars() {
        if is_unsafe(c) {
            push_escape(c, out);
        } else {
            out.push(c);
        }
    }
}

/// A text with unsafe characters replaced by escape sequences.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(may_be_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = text.to_owned();
    escape_from(&mut out, 0);
    Cow::Owned(out)
}

/// Escapes each line of a message, and indents those after the first, so that none looks like a message of its own.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    if !text.contains('\n') {
        return escaped(text);
    }
    let lines: Vec<_> = text.trim_end().split('\n').map(escaped).collect();
    Cow::Owned(lines.join("\n  "))
}

/// Length of the longest colour sequence that [`Console`] waits for.
const LONGEST_COLOUR: usize = 24;

/// Filters a target's output, piece by piece.
///
/// Line ends, tabs and colours (`ESC [ ... m`, as Zephyr's logging has them) pass; other control
/// characters are escaped. Bytes above 0x7f pass unless they are C1 controls.
#[derive(Debug, Default)]
pub struct Console {
    /// The begin of an incomplete sequence.
    held: Vec<u8>,
}

impl Console {
    /// Filters the next piece of text for printing.
    pub fn filter(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        for &byte in text {
            self.push(byte, &mut out);
        }
        out
    }

    fn push(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.held.as_slice(), byte) {
            ([], 0x1b | 0xc2) => self.held.push(byte),
            ([], _) => push_byte(byte, out),
            ([0xc2], 0x80..=0x9f) => {
                self.held.clear();
                out.extend(format!("\\x{byte:02x}").bytes());
            }
            ([0x1b], b'[') => self.held.push(byte),
            ([0x1b, ..], b'0'..=b'9' | b';' | b':')
                if self.held.len() > 1 && self.held.len() < LONGEST_COLOUR =>
            {
                self.held.push(byte);
            }
            ([0x1b, b'[', ..], b'm') => {
                out.append(&mut self.held);
                out.push(byte);
            }
            _ => {
                for held in std::mem::take(&mut self.held) {
                    push_byte(held, out);
                }
                self.push(byte, out);
            }
        }
    }
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\n' | b'\r' | b'\t' => out.push(byte),
        0..b' ' | 0x7f => out.extend(format!("\\x{byte:02x}").bytes()),
        _ => out.push(byte),
    }
}

/// Passes text to a terminal, line by line and escaped: for text formats.
pub struct TerminalWriter<W: Write> {
    out: W,
    /// The current, incomplete line.
    line: Vec<u8>,
}

/// Length at which an incomplete line is passed on.
const LONGEST_LINE: usize = 1 << 16;

impl<W: Write> TerminalWriter<W> {
    /// A writer in front of `out`.
    pub const fn new(out: W) -> Self {
        Self {
            out,
            line: Vec::new(),
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.line);
        let escaped = escaped(&text);
        self.out.write_all(escaped.as_bytes())?;
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for TerminalWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line()?;
                self.out.write_all(b"\n")?;
                continue;
            }
            self.line.push(byte);
            // Not within a character.
            if self.line.len() >= LONGEST_LINE && byte < 0x80 {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }
}

/// Writes an incomplete last line.
impl<W: Write> Drop for TerminalWriter<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_spelt_out() {
        for (text, expected) in [
            ("plain é ✓", "plain é ✓"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("a\nb\r\t", "a\\nb\\r\\t"),
            ("\u{9b}31m\u{7f}", "\\x9b31m\\x7f"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
        ] {
            assert_eq!(escaped(text), expected);
            let mut line = format!("\x1b[1m{text}");
            escape_from(&mut line, 4);
            assert_eq!(line, format!("\x1b[1m{expected}"), "what is before stays");
        }
        assert_eq!(escaped_lines("a\nerror: b\x1b"), "a\n  error: b\\x1b");
    }

    #[test]
    fn a_console_keeps_its_lines_and_colours() {
        let text =
            b"\x1b[1;31mred\x1b[0m\r\n\x1b]0;t\x07\x1b[2J\xc2\x9bx\xc3\xa9\xff\x00".as_slice();
        let expected = b"\x1b[1;31mred\x1b[0m\r\n\\x1b]0;t\\x07\\x1b[2J\\x9bx\xc3\xa9\xff\\x00";
        assert_eq!(Console::default().filter(text), expected);
        let mut console = Console::default();
        let pieces: Vec<u8> = text
            .chunks(1)
            .flat_map(|byte| console.filter(byte))
            .collect();
        assert_eq!(pieces, expected);
    }

    #[test]
    fn an_export_on_a_terminal_is_escaped_line_by_line() {
        let mut out = Vec::new();
        let mut writer = TerminalWriter::new(&mut out);
        writer.write_all(b"a\x1b[2J\nb\xc2").expect("a vector");
        writer.write_all(b"\x9b end").expect("a vector");
        drop(writer);
        assert_eq!(String::from_utf8_lossy(&out), "a\\x1b[2J\nb\\x9b end");
    }
}
