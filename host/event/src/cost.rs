//! What recording costs the program that is traced.

use crate::{Duration, Picoseconds};

/// What recording one kind of event costs, as the target has measured it on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingCost {
    /// Of what.
    pub recorded: Recorded,
    /// It holds where so much time or more has passed since the event before in its stream, unless
    /// another one with a longer time holds too.
    pub from: Duration,
    /// What it takes before the moment that the event has.
    pub before: Picoseconds,
    /// What it takes after that moment.
    pub after: Picoseconds,
    /// How much either may be wrong, either way.
    pub uncertainty: Picoseconds,
}

/// The kinds of events whose cost can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// A function is entered.
    Enter,
    /// A function is left.
    Exit,
    /// A function is left, and the record names it ([`Event::named`](crate::Event::named)).
    ExitNamed,
    /// An interrupt handler begins.
    IsrEnter,
    /// An interrupt handler ends.
    IsrExit,
    /// A thread loses its processor.
    SwitchedOut,
    /// A thread gets one.
    SwitchedIn,
}
