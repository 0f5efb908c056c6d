//! Mapping files: user-defined meanings of the events of any CTF trace.
//!
//! With tracers that the user configures (barectf, LTTng's own tracepoints, most home-made ones), the user chooses the
//! event names. A mapping file in TOML tells Kymo which of them are calls, switches, interrupts and markers:
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
//! A field is searched in the payload, then in the contexts, the event's header and the packet's context. The first
//! matching entry is used. Events without a matching entry keep their names and fields only.

mod rules;
mod survey;

use serde::Deserialize;
use thiserror::Error;

pub(crate) use rules::Mapped;

/// Meanings of the events of a trace. `book/other-tracers.md` has an example of such a file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Name of the field with the thread of every event.
    #[serde(default)]
    thread: Option<String>,
    /// Name of the field with the processor of every event, if packets do not have it.
    #[serde(default)]
    cpu: Option<String>,
    #[serde(rename = "event")]
    events: Vec<Entry>,
}

/// Meaning of the events with one name.
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
    /// For spans: whether each processor has its own.
    #[serde(default)]
    per_cpu: bool,
}

/// Possible meanings.
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

/// Error in a mapping.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingError {
    /// The syntax is invalid.
    #[error("{message}")]
    Syntax {
        /// Expected and found text.
        message: String,
        /// Offset in the text, in bytes.
        offset: u64,
    },
    /// An entry lacks a key that its meaning requires, or has one that its meaning does not support.
    #[error("event {event:?}: expected {expected}, found {found}")]
    Entry {
        /// Name in the entry.
        event: String,
        /// Requirement of the meaning.
        expected: &'static str,
        /// Found text.
        found: String,
    },
    /// An event of the trace lacks a field.
    #[error("event {event:?}: expected a field {field:?}, and the trace has none")]
    NoField {
        /// Name of the event in the trace.
        event: String,
        /// The field.
        field: String,
    },
    /// No event of the trace has the field that every event should have.
    #[error("{key}: expected a field {field:?} of the trace's events, and none has it")]
    NoEventHas {
        /// The key.
        key: &'static str,
        /// The field.
        field: String,
    },
    /// No event of the trace matches any entry.
    #[error("expected one of the trace's events to fit, found {found}")]
    NoEvent {
        /// Names of the trace's events, as many as fit into a message.
        found: String,
    },
}

impl Mapping {
    /// Parses a mapping file.
    ///
    /// # Errors
    /// [`MappingError`] if the syntax is invalid, or if an entry has no possible meaning.
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
    /// Checks that the entry has exactly the keys that its meaning requires or supports.
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

    /// Matches the name of an event. Returns the text that the `*` stands for, or an empty text without a `*`; `None`
    /// if the name does not match.
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
