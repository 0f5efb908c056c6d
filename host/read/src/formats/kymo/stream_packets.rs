//! Iterator over the packets of one stream and the damage between them.
//!
//! [`Input::suspect`] lists the packets whose records may be damaged, before any record is read: where one record
//! turns out to be invalid, the records before it may be invalid too and must not have been counted.

use std::collections::VecDeque;

use kymo_wire::event::PacketHeader;

use super::feed::Input;
use super::packets::{Damaged, Packet, Piece, Pieces};
use super::streams::StreamNumber;

/// Iterates over the packets of a stream, with a look-ahead of one packet.
#[derive(Debug)]
pub(super) struct StreamPackets {
    pub(super) input: Input,
    /// The offset of the next piece in the input.
    at: usize,
    /// Whether the previous packet belongs to this stream: the damage after it then does too.
    ours: bool,
    next: Option<Packet>,
    /// The unreadable ranges before `next`.
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

    /// Takes the next unreadable range before the next packet.
    pub(super) fn damage(&mut self) -> Option<Damaged> {
        self.damage.pop_front()
    }

    /// Reports the unreadable end of the current packet.
    pub(super) fn cut(&mut self, mut damaged: Damaged) {
        // Adjacent damage is reported once.
        if self.damage.front().is_some_and(|next| damaged.join(next)) {
            self.damage.pop_front();
        }
        self.damage.push_front(damaged);
    }

    /// The header of the next packet.
    pub(super) fn peek(&self) -> Option<&PacketHeader> {
        self.next.as_ref().map(|packet| &packet.header)
    }

    /// Returns the next packet, and whether it is the last one. Callers first report the damage before it
    /// ([`damage`](Self::damage)).
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
        // The extent of a piece depends on the bytes after it, so all bytes are searched, not only
        // those of this stream.
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
