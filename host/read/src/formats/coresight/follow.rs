//! Call tracking of threads that migrate between processors, over the edges of all sources in order of time.
//!
//! A thread runs on one processor at a time. With inexact times, edges on its next processor may precede the last ones
//! on the processor before. Those then go first, up to the end of the thread's run there, as far as the times of the
//! trace allow it.

use std::collections::{BTreeSet, HashMap};

use kymo_coresight::calls::{Edge, Place, Stacks, Step};
use kymo_event::{FunctionId, TraceInfo};

use super::names::Names;
use super::program::{Definition, NO_THREAD, Room, Unknown};
use super::unit::What;

/// Call tracking for the threads of a recording.
pub(super) struct Follow {
    stacks: Stacks,
    /// Code without symbols, by the key that all sources share.
    unknown: HashMap<(Room, usize), u32>,
    /// Common properties of its functions, without their addresses.
    definitions: Vec<Definition>,
    /// Running thread of each source.
    sources: Vec<Running>,
    /// Source on which each thread ran last.
    last: HashMap<u32, usize>,
    /// Without an order of sources: the source on which each thread was seen first, and whether it was seen on another
    /// one.
    seen: Option<HashMap<u32, (usize, bool)>>,
    /// Times at which a thread's number becomes that of a new thread, the latest first.
    begins: HashMap<u32, Vec<i64>>,
}

/// Running thread of a source.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: u32,
    /// Whether it is the source on which the thread ran last.
    is_last: bool,
}

const NOTHING: Running = Running {
    thread: NO_THREAD,
    is_last: false,
};

impl Follow {
    /// Creates the tracking for a number of sources. `moves` means that threads have the same numbers on all of them,
    /// and that all times are of one clock. `begins` has the times at which thread numbers become those of new threads,
    /// in order.
    pub fn new(sources: usize, moves: bool, begins: Vec<(u64, u32)>) -> Self {
        let mut of_threads: HashMap<u32, Vec<i64>> = HashMap::new();
        for (time, thread) in begins.into_iter().rev() {
            let time = i64::try_from(time).unwrap_or(i64::MAX);
            of_threads.entry(thread).or_default().push(time);
        }
        Follow {
            begins: of_threads,
            stacks: Stacks::new(moves),
            unknown: HashMap::new(),
            definitions: Vec::new(),
            sources: vec![NOTHING; sources],
            last: HashMap::new(),
            seen: None,
        }
    }

    /// Gives each source a thread of its own for these numbers, which several executed at once.
    pub fn with_concurrent(mut self, numbers: BTreeSet<u32>) -> Self {
        self.stacks = self.stacks.with_concurrent(numbers);
        self
    }

    /// Notes the sources on which each thread runs. For sources with common thread numbers and without times.
    pub fn without_order(mut self) -> Self {
        self.seen = Some(HashMap::new());
        self
    }

    /// Returns the number of threads that ran on several sources without a known order.
    pub fn unordered(&self) -> usize {
        let seen = self.seen.iter().flat_map(HashMap::values);
        seen.filter(|(_, is_on_several)| *is_on_several).count()
    }

    /// Tracks tasks that no context names. For a machine without processes.
    pub fn with_tasks(mut self) -> Self {
        self.stacks = self.stacks.with_tasks();
        self
    }

    /// Returns the number of exception returns after which any of several tasks may have continued.
    pub fn doubtful_switches(&self) -> u64 {
        self.stacks.doubtful_switches()
    }

    /// Returns the function in which a source executes, if known.
    pub fn function(&self, source: usize) -> Option<FunctionId> {
        self.stacks.function(source).map(FunctionId)
    }

    /// Returns the number of calls that were too deep to be tracked.
    pub fn too_deep(&self) -> u64 {
        self.stacks.too_deep()
    }

    /// Returns the number of code without symbols that all sources share.
    pub fn unknown(&mut self, unknown: Unknown) -> u32 {
        let next = u32::try_from(self.definitions.len()).unwrap_or(u32::MAX);
        let number = *self.unknown.entry(unknown.key).or_insert(next);
        if number == next {
            self.definitions.push(unknown.functions);
        }
        number
    }

    /// Returns the source on which the thread of a source's next edge ran last, if that is another one that has run
    /// nothing else since. Its edges go first, up to the [end](Self::ends_run) of that run.
    pub fn before(&self, source: usize, next: &What) -> Option<usize> {
        let thread = match next {
            What::Edge(Edge::Thread { thread }) | What::Runs(Some(thread)) => *thread,
            What::Edge(Edge::Arrive(_) | Edge::Exception(_)) => self.sources.get(source)?.thread,
            // When tracing starts again, the thread is still that of before: the next packet may name another one.
            _ => return None,
        };
        let last = *self.last.get(&thread)?;
        let is_there = self.sources.get(last)?.thread == thread;
        (last != source && is_there).then_some(last)
    }

    /// Returns whether a thread's run ends in front of this.
    pub fn ends_run(next: &What) -> bool {
        matches!(
            next,
            What::Edge(
                Edge::Thread { .. } | Edge::TraceOn | Edge::Lost(_) | Edge::Replaced | Edge::Reset
            ) | What::Pause
                | What::Restart
                | What::Runs(_)
                | What::End
        )
    }

    /// Handles the time at which the thread of a source may have begun, with the number of an ended one: adds the steps
    /// that end what was open in that.
    pub fn begins(&mut self, source: usize, time: i64, steps: &mut Vec<Step>) {
        if self.begins.is_empty() {
            return;
        }
        let running = self.sources.get(source);
        let times = running.and_then(|running| self.begins.get_mut(&running.thread));
        let Some(times) = times else { return };
        let begun = times.len();
        while times.pop_if(|begin| *begin <= time).is_some() {}
        if times.len() < begun {
            self.stacks.begin(source, &mut |step| steps.push(step));
        }
    }

    /// Adds the steps of an edge, with functions numbered as in events. `functions` and `unknown` map the source's own
    /// numbers.
    pub fn steps(
        &mut self,
        source: usize,
        edge: Edge,
        (functions, unknown): (&[FunctionId], &[u32]),
        (names, info): (&mut Names, &mut TraceInfo),
        steps: &mut Vec<Step>,
    ) {
        let edge = match edge {
            Edge::Arrive(mut at) => {
                let place = match at.place {
                    Place::Function { function, is_start } => {
                        let function = functions.get(function as usize);
                        function.map(|function| Place::Function {
                            function: function.0,
                            is_start,
                        })
                    }
                    Place::Unknown { code } => {
                        let code = unknown.get(code as usize).copied();
                        code.map(|code| Place::Unknown { code })
                    }
                };
                // The functions and code of a source arrive no later than the edges that name them.
                let Some(place) = place else {
                    return;
                };
                at.place = place;
                Edge::Arrive(at)
            }
            other => other,
        };
        let definitions = &self.definitions;
        let mut functions = |code: u32, address| {
            let Some(known) = definitions.get(code as usize) else {
                return u32::MAX;
            };
            let definition = Definition {
                address: Some(address),
                ..known.clone()
            };
            names.function(&definition, info).0
        };
        let mut out = |step| steps.push(step);
        self.stacks.edge(source, &edge, &mut functions, &mut out);
    }

    /// Sets the running thread of a source.
    pub fn runs(&mut self, source: usize, thread: u32) {
        if let Some(running) = self.sources.get_mut(source) {
            *running = Running {
                thread,
                is_last: false,
            };
        }
    }

    /// Notes activity of a source's thread. Returns the source that the thread left for this one.
    pub fn acts(&mut self, source: usize) -> Option<usize> {
        let running = self.sources.get_mut(source)?;
        if running.is_last {
            return None;
        }
        if !self.stacks.moves(running.thread) {
            if let Some(seen) = &mut self.seen
                && !matches!(running.thread, 0 | NO_THREAD)
            {
                running.is_last = true;
                let (first, is_on_several) = seen.entry(running.thread).or_insert((source, false));
                *is_on_several |= *first != source;
            }
            return None;
        }
        running.is_last = true;
        let thread = running.thread;
        let before = self.last.insert(thread, source)?;
        let left = self.sources.get_mut(before).filter(|_| before != source)?;
        left.is_last = false;
        (left.thread == thread).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_source_that_it_ran_on() {
        let mut follow = Follow::new(2, true, Vec::new());
        follow.runs(0, 7);
        assert_eq!(follow.acts(0), None);
        follow.runs(1, 7);
        assert_eq!(follow.acts(1), Some(0));
        assert_eq!(follow.acts(1), None);
        assert_eq!(follow.acts(0), Some(1), "it comes back");
        // Another thread runs there when it continues elsewhere.
        follow.runs(0, 8);
        assert_eq!(follow.acts(1), None);
        // Idle is not one thread.
        let mut follow = Follow::new(2, true, Vec::new());
        follow.runs(0, 0);
        follow.runs(1, 0);
        assert_eq!((follow.acts(0), follow.acts(1)), (None, None));
    }

    #[test]
    fn threads_on_several_sources_without_order_are_counted() {
        let mut follow = Follow::new(2, false, Vec::new()).without_order();
        for (source, thread) in [(0, 7), (0, 8), (0, 7), (0, 0), (1, 0), (1, 9), (1, 7)] {
            follow.runs(source, thread);
            assert_eq!(follow.acts(source), None);
        }
        assert_eq!(follow.unordered(), 1);
    }

    #[test]
    fn a_number_begins_anew_once_at_each_of_its_times() {
        let mut follow = Follow::new(1, true, vec![(10, 7), (50, 7)]);
        follow.runs(0, 7);
        let times = |follow: &Follow| follow.begins.get(&7).cloned();
        follow.begins(0, 9, &mut Vec::new());
        assert_eq!(times(&follow), Some(vec![50, 10]));
        follow.begins(0, 10, &mut Vec::new());
        assert_eq!(times(&follow), Some(vec![50]));
        follow.begins(0, 60, &mut Vec::new());
        assert_eq!(times(&follow), Some(Vec::new()));
    }
}
