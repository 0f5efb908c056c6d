//! What the events of a kernel mean, found once for each event format.

use kymo_event::InterruptKind;
use kymo_ftrace::{EventFormat, FieldFormat, Formats};

use super::marks;
use crate::linux::SPAWN;

/// What an event means, with the fields that say what of.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// A function is entered.
    Entry {
        func: FieldFormat,
        depth: FieldFormat,
    },
    /// A function is left.
    Exit(Box<Exit>),
    /// A function is called; nothing tells of its end.
    Function {
        ip: FieldFormat,
        parent: Option<FieldFormat>,
    },
    Switch(Box<Switch>),
    /// A thread can go on.
    Wakeup {
        pid: FieldFormat,
        comm: Option<FieldFormat>,
    },
    /// A new thread has its parent's name.
    Fork {
        pid: FieldFormat,
        comm: FieldFormat,
    },
    /// A thread gets another name: the running one where no field says which.
    Rename {
        pid: Option<FieldFormat>,
        comm: FieldFormat,
    },
    /// The running thread executes another file.
    Exec {
        filename: FieldFormat,
    },
    IrqEntry {
        irq: FieldFormat,
        name: Option<FieldFormat>,
    },
    IrqExit {
        irq: FieldFormat,
    },
    KindEntry {
        kind: InterruptKind,
        number: FieldFormat,
        name: String,
    },
    KindExit {
        kind: InterruptKind,
        number: FieldFormat,
    },
    /// A system call of this name begins.
    CallEntry {
        name: String,
    },
    CallExit {
        name: String,
        /// What it returns, if that may be 0 in a thread that did not call: in a new one ([`SPAWN`]).
        child: Option<FieldFormat>,
    },
    /// A system call of which the number alone is known begins.
    NumberedEntry {
        id: FieldFormat,
    },
    NumberedExit {
        id: FieldFormat,
    },
    /// A program says something.
    Print,
    /// A CPU has another frequency or idle state.
    Power {
        event: String,
        state: FieldFormat,
        cpu: FieldFormat,
    },
    /// No more than its name and fields say.
    Other,
}

/// The fields of an exit.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    pub(super) func: FieldFormat,
    pub(super) depth: FieldFormat,
    pub(super) calltime: FieldFormat,
    pub(super) rettime: FieldFormat,
}

/// The fields of a switch.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) previous: FieldFormat,
    pub(super) next: FieldFormat,
    pub(super) previous_comm: Option<FieldFormat>,
    pub(super) next_comm: Option<FieldFormat>,
    pub(super) previous_priority: Option<FieldFormat>,
    pub(super) next_priority: Option<FieldFormat>,
}

/// The meanings of a trace's events, by their numbers.
pub(super) fn meanings(formats: &Formats) -> Vec<Option<Meaning>> {
    let named_calls = formats
        .iter()
        .any(|event| event.system == "syscalls" && event.name.starts_with("sys_enter_"));
    let mut all = Vec::new();
    for event in formats.iter() {
        let place = usize::from(event.id);
        if all.len() <= place {
            all.resize_with(place + 1, || None);
        }
        if let Some(entry) = all.get_mut(place) {
            *entry = Some(meaning(event, named_calls).unwrap_or(Meaning::Other));
        }
    }
    all
}

/// What an event means; `None` if nothing more is known, or if it lacks a field.
fn meaning(event: &EventFormat, named_calls: bool) -> Option<Meaning> {
    let field = |name| event.field(name).cloned();
    let name = event.name.as_str();
    Some(match (event.system.as_str(), name) {
        ("ftrace", "function") => Meaning::Function {
            ip: field("ip")?,
            parent: field("parent_ip"),
        },
        // Newer kernels have several kinds of entries.
        ("ftrace", _) if field("func").is_some() && field("depth").is_some() => {
            match (field("calltime"), field("rettime")) {
                (Some(calltime), Some(rettime)) => Meaning::Exit(Box::new(Exit {
                    func: field("func")?,
                    depth: field("depth")?,
                    calltime,
                    rettime,
                })),
                _ => Meaning::Entry {
                    func: field("func")?,
                    depth: field("depth")?,
                },
            }
        }
        ("ftrace", "print" | "bprint" | "bputs") => Meaning::Print,
        // Those of the kernel's latency tracers.
        ("ftrace", "context_switch") => Meaning::Switch(Box::new(Switch {
            previous: field("prev_pid")?,
            next: field("next_pid")?,
            previous_comm: None,
            next_comm: None,
            previous_priority: field("prev_prio"),
            next_priority: field("next_prio"),
        })),
        ("ftrace", "wakeup") => Meaning::Wakeup {
            pid: field("next_pid")?,
            comm: None,
        },
        ("sched", "sched_switch") => Meaning::Switch(Box::new(Switch {
            previous: field("prev_pid")?,
            next: field("next_pid")?,
            previous_comm: field("prev_comm"),
            next_comm: field("next_comm"),
            previous_priority: field("prev_prio"),
            next_priority: field("next_prio"),
        })),
        ("sched", "sched_wakeup" | "sched_wakeup_new") => Meaning::Wakeup {
            pid: field("pid")?,
            comm: field("comm"),
        },
        ("sched", "sched_process_fork") => Meaning::Fork {
            pid: field("child_pid")?,
            comm: field("child_comm")?,
        },
        ("task", "task_newtask") => Meaning::Fork {
            pid: field("pid")?,
            comm: field("comm")?,
        },
        ("task", "task_rename") => Meaning::Rename {
            pid: field("pid"),
            comm: field("newcomm")?,
        },
        ("sched", "sched_process_exec") => Meaning::Exec {
            filename: field("filename")?,
        },
        ("irq", "irq_handler_entry") => Meaning::IrqEntry {
            irq: field("irq")?,
            name: field("name"),
        },
        ("irq", "irq_handler_exit") => Meaning::IrqExit { irq: field("irq")? },
        ("irq", "softirq_entry") => Meaning::KindEntry {
            kind: InterruptKind::Soft,
            number: field("vec")?,
            name: String::new(),
        },
        ("irq", "softirq_exit") => Meaning::KindExit {
            kind: InterruptKind::Soft,
            number: field("vec")?,
        },
        ("power", name) if marks::is_power(name) => Meaning::Power {
            event: name.to_owned(),
            state: field(marks::STATE)?,
            cpu: field(marks::CPU)?,
        },
        ("irq_vectors", _) => {
            let number = field("vector")?;
            let kind = InterruptKind::Vector;
            match name.strip_suffix("_entry") {
                Some(name) => Meaning::KindEntry {
                    kind,
                    number,
                    name: name.to_owned(),
                },
                None if name.ends_with("_exit") => Meaning::KindExit { kind, number },
                None => return None,
            }
        }
        ("syscalls", _) => match name.strip_prefix("sys_enter_") {
            Some(name) => Meaning::CallEntry {
                name: name.to_owned(),
            },
            None => {
                let name = name.strip_prefix("sys_exit_")?.to_owned();
                let child = field("ret").filter(|_| SPAWN.contains(&&*name));
                Meaning::CallExit { name, child }
            }
        },
        ("raw_syscalls", "sys_enter") if !named_calls => {
            Meaning::NumberedEntry { id: field("id")? }
        }
        ("raw_syscalls", "sys_exit") if !named_calls => Meaning::NumberedExit { id: field("id")? },
        _ => return None,
    })
}
