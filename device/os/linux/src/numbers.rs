//! Which thread buffer a stream's number belongs to, found at once: a host asks for one stream after the other,
//! and there may be tens of thousands.
//!
//! A table in pieces of a page, each made when the first number in it is given. An entry is stored once,
//! by the thread whose stream it is, and never changes.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use kymo_recorder::threads::ThreadBuffer;

use crate::port::Linux;
use crate::process::Process;
use crate::sys;

/// How many numbers a piece is for: of addresses of 64 bits, a page.
const PIECE: usize = 512;

/// How many pieces all numbers of 16 bits take.
const PIECES: usize = (u16::MAX as usize + 1) / PIECE;

type Piece = [AtomicPtr<ThreadBuffer<Linux>>; PIECE];

/// The thread buffers by the numbers of their streams. All zero at the beginning.
#[derive(Debug)]
pub struct Numbers {
    pieces: [AtomicPtr<Piece>; PIECES],
}

impl Numbers {
    /// No number has been given.
    pub const fn new() -> Self {
        Self {
            pieces: [const { AtomicPtr::new(null_mut()) }; PIECES],
        }
    }

    /// Forgets all thread buffers, in the child of a fork, which has none of them.
    pub fn forget(&self) {
        for piece in &self.pieces {
            piece.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// Makes room for a number's entry; false if there is no memory for it.
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

    /// Says that a stream with this number is in `thread_buffer`. There is [room](Self::make_room) for it.
    pub fn set(&self, number: u16, thread_buffer: &'static ThreadBuffer<Linux>) {
        if let Some(entry) = self.entry(number) {
            entry.store(
                core::ptr::from_ref(thread_buffer).cast_mut(),
                Ordering::Release,
            );
        }
    }

    /// The thread buffer that the stream with this number is in.
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
    /// The number of a new stream, with room for its entry; `None` when there are no more, or no memory.
    /// (Room is made first: who gets none comes again, and must not use the numbers up.)
    pub(crate) fn new_number(&self) -> Option<u16> {
        let next = u16::try_from(self.thread_buffers.count()).ok()?;
        if !self.numbers.make_room(next) {
            return None;
        }
        let number = self.thread_buffers.number()?;
        self.numbers.make_room(number).then_some(number)
    }
}
