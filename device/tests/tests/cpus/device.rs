//! Simulates several CPUs that run one program: each is a thread with its own register and interrupts.

use std::cell::{Cell, RefCell};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kymo_device_tests::layout::Large;
use kymo_device_tests::{Host, Kind, Layouts, Packet, config, hot, leak, packets};
use kymo_recorder::config::Config;
use kymo_recorder::cpus::{CpuItems, Cpus, CpusPort};
use kymo_recorder::gate::Gate;
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::event::Layout;

/// Number of CPUs.
pub const CPUS: u16 = 4;

thread_local! {
    /// The register of this thread's CPU.
    pub static PLACE: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    /// Whether its interrupts are masked.
    pub static MASKED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread's CPU stops at the next reading of its clock.
    pub static STOPS: Cell<bool> = const { Cell::new(false) };
    /// The last time that this thread's CPU read.
    pub static TIME: Cell<u64> = const { Cell::new(0) };
    /// Bytes sent by the link from this thread.
    pub static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Set when the stopping CPU has stopped; false resumes it.
pub static STOPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Called at the next transmission of this thread's CPU.
    pub static WHEN_SENDING: Cell<Option<fn()>> = const { Cell::new(None) };
}

unsafe extern "C" fn send(bytes: *const u8, count: usize) {
    if let Some(work) = WHEN_SENDING.take() {
        work();
    }
    // SAFETY: the recorder gives a slice.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    SENT.with_borrow_mut(|sent| sent.extend_from_slice(bytes));
}

/// The processors: the counter advances with every reading, so that all times differ.
#[derive(Debug, Default)]
pub struct Machine {
    pub time: AtomicU64,
}

impl Target for Machine {
    const LAYOUT: Layout = Large::LAYOUT;
    const FINISHED_ELSEWHERE: bool = true;
    const MIGRATES: bool = true;
}

impl CpusPort for Machine {
    fn mask(&self) -> usize {
        MASKED.replace(true).into()
    }

    fn unmask(&self, was: usize) {
        MASKED.set(was != 0);
    }

    fn cpu_pointer(&self) -> *const () {
        PLACE.get()
    }

    fn set_cpu_pointer(&self, cpu_pointer: *const ()) {
        PLACE.set(cpu_pointer);
    }

    fn counter(&self) -> u64 {
        assert!(MASKED.get(), "the clock is read with interrupts masked");
        TIME.set(self.time.fetch_add(1, Ordering::SeqCst));
        TIME.get()
    }

    fn counter_in_order(&self) -> u64 {
        if STOPS.get() {
            // This CPU stops here, inside its hook, until it is let go.
            STOPS.set(false);
            STOPPED.store(true, Ordering::SeqCst);
            while STOPPED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        TIME.set(self.time.fetch_add(1, Ordering::SeqCst));
        TIME.get()
    }

    fn counter_hz(&self) -> u64 {
        1_000_000_000
    }

    fn pause(&self) {
        std::thread::yield_now();
    }
}

#[derive(Clone, Copy)]
pub struct Device {
    pub gate: &'static Gate,
    pub cpus: &'static Cpus<Machine, 8>,
    pub config: &'static Config,
    pub items: Option<&'static CpuItems>,
}

#[repr(align(128))]
#[derive(Clone, Copy)]
pub struct Line(#[allow(dead_code, reason = "only its address is used")] pub [u8; 128]);

impl Device {
    /// Creates four CPUs with this many packets each.
    pub fn new(flags: u32, packets: u32) -> Self {
        Self::with(Config {
            flags,
            cpu_count: CPUS.into(),
            ..config(packets, 1024)
        })
    }

    pub fn with(config: Config) -> Self {
        let bytes = config.buffer_size as usize * usize::from(CPUS);
        let lines = vec![Line([0; 128]); bytes / 128].leak();
        PLACE.set(std::ptr::null());
        Self {
            gate: &hot().gate,
            cpus: leak(Cpus::new(Machine::default())),
            config: leak(Config {
                buffer: lines.as_mut_ptr().cast(),
                clock_hz: 0,
                send: Some(send),
                ..config
            }),
            items: None,
        }
    }

    pub fn start(self, cpu: u16) -> bool {
        self.cpus.start(self.gate, self.config, self.items, cpu)
    }

    pub fn enter(self, function: usize) {
        self.cpus.call(self.gate, Edge::Enter, function, 0);
    }

    pub fn enter_from(self, function: usize, caller: usize) {
        self.cpus.call(self.gate, Edge::Enter, function, caller);
    }

    pub fn exit(self, function: usize) {
        self.cpus.call(self.gate, Edge::Exit, function, 0);
    }

    pub fn marker(self, value: u32) {
        self.cpus.event(self.gate, Event::Marker(value));
    }

    /// Runs `work` on every CPU.
    pub fn run(self, work: impl Fn(u16) + Sync) {
        let barrier = Barrier::new(CPUS.into());
        std::thread::scope(|scope| {
            let start = |cpu| {
                let (work, barrier) = (&work, &barrier);
                scope.spawn(move || {
                    assert!(self.start(cpu));
                    barrier.wait();
                    work(cpu);
                })
            };
            let cpus: Vec<_> = (0..CPUS).map(start).collect();
            // A scope waits for them too, but in a way that sanitizers don't see.
            for cpu in cpus {
                cpu.join().expect("the CPU does its work");
            }
        });
    }

    /// Sends bytes over the link and returns what comes back.
    pub fn talk(self, bytes: &[u8]) -> Host {
        for &byte in bytes {
            self.cpus.receive(self.gate, byte);
        }
        self.cpus.poll(self.gate);
        let mut host = Host::default();
        host.hear(&SENT.take());
        host
    }

    pub fn status(self) -> String {
        self.talk(b"status\r").text
    }

    pub fn dump(self) -> Vec<u8> {
        let dump = self.talk(&Host::command(1, "dump_trace")).dump();
        self.talk(&Host::command(2, "done"));
        dump
    }

    pub fn trace(self) -> Vec<Packet> {
        packets(&self.dump(), Machine::LAYOUT, 0x1000)
    }
}

/// The value of a figure in a status.
pub fn figure(status: &str, name: &str) -> u32 {
    let word = status
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// The records of a CPU, in order.
pub fn of(trace: &[Packet], cpu: u16) -> Vec<(u64, Kind)> {
    let packets = trace.iter().filter(|packet| packet.cpu == cpu);
    let records = packets.flat_map(|packet| &packet.records);
    records
        .map(|record| (record.time, record.kind.clone()))
        .collect()
}
