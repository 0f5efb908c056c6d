//! Calls of threads, which move from one processor to another: the edges of all sources in the order of time.
//!
//! A thread runs in one place at a time. Where times are not exact, what its next processor tells may come before the
//! last that its processor before does: that one goes first, up to where the thread's run there ends, as far as the times
//! of the trace allow it.

use std::collections::HashMap;

use kymo_coresight::calls::{Edge, Place, Stacks, Step};
use kymo_event::{FunctionId, TraceInfo};

use super::names::Names;
use super::program::{Definition, NO_THREAD, Room, Unknown};
use super::unit::What;

/// Follows the threads of a recording.
pub(super) struct Follow {
    stacks: Stacks,
    /// Code without symbols, by what is the same for all sources.
    unknown: HashMap<(Room, usize), u32>,
    /// What its functions have but for their addresses.
    definitions: Vec<Definition>,
    /// By source.
    sources: Vec<Running>,
    /// The source on which each thread ran last.
    last: HashMap<u32, usize>,
    /// Where nothing gives the order of sources: the source on which each thread was seen first, and whether it was seen on
    /// another one.
    seen: Option<HashMap<u32, (usize, bool)>>,
    /// By thread: when its number becomes that of a new one, the latest first.
    begins: HashMap<u32, Vec<i64>>,
}

/// What a source runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: u32,
    /// It is the source on which the thread ran last.
    is_last: bool,
}

const NOTHING: Running = Running {
    thread: NO_THREAD,
    is_last: false,
};

impl Follow {
    /// Of so many sources. `moves`: their threads have the same numbers, and all have times of one clock. `begins`: when the
    /// numbers of threads become those of new ones, in the order of time.
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

    /// Notes on which sources each thread runs: threads have the same numbers in all of them, and there are no times.
    pub fn without_order(mut self) -> Self {
        self.seen = Some(HashMap::new());
        self
    }

    /// How many threads ran on several sources of which nothing gives the order.
    pub fn unordered(&self) -> usize {
        let seen = self.seen.iter().flat_map(HashMap::values);
        seen.filter(|(_, is_on_several)| *is_on_several).count()
    }

    /// Follows tasks that no context names: what runs is a machine's, without processes.
    pub fn with_tasks(mut self) -> Self {
        self.stacks = self.stacks.with_tasks();
        self
    }

    /// Exception returns after which any of several tasks may have gone on.
    pub fn doubtful_switches(&self) -> u64 {
        self.stacks.doubtful_switches()
    }

    /// Calls that were not followed because they were too deep.
    pub fn too_deep(&self) -> u64 {
        self.stacks.too_deep()
    }

    /// The number of code without symbols that is the same for all sources.
    pub fn unknown(&mut self, unknown: Unknown) -> u32 {
        let next = u32::try_from(self.definitions.len()).unwrap_or(u32::MAX);
        let number = *self.unknown.entry(unknown.key).or_insert(next);
        if number == next {
            self.definitions.push(unknown.functions);
        }
        number
    }

    /// The source on which the thread of a source's next edge ran last, if that is another one that has run nothing else
    /// since. Its edges go first, up to the [end](Self::ends_run) of that run.
    pub fn before(&self, source: usize, next: &What) -> Option<usize> {
        let thread = match next {
            What::Edge(Edge::Thread { thread }) => *thread,
            What::Edge(Edge::Arrive(_) | Edge::Exception(_)) => self.sources.get(source)?.thread,
            // Where tracing begins again, the thread is still that of before: the next packet may name another one.
            _ => return None,
        };
        let last = *self.last.get(&thread)?;
        let is_there = self.sources.get(last)?.thread == thread;
        (last != source && is_there).then_some(last)
    }

    /// Whether the run of a thread ends before this.
    pub fn ends_run(next: &What) -> bool {
        matches!(
            next,
            What::Edge(
                Edge::Thread { .. } | Edge::TraceOn | Edge::Lost(_) | Edge::Replaced | Edge::Reset
            ) | What::Pause
                | What::Restart
                | What::End
        )
    }

    /// Where the thread of a source may have begun by this time, with the number of one that has ended: the steps that end
    /// what that had open.
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

    /// The steps of an edge, of which the functions are numbered as events number them. `functions` and `unknown` are what
    /// the source's own numbers stand for.
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
                // A source's functions and code come no later than the edges that name them.
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

    /// A source runs this thread from here on.
    pub fn runs(&mut self, source: usize, thread: u32) {
        if let Some(running) = self.sources.get_mut(source) {
            *running = Running {
                thread,
                is_last: false,
            };
        }
    }

    /// The thread of a source does something there. Gives the source that it left for this one.
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
        // Another one runs there when it goes on elsewhere.
        follow.runs(0, 8);
        assert_eq!(follow.acts(1), None);
        // What has nothing to do is not one thread.
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
