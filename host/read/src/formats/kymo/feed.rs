//! Byte stream of one stream's packets, repaired for the CTF reader.
//!
//! The CTF reader accepts only packets that follow its specification. [`Feed`] therefore removes
//! damaged bytes and gives cut packets a corrected header. It records each repair in [`Notes`], so
//! that the reader of the events can report it at the right position.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kymo_wire::event::{Layout, PacketHeader};

use super::packets::{Damaged, Packet, Piece, Pieces};
use super::streams::StreamNumber;
use crate::bytes::Bytes;

/// Location of a stream in the input.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) layout: Layout,
    pub(super) bytes: Bytes,
    /// The parts that never arrived.
    pub(super) missing: Arc<[Range<u64>]>,
    /// The range of the stream; it may contain packets of other streams.
    pub(super) range: Range<usize>,
    /// The stream whose packets are read; `None` for all packets.
    pub(super) number: Option<StreamNumber>,
    /// The offsets of the stream's packets whose records may be damaged, in ascending order.
    pub(super) suspect: Arc<[usize]>,
}

/// Properties of a packet that its bytes do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketNote {
    /// The packet's offset in the input.
    pub(super) offset: usize,
    /// Whether the feed cut the packet.
    pub(super) cut: bool,
    /// Whether it is the last packet of the stream.
    pub(super) last: bool,
}

/// Notes on a stream's packets, shared between the feed, which runs ahead, and the reader of the
/// events.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    packets: VecDeque<PacketNote>,
    /// The damage that was left out, with the number of the packet after it.
    damage: VecDeque<(u64, Damaged)>,
}

impl Notes {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records damage that was left out before packet number `packet`. Adjacent damage is merged, so
    /// that a file of damage alone does not exhaust memory.
    pub(super) fn left_out(&self, packet: u64, damaged: Damaged) {
        let mut queues = self.queues();
        let joined = queues
            .damage
            .back_mut()
            .is_some_and(|(number, before)| *number == packet && before.join(&damaged));
        if !joined {
            queues.damage.push_back((packet, damaged));
        }
    }

    /// Appends the note on a packet.
    pub(super) fn packet(&self, note: PacketNote) {
        self.queues().packets.push_back(note);
    }

    /// Removes the note on the next packet; each packet has one, in stream order.
    pub(super) fn next_packet(&self) -> Option<PacketNote> {
        self.queues().packets.pop_front()
    }

    /// Removes the next damage before packet number `packet` or before an earlier one.
    pub(super) fn damage_before(&self, packet: u64) -> Option<Damaged> {
        let mut queues = self.queues();
        queues
            .damage
            .front()
            .filter(|(number, _)| *number <= packet)?;
        queues.damage.pop_front().map(|(_, damaged)| damaged)
    }
}

/// Reader of the packets' bytes, one packet after the other.
#[derive(Debug)]
pub(super) struct Feed {
    input: Input,
    notes: Notes,
    /// The offset of the next piece in the input.
    at: usize,
    /// Whether the previous packet belongs to this stream: the damage after it then does too.
    ours: bool,
    /// The number of the next packet, and the packet.
    count: u64,
    next: Option<Packet>,
    /// The unread part of the current packet: its header, if the feed rewrote it, and its bytes.
    head: ([u8; PacketHeader::MAX_BYTES], Range<usize>),
    rest: Range<usize>,
}

impl Feed {
    /// Creates the feed of a stream, and the notes that it fills.
    pub(super) fn new(input: Input) -> (Self, Notes) {
        let notes = Notes::default();
        let mut feed = Self {
            at: input.range.start,
            input,
            notes: notes.clone(),
            ours: true,
            count: 0,
            next: None,
            head: ([0; PacketHeader::MAX_BYTES], 0..0),
            rest: 0..0,
        };
        feed.look_ahead();
        (feed, notes)
    }

    /// Finds the next packet of the stream, and records the damage before it.
    fn look_ahead(&mut self) {
        let Input {
            layout,
            missing,
            number,
            range,
            bytes,
            ..
        } = &self.input;
        // The extent of a piece depends on the bytes after it, so all bytes are searched, not only
        // those of this stream.
        let pieces = |at| Pieces::new(*layout, bytes, missing).starting_at(at);
        while self.at < range.end {
            // The feeds of other streams check the records of their own packets.
            let mut heads = pieces(self.at).heads_only();
            let here = self.at;
            let Some(piece) = heads.next() else { return };
            self.at = heads.offset();
            match piece {
                Piece::Packet(packet) => {
                    self.ours =
                        number.is_none_or(|number| number == StreamNumber::of(&packet.header));
                    if self.ours {
                        if let Some(Piece::Packet(packet)) = pieces(here).next() {
                            self.next = Some(packet);
                        }
                        return;
                    }
                }
                Piece::Damage(damaged) if self.ours => {
                    self.notes.left_out(self.count, damaged);
                }
                Piece::Damage(_) => {}
            }
        }
    }

    /// Starts the next packet; `false` if there is none.
    fn advance(&mut self) -> bool {
        let Some(packet) = self.next.take() else {
            return false;
        };
        let Packet { header, bytes, cut } = packet;
        self.count += 1;
        self.rest = bytes.clone();
        if let Some(cut) = cut {
            if let Some(size) = header.write(self.input.layout, &mut self.head.0) {
                self.head.1 = 0..size;
                self.rest.start += size;
            }
            self.notes.left_out(self.count, cut);
        }
        // The note must precede the packet's bytes, and it states whether more packets follow.
        self.look_ahead();
        let note = PacketNote {
            offset: bytes.start,
            cut: !self.head.1.is_empty(),
            last: self.next.is_none(),
        };
        self.notes.packet(note);
        true
    }
}

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.head.1.is_empty() && self.rest.is_empty() && !self.advance() {
            return Ok(0);
        }
        let (source, range) = if self.head.1.is_empty() {
            (&*self.input.bytes, &mut self.rest)
        } else {
            (&self.head.0[..], &mut self.head.1)
        };
        let mut rest = source.get(range.clone()).unwrap_or(&[]);
        let count = rest.read(out)?;
        range.start += count;
        Ok(count)
    }
}
