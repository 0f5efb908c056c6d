//! Marks that programs write into the kernel's trace by the convention of Android's `atrace`: spans and counters.
//!
//! | text | what it is |
//! |---|---|
//! | `B\|pid\|name` | a span of the writing thread begins |
//! | `E\|pid`, `E` | its innermost span ends |
//! | `C\|pid\|name\|value` | a counter of that process (0: of none) has a new value, an integer or a real number |
//!
//! Others (`S`, `F`: spans that may begin in one thread and end in another; `I`: instants) stay text.
//!
//! A mark is written within a system call. Where the trace has that call, or the functions in it, a span would begin within one
//! call and end within another one, and not nest: the marks stay text there.

use std::collections::HashMap;

use kymo_event::{EventKind, FunctionId, Quantity, ThreadId};

/// What a user should know of spans that stay text.
pub(super) const BESIDE_CALLS: &str = "marks of programs (B|pid|name, E|pid) are shown as text: each is written within a system call, which the \
     trace has, and would not nest with it";

/// Spans of a thread that may be open.
const DEEPEST: usize = 1 << 12;

/// Threads with open spans.
const MOST_THREADS: usize = 1 << 20;

/// What a program says by a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark<'t> {
    /// A span of this name begins.
    Begin(&'t str),
    /// The innermost span ends.
    End,
    /// A counter has a new value.
    Counter(Counter<'t>),
}

/// A counter's new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counter<'t> {
    name: &'t str,
    /// The process that it is of.
    process: Option<u64>,
    value: Quantity,
}

impl From<Counter<'_>> for EventKind {
    fn from(counter: Counter<'_>) -> Self {
        Self::Counter {
            name: counter.name.to_owned(),
            process: counter.process,
            value: counter.value,
        }
    }
}

/// Reads the text of a mark; `None` if it is another text.
pub(super) fn mark(text: &str) -> Option<Mark<'_>> {
    let text = text.trim_end_matches(['\n', '\r', '\0', ' ']);
    let (kind, rest) = text.split_once('|').unwrap_or((text, ""));
    if !matches!(kind, "B" | "E" | "C") {
        return None;
    }
    let (pid, rest) = rest.split_once('|').unwrap_or((rest, ""));
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    match kind {
        "B" if is_pid && !rest.is_empty() => Some(Mark::Begin(rest)),
        "E" if is_pid || text == "E" => Some(Mark::End),
        "C" if is_pid => {
            let (name, value) = rest.split_once('|')?;
            let value = value.split('|').next()?;
            let value = Quantity::parse(value).filter(|_| !name.is_empty());
            let process = pid.parse().ok().filter(|pid| *pid != 0);
            value.map(|value| {
                Mark::Counter(Counter {
                    name,
                    process,
                    value,
                })
            })
        }
        _ => None,
    }
}

/// The counter that an event of the kernel's power management has a new value of: the frequency or the idle state of a CPU
/// ([`STATE`], [`CPU`]). All ones (of 32 bits, or of 64 in texts of other writers) is no idle state but the end of one: -1, as
/// Perfetto's viewer shows it, whose trace processor keeps 4294967295.
pub(super) fn power(event: &str, state: u64, cpu: u32) -> EventKind {
    const NO_STATE: u64 = u32::MAX as u64;
    EventKind::Counter {
        name: format!("{event} cpu{cpu}"),
        process: None,
        value: match (event, state) {
            ("cpu_idle", NO_STATE | u64::MAX) => Quantity::Signed(-1),
            _ => Quantity::Unsigned(state),
        },
    }
}

/// Whether an event is of that kind.
pub(super) fn is_power(event: &str) -> bool {
    matches!(event, "cpu_frequency" | "cpu_idle")
}

/// The fields of such an event.
pub(super) const STATE: &str = "state";
pub(super) const CPU: &str = "cpu_id";

/// The open spans of all threads.
#[derive(Debug, Default)]
pub(super) struct Marks {
    open: HashMap<ThreadId, Vec<FunctionId>>,
    /// Whether the trace has calls of the kernel's, so that spans stay text.
    pub(super) has_kernel_calls: bool,
    /// Whether a span was taken for a call.
    pub(super) are_calls: bool,
}

impl Marks {
    /// Those of a trace that has calls of the kernel's, or none.
    pub(super) fn beside(has_kernel_calls: bool) -> Self {
        Self {
            has_kernel_calls,
            ..Self::default()
        }
    }

    /// A span begins; `false` if it has to stay text.
    pub(super) fn begin(&mut self, thread: ThreadId, span: FunctionId) -> bool {
        if self.has_kernel_calls && !self.are_calls {
            return false;
        }
        if !self.open.contains_key(&thread) && self.open.len() >= MOST_THREADS {
            return false;
        }
        let open = self.open.entry(thread).or_default();
        let fits = open.len() < DEEPEST;
        if fits {
            open.push(span);
            self.are_calls = true;
        }
        fits
    }

    /// The innermost span of a thread ends; `None` if none is known to be open.
    pub(super) fn end(&mut self, thread: ThreadId) -> Option<FunctionId> {
        self.open.get_mut(&thread)?.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name, process and value of a mark, if it is one of a counter.
    fn counted(text: &str) -> Option<(String, Option<u64>, String)> {
        match mark(text)? {
            Mark::Counter(it) => Some((it.name.to_owned(), it.process, it.value.to_string())),
            _ => None,
        }
    }

    #[test]
    fn counters_have_a_process_and_a_value() {
        for (text, expected) in [
            ("C|1200|queued|3", ("queued", Some(1200), "3")),
            ("C|1200|queued|3|gpu", ("queued", Some(1200), "3")),
            ("C|7|queued|-3", ("queued", Some(7), "-3")),
            ("C|0|queued|3", ("queued", None, "3")),
            ("C|7|load|1.5", ("load", Some(7), "1.5")),
            ("C|7|load|-0.25e3", ("load", Some(7), "-250")),
            ("C|7|load|nan", ("load", Some(7), "NaN")),
            (
                "C|7|q|9223372036854775807",
                ("q", Some(7), "9223372036854775807"),
            ),
            (
                "C|7|q|18446744073709551615",
                ("q", Some(7), "18446744073709551615"),
            ),
        ] {
            let (name, process, value) = expected;
            let expected = (name.to_owned(), process, value.to_owned());
            assert_eq!(counted(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_end_of_an_idle_state_is_below_all_of_them() {
        for (event, state, expected) in [
            ("cpu_idle", 2, Quantity::Unsigned(2)),
            ("cpu_idle", 4_294_967_295, Quantity::Signed(-1)),
            ("cpu_idle", u64::MAX, Quantity::Signed(-1)),
            (
                "cpu_frequency",
                4_294_967_295,
                Quantity::Unsigned(4_294_967_295),
            ),
        ] {
            let EventKind::Counter { name, value, .. } = power(event, state, 1) else {
                panic!("no counter");
            };
            assert_eq!((name, value), (format!("{event} cpu1"), expected));
        }
    }

    #[test]
    fn marks_are_read_and_other_texts_are_not() {
        for (text, expected) in [
            ("B|1200|draw\n", Some(Mark::Begin("draw"))),
            ("B|1200|draw|depth: 3", Some(Mark::Begin("draw|depth: 3"))),
            ("E|1200", Some(Mark::End)),
            ("E|1200|draw", Some(Mark::End)),
            ("E\n", Some(Mark::End)),
            ("C|1200|queued|x", None),
            ("C|1200||3", None),
            ("C|1200|queued|0x10", None),
            ("C|1200|queued", None),
            ("B|1200|", None),
            ("B|x|draw", None),
            ("S|1200|draw|7", None),
            ("I|1200|now", None),
            ("Error", None),
            ("B", None),
            ("", None),
        ] {
            assert_eq!(mark(text), expected, "{text}");
        }
    }
}
