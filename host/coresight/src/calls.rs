//! Elements to calls: which functions were entered and left, and which exceptions cut in.
//!
//! [`Edges`] follow the elements of one source. What a block of code says (its function, how it ends) is looked up once and
//! remembered by the block's number; a range that stays within its function costs two comparisons. [`Stacks`] take the
//! edges of all sources in the order of time, as threads move from one processor to another. Nothing is known here of
//! events or symbols: a [`Program`] says which function has an address.
//!
//! # Rules
//! - A call opens a frame that remembers where it returns to. A return to the address of a frame further out closes
//!   those above it as well: a `longjmp`, or an exception of C++. They are kept: where a function that has a caller returns
//!   behind one of them, it is a coroutine that goes on (`swapcontext`), above what is open.
//! - A jump to the start of another function is a tail call: the function ends, and the other one takes its frame.
//! - A jump or return into the middle of another function closes frames down to that function, if it is open, also those
//!   of a signal's handler (`siglongjmp`). If it is not, execution was found there: the trace does not have its call. What
//!   is jumped to returns where the function that jumped would have: the code has no symbols (the stubs that bind a
//!   function at its first call, say).
//! - Where nothing is known of the code, a function begins where a call or an exception leads, and nowhere else: where
//!   execution is found, it may be in the middle of a loop. What is found returns to a caller that is not known.
//! - An exception opens a frame of its own. Its end is a return from exceptions, or, where the handler is not traced, that
//!   tracing begins again. If execution goes on elsewhere (a signal handler), the frame of the exception is replaced by
//!   one that returns where the exception came, so that the end of the handler is known.
//!   One that comes before the first instruction (of what is traced, or of a handler) cuts into the function that it returns
//!   to all the same.
//! - Where tracing goes on behind the instruction that it paused after, nothing is missing but what was called there.
//!   A function that had returned then has ended, wherever that led.
//!   Elsewhere, and after a loss, the calls that were open may still be: [`Lost`] marks them. They stay open below what is
//!   found, until execution returns among them, or is found elsewhere after one more pause or loss.
//! - An exception that comes as the handler of another one ends (M profile) takes its place.
//! - A reset ends all calls of a processor without threads; no exception is open behind it.
//! - Where no context names a thread, an exception that returns elsewhere than to where it came has switched tasks: their
//!   stacks go on where they were interrupted.
//! - Each thread has a stack of its own, chosen by the context, on whichever processor it runs. A kernel writes its context register while it switches
//!   stacks, so that both halves of a switch fit the stacks of their threads.

mod close;
mod edges;
mod stack;
mod step;
mod switches;
mod tasks;

pub use edges::Edges;
pub use step::{Arrival, Cut, Edge, Entered, Lost, Place, Program, Step};

use std::collections::HashMap;

use stack::{Shared, Stack};
use tasks::Tasks;

/// Threads whose stacks are kept. Hostile traces have billions.
const THREADS: usize = 1 << 16;

/// Gives the function that stands for code without symbols at an address: the number of the code, and the address.
pub trait Functions: FnMut(u32, u64) -> u32 {}

impl<F: FnMut(u32, u64) -> u32> Functions for F {}

/// The stacks of all threads of a recording.
#[derive(Debug)]
pub struct Stacks {
    /// Whether a thread is the same one in all sources.
    moves: bool,
    stacks: Vec<Stack>,
    /// Where among them the stack of a thread is, and of which source, where it does not move.
    places: HashMap<(u32, Option<usize>), usize>,
    /// Of each source: its thread, and where the stack of that is, if it has one.
    sources: Vec<(u32, Option<usize>)>,
    shared: Shared,
    /// Whether exception returns switch between stacks that no context names.
    has_tasks: bool,
    /// Of each source without threads: its other stacks.
    tasks: HashMap<usize, Tasks>,
    /// Switches between tasks that are not certain.
    doubtful_switches: u64,
}

impl Stacks {
    /// No calls so far. `moves`: threads have numbers that are the same in all sources, and move between them. Thread 0 does
    /// not: it is what a processor does if it has nothing to do.
    pub fn new(moves: bool) -> Self {
        Stacks {
            moves,
            stacks: Vec::new(),
            places: HashMap::new(),
            sources: Vec::new(),
            shared: Shared::default(),
            has_tasks: false,
            tasks: HashMap::new(),
            doubtful_switches: 0,
        }
    }

    /// Where no thread is known, exception returns switch between the stacks of tasks.
    #[must_use]
    pub fn with_tasks(mut self) -> Self {
        self.has_tasks = true;
        self
    }

    /// Exception returns to an address where several tasks were interrupted, so that any of them may have gone on.
    pub fn doubtful_switches(&self) -> u64 {
        self.doubtful_switches
    }

    /// Calls that were not followed because they were more than 65,536 deep.
    pub fn too_deep(&self) -> u64 {
        self.shared.too_deep
    }

    /// Whether a thread can move from one source to another.
    pub fn moves(&self, thread: u32) -> bool {
        self.moves && !matches!(thread, 0 | u32::MAX)
    }

    /// Takes the next edge of a source, of which the functions and the code have numbers that are the same for all sources.
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
                // Their frames end with the machine's memory.
                self.tasks.remove(&source);
            }
            Edge::Lost(why) => out(Step::Lost(*why)),
            Edge::TraceOn => out(Step::TraceOn),
            Edge::Mismatch { address } => out(Step::Mismatch { address: *address }),
            Edge::Thread { .. } => {}
        }
    }

    /// The thread of a source is another one from here on than that which had its number before: the calls of that one have ended.
    pub fn begin(&mut self, source: usize, out: &mut impl FnMut(Step)) {
        let place = self.place(source);
        if let Some(stack) = self.stacks.get_mut(place) {
            stack.unwind(0, out);
            stack.forget_suspended(&mut self.shared);
        }
    }

    /// Where the stack of a source's thread is. Before it names one, that is one that does not move.
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
