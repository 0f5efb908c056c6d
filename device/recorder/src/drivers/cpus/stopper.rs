//! Recursion of the stopper: the outermost return of a thread ends recording, on whichever CPU it is.
//!
//! All CPUs share the counts, because a thread that entered the stopper on one CPU may return on another one. Accesses
//! take the lock that turning recording on or off takes; calls of the stopper are rare.

use core::cell::Cell;

use kymo_wire::event::Cause;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::Edge;
use crate::gate::{Gate, Site};
use crate::sync::{AtomicBool, Ordering};

/// Number of threads that can be within calls of the stopper at once. Calls of more do not count.
const THREADS: usize = 8;

/// Threads within calls of the stopper since recording was turned on or the stopper was set. Guarded by the shared lock.
#[derive(Debug)]
pub(super) struct Stopper {
    /// Thread and number of its open calls; 0 calls: unused.
    within: [Cell<(usize, u32)>; THREADS],
    /// Recording has been disabled since, so that returns may have been missed.
    stale: AtomicBool,
}

impl Stopper {
    pub(super) const fn new() -> Self {
        Self {
            within: [const { Cell::new((0, 0)) }; THREADS],
            stale: AtomicBool::new(false),
        }
    }

    /// Notes that returns may be missed from now on. Needs no lock.
    pub(super) fn miss(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// Forgets all threads.
    #[inline(never)]
    pub(super) fn forget(&self) {
        for slot in &self.within {
            slot.set((0, 0));
        }
    }

    /// The slot of a thread that is within the stopper.
    fn of(&self, thread: usize) -> Option<&Cell<(usize, u32)>> {
        let is = |slot: &&Cell<(usize, u32)>| matches!(slot.get(), (it, depth) if depth != 0 && it == thread);
        self.within.iter().find(is)
    }

    /// Tracks an entry or exit of the stopper, or a jump, which may have ended calls unseen (`None`). Returns whether it
    /// was the exit of the thread's outermost call. As [`Writer::follow_stopper`](crate::Writer::follow_stopper), for
    /// each thread.
    fn follow(&self, thread: usize, edge: Option<Edge>, site: Site) -> bool {
        if self.stale.load(Ordering::Relaxed) {
            // Before all threads are forgotten, which covers what is missed until then.
            self.stale.store(false, Ordering::Relaxed);
            self.forget();
        }
        let known = self.of(thread);
        #[cfg(feature = "conditions")]
        if let Some((stopper, caller)) = site.stopper()
            && known.is_none()
            && !(edge == Some(Edge::Enter) && stopper.admits(caller))
        {
            return false;
        }
        // The first unused one, where the thread has none.
        let slot = known.or_else(|| self.within.iter().find(|slot| slot.get().1 == 0));
        let Some(slot) = slot else {
            // There was none for its entry.
            return false;
        };
        let depth = slot.get().1;
        let (depth, ends) = match edge {
            Some(Edge::Enter) => (depth.saturating_add(1), false),
            // Where it is 0, the call was entered before recording was turned on.
            Some(Edge::Exit) => (depth.saturating_sub(1), depth <= 1),
            None => (0, false),
        };
        slot.set((thread, depth));
        #[cfg(feature = "conditions")]
        if ends && let Some((stopper, _)) = site.stopper() {
            stopper.act();
        }
        let _ = site;
        ends
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Handles an entry or exit of the stopper while recording is on, or a jump (`None`), while inside: a thread's
    /// outermost exit turns recording off. With the function, because the stopper may have been set anew since it was
    /// compared with it.
    #[cold]
    #[inline(never)]
    pub(super) fn follow_stopper(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        call: Option<(Edge, usize)>,
        site: Site,
    ) {
        let mut thread = 0;
        cpu_buffer.writer.with_queried_thread(|it| thread = it);
        if thread == 0 {
            // The program reports no threads. No thread has this address: it is the recorder's.
            thread = core::ptr::from_ref(cpu_buffer).addr();
        }
        // The CPU that holds the lock may be waiting for this one. (After this nothing is recorded before the gate is
        // checked again.)
        cpu_buffer.switching.store(true, Ordering::SeqCst);
        let shared = &self.shared;
        let ends = shared.lock.with(&self.port, || {
            let state = gate.state_in_order();
            let is_stopper = call.is_none_or(|(_, function)| function == gate.stopper());
            let counts = state.on() && state.enabled() && is_stopper;
            counts
                && shared
                    .stopper
                    .follow(thread, call.map(|(edge, _)| edge), site)
        });
        cpu_buffer.switching.store(false, Ordering::Release);
        if ends {
            self.set_recording_inside(cpu_buffer, gate, false, Cause::Function);
        }
    }
}
