//! The identities of several traces in one table, each trace's under numbers of their own.

use super::{Beyond, Change, Function, Identities, Interrupt, News, Thread, next};
use crate::{
    Event, EventKind, FunctionId, InterruptId, SpaceId, SpaceKind, StreamId, ThreadId, Time,
    WholeCall,
};

/// Which numbers the things that one trace names have in a table that several traces [join](Identities::join).
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Its streams, by their numbers in the trace.
    pub streams: Vec<StreamId>,
    spaces: Vec<SpaceId>,
    functions: Vec<FunctionId>,
    threads: Vec<ThreadId>,
    interrupts: Vec<InterruptId>,
    /// What was taken over of counts.
    beyond: Beyond,
    mapped: u64,
}

/// The number of something at a place of a list; what was not reported is the first.
fn at<T: Copy + Default>(numbers: &[T], place: u32) -> T {
    let first = numbers.first().copied().unwrap_or_default();
    numbers.get(place as usize).copied().unwrap_or(first)
}

impl Numbers {
    /// The space that is this one in the trace.
    pub fn space(&self, id: SpaceId) -> SpaceId {
        at(&self.spaces, id.0)
    }

    /// The stream that is this one in the trace.
    pub fn stream(&self, id: StreamId) -> StreamId {
        at(&self.streams, id.0)
    }

    /// The function that is this one in the trace.
    pub fn function(&self, id: FunctionId) -> FunctionId {
        at(&self.functions, id.0)
    }

    /// The thread that is this one in the trace.
    pub fn thread(&self, id: ThreadId) -> ThreadId {
        at(&self.threads, id.0)
    }

    /// The interrupt that is this one in the trace.
    pub fn interrupt(&self, id: InterruptId) -> InterruptId {
        at(&self.interrupts, id.0)
    }

    /// Gives an event of the trace the numbers of the table.
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
    /// Takes over what became known of one of several traces, under new numbers, of which `numbers` takes note. `time` is what a
    /// time of that trace is in all of them; a space without a name is called `name`. Nothing else may be interned in such a
    /// table.
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
            // Two recordings of one machine: which of them a row is of is to be seen.
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
            self.name_thread(numbers.thread(id), &name);
        }
        for (id, priority, stack) in news.thread_abouts {
            let id = numbers.thread(id);
            if let Some(thread) = self.threads.get_mut(id.0 as usize) {
                (thread.priority, thread.stack) = (priority, stack);
            }
            self.change(Change::ThreadAbout(id));
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
    /// What was counted since `earlier`.
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
