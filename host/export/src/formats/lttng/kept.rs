//! Source fields that LTTng's events include, under any name, and the count of those that they don't.

use kymo_event::Event;

use super::Lttng;

/// Fields of switches, wakeups, interrupts and calls whose information is in LTTng's events as well, under the source's
/// names.
pub(super) const KEPT: [&str; 23] = [
    "prev_comm",
    "prev_pid",
    "prev_prio",
    "prev_state",
    "next_comm",
    "next_pid",
    "next_prio",
    "comm",
    "pid",
    "prio",
    "target_cpu",
    "irq",
    "vec",
    "name",
    "ret",
    "data",
    "thread_id",
    "thread_name",
    "task",
    "func",
    "ip",
    "addr",
    "function",
];

impl Lttng<'_> {
    /// Counts the fields of an event that are not kept.
    pub(super) fn leave_out(&mut self, event: &Event, is_kept: impl Fn(&str) -> bool) {
        let fields = event.fields.iter();
        let left_out = fields.filter(|field| !is_kept(&field.name)).count();
        self.fields_left_out += left_out as u64;
    }
}
