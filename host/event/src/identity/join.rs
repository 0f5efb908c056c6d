//! Merges the identities of several traces into one table, and translates each trace's ids.

use super::{Beyond, Change, Function, Identities, Interrupt, News, Thread, next};
use crate::{
    Event, EventKind, FunctionId, InterruptId, SpaceId, SpaceKind, StreamId, ThreadId, Time,
    WholeCall,
};

/// Map from the ids of one trace to those of a table that several traces [join](Identities::join).
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Streams, indexed by their numbers in the trace.
    pub streams: Vec<StreamId>,
    spaces: Vec<SpaceId>,
    functions: Vec<FunctionId>,
    threads: Vec<ThreadId>,
    interrupts: Vec<InterruptId>,
    /// Counts of the trace that the table includes already.
    beyond: Beyond,
    mapped: u64,
}

/// The element at `place`, or the first one for ids that were not reported.
fn at<T: Copy + Default>(numbers: &[T], place: u32) -> T {
    let first = numbers.first().copied().unwrap_or_default();
    numbers.get(place as usize).copied().unwrap_or(first)
}

impl Numbers {
    /// Translates a space of the trace.
    pub fn space(&self, id: SpaceId) -> SpaceId {
        at(&self.spaces, id.0)
    }

    /// Translates a stream of the trace.
    pub fn stream(&self, id: StreamId) -> StreamId {
        at(&self.streams, id.0)
    }

    /// Translates a function of the trace.
    pub fn function(&self, id: FunctionId) -> FunctionId {
        at(&self.functions, id.0)
    }

    /// Translates a thread of the trace.
    pub fn thread(&self, id: ThreadId) -> ThreadId {
        at(&self.threads, id.0)
    }

    /// Translates an interrupt of the trace.
    pub fn interrupt(&self, id: InterruptId) -> InterruptId {
        at(&self.interrupts, id.0)
    }

    /// Translates all ids of an event of the trace.
    pub fn renumber(&self, event: &mut Event) {
        event.stream = self.stream(event.stream);
        event.thread = event.thread.map(|thread| self.thread(thread));
        match &mut event.kind {
            EventKind::Called { function, caller } => {
                *function = self.function(*function);
                if let Some(caller) = caller {
                    caller.function = self.function(caller.function);
                }
            }
            EventKind::Enter { function, .. }
            | EventKind::SpanBegin { function, .. }
            | EventKind::SpanEnd { function, .. }
            | EventKind::Exit {
                function: Some(function),
            }
            | EventKind::Call(WholeCall { function, .. }) => *function = self.function(*function),
            EventKind::Ready { thread } | EventKind::ThreadName { thread, .. } => {
                *thread = self.thread(*thread);
            }
            EventKind::IsrEnter { irq }
            | EventKind::IsrExit { irq: Some(irq) }
            | EventKind::IsrName { irq, .. } => *irq = self.interrupt(*irq),
            EventKind::Exit { function: None }
            | EventKind::IsrExit { irq: None }
            | EventKind::SwitchedIn
            | EventKind::SwitchedOut
            | EventKind::Marker { .. }
            | EventKind::Counter { .. }
            | EventKind::Costs(_)
            | EventKind::Context { .. }
            | EventKind::Recording { .. }
            | EventKind::SetJmp { .. }
            | EventKind::LongJmp { .. }
            | EventKind::WallClock { .. }
            | EventKind::Time
            | EventKind::Fact
            | EventKind::Gap(_)
            | EventKind::Other => {}
        }
    }
}

impl Identities {
    /// Merges the changes of one of several traces, and records its new ids in `numbers`. `time` converts a time of
    /// that trace to the merged time line; spaces without a name are named `name`. Only this function may add
    /// identities to such a table.
    pub fn join(
        &mut self,
        news: News,
        numbers: &mut Numbers,
        name: &str,
        time: impl Fn(Time) -> Time,
    ) {
        for (id, mut space) in news.spaces {
            if space.name.is_empty() {
                name.clone_into(&mut space.name);
            }
            // Two recordings of one machine have kernels with the same name: distinguish them.
            let mut others =
                self.spaces.iter().enumerate().filter(|(place, _)| {
                    !numbers.spaces.iter().any(|own| own.0 as usize == *place)
                });
            if space.kind == SpaceKind::Kernel && others.any(|(_, it)| it.name == space.name) {
                space.name = format!("{} of {name}", space.name);
            }
            for mapping in &mut space.mappings {
                mapping.since = mapping.since.map(&time);
            }
            let known = numbers.spaces.get(id.0 as usize).copied();
            let id = known.unwrap_or_else(|| {
                let id = SpaceId(next(&self.spaces));
                numbers.spaces.push(id);
                id
            });
            match self.spaces.get_mut(id.0 as usize) {
                Some(known) => *known = space,
                None => self.spaces.push(space),
            }
            self.change(Change::Space(id));
        }
        for function in news.functions {
            numbers.functions.push(FunctionId(next(&self.functions)));
            self.functions.push(Function {
                space: numbers.space(function.space),
                ..function
            });
        }
        for thread in news.threads {
            numbers.threads.push(ThreadId(next(&self.threads)));
            self.followed += u64::from(thread.followed);
            self.threads.push(Thread {
                space: numbers.space(thread.space),
                ..thread
            });
        }
        for interrupt in news.interrupts {
            numbers.interrupts.push(InterruptId(next(&self.interrupts)));
            self.interrupts.push(Interrupt {
                space: numbers.space(interrupt.space),
                ..interrupt
            });
        }
        for (id, name) in news.thread_names {
            match name {
                Some(name) => self.name_thread(numbers.thread(id), &name),
                None => self.unname_thread(numbers.thread(id)),
            }
        }
        for (id, priority, stack) in news.thread_abouts {
            let id = numbers.thread(id);
            if let Some(thread) = self.threads.get_mut(id.0 as usize) {
                (thread.priority, thread.stack) = (priority, stack);
            }
            self.change(Change::ThreadAbout(id));
        }
        for id in news.followed {
            self.follow(numbers.thread(id));
        }
        for (id, name) in news.interrupt_names {
            self.name_interrupt(numbers.interrupt(id), &name);
        }
        self.beyond.add(news.beyond.since(numbers.beyond));
        self.mapped += news.mapped - numbers.mapped;
        (numbers.beyond, numbers.mapped) = (news.beyond, news.mapped);
    }
}

impl Beyond {
    /// The counts added since `earlier`.
    fn since(self, earlier: Self) -> Self {
        Self {
            functions: self.functions - earlier.functions,
            threads: self.threads - earlier.threads,
            interrupts: self.interrupts - earlier.interrupts,
            spaces: self.spaces - earlier.spaces,
            mappings: self.mappings - earlier.mappings,
        }
    }

    fn add(&mut self, more: Self) {
        self.functions += more.functions;
        self.threads += more.threads;
        self.interrupts += more.interrupts;
        self.spaces += more.spaces;
        self.mappings += more.mappings;
    }
}
