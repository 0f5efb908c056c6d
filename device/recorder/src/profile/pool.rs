//! Shadow stacks that several CPUs share.
//!
//! A thread may continue on another CPU in the middle of a call, so its shadow stack belongs to no CPU. The CPU to which
//! a thread is switched *takes* the stack, and *gives it back* when it switches to another thread. In between the stack
//! is that CPU's alone. If the other CPU is late (the thread already runs here, but that CPU has not reported its
//! switch), the thread has no stack for the moment: its calls are counted as ones that did not fit, and each of them
//! tries again.
//!
//! Code that runs without a thread has a stack of its own on each CPU, and so have each CPU's interrupts, whose stacks
//! never change hands. A stack without open calls may be given to another thread.
//!
//! Recording on or off, and clearing, end all open calls on all CPUs. Nobody may touch a stack that another CPU uses, so
//! the stacks are emptied later, when they are used again: each has the *generation* of its calls.

use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::AtomicUsize;

use kymo_wire::link::{Fault, SetupError};

use super::Frame;
use super::stack::Stack;
use crate::sync::{AtomicU32, Ordering, change, store_release};

/// The stacks of a program's CPUs and threads: in memory, those of the CPUs' interrupts, then those of threads.
#[derive(Debug)]
pub struct Pool {
    frames: Cell<*const Frame>,
    cpus: Cell<u16>,
    stacks: Cell<u16>,
    depth: Cell<u16>,
    generation: AtomicU32,
}

// SAFETY: the cells are set before other CPUs know the pool.
unsafe impl Sync for Pool {}

/// State of a stack, in the frame before its head.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Owner {
    /// The thread to which the stack was given last; 0 for code without a thread.
    thread: AtomicUsize,
    /// Number of the CPU that uses the stack, plus 1; 0: none.
    user: AtomicU32,
    /// Number of the CPU on which code without a thread has this stack, plus 1; 0: it is a thread's.
    home: AtomicU32,
    /// [`Pool::generation`] of its open calls. For the CPU that uses the stack.
    generation: Cell<u32>,
}

// (In a model an atomic is larger, and no table has memory.)
#[cfg(not(loom))]
const _: () =
    assert!(size_of::<Owner>() <= size_of::<Frame>() && align_of::<Owner>() <= align_of::<Frame>());

/// Frames of a stack that hold no call: the owner and the head.
const OWN_FRAMES: u32 = 2;

impl Pool {
    /// No stacks.
    pub const fn new() -> Self {
        Self {
            frames: Cell::new(null()),
            cpus: Cell::new(0),
            stacks: Cell::new(0),
            depth: Cell::new(0),
            generation: AtomicU32::new(0),
        }
    }

    /// Gives the pool its memory: `stacks` of them in all, of `depth` frames each, of which a stack uses two itself.
    ///
    /// # Errors
    /// When the sizes are unusable: there is at least one stack for threads besides those of the CPUs, and room for a
    /// call in each.
    ///
    /// # Safety
    /// `frames` points to `stacks * depth` initialized frames, which only this pool uses from now on. No CPU uses the pool
    /// yet.
    pub unsafe fn set_up(
        &self,
        frames: *const Frame,
        cpus: u16,
        stacks: u32,
        depth: u32,
    ) -> Result<(), SetupError> {
        if stacks <= cpus.into() || stacks > u16::MAX.into() {
            return Err(Fault::ShadowStacks.of(stacks as usize));
        }
        if depth <= OWN_FRAMES || depth > u16::MAX.into() {
            return Err(Fault::ShadowDepth.of(depth as usize));
        }
        if frames.is_null() || !frames.is_aligned() {
            return Err(Fault::Frames.of(frames.addr()));
        }
        self.frames.set(frames);
        self.cpus.set(cpus);
        self.stacks.set(stacks as u16);
        self.depth.set(depth as u16);
        for stack in (0..stacks as u16).map(|n| self.stack(n)) {
            let owner = self.owner(stack);
            for number in [&owner.user, &owner.home] {
                number.store(0, Ordering::Relaxed);
            }
            owner.thread.store(0, Ordering::Relaxed);
            owner.generation.set(0);
            stack.clear();
        }
        self.end_calls();
        Ok(())
    }

    /// Number of calls for which a stack has frames.
    pub(super) fn most(&self) -> u16 {
        self.depth.get() - OWN_FRAMES as u16
    }

    /// Ends the calls that are open on any stack: each is emptied when it is used next.
    pub(crate) fn end_calls(&self) {
        change(&self.generation, |generation| generation.wrapping_add(1));
    }

    /// How often calls have been ended.
    #[inline(always)]
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The stack of a CPU's interrupts.
    pub(super) fn of_interrupts(&self, cpu: u16) -> Stack {
        self.stack(cpu)
    }

    fn stack(&self, n: u16) -> Stack {
        let frames = usize::from(n) * usize::from(self.depth.get());
        // SAFETY: the memory has so many frames, by the contract of `set_up`, and no more than `most` calls get one.
        unsafe { Stack::new(self.frames.get().add(frames + 1)) }
    }

    /// Number of calls that are open on the stacks of threads, and have frames. While no CPU uses any.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn open_in_threads(&self) -> u32 {
        let threads = (self.cpus.get()..self.stacks.get()).map(|n| self.stack(n));
        let ours = threads.filter(|stack| self.owner(*stack).generation.get() == self.generation());
        ours.map(|stack| stack.open().min(self.most().into())).sum()
    }

    /// Takes the stacks back from all CPUs, none of which uses any, and which have let them go.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn take_all_back(&self) {
        for n in 0..self.stacks.get() {
            self.give_back(self.stack(n));
        }
    }

    /// The state of one of these stacks.
    fn owner(&self, stack: Stack) -> &'static Owner {
        // SAFETY: it is one of this pool's.
        unsafe { stack.owner() }
    }

    /// Whether the thread has this stack. For the CPU of this number, which uses the stack.
    pub(super) fn is_of(&self, stack: Stack, thread: usize, cpu: u16) -> bool {
        self.owner(stack).is_of(thread, home(thread, cpu))
    }

    /// Takes the stack of this thread, for the CPU of this number and for calls of this generation: the one that it had
    /// before, or else one without open calls. `None` if there is no such stack, or another CPU still uses the thread's.
    pub(super) fn take(&self, thread: usize, cpu: u16, generation: u32) -> Option<Stack> {
        let stack = self.find(thread, home(thread, cpu), u32::from(cpu) + 1)?;
        if self.owner(stack).generation.replace(generation) != generation {
            stack.clear();
        }
        Some(stack)
    }

    fn find(&self, thread: usize, home: u32, user: u32) -> Option<Stack> {
        let threads = || (self.cpus.get()..self.stacks.get()).map(|n| self.stack(n));
        let is_its = |stack: &Stack| self.owner(*stack).is_of(thread, home);
        if let Some(stack) = threads().find(is_its) {
            if !self.owner(stack).take(user) {
                return None;
            }
            if is_its(&stack) {
                return Some(stack);
            }
            // Another CPU has given it to another thread meanwhile.
            self.give_back(stack);
        }
        // First one that no thread has had, so that threads keep their stacks.
        for unused in [true, false] {
            for stack in threads() {
                let owner = self.owner(stack);
                if unused && !owner.is_of(0, 0) || !owner.take(user) {
                    continue;
                }
                if stack.open() == 0 || owner.generation.get() != self.generation() {
                    owner.thread.store(thread, Ordering::Relaxed);
                    owner.home.store(home, Ordering::Relaxed);
                    return Some(stack);
                }
                self.give_back(stack);
            }
        }
        None
    }

    /// Frees the stack of a thread that has ended, for the CPU of this number; returns how many calls were open on it.
    pub(super) fn end_thread(&self, thread: usize, cpu: u16) -> u32 {
        let mut threads = (self.cpus.get()..self.stacks.get()).map(|n| self.stack(n));
        let is_its = |stack: &Stack| self.owner(*stack).is_of(thread, 0);
        let found = threads.find(|stack| thread != 0 && is_its(stack));
        let Some(stack) = found.filter(|stack| self.owner(*stack).take(u32::from(cpu) + 1)) else {
            return 0;
        };
        let mut open = 0;
        if is_its(&stack) {
            if self.owner(stack).generation.get() == self.generation() {
                open = stack.open();
            }
            stack.clear();
            self.owner(stack).thread.store(0, Ordering::Relaxed);
        }
        self.give_back(stack);
        open
    }

    /// Gives a stack back that this CPU uses: its thread may continue elsewhere.
    pub(super) fn give_back(&self, stack: Stack) {
        store_release(&self.owner(stack).user, 0);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// [`Owner::home`] of this thread's stack.
const fn home(thread: usize, cpu: u16) -> u32 {
    match thread {
        0 => cpu as u32 + 1,
        _ => 0,
    }
}

impl Owner {
    fn is_of(&self, thread: usize, home: u32) -> bool {
        self.thread.load(Ordering::Relaxed) == thread && self.home.load(Ordering::Relaxed) == home
    }

    /// Takes the stack if nobody uses it; then sees all that its last user did.
    fn take(&self, user: u32) -> bool {
        change(&self.user, |now| if now == 0 { user } else { now }) == 0
    }
}
