//! Numbers of the active interrupts: for packets that begin or continue within them.
#![allow(clippy::unnecessary_cast, reason = "they are no casts on all machines")]

use core::cell::Cell;

/// Number of nested interrupts whose numbers are kept: as many as a Cortex-M with four bits of priority can nest.
const LEVELS: usize = 16;

/// Storage of an interrupt's number. (Few microcontrollers have as many as 256 interrupts, and all have little RAM.)
#[cfg(target_pointer_width = "32")]
type Number = u8;
/// Storage of an interrupt's number.
#[cfg(not(target_pointer_width = "32"))]
type Number = u16;

/// The active interrupts, outermost first, as far as there is room.
#[derive(Debug)]
pub(super) struct Served([Cell<Number>; LEVELS]);

impl Served {
    /// Represents an interrupt whose number is unknown, because too many are nested or because the number is too large.
    /// No architecture uses it for an interrupt.
    pub const UNKNOWN: u16 = 0;

    /// No active interrupt. All zero.
    pub const fn new() -> Self {
        Self([const { Cell::new(Self::UNKNOWN as Number) }; LEVELS])
    }

    /// The number of the interrupt at this level (0 is the outermost), if there was room for it.
    #[inline(always)]
    pub fn at(&self, level: u8) -> Option<u16> {
        let Self(numbers) = self;
        Some(numbers.get(usize::from(level))?.get() as u16)
    }

    /// Stores the number of the interrupt at this level.
    #[inline(always)]
    pub fn note(&self, level: u8, irq: u16) {
        let Self(numbers) = self;
        if let Some(number) = numbers.get(usize::from(level)) {
            let known = irq <= Number::MAX as u16;
            number.set(if known { irq } else { Self::UNKNOWN } as Number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_known() {
        let served = Served::new();
        for level in 0..20 {
            served.note(level, 100 + u16::from(level));
        }
        assert_eq!(served.at(0), Some(100));
        assert_eq!(served.at(15), Some(115));
        assert_eq!(served.at(16), None);
        served.note(3, Number::MAX as u16);
        assert_eq!(served.at(3), Some(Number::MAX as u16));
        if let Some(more) = (Number::MAX as u16).checked_add(1) {
            served.note(3, more);
            assert_eq!(served.at(3), Some(Served::UNKNOWN));
        }
    }
}
