//! Reader of complete inputs, from the first byte to the last record.

use std::io::Read;

use crate::container::{Container, Step};
use crate::error::{Error, Fault};
use crate::plausible::Plausible;
use crate::stream::Items;
use crate::timeline::Timeline;
use crate::{Header, Kind, Record, ThreadName};

/// Counts from reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records that the target lost.
    pub lost: u64,
    /// Pairs of uptime items.
    pub pairs: u64,
    /// Records whose times were derived from those of other processors.
    pub uncertain: u64,
    /// Records whose times would have gone back, and were set to the time of the record before.
    pub put_back: u64,
    /// Largest such correction in nanoseconds.
    pub put_back_most_ns: u64,
}

impl Statistics {
    /// Adds the counts of another reader.
    pub fn add(&mut self, other: &Self) {
        self.lost = self.lost.saturating_add(other.lost);
        self.pairs += other.pairs;
        self.uncertain += other.uncertain;
        self.put_back += other.put_back;
        self.put_back_most_ns = self.put_back_most_ns.max(other.put_back_most_ns);
    }
}

/// Reader of records from any input: a file, a console log, a connection to a target.
pub struct Reader<R> {
    container: Container<R>,
    /// Plausibility check for text, with the bytes that are not read yet.
    plausible: Plausible,
    items: Items,
    timeline: Timeline,
    bytes: Vec<u8>,
    /// Number of dumps that have begun.
    dumps: u16,
    /// Whether a dump is open.
    open: bool,
    /// Whether records are shown live, so that their waiting times are bounded.
    is_live: bool,
    /// Number of bytes of items since the last output of records.
    waiting: usize,
    ended: bool,
    names: Vec<ThreadName>,
    faults: Vec<Fault>,
    statistics: Statistics,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("header", self.items.header())
            .field("dumps", &self.dumps)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Creates a reader. It recognizes the input by its first bytes ([`probe`](crate::probe)).
    pub fn new(input: R) -> Self {
        Self {
            container: Container::new(input),
            plausible: Plausible::default(),
            items: Items::new(),
            timeline: Timeline::new(0),
            is_live: false,
            waiting: 0,
            bytes: Vec::new(),
            dumps: 0,
            open: false,
            ended: false,
            names: Vec::new(),
            faults: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    /// Sets live mode, in which a processor without uptime delays the others for a bounded time only.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Returns whether the reader is in live mode.
    pub const fn is_live(&self) -> bool {
        self.is_live
    }

    /// Appends the next records to `out`, in order of time within a dump. May append none. Returns `false` behind the
    /// last.
    ///
    /// Reads the input at most once, unless it has to recognize it first. So data of a live target is returned as it
    /// arrives.
    ///
    /// # Errors
    /// [`Error`] if reading the input fails; the records read before it have been returned. Invalid data is not an
    /// error: see [`take_faults`](Self::take_faults).
    pub fn read(&mut self, out: &mut Vec<Record>) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        self.bytes.clear();
        let step = self.container.advance(&mut self.bytes);
        let bytes = std::mem::take(&mut self.bytes);
        match self.container.kind() {
            Some(Kind::Base64 | Kind::Log) => self.push_text(&bytes, out),
            _ => self.push(&bytes, out),
        }
        self.bytes = bytes;
        if !matches!(step, Ok(Step::Bytes)) {
            let rest = self.plausible.take_all();
            self.push(&rest, out);
        }
        match step {
            Err(error) => {
                self.end_dump(out, true);
                self.ended = true;
                return Err(error);
            }
            Ok(Step::Bytes) => {}
            Ok(Step::Begin) => {
                let dump = self.dumps;
                self.dumps = dump.saturating_add(1);
                self.open = true;
                self.plausible = Plausible::default();
                self.items = Items::new();
                self.timeline = Timeline::new(dump);
                self.waiting = 0;
                self.timeline.set_live(self.is_live);
            }
            // Ignored if the bytes in front of the fault have already ended the dump.
            Ok(Step::Fault(fault)) if self.open => {
                self.end_dump(out, true);
                self.faults.push(fault);
            }
            Ok(Step::Fault(_)) => {}
            Ok(Step::EndOfDump) => self.end_dump(out, false),
            Ok(Step::End) => {
                self.ended = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles bytes decoded from text, which may lack lines.
    fn push_text(&mut self, bytes: &[u8], out: &mut Vec<Record>) {
        if !self.open {
            return;
        }
        let wrong = self.plausible.look(bytes);
        let good = match &wrong {
            Some((good, _)) => *good,
            None => self.plausible.ready(),
        };
        let bytes = self.plausible.take(good);
        self.push(&bytes, out);
        if let Some((_, message)) = wrong.filter(|_| self.open) {
            self.plausible = Plausible::default();
            self.container.skip_dump();
            self.end_dump(out, true);
            let fault = self.items.fault(message);
            self.fault(fault);
        }
    }

    fn push(&mut self, bytes: &[u8], out: &mut Vec<Record>) {
        /// Number of bytes between two outputs. Keeps records in order if their processors were sent long after each
        /// other, and makes the order independent of the container.
        const PIECE: usize = 12 * 8 * 4096;
        let mut rest = bytes;
        while !rest.is_empty() && self.open {
            let (piece, behind) = rest.split_at(rest.len().min(PIECE - self.waiting));
            rest = behind;
            let pushed = self.items.push(piece, &mut self.timeline);
            self.waiting += piece.len();
            if self.is_live || self.waiting >= PIECE {
                self.timeline.drain(out);
                self.waiting = 0;
            }
            self.names.append(&mut self.items.names);
            if let Err(fault) = pushed {
                self.container.skip_dump();
                self.end_dump(out, true);
                self.fault(fault);
            }
        }
    }

    /// Ends the current dump. With `broken`, the fault has already been reported.
    fn end_dump(&mut self, out: &mut Vec<Record>, broken: bool) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let finished = self.items.finish(&mut self.timeline);
        self.timeline.finish();
        self.timeline.drain(out);
        self.names.append(&mut self.items.names);
        self.statistics.add(self.timeline.statistics());
        if let (false, Err(fault)) = (broken, finished) {
            self.fault(fault);
        }
    }

    /// Records a fault in the items.
    fn fault(&mut self, fault: Fault) {
        let decoded = !matches!(self.container.kind(), Some(Kind::Raw) | None);
        self.faults.push(Fault { decoded, ..fault });
    }

    /// Returns the input.
    pub const fn input(&self) -> &R {
        self.container.source()
    }

    /// Returns the input, mutable.
    pub const fn input_mut(&mut self) -> &mut R {
        self.container.source_mut()
    }

    /// Returns the input, at the position up to which it was read.
    pub fn into_input(self) -> R {
        self.container.into_source()
    }

    /// Returns the stream's description of its target so far. With several dumps, that of the last one.
    pub const fn header(&self) -> &Header {
        self.items.header()
    }

    /// Returns whether the header has everything that records need.
    pub const fn is_described(&self) -> bool {
        self.items.is_described()
    }

    /// Returns whether the items of a processor have begun: the header is complete then.
    pub const fn has_started(&self) -> bool {
        self.items.started
    }

    /// Returns the container of the input, once anything was read.
    pub const fn kind(&self) -> Option<Kind> {
        self.container.kind()
    }

    /// Returns the number of dumps that have begun.
    pub const fn dumps(&self) -> u16 {
        self.dumps
    }

    /// Takes the thread names found since the last call.
    pub fn take_names(&mut self) -> Vec<ThreadName> {
        std::mem::take(&mut self.names)
    }

    /// Takes the faults found since the last call.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Returns whether there are faults that were not [taken](Self::take_faults).
    pub const fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Returns the counts so far.
    pub fn statistics(&self) -> Statistics {
        let mut all = self.statistics;
        if self.open {
            all.add(self.timeline.statistics());
        }
        all
    }

    /// Returns the number of console-log lines between those of a dump that do not belong to it.
    pub const fn foreign_lines(&self) -> u64 {
        self.container.foreign_lines
    }
}
