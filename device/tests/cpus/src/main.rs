//! Stress test on eight CPUs: checks every record while all continue to record (`stress.rs`).
//!
//! Two words in memory, which QEMU writes before the start (`-device loader,addr=0x47fff000,data=...,data-len=8`), select
//! the task: see [`Wish`]. The board is that of `demos/cpus`.
#![no_std]
#![no_main]

use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::{addr_of, read_volatile};
use core::sync::atomic::{AtomicU32, Ordering};

use kymo::{Buffer, Config, CpuBuffers, START_ON, STREAM};
// The functions of `kymo.h`, for `rounds.c`.
use kymo_abi as _;

use kymo_demo_cpus::{board, say_line};

mod decode;
mod stress;

/// Requested task.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wish {
    /// 1: CPUs that are far ahead of the check wait, so nothing may be lost; 2: no CPU waits.
    what: u32,
    /// Number of rounds of every CPU.
    rounds: u32,
}

/// Number of CPUs.
const CPUS: u32 = 8;
/// Size of each CPU's buffer in bytes.
const BUFFER: u32 = 1 << 20;
/// Frequency of each CPU's timer interrupt in Hz.
const TICK_HZ: u64 = 20_000;

static EVENTS: CpuBuffers<{ (CPUS * BUFFER) as usize }> = CpuBuffers::new();
static NAMES: Buffer<1024> = Buffer::new();

// SAFETY: `cpus.ld` defines them, and `rounds.c` the function.
unsafe extern "C" {
    static text_base: c_void;
    static wish: Wish;
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
    text_base: &raw const text_base,
    clock_hz: 62_500_000,
    clock_bits: 32,
    cpu_count: CPUS,
    ..Config::EMPTY
});

/// Number of running CPUs.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Entry point of every CPU.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(cpu: u16) -> ! {
    // SAFETY: QEMU wrote it, or it is zero.
    let wished = unsafe { read_volatile(addr_of!(wish)) };
    let started = kymo::cpu_start(cpu);
    RUNNING.fetch_add(1, Ordering::Relaxed);
    if cpu == 0 {
        board::start_uart();
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
    board::set_timer(board::counter_hz() / TICK_HZ);
    stress::run(cpu, wished.rounds, wished.what == 1);
    if cpu == 0 {
        board::off();
    }
    board::wait_forever()
}

/// Interrupt handler of this CPU.
#[unsafe(no_mangle)]
extern "C" fn cpu_interrupt() {
    let taken = board::take_interrupt();
    kymo::isr_enter(board::TIMER_IRQ);
    kymo::tick();
    // SAFETY: it is C without demands.
    unsafe { beat(taken) };
    board::set_timer(board::counter_hz() / TICK_HZ);
    kymo::isr_exit(board::TIMER_IRQ);
    stress::count_interrupt(board::cpu());
    board::end_interrupt(taken);
}
