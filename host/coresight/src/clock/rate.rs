//! Time per instruction or per cycle, from the intervals so far.

/// Rate of time; `amount`s are instructions or cycles.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Time and amount of the last interval without gaps.
    last: Option<(u64, u64)>,
    /// Sum of time and amount of all such intervals.
    traced: (u64, u64),
    /// Time and amount of the interval with the least time per amount, used until an interval without gaps is known.
    quickest: Option<(u64, u64)>,
}

impl Rate {
    /// Adds an interval. Intervals with gaps do not define the rate.
    pub fn add(&mut self, passed: u64, amount: u64, has_gaps: bool) {
        if has_gaps {
            self.note_quickest(passed, amount);
        } else if amount > 0 {
            self.last = Some((passed, amount));
            self.traced.0 = self.traced.0.saturating_add(passed);
            self.traced.1 = self.traced.1.saturating_add(amount);
        }
    }

    /// Keeps the interval with the least time per amount.
    fn note_quickest(&mut self, passed: u64, amount: u64) {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let is_quicker = self
            .quickest
            .is_none_or(|(time, other)| product(passed, other) < product(time, amount));
        if passed > 0 && amount > 0 && is_quicker {
            self.quickest = Some((passed, amount));
        }
    }

    /// Whether an interval without gaps is known.
    pub fn is_known(&self) -> bool {
        self.traced.1 > 0
    }

    /// Rate of the last interval.
    pub fn recent(&self) -> (u64, u64) {
        self.last.or(self.quickest).unwrap_or((0, 1))
    }

    /// Rate of all intervals.
    pub fn overall(&self) -> (u64, u64) {
        let traced = Some(self.traced).filter(|(_, amount)| *amount > 0);
        traced.or(self.quickest).unwrap_or((0, 1))
    }
}
