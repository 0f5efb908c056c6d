//! The kernel's trace in its log: what `ftrace_dump_on_oops` prints, between two lines of dashes.
//!
//! ```text
//! [  516.125674] Dumping ftrace buffer:
//! [  516.125675] ---------------------------------
//! [  516.125680]     bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule
//! [  516.125690] ---------------------------------
//! ```
//!
//! Where nothing was recorded, `(ftrace buffer empty)` stands in the place of all these lines.

use std::ops::Range;

use memchr::memmem;

/// The line in front of the trace.
const MARK: &[u8] = b"Dumping ftrace buffer:";

/// The line before the first record, and behind the last.
const DASHES: &[u8] = b"---------------------------------";

/// The kernel's line for a buffer without events.
const EMPTY: &[u8] = b"(ftrace buffer empty)";

/// So much of a file is looked at for it.
const LOOKED_AT: usize = 1 << 24;

/// A trace in a log.
pub(in crate::formats::ftrace) struct Dump {
    /// Where its lines are in the log.
    pub(super) lines: Range<usize>,
    /// How many others have a beginning behind it.
    pub(super) others: usize,
    /// Whether the kernel had nothing to print.
    pub(super) is_empty: bool,
}

/// The first trace in a log that has records, or else the first empty one; `None` if there is none.
pub(in crate::formats::ftrace) fn find(log: &[u8]) -> Option<Dump> {
    let head = log.get(..LOOKED_AT).unwrap_or(log);
    if head.iter().take(256).any(|byte| *byte == 0) {
        return None;
    }
    let mut empty = None;
    for found in memmem::find_iter(head, MARK) {
        let mark = found + MARK.len();
        // The next line says whether there is anything.
        let Some(begin) = line_end(log, mark) else {
            break;
        };
        let second = line_end(log, begin).unwrap_or(log.len());
        let (line, rest) = (log.get(begin..second)?, log.get(second..)?);
        if dashes(line).is_some() {
            let end = dashes(rest).unwrap_or(rest.len());
            let others = memmem::find_iter(rest.get(end..)?, MARK).count();
            return Some(Dump {
                lines: second..second + end,
                others,
                is_empty: false,
            });
        }
        if line.trim_ascii_end().ends_with(EMPTY) {
            empty.get_or_insert(Dump {
                lines: second..second,
                others: 0,
                is_empty: true,
            });
        }
    }
    empty
}

/// Where the first line of so many dashes begins, which has the time of its printing in front. (A switch of tasks within the
/// trace has more of them.)
fn dashes(text: &[u8]) -> Option<usize> {
    let is_dash = |at: Option<usize>| at.and_then(|at| text.get(at)) == Some(&b'-');
    let mut from = 0;
    loop {
        let found = from + memmem::find(text.get(from..)?, DASHES)?;
        let end = found + DASHES.len();
        if !is_dash(found.checked_sub(1)) && !is_dash(Some(end)) {
            let line = text.get(..found)?;
            return Some(memchr::memrchr(b'\n', line).map_or(0, |at| at + 1));
        }
        let more = text.get(end..)?.iter().take_while(|byte| **byte == b'-');
        from = end + more.count();
    }
}

/// Where the line ends that begins at `from`, behind its end.
fn line_end(log: &[u8], from: usize) -> Option<usize> {
    Some(from + memchr::memchr(b'\n', log.get(from..)?)? + 1)
}
