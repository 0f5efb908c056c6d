//! How long something ran, how often, and how long it waited for that.

use kymo_event::Duration;

/// What is known of the time that a thread or an interrupt had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunTime {
    /// All of it: without what interrupted it.
    pub run: Duration,
    /// How often it began.
    pub count: u64,
    /// Activations that were seen from their beginning to their end.
    pub complete: u64,
    /// The run time of these.
    pub sum: Duration,
    /// The shortest of these.
    pub min: Duration,
    /// The longest of these.
    pub max: Duration,
    /// From ready to running; of threads only.
    pub ready: Waits,
    /// The time without anything to run but an idle thread; of processors only. `None` if the trace does not tell.
    pub idle: Option<Duration>,
    /// The time between the end of one thread and the beginning of the next, which is the kernel's; of processors only
    /// that have an idle thread: on others it may be idle time.
    pub switching: Duration,
    /// The time of which it is not known what ran; of processors only.
    pub unknown: Duration,
}

/// Times from ready to running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// How many.
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

    /// Adds what is known of another one.
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

    /// An activation has ended that ran so long.
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
