//! Clears all thread buffers.

use core::sync::atomic::Ordering;

use kymo_recorder::Event;
use kymo_recorder::link::Refusal;
use kymo_recorder::threads::ThreadBuffer;
use kymo_wire::event::Cause;
use kymo_wire::link::Mode;

use super::{PATIENCE, View, outside};
use crate::port::Linux;

impl View<'_> {
    /// Clears all thread buffers, including the events that are recorded meanwhile. If recording is turned on
    /// meanwhile, it begins at the end of this call, and the trace says so. If `mode` is given, the buffers have that
    /// mode from then on.
    #[inline(never)]
    pub(super) fn clear_with(&self, mode: Option<Mode>) -> Result<(), Refusal> {
        let process = self.process;
        // A record that a thread is filling must not be discarded.
        let reserved =
            |thread_buffer: &ThreadBuffer<Linux>| thread_buffer.writer().stream().is_reserved();
        self.begin(true).map_err(|_| Refusal::Busy)?;
        if process.thread_buffers.iter().any(reserved) {
            process.reading.release();
            return Err(Refusal::Busy);
        }
        let before = self.hold_off();
        if process.thread_buffers.iter().any(reserved) {
            self.resume();
            return Err(Refusal::Busy);
        }
        self.gate.rearm();
        #[cfg(feature = "duration")]
        process.duration.rearm();
        let now = process.reader.frozen_at.get();
        let readable = || {
            process
                .thread_buffers
                .iter()
                .filter(|thread_buffer| thread_buffer.readable())
        };
        for thread_buffer in readable() {
            thread_buffer.writer().stream().clear();
            thread_buffer.forget_published();
            if let Some(profile) = thread_buffer.writer().profile() {
                profile.clear(now);
            }
            if let Some(mode) = mode {
                thread_buffer.writer().stream().set_mode(mode);
            }
            thread_buffer
                .items()
                .clear(thread_buffer.writer().stream().mode());
        }
        process.forget_ended();
        process.recorded.store(0);
        if before.on() {
            process.on_since.store(now);
        }
        self.gate.freeze(false);
        self.record_threads();
        // A thread that is outside a hook now sees the gate open from now on, and has counted the events that it
        // refused before. That also holds for thread buffers that were created meanwhile.
        let cleared = |thread_buffer: &&ThreadBuffer<Linux>| {
            thread_buffer.readable() || thread_buffer.writer().stream().buffer().kept() == 0
        };
        for thread_buffer in process.thread_buffers.iter().filter(cleared) {
            if outside(thread_buffer, PATIENCE) {
                thread_buffer.forget_lost();
            }
        }
        process.unbuffered.store(0, Ordering::Relaxed);
        self.resume();
        if self.gate.state().on() && !before.on() {
            let cause = Cause::Function;
            process.hook(self.gate, Event::Recording { on: true, cause });
        }
        Ok(())
    }
}
