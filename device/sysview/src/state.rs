//! State of a recorder. It is written while the port's lock is held, with loads and stores only, because a Cortex-M0
//! has no other atomic operations.

use core::sync::atomic::{AtomicU32, Ordering};

/// A number that is written under the lock, and may be read without it.
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

/// All zero at first, so that it is in `.bss`.
#[derive(Debug)]
pub(crate) struct State {
    /// Not 0: recording is on.
    pub(crate) on: Word,
    /// Not 0: a packet is being passed to the port.
    pub(crate) busy: Word,
    /// Timestamp of the last packet that was stored.
    pub(crate) last: Word,
    /// Packets that were lost; packets lost because they occurred while `busy` (counted separately, so that their
    /// contexts write no word that another one uses); and how many of both were reported to the host.
    pub(crate) dropped: Word,
    pub(crate) refused: Word,
    pub(crate) reported: Word,
    /// Pending requests of the host ([`crate::host`]).
    pub(crate) requested: Word,
    /// Number of bytes of a greeting received so far.
    pub(crate) greeted: Word,
    /// Number of bytes of a message still to come (TCP).
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
            requested: Word::new(),
            greeted: Word::new(),
            message: Word::new(),
            parameter: Word::new(),
        }
    }
}
