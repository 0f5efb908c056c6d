//! Names of tasks and interrupts in records.

use kymo_event::{Batch, EventKind, InterruptId, InterruptKind, Irq, RowKind, TraceInfo};
use kymo_ftrace::Scope;

use super::{At, Reader};
use crate::formats::ftrace::output::{Out, Reported};
use crate::formats::ftrace::text::with_handler;

impl Reader {
    /// Sets the name of a task from a record.
    pub(super) fn name(
        &mut self,
        pid: i32,
        comm: Option<&kymo_ftrace::FieldFormat>,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let Some(comm) = comm else { return };
        let scope: Scope<'_> = self.trace.scope();
        let bytes = scope.bytes(comm, at.data);
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        let name = bytes.get(..end).unwrap_or_default();
        let Some(thread) = self.output.thread(pid, &mut info.identities) else {
            return;
        };
        self.output.stated(thread);
        let known = info.identities.thread_name(thread);
        if known.is_none_or(|known| known.as_bytes() != name) {
            let name = String::from_utf8_lossy(name).into_owned();
            self.rename(pid, &name, at, info, batch);
        }
    }

    pub(super) fn rename(
        &mut self,
        pid: i32,
        name: &str,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let Some(thread) = self.output.thread(pid, &mut info.identities) else {
            return;
        };
        self.output.stated(thread);
        if name.is_empty() || info.identities.thread_name(thread) == Some(name) {
            return;
        }
        info.identities.name_thread(thread, name);
        let name = name.to_owned();
        self.besides(EventKind::ThreadName { thread, name }, at, batch);
    }

    pub(super) fn interrupt(
        &mut self,
        kind: InterruptKind,
        number: u64,
        name: Option<&str>,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) -> Option<InterruptId> {
        let irq = Irq(u32::try_from(number).ok()?);
        let id = info.identities.interrupt(self.output.space, kind, irq);
        if let Some(name) = name.filter(|name| !name.is_empty())
            && let Some(name) = with_handler(info.identities.interrupt_name(id), name)
        {
            info.identities.name_interrupt(id, &name);
            self.besides(EventKind::IsrName { irq: id, name }, at, batch);
        }
        Some(id)
    }

    /// Adds an additional event that follows from a record.
    pub(super) fn besides(&mut self, kind: EventKind, at: &At<'_>, batch: &mut Batch) {
        let mut row = at.row(RowKind::Rare);
        row.record = false;
        let reported = Reported::unnamed(kind, at.time);
        self.output.put(Out::new(row, None, Some(reported)), batch);
    }
}
