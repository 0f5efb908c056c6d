//! Conditions of trigger and stopper: only when called from some code, only from the n-th time on, so many times at most.
//!
//! Nothing looks at them but a call of the trigger while recording is off, and of the stopper while it is on.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::gate::code;
use crate::retained;

/// The word that says that the structure is one: `kymo.h` has it as `KYMO_CONDITIONS_MAGIC`.
pub const MAGIC: u32 = 0x4B79_436F;

/// When trigger and stopper act: `kymo_conditions_t`, whose words and meanings `kymo.h` has. In `.data`, at the symbol
/// `kymo_conditions`, so that a debugger can write them.
#[repr(C)]
#[derive(Debug)]
pub struct Conditions {
    magic: u32,
    reserved: u32,
    /// Of the trigger.
    pub trigger: Condition,
    /// Of the stopper.
    pub stopper: Condition,
}

/// When one of the two acts. All zero: always.
#[repr(C)]
#[derive(Debug)]
pub struct Condition {
    /// The first address of the code that must have called it; 0: any.
    from: AtomicUsize,
    /// The first address behind that code.
    end: AtomicUsize,
    /// The first of these calls at which it acts.
    hit: AtomicU32,
    /// How often it acts at most; 0: without limit.
    times: AtomicU32,
    /// How many of these calls there were.
    hits: AtomicU32,
    /// How often it has acted.
    acted: AtomicU32,
    /// The first address of another part of that code, and the first behind it; 0: there is none.
    cold: AtomicUsize,
    cold_end: AtomicUsize,
}

impl Conditions {
    /// None.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            reserved: 0,
            trigger: Condition::new(),
            stopper: Condition::new(),
        }
    }

    /// Does what a host asks; `None` if an address is wider than the target's.
    pub(crate) fn ask(&self, asked: kymo_wire::link::Conditions) -> Option<()> {
        use kymo_wire::link::Conditions as Asked;
        let (condition, asked) = match asked {
            Asked::Ask => return Some(()),
            Asked::Trigger(asked) => (&self.trigger, asked),
            Asked::Stopper(asked) => (&self.stopper, asked),
        };
        let word = |address: u64| usize::try_from(address).ok();
        let (from, end) = (word(asked.from)?, word(asked.end)?);
        let (cold, cold_end) = (word(asked.cold)?, word(asked.cold_end)?);
        condition.set(from, end, asked.hit, asked.times);
        condition.set_cold(cold, cold_end);
        Some(())
    }

    /// What of them is kept over a reboot.
    pub(crate) fn kept(&self) -> [retained::Condition; 2] {
        [&self.trigger, &self.stopper].map(|condition| {
            let ([from, end], [hit, times, ..]) = condition.get();
            let [cold, cold_end] = condition.cold();
            [from, end, hit as usize, times as usize, cold, cold_end]
        })
    }

    /// Takes what was kept.
    pub(crate) fn take(&self, kept: &[retained::Condition; 2]) {
        for (condition, [from, end, hit, times, cold, cold_end]) in
            [&self.trigger, &self.stopper].into_iter().zip(*kept)
        {
            condition.set(from, end, hit as u32, times as u32);
            condition.set_cold(cold, cold_end);
        }
    }

    /// Counts calls from here on.
    pub fn rearm(&self) {
        self.trigger.rearm();
        self.stopper.rearm();
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::new()
    }
}

impl Condition {
    const fn new() -> Self {
        Self {
            from: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            hit: AtomicU32::new(0),
            times: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            acted: AtomicU32::new(0),
            cold: AtomicUsize::new(0),
            cold_end: AtomicUsize::new(0),
        }
    }

    /// Acts if it is called from code from `from` up to `end` (0: from anywhere), from the `hit`th of these calls on, so
    /// many `times` at most (0: without limit).
    pub fn set(&self, from: usize, end: usize, hit: u32, times: u32) {
        self.from.store(code(from), Ordering::Relaxed);
        self.end.store(code(end), Ordering::Relaxed);
        self.hit.store(hit, Ordering::Relaxed);
        self.times.store(times, Ordering::Relaxed);
        self.set_cold(0, 0);
        self.rearm();
    }

    /// Code from `cold` up to `end` (0: none) belongs to that which must have called it.
    pub fn set_cold(&self, cold: usize, end: usize) {
        self.cold.store(code(cold), Ordering::Relaxed);
        self.cold_end.store(code(end), Ordering::Relaxed);
    }

    /// Where that begins and ends; 0 if there is none.
    pub fn cold(&self) -> [usize; 2] {
        [&self.cold, &self.cold_end].map(|place| place.load(Ordering::Relaxed))
    }

    /// `from`, `end`, `hit`, `times`, and how many calls there were, and how often it has acted.
    pub fn get(&self) -> ([usize; 2], [u32; 4]) {
        let load = |number: &AtomicU32| number.load(Ordering::Relaxed);
        let code = [&self.from, &self.end].map(|place| place.load(Ordering::Relaxed));
        let counts = [&self.hit, &self.times, &self.hits, &self.acted];
        (code, counts.map(load))
    }

    fn rearm(&self) {
        self.hits.store(0, Ordering::Relaxed);
        self.acted.store(0, Ordering::Relaxed);
    }

    /// Whether there is any.
    pub(crate) fn is_set(&self) -> bool {
        let ([from, _], [hit, times, ..]) = self.get();
        from != 0 || hit > 1 || times != 0
    }

    /// It is called, to return to `caller`: whether it acts. Counts the call.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(&self, caller: usize) -> bool {
        let ([from, end], [hit, times, _, acted]) = self.get();
        // A call that does not return may be the last instruction of its function, with the return address behind it.
        let within = |from, end| from < code(caller) && code(caller) <= end;
        let [cold, cold_end] = self.cold();
        if from != 0 && !within(from, end) && !(cold != 0 && within(cold, cold_end)) {
            return false;
        }
        let hits = count(&self.hits);
        hits >= hit && (times == 0 || acted < times)
    }

    /// It has acted.
    pub(crate) fn act(&self) {
        count(&self.acted);
    }
}

/// Counts one more, at most to the end; returns how many there are now. Where there is no compare-and-swap the caller
/// has interrupts masked.
fn count(number: &AtomicU32) -> u32 {
    let more = |count: u32| count.saturating_add(1);
    #[cfg(target_has_atomic = "32")]
    let was = number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |was| Some(more(was)))
        .unwrap_or_else(|was| was);
    #[cfg(not(target_has_atomic = "32"))]
    let was = {
        let was = number.load(Ordering::Relaxed);
        number.store(more(was), Ordering::Relaxed);
        was
    };
    more(was)
}
