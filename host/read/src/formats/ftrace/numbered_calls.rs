//! System calls that a trace records twice: with their names (`syscalls:sys_enter_read`) and with their numbers
//! (`raw_syscalls:sys_enter`).
//!
//! The kernel writes both records of an entry one after the other, and so those of an exit, in the order in which the
//! events were enabled. Which of the two it writes may change in a trace, and differ by call: events are enabled one by
//! one, and tasks of another ABI have numbers alone. So the second record is found for each call in its task: a task is
//! in one system call at most, and cannot enter another one before it exits.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use kymo_event::{Duration, FunctionId, Identities, Time};

use crate::linux::SPAWN;

/// Record of a system call's entry or exit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Syscall<Name> {
    Named(Name),
    Numbered(i32),
}

impl<Name> Syscall<Name> {
    /// Replaces the name.
    pub(super) fn map<T>(self, of: impl FnOnce(Name) -> T) -> Syscall<T> {
        match self {
            Self::Named(name) => Syscall::Named(of(name)),
            Self::Numbered(number) => Syscall::Numbered(number),
        }
    }
}

/// Returns the name of a system call of which only the number is known.
pub(super) fn unnamed(number: i32) -> String {
    format!("system call {number}")
}

/// Returns whether a function is a system call that returns 0 in the new thread, which has not called it.
pub(super) fn is_spawn(function: FunctionId, identities: &Identities) -> bool {
    let name = identities
        .function(function)
        .and_then(|it| it.name.as_deref());
    name.is_some_and(|name| SPAWN.contains(&name))
}

/// Task and place of a record of a system call.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<Task> {
    pub(super) task: Task,
    /// Its time; `None` in texts without times.
    pub(super) time: Option<Time>,
    /// Number of losses before it.
    pub(super) losses: usize,
}

/// Last record of a task's system calls.
#[derive(Clone, Copy, Debug)]
struct Last {
    is_exit: bool,
    is_numbered: bool,
    /// Whether its second record may follow.
    is_open: bool,
    number: Option<i32>,
    function: FunctionId,
    time: Option<Time>,
    losses: usize,
}

/// System calls of tasks, by the records that they have so far.
#[derive(Debug)]
pub(super) struct NumberedCalls<Task> {
    /// Functions of the names that numbers had in second records.
    functions: HashMap<i32, FunctionId>,
    tasks: HashMap<Task, Last>,
    /// Whether numbers of a task have the names that they have in others: true once a call had both records. Tasks of
    /// another ABI have numbers alone; that shows at the end of their first call.
    native: HashMap<Task, bool>,
}

/// Largest time between the two records of an entry or exit, unless its name is known to be that of its number. The
/// kernel writes one after the other, but an interrupt may come in between.
const APART: Duration = Duration(100_000);

/// Largest number of tasks.
const MOST_TASKS: usize = 1 << 20;

/// Largest number of system calls with names. Linux has less than 600.
const MOST_CALLS: usize = 1 << 12;

impl<Task> Default for NumberedCalls<Task> {
    fn default() -> Self {
        Self {
            functions: HashMap::new(),
            tasks: HashMap::new(),
            native: HashMap::new(),
        }
    }
}

impl<Task: Copy + Eq + Hash> NumberedCalls<Task> {
    /// Sets the function of a number's name.
    pub(super) fn learn(&mut self, number: i32, function: FunctionId) {
        if self.functions.len() < MOST_CALLS {
            self.functions.insert(number, function);
        }
    }

    /// Takes what the beginning of a trace shows: names of numbers, and tasks of another ABI.
    pub(super) fn learn_all(
        &mut self,
        names: &Names,
        task: impl Fn(i32) -> Task,
        mut function: impl FnMut(&str) -> FunctionId,
    ) {
        for (number, name) in &names.names {
            self.learn(*number, function(name));
        }
        let others = names.others().map(|pid| (task(pid), false));
        self.native.extend(others.take(MOST_TASKS));
    }

    /// Returns the function of the call that a task enters; `None` if the record is the second one of an entry.
    /// `unnamed` returns the function of a number without a name.
    pub(super) fn enter(
        &mut self,
        at: At<Task>,
        call: Syscall<FunctionId>,
        unnamed: impl FnOnce(i32) -> FunctionId,
    ) -> Option<FunctionId> {
        if let Some(first) = self.first(at, (false, &call)) {
            first.is_open = false;
            let (number, function) = match call {
                Syscall::Named(function) => (first.number, function),
                Syscall::Numbered(number) => (Some(number), first.function),
            };
            first.number = number;
            if let Some(number) = number {
                self.learn(number, function);
            }
            if self.native.len() < MOST_TASKS {
                self.native.insert(at.task, true);
            }
            return None;
        }
        let function = match call {
            Syscall::Named(function) => function,
            Syscall::Numbered(number) => self.function(at.task, number, unnamed),
        };
        self.set(at, (false, &call), function);
        Some(function)
    }

    /// Like [`enter`](Self::enter), for an exit. A negative number is that of the call that the task is in, if it is
    /// known: the kernel sets it within `rt_sigreturn`, and when a debugger skips a call.
    pub(super) fn exit(
        &mut self,
        at: At<Task>,
        call: Syscall<FunctionId>,
        unnamed: impl FnOnce(i32) -> FunctionId,
    ) -> Option<FunctionId> {
        if let Some(first) = self.first(at, (true, &call)) {
            first.is_open = false;
            return None;
        }
        let entered = self
            .tasks
            .get(&at.task)
            .filter(|last| !last.is_exit)
            .copied();
        let function = match (call, entered) {
            // The entry had a number alone when its name was not known yet.
            (Syscall::Named(function), Some(entered))
                if entered
                    .number
                    .is_some_and(|it| self.functions.get(&it) == Some(&function)) =>
            {
                entered.function
            }
            (Syscall::Named(function), _) => function,
            (Syscall::Numbered(number), Some(entered))
                if number < 0 || entered.number.is_none_or(|it| it == number) =>
            {
                entered.function
            }
            (Syscall::Numbered(number), _) if number < 0 => return None,
            (Syscall::Numbered(number), _) => self.function(at.task, number, unnamed),
        };
        if let Some(number) = entered.filter(|it| it.is_open).and_then(|it| it.number)
            && self.functions.contains_key(&number)
            && self.native.len() < MOST_TASKS
        {
            self.native.entry(at.task).or_insert(false);
        }
        self.set(at, (true, &call), function);
        Some(function)
    }

    /// Forgets the system call that a task is in: the task has ended.
    pub(super) fn end(&mut self, task: Task) {
        self.tasks.remove(&task);
        self.native.remove(&task);
    }

    /// Returns the first record of the entry or exit whose second one this is.
    fn first(
        &mut self,
        at: At<Task>,
        (is_exit, call): (bool, &Syscall<FunctionId>),
    ) -> Option<&mut Last> {
        let last = self.tasks.get_mut(&at.task)?;
        let (number, function) = match call {
            Syscall::Numbered(number) => (Some(*number), last.function),
            Syscall::Named(function) => (last.number, *function),
        };
        let is_other = last.is_numbered != matches!(call, Syscall::Numbered(_));
        if !last.is_open || last.is_exit != is_exit || !is_other {
            return None;
        }
        // Otherwise one of the two is the next call's, and the rest of both is missing.
        let is_it = match number.and_then(|number| self.functions.get(&number)) {
            Some(known) if !is_exit && *known != function => false,
            Some(_) if last.losses == at.losses => true,
            _ => last
                .time
                .zip(at.time)
                .is_none_or(|(last, now)| now.since(last).is_some_and(|it| it <= APART)),
        };
        is_it.then_some(last)
    }

    fn function(
        &self,
        task: Task,
        number: i32,
        unnamed: impl FnOnce(i32) -> FunctionId,
    ) -> FunctionId {
        let known = self.functions.get(&number);
        let known = known.filter(|_| self.native.get(&task) != Some(&false));
        known.copied().unwrap_or_else(|| unnamed(number))
    }

    fn set(
        &mut self,
        at: At<Task>,
        (is_exit, call): (bool, &Syscall<FunctionId>),
        function: FunctionId,
    ) {
        if self.tasks.len() >= MOST_TASKS {
            self.tasks.clear();
        }
        let number = match call {
            Syscall::Named(_) => None,
            Syscall::Numbered(number) => Some(*number),
        };
        let last = Last {
            is_exit,
            is_numbered: number.is_some(),
            is_open: true,
            number,
            function,
            time: at.time,
            losses: at.losses,
        };
        self.tasks.insert(at.task, last);
    }
}

/// Names of numbers, learned from the records at the beginning of a trace.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Last entry of each task with its time, if it has no second record yet.
    last: HashMap<i32, (Syscall<String>, Option<u64>)>,
    /// Names by number.
    names: HashMap<i32, String>,
    /// Tasks with an entry that had both records.
    native: HashSet<i32>,
    /// The number of calls of each task that had a number alone up to their exits, and whose numbers had names already.
    alone: HashMap<i32, u32>,
}

/// Number of calls with numbers alone that show a task of another ABI: a single one may have lost its name.
const ALONE: u32 = 2;

impl Names {
    /// Takes the entry of a task, at a time in nanoseconds, or in ticks of a clock that is about as fine.
    pub(super) fn enter(&mut self, task: i32, call: Syscall<&str>, time: Option<u64>) {
        let is_near = |last: Option<u64>| {
            last.zip(time)
                .is_none_or(|(last, now)| now.saturating_sub(last) <= APART.0)
        };
        let pair = match (self.last.remove(&task), call) {
            (Some((Syscall::Numbered(number), last)), Syscall::Named(name)) if is_near(last) => {
                Some((number, name.to_owned()))
            }
            (Some((Syscall::Named(name), last)), Syscall::Numbered(number)) if is_near(last) => {
                Some((number, name))
            }
            _ => None,
        };
        if let Some((number, name)) = pair {
            self.names.insert(number, name);
            self.native.insert(task);
            return;
        }
        self.last.insert(task, (call.map(str::to_owned), time));
    }

    /// Takes the exit of a task.
    pub(super) fn exit(&mut self, task: i32) {
        if let Some((Syscall::Numbered(number), _)) = self.last.remove(&task)
            && self.names.contains_key(&number)
        {
            *self.alone.entry(task).or_default() += 1;
        }
    }

    /// Returns the tasks of another ABI: those with numbers alone.
    fn others(&self) -> impl Iterator<Item = i32> {
        let alone = self.alone.iter().filter(|(_, calls)| **calls >= ALONE);
        let tasks = alone.map(|(task, _)| *task);
        tasks.filter(|task| !self.native.contains(task))
    }
}
