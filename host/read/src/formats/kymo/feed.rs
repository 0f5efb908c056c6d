//! The packets of one stream, repaired, as the plain stream of bytes that a CTF reader takes.
//!
//! The CTF reader knows packets that are as its specification wants them. Here all others are
//! kept from it: damage is left out and cut packets get a head that is right again. What was
//! done is written down in [`Notes`], so that the one who reads the events can tell of it at the
//! right place.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kymo_wire::event::{Layout, PacketHeader};

use super::packets::{Damaged, Packet, Piece, Pieces};
use super::streams::StreamNumber;
use crate::bytes::Bytes;

/// Which bytes are a stream, and what of them.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) layout: Layout,
    pub(super) bytes: Bytes,
    /// The parts that never arrived.
    pub(super) missing: Arc<[Range<u64>]>,
    /// Where the stream is; packets of others may stand in between.
    pub(super) range: Range<usize>,
    /// The stream whose packets are meant; `None` if all are.
    pub(super) number: Option<StreamNumber>,
    /// Where the packets of the stream begin whose records may not be whole, in their order.
    pub(super) suspect: Arc<[usize]>,
}

/// What is to be known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketNote {
    /// Where it begins in the input.
    pub(super) offset: usize,
    /// Whether it was cut here.
    pub(super) cut: bool,
    /// Whether it is the last of the stream.
    pub(super) last: bool,
}

/// The notes of a stream; shared between the feed, which runs ahead, and the one who reads the
/// events.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    packets: VecDeque<PacketNote>,
    /// What was left out, with the number of the packet in front of which it was.
    damage: VecDeque<(u64, Damaged)>,
}

impl Notes {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was left out in front of the packet of this number. What adjoins is joined: a
    /// file of nothing but damage must not fill the memory.
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

    /// Notes a packet that comes next.
    pub(super) fn packet(&self, note: PacketNote) {
        self.queues().packets.push_back(note);
    }

    /// The note on the next packet, in order; each packet has one.
    pub(super) fn next_packet(&self) -> Option<PacketNote> {
        self.queues().packets.pop_front()
    }

    /// The next damage in front of the packet of this number, or of an earlier one.
    pub(super) fn damage_before(&self, packet: u64) -> Option<Damaged> {
        let mut queues = self.queues();
        queues
            .damage
            .front()
            .filter(|(number, _)| *number <= packet)?;
        queues.damage.pop_front().map(|(_, damaged)| damaged)
    }
}

/// Gives the bytes of the packets, one packet after the other.
#[derive(Debug)]
pub(super) struct Feed {
    input: Input,
    notes: Notes,
    /// The next piece of the input.
    at: usize,
    /// Whether the last packet that was seen was one of ours: damage behind it is ours too.
    ours: bool,
    /// The number of the next packet, and the packet.
    count: u64,
    next: Option<Packet>,
    /// What is left to give of the packet at hand: its head, if that is a new one, and its bytes.
    head: ([u8; PacketHeader::MAX_BYTES], Range<usize>),
    rest: Range<usize>,
}

impl Feed {
    /// The feed of a stream, with the notes that it will make.
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

    /// Finds the next packet of the stream, and notes the damage before it.
    fn look_ahead(&mut self) {
        let Input {
            layout,
            missing,
            number,
            range,
            bytes,
            ..
        } = &self.input;
        // What a piece is depends on what follows it, so it is taken out of all bytes, not only
        // out of this stream's.
        let pieces = |at| Pieces::new(*layout, bytes, missing).starting_at(at);
        while self.at < range.end {
            // The records of other streams' packets are looked at by those.
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

    /// Goes to the next packet; `false` if there is none.
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
        // The note on the packet has to be there before its bytes are, and it has to say whether
        // there are more.
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
