//! Reads a ring: while it is sealed, or beside its writer in mode *stream*.

use kymo_wire::event::{ByteOrder, PacketHeader};

use super::Ring;
use crate::Target;
use crate::sync::Ordering;

impl<T: Target> Ring<T> {
    /// Number of packets kept.
    pub fn kept(&self) -> u32 {
        let (begun, packets) = (self.sequence.load(Ordering::Acquire), self.packets.get());
        // (The packet numbers may have wrapped around to 0.)
        if self.round.get() {
            packets
        } else {
            begun.min(packets)
        }
    }

    /// The header of the packet at `start`.
    pub(super) fn header(&self, start: u32) -> Option<PacketHeader> {
        let mut bytes = [0; PacketHeader::MAX_BYTES];
        for (bytes, offset) in bytes.chunks_exact_mut(4).zip((start..).step_by(4)) {
            bytes.copy_from_slice(&match T::LAYOUT.order {
                ByteOrder::Little => self.word(offset).to_le_bytes(),
                ByteOrder::Big => self.word(offset).to_be_bytes(),
            });
        }
        PacketHeader::read(T::LAYOUT, &bytes)
    }

    /// The `n`th of the kept packets, oldest first; `None` behind the last.
    ///
    /// # Safety
    /// The ring has been [sealed](Self::seal), and its writer is excluded as long as the slice is used.
    pub unsafe fn packet(&self, n: u32) -> Option<&[u8]> {
        let (kept, packets) = (self.kept(), self.packets.get());
        if n >= kept {
            return None;
        }
        let newest = Self::packet_of(self.at.load(Ordering::Relaxed)) as usize
            - self.memory.load(Ordering::Relaxed) as usize;
        let newest = (newest / Self::PACKET) as u32;
        let place = (newest + packets - (kept - 1 - n)) % packets;
        // SAFETY: nobody writes, by this function's contract.
        unsafe { self.place(place) }
    }

    /// The packet in a slot.
    ///
    /// # Safety
    /// It is closed, and nobody writes to it as long as the slice is used.
    unsafe fn place(&self, place: u32) -> Option<&[u8]> {
        let start = place * Self::PACKET as u32;
        let length = (self.word(start + PacketHeader::CONTENT_OFFSET as u32) / 8) as usize;
        if length > Self::PACKET {
            return None;
        }
        // SAFETY: it lies in the slot, which the memory has; initialized by the contract of `new`.
        Some(unsafe { core::slice::from_raw_parts(self.pointer(start), length) })
    }

    /// In mode *stream*: the oldest packet that is closed and has not been released. For one reader, beside the writer.
    pub fn next(&self) -> Option<&[u8]> {
        self.waiting(0)
    }

    /// In mode *stream*: the `n`th of the packets that are closed and have not been released, oldest
    /// first.
    pub fn waiting(&self, n: u32) -> Option<&[u8]> {
        let taken = self.taken.load(Ordering::Relaxed);
        if n >= self.closed.load(Ordering::Acquire).wrapping_sub(taken) {
            return None;
        }
        // (Fewer packets wait than there are slots.)
        let place = self.reading.get().wrapping_add(n) % self.packets.get().max(1);
        // SAFETY: closed, and the writer does not reuse this slot before it is released.
        unsafe { self.place(place) }
    }

    /// Returns the slot of the packet that [`next`](Self::next) returned to the writer.
    pub fn release(&self) {
        self.reading.set(self.behind(self.reading.get()));
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
    }
}
