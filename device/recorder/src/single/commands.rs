//! What the program asks of the recorder, beside what it tells of itself.

use kymo_wire::event::{Cause, MetadataType};
use kymo_wire::link::Mode;

use super::control::Handle;
use super::{Single, SinglePort};
use crate::config::Config;
use crate::gate::Gate;
use crate::hot::{Hot, distance, low};
use crate::identity::{build_id_of, retained};
use crate::items::Work;
use crate::link::Control;
use crate::retained::Retained;
use crate::sync::Ordering;

/// How far back the last record may lie before the fast path is closed, in ticks: far enough that the
/// slow path would be taken anyway, and much less than the counter's turn.
const FAR: usize = 1 << 16;

/// What a program asks for by a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Recording off.
    Off,
    /// Recording on.
    On,
    /// One more reason not to record.
    Disable,
    /// One less.
    Enable,
    /// This function turns recording on; 0: none does.
    Trigger(usize),
    /// This function turns recording off; 0: none does.
    Stopper(usize),
}

impl<P: SinglePort + 'static> Single<P> {
    /// The periodic tick: keeps the clock, and lets the buffers go when the host that was reading
    /// them is gone.
    pub fn tick(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        if !self.ready(hot, config) {
            return;
        }
        let done = self.masked(|| {
            let now = self.now();
            self.clock.tick();
            let far = distance::<P>(low::<P>(now), hot.cursor.last.get()) > FAR;
            if far || self.clock.doubtful() {
                hot.cursor.close();
            }
            self.rings.work(Work::Tick, || now);
        });
        if let (Some(()), Some(listen)) = (done, self.listening.get()) {
            listen(self, hot, config, true);
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

    /// Does what the program asks for. Trigger and stopper are kept.
    #[inline(never)]
    pub fn ask(&'static self, hot: &'static Hot, config: &'static Config, wish: Wish) {
        let gate = &hot.gate;
        if let Wish::On | Wish::Off = wish {
            if self.ready(hot, config) {
                self.turn_outside(gate, wish == Wish::On, Cause::Command);
            }
            return;
        }
        if !self.wake(hot, config) {
            return;
        }
        let was = self.port.mask();
        match wish {
            Wish::Trigger(function) => gate.set_function(false, function),
            Wish::Stopper(function) => gate.set_function(true, function),
            _ => {
                gate.count_disabled(wish == Wish::Disable);
                self.missed();
            }
        }
        self.port.unmask(was);
        Self::keep_sets(gate, config);
    }

    /// Keeps trigger and stopper over a reboot, where that is possible. An interrupt that sets them
    /// meanwhile keeps its own first, and then this does it again.
    fn keep_sets(gate: &Gate, config: &Config) {
        loop {
            let now = || Retained {
                trigger: gate.trigger(),
                stopper: gate.stopper(),
            };
            let sets = now();
            retained(config).store(sets, build_id_of(config));
            if sets == now() {
                return;
            }
        }
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
        if self.wake(hot, config) {
            self.metadata.add(kind, self.outer_now(), number, text);
        }
    }

    /// Forgets events and table. Nothing happens while a dump is being read, or a stream.
    pub fn clear(&'static self, hot: &'static Hot, config: &'static Config) {
        let hot = P::somewhere(hot);
        if self.wake(hot, config) && !self.is_streaming(hot, config) {
            self.clear_for(&hot.gate, self.writer.stream().mode());
        }
    }

    /// Forgets all, what was lost too, and goes on in this mode.
    ///
    /// The packets go at once. A table takes long, so it takes no events meanwhile: interrupts stay
    /// open, and what they record (a trigger's entry, maybe) is in the new recording, whole.
    pub(super) fn clear_for(&self, gate: &Gate, mode: Mode) {
        let (stream, profile) = (self.writer.stream(), self.writer.profile());
        let begun = self.masked(|| {
            if gate.state().frozen() || stream.is_reserved() {
                return false;
            }
            self.lost.store(0, Ordering::Relaxed);
            self.refused_told.set(self.refused());
            stream.clear();
            stream.set_mode(mode);
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
