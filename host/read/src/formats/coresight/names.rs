//! Address spaces, threads and functions of a recording as the event model names them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kymo_coresight::perf::Thread;
use kymo_event::{
    Addr, Cpu, FunctionId, Mapping, Space, SpaceId, SpaceKind, ThreadId, Tid, TraceInfo,
};

use super::program::{Definition, NO_THREAD, Room};
use super::unit::ProcessOf;

/// What things of a recording are called.
pub(super) struct Names {
    spaces: HashMap<Room, SpaceId>,
    /// The first space of each process, to which its threads belong whatever they execute; and whether it has a program yet.
    processes: HashMap<u32, (SpaceId, bool)>,
    /// Functions of files, by the mapping in which they begin.
    mapped: HashMap<(SpaceId, u64, u32), FunctionId>,
    build_ids: HashMap<String, Vec<u8>>,
    threads: BTreeMap<u32, Thread>,
    /// All names of processes that had several.
    other_names: HashMap<u32, Vec<String>>,
    /// The idle task of each CPU. All have the number 0.
    idle: HashMap<Cpu, (ThreadId, SpaceId)>,
    /// The process of a thread, where the trace is of processes.
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
            process_of,
        }
    }

    /// With all names of processes that had several.
    #[must_use]
    pub fn with_names(mut self, names: HashMap<u32, Vec<String>>) -> Self {
        self.other_names = names;
        self
    }

    /// The space of what belongs to no thread.
    pub fn first_space(&mut self, info: &mut TraceInfo) -> SpaceId {
        let room = match self.process_of {
            Some(_) => Room::Kernel,
            None => Room::Machine,
        };
        self.space(room, None, info)
    }

    /// The space of a program; `name` is what its process is called while it runs that.
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
                    // The space is its process's first program's.
                    Some((_, has_program)) if !*has_program => {
                        *has_program = true;
                        first
                    }
                    _ => self.add_process(process, info),
                };
                // What it is called in the end is another program's.
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

    /// The space to which the threads of a process belong.
    fn process_space(&mut self, process: u32, info: &mut TraceInfo) -> SpaceId {
        if let Some((known, _)) = self.processes.get(&process) {
            return *known;
        }
        let id = self.add_process(process, info);
        // Threads are found by any of their process's names.
        if let (Some(names), Some(space)) = (
            self.other_names.get(&process),
            info.identities.space_mut(id),
        ) {
            space.other_names.clone_from(names);
        }
        self.processes.insert(process, (id, false));
        id
    }

    /// The mapping of a space that has an address, by its index.
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

    /// The function of a definition.
    pub fn function(&mut self, definition: &Definition, info: &mut TraceInfo) -> FunctionId {
        let name = definition.memory.process_name(definition.view);
        let space = self.space(definition.room, name, info);
        let Some(address) = definition.address else {
            let name = definition.name.as_deref().unwrap_or_default();
            return info.identities.function_named(space, name);
        };
        // What another file has at the address, before or afterwards, is another function.
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

    /// What stands for an exception among the functions of a thread.
    pub fn exception(&mut self, name: &str, space: SpaceId, info: &mut TraceInfo) -> FunctionId {
        info.identities.function_named(space, &format!("[{name}]"))
    }

    /// The idle task of a CPU, and the space that it has of its own, as their numbers are the same.
    fn idle(&mut self, cpu: Cpu, info: &mut TraceInfo) -> (ThreadId, SpaceId) {
        *self.idle.entry(cpu).or_insert_with(|| {
            let name = format!("swapper/{}", cpu.0);
            let space = Self::add_space(SpaceKind::Process, Some(0), &name, info);
            let thread = info.identities.thread(space, Tid(0));
            info.identities.name_thread(thread, &name);
            (thread, space)
        })
    }

    /// A thread that runs on a CPU by its number, and the space of its process.
    pub fn thread(
        &mut self,
        number: u32,
        cpu: Option<Cpu>,
        info: &mut TraceInfo,
    ) -> (ThreadId, SpaceId) {
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
