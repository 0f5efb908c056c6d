//! Display names of threads, interrupts and spaces.

use std::fmt;

use kymo_event::{
    Identities, InterruptId, InterruptKind, Irq, Space, SpaceId, ThreadId, Tid, TraceInfo,
};

use crate::calls::{TrackInfo, TrackKind};

/// The largest thread id that Linux assigns (`PID_MAX_LIMIT`).
pub const LARGEST_OWN: u64 = 1 << 22;

/// A thread's number for display: a small number in decimal, or an address.
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

/// The display name of a track.
pub fn track(trace: &TraceInfo, info: &TrackInfo) -> String {
    let number = |id: ThreadId| Number(trace.identities.tid(id));
    match (info.kind, info.cpu) {
        (TrackKind::Thread { thread: Some(id) }, _) => thread(trace, id),
        (TrackKind::Thread { thread: None }, Some(cpu)) => format!("CPU {cpu} outside threads"),
        (TrackKind::Thread { thread: None }, None) => "outside threads".to_owned(),
        (TrackKind::Span { function }, cpu) => {
            let name = trace.identities.function(function);
            let name = name.and_then(|function| function.name.as_deref());
            let on = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            format!("{}{on}", name.unwrap_or("span"))
        }
        (TrackKind::Interrupt { irq, thread, level }, cpu) => {
            let mut title = interrupt_title(&trace.identities, irq);
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

/// The display name of a thread: its name if known, else its number.
pub fn thread(trace: &TraceInfo, id: ThreadId) -> String {
    let name = trace.identities.thread_name(id);
    let number = || format!("thread {}", Number(trace.identities.tid(id)));
    let name = name.map_or_else(number, str::to_owned);
    let found = trace.identities.threads().get(id.0 as usize);
    match found.filter(|_| trace.has_machines()) {
        Some(found) => format!("{name} [{}]", space(trace, found.space)),
        None => name,
    }
}

/// The display name of an interrupt: its name if known, else its number.
pub fn interrupt(identities: &Identities, id: InterruptId) -> String {
    let name = identities.interrupt_name(id);
    name.map_or_else(|| interrupt_number(identities, id), str::to_owned)
}

/// An interrupt's name with its number, which distinguishes it from others of that name: `SysTick (irq 15)`; without
/// a name, the number alone.
pub fn interrupt_title(identities: &Identities, id: InterruptId) -> String {
    let number = interrupt_number(identities, id);
    match identities.interrupt_name(id) {
        Some(name) if name != number => format!("{name} ({number})"),
        _ => number,
    }
}

/// The kind and number of an interrupt, formatted as in [`numbered`].
pub fn interrupt_number(identities: &Identities, id: InterruptId) -> String {
    let found = identities.interrupts().get(id.0 as usize);
    let kind = found.map(|found| found.kind).unwrap_or_default();
    numbered(kind, identities.irq(id))
}

/// Words for the kinds of interrupts, to be followed by a number.
pub const INTERRUPT_KINDS: [&str; 3] = ["irq", "softirq", "vector"];

/// An interrupt's kind and number: `irq 15`, `softirq 3`, `vector 236`.
pub fn numbered(kind: InterruptKind, irq: Irq) -> String {
    let [hard, soft, vector] = INTERRUPT_KINDS;
    let kind = match kind {
        InterruptKind::Soft => soft,
        InterruptKind::Vector => vector,
        _ => hard,
    };
    format!("{kind} {irq}")
}

/// The display name of a space, for traces with several: a process's program, with its number where other processes
/// run the same program.
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
