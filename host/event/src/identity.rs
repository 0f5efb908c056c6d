//! Interned identities for the whole input: address spaces, functions, threads and interrupts that events name.
//!
//! A *space* is the scope of addresses, names and numbers: a kernel with its modules, a process with its mappings, a
//! firmware image, a table of names. A function is a (space, address) or a (space, name), a thread a (space, [`Tid`]),
//! an interrupt a (space, kind, [`Irq`]); each gets a dense number on first use. So two merged traces never share an
//! identity by accident, and code that works on events can index tables instead of hashing.

use std::collections::{BTreeSet, HashMap};

use crate::{Addr, FunctionId, InterruptId, Irq, SpaceId, ThreadId, Tid};

mod join;
mod space;
mod threads;

pub use join::Numbers;
pub use space::{Mapping, Space, SpaceKind};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The space of its address or name.
    pub space: SpaceId,
    /// Start address; `None` if the trace has only its name.
    pub address: Option<Addr>,
    /// Its size in bytes, if the trace records it. Symbols may provide it, too.
    pub bytes: Option<u64>,
    /// Its name, if the trace records it. Symbols may provide a better one.
    pub name: Option<Box<str>>,
    /// The mapping that contained its address when it was first seen: an index into [`Space::mappings`].
    pub mapping: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The space of its number.
    pub space: SpaceId,
    /// Its identifier on the target.
    pub tid: Tid,
    /// Its latest name, if the trace records one.
    pub name: Option<Box<str>>,
    /// Its latest priority, in the target's own order, if the trace records one.
    pub priority: Option<i64>,
    /// Its stack, if the trace records it.
    pub stack: Option<Stack>,
    /// Whether a later thread [has its number](Identities::new_thread): it has most likely ended.
    pub followed: bool,
}

/// Whether `name` is one that operating systems give to idle threads.
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
    /// Lowest address.
    pub base: Addr,
    /// Size in bytes.
    pub bytes: u64,
    /// Maximum number of bytes in use so far; `None` if the target does not record it.
    pub used: Option<u64>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The space of its number.
    pub space: SpaceId,
    /// Its kind.
    pub kind: InterruptKind,
    /// Its number, among interrupts of its kind.
    pub irq: Irq,
    /// Its latest name, if the trace records one.
    pub name: Option<Box<str>>,
}

/// Kinds of interrupts. Each has its own numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InterruptKind {
    /// A line of the interrupt controller, or a processor exception where one numbering covers both (Cortex-M); for
    /// Linux programs, a signal.
    #[default]
    Hard,
    /// Work that a kernel defers until after a hard interrupt (Linux: softirq).
    Soft,
    /// A per-CPU vector: local timer, interprocessor interrupt (x86).
    Vector,
}

/// A change that [`Identities::news`] must report: a space is new or changed, or a name or attribute changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Space(SpaceId),
    ThreadName(ThreadId),
    ThreadAbout(ThreadId),
    Followed(ThreadId),
    InterruptName(InterruptId),
}

/// Table of all identities that events name. Numbers are assigned on first use, and never change.
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
    /// Whether a copy exists, so that changes must be recorded for it.
    is_copied: bool,
    changes: Vec<Change>,
    /// Number of times that a thread was named or renamed, or got the number of an earlier one.
    renamed: u64,
    /// Number of times that a file was mapped.
    mapped: u64,
    /// Number of threads whose number a later one has.
    followed: u64,
    beyond: Beyond,
}

/// Maximum number of distinct functions. Programs have a few thousand; a browser with all its libraries has half a
/// million.
const MOST_FUNCTIONS: usize = 1 << 20;

/// Maximum number of distinct threads.
const MOST_THREADS: usize = 1 << 18;

/// Maximum number of distinct interrupts.
const MOST_INTERRUPTS: usize = 1 << 16;

/// Maximum number of distinct spaces, and of mappings per space.
const MOST_SPACES: usize = 1 << 16;

/// Maximum length of a name in bytes. Longer names are truncated.
const LONGEST_NAME: usize = 1 << 12;

/// Counts of identities beyond the limits, which bound the memory that endless input can take. Beyond its limit, each
/// kind has a single function, thread or interrupt that stands for all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beyond {
    /// Functions.
    pub functions: u64,
    /// Threads.
    pub threads: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Spaces. The last space that is distinguished represents them all.
    pub spaces: u64,
    /// Mappings, which are discarded.
    pub mappings: u64,
}

/// Two tables are equal if they name the same things.
impl PartialEq for Identities {
    fn eq(&self, other: &Self) -> bool {
        self.spaces == other.spaces
            && self.functions == other.functions
            && self.threads == other.threads
            && self.interrupts == other.interrupts
    }
}

/// Changes of [`Identities`] since the last [`news`](Identities::news).
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Spaces that are new or have changed, in order.
    spaces: Vec<(SpaceId, Space)>,
    functions: Vec<Function>,
    threads: Vec<Thread>,
    interrupts: Vec<Interrupt>,
    thread_names: Vec<(ThreadId, Option<Box<str>>)>,
    thread_abouts: Vec<(ThreadId, Option<i64>, Option<Stack>)>,
    followed: Vec<ThreadId>,
    interrupt_names: Vec<(InterruptId, Box<str>)>,
    beyond: Beyond,
    mapped: u64,
}

/// State of a copy: how many identities it has received so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    functions: usize,
    threads: usize,
    interrupts: usize,
}

/// The number of the next entry of a table.
fn next<T>(table: &[T]) -> u32 {
    // Memory does not suffice for 2^32 entries.
    u32::try_from(table.len()).unwrap_or(u32::MAX)
}

/// Truncates a name to the maximum length.
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

    /// Interns the function that begins at an address.
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

    /// Adds a function that begins at an address of a mapping, by its index in [`Space::mappings`]. Every call adds
    /// another one: callers that track mappings must remember the functions that they have added. It is distinct from
    /// the function of the next [`function_at`](Self::function_at) with the same address.
    pub fn function_in(&mut self, space: SpaceId, address: Addr, mapping: u32) -> FunctionId {
        if let Some(other) = self.other_function(space) {
            return other;
        }
        self.add_function(space, Some(address), Some(mapping), None)
    }

    /// Interns a function that has a name but no address.
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

    /// Returns the function that stands for all others once the limit is reached, and counts its use.
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

    /// Counts of identities beyond the limits.
    pub const fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// Records a change if a copy exists.
    fn change(&mut self, change: Change) {
        if self.is_copied {
            self.changes.push(change);
        }
    }

    /// Sets the name of a function that has an address.
    pub fn name_function(&mut self, function: FunctionId, name: &str) {
        let name = shortened(name);
        if function.0 as usize == MOST_FUNCTIONS - 1 {
            return;
        }
        if let Some(function) = self.functions.get_mut(function.0 as usize) {
            function.name = Some(name.into());
        }
    }

    /// Sets the code size of a newly added function, in bytes.
    pub fn size_function(&mut self, function: FunctionId, bytes: u64) {
        if let Some(function) = self.functions.get_mut(function.0 as usize) {
            function.bytes = Some(bytes);
        }
    }

    /// Interns an interrupt.
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

    /// Sets the name of a thread, also for earlier events.
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

    /// Number of times that a thread was named or renamed, or got the number of an earlier one: while it is unchanged, so
    /// are the names of all threads.
    #[inline]
    pub const fn renamed(&self) -> u64 {
        self.renamed
    }

    /// Sets the priority of a thread.
    pub fn set_priority(&mut self, thread: ThreadId, priority: i64) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.priority != Some(priority)
        {
            known.priority = Some(priority);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Sets the stack of a thread.
    pub fn set_stack(&mut self, thread: ThreadId, stack: Stack) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.stack != Some(stack)
        {
            known.stack = Some(stack);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Sets the name of an interrupt, also for earlier events.
    pub fn name_interrupt(&mut self, interrupt: InterruptId, name: &str) {
        let name = shortened(name);
        if let Some(known) = self.interrupts.get_mut(interrupt.0 as usize)
            && known.name.as_deref() != Some(name)
        {
            known.name = Some(name.into());
            self.change(Change::InterruptName(interrupt));
        }
    }

    /// Maps a file into a space. From here on its addresses belong to new functions.
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

    /// Number of times that a file was [mapped](Self::map) while events were read: while it is unchanged, so are the
    /// mappings of all spaces.
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

    /// The space with this number.
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id.0 as usize)
    }

    /// Gives mutable access to a space, and records that it changed.
    pub fn space_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.change(Change::Space(id));
        self.spaces.get_mut(id.0 as usize)
    }

    /// The function with this number.
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.0 as usize)
    }

    /// The target's identifier of a thread.
    pub fn tid(&self, id: ThreadId) -> Tid {
        self.threads
            .get(id.0 as usize)
            .map_or(Tid(0), |thread| thread.tid)
    }

    /// The space of a thread's process.
    pub fn thread_space(&self, id: ThreadId) -> Option<&Space> {
        self.space(self.threads.get(id.0 as usize)?.space)
    }

    /// The name of a thread, if known.
    pub fn thread_name(&self, id: ThreadId) -> Option<&str> {
        self.threads.get(id.0 as usize)?.name.as_deref()
    }

    /// Whether a thread is an idle thread, by its name: `idle` (Zephyr, with several CPUs `idle 00`), `IDLE` (FreeRTOS,
    /// `IDLE0`; RTEMS, here `IDLE/0`), `CPU0 IDLE` and `Idle_Task` (NuttX).
    ///
    /// Such names are reliable only where one program has the machine to itself. The idle tasks of Linux are not
    /// threads here, and a process may use any names for its threads.
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

    /// The name of an interrupt, if known.
    pub fn interrupt_name(&self, id: InterruptId) -> Option<&str> {
        self.interrupts.get(id.0 as usize)?.name.as_deref()
    }

    /// Returns the changes since `known`, and updates `known`: for a copy elsewhere.
    pub fn news(&mut self, known: &mut Known) -> News {
        // The first copy starts with all spaces.
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
                Change::ThreadName(id) => {
                    let name = self.thread_name(id).map(Box::from);
                    news.thread_names.push((id, name));
                }
                Change::ThreadAbout(id) => {
                    let thread = self.threads.get(id.0 as usize);
                    let about = thread.map(|thread| (id, thread.priority, thread.stack));
                    news.thread_abouts.extend(about);
                }
                Change::Followed(id) => news.followed.push(id),
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

    /// Applies changes reported by another table. Only this function may add identities to such a copy; the copy can
    /// have a copy in turn.
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
        for thread in news.threads {
            self.followed += u64::from(thread.followed);
            self.threads.push(thread);
        }
        self.interrupts.extend(news.interrupts);
        for (id, name) in news.thread_names {
            if let Some(thread) = self.threads.get_mut(id.0 as usize) {
                thread.name = name;
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
        for id in news.followed {
            self.follow(id);
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
