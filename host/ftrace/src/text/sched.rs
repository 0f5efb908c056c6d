//! Switches and wakeups of tasks, in all text forms.
//!
//! | writer | switch | wakeup |
//! |---|---|---|
//! | the kernel | `prev_comm=sh prev_pid=7 ... next_comm=ls next_pid=8 ...` | `comm=ls pid=8 ...` |
//! | trace-cmd | `sh:7 [120] S ==> ls:8 [120]` | `ls:8 [120] success=1 CPU:001` |
//! | latency tracers (no event name) | `7:120:S ==> [001] 8:120:R ls` | `7:120:S   + [001] 8:120:R ls` |

use super::Task;
use super::event::fields;

/// Names of the events of latency tracers, as a trace.dat has them.
pub(super) const SWITCH: &str = "context_switch";
pub(super) const WAKEUP: &str = "wakeup";

/// Scheduling event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled<'t> {
    /// A CPU switches from one task to another. Names may be empty.
    Switch {
        /// The task that ran.
        previous: Task<'t>,
        /// The task that runs next.
        next: Task<'t>,
    },
    /// A task becomes runnable.
    Wakeup(Task<'t>),
}

/// Parses the text of a scheduling event; `None` for other events.
pub fn scheduled<'t>(name: &str, body: &'t str) -> Option<Scheduled<'t>> {
    match name {
        "sched_switch" => by_fields(body, "prev_comm", "prev_pid")
            .zip(by_fields(body, "next_comm", "next_pid"))
            .or_else(|| {
                let (before, behind) = body.split_once(" ==> ")?;
                Some((with_priority(before)?, with_priority(behind)?))
            })
            .map(|(previous, next)| Scheduled::Switch { previous, next }),
        "sched_wakeup" | "sched_wakeup_new" => by_fields(body, "comm", "pid")
            .or_else(|| with_priority(body))
            .map(Scheduled::Wakeup),
        SWITCH | WAKEUP => unnamed(body).map(|(_, scheduled)| scheduled),
        _ => None,
    }
}

/// Returns the name and the contents of an event of the kernel's latency tracers, whose text has no name.
pub(super) fn unnamed(body: &str) -> Option<(&'static str, Scheduled<'_>)> {
    let (before, behind) = body.split_once(" [")?;
    let (before, name) = match (before.strip_suffix(" ==>"), before.strip_suffix(" +")) {
        (Some(before), _) => (before, SWITCH),
        (_, Some(before)) => (before, WAKEUP),
        _ => return None,
    };
    let (cpu, behind) = behind.split_once(']')?;
    cpu.parse::<u32>().ok()?;
    // `2448: 94:R`
    let numbers = |text: &str| {
        let (pid, rest) = text.trim().split_once(':')?;
        let (priority, rest) = rest.trim_start().split_once(':')?;
        priority.parse::<i32>().ok()?;
        Some((pid.parse::<i32>().ok()?, rest.len()))
    };
    let (pid, _) = numbers(before)?;
    let (next, left) = numbers(behind)?;
    let behind = behind.trim_end();
    let state_and_comm = behind.get(behind.len().checked_sub(left)?..)?;
    let comm = state_and_comm
        .split_once(' ')
        .map_or("", |(_, comm)| comm.trim());
    let next = Task { comm, pid: next };
    Some(match name {
        SWITCH => {
            let previous = Task { comm: "", pid };
            (name, Scheduled::Switch { previous, next })
        }
        _ => (name, Scheduled::Wakeup(next)),
    })
}

fn by_fields<'t>(body: &'t str, comm: &str, pid: &str) -> Option<Task<'t>> {
    let fields = fields(body);
    let of = |name: &str| Some(fields.iter().find(|(field, _)| *field == name)?.1);
    Some(Task {
        comm: of(comm).unwrap_or_default(),
        pid: of(pid)?.split_whitespace().next()?.parse().ok()?,
    })
}

/// Parses `sh:7 [120] S`, with `task` in front in texts of old kernels.
fn with_priority(text: &str) -> Option<Task<'_>> {
    let (task, rest) = text.split_once(" [")?;
    rest.split_once(']')?.0.trim().parse::<i32>().ok()?;
    let (comm, pid) = task.trim().rsplit_once(':')?;
    Some(Task {
        comm: comm.strip_prefix("task ").unwrap_or(comm),
        pid: pid.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn task(comm: &str, pid: i32) -> Task<'_> {
        Task { comm, pid }
    }

    #[test]
    fn switches_are_read_in_all_forms() {
        for (name, body, previous, next) in [
            (
                "sched_switch",
                "prev_comm=my prog prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=ls next_pid=8 next_prio=120",
                task("my prog", 7),
                task("ls", 8),
            ),
            (
                "sched_switch",
                "swapper/1:0 [120] R ==> kworker/0:1H:8 [100]",
                task("swapper/1", 0),
                task("kworker/0:1H", 8),
            ),
            (
                "sched_switch",
                "task sh:7 [120] (S) ==> swapper:0 [140]",
                task("sh", 7),
                task("swapper", 0),
            ),
            (
                SWITCH,
                "0:120:R ==> [003]  2448: 94:R sleep",
                task("", 0),
                task("sleep", 2448),
            ),
        ] {
            let expected = Scheduled::Switch { previous, next };
            assert_eq!(scheduled(name, body), Some(expected), "{body}");
        }
    }

    #[test]
    fn wakeups_are_read_in_all_forms() {
        for (name, body, expected) in [
            (
                "sched_wakeup",
                "comm=kworker/7:0 pid=9996 prio=120 target_cpu=007",
                task("kworker/7:0", 9996),
            ),
            (
                "sched_wakeup",
                "rcu_preempt:10 [120] success=1 CPU:001",
                task("rcu_preempt", 10),
            ),
            (
                "sched_wakeup_new",
                "task sh:12 [120] success=1 [001]",
                task("sh", 12),
            ),
            (
                WAKEUP,
                "0:120:R   + [003]   312:100:R kworker/3:1H",
                task("kworker/3:1H", 312),
            ),
        ] {
            assert_eq!(
                scheduled(name, body),
                Some(Scheduled::Wakeup(expected)),
                "{body}"
            );
        }
    }

    #[test]
    fn other_texts_tell_nothing() {
        for body in [
            "",
            "a ==> b",
            "0:120:R ==> 1:120:R x",
            "1 + [003] 2",
            "1:2:R + [x] 1:2:R c",
            "x [1] ==> y [2]",
        ] {
            for name in ["sched_switch", "sched_wakeup", SWITCH, WAKEUP, "print"] {
                assert_eq!(scheduled(name, body), None, "{name}: {body}");
            }
        }
    }
}
