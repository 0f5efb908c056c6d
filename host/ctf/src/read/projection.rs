//! Projection: extracts selected fields of every event, and nothing else.
//!
//! The fields are selected once, before the first event. For each event class the [field
//! program](crate::plan::field_program) is reduced to a short program. Loading a number at a known offset is a single
//! operation, whatever else the event contains; for earlier fields of variable size, only the end is located. Where
//! there is no such program, [`Event::field`] finds the same values.

mod plain;

use std::fmt;
use std::sync::Arc;

use super::event::{Event, Events, Visit, Visitor, integer};
use super::run_program::Place;
use super::stream::View;
use super::value::Value;
use crate::metadata::{ByteOrder, Scope};
use crate::plan::Plan;
use crate::plan::header_table::HeaderEntry;
use crate::plan::picks::{Picks, Wanted};

pub use plain::ContextBytes;
use plain::Plain;

/// Selection of fields by name, for every event: at the top of the payload, or else of the event's context, the
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
    /// The selected fields: one list for all events, or one for each class.
    lists: Vec<List>,
    /// For each stream class and header entry, the reduced program; `None` if there is none.
    programs: Vec<Vec<Option<Picks>>>,
    /// The same for the special case of a few plain numbers after a plain context.
    plain: Vec<Vec<Option<Plain>>>,
    /// For each stream class, the index of the first list of its event classes; empty if there is one list for all.
    first: Vec<usize>,
}

/// Selected fields.
#[derive(Debug)]
struct List {
    names: Box<[(Option<Scope>, String)]>,
    /// Repeated names: the first position, and the position of the repetition.
    copies: Vec<(u16, u16)>,
    wanted: Vec<Wanted>,
}

impl List {
    fn new<'n>(fields: impl IntoIterator<Item = (Option<Scope>, &'n str)>) -> Self {
        let fields = fields.into_iter();
        let names: Box<[_]> = fields.map(|(scope, it)| (scope, it.to_owned())).collect();
        let (mut wanted, mut copies) = (Vec::<Wanted>::new(), Vec::new());
        for (number, (scope, name)) in (0u16..).zip(&names) {
            // An empty name selects nothing.
            if name.is_empty() {
                continue;
            }
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
        Self {
            names,
            copies,
            wanted,
        }
    }
}

impl Projection {
    /// Creates a projection of the fields with these names, for traces of this plan. Each name is resolved as by
    /// [`Event::field`].
    pub fn new<'n>(plan: &Arc<Plan>, names: impl IntoIterator<Item = &'n str>) -> Self {
        let list = List::new(names.into_iter().map(|name| (None, name)));
        Self::of(plan, vec![list], Vec::new())
    }

    /// Creates a projection of fields at the top of one scope each, as [`Event::field_of`] does.
    pub fn of_scopes<'n>(
        plan: &Arc<Plan>,
        fields: impl IntoIterator<Item = (Scope, &'n str)>,
    ) -> Self {
        let fields = fields.into_iter();
        let list = List::new(fields.map(|(scope, name)| (Some(scope), name)));
        Self::of(plan, vec![list], Vec::new())
    }

    /// Creates a projection with separate fields for each event class: `fields` returns their names for a stream class
    /// (the first index) and its event class (the second). The position of an empty name stays empty.
    pub fn of_classes<'n, const N: usize>(
        plan: &Arc<Plan>,
        mut fields: impl FnMut(usize, usize) -> [(Scope, &'n str); N],
    ) -> Self {
        let (mut lists, mut first) = (Vec::new(), Vec::new());
        for (stream, class) in plan.metadata().streams.iter().enumerate() {
            first.push(lists.len());
            for event in 0..class.events.len() {
                let fields = fields(stream, event).into_iter();
                let fields = fields.map(|(scope, name)| (Some(scope), name));
                lists.push(List::new(fields));
            }
        }
        Self::of(plan, lists, first)
    }

    fn of(plan: &Arc<Plan>, lists: Vec<List>, first: Vec<usize>) -> Self {
        let mut projection = Self {
            programs: Vec::new(),
            plain: Vec::new(),
            lists,
            first,
            plan: Arc::clone(plan),
        };
        let streams = plan.streams.iter().enumerate();
        let programs = streams.map(|(number, stream)| {
            let leads = stream.header_table.iter().flat_map(|leads| leads.all());
            let picks = leads.map(|lead| {
                let lead = lead.as_ref()?;
                let list = projection.list(number, lead.parts.class as usize)?;
                let mut picks = Picks::of(lead.all()?, &list.wanted)?;
                picks.loads = picks.loads.filter(|_| list.copies.is_empty());
                Some(picks)
            });
            picks.collect()
        });
        projection.programs = programs.collect();
        // Numbers and contexts are loaded in little-endian order.
        let is_little = plan.order == Some(ByteOrder::Little);
        let all = plan.streams.iter().zip(&projection.programs);
        let plain = all.map(|(stream, programs)| {
            let leads = stream.header_table.iter().flat_map(|leads| leads.all());
            let plain = leads.zip(programs).map(|(lead, picks)| {
                let (lead, picks) = (lead.as_ref()?, picks.as_ref()?);
                Plain::new(picks, lead.context).filter(|_| is_little)
            });
            plain.collect()
        });
        projection.plain = plain.collect();
        projection
    }

    /// The selected fields of an event class.
    fn list(&self, stream: usize, event: usize) -> Option<&List> {
        match self.first.get(stream) {
            Some(first) => self.lists.get(first + event),
            None => self.lists.first(),
        }
    }
}

/// Integers among the fields of a projection of one event.
#[derive(Debug, Clone, Copy)]
pub struct Numbers<const N: usize> {
    values: [u64; N],
    /// Bit set of the fields that are present.
    known: u64,
    /// Bit set of those that are negative.
    negative: u64,
}

impl<const N: usize> Numbers<N> {
    const NONE: Self = Self {
        values: [0; N],
        known: 0,
        negative: 0,
    };

    /// Marks the negative ones among `signed` fields.
    fn mark_negative(&mut self, signed: u64) {
        let negative = |(place, value): (usize, &u64)| u64::from(*value >> 63 == 1) << (place & 63);
        let all = self.values.iter().enumerate().map(negative);
        self.negative = all.fold(0, |all, bit| all | bit) & signed;
    }

    fn put(&mut self, place: u16, value: u64, negative: bool) {
        if let Some(own) = self.values.get_mut(usize::from(place)) {
            *own = value;
            self.known |= 1 << (place & 63);
            self.negative |= u64::from(negative) << (place & 63);
        }
    }

    /// The number at a position, if present and not negative, as [`Value::as_u64`].
    #[inline]
    #[must_use]
    pub fn unsigned(&self, place: usize) -> Option<u64> {
        let value = self.values.get(place)?;
        let is_known = (self.known & !self.negative) >> (place & 63) & 1 == 1;
        is_known.then_some(*value)
    }

    /// The number at a position, if present; negative ones in two's complement.
    #[inline]
    #[must_use]
    pub fn bits(&self, place: usize) -> Option<u64> {
        let value = self.values.get(place)?;
        (self.known >> (place & 63) & 1 == 1).then_some(*value)
    }
}

/// Collects the selected values of a program.
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
    /// The fields of a projection, each at the position of its name: `None` if the event has no such field, or one with
    /// inner fields. A single pass, faster than several calls of [`field`](Self::field).
    pub fn project(&self, projection: &'a Projection, values: &mut [Option<Value<'a>>]) {
        values.fill(None);
        let stream = self.packet().info().stream_class;
        let Some(list) = projection.list(stream, self.class_index()) else {
            return;
        };
        if self.quickly(projection, values).is_none() {
            for ((scope, name), value) in list.names.iter().zip(values) {
                *value = match scope {
                    _ if name.is_empty() => None,
                    Some(scope) => self.field_of(*scope, name),
                    None => self.field(name),
                };
            }
            return;
        }
        for (first, again) in &list.copies {
            let value = values.get(usize::from(*first)).copied().flatten();
            if let Some(place) = values.get_mut(usize::from(*again)) {
                *place = value;
            }
        }
    }

    #[inline]
    fn quickly(&self, projection: &'a Projection, values: &mut [Option<Value<'a>>]) -> Option<()> {
        let (view, record) = self.parts();
        if !Arc::ptr_eq(&projection.plan, &view.plan) {
            return None;
        }
        let programs = projection.programs.get(view.packet.stream_class)?;
        let picks = programs.get(usize::from(record.lead))?.as_ref()?;
        let mut numbers = picks.numbers.iter();
        // The usual case: this finds all fields.
        let count = view.numbers(record, &picks.ops, &mut |_, node, value| {
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
        view.show_led(record, rest, count, visitor);
        Some(())
    }

    /// The integers among the first `N` fields of a projection (at most 64). For many events see [`Events::projected`].
    #[inline]
    #[must_use]
    pub fn numbers<const N: usize>(&self, projection: &'a Projection) -> Numbers<N> {
        let (view, _) = self.parts();
        Projected::of(view, projection).numbers(self)
    }

    #[inline(never)]
    fn numbers_anywhere<const N: usize>(&self, projection: &'a Projection) -> Numbers<N> {
        let (mut numbers, mut values) = (Numbers::NONE, [None; N]);
        self.project(projection, &mut values);
        for (place, value) in (0u16..).zip(values) {
            let unsigned = value.and_then(|value: Value<'_>| value.as_u64());
            let signed = value.and_then(|value| value.as_i64());
            if let Some(value) = unsigned {
                numbers.put(place, value, false);
            } else if let Some(value) = signed {
                numbers.put(place, value.cast_unsigned(), value < 0);
            }
        }
        numbers
    }
}

impl<'a> Events<'a> {
    /// A projection of these events: properties that they share are looked up once.
    #[must_use]
    #[inline]
    pub fn projected(&self, projection: &'a Projection) -> Projected<'a> {
        Projected::of(self.packet().view, projection)
    }
}

/// A [`Projection`] applied to a run of events ([`Events::projected`]).
#[derive(Clone, Copy)]
pub struct Projected<'a> {
    projection: &'a Projection,
    /// The reduced program for each header entry.
    programs: &'a [Option<Picks>],
    plain: &'a [Option<Plain>],
    leads: &'a [Option<HeaderEntry>],
    place: Place<'a, 'a>,
}

impl fmt::Debug for Projected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projected").finish_non_exhaustive()
    }
}

impl<'a> Projected<'a> {
    #[inline(always)]
    fn of(view: &'a View, projection: &'a Projection) -> Self {
        let is_own = Arc::ptr_eq(&projection.plan, &view.plan);
        let class = Some(view.packet.stream_class).filter(|_| is_own);
        let programs = class.and_then(|class| projection.programs.get(class));
        let plain = class.and_then(|class| projection.plain.get(class));
        Self {
            projection,
            programs: programs.map_or(&[], Vec::as_slice),
            plain: plain.map_or(&[], Vec::as_slice),
            leads: view.leads(),
            place: view.event_place(),
        }
    }

    /// The integers among the first `N` fields of the projection (at most 64) of an event of the run. It is the fastest
    /// way to a few fields: those near the beginning of the event are loaded directly.
    #[inline(always)]
    #[must_use]
    pub fn numbers<const N: usize>(&self, event: &Event<'a>) -> Numbers<N> {
        const { assert!(N <= 64, "a bit for each") };
        let (_, record) = event.parts();
        let picks = self.programs.get(usize::from(record.lead));
        if let Some(Some(picks)) = picks
            && let Some(loads) = &picks.loads
        {
            let mut numbers = Numbers {
                known: loads.known,
                ..Numbers::NONE
            };
            let values = &mut numbers.values;
            if self
                .place
                .load_all(&loads.all, record.start, values)
                .is_some()
            {
                if loads.signed != 0 {
                    numbers.mark_negative(loads.signed);
                }
                return numbers;
            }
        }
        event.numbers_anywhere(self.projection)
    }

    /// The first two numbers of the projection of an event of the run, 0 for an absent one, with a bit set of those
    /// present. It requires that they are unsigned and near the beginning of the event, and that its [stream
    /// context](Self::stream_context) has these bytes. `None` otherwise: use [`numbers`](Self::numbers) then.
    #[inline(always)]
    #[must_use]
    pub fn plain(&self, event: &Event<'a>, context: &ContextBytes) -> Option<([u64; 2], u64)> {
        let (_, record) = event.parts();
        let plain = self.plain.get(usize::from(record.lead))?.as_ref()?;
        plain.load(self.place.near_bit(record.start)?, context)
    }

    /// The bytes of the stream's event context of an event of the run, if its layout is fixed for the stream class:
    /// equal bytes then have the same meaning in all events. `None` if that is not known.
    #[inline(always)]
    #[must_use]
    pub fn stream_context(&self, event: &Event<'a>) -> Option<&'a [u8]> {
        let (_, record) = event.parts();
        let lead = self.leads.get(usize::from(record.lead))?.as_ref()?;
        let (from, to) = lead.context?;
        let start = (record.start.wrapping_add(self.place.packet) / 8) as usize;
        let at = |offset: u32| start.wrapping_add(offset as usize);
        self.place.bytes.get(at(from)..at(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Run, Trace};

    const METADATA: &str = r#"/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        typealias integer { size = 8; } := u8;
        typealias integer { size = 16; signed = true; } := i16;
        stream { event.header := struct { u8 id; }; event.context := struct { i16 thread; }; };
        event { id = 0; name = "plain"; fields := struct { u8 a; i16 b; }; };
        event { id = 1; name = "behind"; fields := struct { string file; u8 a; i16 b; }; };
        event { id = 2; name = "twice"; fields := struct { i16 b; }; };
        event { id = 3; name = "idle"; };
        typealias integer { size = 8; encoding = UTF8; } := char;
        event { id = 4; name = "text"; fields := struct { char name[3]; u8 a; i16 b; }; };
    "#;

    #[test]
    fn the_fields_of_each_class_are_found_wherever_they_lie() {
        let stream = [
            &[0, 7, 0, 9, 0xFE, 0xFF][..],
            &[1, 0xFF, 0xFF, b'x', 0, 8, 3, 0],
            &[2, 1, 0, 5, 0],
            &[3, 1, 0],
            &[4, 7, 0, b'y', 0, 0, 9, 0xFE, 0xFF],
        ]
        .concat();
        let trace = Trace::from_memory(METADATA.as_bytes(), [("stream", stream)]).unwrap();
        // The second class has the positions swapped, the third selects nothing.
        let fields = Projection::of_classes(trace.plan(), |_, class| {
            let (payload, context) = (Scope::EventFields, Scope::StreamEventContext);
            match class {
                0 | 4 => [(context, "thread"), (payload, "a"), (payload, "b")],
                1 => [(payload, "b"), (context, "thread"), (payload, "b")],
                2 => [(payload, "b"), (payload, ""), (payload, "b")],
                _ => [(payload, ""); 3],
            }
        });
        let (mut bits, mut unsigned, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut messages = trace.messages().unwrap();
        let mut each = |_, message: Message<'_>| {
            if let Message::Event(event) = message {
                let numbers = event.numbers::<3>(&fields);
                bits.push([0, 1, 2].map(|place| numbers.bits(place).map(u64::cast_signed)));
                unsigned.push([0, 1, 2].map(|place| numbers.unsigned(place)));
                let mut values = [None; 3];
                event.project(&fields, &mut values);
                texts.push(values.map(|value| value.and_then(|value| value.as_i64())));
            }
        };
        messages.for_each(&mut each).unwrap();
        let expected = [
            [Some(7), Some(9), Some(-2)],
            [Some(3), Some(-1), Some(3)],
            [Some(5), None, Some(5)],
            [None; 3],
            [Some(7), Some(9), Some(-2)],
        ];
        assert_eq!(bits, expected);
        assert_eq!(texts, expected);
        let expected = [
            [Some(7), Some(9), None],
            [Some(3), None, Some(3)],
            [Some(5), None, Some(5)],
            [None; 3],
            [Some(7), Some(9), None],
        ];
        assert_eq!(unsigned, expected);
    }
    #[test]
    fn plain_numbers_are_those_of_events_with_the_same_context() {
        // Events of streams with a clock are decoded in batches.
        const METADATA: &str = r#"/* CTF 1.8 */
            trace { major = 1; minor = 8; byte_order = le; };
            clock { name = c; freq = 1000000000; };
            typealias integer { size = 8; } := u8;
            typealias integer { size = 16; signed = true; } := i16;
            typealias integer { size = 8; map = clock.c.value; } := time;
            stream { event.header := struct { u8 id; time at; }; event.context := struct { i16 thread; }; };
            event { id = 0; name = "plain"; fields := struct { u8 a; i16 b; }; };
            event { id = 2; name = "signed"; fields := struct { i16 b; }; };
            event { id = 3; name = "idle"; };
        "#;
        let context = |thread: i16| ContextBytes::new(&thread.to_le_bytes()).unwrap();
        let four = [
            &[0, 1, 7, 0, 9, 0xFE, 0xFF][..],
            &[3, 1, 8, 0],
            &[2, 2, 7, 0, 5, 0],
            &[0, 3, 9, 1, 4, 0, 0],
        ];
        let stream = four.concat().repeat(100);
        let trace = Trace::from_memory(METADATA.as_bytes(), [("stream", stream)]).unwrap();
        let fields = Projection::of_classes(trace.plan(), |_, class| {
            let [first, second] = match class {
                0 => ["a", ""],
                1 => ["", "b"],
                _ => ["", ""],
            };
            [first, second].map(|name| (Scope::EventFields, name))
        });
        // A signed number is not plain. An absent number needs no load.
        let expected = [
            [Some(([9, 0], 1)), None, None],
            [None, Some(([0, 0], 0)), None],
            [None; 3],
            [None, None, Some(([4, 0], 1))],
        ];
        let (mut found, mut count) = (0, 0);
        let mut messages = trace.messages().unwrap();
        while let Some((_, run)) = messages.next_run().unwrap() {
            let Run::Events(events) = run else { continue };
            let numbers = events.projected(&fields);
            for event in events.iter() {
                let own = [7, 8, 0x109].map(|thread| numbers.plain(&event, &context(thread)));
                // The first events, and those near the end of memory, take another path.
                if own != [None; 3] {
                    assert_eq!(own, expected[count % 4]);
                    found += 1;
                }
                count += 1;
            }
        }
        assert_eq!(count, 400);
        assert!(found > 150, "{found}");
    }
}
