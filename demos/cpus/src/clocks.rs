//! Clocks that differ (feature `clocks`): each CPU reads the shared counter as if it were its own, with a different
//! start and rate.
//!
//! From time to time each CPU also records the time of day, like a machine that gets it from a network. From these
//! records a host can determine the clocks' offsets and rates, and sort the events. The numbers that the CPUs record
//! (`say`) show whether the order is right.

use core::sync::atomic::{AtomicU64, Ordering};

use kymo_demo_cpus::board;

use crate::CPUS;

/// Whether clocks differ.
pub const DIFFER: bool = cfg!(feature = "clocks");

/// The counter's rate on this machine in Hz.
pub const HZ: u64 = 62_500_000;

/// Initial offset of each CPU's clock from the one before it, in ticks.
const AHEAD: u64 = 50_000_000;

/// Its rate offset in millionths.
const FASTER: u64 = 500;

/// The time of day at counter value 0: 14 November 2023, 22:13:20 UTC.
const START_NS: u64 = 1_700_000_000_000_000_000;

/// Counter value for which a CPU's clock is computed; 0 for the current one. Each is on a cache line of its own.
#[repr(align(128))]
struct Moment(AtomicU64);

static MOMENTS: [Moment; CPUS as usize] = [const { Moment(AtomicU64::new(0)) }; CPUS as usize];

/// This CPU's clock, for the recorder.
pub extern "C" fn clock() -> u32 {
    let cpu = board::cpu();
    let asked = MOMENTS
        .get(usize::from(cpu))
        .map_or(0, |moment| moment.0.load(Ordering::Relaxed));
    let counter = if asked == 0 { board::counter() } else { asked };
    let cpu = u64::from(cpu);
    let faster = counter * (1_000_000 + FASTER * cpu) / 1_000_000;
    (faster + AHEAD * cpu) as u32
}

/// Records the time of day, which all CPUs share, at one reading of this CPU's clock. Interrupts are masked.
pub fn record_time() {
    if !DIFFER {
        return;
    }
    let Some(moment) = MOMENTS.get(usize::from(board::cpu())) else {
        return;
    };
    let now = board::counter();
    moment.0.store(now, Ordering::Relaxed);
    kymo::wall_clock(START_NS + now * (1_000_000_000 / HZ));
    moment.0.store(0, Ordering::Relaxed);
}
