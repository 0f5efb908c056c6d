//! Selects the calls of a measurement that count.

#[cfg(target_has_atomic = "ptr")]
use core::cell::Cell;

use kymo_wire::cost::{Measured, Sums};

/// Accumulated times of several calls of a hook.
pub(crate) trait Tally: Copy {
    /// Number of calls that count, as a power of two.
    const CALLS: u8;
    /// Number of calls of each hook.
    const ROUNDS: u32;
    /// Fraction 1/n of a hook's overhead that may be hidden behind the program's work, or may hide as much of that; 0
    /// for in-order processors.
    const HIDDEN: u8;
    /// No call yet.
    const NOTHING: Self;

    /// Adds a call that took `before` ticks before the time that it recorded, and `after` ticks after that.
    fn add(&mut self, before: u32, after: u32);
    /// The sums of the calls that count; `place` is memory for them, if they need it.
    fn reported<'a>(measured: &'a Measured<Self>, place: &'a mut Option<Measured>) -> &'a Measured;
}

/// All calls count: for processors with constant timing. Needs no memory for single calls.
impl Tally for Sums {
    const CALLS: u8 = 6;
    const ROUNDS: u32 = 1 << Self::CALLS;
    const HIDDEN: u8 = 0;
    const NOTHING: Self = Self::NOTHING;

    #[inline(always)]
    fn add(&mut self, before: u32, after: u32) {
        self.add(before, after);
    }

    #[inline(always)]
    fn reported<'a>(measured: &'a Measured<Self>, _: &'a mut Option<Measured>) -> &'a Measured {
        measured
    }
}

/// The faster half of the calls counts: interrupts, other processors or the hypervisor may have disturbed the rest.
#[cfg(target_has_atomic = "ptr")]
#[derive(Clone, Copy)]
pub(crate) struct Undisturbed {
    calls: [[u32; 2]; Self::ROUNDS as usize],
    count: usize,
}

#[cfg(target_has_atomic = "ptr")]
impl Tally for Undisturbed {
    const CALLS: u8 = 5;
    const ROUNDS: u32 = 2 << Self::CALLS;
    /// Superscalar processors hide a part of a hook behind the program, or a part of the program behind the hook.
    const HIDDEN: u8 = 4;
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

    fn reported<'a>(measured: &'a Measured<Self>, place: &'a mut Option<Measured>) -> &'a Measured {
        place.insert(Measured {
            measure: measured.measure,
            base: measured.base,
            hooks: [measured.hooks[0].sums(), measured.hooks[1].sums()],
        })
    }
}

#[cfg(target_has_atomic = "ptr")]
impl Undisturbed {
    #[inline(never)]
    fn sums(mut self) -> Sums {
        sort(&mut self.calls, |[before, after]| {
            before.wrapping_add(*after)
        });
        let mut sums = Sums::NOTHING;
        for [before, after] in self.calls.iter().take(1 << Self::CALLS) {
            sums.add(*before, *after);
        }
        sums
    }
}

/// Insertion sort for small slices. (The sort functions of `core` take kilobytes of code.)
#[cfg(target_has_atomic = "ptr")]
fn sort<T: Copy>(things: &mut [T], key: impl Fn(&T) -> u32) {
    let things = Cell::from_mut(things).as_slice_of_cells();
    for end in 2..=things.len() {
        // All but the last are sorted: it moves back to its position among them.
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
        let mut hook = Undisturbed::NOTHING;
        for round in 0..Undisturbed::ROUNDS {
            let disturbed = if round % 3 == 0 { 100_000 } else { 0 };
            hook.add(12, 22 + disturbed);
        }
        let expected = Sums {
            before: 12 << Undisturbed::CALLS,
            after: 22 << Undisturbed::CALLS,
            most: 34,
        };
        assert_eq!(hook.sums(), expected);
    }
}
