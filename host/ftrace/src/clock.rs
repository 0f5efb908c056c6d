//! Conversion of trace-clock ticks to nanoseconds, for CPU counters (TSC) and for guests whose times are shifted to the
//! host's clock.

use crate::dat::Options;

/// Offset and scale between a guest's clock and its host's at one guest time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The guest's time.
    pub time: u64,
    /// Ticks to add for the host's time.
    pub offset: i64,
    /// Multiplier for guest times, applied before the offset.
    pub scaling: u64,
    /// Number of fractional bits in the product.
    pub fraction: u32,
}

/// Conversion of one guest CPU's times to host times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuShift {
    pub(crate) samples: Vec<Sample>,
}

impl CpuShift {
    /// Creates the conversion from samples in any order. If several have the same time, the first is used.
    pub fn new(samples: Vec<Sample>) -> Self {
        let mut shift = Self { samples };
        shift.sort();
        shift
    }

    pub(crate) fn sort(&mut self) {
        self.samples.sort_by_key(|sample| sample.time);
        self.samples.dedup_by_key(|sample| sample.time);
    }

    /// Returns the host's time for a time of the guest.
    pub fn apply(&self, ticks: u64, interpolate: bool) -> u64 {
        let (first, second) = match self.samples.as_slice() {
            [] => return ticks,
            [one] => return ticks.wrapping_add_signed(one.offset),
            samples => {
                let behind = samples.partition_point(|sample| sample.time <= ticks);
                let place = behind.saturating_sub(1).min(samples.len() - 2);
                match samples.get(place..place + 2) {
                    Some([first, second]) => (first, second),
                    _ => return ticks,
                }
            }
        };
        let offset = if interpolate {
            let between = i128::from(second.time) - i128::from(first.time);
            let since = i128::from(ticks) - i128::from(first.time);
            let step = i128::from(second.offset) - i128::from(first.offset);
            // `sort` keeps one sample per time, so `between` is not 0.
            let added = (since * step + between / 2) / between.max(1);
            i128::from(first.offset) + added
        } else {
            i128::from(first.offset)
        };
        let scaled = (u128::from(ticks) * u128::from(first.scaling)) >> first.fraction;
        (scaled as u64).wrapping_add(offset as u64)
    }
}

/// Conversion of ticks to nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    shifts: Vec<CpuShift>,
    interpolate: bool,
    tsc: Option<(u32, u32)>,
    offset_ns: i64,
}

impl Timing {
    /// Creates the conversion that a file's options describe.
    pub fn of(options: &Options) -> Self {
        Self {
            shifts: options.shifts.clone(),
            interpolate: options.interpolate,
            tsc: options.tsc.filter(|(mult, _)| *mult != 0),
            offset_ns: options.offset_ns,
        }
    }

    /// Converts the ticks of a CPU to nanoseconds. Clocks that do not measure time, such as `counter`, keep their
    /// counts.
    #[inline]
    pub fn nanoseconds(&self, ticks: u64, cpu: u32) -> u64 {
        if self.shifts.is_empty() && self.tsc.is_none() {
            return ticks.wrapping_add_signed(self.offset_ns);
        }
        self.convert(ticks, cpu)
    }

    #[inline(never)]
    fn convert(&self, ticks: u64, cpu: u32) -> u64 {
        let mut time = match self.shifts.get(cpu as usize) {
            Some(shift) => shift.apply(ticks, self.interpolate),
            None => ticks,
        };
        if let Some((mult, shift)) = self.tsc {
            time = ((u128::from(time) * u128::from(mult)) >> shift.min(64)) as u64;
        }
        time.wrapping_add_signed(self.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_shifted_by_the_samples_around_them() {
        let sample = |time, offset| Sample {
            time,
            offset,
            scaling: 1,
            fraction: 0,
        };
        let shift = CpuShift::new(vec![sample(200, 30), sample(100, 10), sample(300, -10)]);
        assert_eq!(shift.apply(150, false), 160);
        assert_eq!(shift.apply(150, true), 170);
        assert_eq!(shift.apply(250, true), 261);
        assert_eq!(shift.apply(50, true), 51);
        assert_eq!(CpuShift::new(vec![sample(5, -2)]).apply(9, true), 7);
        let scaled = Sample {
            scaling: 3,
            fraction: 1,
            ..sample(1, 100)
        };
        let shift = CpuShift::new(vec![scaled, sample(1000, 100)]);
        assert_eq!(shift.apply(10, false), 115);
    }

    #[test]
    fn counters_of_processors_become_nanoseconds() {
        let timing = Timing {
            tsc: Some((1 << 21, 22)),
            offset_ns: -5,
            ..Timing::default()
        };
        assert_eq!(timing.nanoseconds(1 << 60, 0), (1 << 59) - 5);
    }
}
