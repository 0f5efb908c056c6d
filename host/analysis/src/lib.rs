//! Analyses of traces: rebuilds calls from enters and exits ([`calls`]), sums them by function ([`profile`]),
//! subtracts recording overhead ([`compensation`]), repairs clocks that stepped back ([`clock_repair`]), and advises
//! what to exclude from the next recording ([`advice`]).
//!
//! Everything streams: an analysis takes one event or step at a time. Its memory grows with the traced program
//! (threads, depth and functions), never with the length of the trace.
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
