//! Address spaces, threads and functions of a recording in the event model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kymo_coresight::perf::Thread;
use kymo_event::{
    Addr, Cpu, FunctionId, Mapping, Space, SpaceId, SpaceKind, ThreadId, Tid, TraceInfo,
};

use super::program::{Definition, NO_THREAD, Room};
use super::unit::ProcessOf;

/// Identities of a recording.
pub(super) struct Names {
    spaces: HashMap<Room, SpaceId>,
    /// First space of each process, to which its threads belong whatever they execute, and whether it has a program
    /// yet.
    processes: HashMap<u32, (SpaceId, bool)>,
    /// Functions of files, by the mapping in which they begin.
    mapped: HashMap<(SpaceId, u64, u32), FunctionId>,
    build_ids: HashMap<String, Vec<u8>>,
    threads: BTreeMap<u32, Thread>,
    /// All names of processes with several names.
    other_names: HashMap<u32, Vec<String>>,
    /// Idle task of each CPU. All have the number 0.
    idle: HashMap<Cpu, (ThreadId, SpaceId)>,
    /// Numbers that several sources executed at once.
    concurrent: BTreeSet<u32>,
    /// Threads of these numbers, by the number and the source.
    of_sources: HashMap<(u32, usize), (ThreadId, SpaceId)>,
    /// Returns the process of a thread, if the trace is of processes.
    process_of: Option<Arc<ProcessOf>>,
}

impl Names {
    pub fn new(
        build_ids: HashMap<String, Vec<u8>>,
        threads: BTreeMap<u32, Thread>,
        process_of: Option<Arc<ProcessOf>>,
    ) -> Self {
        Names {
            spaces: HashMap::new(),
            processes: HashMap::new(),
            mapped: HashMap::new(),
            build_ids,
            threads,
            other_names: HashMap::new(),
            idle: HashMap::new(),
            concurrent: BTreeSet::new(),
            of_sources: HashMap::new(),
            process_of,
        }
    }

    /// Adds all names of processes with several names.
    #[must_use]
    pub fn with_names(mut self, names: HashMap<u32, Vec<String>>) -> Self {
        self.other_names = names;
        self
    }

    /// Gives each source a thread of its own for these numbers, which several executed at once.
    #[must_use]
    pub fn with_concurrent(mut self, numbers: BTreeSet<u32>) -> Self {
        self.concurrent = numbers;
        self
    }

    /// Returns the space of events without a thread.
    pub fn first_space(&mut self, info: &mut TraceInfo) -> SpaceId {
        let room = match self.process_of {
            Some(_) => Room::Kernel,
            None => Room::Machine,
        };
        self.space(room, None, info)
    }

    /// Returns the space of a program. `name` is the name of its process while it runs the program.
    fn space(&mut self, room: Room, name: Option<&str>, info: &mut TraceInfo) -> SpaceId {
        if let Some(known) = self.spaces.get(&room) {
            return *known;
        }
        let id = match room {
            Room::Machine => Self::add_space(SpaceKind::Firmware, None, "", info),
            Room::Kernel => Self::add_space(SpaceKind::Kernel, None, "", info),
            Room::Process { process, .. } => {
                let first = self.process_space(process, info);
                let space = match self.processes.get_mut(&process) {
                    // A process's first program gets the process's space.
                    Some((_, has_program)) if !*has_program => {
                        *has_program = true;
                        first
                    }
                    _ => self.add_process(process, info),
                };
                // The final name of the process is that of a later program.
                if let (Some(name), Some(space)) = (name, info.identities.space_mut(space)) {
                    name.clone_into(&mut space.name);
                }
                space
            }
        };
        self.spaces.insert(room, id);
        id
    }

    fn add_space(
        kind: SpaceKind,
        process: Option<u32>,
        name: &str,
        info: &mut TraceInfo,
    ) -> SpaceId {
        info.identities.add_space(Space {
            kind,
            name: name.to_owned(),
            pid: process.map(u64::from),
            ..Space::default()
        })
    }

    fn add_process(&self, process: u32, info: &mut TraceInfo) -> SpaceId {
        let known = self.threads.get(&process);
        let name = known.map_or("", |thread| &thread.name);
        let process = Some(process).filter(|process| *process != NO_THREAD);
        Self::add_space(SpaceKind::Process, process, name, info)
    }

    /// Returns the space of a process's threads.
    fn process_space(&mut self, process: u32, info: &mut TraceInfo) -> SpaceId {
        if let Some((known, _)) = self.processes.get(&process) {
            return *known;
        }
        let id = self.add_process(process, info);
        // Threads can be selected by any name of their process.
        if let (Some(names), Some(space)) = (
            self.other_names.get(&process),
            info.identities.space_mut(id),
        ) {
            space.other_names.clone_from(names);
        }
        self.processes.insert(process, (id, false));
        id
    }

    /// Returns the index of the mapping of a space that contains an address.
    fn mapping(
        &self,
        space: SpaceId,
        definition: &Definition,
        address: u64,
        info: &mut TraceInfo,
    ) -> Option<u32> {
        let path = definition.file.as_deref()?;
        let known = info.identities.space(space)?;
        let is_it = |mapping: &Mapping| mapping.holds(Addr(address)) && mapping.path == path;
        if let Some(index) = known.mappings.iter().position(is_it) {
            return u32::try_from(index).ok();
        }
        let (start, bytes, offset) = definition.memory.mapped(definition.view, address)?;
        let mapping = Mapping {
            start: Addr(start),
            bytes,
            offset,
            path: path.to_owned(),
            build_id: self.build_ids.get(path).cloned(),
            since: None,
        };
        let index = u32::try_from(known.mappings.len()).ok()?;
        info.identities.map(space, mapping);
        Some(index)
    }

    /// Returns the function of a definition.
    pub fn function(&mut self, definition: &Definition, info: &mut TraceInfo) -> FunctionId {
        let name = definition.memory.process_name(definition.view);
        let space = self.space(definition.room, name, info);
        let Some(address) = definition.address else {
            let name = definition.name.as_deref().unwrap_or_default();
            return info.identities.function_named(space, name);
        };
        // A function of another file that was at this address before or later is a separate one.
        let function = match self.mapping(space, definition, address, info) {
            None => info.identities.function_at(space, Addr(address)),
            Some(mapping) => match self.mapped.get(&(space, address, mapping)) {
                Some(known) => *known,
                None => {
                    let identities = &mut info.identities;
                    let function = identities.function_in(space, Addr(address), mapping);
                    self.mapped.insert((space, address, mapping), function);
                    function
                }
            },
        };
        if let Some(name) = &definition.name {
            info.identities.name_function(function, name);
        }
        if let Some(bytes) = definition.bytes {
            info.identities.size_function(function, bytes);
        }
        function
    }

    /// Returns the function that represents an exception within a thread.
    pub fn exception(&mut self, name: &str, space: SpaceId, info: &mut TraceInfo) -> FunctionId {
        info.identities.function_named(space, &format!("[{name}]"))
    }

    /// Returns the idle task of a CPU and its space. Idle tasks need separate spaces because their numbers are the
    /// same.
    fn idle(&mut self, cpu: Cpu, info: &mut TraceInfo) -> (ThreadId, SpaceId) {
        *self.idle.entry(cpu).or_insert_with(|| {
            let name = format!("swapper/{}", cpu.0);
            let space = Self::add_space(SpaceKind::Process, Some(0), &name, info);
            let thread = info.identities.thread(space, Tid(0));
            info.identities.name_thread(thread, &name);
            (thread, space)
        })
    }

    /// Returns a source's thread of a number that several sources executed at once. As with idle tasks, each needs a
    /// space of its own, because their numbers are the same; what it executes is in the space that all share.
    fn of_source(
        &mut self,
        number: u32,
        (source, cpu): (usize, Option<Cpu>),
        info: &mut TraceInfo,
    ) -> (ThreadId, SpaceId) {
        if let Some(known) = self.of_sources.get(&(number, source)) {
            return *known;
        }
        let place = match (cpu, info.streams.get(source)) {
            (Some(cpu), _) => format!("cpu {}", cpu.0),
            (None, Some(stream)) => stream.name.clone(),
            (None, None) => format!("source {source}"),
        };
        let process = self.process_of.as_ref().map(|of| of(number));
        let (shared, own) = match process {
            Some(process) => (
                self.process_space(process, info),
                Self::add_space(SpaceKind::Process, Some(process), &place, info),
            ),
            None => (
                self.space(Room::Machine, None, info),
                Self::add_space(SpaceKind::Firmware, None, &place, info),
            ),
        };
        let thread = info.identities.thread(own, Tid(number.into()));
        let name = format!("thread {number}, {place}");
        info.identities.name_thread(thread, &name);
        self.of_sources.insert((number, source), (thread, shared));
        (thread, shared)
    }

    /// Returns a thread that runs on a source's CPU by its number, and the space of its process.
    pub fn thread(
        &mut self,
        number: u32,
        (source, cpu): (usize, Option<Cpu>),
        info: &mut TraceInfo,
    ) -> (ThreadId, SpaceId) {
        if self.concurrent.contains(&number) {
            return self.of_source(number, (source, cpu), info);
        }
        if let (0, Some(cpu), Some(_)) = (number, cpu, &self.process_of) {
            return self.idle(cpu, info);
        }
        let process = self.process_of.as_ref().map(|of| of(number));
        let space = match process {
            Some(process) => self.process_space(process, info),
            None => self.space(Room::Machine, None, info),
        };
        let thread = info.identities.thread(space, Tid(number.into()));
        if let Some(known) = self.threads.get(&number)
            && !known.name.is_empty()
        {
            info.identities.name_thread(thread, &known.name);
        }
        (thread, space)
    }
}
