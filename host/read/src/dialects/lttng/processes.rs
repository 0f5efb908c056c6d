//! Processes of a user-space trace, and their loaded files.
//!
//! Each process has its own address space. The context `vpid` identifies the process of an event, if the recording has
//! it; otherwise the whole trace is treated as one process. When recording starts in a process, the process reports its
//! loaded files (`lttng_ust_statedump:bin_info`, called `soinfo` before LTTng 2.8). Later ones are recorded when they
//! are loaded (`lttng_ust_dl:dlopen` and similar events, `lttng_ust_lib:load`).
//!
//! Functions may have been entered before a process has reported its files. So the beginning of a trace is searched
//! beforehand for files that were already loaded.
//!
//! A later process may have the number of an earlier one. It is another process from its report of loaded files on.
//!
//! A kernel names the processes of its threads when recording starts (`lttng_statedump_process_state`), when it creates
//! them (`sched_process_fork`), and in the context `pid`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use kymo_ctf::metadata::Scope;
use kymo_ctf::{Projection, Run, Trace, Value, Visitor};
use kymo_event::{Addr, Identities, Mapping, Space, SpaceId, SpaceKind, ThreadId, Tid, Time};

use super::{FIRST, Lttng, Means, NAME, PID, Rule, SECOND, Spaces};

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

/// Largest number of files of a process. Only damaged or hostile traces have more.
const MOST: usize = 1 << 12;

/// Number of records at the beginning that are searched.
const BEGINNING: usize = 100_000;

/// Processes of a trace.
#[derive(Debug)]
pub(super) struct Processes {
    /// Space of the processes' numbers.
    machine: SpaceId,
    /// Space of functions of processes that the trace does not identify, or of the only one.
    one: SpaceId,
    /// Number of the process of the whole trace, if each process has its own.
    own: Option<u64>,
    /// First threads of processes of a kernel, which have the number of their process.
    firsts: HashMap<SpaceId, ThreadId>,
    /// Processes whose program was compared with that of the last report of loaded files.
    compared: HashSet<SpaceId>,
    /// Numbers of processes whose reports of loaded files, which begin at these times, are those of later processes.
    later: HashSet<(u64, Option<i64>)>,
    /// Whether the trace has function calls.
    has_calls: bool,
}

impl Processes {
    pub(super) fn new(spaces: Spaces, own: Option<u64>, has_calls: bool) -> Self {
        Self {
            machine: spaces.machine,
            one: spaces.code,
            own,
            firsts: HashMap::new(),
            compared: HashSet::new(),
            later: HashSet::new(),
            has_calls,
        }
    }

    /// Returns the space of a process, if events or the trace identify it.
    #[inline]
    pub(super) fn known(&self, pid: Option<u64>, identities: &mut Identities) -> Option<SpaceId> {
        match pid.filter(|pid| *pid != 0) {
            Some(pid) if self.own.is_none() => Some(identities.process(self.machine, pid)),
            _ => self.own.map(|_| self.one),
        }
    }

    /// Returns the address space of a process.
    #[inline]
    pub(super) fn space(&self, pid: Option<u64>, identities: &mut Identities) -> SpaceId {
        self.known(pid, identities).unwrap_or(self.one)
    }

    /// Sets the process of a kernel's thread, unless that is known. The first thread of a process has its number:
    /// another such thread is that of a later process.
    pub(super) fn add(&mut self, thread: ThreadId, pid: Option<u64>, identities: &mut Identities) {
        let Some(pid) = pid.filter(|pid| *pid != 0) else {
            return;
        };
        let known = identities.threads().get(thread.0 as usize);
        let Some((space, tid)) = known.map(|thread| (thread.space, thread.tid)) else {
            return;
        };
        let is_first = tid.0 == pid;
        if space != self.machine {
            if is_first {
                self.firsts.entry(space).or_insert(thread);
            }
            return;
        }
        let mut process = identities.process(self.machine, pid);
        if is_first {
            if self.firsts.contains_key(&process) {
                process = identities.new_process(self.machine, pid);
            }
            self.firsts.insert(process, thread);
        }
        identities.set_process(thread, process);
        if let Some(name) = identities.thread_name(thread).map(str::to_owned) {
            name_process(thread, &name, identities);
        }
    }

    /// Notes that a process begins to report its loaded files. Returns whether it is known to be a later one with its
    /// number.
    pub(super) fn objects_begin(
        &mut self,
        pid: Option<u64>,
        time_ns: Option<i64>,
        identities: &mut Identities,
    ) -> bool {
        if pid.is_some_and(|pid| self.later.contains(&(pid, time_ns))) {
            self.another(pid, identities);
            return true;
        }
        let space = self.space(pid, identities);
        self.compared.remove(&space);
        false
    }

    /// Returns whether a report of loaded files is that of a later process with the number of one that has reported its
    /// own: the first program in it is another one, or at another address.
    pub(super) fn is_another(
        &mut self,
        pid: Option<u64>,
        file: &File<'_>,
        identities: &mut Identities,
    ) -> bool {
        let id = self.space(pid, identities);
        if id == self.one || !file.is_program() || !self.compared.insert(id) {
            return false;
        }
        let Some(space) = identities.space(id) else {
            return false;
        };
        let mut mappings = space.mappings.iter();
        let is_known = mappings.any(|it| it.start == file.start && it.path == file.path);
        space.text_base.is_some() && !is_known
    }

    /// Adds another process with the number of an earlier one.
    pub(super) fn another(&mut self, pid: Option<u64>, identities: &mut Identities) {
        if let Some(pid) = pid {
            let space = identities.new_process(self.machine, pid);
            self.compared.insert(space);
        }
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
        if object == Object::Known && file.is_program() {
            // The name of its first thread is a shortened one.
            let is_first = space.pid.is_some() && space.text_base.is_none();
            space.text_base = space.text_base.or(Some(file.start));
            if is_first || space.name.is_empty() {
                let name = std::mem::replace(&mut space.name, file.path.to_string());
                let own = file.path.rsplit('/').next().unwrap_or_default().to_owned();
                add_name(space, name);
                add_name(space, own);
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

/// Adds another name of a process.
fn add_name(space: &mut Space, name: String) {
    /// Largest number of names.
    const MOST_NAMES: usize = 16;
    let names = &mut space.other_names;
    if !name.is_empty() && name != space.name && !names.contains(&name) && names.len() < MOST_NAMES
    {
        names.push(name);
    }
}

/// Sets the name of a thread's process, if the thread is its first one.
pub(super) fn name_process(thread: ThreadId, name: &str, identities: &mut Identities) {
    let known = identities.threads().get(thread.0 as usize);
    let known = known.map(|thread| (thread.space, Some(thread.tid.0)));
    let Some((id, tid)) = known else { return };
    let is_new = |space: &Space| {
        let is_first = space.kind == SpaceKind::Process && space.pid == tid;
        is_first && space.name != name && !space.other_names.iter().any(|other| other == name)
    };
    if !identities.space(id).is_some_and(is_new) {
        return;
    }
    if let Some(space) = identities.space_mut(id) {
        match space.text_base {
            // It has the path of its program.
            Some(_) => add_name(space, name.to_owned()),
            None => {
                let before = std::mem::replace(&mut space.name, name.to_owned());
                add_name(space, before);
            }
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

/// The latest report of the files that a process has loaded, while the beginning of a trace is searched.
#[derive(Debug, Default)]
struct Latest {
    /// When it began.
    begin: Option<i64>,
    /// The first program in the reports so far.
    program: Option<(Addr, String)>,
    /// Whether a program was compared with that since the report began.
    is_compared: bool,
    /// Whether it is of a later process with the number of the first one.
    is_later: bool,
}

impl Latest {
    /// Returns whether a file shows that this report is of another process than the one before.
    fn is_another(&mut self, file: &File<'_>) -> bool {
        if !file.is_program() || std::mem::replace(&mut self.is_compared, true) {
            return false;
        }
        let found = (file.start, file.path.to_string());
        let is_other = |known: &(Addr, String)| *known != found;
        let is_another = self.program.as_ref().is_some_and(is_other);
        if is_another || self.program.is_none() {
            self.program = Some(found);
        }
        is_another
    }
}

impl Lttng {
    /// Searches the beginning of a trace for files that were already loaded, and for the processes of threads. Returns
    /// the address of the first program.
    pub(super) fn look_ahead(
        &mut self,
        trace: &Trace,
        identities: &mut Identities,
    ) -> Option<Addr> {
        let has_calls = self.processes.has_calls;
        let reports = |rule: &Rule| match rule.meaning {
            Means::Object(Object::Known) | Means::BuildId | Means::ObjectsBegin => has_calls,
            Means::Name => true,
            _ => false,
        };
        if !self.rules.iter().any(|rules| rules.iter().any(reports)) {
            return None;
        }
        let mut base = None;
        let mut messages = trace.messages().ok()?;
        let mut records = 0;
        let mut latest = HashMap::new();
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
                let numbers = record.numbers::<2>(&self.numbers);
                let numbers = [FIRST, SECOND].map(|place| numbers.unsigned(place));
                if rule.meaning == Means::Name {
                    self.ahead(numbers, identities);
                    continue;
                }
                let process = record.numbers::<2>(&self.places).unsigned(PID);
                let report: &mut Latest = latest.entry(process).or_default();
                if rule.meaning == Means::ObjectsBegin {
                    (report.begin, report.is_compared) = (record.time_ns(), false);
                    continue;
                }
                if let (Means::BuildId, Some(start)) = (rule.meaning, numbers[0]) {
                    let start = Addr(start);
                    if report.is_later {
                        continue;
                    }
                    self.processes.build_id(process, start, &record, identities);
                    continue;
                }
                let Some(file) = File::of(&record, numbers, &self.texts) else {
                    continue;
                };
                base = base.or(file.is_program().then_some(file.start));
                if report.is_another(&file) && self.processes.own.is_none() {
                    report.is_later = true;
                    let begin = process.zip(report.begin);
                    let begin = begin.map(|(process, time)| (process, Some(time)));
                    self.processes.later.extend(begin);
                }
                if report.is_later {
                    continue;
                }
                let known = Object::Known;
                self.processes.load(known, process, None, &file, identities);
            }
        }
        base
    }

    /// Sets the process of a thread that existed when recording started.
    fn ahead(&mut self, [tid, pid]: [Option<u64>; 2], identities: &mut Identities) {
        if let (Some(tid), Some(_)) = (tid.filter(|tid| *tid != 0), pid) {
            let thread = identities.thread(self.spaces.machine, Tid(tid));
            self.processes.add(thread, pid, identities);
        }
    }
}
