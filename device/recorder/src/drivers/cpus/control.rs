//! Excludes all CPUs for a reader, reads their buffers, and serves the link.

use kymo_wire::clock_check::TickCheck;
use kymo_wire::link::{Identity, Mode};

use super::buffer::READER_PATIENCE_MS;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::Event;
use crate::by_memory::{self, Memory};
use crate::config::Config;
use crate::encode::Figures;
use crate::gate::{Gate, State};
use crate::identity::{build_id_of, identity};
use crate::items::{Ring, Work};
use crate::link::{Control, Refusal, SCRATCH_BYTES, Status, Subject, later};
use crate::sync::{Ordering, fence};

/// The recorder as the link sees it.
pub(super) struct Handle<'a, P: 'static, const N: usize> {
    pub gate: &'a Gate,
    pub cpus: &'static Cpus<P, N>,
    pub config: &'static Config,
}

impl<P: CpusPort, const N: usize> Handle<'_, P, N> {
    fn ready(&self) -> Result<(), Refusal> {
        match self.gate.state().failed() {
            true => Err(Refusal::NotSetUp),
            false => Ok(()),
        }
    }

    /// Excludes all CPUs, and seals their buffers, until [`resume`](Self::resume). Returns the previous state of the
    /// gate. Not for a context inside a hook.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if another reader is active.
    pub fn hold(&self) -> Result<State, Refusal> {
        let shared = &self.cpus.shared;
        if !shared.reading.try_take() {
            return Err(Refusal::Busy);
        }
        let before = self.gate.freeze(true);
        // Orders the freezing before the loads of `inside`, as each hook orders its store of `inside` before its load
        // of the gate.
        fence(Ordering::SeqCst);
        for cpu_buffer in self.cpus.cpu_buffers() {
            let port = &self.cpus.port;
            let start = port.counter_in_order();
            let held = cpu_buffer.wait_outside(port, start, READER_PATIENCE_MS, || false);
            if held {
                cpu_buffer.report_losses();
                cpu_buffer.writer.stream().seal_at(self.now());
                cpu_buffer
                    .published
                    .set(cpu_buffer.writer.stream().buffer().publish_losses());
                cpu_buffer.seal_items();
            } else {
                shared.stuck.store(true, Ordering::Relaxed);
            }
            cpu_buffer.held.store(held, Ordering::Relaxed);
        }
        self.cpus.locked(|| {
            let unbuffered = shared.unbuffered.swap(0, Ordering::Relaxed);
            shared.metadata.add_discarded(unbuffered);
            shared.metadata.seal(true);
        });
        Ok(before)
    }

    /// The CPU buffers of excluded CPUs.
    pub(super) fn held(&self) -> impl Iterator<Item = &'static CpuBuffer<P>> {
        let held = |cpu_buffer: &&CpuBuffer<P>| cpu_buffer.held.load(Ordering::Relaxed);
        self.cpus.cpu_buffers().iter().filter(held)
    }

    /// Permits all CPUs to record again.
    pub fn resume(&self) {
        let shared = &self.cpus.shared;
        self.cpus.locked(|| {
            shared.metadata.seal(false);
            for cpu_buffer in self.held() {
                let published = cpu_buffer.published.take();
                cpu_buffer
                    .writer
                    .stream()
                    .buffer()
                    .retract_losses(published);
            }
            // Each CPU reports its losses since then before its next event.
            self.gate.call_attention();
            self.gate.freeze(false);
        });
        shared.reading.release();
    }

    /// Clears all CPU buffers, and calls `each` with every one. Events that come meanwhile are dropped, too.
    ///
    /// # Errors
    /// [`Refusal::Busy`] while a reader is active, or a record is reserved.
    pub fn clear_with(&self, each: impl Fn(&CpuBuffer<P>)) -> Result<(), Refusal> {
        self.hold()?;
        // A record that is being filled must not be dropped; while CPUs are excluded none reserves a record.
        let reserved = |cpu_buffer: &CpuBuffer<P>| cpu_buffer.writer.stream().is_reserved();
        if self.cpus.cpu_buffers().iter().any(reserved) {
            self.resume();
            return Err(Refusal::Busy);
        }
        self.gate.rearm();
        self.cpus.locked(|| {
            self.cpus.shared.stopper.clear();
            #[cfg(feature = "duration")]
            self.cpus.shared.open_recorded.set(0);
        });
        #[cfg(feature = "duration")]
        self.cpus.rearm_stops();
        self.clear_tables();
        for cpu_buffer in self.held() {
            cpu_buffer.writer.stream().clear();
            cpu_buffer.published.set(0);
            cpu_buffer
                .reported
                .store(cpu_buffer.missed(), Ordering::Relaxed);
            each(cpu_buffer);
            cpu_buffer
                .rings
                .work(Work::Clear(cpu_buffer.writer.stream().mode()), || 0);
        }
        self.resume();
        Ok(())
    }

    /// The ring of items with this stream number: these follow the numbers of the CPUs.
    fn ring(&self, stream: u16) -> Option<&'static Ring<P>> {
        let cpu_buffers = self.cpus.cpu_buffers();
        let cpu_buffer = usize::from(stream).checked_sub(cpu_buffers.len())?;
        cpu_buffers
            .get(cpu_buffer)
            .map(|cpu_buffer| &cpu_buffer.ring)
    }

    /// The `n`th packet of all, the metadata first, then each CPU's, while they are excluded.
    fn packet(&self, n: u32) -> Option<&'static [u8]> {
        let Some(mut n) = n.checked_sub(1) else {
            // SAFETY: the metadata is sealed.
            return Some(unsafe { self.cpus.shared.metadata.packet() });
        };
        for cpu_buffer in self.held() {
            let stream = cpu_buffer.writer.stream();
            // SAFETY: the CPU buffer is sealed, and its CPU excluded.
            if let Some(packet) = unsafe { stream.buffer().packet(n) } {
                return Some(packet);
            }
            n = n.checked_sub(stream.buffer().kept())?;
            // SAFETY: as above.
            if let Some(packet) = unsafe { cpu_buffer.rings.packet(n) } {
                return Some(packet);
            }
            n = n.checked_sub(cpu_buffer.rings.kept())?;
        }
        None
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Applies what a debugger requested in `memory`, and stores the state there; does nothing if another CPU is executing
    /// a request.
    pub fn follow_memory(&'static self, gate: &Gate, memory: &Memory) {
        if let Some(handle) = self.handle(gate) {
            let shared = &self.shared;
            shared
                .polling
                .try_with(|| by_memory::follow(&handle, memory, shared.link.is_streaming()));
        }
    }
}

impl<P: CpusPort, const N: usize> Control for Handle<'_, P, N> {
    fn now(&self) -> u64 {
        self.cpus.time()
    }

    fn hz(&self) -> u64 {
        self.cpus.hz(self.config)
    }

    fn tick_check(&self, now: u64) -> Option<TickCheck> {
        self.ready().ok()?;
        self.cpus.tick_check(now)
    }

    fn identity(&self) -> Identity {
        let mut identity = identity::<P>(self.config, build_id_of(self.config));
        identity.clock_hz = self.hz();
        identity.clock_bits = self.cpus.clock_bits(self.config);
        identity.capabilities.sure_clock =
            self.config.clock.is_none() || identity.capabilities.sure_clock;
        identity.capabilities.stream = true;
        #[cfg(feature = "duration")]
        {
            identity.capabilities.duration = self.has_duration();
        }
        identity.streams = self.cpus.cpu_buffers().len() as u32;
        if let Some(cpu_buffer) = self.cpus.cpu_buffers().first() {
            identity.mode = cpu_buffer.writer.stream().mode();
        }
        identity
    }

    fn status(&self) -> Status {
        let shared = &self.cpus.shared;
        let state = self.gate.state();
        let unbuffered = shared.unbuffered.load(Ordering::Relaxed);
        let mut figures = Figures {
            discarded: unbuffered.wrapping_add(shared.metadata.discarded()),
            ..Figures::default()
        };
        let mut mode = Mode::Overwrite;
        let (mut refused, mut clock_gaps) = (0u32, 0u32);
        for cpu_buffer in self.cpus.cpu_buffers() {
            let one = cpu_buffer.writer.stream().figures();
            figures.bytes = figures.bytes.wrapping_add(one.bytes);
            figures.discarded = figures.discarded.wrapping_add(one.discarded);
            figures.discarded = figures.discarded.wrapping_add(cpu_buffer.unreported());
            figures.discarded = figures
                .discarded
                .wrapping_add(cpu_buffer.ring.figures().discarded);
            figures.packets = figures.packets.wrapping_add(one.packets);
            figures.backward = figures.backward.wrapping_add(one.backward);
            figures.used = figures.used.max(one.used);
            figures.needed = figures.needed.max(one.needed);
            refused = refused.wrapping_add(cpu_buffer.refused.load(Ordering::Relaxed));
            clock_gaps = clock_gaps.wrapping_add(cpu_buffer.clock.gaps());
            mode = cpu_buffer.writer.stream().mode();
        }
        let stuck = shared.stuck.load(Ordering::Relaxed);
        let (functions, slots, no_slot) = self.table_figures();
        Status {
            enabled: state.enabled() && !state.failed(),
            on: state.on(),
            mode,
            figures,
            functions,
            slots,
            no_slot,
            refused,
            refused_function: self.cpus.refused_function.load(Ordering::Relaxed),
            once: shared.once.get().then_some(state.spent()),
            clock_gaps,
            setup_error: self.cpus.fault(),
            stuck: stuck.then_some("cpu_stuck"),
            stopper_displaced: shared.stopper.displaced(),
            within_stopper: None,
        }
    }

    fn enable(&self, enabled: bool) {
        let change = || self.gate.command(enabled);
        self.cpus.miss_in_stopper(self.gate, enabled, change);
    }

    fn set_recording(&self, on: bool) {
        self.cpus.set_recording(self.gate, on);
    }

    fn sets(&self) -> (usize, usize) {
        (self.gate.trigger(), self.gate.stopper())
    }

    fn set_sets(&self, trigger: usize, stopper: usize) {
        self.cpus.set_sets(self.gate, Some(trigger), Some(stopper));
    }

    #[cfg(feature = "conditions")]
    fn conditions(&self) -> Option<&'static crate::conditions::Conditions> {
        self.gate.conditions()
    }

    #[cfg(feature = "conditions")]
    fn keep_conditions(&self) {
        self.cpus.locked(|| self.cpus.keep_sets(self.gate));
    }

    #[cfg(feature = "duration")]
    fn change_duration(&self, requested: kymo_wire::link::Duration) -> Result<(), Refusal> {
        self.ready()?;
        self.apply_duration(requested)
    }

    #[cfg(feature = "duration")]
    fn duration_report(&self) -> Option<crate::link::DurationReport> {
        self.report_duration()
    }

    fn set_once(&self, once: bool) {
        self.cpus.locked(|| {
            self.cpus.shared.once.set(once);
            self.gate.rearm();
            self.cpus.keep_sets(self.gate);
        });
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Refusal> {
        self.ready()?;
        self.clear_with(|cpu_buffer| cpu_buffer.writer.stream().set_mode(mode))
    }

    fn clear(&self) -> Result<(), Refusal> {
        self.ready()?;
        self.clear_with(|_| {})
    }

    fn freeze(&self, subject: Subject) -> Result<(), Refusal> {
        self.ready()?;
        if subject == Subject::Profile && !self.has_tables() {
            return Err(Refusal::NoProfile);
        }
        self.hold()?;
        #[cfg(feature = "duration")]
        if subject == Subject::Trace {
            self.record_open_calls();
        }
        self.keep_figures();
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
            Subject::Profile => self.table_chunk(n, scratch),
        }
    }

    fn can_stream(&self) -> bool {
        self.ready().is_ok()
    }

    /// Closes this CPU's packet at once; the others close theirs at their next event or tick. If some have had none for
    /// more than a second, excludes all CPUs briefly.
    fn flush(&self) -> bool {
        let (shared, cpu_buffers) = (&self.cpus.shared, self.cpus.cpu_buffers());
        let buffer = |cpu_buffer: &'static CpuBuffer<P>| cpu_buffer.writer.stream().buffer();
        let now = self.now();
        if !shared.flushing.get() {
            for cpu_buffer in cpu_buffers {
                cpu_buffer.requested.set(buffer(cpu_buffer).begun());
                cpu_buffer
                    .requested_items
                    .set(cpu_buffer.ring.figures().packets);
            }
            shared.flushing.set(true);
            shared.flush_since.set(now);
            self.cpus.flush(self.gate);
            self.gate.call_attention();
        }
        // Packets are numbered modulo 2^32.
        let open = |cpu_buffer: &'static CpuBuffer<P>| {
            let events = (buffer(cpu_buffer)
                .closed()
                .wrapping_sub(cpu_buffer.requested.get()) as i32)
                < 0;
            let ring = &cpu_buffer.ring;
            events || ring.is_open() && ring.figures().packets == cpu_buffer.requested_items.get()
        };
        let mut any = cpu_buffers.iter().any(open);
        if any && now.saturating_sub(shared.flush_since.get()) > self.hz() {
            any = self.hold().is_err();
            if !any {
                self.resume();
            }
        }
        shared.flushing.set(any);
        !any
    }

    fn streams(&self) -> u16 {
        2 * self.cpus.cpu_buffers().len() as u16
    }

    fn waiting(&self, stream: u16, n: u32) -> Option<&[u8]> {
        if let Some(ring) = self.ring(stream) {
            return ring.waiting(n);
        }
        let cpu_buffer = self.cpus.cpu_buffers().get(usize::from(stream))?;
        // SAFETY: in stream mode the link is the only reader, and it runs in one context at a time; it releases no
        // packet that it still reads.
        unsafe { cpu_buffer.writer.stream().buffer().waiting(n) }
    }

    fn blocked(&self, stream: u16) -> Option<u64> {
        if self.ring(stream).is_some() {
            return None;
        }
        let cpu_buffer = self.cpus.cpu_buffers().get(usize::from(stream))?;
        // SAFETY: as above.
        unsafe { cpu_buffer.writer.stream().buffer().blocked() }
    }

    fn release(&self, stream: u16) {
        if let Some(ring) = self.ring(stream) {
            ring.release();
        } else if let Some(cpu_buffer) = self.cpus.cpu_buffers().get(usize::from(stream)) {
            // SAFETY: as above; the link releases what it has seen waiting.
            unsafe { cpu_buffer.writer.stream().buffer().release() };
        }
    }

    fn facts(&self) -> u32 {
        self.cpus.shared.metadata.state()
    }

    fn seal_facts(&self, sealed: bool) {
        self.cpus.locked(|| self.cpus.shared.metadata.seal(sealed));
    }

    fn sealed_facts(&self) -> &[u8] {
        // SAFETY: additions to sealed metadata are written behind what is read.
        unsafe { self.cpus.shared.metadata.packet() }
    }

    /// Records it in this CPU's stream.
    fn wall_clock(&self, ticks: u64, ns: u64, uncertainty: u32) -> bool {
        let cpus = self.cpus;
        let recorded = cpus.inside(self.gate, |cpu_buffer| {
            if !self.gate.open_in_order() {
                return false;
            }
            let now = cpu_buffer.now_in_order(&cpus.port);
            cpu_buffer.catch_up(self.gate.changes(), now);
            let ns = later(ns, ticks, now, self.hz());
            let event = Event::WallClock { ns, uncertainty };
            cpu_buffer.writer.record(now, event);
            true
        });
        recorded == Some(true)
    }

    fn send(&self, bytes: &[u8]) {
        if let Some(send) = self.config.send {
            // SAFETY: the program gives a function that takes bytes and their number.
            unsafe { send(bytes.as_ptr(), bytes.len()) };
        }
    }

    fn reboot(&self) -> Refusal {
        if let Some(reboot) = self.config.reboot {
            self.gate.shut();
            // SAFETY: the program gives a function that restarts the machine.
            unsafe { reboot() };
        }
        Refusal::NoReboot
    }
}
