//! Many measurements of one thing as one figure.

#[cfg(target_has_atomic = "ptr")]
use core::cell::Cell;

use kymo_wire::cost::{Cost, Recorded};

/// What a hook took in several calls.
pub(crate) trait Tally: Copy {
    /// How often each hook is called at most.
    const ROUNDS: u32;
    /// The part of a hook's cost, one in so many, that may be hidden behind what the program does, or
    /// hide as much of that; 0 where a processor does one thing after the other.
    const HIDDEN: u32;
    /// No call yet.
    const NOTHING: Self;

    /// A call took so many ticks before the moment that it recorded, and after that.
    fn add(&mut self, before: u32, after: u32);
    /// Whether more calls would tell nothing more.
    #[inline(always)]
    fn is_settled(&self) -> bool {
        false
    }
    /// What counts of the calls.
    fn kept(&self) -> Kept;

    /// In parts of a tick. Reading the clock takes `reading` of them, and a call of the hook may take
    /// `call` more or less than those that were measured.
    #[inline(never)]
    fn cost(&self, recorded: Recorded, from_bits: u8, reading: u32, call: u32) -> Cost {
        let kept = self.kept();
        let part = |sum| kept.average(sum).saturating_sub(reading / 2);
        let [before, after] = kept.sums;
        let (before, after) = (part(before), part(after));
        let hidden = match Self::HIDDEN {
            0 => 0,
            parts => before.wrapping_add(after) / parts,
        };
        // For either part half of it.
        let doubt = kept.doubt().wrapping_add(call).wrapping_add(hidden) / 2;
        Cost {
            recorded,
            from_bits,
            uncertainty: u16::try_from(doubt).unwrap_or(u16::MAX),
            before,
            after,
        }
    }
}

/// What calls took together.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// Before the moments that were recorded, and after them.
    pub sums: [u32; 2],
    /// By how many ticks a call differed from another at most.
    pub spread: u32,
    /// How many calls there were, as a power of two.
    pub calls: u32,
}

impl Kept {
    /// What comes of one of the sums for a call, in parts of a tick.
    #[inline(always)]
    pub fn average(&self, sum: u32) -> u32 {
        sum.wrapping_mul(Cost::UNIT >> self.calls)
    }

    /// How far the cost of a whole call may be from the truth: two standard deviations. That of one
    /// call is at most half the spread, which is a tick where nothing differs but how the call lies
    /// to the clock's ticks (also if that has not shown). And a third more than what comes of this
    /// average alone, because what [reading](Tally::cost) the clock takes is uncertain too: that is made of
    /// three averages of [four times](super::probe::REPEATS) as many calls, and √(1 + 3/4) is 4/3.
    #[inline(always)]
    fn doubt(&self) -> u32 {
        self.spread.max(1).wrapping_mul(Cost::UNIT + Cost::UNIT / 3) >> (self.calls / 2)
    }
}

/// The average of all: for processors that do the same in the same time. It needs no memory.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    sums: [u32; 2],
    least: u32,
    most: u32,
    calls: u32,
}

impl Sum {
    /// So many calls that all took the same are enough, as a power of two: then a tick is what the
    /// processor works in.
    const FEW: u32 = 4;
    /// Else so many.
    const MANY: u32 = 6;
}

impl Tally for Sum {
    const ROUNDS: u32 = 1 << Self::MANY;
    const HIDDEN: u32 = 0;
    const NOTHING: Self = Self {
        sums: [0; 2],
        least: u32::MAX,
        most: 0,
        calls: 0,
    };

    fn add(&mut self, before: u32, after: u32) {
        let [first, second] = self.sums;
        self.sums = [first.wrapping_add(before), second.wrapping_add(after)];
        let whole = before.wrapping_add(after);
        self.least = self.least.min(whole);
        self.most = self.most.max(whole);
        self.calls += 1;
    }

    #[inline(always)]
    fn is_settled(&self) -> bool {
        self.calls == 1 << Self::FEW && self.least == self.most
    }

    #[inline(always)]
    fn kept(&self) -> Kept {
        Kept {
            sums: self.sums,
            spread: self.most.wrapping_sub(self.least),
            calls: if self.calls == Self::ROUNDS {
                Self::MANY
            } else {
                Self::FEW
            },
        }
    }
}

/// The average of the cheaper half: where an interrupt, another processor or the owner of the machine
/// may have had a part in the rest.
#[cfg(target_has_atomic = "ptr")]
#[derive(Clone, Copy)]
pub(crate) struct Undisturbed {
    calls: [[u32; 2]; Self::ROUNDS as usize],
    count: usize,
}

#[cfg(target_has_atomic = "ptr")]
impl Undisturbed {
    /// So many calls count, as a power of two: half of them.
    const KEPT: u32 = 5;
}

#[cfg(target_has_atomic = "ptr")]
impl Tally for Undisturbed {
    const ROUNDS: u32 = 2 << Self::KEPT;
    /// Processors that do several things at once hide a part of a hook behind the program, or a part of
    /// the program behind the hook.
    const HIDDEN: u32 = 4;
    const NOTHING: Self = Self {
        calls: [[0; 2]; Self::ROUNDS as usize],
        count: 0,
    };

    fn add(&mut self, before: u32, after: u32) {
        if let Some(call) = self.calls.get_mut(self.count) {
            *call = [before, after];
            self.count += 1;
        }
    }

    #[inline(never)]
    fn kept(&self) -> Kept {
        let mut calls = self.calls;
        let whole = |[before, after]: &[u32; 2]| before.saturating_add(*after);
        sort(&mut calls, whole);
        let kept = calls.get(..1 << Self::KEPT).unwrap_or(&[]);
        let sums = kept.iter().fold([0u32; 2], |[before, after], call| {
            [
                before.saturating_add(call[0]),
                after.saturating_add(call[1]),
            ]
        });
        let spread = match (kept.first(), kept.last()) {
            (Some(least), Some(most)) => whole(most).saturating_sub(whole(least)),
            _ => 0,
        };
        Kept {
            sums,
            spread,
            calls: Self::KEPT,
        }
    }
}

/// Sorts a few things. (What `core` has for many takes kilobytes of code.)
#[cfg(target_has_atomic = "ptr")]
fn sort<T: Copy>(things: &mut [T], key: impl Fn(&T) -> u32) {
    let things = Cell::from_mut(things).as_slice_of_cells();
    for end in 2..=things.len() {
        // All but the last are sorted: it goes back to its place among them.
        for pair in things.get(..end).unwrap_or(&[]).windows(2).rev() {
            let [one, other] = pair else { continue };
            let (lower, upper) = (one.get(), other.get());
            if key(&lower) <= key(&upper) {
                break;
            }
            one.set(upper);
            other.set(lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reading the clock takes, as the same kind of tally finds.
    fn reading(tally: &impl Tally) -> u32 {
        let kept = tally.kept();
        kept.average(kept.sums[1])
    }

    #[test]
    fn whatever_the_order_was_it_is_sorted_then() {
        let mut random = 1u32;
        for length in [0, 1, 2, 3, 64] {
            for _ in 0..20 {
                let next = |_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    random >> 26
                };
                let mut things: Vec<u32> = (0..length).map(next).collect();
                let mut expected = things.clone();
                expected.sort_unstable();
                sort(&mut things, |thing| *thing);
                assert_eq!(things, expected);
            }
        }
    }

    #[test]
    fn what_was_disturbed_does_not_count() {
        let mut clock = Undisturbed::NOTHING;
        let mut hook = Undisturbed::NOTHING;
        for round in 0..Undisturbed::ROUNDS {
            let disturbed = if round % 3 == 0 { 100_000 } else { 0 };
            clock.add(0, 4 + disturbed);
            hook.add(12, 22 + disturbed);
        }
        let cost = hook.cost(Recorded::Enter, 7, reading(&clock), Cost::UNIT);
        assert_eq!(
            (cost.before, cost.after),
            (10 * Cost::UNIT, 20 * Cost::UNIT)
        );
        // A quarter of it, what the call may differ by, and what the ticks may hide.
        let doubt = 30 * Cost::UNIT / 4 + Cost::UNIT + (Cost::UNIT + Cost::UNIT / 3) / 4;
        assert_eq!(u32::from(cost.uncertainty), doubt / 2);
        assert_eq!((cost.recorded, cost.from_bits), (Recorded::Enter, 7));
    }

    #[test]
    fn an_average_is_as_unsure_as_what_it_is_of() {
        let mut clock = Sum::NOTHING;
        let mut hook = Sum::NOTHING;
        for round in 0..Sum::ROUNDS {
            clock.add(0, 2);
            hook.add(27, 26 + round % 2);
        }
        let cost = hook.cost(Recorded::Exit, 0, reading(&clock), 3);
        assert_eq!(cost.before, 26 * Cost::UNIT);
        assert_eq!(cost.after, 25 * Cost::UNIT + Cost::UNIT / 2);
        assert_eq!(
            u32::from(cost.uncertainty),
            ((Cost::UNIT + Cost::UNIT / 3) / 8 + 3) / 2
        );
    }

    #[test]
    fn what_is_always_the_same_is_soon_known() {
        let mut hook = Sum::NOTHING;
        let mut rounds = 0;
        while !hook.is_settled() {
            hook.add(20, 30);
            rounds += 1;
        }
        assert_eq!(rounds, 16);
        let cost = hook.cost(Recorded::Enter, 0, 2 * Cost::UNIT, 0);
        assert_eq!(
            (cost.before, cost.after),
            (19 * Cost::UNIT, 29 * Cost::UNIT)
        );
        // It may still be that no call has met the tick that makes a difference.
        assert_eq!(
            u32::from(cost.uncertainty),
            (Cost::UNIT + Cost::UNIT / 3) / 4 / 2
        );
    }
}
