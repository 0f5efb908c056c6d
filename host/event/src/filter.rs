//! Which events are wanted: by time, name, stream, processor, thread and the values of fields.
//!
//! One type serves everything that leaves events out, whether it follows the event model (listing,
//! report, most exports) or by the records of a trace as they stand (converting CTF), so that the
//! same words mean the same everywhere. What is asked is a [`Subject`]; [`Event`] is one.
//!
//! A [`Gap`](crate::Gap) has no name and no fields, and a reader of a few events has to know
//! what is missing between them: only time, stream and processor leave gaps out
//! ([`Filter::keeps_gap`]).

mod condition;
mod pattern;
mod unmet;

use std::borrow::Cow;

use crate::{
    Cpu, Duration, Event, EventKind, Field, Identities, Quantity, Space, SpaceKind, StreamInfo,
    ThreadId, Tid, Time, Value,
};

pub use condition::{Condition, ConditionError, Relation};
pub use pattern::{Choice, Pattern};
pub use unmet::Unmet;

/// The value of a field, as far as it can be compared with something.
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
    /// An integer that has a name: compared as what it is compared with.
    Label(&'a str, i128),
}

/// What a [`Filter`] asks an event.
pub trait Subject {
    /// When it happened; `None` where there is no clock.
    fn time(&self) -> Option<Time>;
    /// What the source calls it.
    fn name(&self) -> &str;
    /// What a marker or a counter is called: it is chosen by that name as well.
    fn label(&self) -> Option<&str> {
        None
    }
    /// The processor it happened on, if known.
    fn cpu(&self) -> Option<Cpu>;
    /// The thread it happened in, if known.
    fn thread(&self) -> Option<Tid>;
    /// The name of that thread, if known.
    fn thread_name(&self) -> Option<Cow<'_, str>>;
    /// The address space of that thread, if known: it says which process that is.
    fn space(&self) -> Option<&Space> {
        None
    }
    /// The value of the field at `path`: names separated by dots, the number of an element for
    /// that of an array. `None` where there is no such field, or nothing to compare in it.
    fn field(&self, path: &str) -> Option<Operand<'_>>;
}

/// A moment at which what is wanted begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// By the clock of the trace.
    At(Time),
    /// So long after the first event of the trace.
    AfterStart(Duration),
}

impl Bound {
    /// The moment, in a trace whose first event is at `start`.
    #[must_use]
    pub fn time(self, start: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::AfterStart(distance) => start + distance,
        }
    }
}

/// Which threads are wanted: an id, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// The thread of this id.
    Id(Tid),
    /// All threads with such a name.
    Named(Pattern),
}

impl ThreadChoice {
    /// Whether a thread of this id and name is one of them.
    #[must_use]
    pub fn fits(&self, id: Tid, name: Option<&str>) -> bool {
        match self {
            Self::Id(wanted) => id == *wanted,
            Self::Named(pattern) => name.is_some_and(|name| pattern.matches(name)),
        }
    }
}

/// Which processes are wanted: a number, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessChoice {
    /// The process of this number.
    Id(u64),
    /// All processes with such a name.
    Named(Pattern),
}

impl ProcessChoice {
    /// Whether a space is one of them.
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

/// Which events are wanted. The default wants all.
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
    /// Events from this moment on. It is the first that is wanted.
    pub begin: Option<Bound>,
    /// Events up to this moment. It is the last that is wanted.
    pub end: Option<Bound>,
    /// By name.
    pub events: Choice,
    /// By the name of the stream. The caller has to know that name: streams that are not
    /// wanted need not be decoded at all.
    pub streams: Choice,
    /// By the trace ID of the stream's source, of hardware trace; any stream, if there are none.
    pub trace_ids: Vec<u8>,
    /// Only what happened on one of these processors; on any, if there are none.
    pub cpus: Vec<Cpu>,
    /// Only what happened in threads of one of these processes; of any, if there are none.
    pub processes: Vec<ProcessChoice>,
    /// Only what happened in one of these threads; in any, if there are none.
    pub threads: Vec<ThreadChoice>,
    /// Only events for which all of these hold.
    pub conditions: Vec<Condition>,
}

impl Filter {
    /// Whether nothing is left out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether any bound depends on when the trace begins.
    #[must_use]
    pub fn needs_start(&self) -> bool {
        [self.begin, self.end]
            .into_iter()
            .flatten()
            .any(|bound| matches!(bound, Bound::AfterStart(_)))
    }

    /// The filter for a trace whose first event is at `start`: all bounds are moments of its clock.
    #[must_use]
    pub fn from_start(mut self, start: Time) -> Self {
        for bound in [&mut self.begin, &mut self.end].into_iter().flatten() {
            *bound = Bound::At(bound.time(start));
        }
        self
    }

    /// The first and last moment that are wanted, by the clock of the trace. Bounds that count from
    /// its start leave nothing out before [`from_start`](Self::from_start).
    #[must_use]
    pub fn span(&self) -> (Time, Time) {
        let at = |bound, otherwise| match bound {
            Some(Bound::At(time)) => time,
            _ => Time(otherwise),
        };
        (at(self.begin, i64::MIN), at(self.end, i64::MAX))
    }

    /// Whether a moment is wanted; what has no time always is.
    #[must_use]
    pub fn wants_time(&self, time: Option<Time>) -> bool {
        let (begin, end) = self.span();
        time.is_none_or(|time| (begin..=end).contains(&time))
    }

    /// Whether a stream is wanted.
    #[must_use]
    pub fn wants_stream(&self, stream: &StreamInfo) -> bool {
        let has_id = |id: u8| self.trace_ids.contains(&id);
        self.streams.wants(&stream.name)
            && (self.trace_ids.is_empty() || stream.trace_id.is_some_and(has_id))
    }

    /// Whether it depends on the thread what is wanted.
    #[must_use]
    pub fn chooses_threads(&self) -> bool {
        !self.threads.is_empty() || !self.processes.is_empty()
    }

    /// Whether a thread of these identities is wanted.
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

    /// Whether the process of a space is wanted.
    fn wants_process(&self, space: Option<&Space>) -> bool {
        let fits = |space: &Space| self.processes.iter().any(|choice| choice.fits(space));
        self.processes.is_empty() || space.is_some_and(fits)
    }

    /// Whether a processor is wanted; one that is not known is, if all are.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<Cpu>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// Whether an event is wanted, of a stream that is.
    #[must_use]
    pub fn wants<S: Subject + ?Sized>(&self, subject: &S) -> bool {
        self.wants_time(subject.time())
            && self.wants_cpu(subject.cpu())
            && self.wants_name(subject)
            && self.wants_thread(subject)
            && (self.processes.is_empty() || self.wants_process(subject.space()))
            && self.conditions.iter().all(|it| it.holds(subject))
    }

    /// Whether an event of its name, or a marker or counter of its label, is wanted.
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

    /// Whether a loss is wanted, of a stream that is: its time and processor decide. One that no
    /// processor is named for may be of any.
    #[must_use]
    pub fn keeps_gap(&self, time: Option<Time>, cpu: Option<Cpu>) -> bool {
        self.wants_time(time) && (cpu.is_none() || self.wants_cpu(cpu))
    }

    /// Whether an event of the model is wanted, gaps among them.
    #[must_use]
    pub fn keeps(&self, event: &Event) -> bool {
        if matches!(event.kind, EventKind::Gap(_)) {
            self.keeps_gap(Some(event.time), event.cpu)
        } else {
            self.wants(event)
        }
    }
}

/// Which thread a [`ThreadId`](crate::ThreadId) is, only the [`Identities`](crate::Identities) know: a
/// filter by threads needs an event together with these.
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
        // The fields of the contexts stand behind those of the payload, in one structure.
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

/// What a marker or a counter has beside the fields of its source.
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

/// The value at the end of a path.
fn find<'v>(fields: &'v [Field], path: &str) -> Option<&'v Value> {
    // Names may have dots in them.
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
        // An enumeration.
        Value::Struct(fields) => {
            let [label, value] = fields.as_slice() else {
                return None;
            };
            let (Value::Text(text), Operand::Integer(number)) =
                (&label.value, operand(&value.value)?)
            else {
                return None;
            };
            if (&*label.name, &*value.name) != ("label", "value") {
                return None;
            }
            Operand::Label(text, number)
        }
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
        // What the source calls so goes first.
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
