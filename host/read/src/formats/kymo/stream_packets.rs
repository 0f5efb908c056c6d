//! The packets of one stream, one after the other, and what is damaged between them.
//!
//! Packets whose records may be damaged are known beforehand ([`Input::suspect`]): where one record is found to be none,
//! those in front of it may be none either, and must not have been counted by then.

use std::collections::VecDeque;

use kymo_wire::event::PacketHeader;

use super::feed::Input;
use super::packets::{Damaged, Packet, Piece, Pieces};
use super::streams::StreamNumber;

/// Goes from packet to packet of a stream.
#[derive(Debug)]
pub(super) struct StreamPackets {
    pub(super) input: Input,
    /// The next piece of the input.
    at: usize,
    /// Whether the last packet that was seen was one of ours: damage behind it is ours too.
    ours: bool,
    next: Option<Packet>,
    /// What cannot be read in front of `next`.
    damage: VecDeque<Damaged>,
}

impl StreamPackets {
    pub(super) fn new(input: Input) -> Self {
        let mut packets = Self {
            at: input.range.start,
            input,
            ours: true,
            next: None,
            damage: VecDeque::new(),
        };
        packets.look_ahead();
        packets
    }

    /// What cannot be read in front of the next packet.
    pub(super) fn damage(&mut self) -> Option<Damaged> {
        self.damage.pop_front()
    }

    /// Notes that the end of the packet at hand cannot be read.
    pub(super) fn cut(&mut self, mut damaged: Damaged) {
        // One hole is one damage.
        if self.damage.front().is_some_and(|next| damaged.join(next)) {
            self.damage.pop_front();
        }
        self.damage.push_front(damaged);
    }

    /// The head of the next packet.
    pub(super) fn peek(&self) -> Option<&PacketHeader> {
        self.next.as_ref().map(|packet| &packet.header)
    }

    /// Goes to the next packet, once the damage in front of it has been reported. Tells whether it is the last,
    /// too.
    pub(super) fn next(&mut self) -> Option<(Packet, bool)> {
        let packet = self.next.take()?;
        self.look_ahead();
        if let Some(cut) = &packet.cut {
            self.cut(cut.clone());
        }
        Some((packet, self.next.is_none()))
    }

    /// Finds the next packet of the stream, and the damage before it.
    fn look_ahead(&mut self) {
        let Input {
            layout,
            missing,
            number,
            range,
            bytes,
            suspect,
        } = &self.input;
        // What a piece is depends on what follows it, so it is taken out of all bytes, not only
        // out of this stream's.
        let all = Pieces::new(*layout, bytes, missing);
        let mut pieces = all.clone().starting_at(self.at).heads_only();
        while pieces.offset() < range.end {
            let here = pieces.offset();
            let piece = pieces.next();
            self.at = pieces.offset();
            match piece {
                Some(Piece::Packet(packet)) => {
                    self.ours =
                        number.is_none_or(|number| number == StreamNumber::of(&packet.header));
                    if self.ours {
                        let is_suspect = suspect.binary_search(&packet.bytes.start).is_ok();
                        self.next = match is_suspect && packet.cut.is_none() {
                            false => Some(packet),
                            true => match all.starting_at(here).next() {
                                Some(Piece::Packet(packet)) => Some(packet),
                                _ => None,
                            },
                        };
                        return;
                    }
                }
                Some(Piece::Damage(damaged)) if self.ours => {
                    let joined = self.damage.back_mut().is_some_and(|it| it.join(&damaged));
                    if !joined {
                        self.damage.push_back(damaged);
                    }
                }
                Some(Piece::Damage(_)) => {}
                None => return,
            }
        }
    }
}
