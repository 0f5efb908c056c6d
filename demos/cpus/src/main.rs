//! Demonstration on eight CPUs that record in parallel, each into a stream of its own, which Kymo's merge must put into
//! the actual order of events.
//!
//! Every CPU runs C functions with hooks, calls marked in Rust, and a timer interrupt. From time to time it takes the
//! next of a global sequence of numbers and records it as a marker, under a lock, so that the order of the markers of
//! all CPUs is known: the numbers must increase in the merged trace.
//!
//! With the feature `clocks` each CPU has a clock of its own, which the host must correct (`clocks.rs`); with `table`
//! each keeps a profile table, while a thread goes from CPU to CPU (`table.rs`). A word in
//! memory, which QEMU writes before the start (`-device loader,addr=0x47fff000,data=...,data-len=8`), selects the task:
//! see [`Wish`]. (The stress test on the same board is `device/tests/cpus`.)
#![no_std]
#![no_main]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::{addr_of, read_volatile};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo::{Buffer, Config, CpuBuffers, START_ON, STREAM};
use kymo_demo_cpus::{board, say_line};

mod clocks;
mod table;

/// Requested task. All zero by default.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wish {
    /// 0: the demonstration, which ends, to be read afterwards; 3: slowly and endlessly, to be recorded live.
    what: u32,
}

/// Number of CPUs.
const CPUS: u32 = 8;
/// Size of each CPU's buffer in bytes.
const BUFFER: u32 = 1 << 20;
/// Number of rounds of each CPU.
const ROUNDS: u32 = 200;
/// Frequency of each CPU's timer interrupt in Hz.
const TICK_HZ: u64 = 500;
/// The same live: as much data as a UART can carry.
const LIVE_HZ: u64 = 20;
/// Rounds of a CPU per second in that case.
const PAUSES: u64 = 4;

static EVENTS: CpuBuffers<{ (CPUS * BUFFER) as usize }> = CpuBuffers::new();
static NAMES: Buffer<1024> = Buffer::new();

// SAFETY: `cpus.ld` defines them, and `work.c` these functions.
unsafe extern "C" {
    static text_base: c_void;
    static build_id_note: c_void;
    static wish: Wish;
    fn work(cpu: u32, round: u32) -> u32;
    fn beat(n: u32) -> u32;
}

// SAFETY: all sizes are those of the memory that is given, which nothing else uses.
kymo::config!(unsafe Config {
    version: kymo::CONFIG_VERSION,
    flags: START_ON | STREAM,
    buffer: EVENTS.get(),
    buffer_size: BUFFER,
    packet_size: 4096,
    metadata: NAMES.get(),
    metadata_size: 1024,
    slots: table::slots(),
    slot_count: table::SLOTS,
    frames: table::frames(),
    shadow_stacks: table::STACKS,
    shadow_depth: table::DEPTH,
    text_base: &raw const text_base,
    clock: if clocks::DIFFER {
        Some(clocks::clock)
    } else {
        None
    },
    clock_hz: clocks::HZ,
    clock_bits: 32,
    send: Some(board::send),
    reboot: Some(board::reboot),
    build_id_note: &raw const build_id_note,
    cpu_count: CPUS,
    ..Config::EMPTY
});

kymo::cpu_items!(8, 4);

/// The sequence of numbers.
struct Numbers {
    taken: AtomicBool,
    next: UnsafeCell<u32>,
}

// SAFETY: `next` is touched by who has `taken` the lock.
unsafe impl Sync for Numbers {}

static NUMBERS: Numbers = Numbers {
    taken: AtomicBool::new(false),
    next: UnsafeCell::new(0),
};

/// Number of running CPUs, and of those that have finished.
static RUNNING: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

/// Takes the next number and records it, before another CPU can take one.
#[unsafe(no_mangle)]
extern "C" fn say() {
    board::disable_interrupts();
    while NUMBERS.taken.swap(true, Ordering::Acquire) {
        spin_loop();
    }
    // SAFETY: this CPU has the lock.
    let number = unsafe { &mut *NUMBERS.next.get() };
    *number += 1;
    kymo::marker(*number);
    kymo::items::produce(kymo::items::USER, *number as usize);
    NUMBERS.taken.store(false, Ordering::Release);
    board::enable_timer();
}

/// The requested task.
fn asked() -> Wish {
    // SAFETY: QEMU wrote it, or it is zero.
    unsafe { read_volatile(addr_of!(wish)) }
}

/// Sets the timer's next interrupt.
fn set_timer(wished: Wish) {
    let hz = match wished.what {
        3 => LIVE_HZ,
        _ => TICK_HZ,
    };
    board::set_timer(board::counter_hz() / hz);
}

/// A round of work, marked in Rust.
fn round(cpu: u16, number: u32) {
    let _call = kymo::call(round as *const () as usize);
    // SAFETY: it is C without demands.
    unsafe { work(cpu.into(), number) };
}

/// Entry point of every CPU.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(cpu: u16) -> ! {
    let wished = asked();
    let started = kymo::cpu_start(cpu);
    RUNNING.fetch_add(1, Ordering::Relaxed);
    if cpu == 0 {
        board::start_uart();
        kymo::isr_name(board::TIMER_IRQ, "timer");
        if !started {
            say_line!("the recorder is not set up");
        }
        for other in 1..CPUS as u16 {
            if !board::start_cpu(other) {
                say_line!("CPU {other} does not start");
            }
        }
    }
    // All CPUs start together.
    while RUNNING.load(Ordering::Relaxed) != CPUS {
        spin_loop();
    }
    board::enable_timer();
    set_timer(wished);
    match wished.what {
        3 => live(cpu),
        _ => demonstrate(cpu),
    }
}

/// Works, and answers at the UART when all CPUs have finished.
fn demonstrate(cpu: u16) -> ! {
    for number in 0..ROUNDS {
        if number % 50 == 0 {
            board::disable_interrupts();
            clocks::record_time();
            board::enable_timer();
        }
        round(cpu, number);
    }
    table::travel(cpu);
    board::disable_interrupts();
    clocks::record_time();
    DONE.fetch_add(1, Ordering::Release);
    if cpu != 0 {
        board::wait_forever();
    }
    while DONE.load(Ordering::Acquire) != CPUS {
        spin_loop();
    }
    kymo::off();
    say_line!("{CPUS} CPUs are done");
    loop {
        answer();
    }
}

/// Works at intervals, and answers at the UART meanwhile.
fn live(cpu: u16) -> ! {
    if cpu == 0 {
        say_line!("{CPUS} CPUs are at work");
    }
    let pause = board::counter_hz() / PAUSES;
    let mut next = board::counter();
    let mut number = 0;
    loop {
        round(cpu, number);
        number += 1;
        next += pause;
        while board::counter() < next {
            // The UART has no interrupt here: its CPU polls it.
            if cpu == 0 {
                answer();
            } else {
                board::wait();
            }
        }
    }
}

/// Processes commands of the host.
fn answer() {
    while let Some(byte) = board::receive() {
        kymo::link_receive(byte);
    }
    kymo::link_poll();
}

/// Interrupt handler of this CPU.
#[unsafe(no_mangle)]
extern "C" fn cpu_interrupt() {
    let taken = board::take_interrupt();
    kymo::isr_enter(board::TIMER_IRQ);
    kymo::tick();
    // SAFETY: it is C without demands.
    unsafe { beat(taken) };
    set_timer(asked());
    kymo::isr_exit(board::TIMER_IRQ);
    board::end_interrupt(taken);
}
