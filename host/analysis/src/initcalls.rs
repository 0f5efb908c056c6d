//! Initcalls of a booting kernel, in order, with their times and levels.
//!
//! Three kinds of records contain them, and the best one in the trace is used: the events `initcall_start` and
//! `initcall_finish`; the kernel's messages with `initcall_debug`, where a trace holds them (`console`, or the
//! kernel's log itself); and calls of `do_one_initcall`, whose longest callee is the initcall.
//!
//! Uses only batches, whose events must have names and fields ([`kymo_event::Wanted::Details`]).

use std::collections::HashMap;

use kymo_event::{
    Batch, Duration, Event, EventKind, FunctionId, Gap, Row, RowKind, ThreadId, Time, TraceInfo,
    Value,
};

/// The function that calls all initcalls.
const CALLER: &str = "do_one_initcall";

/// Maximum number of initcalls kept. A kernel has some 3000.
const MOST: usize = 1 << 16;

/// A function that the kernel calls once, when it boots or when a module is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initcall {
    /// Its name.
    pub name: String,
    /// The time of its begin, if recorded.
    pub start: Option<Time>,
    /// Its duration; `None` if its end is missing.
    pub duration: Option<Duration>,
    /// Its level (`core`, `device`, ...), if the trace records levels.
    pub level: Option<String>,
    /// Its return value, if recorded: 0, or an error.
    pub result: Option<i64>,
}

/// The kind of records that the initcalls come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The kernel's own events.
    Events,
    /// Messages that the kernel prints with `initcall_debug`.
    Messages,
    /// Calls of `do_one_initcall`.
    Calls,
}

/// The initcalls of a trace.
#[derive(Debug, Default)]
pub struct Initcalls {
    events: Reported,
    messages: Reported,
    calls: Reported,
    level: Option<String>,
    /// Whether a function is the caller of initcalls, indexed by [`FunctionId`].
    callers: Vec<bool>,
    /// The current call of the caller, per thread.
    stacks: HashMap<Option<ThreadId>, Call>,
    /// The indices in the list of events of the initcall that each thread finished last, until its caller returns.
    /// Used where times are derived from durations.
    finished: HashMap<Option<ThreadId>, usize>,
}

/// Initcalls from one kind of records.
#[derive(Debug, Default)]
struct Reported {
    list: Vec<Initcall>,
    /// The indices in the list of those that have not ended, per thread.
    open: HashMap<Option<ThreadId>, Vec<usize>>,
    left_out: u64,
}

/// A call of the caller of initcalls.
#[derive(Debug, Default)]
struct Call {
    begin: Time,
    /// The number of calls open below it in the thread.
    depth: usize,
    /// The running callee: the time of its begin, and its function.
    callee: Option<(Time, FunctionId)>,
    /// The longest callee so far.
    longest: Option<(Duration, Time, FunctionId)>,
}

impl Reported {
    fn begin(&mut self, thread: Option<ThreadId>, initcall: Initcall) {
        if self.list.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.open.entry(thread).or_default().push(self.list.len());
        self.list.push(initcall);
    }

    /// Ends an initcall of this name, in the thread where it began. Returns its index in the list.
    fn end(
        &mut self,
        thread: Option<ThreadId>,
        name: &str,
        result: Option<i64>,
        duration: impl FnOnce(Option<Time>) -> Option<Duration>,
    ) -> Option<usize> {
        let open = self.open.entry(thread).or_default();
        let is_it = |place: &usize| self.list.get(*place).is_some_and(|it| it.name == name);
        let found = open.iter().rposition(is_it);
        let place = found.map(|at| open.split_off(at).swap_remove(0));
        let next = self.list.len();
        if let Some(initcall) = place.and_then(|place| self.list.get_mut(place)) {
            initcall.duration = duration(initcall.start);
            initcall.result = result;
        } else if self.list.len() >= MOST {
            self.left_out += 1;
            return None;
        } else {
            // Its begin is not in the trace.
            self.list.push(Initcall {
                name: name.to_owned(),
                start: None,
                duration: duration(None),
                level: None,
                result,
            });
        }
        Some(place.unwrap_or(next))
    }
}

impl Initcalls {
    /// Processes the next events.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) {
        for row in batch.rows() {
            match row.kind {
                RowKind::Enter | RowKind::Exit => self.call(info, row),
                RowKind::Rare | RowKind::Other => {
                    if let Some(event) = batch.event_of(row) {
                        self.event(info, event);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns all initcalls in the order of their begins, with the kind of records and the number of those beyond
    /// the maximum; `None` if nothing recorded any.
    pub fn finish(self) -> Option<(Evidence, Vec<Initcall>, u64)> {
        [
            (Evidence::Events, self.events),
            (Evidence::Messages, self.messages),
            (Evidence::Calls, self.calls),
        ]
        .into_iter()
        .find(|(_, reported)| !reported.list.is_empty())
        .map(|(evidence, reported)| (evidence, reported.list, reported.left_out))
    }

    fn event(&mut self, info: &TraceInfo, event: &Event) {
        if let EventKind::Gap(gap) = &event.kind {
            // The open calls are unknown after a loss.
            if matches!(gap, Gap::Discarded { .. } | Gap::Damage { .. }) {
                self.stacks.clear();
            }
            return;
        }
        match &*event.name {
            "initcall_level" => self.level = text(event, "level"),
            "initcall_start" => {
                self.finished.remove(&event.thread);
                let initcall = Initcall {
                    name: function(event),
                    start: Some(event.time),
                    duration: None,
                    level: self.level.clone(),
                    result: None,
                };
                self.events.begin(event.thread, initcall);
            }
            "initcall_finish" => {
                let (name, end) = (function(event), event.time);
                let place = self
                    .events
                    .end(event.thread, &name, number(event, "ret"), |start| {
                        // Times derived from durations do not show what passed; the caller's duration does.
                        end.since(start?).filter(|_| !info.untimed)
                    });
                if let Some(place) = place.filter(|_| info.untimed) {
                    self.finished.insert(event.thread, place);
                }
            }
            "console" => {
                if let Some(line) = text(event, "msg").or_else(|| text(event, "text")) {
                    self.message(event, &line);
                }
            }
            _ => {}
        }
    }

    /// Processes a line that the kernel printed.
    fn message(&mut self, event: &Event, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [.., "calling", name, "@", _] => {
                let initcall = Initcall {
                    name: plain(name).to_owned(),
                    start: Some(event.time),
                    duration: None,
                    level: self.level.clone(),
                    result: None,
                };
                // The thread that has the console prints the messages, so they are matched without a thread.
                self.messages.begin(None, initcall);
            }
            [
                ..,
                "initcall",
                name,
                "returned",
                result,
                "after",
                took,
                "usecs",
            ] => {
                let took = took.parse::<u64>().ok();
                let took = took.map(|it| Duration(it.saturating_mul(1000)));
                let result = result.parse().ok();
                self.messages.end(None, plain(name), result, |_| took);
            }
            _ => {}
        }
    }

    /// Processes an enter or exit of a function.
    fn call(&mut self, info: &TraceInfo, row: &Row) {
        let is_entry = row.kind == RowKind::Enter;
        let thread = row.thread();
        if let Some(call) = self.stacks.get_mut(&thread) {
            match (is_entry, call.depth, row.of_function()) {
                (true, 0, Some(function)) => call.callee = Some((row.time, function)),
                (true, ..) => {}
                (false, 1, _) => call.left(row.time),
                (false, 0, _) => {
                    if let Some(call) = self.stacks.remove(&thread) {
                        let finished = self.finished.remove(&thread);
                        if let Some(initcall) = finished.and_then(|at| self.events.list.get_mut(at))
                        {
                            initcall.duration = row.time.since(call.begin);
                        }
                        self.ended(info, &call);
                    }
                    return;
                }
                (false, ..) => {}
            }
            call.depth = match is_entry {
                true => call.depth + 1,
                false => call.depth - 1,
            };
            return;
        }
        if is_entry && row.of_function().is_some_and(|it| self.is_caller(info, it)) {
            let call = Call {
                begin: row.time,
                ..Call::default()
            };
            self.stacks.insert(thread, call);
        }
    }

    /// Handles the return of the caller.
    fn ended(&mut self, info: &TraceInfo, call: &Call) {
        // Without a callee the initcall is unknown: all callees were shorter than the threshold.
        let Some((duration, start, function)) = call.longest else {
            return;
        };
        let function = info.identities.function(function);
        let name = function.and_then(|it| it.name.as_deref()).unwrap_or("?");
        if self.calls.list.len() >= MOST {
            self.calls.left_out += 1;
            return;
        }
        self.calls.list.push(Initcall {
            name: name.to_owned(),
            start: Some(start),
            duration: Some(duration),
            level: self.level.clone(),
            result: None,
        });
    }

    fn is_caller(&mut self, info: &TraceInfo, function: FunctionId) -> bool {
        let known = self.callers.len();
        let new = info.identities.functions().get(known..).unwrap_or_default();
        let is_it = |it: &kymo_event::Function| it.name.as_deref() == Some(CALLER);
        self.callers.extend(new.iter().map(is_it));
        self.callers
            .get(function.0 as usize)
            .copied()
            .unwrap_or(false)
    }
}

impl Call {
    /// Handles the return of a callee.
    fn left(&mut self, end: Time) {
        let Some((start, function)) = self.callee.take() else {
            return;
        };
        let took = end.since(start).unwrap_or_default();
        if self.longest.is_none_or(|(longest, ..)| took > longest) {
            self.longest = Some((took, start, function));
        }
    }
}

fn field<'e>(event: &'e Event, name: &str) -> Option<&'e Value> {
    let field = event.fields.iter().find(|field| field.name == name)?;
    Some(&field.value)
}

fn text(event: &Event, name: &str) -> Option<String> {
    match field(event, name)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn number(event: &Event, name: &str) -> Option<i64> {
    match field(event, name)? {
        Value::Signed(number) => Some(*number),
        Value::Unsigned(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

/// The function that an event refers to: its name, or else its address.
fn function(event: &Event) -> String {
    match field(event, "func") {
        Some(Value::Text(text)) => plain(text).to_owned(),
        Some(other) => {
            let mut text = String::new();
            other.push(&mut text);
            text
        }
        None => "?".to_owned(),
    }
}

/// A function's name without offset and module: `pci_init+0x0/0x2a`, `[module]`.
fn plain(name: &str) -> &str {
    let name = name.split_whitespace().next().unwrap_or_default();
    name.split_once("+0x").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests;
