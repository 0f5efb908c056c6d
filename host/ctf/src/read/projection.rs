//! A few fields of every event, and nothing else of it.
//!
//! Which fields are asked for is said once, before the first event. For each class of events a short program remains
//! of the [flat](crate::plan::flat) one: to load a number from a known place is a single operation, whatever else
//! the event holds; of what comes before a field and has no fixed size only the end is looked for. Where there is no such
//! program, [`Event::field`] finds the same.

use std::sync::Arc;

use super::event::{Event, Visit, Visitor, integer};
use super::value::Value;
use crate::metadata::Scope;
use crate::plan::Plan;
use crate::plan::picks::{Picks, Wanted};

/// Fields that are asked for in every event, by name: those at the top of the payload, or else of the event's context, the
/// stream's event context and the header.
///
/// ```
/// # use kymo_ctf::{Message, Projection, Trace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let metadata = r#"/* CTF 1.8 */
/// #     trace { major = 1; minor = 8; byte_order = le; };
/// #     typealias integer { size = 8; } := u8;
/// #     stream { event.header := struct { u8 id; }; event.context := struct { u8 thread; }; };
/// #     event { id = 0; name = "read"; fields := struct { string file; u8 size; }; };
/// #     event { id = 1; name = "idle"; };
/// # "#;
/// # let trace = Trace::from_memory(metadata.as_bytes(), [("stream", &b"\x00\x07a.c\0\x09\x01\x08"[..])])?;
/// let fields = Projection::new(trace.plan(), ["thread", "size"]);
/// let mut lines = Vec::new();
/// trace.messages()?.for_each(|_origin, message| {
///     if let Message::Event(event) = message {
///         let mut values = [None; 2];
///         event.project(&fields, &mut values);
///         let [thread, size] = values.map(|value| value.and_then(|value| value.as_u64()));
///         lines.push((event.name().to_owned(), thread, size));
///     }
/// })?;
/// assert_eq!(lines, [("read".to_owned(), Some(7), Some(9)), ("idle".to_owned(), Some(8), None)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Projection {
    plan: Arc<Plan>,
    names: Box<[(Option<Scope>, String)]>,
    /// Places of names that came before, with those where these come again.
    copies: Vec<(u16, u16)>,
    /// For each stream class and lead what remains of its program; `None` where there is none.
    programs: Vec<Vec<Option<Picks>>>,
}

impl Projection {
    /// Prepares to look for the fields with these names in traces of this plan: each as [`Event::field`] does.
    pub fn new<'n>(plan: &Arc<Plan>, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self::of(plan, names.into_iter().map(|name| (None, name)))
    }

    /// Prepares to look for each field at the top of one scope alone, as [`Event::field_of`] does.
    pub fn of_scopes<'n>(
        plan: &Arc<Plan>,
        fields: impl IntoIterator<Item = (Scope, &'n str)>,
    ) -> Self {
        let fields = fields.into_iter();
        Self::of(plan, fields.map(|(scope, name)| (Some(scope), name)))
    }

    fn of<'n>(
        plan: &Arc<Plan>,
        fields: impl IntoIterator<Item = (Option<Scope>, &'n str)>,
    ) -> Self {
        let fields = fields.into_iter();
        let names: Box<[_]> = fields.map(|(scope, it)| (scope, it.to_owned())).collect();
        let (mut wanted, mut copies) = (Vec::<Wanted>::new(), Vec::new());
        for (number, (scope, name)) in (0u16..).zip(&names) {
            let mut before = wanted.iter();
            match before.find(|it| (it.scope, &*it.name) == (*scope, name.as_str())) {
                Some(first) => copies.push((first.number, number)),
                None => wanted.push(Wanted {
                    scope: *scope,
                    name: name.as_str().into(),
                    number,
                }),
            }
        }
        let programs = plan.streams.iter().map(|stream| {
            let leads = stream.leads.iter().flat_map(|leads| leads.all());
            let picks = leads.map(|lead| Picks::of(lead.as_ref()?.all()?, &wanted));
            picks.collect()
        });
        Self {
            programs: programs.collect(),
            names,
            copies,
            plan: Arc::clone(plan),
        }
    }
}

/// Takes the values of a program that are asked for.
struct Take<'v, 'a> {
    numbers: std::slice::Iter<'v, Option<u16>>,
    values: &'v mut [Option<Value<'a>>],
}

impl<'a> Visitor<'a> for Take<'_, 'a> {
    #[inline]
    fn value(&mut self, _: &'a str, value: Value<'a>) {
        if let Some(Some(number)) = self.numbers.next()
            && let Some(place) = self.values.get_mut(usize::from(*number))
        {
            *place = Some(value);
        }
    }
}

impl<'a> Event<'a> {
    /// The fields of a projection, each in the place that its name had: `None` where the event has no such field, or one
    /// that holds others. All in one go, and quicker than [`field`](Self::field).
    pub fn project(&self, projection: &'a Projection, values: &mut [Option<Value<'a>>]) {
        values.fill(None);
        if self.quickly(projection, values).is_none() {
            for ((scope, name), value) in projection.names.iter().zip(values) {
                *value = match scope {
                    Some(scope) => self.field_of(*scope, name),
                    None => self.field(name),
                };
            }
            return;
        }
        for (first, again) in &projection.copies {
            let value = values.get(usize::from(*first)).copied().flatten();
            if let Some(place) = values.get_mut(usize::from(*again)) {
                *place = value;
            }
        }
    }

    #[inline]
    fn quickly(&self, projection: &'a Projection, values: &mut [Option<Value<'a>>]) -> Option<()> {
        let (reader, record) = self.parts();
        if !Arc::ptr_eq(&projection.plan, &reader.plan) {
            return None;
        }
        let programs = projection.programs.get(reader.packet.stream_class)?;
        let picks = programs.get(usize::from(record.lead))?.as_ref()?;
        let mut numbers = picks.numbers.iter();
        // Nearly always that is all.
        let count = reader.numbers(record, &picks.ops, &mut |_, node, value| {
            if let Some(Some(number)) = numbers.next()
                && let Some(place) = values.get_mut(usize::from(*number))
            {
                *place = Some(integer(node, value));
            }
            true
        })?;
        let visitor = &mut Visit {
            visitor: &mut Take { numbers, values },
        };
        let rest = Some(&*picks.ops).filter(|ops| count < ops.len());
        reader.show_led(record, rest, count, visitor);
        Some(())
    }
}
