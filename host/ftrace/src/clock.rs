//! Ticks of a trace clock as nanoseconds: those of a processor's counter, and those of a guest's clock as its host's.

use crate::dat::Options;

/// What a guest's clock showed when the host's showed something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The guest's time.
    pub time: u64,
    /// What has to be added to have the host's.
    pub offset: i64,
    /// By what times are multiplied before that.
    pub scaling: u64,
    /// How many of the low bits of the product are a fraction.
    pub fraction: u32,
}

/// How the times of one CPU of a guest become its host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuShift {
    pub(crate) samples: Vec<Sample>,
}

impl CpuShift {
    /// From samples in any order. Of several of one time the first holds.
    pub fn new(samples: Vec<Sample>) -> Self {
        let mut shift = Self { samples };
        shift.sort();
        shift
    }

    pub(crate) fn sort(&mut self) {
        self.samples.sort_by_key(|sample| sample.time);
        self.samples.dedup_by_key(|sample| sample.time);
    }

    /// The host's time at a time of the guest.
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
            // Samples of one time are there once, so that `between` is not 0.
            let added = (since * step + between / 2) / between.max(1);
            i128::from(first.offset) + added
        } else {
            i128::from(first.offset)
        };
        let scaled = (u128::from(ticks) * u128::from(first.scaling)) >> first.fraction;
        (scaled as u64).wrapping_add(offset as u64)
    }
}

/// How ticks become nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    shifts: Vec<CpuShift>,
    interpolate: bool,
    tsc: Option<(u32, u32)>,
    offset_ns: i64,
}

impl Timing {
    /// As a file's options say.
    pub fn of(options: &Options) -> Self {
        Self {
            shifts: options.shifts.clone(),
            interpolate: options.interpolate,
            tsc: options.tsc.filter(|(mult, _)| *mult != 0),
            offset_ns: options.offset_ns,
        }
    }

    /// The nanoseconds of ticks on a CPU. (Clocks that count no time, as `counter` does, have their counts.)
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
