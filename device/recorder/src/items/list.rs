//! List of a recorder's rings.

use crate::sync::{AtomicPtr, load_address, store_address};
use core::cell::Cell;
use core::ptr::null_mut;

use kymo_wire::link::Mode;

use super::Ring;
use crate::Target;

/// An operation on all rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Closes the rings that producers in assembly write to.
    Hold,
    /// Runs the periodic tick.
    Tick,
    /// Closes all rings.
    Seal,
    /// Drops all items, and sets the mode.
    Clear(Mode),
}

/// A function that applies an operation to a list's rings, at a time.
type DoWork<T> = fn(&Rings<T>, Work, u64);

/// A list of rings, to which rings are only added. One context at a time may change it.
#[derive(Debug)]
pub struct Rings<T: 'static> {
    first: AtomicPtr<Ring<T>>,
    /// Function that applies operations. None before the first ring: so a program without rings does not link that
    /// code.
    work: Cell<Option<DoWork<T>>>,
}

impl<T: Target + 'static> Rings<T> {
    /// Offset of the address of the first ring: a word.
    pub const FIRST_OFFSET: usize = core::mem::offset_of!(Self, first);

    /// An empty list. All zero.
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
            work: Cell::new(None),
        }
    }

    /// Applies an operation to all rings; reads the clock only if there are any.
    #[inline]
    pub fn work(&self, work: Work, now: impl FnOnce() -> u64) {
        if cfg!(feature = "items")
            && let Some(each) = self.work.get()
        {
            each(self, work, now());
        }
    }

    fn each(&self, work: Work, now: u64) {
        for ring in self.iter() {
            match work {
                Work::Hold if !ring.is_blind() => {}
                Work::Hold | Work::Seal => ring.seal(now),
                Work::Tick => ring.tick(now),
                Work::Clear(mode) => {
                    ring.set_mode(mode);
                    ring.clear();
                }
            }
        }
    }

    /// Appends a ring that is not in the list [yet](Ring::is_listed).
    pub(crate) fn add(&self, ring: &'static Ring<T>) {
        ring.listed.set(true);
        let mut last = &self.first;
        // SAFETY: as in `iter`.
        while let Some(next) = unsafe { load_address(last).as_ref() } {
            last = &next.next;
        }
        store_address(last, core::ptr::from_ref(ring).cast_mut());
        self.work.set(Some(Self::each));
    }

    /// All rings, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &'static Ring<T>> + use<T> {
        let mut next = if cfg!(feature = "items") {
            load_address(&self.first)
        } else {
            null_mut()
        };
        core::iter::from_fn(move || {
            // SAFETY: every ring in the list came from a `&'static Ring`; it is only shared.
            let ring: &'static Ring<T> = unsafe { next.as_ref() }?;
            next = load_address(&ring.next);
            Some(ring)
        })
    }

    /// The `n`th of the kept packets of all rings, ring by ring and oldest first.
    ///
    /// # Safety
    /// As for [`Ring::packet`], for all rings.
    pub unsafe fn packet(&self, n: u32) -> Option<&'static [u8]> {
        let mut n = n;
        for ring in self.iter() {
            let kept = ring.kept();
            if n < kept {
                // SAFETY: by this function's contract.
                return unsafe { ring.packet(n) };
            }
            n -= kept;
        }
        None
    }

    /// Number of packets kept, of all rings.
    pub fn kept(&self) -> u32 {
        self.iter().map(|ring| ring.kept()).sum()
    }
}

impl<T: Target + 'static> Default for Rings<T> {
    fn default() -> Self {
        Self::new()
    }
}
