//! `u64` on 32-bit processors: a cell with 4-byte alignment, and a short division.
//!
//! Their ABIs align a `u64` to 8 bytes, which leaves holes in structures of words; none of them reads or writes one in
//! a single access anyway.

use core::cell::Cell;

/// A `u64` with 4-byte alignment.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(target_pointer_width = "32", repr(C, packed(4)))]
struct Aligned4(u64);

/// A cell of a `u64` with 4-byte alignment.
#[derive(Debug)]
pub(crate) struct Cell64(Cell<Aligned4>);

impl Cell64 {
    /// A cell with this value.
    pub const fn new(value: u64) -> Self {
        Self(Cell::new(Aligned4(value)))
    }

    /// Returns the value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.get().0
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.set(Aligned4(value));
    }
}

/// Quotient and remainder of a division (by 1 instead of 0). Slow on processors without such an instruction, for
/// callers that need it seldom. (The compiler's routine is ten times as long.)
pub(crate) fn divide(number: u64, by: u64) -> (u64, u64) {
    let by = by.max(1);
    match size_of::<usize>() {
        8 => (number / by, number % by),
        _ => divide_bits(number, by),
    }
}

#[inline(never)]
fn divide_bits(number: u64, by: u64) -> (u64, u64) {
    let (mut quotient, mut rest) = (0u64, 0u64);
    for bit in (0..u64::BITS).rev() {
        let carry = rest >> 63 != 0;
        rest = rest << 1 | number >> bit & 1;
        quotient <<= 1;
        if carry || rest >= by {
            rest = rest.wrapping_sub(by);
            quotient |= 1;
        }
    }
    (quotient, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The division of 32-bit processors.
    fn slowly(number: u64, by: u64) -> (u64, u64) {
        divide_bits(number, by.max(1))
    }

    #[test]
    fn a_division_is_what_the_processors_is() {
        let mut random = 1u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> (random >> 58)
        };
        for _ in 0..10_000 {
            let (number, by) = (next(), next());
            let expected = (number / by.max(1), number % by.max(1));
            assert_eq!(slowly(number, by), expected, "{number} / {by}");
            assert_eq!(divide(number, by), expected);
        }
        for number in [0, 1, u64::MAX - 1, u64::MAX] {
            for by in [0, 1, 2, 1 << 63, u64::MAX] {
                let expected = (number / by.max(1), number % by.max(1));
                assert_eq!(slowly(number, by), expected, "{number} / {by}");
            }
        }
    }
}
