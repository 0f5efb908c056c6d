//! Trace in the kernel's log: the output of `ftrace_dump_on_oops`, between two lines of dashes.
//!
//! ```text
//! [  516.125674] Dumping ftrace buffer:
//! [  516.125675] ---------------------------------
//! [  516.125680]     bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule
//! [  516.125690] ---------------------------------
//! ```
//!
//! If nothing was recorded, `(ftrace buffer empty)` replaces all these lines.

use std::ops::Range;

use memchr::memmem;

/// Line in front of the trace.
const MARK: &[u8] = b"Dumping ftrace buffer:";

/// Line before the first record, and after the last one.
const DASHES: &[u8] = b"---------------------------------";

/// Line for a buffer without events.
const EMPTY: &[u8] = b"(ftrace buffer empty)";

/// Number of bytes of a file that are searched.
const LOOKED_AT: usize = 1 << 24;

/// Trace in a log.
pub(in crate::formats::ftrace) struct Dump {
    /// Range of its lines in the log.
    pub(super) lines: Range<usize>,
    /// Number of further traces after it.
    pub(super) others: usize,
    /// Whether the kernel had nothing to print.
    pub(super) is_empty: bool,
}

/// Finds the first trace in a log that has records, or else the first empty one; `None` if there is none.
pub(in crate::formats::ftrace) fn find(log: &[u8]) -> Option<Dump> {
    let head = log.get(..LOOKED_AT).unwrap_or(log);
    if head.iter().take(256).any(|byte| *byte == 0) {
        return None;
    }
    let mut empty = None;
    for found in memmem::find_iter(head, MARK) {
        let mark = found + MARK.len();
        // The next line shows whether there are records.
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

/// Returns the offset of the first line with exactly this number of dashes, including its log prefix. (A switch of
/// tasks within the trace has more dashes.)
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

/// Returns the end of the line that begins at `from`, including its line end.
fn line_end(log: &[u8], from: usize) -> Option<usize> {
    Some(from + memchr::memchr(b'\n', log.get(from..)?)? + 1)
}
