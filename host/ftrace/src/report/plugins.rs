//! Events for which trace-cmd does not use the print format: function graphs, functions, scheduling, stacks.

use std::fmt::Write;

use super::{Report, end_line, text};
use crate::dat::Trace;
use crate::format::{EventFormat, FieldFormat, Formats};
use crate::records::Place;

/// Fields of the function-graph events.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphIds {
    entry: Option<Entry>,
    exit: Option<Exit>,
}

#[derive(Clone, Debug)]
struct Entry {
    id: u16,
    func: FieldFormat,
    depth: FieldFormat,
}

#[derive(Clone, Debug)]
struct Exit {
    id: u16,
    func: FieldFormat,
    calltime: FieldFormat,
    rettime: FieldFormat,
    depth: FieldFormat,
    retval: Option<FieldFormat>,
}

impl GraphIds {
    pub(super) fn of(formats: &Formats) -> Self {
        let exit = formats.named("funcgraph_exit").and_then(|event| {
            Some(Exit {
                id: event.id,
                func: event.field("func")?.clone(),
                calltime: event.field("calltime")?.clone(),
                rettime: event.field("rettime")?.clone(),
                depth: event.field("depth")?.clone(),
                retval: event.field("retval").cloned(),
            })
        });
        let entry = formats.named("funcgraph_entry").and_then(|event| {
            Some(Entry {
                id: event.id,
                func: event.field("func")?.clone(),
                depth: event.field("depth")?.clone(),
            })
        });
        Self { entry, exit }
    }
}

/// Entry of a function graph whose line is not complete: it has been written up to the duration.
#[derive(Clone, Debug)]
pub(super) struct GraphEntry {
    place: Place,
    pid: u32,
    func: u64,
    depth: u64,
}

impl<'t> Report<'t> {
    /// Appends the body of an event and returns `true`, if the event is one of these.
    pub(super) fn plugin(
        &mut self,
        event: &EventFormat,
        place: Place,
        data: &[u8],
        out: &mut String,
    ) -> bool {
        if let Some(entry) = self.ids.entry.as_ref().filter(|entry| entry.id == event.id) {
            let scope = self.trace.scope();
            self.entry = Some(GraphEntry {
                place,
                pid: self.trace.order.u32_at(data, 4).unwrap_or(0),
                func: scope.field(&entry.func, data),
                depth: scope.field(&entry.depth, data),
            });
            return true;
        }
        if self
            .ids
            .exit
            .as_ref()
            .is_some_and(|exit| exit.id == event.id)
        {
            self.exit(data, out);
            return true;
        }
        match (&*event.system, &*event.name) {
            ("ftrace", "function") => self.function(event, place, data, out),
            ("ftrace", "kernel_stack") => self.stack(event, data, out),
            ("sched", "sched_switch") => self.switch(event, data, out),
            ("sched", "sched_wakeup" | "sched_wakeup_new") => self.wakeup(event, data, out),
            ("kmem", name)
                if name.starts_with("kmalloc")
                    || name.starts_with("kmem_cache")
                    || name == "kfree" =>
            {
                self.call_site(event, data, out);
                false
            }
            _ => false,
        }
    }

    /// Returns the name of the function at an address.
    #[inline]
    fn symbol(&mut self, address: u64) -> Option<&'t str> {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let place = (address.wrapping_mul(SPREAD) >> 52) as usize;
        match self.recent.get(place) {
            Some((known, name)) if *known == address && !name.is_empty() => Some(name),
            _ => self.other_symbol(address, place),
        }
    }

    #[inline(never)]
    fn other_symbol(&mut self, address: u64, place: usize) -> Option<&'t str> {
        let trace: &'t Trace = self.trace;
        let name = trace.symbols.find(address)?.name;
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = (address, name);
        }
        Some(name)
    }

    /// Completes the line of an entry when the next record is known. Returns `true` if that record is its exit.
    pub(super) fn finish_entry(
        &mut self,
        entry: &GraphEntry,
        place: Place,
        data: &[u8],
        is_whole: bool,
        out: &mut String,
    ) -> bool {
        let order = self.trace.order;
        let name = self.symbol(entry.func);
        if let Some(exit) = &self.ids.exit
            && is_whole
            && place.cpu_buffer == entry.place.cpu_buffer
            && order.u16_at(data, 0) == Some(exit.id)
            && order.u32_at(data, 4) == Some(entry.pid)
            && self.trace.scope().field(&exit.func, data) == entry.func
        {
            self.duration(exit, data, entry.depth, out);
            match name {
                Some(name) => out.push_str(name),
                None => {
                    let _ = write!(out, "{:x}", entry.func);
                }
            }
            match &exit.retval {
                None => out.push_str("();\n"),
                Some(field) => {
                    out.push_str("();");
                    self.return_value(field, data, out);
                    out.push('\n');
                }
            }
            return true;
        }
        self.nested(entry, out);
        end_line(out);
        false
    }

    /// Completes the line of an entry whose exit is not the next record.
    pub(super) fn nested(&mut self, entry: &GraphEntry, out: &mut String) {
        out.push_str("          ");
        text::bar(1, indent(entry.depth), out);
        match self.symbol(entry.func) {
            Some(name) => {
                out.push_str(name);
                out.push_str("() {");
            }
            None => out.push_str(") {"),
        }
    }

    fn exit(&self, data: &[u8], out: &mut String) {
        let Some(exit) = &self.ids.exit else { return };
        let depth = self.trace.scope().field(&exit.depth, data);
        self.duration(exit, data, depth, out);
        out.push('}');
        if let Some(field) = &exit.retval {
            self.return_value(field, data, out);
        }
    }

    fn return_value(&self, field: &FieldFormat, data: &[u8], out: &mut String) {
        let value = self.trace.scope().field(field, data);
        // The highest 4095 numbers are error codes.
        let _ = match value.cast_signed() {
            -4095..0 => write!(out, " (ret={})", value.cast_signed()),
            _ => write!(out, " (ret={value:#x})"),
        };
    }

    /// Appends the duration of a call with its mark, and the indentation of the column behind.
    fn duration(&self, exit: &Exit, data: &[u8], depth: u64, out: &mut String) {
        let scope = self.trace.scope();
        let begin = scope.field(&exit.calltime, data);
        let duration = scope.field(&exit.rettime, data).wrapping_sub(begin);
        text::duration(duration, indent(depth), out);
    }

    fn function(
        &mut self,
        event: &EventFormat,
        place: Place,
        data: &[u8],
        out: &mut String,
    ) -> bool {
        let scope = self.trace.scope();
        let (Some(ip), Some(parent)) = (event.field("ip"), event.field("parent_ip")) else {
            return false;
        };
        let address = scope.field(ip, data);
        let function = self.trace.symbols.find(address).map(|symbol| symbol.name);
        let parent = self.trace.symbols.find(scope.field(parent, data));
        if let Some(parent) = parent {
            let callers = self.callers.entry(place.cpu).or_default();
            let level = callers.iter().position(|caller| *caller == parent.name);
            let level = level.unwrap_or_else(|| {
                match callers.first_mut() {
                    Some(first) => parent.name.clone_into(first),
                    None => callers.push(parent.name.to_owned()),
                }
                0
            });
            if let Some(function) = function {
                match callers.get_mut(level + 1) {
                    Some(callee) => function.clone_into(callee),
                    None => callers.push(function.to_owned()),
                }
            }
            out.extend(std::iter::repeat_n(' ', 3 * level));
        }
        let _ = match function {
            Some(name) => write!(out, "{name}"),
            None => write!(out, "{address:#x}"),
        };
        true
    }

    fn stack(&mut self, event: &EventFormat, data: &[u8], out: &mut String) -> bool {
        let Some(callers) = event.field("caller") else {
            return false;
        };
        out.push_str("<stack trace >\n");
        let size = self.trace.long_size;
        let all = data.get(callers.offset..).unwrap_or_default();
        for bytes in all.chunks_exact(size) {
            let address = self.trace.order.number(bytes);
            if address as u32 == u32::MAX && (size == 4 || address == u64::MAX) {
                break;
            }
            let _ = match self.symbol(address) {
                Some(name) => writeln!(out, "=> {name} ({address:x})"),
                None => writeln!(out, "=> {address:x}"),
            };
        }
        true
    }

    /// Appends `comm:pid`, and stores the name.
    fn task(
        &mut self,
        event: &EventFormat,
        (comm, pid): (&str, &str),
        data: &[u8],
        out: &mut String,
    ) -> bool {
        let scope = self.trace.scope();
        let Some(pid) = event.field(pid) else {
            return false;
        };
        let pid = scope.field(pid, data);
        if let Some(comm) = event.field(comm) {
            let comm = scope.text(comm, data);
            out.push_str(&comm);
            out.push(':');
            self.comms.learn((pid as u32).cast_signed(), &comm);
            self.head.clear();
        }
        let _ = write!(out, "{pid}");
        true
    }

    fn wakeup(&mut self, event: &EventFormat, data: &[u8], out: &mut String) -> bool {
        if !self.task(event, ("comm", "pid"), data, out) {
            return false;
        }
        let number = |name| Some(self.trace.scope().field(event.field(name)?, data));
        if let Some(prio) = number("prio") {
            let _ = write!(out, " [{prio}]");
        }
        if let Some(success) = number("success") {
            let _ = write!(out, " success={success}");
        }
        if let Some(cpu) = number("target_cpu") {
            let _ = write!(out, " CPU:{cpu:03}");
        }
        true
    }

    fn switch(&mut self, event: &EventFormat, data: &[u8], out: &mut String) -> bool {
        if !self.task(event, ("prev_comm", "prev_pid"), data, out) {
            return false;
        }
        let number = |this: &Self, name| Some(this.trace.scope().field(event.field(name)?, data));
        out.push(' ');
        if let Some(prio) = number(self, "prev_prio") {
            let _ = write!(out, "[{}] ", prio as u32 as i32);
        }
        if let Some(state) = number(self, "prev_state") {
            states(state, event, out);
        }
        out.push_str(" ==> ");
        if !self.task(event, ("next_comm", "next_pid"), data, out) {
            return true;
        }
        if let Some(prio) = number(self, "next_prio") {
            let _ = write!(out, " [{}]", prio as u32 as i32);
        }
        true
    }

    fn call_site(&self, event: &EventFormat, data: &[u8], out: &mut String) {
        let Some(field) = event.field("call_site") else {
            return;
        };
        let address = self.trace.scope().field(field, data);
        if let Some(symbol) = self.trace.symbols.find(address) {
            let _ = write!(out, "({}+{:#x}) ", symbol.name, address - symbol.address);
        }
    }
}

/// Returns the number of spaces in front of a call at this depth.
fn indent(depth: u64) -> usize {
    // Larger depths than the kernel records are damage.
    let depth = usize::try_from(depth).unwrap_or(0);
    if depth > 4096 { 0 } else { 2 * depth }
}

/// Appends the letters of a task's state.
fn states(value: u64, event: &EventFormat, out: &mut String) {
    let letters = event
        .print()
        .and_then(crate::format::PrintFormat::flag_letters);
    let letters = letters.unwrap_or_else(|| {
        "SDTtXZPI"
            .bytes()
            .enumerate()
            .map(|(bit, letter)| (bit as u32, char::from(letter)))
            .collect()
    });
    let mut any = false;
    for (bit, letter) in letters {
        if value >> bit & 1 == 1 {
            out.push_str(if any { "|" } else { "" });
            out.push(letter);
            any = true;
        }
    }
    if !any {
        out.push('R');
    }
}
