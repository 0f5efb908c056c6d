//! Counts the elements of one source.

use std::collections::HashMap;

use super::{Counts, Jump, Run};
use crate::element::{Element, Range};
use crate::flow::{AddressHash, Block, BlockId, Blocks, Execution, Path, PathId, Sink};
use crate::instruction::Class;
use crate::memory::{Code, View};
use crate::selection::Tracker;

/// Executions of a block by what its last instruction did: not taken, and taken.
type Executions = [u64; 2];

/// Executions of one thread in one stream.
#[derive(Debug, Default)]
struct Thread {
    number: Option<u32>,
    /// Executions by block.
    blocks: HashMap<u64, Executions, AddressHash>,
    /// Executions by path.
    paths: HashMap<u64, u64, AddressHash>,
    /// Ranges that are no block: those cut by exceptions, and of counted instructions.
    others: HashMap<(View, u64, u64), Run>,
    jumps: HashMap<(View, u64, u64), u64, AddressHash>,
}

/// Recently counted jump.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    thread: usize,
    view: View,
    from: u64,
    to: u64,
    /// Count since it was added to the cache.
    count: u64,
}

/// Size of the cache of recent jumps, a power of two.
const RECENT: usize = 512;

/// Counts elements.
pub(super) struct Counter<'a> {
    tracker: Tracker<'a>,
    pub counts: Counts,
    threads: Vec<Thread>,
    /// Indexes in `threads`, by number.
    by_number: HashMap<Option<u32>, usize>,
    /// Index of the current thread in `threads`.
    thread: usize,
    /// Executions of the current thread since it was switched to, by block, and the executed blocks. A vector for each
    /// thread would take memory quadratic in the size of the trace.
    executions: Vec<Executions>,
    touched: Vec<BlockId>,
    /// The same by path.
    paths: Vec<u64>,
    touched_paths: Vec<PathId>,
    /// Cache of recent jumps, which saves the map lookup: there are few distinct jumps, each taken many times.
    recent: Vec<Recent>,
    /// Address of a taken branch until its target is known.
    branch: Option<u64>,
}

impl<'a> Counter<'a> {
    pub fn new(tracker: Tracker<'a>) -> Self {
        let number = tracker.thread();
        Counter {
            tracker,
            counts: Counts::default(),
            threads: vec![Thread {
                number,
                ..Thread::default()
            }],
            by_number: HashMap::from([(number, 0)]),
            thread: 0,
            executions: Vec::new(),
            touched: Vec::new(),
            paths: Vec::new(),
            touched_paths: Vec::new(),
            recent: vec![Recent::default(); RECENT],
            branch: None,
        }
    }

    /// Copy of the state without any counts.
    pub fn emptied(&self) -> Self {
        let mut counter = Counter {
            branch: self.branch,
            ..Self::new(self.tracker.clone())
        };
        counter.counts.doubts = self.counts.doubts.emptied();
        counter
    }

    /// Whether both count the following trace in the same way.
    pub fn is_like(&self, other: &Self) -> bool {
        self.branch == other.branch
            && self.tracker == other.tracker
            && self.counts.doubts.emptied() == other.counts.doubts.emptied()
    }

    /// Takes the executions of a block out of the vector.
    fn take(executions: &mut [Executions], block: BlockId) -> Executions {
        let known = executions.get_mut(block as usize);
        known.map(std::mem::take).unwrap_or_default()
    }

    /// Credits the pending executions to the current thread.
    fn settle(&mut self) {
        let known = &mut self.threads[self.thread].paths;
        for path in self.touched_paths.drain(..) {
            if let Some(count) = self.paths.get_mut(path as usize) {
                *known.entry(u64::from(path)).or_default() += std::mem::take(count);
            }
        }
        let known = &mut self.threads[self.thread].blocks;
        for block in self.touched.drain(..) {
            let [not_taken, taken] = Self::take(&mut self.executions, block);
            let sum = known.entry(u64::from(block)).or_default();
            sum[0] += not_taken;
            sum[1] += taken;
        }
    }

    fn other_thread(&mut self) {
        self.settle();
        let number = self.tracker.thread();
        let next = self.threads.len();
        self.thread = *self.by_number.entry(number).or_insert(next);
        if self.thread == next {
            self.threads.push(Thread {
                number,
                ..Thread::default()
            });
        }
    }

    /// Handles arrival at an address, the target of a pending branch.
    #[inline]
    fn arrive(&mut self, to: u64) {
        if let Some(from) = self.branch.take() {
            self.jump(from, to);
        }
    }

    #[inline]
    fn jump(&mut self, from: u64, to: u64) {
        let (thread, view) = (self.thread, self.counts.doubts.view);
        let hash = (from ^ to.rotate_left(8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let recent = &mut self.recent[(hash >> 40) as usize % RECENT];
        let is_same = (recent.from, recent.to) == (from, to);
        if !is_same || (recent.thread, recent.view) != (thread, view) {
            let next = Recent {
                thread,
                view,
                from,
                to,
                count: 0,
            };
            let before = std::mem::replace(recent, next);
            Self::keep(&mut self.threads, before);
        }
        self.recent[(hash >> 40) as usize % RECENT].count += 1;
    }

    /// Credits an evicted recent jump to its thread.
    fn keep(threads: &mut [Thread], jump: Recent) {
        if let Some(thread) = threads.get_mut(jump.thread)
            && jump.count > 0
        {
            let key = (jump.view, jump.from, jump.to);
            *thread.jumps.entry(key).or_default() += jump.count;
        }
    }

    /// Counts executed blocks. The sums of ranges and instructions are computed at the end.
    #[inline]
    fn count(&mut self, executions: &[Execution]) {
        for execution in executions {
            let block = execution.block() as usize;
            let Some(counts) = self.executions.get_mut(block) else {
                self.count_first(*execution);
                continue;
            };
            if counts[0] | counts[1] == 0 {
                self.touched.push(execution.block());
            }
            counts[usize::from(execution.is_taken())] += 1;
        }
    }

    /// Counts executed blocks of which only some may be selected.
    fn ranges(&mut self, at: usize, executions: &[Execution], all: &[Block]) {
        for execution in executions {
            if let Some(block) = all.get(execution.block() as usize) {
                let range = block.range(execution.block(), execution.is_taken());
                self.element(at, Element::Range(range));
            }
        }
    }

    /// Counts the first execution of a block beyond the end of the vector.
    #[cold]
    fn count_first(&mut self, execution: Execution) {
        let len = (execution.block() as usize + 1)
            .next_power_of_two()
            .max(256);
        self.executions.resize(len, [0; 2]);
        self.count(&[execution]);
    }

    /// Counts a range that is no block.
    fn other(&mut self, range: &Range) {
        self.counts.ranges += 1;
        self.counts.instructions += u64::from(range.count);
        if range.is_taken && matches!(range.last.class, Class::Branch | Class::Indirect) {
            self.branch = Some(range.end.wrapping_sub(u64::from(range.last.size)));
        }
        let view = self.counts.doubts.view;
        let thread = &mut self.threads[self.thread];
        let run = Run {
            thread: thread.number,
            view,
            start: range.start,
            end: range.end,
            count: range.count,
            isa: range.isa,
            last: range.last,
            target: None,
            executions: 0,
            taken: 0,
        };
        let key = (view, range.start, range.end);
        let run = thread.others.entry(key).or_insert(run);
        run.executions += 1;
        run.taken += u64::from(range.is_taken && run.is_branch());
    }

    /// Sums up the executions of all threads; `blocks` are the flow's.
    pub fn finish<C: Code>(mut self, blocks: &Blocks<C>) -> Counts {
        for jump in std::mem::take(&mut self.recent) {
            Self::keep(&mut self.threads, jump);
        }
        // The current thread is often the only one. Its pending executions need no maps.
        let mut pending_paths = std::mem::take(&mut self.touched_paths);
        let mut pending = std::mem::take(&mut self.touched);
        let mut runs = Vec::new();
        let mut sums: Vec<Executions> = vec![[0; 2]; blocks.all().len()];
        for (index, thread) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            let is_current = index == self.thread;
            let mut touched = Vec::new();
            let mut add = |block: BlockId, counts: Executions| {
                if let Some(sum) = sums.get_mut(block as usize) {
                    if *sum == [0; 2] {
                        touched.push(block);
                    }
                    sum[0] += counts[0];
                    sum[1] += counts[1];
                }
            };
            let paths = thread.paths.into_iter();
            let mut paths: Vec<_> = paths.map(|(id, count)| (id as PathId, count)).collect();
            if is_current {
                let count = |id| (id, self.paths.get(id as usize).copied().unwrap_or_default());
                paths.extend(pending_paths.drain(..).map(count));
            }
            for (path, count) in paths {
                let path = blocks.paths().get(path);
                let executions = path.map(|path| blocks.paths().executions(path));
                for execution in executions.unwrap_or_default() {
                    let mut counts = [0; 2];
                    counts[usize::from(execution.is_taken())] = count;
                    add(execution.block(), counts);
                }
            }
            for (block, counts) in thread.blocks {
                add(block as BlockId, counts);
            }
            if is_current {
                for block in pending.drain(..) {
                    add(block, Self::take(&mut self.executions, block));
                }
            }
            for id in touched {
                let counts = Self::take(&mut sums, id);
                runs.push(self.run(thread.number, blocks.get(id), counts));
            }
            runs.extend(thread.others.into_values());
            let jumps = thread.jumps.into_iter();
            self.counts
                .jumps
                .extend(jumps.map(|((view, from, to), count)| Jump {
                    thread: thread.number,
                    view,
                    from,
                    to,
                    count,
                }));
        }
        self.counts.runs = runs;
        self.counts.merge();
        self.counts
    }

    /// Run of a block.
    fn run(&mut self, thread: Option<u32>, block: &Block, [not_taken, taken]: Executions) -> Run {
        let all = taken + not_taken;
        self.counts.ranges += all;
        self.counts.instructions += all * u64::from(block.count);
        let class = block.last.class;
        let is_branch = matches!(class, Class::Branch | Class::Indirect);
        Run {
            thread,
            view: block.view,
            start: block.start,
            end: block.end,
            count: block.count,
            isa: block.isa,
            last: block.last,
            target: (class == Class::Branch).then_some(block.target),
            executions: all,
            taken: if is_branch { taken } else { 0 },
        }
    }
}

impl Sink for Counter<'_> {
    fn unknown_target(&mut self, at: usize) {
        self.element(at, Element::AddressUnknown);
    }

    #[inline]
    fn path(
        &mut self,
        at: usize,
        id: PathId,
        path: &Path,
        executions: &[Execution],
        all: &[Block],
    ) {
        if self.tracker.counts_instructions() {
            return self.ranges(at, executions, all);
        }
        if !self.tracker.is_selected() {
            return;
        }
        self.counts.doubts.arrive(at, path.start);
        if let Some(from) = self.branch {
            self.jump(from, path.start);
        }
        let index = id as usize;
        if index >= self.paths.len() {
            self.paths.resize((index + 1).next_power_of_two(), 0);
        }
        let count = &mut self.paths[index];
        if *count == 0 {
            self.touched_paths.push(id);
        }
        *count += 1;
        self.branch = path.branch();
        if path.falls {
            self.counts.doubts.fall(path.end);
        } else {
            self.counts.doubts.reach(path.end);
        }
    }

    fn blocks(&mut self, at: usize, executions: &[Execution], all: &[Block]) {
        if self.tracker.counts_instructions() {
            return self.ranges(at, executions, all);
        }
        if !self.tracker.is_selected() {
            return;
        }
        let block = |execution: &Execution| all.get(execution.block() as usize);
        if let Some(first) = executions.first().and_then(block) {
            self.counts.doubts.arrive(at, first.start);
            self.arrive(first.start);
        }
        self.count(executions);
        if let Some(last) = executions.last()
            && let Some(block) = block(last)
        {
            let is_branch = matches!(block.last.class, Class::Branch | Class::Indirect);
            if last.is_taken() && is_branch && !block.has_no_opcode {
                self.counts.doubts.reach(block.end);
            } else {
                let range = block.range(last.block(), last.is_taken());
                self.counts.doubts.range(at, &range);
            }
            if last.is_taken() && block.last.class == Class::Indirect {
                self.branch = Some(block.end.wrapping_sub(u64::from(block.last.size)));
            }
        }
    }

    fn element(&mut self, at: usize, element: Element) {
        if let Element::Range(range) = &element {
            if self.tracker.execute(range.count) {
                self.arrive(range.start);
                self.counts.doubts.range(at, range);
                match range.block {
                    Some(id) => {
                        self.count(&[Execution::new(id, range.is_taken)]);
                        if range.is_taken && range.last.class == Class::Indirect {
                            self.branch = Some(range.end.wrapping_sub(u64::from(range.last.size)));
                        }
                    }
                    None => self.other(range),
                }
            } else {
                self.branch = None;
            }
            return;
        }
        if self.tracker.take(at, &element) {
            self.other_thread();
        }
        if !self.tracker.is_selected() {
            self.branch = None;
            return;
        }
        match element {
            Element::RangeWithoutPath { start, count, .. } => {
                self.arrive(start);
                self.counts.without_path += u64::from(count);
            }
            Element::Exception { return_address, .. } => {
                // If a taken branch is pending, nothing ran after it: the exception interrupts the branch's target.
                self.arrive(return_address.unwrap_or_default());
                self.counts.exceptions += 1;
            }
            Element::NotAccessible { address, .. } => self.arrive(address),
            Element::NoSync(_) | Element::TraceOn { .. } | Element::End(_) => self.arrive(0),
            _ => {}
        }
        self.counts.doubts.element(at, &element);
    }

    fn memory(&mut self, view: View) {
        self.counts.doubts.view = view;
    }
}
