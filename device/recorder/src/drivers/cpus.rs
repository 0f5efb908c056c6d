//! Driver for several processors that run one program: one stream per CPU.
//!
//! A CPU records into its own [`CpuBuffer`] and shares nothing with the others meanwhile: no cache line that any of
//! them writes, no atomic read-modify-write, no lock. All of them read the [`Gate`], a cache line that changes only
//! when recording is turned on or off. A hook finds its CPU buffer through a CPU register ([`CpusPort::cpu_pointer`]), and
//! masks its CPU's interrupts while it reads the clock, checks and stores, as on one processor
//! ([`single`](crate::single)).
//!
//! A reader on any CPU can access the packets in two ways:
//!
//! - It consumes closed packets while all CPUs record (stream mode): the writer publishes a packet with a
//!   store-release, and the reader loads it with a load-acquire; the reader returns the slot in the same way.
//! - It excludes all CPUs (`hold`): it freezes the gate and waits until no CPU is inside a hook. A hook first announces
//!   that it is inside and then checks the gate, both sequentially consistent, so either it sees the frozen gate or the
//!   reader sees that it is inside. (On AArch64 that is a store-release followed by a load-acquire: no barrier.)
//!   Interrupts are masked inside, so a CPU leaves its hook soon.
//!
//! The CPU that turns recording on or off marks it in its stream, with a time before the first event that any CPU
//! records from then on, or after the last. Each other stream begins a new packet.
//!
//! Each CPU has a profile table of its own, if the program has any (`table.rs`).

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::AtomicUsize;

use kymo_wire::link::{Mode, SetupError};

use crate::config::{Config, Kept};
use crate::cost::Hooks;
use crate::gate::{Gate, Look, State};
use crate::hot::low;
use crate::items::Ring;
use crate::link::Link;
use crate::metadata::Metadata;
use crate::profile::Pool;
use crate::sync::{ALONE, AtomicBool, AtomicU32, Ordering, add};
use crate::{Edge, Event, Target};

mod buffer;
mod control;
#[cfg(feature = "cost")]
mod cost;
mod direct;
#[cfg(feature = "duration")]
mod duration;
mod items;
mod lock;
#[cfg(all(test, loom))]
mod model;
mod recording;
mod setup;
mod stopper;
mod table;
mod ticks;

pub use buffer::CpuBuffer;
use control::Handle;
#[cfg(feature = "duration")]
pub use duration::CpuDuration;
pub use items::CpuItems;
use lock::Lock;
use stopper::Stopper;

/// Most packets that a reader consumes of one CPU before it continues with the next one.
pub const AT_ONCE: u32 = 16;

/// Functions that the recorder needs of the processors. None of them may be instrumented.
pub trait CpusPort: Target + 'static {
    /// Masks this CPU's interrupts; returns the previous state for [`unmask`](Self::unmask).
    fn mask(&self) -> usize;
    /// Restores the state that [`mask`](Self::mask) returned.
    fn unmask(&self, was: usize);
    /// The pointer that [`set_cpu_pointer`](Self::set_cpu_pointer) stored for this CPU; null before.
    fn cpu_pointer(&self) -> *const ();
    /// Stores a pointer for this CPU.
    fn set_cpu_pointer(&self, cpu_pointer: *const ());
    /// Reads a 64-bit counter, which is the same on all CPUs, or nearly.
    fn counter(&self) -> u64;
    /// The same, but only after all earlier instructions: for events whose order relative to other CPUs' matters.
    fn counter_in_order(&self) -> u64;
    /// Frequency of the counter in Hz.
    fn counter_hz(&self) -> u64;
    /// The hooks as the program calls them, so that their overhead can be measured; `None` if nothing calls them.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }
    /// Pauses this CPU briefly while it waits for another one.
    fn pause(&self);
}

/// State that all CPUs share, and access only outside of fast paths.
#[repr(C, align(128))]
#[derive(Debug)]
struct Shared<P> {
    config: Cell<Option<&'static Config>>,
    /// Number of CPUs that have buffers.
    count: AtomicU32,
    metadata: Metadata<P>,
    link: Link,
    /// Shadow stacks of the profile tables.
    pool: Pool,
    /// Why the recorder is not set up.
    fault: Cell<Option<SetupError>>,
    /// Whether the trigger turns recording on only once. Guarded by `lock`.
    once: Cell<bool>,
    /// The calls of the stopper that are open. Guarded by `lock`.
    stopper: Stopper,
    /// The time at which recording was last turned off. Guarded by `lock`.
    #[cfg(feature = "duration")]
    off_since: Cell<u64>,
    /// [`off_since`](Self::off_since) when the calls that were open then were recorded. Guarded by `lock`.
    #[cfg(feature = "duration")]
    open_recorded: Cell<u64>,
    /// Whether a CPU did not leave its hook when a reader came, so that its buffer was not read.
    stuck: AtomicBool,
    /// Whether the link waits for CPUs to close packets, and since when. Guarded by `polling`.
    flushing: Cell<bool>,
    flush_since: Cell<u64>,
    /// Number of events of CPUs without a CPU buffer (yet).
    unbuffered: AtomicU32,
    /// Number of the CPU whose tick is compared with the clock, plus 1; 0: none has ticked.
    ticking: AtomicU32,
    /// Guards set-up, turning on and off, metadata, trigger and stopper. A CPU that waits for it inside its CPU buffer
    /// sets [`switching`](CpuBuffer::switching).
    lock: Lock,
    /// Guards the conversation with the host.
    polling: Lock,
    /// Guards freezing the CPU buffers, and consuming packets from them.
    reading: Lock,
}

/// The recorder of up to `N` CPUs without its [`Gate`], which is in `.data`: this is in `.bss`.
#[derive(Debug)]
pub struct Cpus<P: 'static, const N: usize> {
    port: P,
    /// The function of the last hook within a hook; 0: none.
    refused_function: AtomicUsize,
    shared: Shared<P>,
    cpu_buffers: [CpuBuffer<P>; N],
}

// SAFETY: of what is shared, `config` and `fault` are written while the recorder is set up, by one CPU, before others
// see it set up; `metadata` only under `lock`; the state for which the link waits only under `polling`.
unsafe impl<P, const N: usize> Sync for Cpus<P, N> {}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Locations for readers of memory.
    pub const KEPT: Kept = {
        let cpu_buffers = offset_of!(Self, cpu_buffers);
        Kept {
            at: (cpu_buffers + CpuBuffer::<P>::AT_OFFSET) as u32,
            stride: size_of::<CpuBuffer<P>>() as u32,
            rings: (cpu_buffers + CpuBuffer::<P>::RINGS_OFFSET) as u32,
            ring_next: Ring::<P>::NEXT_OFFSET as u16,
            discarded: (cpu_buffers + CpuBuffer::<P>::DISCARDED_OFFSET) as u32,
            // (That of the first CPU; the others' are a stride apart.)
            table: crate::Writer::<P>::table_place(cpu_buffers + CpuBuffer::<P>::WRITER_OFFSET),
        }
    };

    /// A recorder that is not set up. All zero if the port is.
    pub const fn new(port: P) -> Self {
        const {
            assert!(
                !ALONE,
                "this processor's counters are made for one CPU: several would lose counts and order"
            );
            assert!(P::MIGRATES, "threads may continue on another CPU");
        }
        Self {
            port,
            shared: Shared {
                config: Cell::new(None),
                count: AtomicU32::new(0),
                metadata: Metadata::new(),
                link: Link::new(),
                pool: Pool::new(),
                fault: Cell::new(None),
                once: Cell::new(false),
                stopper: Stopper::new(),
                #[cfg(feature = "duration")]
                off_since: Cell::new(0),
                #[cfg(feature = "duration")]
                open_recorded: Cell::new(0),
                stuck: AtomicBool::new(false),
                flushing: Cell::new(false),
                flush_since: Cell::new(0),
                unbuffered: AtomicU32::new(0),
                ticking: AtomicU32::new(0),
                lock: Lock::new(),
                polling: Lock::new(),
                reading: Lock::new(),
            },
            refused_function: AtomicUsize::new(0),
            cpu_buffers: [const { CpuBuffer::new() }; N],
        }
    }

    /// The CPU buffers of the CPUs that have buffers.
    pub fn cpu_buffers(&self) -> &[CpuBuffer<P>] {
        let count = self.shared.count.load(Ordering::Acquire) as usize;
        self.cpu_buffers.get(..count).unwrap_or(&self.cpu_buffers)
    }

    /// The processors' port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Why the recorder is not set up.
    pub fn fault(&self) -> Option<SetupError> {
        self.shared.fault.get()
    }

    /// The buffer of the calling CPU.
    #[inline(always)]
    fn cpu_buffer(&self) -> Option<&CpuBuffer<P>> {
        // SAFETY: it is null, or a CPU buffer that `start` stored there, which exists for as long as the recorder.
        // Interrupts are masked, so the program does not migrate to another CPU meanwhile.
        unsafe { self.port.cpu_pointer().cast::<CpuBuffer<P>>().as_ref() }
    }

    /// Hook for the entry of a function, called from `caller`, or its exit.
    #[inline(always)]
    pub fn call(&'static self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        match (gate.look(), edge) {
            (Look::Open, Edge::Enter) => self.open_call::<false>(gate, function, caller),
            (Look::Open, Edge::Exit) => self.open_call::<true>(gate, function, caller),
            #[cfg(feature = "duration")]
            (Look::Duration(bits), _) => self.duration_call(gate, bits, edge, (function, caller)),
            (Look::Armed, Edge::Enter) if function == gate.trigger() => {
                self.closed(gate, edge.of(function, caller));
            }
            _ => {}
        }
    }

    /// [`call`](Self::call) when the gate's word is open. A function of its own, so that a hook that is off saves no
    /// registers; one instance for each edge, so that it need not test which.
    #[inline(never)]
    fn open_call<const EXIT: bool>(&'static self, gate: &Gate, function: usize, caller: usize) {
        let done = self.inside(gate, |cpu_buffer| {
            let usual = gate.open_in_order()
                && cpu_buffer.changes.get() == gate.changes()
                && function != gate.stopper();
            let edge = if EXIT { Edge::Exit } else { Edge::Enter };
            // SAFETY: this CPU is inside, with no reader.
            usual
                && unsafe { cpu_buffer.record_near(edge, low::<P>(self.port.counter()), function) }
        });
        match done {
            Some(true) => {}
            Some(false) => {
                let edge = if EXIT { Edge::Exit } else { Edge::Enter };
                self.slow_call(gate, edge, function, caller);
            }
            None => self.refused_function.store(function, Ordering::Relaxed),
        }
    }

    /// Slow path of a call.
    #[cold]
    #[inline(never)]
    fn slow_call(&'static self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if !gate.open() {
            return self.closed(gate, edge.of(function, caller));
        }
        self.inside(gate, |cpu_buffer| {
            let state = gate.state_in_order();
            // Only readers change the mode, so it does not change from here on.
            #[cfg(feature = "duration")]
            if gate.in_duration() {
                return self.record_call_in_duration(cpu_buffer, gate, edge, function, caller);
            }
            if !state.open() {
                return self.miss(cpu_buffer, state, edge.of(function, caller));
            }
            let now = cpu_buffer.now(&self.port);
            cpu_buffer.catch_up(gate.changes(), now);
            let is_stopper = function == gate.stopper();
            let low = low::<P>(now);
            // A full packet is the usual reason to come here.
            if !is_stopper && cpu_buffer.begin_if_full(low) {
                // SAFETY: this CPU is inside, with no reader.
                if unsafe { cpu_buffer.record_near(edge, low, function) } {
                    return;
                }
            }
            cpu_buffer.writer.record(now, edge.of(function, caller));
            if is_stopper {
                self.follow_stopper(cpu_buffer, gate, Some((edge, function)), gate.site(caller));
            }
        });
    }

    /// Hook for any other event.
    #[inline(never)]
    pub fn hook(&'static self, gate: &Gate, event: Event) {
        if gate.open() {
            self.inside(gate, |cpu_buffer| self.record(cpu_buffer, gate, event));
        } else {
            self.closed(gate, event);
        }
    }

    /// Runs `work` with interrupts masked and this CPU marked as inside its CPU buffer; does nothing if it is inside
    /// already, or has no CPU buffer.
    #[inline(always)]
    fn inside<R>(&self, gate: &Gate, work: impl FnOnce(&CpuBuffer<P>) -> R) -> Option<R> {
        let was = self.port.mask();
        let result = match self.come_in(gate) {
            Some(cpu_buffer) => {
                let result = work(cpu_buffer);
                cpu_buffer.go_out();
                Some(result)
            }
            None => None,
        };
        self.port.unmask(was);
        result
    }

    /// Marks this CPU as inside its CPU buffer, with interrupts masked; `None`, and counted, if it is inside already, or
    /// has no CPU buffer.
    #[inline(always)]
    fn come_in(&self, gate: &Gate) -> Option<&CpuBuffer<P>> {
        match self.cpu_buffer() {
            Some(cpu_buffer) if cpu_buffer.inside.load(Ordering::Relaxed) => {
                add(&cpu_buffer.refused, 1);
                None
            }
            Some(cpu_buffer) => {
                // Visible to all CPUs before this one checks the gate.
                cpu_buffer.inside.store(true, Ordering::SeqCst);
                Some(cpu_buffer)
            }
            None => {
                self.count_unbuffered(gate);
                None
            }
        }
    }

    /// Counts an event of a CPU that has no CPU buffer.
    #[cold]
    #[inline(never)]
    fn count_unbuffered(&self, gate: &Gate) {
        if gate.state().on() && gate.state().enabled() {
            self.shared.unbuffered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records an event if the gate is open, while inside.
    fn record(&self, cpu_buffer: &CpuBuffer<P>, gate: &Gate, event: Event) {
        if matches!(event, Event::Longjmp(_)) && gate.stopper() != 0 {
            self.follow_stopper(cpu_buffer, gate, None, gate.site(0));
        }
        let state = gate.state_in_order();
        #[cfg(feature = "duration")]
        if let Some(control) = cpu_buffer.duration().filter(|_| gate.in_duration()) {
            return self.record_in_duration(cpu_buffer, gate, state, control, event);
        }
        if state.open() {
            let now = cpu_buffer.now_in_order(&self.port);
            cpu_buffer.catch_up(gate.changes(), now);
            cpu_buffer.writer.record(now, event);
        } else {
            self.miss(cpu_buffer, state, event);
        }
    }

    /// Tracks an event that is not recorded, while inside. `state` is the one for which it was refused.
    #[cold]
    #[inline(never)]
    fn miss(&self, cpu_buffer: &CpuBuffer<P>, state: State, event: Event) {
        cpu_buffer.follow_in_table(&self.port, state, event);
        cpu_buffer.writer.follow_event(event);
        self.refuse(cpu_buffer, state);
    }

    /// Counts an event that is not recorded as lost, if only a reader prevented recording. `state` is the one for which
    /// the event was refused, because the reader may have gone since.
    #[cold]
    fn refuse(&self, cpu_buffer: &CpuBuffer<P>, state: State) {
        if state.on() && state.enabled() && state.frozen() {
            add(&cpu_buffer.lost, 1);
        }
    }

    /// Enables or disables recording; nests.
    pub fn enable(&self, gate: &Gate, enabled: bool) {
        if !gate.state().alive() {
            return;
        }
        let change = || match enabled {
            true => gate.enable(),
            false => gate.disable(),
        };
        self.miss_in_stopper(gate, enabled, change);
    }

    /// Enables or disables recording by `change`, and notes that returns of the stopper may have been missed.
    fn miss_in_stopper(&self, gate: &Gate, enabled: bool, change: impl FnOnce()) {
        if enabled && !gate.state().enabled() {
            // Again: a CPU that had seen it enabled may have followed a call since.
            self.shared.stopper.miss();
        }
        change();
        if !enabled {
            self.shared.stopper.miss();
        }
    }

    /// Sets trigger and stopper; `None` leaves one unchanged.
    pub fn set_sets(&'static self, gate: &Gate, trigger: Option<usize>, stopper: Option<usize>) {
        if !gate.state().alive() {
            return;
        }
        self.locked(|| {
            if let Some(trigger) = trigger {
                gate.set_trigger(trigger);
            }
            if let Some(stopper) = stopper {
                gate.set_stopper(stopper);
                // Open calls of the old one do not count.
                self.shared.stopper.forget();
            }
            self.keep_sets(gate);
        });
    }

    /// Writes metadata.
    pub fn describe(&'static self, gate: &Gate, write: impl FnOnce(&Metadata<P>, u64)) {
        if gate.state().alive() && !gate.state().fresh() {
            let now = self.time();
            self.locked(|| write(&self.shared.metadata, now));
        }
    }

    /// Runs `work` with interrupts masked and `lock` held.
    fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let was = self.port.mask();
        let result = self.shared.lock.with(&self.port, work);
        self.port.unmask(was);
        result
    }

    /// The current time, by this CPU's clock; 0 if it has no CPU buffer, or is inside it.
    fn time(&self) -> u64 {
        let was = self.port.mask();
        let now = self.cpu_buffer().filter(|cpu_buffer| {
            // A hook that was interrupted may be updating the clock.
            !cpu_buffer.inside.load(Ordering::Relaxed)
        });
        let now = now.map_or(0, |cpu_buffer| cpu_buffer.now_in_order(&self.port));
        self.port.unmask(was);
        now
    }

    /// Passes a byte from the host to the link.
    pub fn receive(&self, gate: &Gate, byte: u8) {
        if gate.state().alive() {
            self.shared.link.receive(byte);
        }
    }

    /// Executes the host's requests; does nothing if another CPU is doing so.
    pub fn poll(&'static self, gate: &Gate) {
        if let Some(handle) = self.handle(gate) {
            self.shared
                .polling
                .try_with(|| self.shared.link.poll(&handle));
        }
    }

    /// Whether a [poll](Self::poll) would have work to do, and no other CPU is polling.
    pub fn pending(&'static self, gate: &Gate) -> bool {
        let pending = self.handle(gate).and_then(|handle| {
            let link = &self.shared.link;
            self.shared.polling.try_with(|| link.is_pending(&handle))
        });
        pending == Some(true)
    }

    /// The periodic tick of one CPU: updates its clock, closes its packet when the link has requested that, and
    /// unfreezes the CPU buffers when the host that was reading them has gone.
    pub fn tick(&'static self, gate: &Gate) {
        let Some(handle) = self.handle(gate) else {
            return;
        };
        self.inside(gate, |cpu_buffer| {
            // The link changes this count to request that packets be closed.
            let state = gate.state_in_order();
            let now = cpu_buffer.now_in_order(&self.port);
            if cpu_buffer.changes.get() != gate.changes() && !state.frozen() {
                cpu_buffer.begin(gate.changes());
                if state.on() {
                    cpu_buffer.catch_up_table(now);
                }
            }
            cpu_buffer.clock.tick();
            if state.on() {
                cpu_buffer.notice_thread_in_table(now);
            }
            self.compare_tick(cpu_buffer, now);
        });
        #[cfg(feature = "duration")]
        if self.is_requested() {
            self.shared.polling.try_with(|| handle.follow_request());
        }
        if gate.state().frozen() || self.shared.link.is_streaming() {
            let now = self.time();
            // A counter that never wraps around measures time better than ticks.
            let config = handle.config;
            let ticks = config
                .clock
                .map_or(0, |_| config.tick_hz * self.cpu_buffers().len() as u32);
            self.shared
                .polling
                .try_with(|| self.shared.link.tick(now, ticks, &handle));
        }
    }

    /// Drops events. Does nothing while a dump or stream is being read.
    pub fn clear(&'static self, gate: &Gate) {
        if let Some(handle) = self.handle(gate) {
            self.shared.polling.try_with(|| {
                if !self.shared.link.is_streaming() {
                    // It fails if a reader is active, which needs the events.
                    let _ = handle.clear_with(|_| {});
                }
            });
        }
    }

    /// In stream mode, closes this CPU's open packet, so that a reader sees all that the CPU has recorded so far.
    pub fn flush(&'static self, gate: &Gate) {
        if self.handle(gate).is_some() {
            self.inside(gate, |cpu_buffer| {
                let stream = cpu_buffer.writer.stream();
                if stream.mode() == Mode::Stream && !gate.state_in_order().frozen() {
                    cpu_buffer.report_losses();
                    stream.seal();
                    cpu_buffer.seal_items();
                }
            });
        }
    }

    /// In stream mode: passes closed packets to `take`, each CPU's in order, and returns their slots to the CPUs. At
    /// most [`AT_ONCE`] packets of each CPU; returns their number in total, which is 0 while another reader is active.
    pub fn take_packets(&'static self, gate: &Gate, mut take: impl FnMut(u16, &[u8])) -> u32 {
        if self.handle(gate).is_none() {
            return 0;
        }
        // Not while the link reads: it reads only while it is polled, but keeps packets in between while it streams.
        let taken = self.shared.polling.try_with(|| {
            let mut taken = 0;
            if self.shared.link.is_streaming() || !self.shared.reading.try_take() {
                return 0;
            }
            for (cpu, cpu_buffer) in self.cpu_buffers().iter().enumerate() {
                let buffer = cpu_buffer.writer.stream().buffer();
                if buffer.mode() != Mode::Stream {
                    continue;
                }
                for _ in 0..AT_ONCE {
                    // SAFETY: the holder of `reading` is the only reader.
                    let Some(packet) = (unsafe { buffer.next() }) else {
                        break;
                    };
                    take(cpu as u16, packet);
                    // SAFETY: as above, and there was a packet, which is not used any more.
                    unsafe { buffer.release() };
                    taken += 1;
                }
                for _ in 0..AT_ONCE {
                    let Some(packet) = cpu_buffer.ring.next() else {
                        break;
                    };
                    take(cpu as u16, packet);
                    cpu_buffer.ring.release();
                    taken += 1;
                }
            }
            self.shared.reading.release();
            taken
        });
        taken.unwrap_or(0)
    }

    /// The recorder as the link sees it, once it is set up.
    fn handle<'a>(&'static self, gate: &'a Gate) -> Option<Handle<'a, P, N>> {
        let state = gate.state();
        if !state.alive() || state.fresh() || state.claimed() {
            return None;
        }
        Some(Handle {
            gate,
            cpus: self,
            config: self.shared.config.get()?,
        })
    }
}
