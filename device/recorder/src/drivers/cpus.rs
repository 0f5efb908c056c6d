//! The recorder of several processors that run one program: a stream each.
//!
//! A CPU records into its own [`CpuBuffer`] and shares nothing with the others while it does: no cache
//! line that anybody writes, no atomic read-modify-write, no lock. What all look at is the
//! [`Gate`], a cache line that changes only when recording is turned on or off. A hook finds its
//! CPU buffer through a register of the CPU's own ([`CpusPort::place`]), and masks its CPU's interrupts
//! for as long as it takes to read the clock, check and store, as on one processor
//! ([`single`](crate::single)).
//!
//! A reader on any CPU has two ways to the packets:
//!
//! - It takes closed packets while all go on recording (stream mode): the writer publishes a packet
//!   with a store-release, the reader takes it with a load-acquire, and the other way round for the
//!   place that it leaves.
//! - It holds all CPUs off (`hold`): it freezes the gate and waits until no CPU is
//!   inside a hook. A hook first says that it is inside and then looks at the gate, both in
//!   sequentially consistent order, so either it sees the gate frozen or the reader sees it inside.
//!   (On AArch64 that is a store-release followed by a load-acquire: no barrier.) As interrupts are
//!   masked inside, a CPU leaves its hook soon.
//!
//! The CPU that turns recording on or off marks it in its stream, with a time before the first event
//! that any CPU records from then on, or after the last. Each other stream begins a new packet.
//!
//! A profile table is kept only where there is one CPU: of several it would be one for each, and nobody
//! has the memory to add them up.

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::AtomicUsize;

use kymo_wire::event::Cause;
use kymo_wire::link::{Mode, SetupError};

use crate::config::{Config, Kept};
use crate::cost::Hooks;
use crate::gate::{Gate, Look, State};
use crate::hot::low;
use crate::items::Ring;
use crate::link::Link;
use crate::metadata::Metadata;
use crate::sync::{ALONE, AtomicBool, AtomicU32, Ordering, add};
use crate::{Edge, Event, Target};

mod buffer;
mod control;
#[cfg(feature = "cost")]
mod cost;
#[cfg(feature = "duration")]
mod duration;
mod items;
mod lock;
#[cfg(all(test, loom))]
mod model;
mod recording;
mod setup;
mod ticks;

pub use buffer::CpuBuffer;
use control::Handle;
#[cfg(feature = "duration")]
pub use duration::CpuDuration;
pub use items::CpuItems;
use lock::Lock;

/// How many packets a reader takes of a CPU before it looks at the next one.
pub const AT_ONCE: u32 = 16;

/// What the recorder needs of the processors. None of it may be instrumented.
pub trait CpusPort: Target + 'static {
    /// Masks this CPU's interrupts; returns what [`unmask`](Self::unmask) needs to bring back what
    /// was.
    fn mask(&self) -> usize;
    /// Brings back what was before the [`mask`](Self::mask) that returned `was`.
    fn unmask(&self, was: usize);
    /// What [`set_place`](Self::set_place) left for this CPU; null before.
    fn place(&self) -> *const ();
    /// Leaves a pointer for this CPU.
    fn set_place(&self, place: *const ());
    /// Reads a counter of 64 bits, which is the same on all CPUs, or nearly.
    fn counter(&self) -> u64;
    /// The same, but not before what comes earlier in the program has been done: for events that
    /// are held against those of other CPUs.
    fn counter_in_order(&self) -> u64;
    /// How many times a second the counter counts.
    fn counter_hz(&self) -> u64;
    /// The hooks as the program calls them, so that their cost can be measured; `None` if nobody
    /// calls them.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }
    /// Lets another CPU get on while this one waits.
    fn pause(&self);
}

/// What all CPUs share, and touch only where it may take its time.
#[repr(C, align(128))]
#[derive(Debug)]
struct Shared<P> {
    config: Cell<Option<&'static Config>>,
    /// How many CPUs the program has given buffers to.
    count: AtomicU32,
    metadata: Metadata<P>,
    link: Link,
    /// Why it is not set up.
    fault: Cell<Option<SetupError>>,
    /// The trigger turns recording on once. Under `lock`.
    once: Cell<bool>,
    /// When the CPU buffers were frozen for a dump.
    frozen_at: Cell<u64>,
    /// When recording was turned off last. Under `lock`.
    #[cfg(feature = "duration")]
    turned_off: Cell<u64>,
    /// A CPU did not leave its hook when a reader came, and was left out.
    stuck: AtomicBool,
    /// The link waits for CPUs to close packets, and since when. Only who is `polling` touches them.
    flushing: Cell<bool>,
    flush_since: Cell<u64>,
    /// Events of CPUs that have no CPU buffer (yet).
    homeless: AtomicU32,
    /// The number of the CPU whose tick is compared with the clock, and 1; 0: none has ticked.
    ticking: AtomicU32,
    /// Guards setting up, turning on and off, metadata, trigger and stopper. Who waits for it inside
    /// a CPU buffer is [`turning`](CpuBuffer::turning).
    lock: Lock,
    /// Somebody talks to the host.
    polling: Lock,
    /// Somebody holds the CPU buffers still, or takes packets from them.
    reading: Lock,
}

/// The recorder of up to `N` CPUs, but for its [`Gate`]: that lies in `.data`, this in `.bss`.
#[derive(Debug)]
pub struct Cpus<P: 'static, const N: usize> {
    port: P,
    /// The function for which a hook was last called from inside a hook; 0: none.
    refused_function: AtomicUsize,
    shared: Shared<P>,
    cpu_buffers: [CpuBuffer<P>; N],
}

// SAFETY: of what is shared, `config` and `fault` are written while the recorder is set up, by one
// CPU, before others see it set up; `metadata` only under `lock`; what the link waits for only by who is
// `polling`.
unsafe impl<P, const N: usize> Sync for Cpus<P, N> {}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Where a reader of memory finds what it looks for.
    pub const KEPT: Kept = {
        let cpu_buffers = offset_of!(Self, cpu_buffers);
        Kept {
            at: (cpu_buffers + CpuBuffer::<P>::AT_OFFSET) as u32,
            stride: size_of::<CpuBuffer<P>>() as u32,
            rings: (cpu_buffers + CpuBuffer::<P>::RINGS_OFFSET) as u32,
            ring_next: Ring::<P>::NEXT_OFFSET as u16,
            discarded: (cpu_buffers + CpuBuffer::<P>::DISCARDED_OFFSET) as u32,
            // There is one where there is one CPU.
            table: crate::Writer::<P>::table_place(cpu_buffers + CpuBuffer::<P>::WRITER_OFFSET),
        }
    };

    /// Not set up. All zero if the port is.
    pub const fn new(port: P) -> Self {
        const {
            assert!(
                !ALONE,
                "this processor's counters are made for one CPU: several would lose counts and order"
            );
        }
        Self {
            port,
            shared: Shared {
                config: Cell::new(None),
                count: AtomicU32::new(0),
                metadata: Metadata::new(),
                link: Link::new(),
                fault: Cell::new(None),
                once: Cell::new(false),
                frozen_at: Cell::new(0),
                #[cfg(feature = "duration")]
                turned_off: Cell::new(0),
                stuck: AtomicBool::new(false),
                flushing: Cell::new(false),
                flush_since: Cell::new(0),
                homeless: AtomicU32::new(0),
                ticking: AtomicU32::new(0),
                lock: Lock::new(),
                polling: Lock::new(),
                reading: Lock::new(),
            },
            refused_function: AtomicUsize::new(0),
            cpu_buffers: [const { CpuBuffer::new() }; N],
        }
    }

    /// The CPU buffers of the CPUs that the program has given buffers to.
    pub fn cpu_buffers(&self) -> &[CpuBuffer<P>] {
        let count = self.shared.count.load(Ordering::Acquire) as usize;
        self.cpu_buffers.get(..count).unwrap_or(&self.cpu_buffers)
    }

    /// The processors.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Why the recorder is not set up.
    pub fn fault(&self) -> Option<SetupError> {
        self.shared.fault.get()
    }

    /// The CPU buffer of the CPU that asks.
    #[inline(always)]
    fn cpu_buffer(&self) -> Option<&CpuBuffer<P>> {
        // SAFETY: it is null, or a CPU buffer that `start` left there, which stays for as long as the
        // recorder. Interrupts are masked, so the program does not move to another CPU meanwhile.
        unsafe { self.port.place().cast::<CpuBuffer<P>>().as_ref() }
    }

    /// A function was entered, from the place `caller`, or left.
    #[inline(always)]
    pub fn call(&'static self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        match (gate.look(), edge) {
            (Look::Open, Edge::Enter) => self.open_call::<false>(gate, function, caller),
            (Look::Open, Edge::Exit) => self.open_call::<true>(gate, function, caller),
            #[cfg(feature = "duration")]
            (Look::Duration(_), _) => self.duration_call(gate, edge, function, caller),
            (Look::Armed, Edge::Enter) if function == gate.trigger() => {
                self.closed(gate, edge.of(function, caller));
            }
            _ => {}
        }
    }

    /// [`call`](Self::call) through a gate that seems open. Apart from it so that a hook that is off
    /// does not save registers, and once for each kind so that this needs no look at it.
    #[inline(never)]
    fn open_call<const EXIT: bool>(&'static self, gate: &Gate, function: usize, caller: usize) {
        let done = self.inside(gate, |cpu_buffer| {
            let usual = gate.open_in_order()
                && cpu_buffer.changes.get() == gate.changes()
                && function != gate.stopper();
            // SAFETY: the cursor is that of the CPU buffer's stream, where there is memory below its end;
            // and this CPU is inside, with nobody reading.
            usual
                && unsafe {
                    let now = low::<P>(self.port.counter());
                    if EXIT {
                        cpu_buffer.cursor.exit::<P>(now)
                    } else {
                        cpu_buffer.cursor.enter::<P>(now, function)
                    }
                }
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

    /// A call that is not usual.
    #[cold]
    #[inline(never)]
    fn slow_call(&'static self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if !gate.open() {
            return self.closed(gate, edge.of(function, caller));
        }
        self.inside(gate, |cpu_buffer| {
            let state = gate.state_in_order();
            // The mode is changed by readers alone, so it stays what it is now.
            #[cfg(feature = "duration")]
            if gate.in_duration() {
                return self.record_call_in_duration(cpu_buffer, gate, edge, function, caller);
            }
            if !state.open() {
                return self.refuse(cpu_buffer, state);
            }
            let now = cpu_buffer.now(&self.port);
            cpu_buffer.catch_up(gate.changes(), now);
            cpu_buffer.writer.record(now, edge.of(function, caller));
            if function == gate.stopper() {
                self.follow_stopper(cpu_buffer, gate, edge, gate.site(caller));
            }
        });
    }

    /// Anything else happened.
    #[inline(never)]
    pub fn hook(&'static self, gate: &Gate, event: Event) {
        if gate.open() {
            self.inside(gate, |cpu_buffer| self.record(cpu_buffer, gate, event));
        } else {
            self.closed(gate, event);
        }
    }

    /// Does `work` inside this CPU's CPU buffer with interrupts masked; nothing if it is inside already,
    /// or has no CPU buffer.
    #[inline(always)]
    fn inside<R>(&self, gate: &Gate, work: impl FnOnce(&CpuBuffer<P>) -> R) -> Option<R> {
        let was = self.port.mask();
        let result = match self.cpu_buffer() {
            Some(cpu_buffer) if cpu_buffer.inside.load(Ordering::Relaxed) => {
                add(&cpu_buffer.refused, 1);
                None
            }
            Some(cpu_buffer) => {
                // Before the look at the gate, for all CPUs to see.
                cpu_buffer.inside.store(true, Ordering::SeqCst);
                let result = work(cpu_buffer);
                cpu_buffer.inside.store(false, Ordering::Release);
                Some(result)
            }
            None => {
                self.turn_away(gate);
                None
            }
        };
        self.port.unmask(was);
        result
    }

    /// An event of a CPU that has no CPU buffer.
    #[cold]
    #[inline(never)]
    fn turn_away(&self, gate: &Gate) {
        if gate.state().on() && gate.state().enabled() {
            self.shared.homeless.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records, inside, if the gate is open.
    fn record(&self, cpu_buffer: &CpuBuffer<P>, gate: &Gate, event: Event) {
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
            cpu_buffer.writer.follow_event(event);
            self.refuse(cpu_buffer, state);
        }
    }

    /// An event that is not recorded is lost if only a reader was in the way: by the state that it was
    /// refused for, as the reader may have gone since.
    #[cold]
    fn refuse(&self, cpu_buffer: &CpuBuffer<P>, state: State) {
        if state.on() && state.enabled() && state.frozen() {
            add(&cpu_buffer.lost, 1);
        }
    }

    /// Something happened while the gate was closed.
    #[cold]
    #[inline(never)]
    fn closed(&'static self, gate: &Gate, event: Event) {
        let state = gate.state();
        if !state.alive() || state.fresh() || state.claimed() || state.failed() {
            return;
        }
        self.inside(gate, |cpu_buffer| {
            self.record(cpu_buffer, gate, event);
            let state = gate.state();
            if gate.open_in_order() || !state.enabled() {
                return;
            }
            match event {
                Event::Enter(function) | Event::EnterFrom { function, .. }
                    if function != 0
                        && function == gate.trigger()
                        && !state.on()
                        && !state.spent()
                        && gate.site_of(&event).triggers() =>
                {
                    self.turn_inside(cpu_buffer, gate, true, Cause::Function);
                    self.record(cpu_buffer, gate, event);
                    if function == gate.stopper() {
                        self.follow_stopper(cpu_buffer, gate, Edge::Enter, gate.site_of(&event));
                    }
                }
                // Also while a dump is being read, though it cannot be marked in the trace then.
                Event::Enter(function) | Event::EnterFrom { function, .. }
                    if state.on() && function == gate.stopper() =>
                {
                    self.follow_stopper(cpu_buffer, gate, Edge::Enter, gate.site_of(&event));
                }
                Event::Exit(function) if state.on() && function == gate.stopper() => {
                    self.follow_stopper(cpu_buffer, gate, Edge::Exit, gate.site(0));
                }
                _ => {}
            }
        });
    }

    /// Opens or closes the gate, nestable.
    pub fn enable(&self, gate: &Gate, enabled: bool) {
        if !gate.state().alive() {
            return;
        }
        if enabled {
            gate.enable();
        } else {
            gate.disable();
        }
    }

    /// Sets trigger and stopper (what is `None` stays).
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

    /// Does `work` with interrupts masked, one CPU at a time.
    fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let was = self.port.mask();
        let result = self.shared.lock.with(&self.port, work);
        self.port.unmask(was);
        result
    }

    /// The time now, by this CPU's clock; 0 if it has no CPU buffer.
    fn time(&self) -> u64 {
        let was = self.port.mask();
        let now = self.cpu_buffer().filter(|cpu_buffer| {
            // Who is inside has the clock in its hands.
            !cpu_buffer.inside.load(Ordering::Relaxed)
        });
        let now = now.map_or(0, |cpu_buffer| cpu_buffer.now_in_order(&self.port));
        self.port.unmask(was);
        now
    }

    /// A byte arrived from the host.
    pub fn receive(&self, gate: &Gate, byte: u8) {
        if gate.state().alive() {
            self.shared.link.receive(byte);
        }
    }

    /// Does what the host asked for; nothing if another CPU is at it.
    pub fn poll(&'static self, gate: &Gate) {
        if let Some(handle) = self.handle(gate) {
            self.shared
                .polling
                .try_with(|| self.shared.link.poll(&handle));
        }
    }

    /// Whether a [poll](Self::poll) would have something to do, and nobody is at it.
    pub fn pending(&'static self, gate: &Gate) -> bool {
        let pending = self.handle(gate).and_then(|handle| {
            let link = &self.shared.link;
            self.shared.polling.try_with(|| link.is_pending(&handle))
        });
        pending == Some(true)
    }

    /// The periodic tick of one CPU: keeps its clock, closes its packet when the link wants it, and
    /// lets the CPU buffers go when the host that was reading them is gone.
    pub fn tick(&'static self, gate: &Gate) {
        let Some(handle) = self.handle(gate) else {
            return;
        };
        self.inside(gate, |cpu_buffer| {
            // Whoever calls for attention wants to see what there is.
            if cpu_buffer.changes.get() != gate.changes() && !gate.state_in_order().frozen() {
                cpu_buffer.begin(gate.changes());
            }
            let now = cpu_buffer.now_in_order(&self.port);
            cpu_buffer.clock.tick();
            self.compare_tick(cpu_buffer, now);
        });
        if gate.state().frozen() || self.shared.link.is_streaming() {
            let now = self.time();
            // A counter that never turns is a better judge of time than so many ticks.
            let config = handle.config;
            let ticks = config
                .clock
                .map_or(0, |_| config.tick_hz * self.cpu_buffers().len() as u32);
            self.shared
                .polling
                .try_with(|| self.shared.link.tick(now, ticks, &handle));
        }
    }

    /// Forgets events. Nothing happens while a dump or stream is being read.
    pub fn clear(&'static self, gate: &Gate) {
        if let Some(handle) = self.handle(gate) {
            self.shared.polling.try_with(|| {
                if !self.shared.link.is_streaming() {
                    // If a reader is at work, it asked for what there is.
                    let _ = handle.clear_with(|_| {});
                }
            });
        }
    }

    /// Closes the packet that this CPU has open, in stream mode, so that a reader sees all that it has
    /// recorded so far.
    pub fn flush(&'static self, gate: &Gate) {
        if self.handle(gate).is_some() {
            self.inside(gate, |cpu_buffer| {
                let stream = cpu_buffer.writer.stream();
                if stream.mode() == Mode::Stream && !gate.state_in_order().frozen() {
                    cpu_buffer.settle();
                    stream.seal();
                    cpu_buffer.seal_items();
                }
            });
        }
    }

    /// In stream mode: gives `take` packets that have been closed, each CPU's in their order, and
    /// their places back to the CPUs. Of each CPU not more than [`AT_ONCE`]; returns how many in all.
    /// None while another reader is at work.
    pub fn take_packets(&'static self, gate: &Gate, mut take: impl FnMut(u16, &[u8])) -> u32 {
        if self.handle(gate).is_none() {
            return 0;
        }
        // Not while the link reads: it does so only while it is polled, and holds on to packets in
        // between while it streams.
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
                    // SAFETY: who has `reading` is the only reader.
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

    /// What the link sees of the recorder, once it is set up.
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
