//! Survey of a text before its lines are converted. Most of it is available for files only, not for pipes.

use std::borrow::Cow;
use std::collections::HashMap;

use kymo_ftrace::text::{self, Line, TextKind};
use memchr::memmem;

use crate::formats::ftrace::processes::Groups;
use crate::formats::ftrace::{BEGINNINGS, Beginnings};

use super::input::{Input, lines};

/// Remark about a text whose times are not seconds.
pub(super) const TICKS: &str = "times have no decimal point: they are ticks of a clock that the text does not name (counter, uptime, x86-tsc), and \
     not nanoseconds, unless trace-cmd report --raw-ts wrote them";

/// Number of lines of a file that are examined.
pub(super) const LINES_LOOKED_AT: usize = 20_000;

/// Form in which a text records calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Graph {
    /// No ends of calls.
    Absent,
    /// Entries and exits, with their depths.
    Whole,
    /// Exits only: no line is an entry.
    ExitsAlone,
}

/// Determines the form in which a text records calls.
pub(super) fn graph(bytes: &[u8]) -> Graph {
    let mut graph = Graph::Absent;
    for line in lines(bytes).take(LINES_LOOKED_AT) {
        if let Line::Event(event) = text::line(&line) {
            match event.kind {
                TextKind::Entry { .. } | TextKind::Leaf { .. } => return Graph::Whole,
                TextKind::Exit { .. } | TextKind::Call { .. } => graph = Graph::ExitsAlone,
                _ => {}
            }
        }
    }
    graph
}

/// Returns whether the kernel recorded switches. Lines with `=>` only mean that another task is next in the text.
pub(super) fn has_switches(bytes: &[u8]) -> bool {
    memmem::find(bytes, b" sched_switch:").is_some()
}

/// Determines from the lines of a pipe, as they arrive, whether calls are recorded as exits only, like [`graph`].
///
/// Exits of calls whose entries the kernel has overwritten follow each other from the innermost to the outermost. An
/// exit that is not further out than the exit before it in its task ends another call, whose entry no line had.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// Depth of the last exit of each CPU, and its task if the line has it.
    last: HashMap<Option<u32>, (Option<i32>, u32)>,
    any: bool,
}

impl Exits {
    /// Returns whether there was an exit.
    pub(super) const fn has_any(&self) -> bool {
        self.any
    }

    /// Examines a line; `None` as long as the result is unknown.
    pub(super) fn add(&mut self, line: &str) -> Option<bool> {
        match text::line(line) {
            Line::Event(event) => match event.kind {
                TextKind::Entry { .. } | TextKind::Leaf { .. } => Some(false),
                TextKind::Call { .. } => Some(true),
                TextKind::Exit { depth, .. } => {
                    self.any = true;
                    let task = event.task.map(|task| task.pid);
                    let before = self.last.insert(event.cpu, (task, depth));
                    let is_other = before.is_some_and(|it| it.0 == task && depth >= it.1);
                    is_other.then_some(true)
                }
                _ => None,
            },
            Line::Switch { cpu, .. } | Line::Lost { cpu, .. } => {
                self.last.remove(&Some(cpu));
                None
            }
            _ => None,
        }
    }
}

/// Returns whether the time of a line is in ticks; `None` if it has no time.
pub(super) fn is_ticks(line: &str) -> Option<bool> {
    match text::line(line) {
        Line::Event(event) => event.time.map(|_| event.is_ticks),
        _ => None,
    }
}

/// Returns whether the first event has its CPU; `None` without an event.
pub(super) fn has_cpus(input: &Input) -> Option<bool> {
    let mut lines = input.ahead().take(LINES_LOOKED_AT);
    lines.find_map(|line| match text::line(&line) {
        Line::Event(event) => Some(event.cpu.is_some()),
        _ => None,
    })
}

/// Whether the first event of the text has a time.
pub(super) fn is_timed(input: &Input) -> bool {
    let mut lines = input.ahead().take(LINES_LOOKED_AT);
    let first = lines.find_map(|line| match text::line(&line) {
        Line::Event(event) => Some(event.time.is_some()),
        _ => None,
    });
    first == Some(true)
}

/// The thread groups of tasks in the lines; empty if the first event has no column for them.
pub(super) fn groups<'t>(lines: impl Iterator<Item = Cow<'t, str>>) -> Groups {
    let mut groups = Groups::default();
    for line in lines {
        if let Line::Event(event) = text::line(&line) {
            if let (Some(task), Some(group)) = (event.task, event.group) {
                groups.line(task.pid, group);
            } else if groups.is_empty() && !line.contains("(-----") {
                break;
            }
        }
    }
    groups
}

/// Determines the kinds of interrupts and calls of which the text has only the beginnings.
pub(super) fn beginnings(bytes: &[u8]) -> Beginnings {
    let has = |event: &str, count: u64| {
        let mut found = memmem::find_iter(bytes, event.as_bytes());
        found.nth(count.saturating_sub(1) as usize).is_some()
    };
    let alone = |begin: &str, end: &str| has(begin, BEGINNINGS) && !has(end, 1);
    Beginnings {
        interrupts: alone(" irq_handler_entry:", " irq_handler_exit:"),
        softirqs: alone(" softirq_entry:", " softirq_exit:"),
        calls: are_system_calls_alone(bytes),
    }
}

/// Returns whether system calls only begin. `sys_read(fd: 3)` and `sys_read -> 0x1` are equivalent to `sys_enter_read:`
/// and `sys_exit_read:`.
fn are_system_calls_alone(bytes: &[u8]) -> bool {
    let mut begun = 0;
    for at in memmem::find_iter(bytes, b" sys_") {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name = rest.iter().position(|byte| !is_name(byte)).unwrap_or(0);
        let (name, rest) = rest.split_at(name);
        if rest.starts_with(b"(") || name.starts_with(b"sys_enter") && rest.starts_with(b":") {
            begun += 1;
        } else if rest.starts_with(b" -> ")
            || name.starts_with(b"sys_exit") && rest.starts_with(b":")
        {
            return false;
        }
    }
    begun >= BEGINNINGS
}

/// Returns the first task of each CPU, as far as the first switches name it.
pub(super) fn tasks_at_first(bytes: &[u8]) -> HashMap<u32, i32> {
    let mut tasks = HashMap::new();
    for line in lines(bytes).take(LINES_LOOKED_AT) {
        if line.contains("=>")
            && let Line::Switch { cpu, from, .. } = text::line(&line)
        {
            tasks.entry(cpu).or_insert(from.pid);
        }
    }
    tasks
}
