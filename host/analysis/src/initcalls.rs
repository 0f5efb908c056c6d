//! What a kernel did while it booted: its initcalls, one after the other, with their times and levels.
//!
//! Three kinds of records tell of them. The best that a trace has is taken: the events `initcall_start` and
//! `initcall_finish`; what the kernel printed with `initcall_debug`, where a trace holds its messages (`console`, or the
//! kernel's log itself); the calls of `do_one_initcall`, whose longest callee is the initcall.
//!
//! It looks at batches alone, whose events have names and fields ([`kymo_event::Wanted::Details`]).

use std::collections::HashMap;

use kymo_event::{
    Batch, Duration, Event, EventKind, FunctionId, Gap, Row, RowKind, ThreadId, Time, TraceInfo,
    Value,
};

/// The function that calls them all.
const CALLER: &str = "do_one_initcall";

/// So many are kept. A kernel has some 3000.
const MOST: usize = 1 << 16;

/// A function that the kernel calls once, when it boots or when a module is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initcall {
    /// Its name.
    pub name: String,
    /// When it began, if the record says so.
    pub start: Option<Time>,
    /// How long it took; `None` if its end is missing.
    pub duration: Option<Duration>,
    /// The level that it belongs to (`core`, `device`, ...), if the trace tells of levels.
    pub level: Option<String>,
    /// What it returned, if the record says so: 0, or an error.
    pub result: Option<i64>,
}

/// What recorded the initcalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// Events of the kernel's own.
    Events,
    /// Messages that `initcall_debug` has the kernel print.
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
    /// Whether a function is the caller of initcalls, by [`FunctionId`].
    callers: Vec<bool>,
    /// What each thread calls from there.
    stacks: HashMap<Option<ThreadId>, Call>,
    /// The places in the list of events of what each thread finished last, until its caller returns; where times are
    /// made of durations.
    finished: HashMap<Option<ThreadId>, usize>,
}

/// What one kind of records tells.
#[derive(Debug, Default)]
struct Reported {
    list: Vec<Initcall>,
    /// Places in the list of those that have not ended, by thread.
    open: HashMap<Option<ThreadId>, Vec<usize>>,
    left_out: u64,
}

/// A call of the caller of initcalls.
#[derive(Debug, Default)]
struct Call {
    begin: Time,
    /// How deep below it the thread is.
    depth: usize,
    /// The callee that runs: when it began, and which it is.
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

    /// An initcall of this name ends, in the thread where it began. Its place in the list.
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
            // Its beginning is not in the trace.
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
    /// Takes the next events.
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

    /// All of them in the order of their beginnings, and what recorded them; `None` if nothing did. The number is of
    /// those that were too many to keep.
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
            // What runs in whom is not known any more.
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
                        // Times that are made of durations say nothing of what passed: the caller's duration does.
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

    /// A line that the kernel printed.
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
                // Messages are printed by whichever thread has the console.
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

    /// A function is entered or left.
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

    /// The caller has returned.
    fn ended(&mut self, info: &TraceInfo, call: &Call) {
        // Of none it is not known which it called: all were shorter than the threshold.
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
    /// A callee has returned.
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

/// The function that an event names: by its name, or else by its address.
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

/// The name of a function without the place in it: `pci_init+0x0/0x2a`, `[module]`.
fn plain(name: &str) -> &str {
    let name = name.split_whitespace().next().unwrap_or_default();
    name.split_once("+0x").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests;
