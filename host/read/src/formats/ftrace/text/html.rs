//! The kernel's text inside a web page: output of Android's systrace and Chromium's trace viewer (`trace.html`).
//!
//! Such a page contains the whole viewer, and behind it the data, each part in its own element (catapult,
//! `systrace/output_generator.py`):
//!
//! ```text
//! <script class="trace-data" type="application/text">
//! # tracer: nop
//! ...
//! </script>
//! ```
//!
//! Other parts are JSON of other tracers, and are skipped. Until 2015, systrace wrote the text as a JavaScript string,
//! with `\n\` at the end of each line:
//!
//! ```text
//! var linuxPerfData = "\
//! # tracer: nop\n\
//! ...
//! \n";
//! ```

use std::ops::Range;

use memchr::memmem;

use super::recognise::{LOOKED_AT, Recognised, recognise};

/// Class of the elements.
const PART: &[u8] = b"class=\"trace-data\"";
const END: &[u8] = b"</script>";

/// Start and end of the string in older pages.
const STRING: &[u8] = b"linuxPerfData = \"\\";
const STRING_END: &[u8] = b"\";";

/// End of its last line.
const LAST: &[u8] = b"\\n";

/// Returns whether bytes begin like a web page.
pub(in super::super) fn is_page(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [&b"<!doctype html"[..], b"<html"].iter().any(|begin| {
        let same = head.get(..begin.len());
        same.is_some_and(|same| same.eq_ignore_ascii_case(begin))
    })
}

/// Returns the range of the kernel's text in a page: the first part that is recognized as such.
pub(in super::super) fn part(page: &[u8]) -> Option<Range<usize>> {
    let elements = memmem::find_iter(page, PART).map(|at| (at + PART.len(), &b">"[..]));
    let strings = memmem::find_iter(page, STRING).map(|at| (at, STRING));
    let mut parts = elements.chain(strings).filter_map(|(from, begin)| {
        let rest = page.get(from..)?;
        // The rest of the start tag, on the same line.
        let line = rest.iter().position(|byte| *byte == b'\n')?;
        let begins = rest.get(..line)?.trim_ascii_end().ends_with(begin);
        let start = from + line + 1;
        let text = page.get(start..).filter(|_| begins)?;
        let before = |text: &'_ [u8], end| memmem::find(text, end).unwrap_or(text.len());
        let mut end = before(text, END);
        if begin == STRING {
            end = before(text.get(..end)?, STRING_END);
            let last = text.get(..end)?;
            end = last.strip_suffix(LAST).unwrap_or(last).len();
        }
        Some(start..start + end)
    });
    parts.find(|part| {
        let text = page.get(part.clone()).unwrap_or_default();
        let head = text.get(..LOOKED_AT).unwrap_or(text);
        matches!(
            recognise(head, true),
            Recognised::Certain | Recognised::Likely
        )
    })
}

/// Removes the line end that a text in a string has.
pub(super) fn unescaped(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\\n\\\n").unwrap_or(line)
}
