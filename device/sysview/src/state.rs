//! What a recorder remembers. It is written while the port's lock is held, by loads and stores alone: a Cortex-M0 has no more.

use core::sync::atomic::{AtomicU32, Ordering};

/// A number that is written under the lock, and may be read without.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// All zero at first, so that it lies in `.bss`.
#[derive(Debug)]
pub(crate) struct State {
    /// Not 0: events are recorded.
    pub(crate) on: Word,
    /// Not 0: a packet is being handed over.
    pub(crate) busy: Word,
    /// The time of the last packet that was stored.
    pub(crate) last: Word,
    /// Packets that were not; those among the rest that came while `busy` (they write no other word, and so disturb nobody);
    /// and how many of both the host was told of.
    pub(crate) dropped: Word,
    pub(crate) refused: Word,
    pub(crate) reported: Word,
    /// What the host asked for ([`crate::host`]).
    pub(crate) asked: Word,
    /// Bytes of a greeting so far.
    pub(crate) greeted: Word,
    /// Bytes of a message that are still to come (TCP).
    pub(crate) message: Word,
    /// Not 0: the next byte is a command's parameter.
    pub(crate) parameter: Word,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            on: Word::new(),
            busy: Word::new(),
            last: Word::new(),
            dropped: Word::new(),
            refused: Word::new(),
            reported: Word::new(),
            asked: Word::new(),
            greeted: Word::new(),
            message: Word::new(),
            parameter: Word::new(),
        }
    }
}
