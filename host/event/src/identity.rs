//! What events name, interned once for the whole input: address spaces, functions, threads and
//! interrupts.
//!
//! A *space* is where addresses, names and numbers mean something: a kernel with its modules, a
//! process with its mappings, a firmware image, a table of names. A function is a (space, address) or
//! a (space, name), a thread a (space, [`Tid`]), an interrupt a (space, kind, [`Irq`]); each gets a dense
//! number on first sight. So two traces that are read as one never share an identity by accident, and
//! whatever works on events can index tables in the place of looking things up.

use std::collections::{BTreeSet, HashMap};

use crate::{Addr, FunctionId, InterruptId, Irq, SpaceId, ThreadId, Tid};

mod join;
mod space;

pub use join::Numbers;
pub use space::{Mapping, Space, SpaceKind};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it lies.
    pub space: SpaceId,
    /// Where it begins; `None` if the trace knows its name alone.
    pub address: Option<Addr>,
    /// Its size in bytes, if the trace tells. Symbols may know it, too.
    pub bytes: Option<u64>,
    /// Its name, if the trace tells. Symbols may know a better one.
    pub name: Option<Box<str>>,
    /// The mapping that held its address when it was first met: an index into
    /// [`Space::mappings`].
    pub mapping: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Where its number was given.
    pub space: SpaceId,
    /// How the target identifies it.
    pub tid: Tid,
    /// Its latest name, if the trace tells one.
    pub name: Option<Box<str>>,
    /// Its latest priority, in the target's own order, if the trace tells one.
    pub priority: Option<i64>,
    /// Its stack, if the trace tells of it.
    pub stack: Option<Stack>,
}

/// Whether systems call an idle thread so.
fn names_idle(name: &str) -> bool {
    let without_number = |text: &'_ str| -> usize {
        let text = text.trim_end_matches(|c: char| c.is_ascii_digit());
        text.trim_end_matches(['/', ' ', '_', '-']).len()
    };
    let name = name.trim();
    let (name, alone) = match name.split_once(' ') {
        Some((processor, "IDLE")) => (processor, &["cpu"][..]),
        _ => (name, &["idle", "idle task", "idle_task"][..]),
    };
    let word = name.get(..without_number(name)).unwrap_or_default();
    alone.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its lowest address.
    pub base: Addr,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that were in use at most so far; `None` if the target does not tell.
    pub used: Option<u64>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Where its number was given.
    pub space: SpaceId,
    /// What kind it is of.
    pub kind: InterruptKind,
    /// Its number among those of its kind.
    pub irq: Irq,
    /// Its latest name, if the trace tells one.
    pub name: Option<Box<str>>,
}

/// The kinds of interrupts, each with numbers of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InterruptKind {
    /// A line of the interrupt controller, or a processor's exception where one number counts both
    /// (Cortex-M); on Linux programs, a signal.
    #[default]
    Hard,
    /// Work that a kernel puts off until after a hard interrupt (Linux: softirq).
    Soft,
    /// A processor's own vector: local timer, interprocessor interrupt (x86).
    Vector,
}

/// Something that is not known yet has been given an identity, or its name has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Space(SpaceId),
    ThreadName(ThreadId),
    ThreadAbout(ThreadId),
    InterruptName(InterruptId),
}

/// All that events name. Numbers are given in the order of first sight, and never change.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    spaces: Vec<Space>,
    functions: Vec<Function>,
    threads: Vec<Thread>,
    interrupts: Vec<Interrupt>,
    by_address: HashMap<(SpaceId, Addr), FunctionId>,
    by_name: HashMap<(SpaceId, Box<str>), FunctionId>,
    by_tid: HashMap<(SpaceId, Tid), ThreadId>,
    by_irq: HashMap<(SpaceId, InterruptKind, Irq), InterruptId>,
    /// Whether there is a copy, to which changes are reported.
    is_copied: bool,
    changes: Vec<Change>,
    /// How often a thread got a name, or another one.
    renamed: u64,
    /// How often a file was mapped.
    mapped: u64,
    beyond: Beyond,
}

/// Functions that are told apart. Programs have a few thousand; a browser with all its libraries has half of these.
const MOST_FUNCTIONS: usize = 1 << 20;

/// Threads that are told apart.
const MOST_THREADS: usize = 1 << 18;

/// Interrupts that are told apart.
const MOST_INTERRUPTS: usize = 1 << 16;

/// Spaces that are told apart, and mappings of each that are kept.
const MOST_SPACES: usize = 1 << 16;

/// The longest name, in bytes. What is longer is cut.
const LONGEST_NAME: usize = 1 << 12;

/// How often something was named beyond what is told apart, so that input without end takes no memory without end:
/// all of that is one function, one thread, one interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beyond {
    /// Functions.
    pub functions: u64,
    /// Threads.
    pub threads: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Spaces: what is in those is in the last one that is told apart.
    pub spaces: u64,
    /// Mappings, which are not kept.
    pub mappings: u64,
}

/// Two are the same if they name the same things.
impl PartialEq for Identities {
    fn eq(&self, other: &Self) -> bool {
        self.spaces == other.spaces
            && self.functions == other.functions
            && self.threads == other.threads
            && self.interrupts == other.interrupts
    }
}

/// What became known in [`Identities`] since the last [`news`](Identities::news).
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Those that are new or have changed, in order.
    spaces: Vec<(SpaceId, Space)>,
    functions: Vec<Function>,
    threads: Vec<Thread>,
    interrupts: Vec<Interrupt>,
    thread_names: Vec<(ThreadId, Box<str>)>,
    thread_abouts: Vec<(ThreadId, Option<i64>, Option<Stack>)>,
    interrupt_names: Vec<(InterruptId, Box<str>)>,
    beyond: Beyond,
    mapped: u64,
}

/// How much of [`Identities`] somebody knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    functions: usize,
    threads: usize,
    interrupts: usize,
}

/// The number of the next entry of a table.
fn next<T>(table: &[T]) -> u32 {
    // There is no memory for 2^32 of them.
    u32::try_from(table.len()).unwrap_or(u32::MAX)
}

/// A name as far as it is kept.
fn shortened(name: &str) -> &str {
    match name.len() {
        0..=LONGEST_NAME => name,
        _ => {
            let mut ends = (0..=LONGEST_NAME).rev();
            let end = ends.find(|end| name.is_char_boundary(*end));
            name.get(..end.unwrap_or(0)).unwrap_or_default()
        }
    }
}

impl Identities {
    /// Adds a space.
    pub fn add_space(&mut self, space: Space) -> SpaceId {
        let id = SpaceId(next(&self.spaces));
        if self.spaces.len() >= MOST_SPACES {
            self.beyond.spaces += 1;
            return SpaceId(id.0 - 1);
        }
        self.spaces.push(space);
        self.change(Change::Space(id));
        id
    }

    /// The function that begins at an address.
    pub fn function_at(&mut self, space: SpaceId, address: Addr) -> FunctionId {
        if let Some(known) = self.by_address.get(&(space, address)) {
            return *known;
        }
        if let Some(other) = self.other_function(space) {
            return other;
        }
        let mapping = self.space(space).and_then(|space| {
            let found = space.mappings.iter().rposition(|it| it.holds(address));
            u32::try_from(found?).ok()
        });
        let id = self.add_function(space, Some(address), mapping, None);
        self.by_address.insert((space, address), id);
        id
    }

    /// A function that begins at an address of a mapping, by its index in [`Space::mappings`]. Each call makes another one:
    /// a caller that knows mappings knows the functions that it has asked for. Up to the next
    /// [`function_at`](Self::function_at) of the address, that is another one.
    pub fn function_in(&mut self, space: SpaceId, address: Addr, mapping: u32) -> FunctionId {
        if let Some(other) = self.other_function(space) {
            return other;
        }
        self.add_function(space, Some(address), Some(mapping), None)
    }

    /// The function of a name that has no address.
    pub fn function_named(&mut self, space: SpaceId, name: &str) -> FunctionId {
        let name = shortened(name);
        if let Some(known) = self.by_name.get(&(space, name.into())) {
            return *known;
        }
        if let Some(other) = self.other_function(space) {
            return other;
        }
        let id = self.add_function(space, None, None, Some(name));
        self.by_name.insert((space, name.into()), id);
        id
    }

    /// The function that stands for all that are not told apart, if there are so many; counts it.
    fn other_function(&mut self, space: SpaceId) -> Option<FunctionId> {
        let last = MOST_FUNCTIONS - 1;
        if self.functions.len() < last {
            return None;
        }
        self.beyond.functions += 1;
        if self.functions.len() == last {
            self.add_function(space, None, None, Some("(other functions)"));
        }
        Some(FunctionId(next(&self.functions) - 1))
    }

    fn add_function(
        &mut self,
        space: SpaceId,
        address: Option<Addr>,
        mapping: Option<u32>,
        name: Option<&str>,
    ) -> FunctionId {
        let id = FunctionId(next(&self.functions));
        self.functions.push(Function {
            space,
            address,
            bytes: None,
            name: name.map(Box::from),
            mapping,
        });
        id
    }

    /// How often something was named beyond what is told apart.
    pub const fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// Takes note of a change, if it is to be reported to a copy.
    fn change(&mut self, change: Change) {
        if self.is_copied {
            self.changes.push(change);
        }
    }

    /// Names a function that has an address.
    pub fn name_function(&mut self, function: FunctionId, name: &str) {
        let name = shortened(name);
        if function.0 as usize == MOST_FUNCTIONS - 1 {
            return;
        }
        if let Some(function) = self.functions.get_mut(function.0 as usize) {
            function.name = Some(name.into());
        }
    }

    /// Says how many bytes of code a function has that was just made.
    pub fn size_function(&mut self, function: FunctionId, bytes: u64) {
        if let Some(function) = self.functions.get_mut(function.0 as usize) {
            function.bytes = Some(bytes);
        }
    }

    /// The thread that its target identifies so.
    pub fn thread(&mut self, space: SpaceId, tid: Tid) -> ThreadId {
        let next = ThreadId(next(&self.threads));
        if self.threads.len() >= MOST_THREADS {
            let other = ThreadId(next.0 - 1);
            let known = self.by_tid.get(&(space, tid)).copied();
            self.beyond.threads += u64::from(known.is_none());
            return known.unwrap_or(other);
        }
        let id = *self.by_tid.entry((space, tid)).or_insert(next);
        if id == next {
            self.threads.push(Thread {
                space,
                tid,
                name: None,
                priority: None,
                stack: None,
            });
        }
        id
    }

    /// The interrupt of this kind and number.
    pub fn interrupt(&mut self, space: SpaceId, kind: InterruptKind, irq: Irq) -> InterruptId {
        let next = InterruptId(next(&self.interrupts));
        if self.interrupts.len() >= MOST_INTERRUPTS {
            let other = InterruptId(next.0 - 1);
            let known = self.by_irq.get(&(space, kind, irq)).copied();
            self.beyond.interrupts += u64::from(known.is_none());
            return known.unwrap_or(other);
        }
        let id = *self.by_irq.entry((space, kind, irq)).or_insert(next);
        if id == next {
            self.interrupts.push(Interrupt {
                space,
                kind,
                irq,
                name: None,
            });
        }
        id
    }

    /// Names a thread. The name holds for what happened before, too.
    pub fn name_thread(&mut self, thread: ThreadId, name: &str) {
        let name = shortened(name);
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.name.as_deref() != Some(name)
        {
            known.name = Some(name.into());
            self.renamed += 1;
            self.change(Change::ThreadName(thread));
        }
    }

    /// How often a thread got a name, or another one: as long as this stays, so do the names of all threads.
    #[inline]
    pub const fn renamed(&self) -> u64 {
        self.renamed
    }

    /// Tells the priority of a thread.
    pub fn set_priority(&mut self, thread: ThreadId, priority: i64) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.priority != Some(priority)
        {
            known.priority = Some(priority);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Tells of the stack of a thread.
    pub fn set_stack(&mut self, thread: ThreadId, stack: Stack) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.stack != Some(stack)
        {
            known.stack = Some(stack);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Names an interrupt. The name holds for what happened before, too.
    pub fn name_interrupt(&mut self, interrupt: InterruptId, name: &str) {
        let name = shortened(name);
        if let Some(known) = self.interrupts.get_mut(interrupt.0 as usize)
            && known.name.as_deref() != Some(name)
        {
            known.name = Some(name.into());
            self.change(Change::InterruptName(interrupt));
        }
    }

    /// A file is mapped into a space. What was at these addresses before is another function from here
    /// on.
    pub fn map(&mut self, space: SpaceId, mapping: Mapping) {
        let space_of = self.spaces.get(space.0 as usize);
        if space_of.is_some_and(|space| space.mappings.len() >= MOST_SPACES) {
            self.beyond.mappings += 1;
            return;
        }
        self.by_address
            .retain(|(of, address), _| *of != space || !mapping.holds(*address));
        if let Some(space) = self.space_mut(space) {
            space.mappings.push(mapping);
        }
        self.mapped += 1;
    }

    /// How often files were [mapped](Self::map) while events were read: as long as this stays, so does what is known of
    /// the files in all spaces.
    pub const fn mapped(&self) -> u64 {
        self.mapped
    }

    /// The spaces, by [`SpaceId`].
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// The functions, by [`FunctionId`].
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The threads, by [`ThreadId`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The interrupts, by [`InterruptId`].
    pub fn interrupts(&self) -> &[Interrupt] {
        &self.interrupts
    }

    /// A space of this number.
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id.0 as usize)
    }

    /// To change what is known of a space.
    pub fn space_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.change(Change::Space(id));
        self.spaces.get_mut(id.0 as usize)
    }

    /// The function of this number.
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.0 as usize)
    }

    /// How the target identifies a thread.
    pub fn tid(&self, id: ThreadId) -> Tid {
        self.threads
            .get(id.0 as usize)
            .map_or(Tid(0), |thread| thread.tid)
    }

    /// The space of a thread's process.
    pub fn thread_space(&self, id: ThreadId) -> Option<&Space> {
        self.space(self.threads.get(id.0 as usize)?.space)
    }

    /// The name of a thread, if it is known.
    pub fn thread_name(&self, id: ThreadId) -> Option<&str> {
        self.threads.get(id.0 as usize)?.name.as_deref()
    }

    /// Whether a thread is one that runs when no other can, by its name: `idle` (Zephyr, with several CPUs `idle 00`), `IDLE`
    /// (FreeRTOS, `IDLE0`; RTEMS, here `IDLE/0`), `CPU0 IDLE` and `Idle_Task` (NuttX).
    ///
    /// Names mean that where one program has the machine to itself. The idle tasks of Linux are no threads here, and a
    /// process calls its threads what it likes.
    pub fn is_idle(&self, id: ThreadId) -> bool {
        let Some(thread) = self.threads.get(id.0 as usize) else {
            return false;
        };
        let firmware = |space: &Space| space.kind == SpaceKind::Firmware;
        self.space(thread.space).is_none_or(firmware)
            && thread.name.as_deref().is_some_and(names_idle)
    }

    /// The number of an interrupt on its target.
    pub fn irq(&self, id: InterruptId) -> Irq {
        self.interrupts
            .get(id.0 as usize)
            .map_or(Irq(0), |interrupt| interrupt.irq)
    }

    /// The name of an interrupt, if it is known.
    pub fn interrupt_name(&self, id: InterruptId) -> Option<&str> {
        self.interrupts.get(id.0 as usize)?.name.as_deref()
    }

    /// What became known since `known`, which is moved on: for a copy that is kept elsewhere.
    pub fn news(&mut self, known: &mut Known) -> News {
        // A first copy begins with all of them.
        let all = if self.is_copied {
            0
        } else {
            next(&self.spaces)
        };
        let mut spaces: BTreeSet<u32> = (0..all).collect();
        let mut news = News {
            functions: self
                .functions
                .get(known.functions..)
                .unwrap_or(&[])
                .to_vec(),
            threads: self.threads.get(known.threads..).unwrap_or(&[]).to_vec(),
            interrupts: self
                .interrupts
                .get(known.interrupts..)
                .unwrap_or(&[])
                .to_vec(),
            beyond: self.beyond,
            mapped: self.mapped,
            ..News::default()
        };
        self.is_copied = true;
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Space(id) => {
                    spaces.insert(id.0);
                }
                Change::ThreadName(id) => news
                    .thread_names
                    .extend(self.thread_name(id).map(|name| (id, name.into()))),
                Change::ThreadAbout(id) => {
                    let thread = self.threads.get(id.0 as usize);
                    let about = thread.map(|thread| (id, thread.priority, thread.stack));
                    news.thread_abouts.extend(about);
                }
                Change::InterruptName(id) => news
                    .interrupt_names
                    .extend(self.interrupt_name(id).map(|name| (id, name.into()))),
            }
        }
        let spaces = spaces.into_iter().filter_map(|id| {
            let space = self.spaces.get(id as usize)?;
            Some((SpaceId(id), space.clone()))
        });
        news.spaces = spaces.collect();
        *known = Known {
            functions: self.functions.len(),
            threads: self.threads.len(),
            interrupts: self.interrupts.len(),
        };
        news
    }

    /// Takes over what became known elsewhere. Nothing else may be interned in such a copy; there can be a copy of it in turn.
    pub fn learn(&mut self, news: News) {
        for (id, space) in news.spaces {
            match self.spaces.get_mut(id.0 as usize) {
                Some(known) => *known = space,
                None => self.spaces.push(space),
            }
            self.change(Change::Space(id));
        }
        self.beyond = news.beyond;
        self.mapped = news.mapped;
        self.functions.extend(news.functions);
        self.threads.extend(news.threads);
        self.interrupts.extend(news.interrupts);
        for (id, name) in news.thread_names {
            if let Some(thread) = self.threads.get_mut(id.0 as usize) {
                thread.name = Some(name);
            }
            self.renamed += 1;
            self.change(Change::ThreadName(id));
        }
        for (id, priority, stack) in news.thread_abouts {
            if let Some(thread) = self.threads.get_mut(id.0 as usize) {
                (thread.priority, thread.stack) = (priority, stack);
            }
            self.change(Change::ThreadAbout(id));
        }
        for (id, name) in news.interrupt_names {
            if let Some(interrupt) = self.interrupts.get_mut(id.0 as usize) {
                interrupt.name = Some(name);
            }
            self.change(Change::InterruptName(id));
        }
    }
}

#[cfg(test)]
mod tests;
