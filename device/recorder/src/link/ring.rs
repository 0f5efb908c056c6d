//! Byte ring between the interrupt handler that receives bytes and the context that reads them.
//!
//! One producer, one consumer, no lock. When the ring is full the producer stores a mark ([`LOST`]) where bytes are
//! missing and counts them, so that a command that lost its middle is not taken for another one. (Inside a frame the
//! mark is a byte like any other; there the checksum detects it.)

use core::sync::atomic::{AtomicBool, AtomicU8};

use crate::sync::{AtomicU32, Ordering, add};

/// Number of bytes in the ring; one of them is for the mark.
pub const BYTES: usize = 512;

/// Mark for lost bytes (*cancel* in ASCII).
pub const LOST: u8 = 0x18;

/// The ring. All zero when empty.
#[derive(Debug)]
pub struct Ring {
    /// Number of bytes stored so far.
    put: AtomicU32,
    /// Number of bytes removed so far.
    taken: AtomicU32,
    /// Whether the last byte stored is the mark.
    marked: AtomicBool,
    lost: AtomicU32,
    bytes: [AtomicU8; BYTES],
}

impl Ring {
    /// An empty ring.
    pub const fn new() -> Self {
        Self {
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            marked: AtomicBool::new(false),
            lost: AtomicU32::new(0),
            bytes: [const { AtomicU8::new(0) }; BYTES],
        }
    }

    /// Stores a byte. For the one producer.
    pub fn push(&self, byte: u8) {
        let put = self.put.load(Ordering::Relaxed);
        let used = put.wrapping_sub(self.taken.load(Ordering::Acquire)) as usize;
        if used < BYTES - 1 {
            self.store(put, byte);
            self.marked.store(false, Ordering::Relaxed);
            return;
        }
        add(&self.lost, 1);
        if used < BYTES && !self.marked.load(Ordering::Relaxed) {
            self.store(put, LOST);
            self.marked.store(true, Ordering::Relaxed);
        }
    }

    fn store(&self, put: u32, byte: u8) {
        if let Some(place) = self.bytes.get(put as usize % BYTES) {
            place.store(byte, Ordering::Relaxed);
        }
        self.put.store(put.wrapping_add(1), Ordering::Release);
    }

    /// Removes the oldest byte. For the one consumer.
    pub fn pop(&self) -> Option<u8> {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.put.load(Ordering::Acquire) == taken {
            return None;
        }
        let byte = self
            .bytes
            .get(taken as usize % BYTES)?
            .load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(byte)
    }

    /// Whether no byte is waiting.
    pub fn is_empty(&self) -> bool {
        self.put.load(Ordering::Acquire) == self.taken.load(Ordering::Relaxed)
    }

    /// Number of bytes lost.
    pub fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_leaves_one_mark_and_is_counted() {
        let ring = Ring::new();
        for round in 0..5 {
            for _ in 0..600 {
                ring.push(b'a');
            }
            assert_eq!(ring.lost(), (round + 1) * (600 - 511));
            let bytes: Vec<u8> = core::iter::from_fn(|| ring.pop()).collect();
            assert_eq!(bytes.len(), 512);
            assert_eq!(bytes[511], LOST);
            assert!(bytes[..511].iter().all(|byte| *byte == b'a'));
            ring.push(b'b');
            assert_eq!(ring.pop(), Some(b'b'));
            assert_eq!(ring.pop(), None);
        }
    }

    #[test]
    fn bytes_that_come_while_it_is_emptied_stand_behind_the_mark() {
        let ring = Ring::new();
        for _ in 0..513 {
            ring.push(b'a');
        }
        ring.pop();
        ring.push(b'x');
        ring.pop();
        ring.push(b'b');
        let bytes: Vec<u8> = core::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(bytes[bytes.len() - 2..], [LOST, b'b']);
        assert_eq!(ring.lost(), 3);
    }
}
