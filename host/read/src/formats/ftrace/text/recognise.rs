//! Recognition of the kernel's text by its first lines.

use kymo_ftrace::text::{self, Line};
use memchr::memmem;

use super::input;

/// Result of recognition.
pub(in crate::formats::ftrace) enum Recognised {
    /// The kernel's text: it names its tracer.
    Certain,
    /// The kernel's text, judging by the form of its lines.
    Likely,
    /// Another text.
    No,
    /// Unknown so far: there are only header lines, or few others.
    Undecided,
}

/// Number of bytes of a file in which a header is searched behind other lines.
const SEARCHED: usize = 1 << 24;

/// Returns whether the log of a script or console has a header of the kernel's text, behind however many other lines.
pub(in crate::formats::ftrace) fn has_header(log: &[u8]) -> bool {
    let head = log.get(..SEARCHED).unwrap_or(log);
    let found = memmem::find(head, b"\n# tracer: ").and_then(|at| head.split_at_checked(at));
    let is_ours = |line: &[u8]| !line.starts_with(b"\n# tracer: mmiotrace");
    found.is_some_and(|(before, line)| !before.contains(&0) && is_ours(line))
}

/// Number of bytes that contain the examined lines.
pub(in crate::formats::ftrace) const LOOKED_AT: usize = 1 << 14;

/// Largest number of lines in which a header is searched.
const LINES: usize = 200;

/// Number of other lines that decide about a text without a header.
const COUNTED: usize = 64;

/// Number of lines without any event that rule out the kernel's text, even if more lines follow.
const OTHERS: usize = 4;

/// Examines the first lines. `is_all` means that no more are available. They may include other lines, such as output of
/// a console or script around the trace.
pub(in crate::formats::ftrace) fn recognise(head: &[u8], is_all: bool) -> Recognised {
    let (mut events, mut others) = (0, 0);
    for line in input::lines(head).take(LINES) {
        match text::line(line.trim_end_matches('\r')) {
            Line::Tracer("mmiotrace") => return Recognised::No,
            Line::Tracer(_) => return Recognised::Certain,
            Line::Unknown if line.contains('\0') => return Recognised::No,
            _ if events + others >= COUNTED => {}
            Line::Event(_) | Line::Switch { .. } => events += 1,
            Line::Unknown => others += 1,
            _ => {}
        }
    }
    let is_over = is_all || events + others >= COUNTED || events == 0 && others >= OTHERS;
    match (events, others) {
        (0, 0) => Recognised::Undecided,
        // A single line proves nothing, but may be all there is. Of more lines, two of three have to be the kernel's.
        _ if events > 0 && events >= 2 * others => Recognised::Likely,
        _ if is_over => Recognised::No,
        _ => Recognised::Undecided,
    }
}
