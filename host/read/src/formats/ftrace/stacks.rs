//! Open calls of each task with their recorded depths, which show missing exits.

use std::collections::HashMap;

use kymo_event::{FunctionId, Time};

use super::held::Number;

/// Thread, or idle task of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Task(u64);

impl Task {
    /// Returns the task with this pid on this CPU.
    #[inline]
    pub(super) const fn new(pid: i32, cpu: u32) -> Self {
        match pid {
            ..=0 => Self((cpu as u64) << 32 | u32::MAX as u64),
            pid => Self(pid.unsigned_abs() as u64),
        }
    }
}

/// Open call.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: FunctionId,
    depth: u64,
    entered: Time,
    /// Number of its entry, if that waits for the exit.
    entry: Option<Number>,
    /// Number of losses before its entry.
    losses: usize,
}

/// Open calls of a task.
#[derive(Debug, Default)]
struct Stack {
    open: Vec<Open>,
    /// The last call whose exit was found to be missing, and the number of its gap row. Its exit may still arrive: an
    /// interrupt between the end of a call and the writing of its exit has the depth of the call.
    missing: Option<(Open, Option<Number>)>,
}

/// Call that an exit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Number of its entry, if that waits.
    pub(super) entry: Option<Number>,
    /// Number of the gap row that reported this exit as missing.
    pub(super) reported: Option<Number>,
    /// Whether records are missing between its entry and its exit.
    pub(super) over_loss: bool,
}

/// Open calls of all tasks.
///
/// An entry or exit at some depth shows that all open calls at this depth or deeper have ended, except for the call
/// that the exit ends.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    places: HashMap<Task, usize>,
    stacks: Vec<Stack>,
    /// Last task, and the index of its stack.
    recent: Option<(Task, usize)>,
    /// Times of the last records in front of the latest losses.
    losses: Vec<Time>,
    /// Number of losses before these.
    forgotten: usize,
    /// Start times of the calls whose exits were found to be missing, the innermost first, and the numbers of their
    /// entries. The caller takes them.
    pub(super) missing: Vec<(Time, Option<Number>)>,
}

/// Number of losses whose times are kept, and half of the maximum.
const MOST_LOSSES: usize = 1 << 12;

/// Largest number of open calls in a task.
const DEEPEST: usize = 1 << 16;

/// Largest number of tasks whose calls are kept.
const MOST_TASKS: usize = 1 << 20;

impl Stacks {
    /// Notes that records are missing on some CPU after one with this time.
    pub(super) fn lost(&mut self, last: Option<Time>) {
        if self.losses.len() >= 2 * MOST_LOSSES {
            self.losses.drain(..MOST_LOSSES);
            self.forgotten += MOST_LOSSES;
        }
        self.losses.extend(last);
    }

    /// Number of losses so far.
    pub(super) const fn losses(&self) -> usize {
        self.forgotten + self.losses.len()
    }

    #[inline(always)]
    fn place(&mut self, task: Task) -> usize {
        match self.recent {
            Some((recent, place)) if recent == task => place,
            _ => self.find(task),
        }
    }

    #[inline(never)]
    fn find(&mut self, task: Task) -> usize {
        if self.places.len() >= MOST_TASKS {
            self.places.clear();
            self.stacks.clear();
        }
        let next = self.stacks.len();
        let place = *self.places.entry(task).or_insert(next);
        if place == next {
            self.stacks.push(Stack::default());
        }
        self.recent = Some((task, place));
        place
    }

    /// Ends all open calls at this depth or deeper.
    #[inline]
    pub(super) fn leave(&mut self, task: Task, depth: u64) {
        let place = self.place(task);
        let innermost = self.stacks.get(place).and_then(|stack| stack.open.last());
        if innermost.is_some_and(|open| open.depth >= depth) {
            self.leave_some(place, depth);
        }
    }

    #[inline(never)]
    fn leave_some(&mut self, place: usize, depth: u64) {
        if let Some(stack) = self.stacks.get_mut(place) {
            while let Some(open) = stack.open.pop_if(|open| open.depth >= depth) {
                self.missing.push((open.entered, open.entry));
                stack.missing = Some((open, None));
            }
        }
    }

    /// Notes the number of the gap row for the missing exit of the call that began at `entered`.
    pub(super) fn reported(&mut self, task: Task, entered: Time, row: Number) {
        let place = self.place(task);
        let missing = self
            .stacks
            .get_mut(place)
            .and_then(|it| it.missing.as_mut());
        if let Some((_, known)) = missing.filter(|(open, _)| open.entered == entered) {
            *known = Some(row);
        }
    }

    /// Enters a function at this depth. The caller has [ended](Self::leave) the calls at this depth.
    #[inline]
    pub(super) fn enter(
        &mut self,
        task: Task,
        function: FunctionId,
        depth: u64,
        (entered, entry): (Time, Option<Number>),
    ) {
        let place = self.place(task);
        let losses = self.forgotten + self.losses.len();
        if let Some(stack) = self.stacks.get_mut(place)
            && stack.open.len() < DEEPEST
        {
            stack.open.push(Open {
                function,
                depth,
                entered,
                entry,
                losses,
            });
        }
    }

    /// Exits a function at this depth. `times` are the start and end of its call, if known. Returns `None` if its entry
    /// was not recorded.
    #[inline]
    pub(super) fn exit(
        &mut self,
        task: Task,
        function: FunctionId,
        depth: u64,
        times: Option<(Time, Time)>,
    ) -> Option<Found> {
        let place = self.place(task);
        let stack = self.stacks.get_mut(place)?;
        // Nearly always it is the innermost call.
        let losses = self.forgotten + self.losses.len();
        let is_it = |open: &mut Open| {
            open.depth == depth && open.function == function && open.losses == losses
        };
        if let Some(open) = stack.open.pop_if(is_it) {
            return Some(Found {
                entry: open.entry,
                reported: None,
                over_loss: false,
            });
        }
        self.exit_of_some(place, function, depth, times)
    }

    #[inline(never)]
    fn exit_of_some(
        &mut self,
        place: usize,
        function: FunctionId,
        depth: u64,
        times: Option<(Time, Time)>,
    ) -> Option<Found> {
        let stack = self.stacks.get_mut(place)?;
        while let Some(open) = stack.open.pop_if(|open| open.depth >= depth) {
            // Of two calls of one function, the end of the first and the start of the second may be lost.
            let first = open.losses.saturating_sub(self.forgotten);
            let losses = self.losses.get(first..).unwrap_or_default();
            if open.depth == depth && open.function == function {
                let is_other = times.is_some_and(|(begin, _)| {
                    let mut losses = losses.iter();
                    losses.any(|loss| open.entered <= *loss && *loss < begin)
                });
                if !is_other {
                    return Some(Found {
                        entry: open.entry,
                        reported: None,
                        over_loss: !losses.is_empty(),
                    });
                }
            }
            self.missing.push((open.entered, open.entry));
        }
        // No other call of the task can have this depth between the two times.
        let is_it = |open: &Open| {
            let within = times.is_some_and(|(begin, end)| (begin..=end).contains(&open.entered));
            within && (open.depth, open.function) == (depth, function)
        };
        let (open, reported) = stack.missing.take_if(|(open, _)| is_it(open))?;
        Some(Found {
            entry: open.entry,
            reported,
            over_loss: open.losses != self.forgotten + self.losses.len(),
        })
    }

    /// Updates the numbers of entries that moved.
    #[cold]
    pub(super) fn renumber(&mut self, moved: &[(Number, Number)]) {
        let open = self.stacks.iter_mut().flat_map(|stack| {
            let missing = stack.missing.iter_mut().map(|(open, _)| open);
            stack.open.iter_mut().chain(missing)
        });
        let entries = open.filter_map(|open| open.entry.as_mut());
        for entry in entries {
            if let Some((_, number)) = moved.iter().find(|(before, _)| before == entry) {
                *entry = *number;
            }
        }
    }

    /// Ends a task with all of its open calls.
    pub(super) fn end(&mut self, task: Task) {
        let place = self.place(task);
        if let Some(stack) = self.stacks.get_mut(place) {
            self.missing.extend(
                stack
                    .open
                    .drain(..)
                    .rev()
                    .map(|open| (open.entered, open.entry)),
            );
        }
    }
}
