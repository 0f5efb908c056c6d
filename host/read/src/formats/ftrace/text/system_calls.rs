//! System calls of a text.

use std::collections::HashMap;

use kymo_event::{Batch, Cpu, FunctionId, Gap, Row, RowKind, Time};

use kymo_ftrace::text::{self, Line, TextKind};
use memchr::memmem;

use super::ahead::LINES_LOOKED_AT;
use super::input::lines;
use super::{At, Caller, TextSource, id};
use crate::formats::ftrace::numbered_calls::{self, Names, Syscall, is_spawn, unnamed};
use crate::formats::ftrace::output::{self, Out};

/// Open system call of each task, and its start.
pub(super) type SystemCalls = HashMap<Caller, (FunctionId, Time)>;

/// Returns the system call of an entry or exit, and whether it is an exit.
pub(super) fn syscall<'t>(name: &'t str, body: &str) -> Option<(Syscall<&'t str>, bool)> {
    match name {
        // `NR 0 (3, 7ffd, 800)`, `NR 0 = 1`; `id=0x0 (0) ...` with the option `fields`.
        "sys_enter" | "sys_exit" => {
            let is_exit = name == "sys_exit";
            let number = match body.strip_prefix("NR ") {
                Some(body) => body.split_whitespace().next()?,
                None => {
                    let fields = text::fields(body);
                    let (_, value) = fields.into_iter().find(|(name, _)| *name == "id")?;
                    value.split_whitespace().next()?
                }
            };
            let number = number.parse().ok()?;
            (is_exit || number >= 0).then_some((Syscall::Numbered(number), is_exit))
        }
        _ => match name.strip_prefix("sys_exit_") {
            Some(call) => Some((Syscall::Named(call), true)),
            None => {
                let call = name.strip_prefix("sys_enter_");
                let call = call.or(name.strip_prefix("sys_"))?;
                Some((Syscall::Named(call), false))
            }
        },
    }
}

/// Returns what the first lines show of system calls with numbers: their names, as far as lines have both.
pub(super) fn names(bytes: &[u8]) -> Names {
    let mut names = Names::default();
    if memmem::find(bytes, b" sys_enter: ").is_none() {
        return names;
    }
    for line in lines(bytes).take(LINES_LOOKED_AT) {
        let Line::Event(event) = text::line(&line) else {
            continue;
        };
        let TextKind::Event { name, body } = &event.kind else {
            continue;
        };
        let Some(task) = event.task else { continue };
        match syscall(name, body) {
            Some((call, false)) => names.enter(task.pid, call, event.time),
            Some((_, true)) => names.exit(task.pid),
            None => {}
        }
    }
    names
}

impl TextSource {
    /// Returns whether system calls are converted to calls. They are, unless the text has other calls, or only the
    /// beginnings of system calls.
    pub(super) const fn has_system_calls(&mut self) -> bool {
        let are_calls = !self.has_graph && !self.alone.calls && !self.marks.are_calls;
        self.marks.has_kernel_calls |= are_calls;
        are_calls
    }

    /// Returns the row kind of an entry or exit.
    pub(super) const fn edge(is_exit: bool) -> RowKind {
        match is_exit {
            true => RowKind::Exit,
            false => RowKind::Enter,
        }
    }

    /// Returns the function of the system call that a record enters or exits; `None` if it is the second record of one,
    /// or of a new thread, which has not made the call. `returned_0` is whether an exit returns 0.
    pub(super) fn system_call_in(
        &mut self,
        is_exit: bool,
        call: Syscall<&str>,
        returned_0: bool,
        at: &At<'_>,
    ) -> Option<FunctionId> {
        let call = call.map(|name| self.function(name));
        let (space, identities) = (self.output.space, &mut self.info.identities);
        let unnamed = |number| identities.function_named(space, &unnamed(number));
        let place = numbered_calls::At {
            task: at.task,
            time: at.time,
            losses: usize::try_from(self.losses).unwrap_or(usize::MAX),
        };
        match is_exit {
            false => self.numbered_calls.enter(place, call, unnamed),
            true => {
                let function = self.numbered_calls.exit(place, call, unnamed)?;
                let in_child = returned_0 && is_spawn(function, &self.info.identities);
                (!in_child).then_some(function)
            }
        }
    }

    /// Returns the row for the start or end of a system call. A task is in one at most, so another open one has ended
    /// without an event (`rt_sigreturn` never has one).
    pub(super) fn system_call(
        &mut self,
        row: Row,
        function: FunctionId,
        at: &At<'_>,
        batch: &mut Batch,
    ) -> Row {
        let is_exit = row.kind == RowKind::Exit;
        let open = match is_exit {
            true => self.system_calls.remove(&at.task),
            false => self.system_calls.insert(at.task, (function, row.time)),
        };
        if let Some((open, begin)) = open
            && (!is_exit || open != function)
        {
            let ago = row.time.since(begin).unwrap_or_default();
            let cpu = at.cpu.map(Cpu);
            let gap = output::gap(Gap::MissingExit { ago }, row.time, id(at.place), cpu);
            let missing = gap.row.at(cpu, at.thread);
            self.output.put(
                Out {
                    row: missing,
                    ..gap
                },
                batch,
            );
        }
        let mut row = row.function(Some(function));
        row.named = is_exit;
        row
    }
}
