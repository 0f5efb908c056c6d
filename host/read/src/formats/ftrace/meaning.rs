//! Meanings of a kernel's events, determined once for each event format.

use kymo_event::InterruptKind;
use kymo_ftrace::{EventFormat, FieldFormat, Formats};

use super::marks;
use crate::linux::SPAWN;

/// Meaning of an event, with the fields that it needs.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// Entry of a function.
    Entry {
        func: FieldFormat,
        depth: FieldFormat,
    },
    /// Exit of a function.
    Exit(Box<Exit>),
    /// Call of a function whose end is not recorded.
    Function {
        ip: FieldFormat,
        parent: Option<FieldFormat>,
    },
    Switch(Box<Switch>),
    /// A thread becomes ready.
    Wakeup {
        pid: FieldFormat,
        comm: Option<FieldFormat>,
    },
    /// A new thread becomes ready for the first time.
    NewWakeup {
        pid: FieldFormat,
        comm: Option<FieldFormat>,
    },
    /// A thread begins to exit.
    ThreadExit {
        pid: FieldFormat,
        comm: Option<FieldFormat>,
    },
    /// A new thread gets its parent's name.
    Fork {
        pid: FieldFormat,
        comm: FieldFormat,
    },
    /// A thread gets another name: the running one if no field names it.
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
    /// Entry of the system call with this name.
    CallEntry {
        name: String,
    },
    CallExit {
        name: String,
        /// Return value, if it may be 0 in a thread that did not make the call: in a new one ([`SPAWN`]).
        child: Option<FieldFormat>,
    },
    /// Entry of a system call of which only the number is known.
    NumberedEntry {
        id: FieldFormat,
    },
    NumberedExit {
        id: FieldFormat,
        ret: Option<FieldFormat>,
    },
    /// Text of a program.
    Print,
    /// New frequency or idle state of a CPU.
    Power {
        event: String,
        state: FieldFormat,
        cpu: FieldFormat,
    },
    /// Event without a further meaning.
    Other,
}

/// Fields of an exit.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    pub(super) func: FieldFormat,
    pub(super) depth: FieldFormat,
    pub(super) calltime: FieldFormat,
    pub(super) rettime: FieldFormat,
}

/// Fields of a switch.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) previous: FieldFormat,
    pub(super) previous_state: Option<FieldFormat>,
    pub(super) next: FieldFormat,
    pub(super) previous_comm: Option<FieldFormat>,
    pub(super) next_comm: Option<FieldFormat>,
    pub(super) previous_priority: Option<FieldFormat>,
    pub(super) next_priority: Option<FieldFormat>,
}

/// Returns the meanings of a trace's events, by id.
pub(super) fn meanings(formats: &Formats) -> Vec<Option<Meaning>> {
    let mut all = Vec::new();
    for event in formats.iter() {
        let place = usize::from(event.id);
        if all.len() <= place {
            all.resize_with(place + 1, || None);
        }
        if let Some(entry) = all.get_mut(place) {
            *entry = Some(meaning(event).unwrap_or(Meaning::Other));
        }
    }
    all
}

/// Returns the meaning of an event; `None` if it has none, or if a field is missing.
fn meaning(event: &EventFormat) -> Option<Meaning> {
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
        // Events of the kernel's latency tracers.
        ("ftrace", "context_switch") => Meaning::Switch(Box::new(Switch {
            previous: field("prev_pid")?,
            previous_state: None,
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
            previous_state: field("prev_state"),
            next: field("next_pid")?,
            previous_comm: field("prev_comm"),
            next_comm: field("next_comm"),
            previous_priority: field("prev_prio"),
            next_priority: field("next_prio"),
        })),
        ("sched", "sched_wakeup") => Meaning::Wakeup {
            pid: field("pid")?,
            comm: field("comm"),
        },
        ("sched", "sched_wakeup_new") => Meaning::NewWakeup {
            pid: field("pid")?,
            comm: field("comm"),
        },
        ("sched", "sched_process_exit") => Meaning::ThreadExit {
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
        ("raw_syscalls", "sys_enter") => Meaning::NumberedEntry { id: field("id")? },
        ("raw_syscalls", "sys_exit") => Meaning::NumberedExit {
            id: field("id")?,
            ret: field("ret"),
        },
        _ => return None,
    })
}
