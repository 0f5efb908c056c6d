//! Models of several processors: each records into its own CPU buffer, while a reader excludes all of them, or one of
//! them turns recording off. See [`crate::model`].

use std::boxed::Box;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::vec;
use std::vec::Vec;

use kymo_wire::event::Layout;

use super::control::Handle;
use super::setup::LINE;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::buffer::MIN_PACKET;
use crate::config::{CONFIG_VERSION, Config, START_ON};
use crate::hot::Hot;
use crate::model::{Kept, LAYOUT, explore, explore_with};
use crate::sync::{AtomicU32, Ordering, Weak};
use crate::{Edge, Target};

/// Number of CPUs.
const CPUS: usize = 2;

/// Start of the text, and the distance between functions.
const TEXT: usize = 0x1000;
const STEP: usize = 0x10;

/// The processors: each is a thread, which nothing interrupts.
struct Machine {
    time: AtomicU32,
    /// The CPU register of each thread.
    places: RefCell<HashMap<loom::thread::ThreadId, *const ()>>,
}

// SAFETY: all threads of a model run in one thread of the system, which switches only where an atomic is used.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Target for Machine {
    const LAYOUT: Layout = LAYOUT;
    const FINISHED_ELSEWHERE: bool = true;
    const MIGRATES: bool = true;
}

impl CpusPort for Machine {
    fn mask(&self) -> usize {
        0
    }

    fn unmask(&self, _: usize) {}

    fn cpu_pointer(&self) -> *const () {
        let places = self.places.borrow();
        let cpu_pointer = places.get(&loom::thread::current().id());
        cpu_pointer.copied().unwrap_or(null())
    }

    fn set_cpu_pointer(&self, cpu_pointer: *const ()) {
        let thread = loom::thread::current().id();
        self.places.borrow_mut().insert(thread, cpu_pointer);
    }

    /// Increases with every reading; a reading orders nothing between threads.
    fn counter(&self) -> u64 {
        self.time.fetch_add(1, Ordering::Relaxed).into()
    }

    fn counter_in_order(&self) -> u64 {
        self.counter()
    }

    fn counter_hz(&self) -> u64 {
        1_000_000
    }

    fn pause(&self) {
        loom::thread::yield_now();
    }
}

/// A program with its recorder. It does not move while it is used.
struct System {
    hot: Hot,
    cpus: Cpus<Machine, CPUS>,
    config: Config,
    _memory: Vec<u64>,
}

// SAFETY: the shared part of it is the recorder, which is made for that.
unsafe impl Sync for System {}
// SAFETY: as above.
unsafe impl Send for System {}

impl System {
    /// A system that is recording, with empty buffers.
    fn new() -> Arc<Self> {
        const PACKETS: usize = 3;
        let size = PACKETS * MIN_PACKET as usize;
        let mut memory = vec![0u64; (CPUS * size + LINE) / 8];
        let buffer: *mut u8 = memory.as_mut_ptr().cast();
        let buffer = buffer.wrapping_add(buffer.align_offset(LINE));
        let system = Arc::new_cyclic(|this: &std::sync::Weak<Self>| Self {
            // SAFETY: only the field's address is computed.
            hot: Hot::new(unsafe { &raw const (*this.as_ptr()).hot }),
            cpus: Cpus::new(Machine {
                time: AtomicU32::new(0),
                places: RefCell::default(),
            }),
            config: Config {
                version: CONFIG_VERSION,
                flags: START_ON,
                buffer: buffer.cast(),
                buffer_size: size as u32,
                packet_size: MIN_PACKET,
                text_base: std::ptr::without_provenance(TEXT),
                cpu_count: CPUS as u32,
                ..Config::EMPTY
            },
            _memory: memory,
        });
        system.start();
        system
    }

    /// Starts all CPUs, and runs every operation once, because loom requires the thread that creates an atomic to be
    /// known to all others.
    fn start(&self) {
        let (cpus, config) = self.lasting();
        for cpu in 0..CPUS {
            assert!(cpus.start(&self.hot.gate, config, None, cpu as u16));
            self.call(0);
        }
        assert!(self.handle().hold().is_ok());
        self.handle().resume();
        self.handle().clear_with(|_| {}).expect("nobody reads");
        // From here on this thread is the host.
        cpus.port().set_cpu_pointer(null());
    }

    /// References with the lifetime that the recorder requires.
    fn lasting(&self) -> (&'static Cpus<Machine, CPUS>, &'static Config) {
        // SAFETY: the system outlives its use: every thread of a model holds a reference to it.
        unsafe {
            (
                &*core::ptr::from_ref(&self.cpus),
                &*core::ptr::from_ref(&self.config),
            )
        }
    }

    fn handle(&self) -> Handle<'_, Machine, CPUS> {
        let (cpus, _) = self.lasting();
        cpus.handle(&self.hot.gate).expect("it is set up")
    }

    /// Makes this thread the CPU of this number.
    fn become_cpu(&self, cpu: usize) {
        let cpu_buffer: *const CpuBuffer<Machine> = &raw const self.cpus.cpu_buffers[cpu];
        self.cpus.port().set_cpu_pointer(cpu_buffer.cast());
    }

    /// The `n`th call of the calling CPU.
    fn call(&self, n: usize) {
        let (cpus, _) = self.lasting();
        for edge in [Edge::Enter, Edge::Exit] {
            cpus.call(&self.hot.gate, edge, TEXT + STEP * n, 0);
        }
    }

    /// Content of the buffer of an excluded CPU.
    fn kept(&self, cpu: usize) -> Kept {
        let cpu_buffer = &self.cpus.cpu_buffers[cpu];
        let mut kept = Kept::default();
        let mut n = 0;
        // SAFETY: it is excluded, and sealed.
        while let Some(packet) = unsafe { cpu_buffer.writer.stream().buffer().packet(n) } {
            kept.packet(packet);
            n += 1;
        }
        let lost = cpu_buffer.writer.stream().figures().discarded + cpu_buffer.unreported();
        kept.discarded = kept.discarded.max(lost);
        kept
    }

    /// Excludes all CPUs, reads the kept packets, and permits recording again.
    fn read(&self) -> [Kept; CPUS] {
        assert!(self.handle().hold().is_ok());
        let kept = [0, 1].map(|cpu| self.kept(cpu));
        self.handle().resume();
        kept
    }
}

/// The CPUs record so many calls each while a reader excludes them; returns what each has in the end.
fn hold(calls: [usize; CPUS]) -> [Kept; CPUS] {
    let system = System::new();
    let recording = (0..CPUS).filter(|cpu| calls[*cpu] > 0).map(|cpu| {
        let system = system.clone();
        loom::thread::spawn(move || {
            system.become_cpu(cpu);
            (0..calls[cpu]).for_each(|n| system.call(n));
        })
    });
    let recording: Vec<_> = recording.collect();
    let early = system.read();
    for cpu in recording {
        cpu.join().expect("it ends");
    }
    let kept = system.read();
    for (cpu, kept) in kept.iter().enumerate() {
        kept.in_order(STEP);
        assert!(early[cpu].events <= kept.events, "nothing is overwritten");
        let all = kept.events + kept.discarded as usize;
        assert_eq!(all, 2 * calls[cpu], "CPU {cpu}: {kept:?}");
    }
    kept
}

#[test]
fn a_reader_holds_all_cpus_off() {
    // Checks that a CPU lost something while excluded in some order, and nothing in another.
    let lost: &'static AtomicUsize = Box::leak(Box::default());
    explore_with(2, None, || {
        let kept = hold([1, 1]);
        let discarded: u32 = kept.iter().map(|kept| kept.discarded).sum();
        lost.fetch_or(1 << discarded.min(7), Std::Relaxed);
    });
    let lost = lost.load(Std::Relaxed);
    assert!(lost & 1 != 0 && lost & !1 != 0, "{lost:#b}");
}

#[test]
fn holding_off_needs_the_fences_and_every_release_and_acquire() {
    for weak in [Weak::Fence, Weak::Release, Weak::Acquire] {
        explore_with(2, Some(weak), || {
            hold([1, 0]);
        });
    }
}

/// One CPU turns recording off while the other records.
fn turn_off() {
    let system = System::new();
    let other = system.clone();
    let other = loom::thread::spawn(move || {
        other.become_cpu(1);
        other.call(0);
    });
    system.become_cpu(0);
    let (cpus, _) = system.lasting();
    cpus.set_recording(&system.hot.gate, false);
    let marked = system.cpus.port().counter();
    other.join().expect("it ends");
    system.cpus.port().set_cpu_pointer(null());
    assert!(system.handle().hold().is_ok());
    let kept = system.kept(1);
    // The mark is the last event of all.
    assert!(
        kept.end.is_none_or(|end| end < marked),
        "{kept:?}, turned off before {marked}"
    );
    assert!(kept.events <= 2 && kept.discarded == 0);
}

#[test]
fn nothing_is_recorded_behind_the_mark_that_turns_off() {
    explore(None, turn_off);
}

#[test]
fn turning_off_needs_the_fences() {
    explore(Some(Weak::Fence), turn_off);
}

/// A CPU reserves a record and commits it, while the host clears the buffers.
fn clear_beside_a_reservation(seen: &AtomicUsize) {
    let system = System::new();
    // Created here, while there is only one thread.
    let filling = Arc::new(AtomicU32::new(0));
    filling.store(0, Ordering::Relaxed);
    let (other, fills) = (system.clone(), filling.clone());
    let other = loom::thread::spawn(move || {
        other.become_cpu(1);
        let (cpus, _) = other.lasting();
        let data = cpus.reserve(&other.hot.gate, 4);
        if !data.is_null() {
            fills.store(1, Ordering::Relaxed);
            fills.store(0, Ordering::Relaxed);
            // SAFETY: it was reserved, and is used for the last time.
            unsafe { cpus.commit(&other.hot.gate, data, 1) };
        }
    });
    let cleared = system.handle().clear_with(|_| {
        assert_eq!(filling.load(Ordering::Relaxed), 0, "it is being filled");
    });
    other.join().expect("it ends");
    seen.fetch_or(if cleared.is_ok() { 1 } else { 2 }, Std::Relaxed);
    let reserved = |cpu_buffer: &CpuBuffer<Machine>| cpu_buffer.writer.stream().is_reserved();
    assert!(
        !system.cpus.cpu_buffers.iter().any(reserved),
        "nothing is held back"
    );
    assert!(system.handle().clear_with(|_| {}).is_ok());
}

#[test]
fn what_is_being_filled_is_not_cleared() {
    // Checks that clearing was refused in some order, and done in another.
    let seen: &'static AtomicUsize = Box::leak(Box::default());
    explore_with(2, None, || clear_beside_a_reservation(seen));
    assert_eq!(seen.load(Std::Relaxed), 3);
}

#[test]
fn clearing_beside_a_reservation_needs_its_orders() {
    for weak in [Weak::Fence, Weak::Release] {
        explore_with(2, Some(weak), || {
            clear_beside_a_reservation(&AtomicUsize::new(0));
        });
    }
}
