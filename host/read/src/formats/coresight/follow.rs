//! Calls of threads, which move from one processor to another: the edges of all sources in the order of time.
//!
//! A thread runs in one place at a time. Where times are not exact, what its next processor tells may come before the
//! last that its processor before does: that one goes first, up to where the thread's run there ends.

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
    /// Of so many sources. `moves`: their threads have the same numbers, and all have times of one clock.
    pub fn new(sources: usize, moves: bool) -> Self {
        Follow {
            stacks: Stacks::new(moves),
            unknown: HashMap::new(),
            definitions: Vec::new(),
            sources: vec![NOTHING; sources],
            last: HashMap::new(),
        }
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
            What::Edge(_) => self.sources.get(source)?.thread,
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
            What::Edge(Edge::Thread { .. } | Edge::TraceOn | Edge::Lost(_) | Edge::Replaced)
                | What::Pause
                | What::End
        )
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
        self.runs(source, &edge);
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

    fn runs(&mut self, source: usize, edge: &Edge) {
        let Some(running) = self.sources.get_mut(source) else {
            return;
        };
        match edge {
            Edge::Thread { thread } => {
                *running = Running {
                    thread: *thread,
                    is_last: false,
                };
            }
            Edge::Arrive(_) | Edge::Exception(_)
                if !running.is_last && self.stacks.moves(running.thread) =>
            {
                running.is_last = true;
                let before = self.last.insert(running.thread, source);
                let before = before.filter(|before| *before != source);
                if let Some(before) = before.and_then(|before| self.sources.get_mut(before)) {
                    before.is_last = false;
                }
            }
            _ => {}
        }
    }
}
