//! What the events of any CTF trace mean, as a small file says.
//!
//! A tracer that is configured by its user (barectf, LTTng's own tracepoints, most home-made ones) calls
//! events what the user likes. Such a file in TOML tells Kymo which of them are calls, switches, interrupts
//! and marks:
//!
//! ```toml
//! # In which field every event names its thread, and its processor if the packets do not.
//! thread = "tid"
//! cpu = "core"
//!
//! [[event]]
//! name = "func_entry"          # the event's name; one * stands for any characters
//! means = "enter"              # enter, exit
//! function = "addr"            # a field: an address, a label, or text
//! call_site = "caller"
//!
//! [[event]]
//! name = "*_begin"
//! means = "enter"
//! function = "*"               # what the * stands for is the function's name
//!
//! [[event]]
//! name = "lock_taken"
//! means = "span_begin"         # span_begin, span_end: may overlap calls, and end in another thread
//! function = "lock"            # its name
//! per_cpu = false              # true: each processor has spans of that name of its own
//!
//! [[event]]
//! name = "task_switch"
//! means = "switch"             # also switched_in, switched_out, ready: with thread
//! from = "prev"
//! to = "next"
//!
//! [[event]]
//! name = "irq_entry"
//! means = "isr_enter"          # isr_enter, isr_exit
//! irq = "number"
//! irq_name = "handler"
//!
//! [[event]]
//! name = "level"
//! means = "counter"            # a quantity over time; marker: something that the program says
//! value = "millivolt"
//! label = "channel"            # a field; without it the event's name is the label
//!
//! [[event]]
//! name = "task_created"
//! means = "thread_name"
//! thread = "id"
//! thread_name = "name"
//! ```
//!
//! A field is looked for in the payload, then in the contexts, the event's header, and the packet's context. The
//! first entry whose name fits an event counts; what no entry names stays what it is.

mod rules;
mod survey;

use serde::Deserialize;
use thiserror::Error;

pub(crate) use rules::Mapped;

/// What the events of a trace mean. `book/other-tracers.md` has an example of such a file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The field that names the thread of every event.
    #[serde(default)]
    thread: Option<String>,
    /// The field that names the processor of every event, where packets do not.
    #[serde(default)]
    cpu: Option<String>,
    #[serde(rename = "event")]
    events: Vec<Entry>,
}

/// What the events of one name mean.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    means: Means,
    function: Option<String>,
    call_site: Option<String>,
    thread: Option<String>,
    thread_name: Option<String>,
    from: Option<String>,
    to: Option<String>,
    irq: Option<String>,
    irq_name: Option<String>,
    value: Option<String>,
    label: Option<String>,
    /// Of spans: whether each processor has its own.
    #[serde(default)]
    per_cpu: bool,
}

/// What an event can mean.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Means {
    Enter,
    Exit,
    SpanBegin,
    SpanEnd,
    Switch,
    SwitchedIn,
    SwitchedOut,
    Ready,
    IsrEnter,
    IsrExit,
    Marker,
    Counter,
    ThreadName,
}

/// Why a mapping cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingError {
    /// It is not written as it should be.
    #[error("{message}")]
    Syntax {
        /// What is expected and what was found.
        message: String,
        /// Where in the text, in bytes.
        offset: u64,
    },
    /// An entry lacks what its meaning needs, or has what its meaning has no use for.
    #[error("event {event:?}: expected {expected}, found {found}")]
    Entry {
        /// The name in the entry.
        event: String,
        /// What its meaning needs.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// An event of the trace has no such field.
    #[error("event {event:?}: expected a field {field:?}, and the trace has none")]
    NoField {
        /// The event's name in the trace.
        event: String,
        /// The field.
        field: String,
    },
    /// No event of the trace fits any entry.
    #[error("expected one of the trace's events to fit, found {found}")]
    NoEvent {
        /// The names of the trace's events, as many as a sentence holds.
        found: String,
    },
}

impl Mapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// [`MappingError`] if it is none, or an entry of it can mean nothing.
    pub fn parse(text: &str) -> Result<Self, MappingError> {
        let mapping: Self = toml::from_str(text).map_err(|error| MappingError::Syntax {
            message: error.message().to_owned(),
            offset: error.span().map_or(0, |span| span.start as u64),
        })?;
        mapping.events.iter().try_for_each(Entry::check)?;
        Ok(mapping)
    }
}

impl Entry {
    /// Whether it has what its meaning needs, and nothing else.
    fn check(&self) -> Result<(), MappingError> {
        let fail = |expected, found: String| {
            Err(MappingError::Entry {
                event: self.name.clone(),
                expected,
                found,
            })
        };
        if self.name.matches('*').count() > 1 {
            return fail("at most one *", self.name.clone());
        }
        let (needs, may): (&[&str], &[&str]) = match self.means {
            Means::Enter => (&["function"], &["call_site", "thread"]),
            Means::Exit => (&[], &["function", "thread"]),
            Means::SpanBegin | Means::SpanEnd => (&["function"], &["thread"]),
            Means::Switch => (&["to"], &["from"]),
            Means::SwitchedIn | Means::SwitchedOut | Means::Ready => (&["thread"], &[]),
            Means::IsrEnter => (&["irq"], &["irq_name", "thread"]),
            Means::IsrExit => (&[], &["irq", "thread"]),
            Means::Marker => (&[], &["value", "label", "thread"]),
            Means::Counter => (&["value"], &["label", "thread"]),
            Means::ThreadName => (&["thread", "thread_name"], &[]),
        };
        if self.per_cpu && !matches!(self.means, Means::SpanBegin | Means::SpanEnd) {
            return fail("only what its meaning has use for", "per_cpu".to_owned());
        }
        for (key, value) in self.keys() {
            let needed = needs.contains(&key);
            match value {
                None if needed => return fail(key, "none".to_owned()),
                Some(_) if !needed && !may.contains(&key) => {
                    return fail("only what its meaning has use for", key.to_owned());
                }
                Some("*") if key != "function" || !self.name.contains('*') => {
                    return fail("a field", "*".to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keys(&self) -> [(&'static str, Option<&str>); 10] {
        [
            ("function", self.function.as_deref()),
            ("call_site", self.call_site.as_deref()),
            ("thread", self.thread.as_deref()),
            ("thread_name", self.thread_name.as_deref()),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("irq", self.irq.as_deref()),
            ("irq_name", self.irq_name.as_deref()),
            ("value", self.value.as_deref()),
            ("label", self.label.as_deref()),
        ]
    }

    /// What the `*` in the name stands for in the name of an event, or nothing where there is no `*`;
    /// `None` if the name does not fit.
    fn fits<'n>(&self, event: &'n str) -> Option<&'n str> {
        match self.name.split_once('*') {
            None => (self.name == event).then_some(""),
            Some((before, behind)) => event.strip_prefix(before)?.strip_suffix(behind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_entry_lacks_is_told() {
        let entry = |text: &str| Mapping::parse(&format!("[[event]]\nname = \"a_*\"\n{text}\n"));
        assert!(entry("means = \"enter\"\nfunction = \"*\"").is_ok());
        assert!(entry("means = \"exit\"").is_ok());
        for (text, message) in [
            (
                "means = \"enter\"",
                "event \"a_*\": expected function, found none",
            ),
            (
                "means = \"enter\"\nfunction = \"f\"\nirq = \"i\"",
                "event \"a_*\": expected only what its meaning has use for, found irq",
            ),
            (
                "means = \"ready\"\nthread = \"*\"",
                "event \"a_*\": expected a field, found *",
            ),
        ] {
            assert_eq!(entry(text).unwrap_err().to_string(), message);
        }
        let syntax = Mapping::parse("[[event]]\nname = \"x\"\nmeans = \"call\"\n").unwrap_err();
        assert!(
            matches!(syntax, MappingError::Syntax { offset: 29, .. }),
            "{syntax:?}"
        );
        assert!(Mapping::parse("threads = \"x\"\nevent = []").is_err());
    }

    #[test]
    fn one_star_stands_for_anything() {
        let text = "[[event]]\nname = \"x*y\"\nmeans = \"exit\"";
        let entry = &Mapping::parse(text).unwrap().events[0];
        assert_eq!(entry.fits("xaby"), Some("ab"));
        assert_eq!(entry.fits("xy"), Some(""));
        assert_eq!(entry.fits("x"), None);
        assert_eq!(entry.fits("xyz"), None);
    }
}
