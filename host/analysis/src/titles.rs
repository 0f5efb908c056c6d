//! What threads, interrupts and spaces are called where people see them.

use std::fmt;

use kymo_event::{InterruptId, InterruptKind, Space, SpaceId, ThreadId, Tid, TraceInfo};

use crate::calls::{TrackInfo, TrackKind};

/// The largest thread number that Linux gives (`PID_MAX_LIMIT`).
pub const LARGEST_OWN: u64 = 1 << 22;

/// A thread's number as people know it: a small number, or an address.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub Tid);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.0 <= LARGEST_OWN {
            write!(f, "{}", self.0.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// What a track is called for itself.
pub fn track(trace: &TraceInfo, info: &TrackInfo) -> String {
    let number = |id: ThreadId| Number(trace.identities.tid(id));
    match (info.kind, info.cpu) {
        (TrackKind::Thread { thread: Some(id) }, _) => thread(trace, id),
        (TrackKind::Thread { thread: None }, Some(cpu)) => format!("CPU {cpu} outside threads"),
        (TrackKind::Thread { thread: None }, None) => "outside threads".to_owned(),
        (TrackKind::Interrupt { irq, thread, level }, cpu) => {
            let mut title = interrupt(trace, irq);
            if let Some(cpu) = cpu {
                title += &format!(" on CPU {cpu}");
            }
            if let Some(thread) = thread {
                title += &format!(" in thread {}", number(thread));
            }
            if level > 0 {
                title += &format!(", nested {level}");
            }
            title
        }
    }
}

/// What a thread is called: its name if it is known, else its number.
pub fn thread(trace: &TraceInfo, id: ThreadId) -> String {
    let name = trace.identities.thread_name(id);
    let number = || format!("thread {}", Number(trace.identities.tid(id)));
    name.map_or_else(number, str::to_owned)
}

/// How an interrupt is shown: its number always, and its name where there is one.
pub fn interrupt(info: &TraceInfo, id: InterruptId) -> String {
    let identities = &info.identities;
    let irq = identities.irq(id);
    let found = identities.interrupts().get(id.0 as usize);
    let kind = match found.map(|found| found.kind) {
        Some(InterruptKind::Soft) => "softirq",
        Some(InterruptKind::Vector) => "vector",
        _ => "IRQ",
    };
    match identities.interrupt_name(id) {
        // A name may begin with the kind.
        Some(name) => {
            let name = name.strip_prefix(kind).map_or(name, str::trim_start);
            format!("{kind} {irq} {name}")
        }
        None => format!("{kind} {irq}"),
    }
}

/// What a space is called, where there are several: a process by its program, and its number where others are of the
/// same program.
pub fn space(info: &TraceInfo, id: SpaceId) -> String {
    let Some(space) = info.identities.space(id) else {
        return format!("space {id}");
    };
    match (space.name.as_str(), space.pid) {
        ("", Some(pid)) => format!("process {pid}"),
        ("", None) => format!("space {id}"),
        (name, None) => name.to_owned(),
        (name, Some(pid)) => {
            let is_other = |other: &Space| other.name == name && other.pid != Some(pid);
            let file = name.rsplit('/').next().unwrap_or(name);
            match info.identities.spaces().iter().any(is_other) {
                true => format!("{file} ({pid})"),
                false => file.to_owned(),
            }
        }
    }
}
