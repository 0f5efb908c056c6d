//! Distribution of durations: percentiles and the standard deviation, in bounded memory.
//!
//! Durations are counted in buckets whose width grows with them: one for each nanosecond below 64, and 64 for each
//! doubling above. A percentile is the middle of its bucket, clamped to the least and largest duration, so its error
//! is at most 1/128, less than one percent of its value. Two distributions can be merged.

use kymo_event::Duration;

/// Number of bits of a duration, below its highest one, that select its bucket.
const BITS: u32 = 6;

/// Histogram of durations. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The counts of the buckets, from `first` on.
    buckets: Vec<u64>,
    /// The bucket of the first of `buckets`.
    first: usize,
    count: u64,
    /// The least and the largest duration.
    range: Option<(Duration, Duration)>,
    sum: u128,
    /// The sum of the squares; saturates at the largest value.
    squares: u128,
}

/// The index of a duration's bucket: equal for durations that differ by less than 1/64.
pub const fn bucket_of(duration: Duration) -> usize {
    bucket(duration.0)
}

#[inline]
const fn bucket(ns: u64) -> usize {
    match ns.checked_ilog2() {
        Some(log) if log >= BITS => {
            let shift = log - BITS;
            ((shift as usize + 1) << BITS) + (ns >> shift) as usize - (1 << BITS)
        }
        _ => ns as usize,
    }
}

/// The middle of a bucket.
const fn middle(bucket: usize) -> u64 {
    if bucket < 1 << BITS {
        return bucket as u64;
    }
    let shift = (bucket >> BITS) - 1;
    let low = (((bucket & ((1 << BITS) - 1)) + (1 << BITS)) as u64) << shift;
    low + ((1 << shift) >> 1)
}

impl Spread {
    /// Adds a duration.
    #[inline]
    pub fn add(&mut self, duration: Duration) {
        let bucket = bucket(duration.0);
        *self.place(bucket) += 1;
        self.count += 1;
        self.range = Some(match self.range {
            None => (duration, duration),
            Some((least, largest)) => (least.min(duration), largest.max(duration)),
        });
        let ns = u128::from(duration.0);
        self.sum += ns;
        self.squares = self.squares.saturating_add(ns * ns);
    }

    /// Adds all durations of another one.
    pub fn merge(&mut self, other: &Self) {
        for (index, count) in other.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
            *self.place(other.first + index) += count;
        }
        self.count += other.count;
        self.range = match (self.range, other.range) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        self.sum += other.sum;
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// The counter of a bucket, which is created if missing.
    #[inline]
    fn place(&mut self, bucket: usize) -> &mut u64 {
        let index = bucket.wrapping_sub(self.first);
        if index >= self.buckets.len() {
            return self.make_place(bucket);
        }
        &mut self.buckets[index]
    }

    #[cold]
    fn make_place(&mut self, bucket: usize) -> &mut u64 {
        if self.buckets.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = self.first - bucket;
            self.buckets.splice(..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let index = bucket - self.first;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        &mut self.buckets[index]
    }

    /// The number of durations.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The number of durations of at least `least`; those within 1 % of it may be counted on either side.
    pub fn count_from(&self, least: Duration) -> u64 {
        let from = bucket(least.0).saturating_sub(self.first);
        self.buckets.iter().skip(from).sum()
    }

    /// The duration that this percentage of all does not exceed, with an error of at most 1 %; `None` if empty.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let at = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        let bucket = self.first + at.or_else(|| self.buckets.len().checked_sub(1))?;
        let (least, largest) = self.range?;
        Some(Duration(middle(bucket)).clamp(least, largest))
    }

    /// The standard deviation of the whole population, to the nearest nanosecond; `None` if empty.
    pub fn standard_deviation(&self) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let count = u128::from(self.count);
        let exact = self.squares.checked_mul(count);
        let squared_sum = self.sum.checked_mul(self.sum);
        let variance = match (exact, squared_sum) {
            (Some(squares), Some(sum)) => {
                squares.saturating_sub(sum) as f64 / (count * count) as f64
            }
            _ => {
                let mean = self.sum as f64 / count as f64;
                (self.squares as f64 / count as f64 - mean * mean).max(0.0)
            }
        };
        Some(Duration(variance.sqrt().round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        let mut before = bucket(0);
        for ns in 1..100_000 {
            let at = bucket(ns);
            assert!(at == before || at == before + 1, "{ns}");
            before = at;
        }
        assert_eq!(bucket(u64::MAX), (64 - BITS as usize) * 64 + 63);
    }

    fn spread(all: &[u64]) -> Spread {
        let mut spread = Spread::default();
        all.iter().for_each(|ns| spread.add(Duration(*ns)));
        spread
    }

    proptest! {
        #[test]
        fn percentiles_are_a_percent_off_at_most(
            mut all in prop::collection::vec(prop_oneof![0..200u64, 0..1_000_000u64, any::<u64>()], 1..200),
            percent in 0.0..=100.0f64,
        ) {
            let found = spread(&all).percentile(percent).unwrap().0;
            all.sort_unstable();
            let rank = (percent / 100.0 * all.len() as f64).ceil().max(1.0) as usize;
            let exact = all[rank - 1];
            prop_assert!(found.abs_diff(exact) as f64 <= exact as f64 / 100.0, "{found} is not {exact}");
        }

        #[test]
        fn parts_add_up(one in prop::collection::vec(any::<u32>(), 0..50), other in prop::collection::vec(any::<u32>(), 0..50)) {
            let of = |all: &[u32]| spread(&all.iter().map(|ns| u64::from(*ns)).collect::<Vec<_>>());
            let mut sum = of(&one);
            sum.merge(&of(&other));
            let whole = of(&[one, other].concat());
            prop_assert_eq!(sum.count(), whole.count());
            prop_assert_eq!(sum.standard_deviation(), whole.standard_deviation());
            for percent in [0.0, 50.0, 90.0, 99.0, 100.0] {
                prop_assert_eq!(sum.percentile(percent), whole.percentile(percent));
            }
        }
    }

    #[test]
    fn counts_durations_from_one_on() {
        let spread = spread(&[5, 9, 10, 11, 2000, 5_000_000]);
        let counts =
            [0, 10, 11, 1000, 1_000_000, 10_000_000].map(|ns| spread.count_from(Duration(ns)));
        assert_eq!(counts, [6, 4, 3, 2, 1, 0]);
        assert_eq!(Spread::default().count_from(Duration(0)), 0);
    }

    #[test]
    fn deviates_as_by_definition() {
        assert_eq!(spread(&[]).standard_deviation(), None);
        assert_eq!(
            spread(&[2, 4, 4, 4, 5, 5, 7, 9]).standard_deviation(),
            Some(Duration(2))
        );
        assert_eq!(
            spread(&[u64::MAX, u64::MAX]).standard_deviation(),
            Some(Duration(0))
        );
        assert_eq!(spread(&[7]).percentile(50.0), Some(Duration(7)));
    }
}
