//! Calls whose exits are found to be missing, by depths or because a thread begins another system call.

use kymo_event::{Batch, EventKind, Gap, RowKind, Time, TraceInfo};

use kymo_ftrace::Trace;

use super::{At, Reader, time};
use crate::formats::ftrace::output::Out;

impl Reader {
    /// A system call begins or ends.
    pub(super) fn system_call(
        &mut self,
        kind: RowKind,
        name: &str,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let function = info.identities.function_named(self.output.space, name);
        // A thread is in one system call at most.
        match kind {
            RowKind::Enter => self.stacks.enter(at.task(), function, 0, at.time),
            _ => self.stacks.exit(at.task(), function, 0, || None),
        }
        self.put_missing(at, batch);
        let mut row = at.row(kind).function(Some(function));
        row.named = kind == RowKind::Exit;
        self.row(row, at, batch);
    }

    /// Tells of the calls whose exits are found to be missing.
    #[inline]
    pub(super) fn put_missing(&mut self, at: &At<'_>, batch: &mut Batch) {
        if !self.stacks.missing.is_empty() {
            self.put_some_missing(at, batch);
        }
    }

    #[inline(never)]
    fn put_some_missing(&mut self, at: &At<'_>, batch: &mut Batch) {
        for entered in std::mem::take(&mut self.stacks.missing) {
            let ago = at.time.since(entered).unwrap_or_default();
            let mut row = at.row(RowKind::Rare);
            row.record = false;
            let out = Out {
                row,
                pid: Some(at.pid),
                event: Some((
                    EventKind::Gap(Gap::MissingExit { ago }),
                    "".into(),
                    Vec::new(),
                )),
            };
            self.output.put(out, batch);
        }
    }
}

/// A time of the clock of a record's CPU, not later than the record and not much earlier; `None` if the clock of the trace
/// is another one.
pub(super) fn local(trace: &Trace, ticks: u64, at: &At<'_>) -> Option<Time> {
    (ticks <= at.ticks).then(|| time(trace.timing.nanoseconds(ticks, at.place.cpu)))
}
