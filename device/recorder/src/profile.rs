//! Profile table: counts and durations of each function, kept on the target.
//!
//! It consists of *slots*, one per function, and *shadow stacks*, one for each thread and one for interrupts. An entry
//! pushes a frame; an exit pops it and updates the function's slot. The memory is the program's (`kymo_config`); calls
//! that don't fit are counted.
//!
//! The numbers have the same meaning as in the host's `report`:
//!
//! - A stack has its own clock, which stops while its thread is switched out or interrupted. A call's *total* is its
//!   duration on that clock; its *self* time is the total without its callees. All interrupts share one stack: a nested
//!   one stops the clock of the one below.
//! - A recursive call adds to count, self time, minimum and maximum, but not to the total, because its time is part of
//!   the outermost call's. The slot records that there was such a call: then the total is not the sum of all calls. The
//!   slot has a bit for every thread's stack on which its function may be open, so that most stacks need not be
//!   searched for it. The bit remains set when a stack is emptied, until the next call ends.
//! - A marked `longjmp` closes the calls that it leaves. Without marks, the exit of a function further out closes the
//!   calls above it, at its own time. An exit of a function that is not on the stack belongs to an entry before all
//!   calls on the stack, so it closes them all. Both are counted as unmatched.
//! - Calls that are open when recording is turned off are counted only as unmatched.
//!
//! The table is updated in the same masked section that records an event, so it agrees with the trace to the tick,
//! wherever interrupts preempt. The length of that section is bounded except in three cases, in which it is
//! proportional to the depth of the stack: a call of a function that may be open already (its stack is searched), a
//! jump, and an exit without an entry.
//!
//! A full table: a function that finds no free slot among those probed takes the slot of the function with the lowest
//! total there, in a masked section of its own (`Profile::replace`). The counts of the replaced function are added to
//! the losses: its calls to the calls without a slot, its total, and the replacement itself. A function that is open in
//! a thread is not replaced. One that is open in an interrupt handler may be, and its call then counts as one without a
//! slot. Several CPUs have a table each, and share the stacks of threads, which migrate ([`Pool`]).

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::{self, null};
use core::slice::from_raw_parts;

use kymo_wire::link::{Fault, SetupError};
use kymo_wire::profile::Entry;

use crate::Target;
use crate::bits64::Cell64;
use crate::sync::{AtomicU32, Ordering};

mod context;
mod jump;
mod migration;
mod pool;
mod slot;
mod stack;
mod storage;
mod table;
mod window;

pub use pool::Pool;
pub use slot::Slot;
use slot::{LEAST, MOST, OWN, PROBES, RECURSIVE, TOTAL};
pub use stack::Frame;
use stack::{BARRIER, NO_SLOT, OUTERMOST, Stack};
pub(crate) use storage::Storage;

/// Largest number of stacks: each has a bit in a slot.
pub const MAX_STACKS: u32 = 32;

/// Largest number of slots, so that a frame can refer to any.
const MAX_SLOTS: u32 = u32::MAX / size_of::<Slot>() as u32;

/// Checks that a table can have so many stacks of so many frames.
///
/// # Errors
/// Reports which of the two is out of range.
pub const fn check_stacks(stacks: u32, depth: u32) -> Result<(), SetupError> {
    if stacks < 2 || stacks > MAX_STACKS {
        return Err(Fault::ShadowStacks.of(stacks as usize));
    }
    if depth < 2 || depth > u16::MAX as u32 {
        return Err(Fault::ShadowDepth.of(depth as usize));
    }
    Ok(())
}

/// Counts of what did not fit, and of unmatched calls. They saturate at 2^32 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls that are in no slot: all slots probed for the function were in use, or its slot was given to another
    /// function.
    pub no_slot: u32,
    /// Calls that were not counted because their stack was full, or because no stack was free.
    pub too_deep: u32,
    /// Exits without an entry, and entries without an exit of their own.
    pub unmatched: u32,
    /// Number of times that a function took the slot of another one.
    pub replaced: u32,
}

impl Losses {
    /// No losses.
    pub const NONE: Self = Self {
        no_slot: 0,
        too_deep: 0,
        unmatched: 0,
        replaced: 0,
    };
}

/// The profile table of one CPU or thread. For one context at a time.
///
/// (The most used fields come first, for short instructions; and readers rely on the layout, [`kymo_wire::note::table`].)
#[repr(C)]
#[derive(Debug)]
pub struct Profile<T> {
    /// Counters, which any context may read at any time.
    unmatched: AtomicU32,
    too_deep: AtomicU32,
    no_slot: AtomicU32,
    replaced: AtomicU32,
    /// The function of a call that found no slot, and is to get another function's; 0: none.
    wanting: Cell<usize>,
    /// The running stack.
    running: Cell<Option<Stack>>,
    /// The stack of the running thread, or of the one that will run when all interrupts have ended.
    thread: Cell<Option<Stack>>,
    interrupts: Cell<u8>,
    stacks: Cell<u8>,
    /// Whether recording is on, so that the table counts.
    on: Cell<bool>,
    /// Number of slots that are probed for a function.
    probes: Cell<u8>,
    /// Whether it is being cleared while CPUs record.
    paused: Cell<bool>,
    /// Frames per stack; 0: there is no table.
    depth: Cell<u16>,
    /// Largest number of calls per stack that have a frame.
    most: Cell<u16>,
    slots: Cell<*const Slot>,
    /// The first stack; the others follow it in memory.
    frames: Cell<Option<Stack>>,
    slot_count: Cell<u32>,
    /// Number of slots at which probing for a function may start.
    places: Cell<u32>,
    /// How long the table has counted; while it counts, the time at which that was 0.
    recorded: Cell64,
    /// Sum of the totals of replaced functions.
    replaced_total: Cell64,
    /// On several CPUs: the stacks of all, and the CPU's number.
    pool: Cell<Option<&'static Pool>>,
    cpu: Cell<u16>,
    /// Whether slots must not change, because a reader uses them: only the stacks follow the calls.
    slots_read: Cell<bool>,
    /// [`Pool::generation`] when the stacks that this CPU uses were last emptied.
    generation: Cell<u32>,
    target: PhantomData<T>,
}

/// Layout that readers of memory rely on ([`kymo_wire::note::table`]).
#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;

    use kymo_wire::event::WordSize;
    use kymo_wire::note::table;
    let word = match size_of::<usize>() {
        4 => WordSize::Bits32,
        _ => WordSize::Bits64,
    };
    assert!(size_of::<Slot>() == table::SLOT_BYTES);
    assert!(offset_of!(Slot, address) == table::ADDRESS);
    assert!(offset_of!(Slot, count) == table::count(word));
    assert!(offset_of!(Slot, active) == table::active(word));
    assert!(offset_of!(Slot, times) == table::TIMES);
    assert!(OWN == 0 && TOTAL == 1 && LEAST == 2 && MOST == 3);
    assert!(RECURSIVE == table::RECURSIVE);
    assert!(offset_of!(Profile<()>, unmatched) == table::UNMATCHED);
    assert!(offset_of!(Profile<()>, too_deep) == table::TOO_DEEP);
    assert!(offset_of!(Profile<()>, no_slot) == table::NO_SLOT);
    assert!(offset_of!(Profile<()>, replaced) == table::REPLACED);
    assert!(offset_of!(Profile<()>, on) == table::on(word));
    assert!(offset_of!(Profile<()>, paused) == table::paused(word));
    assert!(offset_of!(Profile<()>, slots) == table::slots(word));
    assert!(offset_of!(Profile<()>, slot_count) == table::slot_count(word));
    assert!(offset_of!(Profile<()>, recorded) == table::recorded(word));
    assert!(offset_of!(Profile<()>, replaced_total) == table::replaced_total(word));
};

impl<T: Target> Profile<T> {
    /// No table. All zero.
    pub const fn new() -> Self {
        Self {
            slots: Cell::new(null()),
            frames: Cell::new(None),
            slot_count: Cell::new(0),
            places: Cell::new(0),
            wanting: Cell::new(0),
            running: Cell::new(None),
            thread: Cell::new(None),
            depth: Cell::new(0),
            most: Cell::new(0),
            stacks: Cell::new(0),
            interrupts: Cell::new(0),
            on: Cell::new(false),
            probes: Cell::new(0),
            paused: Cell::new(false),
            no_slot: AtomicU32::new(0),
            too_deep: AtomicU32::new(0),
            unmatched: AtomicU32::new(0),
            replaced: AtomicU32::new(0),
            replaced_total: Cell64::new(0),
            recorded: Cell64::new(0),
            pool: Cell::new(None),
            cpu: Cell::new(0),
            slots_read: Cell::new(false),
            generation: Cell::new(0),
            target: PhantomData,
        }
    }

    /// Offset of the pointer to the running stack; null if none runs.
    pub const RUNNING_OFFSET: usize = core::mem::offset_of!(Self, running);

    /// Gives the table its memory, and clears it.
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
    ) -> Result<(), SetupError> {
        check_stacks(stacks, depth)?;
        if frames.is_null() || !frames.is_aligned() {
            return Err(Fault::Frames.of(frames.addr()));
        }
        self.set_slots(slots, slot_count)?;
        // SAFETY: by this function's contract.
        self.frames.set(Some(unsafe { Stack::new(frames) }));
        self.stacks.set(stacks as u8);
        self.depth.set(depth as u16);
        self.most.set(depth as u16 - 1);
        self.on.set(false);
        self.clear(0);
        Ok(())
    }

    /// Sets the memory of the slots, which is as [`set_up`](Self::set_up) requires it.
    #[inline(always)]
    fn set_slots(&self, slots: *const Slot, slot_count: u32) -> Result<(), SetupError> {
        if slots.is_null() || !slots.is_aligned() {
            return Err(Fault::Slots.of(slots.addr()));
        }
        if slot_count == 0 || size_of::<usize>() > 4 && slot_count > MAX_SLOTS {
            return Err(Fault::SlotCount.of(slot_count as usize));
        }
        self.slots.set(slots);
        self.slot_count.set(slot_count);
        let probes = slot_count.min(PROBES);
        self.probes.set(probes as u8);
        self.places.set(slot_count - probes + 1);
        Ok(())
    }

    /// Removes the table's memory.
    pub fn take_away(&self) {
        self.slot_count.set(0);
        self.stacks.set(0);
        self.depth.set(0);
        self.frames.set(None);
        self.running.set(None);
        self.thread.set(None);
    }

    /// Whether there is a table.
    #[inline(always)]
    pub fn exists(&self) -> bool {
        cfg!(feature = "profile") && self.depth.get() != 0
    }

    /// Whether there is a table that is not being cleared.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.exists() && !self.paused.get()
    }

    /// Returns the losses. Any context may call it at any time.
    pub fn losses(&self) -> Losses {
        Losses {
            no_slot: self.no_slot.load(Ordering::Relaxed),
            too_deep: self.too_deep.load(Ordering::Relaxed),
            unmatched: self.unmatched.load(Ordering::Relaxed),
            replaced: self.replaced.load(Ordering::Relaxed),
        }
    }

    /// Number of functions that have a slot. Any context may call it at any time.
    pub fn functions(&self) -> u32 {
        let taken = |slot: &&Slot| slot.address.get() != 0;
        self.table().iter().filter(taken).count() as u32
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slot_count.get()
    }

    /// Content of slot `n`: `Some(None)` if it is free, `None` behind the last.
    pub fn entry(&self, n: u32) -> Option<Option<Entry>> {
        let slot = self.table().get(n as usize)?;
        let count = slot.count.get();
        Some((slot.address.get() != 0).then(|| Entry {
            address: slot.address.get() as u64,
            count,
            total: slot.times[TOTAL].get(),
            recursive: slot.active.get() & RECURSIVE != 0,
            self_time: slot.times[OWN].get(),
            min: if count == 0 {
                0
            } else {
                !slot.times[LEAST].get()
            },
            max: slot.times[MOST].get(),
        }))
    }

    /// Counts the entry of `function` at `now`, in `thread` unless an interrupt is active.
    #[inline(always)]
    pub fn enter(&self, now: u64, thread: usize, function: usize) {
        self.enter_only(now, thread, function);
        if self.is_wanting() {
            self.replace();
        }
    }

    /// The same, after which the table may [want](Self::is_wanting) a slot for the function.
    #[inline(always)]
    pub(crate) fn enter_only(&self, now: u64, thread: usize, function: usize) {
        match self.runs(now, thread) {
            // SAFETY: one runs.
            Some(_) => _ = unsafe { Self::begin(self, function, now) },
            None => self.count(&self.too_deep, 1),
        }
    }

    /// Counts the exit of `function` at `now`.
    #[inline(always)]
    pub fn exit(&self, now: u64, thread: usize, function: usize) {
        if self.runs(now, thread).is_some() {
            // SAFETY: one runs.
            unsafe { Self::end(self, function, now) };
        }
    }

    /// The same on the running stack.
    ///
    /// (Hooks in assembly call this and [`begin`](Self::begin): the order of arguments suits their registers.)
    ///
    /// # Safety
    /// A stack runs.
    #[inline(never)]
    pub unsafe extern "C" fn end(this: &Self, function: usize, now: u64) {
        // SAFETY: by this function's contract.
        let stack = unsafe { this.running.get().unwrap_unchecked() };
        let head = stack.head();
        let open = stack.open();
        // (0 open calls wrap around, and fail the comparison.)
        if open.wrapping_sub(1) < u32::from(this.most.get()) {
            // SAFETY: so many are open.
            let frame = T::somewhere(unsafe { stack.frame(open) });
            if frame.address.get() == function {
                head.mark.set(open - 1);
                return this.close(head, now, frame, function);
            }
        }
        this.leave(stack, now, function, 0);
    }

    /// Whether a stack runs. None does while the table is [paused](Self::pause).
    #[inline(always)]
    pub(crate) fn runs_now(&self) -> bool {
        self.running.get().is_some()
    }

    /// The running stack; if none runs, selects that of this thread.
    #[inline(always)]
    fn runs(&self, now: u64, thread: usize) -> Option<Stack> {
        let running = self.running.get();
        if running.is_some() {
            return running;
        }
        self.wake(now, thread);
        self.running.get()
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, now: u64, thread: usize) {
        if self.exists() && self.interrupts.get() == 0 {
            self.switched_in(now, thread);
        }
    }

    /// Begins a call of this function on the running stack. Returns whether the table wants a slot for it, because all
    /// slots probed were in use.
    ///
    /// # Safety
    /// A stack runs.
    #[inline(never)]
    pub unsafe extern "C" fn begin(this: &Self, function: usize, now: u64) -> bool {
        // SAFETY: by this function's contract.
        let stack = unsafe { this.running.get().unwrap_unchecked() };
        let Some(frame) = this.push(stack, now, function) else {
            this.count(&this.too_deep, 1);
            return false;
        };
        if T::MIGRATES {
            stack.note(frame, function);
            return false;
        }
        let Some(slot) = this.slot(function) else {
            frame.mark.set(NO_SLOT);
            frame.extra.set(0);
            this.want(function);
            return true;
        };
        frame.mark.set(this.open(stack, slot));
        frame.extra.set(0);
        false
    }

    #[cold]
    #[inline(never)]
    fn want(&self, function: usize) {
        if self.wanting.replace(function) != 0 {
            // The wanting call was preempted by an interrupt whose function has no slot, either: only the last one gets
            // a slot.
            self.count(&self.no_slot, 1);
        }
    }

    /// Whether a function that was entered is to get another one's slot ([`replace`](Self::replace)).
    #[inline(always)]
    pub(crate) fn is_wanting(&self) -> bool {
        cfg!(feature = "profile") && self.wanting.get() != 0
    }

    /// Pushes a frame for a call or a handler; `None` if it does not fit.
    #[inline(always)]
    fn push(&self, stack: Stack, now: u64, function: usize) -> Option<&'static Frame> {
        let head = stack.head();
        let open = stack.open() + 1;
        head.mark.set(open);
        if open > self.most.get().into() {
            return None;
        }
        // SAFETY: it is the next one, and there is room.
        let frame = unsafe { stack.frame(open) };
        frame.address.set(function);
        frame.start.set(now.wrapping_sub(head.start.get()));
        frame.charged.set(head.charged.get());
        Some(frame)
    }

    /// Marks the newest call as one of this slot's function; returns the value for its frame.
    #[inline(always)]
    fn open(&self, stack: Stack, slot: &Slot) -> u32 {
        let bit = stack.head().extra.get();
        let active = slot.active.get();
        slot.active.set(active | bit);
        let word = self.word(slot);
        // (The stack of interrupts has no bit: handlers that nest there are no callers.)
        if active | bit != active || !stack.calls_again() {
            word | OUTERMOST
        } else {
            word
        }
    }

    /// Slow path of an exit of this function (0: of the handler above the newest [`BARRIER`]), which may not be the
    /// newest call. If `stay` is not 0, ends all calls but the `stay` outermost instead.
    #[cold]
    #[inline(never)]
    fn leave(&self, stack: Stack, now: u64, function: usize, stay: u32) {
        let head = stack.head();
        loop {
            let open = stack.open();
            if open == stay {
                if stay == 0 {
                    self.count(&self.unmatched, 1);
                }
                return;
            }
            let mut ours = stay == 0;
            if open < self.depth.get().into() {
                // SAFETY: so many are open.
                let frame = unsafe { stack.frame(open) };
                let address = frame.address.get();
                ours &= address == function;
                if address != BARRIER {
                    // SAFETY: this is the stack that runs.
                    unsafe { Self::end(self, address, now) };
                } else if ours {
                    // The handler below did not run meanwhile, and made no calls.
                    let duration = now
                        .wrapping_sub(head.start.get())
                        .wrapping_sub(frame.start.get());
                    grow(&head.start, duration);
                    head.charged.set(frame.charged.get());
                    if T::MIGRATES {
                        stack.forget(frame);
                    }
                } else {
                    return self.count(&self.unmatched, 1);
                }
            }
            // (A call that did not fit took no time, and has no slot.)
            head.mark.set(open - 1);
            if ours {
                return;
            }
            self.count(&self.unmatched, 1);
        }
    }

    /// Ends the newest call, of this function and with this frame.
    #[inline(always)]
    fn close(&self, head: &Frame, now: u64, frame: &Frame, function: usize) {
        let duration = now
            .wrapping_sub(head.start.get())
            .wrapping_sub(frame.start.get());
        let charged = frame.charged.get();
        let callees = head.charged.get().wrapping_sub(charged);
        head.charged.set(charged.wrapping_add(duration));
        let word = frame.mark.get();
        let slot = if T::MIGRATES {
            let Some(slot) = self.slot_at_end(head, word, function) else {
                return;
            };
            slot
        } else {
            if word == NO_SLOT {
                return;
            }
            // SAFETY: the frame says which slot its call has.
            let slot = unsafe { self.slot_of(word) };
            if slot.address.get() != function {
                // (A call without a slot from the beginning was counted then.)
                return self.count(&self.no_slot, 1);
            }
            slot
        };
        let active = slot.active.get();
        if word & OUTERMOST != 0 {
            if !T::MIGRATES {
                slot.active.set(active & !head.extra.get());
            }
            grow(&slot.times[TOTAL], duration);
        } else {
            slot.active.set(active | RECURSIVE);
        }
        let count = slot.count.get().wrapping_add(1);
        if count != 0 {
            slot.count.set(count);
        }
        grow(&slot.times[OWN], duration.wrapping_sub(callees));
        // (The minimum is stored inverted, so that 0 means none: this tests for a new or equal minimum.)
        let least = &slot.times[LEAST];
        if duration.checked_add(least.get()).is_some() {
            least.set(!duration);
        }
        raise(&slot.times[MOST], duration);
    }

    /// Adds to a count of losses.
    #[inline(never)]
    fn count(&self, counter: &AtomicU32, more: u32) {
        let sum = counter.load(Ordering::Relaxed).saturating_add(more);
        counter.store(sum, Ordering::Relaxed);
    }

    fn table(&self) -> &'static [Slot] {
        match self.slots() {
            0 => &[],
            // SAFETY: by the contract of `set_up`, which checked alignment and null.
            count => unsafe { from_raw_parts(self.slots.get(), count as usize) },
        }
    }

    /// The next stack in memory.
    #[inline(always)]
    fn next(&self, stack: Stack) -> Stack {
        let frames = usize::from(self.depth.get());
        // SAFETY: by the contract of `set_up`, and nothing is read behind the last.
        unsafe { Stack::new(ptr::from_ref(stack.head()).wrapping_add(frames)) }
    }
}

/// Adds to a sum.
#[inline(always)]
fn grow(sum: &Cell<u64>, more: u64) {
    sum.set(sum.get().wrapping_add(more));
}

/// Raises a maximum.
#[inline(always)]
fn raise(most: &Cell<u64>, to: u64) {
    if to > most.get() {
        most.set(to);
    }
}

impl<T: Target> Default for Profile<T> {
    fn default() -> Self {
        Self::new()
    }
}
