//! A received dump and how it ended.

use std::time::Duration;

use kymo_zephyr_instrumentation::{BEGIN, END, Kind};

use crate::LinkError;

/// How a dump ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With its mark, at the end of a record.
    Whole,
    /// With its mark, but the bytes before it are not all records: bytes were lost or added on the line.
    OutOfStep,
    /// Without its mark, though the target is alive: it restarted, or the mark was damaged.
    Cut,
    /// The target stopped answering.
    Silent {
        /// How long the host waited before it gave up.
        waited: Duration,
    },
    /// The user cancelled it.
    Cancelled,
    /// The connection was lost; the system's error.
    Disconnected(String),
    /// It exceeds the size limit.
    TooLong,
}

/// Bytes that a target sent between the two marks of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The records, and anything else between the marks.
    pub body: Vec<u8>,
    /// How it ended.
    pub ended: Ended,
    /// Whether it began before the request: the target's buffer was full.
    pub unrequested: bool,
}

/// Dumps that arrived after a request.
#[derive(Debug)]
pub struct Arrived {
    /// The dumps, the oldest first: unsolicited ones, then the requested one.
    pub dumps: Vec<Dump>,
    /// Why the requested dump is not among them.
    pub missing: Option<LinkError>,
}

impl Dump {
    /// Whether it is complete.
    pub fn is_whole(&self) -> bool {
        self.ended == Ended::Whole
    }

    /// The kind of its first record; `None` for an empty dump.
    pub fn kind(&self) -> Option<Kind> {
        self.body.first().copied().and_then(Kind::of)
    }

    /// The dump as it was sent, with the marks that arrived: the content of a file.
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
