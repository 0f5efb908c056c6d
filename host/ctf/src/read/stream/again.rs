//! A damaged packet, continued in another file of the stream that has the packet, too: snapshots have packets in common.

use std::sync::Arc;

use super::super::event::{Packet, PacketInfo};
use super::super::ring::HEAD;
use super::super::trace::Source;
use super::packet::Previous;
use super::{Message, StreamReader};
use crate::error::DecodeError;
use crate::plan::Plan;

/// What it takes to begin a packet once more.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// The packet before the current one.
    pub before: Option<Previous>,
    /// Number of events to pass over in the next packet; `None` if it is not begun once more.
    pub events: Option<u64>,
    /// Number of damaged packets that no other file has.
    searched: u32,
}

/// Number of damaged packets that may be in no other file before none is searched any more.
const MOST_SEARCHED: u32 = 64;

impl StreamReader {
    /// What `read` takes from the head of the packet at an offset of a file.
    pub(in crate::read) fn head_at<T>(
        plan: &Arc<Plan>,
        source: &Source,
        at: u64,
        read: impl FnOnce(Packet<'_>) -> T,
    ) -> Option<T> {
        let input = source.open_at(at).ok()?;
        let mut reader = Self::with_chunk(Arc::clone(plan), input, HEAD);
        loop {
            match reader.next_message().ok()?? {
                Message::Gap(_) => {}
                Message::Packet(packet) => return Some(read(packet)),
                Message::Event(_) => return None,
            }
        }
    }

    /// The packets of a file up to the first that cannot be read, with their offsets: what they state about themselves.
    pub(in crate::read) fn heads<'s>(
        plan: &'s Arc<Plan>,
        source: &'s Source,
    ) -> impl Iterator<Item = (u64, PacketInfo)> + 's {
        let length = source.length().unwrap_or(0);
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let at = next.take().filter(|at| *at < length)?;
            let packet = Self::head_at(plan, source, at, |packet| *packet.info())?;
            let bytes = packet.size.map(|bits| bits / 8).filter(|bytes| *bytes > 0);
            next = bytes.and_then(|bytes| at.checked_add(bytes));
            Some((at, packet))
        })
    }

    /// After damage: goes to the next file that has the packet, too, and returns whether there is one. The events of the
    /// packet that have been returned are passed over there.
    pub(super) fn take_from_another_file(&mut self) -> Result<bool, DecodeError> {
        if self.again.searched >= MOST_SEARCHED || self.following.as_slice().is_empty() {
            return Ok(false);
        }
        let files = self.following.as_slice().iter();
        let Some(ahead) = files.clone().position(|file| self.is_in(file)) else {
            self.again.searched += 1;
            return Ok(false);
        };
        if self.open {
            // As if it had not begun.
            self.again.events = Some(self.events);
            let here = Previous::key_of(&self.view.packet);
            if let Some(place) = self.previous.iter().position(|it| it.key() == here) {
                match (self.again.before.take(), self.previous.get_mut(place)) {
                    (Some(before), Some(now)) => *now = before,
                    _ => drop(self.previous.remove(place)),
                }
            }
        }
        self.packets = self.packets.saturating_sub(1);
        for _ in 0..ahead {
            self.file += 1;
            self.following.next();
        }
        self.next_file()
    }

    /// Whether a file has the damaged packet: by its head, or, if that is damaged, as the one behind the last packet.
    fn is_in(&self, file: &Source) -> bool {
        let packet = &self.view.packet;
        let last = match self.open {
            true => Previous::key_of(packet),
            false => match self.previous.as_slice() {
                [one] => one.key(),
                _ => return false,
            },
        };
        let mut known = self.previous.iter();
        let Some(known) = known.find(|it| it.key() == last) else {
            return false;
        };
        let Some(number) = known.number(known.sequence.is_some()) else {
            return false;
        };
        let mut before = None;
        for (_, head) in Self::heads(&self.view.plan, file) {
            let at = match known.sequence {
                Some(_) => head.seq_num,
                None if head.seq_num.is_some() => return false,
                None => head.begin_ticks,
            };
            let Some(at) = at.filter(|_| !head.foreign && Previous::key_of(&head) == last) else {
                return false;
            };
            if self.open && at >= number {
                return at == number;
            }
            if at > number {
                let is_next = known.sequence.is_some() && number.checked_add(1) == Some(at);
                return is_next || before == Some(number);
            }
            before = Some(at);
        }
        false
    }

    /// Passes over the events of a packet that have been returned from another file.
    pub(super) fn pass_over(&mut self) -> Result<(), DecodeError> {
        let Some(events) = self.again.events.take() else {
            return Ok(());
        };
        while self.events < events && self.next_event()? {
            self.batch.clear();
            self.events += 1;
        }
        Ok(())
    }
}
