//! Recursion of the stopper: the outermost return of a thread ends recording, on whichever CPU it is.
//!
//! All CPUs share the counts, because a thread that entered the stopper on one CPU may return on another one. Accesses
//! take the lock that turning recording on or off takes; calls of the stopper are rare.

use core::cell::Cell;

use kymo_wire::event::Cause;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::Edge;
use crate::gate::{Gate, Site};
use crate::stopper::OpenStoppers;
use crate::sync::{AtomicBool, AtomicU32, Ordering, add};

/// Number of threads whose calls of the stopper are followed at once. One more displaces the one that has neither
/// entered nor left the stopper for longest: no longer alive, perhaps, if the program does not report the end of threads. If it is
/// alive, its innermost return seems to be its outermost one, and ends recording early; under a condition it is missed.
const THREADS: usize = 8;

/// Calls of the stopper in one thread.
#[derive(Clone, Copy, Debug)]
struct Within {
    thread: usize,
    /// [`Stopper::calls`] at its last entry or exit.
    at: u32,
    /// None: unused.
    open: OpenStoppers,
}

impl Within {
    const UNUSED: Self = Self {
        thread: 0,
        at: 0,
        open: OpenStoppers::NONE,
    };
}

/// Threads within calls of the stopper since recording was turned on or the stopper was set. Guarded by the shared lock.
#[derive(Debug)]
pub(super) struct Stopper {
    threads: [Cell<Within>; THREADS],
    /// Recording has been disabled since, so that returns may have been missed.
    stale: AtomicBool,
    /// Number of entries and exits of the stopper, modulo 2^32.
    calls: Cell<u32>,
    /// Number of threads with open calls that others have displaced since events were cleared. Written under the lock.
    displaced: AtomicU32,
}

impl Stopper {
    pub(super) const fn new() -> Self {
        Self {
            threads: [const { Cell::new(Within::UNUSED) }; THREADS],
            stale: AtomicBool::new(false),
            calls: Cell::new(0),
            displaced: AtomicU32::new(0),
        }
    }

    /// Notes that returns may be missed from now on. Needs no lock.
    pub(super) fn miss(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// Forgets all threads, for recording that begins, or another stopper.
    #[inline(never)]
    pub(super) fn forget(&self) {
        for slot in &self.threads {
            slot.set(Within::UNUSED);
        }
    }

    /// Events are cleared, and what was counted with them.
    pub(super) fn clear(&self) {
        self.displaced.store(0, Ordering::Relaxed);
    }

    /// Number of threads that were displaced while they were within the stopper, or may have been.
    pub(super) fn displaced(&self) -> u32 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// The slot of a thread, and whether it has one: else an unused one, or that of the thread which has not called the
    /// stopper for longest, of those in doubt if there are any.
    fn slot(&self, thread: usize) -> (&Cell<Within>, bool) {
        let [first, ..] = &self.threads;
        let (mut found, mut best) = (first, (false, false, 0));
        for slot in &self.threads {
            let within = slot.get();
            if within.open.any() && within.thread == thread {
                return (slot, true);
            }
            let age = self.calls.get().wrapping_sub(within.at);
            let its = (!within.open.any(), !within.open.seen(), age);
            if its > best {
                (found, best) = (slot, its);
            }
        }
        (found, false)
    }

    /// Forgets a thread that has ended.
    fn end(&self, thread: usize) {
        let (slot, is_known) = self.slot(thread);
        if is_known {
            slot.set(Within::UNUSED);
        }
    }

    /// Tracks an entry or exit of the stopper, or a jump, which may have ended calls unseen (`None`). Returns whether it
    /// was the exit of the thread's outermost call.
    fn follow(&self, thread: usize, edge: Option<Edge>, site: Site) -> bool {
        let doubt = |slot: &Cell<Within>| {
            let mut within = slot.get();
            within.open.doubt();
            #[cfg(feature = "conditions")]
            if site.stopper().is_none() {
                // The exit of any thread without calls ends recording.
                within.open = OpenStoppers::NONE;
            }
            slot.set(within);
        };
        if self.stale.load(Ordering::Relaxed) {
            // Before all threads are doubted, which covers what is missed until then.
            self.stale.store(false, Ordering::Relaxed);
            self.threads.iter().for_each(doubt);
        }
        let (slot, is_known) = self.slot(thread);
        let Some(edge) = edge else {
            if is_known {
                doubt(slot);
            }
            return false;
        };
        let before = slot.get().open;
        let mut open = if is_known { before } else { OpenStoppers::NONE };
        let ends = open.follow(edge, site);
        if !is_known {
            if !open.any() {
                return ends;
            }
            if before.any() {
                add(&self.displaced, 1);
            }
        }
        let at = self.calls.get().wrapping_add(1);
        self.calls.set(at);
        slot.set(Within { thread, at, open });
        ends
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Forgets the open calls of a thread that has ended.
    pub fn end_thread(&self, gate: &Gate, thread: usize) {
        self.locked(|| self.shared.stopper.end(thread));
        #[cfg(feature = "duration")]
        for cpu_buffer in self.cpu_buffers() {
            // They are dropped there before another thread gets the stack.
            if let Some(control) = cpu_buffer.duration() {
                control.mark_moved(thread);
            }
        }
        self.inside(gate, |cpu_buffer| {
            if let Some(profile) = cpu_buffer.writer.profile() {
                profile.end_thread(thread);
            }
        });
    }

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
        if ends && !self.set_recording_inside(cpu_buffer, gate, false, Cause::Function) {
            site.take_back(true);
        }
    }
}
