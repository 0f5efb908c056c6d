//! State of one processor: what runs there, and the times that it was charged with.

use std::collections::BTreeMap;

use kymo_event::{Duration, InterruptId, Row, ThreadId, Time};

use super::entry;
use super::run_time::RunTime;
use crate::replay::Window;

/// A running thread or interrupt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active<Id> {
    pub(super) id: Id,
    pub(super) ran: Duration,
    /// Whether its begin was seen.
    pub(super) whole: bool,
}

impl<Id> Active<Id> {
    pub(super) const fn new(id: Id, whole: bool) -> Self {
        Self {
            id,
            ran: Duration(0),
            whole,
        }
    }
}

/// The owner of a processor, outside of interrupt handlers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Running {
    /// At the start of the trace, or after lost events: nothing is known yet.
    Unknown {
        /// The thread that events have named since, or that ended there; `Err` if there are several.
        named: Result<Option<ThreadId>, ()>,
        /// The time since then.
        time: Duration,
        /// When another processor got the thread that events name. From there on it is unknown what runs here.
        until: Option<Time>,
    },
    Nobody {
        /// The switch that took it from the last thread.
        since: Row,
    },
    Thread {
        active: Active<ThreadId>,
        /// The switch that gave it to the thread.
        since: Row,
        /// When another processor got the thread, if the switch from it has not come. From there on it is unknown what
        /// runs here.
        until: Option<Time>,
    },
}

impl Default for Running {
    fn default() -> Self {
        Self::Unknown {
            named: Ok(None),
            time: Duration(0),
            until: None,
        }
    }
}

/// State of a processor.
#[derive(Clone, Debug, Default)]
pub(super) struct Processor {
    /// The time of its first event; before that its state is unknown.
    pub(super) first: Option<Time>,
    /// The time up to which it is charged; `None` before its first event.
    pub(super) charged: Option<Time>,
    /// The time of its last event.
    pub(super) last: Option<Time>,
    pub(super) running: Running,
    /// Whether events are missing between its last one and the next.
    pub(super) is_lost: bool,
    /// Whether its events are past the window.
    pub(super) is_behind: bool,
    pub(super) interrupts: Vec<Active<Option<InterruptId>>>,
    /// Time in interrupt handlers, and the number that began.
    pub(super) handlers: RunTime,
    /// The threads that ran, each with the number of its runs and their time.
    pub(super) threads: BTreeMap<ThreadId, (u64, Duration)>,
    pub(super) nobody: Duration,
    pub(super) unknown: Duration,
    /// Sum of all threads and interrupts that ran on it. Valid at the end.
    pub(super) all: RunTime,
}

impl Processor {
    /// Ends a gap at the next event: the time up to it was in the gap.
    pub(super) fn go_on(&mut self, now: Time, window: Window, interrupts: &mut Vec<RunTime>) {
        if std::mem::take(&mut self.is_lost) {
            self.charge(now, window, interrupts);
            self.forget();
        }
    }

    /// Handles missing events after its last one: until the next event it is unknown what runs.
    pub(super) fn lose(
        &mut self,
        window: Window,
        interrupts: &mut Vec<RunTime>,
        threads: &mut Vec<RunTime>,
    ) {
        if let Some(last) = self.last {
            self.charge(last, window, interrupts);
        }
        self.interrupts.clear();
        self.stay_open();
        self.leave(None, threads);
        self.running = Running::default();
        self.is_lost = true;
    }

    /// Whether it is known to run a thread other than `thread`.
    pub(super) fn runs_another(&self, thread: Option<ThreadId>) -> bool {
        match (&self.running, thread) {
            (Running::Thread { active, .. }, Some(thread)) => active.id != thread,
            _ => false,
        }
    }

    /// Whether a thread is known to have it.
    pub(super) fn has(&self, thread: ThreadId) -> bool {
        matches!(
            &self.running,
            Running::Thread { active, until: None, .. } if active.id == thread
        )
    }

    /// Notes that another processor gets a thread at `at`, if it is the one that runs: [`charge`](Self::charge) ends its
    /// time there. The events before `at` may still be followed by a gap.
    pub(super) fn lose_thread(&mut self, thread: ThreadId, at: Time) {
        match &mut self.running {
            Running::Thread { active, until, .. } if active.id == thread => {
                until.get_or_insert(at);
            }
            Running::Unknown { named, until, .. } if *named == Ok(Some(thread)) => {
                until.get_or_insert(at);
            }
            _ => {}
        }
    }

    /// Ends the time of a thread that events named and another processor has got, when an event here shows another one.
    pub(super) fn show(
        &mut self,
        thread: ThreadId,
        window: Window,
        (interrupts, threads): (&mut Vec<RunTime>, &mut Vec<RunTime>),
    ) {
        if let Running::Unknown {
            named,
            until: Some(until),
            ..
        } = self.running
            && named != Ok(Some(thread))
        {
            self.charge(until, window, interrupts);
            self.leave(None, threads);
        }
    }

    /// Charges the time up to `now`.
    pub(super) fn charge(&mut self, now: Time, window: Window, interrupts: &mut Vec<RunTime>) {
        let from = self.charged;
        // Where the clock steps back, time that was charged is not charged again.
        self.charged = Some(from.map_or(now, |from| from.max(now)));
        let Some(from) = from.map(|from| from.max(window.begin)) else {
            return;
        };
        let time = now.since(from).unwrap_or_default();
        if let Some(top) = self.interrupts.last_mut() {
            top.ran += time;
            self.handlers.run += time;
            if let Some(id) = top.id {
                entry(interrupts, id.0).run += time;
            }
            return;
        }
        let before = |until: &Option<Time>| match until {
            Some(until) => until.since(from).unwrap_or_default().min(time),
            None => time,
        };
        match &mut self.running {
            Running::Nobody { .. } => self.nobody += time,
            Running::Thread { active, until, .. } => {
                let own = before(until);
                active.ran += own;
                self.unknown += time - own;
            }
            Running::Unknown {
                time: unnamed,
                until,
                ..
            } => {
                let own = before(until);
                *unnamed += own;
                self.unknown += time - own;
            }
        }
    }

    /// Notes that nothing is known of it behind `at`: what ran up to there need not have run on.
    pub(super) fn end_at(&mut self, at: Time, window: Window, interrupts: &mut Vec<RunTime>) {
        self.go_on(at, window, interrupts);
        self.charge(at, window, interrupts);
        self.interrupts.clear();
        match &mut self.running {
            Running::Thread { until, .. } | Running::Unknown { until, .. } => {
                until.get_or_insert(at);
            }
            Running::Nobody { .. } => {
                self.running = Running::Unknown {
                    named: Ok(None),
                    time: Duration(0),
                    until: Some(at),
                };
            }
        }
    }

    /// Marks the end of the running thread as unseen.
    pub(super) fn stay_open(&mut self) {
        if let Running::Thread { active, .. } = &mut self.running {
            active.whole = false;
        }
    }

    /// Ends the running thread; `thread` is the one that the trace records, if any.
    pub(super) fn leave(&mut self, thread: Option<ThreadId>, threads: &mut Vec<RunTime>) {
        let ended = match std::mem::take(&mut self.running) {
            Running::Nobody { .. } => return,
            Running::Thread { active, .. } => active,
            Running::Unknown { named, time, .. } => {
                let known = match (named, thread) {
                    (Ok(named), None) => named,
                    (Ok(named), Some(thread)) => {
                        named.is_none_or(|it| it == thread).then_some(thread)
                    }
                    (Err(()), _) => None,
                };
                let Some(id) = known else {
                    self.unknown += time;
                    return;
                };
                Active {
                    id,
                    ran: time,
                    whole: false,
                }
            }
        };
        self.threads.entry(ended.id).or_default().1 += ended.ran;
        let run = entry(threads, ended.id.0);
        run.run += ended.ran;
        if ended.whole {
            run.end(ended.ran);
        }
    }

    /// Counts the time since the owner became unknown as unknown.
    pub(super) fn forget(&mut self) {
        if let Running::Unknown { time, .. } = self.running {
            self.unknown += time;
            self.running = Running::default();
        }
    }
}
