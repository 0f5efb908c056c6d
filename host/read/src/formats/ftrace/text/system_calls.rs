//! System calls of a text.

use std::collections::HashMap;

use kymo_event::{Batch, Cpu, FunctionId, Gap, Row, RowKind, Time};

use super::{At, Caller, TextSource, id};
use crate::formats::ftrace::output::{self, Out};

/// Open system call of each task, and its start.
pub(super) type SystemCalls = HashMap<Caller, (FunctionId, Time)>;

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

    /// Returns the system call that a task is in.
    pub(super) fn open_system_call(&self, at: &At<'_>) -> Option<FunctionId> {
        let open = self.system_calls.get(&at.task);
        open.map(|(function, _)| *function)
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
