//! Conversion of trace timestamps to perf's clock.

use super::fields::number;

/// Conversion from counter ticks to nanoseconds of perf's clock (PERF_RECORD_TIME_CONV).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeConversion {
    /// Right shift after the multiplication, below 64.
    pub shift: u32,
    /// Factor.
    pub multiplier: u64,
    /// Nanoseconds at 0 ticks, modulo 2^64.
    pub zero: u64,
}

impl TimeConversion {
    /// Reads the record's body.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let shift = u32::try_from(number(record, 0)?).ok()?;
        Some(TimeConversion {
            shift: (shift < 64).then_some(shift)?,
            multiplier: number(record, 8)?,
            zero: number(record, 16)?,
        })
    }

    /// Returns the time of a counter value, in nanoseconds.
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let scaled = (u128::from(ticks) * u128::from(self.multiplier)) >> self.shift;
        (scaled as u64).wrapping_add(self.zero)
    }
}
