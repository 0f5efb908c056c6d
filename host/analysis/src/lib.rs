//! What the events of a trace mean: calls rebuilt from enters and exits ([`calls`]), and the table
//! of functions that follows from them ([`profile`]), the times without what recording took
//! ([`compensation`]), those of a clock that stepped back, put right ([`clock_repair`]), and what to leave out of the
//! next recording ([`advice`]).
//!
//! Everything streams: an analysis takes one event or step at a time and holds what grows with the
//! traced program (its threads, depth and functions), never with the length of the trace.
#![forbid(unsafe_code)]

pub mod advice;
pub mod arrange;
pub mod by_wall;
pub mod call_tree;
pub mod calls;
pub mod clock_repair;
pub mod compensation;
pub mod counter_values;
mod ended;
pub mod fdd;
pub mod groups;
mod hash;
pub mod initcalls;
pub mod profile;
mod recursion;
pub mod replay;
pub mod schedule;
pub mod selection;
pub mod spread;
pub mod statistics;
pub mod titles;
