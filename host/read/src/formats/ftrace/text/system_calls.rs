//! System calls of a text.

use std::collections::HashMap;

use kymo_event::{Batch, Cpu, FunctionId, Gap, Row, RowKind, Time};

use super::{At, Caller, TextSource, id};
use crate::formats::ftrace::output::{self, Out};

/// The system call that is open in each task, and when it began.
pub(super) type SystemCalls = HashMap<Caller, (FunctionId, Time)>;

impl TextSource {
    /// A system call begins or ends: whether it is a call. Its events are, unless something else is.
    pub(super) const fn has_system_calls(&mut self) -> bool {
        let are_calls = !self.has_graph && !self.alone.calls && !self.marks.are_calls;
        self.marks.has_kernel_calls |= are_calls;
        are_calls
    }

    /// Which end of a call an event is.
    pub(super) const fn edge(is_exit: bool) -> RowKind {
        match is_exit {
            true => RowKind::Exit,
            false => RowKind::Enter,
        }
    }

    /// The system call that a task is in.
    pub(super) fn open_system_call(&self, at: &At<'_>) -> Option<FunctionId> {
        let open = self.system_calls.get(&at.task);
        open.map(|(function, _)| *function)
    }

    /// The row of a system call's beginning or end. A task is in one at most: what is open beside it has ended, without
    /// an event of that (`rt_sigreturn` never has one).
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
