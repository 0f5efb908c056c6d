//! Code that calls hooks only while they are needed: functions with patchable entries, which otherwise hold no-ops.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

use kymo_recorder::gate::{Gate, Look};

use super::Process;
use crate::sys;

/// Maximum number of followers: one for the program, and one for each of its libraries.
const MOST: usize = 16;

/// A function to call with whether hooks are needed. Only system calls are safe in it: any context may turn recording
/// on or off, a hook or a signal handler included.
pub type Follower = extern "C" fn(needed: bool);

/// Maximum number of threads that call followers at once and are waited for.
const CALLERS: usize = 64;

/// How long a library that is unloaded waits for such threads, in milliseconds.
const PATIENCE: u32 = 5000;

/// The functions to call, and the threads that are calling them.
#[derive(Debug)]
pub(super) struct Followers {
    places: [AtomicPtr<()>; MOST],
    callers: [Caller; CALLERS],
    /// Whether there has been one.
    any: AtomicBool,
}

/// A thread that is calling followers.
#[derive(Debug)]
struct Caller {
    /// The kernel's id of the thread; 0: this place is free.
    thread: AtomicU32,
    /// The follower that it calls, or is about to call.
    follower: AtomicPtr<()>,
}

impl Followers {
    pub const fn new() -> Self {
        Self {
            places: [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST],
            callers: [const {
                Caller {
                    thread: AtomicU32::new(0),
                    follower: AtomicPtr::new(core::ptr::null_mut()),
                }
            }; CALLERS],
            any: AtomicBool::new(false),
        }
    }

    /// Forgets the threads of the parent, in the child of a fork.
    pub fn fork(&self) {
        for caller in &self.callers {
            caller
                .follower
                .store(core::ptr::null_mut(), Ordering::Relaxed);
            caller.thread.store(0, Ordering::Relaxed);
        }
    }

    /// Calls all followers. None of them is unloaded while it runs.
    fn call(&self, needed: bool) {
        if self
            .places
            .iter()
            .all(|place| place.load(Ordering::Acquire).is_null())
        {
            return;
        }
        let thread = sys::thread();
        // Without a free place the calls are made all the same: waiting for one might never end in a signal handler.
        let caller = self.callers.iter().find(|caller| {
            let taken =
                caller
                    .thread
                    .compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed);
            taken.is_ok()
        });
        for place in &self.places {
            let follower = place.load(Ordering::SeqCst);
            if let Some(caller) = caller {
                caller.follower.store(follower, Ordering::SeqCst);
            }
            // A thread that removes it from now on sees this caller, and waits.
            if !follower.is_null() && place.load(Ordering::SeqCst) == follower {
                // SAFETY: only `follow_gate` stores there, a function of this type.
                let follower = unsafe { core::mem::transmute::<*mut (), Follower>(follower) };
                follower(needed);
            }
        }
        if let Some(caller) = caller {
            caller
                .follower
                .store(core::ptr::null_mut(), Ordering::SeqCst);
            // In the child of a fork by a signal handler that interrupted this, the place may be another thread's.
            let (free, fails) = (Ordering::SeqCst, Ordering::Relaxed);
            let _ = caller.thread.compare_exchange(thread, 0, free, fails);
        }
    }

    /// Waits until no other thread calls a follower that has been removed. (If a follower, or a signal handler that
    /// interrupted one, removes it, it returns to code that its caller must not unload.) Returns false if one still
    /// does so after five seconds: it may have left the call by a jump out of a signal handler.
    fn wait_for(&self, follower: *mut ()) -> bool {
        let own = sys::thread();
        for caller in &self.callers {
            let mut left = PATIENCE;
            while caller.follower.load(Ordering::SeqCst) == follower
                && ![0, own].contains(&caller.thread.load(Ordering::SeqCst))
            {
                if left == 0 {
                    return false;
                }
                left -= 1;
                sys::sleep(1_000_000);
            }
        }
        true
    }
}

/// Whether hooks have anything to do: recording is on, or a trigger is awaited.
fn needs_hooks(gate: &Gate) -> bool {
    !matches!(gate.look(), Look::Closed)
}

impl Process {
    /// Calls `follower` now, and whenever the gate has changed. Returns false, and calls it with `true` only, if there
    /// are too many of them.
    pub fn follow_gate(&self, gate: &Gate, follower: Follower) -> bool {
        let address = follower as *mut ();
        self.followers.any.store(true, Ordering::Relaxed);
        let free = self.followers.places.iter().find(|place| {
            let null = core::ptr::null_mut();
            let taken = place.compare_exchange(null, address, Ordering::SeqCst, Ordering::Relaxed);
            taken.is_ok()
        });
        if free.is_none() {
            follower(true);
            return false;
        }
        self.inform(gate);
        true
    }

    /// Reverts [`follow_gate`](Self::follow_gate), before the code of `follower` is unloaded: returns once no other
    /// thread runs it.
    pub fn unfollow_gate(&self, follower: Follower) {
        let (address, null) = (follower as *mut (), core::ptr::null_mut());
        for place in &self.followers.places {
            let _ = place.compare_exchange(address, null, Ordering::SeqCst, Ordering::Relaxed);
        }
        if !self.followers.wait_for(address) {
            sys::print(
                b"kymo: a library is unloaded while a thread still turns its hooks on or off\n",
            );
        }
    }

    /// Returns whether functions of the program have patchable entries.
    pub(crate) fn has_followers(&self) -> bool {
        self.followers.any.load(Ordering::Relaxed)
    }

    /// Handles a change of the gate: saves its state for children, and informs the followers.
    pub fn gate_changed(&self, gate: &Gate) {
        self.keep_gate(gate);
        self.inform(gate);
    }

    /// Calls the followers with what is needed now. The gate may change meanwhile, in another thread or in a signal
    /// handler, whose calls come before ours: so it is read again behind them.
    fn inform(&self, gate: &Gate) {
        loop {
            fence(Ordering::SeqCst);
            let needed = needs_hooks(gate);
            self.followers.call(needed);
            fence(Ordering::SeqCst);
            if needs_hooks(gate) == needed {
                return;
            }
        }
    }
}
