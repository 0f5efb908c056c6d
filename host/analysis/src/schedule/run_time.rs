//! Run times: length and number of activations, and waits before them.

use kymo_event::Duration;

/// Run time of a thread, an interrupt or a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunTime {
    /// Total run time, without interruptions.
    pub run: Duration,
    /// Number of activations.
    pub count: u64,
    /// Activations that were seen from begin to end.
    pub complete: u64,
    /// Run time of the complete activations.
    pub sum: Duration,
    /// The shortest complete activation.
    pub min: Duration,
    /// The longest complete activation.
    pub max: Duration,
    /// Waits from ready to running; only for threads.
    pub ready: Waits,
    /// Time in which nothing ran except idle threads; only for processors. `None` if the trace does not record it.
    pub idle: Option<Duration>,
    /// Time between the end of one thread and the begin of the next, which is the kernel's; only for processors that
    /// have an idle thread, because on others it may be idle time.
    pub switching: Duration,
    /// Time in which it is unknown what ran; only for processors.
    pub unknown: Duration,
}

/// Times from ready to running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Their number.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Waits {
    /// The average; `None` if there is none.
    pub fn average(&self) -> Option<Duration> {
        self.sum.0.checked_div(self.count).map(Duration)
    }

    pub(super) fn add(&mut self, wait: Duration) {
        self.min = if self.count == 0 {
            wait
        } else {
            self.min.min(wait)
        };
        self.max = self.max.max(wait);
        self.sum += wait;
        self.count += 1;
    }
}

impl RunTime {
    /// The average of complete activations; `None` if there is none.
    pub fn average(&self) -> Option<Duration> {
        self.sum.0.checked_div(self.complete).map(Duration)
    }

    /// Adds the run time of another one.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.min = match (self.complete, other.complete) {
            (0, _) => other.min,
            (_, 0) => self.min,
            _ => self.min.min(other.min),
        };
        self.run += other.run;
        self.count += other.count;
        self.complete += other.complete;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.idle = self.idle.zip(other.idle).map(|(one, two)| one + two);
        self.switching += other.switching;
        self.unknown += other.unknown;
        self
    }

    /// Counts a complete activation with this run time.
    pub(super) fn end(&mut self, ran: Duration) {
        self.min = if self.complete == 0 {
            ran
        } else {
            self.min.min(ran)
        };
        self.max = self.max.max(ran);
        self.sum += ran;
        self.complete += 1;
    }
}
