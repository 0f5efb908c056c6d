//! Clocks that differ (feature `clocks`): each CPU reads the counter that all share as if it were its
//! own, which began at another moment and runs at another speed.
//!
//! Now and then each CPU also records the time of day, as one does that has it from a network: by
//! that a host can tell how the clocks go, and put the events into their order. The numbers that the
//! CPUs record (`say`) tell whether it did.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{CPUS, board};

/// Whether clocks differ.
pub const DIFFER: bool = cfg!(feature = "clocks");

/// The counter's rate on this machine.
pub const HZ: u64 = 62_500_000;

/// How far the clock of each CPU is ahead of the one before it, in ticks, at the beginning.
const AHEAD: u64 = 50_000_000;

/// By how many millionths it is faster.
const FASTER: u64 = 500;

/// The time of day when the counter was 0: 14 November 2023, 22:13:20 UTC.
const START_NS: u64 = 1_700_000_000_000_000_000;

/// The moment for which a CPU's clock is asked, if that is not now; 0 if it is. Each on a cache line
/// of its own.
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

/// Records the time of day, which is the same for all CPUs, at one moment of this CPU's clock.
/// Interrupts are masked.
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
