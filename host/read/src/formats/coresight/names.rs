//! Address spaces, threads and functions of a recording as the event model names them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kymo_coresight::perf::{self, Thread};
use kymo_event::{Addr, FunctionId, Mapping, Space, SpaceId, SpaceKind, ThreadId, Tid, TraceInfo};

use super::lane::ProcessOf;
use super::program::{Definition, NO_THREAD, Room};

/// What things of a recording are called.
pub(super) struct Names {
    spaces: HashMap<Room, SpaceId>,
    /// Files in memory; those of the kernel, or of the machine, have no process.
    mappings: Vec<perf::Mapping>,
    threads: BTreeMap<u32, Thread>,
    /// The process of a thread, where the trace is of processes.
    process_of: Option<Arc<ProcessOf>>,
}

impl Names {
    pub fn new(
        mappings: Vec<perf::Mapping>,
        threads: BTreeMap<u32, Thread>,
        process_of: Option<Arc<ProcessOf>>,
    ) -> Self {
        Names {
            spaces: HashMap::new(),
            mappings,
            threads,
            process_of,
        }
    }

    /// The space of what belongs to no thread.
    pub fn first_space(&mut self, info: &mut TraceInfo) -> SpaceId {
        let room = match self.process_of {
            Some(_) => Room::Kernel,
            None => Room::Machine,
        };
        self.space(room, info)
    }

    fn space(&mut self, room: Room, info: &mut TraceInfo) -> SpaceId {
        if let Some(known) = self.spaces.get(&room) {
            return *known;
        }
        let process = match room {
            Room::Process(process) if process != NO_THREAD => Some(process),
            _ => None,
        };
        let name = process.and_then(|process| self.threads.get(&process));
        let id = info.identities.add_space(Space {
            kind: match room {
                Room::Machine => SpaceKind::Firmware,
                Room::Kernel => SpaceKind::Kernel,
                Room::Process(_) => SpaceKind::Process,
            },
            name: name.map_or_else(String::new, |thread| thread.name.clone()),
            pid: process.map(u64::from),
            ..Space::default()
        });
        let is_here = |mapping: &&perf::Mapping| match room {
            Room::Process(_) => mapping.process.is_some() && mapping.process == process,
            Room::Machine | Room::Kernel => mapping.process.is_none(),
        };
        for mapping in self.mappings.iter().filter(is_here) {
            let mapping = Mapping {
                start: Addr(mapping.address),
                bytes: mapping.length,
                offset: mapping.offset,
                path: mapping.path.clone(),
                build_id: Some(mapping.build_id.clone()).filter(|id| !id.is_empty()),
                since: None,
            };
            info.identities.map(id, mapping);
        }
        self.spaces.insert(room, id);
        id
    }

    /// The function of a definition.
    pub fn function(&mut self, definition: &Definition, info: &mut TraceInfo) -> FunctionId {
        let space = self.space(definition.room, info);
        let identities = &mut info.identities;
        match (definition.address, &definition.name) {
            (None, name) => identities.function_named(space, name.as_deref().unwrap_or_default()),
            (Some(address), None) => identities.function_at(space, Addr(address)),
            (Some(address), Some(name)) => {
                let function = identities.function_at(space, Addr(address));
                identities.name_function(function, name);
                function
            }
        }
    }

    /// What stands for an exception among the functions of a thread.
    pub fn exception(&mut self, name: &str, space: SpaceId, info: &mut TraceInfo) -> FunctionId {
        info.identities.function_named(space, &format!("[{name}]"))
    }

    /// A thread by its number, and the space of its process.
    pub fn thread(&mut self, number: u32, info: &mut TraceInfo) -> (ThreadId, SpaceId) {
        let room = match &self.process_of {
            Some(process_of) => Room::Process(process_of(number)),
            None => Room::Machine,
        };
        let space = self.space(room, info);
        let thread = info.identities.thread(space, Tid(number.into()));
        if let Some(known) = self.threads.get(&number)
            && !known.name.is_empty()
        {
            info.identities.name_thread(thread, &known.name);
        }
        (thread, space)
    }

    /// ` of FILE` for the file that has an address, if one does.
    pub fn image_at(&self, address: u64) -> String {
        let has = |mapping: &&perf::Mapping| address.wrapping_sub(mapping.address) < mapping.length;
        let mapping = self.mappings.iter().rev().find(has);
        mapping.map_or_else(String::new, |mapping| format!(" of {}", mapping.path))
    }
}
