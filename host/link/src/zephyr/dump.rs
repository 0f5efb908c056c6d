//! A dump as it arrived, and how it ended.

use std::time::Duration;

use kymo_zephyr_instrumentation::{BEGIN, END, Kind};

use crate::LinkError;

/// How a dump ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With its mark, where a record ended.
    Whole,
    /// With its mark, but what stands before it is not all records: bytes were lost or added on the way.
    OutOfStep,
    /// Without its mark, though the target goes on: it started again, or the mark was damaged.
    Cut,
    /// The target fell silent.
    Silent {
        /// For how long it had been silent when the host gave up.
        waited: Duration,
    },
    /// The user broke it off.
    Cancelled,
    /// The connection was lost; what the system said.
    Disconnected(String),
    /// It is longer than any that is taken.
    TooLong,
}

/// What a target sent between the two marks of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The records, and whatever else stands between the marks.
    pub body: Vec<u8>,
    /// How it ended.
    pub ended: Ended,
    /// Whether it began before it was asked for: the target's buffer was full.
    pub unasked: bool,
}

/// What came when a dump was asked for.
#[derive(Debug)]
pub struct Arrived {
    /// The dumps, the oldest first: those that came unasked, and the one that was asked for.
    pub dumps: Vec<Dump>,
    /// Why the one that was asked for is not among them.
    pub missing: Option<LinkError>,
}

impl Dump {
    /// Whether it is all that the target sent.
    pub fn is_whole(&self) -> bool {
        self.ended == Ended::Whole
    }

    /// What its first record says that it holds; `None` of an empty one.
    pub fn kind(&self) -> Option<Kind> {
        self.body.first().copied().and_then(Kind::of)
    }

    /// The dump as it stood on the line, with the marks that arrived: what a file keeps.
    pub fn as_sent(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + BEGIN.len() + END.len() + 2);
        bytes.extend_from_slice(BEGIN);
        bytes.extend_from_slice(&self.body);
        if matches!(self.ended, Ended::Whole | Ended::OutOfStep) {
            bytes.extend_from_slice(END);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}
