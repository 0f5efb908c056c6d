//! Rules: the meaning of each event class by its name and fields, determined once when a trace is opened.

use std::collections::HashMap;
use std::sync::Arc;

use kymo_ctf::metadata::{EventClass, Metadata, Scope};
use kymo_event::InterruptKind;

use super::processes::Object;
use crate::linux::SPAWN;

/// Rule for the events of one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) meaning: Means,
    /// Context with the name of the thread.
    pub(super) own_name: Option<Scope>,
    /// Whether the payload has names.
    pub(super) has_names: bool,
    /// Whether the stream's event context alone determines thread, process and name: they do not change while it is the
    /// same.
    pub(super) by_context: bool,
}

impl Rule {
    /// Rule for unknown classes.
    pub(super) const OTHER: Self = Self {
        meaning: Means::Other,
        own_name: None,
        has_names: false,
        by_context: false,
    };
}

/// Returns the rules of all event classes, by stream class and index in it, and the names of their system calls.
pub(super) fn of(metadata: &Metadata) -> (Vec<Arc<[Rule]>>, Vec<String>) {
    let mut calls = HashMap::new();
    let streams = metadata.streams.iter().enumerate();
    let rules = streams.map(|(number, stream)| {
        let mut events = stream.events.iter();
        let old = events.any(|class| class.name == "exit_syscall");
        let events = stream.events.iter().enumerate();
        let rule = |(place, class): (usize, &EventClass)| {
            let meaning = meaning(class, old, &mut calls);
            let scope = |names: &[&'static str]| {
                let found = context(metadata, (number, place), names);
                found.map(|(scope, _)| scope)
            };
            let [tid, pid, own_name] = [&TIDS[..], &PIDS[..], &NAMES[..]].map(scope);
            let is_outer = |it: Option<Scope>| it.is_none_or(|it| it == Scope::StreamEventContext);
            let is_object = matches!(meaning, Means::Object(_));
            Rule {
                has_names: !is_object && meaning.texts(class) != [""; 2],
                by_context: tid.is_some() && [tid, pid, own_name].into_iter().all(is_outer),
                own_name,
                meaning,
            }
        };
        events.map(rule).collect()
    });
    let rules = rules.collect();
    let mut names = vec![String::new(); calls.len()];
    for (name, place) in calls {
        names[place] = name;
    }
    (rules, names)
}

/// Returns whether the events record thread switches.
pub(super) fn reports_switches(rules: &[Arc<[Rule]>]) -> bool {
    let mut rules = rules.iter().flat_map(|rules| rules.iter());
    rules.any(|rule| rule.meaning == Means::Switch)
}

/// Returns a remark about functions whose threads are not recorded; `None` if they are, or if there are no functions.
pub(super) fn without_threads(metadata: &Metadata, rules: &[Arc<[Rule]>]) -> Option<String> {
    let is_without = |(stream, rules): (usize, &Arc<[Rule]>), names: &[&str]| {
        let mut classes = rules.iter().enumerate();
        classes.any(|(place, rule)| {
            rule.meaning == Means::FunctionEntry
                && context(metadata, (stream, place), names).is_none()
        })
    };
    let mut streams = rules.iter().enumerate();
    if !streams.clone().any(|stream| is_without(stream, &TIDS)) {
        return None;
    }
    let each = match streams.any(|stream| is_without(stream, &PIDS)) {
        true => "processor",
        false => "process",
    };
    Some(format!(
        "the trace does not tell the threads of functions: the calls of each {each} are taken for those of one thread; \
         `lttng add-context --userspace --type vtid --type vpid` records them"
    ))
}

/// Meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Means {
    Switch,
    Wakeup,
    /// A new thread becomes ready for the first time.
    NewWakeup,
    /// Name of a thread.
    Name,
    /// A thread is created.
    Fork,
    /// A thread begins to exit.
    ThreadExit,
    /// Execution of the program with this path.
    Exec,
    IrqEntry,
    IrqExit,
    /// Entry of an interrupt of another kind. If its number does not determine its name, the event's name does.
    KindEntry(InterruptKind),
    KindExit(InterruptKind),
    /// System call with this index in [`Lttng::functions`].
    SyscallEntry(usize),
    /// A system call that does not return: the thread continues where the signal arrived.
    SignalReturn(usize),
    SyscallExit(Option<usize>),
    /// Exit of a system call that also returns 0 in the new thread, which has not called it.
    SpawnExit(usize),
    /// The number of the system call is in the field `id`.
    NumberedEntry,
    NumberedExit,
    FunctionEntry,
    FunctionExit,
    /// A process reports a loaded file.
    Object(Object),
    /// Build id of a loaded file.
    BuildId,
    Other,
}

/// Names of the contexts with the thread number, the thread name and the process id.
pub(super) const TIDS: [&str; 4] = ["vtid", "_vtid", "tid", "_tid"];
pub(super) const NAMES: [&str; 2] = ["procname", "_procname"];
pub(super) const PIDS: [&str; 2] = ["vpid", "_vpid"];

/// Returns the context of an event class that has one of these fields, and the field.
pub(super) fn context<'n>(
    metadata: &Metadata,
    (stream, event): (usize, usize),
    names: &[&'n str],
) -> Option<(Scope, &'n str)> {
    // If both contexts have a field with this name, the outer one is used.
    let scopes = [Scope::StreamEventContext, Scope::EventContext];
    names.iter().find_map(|name| {
        scopes.into_iter().find_map(|scope| {
            let fields = metadata.scope(stream, event, scope)?;
            fields.member(name).map(|_| (scope, *name))
        })
    })
}

impl Means {
    /// Returns the names of the numbers that the rule needs from the payload.
    pub(super) fn numbers(self, class: &EventClass) -> [&'static str; 2] {
        match self {
            Self::Switch => ["prev_tid", "next_tid"],
            Self::Wakeup | Self::NewWakeup | Self::Name | Self::Exec | Self::ThreadExit => {
                ["tid", ""]
            }
            Self::Fork => ["child_tid", ""],
            Self::IrqEntry | Self::IrqExit => ["irq", ""],
            Self::KindEntry(InterruptKind::Soft) | Self::KindExit(InterruptKind::Soft) => {
                ["vec", ""]
            }
            Self::KindEntry(_) | Self::KindExit(_) => ["vector", ""],
            Self::NumberedEntry | Self::NumberedExit => ["id", ""],
            Self::FunctionEntry => ["addr", "call_site"],
            Self::FunctionExit => ["addr", ""],
            Self::Object(_) => ["baddr", first_of(class, ["memsz", "size"])],
            Self::BuildId => ["baddr", ""],
            Self::SpawnExit(_) => ["ret", ""],
            Self::SyscallEntry(_) | Self::SignalReturn(_) | Self::SyscallExit(_) | Self::Other => {
                [""; 2]
            }
        }
    }

    /// Returns the names of the texts that the rule needs from the payload.
    pub(super) fn texts(self, class: &EventClass) -> [&'static str; 2] {
        match self {
            Self::Switch => ["prev_comm", "next_comm"],
            Self::Wakeup | Self::NewWakeup | Self::ThreadExit => ["comm", ""],
            Self::Name => ["name", ""],
            Self::Fork => ["child_comm", ""],
            Self::Exec => ["filename", ""],
            Self::IrqEntry => ["name", ""],
            Self::Object(_) => [first_of(class, ["path", "sopath"]), ""],
            _ => [""; 2],
        }
    }
}

/// Returns the meaning of an event class. `old` means that its system calls have the names from before LTTng 2.3.
fn meaning(class: &EventClass, old: bool, calls: &mut HashMap<String, usize>) -> Means {
    let name = class.name.as_str();
    let has = |field| {
        let fields = class.fields.as_ref();
        fields.is_some_and(|fields| fields.member(field).is_some())
    };
    match name {
        "sched_switch" if has("next_tid") => return Means::Switch,
        "sched_wakeup" if has("tid") => return Means::Wakeup,
        "sched_wakeup_new" if has("tid") => return Means::NewWakeup,
        "sched_process_fork" if has("child_tid") => return Means::Fork,
        "sched_process_exit" if has("tid") => return Means::ThreadExit,
        "sched_process_exec" if has("filename") => return Means::Exec,
        "lttng_statedump_process_state" if has("tid") => return Means::Name,
        "irq_handler_entry" if has("irq") => return Means::IrqEntry,
        "irq_handler_exit" if has("irq") => return Means::IrqExit,
        "softirq_entry" if has("vec") => return Means::KindEntry(InterruptKind::Soft),
        "softirq_exit" if has("vec") => return Means::KindExit(InterruptKind::Soft),
        "sys_enter" if has("id") => return Means::NumberedEntry,
        "sys_exit" if has("id") => return Means::NumberedExit,
        "exit_syscall" => return Means::SyscallExit(None),
        "lttng_ust_statedump:build_id" | "lttng_ust_lib:build_id" if has("baddr") => {
            return Means::BuildId;
        }
        _ => {}
    }
    if let Some(object) = Object::of(name).filter(|_| has("baddr")) {
        return Means::Object(object);
    }
    if let Some(kind) = name.strip_prefix("lttng_ust_cyg_profile") {
        return match kind.trim_start_matches("_fast") {
            ":func_entry" if has("addr") => Means::FunctionEntry,
            ":func_exit" => Means::FunctionExit,
            _ => Means::Other,
        };
    }
    if vector(name).is_some() && has("vector") {
        return Means::KindEntry(InterruptKind::Vector);
    }
    if name.starts_with("x86_irq_vectors_") && name.ends_with("_exit") && has("vector") {
        return Means::KindExit(InterruptKind::Vector);
    }
    let (compat, name) = match name.strip_prefix("compat_") {
        Some(name) => (true, name),
        None => (false, name),
    };
    let mut call = |name: &str, compat: bool| {
        let bits = if compat { " (32 bits)" } else { "" };
        place(format!("{name}{bits}"), calls)
    };
    if let Some(name) = name.strip_prefix("syscall_entry_") {
        entry(name, call(name, compat))
    } else if let Some(name) = name.strip_prefix("syscall_exit_") {
        match SPAWN.contains(&name) && has("ret") {
            true => Means::SpawnExit(call(name, compat)),
            false => Means::SyscallExit(Some(call(name, compat))),
        }
    } else if let Some(name) = name.strip_prefix("sys_").filter(|_| old) {
        entry(name, call(name, compat))
    } else {
        Means::Other
    }
}

/// Returns the meaning of the entry of a system call with this name.
fn entry(name: &str, place: usize) -> Means {
    match name {
        "rt_sigreturn" | "sigreturn" => Means::SignalReturn(place),
        _ => Means::SyscallEntry(place),
    }
}

/// Returns the name of the vector whose entry events have this name.
pub(super) fn vector(event: &str) -> Option<&str> {
    event
        .strip_prefix("x86_irq_vectors_")?
        .strip_suffix("_entry")
}

/// Returns the index of a system call.
fn place(name: String, calls: &mut HashMap<String, usize>) -> usize {
    let next = calls.len();
    *calls.entry(name).or_insert(next)
}

/// Returns the first of these fields that the payload of a class has, or the last one if it has none.
fn first_of(class: &EventClass, [first, other]: [&'static str; 2]) -> &'static str {
    let fields = class.fields.as_ref();
    match fields.is_some_and(|fields| fields.member(first).is_some()) {
        true => first,
        false => other,
    }
}
