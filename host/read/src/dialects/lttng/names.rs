//! Names of threads and interrupts.

use kymo_event::{EventKind, InterruptId, InterruptKind, ThreadId};

use super::processes::name_process;
use super::rules::{Means, Rule, vector};
use super::{Lttng, NAME, OTHER_NAME, OWN_NAME, Sink};
use crate::linux::SOFTIRQS;

impl Lttng {
    /// Takes the names in a record.
    #[inline(never)]
    pub(super) fn names(
        &mut self,
        rule: &Rule,
        record: &kymo_ctf::Event<'_>,
        [first, second]: [Option<u64>; 2],
        thread: Option<ThreadId>,
        sink: &mut Sink<'_>,
    ) {
        let meaning = rule.meaning;
        let mut texts = [None; 3];
        record.project(&self.texts, &mut texts);
        let text = |place: usize| texts.get(place)?.as_ref()?.text();
        let name_of = |thread, place, sink: &mut Sink<'_>| {
            if let (Some(thread), Some(name)) = (thread, text(place)) {
                // A program is recorded by its path; the thread is named by the last part.
                let name = match meaning {
                    Means::Exec => name.rsplit('/').next().unwrap_or(&name),
                    _ => &name,
                };
                name_thread(thread, name, sink);
            }
        };
        name_of(thread, OWN_NAME, sink);
        match meaning {
            Means::Switch => {
                name_of(self.leaving(first, sink), NAME, sink);
                name_of(self.thread(second, sink), OTHER_NAME, sink);
            }
            Means::Wakeup
            | Means::NewWakeup
            | Means::Name
            | Means::Fork
            | Means::ThreadExit
            | Means::Exec => {
                let thread = self.thread(first, sink);
                name_of(thread, NAME, sink);
            }
            Means::IrqEntry => {
                let machine = self.spaces.machine;
                let irq = first.and_then(|irq| sink.interrupt(machine, InterruptKind::Hard, irq));
                if let (Some(irq), Some(name)) = (irq, text(NAME)) {
                    name_handler(irq, &name, sink);
                }
            }
            _ => {}
        }
    }
}

/// Records a thread's name, if it is new.
fn name_thread(thread: ThreadId, name: &str, sink: &mut Sink<'_>) {
    if name.is_empty() || sink.identities.thread_name(thread) == Some(name) {
        return;
    }
    sink.identities.name_thread(thread, name);
    name_process(thread, name, sink.identities);
    let name = name.to_owned();
    sink.besides(EventKind::ThreadName { thread, name }, sink.cpu, None);
}

/// Records the name of an interrupting device. Several devices may share a line, each with its own handler.
fn name_handler(irq: InterruptId, name: &str, sink: &mut Sink<'_>) {
    let name = match sink.identities.interrupt_name(irq) {
        Some(known) if known == name || known.split(", ").any(|known| known == name) => return,
        Some(known) if known.len() > LONGEST_NAME => return,
        Some(known) => format!("{known}, {name}"),
        None => name.to_owned(),
    };
    name_interrupt(irq, name, sink);
}

/// Name length in bytes above which an interrupt gets no further device names. No machine has so many on one line.
const LONGEST_NAME: usize = 1024;

/// Records the name of an interrupt that is not a device's.
#[cold]
pub(super) fn name_kind(
    kind: InterruptKind,
    irq: InterruptId,
    number: u64,
    record: &kymo_ctf::Event<'_>,
    sink: &mut Sink<'_>,
) {
    let name = match kind {
        InterruptKind::Soft => softirq(number),
        _ => vector(record.name()).map(str::to_owned),
    };
    if let Some(name) = name {
        name_interrupt(irq, name, sink);
    }
}

fn name_interrupt(irq: InterruptId, name: String, sink: &mut Sink<'_>) {
    sink.identities.name_interrupt(irq, &name);
    sink.besides(EventKind::IsrName { irq, name }, sink.cpu, None);
}

/// Returns the name of a softirq.
fn softirq(number: u64) -> Option<String> {
    let name = SOFTIRQS.get(usize::try_from(number).ok()?)?;
    Some(format!("softirq {name}"))
}
