//! Event filter by time, name, stream, CPU, thread and the values of fields.
//!
//! One type serves all code that excludes events, whether it works on the event model (listing, report, most exports)
//! or on the raw records of a trace (converting CTF), so that the same filter has the same effect everywhere. A filter
//! tests a [`Subject`]; [`Event`] implements it.
//!
//! A [`Gap`](crate::Gap) has no name and no fields, and a user who selects a few events has to know about the losses
//! between them: only time, stream and CPU exclude gaps ([`Filter::keeps_gap`]).

mod condition;
mod pattern;
mod unmet;

use std::borrow::Cow;

use crate::field::labelled;
use crate::{
    Cpu, Duration, Event, EventKind, Field, Identities, Quantity, Space, SpaceKind, StreamInfo,
    ThreadId, Tid, Time, Value,
};

pub use condition::{Condition, ConditionError, Relation};
pub use pattern::{Choice, Pattern};
pub use unmet::Unmet;

/// The value of a field, in a comparable form.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'a> {
    /// An integer of either signedness.
    Integer(i128),
    /// A real number.
    Real(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(Cow<'a, str>),
    /// A named integer: compared by its name or its value, depending on the constant.
    Label(&'a str, i128),
}

/// Properties of an event that a [`Filter`] tests.
pub trait Subject {
    /// Its timestamp; `None` if there is no clock.
    fn time(&self) -> Option<Time>;
    /// Its name in the source.
    fn name(&self) -> &str;
    /// The label of a marker or the name of a counter; filters by name accept it, too.
    fn label(&self) -> Option<&str> {
        None
    }
    /// The CPU of the event, if known.
    fn cpu(&self) -> Option<Cpu>;
    /// The thread of the event, if known.
    fn thread(&self) -> Option<Tid>;
    /// The name of that thread, if known.
    fn thread_name(&self) -> Option<Cow<'_, str>>;
    /// The address space of that thread, if known, which identifies its process.
    fn space(&self) -> Option<&Space> {
        None
    }
    /// The value of the field at `path`: names separated by dots, with an index for an element of an array. `None` if
    /// the field does not exist, or has no comparable value.
    fn field(&self, path: &str) -> Option<Operand<'_>>;
}

/// Begin or end of a time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A time of the trace's clock.
    At(Time),
    /// A duration after the first event of the trace.
    AfterStart(Duration),
}

impl Bound {
    /// Resolves the bound in a trace whose first event is at `start`.
    #[must_use]
    pub fn time(self, start: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::AfterStart(distance) => start + distance,
        }
    }
}

/// Selects threads by id or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// The thread with this id.
    Id(Tid),
    /// All threads whose name matches.
    Named(Pattern),
}

impl ThreadChoice {
    /// Whether it selects a thread with this id and name.
    #[must_use]
    pub fn fits(&self, id: Tid, name: Option<&str>) -> bool {
        match self {
            Self::Id(wanted) => id == *wanted,
            Self::Named(pattern) => name.is_some_and(|name| pattern.matches(name)),
        }
    }
}

/// Selects processes by number or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessChoice {
    /// The process with this number.
    Id(u64),
    /// All processes one of whose names matches.
    Named(Pattern),
}

impl ProcessChoice {
    /// Whether it selects the process of a space.
    #[must_use]
    pub fn fits(&self, space: &Space) -> bool {
        let is_process = space.kind == SpaceKind::Process;
        is_process
            && match self {
                Self::Id(wanted) => space.pid == Some(*wanted),
                Self::Named(pattern) => {
                    let mut others = space.other_names.iter();
                    pattern.matches(&space.name) || others.any(|name| pattern.matches(name))
                }
            }
    }
}

/// Selection of events. The default accepts all.
///
/// ```
/// use kymo_event::{Choice, Filter, Pattern};
///
/// let events = Choice { keep: vec![Pattern::new("sched_*")], drop: vec![Pattern::new("*_waking")] };
/// let filter = Filter { events, ..Filter::default() };
/// assert!(filter.events.wants("sched_switch"));
/// assert!(!filter.events.wants("sched_waking"));
/// assert!(!filter.is_everything());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Events from this time on, inclusive.
    pub begin: Option<Bound>,
    /// Events up to this time, inclusive.
    pub end: Option<Bound>,
    /// Selection by event name.
    pub events: Choice,
    /// Selection by stream name. The caller must apply it: streams that are excluded need not be decoded at all.
    pub streams: Choice,
    /// For hardware trace: only streams with one of these trace IDs; if empty, all streams.
    pub trace_ids: Vec<u8>,
    /// Only events on one of these CPUs; if empty, on any.
    pub cpus: Vec<Cpu>,
    /// Only events in threads of one of these processes; if empty, of any.
    pub processes: Vec<ProcessChoice>,
    /// Only events in one of these threads; if empty, in any.
    pub threads: Vec<ThreadChoice>,
    /// Only events for which all conditions hold.
    pub conditions: Vec<Condition>,
}

impl Filter {
    /// Whether the filter accepts everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a bound depends on the begin of the trace.
    #[must_use]
    pub fn needs_start(&self) -> bool {
        [self.begin, self.end]
            .into_iter()
            .flatten()
            .any(|bound| matches!(bound, Bound::AfterStart(_)))
    }

    /// Resolves all bounds to times of the clock, for a trace whose first event is at `start`.
    #[must_use]
    pub fn from_start(mut self, start: Time) -> Self {
        for bound in [&mut self.begin, &mut self.end].into_iter().flatten() {
            *bound = Bound::At(bound.time(start));
        }
        self
    }

    /// The first and last accepted times, by the clock of the trace. Bounds relative to the start of the trace exclude
    /// nothing before [`from_start`](Self::from_start) has resolved them.
    #[must_use]
    pub fn span(&self) -> (Time, Time) {
        let at = |bound, otherwise| match bound {
            Some(Bound::At(time)) => time,
            _ => Time(otherwise),
        };
        (at(self.begin, i64::MIN), at(self.end, i64::MAX))
    }

    /// Whether it accepts a time; events without time are always accepted.
    #[must_use]
    pub fn wants_time(&self, time: Option<Time>) -> bool {
        let (begin, end) = self.span();
        time.is_none_or(|time| (begin..=end).contains(&time))
    }

    /// Whether it accepts a stream.
    #[must_use]
    pub fn wants_stream(&self, stream: &StreamInfo) -> bool {
        let has_id = |id: u8| self.trace_ids.contains(&id);
        self.streams.wants(&stream.name)
            && (self.trace_ids.is_empty() || stream.trace_id.is_some_and(has_id))
    }

    /// Whether it selects by thread or process.
    #[must_use]
    pub fn chooses_threads(&self) -> bool {
        !self.threads.is_empty() || !self.processes.is_empty()
    }

    /// Whether it accepts a thread of these identities.
    #[must_use]
    pub fn wants_thread_id(&self, id: ThreadId, identities: &Identities) -> bool {
        if !self.chooses_threads() {
            return true;
        }
        let Some(thread) = identities.threads().get(id.0 as usize) else {
            return false;
        };
        let fits = |choice: &ThreadChoice| choice.fits(thread.tid, thread.name.as_deref());
        (self.threads.is_empty() || self.threads.iter().any(fits))
            && self.wants_process(identities.space(thread.space))
    }

    /// Whether it accepts the process of a space.
    fn wants_process(&self, space: Option<&Space>) -> bool {
        let fits = |space: &Space| self.processes.iter().any(|choice| choice.fits(space));
        self.processes.is_empty() || space.is_some_and(fits)
    }

    /// Whether it accepts a CPU. An unknown CPU is accepted only if all are.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<Cpu>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// Whether it accepts an event of an accepted stream.
    #[must_use]
    pub fn wants<S: Subject + ?Sized>(&self, subject: &S) -> bool {
        self.wants_time(subject.time())
            && self.wants_cpu(subject.cpu())
            && self.wants_name(subject)
            && self.wants_thread(subject)
            && (self.processes.is_empty() || self.wants_process(subject.space()))
            && self.conditions.iter().all(|it| it.holds(subject))
    }

    /// Whether it accepts an event by its name, or a marker or counter by its label.
    #[must_use]
    pub fn wants_name<S: Subject + ?Sized>(&self, subject: &S) -> bool {
        let names = [Some(subject.name()), subject.label()];
        let any = |patterns: &[Pattern]| {
            let mut names = names.iter().flatten();
            names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
        };
        let Choice { keep, drop } = &self.events;
        (keep.is_empty() || any(keep)) && !any(drop)
    }

    fn wants_thread<S: Subject + ?Sized>(&self, subject: &S) -> bool {
        self.threads.is_empty()
            || self.threads.iter().any(|choice| match choice {
                ThreadChoice::Id(id) => subject.thread() == Some(*id),
                ThreadChoice::Named(pattern) => subject
                    .thread_name()
                    .is_some_and(|name| pattern.matches(&name)),
            })
    }

    /// Whether it accepts a loss of an accepted stream, by time and CPU. A loss without a CPU may affect any.
    #[must_use]
    pub fn keeps_gap(&self, time: Option<Time>, cpu: Option<Cpu>) -> bool {
        self.wants_time(time) && (cpu.is_none() || self.wants_cpu(cpu))
    }

    /// Whether it accepts an event of the model, including gaps.
    #[must_use]
    pub fn keeps(&self, event: &Event) -> bool {
        if matches!(event.kind, EventKind::Gap(_)) {
            self.keeps_gap(Some(event.time), event.cpu)
        } else {
            self.wants(event)
        }
    }
}

/// Only [`Identities`](crate::Identities) can resolve a [`ThreadId`](crate::ThreadId): a filter by threads needs a
/// subject that combines an event with these.
impl Subject for Event {
    fn time(&self) -> Option<Time> {
        Some(self.time)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> Option<&str> {
        self.kind.label()
    }

    fn cpu(&self) -> Option<Cpu> {
        self.cpu
    }

    fn thread(&self) -> Option<Tid> {
        None
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        let fields = self.fields.as_slice();
        // Context fields follow those of the payload, in one structure.
        let context = || match fields.last() {
            Some(Field {
                name,
                value: Value::Struct(inner),
            }) if name == "context" => find(inner, path),
            _ => None,
        };
        match find(fields, path).or_else(context) {
            Some(found) => operand(found),
            None => meaning(&self.kind, path),
        }
    }
}

/// Values of a marker or counter that are not fields of its source.
fn meaning<'k>(kind: &'k EventKind, path: &str) -> Option<Operand<'k>> {
    let integer = |value: u64| Operand::Integer(value.into());
    match (path, kind) {
        ("label", kind) => kind.label().map(|label| Operand::Text(label.into())),
        ("value", EventKind::Marker { value, .. }) => Some(integer(*value)),
        ("value", EventKind::Counter { value, .. }) => Some(match *value {
            Quantity::Unsigned(value) => integer(value),
            Quantity::Signed(value) => Operand::Integer(value.into()),
            Quantity::Real(value) => Operand::Real(value),
        }),
        ("process", EventKind::Counter { process, .. }) => process.map(integer),
        _ => None,
    }
}

/// Finds the value at `path`.
fn find<'v>(fields: &'v [Field], path: &str) -> Option<&'v Value> {
    // Names may contain dots.
    if let Some(field) = fields.iter().find(|field| field.name == path) {
        return Some(&field.value);
    }
    let (first, rest) = path.split_once('.')?;
    let field = fields.iter().find(|field| field.name == first)?;
    inside(&field.value, rest)
}

fn inside<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    match value {
        Value::Struct(fields) => find(fields, path),
        Value::List(values) => {
            let (number, rest) = path
                .split_once('.')
                .map_or((path, None), |(number, rest)| (number, Some(rest)));
            let value = values.get(number.parse::<usize>().ok()?)?;
            rest.map_or(Some(value), |rest| inside(value, rest))
        }
        _ => None,
    }
}

fn operand(value: &Value) -> Option<Operand<'_>> {
    Some(match value {
        Value::Unsigned(number) | Value::Hex(number) => Operand::Integer((*number).into()),
        Value::Signed(number) => Operand::Integer((*number).into()),
        Value::Real(number) => Operand::Real(*number),
        Value::Bool(value) => Operand::Bool(*value),
        Value::Text(text) => Operand::Text(text.into()),
        Value::Struct(fields) => match labelled(fields) {
            Some((label, number)) => match operand(number)? {
                Operand::Integer(number) => Operand::Label(label, number),
                _ => return None,
            },
            None => return None,
        },
        Value::Bytes(_) | Value::List(_) | Value::None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gap, StreamId};

    fn event(time: i64, name: &'static str, fields: Vec<Field>) -> Event {
        Event {
            time: Time(time),
            stream: StreamId(0),
            cpu: Some(Cpu(1)),
            thread: Some(crate::ThreadId(7)),
            kind: EventKind::Other,
            named: false,
            record: true,
            stamp: None,
            name: name.into(),
            fields,
        }
    }

    #[test]
    fn bounds_are_wanted_themselves_and_may_count_from_the_start() {
        let filter = Filter {
            begin: Some(Bound::AfterStart(Duration(5))),
            end: Some(Bound::At(Time(20))),
            ..Filter::default()
        };
        assert!(filter.needs_start());
        let filter = filter.from_start(Time(10));
        assert_eq!(filter.span(), (Time(15), Time(20)));
        let kept = [14, 15, 20, 21].map(|time| filter.keeps(&event(time, "e", Vec::new())));
        assert_eq!(kept, [false, true, true, false]);
    }

    #[test]
    fn counters_are_chosen_by_name_process_and_value() {
        let mut counter = event(5, "tracing_mark_write", Vec::new());
        counter.kind = EventKind::Counter {
            name: "queued".to_owned(),
            process: Some(200),
            value: Quantity::Unsigned(u64::MAX),
        };
        let events = |keep: &[&str], drop: &[&str]| Filter {
            events: Choice {
                keep: keep.iter().copied().map(Pattern::new).collect(),
                drop: drop.iter().copied().map(Pattern::new).collect(),
            },
            ..Filter::default()
        };
        assert!(events(&["queue?"], &[]).keeps(&counter));
        assert!(events(&["tracing_*"], &[]).keeps(&counter));
        assert!(!events(&["heap"], &[]).keeps(&counter));
        assert!(!events(&[], &["queued"]).keeps(&counter));
        for (condition, holds) in [
            ("value > 7", true),
            ("value == 18446744073709551615", true),
            ("value == 18446744073709551614", false),
            ("label == queued", true),
            ("label ~ q*", true),
            ("process == 200", true),
            ("process == 100", false),
        ] {
            let conditions = vec![condition.parse().unwrap()];
            let filter = Filter {
                conditions,
                ..Filter::default()
            };
            assert_eq!(filter.keeps(&counter), holds, "{condition}");
        }
        // A field with this name has precedence.
        counter.fields = vec![Field::new("value", 3u64)];
        let conditions = vec!["value == 3".parse().unwrap()];
        assert!(
            Filter {
                conditions,
                ..Filter::default()
            }
            .keeps(&counter)
        );
    }

    #[test]
    fn gaps_are_left_out_by_time_and_processor_alone() {
        let filter = Filter {
            events: Choice {
                keep: vec![Pattern::new("nothing")],
                drop: Vec::new(),
            },
            threads: vec![ThreadChoice::Id(Tid(9))],
            cpus: vec![Cpu(1)],
            end: Some(Bound::At(Time(5))),
            ..Filter::default()
        };
        let mut gap = event(5, "", Vec::new());
        gap.kind = EventKind::Gap(Gap::Discarded { events: Some(1) });
        assert!(filter.keeps(&gap));
        gap.cpu = None;
        assert!(filter.keeps(&gap));
        gap.cpu = Some(Cpu(0));
        assert!(!filter.keeps(&gap));
        gap.cpu = Some(Cpu(1));
        gap.time = Time(6);
        assert!(!filter.keeps(&gap));
        gap.kind = EventKind::Other;
        gap.time = Time(5);
        assert!(!filter.keeps(&gap));
    }

    #[test]
    fn fields_are_found_by_path_and_in_the_context() {
        let label = Value::Struct(vec![
            Field::new("label", "RUNNING"),
            Field::new("value", 1u64),
        ]);
        let inner = vec![Field::new("x", -3i64)];
        let list = Value::List(vec![Value::Struct(inner), Value::Hex(16)]);
        let fields = vec![
            Field::new("state", label),
            Field::new("list", list),
            Field::new("context", Value::Struct(vec![Field::new("vtid", 42u64)])),
        ];
        let event = event(0, "e", fields);
        assert_eq!(event.field("state"), Some(Operand::Label("RUNNING", 1)));
        assert_eq!(event.field("list.0.x"), Some(Operand::Integer(-3)));
        assert_eq!(event.field("list.1"), Some(Operand::Integer(16)));
        assert_eq!(event.field("vtid"), Some(Operand::Integer(42)));
        assert_eq!(event.field("context.vtid"), Some(Operand::Integer(42)));
        for nothing in ["list", "list.2", "list.x", "none", "state.x", "context"] {
            assert_eq!(event.field(nothing), None, "{nothing}");
        }
    }
}
