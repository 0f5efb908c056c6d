//! Recording files (`.SVDat`): a few lines of text, then the stream of each core.
//!
//! The lines of the text begin with a semicolon; the first and the last contain nothing else. Files of one stream may
//! lack the text. If there are several streams, `; Offset CoreN BYTES` is the start of each, relative to the end of the
//! text.

use core::ops::Range;

use crate::packet::Form;

/// Text at the start of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The whole text, with its last line end.
    pub text: &'a [u8],
}

/// Maximum size of the text in bytes.
const LONGEST: usize = 1 << 14;

/// Finds the text at the start of a file; `None` if there is none. `bytes` may be the first 16 KiB of the file.
pub fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    let (mut at, mut lines) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.starts_with(b";")) {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest.get(..end).unwrap_or_default().trim_ascii();
        at += end + 1;
        if line == b";" && lines > 0 {
            break;
        }
        lines += 1;
    }
    let text = bytes.get(..at).filter(|text| !text.is_empty())?;
    Some(Header { text })
}

impl<'a> Header<'a> {
    /// Returns the value of a key: `Version`, `Author`, `RecordTime`, `Offset Core0`, ...
    pub fn value(&self, key: &str) -> Option<&'a [u8]> {
        self.lines().find_map(|line| {
            let behind = line.strip_prefix(key.as_bytes())?;
            let is_whole = behind.first().is_none_or(u8::is_ascii_whitespace);
            is_whole.then(|| behind.trim_ascii())
        })
    }

    /// Returns the form of packets, as far as the text determines it: with `ESP_Extension` ids contain the core
    /// (ESP-IDF's OpenOCD).
    pub fn form(&self) -> Form {
        let is_of_cores = self.lines().any(|line| line == b"ESP_Extension");
        Form {
            second_core: is_of_cores.then_some(false),
            ..Form::default()
        }
    }

    /// Returns the non-empty lines, without semicolons and surrounding blanks.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = self.text.split(|byte| *byte == b'\n');
        let lines = lines.filter_map(|line| Some(line.strip_prefix(b";")?.trim_ascii()));
        lines.filter(|line| !line.is_empty())
    }

    /// Returns the streams of a file of `bytes` bytes: the core, and the range in the file. One stream of core 0 if the
    /// text names none. A stream whose offset does not follow those before it is empty.
    pub fn streams(&self, bytes: u64) -> impl Iterator<Item = (u32, Range<u64>)> + use<'a> {
        let start = self.text.len() as u64;
        let lines = self.text;
        let offsets = move || Header { text: lines }.lines().filter_map(offset);
        let one = offsets().next().is_none().then_some((0, 0));
        let mut starts = one.into_iter().chain(offsets()).peekable();
        core::iter::from_fn(move || {
            let (core, offset) = starts.next()?;
            let begin = start.saturating_add(offset).min(bytes);
            let next = starts.peek().map(|(_, next)| start.saturating_add(*next));
            let end = next.unwrap_or(bytes).min(bytes).max(begin);
            Some((core, begin..end))
        })
    }
}

/// Parses `Offset Core1 4711`.
fn offset(line: &[u8]) -> Option<(u32, u64)> {
    let text = core::str::from_utf8(line).ok()?;
    let mut words = text.strip_prefix("Offset")?.split_ascii_whitespace();
    let core = words.next()?.strip_prefix("Core")?.parse().ok()?;
    Some((core, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_tell_where_streams_begin() {
        let text = b";\n; RecordTime   12 Mar 2026\n; Author       x\n; Offset Core0 0\n; Offset Core1 5\n;\n";
        let mut file = text.to_vec();
        file.extend(b"01234;\n;89");
        let header = header(&file).unwrap();
        assert_eq!(header.text, text);
        assert_eq!(header.value("RecordTime"), Some(&b"12 Mar 2026"[..]));
        assert_eq!(header.value("Record"), None);
        let start = text.len() as u64;
        let found: std::vec::Vec<_> = header.streams(file.len() as u64).collect();
        assert_eq!(found, [(0, start..start + 5), (1, start + 5..start + 10)]);
        // Offsets beyond the end, and backwards.
        let odd = super::header(b";\n; Offset Core0 9\n; Offset Core1 3\n;\nabc").unwrap();
        let found: std::vec::Vec<_> = odd.streams(40).collect();
        assert_eq!(found, [(0, 40..40), (1, 40..40)]);
    }

    #[test]
    fn a_file_may_have_no_text_or_an_unusual_one() {
        assert_eq!(header(&[0; 20]), None);
        assert_eq!(header(b"; no line end"), None);
        let crlf = header(b";\r\n; Version\tSEGGER SystemViewer V2.42\r\n;\r\n\0\0").unwrap();
        assert_eq!(
            crlf.value("Version"),
            Some(&b"SEGGER SystemViewer V2.42"[..])
        );
        assert_eq!(crlf.text.len(), 43);
        let bare = header(b"; Author me\n\0").unwrap();
        assert_eq!(bare.text, b"; Author me\n");
    }

    extern crate std;
}
