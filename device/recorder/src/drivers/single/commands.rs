//! Commands of the program to the recorder.

use kymo_wire::event::{Cause, MetadataType};
use kymo_wire::link::SetupError;

use super::control::Handle;
use super::{Single, SinglePort};
use crate::by_memory::{self, Memory};
use crate::config::Config;
use crate::gate::Gate;
use crate::hot::{Hot, distance, low};
use crate::identity::{build_id_of, retained};
use crate::items::Work;
use crate::link::Control;
use crate::profile::Profile;

/// Age of the last record, in ticks, above which a tick closes the fast path: so far that the slow path would be taken
/// anyway, and much less than the counter's wraparound interval.
const FAR: usize = 1 << 16;

/// A command of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Turns recording off.
    Off,
    /// Turns recording on.
    On,
    /// Disables recording once more.
    Disable,
    /// Reverts one disabling.
    Enable,
    /// Sets the function that turns recording on; 0: none.
    Trigger(usize),
    /// Sets the function that turns recording off; 0: none.
    Stopper(usize),
    /// Sets whether the trigger turns recording on only once.
    Once(bool),
}

impl<P: SinglePort + 'static> Single<P> {
    /// The periodic tick: updates the clock, and unfreezes the buffers when the host that was reading them has gone.
    pub fn tick(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        if !self.wake(hot, config) || !hot.gate.state().set_up() {
            return;
        }
        #[cfg(feature = "cost")]
        self.measure(hot);
        let Some(was) = self.come_in() else { return };
        let _ = self.now();
        let now = self.clock.tick();
        if self.metadata.tick(now) {
            self.metadata.record_tick(now);
        }
        let far = distance::<P>(low::<P>(now), hot.cursor.last.get()) > FAR;
        if far || self.clock.doubtful() {
            hot.cursor.close();
        }
        self.rings.work(Work::Tick, || now);
        self.go_out(was);
        #[cfg(feature = "duration")]
        self.tick_duration(hot);
        if let Some(listen) = self.listening.get() {
            listen(self, hot, config, true);
        }
    }

    /// The recorder as the link sees it.
    pub(super) fn handle(&'static self, hot: &'static Hot, config: &'static Config) -> Handle<P> {
        Handle {
            hot,
            single: self,
            config,
        }
    }

    /// The link's interface to the recorder, for a link that is not [`poll`](Self::poll)ed.
    pub fn control(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
    ) -> impl Control + use<P> {
        self.handle(hot, config)
    }

    /// Applies what a debugger requested in `memory`, and stores the state there.
    pub fn follow_memory(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        memory: &Memory,
    ) {
        if self.wake(hot, config) {
            let is_read = self.is_streaming(hot, config);
            by_memory::follow(&self.handle(hot, config), memory, is_read);
        }
    }

    /// Executes a command of the program.
    #[inline(always)]
    pub fn request(&'static self, hot: &'static Hot, config: &'static Config, request: Request) {
        if self.wake(hot, config) {
            self.apply(hot, request);
        }
    }

    /// The same once RAM is initialized. Saves trigger and stopper for the next boot.
    #[inline(never)]
    pub(super) fn apply(&'static self, hot: &'static Hot, request: Request) {
        let gate = &hot.gate;
        if let Request::On | Request::Off = request {
            #[cfg(feature = "cost")]
            self.measure(hot);
            return self.set_recording_outside(gate, request == Request::On, Cause::Command);
        }
        let was = self.port.mask();
        if let Request::Trigger(function) | Request::Stopper(function) = request {
            gate.set_function(matches!(request, Request::Stopper(_)), function);
            self.writer.forget_stopper();
            self.port.unmask(was);
            #[cfg(feature = "duration")]
            self.refresh_duration(hot);
            return self.keep_functions(gate);
        }
        if let Request::Once(once) = request {
            self.once.set(once);
            gate.rearm();
            self.port.unmask(was);
            return self.keep_functions(gate);
        }
        gate.count_disabled(request == Request::Disable);
        self.missed();
        self.port.unmask(was);
    }

    /// Forgets the open calls of a thread that has ended.
    pub fn end_thread(&self, hot: &Hot, thread: usize) {
        if !hot.gate.state().set_up() {
            return;
        }
        self.masked(|| {
            self.writer.end_thread(thread);
            #[cfg(feature = "duration")]
            if let Some(control) = self.duration() {
                control.mark_moved(thread);
                control.drop_moved();
            }
        });
    }

    /// Saves trigger and stopper, and their conditions, for the next boot, where that is possible. If an interrupt sets
    /// them meanwhile it saves its own, and this then saves again.
    pub(super) fn keep_functions(&self, gate: &Gate) {
        let Some(config) = self.writer.config() else {
            return;
        };
        loop {
            let sets = gate.sets(self.once.get());
            retained(config).store(sets, build_id_of(config));
            if gate.sets(self.once.get()) == sets {
                return;
            }
        }
    }

    /// Adds an entry to the metadata ([`Metadata::add`](crate::metadata::Metadata)).
    pub fn describe(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        kind: MetadataType,
        number: usize,
        text: &[u8],
    ) {
        if self.wake(hot, config) {
            let has_clock = hot.gate.state().set_up();
            let now = if has_clock { self.outer_now() } else { 0 };
            self.metadata.add(kind, now, number, text);
        }
    }

    /// Sets the recorder up if it is not yet; returns why that failed. (`None` before RAM is initialized.)
    pub fn set_up_error(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
    ) -> Option<SetupError> {
        if self.wake(hot, config) {
            self.fault()
        } else {
            None
        }
    }

    /// Drops events and table. Does nothing while a dump or a stream is being read.
    pub fn clear(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        if self.wake(hot, config) && !self.is_streaming(hot, config) {
            self.clear_all(&hot.gate);
        }
    }

    /// Drops all events, and the counts of losses.
    ///
    /// Packets are dropped at once. Clearing a table takes long, so it counts no events meanwhile: interrupts remain
    /// enabled, and what they record (a trigger's entry, maybe) is complete in the new recording.
    pub(super) fn clear_all(&self, gate: &Gate) {
        let stream = self.writer.stream();
        let begun = self.masked(|| {
            if gate.state().frozen() || stream.is_reserved() {
                return false;
            }
            self.refused_reported.set(self.refused());
            gate.rearm();
            #[cfg(feature = "duration")]
            if let Some(control) = self.duration() {
                control.settings.rearm();
                self.open_recorded.set(false);
            }
            stream.clear();
            self.rings.work(Work::Clear(stream.mode()), || 0);
            self.writer.profile().is_some_and(Profile::pause)
        });
        // Not within a hook (which was counted), nor while a dump is being read, nor if the context that this one has
        // interrupted is clearing the table.
        if begun == Some(true) {
            self.wipe(gate);
        }
    }

    /// Clears the paused table and resumes it, counting from now on if recording is on.
    #[inline(never)]
    pub(super) fn wipe(&self, gate: &Gate) {
        let Some(profile) = self.writer.profile() else {
            return;
        };
        profile.wipe();
        self.masked(|| {
            let interrupts = self.writer.stream().isr_depth.get();
            profile.resume(self.now(), gate.state().on(), interrupts);
        });
    }
}
