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

/// Where the lines of the first such trace are in a log, and how many others have a beginning behind it; `None` if there is
/// none, or if it was empty.
pub(in crate::formats::ftrace) fn part(log: &[u8]) -> Option<(Range<usize>, usize)> {
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
        let rest = log.get(second..)?;
        if dashes(log.get(begin..second)?).is_some() {
            let end = dashes(rest).unwrap_or(rest.len());
            let others = memmem::find_iter(rest.get(end..)?, MARK).count();
            return Some((second..second + end, others));
        }
        from = mark;
    }
    None
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

fn line_end(bytes: &[u8]) -> Option<usize> {
    Some(memchr::memchr(b'\n', bytes)? + 1)
}
