//! Calls whose exits are missing, as depths show or the start of another system call in the thread.

use kymo_event::{Batch, EventKind, FunctionId, Gap, RowKind, ThreadId, Time, TraceInfo};

use super::{At, Reader};
use crate::formats::ftrace::numbered_calls::{self, Syscall, is_spawn, unnamed};
use crate::formats::ftrace::output::{Out, Reported};
use crate::formats::ftrace::stacks::Task;

impl Reader {
    /// Handles the entry of a system call.
    pub(super) fn system_call_entry(
        &mut self,
        call: Syscall<&str>,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let (space, identities) = (self.output.space, &mut info.identities);
        let call = call.map(|name| identities.function_named(space, name));
        let unnamed = |number| identities.function_named(space, &unnamed(number));
        let place = self.place_of_call(at);
        match self.numbered_calls.enter(place, call, unnamed) {
            Some(function) => self.system_call_of(RowKind::Enter, function, at, batch),
            None => self.other(at, batch),
        }
    }

    /// Handles the exit of a system call, with its return value.
    pub(super) fn system_call_exit(
        &mut self,
        (call, returned): (Syscall<&str>, Option<u64>),
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let (space, identities) = (self.output.space, &mut info.identities);
        let call = call.map(|name| identities.function_named(space, name));
        let unnamed = |number| identities.function_named(space, &unnamed(number));
        let place = self.place_of_call(at);
        let function = self.numbered_calls.exit(place, call, unnamed);
        match function.filter(|it| returned != Some(0) || !is_spawn(*it, &info.identities)) {
            Some(function) => self.system_call_of(RowKind::Exit, function, at, batch),
            None => self.other(at, batch),
        }
    }

    fn place_of_call(&self, at: &At<'_>) -> numbered_calls::At<Task> {
        numbered_calls::At {
            task: at.task(),
            time: Some(at.time),
            losses: self.stacks.losses(),
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

    /// Handles the creation of a task, whose pid may have been that of an ended thread.
    pub(super) fn created(
        &mut self,
        pid: i32,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let earlier = self.output.created(pid, None, &mut info.identities);
        let thread = self.output.thread(pid, &mut info.identities);
        self.end_earlier(pid, earlier.or(thread), at, batch);
    }

    /// Handles the first wakeup of a task. By the processors' clocks it may have run already.
    pub(super) fn woken(&mut self, pid: i32, at: &At<'_>, info: &mut TraceInfo, batch: &mut Batch) {
        let earlier = self.output.woken(pid, &mut info.identities);
        self.end_earlier(pid, earlier, at, batch);
    }

    /// Ends the calls of the earlier thread with a pid.
    pub(super) fn end_earlier(
        &mut self,
        pid: i32,
        earlier: Option<ThreadId>,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        if earlier.is_some() {
            let task = Task::new(pid, at.place.cpu);
            self.numbered_calls.end(task);
            self.stacks.end(task);
            let of_earlier = At {
                pid,
                thread: earlier,
                ..*at
            };
            self.put_missing(&of_earlier, batch);
        }
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
