//! Duration mode on one processor: the slow path of its hooks, and its settings.

use core::ptr::null_mut;

use kymo_wire::event::{Cause, EventId};

use super::{Single, SinglePort};
use crate::config::Config;
use crate::duration::{Control, Ended, program};
use crate::encode::WholeCall;
use crate::gate::{Look, Site, code};
use crate::hot::{CODE_BIT, Hot, distance, low};
use crate::identity::build_id_of;
use crate::link::Refusal;
use crate::sync::Ordering;
use crate::{Edge, Event};
use kymo_wire::link::Duration;

/// Bit of the gate's word: functions are filtered.
const WATCHES: usize = 1;
/// Bits of the gate's word: calls take the slow path.
const SLOW: usize = 3;

impl<P: SinglePort + 'static> Single<P> {
    /// The program's structure for duration mode, if it has a usable one.
    pub(super) fn duration(&self) -> Option<&'static Control> {
        self.duration.get()
    }

    /// Gives the recorder the program's structure, before the set-up: `None` if it has none.
    pub fn give_duration(&self, control: Option<&'static Control>) {
        self.duration
            .set(control.filter(|control| control.is_usable()));
    }

    /// Applies the program's settings during the set-up.
    pub(super) fn set_up_duration(&self, hot: &Hot, config: &Config, build_id: &[u8]) {
        if self.duration().is_none() {
            self.give_duration(program());
        }
        let Some(control) = self.duration() else {
            return;
        };
        control.set_counter(hot.cursor.counter.get());
        control.settings.set_base(config.text_base as usize);
        control.settings.load(build_id);
        self.apply_duration(hot, control);
    }

    /// Applies the settings to gate and packets, with the guard set.
    fn apply_duration(&self, hot: &Hot, control: &Control) {
        let stream = self.writer.stream();
        let on = control.settings.is_on();
        control.settings.set_stopper(hot.gate.stopper());
        if on != hot.gate.in_duration() {
            self.report_losses();
            stream.seal();
            stream.set_calls(on);
            self.restart_duration();
            self.missed();
        }
        let bits = match (self.is_slow(hot, control), control.settings.watches()) {
            (true, _) => SLOW,
            (false, true) => WATCHES,
            (false, false) => 0,
        };
        let word: *const Control = control;
        let word = word.cast::<u8>().cast_mut().wrapping_add(bits);
        hot.gate.set_duration(if on { word } else { null_mut() });
    }

    /// Applies a change of the stopper.
    pub(super) fn refresh_duration(&self, hot: &Hot) {
        if let Some(control) = self.duration() {
            self.masked(|| self.apply_duration(hot, control));
        }
    }

    /// Drops all open calls, with the guard set: calls entered before are not tracked.
    pub(super) fn restart_duration(&self) {
        if let Some(control) = self.duration() {
            control.settings.restart();
            control.reset(self.writer.stream().thread());
        }
    }

    /// Handles an event other than a call, in duration mode. Returns whether that was all, because switches and
    /// interrupts are not recorded besides the calls.
    #[inline(never)]
    pub fn duration_event(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        event: Event,
    ) -> bool {
        let Some(control) = self.duration() else {
            return false;
        };
        if control.settings.freezes_on(event) {
            return self.freeze_on(hot, config, control, event);
        }
        self.follow_event(hot, control, event)
    }

    /// Handles an event that stops recording: it is the last one recorded, or recording stops after more calls. Returns
    /// as [`duration_event`](Self::duration_event).
    #[cold]
    #[inline(never)]
    fn freeze_on(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        control: &Control,
        event: Event,
    ) -> bool {
        let is_all = self.follow_event(hot, control, event);
        if !is_all
            && !self.record_direct(hot, event)
            && let Ok(parts) = event.parts::<P>()
        {
            self.hook_event(hot, config, parts);
        }
        self.masked(|| {
            let state = hot.gate.state();
            if state.on() && state.enabled() && control.settings.happen(control.innermost()) {
                self.stop_in_duration(hot, control);
            }
        });
        true
    }

    /// Turns recording off, which is on, because of what the settings say. With the guard set.
    #[inline(never)]
    fn stop_in_duration(&self, hot: &Hot, control: &Control) {
        control.settings.act(|| {
            self.set_recording_inside(&hot.gate, false, Cause::Function);
            true
        });
    }

    /// Updates the calls with an event; returns whether that was all.
    #[inline(always)]
    fn follow_event(&self, hot: &Hot, control: &Control, event: Event) -> bool {
        match event {
            // The ends of the calls show where the jump led.
            Event::Setjmp(buffer) => {
                self.masked(|| control.set_jump(buffer));
                return hot.gate.state().on();
            }
            Event::Longjmp(buffer) => {
                self.masked(|| {
                    self.writer.jump_in_stopper();
                    let now = self.now();
                    control.jump(buffer, now, |control, call| {
                        if control.records(call) {
                            self.record_call(hot, call, self.writer.stream().thread(), now);
                        }
                    });
                });
                return hot.gate.state().on();
            }
            Event::SwitchedIn(thread) => self.change_stack(hot, thread),
            Event::SwitchedOut(_) | Event::IsrEnter(_) | Event::IsrExit(_) => {}
            _ => return false,
        }
        let all = !control.settings.keeps_events();
        if all {
            self.masked(|| self.writer.follow_event(event));
        }
        all
    }

    #[inline(never)]
    fn change_stack(&self, hot: &Hot, thread: usize) {
        let Some(control) = self.duration() else {
            return;
        };
        self.masked(|| {
            // Until the program has reported a switch, `current_thread` is called for the running thread.
            let is_slow = hot.gate.look() == Look::Duration(SLOW);
            if is_slow && !self.is_slow(hot, control) {
                self.apply_duration(hot, control);
            }
            control.run(thread, low::<P>(self.now()));
        });
    }

    /// Whether calls take the slow path.
    fn is_slow(&self, hot: &Hot, control: &Control) -> bool {
        hot.cursor.counter.get().is_null()
            || control.settings.counts_cpu()
            || self.writer.queries_thread()
    }

    /// A call in duration mode, for portable hooks and for calls that the assembly hooks leave.
    #[inline(never)]
    pub fn duration_call(
        &'static self,
        hot: &'static Hot,
        edge: Edge,
        (function, site): (usize, Site),
        bits: usize,
    ) {
        let Some(control) = self.duration() else {
            return;
        };
        let mut now = None;
        let place = hot.cursor.counter.get();
        if !place.is_null() {
            // SAFETY: the counter exists.
            let read = || low::<P>(unsafe { self.port.read(place) }.into());
            let is_usual = match bits {
                0 => true,
                WATCHES => function != control.settings.stop() && function != hot.gate.stopper(),
                _ => false,
            };
            if is_usual {
                let done = match edge {
                    Edge::Enter => control.enter(function | CODE_BIT, read),
                    Edge::Exit => control.exit(function | CODE_BIT, read()),
                };
                if done {
                    return;
                }
            }
            now = Some(read());
        }
        match edge {
            Edge::Enter => self.duration_enter(hot, function, site),
            Edge::Exit => self.duration_exit(hot, function, now),
        }
    }

    /// Slow path of an entry: the function is filtered, or its stack is full.
    #[inline(never)]
    pub fn duration_enter(&self, hot: &'static Hot, function: usize, site: Site) {
        let Some(control) = self.duration() else {
            return;
        };
        let _ = site;
        self.masked(|| {
            #[cfg(not(feature = "conditions"))]
            let site = hot.gate.site(0);
            if !hot.gate.state().on() {
                return;
            }
            self.follow_thread(control);
            if function == control.settings.stop() && control.settings.happen(control.innermost()) {
                return self.stop_in_duration(hot, control);
            }
            if function == hot.gate.stopper() {
                let _ = self.writer.follow_stopper(Edge::Enter, site);
            }
            if !control.enter_slowly(function | CODE_BIT, low::<P>(self.now())) {
                // It has no frame, so there will be no record of it, however long it takes.
                self.lose();
            }
        });
    }

    /// Slow path of an exit at `ended` (the low bits): the call took long, its function is filtered, or its entry is
    /// not on top of the stack.
    #[inline(never)]
    pub fn duration_exit(&self, hot: &'static Hot, function: usize, ended: Option<usize>) {
        let Some(control) = self.duration() else {
            return;
        };
        self.masked(|| {
            if !hot.gate.state().on() {
                return;
            }
            self.follow_thread(control);
            let now = self.now();
            let late = ended.map_or(0, |ended| distance::<P>(low::<P>(now), ended));
            let ended = now.wrapping_sub(late as u64);
            let mut over = false;
            control.exit_slowly(function | CODE_BIT, ended, |control, call| {
                let settings = &control.settings;
                if control.records(call) {
                    self.record_call(hot, call, self.writer.stream().thread(), ended);
                    over |= settings.count();
                }
                if settings.freezes(call.function, call.duration) {
                    over |= settings.happen(control.caller(call, 0));
                }
            });
            if over {
                self.stop_in_duration(hot, control);
            }
            if function == hot.gate.stopper()
                && self.writer.follow_stopper(Edge::Exit, hot.gate.site(0))
            {
                self.set_recording_inside(&hot.gate, false, Cause::Function);
            }
        });
        #[cfg(feature = "sums")]
        self.sum_packets();
    }

    /// Updates the running thread by `current_thread`, where the program does not report switches. With the guard set.
    fn follow_thread(&self, control: &Control) {
        if self.writer.queries_thread() && self.writer.stream().isr_depth.get() == 0 {
            let thread = self.writer.query_thread();
            control.run(thread, low::<P>(self.now()));
        }
    }

    /// Records a call that ended at `ended`. With the guard set.
    fn record_call(&self, hot: &Hot, call: &Ended, thread: usize, ended: u64) {
        let state = hot.gate.state();
        if !state.open() {
            return self.refuse(state);
        }
        let stream = self.writer.stream();
        // An interrupt may have recorded something later: the end is moved, and the beginning preserved.
        let now = ended.max(stream.last());
        if self.clock.doubtful() {
            self.record_gap(now);
        }
        let later = now.wrapping_sub(ended);
        let how = match call.exited {
            true => EventId::Call,
            false => EventId::CallLost,
        };
        stream.place_call(
            now,
            &WholeCall {
                how,
                function: code(call.function),
                duration: call.duration + later,
                own: call.own + later,
                thread,
            },
        );
    }

    /// Records the open calls for a reader, each with interrupts masked separately. While recording is off only once: a
    /// second reader finds them, and nothing is overwritten for it.
    pub(super) fn record_open_calls(&self, hot: &Hot) {
        let Some(control) = self.duration().filter(|_| hot.gate.in_duration()) else {
            return;
        };
        let mut n = 0;
        loop {
            let more = self.masked(|| {
                if hot.gate.state().frozen() || self.open_recorded.get() {
                    return false;
                }
                let stream = self.writer.stream();
                let now = match self.duration_off.get() {
                    0 => self.now(),
                    off => off,
                };
                let Some(open) = control.open(n, now) else {
                    self.open_recorded.set(self.duration_off.get() != 0);
                    return false;
                };
                if let Some((thread, call)) = open
                    && control.records(&call)
                {
                    stream.place_call(
                        now.max(stream.last()),
                        &WholeCall {
                            how: EventId::CallOpen,
                            function: code(call.function),
                            duration: call.duration + now.max(stream.last()) - now,
                            own: call.own,
                            thread,
                        },
                    );
                }
                true
            });
            if more != Some(true) {
                return;
            }
            n += 1;
        }
    }

    /// Updates the upper half of the frames' times, if that is due, and applies a debugger's request. Called at a tick,
    /// without the guard.
    pub(super) fn tick_duration(&self, hot: &Hot) {
        let Some(control) = self.duration() else {
            return;
        };
        if control.settings.take_request() {
            self.masked(|| {
                control.settings.rearm();
                self.apply_duration(hot, control);
            });
            if let Some(config) = self.writer.config() {
                control.settings.keep(build_id_of(config));
                self.keep_functions(&hot.gate);
            }
        }
        let mut n = 0;
        while self.masked(|| {
            let now = self.now();
            control.is_due(now) && control.age(n, now)
        }) == Some(true)
        {
            n += 1;
        }
    }

    /// Executes a host's request to duration mode.
    pub(super) fn change_duration(
        &self,
        hot: &Hot,
        requested: Duration,
        build_id: &[u8],
    ) -> Result<(), Refusal> {
        let control = self.duration().ok_or(Refusal::NoDuration)?;
        let settings = &control.settings;
        let word = |number: u64| usize::try_from(number).map_err(|_| Refusal::TooWide);
        match requested {
            Duration::Ask => return Ok(()),
            Duration::On(on) => settings.set_recording(on),
            Duration::Threshold(ticks) => settings.set_threshold(word(ticks)?),
            Duration::Depth(depth) => settings.set_depth(depth),
            Duration::Cpu(cpu) => settings.count_cpu(cpu),
            Duration::Events(events) => settings.keep_events(events),
            Duration::StopAt(function) => settings.set_stop(word(function)?),
            Duration::Freeze { function, over } => {
                let (function, over) = (word(function)?, word(over)?);
                settings.set_freeze(function, over);
            }
            Duration::FreezeOn(event) => settings.set_freeze_on(event),
            Duration::Condition {
                from,
                hit,
                after,
                times,
            } => {
                settings.set_condition(word(from)?, hit, after, times);
            }
            Duration::Filter(function, action) => {
                let done = match function {
                    Some(function) => settings.set_action(function as usize, action),
                    None => settings.set_actions(action),
                };
                if !done {
                    return Err(Refusal::NoFilter);
                }
            }
        }
        self.masked(|| self.apply_duration(hot, control));
        settings.keep(build_id);
        Ok(())
    }

    /// Settings of duration mode, for the reply to `listsets` and similar commands.
    pub(super) fn duration_report(&self) -> Option<crate::link::DurationReport> {
        let control = self.duration()?;
        Some(crate::link::DurationReport::of(
            &control.settings,
            control.counts.too_deep.load(Ordering::Relaxed),
            control.counts.unmatched.load(Ordering::Relaxed),
        ))
    }
}
