//! The kernel's trace in its log: what `ftrace_dump_on_oops` prints, between two lines of dashes.
//!
//! ```text
//! [  516.125674] Dumping ftrace buffer:
//! [  516.125675] ---------------------------------
//! [  516.125680]     bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule
//! [  516.125690] ---------------------------------
//! ```

use std::ops::Range;

use memchr::memmem;

/// The line in front of the trace.
const MARK: &[u8] = b"Dumping ftrace buffer:";

/// The line before the first record, and behind the last.
const DASHES: &[u8] = b"---------------------------------";

/// So much of a file is looked at for it.
const LOOKED_AT: usize = 1 << 24;

/// Where the lines of the first such trace are in a log; `None` if there is none, or if it was empty.
pub(in crate::formats::ftrace) fn part(log: &[u8]) -> Option<Range<usize>> {
    let head = log.get(..LOOKED_AT).unwrap_or(log);
    if head.iter().take(256).any(|byte| *byte == 0) {
        return None;
    }
    let mut from = 0;
    while let Some(found) = memmem::find(head.get(from..)?, MARK) {
        let mark = from + found + MARK.len();
        // The next line, or none: `(ftrace buffer empty)`.
        let begin = mark + line_end(log.get(mark..)?)?;
        let second = begin + line_end(log.get(begin..)?)?;
        let dashes = log.get(begin..second)?;
        if memmem::find(dashes, DASHES).is_some() {
            let rest = log.get(second..)?;
            let end = memmem::find(rest, DASHES).unwrap_or(rest.len());
            // The line of the dashes has the time of its printing in front.
            let text = rest.get(..end)?;
            let whole = match end == rest.len() {
                true => end,
                false => text
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |at| at + 1),
            };
            return Some(second..second + whole);
        }
        from = mark;
    }
    None
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    Some(memchr::memchr(b'\n', bytes)? + 1)
}
