//! What the program asks of the recorder, beside what it tells of itself.

use kymo_wire::event::{Cause, MetadataType};

use super::control::Handle;
use super::{Single, SinglePort, SwapPlain};
use crate::config::Config;
use crate::gate::Gate;
use crate::hot::Hot;
use crate::items::Work;
use crate::link::Control;
use crate::retained::Retained;

/// How far back the last record may lie before the fast path is closed, in ticks: far enough that the
/// slow path would be taken anyway, and much less than the counter's turn.
const FAR: u64 = 1 << 16;

impl<P: SinglePort + 'static> Single<P> {
    /// The periodic tick: keeps the clock, and lets the buffers go when the host that was reading
    /// them is gone.
    pub fn tick(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        let gate = &hot.gate;
        if !self.wake(hot, config) || gate.state().fresh() || gate.state().failed() {
            return;
        }
        #[cfg(feature = "cost")]
        self.measure(hot);
        let now = self.masked(|| {
            let stream = self.writer.stream();
            let (last, now) = (stream.last(), self.now());
            self.clock.tick();
            if now.wrapping_sub(last) > FAR || self.clock.doubtful() {
                stream.suspend();
            }
            self.rings.work(Work::Tick, || now);
            now
        });
        if let (Some(_), Some(listen)) = (now, self.listening.get()) {
            listen(self, hot, config, now);
        }
    }

    /// What the link sees of the recorder.
    pub(super) fn handle(&'static self, hot: &'static Hot, config: &'static Config) -> Handle<P> {
        Handle {
            hot,
            single: self,
            config,
        }
    }

    /// What a link may ask of the recorder, for one that is not [`poll`](Self::poll)ed.
    pub fn control(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
    ) -> impl Control + use<P> {
        self.handle(hot, config)
    }

    /// Turns recording on or off.
    pub fn turn(&'static self, hot: &'static Hot, config: &'static Config, on: bool) {
        if self.wake(hot, config) {
            #[cfg(feature = "cost")]
            self.measure(hot);
            self.turn_outside(&hot.gate, on, Cause::Command);
        }
    }

    /// Opens or closes the gate, nestable.
    pub fn enable(&self, hot: &'static Hot, enabled: bool) {
        if !hot.gate.state().alive() {
            return;
        }
        let was = self.port.mask();
        if enabled {
            hot.gate.enable();
        } else {
            hot.gate.disable();
        }
        self.missed();
        self.port.unmask(was);
    }

    /// Sets trigger and stopper (what is `None` stays), and keeps them.
    pub fn set_sets(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        trigger: Option<usize>,
        stopper: Option<usize>,
    ) {
        let gate = &hot.gate;
        if !self.wake(hot, config) {
            return;
        }
        let was = self.port.mask();
        if let Some(trigger) = trigger {
            gate.set_trigger(trigger);
        }
        if let Some(stopper) = stopper {
            gate.set_stopper(stopper);
        }
        let retained = Retained {
            trigger: gate.trigger() as u64,
            stopper: gate.stopper() as u64,
        };
        self.retained().store(retained, self.build_id());
        self.port.unmask(was);
    }

    /// Adds a fact to the metadata ([`Metadata::add`](crate::metadata::Metadata)).
    pub fn describe(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        kind: MetadataType,
        number: u64,
        text: &[u8],
    ) {
        if self.wake(hot, config)
            && let Some(now) = self.outer_now()
        {
            self.metadata.add(kind, now, number, text);
        }
    }

    /// Forgets events and table. Nothing happens while a dump is being read, or a stream.
    pub fn clear(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        if self.wake(hot, config) && !self.is_streaming(hot, config) {
            self.clear_with(&hot.gate, || {});
        }
    }

    /// Forgets all, what was lost too, and does `also` at that moment.
    ///
    /// The packets go at once. A table takes long, so it takes no events meanwhile: interrupts stay
    /// open, and what they record (a trigger's entry, maybe) is in the new recording, whole.
    pub(super) fn clear_with(&self, gate: &Gate, also: impl FnOnce()) {
        let profile = self.writer.profile();
        let begun = self.masked(|| {
            if gate.state().frozen() || self.writer.stream().is_reserved() {
                return false;
            }
            also();
            self.lost.swap_plain(0);
            self.refused_told.set(self.refused());
            self.writer.stream().clear();
            let mode = self.writer.stream().mode();
            self.rings.work(Work::Clear(mode), || 0);
            profile.exists() && profile.pause()
        });
        // Not from inside a hook (which was counted), nor while a dump is being read, nor if the
        // context that this one interrupted is at it.
        if begun == Some(true) {
            self.wipe(gate);
        }
    }

    /// Empties the table, which has been paused, and lets it go on: from then on if recording is on.
    #[inline(never)]
    pub(super) fn wipe(&self, gate: &Gate) {
        let profile = self.writer.profile();
        profile.wipe();
        self.masked(|| {
            let interrupts = self.writer.stream().isr_depth.get();
            profile.resume(self.now(), gate.state().on(), interrupts);
        });
    }
}
