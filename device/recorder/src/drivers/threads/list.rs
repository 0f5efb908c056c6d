//! The list of all lanes there have been, and a reader's choice among them.
//!
//! There may be tens of thousands, each in memory of its own, so that to look at one takes as long as to record
//! several events. What a reader has to do while all threads are held off it does with those that it chose
//! before.

use core::cell::Cell;

use kymo_wire::event::METADATA_STREAM;

use super::{Lane, ThreadPort};
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// The lanes of all threads there have been. A lane is never taken out: what a thread recorded
/// outlives it.
#[derive(Debug)]
pub struct Lanes<P> {
    first: AtomicPtr<Lane<P>>,
    count: AtomicU32,
}

impl<P: ThreadPort> Lanes<P> {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicU32::new(0),
        }
    }

    /// Takes the number of the next stream; `None` when there are no more numbers.
    pub fn number(&self) -> Option<u16> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number < u32::from(METADATA_STREAM) {
            Some(number as u16)
        } else {
            self.count.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }

    /// Gives a number back that is not used, if no other has been given since.
    pub fn return_number(&self, number: u16) {
        let next = u32::from(number) + 1;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        _ = self
            .count
            .compare_exchange(next, number.into(), success, failure);
    }

    /// Forgets all lanes: in the child of a fork, which has its parent's list.
    ///
    /// # Safety
    /// Nobody else is at work in this process.
    pub unsafe fn forget(&self) {
        self.first.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// How many numbers have been given.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Puts a lane into the list.
    pub fn add(&self, lane: &'static Lane<P>) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            lane.next.store(first, Ordering::Relaxed);
            let lane = core::ptr::from_ref(lane).cast_mut();
            match self.first.compare_exchange_weak(
                first,
                lane,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Chooses lanes for a reader to come back to, who then need not look at all of them: the newest first.
    /// For one reader at a time; the choice holds until the next one.
    pub fn choose(&self, pick: impl Fn(&'static Lane<P>) -> bool) -> Chosen<P> {
        let newest = self.first.load(Ordering::Acquire);
        let (mut first, mut last) = (None, None::<&'static Lane<P>>);
        for lane in Self::from(newest) {
            if pick(lane) {
                let place = core::ptr::from_ref(lane).cast_mut();
                match last.replace(lane) {
                    Some(before) => before.chosen.store(place, Ordering::Relaxed),
                    None => first = Some(lane),
                }
                lane.chosen.store(core::ptr::null_mut(), Ordering::Relaxed);
            }
        }
        Chosen { first, newest }
    }

    /// Those that were added since a choice was made.
    pub fn since(&self, chosen: &Chosen<P>) -> impl Iterator<Item = &'static Lane<P>> + use<P> {
        let newest = chosen.newest;
        self.iter()
            .take_while(move |lane| !core::ptr::eq(*lane, newest))
    }

    /// All lanes, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Lane<P>> + use<P> {
        Self::from(self.first.load(Ordering::Acquire))
    }

    /// A lane of the list, and all that are older.
    fn from(first: *mut Lane<P>) -> impl Iterator<Item = &'static Lane<P>> + use<P> {
        let mut next = first;
        core::iter::from_fn(move || {
            // SAFETY: what is in the list came from a `&'static Lane`; it is only shared.
            let lane: &'static Lane<P> = unsafe { next.as_ref() }?;
            next = lane.next.load(Ordering::Acquire);
            Some(lane)
        })
    }
}

impl<P: ThreadPort> Default for Lanes<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Lane<P> {
    /// The next older lane of the list.
    pub fn older(&self) -> Option<&'static Self> {
        // SAFETY: what is in the list came from a `&'static Lane`; it is only shared.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// Lanes in a row, for one user at a time: one that has been put in is taken out again before it is put in anywhere.
#[derive(Debug)]
pub struct Queue<P: 'static> {
    first: Cell<Option<&'static Lane<P>>>,
    last: Cell<Option<&'static Lane<P>>>,
    length: Cell<u32>,
}

impl<P: 'static> Queue<P> {
    /// Nothing in it.
    pub const fn new() -> Self {
        Self {
            first: Cell::new(None),
            last: Cell::new(None),
            length: Cell::new(0),
        }
    }

    /// Forgets them all.
    pub fn clear(&self) {
        self.first.set(None);
        self.last.set(None);
        self.length.set(0);
    }

    /// How many lanes there are.
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// Puts a lane behind the others.
    pub fn push(&self, lane: &'static Lane<P>) {
        lane.behind.store(core::ptr::null_mut(), Ordering::Relaxed);
        match self.last.replace(Some(lane)) {
            Some(last) => {
                let lane = core::ptr::from_ref(lane).cast_mut();
                last.behind.store(lane, Ordering::Relaxed);
            }
            None => self.first.set(Some(lane)),
        }
        self.length.set(self.length.get() + 1);
    }

    /// Takes the first one out.
    pub fn pop(&self) -> Option<&'static Lane<P>> {
        let lane = self.first.get()?;
        // SAFETY: it is null, or came from a `&'static Lane`; it is only shared.
        let next = unsafe { lane.behind.load(Ordering::Relaxed).as_ref() };
        self.first.set(next);
        if next.is_none() {
            self.last.set(None);
        }
        self.length.set(self.length.get() - 1);
        Some(lane)
    }
}

impl<P: 'static> Default for Queue<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Lanes that a reader has [chosen](Lanes::choose).
#[derive(Debug)]
pub struct Chosen<P: 'static> {
    first: Option<&'static Lane<P>>,
    /// The newest lane there was.
    newest: *const Lane<P>,
}

impl<P: 'static> Chosen<P> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The lanes, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Lane<P>> + use<P> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let lane = next?;
            // SAFETY: it is null, or came from a `&'static Lane`; it is only shared.
            next = unsafe { lane.chosen.load(Ordering::Relaxed).as_ref() };
            Some(lane)
        })
    }
}
