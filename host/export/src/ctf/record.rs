//! What an event becomes: a class of events of the [`schema`](super::schema), and its fields.

use kymo_analysis::calls::Callee;
use kymo_analysis::steady::RECORDED;
use kymo_ctf::Datum;
use kymo_event::{Event, EventKind, Field, Gap};

use super::schema::{Class, UNKNOWN};
use crate::json_object::Object;
use crate::names::Names;

/// The fields of calls in all sources that say no more than what a call is. When a call was recorded that is
/// elsewhere now follows from the gap that tells how many events were moved.
const OF_CALLS: [&str; 5] = ["function", "address", "call_site", "label", RECORDED];

/// An event in words of the schema.
pub(super) struct Record<'e> {
    pub class: Class,
    /// What the class has for fields, without `more`.
    fields: Vec<Datum<'e>>,
    /// What the class has no fields for, as a JSON object; empty if there is nothing.
    more: Vec<u8>,
    /// Whether something could not be said.
    pub cut: bool,
}

impl<'e> Record<'e> {
    /// What becomes of an event; `text` is where a gap's message is kept. The names of functions
    /// and interrupts that it mentions are asked for in `names`, so that they become labels.
    pub fn new(event: &'e Event, names: &mut Names<'_>, text: &'e mut String) -> Self {
        let (class, fields) = meaning(event, names, text);
        let mut cut = false;
        let fields = fields
            .into_iter()
            .map(|field| match field {
                Datum::Text(text) => Datum::Text(until_zero(text, &mut cut)),
                field => field,
            })
            .collect();
        let mut more = Vec::new();
        if class.has_more() {
            let rest = || event.fields.iter().filter(|field| !class.says(field));
            if rest().next().is_some() {
                let mut object = Object::new(&mut more);
                object.fields(rest());
                object.end();
            }
        } else {
            cut |= event
                .fields
                .iter()
                .any(|field| !OF_CALLS.contains(&&*field.name));
        }
        Self {
            class,
            fields,
            more,
            cut,
        }
    }

    /// All fields of the event as they stand in a stream: where it happened, then what. A stream of
    /// a CPU tells the CPU in its packets.
    pub fn data<'d>(&'d self, event: &Event, of_cpu: bool) -> Vec<Datum<'d>> {
        let mut data: Vec<Datum<'d>> = Vec::with_capacity(self.fields.len() + 3);
        if !of_cpu {
            let cpu = event.cpu.map_or(UNKNOWN, |cpu| i64::from(cpu.0));
            // A CPU that doesn't fit is no CPU.
            data.push(Datum::Signed(i32::try_from(cpu).map_or(UNKNOWN, i64::from)));
        }
        let thread = event.thread.map(|thread| thread.0.cast_signed());
        data.push(Datum::Signed(thread.unwrap_or(UNKNOWN)));
        data.extend_from_slice(&self.fields);
        if self.class.has_more() {
            data.push(Datum::Text(&self.more));
        }
        data
    }
}

impl Class {
    /// Whether one of its fields is this one.
    fn says(self, field: &Field) -> bool {
        let own: &[&str] = match self {
            Self::IsrEnter | Self::IsrExit | Self::IsrName => &["irq"],
            Self::Marker => &["value"],
            Self::NamedMarker => &["label", "value"],
            Self::SwitchedIn | Self::SwitchedOut => &["thread"],
            Self::Context => &["thread", "priority", "mode"],
            Self::Recording => &["on", "cause"],
            Self::SetJmp | Self::LongJmp => &["jmp_buf"],
            Self::WallClock => &["ns", "uncertainty"],
            _ => &[],
        };
        own.contains(&&*field.name)
    }
}

/// The class of an event and the fields that the class has.
fn meaning<'e>(
    event: &'e Event,
    names: &mut Names<'_>,
    text: &'e mut String,
) -> (Class, Vec<Datum<'e>>) {
    let mut named = |callee| {
        names.id(callee);
        Datum::Unsigned(match callee {
            Callee::Function(address) => address.0,
            Callee::Interrupt(irq) => irq.0.into(),
            Callee::Unknown => 0,
        })
    };
    match &event.kind {
        EventKind::Enter {
            function,
            call_site,
        } => {
            let function = named(Callee::Function(*function));
            match call_site {
                Some(site) => (Class::EnterFrom, vec![function, site.0.into()]),
                None => (Class::Enter, vec![function]),
            }
        }
        EventKind::Exit { function } => match function {
            Some(function) => (Class::Exit, vec![named(Callee::Function(*function))]),
            None => (Class::ExitUnnamed, Vec::new()),
        },
        EventKind::SwitchedIn => (Class::SwitchedIn, Vec::new()),
        EventKind::SwitchedOut => (Class::SwitchedOut, Vec::new()),
        EventKind::IsrEnter { irq } => (Class::IsrEnter, vec![named(Callee::Interrupt(*irq))]),
        EventKind::IsrExit { irq } => match irq {
            Some(irq) => (Class::IsrExit, vec![named(Callee::Interrupt(*irq))]),
            None => (Class::IsrExitUnnamed, Vec::new()),
        },
        EventKind::Marker { label, value } => match label {
            Some(label) => (
                Class::NamedMarker,
                vec![label.as_str().into(), (*value).into()],
            ),
            None => (Class::Marker, vec![(*value).into()]),
        },
        EventKind::ThreadName { thread, name } => (
            Class::ThreadName,
            vec![thread.0.into(), name.as_str().into()],
        ),
        EventKind::IsrName { irq, name } => {
            names.learn_interrupt(*irq, name);
            (Class::IsrName, vec![irq.0.into(), name.as_str().into()])
        }
        EventKind::Context { priority, mode } => (
            Class::Context,
            vec![Datum::Signed((*priority).into()), (*mode).into()],
        ),
        EventKind::Recording { on, cause } => (
            Class::Recording,
            vec![Datum::Unsigned((*on).into()), cause.name().into()],
        ),
        EventKind::SetJmp { env } => (Class::SetJmp, vec![env.0.into()]),
        EventKind::LongJmp { env } => (Class::LongJmp, vec![env.0.into()]),
        EventKind::WallClock {
            unix_ns,
            uncertainty_ns,
        } => (
            Class::WallClock,
            vec![(*unix_ns).into(), u64::from(*uncertainty_ns).into()],
        ),
        EventKind::Gap(gap) => {
            let (amount, offset) = size(gap);
            let message = match gap {
                Gap::Damage { message, .. } => message,
                gap => {
                    *text = gap.to_string();
                    text
                }
            };
            (
                Class::Gap,
                vec![
                    gap.name().into(),
                    message.as_str().into(),
                    amount.unwrap_or(u64::MAX).into(),
                    offset.into(),
                ],
            )
        }
        _ => (Class::Other, vec![(*event.name).into()]),
    }
}

/// How much is missing, in what the kind of gap counts, and for damage where.
fn size(gap: &Gap) -> (Option<u64>, u64) {
    match gap {
        Gap::Discarded { events } => (*events, 0),
        Gap::LostPackets { packets } => (*packets, 0),
        Gap::Overwritten { packets } => (Some(*packets), 0),
        Gap::InInterrupt { depth } => (Some(u64::from(*depth)), 0),
        Gap::Clock(gap) => (Some(gap.at_least.0), 0),
        Gap::TimeBackward { by } => (Some(by.0), 0),
        Gap::Damage { offset, bytes, .. } => (*bytes, *offset),
        _ => (None, 0),
    }
}

/// A text as far as a string of CTF can hold it, which ends at the first zero byte.
fn until_zero<'t>(text: &'t [u8], cut: &mut bool) -> &'t [u8] {
    match text.iter().position(|byte| *byte == 0) {
        Some(end) => {
            *cut = true;
            text.get(..end).unwrap_or(text)
        }
        None => text,
    }
}
