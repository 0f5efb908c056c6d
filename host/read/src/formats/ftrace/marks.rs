//! Marks that programs write into the kernel's trace, in the format of Android's `atrace`: spans and counters.
//!
//! | text | meaning |
//! |---|---|
//! | `B\|pid\|name` | start of a span in the writing thread |
//! | `E\|pid`, `E` | end of its innermost span |
//! | `C\|pid\|name\|value` | new value of a counter of that process (0: of none), an integer or a real number |
//!
//! Other marks (`S`, `F`: spans that may begin in one thread and end in another; `I`: instants) remain text.
//!
//! A mark is written within a system call. If the trace has that call, or the functions in it, a span would begin
//! within one call and end within another, and would not nest. The marks then remain text.

use std::collections::HashMap;

use kymo_event::{EventKind, FunctionId, Quantity, ThreadId};

/// Remark about spans that remain text.
pub(super) const BESIDE_CALLS: &str = "marks of programs (B|pid|name, E|pid) are shown as text: each is written within a system call, which the \
     trace has, and would not nest with it";

/// Largest number of open spans in a thread.
const DEEPEST: usize = 1 << 12;

/// Largest number of threads with open spans.
const MOST_THREADS: usize = 1 << 20;

/// Meaning of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark<'t> {
    /// Start of a span with this name.
    Begin(&'t str),
    /// End of the innermost span.
    End,
    /// New value of a counter.
    Counter(Counter<'t>),
}

/// New value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counter<'t> {
    name: &'t str,
    /// Process of the counter.
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

/// Parses the text of a mark; `None` for other texts.
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

/// Returns the counter in an event of the kernel's power management: the frequency or the idle state of a CPU
/// ([`STATE`], [`CPU`]). All ones (of 32 bits, or of 64 bits in texts of other writers) is the end of an idle state,
/// shown as -1 as in Perfetto's viewer; Perfetto's trace processor keeps 4294967295.
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

/// Returns whether an event is one of power management.
pub(super) fn is_power(event: &str) -> bool {
    matches!(event, "cpu_frequency" | "cpu_idle")
}

/// Fields of such an event.
pub(super) const STATE: &str = "state";
pub(super) const CPU: &str = "cpu_id";

/// Open spans of all threads.
#[derive(Debug, Default)]
pub(super) struct Marks {
    open: HashMap<ThreadId, Vec<FunctionId>>,
    /// Whether the trace has kernel calls, so that spans remain text.
    pub(super) has_kernel_calls: bool,
    /// Whether a span was converted to a call.
    pub(super) are_calls: bool,
}

impl Marks {
    /// Creates the state for a trace with or without kernel calls.
    pub(super) fn beside(has_kernel_calls: bool) -> Self {
        Self {
            has_kernel_calls,
            ..Self::default()
        }
    }

    /// Begins a span. Returns `false` if it has to remain text.
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

    /// Ends the innermost span of a thread; `None` if no span is open.
    pub(super) fn end(&mut self, thread: ThreadId) -> Option<FunctionId> {
        self.open.get_mut(&thread)?.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name, process and value of a counter mark.
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
