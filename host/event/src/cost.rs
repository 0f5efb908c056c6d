//! Overhead of recording in the traced program.

use crate::{Duration, Picoseconds};

/// Overhead of recording one kind of event, as the target measured it on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingCost {
    /// The kind of event.
    pub recorded: Recorded,
    /// Minimum time since the previous event in the stream. Of several entries that apply, the one with the longest
    /// time holds.
    pub from: Duration,
    /// Overhead before the event's timestamp.
    pub before: Picoseconds,
    /// Overhead after the event's timestamp.
    pub after: Picoseconds,
    /// Uncertainty of either, in both directions.
    pub uncertainty: Picoseconds,
}

/// Kinds of events whose overhead can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// A function is entered.
    Enter,
    /// A function exits.
    Exit,
    /// A function exits, and the record names it ([`Event::named`](crate::Event::named)).
    ExitNamed,
    /// An interrupt handler begins.
    IsrEnter,
    /// An interrupt handler ends.
    IsrExit,
    /// A thread loses its CPU.
    SwitchedOut,
    /// A thread gets a CPU.
    SwitchedIn,
}
