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
//!   time is part of the outermost one's. A slot says that there was such a call: the total is not the
//!   sum of all calls then. It has a bit for every thread's stack on which its function may be, so that
//!   most stacks need not be searched for it. The bit outlives a stack that is emptied, until the next
//!   call ends.
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
//! that of its own callees: then the end of a call changes nothing that belongs to another call.
//!
//! Where a stack is emptied before the first step, its mark is another one. If that was done by turning
//! recording off, and nobody has the stack by then, a call that had ended before is still charged, and no
//! longer counted as one that was open. If it was clearing, nothing more is done, nor is it if clearing
//! comes between later steps.
//!
//! One thing is not exact: a handler that is a function like any other to the recorder, because nobody says
//! that it is an interrupt's, and that strikes between the record and the first step. If it calls the very
//! function that is entered or left there, it is not seen that this call is (or is not) a recursive one: its
//! time is in the function's total once too often, or not at all. All else is exact then too.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::{self, null};
use core::slice::from_raw_parts;

use kymo_wire::link::{Fault, SetupError};
use kymo_wire::profile::Entry;

use crate::Target;
use crate::long::LongCell;
use crate::sync::{AtomicU32, Ordering};

mod context;
mod home;
mod jump;
mod slot;
mod stack;
mod table;
mod turn;

pub(crate) use home::Home;
pub use slot::Slot;
use slot::{LEAST, MOST, OWN, PROBES, RECURSIVE, TOTAL};
use stack::{BARRIER, NO_SLOT, OUTERMOST, Stack};
pub use stack::{Frame, Moment};

/// The most stacks there can be: one bit each in a slot.
pub const MAX_STACKS: u32 = 32;

/// There are no more slots than these, so that a frame can say which.
const MAX_SLOTS: u32 = u32::MAX / size_of::<Slot>() as u32;

/// Whether a table can have so many stacks of so many frames.
///
/// # Errors
/// Which of the two is out of range.
pub fn check_stacks(stacks: u32, depth: u32) -> Result<(), SetupError> {
    if !(2..=MAX_STACKS).contains(&stacks) {
        return Err(Fault::ShadowStacks.of(stacks as usize));
    }
    if !(2..=u16::MAX.into()).contains(&depth) {
        return Err(Fault::ShadowDepth.of(depth as usize));
    }
    Ok(())
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
    /// Anybody may ask for these at any time.
    unmatched: AtomicU32,
    too_deep: AtomicU32,
    no_slot: AtomicU32,
    /// The stack that runs.
    running: Cell<Option<Stack>>,
    /// The stack of the thread that runs, or will when all interrupts have ended.
    thread: Cell<Option<Stack>>,
    interrupts: Cell<u8>,
    stacks: Cell<u8>,
    /// It is kept.
    on: Cell<bool>,
    /// How many slots are looked at for a function.
    probes: Cell<u8>,
    /// Twice how often it has been cleared; odd while it is, beside whoever records.
    clears: Cell<u16>,
    /// Frames a stack; 0: there is no table.
    depth: Cell<u16>,
    slots: Cell<*const Slot>,
    /// The first stack, behind which the others follow.
    frames: Cell<Option<Stack>>,
    slot_count: Cell<u32>,
    /// How long the table has been kept; while it is, the time at which that would have been nothing.
    recorded: LongCell,
    target: PhantomData<T>,
}

impl<T: Target> Profile<T> {
    /// No table. All zero.
    pub const fn new() -> Self {
        Self {
            slots: Cell::new(null()),
            frames: Cell::new(None),
            slot_count: Cell::new(0),
            running: Cell::new(None),
            thread: Cell::new(None),
            depth: Cell::new(0),
            stacks: Cell::new(0),
            interrupts: Cell::new(0),
            on: Cell::new(false),
            probes: Cell::new(0),
            clears: Cell::new(0),
            no_slot: AtomicU32::new(0),
            too_deep: AtomicU32::new(0),
            unmatched: AtomicU32::new(0),
            recorded: LongCell::new(0),
            target: PhantomData,
        }
    }

    /// Gives the table its memory, and empties it.
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
        if slots.is_null() || !slots.is_aligned() {
            return Err(Fault::Slots.of(slots.addr()));
        }
        if frames.is_null() || !frames.is_aligned() {
            return Err(Fault::Frames.of(frames.addr()));
        }
        if slot_count == 0 || size_of::<usize>() > 4 && slot_count > MAX_SLOTS {
            return Err(Fault::SlotCount.of(slot_count as usize));
        }
        self.slots.set(slots);
        // SAFETY: by this function's contract.
        self.frames.set(Some(unsafe { Stack::new(frames) }));
        self.slot_count.set(slot_count);
        self.probes.set(slot_count.min(PROBES) as u8);
        self.stacks.set(stacks as u8);
        self.depth.set(depth as u16);
        self.on.set(false);
        self.clear(0);
        Ok(())
    }

    /// Takes the table's memory away again.
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

    /// Whether there is a table that takes events: it is not being cleared.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.exists() && self.clears.get().is_multiple_of(2)
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

    /// `function` was entered at `now`, in `thread` if no interrupt is being served.
    #[inline(always)]
    pub fn enter(&self, now: u64, thread: usize, function: usize) {
        self.be_run(now, thread);
        match &self.moment(now) {
            Some(at) => self.begin(at, function),
            None => self.lose_call(),
        }
    }

    /// `function` was left at `now`.
    #[inline(always)]
    pub fn exit(&self, now: u64, thread: usize, function: usize) {
        self.be_run(now, thread);
        if let Some(at) = &self.moment(now) {
            self.leave(at, function, 0);
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

    /// Notes what there is to know of the moment `now`; `None` if no stack runs. 0 stands for a moment that is
    /// told later, for it need not be held: if an event that is recorded next is indeed the
    /// next one, it was right. (In its place: it is too much to be handed on.)
    #[inline(never)]
    pub fn note_moment(&self, place: &mut Option<Moment>, now: u64) {
        // (A compiler would have what is looked at here passed one by one.)
        let it = T::somewhere(self);
        *place = match it.running.get() {
            None => None,
            Some(stack) => {
                let head = stack.head();
                Some(Moment {
                    call: Frame {
                        start: Cell::new(now.wrapping_sub(head.start.get())),
                        charged: Cell::new(head.charged.get()),
                        ..Frame::default()
                    },
                    mark: Cell::new(stack.mark()),
                    stack,
                    clears: it.clears.get(),
                })
            }
        };
    }

    /// The same of a moment at which nobody comes in between.
    #[inline(always)]
    pub fn moment(&self, now: u64) -> Option<Moment> {
        let mut moment = None;
        self.note_moment(&mut moment, now);
        moment
    }

    /// `function` was entered at `now`, of which the rest is known. Interrupts may be let go.
    #[inline(always)]
    pub fn enter_at(&self, at: &Moment, now: u64, function: usize) {
        if cfg!(feature = "profile") {
            at.is_at(now);
            self.begin(at, function);
        }
    }

    /// `function` was left at `now`, of which the rest is known. Interrupts may be let go.
    #[inline(always)]
    pub fn exit_at(&self, at: &Moment, now: u64, function: usize) {
        if cfg!(feature = "profile") {
            at.is_at(now);
            self.leave(at, function, 0);
        }
    }

    /// A call of this function began.
    #[inline(never)]
    fn begin(&self, at: &Moment, function: usize) {
        at.call.address.set(function);
        let mut lost = &self.too_deep;
        let mut slot = None;
        if at.mark.get().open() + 1 < self.depth.get().into() {
            lost = &self.no_slot;
            slot = self.slot(function);
            if let Some(slot) = slot {
                lost = &self.unmatched;
                let mut word = self.word(slot);
                // (The stack of interrupts, on which those that nest are no callers, has no bit.)
                let surely_not = at.stack.head().extra.get() & !slot.active.get();
                if surely_not != 0 || !at.has(function) {
                    word |= OUTERMOST;
                }
                at.call.mark.set(word);
            }
        }
        if self.push(at, slot) != 0 || slot.is_none() {
            self.count(lost, 1);
        }
    }

    /// There is one call more, or one handler, of which `at` knows all: 0 then. It is something else that is
    /// returned if the stack has been emptied since.
    #[inline(never)]
    fn push(&self, at: &Moment, slot: Option<&Slot>) -> u32 {
        let head = at.stack.head();
        let mark = at.mark.get();
        let next = mark.open() + 1;
        let mut frame = &at.call;
        if next < self.depth.get().into() {
            // SAFETY: it is the next one, and there is room.
            frame = unsafe { at.stack.frame(next) };
        }
        let frame = T::somewhere(frame);
        let bit = head.extra.get();
        let was = T::hold();
        let differs = if T::SINGLE {
            head.mark.get().wrapping_sub(mark.0)
        } else {
            0
        };
        if differs == 0 {
            head.mark.set(mark.more().0);
            if !ptr::eq(frame, &at.call) {
                // SAFETY: nobody holds on to what stands there.
                unsafe { frame.become_like(&at.call) };
            }
            if let Some(slot) = slot {
                slot.active.set(slot.active.get() | bit);
            }
        }
        T::let_go(was);
        differs
    }

    /// The function of this address (or the handler above the newest [`BARRIER`]) was left; or all calls but so
    /// many, if any are to `stay`.
    #[inline(never)]
    fn leave(&self, at: &Moment, function: usize, stay: u32) {
        at.call.address.set(function);
        loop {
            let open = at.mark.get().open();
            if open == stay {
                if stay == 0 {
                    self.count(&self.unmatched, 1);
                }
                return;
            }
            // One that did not fit took no time, and has no slot: it is like the one that begins now.
            let mut frame = &at.call;
            if open < self.depth.get().into() {
                // SAFETY: so many are open.
                frame = unsafe { at.stack.frame(open) };
            }
            let address = frame.address.get();
            let ours = address == function && stay == 0;
            if !ours && address == BARRIER {
                return self.count(&self.unmatched, 1);
            }
            if !self.close(at, frame) || ours {
                return;
            }
            self.count(&self.unmatched, 1);
        }
    }

    /// The newest call, which has this frame, ended; false if the stack is somebody else's by now.
    #[inline(always)]
    fn close(&self, at: &Moment, frame: &Frame) -> bool {
        let head = at.stack.head();
        // Behind the first step the frame may be an interrupt's.
        let word = frame.mark.get();
        let duration = at.call.start.get().wrapping_sub(frame.start.get());
        let charged = at.call.charged.get();
        let mut own = frame.charged.get().wrapping_sub(charged);
        if frame.address.get() == BARRIER {
            // The one below did not run meanwhile, and made no calls.
            grow(&head.start, duration);
        } else {
            own = own.wrapping_add(duration);
        }
        at.call.charged.set(charged.wrapping_add(own));
        let mark = at.mark.get();
        at.mark.set(mark.less());
        let slot = T::somewhere(self.slot_of(word));
        let outermost = word & OUTERMOST != 0;
        let bit = head.extra.get();
        let was = T::hold();
        let found = head.mark.get();
        if !T::SINGLE || found == mark.0 {
            head.mark.set(mark.less().0);
        } else if found == mark.emptied().0 {
            // When recording was turned off it was only known to be open.
            let unmatched = self.unmatched.load(Ordering::Relaxed);
            self.unmatched
                .store(unmatched.wrapping_sub(1), Ordering::Relaxed);
        } else {
            T::let_go(was);
            return false;
        }
        grow(&head.charged, own);
        if word == NO_SLOT {
            T::let_go(was);
            return true;
        }
        let active = slot.active.get();
        slot.active.set(if outermost {
            active & !bit
        } else {
            active | RECURSIVE
        });
        T::let_go(was);
        let was = T::hold();
        if self.clears.get() == at.clears {
            let count = slot.count.get().wrapping_add(1);
            if count != 0 {
                slot.count.set(count);
            }
            grow(&slot.times[OWN], own);
            if outermost {
                grow(&slot.times[TOTAL], duration);
            }
        }
        T::let_go(was);
        let was = T::hold();
        if self.clears.get() == at.clears {
            raise(&slot.times[LEAST], !duration);
            raise(&slot.times[MOST], duration);
        }
        T::let_go(was);
        true
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
        match self.slots() {
            0 => &[],
            // SAFETY: by the contract of `set_up`, which checked alignment and null.
            count => unsafe { from_raw_parts(self.slots.get(), count as usize) },
        }
    }

    /// The stack behind this one.
    #[inline(always)]
    fn next(&self, stack: Stack) -> Stack {
        let frames = usize::from(self.depth.get());
        // SAFETY: by the contract of `set_up`, and nobody looks at what is behind the last.
        unsafe { Stack::new(ptr::from_ref(stack.head()).wrapping_add(frames)) }
    }
}

/// There is more.
#[inline(always)]
fn grow(sum: &Cell<u64>, more: u64) {
    sum.set(sum.get().wrapping_add(more));
}

/// It is as much at least.
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
