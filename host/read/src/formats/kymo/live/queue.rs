//! Packets on their way to the reader of their stream.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::feed::{Notes, PacketNote};

/// Packets of a stream that its reader has not taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Mutex<VecDeque<Queued>>>);

/// A packet, and what is to be known of it, if that is more than where it is among the others.
type Queued = (Vec<u8>, Option<PacketNote>);

impl Queue {
    fn packets(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, packet: Queued) {
        self.packets().push_back(packet);
    }
}

/// Gives the bytes of a stream's packets, as far as there are any.
#[derive(Debug)]
pub(super) struct Feed {
    queue: Queue,
    notes: Notes,
    /// The packet at hand, and how much of it has been given.
    packet: Vec<u8>,
    at: usize,
    /// Where in the stream the packet begins.
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
