//! Creation and end of threads, whose numbers the kernel gives to later ones.

use kymo_ctf::metadata::Scope;
use kymo_ctf::{Value, Visitor};
use kymo_event::ThreadId;

use super::{Lttng, MOST_CPUS, Means, Sink};
use crate::linux::is_dead;

impl Means {
    /// Returns whether an event may create a thread, or end one.
    #[inline]
    pub(super) const fn is_of_lives(self) -> bool {
        matches!(
            self,
            Self::Switch | Self::NewWakeup | Self::Fork | Self::ThreadExit
        )
    }
}

impl Lttng {
    /// Takes from an event which threads are created or end. Called before the names in it are taken.
    pub(super) fn live(
        &self,
        meaning: Means,
        record: &kymo_ctf::Event<'_>,
        [first, second]: [Option<u64>; 2],
        sink: &mut Sink<'_>,
    ) {
        let machine = self.spaces.machine;
        match meaning {
            Means::NewWakeup | Means::Fork => {
                if let Some(tid) = first.filter(|tid| *tid != 0) {
                    sink.created(machine, tid);
                }
            }
            Means::ThreadExit => {
                if let Some(thread) = self.thread(first, sink) {
                    sink.caches.reused.exits(thread);
                }
            }
            Means::Switch => {
                if let Some(thread) = self.leaving(first, sink) {
                    let is_over = sink.caches.reused.is_exiting(thread) && is_last(record);
                    match is_over {
                        true => sink.caches.reused.ended(thread),
                        false => sink.caches.reused.was_there(thread),
                    }
                }
                if sink.caches.reused.any_ended()
                    && let Some(thread) = self.thread(second, sink)
                    && sink.caches.reused.has_ended(thread)
                    && let Some(tid) = second
                {
                    // Its creation was not recorded.
                    sink.created(machine, tid);
                }
            }
            _ => {}
        }
    }

    /// Returns the thread that leaves the CPU of an event: the one that runs there, if it has this number. (A later one
    /// with the number may have been created on another CPU, whose clock is ahead.)
    #[inline]
    pub(super) fn leaving(&self, tid: Option<u64>, sink: &mut Sink<'_>) -> Option<ThreadId> {
        let cpu = sink.cpu.map(|cpu| cpu.0 as usize);
        let running = cpu.filter(|it| *it < MOST_CPUS);
        let running = running.and_then(|cpu| self.running.get(cpu).copied().flatten().flatten());
        running
            .filter(|thread| Some(sink.identities.tid(*thread).0) == tid)
            .or_else(|| self.thread(tid, sink))
    }

    /// Returns the thread of this number in a process; `None` for 0.
    pub(super) fn thread_in(
        &self,
        tid: u64,
        process: Option<u64>,
        sink: &mut Sink<'_>,
    ) -> Option<ThreadId> {
        // A kernel's switches have the numbers alone. It has no process for a thread that exits.
        match process.filter(|process| *process != 0 && !self.has_switches) {
            Some(process) if tid != 0 => Some(sink.thread_in(self.spaces.machine, tid, process)),
            _ => self.thread(Some(tid), sink),
        }
    }
}

/// Returns whether a switch is the last one from a task.
#[cold]
fn is_last(record: &kymo_ctf::Event<'_>) -> bool {
    let mut state = State(None);
    record.visit(Scope::EventFields, &mut state);
    state.0.is_some_and(is_dead)
}

/// Takes the field `prev_state`.
struct State(Option<u64>);

impl<'a> Visitor<'a> for State {
    fn value(&mut self, name: &'a str, value: Value<'a>) {
        if name.trim_start_matches('_') == "prev_state" {
            self.0 = value.as_i64().map(i64::cast_unsigned);
        }
    }

    fn wants_more(&self) -> bool {
        self.0.is_none()
    }
}
