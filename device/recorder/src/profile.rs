//! The accumulators: how often each function ran, and how long, kept on the target.
//!
//! A table of *slots*, one a function, and a *shadow stack* for each thread and one for interrupts.
//! An entry pushes a frame, an exit takes it off and charges its slot. The memory is the program's
//! (`kymo_config`); what does not fit is counted.
//!
//! Meaning of the numbers, which is also that of the host's `report`:
//!
//! - A stack has a clock of its own that stands still while its thread does not run or is
//!   interrupted. A call's *total* is the time on that clock; its *self* time is that less the
//!   calls it made. Interrupts have one stack for all: a nested one stops the clock of the one
//!   below.
//! - A recursive call adds to the count, self time, least and greatest, but not to the total: its
//!   time is part of the outermost one's. Each slot has a bit for every thread's stack on which it
//!   is, and one that says that there was such a call: the total is not the sum of all calls then.
//! - A `longjmp` that is marked closes the calls that it leaves. Without marks an exit of a function
//!   further out closes those above it at that moment. An exit
//!   of a function that is not on the stack was entered before all that are, so it closes them all.
//!   Both are counted as unmatched.
//! - Calls that are open when recording is turned off are counted as unmatched, and nowhere else.
//!
//! What interrupts find. On bare metal an event is recorded with interrupts masked, and the table
//! brought up to date after that, in steps of which each is masked for a few instructions. An
//! interrupt that strikes in between records events of its own, which lie behind this one in time. It
//! leaves its stack as it found it; so all that an event must know of the moment at which it was
//! recorded is how far the stack's clock was behind, and how much of its time was charged to calls
//! that had ended: a [`Moment`]. A stack carries the sum of all that has been charged, not each call
//! that of its own callees: then the end of a call changes nothing that belongs to another call. Where
//! a stack is emptied between two steps, which only turning recording off and clearing do, its
//! mark is another one, and the later step is not taken.
//!
//! One thing is not exact: a handler that is a function like any other to the recorder, because nobody says
//! that it is an interrupt's, and that strikes between the record and the first step. If it calls the very
//! function that is entered or left there, it is not seen that this call is (or is not) a recursive one: its
//! time is in the function's total once too often, or not at all. All else is exact then too.

use core::cell::Cell;
use core::hint::black_box;
use core::marker::PhantomData;
use core::ptr::null;
use core::slice::from_raw_parts;

use kymo_wire::profile::Entry;

use crate::Target;
use crate::long::LongCell;
use crate::sync::{AtomicU32, Ordering};

mod context;
mod jump;
mod stack;
mod table;
mod turn;

pub use stack::{Frame, Moment};
use stack::{Mark, NO_SLOT, OUTERMOST, Stack};

/// The most stacks there can be: one bit each in a slot.
pub const MAX_STACKS: u32 = 32;

/// The stack of interrupts.
const INTERRUPTS: u8 = 0;

/// How many slots are looked at for a function before it has none.
const PROBES: u32 = 16;

/// What is known of one function: `kymo_slot_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    /// Where the function begins; 0 in a free slot.
    address: Cell<usize>,
    /// Calls that ended.
    count: Cell<u32>,
    /// The threads' stacks on which the function is.
    active: Cell<u32>,
    /// The total, and [`Entry::RECURSIVE`].
    total: Cell<u64>,
    self_time: Cell<u64>,
    /// Anything while the count is 0.
    min: Cell<u64>,
    max: Cell<u64>,
}

/// Why there can be no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Fewer than 2 stacks, or more than [`MAX_STACKS`].
    Stacks,
    /// Less than 2 frames a stack.
    Depth,
    /// Slots without frames, or the other way round, or memory that is not aligned.
    Memory,
}

/// What did not fit, and other counts of a table: each stays at 2^32 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls that were not counted because every slot was taken by other functions.
    pub no_slot: u32,
    /// Calls that were not counted because their stack was full, or there was none left.
    pub too_deep: u32,
    /// Exits without an entry, and entries without an exit of their own.
    pub unmatched: u32,
}

/// The accumulators of one CPU or thread. For one context at a time, but for
/// [`enter_at`](Self::enter_at) and [`exit_at`](Self::exit_at).
///
/// (In this order what is used most takes the shortest instructions of a small processor.)
#[cfg_attr(target_pointer_width = "32", repr(C))]
#[derive(Debug)]
pub struct Profile<T> {
    /// The stack that runs.
    running: Cell<Option<Stack>>,
    /// The stack of the thread that runs, or will when all interrupts have ended.
    thread: Cell<Option<Stack>>,
    interrupts: Cell<u8>,
    stacks: Cell<u8>,
    /// It is kept.
    on: Cell<bool>,
    /// It is being cleared, beside whoever records.
    paused: Cell<bool>,
    /// Frames a stack; 0: there is no table.
    depth: Cell<u16>,
    slots: Cell<*const Slot>,
    frames: Cell<*const Frame>,
    slot_count: Cell<u32>,
    /// Anybody may ask for these at any time.
    no_slot: AtomicU32,
    too_deep: AtomicU32,
    unmatched: AtomicU32,
    /// How long the table has been kept; while it is, the time at which that would have been nothing.
    recorded: LongCell,
    target: PhantomData<T>,
}

impl<T: Target> Profile<T> {
    /// No table. All zero.
    pub const fn new() -> Self {
        Self {
            slots: Cell::new(null()),
            frames: Cell::new(null()),
            slot_count: Cell::new(0),
            running: Cell::new(None),
            thread: Cell::new(None),
            depth: Cell::new(0),
            stacks: Cell::new(0),
            interrupts: Cell::new(0),
            on: Cell::new(false),
            paused: Cell::new(false),
            no_slot: AtomicU32::new(0),
            too_deep: AtomicU32::new(0),
            unmatched: AtomicU32::new(0),
            recorded: LongCell::new(0),
            target: PhantomData,
        }
    }

    /// Gives the table its memory, and empties it. Of more than 65,535 frames a stack the rest is not
    /// used.
    ///
    /// # Errors
    /// When the sizes are unusable; there is no table then.
    ///
    /// # Safety
    /// `slots` and `frames` point to `slot_count` and `stacks * depth` initialized elements that
    /// only this table uses from now on, until [`take_away`](Self::take_away).
    pub unsafe fn set_up(
        &self,
        slots: *const Slot,
        slot_count: u32,
        frames: *const Frame,
        stacks: u32,
        depth: u32,
    ) -> Result<(), TableError> {
        if !(2..=MAX_STACKS).contains(&stacks) {
            return Err(TableError::Stacks);
        }
        if depth < 2 || stacks.checked_mul(depth).is_none() {
            return Err(TableError::Depth);
        }
        if slots.is_null()
            || frames.is_null()
            || !slots.is_aligned()
            || !frames.is_aligned()
            || !(1..NO_SLOT).contains(&slot_count)
        {
            return Err(TableError::Memory);
        }
        self.slots.set(slots);
        self.frames.set(frames);
        self.slot_count.set(slot_count);
        self.stacks.set(stacks as u8);
        self.depth.set(depth.min(Mark::MOST) as u16);
        for number in 0..stacks as u8 {
            self.stack(number).head().mark.set(Mark::of(number).0);
        }
        self.on.set(false);
        self.clear(0);
        Ok(())
    }

    /// Takes the table's memory away again.
    pub fn take_away(&self) {
        self.slot_count.set(0);
        self.stacks.set(0);
        self.depth.set(0);
        self.running.set(None);
        self.thread.set(None);
    }

    /// Whether there is a table.
    #[inline(always)]
    pub fn exists(&self) -> bool {
        cfg!(feature = "profile") && self.depth.get() != 0
    }

    /// Whether there is a table that takes events: it is not being cleared.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.exists() && !self.paused.get()
    }

    /// What did not fit. Anybody may ask at any time.
    pub fn losses(&self) -> Losses {
        Losses {
            no_slot: self.no_slot.load(Ordering::Relaxed),
            too_deep: self.too_deep.load(Ordering::Relaxed),
            unmatched: self.unmatched.load(Ordering::Relaxed),
        }
    }

    /// How many functions have a slot. Anybody may ask at any time.
    pub fn functions(&self) -> u32 {
        let taken = |slot: &&Slot| slot.address.get() != 0;
        self.table().iter().filter(taken).count() as u32
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slot_count.get()
    }

    /// What stands in slot `n`: `Some(None)` if that is free, `None` behind the last.
    pub fn entry(&self, n: u32) -> Option<Option<Entry>> {
        let slot = self.table().get(n as usize)?;
        let count = slot.count.get();
        Some((slot.address.get() != 0).then(|| Entry {
            address: slot.address.get() as u64,
            count,
            total: slot.total.get() & !Entry::RECURSIVE,
            recursive: slot.total.get() & Entry::RECURSIVE != 0,
            self_time: slot.self_time.get(),
            min: if count == 0 { 0 } else { slot.min.get() },
            max: slot.max.get(),
        }))
    }

    /// `function` was entered at `now`, in `thread` if no interrupt is being served.
    #[inline(always)]
    pub fn enter(&self, now: u64, thread: usize, function: usize) {
        match self.running(now, thread) {
            Some(at) => self.enter_at(&at, now, function),
            None => self.lose_call(),
        }
    }

    /// `function` was left at `now`.
    #[inline(always)]
    pub fn exit(&self, now: u64, thread: usize, function: usize) {
        if let Some(at) = self.running(now, thread) {
            self.exit_at(&at, now, function);
        }
    }

    /// Nothing runs: a thread that records something runs from then on.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.running.get().is_none() && self.interrupts.get() == 0
    }

    /// Counts a call for which there is no stack.
    pub(crate) fn lose_call(&self) {
        self.count(&self.too_deep, 1);
    }

    /// What there is to know of this moment; `None` if no stack runs. It need not be held: if an event
    /// that is recorded next is indeed the next one, it was right.
    #[inline(always)]
    pub fn moment(&self) -> Option<Moment> {
        let stack = self.running.get()?;
        let head = stack.head();
        Some(Moment {
            stack,
            mark: stack.mark(),
            behind: head.start.get(),
            charged: head.charged.get(),
        })
    }

    /// `function` was entered at `now`, of which the rest is known. Interrupts may be let go.
    #[inline(never)]
    pub fn enter_at(&self, at: &Moment, now: u64, function: usize) {
        if !cfg!(feature = "profile") {
            return;
        }
        let head = at.stack.head();
        let Some(frame) = self.next_frame(at) else {
            at.step::<T>(at.mark.0, || head.skipped.set(head.skipped.get() + 1));
            return self.lose_call();
        };
        let (slot, word) = match self.slot(function) {
            Some((index, slot)) => {
                // Of interrupts the bits do not tell: those that nest have one stack, but are no
                // callers.
                let recursive = if at.mark.is_of_interrupts() {
                    at.search(function).1
                } else {
                    slot.active.get() & at.mark.bit() != 0
                };
                (Some(slot), index | if recursive { 0 } else { OUTERMOST })
            }
            None => (None, NO_SLOT),
        };
        // Worked out here: a compiler would do it where interrupts are held off.
        let bit = at.mark.bit();
        let (frame, start, bit) = black_box((frame, now.wrapping_sub(at.behind), bit));
        let open = at.step::<T>(at.mark.0, || {
            head.mark.set(at.mark.0 + 1);
            frame.address.set(function);
            frame.mark.set(word);
            frame.skipped.set(0);
            frame.start.set(start);
            frame.charged.set(at.charged);
            if let Some(slot) = slot {
                slot.active.set(slot.active.get() | bit);
            }
        });
        if slot.is_none() {
            self.count(&self.no_slot, 1);
        } else if !open {
            self.count(&self.unmatched, 1);
        }
    }

    /// `function` was left at `now`, of which the rest is known. Interrupts may be let go.
    #[inline(never)]
    pub fn exit_at(&self, at: &Moment, now: u64, function: usize) {
        if !cfg!(feature = "profile") {
            return;
        }
        let head = at.stack.head();
        if head.skipped.get() != 0 {
            at.step::<T>(at.mark.0, || head.skipped.set(head.skipped.get() - 1));
            return;
        }
        let open = at.mark.open();
        // SAFETY: so many are open.
        if open != 0 && unsafe { at.stack.frame(open) }.address.get() == function {
            return self.close(at, now, 1);
        }
        let (above, found) = at.search(function);
        let lost = above + u32::from(!found);
        if lost != 0 {
            self.count(&self.unmatched, lost);
        }
        self.close(at, now, above + u32::from(found));
    }

    /// Where the next frame of a stack goes; `None` if it is full.
    #[inline(always)]
    fn next_frame(&self, at: &Moment) -> Option<&'static Frame> {
        let next = at.mark.open() + 1;
        let full = at.stack.head().skipped.get() != 0 || next >= self.depth.get().into();
        // SAFETY: it is the next one, and there is room.
        (!full).then(|| unsafe { at.stack.frame(next) })
    }

    /// Closes so many of the newest calls of a stack. Interrupts may be let go.
    #[inline(never)]
    fn close(&self, at: &Moment, now: u64, calls: u32) {
        let head = at.stack.head();
        let now = now.wrapping_sub(at.behind);
        let (mut mark, mut charged) = (at.mark, at.charged);
        for _ in 0..calls {
            // SAFETY: so many calls are open.
            let frame = unsafe { at.stack.frame(mark.open()) };
            let duration = forward(now.wrapping_sub(frame.start.get()));
            let callees = charged.wrapping_sub(frame.charged.get());
            let own = forward(duration.wrapping_sub(callees));
            charged = charged.wrapping_add(own);
            // Behind the next step the frame may be an interrupt's.
            let word = frame.mark.get();
            let slot = self.slot_at(word & !OUTERMOST);
            let outer = slot.filter(|_| word & OUTERMOST != 0);
            let (own, outer, bit) = black_box((own, outer, mark.bit()));
            at.step::<T>(mark.0, || {
                head.mark.set(mark.0 - 1);
                grow(&head.charged, own);
                if let Some(slot) = outer {
                    slot.active.set(slot.active.get() & !bit);
                }
            });
            mark = Mark(mark.0 - 1);
            let Some(slot) = slot else {
                continue;
            };
            at.step::<T>(mark.0, || {
                slot.count.set(slot.count.get().saturating_add(1));
                grow(&slot.self_time, own);
            });
            at.step::<T>(mark.0, || match outer {
                Some(_) => grow(&slot.total, duration),
                None => slot.total.set(slot.total.get() | Entry::RECURSIVE),
            });
            at.step::<T>(mark.0, || {
                if duration < slot.min.get() {
                    slot.min.set(duration);
                }
                if duration > slot.max.get() {
                    slot.max.set(duration);
                }
            });
        }
    }

    /// Counts losses.
    #[inline(never)]
    fn count(&self, counter: &AtomicU32, more: u32) {
        let was = T::hold();
        let sum = counter.load(Ordering::Relaxed).saturating_add(more);
        counter.store(sum, Ordering::Relaxed);
        T::let_go(was);
    }

    fn table(&self) -> &'static [Slot] {
        match self.slot_count.get() {
            0 => &[],
            // SAFETY: by the contract of `set_up`, which checked alignment and null.
            count => unsafe { from_raw_parts(self.slots.get(), count as usize) },
        }
    }

    /// The slot of this number, if that is one's.
    #[inline(always)]
    fn slot_at(&self, index: u32) -> Option<&'static Slot> {
        // SAFETY: by the contract of `set_up`.
        (index < self.slot_count.get()).then(|| unsafe { &*self.slots.get().add(index as usize) })
    }

    /// The stack of this number, which there is.
    #[inline(always)]
    fn stack(&self, number: u8) -> Stack {
        let at = usize::from(number) * usize::from(self.depth.get());
        // SAFETY: there are `depth` frames from there on, by the contract of `set_up`.
        unsafe { Stack::new(self.frames.get().wrapping_add(at)) }
    }

    /// The slot of a function, taken now if it has none; `None` if there is no room near its place.
    #[inline(always)]
    fn slot(&self, function: usize) -> Option<(u32, &'static Slot)> {
        let count = self.slot_count.get();
        let hash = (function as u32 >> 1).wrapping_mul(0x9E37_79B1);
        let mut index = ((u64::from(hash) * u64::from(count)) >> 32) as u32;
        for _ in 0..PROBES.min(count) {
            // SAFETY: as in `slot_at`; it is less than their number.
            let slot: &'static Slot = unsafe { &*self.slots.get().add(index as usize) };
            if slot.address.get() == 0 {
                slot.claim::<T>(function);
            }
            if slot.address.get() == function {
                return Some((index, slot));
            }
            index += 1;
            if index == count {
                index = 0;
            }
        }
        None
    }
}

impl Slot {
    /// Becomes that of a function, if it is still free.
    #[cold]
    #[inline(never)]
    fn claim<T: Target>(&self, function: usize) {
        let was = T::hold();
        if self.address.get() == 0 {
            self.min.set(u64::MAX);
            self.address.set(function);
        }
        T::let_go(was);
    }
}

/// A span of time; nothing if time went back.
#[inline(always)]
fn forward(span: u64) -> u64 {
    if (span as i64) < 0 { 0 } else { span }
}

#[inline(always)]
fn grow(sum: &Cell<u64>, more: u64) {
    sum.set(sum.get().wrapping_add(more));
}

impl<T: Target> Default for Profile<T> {
    fn default() -> Self {
        Self::new()
    }
}
