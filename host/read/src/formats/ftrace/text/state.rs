//! State of a text's streams, and open calls of each task.
//!
//! Text without times has durations. Each thread gets its own clock, on which its calls follow each other without a
//! pause, and the calls within a call are at its start. So all durations are as the text states them. The order across
//! CPUs is unknown; a thread without an open call continues at the latest time of all, because lines are in order.

use kymo_event::{FunctionId, Time};

use crate::formats::ftrace::held::Number;

/// A CPU, or a thread.
#[derive(Debug, Default)]
pub(super) struct State {
    /// For a CPU: the running task.
    pub(super) task: Option<i32>,
    /// Time of the last event.
    pub(super) last: Time,
    /// Time on the last line.
    pub(super) stated: Option<Time>,
    pub(super) any: bool,
    /// Losses that the text reports in front of the first event. They get its time.
    pub(super) early_losses: Vec<Option<u64>>,
    /// Start times of calls that were printed at their ends: of the first one at each depth since the last call further
    /// out.
    pub(super) ended: Vec<(u32, Time)>,
    /// For a CPU: the last function entered at each depth. An exit without a name belongs to it.
    pub(super) entered: Vec<Option<FunctionId>>,
    /// The last call without others in it, if its line may have been written late: when it ended, how long it took, and
    /// the number of its entry, if that waits.
    pub(super) long_leaf: Option<(Time, u64, Option<Number>)>,
    /// A leaf call without an end in the text: its function, its depth and its position.
    pub(super) leaf: Option<(Option<FunctionId>, u32, super::At<'static>)>,
}

/// Thread, or code without a thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Thread(i32),
    Cpu(Option<u32>),
}

impl Task {
    /// Returns the task with this pid, on this CPU.
    pub(super) fn new(pid: Option<i32>, cpu: Option<u32>) -> Self {
        match pid {
            Some(pid @ 1..) => Self::Thread(pid),
            _ => Self::Cpu(cpu),
        }
    }
}

/// Open calls of a task, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Stack(Vec<Open>);

/// Open call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) depth: u32,
    pub(super) begin: Time,
    pub(super) function: FunctionId,
    /// Number of losses before it.
    pub(super) losses: u64,
    /// The number of its entry, if that waits for the exit.
    pub(super) entry: Option<Number>,
}

/// Largest depth of tracked calls.
const DEEPEST: usize = 1 << 12;

impl State {
    /// Notes the entry of a function at this depth.
    pub(super) fn remember(&mut self, depth: u32, function: FunctionId) {
        let place = depth as usize;
        if self.entered.len() <= place && place < DEEPEST {
            self.entered.resize(place + 1, None);
        }
        if let Some(entered) = self.entered.get_mut(place) {
            *entered = Some(function);
        }
    }

    /// Returns the time of an entry: that of its line, or of the clock. `latest` is the latest time of all clocks, at
    /// which a task without an open call continues.
    pub(super) fn enter(&mut self, time: Option<Time>, latest: Option<Time>) -> Time {
        self.last = self.last.max(time.or(latest).unwrap_or(self.last));
        self.last
    }

    /// Returns the start and end of a call that is reported at its end, without times. It encloses the deeper calls
    /// before it.
    pub(super) fn call(&mut self, depth: u32, duration: i64, latest: Time) -> (Time, Time) {
        let mut begin = match self.ended.is_empty() {
            true => self.last.max(Time(latest.0.saturating_sub(duration))),
            false => self.last,
        };
        while let Some((_, first)) = self.ended.pop_if(|(inner, _)| *inner > depth) {
            begin = first;
        }
        let end = Time(begin.0.saturating_add(duration)).max(self.last);
        self.last = end;
        let is_first = self.ended.last().is_none_or(|(last, _)| *last < depth);
        match depth {
            // No call encloses it.
            0 => self.ended.clear(),
            _ if is_first && self.ended.len() < DEEPEST => self.ended.push((depth, begin)),
            _ => {}
        }
        (begin, end)
    }
}

impl Stack {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a call. Returns the calls that must have ended because they are not further out, the innermost first.
    /// Without a loss since then, a call at the same depth stays open: an interrupt came between its end and the
    /// writing of its exit.
    pub(super) fn open(&mut self, call: Open) -> Vec<Open> {
        let missing = self.take(|open| {
            open.depth > call.depth || open.depth == call.depth && open.losses != call.losses
        });
        if self.0.len() < DEEPEST {
            self.0.push(call);
        }
        missing
    }

    /// The entry of the call that began last has this number. `false` if the call is not followed.
    pub(super) fn number(&mut self, depth: u32, entry: Number) -> bool {
        let last = self.0.last_mut();
        let last = last.filter(|open| open.depth == depth && open.entry.is_none());
        last.map(|open| open.entry = Some(entry)).is_some()
    }

    /// Entries that wait have other numbers: those before and since.
    #[cold]
    pub(super) fn renumber(&mut self, moved: &[(Number, Number)]) {
        for entry in self.0.iter_mut().filter_map(|open| open.entry.as_mut()) {
            if let Some((_, since)) = moved.iter().find(|(before, _)| before == entry) {
                *entry = *since;
            }
        }
    }

    /// A call ends at this depth. The open call that it is, if it `fits`, and those that have ended before.
    pub(super) fn close(
        &mut self,
        depth: u32,
        fits: impl Fn(&Open) -> bool,
    ) -> (Option<Open>, Vec<Open>) {
        let mut missing = self.take(|open| open.depth > depth);
        let found = self.0.pop_if(|open| open.depth == depth);
        let ended = found.filter(fits);
        if ended.is_none() {
            missing.extend(found);
        }
        (ended, missing)
    }

    /// Ends all open calls.
    pub(super) fn end(&mut self) -> Vec<Open> {
        self.take(|_| true)
    }

    fn take(&mut self, ended: impl Fn(&Open) -> bool) -> Vec<Open> {
        let mut taken = Vec::new();
        while let Some(open) = self.0.pop_if(|open| ended(open)) {
            taken.push(open);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_told_at_their_ends_enclose_deeper_ones_and_keep_their_durations() {
        let mut state = State::default();
        let mut call = |depth, duration, latest| {
            let (begin, end) = state.call(depth, duration, Time(latest));
            (begin.0, end.0)
        };
        assert_eq!(call(3, 5, 0), (0, 5));
        assert_eq!(call(2, 7, 0), (0, 7));
        assert_eq!(call(3, 3, 0), (7, 10));
        // Other threads have continued meanwhile, which does not make the call longer.
        assert_eq!(call(1, 40, 900), (0, 40));
        assert_eq!(call(0, 45, 900), (0, 45));
        // The next call is at the time of the other threads.
        assert_eq!(call(1, 100, 900), (800, 900));
        assert_eq!(call(0, 120, 900), (800, 920));
    }

    #[test]
    fn depths_tell_which_call_ends_and_which_exits_are_missing() {
        let mut stack = Stack::default();
        let call = |depth, function| Open {
            depth,
            begin: Time(0),
            function: FunctionId(function),
            losses: 0,
            entry: None,
        };
        for (depth, function) in [(0, 10), (1, 11), (2, 12)] {
            assert!(stack.open(call(depth, function)).is_empty());
        }
        let (ended, missing) = stack.close(1, |_| true);
        assert_eq!(ended.map(|open| open.function), Some(FunctionId(11)));
        let functions = |calls: Vec<Open>| calls.iter().map(|it| it.function.0).collect::<Vec<_>>();
        assert_eq!(functions(missing), [12]);
        // Without a loss, a call at the same depth stays open.
        assert_eq!(functions(stack.open(call(0, 15))), []);
        let (ended, missing) = stack.close(0, |_| true);
        assert_eq!(ended.map(|open| open.function), Some(FunctionId(15)));
        assert_eq!(functions(missing), []);
        let behind_loss = Open {
            losses: 1,
            ..call(0, 21)
        };
        assert_eq!(functions(stack.open(behind_loss)), [10]);
        let (ended, missing) = stack.close(0, |_| false);
        assert!(ended.is_none());
        assert_eq!(functions(missing), [21]);
        assert!(stack.is_empty());
    }
}
