//! The processes of a user-space trace, and which files they have loaded where.
//!
//! Each process has addresses of its own: which process an event is of says the context `vpid`, if the
//! recording has it; else all of a trace are taken for one. When recording begins in a process it tells which
//! files it has loaded by then (`lttng_ust_statedump:bin_info`, called `soinfo` before LTTng 2.8); later ones
//! are told when they are loaded (`lttng_ust_dl:dlopen` and the like, `lttng_ust_lib:load`).
//!
//! Functions may have been entered before a process has told where they are. So the beginning of a trace is
//! looked through beforehand for files that were there already.

use std::collections::HashMap;

use kymo_ctf::{Message, Trace};
use kymo_event::{Addr, Identities, Mapping, Space, SpaceId, SpaceKind, Time};

use super::{PIDS, number, text};

/// What tells of a file that a process has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// It was there when recording began.
    Known,
    /// It is loaded now.
    Loaded,
}

impl Object {
    /// What events of this name tell.
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

/// So many processes have spaces of their own, and so many files each: of more, a damaged or hostile trace
/// tells.
const MOST: usize = 1 << 12;

/// So many records are looked through beforehand.
const BEGINNING: usize = 100_000;

/// The processes of a trace.
#[derive(Debug)]
pub(super) struct Processes {
    /// The space of those of which the trace does not tell which they are.
    one: SpaceId,
    by_pid: HashMap<u64, SpaceId>,
    /// The process of the last call, which most often is that of the next one.
    last: Option<(u64, SpaceId)>,
    /// Whether the trace has calls of functions.
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

    /// Where the addresses of a process mean something.
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

    /// Looks through the beginning of a trace for files that were loaded before. Gives the address of the
    /// first program.
    pub(super) fn look_ahead(
        &mut self,
        trace: &Trace,
        identities: &mut Identities,
    ) -> Option<Addr> {
        if !self.has_calls {
            return None;
        }
        let mut base = None;
        let mut messages = trace.messages().ok()?;
        for _ in 0..BEGINNING {
            // What cannot be read is told when the events are.
            let Ok(Some((_, message))) = messages.next_message() else {
                break;
            };
            let Message::Event(record) = message else {
                continue;
            };
            if Object::of(record.name()) == Some(Object::Known) {
                let mut contexts = PIDS.into_iter().filter_map(|name| record.field(name));
                let process = contexts.next().and_then(|value| value.as_u64());
                let program = self.load(Object::Known, process, None, &record, identities);
                base = base.or(program);
            }
        }
        base
    }

    /// Takes a file that a record tells of. Gives its address if it is a program.
    pub(super) fn load(
        &mut self,
        object: Object,
        process: Option<u64>,
        time: Option<Time>,
        record: &kymo_ctf::Event<'_>,
        identities: &mut Identities,
    ) -> Option<Addr> {
        let start = Addr(number(record, "baddr")?);
        let bytes = number(record, "memsz").or_else(|| number(record, "size"))?;
        let path = text(record, "path").or_else(|| text(record, "sopath"))?;
        let base = is_program(&path).then_some(start);
        let id = self.space(process, identities);
        let space = identities.space_mut(id)?;
        let mut holding = space.mappings.iter().rev().filter(|it| it.holds(start));
        let is_known = holding
            .next()
            .is_some_and(|it| (it.start, it.bytes, &it.path) == (start, bytes, &path));
        if object == Object::Known && base.is_some() {
            space.text_base = space.text_base.or(base);
            if space.name.is_empty() {
                space.name.clone_from(&path);
            }
        }
        if !is_known && space.mappings.len() < MOST {
            let mapping = Mapping {
                start,
                bytes,
                offset: 0,
                path,
                build_id: None,
                since: time.filter(|_| object == Object::Loaded),
            };
            identities.map(id, mapping);
        }
        base
    }
}

/// Whether a file is a program and no library.
fn is_program(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.starts_with(|c: char| c != '[') && !file.contains(".so")
}
