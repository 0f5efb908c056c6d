//! Whether a text is the kernel's, by its first lines.

use kymo_ftrace::text::{self, Line};

use super::input;

/// What a text is by its first lines.
pub(in crate::formats::ftrace) enum Recognised {
    /// The kernel's: it names its tracer.
    Certain,
    /// The kernel's, by the form of its lines.
    Likely,
    /// Another one.
    No,
    /// Not known so far: there are only lines of a header, or few others.
    Undecided,
}

/// So much of a text holds so many lines as are looked at.
pub(in crate::formats::ftrace) const LOOKED_AT: usize = 1 << 14;

/// So many lines are looked at for a header.
const LINES: usize = 200;

/// So many lines that are none of a header say whether a text without one is the kernel's.
const COUNTED: usize = 64;

/// So many lines without any event among them show that a text is another one, also where more are to come.
const OTHERS: usize = 4;

/// Looks at first lines; `is_all` if no more are to be had. What a console or a script wrote around the trace may be among
/// them, and odd lines.
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
        // A single line may be anything, but it may be all that there is. Of more, two of three are the kernel's.
        _ if events > 0 && events >= 2 * others => Recognised::Likely,
        _ if is_over => Recognised::No,
        _ => Recognised::Undecided,
    }
}
