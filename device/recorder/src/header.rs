//! Writes packet headers ([`kymo_wire::packet`]): for streams of events, and for the minimal recorder.

use kymo_wire::event::{PacketHeader, WordSize};
use kymo_wire::packet::PACKET_MAGIC;

use crate::Target;
use crate::memory::Memory;

/// Content of the header of a new packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Stream, flags and CPU, as in the header's second word.
    pub identity: u32,
    /// The packet's number.
    pub sequence: u32,
    /// Number of records lost before it.
    pub discarded: u32,
    /// Begin of the packet.
    pub now: u64,
    /// The thread running at that time.
    pub thread: usize,
}

impl Header {
    /// Writes the header of a packet without records.
    ///
    /// # Safety
    /// `place` is a multiple of 8 bytes, with memory for a header that nobody else writes.
    #[inline(always)]
    pub unsafe fn begin<T: Target>(self, place: *mut u8) {
        let bits = T::LAYOUT.header_bytes() as u32 * 8;
        // SAFETY: by this function's contract.
        unsafe {
            Memory::<T>::put32(place, 0, PACKET_MAGIC);
            Memory::<T>::put32(place, 4, self.identity);
            Memory::<T>::put32(place, PacketHeader::SEQUENCE_OFFSET, self.sequence);
            Memory::<T>::put32(place, PacketHeader::DISCARDED_OFFSET, self.discarded);
            Memory::<T>::put64(place, PacketHeader::BEGIN_OFFSET, self.now);
            Self::end::<T>(place, self.now, bits / 8);
            match T::LAYOUT.word {
                WordSize::Bits32 => {
                    Memory::<T>::put32(place, PacketHeader::WORD_OFFSET, self.thread as u32);
                }
                WordSize::Bits64 => {
                    Memory::<T>::put64(place, PacketHeader::WORD_OFFSET, self.thread as u64);
                }
            }
        }
    }

    /// Updates the header with the size of the packet, including the header, and with the time of its last record.
    ///
    /// # Safety
    /// There is a header, which nobody else writes.
    #[inline(always)]
    pub unsafe fn end<T: Target>(place: *mut u8, last: u64, content: u32) {
        // SAFETY: by this function's contract.
        unsafe {
            Memory::<T>::put64(place, PacketHeader::END_OFFSET, last);
            Memory::<T>::put32(place, PacketHeader::CONTENT_OFFSET, content * 8);
            Memory::<T>::put32(place, PacketHeader::CONTENT_OFFSET + 4, content * 8);
        }
    }
}
