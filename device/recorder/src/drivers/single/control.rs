//! The link's interface to the recorder of one processor.

use kymo_wire::clock_check::TickCheck;
use kymo_wire::link::{Identity, Mode};

use super::{Request, Single, SinglePort};
use crate::config::Config;
use crate::hot::Hot;
use crate::identity::{build_id_of, identity};
use crate::items::{Ring, Work};
use crate::link::{Control, Refusal, SCRATCH_BYTES, Status, Subject, later};
use crate::profile::Profile;

/// The recorder as the link sees it.
pub(super) struct Handle<P: 'static> {
    pub hot: &'static Hot,
    pub single: &'static Single<P>,
    pub config: &'static Config,
}

impl<P: SinglePort> Handle<P> {
    /// Checks that no record is being filled, which clearing would destroy.
    fn clearable(&self) -> Result<(), Refusal> {
        self.ready()?;
        if self.single.writer.stream().is_reserved() {
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    /// The ring of a stream of items: these are numbered from 1, and the stream of events is 0.
    fn ring(&self, stream: u16) -> Option<&'static Ring<P>> {
        self.single
            .rings
            .iter()
            .nth(usize::from(stream).checked_sub(1)?)
    }

    fn ready(&self) -> Result<(), Refusal> {
        let state = self.hot.gate.state();
        if state.fresh() || state.failed() {
            return Err(Refusal::NotSetUp);
        }
        Ok(())
    }
}

impl<P: SinglePort + 'static> Control for Handle<P> {
    fn now(&self) -> u64 {
        let single = self.single;
        let now = single.masked(|| single.now());
        now.unwrap_or(0)
    }

    fn hz(&self) -> u64 {
        self.config.clock_hz
    }

    fn tick_check(&self, now: u64) -> Option<TickCheck> {
        self.single.metadata.tick_check(now)
    }

    fn identity(&self) -> Identity {
        let mut identity = identity::<P>(self.config, build_id_of(self.config));
        identity.mode = self.single.writer.stream().mode();
        identity.capabilities.stream = true;
        let rate = self.single.rate(self.config);
        let is_set_up = self.ready().is_ok();
        if is_set_up {
            identity.clock_bits = rate.bits();
        }
        identity.capabilities.sure_clock = is_set_up && rate.sure();
        #[cfg(feature = "duration")]
        {
            identity.capabilities.duration = self.single.duration().is_some();
        }
        identity
    }

    fn status(&self) -> Status {
        let state = self.hot.gate.state();
        let single = self.single;
        let profile = single.writer.profile();
        let mut figures = single.writer.stream().figures();
        figures.discarded = figures.discarded.wrapping_add(single.unreported());
        Status {
            enabled: state.enabled() && !state.failed(),
            on: state.on(),
            mode: single.writer.stream().mode(),
            figures,
            functions: profile.map_or(0, Profile::functions),
            slots: profile.map_or(0, Profile::slots),
            no_slot: profile.map_or(0, |profile| profile.losses().no_slot),
            refused: single.refused(),
            refused_function: single.refused_function(),
            once: single.once.get().then_some(state.spent()),
            clock_gaps: single.clock.gaps(),
            setup_error: single.fault(),
            stuck: None,
            stopper_displaced: 0,
            within_stopper: single.watch_stopper(self.hot),
        }
    }

    fn enable(&self, enabled: bool) {
        let was = self.single.port.mask();
        self.hot.gate.command(enabled);
        self.single.missed();
        self.single.port.unmask(was);
    }

    fn set_recording(&self, on: bool) {
        let request = if on { Request::On } else { Request::Off };
        self.single.apply(self.hot, request);
    }

    fn sets(&self) -> (usize, usize) {
        (self.hot.gate.trigger(), self.hot.gate.stopper())
    }

    fn set_sets(&self, trigger: usize, stopper: usize) {
        for request in [Request::Trigger(trigger), Request::Stopper(stopper)] {
            self.single.apply(self.hot, request);
        }
    }

    #[cfg(feature = "conditions")]
    fn conditions(&self) -> Option<&'static crate::conditions::Conditions> {
        self.hot.gate.conditions()
    }

    #[cfg(feature = "conditions")]
    fn keep_conditions(&self) {
        self.single.keep_functions(&self.hot.gate);
    }

    fn set_once(&self, once: bool) {
        self.single.apply(self.hot, Request::Once(once));
    }

    #[cfg(feature = "duration")]
    fn change_duration(&self, requested: kymo_wire::link::Duration) -> Result<(), Refusal> {
        self.ready()?;
        let build_id = build_id_of(self.config);
        self.single.change_duration(self.hot, requested, build_id)
    }

    #[cfg(feature = "duration")]
    fn duration_report(&self) -> Option<crate::link::DurationReport> {
        self.single.duration_report()
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Refusal> {
        self.clearable()?;
        let single = self.single;
        // (The next call also drops what an interrupt records before it.)
        single.masked(|| single.writer.stream().set_mode(mode));
        single.clear_all(&self.hot.gate);
        Ok(())
    }

    fn clear(&self) -> Result<(), Refusal> {
        self.clearable()?;
        self.single.clear_all(&self.hot.gate);
        Ok(())
    }

    fn freeze(&self, subject: Subject) -> Result<(), Refusal> {
        self.ready()?;
        let single = self.single;
        #[cfg(feature = "duration")]
        if subject == Subject::Trace {
            single.record_open_calls(self.hot);
        }
        if subject == Subject::Profile {
            let profile = single.writer.profile().ok_or(Refusal::NoProfile)?;
            // This context has interrupted the one that clears the table.
            if !profile.is_kept() {
                return Err(Refusal::Busy);
            }
        }
        single.masked(|| {
            self.hot.gate.freeze(true);
            single.report_losses();
            let now = single.now();
            single.writer.stream().seal();
            single.rings.work(Work::Seal, || now);
            single.metadata.record_tick(now);
            single.metadata.seal(true);
            single.port.link().frozen_at.set(now);
        });
        Ok(())
    }

    fn thaw(&self) {
        let single = self.single;
        single.masked(|| {
            single.report_losses();
            single.metadata.seal(false);
            self.hot.gate.freeze(false);
        });
    }

    fn chunk<'a>(
        &'a self,
        subject: Subject,
        n: u32,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]> {
        let writer = &self.single.writer;
        match (subject, n) {
            // SAFETY: additions to sealed metadata are written behind what is read.
            (Subject::Trace, 0) => Some(unsafe { self.single.metadata.packet() }),
            (Subject::Trace, n) => {
                let rings = &self.single.rings;
                // SAFETY: the gate is frozen, and rings and stream are sealed.
                unsafe {
                    match (n - 1).checked_sub(rings.kept()) {
                        None => rings.packet(n - 1),
                        Some(n) => writer.stream().buffer().packet(n),
                    }
                }
            }
            (Subject::Profile, n) => {
                let profile = writer.profile()?;
                let recorded = profile.recorded(self.single.port.link().frozen_at.get());
                profile.chunk(n, self.config.clock_hz, recorded, scratch)
            }
        }
    }

    fn can_stream(&self) -> bool {
        self.ready().is_ok()
    }

    fn flush(&self) -> bool {
        let single = self.single;
        let flushed = single.masked(|| {
            single.report_losses();
            single.writer.stream().seal();
            let now = single.now();
            single.rings.work(Work::Seal, || now);
        });
        flushed.is_some()
    }

    fn streams(&self) -> u16 {
        1 + self.single.rings.iter().count() as u16
    }

    fn waiting(&self, stream: u16, n: u32) -> Option<&[u8]> {
        match self.ring(stream) {
            Some(ring) => ring.waiting(n),
            // SAFETY: in stream mode the link is the only reader, and it runs in one context at a time; it releases no
            // packet that it still reads.
            None => unsafe { self.single.writer.stream().buffer().waiting(n) },
        }
    }

    fn blocked(&self, stream: u16) -> Option<u64> {
        match self.ring(stream) {
            Some(_) => None,
            // SAFETY: as above.
            None => unsafe { self.single.writer.stream().buffer().blocked() },
        }
    }

    fn release(&self, stream: u16) {
        match self.ring(stream) {
            Some(ring) => ring.release(),
            // SAFETY: as above; the link releases what it has seen waiting.
            None => unsafe { self.single.writer.stream().buffer().release() },
        }
    }

    fn facts(&self) -> u32 {
        self.single.metadata.state()
    }

    fn seal_facts(&self, sealed: bool) {
        let single = self.single;
        single.masked(|| single.metadata.seal(sealed));
    }

    fn sealed_facts(&self) -> &[u8] {
        // SAFETY: additions to sealed metadata are written behind what is read.
        unsafe { self.single.metadata.packet() }
    }

    fn wall_clock(&self, ticks: u64, ns: u64, uncertainty: u32) -> bool {
        let (single, hz) = (self.single, self.hz());
        single.record_wall_clock(self.hot, uncertainty, |now| later(ns, ticks, now, hz))
    }

    fn send(&self, bytes: &[u8]) {
        if let Some(send) = self.config.send {
            // SAFETY: the program gives a function that takes bytes and their number.
            unsafe { send(bytes.as_ptr(), bytes.len()) };
        }
    }

    fn reboot(&self) -> Refusal {
        if let Some(reboot) = self.config.reboot {
            self.hot.gate.shut();
            // SAFETY: the program gives a function that restarts the machine.
            unsafe { reboot() };
        }
        Refusal::NoReboot
    }
}
