//! Duration mode: a call is one record, written at its end, if it took long enough.
//!
//! An entry pushes a frame onto the *shadow stack* of its thread (function, time), and touches no buffer. An exit
//! takes the frame off: what took less than the threshold adds its duration to the frame of its caller, so that this
//! one's self time is right, and leaves nothing else behind. What took longer goes to the slow path
//! ([`single`](crate::single)), which looks at depth and filter, and writes one record
//! ([`EventId::Call`](kymo_wire::event::EventId::Call)).
//!
//! Nobody masks interrupts for that. A handler finds the stack as the interrupted context left it, pushes above,
//! and has taken everything off again when it returns; so a context that moves `top` finds it later where it was. An entry
//! reserves the frame first and fills it then; one that is free, or not filled yet, has no function. Handlers' calls
//! are callees of the function that they interrupted, as their time is none of its own.
//!
//! Threads have a stack each, which [`Control::run`] changes; those of a Linux process a [`Control`] each, with one stack. A call
//! that finds its stack full, or none left for its thread,
//! is counted ([`Counts::too_deep`]), and so are its callees; `top` stands in a frame that takes no call until
//! all of them have ended.
//!
//! An exit that does not find its function on top was not seen to be entered, or what is above it was left without
//! an exit (by a jump, or while recording was disabled): the latter are recorded as
//! [lost](kymo_wire::event::EventId::CallLost) if they took long enough.
//!
//! Where words have 32 bits a call may last longer than the counter takes to come round. So
//! [`Control::age`] is called several times in such a turn, and gives the frames that it meets the upper half of their times;
//! an exit then finds another function than its own on top, because the lowest bit is the other one, and takes
//! the slow path.
//!
//! The structure is the program's (`kymo_duration_t` in `kymo.h`, the symbol `kymo_duration`). Threshold, depth and
//! filter are looked at where they stand, so that a debugger can write them while the program runs.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::hot::CODE_BIT;
use crate::sync::{AtomicU32, Ordering, add, compiler_fence};

mod calls;
mod filter;
mod jump;
#[cfg(target_has_atomic = "ptr")]
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

/// What the word `magic` of [`Settings`] holds in a program that has the structure.
pub const MAGIC: u32 = 0x4B79_4475;

/// An open call, or the first of each stack: what there is to know of the stack itself.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// The function as hooks pass it; with the other lowest bit if the frame [has aged](Control::age), 0 while there is none. Of
    /// a stack always 0.
    function: AtomicUsize,
    /// The durations of the calls that it made and that have ended.
    children: AtomicUsize,
    /// When it began. Of a stack: its thread.
    start: AtomicUsize,
    /// Where 32 bits are not enough: `children` when it was last looked at. Of a stack: where it ends while it does not run.
    counted: AtomicUsize,
    /// For how long its thread has not run meanwhile. Of a stack: since when it does not.
    away: AtomicUsize,
    /// The upper half of `start`. Of a stack: its thread, once that runs [on another CPU](Control::mark_moved).
    start_high: AtomicUsize,
    /// The upper half of `children`.
    children_high: AtomicUsize,
    /// Of a stack: how many calls are open that have no frame. Of a call: that it called `setjmp`, and with which
    /// buffer ([`mark`](Self::mark)).
    deep: AtomicUsize,
}

impl Frame {
    /// The size of a frame.
    pub const BYTES: usize = size_of::<Self>();
    /// Where the function is.
    pub const FUNCTION_OFFSET: usize = offset_of!(Self, function);
    /// Where the durations of its callees are.
    pub const CHILDREN_OFFSET: usize = offset_of!(Self, children);
    /// Where the time is at which it began.
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

    /// What says in `deep` that this very call has called `setjmp` with a buffer, and not one that had the frame before.
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

/// Whether a frame that says `found` is of this function; `Some(true)` if it has aged.
fn is_of(found: usize, function: usize) -> Option<bool> {
    match found ^ function {
        0 => Some(false),
        1 if found != 0 => Some(true),
        _ => None,
    }
}

/// What could not be followed. Each stays at 2^32 - 1.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    /// Calls without a frame: their stack was full, or there was none left for their thread.
    pub too_deep: AtomicU32,
    /// Exits without an entry, and entries without an exit of their own.
    pub unmatched: AtomicU32,
}

/// Duration mode of one processor, or one thread of a process: `kymo_duration_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// Where the next frame goes.
    top: AtomicPtr<Frame>,
    /// Where the running stack ends; null: nobody pushes but the slow path.
    limit: AtomicPtr<Frame>,
    /// The register that counts the time.
    counter: AtomicPtr<u32>,
    /// What the program and a debugger set.
    pub settings: Settings,
    /// What could not be followed.
    pub counts: Counts,
    /// The memory of all stacks, one behind the other.
    frames: *mut Frame,
    stacks: u32,
    depth: u32,
    /// The first frame of the running stack; null if there is none for the thread.
    running: AtomicPtr<Frame>,
    /// How many calls are open that have no frame, of a thread without a stack.
    homeless: AtomicU32,
    /// Bits 30 and up of the time at which frames last aged.
    age: Cell<u32>,
    /// Takes no call, and is where `top` stands where there is no room.
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

// SAFETY: what is not atomic is set before anybody else knows of it, or used by one context.
unsafe impl Sync for Control {}

/// A call that has ended, or been found to.
#[derive(Debug)]
pub struct Ended {
    /// The function as hooks pass it.
    pub function: usize,
    /// How long it took.
    pub duration: u64,
    /// The same without the calls that it made.
    pub own: u64,
    /// For how long its thread did not run.
    pub away: u64,
    /// Whether its exit was seen.
    pub exited: bool,
    /// Its frame, and the first of its stack.
    frame: *mut Frame,
    head: *mut Frame,
}

impl Control {
    /// Where `top` is.
    pub const TOP_OFFSET: usize = offset_of!(Self, top);
    /// Where the end of the running stack is.
    pub const LIMIT_OFFSET: usize = offset_of!(Self, limit);
    /// Where the counter's address is.
    pub const COUNTER_OFFSET: usize = offset_of!(Self, counter);
    /// Where the settings are.
    pub const SETTINGS_OFFSET: usize = offset_of!(Self, settings);

    /// With these stacks, each of so many frames of which it needs the first itself.
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
            homeless: AtomicU32::new(0),
            age: Cell::new(0),
            full: [const { Frame::new() }; 2],
        }
    }

    /// Gives the structure of the `n`th CPU its part of the frames of all.
    ///
    /// # Safety
    /// `control` is such a structure, of which nobody else knows yet. From `frames` on there are those of all CPUs, all zero, which
    /// only they use.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) unsafe fn place_frames(control: *mut Self, frames: *mut Frame, n: usize) {
        // SAFETY: by this function's contract.
        unsafe {
            let of_each = (*control).stacks as usize * (*control).depth as usize;
            (*control).frames = frames.wrapping_add(n * of_each);
        }
    }

    /// Whether the program has given it memory that can be used.
    pub fn is_usable(&self) -> bool {
        self.settings.magic == MAGIC
            && !self.frames.is_null()
            && self.frames.is_aligned()
            && (1..=MAX_STACKS).contains(&self.stacks)
            && (2..=MAX_DEPTH).contains(&self.depth)
    }

    /// The counter that hooks may read, or null.
    pub fn set_counter(&self, counter: *const u32) {
        self.counter.store(counter.cast_mut(), Ordering::Relaxed);
    }

    /// Nothing is open; `thread` runs. With nobody else at it.
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

    /// [`reset`](Self::reset) where all frames are free.
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
        self.homeless.store(0, Ordering::Relaxed);
        self.running.store(null_mut(), Ordering::Relaxed);
        self.block();
        self.run(thread, 0);
    }

    fn stack(&self, n: u32) -> *mut Frame {
        self.frames.wrapping_add(n as usize * self.depth as usize)
    }

    /// `top` stands where no call finds room, and no exit a function.
    fn block(&self) {
        let full: *const Frame = &raw const self.full[1];
        self.limit.store(null_mut(), Ordering::Relaxed);
        self.top.store(full.cast_mut(), Ordering::Relaxed);
    }

    /// The stack that begins at `head` runs, up to `top`.
    fn resume(&self, head: *mut Frame, top: *mut Frame) {
        self.running.store(head, Ordering::Relaxed);
        self.top.store(top, Ordering::Relaxed);
        self.limit
            .store(head.wrapping_add(self.depth as usize), Ordering::Relaxed);
    }

    /// This thread runs from `now` on (the low bits). With nobody else at it.
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

    /// The thread of a stack has not run for so long.
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

    /// The usual way into a call, at a time that `now` reads when its frame is reserved; false if it is for the slow path.
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

    /// The usual way out of a call at `now`, if it took less than the threshold; false if it is for the slow path.
    #[inline(always)]
    pub fn exit(&self, function: usize, now: usize) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        self.exit_at(top, function, now)
    }

    /// The same where the memory of all this may have been replaced by zeros, as in the child of a fork that a signal's
    /// handler makes which interrupts a hook.
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

    /// The caller of a call made one that took so long.
    #[inline(always)]
    fn charge(&self, frame: *mut Frame, duration: usize) {
        // SAFETY: in front of a frame there is another, or the head of its stack.
        let caller = unsafe { &*frame.wrapping_sub(1) };
        let children = caller.children.load(Ordering::Relaxed);
        caller
            .children
            .store(children.wrapping_add(duration), Ordering::Relaxed);
    }

    /// Takes a frame off.
    #[inline(always)]
    fn pop(&self, frame: *mut Frame) {
        // SAFETY: it lies in the running stack.
        unsafe { &*frame }.function.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.top.store(frame, Ordering::Relaxed);
    }

    /// A call that found no room: whether its frame was pushed after all.
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
            None => add(&self.homeless, 1),
        }
        false
    }

    /// The head of the running stack.
    fn head(&self) -> Option<&Frame> {
        // SAFETY: it is null or one of the program's frames.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    /// The function was left at `now`, and that is not usual: gives the calls that end, the innermost first, to `ended`. With nobody else at it.
    #[cold]
    pub fn exit_slowly(&self, function: usize, now: u64, mut ended: impl FnMut(&Self, &Ended)) {
        let place = self.running.load(Ordering::Relaxed);
        let Some(head) = self.head() else {
            let homeless = self.homeless.load(Ordering::Relaxed);
            return self
                .homeless
                .store(homeless.saturating_sub(1), Ordering::Relaxed);
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

    /// What a frame says at `now`; `None` if there is no call in it.
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
                // (Of a 64-bit machine nothing ages.)
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

/// The most stacks.
pub const MAX_STACKS: u32 = 64;

/// The most frames of a stack.
pub const MAX_DEPTH: u32 = 4096;

/// Swaps as one context may where nobody comes in between.
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
