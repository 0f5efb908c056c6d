//! Interface of the drivers: how they exclude other writers from each step of recording.

use kymo_wire::event::WordSize;

use super::Stream;
use crate::Target;
use crate::hot::{COUNTING, Cursor, NAMING, low, names_exits};

/// Requirements of a record on its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Most bytes that it can take.
    pub bytes: u32,
    /// Bits of time that it holds.
    pub bits: u32,
    /// Its effect on the count of calls.
    pub depth: Depth,
}

/// Effect of a record on the count of calls ([`Cursor::depth`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Nothing.
    Stays,
    /// Adds an open call.
    More,
    /// Removes one.
    Less,
    /// Resets it: from here on a reader does not know the calls entered before.
    Parts,
}

impl Depth {
    /// The count after the record.
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

    /// Applies the effect to the cursor.
    #[inline(always)]
    pub fn apply<T: Target>(self, cursor: &Cursor) {
        cursor.depth.set(self.of::<T>(cursor));
    }
}

/// Counts the attempts to record an event.
#[derive(Debug, Default)]
pub(crate) struct Tries(u8);

impl Tries {
    /// Most attempts per event. So many interrupts never preempt the steps of one event: if all attempts fail, the
    /// clock is far from its last time at every reading, as one that counts down is.
    const MOST: u8 = 20;

    /// Whether the next attempt would exceed the limit.
    #[inline(always)]
    pub fn are_over<D: Driver>(&mut self) -> bool {
        if !D::READS_AGAIN {
            return false;
        }
        self.0 += 1;
        self.0 > Self::MOST
    }
}

/// Result of making room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// One change was made: try again.
    Again,
    /// There is no room: the record was counted as discarded.
    Full,
    /// Recording has stopped, altogether or for this context.
    Shut,
}

/// Excludes other writers from a stream, one step at a time.
pub(crate) trait Driver {
    /// Whether each attempt reads the clock again.
    const READS_AGAIN: bool = false;

    /// Runs a step that records: calls `put` with the time (truncated by [`low`]) unless that could not succeed, and
    /// returns what `put` returned.
    fn attempt(&self, put: impl FnOnce(usize) -> bool) -> bool;

    /// Runs a step that [makes room](Stream::make_room) for a record.
    fn room(&self, need: Need) -> Found;

    /// Runs a step that records nothing.
    fn apart<R>(&self, work: impl FnOnce() -> R) -> R;

    /// Binds the event to this thread: later steps do nothing if the stream's running thread has changed meanwhile.
    fn expect_thread(&self, thread: usize) {
        let _ = thread;
    }

    /// Counts a call that is not recorded, of this function, because its hook ran within another one.
    fn refuse(&self, function: usize) {
        let _ = function;
    }

    /// Notes, within a step, that the clock does not count up.
    fn doubt(&self) {}

    /// Reads the clock, within a step.
    fn now(&self) -> u64;
}

/// Driver of a stream on which nothing can interrupt the writer.
#[derive(Debug)]
pub(crate) struct Alone<'a, T> {
    stream: &'a Stream<T>,
    now: u64,
}

impl<'a, T: Target> Alone<'a, T> {
    /// Records at `now`; a time before the last record's is counted, and recorded as equal to it.
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
        // After half a wraparound the low bits could be ambiguous.
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
