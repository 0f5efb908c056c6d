//! Duration mode: records each call as one record, at its end, if it took long enough.
//!
//! An entry pushes a frame (function, time) onto the *shadow stack* of its thread, and does not touch the buffer. An
//! exit pops the frame. A call shorter than the threshold only adds its duration to its caller's frame, so that the
//! caller's self time is right. A longer call takes the slow path ([`single`](crate::single)), which checks depth and
//! filter and writes one record ([`EventId::Call`](kymo_wire::event::EventId::Call)).
//!
//! Hooks don't mask interrupts for that. A handler finds the stack as the interrupted context left it, pushes above,
//! and has popped everything when it returns; so a context that moves `top` finds it unchanged after an interrupt. An
//! entry reserves the frame first and fills it then; a frame that is free, or not filled yet, has no function. Calls of
//! handlers count as callees of the function that they interrupt, so that their time is not part of its self time.
//!
//! Each thread has a stack; [`Control::run`] switches stacks. In a Linux process each thread has a [`Control`], with
//! one stack. A call that finds its stack full, or no stack for its thread, is counted ([`Counts::too_deep`]), and so
//! are its callees; `top` points to a frame that accepts no call until all of them have ended.
//!
//! If an exit does not find its function on top, either its entry was not seen, or the calls above it ended without an
//! exit (by a jump, or while recording was disabled). The latter are recorded as
//! [lost](kymo_wire::event::EventId::CallLost) if they took long enough.
//!
//! On 32-bit machines a call may outlast the wraparound of the counter. So [`Control::age`] is called several times in
//! each wraparound, and stores the upper half of the times of the open frames. It marks these frames by inverting the
//! lowest bit of their function, so that the exit finds another function on top and takes the slow path.
//!
//! The structure is the program's (`kymo_duration_t` in `kymo.h`, the symbol `kymo_duration`). Threshold, depth and
//! filter are read from there at each use, so that a debugger can write them while the program runs.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::hot::CODE_BIT;
use crate::sync::{AtomicU32, Ordering, add, compiler_fence};

mod calls;
mod filter;
mod jump;
mod moved;
mod program;
mod settings;

use kymo_wire::event::WordSize;
use kymo_wire::link::Action;
use kymo_wire::note::duration as structure;
#[cfg(target_has_atomic = "ptr")]
pub(crate) use program::cpus_program;
pub(crate) use program::program;
pub use settings::{Rule, Settings, WORDS as RETAINED_WORDS};

use core::sync::atomic::{AtomicPtr, AtomicUsize};

/// Value of the word `magic` of [`Settings`] in a program that has the structure.
pub const MAGIC: u32 = 0x4B79_4475;

/// An open call, or a stack's head: the first frame of each stack, which holds the stack's own state.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// The function as hooks pass it, with the lowest bit inverted if the frame [has aged](Control::age); 0 if the
    /// frame is free. Always 0 in a stack's head.
    function: AtomicUsize,
    /// Total duration of the calls that it made and that have ended.
    children: AtomicUsize,
    /// Begin of the call. In a stack's head: the thread.
    start: AtomicUsize,
    /// On 32-bit machines: `children` at the last [`age`](Control::age). In a stack's head: the saved `top`, while the
    /// stack does not run.
    counted: AtomicUsize,
    /// How long the thread was switched out during the call. In a stack's head: the time at which it was switched out.
    away: AtomicUsize,
    /// Upper half of `start`. In a stack's head: the thread, once that runs [on another CPU](Control::mark_moved).
    start_high: AtomicUsize,
    /// Upper half of `children`.
    children_high: AtomicUsize,
    /// In a stack's head: number of open calls without a frame. In a call: mark that it has called `setjmp`, and with
    /// which buffer ([`mark`](Self::mark)).
    deep: AtomicUsize,
}

impl Frame {
    /// Size of a frame.
    pub const BYTES: usize = size_of::<Self>();
    /// Offset of the function.
    pub const FUNCTION_OFFSET: usize = offset_of!(Self, function);
    /// Offset of the callees' total duration.
    pub const CHILDREN_OFFSET: usize = offset_of!(Self, children);
    /// Offset of the begin.
    pub const START_OFFSET: usize = offset_of!(Self, start);

    const fn new() -> Self {
        Self {
            function: AtomicUsize::new(0),
            children: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            start_high: AtomicUsize::new(0),
            children_high: AtomicUsize::new(0),
            deep: AtomicUsize::new(0),
        }
    }

    /// Value of `deep` for a call that has called `setjmp` with this buffer. It depends on function and time, so that
    /// it does not match a call that used the frame before.
    fn mark(&self, buffer: usize) -> usize {
        let (function, start) = (
            self.function.load(Ordering::Relaxed),
            self.start.load(Ordering::Relaxed),
        );
        // (The lowest bit tells whether the frame has aged.)
        buffer ^ (function | 1).rotate_left(7) ^ start.rotate_left(16)
    }

    fn end(&self) -> *mut Self {
        self.counted.load(Ordering::Relaxed) as *mut Self
    }
}

/// Whether `found`, from a frame, is this function; `Some(true)` if the frame has aged.
fn is_of(found: usize, function: usize) -> Option<bool> {
    match found ^ function {
        0 => Some(false),
        1 if found != 0 => Some(true),
        _ => None,
    }
}

/// Counts of calls that could not be tracked. They saturate at 2^32 - 1.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    /// Calls without a frame: their stack was full, or no stack was free for their thread.
    pub too_deep: AtomicU32,
    /// Exits without an entry, and entries without an exit of their own.
    pub unmatched: AtomicU32,
}

/// Duration mode of one processor, CPU or thread of a process: `kymo_duration_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// The next free frame.
    top: AtomicPtr<Frame>,
    /// End of the running stack; null: only the slow path may push.
    limit: AtomicPtr<Frame>,
    /// Address of the clock's register.
    counter: AtomicPtr<u32>,
    /// Settings of the program and of a debugger.
    pub settings: Settings,
    /// Counts of calls that could not be tracked.
    pub counts: Counts,
    /// Memory of all stacks, which are contiguous.
    frames: *mut Frame,
    stacks: u32,
    depth: u32,
    /// Head of the running stack; null if the thread has none.
    running: AtomicPtr<Frame>,
    /// Number of open calls of a thread without a stack; they have no frame.
    unbuffered: AtomicU32,
    /// Bits 30 and up of the time at which frames last aged.
    age: Cell<u32>,
    /// Dummy frames for `top` when there is no room: they accept no call, and match no exit.
    full: [Frame; 2],
}

// What a reader of memory relies on.
#[cfg(target_pointer_width = "32")]
const WORD: WordSize = WordSize::Bits32;
#[cfg(target_pointer_width = "64")]
const WORD: WordSize = WordSize::Bits64;
const _: () = assert!(
    offset_of!(Control, top) == structure::TOP
        && Control::SETTINGS_OFFSET + Settings::MAGIC_OFFSET == structure::magic(WORD)
        && Control::SETTINGS_OFFSET + Settings::FLAGS_OFFSET == structure::flags(WORD)
        && offset_of!(Control, frames) == structure::frames(WORD)
        && offset_of!(Control, stacks) == structure::stacks(WORD)
        && offset_of!(Control, depth) == structure::stacks(WORD) + 4
        && offset_of!(Control, running) == structure::running(WORD)
        && offset_of!(Control, age) == structure::age(WORD)
        && size_of::<Control>() == structure::bytes(WORD)
);
const _: () = assert!(
    offset_of!(Frame, function) == structure::FUNCTION * size_of::<usize>()
        && offset_of!(Frame, children) == structure::CALLEES * size_of::<usize>()
        && offset_of!(Frame, start) == structure::START * size_of::<usize>()
        && offset_of!(Frame, counted) == structure::END * size_of::<usize>()
        && offset_of!(Frame, start_high) == structure::START_HIGH * size_of::<usize>()
        && offset_of!(Frame, children_high) == structure::CALLEES_HIGH * size_of::<usize>()
        && offset_of!(Frame, deep) == structure::DEEP * size_of::<usize>()
        && Frame::BYTES == structure::FRAME_WORDS * size_of::<usize>()
        && MAGIC == structure::MAGIC
        && settings::ON == structure::ON
);

// SAFETY: fields that are not atomic are set before any other context knows the structure, or used by one context.
unsafe impl Sync for Control {}

/// A call that has ended, or whose end was detected later.
#[derive(Debug)]
pub struct Ended {
    /// The function as hooks pass it.
    pub function: usize,
    /// Its duration.
    pub duration: u64,
    /// Its self time: the duration without its callees.
    pub own: u64,
    /// How long its thread was switched out.
    pub away: u64,
    /// Whether its exit was seen.
    pub exited: bool,
    /// Its frame, and its stack's head.
    frame: *mut Frame,
    head: *mut Frame,
}

impl Control {
    /// Offset of `top`.
    pub const TOP_OFFSET: usize = offset_of!(Self, top);
    /// Offset of the end of the running stack.
    pub const LIMIT_OFFSET: usize = offset_of!(Self, limit);
    /// Offset of the counter's address.
    pub const COUNTER_OFFSET: usize = offset_of!(Self, counter);
    /// Offset of the settings.
    pub const SETTINGS_OFFSET: usize = offset_of!(Self, settings);

    /// Creates the structure with these stacks, each of `depth` frames of which the first is its head.
    ///
    /// # Safety
    /// `frames` points to `stacks * depth` of them, all zero, which only this uses.
    pub const unsafe fn new(frames: *mut Frame, stacks: u32, depth: u32) -> Self {
        Self {
            top: AtomicPtr::new(null_mut()),
            limit: AtomicPtr::new(null_mut()),
            counter: AtomicPtr::new(null_mut()),
            settings: Settings::new(),
            counts: Counts {
                too_deep: AtomicU32::new(0),
                unmatched: AtomicU32::new(0),
            },
            frames,
            stacks,
            depth,
            running: AtomicPtr::new(null_mut()),
            unbuffered: AtomicU32::new(0),
            age: Cell::new(0),
            full: [const { Frame::new() }; 2],
        }
    }

    /// Assigns to the structure of the `n`th CPU its part of the frames of all.
    ///
    /// # Safety
    /// `control` is such a structure, which no other context knows yet. From `frames` on there are those of all CPUs,
    /// all zero, which only they use.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) unsafe fn place_frames(control: *mut Self, frames: *mut Frame, n: usize) {
        // SAFETY: by this function's contract.
        unsafe {
            let of_each = (*control).stacks as usize * (*control).depth as usize;
            (*control).frames = frames.wrapping_add(n * of_each);
        }
    }

    /// Whether the program has given it usable memory.
    pub fn is_usable(&self) -> bool {
        self.settings.magic == MAGIC
            && !self.frames.is_null()
            && self.frames.is_aligned()
            && (1..=MAX_STACKS).contains(&self.stacks)
            && (2..=MAX_DEPTH).contains(&self.depth)
    }

    /// Sets the counter that hooks may read; null: none.
    pub fn set_counter(&self, counter: *const u32) {
        self.counter.store(counter.cast_mut(), Ordering::Relaxed);
    }

    /// Drops all open calls; `thread` runs. The caller has exclusive access.
    pub fn reset(&self, thread: usize) {
        for n in 0..self.stacks {
            for i in 1..self.depth {
                // SAFETY: the stack has so many frames.
                let frame = unsafe { &*self.stack(n).add(i as usize) };
                frame.function.store(0, Ordering::Relaxed);
            }
        }
        self.set_up(thread);
    }

    /// [`reset`](Self::reset) for frames that are all free.
    pub fn set_up(&self, thread: usize) {
        for n in 0..self.stacks {
            let head = self.stack(n);
            // SAFETY: the stack has a frame behind its head.
            let first = unsafe { head.add(1) };
            // SAFETY: it is one of the program's frames.
            let head = unsafe { &*head };
            head.start.store(0, Ordering::Relaxed);
            head.counted.store(first as usize, Ordering::Relaxed);
            head.deep.store(0, Ordering::Relaxed);
        }
        self.unbuffered.store(0, Ordering::Relaxed);
        self.running.store(null_mut(), Ordering::Relaxed);
        self.block();
        self.run(thread, 0);
    }

    fn stack(&self, n: u32) -> *mut Frame {
        self.frames.wrapping_add(n as usize * self.depth as usize)
    }

    /// Points `top` to the dummy frames, where no call finds room and no exit a function.
    fn block(&self) {
        let full: *const Frame = &raw const self.full[1];
        self.limit.store(null_mut(), Ordering::Relaxed);
        self.top.store(full.cast_mut(), Ordering::Relaxed);
    }

    /// Makes the stack with this `head` run, with this `top`.
    fn resume(&self, head: *mut Frame, top: *mut Frame) {
        self.running.store(head, Ordering::Relaxed);
        self.top.store(top, Ordering::Relaxed);
        self.limit
            .store(head.wrapping_add(self.depth as usize), Ordering::Relaxed);
    }

    /// Switches to this thread at `now` (the low bits). The caller has exclusive access.
    pub fn run(&self, thread: usize, now: usize) {
        let before = self.running.load(Ordering::Relaxed);
        if !before.is_null() {
            // SAFETY: it is the head of a stack.
            let head = unsafe { &*before };
            if head.start.load(Ordering::Relaxed) == thread {
                return;
            }
            if head.deep.load(Ordering::Relaxed) == 0 {
                let top = self.top.load(Ordering::Relaxed);
                head.counted.store(top as usize, Ordering::Relaxed);
            }
            head.away.store(now, Ordering::Relaxed);
        }
        let mut free = null_mut();
        for n in 0..self.stacks {
            let place = self.stack(n);
            // SAFETY: it is one of the program's frames.
            let head = unsafe { &*place };
            let is_empty = head.end() == place.wrapping_add(1);
            if head.start.load(Ordering::Relaxed) == thread && !(is_empty && thread == 0) {
                free = place;
                break;
            }
            if is_empty && free.is_null() && place != before {
                free = place;
            }
        }
        self.running.store(free, Ordering::Relaxed);
        if free.is_null() {
            return self.block();
        }
        // SAFETY: it is the head of a stack.
        let head = unsafe { &*free };
        if head.start.swap_relaxed(thread) == thread {
            self.count_away(
                free,
                head.end(),
                now.wrapping_sub(head.away.load(Ordering::Relaxed)),
            );
        }
        if head.deep.load(Ordering::Relaxed) == 0 {
            self.resume(free, head.end());
        } else {
            self.block();
        }
    }

    /// Adds `time` to the switched-out times of a stack's calls.
    fn count_away(&self, head: *mut Frame, top: *mut Frame, time: usize) {
        if !self.settings.counts_cpu() {
            return;
        }
        let mut frame = head.wrapping_add(1);
        while frame < top {
            // SAFETY: it lies between the stack's head and its end.
            let it = unsafe { &*frame };
            let away = it.away.load(Ordering::Relaxed);
            it.away.store(away.wrapping_add(time), Ordering::Relaxed);
            frame = frame.wrapping_add(1);
        }
    }

    /// Usual case of an entry; calls `now` for the time after reserving the frame. Returns false if the slow path must
    /// handle the entry.
    #[inline(always)]
    pub fn enter(&self, function: usize, now: impl FnOnce() -> usize) -> bool {
        let frame = self.top.load(Ordering::Relaxed);
        if frame >= self.limit.load(Ordering::Relaxed) {
            return false;
        }
        self.top.store(frame.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: it lies below the end of the running stack.
        let frame = unsafe { &*frame };
        frame.children.store(0, Ordering::Relaxed);
        if self.settings.counts_cpu() {
            frame.away.store(0, Ordering::Relaxed);
        }
        frame.start.store(now(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        frame.function.store(function, Ordering::Relaxed);
        true
    }

    /// Usual case of an exit at `now`: handles calls shorter than the threshold. Returns false if the slow path must
    /// handle the exit.
    #[inline(always)]
    pub fn exit(&self, function: usize, now: usize) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        self.exit_at(top, function, now)
    }

    /// [`exit`](Self::exit) where this structure's memory may have been replaced by zeros: in the child of a fork in a
    /// signal handler that interrupted a hook.
    #[inline(always)]
    pub fn exit_if_any(&self, function: usize, now: usize) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        !top.is_null() && self.exit_at(top, function, now)
    }

    #[inline(always)]
    fn exit_at(&self, top: *mut Frame, function: usize, now: usize) -> bool {
        let frame = top.wrapping_sub(1);
        // SAFETY: in front of `top` there is a frame, or the head of a stack.
        let it = unsafe { &*frame };
        if it.function.load(Ordering::Relaxed) != function {
            return false;
        }
        let duration = now.wrapping_sub(it.start.load(Ordering::Relaxed));
        if duration >= self.settings.threshold() {
            return false;
        }
        self.charge(frame, duration);
        self.pop(frame);
        true
    }

    /// Adds a call's duration to its caller's frame.
    #[inline(always)]
    fn charge(&self, frame: *mut Frame, duration: usize) {
        // SAFETY: in front of a frame there is another, or the head of its stack.
        let caller = unsafe { &*frame.wrapping_sub(1) };
        let children = caller.children.load(Ordering::Relaxed);
        caller
            .children
            .store(children.wrapping_add(duration), Ordering::Relaxed);
    }

    /// Pops a frame.
    #[inline(always)]
    fn pop(&self, frame: *mut Frame) {
        // SAFETY: it lies in the running stack.
        unsafe { &*frame }.function.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.top.store(frame, Ordering::Relaxed);
    }

    /// Slow path of an entry, for calls that find no room. Returns whether a frame was pushed after all.
    #[cold]
    pub fn enter_slowly(&self, function: usize, now: usize) -> bool {
        if self.enter(function, || now) {
            return true;
        }
        add(&self.counts.too_deep, 1);
        match self.head() {
            Some(head) => {
                let deep = head.deep.load(Ordering::Relaxed);
                if deep == 0 {
                    let top = self.top.load(Ordering::Relaxed);
                    head.counted.store(top as usize, Ordering::Relaxed);
                    self.block();
                }
                head.deep.store(deep + 1, Ordering::Relaxed);
            }
            None => add(&self.unbuffered, 1),
        }
        false
    }

    /// The head of the running stack.
    fn head(&self) -> Option<&Frame> {
        // SAFETY: it is null or one of the program's frames.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    /// Slow path of an exit at `now`: passes the calls that end, innermost first, to `ended`. The caller has exclusive
    /// access.
    #[cold]
    pub fn exit_slowly(&self, function: usize, now: u64, mut ended: impl FnMut(&Self, &Ended)) {
        let place = self.running.load(Ordering::Relaxed);
        let Some(head) = self.head() else {
            let unbuffered = self.unbuffered.load(Ordering::Relaxed);
            return self
                .unbuffered
                .store(unbuffered.saturating_sub(1), Ordering::Relaxed);
        };
        let deep = head.deep.load(Ordering::Relaxed);
        if deep != 0 {
            head.deep.store(deep - 1, Ordering::Relaxed);
            if deep == 1 {
                self.resume(place, head.end());
            }
            return;
        }
        let mut frame = self.top.load(Ordering::Relaxed);
        let found = loop {
            frame = frame.wrapping_sub(1);
            if frame <= place {
                break false;
            }
            // SAFETY: it lies in the running stack.
            let it = unsafe { &*frame };
            if is_of(it.function.load(Ordering::Relaxed), function).is_some() {
                break true;
            }
        };
        if !found {
            return add(&self.counts.unmatched, 1);
        }
        loop {
            let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
            let is_it = top == frame;
            if let Some(mut call) = self.call(place, top, now) {
                call.exited = is_it;
                self.charge(top, call.duration as usize);
                ended(self, &call);
            }
            if !is_it {
                add(&self.counts.unmatched, 1);
            }
            self.pop(top);
            if is_it {
                return;
            }
        }
    }

    /// The call in a frame, as of `now`; `None` if there is none.
    fn call(&self, head: *mut Frame, frame: *mut Frame, now: u64) -> Option<Ended> {
        // SAFETY: it lies in a stack.
        let it = unsafe { &*frame };
        let load = |from: &AtomicUsize| from.load(Ordering::Relaxed);
        let function = load(&it.function);
        if function == 0 {
            return None;
        }
        let aged = usize::BITS == 32 && function & 1 != CODE_BIT & 1;
        let (duration, children) = if aged {
            let whole = |high: &AtomicUsize, low: &AtomicUsize| {
                // (On 64-bit machines frames don't age.)
                ((load(high) as u64) << 32) | load(low) as u64
            };
            let start = whole(&it.start_high, &it.start);
            let again = usize::from(load(&it.children) < load(&it.counted)) as u64;
            let children = whole(&it.children_high, &it.children) + (again << 32);
            (now.wrapping_sub(start), children)
        } else {
            let low = (now as usize).wrapping_sub(load(&it.start));
            (low as u64, load(&it.children) as u64)
        };
        Some(Ended {
            function: if aged { function ^ 1 } else { function },
            duration,
            own: duration.saturating_sub(children),
            away: if self.settings.counts_cpu() {
                load(&it.away) as u64
            } else {
                0
            },
            exited: false,
            frame,
            head,
        })
    }
}

/// Largest number of stacks.
pub const MAX_STACKS: u32 = 64;

/// Largest number of frames per stack.
pub const MAX_DEPTH: u32 = 4096;

/// Non-atomic swap, for contexts that nothing interrupts.
trait SwapRelaxed {
    fn swap_relaxed(&self, value: usize) -> usize;
}

impl SwapRelaxed for AtomicUsize {
    #[inline(always)]
    fn swap_relaxed(&self, value: usize) -> usize {
        let old = self.load(Ordering::Relaxed);
        self.store(value, Ordering::Relaxed);
        old
    }
}
