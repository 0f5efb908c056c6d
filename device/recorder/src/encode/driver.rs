//! How the steps of recording are kept from each other, and from whoever else records here.

use kymo_wire::event::WordSize;

use super::Stream;
use crate::Target;
use crate::hot::{COUNTING, Cursor, NAMING, low, names_exits};

/// What a record needs of its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// At most so many bytes.
    pub bytes: u32,
    /// It says so many bits of the time.
    pub bits: u32,
    /// What it does to the count of calls.
    pub depth: Depth,
}

/// What a record does to the count of calls ([`Cursor::depth`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Nothing.
    Stays,
    /// There is one call more.
    More,
    /// There is one less.
    Less,
    /// What was entered before is not the reader's to know from here on.
    Parts,
}

impl Depth {
    /// What it will be.
    #[inline(always)]
    pub fn of<T: Target>(self, cursor: &Cursor) -> usize {
        let depth = cursor.depth.get();
        match self {
            Self::Parts if names_exits::<T>(depth) => NAMING,
            Self::Parts => usize::from(!COUNTING),
            Self::More if COUNTING => depth + 1,
            Self::Less if COUNTING => depth.saturating_sub(1),
            _ => depth,
        }
    }

    /// Does so.
    #[inline(always)]
    pub fn apply<T: Target>(self, cursor: &Cursor) {
        cursor.depth.set(self.of::<T>(cursor));
    }
}

/// Counts how often an event is tried.
#[derive(Debug, Default)]
pub(crate) struct Tries(u8);

impl Tries {
    /// More interrupts than that do not come between the steps of one event, so the clock is far from its last
    /// time whenever it is read, as one that counts down.
    const MOST: u8 = 20;

    /// Whether the driver's next try is one too many.
    #[inline(always)]
    pub fn are_over<D: Driver>(&mut self) -> bool {
        if !D::READS_AGAIN {
            return false;
        }
        self.0 += 1;
        self.0 > Self::MOST
    }
}

/// What came of looking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Something was done about it: it is to be tried again.
    Again,
    /// There is none: the record has been counted as discarded.
    Full,
    /// Nothing is to be recorded any more, or not from here.
    Shut,
}

/// Who keeps others away from a stream for the time of one step.
pub(crate) trait Driver {
    /// Whether the time is read anew for each try.
    const READS_AGAIN: bool = false;

    /// Does a step: calls `put` with the time (cut by [`low`]) unless it is known to be in vain, and
    /// returns what that did.
    fn attempt(&self, put: impl FnOnce(usize) -> bool) -> bool;

    /// Does a step that gives a record [room](Stream::make_room).
    fn room(&self, need: Need) -> Found;

    /// Does a step that is no record's.
    fn apart<R>(&self, work: impl FnOnce() -> R) -> R;

    /// The event is this thread's: steps from now on do nothing if the stream has meanwhile been told of another
    /// one.
    fn expect_thread(&self, thread: usize) {
        let _ = thread;
    }

    /// Counts a hook that was called from inside another one, for this function.
    fn refuse(&self, function: usize) {
        let _ = function;
    }

    /// The clock is found not to count up, within a step.
    fn doubt(&self) {}

    /// The time, within a step.
    fn now(&self) -> u64;
}

/// The driver of a stream to which nobody comes in between anyway.
#[derive(Debug)]
pub(crate) struct Alone<'a, T> {
    stream: &'a Stream<T>,
    now: u64,
}

impl<'a, T: Target> Alone<'a, T> {
    /// What is recorded happens at `now`; a time before the last record's is counted, and stands
    /// still.
    pub fn at(stream: &'a Stream<T>, now: u64) -> Self {
        let last = stream.last();
        if now < last {
            stream.count_backward();
        }
        Self {
            stream,
            now: now.max(last),
        }
    }
}

impl<T: Target> Driver for Alone<'_, T> {
    #[inline(always)]
    fn attempt(&self, put: impl FnOnce(usize) -> bool) -> bool {
        // The low bits could be mistaken after that long.
        let near = match T::LAYOUT.word {
            WordSize::Bits32 => self.now.wrapping_sub(self.stream.last()) < 1 << 31,
            WordSize::Bits64 => true,
        };
        near && put(low::<T>(self.now))
    }

    #[inline(always)]
    fn room(&self, need: Need) -> Found {
        self.stream.make_room(need, self.now)
    }

    #[inline(always)]
    fn apart<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        self.now
    }
}
