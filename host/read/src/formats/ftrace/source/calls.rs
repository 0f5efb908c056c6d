//! Exits of calls, whose records have the start and end of the call.

use kymo_event::{Batch, Duration, EventKind, RowKind, Time, TraceInfo, Wanted};
use kymo_ftrace::Trace;

use super::{At, Reader, time};
use crate::formats::ftrace::meaning::Exit;
use crate::formats::ftrace::output::{Out, Reported};

impl Reader {
    /// Handles the exit of a call, whose record has its start and end.
    #[inline]
    pub(super) fn exit(
        &mut self,
        exit: &Exit,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let function = self.function(self.field(&exit.func, at.data), info);
        let depth = self.field(&exit.depth, at.data);
        let (calltime, rettime) = (
            self.field(&exit.calltime, at.data),
            self.field(&exit.rettime, at.data),
        );
        let (begin, end) = match self.is_local {
            true => (
                local(&self.trace, calltime, at),
                local(&self.trace, rettime, at),
            ),
            false => (None, None),
        };
        let found = self.stacks.exit(at.task(), function, depth, begin.zip(end));
        if let Some(reported) = found.and_then(|found| found.reported) {
            // The missing exit has arrived.
            self.output.take_back(reported);
        }
        self.put_missing(at, batch);
        let mut row = at.row(RowKind::Exit).function(Some(function));
        row.named = true;
        if found.is_none_or(|found| found.over_loss)
            && let Some(wall) = rettime.checked_sub(calltime)
        {
            row = row.took(Duration(wall));
        }
        let entry = found.and_then(|found| found.entry);
        let out = self.out(row, at);
        let end = end.unwrap_or(at.time);
        self.output.put_exit(
            out,
            end,
            entry.map(|it| (it, begin.unwrap_or(at.time))),
            batch,
        );
        if let Some(moved) = self.output.moved() {
            self.stacks.renumber(&moved);
        }
    }

    /// Handles an exit without an entry, which the kernel records if the call took long enough.
    pub(super) fn whole_call(
        &mut self,
        exit: &Exit,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let function = self.function(self.field(&exit.func, at.data), info);
        let begin = self.field(&exit.calltime, at.data);
        let end = self.field(&exit.rettime, at.data);
        let depth = u32::try_from(self.field(&exit.depth, at.data)).unwrap_or(0);
        // Both times are of the local clock, which need not be that of the trace.
        let since = at.ticks.wrapping_sub(end);
        let duration = i64::try_from(end.wrapping_sub(begin)).unwrap_or(0);
        let is_local = since < 1_000_000_000;
        let end = match is_local {
            true => time(self.trace.timing.nanoseconds(end, at.place.cpu)),
            false => at.time,
        };
        let begin = Time(end.0.saturating_sub(duration));
        let mut enter = at.row(RowKind::Enter).function(Some(function));
        enter.time = begin;
        enter.record = false;
        if let Some(stream) = info.streams.get_mut(at.place.cpu_buffer) {
            stream.start = stream.start.min(Some(begin));
        }
        let mut left = at.row(RowKind::Exit).function(Some(function));
        left.time = end;
        left.named = true;
        left = left.took(Duration(duration.max(0).unsigned_abs()));
        let details = (self.wanted >= Wanted::Everything).then(|| self.details(at));
        let kind = EventKind::Exit {
            function: Some(function),
        };
        let out = |row, event| Out::new(row, Some(at.pid), event);
        let event = details.map(|(name, fields)| Reported::record(kind, name, fields, at.time));
        let depth = depth.min(1 << 16);
        self.output
            .put_call(out(enter, None), out(left, event), (depth, is_local), batch);
    }
}

/// Converts a time of the clock of a record's CPU; `None` if it is later than the record, because the trace has another
/// clock.
fn local(trace: &Trace, ticks: u64, at: &At<'_>) -> Option<Time> {
    (ticks <= at.ticks).then(|| time(trace.timing.nanoseconds(ticks, at.place.cpu)))
}
