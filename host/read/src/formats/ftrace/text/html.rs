//! The kernel's text inside a page: what Android's systrace and Chromium's trace viewer write (`trace.html`).
//!
//! Such a page is the whole viewer, and behind that what it is to show, each part in an element of its own (catapult,
//! `systrace/output_generator.py`):
//!
//! ```text
//! <script class="trace-data" type="application/text">
//! # tracer: nop
//! ...
//! </script>
//! ```
//!
//! Other parts are JSON of other tracers, and are passed over.

use std::ops::Range;

use memchr::memmem;

use super::{Recognised, recognise};

/// The class of the elements.
const PART: &[u8] = b"class=\"trace-data\"";
const END: &[u8] = b"</script>";

/// So much of a part is looked at.
const MOST: usize = 4096;

/// Whether bytes begin like a page.
pub(in super::super) fn is_page(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [&b"<!doctype html"[..], b"<html"].iter().any(|begin| {
        let same = head.get(..begin.len());
        same.is_some_and(|same| same.eq_ignore_ascii_case(begin))
    })
}

/// Where in a page the kernel's text is: the first part that is recognised as such.
pub(in super::super) fn part(page: &[u8]) -> Option<Range<usize>> {
    let parts = memmem::find_iter(page, PART);
    let mut parts = parts.filter_map(|at| {
        let from = at + PART.len();
        let rest = page.get(from..)?;
        // The rest of the element's beginning, on the same line.
        let line = rest.iter().position(|byte| *byte == b'\n')?;
        let begins = rest.get(..line)?.trim_ascii_end().ends_with(b">");
        let start = from + line + 1;
        let text = page.get(start..).filter(|_| begins)?;
        let end = memmem::find(text, END).unwrap_or(text.len());
        Some(start..start + end)
    });
    parts.find(|part| {
        let text = page.get(part.clone()).unwrap_or_default();
        let head = text.get(..MOST).unwrap_or(text);
        matches!(recognise(head), Recognised::Certain | Recognised::Likely)
    })
}
