//! Call stacks from trace elements: function entries and exits, and exceptions.
//!
//! [`Edges`] follow the elements of one source. They look up the properties of a code block (its function, how it ends)
//! once and cache them by the block's number; a range that stays within its function costs two comparisons. [`Stacks`]
//! take the edges of all sources in the order of time, because threads move between processors. This module is
//! independent of events and symbols: a [`Program`] maps addresses to functions.
//!
//! # Rules
//! - A call opens a frame that stores its return address. A return to the return address of an outer frame also closes
//!   all frames above it (a `longjmp`, or a C++ exception). The closed frames are kept: if a function with a known
//!   caller later returns to where the innermost of them would have, a coroutine resumes (`swapcontext`), and its
//!   frames open again on top of the stack.
//! - A jump to the start of another function is a tail call: the function ends, and the other one takes over its frame.
//! - A jump or return into the middle of another function closes frames down to that function if it is open, including
//!   the frames of a signal handler (`siglongjmp`). If it is not open, its call is missing in the trace, and the
//!   function is entered as [`Entered::Found`]. After a jump it inherits the return address of the function that
//!   jumped, because such code has no symbols (the stubs that bind a function at its first call, for example).
//! - In code without symbols, functions begin only at the targets of calls and exceptions: any other address may be in
//!   the middle of a loop. Functions found there have an unknown caller.
//! - An exception opens a frame of its own. It ends with an exception return or, if the handler is not traced, when
//!   tracing resumes. If execution continues elsewhere (a signal handler), a frame that returns to the interrupted
//!   address replaces the exception's frame, so that the end of the signal handler is known. An exception before the
//!   first instruction (of the trace, or of a handler) still interrupts the function that it returns to.
//! - If tracing resumes right after the instruction at which it paused, only the calls made there are missing. A
//!   function whose return was the last instruction before the pause has ended, whatever its target. If tracing resumes
//!   elsewhere, and after a loss, the open calls are uncertain: [`Lost`] marks them. They stay open below the functions
//!   found later, until execution returns into them, or is found elsewhere after another pause or loss.
//! - An exception taken at the end of another one's handler (tail-chaining, M profile) replaces that exception.
//! - A reset ends all calls of a processor without threads, and all its exceptions.
//! - If no context names a thread, an exception return to another address than the interrupted one is a task switch:
//!   the stack of the task continues from where it was interrupted.
//! - Each thread has a stack of its own, selected by the context and independent of the processor. Kernels write the
//!   context register while they switch stacks, so both halves of a switch fit the stacks of their threads.

mod close;
mod edges;
mod hidden;
mod stack;
mod step;
mod switches;
mod tasks;

pub use edges::Edges;
pub use step::{Arrival, Cut, Edge, Entered, Lost, Place, Program, Step};

use std::collections::{BTreeSet, HashMap};

use stack::{Shared, Stack};
use tasks::Tasks;

/// Limit of threads with a stack. Hostile traces have billions.
const THREADS: usize = 1 << 16;

/// Maps code without symbols to a function, by the number of the code and the function's address.
pub trait Functions: FnMut(u32, u64) -> u32 {}

impl<F: FnMut(u32, u64) -> u32> Functions for F {}

/// Call stacks of all threads of a recording.
#[derive(Debug)]
pub struct Stacks {
    /// Whether thread numbers mean the same threads in all sources.
    moves: bool,
    /// Numbers that are those of a thread of each source.
    concurrent: BTreeSet<u32>,
    stacks: Vec<Stack>,
    /// Index in `stacks`, by thread and, for threads that do not move, by source.
    places: HashMap<(u32, Option<usize>), usize>,
    /// For each source, its thread and the index of the thread's stack, if it has one.
    sources: Vec<(u32, Option<usize>)>,
    shared: Shared,
    /// Whether exception returns switch between stacks that no context names.
    has_tasks: bool,
    /// For each source without threads, its other stacks.
    tasks: HashMap<usize, Tasks>,
    /// Number of uncertain task switches.
    doubtful_switches: u64,
}

impl Stacks {
    /// Creates empty stacks. `moves` tells that thread numbers mean the same threads in all sources, and that threads
    /// move between them; except for thread 0, the idle task of each processor.
    pub fn new(moves: bool) -> Self {
        Stacks {
            moves,
            concurrent: BTreeSet::new(),
            stacks: Vec::new(),
            places: HashMap::new(),
            sources: Vec::new(),
            shared: Shared::default(),
            has_tasks: false,
            tasks: HashMap::new(),
            doubtful_switches: 0,
        }
    }

    /// Gives each source a thread of its own for these numbers, which [several executed at
    /// once](crate::selection::concurrent).
    #[must_use]
    pub fn with_concurrent(mut self, numbers: BTreeSet<u32>) -> Self {
        self.concurrent = numbers;
        self
    }

    /// Makes exception returns switch between the stacks of tasks if no thread is known.
    #[must_use]
    pub fn with_tasks(mut self) -> Self {
        self.has_tasks = true;
        self
    }

    /// Number of exception returns to an address at which several tasks were interrupted, so that any of them may have
    /// resumed.
    pub fn doubtful_switches(&self) -> u64 {
        self.doubtful_switches
    }

    /// Number of calls not followed because they were more than 65,536 deep.
    pub fn too_deep(&self) -> u64 {
        self.shared.too_deep
    }

    /// Whether a thread can move from one source to another.
    pub fn moves(&self, thread: u32) -> bool {
        self.moves && !matches!(thread, 0 | u32::MAX) && !self.concurrent.contains(&thread)
    }

    /// Applies the next edge of a source. Function and code numbers must be the same for all sources.
    pub fn edge(
        &mut self,
        source: usize,
        edge: &Edge,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        if let Edge::Thread { thread } = *edge {
            self.switch(source, thread);
            return out(Step::Thread { thread });
        }
        let place = self.place(source);
        let is_unnamed = self.sources.get(source).is_none_or(|it| it.0 == u32::MAX);
        let switches = match edge {
            Edge::Arrive(at) if is_unnamed => self.switch_task(source, place, at, out),
            _ => false,
        };
        let Some(stack) = self.stacks.get_mut(place) else {
            return;
        };
        match edge {
            Edge::Arrive(at) if switches => stack.go_on(at, &mut self.shared, functions, out),
            Edge::Arrive(at) => stack.arrive(at, &mut self.shared, functions, out),
            Edge::Exception(cut) => stack.exception(cut, &mut self.shared, out),
            Edge::Replaced => {
                stack.forget_suspended(&mut self.shared);
                stack.unwind(0, out);
            }
            Edge::Returned => stack.leave_untraced(out),
            Edge::Reset => {
                out(Step::Reset);
                stack.forget_suspended(&mut self.shared);
                stack.unwind(0, out);
                // A reset also ends the frames of the other tasks.
                self.tasks.remove(&source);
            }
            Edge::Lost(why) => out(Step::Lost(*why)),
            Edge::TraceOn => out(Step::TraceOn),
            Edge::Mismatch { address, .. } => out(Step::Mismatch { address: *address }),
            Edge::Thread { .. } => {}
        }
    }

    /// Function in which a source executes: that of the innermost open frame of its thread, if any.
    pub fn function(&self, source: usize) -> Option<u32> {
        let (_, place) = self.sources.get(source)?;
        self.stacks.get((*place)?)?.function()
    }

    /// Ends all calls of the source's thread, because a new thread now has its number.
    pub fn begin(&mut self, source: usize, out: &mut impl FnMut(Step)) {
        let place = self.place(source);
        if let Some(stack) = self.stacks.get_mut(place) {
            stack.unwind(0, out);
            stack.forget_suspended(&mut self.shared);
        }
    }

    /// Index of the stack of a source's thread. Before the source names a thread, it has a stack of its own.
    fn place(&mut self, source: usize) -> usize {
        let known = self.sources.get(source).copied();
        let (thread, place) = known.unwrap_or((u32::MAX, None));
        place.unwrap_or_else(|| self.switch(source, thread))
    }

    fn switch(&mut self, source: usize, thread: u32) -> usize {
        if self.places.len() >= THREADS {
            self.places.clear();
            self.stacks.clear();
            self.tasks.clear();
            self.shared.suspended = 0;
            for (_, place) in &mut self.sources {
                *place = None;
            }
        }
        if self.sources.len() <= source {
            self.sources.resize(source + 1, (u32::MAX, None));
        }
        let key = (thread, (!self.moves(thread)).then_some(source));
        let next = self.stacks.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.stacks.push(Stack::default());
        }
        self.sources[source] = (thread, Some(place));
        place
    }
}
