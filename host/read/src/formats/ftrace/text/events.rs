//! Meanings of events other than functions.

use kymo_event::{
    Batch, Cpu, EventKind, Field, FunctionId, InterruptKind, Irq, RowKind, ThreadId, Wanted,
};
use kymo_ftrace::text::{self, Scheduled, Task, Values};

use super::system_calls::syscall;
use super::{At, Caller, TextSource};
use crate::formats::ftrace::marks::{self, BESIDE_CALLS, Mark};
use crate::formats::ftrace::output::{Out, Reported};
use crate::linux::SOFTIRQS;

/// Remark about a text whose last line has no line end.
const CUT: &str =
    "the last line has no end and may be cut: it is shown, and not taken for what it says";

impl TextSource {
    /// Adds a remark, unless it exists.
    pub(super) fn remark(&mut self, remark: &str) {
        if !self.info.remarks.iter().any(|known| known == remark) {
            self.info.remarks.push(remark.to_owned());
        }
    }

    /// At the end, adds a remark on the calls that began before their lines of entry and were output at these.
    pub(super) fn remark_late(&mut self) {
        let late = self.late_calls + self.output.late();
        let is_printed = std::mem::replace(&mut self.says_late, true);
        if late > 0 && !is_printed {
            self.info.remarks.push(format!(
                "{late} calls began before their lines, which an interrupt delayed: they begin too late here, and their durations are as stated"
            ));
        }
    }

    /// An event of any other name.
    pub(super) fn other(&mut self, name: &str, body: &str, at: &At<'_>, batch: &mut Batch) {
        let time = self.now(at);
        let fields = text::fields(body);
        let number = |name: &str| {
            let (_, value) = fields.iter().find(|(field, _)| *field == name)?;
            value.split_whitespace().next()?.parse::<i32>().ok()
        };
        let text_of = |name: &str| Some(fields.iter().find(|(field, _)| *field == name)?.1);
        let word_of = |name: &str| text_of(name)?.split_whitespace().next();
        let row = |kind| at.row(kind, time);
        let show = |_: &mut Self| shown(body, &fields);
        if self.is_cut {
            // A number in it may lack its last digits.
            self.remark(CUT);
            return self.put(row(RowKind::Other), at, name, batch, show);
        }
        if let Some(mark) = marked(name, body)
            && let Some(thread) = at.thread
        {
            return self.mark(mark, thread, name, body, at, batch);
        }
        match text::scheduled(name, body) {
            Some(Scheduled::Switch { previous, next }) if at.time.is_some() => {
                self.switched([previous.pid, next.pid], body);
                return self.switch(name, [previous, next], at, batch, show);
            }
            Some(Scheduled::Wakeup(task)) => {
                if name == "sched_wakeup_new" {
                    self.woken(task);
                }
                if let Some(thread) = self.met(task) {
                    return self.rare(EventKind::Ready { thread }, name, body, at, batch);
                }
            }
            _ => {}
        }
        match name {
            "task_rename" => {
                if let Some((pid, comm)) = number("pid").or(at.pid).zip(text_of("newcomm")) {
                    self.name(pid, comm);
                }
            }
            "task_newtask" | "sched_process_fork" => {
                let (pid, comm) = match name {
                    "task_newtask" => ("pid", "comm"),
                    _ => ("child_pid", "child_comm"),
                };
                if let Some(pid) = number(pid) {
                    let comm = text_of(comm).unwrap_or_default();
                    let flags = at.pid.zip(text_of("clone_flags"));
                    let group =
                        flags.and_then(|(parent, flags)| self.group_of_new(pid, parent, flags));
                    self.created(Task { comm, pid }, group);
                }
            }
            "sched_process_exit" => {
                if let Some(pid) = number("pid") {
                    if let Some(comm) = text_of("comm") {
                        self.name(pid, comm);
                    }
                    self.output.exits(pid, &mut self.info.identities);
                }
            }
            "sched_process_exec" => {
                if let Some((pid, file)) = number("pid").or(at.pid).zip(text_of("filename")) {
                    // The kernel names the thread by the last part of the path, truncated to 15 bytes.
                    let name = file.rsplit('/').next().unwrap_or_default();
                    let name: String = name.chars().take(15).collect();
                    self.name(pid, &name);
                }
            }
            "irq_handler_entry" | "irq_handler_exit" | "softirq_entry" | "softirq_exit" => {
                let (kind, field) = match name.starts_with("irq") {
                    true => (InterruptKind::Hard, "irq"),
                    false => (InterruptKind::Soft, "vec"),
                };
                let alone = match kind {
                    InterruptKind::Hard => self.alone.interrupts,
                    _ => self.alone.softirqs,
                };
                let irq = number(field).and_then(|irq| u32::try_from(irq).ok());
                if let Some(irq) = irq.filter(|_| !alone) {
                    let space = self.output.space;
                    let id = self.info.identities.interrupt(space, kind, Irq(irq));
                    let called = match kind {
                        InterruptKind::Soft => SOFTIRQS
                            .get(irq as usize)
                            .map(|name| format!("softirq {name}")),
                        _ => text_of("name").map(str::to_owned),
                    };
                    let known = self.info.identities.interrupt_name(id);
                    if let Some(called) = called.and_then(|it| with_handler(known, &it)) {
                        self.info.identities.name_interrupt(id, &called);
                    }
                    let kind = match name.ends_with("entry") {
                        true => RowKind::IsrEnter,
                        false => RowKind::IsrExit,
                    };
                    return self.put(row(kind).interrupt(Some(id)), at, name, batch, show);
                }
            }
            _ if marks::is_power(name) => {
                let number = |name| text_of(name)?.parse::<u64>().ok();
                let cpu = number(marks::CPU).and_then(|cpu| u32::try_from(cpu).ok());
                if let Some((state, cpu)) = number(marks::STATE).zip(cpu) {
                    let kind = marks::power(name, state, cpu);
                    return self.rare(kind, name, body, at, batch);
                }
            }
            // `local_timer_entry: vector=236`
            _ if body.starts_with("vector=") => {
                let (vector, kind) = match name.strip_suffix("_entry") {
                    Some(vector) => (vector, RowKind::IsrEnter),
                    None => (name.trim_end_matches("_exit"), RowKind::IsrExit),
                };
                let number = number("vector");
                if let Some(irq) = number.and_then(|irq| u32::try_from(irq).ok()) {
                    let space = self.output.space;
                    let identities = &mut self.info.identities;
                    let id = identities.interrupt(space, InterruptKind::Vector, Irq(irq));
                    identities.name_interrupt(id, vector);
                    return self.put(row(kind).interrupt(Some(id)), at, name, batch, show);
                }
            }
            _ => {
                let returned_0 = body.ends_with(" = 0")
                    || body.split_whitespace().last() == Some("0x0")
                    || matches!(word_of("ret"), Some("0" | "0x0"));
                if let Some((call, is_exit)) = syscall(name, body)
                    && self.has_system_calls()
                    && let Some(function) = self.system_call_in(is_exit, call, returned_0, at)
                {
                    let row = self.system_call(row(Self::edge(is_exit)), function, at, batch);
                    return self.put(row, at, name, batch, show);
                }
            }
        }
        self.put(row(RowKind::Other), at, name, batch, show);
    }

    /// Handles a mark of a program's span or counter.
    fn mark(
        &mut self,
        mark: Mark<'_>,
        thread: ThreadId,
        name: &str,
        body: &str,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        let time = self.now(at);
        self.marks.has_kernel_calls |= self.has_graph;
        let row = match mark {
            Mark::Begin(span) => {
                let function = self.function(span);
                match self.marks.begin(thread, function) {
                    true => at.row(RowKind::Enter, time).function(Some(function)),
                    false => {
                        self.remark(BESIDE_CALLS);
                        at.row(RowKind::Other, time)
                    }
                }
            }
            Mark::End => match self.marks.end(thread) {
                Some(function) => at.row(RowKind::Exit, time).function(Some(function)),
                None => at.row(RowKind::Other, time),
            },
            Mark::Counter(counter) => {
                return self.rare(counter.into(), name, body, at, batch);
            }
        };
        self.put(row, at, name, batch, |_| shown(body, &text::fields(body)));
    }

    /// Adds an event whose meaning no row can represent.
    fn rare(&mut self, kind: EventKind, name: &str, body: &str, at: &At<'_>, batch: &mut Batch) {
        let time = self.now(at);
        let event = match self.wanted {
            Wanted::Meaning => (String::new(), Vec::new()),
            _ => {
                let mut fields = shown(body, &text::fields(body));
                fields.extend(at.context());
                (name.to_owned(), fields)
            }
        };
        let reported = Reported::record(kind, event.0.into(), event.1, time);
        let out = Out::new(at.row(RowKind::Rare, time), at.pid, Some(reported));
        self.output.put(out, batch);
    }

    /// Handles a switch from one task to another.
    fn switch(
        &mut self,
        name: &str,
        tasks: [Task<'_>; 2],
        at: &At<'_>,
        batch: &mut Batch,
        show: impl Fn(&mut Self) -> Vec<Field>,
    ) {
        let time = self.now(at);
        let row = |kind| at.row(kind, time);
        let next = tasks[1].pid;
        let [left, entered] = tasks.map(|task| self.met(task));
        let cpu = at.cpu.map(Cpu);
        let after = At {
            pid: Some(next),
            ..*at
        };
        let mut out = row(RowKind::SwitchedOut).at(cpu, left);
        if left.is_some() {
            out.record = entered.is_none();
            match out.record {
                true => self.put(out, &after, name, batch, &show),
                false => self.output.put_row(out, next, batch),
            }
        }
        match entered {
            Some(_) => {
                let into = row(RowKind::SwitchedIn).at(cpu, entered);
                self.put(into, &after, name, batch, &show);
            }
            None if left.is_none() => {
                self.put(row(RowKind::Other), at, name, batch, &show);
            }
            None => {}
        }
    }

    /// Begins a leaf call whose duration the text does not have.
    pub(super) fn begin_leaf(&mut self, named: Option<FunctionId>, depth: u32, at: &At<'_>) {
        self.remark(
            "the text does not say how long leaf calls took: each lasts to the next line of its CPU, at most",
        );
        if let Some(state) = self.states.get_mut(at.place) {
            let at = At {
                place: at.place,
                cpu: at.cpu,
                pid: at.pid,
                task: at.task,
                thread: at.thread,
                flags: "",
                values: Values::default(),
                is_nameless: false,
                time: at.time,
            };
            state.leaf = Some((named, depth, at));
        }
    }

    /// Ends such a call at the next event of its CPU.
    pub(super) fn end_leaf(&mut self, now: &At<'_>, batch: &mut Batch) {
        let state = self.states.get_mut(now.place);
        if let Some((named, depth, at)) = state.and_then(|state| state.leaf.take()) {
            let at = At {
                time: now.time,
                ..at
            };
            self.exit(named, depth, None, false, &at, batch);
        }
    }

    /// Adds `calls` calls of a function whose end is not recorded. The line is the record of the first.
    pub(super) fn called(
        &mut self,
        function: &str,
        parent: &str,
        calls: u32,
        at: &At<'_>,
        batch: &mut Batch,
    ) {
        if !self.has_functions {
            self.has_functions = true;
            for stream in &mut self.info.streams {
                stream.whole_calls = true;
            }
            self.info
                .remarks
                .push(crate::formats::ftrace::NO_ENDS.to_owned());
        }
        let time = self.now(at);
        let id = self.function(function);
        let caller = (!parent.is_empty()).then(|| kymo_event::Caller {
            function: self.function(parent),
            offset: 0,
        });
        let row = at.row(RowKind::Called, time).function(Some(id));
        let mut row = row.called_by(caller);
        let parent = caller.map(|_| Field::new("parent", parent));
        self.put(row, at, "function", batch, |_| parent.into_iter().collect());
        row.record = false;
        // The kernel counts them in 16 bits.
        for _ in 1..calls.min(1 << 16) {
            self.output.put(Out::new(row, at.pid, None), batch);
        }
    }

    /// Handles a caller in the stack of the event before.
    pub(super) fn caller(&mut self, caller: &str, batch: &mut Batch) {
        let (place, cpu) = self.last_place;
        let Some(state) = self.states.get(place) else {
            return;
        };
        let (time, pid) = (state.last, state.task);
        let at = At {
            place,
            cpu,
            pid: pid.filter(|_| !self.is_untimed),
            task: Caller::new(pid, cpu),
            thread: pid.and_then(|pid| self.output.thread(pid, &mut self.info.identities)),
            flags: "",
            values: Values::default(),
            is_nameless: false,
            time: None,
        };
        let row = at.row(RowKind::Other, time);
        self.put(row, &at, "caller", batch, |_| {
            vec![Field::new("function", caller)]
        });
    }
}

/// Returns the mark in the text of an event. `E` alone is a mark only in a program's text.
fn marked<'t>(name: &str, body: &'t str) -> Option<Mark<'t>> {
    let is_print = super::PRINTS.contains(&name);
    // trace-cmd's form: `print: tracing_mark_write: B|7|draw`.
    let behind = || body.split_once(": ").filter(|_| is_print);
    let mark = marks::mark(body).or_else(|| marks::mark(behind()?.1));
    mark.filter(|_| is_print || body.contains('|'))
}

/// Adds a handler to the name of its interrupt line, which several handlers can share: `uhci_hcd:usb4, eth0`, as in
/// `/proc/interrupts`. Returns `None` if the name has the handler already, or would become too long.
pub(in crate::formats::ftrace) fn with_handler(
    known: Option<&str>,
    handler: &str,
) -> Option<String> {
    /// Name length in bytes from which on a name is not extended.
    const LONGEST: usize = 120;
    match known {
        None => Some(handler.to_owned()),
        Some(known) if known.split(", ").any(|it| it == handler) => None,
        Some(known) => (known.len() < LONGEST).then(|| format!("{known}, {handler}")),
    }
}

/// Returns the fields in an event's text, or the whole text if it has none or begins with something else.
fn shown(body: &str, fields: &[(&str, &str)]) -> Vec<Field> {
    let is_all = fields
        .first()
        .is_some_and(|(name, _)| body.starts_with(name));
    if !is_all && !body.is_empty() {
        return vec![Field::new("text", body)];
    }
    // Leading zeros mean an address or a code.
    let is_padded = |value: &str| value.len() > 1 && value.starts_with('0');
    let number = |value: &str| value.parse::<i64>().ok().filter(|_| !is_padded(value));
    fields
        .iter()
        .map(|(name, value)| match number(value) {
            Some(value) => Field::new((*name).to_owned(), value),
            None => Field::new((*name).to_owned(), *value),
        })
        .collect()
}
