//! Streams that a target wrote into a ring of packets in its memory.
//!
//! A target that keeps the newest packets in a fixed buffer overwrites the oldest, so that a dump of the buffer begins
//! in the middle of the sequence (Zephyr's circular buffer is one example). If all packets have one size and sequence
//! numbers, a binary search over their heads finds the oldest packet; read from there on, the stream is in order and
//! shows no false losses.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::file::StreamInput;
use super::trace::{Source, Trace};

/// Bytes that are read first for the head of a packet.
pub(super) const HEAD: usize = 4096;

/// Facts from the head of a packet.
struct Head {
    number: u64,
    bytes: u64,
    begin: u64,
}

impl Trace {
    /// Joins the files of a stream, and reorders streams that were written into a ring.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.join_files();
        for index in 0..self.streams.len() {
            let turn = self.turn(index);
            if let (Some(turn), Some((_, source))) = (turn, self.streams.get_mut(index)) {
                *source = Source::Ring(Box::new(source.clone()), turn);
            }
        }
        self
    }

    /// Offset of the oldest packet of a stream in its file, in bytes; `None` if it is at the beginning.
    #[must_use]
    pub fn oldest(&self, index: usize) -> Option<u64> {
        match self.streams.get(index)? {
            (_, Source::Ring(_, turn)) => Some(*turn),
            _ => None,
        }
    }

    /// Offset of the oldest packet in a ring; `None` if the stream is not a ring, or has an error that must be
    /// reported.
    fn turn(&self, index: usize) -> Option<u64> {
        let (_, source) = self.streams.get(index)?;
        let length = source.length()?;
        let first = self.head(source, 0)?;
        let count = length.checked_div(first.bytes)?;
        if count < 2 || length % first.bytes != 0 {
            return None;
        }
        let at = |packet: u64| {
            let head = self.head(source, packet * first.bytes)?;
            (head.bytes == first.bytes).then_some(head)
        };
        // Narrow sequence numbers wrap, so they can decrease while time increases.
        let is_older = |head: &Head| head.number < first.number && head.begin < first.begin;
        if !is_older(&at(count - 1)?) {
            return None;
        }
        // All packets before the oldest are newer than the last.
        let (mut newer, mut older) = (0, count - 1);
        while older - newer > 1 {
            let middle = newer + (older - newer) / 2;
            if is_older(&at(middle)?) {
                older = middle;
            } else {
                newer = middle;
            }
        }
        Some(older * first.bytes)
    }

    fn head(&self, source: &Source, at: u64) -> Option<Head> {
        let info = self.packet_at(source, at)?;
        Some(Head {
            number: info.seq_num?,
            begin: info.begin_ticks?,
            bytes: info.size?.checked_div(8).filter(|bytes| *bytes > 0)?,
        })
    }
}

impl Source {
    /// Number of bytes; `None` if it is unknown before they are read.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::File(path) => {
                let about = std::fs::metadata(path).ok()?;
                about.is_file().then_some(about.len())
            }
            Self::Memory(bytes) => u64::try_from(bytes.len()).ok(),
            Self::Ring(..) | Self::Joined(_) => None,
        }
    }

    /// The directory of a file.
    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Self::File(path) => path.parent(),
            _ => None,
        }
    }

    /// The bytes from an offset on.
    pub(super) fn open_at(&self, at: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(StreamInput::open_at(path.clone(), at)?),
            Self::Memory(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                Box::new(super::trace::Shared {
                    bytes: Arc::clone(bytes),
                    at,
                })
            }
            Self::Joined(parts) => match parts.first() {
                Some((_, first)) => first.open_at(at)?,
                None => Box::new(io::empty()),
            },
            Self::Ring(ring, turn) => {
                // From the oldest packet to the end, then the part before it.
                let front = ring.open_at(0)?.take(*turn);
                let mut whole = ring.open_at(*turn)?.chain(front);
                io::copy(&mut whole.by_ref().take(at), &mut io::sink())?;
                Box::new(whole)
            }
        })
    }

    /// The files of the stream behind the first one.
    pub(super) fn following(&self) -> Vec<Self> {
        match self {
            Self::Joined(parts) => parts.iter().skip(1).map(|(_, it)| it.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// All bytes of the first file, in the order in which they were written.
    pub(super) fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.open_at(0)
    }
}
