//! Duration mode of a process ([`kymo_recorder::duration`]), which `KYMO_THRESHOLD` turns on: from the first call on,
//! in all threads, and in forks.
//!
//! Each thread's shadow stack is in its region, where a reader of the file finds the calls that were open when the
//! process was killed.

use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence,
};

use kymo_recorder::duration::{Control, Frame, Settings};
use kymo_recorder::gate::{Gate, State};
use kymo_recorder::link::{DurationReport, Refusal};
use kymo_recorder::threads::{ThreadBuffer, ThreadPort as _};
use kymo_recorder::{Edge, Event};
use kymo_wire::event::Cause;
use kymo_wire::link;
use kymo_wire::process_file::region;

use super::Process;
use crate::fields::put;
use crate::port::Linux;
use crate::wide::Wide;
use crate::{settings, sys};

/// Frames of a thread's shadow stack; the stack itself uses one.
const DEPTH: u32 = 4096;

/// Size of the structure before the frames.
const CONTROL_BYTES: usize = size_of::<Control>().next_multiple_of(64);

/// Nanoseconds over which the clock's frequency is measured for a threshold; that makes it exact to 0.01 %.
const MEASURED: u64 = 2_000_000;

/// Settings of duration mode.
#[derive(Debug)]
pub(super) struct Duration {
    is_on: AtomicBool,
    /// In ticks.
    threshold: AtomicUsize,
    /// Number of levels of calls that are recorded; 0: all.
    depth: AtomicU32,
    /// Time at which recording was turned off.
    off: Wide,
    /// Filter for calls of the program's functions, once a host has requested one: two bits per `1 << FILTER_SHIFT`
    /// bytes of its image.
    filter: AtomicPtr<AtomicU8>,
    /// Start of the image, and size of the filter in bytes.
    filter_base: AtomicUsize,
    filter_bytes: AtomicUsize,
    /// Action for calls of other images' functions: an [`Action`](link::Action) as a number.
    others: AtomicU8,
    /// What stops recording, in all threads, and how often it has happened. (All else in it is unused.)
    stops: Settings,
    /// Whether these counts have been restarted for the present round of recording: [`IDLE`], [`STARTING`] or
    /// [`STARTED`].
    round: AtomicU32,
}

/// Recording is off, or about to be.
const IDLE: u32 = 0;
/// A thread that turns recording on restarts the counts.
const STARTING: u32 = 1;
/// They have been restarted.
const STARTED: u32 = 2;

/// How often a thread looks whether another one has restarted the counts. (That one may be interrupted by this, or not
/// exist in a fork.)
const LOOKS: u32 = 10_000;

/// Instrumented functions are longer than 4 bytes, whatever their alignment.
const FILTER_SHIFT: u32 = 2;

impl Duration {
    /// Creates settings with duration mode off: calls are recorded as entries and exits.
    pub(super) const fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            threshold: AtomicUsize::new(0),
            depth: AtomicU32::new(0),
            off: Wide::new(),
            filter: AtomicPtr::new(null_mut()),
            filter_base: AtomicUsize::new(0),
            filter_bytes: AtomicUsize::new(0),
            others: AtomicU8::new(0),
            stops: Settings::new(),
            round: AtomicU32::new(IDLE),
        }
    }

    /// Returns the filter; empty if none was requested.
    fn filter(&self) -> &'static [AtomicU8] {
        let filter = self.filter.load(Ordering::Acquire);
        if filter.is_null() {
            return &[];
        }
        // SAFETY: the code that stored it there mapped so many bytes, for good.
        unsafe { slice::from_raw_parts(filter, self.filter_bytes.load(Ordering::Relaxed)) }
    }

    /// Recording is turned on: what stops it has not happened yet. Called before it is on, maybe by several threads, some
    /// of them late: only the first restarts the counts, and the others see that it has.
    pub(super) fn recording_on(&self) {
        let claim =
            self.round
                .compare_exchange(IDLE, STARTING, Ordering::Acquire, Ordering::Acquire);
        if claim.is_ok() {
            self.stops.restart();
            self.round.store(STARTED, Ordering::Release);
            return;
        }
        for _ in 0..LOOKS {
            if self.round.load(Ordering::Acquire) != STARTING {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Events are cleared: what stops recording is counted anew.
    pub(super) fn rearm(&self) {
        self.stops.rearm();
    }

    /// Notes the time at which recording is turned off. Called before it is off, so that the next thread that turns it
    /// on restarts the counts.
    pub(super) fn recording_off(&self, now: u64) {
        self.off.store(now);
        self.round.store(IDLE, Ordering::Release);
    }
}

impl Process {
    /// Reads the threshold from the environment, once the clock is set up.
    pub(super) fn set_up_duration(&self, gate: &Gate) {
        let Some(nanoseconds) = settings::threshold() else {
            return;
        };
        let hz = match nanoseconds {
            0 => 0,
            _ => self.port.clock.hz_over(MEASURED),
        };
        let ticks = u128::from(nanoseconds) * u128::from(hz) / 1_000_000_000;
        let duration = &self.duration;
        let ticks = usize::try_from(ticks).unwrap_or(usize::MAX);
        duration.threshold.store(ticks, Ordering::Relaxed);
        duration.is_on.store(true, Ordering::Relaxed);
        // Makes hooks take the slow path; each thread buffer has its own settings.
        let word = core::ptr::from_ref(duration).cast::<u8>().cast_mut();
        gate.set_duration(word);
    }

    /// Records a [`call`](Self::call) in duration mode.
    #[inline(never)]
    pub fn duration_call(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        let Some(thread_buffer) = self.thread_buffer() else {
            return;
        };
        self.follow_image(function);
        let stops = &self.duration.stops;
        if edge == Edge::Enter
            && function == stops.stop()
            && gate.state().on()
            && stops.happen(thread_buffer.duration().and_then(Control::innermost))
        {
            return self.stop_in_duration(gate);
        }
        thread_buffer.call_in_duration(&self.port, gate, edge, function, caller);
        self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        self.stop_after_calls(thread_buffer, gate);
    }

    /// Turns recording off if the calls that just ended meet the condition for that.
    #[inline(always)]
    fn stop_after_calls(&self, thread_buffer: &ThreadBuffer<Linux>, gate: &Gate) {
        let stops = &self.duration.stops;
        let (recorded, frozen) = thread_buffer.take_ended_calls();
        let mut is_over = false;
        for _ in 0..recorded {
            is_over |= stops.count();
        }
        for _ in 0..frozen {
            is_over |= stops.happen_here();
        }
        if is_over {
            self.stop_in_duration(gate);
        }
    }

    /// Turns recording off because of what the settings say.
    #[cold]
    fn stop_in_duration(&self, gate: &Gate) {
        let stop = || self.set_recording(gate, false, Cause::Function);
        self.duration.stops.act(stop);
    }

    /// Records an event other than a call in duration mode, where it may be one that stops recording. Apart, so that other
    /// recordings don't keep the event for it.
    #[cold]
    #[inline(never)]
    pub(super) fn hook_in_duration(
        &self,
        thread_buffer: &ThreadBuffer<Linux>,
        gate: &Gate,
        event: Event,
    ) {
        thread_buffer.hook(&self.port, gate, event);
        let stops = &self.duration.stops;
        let state = gate.state();
        if stops.freezes_on(event)
            && state.on()
            && state.enabled()
            && stops.happen(thread_buffer.duration().and_then(Control::innermost))
        {
            self.stop_in_duration(gate);
        }
        // A `longjmp` ends calls.
        self.stop_after_calls(thread_buffer, gate);
    }

    /// Returns whether calls are recorded in duration mode.
    pub(crate) fn is_in_duration(&self) -> bool {
        self.duration.is_on.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes in a region for the shadow stack.
    pub(super) fn duration_bytes(&self) -> usize {
        match self.is_in_duration() {
            true => CONTROL_BYTES + DEPTH as usize * Frame::BYTES,
            false => 0,
        }
    }

    /// Assigns a shadow stack to a new thread buffer, in duration mode.
    ///
    /// # Safety
    /// In the region at `memory` so many [bytes](Self::duration_bytes) at `calls` are all zero, and belong to the
    /// thread buffer alone.
    pub(super) unsafe fn give_duration(
        &self,
        thread_buffer: &'static ThreadBuffer<Linux>,
        memory: *mut u8,
        calls: usize,
    ) {
        if !self.is_in_duration() {
            return;
        }
        // SAFETY: by this function's contract.
        let control = unsafe {
            let frames = memory.add(calls + CONTROL_BYTES).cast();
            let place = memory.add(calls).cast::<Control>();
            place.write(Control::new(frames, 1, DEPTH));
            &*place
        };
        thread_buffer.give_duration(control);
        let thread_buffer_at =
            (core::ptr::from_ref(thread_buffer) as usize).wrapping_sub(memory as usize);
        let first = calls + CONTROL_BYTES + Frame::BYTES;
        put(memory, region::FRAMES, first as u32);
        put(memory, region::FRAME_COUNT, DEPTH - 1);
        put(memory, region::FRAME_STRIDE, Frame::BYTES as u32);
        let last = thread_buffer_at + ThreadBuffer::<Linux>::LAST_CALL_OFFSET;
        put(memory, region::LAST_CALL, last as u32);
        let number = thread_buffer.writer().stream().buffer().cpu();
        put(memory, region::STREAM, u32::from(number));
    }

    /// Copies the settings of the process to a thread buffer. Called after the thread buffer is visible to other
    /// threads.
    pub(super) fn set_duration(&self, thread_buffer: &ThreadBuffer<Linux>) {
        fence(Ordering::SeqCst);
        if let Some(control) = thread_buffer.duration() {
            let threshold = self.duration.threshold.load(Ordering::Relaxed);
            control.settings.set_threshold(threshold);
            let depth = self.duration.depth.load(Ordering::Relaxed);
            control.settings.set_depth(depth);
            let freeze = self.duration.stops.freeze_report();
            let over = usize::try_from(freeze.over).unwrap_or(usize::MAX);
            control.settings.set_freeze(freeze.function, over);
            control.settings.set_condition(freeze.from, 0, 0, 0);
            let filter = self.duration.filter();
            if filter.is_empty() {
                return;
            }
            let base = self.duration.filter_base.load(Ordering::Relaxed);
            // SAFETY: the filter stays for good, and is the only one.
            unsafe { control.settings.give_filter(filter, (base, FILTER_SHIFT)) };
            let others = self.duration.others.load(Ordering::Relaxed);
            let mut actions = link::Action::ALL.into_iter();
            if let Some(action) = actions.find(|action| *action as u8 == others) {
                control.settings.set_others(action);
            }
        }
    }

    /// Creates a filter for the functions of the program, unless there is one. Returns false if there is no memory for
    /// it, or if the program's image is unknown.
    fn make_filter(&self) -> bool {
        let duration = &self.duration;
        if !duration.filter().is_empty() {
            return true;
        }
        let (base, bytes) = self.program_image();
        let bytes = bytes.div_ceil(4 << FILTER_SHIFT);
        if bytes == 0 || u32::try_from(bytes).is_err() {
            return false;
        }
        let Ok(memory) = sys::map(bytes) else {
            return false;
        };
        duration.filter_base.store(base, Ordering::Relaxed);
        duration.filter_bytes.store(bytes, Ordering::Relaxed);
        // (If another link of the program was faster, this filter remains unused.)
        let (none, order) = (null_mut(), Ordering::AcqRel);
        let _ = duration
            .filter
            .compare_exchange(none, memory.cast(), order, Ordering::Relaxed);
        true
    }

    /// Sets the action for calls of one function, or of all.
    fn set_filter(&self, function: Option<u64>, action: link::Action) -> Result<(), Refusal> {
        if !self.make_filter() {
            return Err(Refusal::NoFilter);
        }
        let settings = Settings::new();
        let base = self.duration.filter_base.load(Ordering::Relaxed);
        // SAFETY: as in `set_duration`.
        unsafe { settings.give_filter(self.duration.filter(), (base, FILTER_SHIFT)) };
        let done = match function {
            Some(function) => {
                let function = usize::try_from(function).map_err(|_| Refusal::TooWide)?;
                settings.set_action(function, action)
            }
            None => {
                self.duration.others.store(action as u8, Ordering::Relaxed);
                settings.set_actions(action)
            }
        };
        match done {
            true => Ok(()),
            false => Err(Refusal::NoFilter),
        }
    }

    /// Executes a host's request to duration mode. Changes of threshold, depth and filter take effect at once, in all
    /// threads.
    pub(crate) fn change_duration(&self, requested: link::Duration) -> Result<(), Refusal> {
        if !self.is_in_duration() {
            return Err(Refusal::NoDuration);
        }
        let stops = &self.duration.stops;
        let word = |number: u64| usize::try_from(number).map_err(|_| Refusal::TooWide);
        match requested {
            link::Duration::Threshold(ticks) => {
                self.duration
                    .threshold
                    .store(word(ticks)?, Ordering::Relaxed);
            }
            link::Duration::Depth(depth) => self.duration.depth.store(depth, Ordering::Relaxed),
            link::Duration::Filter(function, action) => self.set_filter(function, action)?,
            // Requests for the current state.
            link::Duration::Ask
            | link::Duration::On(true)
            | link::Duration::Cpu(false)
            | link::Duration::Events(false) => return Ok(()),
            link::Duration::StopAt(function) => stops.set_stop(word(function)?),
            link::Duration::Freeze { function, over } => {
                stops.set_freeze(word(function)?, word(over)?);
            }
            link::Duration::FreezeOn(event) => stops.set_freeze_on(event),
            link::Duration::Condition {
                from,
                hit,
                after,
                times,
            } => {
                stops.set_condition(word(from)?, hit, after, times);
            }
            _ => return Err(Refusal::AtStart),
        }
        for thread_buffer in self.thread_buffers.iter() {
            self.set_duration(thread_buffer);
        }
        Ok(())
    }

    /// Returns the settings of duration mode; `None` if it is off.
    pub(crate) fn duration_report(&self) -> Option<DurationReport> {
        let controls = || {
            self.thread_buffers
                .iter()
                .filter_map(ThreadBuffer::duration)
        };
        let sum = |count: fn(&Control) -> u32| controls().map(count).fold(0, u32::saturating_add);
        self.is_in_duration().then(|| DurationReport {
            on: true,
            threshold: self.duration.threshold.load(Ordering::Relaxed) as u64,
            depth: self.duration.depth.load(Ordering::Relaxed),
            cpu: false,
            events: false,
            stop_at: self.duration.stops.stop(),
            filters: !self.duration.filter().is_empty(),
            freeze: self.duration.stops.freeze_report(),
            too_deep: sum(|control| control.counts.too_deep.load(Ordering::Relaxed)),
            unmatched: sum(|control| control.counts.unmatched.load(Ordering::Relaxed)),
        })
    }

    /// Returns the time up to which open calls have lasted, for a reader that found the gate in this state.
    pub(crate) fn calls_end(&self, gate: State) -> u64 {
        match gate.on() {
            true => self.port.now(),
            false => self.duration.off.load(),
        }
    }
}

// Layout that a reader of the file relies on.
const _: () = assert!(
    Frame::FUNCTION_OFFSET == 0
        && Frame::CHILDREN_OFFSET == size_of::<usize>()
        && Frame::START_OFFSET == 2 * size_of::<usize>()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_late_to_turn_recording_on_restarts_no_counts() {
        let duration = Duration::new();
        // Recording stops the second time that something happens.
        duration.stops.set_condition(0, 2, 0, 0);
        for round in 0..3 {
            duration.recording_on();
            assert!(!duration.stops.happen(None), "round {round}");
            // Another thread saw recording off, too.
            duration.recording_on();
            assert!(duration.stops.happen(None), "round {round}");
            duration.recording_off(1);
        }
        // The thread that claimed it is not in this process.
        duration.round.store(STARTING, Ordering::Relaxed);
        duration.recording_on();
        duration.recording_off(2);
        duration.recording_on();
        assert!(!duration.stops.happen(None));
    }
}
