//! Reads the recordings of all threads while recording is frozen, and implements the link's commands.
//!
//! There is one reader at a time ([`Process::reading`]). It freezes the gate, imposes a memory barrier on all threads,
//! waits until the thread of each thread buffer has left its hook, and seals the thread buffers. From then until the
//! reader releases them, packets and tables do not change.

use core::cell::Cell;
use core::sync::atomic::{Ordering, fence};

use kymo_recorder::buffer::Buffer;
use kymo_recorder::encode::Figures;
use kymo_recorder::gate::{Gate, State};
use kymo_recorder::items::Ring;
use kymo_recorder::link::{Control, Refusal, SCRATCH_BYTES, Status, Subject};
use kymo_recorder::profile::{Frame, Profile, Slot};
use kymo_recorder::threads::{ThreadBuffer, ThreadPort};
use kymo_wire::event::Cause;
use kymo_wire::link::{Identity, Mode};

use super::Process;
use super::ended::has_something;
use crate::port::Linux;
use crate::sys::{self, Errno};
use crate::thread;

mod buffers;
mod clear;

use buffers::outside;

/// Timeout for a thread to leave its hook, in nanoseconds. A hook takes less than a microsecond, but its thread may be
/// waiting for a processor, on a busy machine for long.
const PATIENCE: u64 = 10_000_000_000;

/// Timeout for callers that can try again later.
const SHORT_PATIENCE: u64 = 1_000_000;

/// State of a reader.
#[derive(Debug)]
pub struct Reader {
    /// The thread buffer that contains the last packet.
    place: Cell<Place>,
    /// The sum of all threads' tables.
    merged: Profile<Linux>,
    /// The memory of `merged`.
    memory: Cell<(*mut u8, usize)>,
    /// Whether a thread buffer could not be read.
    left_out: Cell<bool>,
    /// Time at which the gate was frozen.
    frozen_at: Cell<u64>,
    /// The clock's frequency as known at that time: a later measurement would differ.
    hz: Cell<u64>,
    /// The bytes that all streams had recorded at the last request to close packets for a stream.
    seen: Cell<u32>,
    /// Time at which packets were last closed.
    flushed_at: Cell<u64>,
}

impl Reader {
    /// Creates the state of an inactive reader.
    pub const fn new() -> Self {
        Self {
            place: Cell::new(Place::START),
            merged: Profile::new(),
            memory: Cell::new((core::ptr::null_mut(), 0)),
            left_out: Cell::new(false),
            frozen_at: Cell::new(0),
            hz: Cell::new(0),
            seen: Cell::new(0),
            flushed_at: Cell::new(0),
        }
    }
}

impl Reader {
    /// Resets the state, in the child of a fork.
    pub fn forget(&self) {
        self.place.set(Place::START);
        self.merged.take_away();
        self.memory.set((core::ptr::null_mut(), 0));
        self.left_out.set(false);
        self.seen.set(0);
        self.flushed_at.set(0);
    }
}

/// A thread buffer, and the number of packets before its own.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u32,
    thread_buffer: Option<&'static ThreadBuffer<Linux>>,
    before: u32,
}

impl Place {
    const START: Self = Self {
        number: 0,
        thread_buffer: None,
        before: 0,
    };
}

/// One of a process's streams.
enum Numbered {
    /// Events of a thread.
    Events(&'static Buffer<Linux>),
    /// Items that a thread, or a handler in it, produced.
    Items(&'static Ring<Linux>),
}

/// A process and its gate, for a reader and for the link.
pub struct View<'a> {
    /// The process.
    pub process: &'a Process,
    /// Its gate.
    pub gate: &'a Gate,
}

impl View<'_> {
    /// Freezes recording in all threads and seals their buffers, until [`resume`](Self::resume). Returns the state of
    /// the gate before.
    ///
    /// # Errors
    /// `EBUSY` if another reader is active.
    pub fn hold(&self) -> Result<State, Errno> {
        self.begin(true)?;
        Ok(self.hold_off())
    }

    /// Makes the caller the reader, and recovers the buffers of exited threads: all of them, or only those that hold
    /// something.
    #[inline(never)]
    pub(super) fn begin(&self, all: bool) -> Result<(), Errno> {
        let process = self.process;
        if !process.reading.take() {
            return Err(sys::EBUSY);
        }
        // A thread may be taking over the buffer of an exited thread; from now on none does. If a thread fails to
        // finish that in time, it holds the list, which must not change.
        if process.ended.lock.with(|| ()).is_none() {
            process.reading.release();
            return Err(sys::EBUSY);
        }
        process.end_buffers(all);
        process.name_threads();
        Ok(())
    }

    /// [`hold`](Self::hold) for a caller that is the reader already.
    #[inline(never)]
    fn hold_off(&self) -> State {
        let process = self.process;
        // While recording is frozen, nothing happens to the buffers of exited threads.
        let chosen = process.thread_buffers.choose(|thread_buffer| {
            thread_buffer.set_readable(thread_buffer.has_ended());
            !thread_buffer.has_ended()
        });
        let before = self.gate.freeze(true);
        self.record_threads();
        let own = thread::get().cast::<ThreadBuffer<Linux>>();
        let here = sys::process();
        process.reader.left_out.set(false);
        for thread_buffer in process.thread_buffers.since(&chosen).chain(chosen.iter()) {
            let is_own = core::ptr::eq(thread_buffer, own);
            // Of its parent's threads a fork has only the one that forked.
            let nobody = thread_buffer.process() != here && !is_own;
            // A handler that has interrupted a hook would wait for it in vain.
            let readable = nobody || outside(thread_buffer, if is_own { 0 } else { PATIENCE });
            if readable {
                // SAFETY: the gate is frozen, all threads know, and this one is outside.
                unsafe {
                    #[cfg(feature = "duration")]
                    thread_buffer.record_open_calls(process.calls_end(before));
                    thread_buffer.seal(process.port.now());
                }
            } else {
                process.stuck.store(true, Ordering::Relaxed);
                process.reader.left_out.set(true);
                let blocked = thread_buffer.blocked();
                process.unbuffered.fetch_add(blocked, Ordering::Relaxed);
            }
            thread_buffer.set_readable(readable);
        }
        self.each_buffer(ThreadBuffer::publish_losses);
        process.with_metadata(|metadata| {
            metadata.add_discarded(process.unbuffered.swap(0, Ordering::Relaxed));
            metadata.seal(true);
        });
        process.reader.place.set(Place::START);
        process.reader.frozen_at.set(process.port.now());
        before
    }

    /// Makes every thread see the current state of the gate, or makes this thread see that the other is inside.
    fn record_threads(&self) {
        if self.process.port.fenced() {
            fence(Ordering::SeqCst);
        } else {
            sys::barrier();
        }
    }

    /// Closes the open packets of all threads, as [`hold`](Self::hold) does, and unfreezes recording at once. Buffers
    /// of exited threads do not need the freeze. Returns false if another reader is active, or if a thread does not
    /// leave its hook.
    ///
    /// Events of other threads during that time, some ten microseconds, are lost and counted.
    #[inline(never)]
    fn close_packets(&self) -> bool {
        let process = self.process;
        if self.begin(false).is_err() {
            return false;
        }
        let needs_seal = |thread_buffer: &ThreadBuffer<Linux>| {
            !thread_buffer.has_ended() && thread_buffer.needs_seal()
        };
        let chosen = process.thread_buffers.choose(needs_seal);
        if chosen.is_empty() {
            process.reading.release();
            return true;
        }
        self.gate.freeze(true);
        self.record_threads();
        let mut all = true;
        for thread_buffer in chosen.iter() {
            if outside(thread_buffer, SHORT_PATIENCE) {
                // SAFETY: the gate is frozen, all threads know, and this one is outside.
                unsafe { thread_buffer.seal(self.process.port.now()) };
            } else {
                all = false;
            }
        }
        self.gate.freeze(false);
        process.reading.release();
        all
    }

    /// Returns the stream with this number: a thread's events, or items.
    fn stream(&self, number: u16) -> Option<Numbered> {
        let thread_buffer = self.process.numbers.thread_buffer(number)?;
        let buffer = thread_buffer.writer().stream().buffer();
        if buffer.cpu() == number {
            return Some(Numbered::Events(buffer));
        }
        thread_buffer.items().ring(number).map(Numbered::Items)
    }

    /// Returns the thread buffer whose events are the stream with this number, if it may be read.
    fn buffer_of_events(&self, number: u32) -> Option<&'static ThreadBuffer<Linux>> {
        let number = u16::try_from(number).ok()?;
        let thread_buffer = self.process.numbers.thread_buffer(number)?;
        let events = thread_buffer.writer().stream().buffer().cpu() == number;
        (events && thread_buffer.readable()).then_some(thread_buffer)
    }

    /// Unfreezes recording; returns whether a thread was omitted.
    pub fn resume(&self) -> bool {
        let process = self.process;
        let reader = &process.reader;
        reader.merged.take_away();
        let (memory, bytes) = reader.memory.replace((core::ptr::null_mut(), 0));
        if !memory.is_null() {
            // SAFETY: it came from `map`, and the table has been detached from it.
            unsafe { sys::unmap(memory, bytes) };
        }
        process.with_metadata(|metadata| metadata.seal(false));
        self.each_buffer(ThreadBuffer::retract_losses);
        self.gate.freeze(false);
        let left_out = process.reader.left_out.get();
        process.reading.release();
        left_out
    }

    /// Returns the `n`th packet of all: the metadata first, then each thread's items and events. Only while recording
    /// is frozen.
    pub fn packet(&self, n: u32) -> Option<&[u8]> {
        let process = self.process;
        let Some(n) = n.checked_sub(1) else {
            // SAFETY: the metadata is sealed.
            return Some(unsafe { process.metadata.packet() });
        };
        let mut place = process.reader.place.get();
        if n < place.before {
            place = Place::START;
        }
        loop {
            if place.thread_buffer.is_none() {
                if place.number >= process.thread_buffers.count() {
                    return None;
                }
                place.thread_buffer = self.buffer_of_events(place.number);
            }
            if let Some(thread_buffer) = place.thread_buffer {
                let stream = thread_buffer.writer().stream().buffer();
                let items = thread_buffer.items();
                let n = n - place.before;
                // SAFETY: the thread buffer is sealed, and its thread does not record.
                let packet = unsafe {
                    match n.checked_sub(items.kept()) {
                        None => items.packet(n),
                        Some(n) => stream.packet(n),
                    }
                };
                if packet.is_some() {
                    process.reader.place.set(place);
                    return packet;
                }
                place.before += items.kept() + stream.kept();
            }
            place.number += 1;
            place.thread_buffer = None;
        }
    }

    /// Computes the sum of all threads' tables.
    fn merge(&self) -> Result<(), Errno> {
        let thread_buffers = || {
            self.process
                .thread_buffers
                .iter()
                .filter(|thread_buffer| thread_buffer.readable())
        };
        let functions: u32 = thread_buffers()
            .filter_map(|thread_buffer| thread_buffer.writer().profile())
            .map(Profile::functions)
            .sum();
        // Half empty, so that every function finds a slot near its hash.
        let slots = functions.saturating_mul(2).max(64);
        let slot_bytes = slots as usize * size_of::<Slot>();
        let bytes = slot_bytes + 4 * size_of::<Frame>();
        let memory = sys::map(bytes)?;
        let reader = &self.process.reader;
        reader.memory.set((memory, bytes));
        // SAFETY: the memory is new, large enough, and detached before it is freed.
        let set_up = unsafe {
            let frames = memory.add(slot_bytes).cast();
            reader.merged.set_up(memory.cast(), slots, frames, 2, 2)
        };
        set_up.map_err(|_| sys::EINVAL)?;
        for profile in thread_buffers().filter_map(|thread_buffer| thread_buffer.writer().profile())
        {
            let mut n = 0;
            while let Some(entry) = profile.entry(n) {
                if let Some(entry) = entry {
                    reader.merged.merge(&entry);
                }
                n += 1;
            }
            reader.merged.merge_losses(profile);
        }
        Ok(())
    }

    /// Returns how long recording has been on, in ticks, up to the freeze.
    fn recorded(&self) -> u64 {
        let process = self.process;
        let before = process.recorded.load();
        let since = process.on_since.load();
        if self.gate.state().on() {
            before + process.reader.frozen_at.get().saturating_sub(since)
        } else {
            before
        }
    }

    fn ready(&self) -> Result<(), Refusal> {
        let state = self.gate.state();
        if state.fresh() || state.failed() {
            return Err(Refusal::NotSetUp);
        }
        Ok(())
    }
}

impl Control for View<'_> {
    fn now(&self) -> u64 {
        self.process.port.now()
    }

    fn hz(&self) -> u64 {
        self.process.port.hz()
    }

    fn identity(&self) -> Identity {
        self.process.identity()
    }

    fn status(&self) -> Status {
        let process = self.process;
        let state = self.gate.state();
        let unbuffered = process.unbuffered.load(Ordering::Relaxed);
        let mut figures = Figures {
            discarded: unbuffered.wrapping_add(process.metadata.discarded()),
            ..Figures::default()
        };
        let (mut functions, mut slots) = (0, 0);
        let mut no_slot = 0u32;
        let (mut refused, mut refused_function) = (0u32, 0);
        for thread_buffer in process.thread_buffers.iter() {
            let one = thread_buffer.writer().stream().figures();
            figures.bytes = figures.bytes.wrapping_add(one.bytes);
            figures.discarded = figures
                .discarded
                .wrapping_add(one.discarded)
                .wrapping_add(thread_buffer.lost());
            figures.packets = figures.packets.wrapping_add(one.packets);
            figures.backward = figures.backward.wrapping_add(one.backward);
            figures.used = figures.used.max(one.used);
            figures.needed = figures.needed.max(one.needed);
            let (one, function) = thread_buffer.refused();
            refused = one.wrapping_add(refused);
            if function != 0 {
                refused_function = function;
            }
            if let Some(profile) = thread_buffer.writer().profile() {
                functions = profile.functions().max(functions);
                slots = profile.slots().max(slots);
                no_slot = no_slot.wrapping_add(profile.losses().no_slot);
            }
        }
        let stuck = process.stuck.load(Ordering::Relaxed);
        Status {
            enabled: state.enabled() && !state.failed(),
            on: state.on(),
            mode: process.mode(),
            figures,
            functions,
            slots,
            no_slot,
            refused,
            refused_function,
            once: process
                .once
                .load(Ordering::Relaxed)
                .then_some(state.spent()),
            // The clock is as wide as timestamps, so it does not wrap around.
            clock_gaps: 0,
            setup_error: process.fault.get(),
            stuck: stuck.then_some("thread_stuck"),
            stopper_displaced: 0,
            within_stopper: None,
        }
    }

    fn enable(&self, enabled: bool) {
        self.gate.command(enabled);
    }

    fn set_recording(&self, on: bool) {
        self.process.set_recording(self.gate, on, Cause::Command);
    }

    fn sets(&self) -> (usize, usize) {
        (self.gate.trigger(), self.gate.stopper())
    }

    #[cfg(feature = "conditions")]
    fn conditions(&self) -> Option<&'static kymo_recorder::conditions::Conditions> {
        self.gate.conditions()
    }

    #[cfg(feature = "duration")]
    fn change_duration(&self, requested: kymo_wire::link::Duration) -> Result<(), Refusal> {
        self.process.change_duration(requested)
    }

    #[cfg(feature = "duration")]
    fn duration_report(&self) -> Option<kymo_recorder::link::DurationReport> {
        self.process.duration_report()
    }

    fn set_once(&self, once: bool) {
        self.process.once.store(once, Ordering::Relaxed);
        self.gate.rearm();
    }

    fn set_sets(&self, trigger: usize, stopper: usize) {
        self.gate.set_trigger(trigger);
        self.gate.set_stopper(stopper);
        // Open calls of the old one do not count.
        self.gate.call_attention();
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Refusal> {
        self.ready()?;
        // Set before the mode of the thread buffers, for threads that start meanwhile.
        let before = self.process.mode();
        self.process.set_mode(mode);
        let changed = self.clear_with(Some(mode));
        if changed.is_err() {
            self.process.set_mode(before);
        }
        changed
    }

    fn clear(&self) -> Result<(), Refusal> {
        self.ready()?;
        self.clear_with(None)
    }

    fn freeze(&self, subject: Subject) -> Result<(), Refusal> {
        self.ready()?;
        if subject == Subject::Profile && !self.process.keeps_profile() {
            return Err(Refusal::NoProfile);
        }
        let hz = self.process.port.hz();
        self.hold().map_err(|_| Refusal::Busy)?;
        self.process.reader.hz.set(hz);
        if subject == Subject::Profile && self.merge().is_err() {
            self.resume();
            return Err(Refusal::NoMemory);
        }
        Ok(())
    }

    fn thaw(&self) {
        self.resume();
    }

    fn chunk<'a>(
        &'a self,
        subject: Subject,
        n: u32,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]> {
        match subject {
            Subject::Trace => self.packet(n),
            Subject::Profile => {
                let merged = &self.process.reader.merged;
                let hz = self.process.reader.hz.get();
                merged.chunk(n, hz, self.recorded(), scratch)
            }
        }
    }

    fn can_stream(&self) -> bool {
        self.ready().is_ok()
    }

    /// Closing packets stops recording in all threads briefly. So it is done when none of them has recorded anything
    /// lately, which costs nothing, and otherwise at most once a second.
    fn flush(&self) -> bool {
        let (reader, now) = (&self.process.reader, self.now());
        let thread_buffers = || self.process.thread_buffers.iter();
        let recorded = thread_buffers().map(|thread_buffer| {
            let bytes = thread_buffer.writer().stream().figures().bytes;
            bytes.wrapping_add(thread_buffer.items().produced())
        });
        let recorded = recorded.fold(0, u32::wrapping_add);
        let busy = reader.seen.replace(recorded) != recorded;
        let recently = now.saturating_sub(reader.flushed_at.get()) < self.hz();
        if busy && recently {
            return false;
        }
        if !thread_buffers().any(has_something) {
            return true;
        }
        reader.flushed_at.set(now);
        self.close_packets()
    }

    fn streams(&self) -> u16 {
        // The number of streams is limited to that.
        u16::try_from(self.process.thread_buffers.count()).unwrap_or(u16::MAX)
    }

    fn waiting(&self, stream: u16, n: u32) -> Option<&[u8]> {
        match self.stream(stream)? {
            // SAFETY: in stream mode the link is the only reader, and one thread at a time uses it; it releases no
            // packet that it still reads.
            Numbered::Events(buffer) => unsafe { buffer.waiting(n) },
            Numbered::Items(ring) => ring.waiting(n),
        }
    }

    fn blocked(&self, stream: u16) -> Option<u64> {
        match self.stream(stream)? {
            // SAFETY: as above.
            Numbered::Events(buffer) => unsafe { buffer.blocked() },
            Numbered::Items(_) => None,
        }
    }

    fn release(&self, stream: u16) {
        match self.stream(stream) {
            // SAFETY: as above; the link releases a packet that `waiting` returned.
            Some(Numbered::Events(buffer)) => unsafe { buffer.release() },
            Some(Numbered::Items(ring)) => ring.release(),
            None => {}
        }
    }

    fn facts(&self) -> u32 {
        self.process.metadata.state()
    }

    fn seal_facts(&self, sealed: bool) {
        self.process.with_metadata(|metadata| metadata.seal(sealed));
    }

    fn sealed_facts(&self) -> &[u8] {
        // SAFETY: data that is added to sealed metadata is stored after the part that is read.
        unsafe { self.process.metadata.packet() }
    }

    fn wall_clock(&self, _: u64, _: u64, _: u32) -> bool {
        // The threads record it themselves, with better precision.
        true
    }

    fn send(&self, bytes: &[u8]) {
        self.process.send(bytes);
    }

    fn reboot(&self) -> Refusal {
        self.process.reboot()
    }
}
