//! Conversion of the kernel's text to events, line by line: from a file, or from a pipe as it arrives.

mod ahead;
mod calls;
pub(super) mod dump;
mod events;
pub(super) mod html;
mod input;
pub(super) mod json;
mod lines;
mod lives;
mod open;
mod places;
mod recognise;
mod state;
mod system_calls;
mod times;

use std::collections::{HashMap, VecDeque};

use kymo_event::{
    Batch, Cpu, Damage, Field, FunctionId, Gap, Row, RowKind, StreamId, ThreadId, Time, TimeUnit,
    TraceInfo, Value, Wanted,
};
use kymo_ftrace::text::{self, Line, Task, TextEvent, TextKind, Values};

pub(super) use self::events::with_handler;
pub(super) use self::recognise::{LOOKED_AT, Recognised, has_header, recognise};

use self::ahead::{Exits, TICKS};
use self::input::{Input, Spot};
use self::state::{Stack, State, Task as Caller};
use self::system_calls::SystemCalls;
use super::Beginnings;
use super::marks::Marks;
use super::numbered_calls::NumberedCalls;
use super::output::{self, Out, Output, Reported};
use crate::{ReadError, Source};

/// Remark about a text without times.
const UNTIMED: &str = "the text has no times: they are made of the durations that it states, for each thread by itself, \
     and are no more than an order; durations are those by the wall that the text states, and unknown where it states none";

/// Remark on calls that are recorded at their exits, in a text without switches.
const BY_WALL: &str = "calls are recorded at their exits alone, and no event reports switches: all times are by the wall, SELF too, with those in which \
     the thread slept, so that their sums may be more than the CPU had; times on a CPU need the event sched:sched_switch";

/// The events that hold texts of the user's.
const PRINTS: [&str; 4] = ["print", "bprint", "bputs", "tracing_mark_write"];

/// Remark about a text with several lines.
const LINES_OF_PRINT: &str =
    "a text of trace_printk has more than one line: the others are left out";

/// Tracers whose records have no name in the text.
const UNNAMED: [&str; 4] = ["osnoise", "timerlat", "hwlat", "blk"];

/// Source that reads a text line by line.
pub(super) struct TextSource {
    info: TraceInfo,
    name: String,
    input: Input,
    output: Output,
    wanted: Wanted,
    functions: HashMap<String, FunctionId>,
    /// Indices of the streams of CPUs and, if the text has no times, of threads.
    streams: HashMap<u32, usize>,
    of_threads: HashMap<i32, usize>,
    /// State of each stream.
    states: Vec<State>,
    /// First task of each CPU, from its first switch.
    first_tasks: HashMap<u32, i32>,
    /// Open calls of each task.
    stacks: HashMap<Caller, Stack>,
    system_calls: SystemCalls,
    /// System calls with two records each.
    numbered_calls: NumberedCalls<Caller>,
    /// Latest time of all, for a text without times.
    latest: Time,
    /// Stream and CPU of the last event.
    last_place: (usize, Option<u32>),
    /// Whether calls are recorded as exits only; `None` until it is known.
    exits_alone: Option<bool>,
    /// Lines of a pipe that wait until that is known, and the state that determines it.
    waiting: VecDeque<(String, Spot)>,
    exits: Exits,
    /// Whether depths show missing exits.
    marks_missing_exits: bool,
    /// Whether switches are not recorded.
    without_switches: bool,
    /// Whether [`BY_WALL`] has been reported.
    says_by_wall: bool,
    /// Number of calls that began before their entries were written, and were output at the lines of these.
    late_calls: u64,
    /// Whether they have been reported.
    says_late: bool,
    /// What has beginnings alone.
    alone: Beginnings,
    /// Spans of programs.
    marks: Marks,
    /// Whether the text has a function graph, so that system calls are not converted to calls.
    has_graph: bool,
    /// Whether the header names the function-graph tracer, and no line with columns has occurred.
    is_graph: bool,
    /// Event name for records without a name, which the tracer in the header writes.
    unnamed: Option<&'static str>,
    /// Whether the header names the function tracer, which records no ends.
    is_function: bool,
    has_functions: bool,
    /// Number of losses so far.
    losses: u64,
    is_untimed: bool,
    /// Whether an event had a time.
    has_times: bool,
    /// Whether the current line has no line end: it is the last one, and may be truncated.
    is_cut: bool,
    /// Whether the last record was a text of a program, which may have more lines.
    is_print: bool,
    ended: bool,
}

impl TextSource {
    fn function(&mut self, name: &str) -> FunctionId {
        if let Some(known) = self.functions.get(name) {
            return *known;
        }
        let id = self.info.identities.function_named(self.output.space, name);
        self.functions.insert(name.to_owned(), id);
        id
    }

    fn line(&mut self, text: &str, spot: Spot, batch: &mut Batch) {
        match text::line(text) {
            Line::Event(event) if self.is_part(&event) => self.damaged(spot),
            Line::Event(event) => {
                // Other lines without columns do not belong to the graph.
                self.is_graph = false;
                self.event(&event, text, batch);
            }
            Line::Switch { cpu, from, to } => {
                let place = self.stream(Some(cpu));
                self.met(from);
                self.met(to);
                if let Some(state) = self.states.get_mut(place) {
                    state.task = Some(to.pid);
                }
            }
            Line::Lost { cpu, events } => {
                self.losses += 1;
                let of_cpu = self.stream(Some(cpu));
                let pid = self.states.get(of_cpu).and_then(|state| state.task);
                let thread = pid.and_then(|pid| self.output.thread(pid, &mut self.info.identities));
                let place = self.place(of_cpu, pid, thread);
                let Some(state) = self.states.get_mut(place) else {
                    return;
                };
                if state.any {
                    let last = state.last;
                    self.lose(events, last, place, Some(cpu), batch);
                } else if events.is_some() {
                    // Earlier events of a CPU are not missing in the text, unless it states their number.
                    state.early_losses.push(events);
                }
            }
            Line::Entries { kept, written } => {
                if let Some(lost) = written.checked_sub(kept).filter(|lost| *lost > 0) {
                    self.info.remarks.push(format!(
                        "the kernel overwrote events that are not in the text: {lost}"
                    ));
                }
            }
            Line::Caller(caller) => self.caller(caller, batch),
            Line::Tracer(tracer) => {
                self.is_graph = tracer == "function_graph";
                self.marks.has_kernel_calls |= tracer == "function_graph";
                self.is_function = tracer == "function";
                self.unnamed = UNNAMED.into_iter().find(|unnamed| *unnamed == tracer);
            }
            Line::Nothing => {}
            Line::Unknown => {
                if let Some(event) = text::bare_line(text).filter(|_| self.is_graph) {
                    return self.event(&event, text, batch);
                }
                if text.trim_start().starts_with("dummy-0000 ") && text.contains("clock_sync") {
                    // The last line of pages that systrace.py wrote up to 2014.
                    return;
                }
                if self.is_print {
                    return self.remark(LINES_OF_PRINT);
                }
                self.damaged(spot);
            }
        }
    }

    /// Notes that a line is none of ftrace's.
    fn damaged(&mut self, spot: Spot) {
        let message = format!(
            "line {}: expected a line of ftrace's, found something else",
            spot.number
        );
        self.info.add_damage(Damage {
            stream: self.name.clone(),
            offset: spot.offset,
            message,
        });
    }

    /// Adds a gap for lost events on a CPU.
    fn lose(
        &mut self,
        events: Option<u64>,
        time: Time,
        place: usize,
        cpu: Option<u32>,
        batch: &mut Batch,
    ) {
        let gap = Gap::Discarded { events };
        let gap = output::gap(gap, time, id(place), cpu.map(Cpu));
        self.output.put(gap, batch);
    }

    /// Adds gaps for losses reported before the first event of a stream, whose time is `time`.
    fn lose_early(
        &mut self,
        time: Option<Time>,
        place: usize,
        cpu: Option<u32>,
        batch: &mut Batch,
    ) {
        let Some(state) = self.states.get_mut(place) else {
            return;
        };
        let time = time.unwrap_or(state.last);
        for events in std::mem::take(&mut state.early_losses) {
            self.lose(events, time, place, cpu, batch);
        }
    }

    /// Adds gaps for losses of CPUs without events, at the end of the trace.
    fn lose_rest(&mut self, batch: &mut Batch) {
        let last = self.states.iter().map(|state| state.last).max();
        for place in 0..self.states.len() {
            let stream = self.info.streams.get(place);
            let cpu = stream.and_then(|stream| stream.cpu).map(|cpu| cpu.0);
            self.lose_early(last, place, cpu, batch);
        }
    }

    /// Sets the name of a task.
    fn name(&mut self, pid: i32, comm: &str) {
        let identities = &mut self.info.identities;
        if let Some(thread) = self.output.thread(pid, identities) {
            identities.name_thread(thread, comm);
            self.output.processes.name(pid, comm, identities);
        }
    }

    /// Handles a task in the text with its name, which some columns truncate.
    fn met(&mut self, task: Task<'_>) -> Option<ThreadId> {
        let thread = self.output.thread(task.pid, &mut self.info.identities)?;
        let known = self.info.identities.thread_name(thread);
        let is_same = known.is_some_and(|known| known.starts_with(task.comm));
        if !is_same && !task.comm.starts_with("<...>") {
            self.info.identities.name_thread(thread, task.comm);
            let identities = &mut self.info.identities;
            (self.output.processes).name(task.pid, task.comm, identities);
        }
        Some(thread)
    }

    fn event(&mut self, event: &TextEvent<'_>, line: &str, batch: &mut Batch) {
        let lone = match &event.kind {
            TextKind::Event { name, body } if self.is_function && name == "print" => {
                text::lone_function(body).filter(|_| !body.contains(": "))
            }
            _ => None,
        };
        self.is_print = match &event.kind {
            TextKind::Event { name, .. } => PRINTS.contains(&&**name) && lone.is_none(),
            _ => false,
        };
        let of_cpu = self.stream(event.cpu);
        if let Some(task) = event.task {
            if let Some(group) = event.group {
                self.info.has_processes = true;
                self.grouped(task.pid, group);
            }
            self.met(task);
        }
        self.has_times |= event.time.is_some();
        if event.is_ticks && self.info.unit != TimeUnit::Ticks {
            self.info.unit = TimeUnit::Ticks;
            self.remark(TICKS);
        }
        if event.time.is_none() && !self.is_untimed {
            self.is_untimed = true;
            self.info.untimed = true;
            self.info.remarks.push(UNTIMED.to_owned());
        }
        let Some(state) = self.states.get_mut(of_cpu) else {
            return;
        };
        if let Some(task) = event.task {
            state.task = Some(task.pid);
        }
        let pid = state.task;
        let thread = pid.and_then(|pid| self.output.thread(pid, &mut self.info.identities));
        let place = self.place(of_cpu, pid, thread);
        self.last_place = (place, event.cpu);
        if let Some(state) = self.states.get_mut(place) {
            state.any = true;
        }
        let at = At {
            place,
            cpu: event.cpu,
            // Without times, no switch is inferred from a different task.
            pid: pid.filter(|_| !self.is_untimed),
            task: Caller::new(pid, event.cpu),
            thread,
            flags: event.flags,
            values: match self.wanted {
                Wanted::Everything | Wanted::Records => event.values(line),
                Wanted::Meaning | Wanted::Details => Values::default(),
            },
            is_nameless: matches!(event.kind, TextKind::Exit { function: None, .. })
                && line.contains("funcgraph_exit:"),
            time: self.time_of(event, place, batch),
        };
        self.lose_early(at.time, place, event.cpu, batch);
        self.end_leaf(&at, batch);
        self.end_long_leaf(&at, batch);
        match &event.kind {
            TextKind::Entry { function, depth } => self.entry(function, (*depth, None), &at, batch),
            TextKind::Leaf {
                function,
                depth,
                duration,
            } => {
                self.entry(function, (*depth, *duration), &at, batch);
                let named = Some(self.function(function));
                if duration.is_none() && at.time.is_some() {
                    self.begin_leaf(named, *depth, &at);
                } else {
                    self.exit(named, *depth, *duration, false, &at, batch);
                }
            }
            TextKind::Exit {
                function,
                depth,
                duration,
            } => match duration {
                Some(duration) if function.is_some() && self.are_alone() => {
                    self.whole_exit(function.unwrap_or_default(), *depth, *duration, &at, batch);
                }
                _ => {
                    let named = function.map(|name| self.function(name));
                    self.exit(named, *depth, *duration, true, &at, batch);
                }
            },
            TextKind::Call {
                function,
                depth,
                duration,
            } => {
                self.has_graph = true;
                let begin = at.time.unwrap_or_default();
                let duration = i64::try_from(*duration).unwrap_or(i64::MAX);
                let end = Time(begin.0.saturating_add(duration));
                let span = ((begin, end), duration);
                self.whole_call(function, (*depth, true), span, &at, batch);
            }
            TextKind::Function {
                function,
                parent,
                calls,
            } => self.called(function, parent, *calls, &at, batch),
            TextKind::Event { name, body } => match lone {
                Some(function) => self.called(function, "", 1, &at, batch),
                None => {
                    let unnamed = self.unnamed.filter(|_| name == "print");
                    self.other(unnamed.unwrap_or(name), body, &at, batch);
                }
            },
        }
    }

    /// Returns whether calls are recorded as exits only.
    fn are_alone(&self) -> bool {
        self.exits_alone == Some(true)
    }

    /// Returns the time of an event: that of its line, or of the CPU's clock; never before the last one.
    fn now(&mut self, at: &At<'_>) -> Time {
        let Some(state) = self.states.get_mut(at.place) else {
            return Time(0);
        };
        state.last = at.time.map_or(state.last, |time| time.max(state.last));
        state.last
    }

    /// Adds a row, with name and fields if they are wanted.
    fn put(
        &mut self,
        row: Row,
        at: &At<'_>,
        name: &str,
        batch: &mut Batch,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) {
        let out = self.out(row, at, name, fields);
        self.output.put(out, batch);
    }

    /// A row on its way, with name and fields if they are wanted.
    fn out(
        &mut self,
        row: Row,
        at: &At<'_>,
        name: &str,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> Out {
        let is_wanted = match self.wanted {
            Wanted::Meaning => false,
            Wanted::Details => row.kind == RowKind::Other,
            Wanted::Everything | Wanted::Records => row.record,
        };
        let event = is_wanted.then(|| {
            let mut fields = fields(self);
            fields.extend(at.context());
            let event = kymo_event::EventRef {
                row: &row,
                event: None,
            };
            Reported::record(event.kind(), name.to_owned().into(), fields, row.time)
        });
        Out::new(row, at.pid, event)
    }
}

/// Returns the id of the stream with this index.
fn id(place: usize) -> StreamId {
    StreamId(u32::try_from(place).unwrap_or(u32::MAX))
}

/// Time and origin of an event.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    place: usize,
    cpu: Option<u32>,
    pid: Option<i32>,
    task: Caller,
    thread: Option<ThreadId>,
    flags: &'a str,
    /// Further values of a call.
    values: Values<'a>,
    /// Whether it is an exit without a name from trace-cmd, which omits all of them. (The kernel omits the name if it
    /// is that of the function that the CPU entered last at this depth.)
    is_nameless: bool,
    time: Option<Time>,
}

impl At<'_> {
    /// Returns the flag columns as a field, if there are any.
    fn context(&self) -> Option<Field> {
        let flags = vec![Field::new("flags", self.flags)];
        (!self.flags.is_empty()).then(|| Field::new("context", Value::Struct(flags)))
    }

    fn row(&self, kind: RowKind, time: Time) -> Row {
        Row::new(kind, time, id(self.place)).at(self.cpu.map(Cpu), self.thread)
    }
}

impl Source for TextSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        self.output.give_held(false, batch);
        while !batch.is_full() && !self.ended {
            // Returns available events before it waits for more.
            if !batch.is_empty() && self.waiting.is_empty() && !self.input.has_line() {
                return Ok(true);
            }
            match self.next_line() {
                Ok(Some((line, spot))) => {
                    let is_last = self.waiting.is_empty() && self.input.is_used_up();
                    self.is_cut = !line.ends_with('\n') && is_last;
                    self.line(line.trim_end_matches(['\n', '\r']), spot, batch);
                }
                Ok(None) => self.ended = true,
                Err(source) => {
                    self.ended = true;
                    let stream = self.name.clone();
                    return Err(ReadError::Io {
                        stream,
                        offset: 0,
                        source,
                    });
                }
            }
        }
        if self.ended && !batch.is_full() {
            if self.is_cut {
                self.remark("the last line has no end: it may be cut");
            }
            self.lose_rest(batch);
            self.output.settle(0, batch);
            self.output.end(batch);
            self.output.remark_cut(&mut self.info);
            self.remark_late();
        }
        for row in batch.rows() {
            if let Some(stream) = self.info.streams.get_mut(row.stream.0 as usize) {
                stream.start = Some(stream.start.map_or(row.time, |start| start.min(row.time)));
                stream.end = stream.end.max(Some(row.time));
            }
        }
        Ok(!batch.is_empty())
    }
}
