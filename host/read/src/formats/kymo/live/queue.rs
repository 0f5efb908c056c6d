//! Queue of received packets between the input and the reader of their stream.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::feed::{Notes, PacketNote};

/// Packets of a stream that its reader has not consumed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Mutex<VecDeque<Queued>>>);

/// A packet, and its note if it was made by the input; else [`Feed`] makes one.
type Queued = (Vec<u8>, Option<PacketNote>);

impl Queue {
    fn packets(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, packet: Queued) {
        self.packets().push_back(packet);
    }
}

/// Reader of the bytes of a stream's packets; ends, temporarily, when the queue is empty.
#[derive(Debug)]
pub(super) struct Feed {
    queue: Queue,
    notes: Notes,
    /// The current packet, and the number of its bytes already read.
    packet: Vec<u8>,
    at: usize,
    /// The offset of the packet in the stream.
    offset: usize,
}

impl Feed {
    pub(super) fn new(queue: &Queue, notes: &Notes) -> Self {
        Self {
            queue: queue.clone(),
            notes: notes.clone(),
            packet: Vec::new(),
            at: 0,
            offset: 0,
        }
    }
}

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.packet.len() {
            let Some((next, note)) = self.queue.packets().pop_front() else {
                return Ok(0);
            };
            self.offset += self.packet.len();
            (self.packet, self.at) = (next, 0);
            self.notes.packet(note.unwrap_or(PacketNote {
                offset: self.offset,
                cut: false,
                last: false,
            }));
        }
        let mut rest = self.packet.get(self.at..).unwrap_or(&[]);
        let count = rest.read(out)?;
        self.at += count;
        Ok(count)
    }
}
