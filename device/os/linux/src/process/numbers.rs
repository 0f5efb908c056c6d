//! Map from stream numbers to thread buffers. A host requests one stream after the other, and there may be tens of
//! thousands, so the lookup takes constant time.
//!
//! The table consists of pieces of one page, each allocated when the first number in it is assigned. An entry is stored
//! once, by the thread that owns the stream, and never changes.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use kymo_recorder::threads::ThreadBuffer;

use super::Process;
use crate::port::Linux;
use crate::sys;

/// Numbers per piece: a page of 64-bit addresses.
const PIECE: usize = 512;

/// Number of pieces for all 16-bit numbers.
const PIECES: usize = (u16::MAX as usize + 1) / PIECE;

type Piece = [AtomicPtr<ThreadBuffer<Linux>>; PIECE];

/// Thread buffers by the numbers of their streams. All zero at first.
#[derive(Debug)]
pub struct Numbers {
    pieces: [AtomicPtr<Piece>; PIECES],
}

impl Numbers {
    /// Creates an empty table.
    pub const fn new() -> Self {
        Self {
            pieces: [const { AtomicPtr::new(null_mut()) }; PIECES],
        }
    }

    /// Removes all entries, in the child of a fork, which has none of the thread buffers.
    pub fn forget(&self) {
        for piece in &self.pieces {
            piece.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// Allocates the piece for a number's entry; returns false if there is no memory for it.
    pub fn make_room(&self, number: u16) -> bool {
        let Some(place) = self.pieces.get(usize::from(number) / PIECE) else {
            return false;
        };
        if !place.load(Ordering::Acquire).is_null() {
            return true;
        }
        let Ok(memory) = sys::map(size_of::<Piece>()) else {
            return false;
        };
        let made = place.compare_exchange(
            null_mut(),
            memory.cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if made.is_err() {
            // SAFETY: another thread was first, and nobody has seen this.
            unsafe { sys::unmap(memory, size_of::<Piece>()) };
        }
        true
    }

    /// Stores the thread buffer that contains the stream with this number. There is [room](Self::make_room) for the
    /// entry.
    pub fn set(&self, number: u16, thread_buffer: &'static ThreadBuffer<Linux>) {
        if let Some(entry) = self.entry(number) {
            entry.store(
                core::ptr::from_ref(thread_buffer).cast_mut(),
                Ordering::Release,
            );
        }
    }

    /// Returns the thread buffer that contains the stream with this number.
    pub fn thread_buffer(&self, number: u16) -> Option<&'static ThreadBuffer<Linux>> {
        let thread_buffer = self.entry(number)?.load(Ordering::Acquire);
        // SAFETY: it is null, or came from a `&'static ThreadBuffer`; it is only shared.
        unsafe { thread_buffer.as_ref() }
    }

    fn entry(&self, number: u16) -> Option<&AtomicPtr<ThreadBuffer<Linux>>> {
        let piece = self.pieces.get(usize::from(number) / PIECE)?;
        // SAFETY: a piece that has been made is zero but for what was stored in it, and stays.
        let piece = unsafe { piece.load(Ordering::Acquire).as_ref() }?;
        piece.get(usize::from(number) % PIECE)
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    /// Assigns the number of a new stream and makes room for its entry; `None` if there are no more numbers, or no
    /// memory. (Room is made first: a thread without a number tries again, and must not use up the numbers.)
    pub(crate) fn new_number(&self) -> Option<u16> {
        let next = u16::try_from(self.thread_buffers.count()).ok()?;
        if !self.numbers.make_room(next) {
            return None;
        }
        let number = self.thread_buffers.number()?;
        self.numbers.make_room(number).then_some(number)
    }
}
