//! Calls whose exits are missing, as depths show or the start of another system call in the thread.

use kymo_event::{Batch, EventKind, FunctionId, Gap, RowKind, Time, TraceInfo};

use super::{At, Reader};
use crate::formats::ftrace::output::{Out, Reported};

impl Reader {
    /// Handles the start or end of a system call.
    pub(super) fn system_call(
        &mut self,
        kind: RowKind,
        name: &str,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let function = info.identities.function_named(self.output.space, name);
        self.system_call_of(kind, function, at, batch);
    }

    /// Handles the end of a system call with this number. The kernel sets the number to -1 within `rt_sigreturn`, and
    /// when a debugger skips a call. It is then the call that the thread is in.
    pub(super) fn numbered_exit(
        &mut self,
        number: i32,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        if number >= 0 {
            let name = format!("system call {number}");
            return self.system_call(RowKind::Exit, &name, at, info, batch);
        }
        match self.stacks.innermost(at.task()) {
            Some(function) => self.system_call_of(RowKind::Exit, function, at, batch),
            None => self.other(at, batch),
        }
    }

    fn system_call_of(
        &mut self,
        kind: RowKind,
        function: FunctionId,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        // A thread is in one system call at most.
        match kind {
            RowKind::Enter => {
                self.stacks.leave(at.task(), 0);
                self.stacks.enter(at.task(), function, 0, (at.time, None));
            }
            _ => {
                self.stacks.exit(at.task(), function, 0, None);
            }
        }
        self.put_missing(at, batch);
        let mut row = at.row(kind).function(Some(function));
        row.named = kind == RowKind::Exit;
        self.row(row, at, batch);
    }

    /// Reports the calls whose exits are missing.
    #[inline]
    pub(super) fn put_missing(&mut self, at: &At<'_>, batch: &mut Batch) {
        if !self.stacks.missing.is_empty() {
            self.put_some_missing(at, batch);
        }
    }

    #[inline(never)]
    fn put_some_missing(&mut self, at: &At<'_>, batch: &mut Batch) {
        for (entered, entry) in std::mem::take(&mut self.stacks.missing) {
            if let Some(entry) = entry {
                self.output.release(entry);
            }
            // The gap is directly after the previous record. The current record's call may have begun or ended just
            // before it was recorded, and must not appear to be within the ended call.
            let behind = Time(at.before.0.saturating_add(1));
            let time = behind.max(entered).min(at.time);
            let ago = time.since(entered).unwrap_or_default();
            let mut row = at.row(RowKind::Rare);
            row.time = time;
            row.record = false;
            let reported = Reported::unnamed(EventKind::Gap(Gap::MissingExit { ago }), time);
            let out = Out::new(row, Some(at.pid), Some(reported));
            if let Some(row) = self.output.put_gap(out, batch) {
                self.stacks.reported(at.task(), entered, row);
            }
        }
    }
}
