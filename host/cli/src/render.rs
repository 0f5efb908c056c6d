//! Terminal output: tables, trees, durations, colours.
//!
//! Nothing here reads a trace or decides what to show; the same values give the same bytes.

pub mod clock;
pub mod count;
pub mod duration;
pub mod escape;
pub mod fold;
pub mod ftrace;
pub mod json;
pub mod lines;
pub mod listing;
pub mod palette;
pub mod share;
pub mod table;
pub mod threads;
pub mod times;
pub mod tree;
pub mod unit;
