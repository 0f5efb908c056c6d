//! Losses that the kernel recorded: of trace, by flags of AUX records, and of its own records.

/// Losses that the kernel recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// AUX records whose trace had no room in the buffer (`PERF_AUX_FLAG_TRUNCATED`).
    pub truncated: Loss,
    /// AUX records whose trace has gaps (`PERF_AUX_FLAG_PARTIAL`).
    pub partial: Loss,
    /// AUX records in collision with another user of the trace unit (`PERF_AUX_FLAG_COLLISION`).
    pub collisions: Loss,
    /// Records of processes, mappings and switches (`PERF_RECORD_LOST`).
    pub records: Loss,
    /// Samples of other events of the recording (`PERF_RECORD_LOST_SAMPLES`).
    pub samples: Loss,
}

/// Losses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How often the kernel recorded one.
    pub times: u64,
    /// How many records or samples were lost.
    pub count: u64,
    /// Earliest time at which the kernel recorded one, in nanoseconds of perf's clock, if the records have times. The
    /// loss was before it: the kernel writes the record once there is room again.
    pub first: Option<u64>,
}

impl Loss {
    /// Adds a loss.
    pub(super) fn add(&mut self, count: u64, time: Option<u64>) {
        self.times += 1;
        self.count = self.count.saturating_add(count);
        // Records that perf writes itself have the time 0.
        let time = time.filter(|time| *time != 0);
        self.first = match (self.first, time) {
            (Some(first), Some(time)) => Some(first.min(time)),
            (first, time) => first.or(time),
        };
    }

    /// When the kernel first recorded one, as the end of a message.
    pub(crate) fn recorded(&self) -> String {
        match self.first {
            Some(time) => {
                let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
                format!(", first recorded at {seconds}.{nanoseconds:09} s of the kernel's clock")
            }
            None => String::new(),
        }
    }
}
