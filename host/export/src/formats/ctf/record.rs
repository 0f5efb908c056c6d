//! Conversion of an event to an event class of the [`schema`](super::schema), and its fields.

use kymo_analysis::clock_repair::RECORDED;
use kymo_ctf::Datum;
use kymo_event::{Event, EventKind, Field, Gap, Identities, Quantity, Row, RowKind};

use super::numbers::Numbers;
use super::schema::{Class, UNKNOWN};
use crate::json::Object;

/// Fields of calls, in all sources, that add nothing to the class of the event. The original time of a moved call
/// follows from the gap that counts the moved events.
const OF_CALLS: [&str; 6] = [
    "function",
    "address",
    "call_site",
    "parent",
    "label",
    RECORDED,
];

/// Greatest number of fields of an event.
const MOST: usize = 8;

/// An event in the schema's terms.
pub(super) struct Record<'e> {
    pub class: Class,
    /// The fields in the order of the stream.
    data: [Datum<'e>; MOST],
    length: usize,
    /// Whether something could not be represented.
    pub cut: bool,
}

/// Storage for an event's texts while it is written.
#[derive(Debug, Default)]
pub(super) struct Texts {
    message: String,
    more: Vec<u8>,
}

impl<'e> Record<'e> {
    /// Converts an event: first its position, then its meaning. A stream of a CPU has the CPU in its packets. The
    /// functions and interrupts of the event get numbers, which become labels.
    pub fn new(
        (event, row): (&'e Event, &Row),
        identities: &Identities,
        numbers: &mut Numbers,
        texts: &'e mut Texts,
        of_cpu: bool,
    ) -> Self {
        let Texts { message, more } = texts;
        let mut record = Record {
            class: Class::Other,
            data: [Datum::Absent; MOST],
            length: 0,
            cut: false,
        };
        if !of_cpu {
            let cpu = event.cpu.map_or(UNKNOWN, |cpu| i64::from(cpu.0));
            // A CPU number that doesn't fit is written as unknown.
            record.add(Datum::Signed(i32::try_from(cpu).map_or(UNKNOWN, i64::from)));
        }
        let thread = event.thread.map(|id| numbers.thread(identities, id));
        record.add(Datum::Signed(thread.map_or(UNKNOWN, u64::cast_signed)));
        record.meaning((event, row), identities, numbers, message);
        let class = record.class;
        if class.has_more() {
            more.clear();
            let mut rest = event.fields.iter().filter(|field| !class.says(field));
            if let Some(first) = rest.next() {
                let mut object = Object::begin(more);
                object.fields([first]).fields(rest);
                object.end();
            }
            record.add(Datum::Text(more));
        } else {
            record.cut |= event
                .fields
                .iter()
                .any(|field| !OF_CALLS.contains(&&*field.name));
        }
        record
    }

    /// All fields of the event.
    pub fn data(&self) -> &[Datum<'e>] {
        self.data.get(..self.length).unwrap_or(&[])
    }

    fn add(&mut self, datum: Datum<'e>) {
        let datum = match datum {
            Datum::Text(text) => Datum::Text(until_zero(text, &mut self.cut)),
            datum => datum,
        };
        if let Some(place) = self.data.get_mut(self.length) {
            *place = datum;
            self.length += 1;
        }
    }

    /// Chooses the class of an event, and adds the fields of the class.
    fn meaning(
        &mut self,
        (event, row): (&'e Event, &Row),
        identities: &Identities,
        numbers: &mut Numbers,
        text: &'e mut String,
    ) {
        let mut set = |class, fields: &[Datum<'e>]| {
            self.class = class;
            for field in fields {
                self.add(*field);
            }
        };
        match &event.kind {
            EventKind::Enter {
                function,
                call_site,
            } => {
                let function = numbers.function(identities, *function).into();
                match call_site {
                    _ if row.is_found() => {
                        let site = call_site.map_or(0, |site| site.0);
                        set(Class::EnterFound, &[function, site.into(), 1u64.into()]);
                    }
                    Some(site) => set(Class::EnterFrom, &[function, site.0.into()]),
                    None => set(Class::Enter, &[function]),
                }
            }
            EventKind::Exit { function } => match function {
                Some(function) => {
                    let function = numbers.function(identities, *function).into();
                    match row.wall() {
                        _ if row.is_left() => set(Class::ExitLeft, &[function, 1u64.into()]),
                        Some(wall) => set(Class::ExitStated, &[function, wall.0.into()]),
                        None => set(Class::Exit, &[function]),
                    }
                }
                None => set(Class::ExitUnnamed, &[]),
            },
            EventKind::Called { function, caller } => {
                let function = numbers.function(identities, *function);
                let caller =
                    caller.map_or(0, |caller| numbers.function(identities, caller.function));
                set(Class::Called, &[function.into(), caller.into()]);
            }
            EventKind::SpanBegin { function, per_cpu } => {
                let function = numbers.function(identities, *function);
                set(
                    Class::SpanBegin,
                    &[function.into(), u64::from(*per_cpu).into()],
                );
            }
            EventKind::SpanEnd { function, per_cpu } => {
                let function = numbers.function(identities, *function);
                set(
                    Class::SpanEnd,
                    &[function.into(), u64::from(*per_cpu).into()],
                );
            }
            EventKind::SwitchedIn => set(Class::SwitchedIn, &[]),
            EventKind::SwitchedOut if row.may_run_unseen() => {
                set(Class::SwitchedOutUnseen, &[1u64.into()]);
            }
            EventKind::Time if row.is_last_time() => set(Class::LastTime, &[]),
            EventKind::SwitchedOut => set(Class::SwitchedOut, &[]),
            EventKind::IsrEnter { irq } => {
                let irq = numbers.interrupt(identities, *irq);
                set(Class::IsrEnter, &[irq.into()]);
            }
            EventKind::IsrExit { irq } => match irq {
                Some(irq) => {
                    let irq = numbers.interrupt(identities, *irq);
                    set(Class::IsrExit, &[irq.into()]);
                }
                None => set(Class::IsrExitUnnamed, &[]),
            },
            EventKind::Marker { label, value } => match label {
                Some(label) => set(
                    Class::NamedMarker,
                    &[label.as_str().into(), (*value).into()],
                ),
                None => set(Class::Marker, &[(*value).into()]),
            },
            EventKind::Counter {
                name,
                process,
                value,
            } => {
                let (class, value) = match *value {
                    Quantity::Real(value) => (Class::Counter, Datum::Float(value)),
                    Quantity::Signed(value) => (Class::SignedCounter, Datum::Signed(value)),
                    Quantity::Unsigned(value) => (Class::UnsignedCounter, value.into()),
                };
                let process = process.unwrap_or(0).into();
                set(class, &[name.as_str().into(), process, value]);
            }
            EventKind::ThreadName { thread, name } => {
                let thread = numbers.thread(identities, *thread);
                set(Class::ThreadName, &[thread.into(), name.as_str().into()]);
            }
            EventKind::IsrName { irq, name } => {
                let irq = numbers.interrupt(identities, *irq);
                set(Class::IsrName, &[irq.into(), name.as_str().into()]);
            }
            EventKind::Context { priority, mode } => set(
                Class::Context,
                &[Datum::Signed((*priority).into()), (*mode).into()],
            ),
            EventKind::Recording { on, cause } => set(
                Class::Recording,
                &[Datum::Unsigned((*on).into()), cause.name().into()],
            ),
            EventKind::SetJmp { env } => set(Class::SetJmp, &[env.0.into()]),
            EventKind::LongJmp { env } => set(Class::LongJmp, &[env.0.into()]),
            EventKind::WallClock {
                unix_ns,
                uncertainty_ns,
            } => set(
                Class::WallClock,
                &[(*unix_ns).into(), u64::from(*uncertainty_ns).into()],
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
                set(
                    Class::Gap,
                    &[
                        gap.name().into(),
                        message.as_str().into(),
                        amount.unwrap_or(u64::MAX).into(),
                        offset.into(),
                    ],
                );
            }
            EventKind::Ready { thread } => {
                let thread = numbers.thread(identities, *thread);
                set(Class::Ready, &[thread.into(), (*event.name).into()]);
            }
            _ => match row.of_function() {
                // A call with another name becomes a separate event.
                Some(function)
                    if row.kind == RowKind::Other && ["", "runs"].contains(&&*event.name) =>
                {
                    let function = numbers.function(identities, function);
                    set(Class::Runs, &[function.into()]);
                }
                _ => set(Class::Other, &[(*event.name).into()]),
            },
        }
    }
}

impl Class {
    /// Whether the event has this field.
    fn says(self, field: &Field) -> bool {
        let own: &[&str] = match self {
            Self::IsrEnter | Self::IsrExit | Self::IsrName => &["irq"],
            Self::Marker => &["value"],
            Self::NamedMarker => &["label", "value"],
            Self::Counter | Self::SignedCounter | Self::UnsignedCounter => {
                &["counter", "process", "value"]
            }
            Self::SwitchedIn | Self::SwitchedOut | Self::SwitchedOutUnseen => &["thread"],
            Self::Context => &["thread", "priority", "mode"],
            Self::Recording => &["on", "cause"],
            Self::SetJmp | Self::LongJmp => &["jmp_buf"],
            Self::WallClock => &["ns", "uncertainty"],
            _ => &[],
        };
        own.contains(&&*field.name)
    }
}

/// The size of the loss in the unit of the gap's kind, and the offset of damage.
fn size(gap: &Gap) -> (Option<u64>, u64) {
    match gap {
        Gap::Discarded { events } => (*events, 0),
        Gap::LostPackets { packets } => (*packets, 0),
        Gap::Overwritten { packets } => (Some(*packets), 0),
        Gap::InInterrupt { depth } => (Some(u64::from(*depth)), 0),
        Gap::MissingExit { ago } => (Some(ago.0), 0),
        Gap::Clock(gap) => (Some(gap.at_least.0), 0),
        Gap::TimeBackward { by } => (Some(by.0), 0),
        Gap::Damage { offset, bytes, .. } => (*bytes, *offset),
        _ => (None, 0),
    }
}

/// A text up to its first zero byte, where a string of CTF ends.
fn until_zero<'t>(text: &'t [u8], cut: &mut bool) -> &'t [u8] {
    match text.iter().position(|byte| *byte == 0) {
        Some(end) => {
            *cut = true;
            text.get(..end).unwrap_or(text)
        }
        None => text,
    }
}
