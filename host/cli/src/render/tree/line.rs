//! Parts of a line of the tree: the column of the duration, and what ends a call that is one line.

use kymo_event::Duration;

use crate::render::duration::{Human, WIDTH};

/// What stands between a time and a duration.
pub const GAP: &str = "  ";

/// The column of durations with nothing in it: one more for the mark.
pub const BLANK: &str = "           ";
const _: () = assert!(BLANK.len() == WIDTH + 1);

/// What ends the line of a call that is one line.
pub const LEAF: &[u8] = b";";
/// The same where it called others, which are not shown.
pub const FOLDED: &[u8] = b" { ... }";

/// What stands in the column of a duration; with a doubt, marked as possibly wrong. `None` if it is
/// [wider](wide_column).
#[inline]
pub fn column(duration: Duration, doubt: bool) -> Option<[u8; BLANK.len()]> {
    let [a, b, c, d, e, f, g, h, i, j] = Human(duration).digits()?;
    Some([a, b, c, d, e, f, g, h, i, j, mark(doubt)])
}

/// The same for any duration.
#[cold]
pub fn wide_column(duration: Duration, doubt: bool) -> Vec<u8> {
    let mut column = Human(duration).to_string().into_bytes();
    column.push(mark(doubt));
    column
}

const fn mark(doubt: bool) -> u8 {
    if doubt { b'?' } else { b' ' }
}
