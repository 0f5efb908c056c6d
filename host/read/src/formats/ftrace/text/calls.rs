//! Function entries and exits of a graph, and whole calls.

use kymo_event::{
    Batch, Cpu, Duration, EventKind, Field, FunctionId, Gap, RowKind, Time, Value, Wanted,
};

use kymo_ftrace::text::Values;

use super::state::{Open, State};
use super::{At, BY_WALL, TextSource, id};
use crate::formats::ftrace::held::Number;
use crate::formats::ftrace::output::{self, Out, Reported};

/// Name of a function whose name the text omits.
const UNKNOWN: &str = "(unknown)";

/// Remark about calls with shorter durations than the calls that they made.
const STRETCHED: &str = "the text states of calls that they took less than the calls that they made: on the time line they enclose these, and \
     their durations are as stated";

/// Largest difference, in ns, between the start of a call and the start computed from its entry and its duration: the
/// kernel reads the time of a call before it writes its entry.
const NEAR: u64 = 20_000;

/// Returns the values on the line of an entry or exit, with the names of the kernel's records.
fn fields(depth: u32, duration: Option<u64>, at: &At<'_>) -> Vec<Field> {
    let mut fields = vec![Field::new("depth", u64::from(depth))];
    fields.extend(duration.map(|it| Field::new("duration", it)));
    let Values {
        arguments,
        returned,
        caller,
    } = at.values;
    if !arguments.is_empty() {
        fields.push(Field::new("args", arguments));
    }
    if !returned.is_empty() {
        fields.push(Field::new("retval", number(returned)));
    }
    if !caller.is_empty() {
        fields.push(Field::new("caller", caller));
    }
    fields
}

/// Parses a number, or returns the text.
fn number(text: &str) -> Value {
    let hexadecimal = text.strip_prefix("0x");
    match hexadecimal.map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(number)) => Value::Hex(number),
        _ => text
            .parse::<i64>()
            .map_or_else(|_| text.into(), Value::Signed),
    }
}

impl TextSource {
    /// Handles the entry of a function. The line of a leaf call has its duration.
    pub(super) fn entry(
        &mut self,
        function: &str,
        (depth, duration): (u32, Option<u64>),
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        self.has_graph = true;
        let function = self.function(function);
        let losses = self.losses;
        let Some(state) = self.states.get_mut(at.place) else {
            return;
        };
        let stack = self.stacks.entry(at.task).or_default();
        let latest = stack.is_empty().then_some(self.latest);
        let time = state.enter(at.time, latest);
        let missing = stack.open(Open {
            depth,
            begin: time,
            function,
            losses,
            entry: None,
        });
        self.put_missing(missing, time, at, batch);
        if let Some(state) = self.state_of_cpu(at) {
            state.remember(depth, function);
        }
        let row = at.row(RowKind::Enter, time).function(Some(function));
        let out = self.out(row, at, "funcgraph_entry", |_| fields(depth, duration, at));
        if let Some(number) = self.output.put_entry(out, batch) {
            let stack = self.stacks.entry(at.task).or_default();
            if !stack.number(depth, number) {
                self.output.release(number);
            }
        }
    }

    /// Returns the state of an event's CPU, also if threads have their own states.
    fn state_of_cpu(&mut self, at: &At<'_>) -> Option<&mut State> {
        let place = self.streams.get(&at.cpu.unwrap_or(u32::MAX))?;
        self.states.get_mut(*place)
    }

    /// Reports missing exits of calls, which the depth of a later record shows.
    fn put_missing(&mut self, missing: Vec<Open>, time: Time, at: &At<'_>, batch: &mut Batch) {
        for entry in missing.iter().filter_map(|open| open.entry) {
            self.output.release(entry);
        }
        // Where nothing was lost, nothing is missing.
        let losses = self.losses;
        for open in missing.into_iter().filter(|open| open.losses != losses) {
            let ago = time.since(open.begin).unwrap_or_default();
            let gap = output::gap(
                Gap::MissingExit { ago },
                time,
                id(at.place),
                at.cpu.map(Cpu),
            );
            let row = gap.row.at(at.cpu.map(Cpu), at.thread);
            self.output.put(Out { row, ..gap }, batch);
        }
    }

    pub(super) fn exit(
        &mut self,
        named: Option<FunctionId>,
        depth: u32,
        duration: Option<u64>,
        is_record: bool,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        self.has_graph = true;
        let Some(state) = self.states.get_mut(at.place) else {
            return;
        };
        let stack = self.stacks.entry(at.task).or_default();
        let known = duration.and_then(|duration| i64::try_from(duration).ok());
        let losses = self.losses;
        let (open, missing) = stack.close(depth, |open| {
            // Behind a loss, an open call with another start time is another call at this depth.
            let began = at.time.zip(known).filter(|_| open.losses != losses);
            let began = began.map(|(end, duration)| end.0.saturating_sub(duration));
            let is_it = began.is_none_or(|began| began.abs_diff(open.begin.0) <= NEAR);
            is_it && named.is_none_or(|named| open.function == named)
        });
        // The duration has more digits than the time.
        let exact = open.zip(known);
        let exact = exact.map(|(open, it)| Time(open.begin.0.saturating_add(it)));
        let time = match (exact, at.time) {
            // It ended before its exit was written, which the text rounds down to microseconds. So its entry was
            // written late.
            (Some(exact), Some(time)) if is_record && exact.0 > time.0.saturating_add(1_000) => {
                time
            }
            // Durations may exclude the time in which the task slept.
            (Some(exact), Some(time))
                if is_record && time.0.saturating_sub(exact.0) > 1_000_000 =>
            {
                time
            }
            (Some(exact), _) => exact,
            (None, Some(time)) => time,
            // The call began before the text.
            (None, None) => state.last,
        };
        let time = time.max(state.last);
        state.last = time;
        self.latest = self.latest.max(time);
        self.put_missing(missing, time, at, batch);
        // The depth identifies the call.
        let of_cpu = self.state_of_cpu(at);
        let entered = of_cpu.and_then(|it| *it.entered.get(depth as usize)?);
        // The kernel omits the name if it is that of the last function that the CPU entered at this depth.
        let entered = entered.filter(|_| !at.is_nameless);
        let function = named.or(open.map(|open| open.function)).or(entered);
        // It is none of the open calls, to which an exit without a function would be assigned.
        let function = function.or_else(|| Some(self.function(UNKNOWN)));
        let mut row = at.row(RowKind::Exit, time).function(function);
        row.named = named.is_some();
        row.record = is_record;
        match duration.filter(|_| function.is_some()) {
            Some(duration) => row = row.took(Duration(duration)),
            None if at.time.is_none() => row = row.untimed(),
            None => {}
        }
        let entry = open.and_then(|open| open.entry);
        if let Some(duration) = duration.filter(|it| !is_record && at.time.is_some() && *it > NEAR)
            && let Some(state) = self.states.get_mut(at.place)
        {
            state.long_leaf = Some((time, duration, entry));
            return self.output.put_ahead(Out::new(row, at.pid, None), batch);
        }
        let is_waiting = entry.is_some_and(|entry| self.output.release(entry));
        if !is_record && at.time.is_some() {
            return self.output.put_ahead(Out::new(row, at.pid, None), batch);
        }
        let out = self.out(row, at, "funcgraph_exit", |_| fields(depth, duration, at));
        // Its entry was written after an interrupt that occurred between the call's beginning and the writing.
        let is_late = exact.is_some_and(|exact| exact.0.abs_diff(time.0) > NEAR && exact > time);
        if !is_late || at.time.is_none() {
            return self.output.put(out, batch);
        }
        // Whose lines it would pass is not known without a task.
        let is_waiting = is_waiting && out.pid.is_some();
        if !is_waiting {
            self.late_calls += 1;
        }
        let begin = Time(time.0.saturating_sub(known.unwrap_or_default()));
        let entry = entry.filter(|_| is_waiting).map(|entry| (entry, begin));
        self.put_late(out, entry, batch);
    }

    /// A long call without others in it has ended, at the latest when the next line of its CPU was written. If it seems
    /// to end later, an interrupt came between its beginning and the writing of its line.
    pub(super) fn end_long_leaf(&mut self, now: &At<'_>, batch: &mut Batch) {
        let Some(state) = self.states.get_mut(now.place) else {
            return;
        };
        let Some((end, duration, entry)) = state.long_leaf.take() else {
            return;
        };
        let is_waiting = entry.is_some_and(|entry| self.output.release(entry));
        let Some(time) = now
            .time
            .filter(|time| end.0.abs_diff(time.0) > NEAR && end > *time)
        else {
            return;
        };
        let Some(mut out) = self.output.take_ahead(id(now.place)) else {
            return;
        };
        let is_waiting = is_waiting && out.pid.is_some();
        let duration = i64::try_from(duration).unwrap_or(i64::MAX);
        // The line is at the time of writing its entry.
        let written = Time(end.0.saturating_sub(duration));
        let time = time.max(written);
        out.row.time = time;
        state.last = time;
        if !is_waiting {
            self.late_calls += 1;
        }
        let begin = Time(time.0.saturating_sub(duration));
        let entry = entry.filter(|_| is_waiting).map(|entry| (entry, begin));
        self.put_late(out, entry, batch);
    }

    /// Puts the exit of a call whose entry was written late: the number of that, and when the call began.
    fn put_late(&mut self, out: Out, entry: Option<(Number, Time)>, batch: &mut Batch) {
        let time = out.time();
        self.output.put_exit(out, time, entry, batch);
        if let Some(moved) = self.output.moved() {
            for stack in self.stacks.values_mut() {
                stack.renumber(&moved);
            }
        }
    }

    /// Handles an exit without an entry, with its duration.
    pub(super) fn whole_exit(
        &mut self,
        function: &str,
        depth: u32,
        duration: u64,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        let duration = i64::try_from(duration).unwrap_or(i64::MAX);
        let now = self.now(at);
        let span = match at.time {
            Some(_) => (Time(now.0.saturating_sub(duration)), now),
            None => {
                let Some(state) = self.states.get_mut(at.place) else {
                    return;
                };
                let span = state.call(depth, duration, self.latest);
                self.latest = self.latest.max(span.1);
                span
            }
        };
        self.has_graph = true;
        let is_exact = at.time.is_none();
        if is_exact && span.1.0.saturating_sub(span.0.0) > duration {
            self.remark(STRETCHED);
        }
        self.whole_call(function, (depth, is_exact), (span, duration), at, batch);
    }

    pub(super) fn whole_call(
        &mut self,
        function: &str,
        (depth, is_exact): (u32, bool),
        ((begin, end), duration): ((Time, Time), i64),
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        // Of a text without times it is reported that they are.
        if self.without_switches && !self.says_by_wall && at.time.is_some() {
            self.says_by_wall = true;
            self.remark(BY_WALL);
        }
        let id = self.function(function);
        let mut enter = at.row(RowKind::Enter, begin).function(Some(id));
        enter.record = false;
        let mut exit = at.row(RowKind::Exit, end).function(Some(id));
        exit.named = true;
        // The duration in the text, even if the calls within it took longer in sum.
        let duration = duration.max(0).unsigned_abs();
        exit = exit.took(Duration(duration));
        let out = |row, event| Out::new(row, at.pid, event);
        let event = (self.wanted >= Wanted::Everything).then(|| {
            let kind = EventKind::Exit { function: Some(id) };
            let fields = fields(depth, Some(duration), at);
            Reported::record(kind, "funcgraph_exit".into(), fields, end)
        });
        self.output
            .put_call(out(enter, None), out(exit, event), (depth, is_exact), batch);
    }
}
