//! An input from its first byte to the last record.

use std::io::Read;

use crate::container::{Container, Step};
use crate::error::{Error, Fault};
use crate::plausible::Plausible;
use crate::stream::Items;
use crate::timeline::Timeline;
use crate::{Header, Kind, Record, ThreadName};

/// What was met while reading a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records that the target could not keep.
    pub lost: u64,
    /// Pairs of uptime items.
    pub pairs: u64,
    /// Records whose times were worked out from those of other processors.
    pub uncertain: u64,
    /// Records whose times would have gone back, and were held at that of the record before.
    pub put_back: u64,
    /// By how many nanoseconds at most.
    pub put_back_most_ns: u64,
}

impl Statistics {
    /// Adds those of another reader.
    pub fn add(&mut self, other: &Self) {
        self.lost = self.lost.saturating_add(other.lost);
        self.pairs += other.pairs;
        self.uncertain += other.uncertain;
        self.put_back += other.put_back;
        self.put_back_most_ns = self.put_back_most_ns.max(other.put_back_most_ns);
    }
}

/// Reads records from any input: a file, a console's log, a connection to a target.
pub struct Reader<R> {
    container: Container<R>,
    /// Of a text: bytes that are not read yet.
    plausible: Plausible,
    items: Items,
    timeline: Timeline,
    bytes: Vec<u8>,
    /// Dumps that have begun.
    dumps: u16,
    /// Whether one is open.
    open: bool,
    /// Whether records are shown as they come, so that none waits for later ones.
    is_live: bool,
    /// Bytes of items since records were given out.
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
    /// A reader of an input, which is recognised by its first bytes ([`probe`](crate::probe)).
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

    /// A user waits for what comes: a processor without uptime holds the others back for a bounded time only.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Whether records are shown as they come, so that none waits for later ones.
    pub const fn is_live(&self) -> bool {
        self.is_live
    }

    /// Adds the next records to `out`, in the order of time within a dump, maybe none yet; `false` after the last one.
    ///
    /// Reads the input once at most, unless its kind has to be found out first: what comes from a live target is given
    /// as it comes.
    ///
    /// # Errors
    /// [`Error`] if the input cannot be read on; what was read before has been given. What is wrong with the
    /// bytes is no error: see [`take_faults`](Self::take_faults).
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
            // Unless the bytes before it have ended the dump.
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

    /// What was text can lack lines.
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
        /// Bytes between two looks at what is ready, so that records of processors that were sent long after each other are
        /// in order, too; and in the same order whatever a stream is packed in.
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

    /// The dump that is open ends, and has said already what is wrong if it is `broken`.
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

    /// Something is wrong with the items.
    fn fault(&mut self, fault: Fault) {
        let decoded = !matches!(self.container.kind(), Some(Kind::Raw) | None);
        self.faults.push(Fault { decoded, ..fault });
    }

    /// The input.
    pub const fn input(&self) -> &R {
        self.container.source()
    }

    /// The same, to change what it gives.
    pub const fn input_mut(&mut self) -> &mut R {
        self.container.source_mut()
    }

    /// The input, at the place that was read up to.
    pub fn into_input(self) -> R {
        self.container.into_source()
    }

    /// What the stream says of its target so far; of several dumps, the last one.
    pub const fn header(&self) -> &Header {
        self.items.header()
    }

    /// Whether that holds all that records need.
    pub const fn is_described(&self) -> bool {
        self.items.is_described()
    }

    /// Whether the items of a processor have begun: then the header has all that the stream says of its target.
    pub const fn has_started(&self) -> bool {
        self.items.started
    }

    /// What the input comes as, once anything was read.
    pub const fn kind(&self) -> Option<Kind> {
        self.container.kind()
    }

    /// How many dumps have begun.
    pub const fn dumps(&self) -> u16 {
        self.dumps
    }

    /// The names of threads that have become known.
    pub fn take_names(&mut self) -> Vec<ThreadName> {
        std::mem::take(&mut self.names)
    }

    /// What was found to be wrong.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Whether something was found to be wrong that was not [taken](Self::take_faults).
    pub const fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// What was met so far.
    pub fn statistics(&self) -> Statistics {
        let mut all = self.statistics;
        if self.open {
            all.add(self.timeline.statistics());
        }
        all
    }

    /// Lines of a console's log that stood among those of a dump.
    pub const fn foreign_lines(&self) -> u64 {
        self.container.foreign_lines
    }
}
