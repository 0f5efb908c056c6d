//! Code that calls hooks only while they are needed: functions with patchable entries, which otherwise hold no-ops.

use core::sync::atomic::{AtomicPtr, Ordering, fence};

use kymo_recorder::gate::{Gate, Look};

use super::Process;

/// Maximum number of followers: one for the program, and one for each of its libraries.
const MOST: usize = 16;

/// A function to call with whether hooks are needed. Only system calls are safe in it: any context may turn recording
/// on or off, a hook or a signal handler included.
pub type Follower = extern "C" fn(needed: bool);

/// The functions to call.
#[derive(Debug)]
pub(super) struct Followers([AtomicPtr<()>; MOST]);

impl Followers {
    pub const fn new() -> Self {
        Self([const { AtomicPtr::new(core::ptr::null_mut()) }; MOST])
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
        let free = self.followers.0.iter().find(|place| {
            let null = core::ptr::null_mut();
            let taken = place.compare_exchange(null, address, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        if free.is_none() {
            follower(true);
            return false;
        }
        self.inform(gate);
        true
    }

    /// Reverts [`follow_gate`](Self::follow_gate), before the code of `follower` is unloaded.
    pub fn unfollow_gate(&self, follower: Follower) {
        let (address, null) = (follower as *mut (), core::ptr::null_mut());
        for place in &self.followers.0 {
            let _ = place.compare_exchange(address, null, Ordering::AcqRel, Ordering::Relaxed);
        }
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
            for place in &self.followers.0 {
                let follower = place.load(Ordering::Acquire);
                if !follower.is_null() {
                    // SAFETY: only `follow_gate` stores there, a function of this type.
                    let follower = unsafe { core::mem::transmute::<*mut (), Follower>(follower) };
                    follower(needed);
                }
            }
            fence(Ordering::SeqCst);
            if needs_hooks(gate) == needed {
                return;
            }
        }
    }
}
