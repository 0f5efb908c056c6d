//! Conditions of trigger and stopper: act only when called from certain code, only from the n-th call on, only a
//! limited number of times.
//!
//! They are evaluated only at calls of the trigger while recording is off, and of the stopper while it is on.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::gate::code;
use crate::retained;
use crate::sync::ALONE;

/// The word that identifies the structure: `KYMO_CONDITIONS_MAGIC` in `kymo.h`.
pub const MAGIC: u32 = 0x4B79_436F;

/// Orders of the load and the store of [`Condition::hit`], which is set last.
const HIT: [Ordering; 2] = match ALONE {
    true => [Ordering::Relaxed; 2],
    false => [Ordering::Acquire, Ordering::Release],
};

/// Conditions of trigger and stopper: `kymo_conditions_t`, whose fields `kymo.h` documents. In `.data`, at the symbol
/// `kymo_conditions`, so that a debugger can write them.
#[repr(C)]
#[derive(Debug)]
pub struct Conditions {
    magic: u32,
    reserved: u32,
    /// The trigger's condition.
    pub trigger: Condition,
    /// The stopper's condition.
    pub stopper: Condition,
}

/// Condition of one of the two. All zero: no restriction.
#[repr(C)]
#[derive(Debug)]
pub struct Condition {
    /// First address of the code that must be the caller; 0: any caller.
    from: AtomicUsize,
    /// First address behind that code.
    end: AtomicUsize,
    /// Number of the first of these calls at which it acts.
    hit: AtomicU32,
    /// How often it acts at most; 0: unlimited.
    times: AtomicU32,
    /// Number of these calls so far.
    hits: AtomicU32,
    /// How often it has acted.
    acted: AtomicU32,
    /// The first address of another part of that code, and the first behind it; 0: there is none.
    cold: AtomicUsize,
    cold_end: AtomicUsize,
}

impl Conditions {
    /// No conditions.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            reserved: 0,
            trigger: Condition::new(),
            stopper: Condition::new(),
        }
    }

    /// Executes a host's request; `None` if an address is wider than the target's.
    pub(crate) fn request(&self, requested: kymo_wire::link::Conditions) -> Option<()> {
        use kymo_wire::link::Conditions as Requested;
        let (condition, requested) = match requested {
            Requested::Ask => return Some(()),
            Requested::Trigger(requested) => (&self.trigger, requested),
            Requested::Stopper(requested) => (&self.stopper, requested),
        };
        let word = |address: u64| usize::try_from(address).ok();
        let (from, end) = (word(requested.from)?, word(requested.end)?);
        let (cold, cold_end) = (word(requested.cold)?, word(requested.cold_end)?);
        condition.set(from, end, requested.hit, requested.times);
        condition.set_cold(cold, cold_end);
        Some(())
    }

    /// The part that survives a reboot.
    pub(crate) fn kept(&self) -> [retained::Condition; 2] {
        [&self.trigger, &self.stopper].map(|condition| {
            let ([from, end], [hit, times, ..]) = condition.get();
            let [cold, cold_end] = condition.cold();
            [from, end, hit as usize, times as usize, cold, cold_end]
        })
    }

    /// Restores the part that survived a reboot.
    pub(crate) fn take(&self, kept: &[retained::Condition; 2]) {
        for (condition, [from, end, hit, times, cold, cold_end]) in
            [&self.trigger, &self.stopper].into_iter().zip(*kept)
        {
            condition.set(from, end, hit as u32, times as u32);
            condition.set_cold(cold, cold_end);
        }
    }

    /// Takes back that stopper or trigger [acted](Condition::act), as it had no effect.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_back(&self, stopper: bool) {
        match stopper {
            true => self.stopper.take_back(),
            false => self.trigger.take_back(),
        }
    }

    /// Restarts the counts.
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

    /// Sets the condition: acts only if called from code between `from` and `end` (`from` 0: from anywhere), from the
    /// `hit`th of these calls on, at most `times` times (0: unlimited).
    pub fn set(&self, from: usize, end: usize, hit: u32, times: u32) {
        // The program may be calling it: it does not act by a part of this, nor by an earlier count.
        self.hit.store(u32::MAX, Ordering::Relaxed);
        self.from.store(code(from), Ordering::Relaxed);
        self.end.store(code(end), Ordering::Relaxed);
        self.times.store(times, Ordering::Relaxed);
        self.set_cold(0, 0);
        self.rearm();
        self.hit.store(hit, HIT[1]);
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

    /// Returns `from`, `end`, `hit`, `times`, the number of calls, and how often it has acted.
    pub fn get(&self) -> ([usize; 2], [u32; 4]) {
        let load = |number: &AtomicU32| number.load(Ordering::Relaxed);
        let hit = self.hit.load(HIT[0]);
        let code = [&self.from, &self.end].map(|place| place.load(Ordering::Relaxed));
        let [times, hits, acted] = [&self.times, &self.hits, &self.acted].map(load);
        (code, [hit, times, hits, acted])
    }

    fn rearm(&self) {
        self.hits.store(0, Ordering::Relaxed);
        self.acted.store(0, Ordering::Relaxed);
    }

    /// Whether there is any restriction.
    pub(crate) fn is_set(&self) -> bool {
        let ([from, _], [hit, times, ..]) = self.get();
        from != 0 || hit > 1 || times != 0
    }

    /// Counts a call that returns to `caller`, if it comes from the required code; returns whether it acts.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(&self, caller: usize) -> bool {
        let ([from, end], [hit, times, _, acted]) = self.get();
        // A call of a function that does not return may be the last instruction of its function, with the return
        // address behind it.
        let within = |from, end| from < code(caller) && code(caller) <= end;
        let [cold, cold_end] = self.cold();
        if from != 0 && !within(from, end) && !(cold != 0 && within(cold, cold_end)) {
            return false;
        }
        let hits = change(&self.hits, |hits| hits.saturating_add(1)).saturating_add(1);
        hits >= hit && is_within(times, acted)
    }

    /// Counts that it acts; returns false if it has acted as often as it may meanwhile.
    #[cold]
    #[inline(never)]
    pub(crate) fn act(&self) -> bool {
        let times = self.times.load(Ordering::Relaxed);
        let more = |acted: u32| acted.saturating_add(is_within(times, acted).into());
        is_within(times, change(&self.acted, more))
    }

    /// Takes back what [`act`](Self::act) counted.
    fn take_back(&self) {
        change(&self.acted, |acted| acted.saturating_sub(1));
    }
}

/// Whether what has acted so often may act again.
const fn is_within(times: u32, acted: u32) -> bool {
    times == 0 || acted < times
}

/// Changes a counter; returns what it was. On processors without compare-and-swap the caller has masked interrupts.
fn change(number: &AtomicU32, to: impl Fn(u32) -> u32) -> u32 {
    #[cfg(target_has_atomic = "32")]
    let was = number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |was| Some(to(was)))
        .unwrap_or_else(|was| was);
    #[cfg(not(target_has_atomic = "32"))]
    let was = {
        let was = number.load(Ordering::Relaxed);
        number.store(to(was), Ordering::Relaxed);
        was
    };
    was
}
