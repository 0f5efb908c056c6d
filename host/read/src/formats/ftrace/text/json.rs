//! The kernel's text inside JSON: output of Android's systrace with `--json`, and of Chromium's tracing (trace-event
//! format, `systemTraceEvents`).
//!
//! ```text
//! {"traceEvents": [], "systemTraceEvents": "# tracer: nop\n#\n ..."}
//! ```

use memchr::{memchr2, memmem};

use super::recognise::{LOOKED_AT, Recognised, recognise};

/// Member with the text.
const MEMBER: &[u8] = b"\"systemTraceEvents\"";

/// Returns the text in such a file; `None` for other files. Other members belong to other tracers, and are skipped.
pub(in super::super) fn text(file: &[u8]) -> Option<Vec<u8>> {
    if !file.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let behind = file.get(memmem::find(file, MEMBER)? + MEMBER.len()..)?;
    let value = behind.trim_ascii_start().strip_prefix(b":")?;
    let text = unescaped(value.trim_ascii_start().strip_prefix(b"\"")?);
    let head = text.get(..LOOKED_AT).unwrap_or(&text);
    let is_text = matches!(
        recognise(head, true),
        Recognised::Certain | Recognised::Likely
    );
    is_text.then_some(text)
}

/// Decodes a JSON string up to its end (RFC 8259), or up to the end of a truncated file.
fn unescaped(mut rest: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        let (plain, special) = rest.split_at(at);
        text.extend_from_slice(plain);
        let Some((b'\\', [escaped, behind @ ..])) = special.split_first() else {
            return text;
        };
        rest = behind;
        match escaped {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'b' | b'f' => text.push(b' '),
            b'u' => {
                let digits = rest.get(..4).and_then(|it| std::str::from_utf8(it).ok());
                let code = digits.and_then(|it| u32::from_str_radix(it, 16).ok());
                let character = code.and_then(char::from_u32).unwrap_or('\u{fffd}');
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = rest.get(4..).unwrap_or_default();
            }
            other => text.push(*other),
        }
    }
    text.extend_from_slice(rest);
    text
}
