//! Parts of a line of the tree: the duration column, and the endings of one-line calls.

use kymo_event::Duration;

use crate::render::duration::{Human, WIDTH};

/// The separator between time and duration.
pub const GAP: &str = "  ";

/// An empty duration column, one wider for the mark.
pub const BLANK: &str = "           ";
const _: () = assert!(BLANK.len() == WIDTH + 1);

/// The ending of a call on one line.
pub const LEAF: &[u8] = b";";
/// The same if it has callees, which are not shown.
pub const FOLDED: &[u8] = b" { ... }";

/// The text of the duration column; with a doubt, marked as possibly wrong. `None` if it is [wider](wide_column).
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
