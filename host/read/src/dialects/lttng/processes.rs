//! Processes of a user-space trace, and their loaded files.
//!
//! Each process has its own address space. The context `vpid` identifies the process of an event, if the recording has
//! it; otherwise the whole trace is treated as one process. When recording starts in a process, the process reports its
//! loaded files (`lttng_ust_statedump:bin_info`, called `soinfo` before LTTng 2.8). Later ones are recorded when they
//! are loaded (`lttng_ust_dl:dlopen` and similar events, `lttng_ust_lib:load`).
//!
//! Functions may have been entered before a process has reported its files. So the beginning of a trace is searched
//! beforehand for files that were already loaded.

use std::borrow::Cow;
use std::collections::HashMap;

use kymo_ctf::metadata::Scope;
use kymo_ctf::{Projection, Run, Trace, Value, Visitor};
use kymo_event::{Addr, Identities, Mapping, Space, SpaceId, SpaceKind, Time};

use super::{FIRST, Lttng, Means, NAME, PID, Rule, SECOND};

/// Kind of event that reports a loaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The file was already loaded when recording started.
    Known,
    /// The file is loaded now.
    Loaded,
}

impl Object {
    /// Returns the kind of an event with this name.
    pub(super) fn of(event: &str) -> Option<Self> {
        match event {
            "lttng_ust_statedump:bin_info" | "lttng_ust_statedump:soinfo" => Some(Self::Known),
            "lttng_ust_dl:dlopen" | "lttng_ust_dl:dlmopen" | "lttng_ust_lib:load" => {
                Some(Self::Loaded)
            }
            _ => None,
        }
    }
}

/// Largest number of processes with their own space, and of files in each. Only damaged or hostile traces have more.
const MOST: usize = 1 << 12;

/// Number of records at the beginning that are searched.
const BEGINNING: usize = 100_000;

/// Processes of a trace.
#[derive(Debug)]
pub(super) struct Processes {
    /// Space of processes that the trace does not identify.
    one: SpaceId,
    by_pid: HashMap<u64, SpaceId>,
    /// Process of the last call, which most often is that of the next one.
    last: Option<(u64, SpaceId)>,
    /// Whether the trace has function calls.
    has_calls: bool,
}

impl Processes {
    pub(super) fn new(one: SpaceId, has_calls: bool) -> Self {
        Self {
            one,
            by_pid: HashMap::new(),
            last: None,
            has_calls,
        }
    }

    /// Returns the address space of a process.
    #[inline]
    pub(super) fn space(&mut self, process: Option<u64>, identities: &mut Identities) -> SpaceId {
        match (process, self.last) {
            (None, _) => self.one,
            (Some(pid), Some((known, space))) if known == pid => space,
            (Some(pid), _) => self.find(pid, identities),
        }
    }

    #[inline(never)]
    fn find(&mut self, pid: u64, identities: &mut Identities) -> SpaceId {
        let space = match self.by_pid.get(&pid) {
            Some(space) => *space,
            None if self.by_pid.len() >= MOST => return self.one,
            None => {
                let space = identities.add_space(Space {
                    kind: SpaceKind::Process,
                    pid: Some(pid),
                    ..Space::default()
                });
                self.by_pid.insert(pid, space);
                space
            }
        };
        self.last = Some((pid, space));
        space
    }

    /// Adds a file that a process has loaded, if it is not known already. Returns whether the meaning of addresses
    /// changes from here on.
    pub(super) fn load(
        &mut self,
        object: Object,
        process: Option<u64>,
        time: Option<Time>,
        file: &File<'_>,
        identities: &mut Identities,
    ) -> bool {
        let id = self.space(process, identities);
        let Some(space) = identities.space_mut(id) else {
            return false;
        };
        let is_it = |it: &Mapping| {
            (it.start, it.bytes, it.path.as_str()) == (file.start, file.bytes, &*file.path)
        };
        let mut latest = space.mappings.iter().rev();
        let is_known = match file.bytes {
            // It contains no address (a vDSO, whose size the tracer does not know).
            0 => latest.any(is_it),
            _ => latest.find(|it| it.holds(file.start)).is_some_and(is_it),
        };
        let is_named = space.text_base.is_some() && !space.name.is_empty();
        if object == Object::Known && !is_named && file.is_program() {
            space.text_base = space.text_base.or(Some(file.start));
            if space.name.is_empty() {
                space.name = file.path.to_string();
            }
        }
        if is_known || space.mappings.len() >= MOST {
            return false;
        }
        let mapping = Mapping {
            start: file.start,
            bytes: file.bytes,
            offset: 0,
            path: file.path.to_string(),
            build_id: None,
            since: time.filter(|_| object == Object::Loaded),
        };
        identities.map(id, mapping);
        true
    }

    /// Sets the build id of the file that a process has loaded at an address.
    pub(super) fn build_id<'a>(
        &mut self,
        process: Option<u64>,
        start: Addr,
        record: &kymo_ctf::Event<'a>,
        identities: &mut Identities,
    ) {
        let id = self.space(process, identities);
        let mappings = identities.space(id).map(|space| &space.mappings[..]);
        let mut last = mappings.unwrap_or_default().iter();
        let last = last.rposition(|mapping| mapping.start == start && mapping.build_id.is_none());
        let Some(last) = last else { return };
        let mut bytes = BuildId(Vec::new());
        record.visit(Scope::EventFields, &mut bytes);
        if let Some(space) = identities.space_mut(id)
            && let Some(mapping) = space.mappings.get_mut(last)
        {
            mapping.build_id = Some(bytes.0).filter(|bytes| !bytes.is_empty());
        }
    }
}

/// Collects the elements of the field `build_id`.
struct BuildId(Vec<u8>);

/// Largest build id in bytes (GNU ld creates 20 bytes; `--build-id=0x...` accepts any number).
const LONGEST_BUILD_ID: usize = 64;

impl<'a> Visitor<'a> for BuildId {
    fn value(&mut self, name: &'a str, value: Value<'a>) {
        // The elements of an array have no names.
        let byte = value.as_u64().and_then(|byte| u8::try_from(byte).ok());
        if let ("", Some(byte)) = (name, byte) {
            self.0.push(byte);
        }
    }

    fn wants_more(&self) -> bool {
        self.0.len() < LONGEST_BUILD_ID
    }
}

/// File that a process has loaded.
pub(super) struct File<'a> {
    start: Addr,
    bytes: u64,
    path: Cow<'a, str>,
}

impl<'a> File<'a> {
    /// Returns the file in a record; `None` if a field is missing.
    pub(super) fn of(
        record: &kymo_ctf::Event<'a>,
        [start, bytes]: [Option<u64>; 2],
        texts: &'a Projection,
    ) -> Option<Self> {
        let mut values = [None; 3];
        record.project(texts, &mut values);
        let path = values[NAME].as_ref()?.text()?;
        Some(Self {
            start: Addr(start?),
            bytes: bytes?,
            path,
        })
    }

    /// Returns whether it is a program, not a library.
    fn is_program(&self) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or(&self.path);
        file.starts_with(|c: char| c != '[') && !file.contains(".so")
    }
}

impl Lttng {
    /// Searches the beginning of a trace for files that were already loaded. Returns the address of the first program.
    pub(super) fn look_ahead(
        &mut self,
        trace: &Trace,
        identities: &mut Identities,
    ) -> Option<Addr> {
        let reports =
            |rule: &Rule| matches!(rule.meaning, Means::Object(Object::Known) | Means::BuildId);
        if !self.processes.has_calls || !self.rules.iter().any(|rules| rules.iter().any(reports)) {
            return None;
        }
        let mut base = None;
        let mut messages = trace.messages().ok()?;
        let mut records = 0;
        // Errors are reported when the events are read.
        while let Ok(Some((_, run))) = messages.next_run()
            && records < BEGINNING
        {
            let Run::Events(events) = run else { continue };
            records += events.len();
            let class = events.packet().info().stream_class;
            let rules = self.rules.get(class).cloned().unwrap_or_default();
            for record in events {
                let rule = rules.get(record.class_index());
                let Some(rule) = rule.filter(|rule| reports(rule)) else {
                    continue;
                };
                let process = record.numbers::<2>(&self.places).unsigned(PID);
                let numbers = record.numbers::<2>(&self.numbers);
                let numbers = [FIRST, SECOND].map(|place| numbers.unsigned(place));
                if let (Means::BuildId, Some(start)) = (rule.meaning, numbers[0]) {
                    let start = Addr(start);
                    self.processes.build_id(process, start, &record, identities);
                    continue;
                }
                let Some(file) = File::of(&record, numbers, &self.texts) else {
                    continue;
                };
                base = base.or(file.is_program().then_some(file.start));
                let known = Object::Known;
                self.processes.load(known, process, None, &file, identities);
            }
        }
        base
    }
}
