//! List of all thread buffers ever created, and a reader's choice of some of them.
//!
//! There may be tens of thousands, each in its own memory, so that examining one takes as long as recording several
//! events. While all threads are excluded, a reader accesses only those that it has chosen before.

use core::cell::Cell;

use kymo_wire::event::METADATA_STREAM;

use super::{ThreadBuffer, ThreadPort};
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// List of the thread buffers of all threads so far. A thread buffer is never removed: its events outlive the thread.
#[derive(Debug)]
pub struct ThreadBuffers<P> {
    first: AtomicPtr<ThreadBuffer<P>>,
    count: AtomicU32,
}

impl<P: ThreadPort> ThreadBuffers<P> {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicU32::new(0),
        }
    }

    /// Allocates the next stream number; `None` when there are no more numbers.
    pub fn number(&self) -> Option<u16> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number < u32::from(METADATA_STREAM) {
            Some(number as u16)
        } else {
            self.count.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }

    /// Returns an unused number, if no other has been allocated since.
    pub fn return_number(&self, number: u16) {
        let next = u32::from(number) + 1;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        _ = self
            .count
            .compare_exchange(next, number.into(), success, failure);
    }

    /// Empties the list: in the child of a fork, which has its parent's list.
    ///
    /// # Safety
    /// No other thread of this process is active.
    pub unsafe fn forget(&self) {
        self.first.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// Number of stream numbers allocated.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a thread buffer.
    pub fn add(&self, thread_buffer: &'static ThreadBuffer<P>) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            thread_buffer.next.store(first, Ordering::Relaxed);
            let thread_buffer = core::ptr::from_ref(thread_buffer).cast_mut();
            match self.first.compare_exchange_weak(
                first,
                thread_buffer,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Chooses thread buffers that a reader will access later, so that it need not examine all of them: the newest
    /// first. For one reader at a time; the choice is valid until the next one.
    pub fn choose(&self, pick: impl Fn(&'static ThreadBuffer<P>) -> bool) -> Chosen<P> {
        let newest = self.first.load(Ordering::Acquire);
        let (mut first, mut last) = (None, None::<&'static ThreadBuffer<P>>);
        for thread_buffer in Self::from(newest) {
            if pick(thread_buffer) {
                let place = core::ptr::from_ref(thread_buffer).cast_mut();
                match last.replace(thread_buffer) {
                    Some(before) => before.chosen.store(place, Ordering::Relaxed),
                    None => first = Some(thread_buffer),
                }
                thread_buffer
                    .chosen
                    .store(core::ptr::null_mut(), Ordering::Relaxed);
            }
        }
        Chosen { first, newest }
    }

    /// The thread buffers that were added since a choice was made.
    pub fn since(
        &self,
        chosen: &Chosen<P>,
    ) -> impl Iterator<Item = &'static ThreadBuffer<P>> + use<P> {
        let newest = chosen.newest;
        self.iter()
            .take_while(move |thread_buffer| !core::ptr::eq(*thread_buffer, newest))
    }

    /// All thread buffers, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static ThreadBuffer<P>> + use<P> {
        Self::from(self.first.load(Ordering::Acquire))
    }

    /// A thread buffer of the list, and all that are older.
    fn from(
        first: *mut ThreadBuffer<P>,
    ) -> impl Iterator<Item = &'static ThreadBuffer<P>> + use<P> {
        let mut next = first;
        core::iter::from_fn(move || {
            // SAFETY: every entry of the list came from a `&'static ThreadBuffer`; it is only shared.
            let thread_buffer: &'static ThreadBuffer<P> = unsafe { next.as_ref() }?;
            next = thread_buffer.next.load(Ordering::Acquire);
            Some(thread_buffer)
        })
    }
}

impl<P: ThreadPort> Default for ThreadBuffers<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> ThreadBuffer<P> {
    /// The next older thread buffer of the list.
    pub fn older(&self) -> Option<&'static Self> {
        // SAFETY: every entry of the list came from a `&'static ThreadBuffer`; it is only shared.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// FIFO of thread buffers, for one user at a time. A thread buffer can be in one queue only, once.
#[derive(Debug)]
pub struct Queue<P: 'static> {
    first: Cell<Option<&'static ThreadBuffer<P>>>,
    last: Cell<Option<&'static ThreadBuffer<P>>>,
    length: Cell<u32>,
}

impl<P: 'static> Queue<P> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            first: Cell::new(None),
            last: Cell::new(None),
            length: Cell::new(0),
        }
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.first.set(None);
        self.last.set(None);
        self.length.set(0);
    }

    /// Number of thread buffers.
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// Appends a thread buffer.
    pub fn push(&self, thread_buffer: &'static ThreadBuffer<P>) {
        thread_buffer
            .behind
            .store(core::ptr::null_mut(), Ordering::Relaxed);
        match self.last.replace(Some(thread_buffer)) {
            Some(last) => {
                let thread_buffer = core::ptr::from_ref(thread_buffer).cast_mut();
                last.behind.store(thread_buffer, Ordering::Relaxed);
            }
            None => self.first.set(Some(thread_buffer)),
        }
        self.length.set(self.length.get() + 1);
    }

    /// Removes the first one.
    pub fn pop(&self) -> Option<&'static ThreadBuffer<P>> {
        let thread_buffer = self.first.get()?;
        // SAFETY: it is null, or came from a `&'static ThreadBuffer`; it is only shared.
        let next = unsafe { thread_buffer.behind.load(Ordering::Relaxed).as_ref() };
        self.first.set(next);
        if next.is_none() {
            self.last.set(None);
        }
        self.length.set(self.length.get() - 1);
        Some(thread_buffer)
    }
}

impl<P: 'static> Default for Queue<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The thread buffers that a reader has [chosen](ThreadBuffers::choose).
#[derive(Debug)]
pub struct Chosen<P: 'static> {
    first: Option<&'static ThreadBuffer<P>>,
    /// The newest thread buffer at that time.
    newest: *const ThreadBuffer<P>,
}

impl<P: 'static> Chosen<P> {
    /// Whether the choice is empty.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The chosen thread buffers, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static ThreadBuffer<P>> + use<P> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let thread_buffer = next?;
            // SAFETY: it is null, or came from a `&'static ThreadBuffer`; it is only shared.
            next = unsafe { thread_buffer.chosen.load(Ordering::Relaxed).as_ref() };
            Some(thread_buffer)
        })
    }
}
