//! Changes of duration mode's settings, by a host or a debugger, for all CPUs; and their report.

use kymo_wire::link::Duration;

use super::super::control::Handle;
use super::super::{CpuBuffer, CpusPort};
use crate::duration::{Control, Settings};
use crate::identity::build_id_of;
use crate::link::{DurationReport, Refusal};
use crate::sync::{AtomicU32, Ordering};

/// How often a CPU is looked at before it counts as stopped inside its hook.
const LOOKS: u32 = 1000;

impl<P: CpusPort, const N: usize> super::Cpus<P, N> {
    /// Whether a debugger requests that its changes of the settings be applied.
    pub(in super::super) fn is_requested(&self) -> bool {
        self.stops().is_some_and(Settings::is_requested)
    }
}

impl<P: CpusPort, const N: usize> Handle<'_, P, N> {
    /// The structures of all CPUs.
    fn controls(&self) -> impl Iterator<Item = &'static Control> + use<P, N> {
        self.cpus
            .cpu_buffers()
            .iter()
            .filter_map(CpuBuffer::duration)
    }

    /// Whether the program has duration mode.
    pub(in super::super) fn has_duration(&self) -> bool {
        self.controls().next().is_some()
    }

    /// Executes a host's request to duration mode, for all CPUs.
    ///
    /// # Errors
    /// The reason why it can't be done.
    pub(in super::super) fn apply_duration(&self, requested: Duration) -> Result<(), Refusal> {
        let first = self.controls().next().ok_or(Refusal::NoDuration)?;
        let all = |set: &dyn Fn(&Control)| self.controls().for_each(set);
        let word = |number: u64| usize::try_from(number).map_err(|_| Refusal::TooWide);
        match requested {
            Duration::On(on) => self.set_duration_mode(on)?,
            Duration::Threshold(ticks) => {
                let ticks = word(ticks)?;
                all(&|control| control.settings.set_threshold(ticks));
            }
            Duration::Depth(depth) => all(&|control| control.settings.set_depth(depth)),
            Duration::Cpu(cpu) => all(&|control| control.settings.count_cpu(cpu)),
            Duration::Events(events) => all(&|control| control.settings.keep_events(events)),
            // All CPUs share one filter.
            Duration::Filter(function, action) => {
                let done = match function {
                    Some(function) => first.settings.set_action(function as usize, action),
                    None => {
                        all(&|control| control.settings.set_others(action));
                        first.settings.set_actions(action)
                    }
                };
                if !done {
                    return Err(Refusal::NoFilter);
                }
            }
            Duration::StopAt(function) => {
                first.settings.set_stop(word(function)?);
                self.choose_hooks_locked();
            }
            Duration::Freeze { function, over } => {
                first.settings.set_freeze(word(function)?, word(over)?);
            }
            Duration::FreezeOn(event) => first.settings.set_freeze_on(event),
            Duration::Condition {
                from,
                hit,
                after,
                times,
            } => {
                first.settings.set_condition(word(from)?, hit, after, times);
            }
            Duration::Ask => return Ok(()),
        }
        let build_id = build_id_of(self.config);
        self.cpus.locked(|| first.settings.keep(build_id));
        Ok(())
    }

    /// Chooses the hooks of the present mode.
    fn choose_hooks_locked(&self) {
        let choose = || self.cpus.choose_hooks(self.gate, self.gate.in_duration());
        self.cpus.locked(choose);
    }

    /// Applies the first CPU's settings to all CPUs, if a debugger that has written them requests it, and keeps them. A
    /// change of the mode waits for a later tick while a reader is active, or while a CPU does not leave its hook: the
    /// debugger may have stopped it there.
    pub(in super::super) fn follow_request(&self) {
        let Some(first) = self.controls().next() else {
            return;
        };
        let settings = &first.settings;
        // Before the settings are read: what the debugger writes from here on comes with a request of its own.
        if !settings.take_request() {
            return;
        }
        let on = settings.is_on();
        if on != self.gate.in_duration()
            && !(self.are_outside() && self.set_duration_mode(on).is_ok())
        {
            return settings.request();
        }
        settings.rearm();
        for control in self.controls().skip(1) {
            control.settings.copy(settings);
        }
        self.choose_hooks_locked();
        let build_id = build_id_of(self.config);
        self.cpus.locked(|| {
            settings.keep(build_id);
            self.cpus.keep_sets(self.gate);
        });
    }

    /// Whether each CPU is seen outside its hook within some microseconds, as it is unless something stops it there.
    fn are_outside(&self) -> bool {
        let is_outside = |cpu_buffer: &CpuBuffer<P>| {
            (0..LOOKS).any(|_| {
                self.cpus.port.pause();
                !cpu_buffer.inside.load(Ordering::Relaxed)
            })
        };
        self.cpus.cpu_buffers().iter().all(is_outside)
    }

    /// Switches all CPUs to duration mode, or back to entries and exits.
    ///
    /// # Errors
    /// [`Refusal::Busy`] while a reader is active, or if a CPU does not leave its hook: it would record in both modes.
    fn set_duration_mode(&self, on: bool) -> Result<(), Refusal> {
        self.hold()?;
        if self.held().count() != self.cpus.cpu_buffers().len() {
            self.resume();
            return Err(Refusal::Busy);
        }
        // A debugger may have written the settings.
        let changes = self.gate.in_duration() != on;
        // In duration mode the profile tables follow no calls.
        self.cpus.shared.pool.end_calls();
        for cpu_buffer in self.cpus.cpu_buffers() {
            let Some(control) = cpu_buffer.duration() else {
                continue;
            };
            control.settings.set_recording(on);
            if changes {
                cpu_buffer.writer.stream().set_calls(on);
                self.with_calls(cpu_buffer, || {
                    cpu_buffer.restart_calls(control, self.gate.generation())
                });
            }
        }
        self.cpus.choose_hooks(self.gate, on);
        self.resume();
        Ok(())
    }

    /// Runs `work` while the CPU of this buffer, which is excluded, does not track its calls.
    fn with_calls(&self, cpu_buffer: &CpuBuffer<P>, work: impl FnOnce()) {
        let port = &self.cpus.port;
        let was = port.mask();
        cpu_buffer.calls.lock.with(port, work);
        port.unmask(was);
    }

    /// Records the open calls of all CPUs, which are excluded. While recording is off only once: a second reader finds
    /// them, and nothing is overwritten for it.
    pub(in super::super) fn record_open_calls(&self) {
        if !self.gate.in_duration() {
            return;
        }
        let now = self.cpus.time();
        // Recording may be turned on and off meanwhile. While it is off, the stacks are as they were when it was on.
        let shared = &self.cpus.shared;
        let calls = self.cpus.locked(|| {
            let generation = self.gate.generation();
            if self.gate.state().on() {
                return Some((generation, now));
            }
            let off = shared.off_since.get();
            let is_new = shared.open_recorded.replace(off) != off;
            is_new.then_some((generation.wrapping_sub(1), off))
        });
        let Some((generation, now)) = calls else {
            return;
        };
        for cpu_buffer in self.held() {
            self.with_calls(cpu_buffer, || cpu_buffer.record_open_calls(generation, now));
        }
    }

    /// The settings of duration mode; `None` if there is none.
    pub(in super::super) fn report_duration(&self) -> Option<DurationReport> {
        let settings = &self.controls().next()?.settings;
        let sum = |count: fn(&Control) -> &AtomicU32| {
            let counts = self.controls().map(|it| count(it).load(Ordering::Relaxed));
            counts.fold(0, u32::saturating_add)
        };
        Some(DurationReport::of(
            settings,
            sum(|control| &control.counts.too_deep),
            sum(|control| &control.counts.unmatched),
        ))
    }
}
