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
    /// So far, there are only lines of a header.
    Undecided,
}

/// Looks at first lines. What a console or a script wrote around the trace may be among them.
pub(in crate::formats::ftrace) fn recognise(head: &[u8]) -> Recognised {
    let (mut events, mut others) = (0, 0);
    for line in input::lines(head).take(200) {
        match text::line(line.trim_end_matches('\r')) {
            Line::Tracer("mmiotrace") => return Recognised::No,
            Line::Tracer(_) => return Recognised::Certain,
            Line::Event(_) | Line::Switch { .. } => events += 1,
            Line::Unknown if line.contains('\0') => return Recognised::No,
            Line::Unknown => others += 1,
            _ => {}
        }
    }
    match (events, others) {
        (0, 0) => Recognised::Undecided,
        // A single line may be anything, but it may be all that there is.
        _ if events > 3 * others => Recognised::Likely,
        _ => Recognised::No,
    }
}
