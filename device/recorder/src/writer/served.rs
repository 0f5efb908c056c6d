//! The numbers of the interrupts that are being served: for packets that begin, or go on, inside of them.
#![allow(clippy::unnecessary_cast, reason = "they are no casts on all machines")]

use core::cell::Cell;

/// How many nested interrupts are known by their numbers: as many as a Cortex-M with four bits of
/// priority can nest.
const LEVELS: usize = 16;

/// What keeps the number of an interrupt. (Few microcontrollers have as many as 256, and all have little
/// RAM.)
#[cfg(target_pointer_width = "32")]
type Number = u8;
/// What keeps the number of an interrupt.
#[cfg(not(target_pointer_width = "32"))]
type Number = u16;

/// The interrupts that are being served, the outermost first, as far as there is room.
#[derive(Debug)]
pub(super) struct Served([Cell<Number>; LEVELS]);

impl Served {
    /// Stands for an interrupt whose number is not known because too many are nested, or it is too great.
    /// On no architecture is it an interrupt's.
    pub const UNKNOWN: u16 = 0;

    /// None. All zero.
    pub const fn new() -> Self {
        Self([const { Cell::new(Self::UNKNOWN as Number) }; LEVELS])
    }

    /// The number of the interrupt at this level (the outermost is 0), if there was room for it.
    #[inline(always)]
    pub fn at(&self, level: u8) -> Option<u16> {
        let Self(numbers) = self;
        Some(numbers.get(usize::from(level))?.get() as u16)
    }

    /// Notes the interrupt at this level.
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
