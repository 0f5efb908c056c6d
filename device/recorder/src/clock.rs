//! Clock that extends a counter of at most 32 bits to 64.
//!
//! Every reading adds the distance from the previous reading, which is correct as long as the counter does not wrap
//! around twice in between. A periodic tick ensures that. Where it failed, because interrupts were masked for long or
//! the processor slept, the number of missed wraparounds is unknown, and the recorder marks this in the trace
//! ([`Event::ClockGap`](crate::Event::ClockGap)): a time that is short by a wraparound, without a mark, would falsify
//! every duration around it.
//!
//! Where the counter is the timer of the tick itself (SysTick as both), it has the same value at each tick, and
//! readings can't detect a wraparound between two of them. But the tick can: each one stands for a wraparound.

use core::cell::Cell;

use crate::bits64::Cell64;
use crate::sync::{AtomicU32, Ordering, add};

/// Number of tick periods between two readings above which the later one counts as late.
pub const LATE_TICKS: u32 = 8;

/// Properties of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Ticks per second.
    pub hz: u64,
    /// Number of ticks after which it wraps around to 0; 0 stands for 2^32.
    pub wrap: u32,
    /// How often [`Clock::tick`] is called per second; 0 for never.
    pub tick_hz: u32,
}

impl Rate {
    /// The rate of a counter that wraps around after `wrap` ticks; 0 stands for 2^32.
    pub const fn of_counter(hz: u64, wrap: u32, tick_hz: u32) -> Self {
        Self { hz, wrap, tick_hz }
    }

    /// Number of bits that the counter has at least.
    pub const fn bits(&self) -> u32 {
        match self.wrap {
            0 => 32,
            wrap => 31 - wrap.leading_zeros(),
        }
    }

    /// Whether ticks detect every wraparound, even if they come a little late: there are at least four ticks in each.
    pub fn sure(&self) -> bool {
        self.tick_hz != 0 && self.period() <= self.quarter()
    }

    /// A quarter of the wraparound interval, rounded up.
    fn quarter(&self) -> u32 {
        (self.wrap.wrapping_sub(1) >> 2) + 1
    }

    /// Period of the tick in ticks of the counter; `u32::MAX` without a tick. (A 64-bit division takes a kilobyte of
    /// code; clocks of more than 4 GHz get `u32::MAX`, so they are never sure.)
    fn period(&self) -> u32 {
        match u32::try_from(self.hz) {
            Ok(hz) => hz.checked_div(self.tick_hz).unwrap_or(u32::MAX),
            Err(_) => u32::MAX,
        }
    }

    /// Whether counter and tick are one timer: the periods are equal, except for rounding.
    fn wraps_with_tick(&self) -> bool {
        self.tick_hz != 0 && self.wrap != 0 && self.period().abs_diff(self.wrap) <= 1
    }

    /// Distance between readings above which a wraparound may have been missed.
    fn late(&self) -> u32 {
        let (period, quarter) = (self.period(), self.quarter());
        if period > quarter {
            // Distances can't show it.
            return u32::MAX;
        }
        // Eight times a quarter of the wraparound interval could exceed 32 bits.
        period.min(quarter * 2 / LATE_TICKS) * LATE_TICKS
    }
}

/// Flag: there has been no tick yet.
const NOT_YET: u32 = 1;

/// Value instead of a distance: each tick stands for a wraparound of the counter ...
const EACH_WRAP: u32 = u32::MAX - 1;

/// ... and a reading since the last tick has already seen that one. (Distances are multiples of [`LATE_TICKS`].)
const HAS_WRAPPED: u32 = u32::MAX - 3;

/// The extended clock. For one context at a time. All zero until it is set up.
#[derive(Debug)]
pub struct Clock {
    total: Cell64,
    last: Cell<u32>,
    /// What to add when the counter has wrapped around, modulo 2^32.
    wrap: Cell<u32>,
    /// Distance above which a reading is late, a multiple of [`LATE_TICKS`]; with [`NOT_YET`], no reading is. Or
    /// [`EACH_WRAP`] or [`HAS_WRAPPED`], which are no distances.
    late: Cell<u32>,
    /// Uncertain time that the trace does not have yet; saturates.
    gap: Cell<u32>,
    /// Number of late readings.
    gaps: AtomicU32,
}

impl Clock {
    /// A clock that is not set up: its time is constant.
    pub const fn new() -> Self {
        Self {
            total: Cell64::new(0),
            last: Cell::new(0),
            wrap: Cell::new(0),
            late: Cell::new(0),
            gap: Cell::new(0),
            gaps: AtomicU32::new(0),
        }
    }

    /// Starts the clock; call it once. The first time [read](Self::advance) equals the counter, so with a 32-bit
    /// counter the low bits of the time always do.
    pub fn set_up(&self, rate: &Rate) {
        self.wrap.set(rate.wrap);
        self.late.set(match rate.wraps_with_tick() {
            true => EACH_WRAP,
            false => rate.late() | NOT_YET,
        });
    }

    /// [`Rate::wrap`] of the counter.
    pub fn wrap(&self) -> u32 {
        self.wrap.get()
    }

    /// The time for the counter value `raw`.
    #[inline(always)]
    pub fn advance(&self, raw: u32) -> u64 {
        let last = self.last.get();
        let mut distance = raw.wrapping_sub(last);
        if raw < last {
            distance = distance.wrapping_add(self.wrap.get());
            if self.late.get() == EACH_WRAP {
                self.late.set(HAS_WRAPPED);
            }
        }
        let total = self.total.get().wrapping_add(distance.into());
        self.total.set(total);
        self.last.set(raw);
        let late = self.late.get();
        if distance > late && late & NOT_YET == 0 {
            self.gap.set(self.gap.get().saturating_add(distance));
            add(&self.gaps, 1);
        }
        total
    }

    /// Advances the clock to `time`, if that is later: other code has read the counter, often enough to see every
    /// wraparound of its 32 bits.
    #[inline(always)]
    pub fn catch_up(&self, time: u64) {
        if time > self.total.get() {
            self.total.set(time);
            self.last.set(time as u32);
        }
    }

    /// Handles the periodic tick, after the counter has been [read](Self::advance): readings can be late from the first
    /// tick on. Returns the time.
    pub fn tick(&self) -> u64 {
        let late = self.late.get();
        let mut total = self.total.get();
        match late {
            u32::MAX => {}
            HAS_WRAPPED => self.late.set(EACH_WRAP),
            EACH_WRAP => {
                // Readings saw no wraparound since the previous tick, so there was one between them.
                total = total.wrapping_add(self.wrap.get().into());
                self.total.set(total);
            }
            late => self.late.set(late & !NOT_YET),
        }
        total
    }

    /// Marks the time as uncertain: the counter does not count up, or not as it should.
    pub fn doubt(&self) {
        self.gap.set(self.gap.get().max(1));
        add(&self.gaps, 1);
    }

    /// Whether there is uncertain time that the trace does not have yet.
    #[inline(always)]
    pub fn doubtful(&self) -> bool {
        self.gap.get() != 0
    }

    /// Lower bound of the uncertain time since the last [`take_gap`](Self::take_gap).
    pub fn gap(&self) -> u64 {
        self.gap.get().into()
    }

    /// Returns and resets the lower bound of the uncertain time.
    pub fn take_gap(&self) -> u64 {
        self.gap.replace(0).into()
    }

    /// Number of late readings, whether marked in the trace or not. Any context may call it at any time.
    pub fn gaps(&self) -> u32 {
        self.gaps.load(Ordering::Relaxed)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_whatever_their_size() {
        for wrap in [1u64 << 32, 1 << 24, 1 << 16, 25_000] {
            let clock = Clock::new();
            let rate = Rate::of_counter(1_000_000, wrap as u32, 0);
            let mut time = 5u64;
            clock.set_up(&rate);
            assert_eq!(clock.advance((time % wrap) as u32), time);
            for step in [0, 1, wrap / 2, wrap - 1, 7, wrap - 1, wrap - 1, 0] {
                time += step;
                assert_eq!(clock.advance((time % wrap) as u32), time, "{wrap}");
            }
            assert!(!clock.doubtful(), "nobody ticks, so nothing is late");
        }
    }

    #[test]
    fn what_others_read_is_no_lateness() {
        let rate = Rate::of_counter(1_000_000, 0, 1000);
        let clock = Clock::new();
        clock.set_up(&rate);
        clock.advance(0xFFFF_F000);
        clock.tick();
        clock.catch_up(0x1_0000_7000);
        assert_eq!(clock.advance(0x7010), 0x1_0000_7010);
        clock.catch_up(0x1_0000_0000);
        assert_eq!(clock.advance(0x7020), 0x1_0000_7020, "it was earlier");
        assert!(!clock.doubtful());
    }

    #[test]
    fn a_tick_of_which_nothing_is_known_is_never_late() {
        let clock = Clock::new();
        clock.set_up(&Rate::of_counter(1_000_000, 0, 0));
        clock.advance(0);
        clock.tick();
        clock.advance(1);
        clock.advance(0xF000_0000);
        assert!(!clock.doubtful());
    }

    #[test]
    fn a_late_tick_is_told_once() {
        let rate = Rate::of_counter(1_000_000, 1 << 24, 1000);
        assert!(rate.sure());
        let clock = Clock::new();
        clock.set_up(&rate);
        clock.advance(900_000);
        assert!(!clock.doubtful(), "before the first tick nothing is late");
        clock.advance(900_001);
        clock.tick();
        clock.advance(908_001);
        assert!(!clock.doubtful(), "eight periods are not late");
        clock.advance(916_002);
        assert!(clock.doubtful());
        assert_eq!(clock.take_gap(), 8_001);
        assert!(!clock.doubtful());
    }

    #[test]
    fn a_counter_that_turns_with_the_tick_is_not_sure() {
        let rate = Rate::of_counter(25_000_000, 25_000, 1000);
        assert!(!rate.sure());
    }

    /// SysTick as clock and tick: each tick is a wraparound, at whatever value of the counter, and however late the
    /// tick comes.
    #[test]
    fn each_tick_is_a_turn_where_both_are_one_timer() {
        // The second one has a rounded period.
        for (hz, wrap, tick_hz) in [(25_000_000, 25_000, 1000), (12_000_000, 11_718, 1024)] {
            let clock = Clock::new();
            clock.set_up(&Rate::of_counter(hz, wrap, tick_hz));
            let at = |time: u64| clock.advance((time % u64::from(wrap)) as u32);
            assert_eq!(at(700), 700);
            let mut reload = 0;
            // Delay of the tick, and time of another reading before the next one.
            for (late, other) in [
                (30, None),
                (30, None),
                (12, Some(300)),
                (12, None),
                (9_000, None),
                (40, Some(8_000)),
                (11_000, Some(11_500)),
                (11_000, None),
                (0, None),
                (0, Some(11_717)),
            ] {
                reload += u64::from(wrap);
                at(reload + late);
                assert_eq!(clock.tick(), reload + late, "{wrap}");
                if let Some(other) = other {
                    assert_eq!(at(reload + other), reload + other, "{wrap}");
                }
            }
        }
        // A timer of nearly the same period is not the counter's.
        let clock = Clock::new();
        clock.set_up(&Rate::of_counter(25_000_000, 25_000, 1002));
        clock.advance(5);
        clock.advance(6);
        assert_eq!(clock.tick(), 6);
    }
}
