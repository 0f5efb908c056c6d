//! Streams that a target wrote around a ring of packets in its memory.
//!
//! Who keeps the newest packets in a fixed memory overwrites the oldest, so that a dump of that memory begins
//! with a packet from its middle (Zephyr's circular buffer is one). All packets are of one size and have
//! numbers there, so that the oldest is found by a few looks at packets' heads; read from there on the
//! stream is in order, and nothing in it looks lost.

use std::io::{self, Read};
use std::sync::Arc;

use super::file::StreamInput;
use super::stream::{Message, StreamReader};
use super::trace::{Source, Trace};

/// So much is read for the head of a packet at first.
const HEAD: usize = 4096;

/// What the head of a packet tells.
struct Head {
    number: u64,
    bytes: u64,
    begin: u64,
}

impl Trace {
    /// The same trace, with streams that were written around a ring in order.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        for index in 0..self.streams.len() {
            let turn = self.turn(index);
            if let (Some(turn), Some((_, source))) = (turn, self.streams.get_mut(index)) {
                *source = Source::Ring(Box::new(source.clone()), turn);
            }
        }
        self
    }

    /// Where the oldest packet of a stream begins in its file, in bytes; `None` if that is where the file does.
    #[must_use]
    pub fn oldest(&self, index: usize) -> Option<u64> {
        match self.streams.get(index)? {
            (_, Source::Ring(_, turn)) => Some(*turn),
            _ => None,
        }
    }

    /// Where a ring begins; `None` if the stream is none, or what is wrong with it has to be told.
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
        // Numbers that have few bits fall while time goes on.
        let is_older = |head: &Head| head.number < first.number && head.begin < first.begin;
        if !is_older(&at(count - 1)?) {
            return None;
        }
        // Up to the oldest all are newer than the last.
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
        let input = source.open_at(at).ok()?;
        let mut reader = StreamReader::with_chunk(Arc::clone(self.plan()), input, HEAD);
        loop {
            match reader.next_message().ok()?? {
                Message::Gap(_) => {}
                Message::Packet(packet) => {
                    let info = packet.info();
                    return Some(Head {
                        number: info.seq_num?,
                        begin: info.begin_ticks?,
                        bytes: info.size?.checked_div(8).filter(|bytes| *bytes > 0)?,
                    });
                }
                Message::Event(_) => return None,
            }
        }
    }
}

impl Source {
    /// How many bytes there are; `None` if that can't be known before they are read.
    fn length(&self) -> Option<u64> {
        match self {
            Self::File(path) => {
                let about = std::fs::metadata(path).ok()?;
                about.is_file().then_some(about.len())
            }
            Self::Memory(bytes) => u64::try_from(bytes.len()).ok(),
            Self::Ring(..) => None,
        }
    }

    /// The bytes from a place on.
    fn open_at(&self, at: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(StreamInput::open_at(path.clone(), at)?),
            Self::Memory(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                Box::new(super::trace::Shared {
                    bytes: Arc::clone(bytes),
                    at,
                })
            }
            Self::Ring(ring, turn) => {
                // From the oldest packet to the end, and from there on what stands before it.
                let front = ring.open_at(0)?.take(*turn);
                let mut whole = ring.open_at(*turn)?.chain(front);
                io::copy(&mut whole.by_ref().take(at), &mut io::sink())?;
                Box::new(whole)
            }
        })
    }

    /// All bytes, in the order in which they were written.
    pub(super) fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.open_at(0)
    }
}
