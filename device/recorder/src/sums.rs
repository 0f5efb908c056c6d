//! Checksums of packets, in memory that survives a reset: `kymo_packet_sum_t`.
//!
//! A packet has no checksum of its own: in RAM there is nothing to protect it from, and on the link each frame has one.
//! A reset may damage RAM, however, and what survives it must not be believed. So a program can give memory for one
//! checksum per slot of the buffer. A packet's checksum is computed after the next one has been begun, by the hook that
//! began it, with interrupts enabled: at that point nobody changes the packet anymore, and a whole buffer of events must
//! be recorded before it is overwritten. The newest packet therefore has none.

use core::cell::Cell;

#[cfg(feature = "sums")]
use crate::Target;
#[cfg(feature = "sums")]
use crate::encode::Stream;

/// The checksum of one packet.
#[repr(C)]
#[derive(Debug)]
pub struct Sum {
    /// The packet's number.
    sequence: Cell<u32>,
    /// Its checksum; [`NONE`]: it has none.
    sum: Cell<u32>,
}

/// [`Sum::sum`] of a packet whose content may still have changed.
const NONE: u32 = 0;

/// Initial value: not 0, with which all of the memory may be filled.
const MAGIC: u32 = 0x4B79_5375;

/// The FNV prime for 32-bit words; multiplication by it loses no change of a single bit.
const PRIME: u32 = 16_777_619;

/// The memory of a program, one for each slot of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Sums(&'static [Sum]);

/// What is known of a packet that survived a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its checksum matches.
    Verified,
    /// It has no checksum.
    Unverified,
    /// Its checksum does not match.
    Damaged,
}

impl Sums {
    /// No memory.
    pub const NONE: Self = Self(&[]);

    /// The program's memory.
    ///
    /// # Safety
    /// There are so many at `first`, which only the recorder uses.
    pub unsafe fn new(first: *const Sum, count: u32) -> Self {
        // SAFETY: by this function's contract.
        Self(unsafe { core::slice::from_raw_parts(first, count as usize) })
    }

    /// Whether there are no checksums.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the packet with this number has a checksum in slot `slot`.
    pub fn has(self, slot: usize, sequence: u32) -> bool {
        let sum = self.0.get(slot);
        sum.is_some_and(|sum| sum.sequence.get() == sequence && sum.sum.get() != NONE)
    }

    /// Compares the content of the packet in slot `slot` with its checksum.
    pub fn check(self, slot: usize, sequence: u32, content: &[u8]) -> Verdict {
        let Some(sum) = self.0.get(slot).filter(|_| self.has(slot, sequence)) else {
            return Verdict::Unverified;
        };
        // SAFETY: the slice is there.
        let found = unsafe { checksum(content.as_ptr(), content.len()) };
        match sum.sum.get() == found {
            true => Verdict::Verified,
            false => Verdict::Damaged,
        }
    }

    #[cfg(feature = "sums")]
    fn store(self, slot: u32, sequence: u32, sum: u32) {
        if let Some(it) = self.0.get(slot as usize) {
            it.sequence.set(sequence);
            it.sum.set(sum);
        }
    }
}

/// The checksum of so many bytes; not [`NONE`].
///
/// # Safety
/// They are there, from a multiple of 4 on.
#[inline(never)]
unsafe fn checksum(content: *const u8, bytes: usize) -> u32 {
    let more = |sum: u32, word: u32| (sum.rotate_left(5) ^ word).wrapping_mul(PRIME);
    let mut sum = MAGIC;
    // SAFETY: `at` is below `bytes`, and so is the last byte of the word. (Volatile, because an interrupt may overwrite
    // the packet.)
    let word = |at: usize| unsafe { content.add(at).cast::<u32>().read_volatile() };
    let mut at = 0;
    while at + 16 <= bytes {
        // (Compilers that optimize for size do not unroll loops.)
        sum = more(sum, word(at));
        sum = more(sum, word(at + 4));
        sum = more(sum, word(at + 8));
        sum = more(sum, word(at + 12));
        at += 16;
    }
    while at < bytes {
        // SAFETY: as above.
        sum = more(sum, unsafe { content.add(at).read_volatile() }.into());
        at += 1;
    }
    if sum == NONE { MAGIC } else { sum }
}

/// A packet whose checksum is due.
#[cfg(feature = "sums")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    slot: u32,
    sequence: u32,
    content: *const u8,
    bytes: usize,
}

#[cfg(feature = "sums")]
impl Due {
    /// Its checksum.
    pub fn checksum(&self) -> u32 {
        // SAFETY: it is a packet of the buffer.
        unsafe { checksum(self.content, self.bytes) }
    }
}

/// How far the checksums have come.
#[cfg(feature = "sums")]
#[derive(Debug)]
pub(crate) struct Progress {
    sums: Cell<Sums>,
    /// Number of the first packet that was not considered yet.
    next: Cell<u32>,
}

#[cfg(feature = "sums")]
impl Progress {
    /// Without memory for checksums.
    pub const fn new() -> Self {
        Self {
            sums: Cell::new(Sums::NONE),
            next: Cell::new(0),
        }
    }

    /// Sets the memory, if it suffices for this number of slots.
    pub fn set(&self, sums: Sums, slots: u32) {
        let fits = sums.0.len() >= slots as usize;
        self.sums.set(if fits { sums } else { Sums::NONE });
    }

    /// Whether there is memory for checksums.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        !self.sums.get().is_empty()
    }

    /// The next packet whose checksum is due; the caller has exclusive access. A packet that was closed while a record
    /// of the program's own was being filled gets none, because that record may be in it.
    pub fn due<T: Target>(&self, stream: &Stream<T>) -> Option<Due> {
        let buffer = stream.buffer();
        // The header of the newest packet may still change.
        let end = buffer.begun().wrapping_sub(1);
        loop {
            let waiting = end.wrapping_sub(self.next.get());
            // After events were cleared `end` is below `next`.
            let waiting = waiting.min(buffer.present().saturating_sub(1));
            let sequence = end.wrapping_sub(waiting);
            if waiting == 0 {
                self.next.set(end);
                return None;
            }
            self.next.set(sequence.wrapping_add(1));
            let slot = buffer.slot_before_newest(waiting);
            let (content, bytes) = buffer.packet_in(slot)?;
            if !stream.is_reserved() {
                return Some(Due {
                    slot,
                    sequence,
                    content,
                    bytes,
                });
            }
            self.sums.get().store(slot, sequence, NONE);
        }
    }

    /// Stores the checksum, if the packet is still there; the caller has exclusive access.
    pub fn finish<T: Target>(&self, stream: &Stream<T>, due: Due, sum: u32) {
        if stream.buffer().sequence_in(due.slot) == due.sequence {
            self.sums.get().store(due.slot, due.sequence, sum);
        }
    }
}

/// The program's memory, if it has any: a weak reference, which Rust cannot express.
#[cfg(all(feature = "sums", target_os = "none", target_pointer_width = "32"))]
mod program {
    use super::{Sum, Sums};

    core::arch::global_asm!(
        ".weak kymo_sums",
        ".weak kymo_sum_count",
        ".pushsection .rodata.kymo_sums_address,\"a\"",
        ".balign 4",
        ".globl kymo_sums_address",
        ".hidden kymo_sums_address",
        "kymo_sums_address:",
        ".4byte kymo_sums",
        ".4byte kymo_sum_count",
        ".popsection",
    );

    // SAFETY: the assembly above defines the words.
    unsafe extern "C" {
        static kymo_sums_address: [*const u32; 2];
    }

    /// Symbol that `KYMO_SUMS` refers to, so that a program with checksums does not link with a library without them.
    #[allow(non_upper_case_globals)]
    #[unsafe(no_mangle)]
    static kymo_sums_part: u8 = 0;

    /// The program's memory for checksums.
    pub fn sums() -> Sums {
        // SAFETY: the linker made them the addresses of the program's constants, or null.
        unsafe {
            let [first, count] = kymo_sums_address;
            match count.as_ref() {
                Some(count) => Sums::new(first.cast::<Sum>(), *count),
                None => Sums::NONE,
            }
        }
    }
}

#[cfg(all(feature = "sums", target_os = "none", target_pointer_width = "32"))]
pub use program::sums as of_program;

/// The program's memory for checksums: there is none in this library.
#[cfg(not(all(feature = "sums", target_os = "none", target_pointer_width = "32")))]
pub const fn of_program() -> Sums {
    Sums::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_is_noticed() {
        for bytes in [44, 45, 47, 60, 64, 79] {
            let mut words = [0x0123_4567_89AB_CDEFu64; 10];
            let first: *mut u8 = words.as_mut_ptr().cast();
            // SAFETY: `bytes` are in `words`, which only this uses.
            let content = || unsafe { core::slice::from_raw_parts(first, bytes) };
            // SAFETY: as above.
            let sum = || unsafe { checksum(first, bytes) };
            let kept = Sum {
                sequence: Cell::new(7),
                sum: Cell::new(sum()),
            };
            let none = Sum {
                sequence: Cell::new(8),
                sum: Cell::new(NONE),
            };
            let sums = Sums(Box::leak(Box::new([kept, none])));
            assert_eq!(sums.check(0, 7, content()), Verdict::Verified);
            for bit in 0..bytes * 8 {
                // SAFETY: as above.
                let flip = || unsafe { *first.add(bit / 8) ^= 1 << (bit % 8) };
                flip();
                assert_eq!(sums.check(0, 7, content()), Verdict::Damaged, "{bit}");
                flip();
            }
            // Of another packet, without one, and beyond the memory.
            for (slot, sequence) in [(0, 8), (1, 8), (2, 7)] {
                let found = sums.check(slot, sequence, content());
                assert_eq!(found, Verdict::Unverified);
            }
            assert!(sums.has(0, 7) && !sums.has(1, 8) && !sums.has(2, 7));
        }
    }
}
