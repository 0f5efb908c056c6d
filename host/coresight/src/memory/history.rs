//! Memory maps of the kernel and of each program of a recording, over time.
//!
//! A *program* is the memory of one process from its fork or exec to the next one. Files are mapped into it one after
//! another; a later mapping hides an earlier one at the same addresses. A child inherits its parent's mappings as of
//! the fork. Changes of all programs are numbered in the order of time, so a number stands for a time, and a [`View`]
//! for a program at that time.
//!
//! Contexts in the trace name the running thread, and timestamps give the time. A trace without timestamps has only the
//! begin and end of the trace unit's session; a file mapped between them counts as mapped from the first execution of
//! its code.

mod memory;
mod schedule;
mod switches;

pub(crate) use memory::Replaced;
pub use memory::{Memory, Recorded, Scene, Session};
pub use schedule::Schedule;
pub(crate) use schedule::thread_in;
pub use switches::Running;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{Image, MemorySpace};
use switches::{Ran, Switches};

/// Program as it was after one change of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct View {
    program: u32,
    change: u32,
}

impl std::hash::Hash for View {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.program) << 32 | u64::from(self.change));
    }
}

/// Number of the program that has the mappings of all programs, for code of an unknown program.
const ANY: u32 = u32::MAX;

/// Number of the program that all others share: the kernel, or the only program.
const SHARED: u32 = 0;

impl View {
    /// Number of the program. The kernel's is 0.
    pub fn program(self) -> u32 {
        self.program
    }

    /// Number of the last change.
    pub fn change(self) -> u32 {
        self.change
    }

    /// Whether the running program is unknown; the view then has the mappings of all programs.
    pub fn is_any(self) -> bool {
        self.program == ANY
    }
}

/// Image mapped into memory.
#[derive(Clone, Debug)]
struct Placed {
    image: Image,
    /// Length of the mapping in bytes; the image's file may have fewer.
    length: u64,
    /// Number of the change that mapped it.
    since: u32,
}

impl Placed {
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.image.address) < self.length
    }

    fn last(&self) -> u64 {
        let behind = self.length.saturating_sub(1);
        self.image.address.saturating_add(behind)
    }
}

/// Mappings of one program.
#[derive(Clone, Debug, Default)]
struct Program {
    process: Option<u32>,
    /// Last name of the process while it ran the program.
    name: Option<Arc<str>>,
    /// The parent's program as of the fork.
    below: Option<View>,
    /// Mappings, by address.
    placed: Vec<Placed>,
    /// For each mapping, the highest address of it and of all before it.
    reach: Vec<u64>,
    /// Numbers of its changes, in order.
    changes: Vec<u32>,
}

impl Program {
    fn sort(&mut self) {
        self.placed.sort_by_key(|placed| placed.image.address);
        let mut reach = 0;
        self.reach.clear();
        for placed in &self.placed {
            reach = reach.max(placed.last());
            self.reach.push(reach);
        }
    }

    /// Mappings that ever covered `address`, the one with the highest start address first.
    fn candidates(&self, space: MemorySpace, address: u64) -> impl Iterator<Item = &Placed> {
        let end = self
            .placed
            .partition_point(|placed| placed.image.address <= address);
        let all = self.placed.get(..end).unwrap_or_default();
        let reach = self.reach.get(..end).unwrap_or_default();
        all.iter()
            .zip(reach)
            .rev()
            .take_while(move |(_, reach)| **reach >= address)
            .map(|(placed, _)| placed)
            .filter(move |placed| placed.has(address) && placed.image.space.overlaps(space))
    }

    /// Newest mapping of `address` up to `change`.
    fn find(&self, change: u32, space: MemorySpace, address: u64) -> Option<&Placed> {
        let mut newest: Option<&Placed> = None;
        for placed in self.candidates(space, address) {
            let is_newer = newest.is_none_or(|newest| placed.since > newest.since);
            if placed.since <= change && is_newer {
                newest = Some(placed);
            }
        }
        newest
    }

    /// First change after `behind`, up to `last`, that maps bytes of an image at `address`.
    fn later(&self, (behind, last): (u32, u32), space: MemorySpace, address: u64) -> Option<u32> {
        self.candidates(space, address)
            .filter(|placed| placed.since > behind && placed.since <= last)
            .filter(|placed| address - placed.image.address < placed.image.bytes.len() as u64)
            .map(|placed| placed.since)
            .min()
    }

    fn last_change(&self, change: u32) -> u32 {
        up_to(&self.changes, change).copied().unwrap_or_default()
    }
}

/// Last of sorted numbers that is at most `limit`.
fn up_to(numbers: &[u32], limit: u32) -> Option<&u32> {
    let after = numbers.partition_point(|number| *number <= limit);
    numbers.get(after.checked_sub(1)?)
}

/// Value of the last of sorted entries whose key is at most `limit`.
fn entry_up_to<K: Copy + Ord, T: Copy>(entries: &[(K, T)], limit: K) -> Option<T> {
    let after = entries.partition_point(|(key, _)| *key <= limit);
    Some(entries.get(after.checked_sub(1)?)?.1)
}

/// Memory maps of all programs of a recording, over time.
#[derive(Clone, Debug, Default)]
pub struct History {
    programs: Vec<Program>,
    /// Time of each change. The first change has number 1.
    times: Vec<u64>,
    /// Programs of each process, with the changes that began them.
    processes: HashMap<u32, Vec<(u32, u32)>>,
    /// Processes of each thread, with the changes that assigned it to them.
    threads: HashMap<u32, Vec<(u32, u32)>>,
    /// Context switches of each CPU.
    switches: HashMap<u32, Switches>,
    /// Mappings of all programs as one program.
    any: OnceLock<Program>,
}

/// Builds a [`History`] from changes in the order of time.
#[derive(Debug)]
pub struct HistoryBuilder {
    history: History,
    /// Current names of the processes.
    names: HashMap<u32, Arc<str>>,
}

impl Default for HistoryBuilder {
    fn default() -> Self {
        HistoryBuilder {
            history: History {
                programs: vec![Program::default()],
                ..History::default()
            },
            names: HashMap::new(),
        }
    }
}

impl HistoryBuilder {
    /// Adds a change and returns its number. A time before the last change's becomes that one.
    fn change(&mut self, time: u64) -> u32 {
        let times = &mut self.history.times;
        let latest = times.last().copied().unwrap_or_default();
        times.push(time.max(latest));
        u32::try_from(times.len()).unwrap_or(u32::MAX)
    }

    /// Begins a program of `process` and returns its number.
    fn program(&mut self, change: u32, process: u32, below: Option<View>) -> u32 {
        let name = self.names.get(&process).cloned();
        let programs = &mut self.history.programs;
        let number = u32::try_from(programs.len()).unwrap_or(ANY - 1);
        programs.push(Program {
            process: Some(process),
            name,
            below,
            changes: vec![change],
            ..Program::default()
        });
        let of_process = self.history.processes.entry(process).or_default();
        of_process.push((change, number));
        number
    }

    /// Current program of `process`.
    fn current(&self, process: u32) -> Option<u32> {
        let programs = self.history.processes.get(&process)?;
        programs.last().map(|(_, program)| *program)
    }

    /// Assigns a thread to a process.
    pub fn thread(&mut self, time: u64, thread: u32, process: u32) {
        let known = self.history.threads.get(&thread);
        if known.and_then(|known| known.last()).map(|known| known.1) != Some(process) {
            let change = self.change(time);
            let of_thread = self.history.threads.entry(thread).or_default();
            of_thread.push((change, process));
        }
    }

    /// Names a process from now on.
    pub fn name(&mut self, process: u32, name: &str) {
        let name: Arc<str> = name.into();
        let program = self.current(process);
        let program = program.and_then(|it| self.history.programs.get_mut(it as usize));
        if let Some(program) = program {
            program.name = Some(Arc::clone(&name));
        }
        self.names.insert(process, name);
    }

    /// Begins a process, with its parent's memory if `parent` is given.
    pub fn fork(&mut self, time: u64, process: u32, parent: Option<u32>) {
        let change = self.change(time);
        if let Some(name) = parent.and_then(|parent| self.names.get(&parent).cloned()) {
            self.names.insert(process, name);
        }
        let below = parent.and_then(|parent| self.current(parent));
        let below = below.map(|program| {
            // A parent without mappings of its own is skipped: its memory is still its own parent's.
            match self.history.programs.get(program as usize) {
                Some(Program {
                    placed,
                    below: Some(below),
                    ..
                }) if placed.is_empty() => *below,
                _ => View { program, change },
            }
        });
        self.program(change, process, below);
    }

    /// Replaces the program of a process: all its mappings end.
    pub fn exec(&mut self, time: u64, process: u32) {
        let change = self.change(time);
        self.program(change, process, None);
    }

    /// Switches a CPU to a thread; `before` is the one that it ran up to then, if known.
    pub(crate) fn switch(&mut self, time: u64, cpu: u32, thread: Running, before: Option<Running>) {
        let of_cpu = self.history.switches.entry(cpu).or_default();
        of_cpu.push(time, thread, before);
    }

    /// Marks lost records of one CPU, or of all if `cpu` is `None`: its thread is unknown from `time` to its next
    /// switch.
    pub(crate) fn lose_switches(&mut self, time: u64, cpu: Option<u32>) {
        let switches = &mut self.history.switches;
        if let Some(cpu) = cpu {
            switches.entry(cpu).or_default();
        }
        for (of, switches) in switches {
            if cpu.is_none_or(|cpu| cpu == *of) {
                switches.push(time, Running::Unknown, None);
            }
        }
    }

    /// Maps the images of a file, each with its length in memory in bytes, into a process, or into the kernel if
    /// `process` is `None`.
    pub fn map(&mut self, time: u64, process: Option<u32>, images: Vec<(Image, u64)>) {
        let change = self.change(time);
        let program = match process {
            None => SHARED,
            Some(process) => match self.current(process) {
                Some(program) => program,
                None => self.program(change, process, None),
            },
        };
        if let Some(program) = self.history.programs.get_mut(program as usize) {
            program
                .placed
                .extend(images.into_iter().map(|(image, length)| Placed {
                    image,
                    length,
                    since: change,
                }));
            program.changes.push(change);
        }
    }

    /// Finishes the history after the last change.
    pub fn build(mut self) -> History {
        self.history.programs.iter_mut().for_each(Program::sort);
        let switches = &mut self.history.switches;
        switches.retain(|_, of_cpu| of_cpu.has_any());
        switches.values_mut().for_each(Switches::build);
        self.history
    }
}

impl History {
    /// Number of the last change up to a time.
    fn changes_at(&self, time: u64) -> u32 {
        self.times.partition_point(|at| *at <= time) as u32
    }

    /// Program with a number; for any other number, the mappings of all programs as one.
    fn program(&self, number: u32) -> &Program {
        self.programs.get(number as usize).unwrap_or_else(|| {
            self.any.get_or_init(|| {
                let placed = self.programs.iter().flat_map(|program| &program.placed);
                let mut any = Program {
                    placed: placed.cloned().collect(),
                    ..Program::default()
                };
                any.sort();
                any
            })
        })
    }

    /// Process of a thread at a change, if known.
    fn process_of(&self, thread: u32, change: u32) -> Option<u32> {
        let known = self.threads.get(&thread)?;
        // The record that assigns a thread to its process can be later than the thread's first trace.
        entry_up_to(known, change).or_else(|| known.first().map(|(_, process)| *process))
    }

    /// View of a thread after a change.
    fn view(&self, thread: Option<u32>, change: u32) -> View {
        let process = thread.and_then(|thread| self.process_of(thread, change));
        let shared = self.program(SHARED).last_change(change);
        let Some(process) = process else {
            return View {
                program: ANY,
                change,
            };
        };
        let programs = self.processes.get(&process).map(Vec::as_slice);
        let programs = programs.unwrap_or_default();
        // Before its first change, a process counts as running its first program.
        let first = programs.first().map(|(_, program)| *program);
        let Some(program) = entry_up_to(programs, change).or(first) else {
            // Kernel thread.
            return View {
                program: SHARED,
                change: shared,
            };
        };
        let own = self.program(program).last_change(change);
        View {
            program,
            change: own.max(shared),
        }
    }

    fn find(&self, view: View, space: MemorySpace, address: u64) -> Option<&Placed> {
        let mut next = Some(view);
        while let Some(view) = next {
            let program = self.program(view.program);
            if let Some(placed) = program.find(view.change, space, address) {
                return Some(placed);
            }
            next = program.below;
        }
        let shared = view.program != SHARED && view.program != ANY;
        let shared = shared.then(|| self.program(SHARED))?;
        shared.find(view.change, space, address)
    }

    /// First view after `view`, up to change `last`, in which `address` has code.
    fn later(&self, view: View, last: u32, space: MemorySpace, address: u64) -> Option<View> {
        let between = (view.change, last);
        let own = self.program(view.program);
        let mut first = own.later(between, space, address).map(|change| View {
            program: view.program,
            change,
        });
        if view.program == ANY {
            return first;
        }
        let mut consider = |program: u32, change: Option<u32>| {
            if let Some(change) = change
                && first.is_none_or(|first| change < first.change)
            {
                first = Some(View { program, change });
            }
        };
        let shared = self.program(SHARED).later(between, space, address);
        consider(view.program, shared);
        // Later programs of the same process.
        let process = own.process.and_then(|process| self.processes.get(&process));
        for (begin, program) in process.map(Vec::as_slice).unwrap_or_default() {
            if *begin > view.change && *begin <= last {
                consider(
                    *program,
                    self.program(*program).later(between, space, address),
                );
            }
        }
        first
    }

    /// The only thread whose code of this kind a CPU can have traced from `begin` to `end`, if known.
    fn running(&self, cpu: u32, begin: u64, end: u64, code: Ran) -> Option<u32> {
        self.switches.get(&cpu)?.only(begin, end, code)
    }
}
