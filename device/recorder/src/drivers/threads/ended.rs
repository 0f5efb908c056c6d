//! Hooks that never end: their thread jumped out of one, from a signal handler, or exited.
//!
//! Such a hook may have been interrupted anywhere, also within a change of the stream. Its packet is complete up to the
//! cursor, and is closed there; the next packet begins in its own slot, as if that had been all. The hook's own event
//! counts as lost, because it is unknown whether it was recorded. (The profile table keeps its counts.)

use kymo_wire::event::EventId;
use kymo_wire::link::Mode;

use super::{Frame, ThreadBuffer, ThreadPort};
use crate::Event;
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::low;
use crate::sync::Ordering;

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Records an event of a thread that has left a hook by a jump.
    #[cold]
    #[inline(never)]
    pub(super) fn return_and_hook(&self, port: &P, gate: &Gate, event: Event) {
        let there = self.inside.load(Ordering::Relaxed);
        self.enter(port);
        let state = gate.state();
        if state.open() {
            self.owned.written();
            self.recover(self.first_pending().unwrap_or_else(|| port.now()));
            self.go_outside();
            self.hook(port, gate, event);
        } else {
            // A reader may be waiting for the hook, or have given up waiting: the stream must not be touched.
            if state.frozen() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            self.inside.store(there, Ordering::Release);
        }
    }

    /// Recovers the calling thread, the owner, from a hook that it left by a jump, if it has; or in any case, if the
    /// caller is `sure` that the hook will not continue.
    pub fn return_by(&self, port: &P, gate: &Gate, sure: bool) {
        let there = self.inside.load(Ordering::Relaxed);
        let (stack, caller) = (port.stack(), 0);
        if there.is_null() || !(sure || port.has_left(there, Frame { stack, caller })) {
            return;
        }
        self.enter(port);
        if gate.state().frozen() {
            self.inside.store(there, Ordering::Release);
            return;
        }
        self.owned.written();
        let now = self.first_pending().unwrap_or_else(|| port.now());
        self.recover(now);
        self.writer.stream().begin_empty(now);
        self.leave(port, gate);
    }

    /// The time of the first event in the side buffer: of the handler that jumped, or of what came between its jump and
    /// the hook that was certain of it.
    fn first_pending(&self) -> Option<u64> {
        let taken = self.side.taken.load(Ordering::Relaxed) as usize;
        let slots = self.side.events.iter().zip(&self.side.filled);
        let filled = slots
            .take(taken)
            .filter(|(_, filled)| filled.load(Ordering::Relaxed));
        filled.map(|(event, _)| event.get().0).min()
    }

    /// Recovers the stream of a hook that will not continue.
    #[cold]
    #[inline(never)]
    fn recover(&self, now: u64) {
        self.blocked.store(0, Ordering::Relaxed);
        self.writer.stream().recover(now);
        self.writer.stream().add_discarded(1);
    }

    /// Lower bound of the number of events that readers miss because the thread does not leave a hook: those in the
    /// side buffer, and its own. Each is counted once.
    pub fn blocked(&self) -> u32 {
        if !self.in_hook() {
            return 0;
        }
        let blocked = self.side.taken.load(Ordering::Relaxed).saturating_add(1);
        let before = self.blocked.swap(blocked, Ordering::Relaxed);
        blocked.saturating_sub(before)
    }

    /// Whether the thread has exited, and the thread buffer was sealed since.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Completes what the thread left unfinished when it exited, and seals the thread buffer at `now`, for good.
    /// Records that the thread was filling remain unfinished, and count as lost.
    ///
    /// # Safety
    /// The thread has exited, and the caller has seen that; no reader is active.
    #[inline(never)]
    pub unsafe fn end(&self, now: u64) {
        self.owned.written();
        if self.in_hook() {
            self.recover(now);
            self.writer.stream().begin_empty(now);
            self.go_outside();
        }
        #[cfg(feature = "duration")]
        {
            self.drain();
            self.abandon_calls();
        }
        self.items.end();
        let stream = self.writer.stream();
        stream.add_discarded(stream.buffer().give_up());
        self.mark_end(stream);
        // SAFETY: no thread is inside, or will be.
        unsafe { self.seal(now) };
        self.ended.store(true, Ordering::Release);
    }

    /// Records, at the time of the last record, that the thread lost its processor: for good, so that readers charge no
    /// later time to its open calls. (Of a thread that exited in a hook, at the time when that was found.)
    ///
    /// Only beside records that are kept, and not at their expense: if it took the slot of the oldest packet, or a packet of
    /// its own after the events were cleared, nothing is recorded. Nothing counts as lost then.
    fn mark_end(&self, stream: &Stream<P>) {
        // In duration mode the records of the calls themselves show it.
        #[cfg(feature = "duration")]
        if self.duration().is_some() {
            return;
        }
        let (id, thread) = (EventId::SwitchedOutNamed, stream.thread() as u64);
        let Some(cursor) = stream.cursor() else {
            return;
        };
        let last = stream.last();
        let buffer = stream.buffer();
        if buffer.kept() > 0
            && !stream.put(cursor, low::<P>(last), id, thread, 0)
            && buffer.has_free()
        {
            stream.place(id, last, thread, 0);
        }
    }

    /// Whether another thread would find room in the thread buffer at once: in mode *stream* all of it has been
    /// consumed. For code that may [give](Self::give) it away.
    pub fn has_room(&self) -> bool {
        let buffer = self.writer.stream().buffer();
        match buffer.mode() {
            Mode::Stream => buffer.kept() == 0 && !self.items.have_waiting(),
            _ => buffer.has_place() && self.items.have_places(),
        }
    }

    /// Gives the thread buffer to another thread, by the system's number of it and its process: its events follow the
    /// existing ones, in packets of their own.
    ///
    /// # Safety
    /// The thread buffer's thread has [exited](Self::has_ended), no other context gives it away, and no reader is
    /// active except for that of a stream.
    #[inline(never)]
    pub unsafe fn give(&self, now: u64, process: u32, thread: u32) {
        self.owned.written();
        let stream = self.writer.stream();
        stream.isr_depth.set(0);
        stream.miss();
        stream.belong_to(thread as usize);
        self.writer.forget_stopper();
        #[cfg(feature = "duration")]
        self.restart_calls();
        if let Some(table) = self.writer.profile() {
            table.record(now, true);
        }
        self.items.give();
        self.set_readable(false);
        self.set_owner(process, thread);
        self.ended.store(false, Ordering::Release);
    }
}
