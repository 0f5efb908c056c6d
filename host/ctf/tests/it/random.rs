//! Random traces: metadata of all kinds, with matching values.

mod values;

use kymo_ctf::metadata::{
    ArrayClass, Base, BitMapClass, BlobClass, ByteOrder, Choice, Clock, ClockId, Encoding,
    EnumerationClass, EnvValue, EventClass, FieldClass, FloatClass, Form, IntegerClass, Length,
    Location, Mapping, Mappings, Member, Metadata, OptionalClass, Role, StreamClass, StringClass,
    StructClass, Uuid, Value64, VariantClass, standard,
};
use kymo_ctf::{Datum, StreamWriter};
use std::sync::Arc;

/// A small generator (SplitMix64): a seed gives the same trace everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Maximum depth of nested fields in a payload.
const PAYLOAD: u32 = 4;

/// Constraints on random metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each test file uses some")]
pub enum Kind {
    /// Everything that CTF 1.8 can represent.
    Ctf18,
    /// Everything that CTF 2 can represent.
    Ctf2,
    /// Only constructs that babeltrace2 2.0 supports: elements of arrays contain no lengths and tags of their own, ...
    Simple,
    /// Only constructs of CTF 2 that babeltrace2 2.1 supports: no empty blobs, no booleans as selectors, ...
    Simple2,
}

impl Kind {
    const fn is_simple(self) -> bool {
        matches!(self, Self::Simple | Self::Simple2)
    }

    const fn is_ctf2(self) -> bool {
        matches!(self, Self::Ctf2 | Self::Simple2)
    }
}

/// Generates classes and values.
struct Maker {
    random: Random,
    order: ByteOrder,
    /// Number of parts that may still be generated.
    budget: u32,
    names: u32,
    /// Minimum number of letters in a string.
    least: u64,
    kind: Kind,
}

impl Maker {
    fn name(&mut self) -> String {
        self.names += 1;
        // Some names are reserved in TSDL, or changed there.
        match self.names % 11 {
            3 => format!("_under{}", self.names),
            5 if self.names == 5 => "string".into(),
            _ => format!("f{}", self.names),
        }
    }

    fn integer(&mut self) -> IntegerClass {
        let size = self.random.below(64) as u32 + 1;
        let size = if self.random.below(2) == 0 {
            self.random.pick(&[8, 16, 32, 64])
        } else {
            size
        };
        // babeltrace2 2.0 prints any hexadecimal number of 61 to 63 bits as 0.
        let simple = self.kind.is_simple();
        let size = if simple && size > 60 { 64 } else { size };
        let mut class = IntegerClass::unsigned(size, self.order);
        class.signed = self.random.below(3) == 0;
        if self.random.below(3) == 0 {
            class.align = self.random.pick(&[1, 2, 4, 8, 16, 32, 64]);
        }
        if self.kind.is_ctf2() && self.random.below(3) == 0 {
            class = match self.random.below(2) {
                0 => IntegerClass::variable(class.signed),
                _ => {
                    class.form = Form::Reversed;
                    class
                }
            };
        }
        class.base = self.random.pick(&[
            Base::Decimal,
            Base::Decimal,
            Base::Hexadecimal,
            Base::Octal,
            Base::Binary,
        ]);
        class
    }

    /// A value of a class; large ones are rare.
    fn number(&mut self, class: &IntegerClass) -> Value64 {
        let bits = self.random.next() >> self.random.below(64);
        let bits = bits & (u64::MAX >> (64 - class.size));
        if class.signed {
            Value64::Signed((bits << (64 - class.size)) as i64 >> (64 - class.size))
        } else {
            Value64::Unsigned(bits)
        }
    }

    fn enumeration(&mut self, labels: u64) -> EnumerationClass {
        let mut integer = self.integer();
        integer.size = integer.size.max(8);
        let list = (0..labels).map(|index| {
            let first = index as i64 * 3;
            let last = first + self.random.below(3) as i64;
            let value = |value: i64| {
                if integer.signed {
                    Value64::Signed(value)
                } else {
                    Value64::Unsigned(value as u64)
                }
            };
            Mapping {
                label: format!("L{index}"),
                first: value(first),
                last: value(last),
            }
        });
        EnumerationClass {
            integer,
            mappings: Arc::new(Mappings::new(list.collect())),
        }
    }

    fn structure(&mut self, depth: u32, least: u64) -> StructClass {
        let mut class = StructClass::new();
        if self.random.below(5) == 0 {
            class.min_align = self.random.pick(&[1, 8, 32]);
        }
        for _ in 0..least + self.random.below(5) {
            self.member(&mut class, depth);
        }
        class
    }

    fn member(&mut self, into: &mut StructClass, depth: u32) {
        let name = self.name();
        match self.random.below(10) {
            0 if depth > 0 => {
                // A sequence, after its length.
                let length = Member::new(
                    format!("{name}_length"),
                    IntegerClass::unsigned(7, self.order),
                );
                let path = length.declared.clone();
                into.members.push(length);
                let element = self.element(depth - 1);
                into.members
                    .push(Member::new(name, ArrayClass::sequence(path, element)));
            }
            1 if depth > 0 => {
                let count = self.random.below(4) + 1;
                let tag = Member::new(format!("{name}_tag"), self.enumeration(count));
                let path = tag.declared.clone();
                into.members.push(tag);
                let options =
                    (0..count).map(|index| Member::new(format!("L{index}"), self.class(depth - 1)));
                let options = options.collect();
                into.members.push(Member::new(
                    name,
                    VariantClass {
                        choice: Choice::Labels,
                        tag: Location::new(path),
                        options,
                        attributes: None,
                    },
                ));
            }
            // babeltrace2 2.1 crashes on such a field in a variant.
            2 if depth > 0 && (!self.kind.is_simple() || depth == PAYLOAD) => {
                // Text, parts of which may be empty.
                let length = Member::new(
                    format!("{name}_length"),
                    IntegerClass::unsigned(5, self.order),
                );
                let path = length.declared.clone();
                into.members.push(length);
                into.members
                    .push(Member::new(name, ArrayClass::sequence(path, self.letter())));
            }
            3..=5
                if depth > 0
                    && self.kind.is_ctf2()
                    && (!self.kind.is_simple() || depth == PAYLOAD) =>
            {
                self.member_of_ctf2(into, name, depth);
            }
            _ => {
                let class = self.class(depth);
                into.members.push(Member::new(name, class));
            }
        }
    }

    fn letter(&self) -> IntegerClass {
        IntegerClass::unsigned(8, self.order).encoding(Encoding::Utf8)
    }

    /// A field that exists only in CTF 2, after the field on which it depends.
    fn member_of_ctf2(&mut self, into: &mut StructClass, name: String, depth: u32) {
        let unsigned = |class: IntegerClass| IntegerClass {
            signed: false,
            ..class
        };
        // babeltrace2 2.1 crashes on selectors of variable size or with another byte order.
        let number = unsigned(match self.kind.is_simple() {
            true => IntegerClass::unsigned(16, self.order),
            false => self.integer(),
        });
        let simple = self.kind.is_simple();
        let kind = if simple {
            1 + self.random.below(2)
        } else {
            self.random.below(4)
        };
        let selector: FieldClass = match kind {
            0 => FieldClass::Boolean(IntegerClass {
                form: Form::Fixed,
                ..IntegerClass::unsigned(8, self.order)
            }),
            1 | 2 => IntegerClass {
                size: number.size.max(8),
                ..number
            }
            .into(),
            _ => IntegerClass::unsigned(6, self.order).into(),
        };
        let selector = Member::new(format!("{name}_selector"), selector);
        let location = Location::new(selector.declared.clone());
        into.members.push(selector);
        let value = |number| (Value64::Unsigned(number), Value64::Unsigned(number + 1));
        let class: FieldClass = match kind {
            0 | 1 => OptionalClass {
                selector: location,
                ranges: (kind == 1).then(|| vec![value(3), value(9)]),
                class: Box::new(self.class(depth - 1)),
                attributes: None,
            }
            .into(),
            2 => {
                let count = self.random.below(4) + 1;
                let options = (0..count).map(|index| {
                    let name = format!("o{index}");
                    Member::new(name, self.class(depth - 1))
                });
                VariantClass {
                    tag: location,
                    options: options.collect(),
                    choice: Choice::Ranges((0..count).map(|it| vec![value(3 * it)]).collect()),
                    attributes: None,
                }
                .into()
            }
            _ => BlobClass {
                length: Length::Field(location),
                media_type: "application/octet-stream".into(),
                is_uuid: false,
                attributes: None,
            }
            .into(),
        };
        into.members.push(Member::new(name, class));
    }

    /// A class that exists only in CTF 2 and depends on no other field.
    fn class_of_ctf2(&mut self) -> FieldClass {
        let integer = |size| IntegerClass::unsigned(size, self.order);
        let wide = [
            Encoding::Utf16Be,
            Encoding::Utf16Le,
            Encoding::Utf32Be,
            Encoding::Utf32Le,
        ];
        match self.random.below(6) {
            0 => FieldClass::Boolean(integer(self.random.below(64) as u32 + 1)),
            1 => {
                // babeltrace2 2.1 prints several flags in any order.
                let two = (!self.kind.is_simple()).then_some(("two", Value64::Unsigned(2)));
                let flags = [("zero", Value64::Unsigned(0))].into_iter().chain(two);
                let flags = Mappings::from_values(flags);
                let some = self.random.below(2) == 0;
                let flags = if some { flags } else { Mappings::default() };
                BitMapClass {
                    integer: integer(self.random.below(60) as u32 + 4),
                    flags: Arc::new(flags),
                }
                .into()
            }
            2 => BlobClass {
                length: Length::Fixed(self.random.below(5) + u64::from(self.kind.is_simple())),
                media_type: "image/\"odd\"".into(),
                is_uuid: false,
                attributes: None,
            }
            .into(),
            3 => StringClass {
                encoding: self.random.pick(&wide),
                attributes: None,
            }
            .into(),
            4 => {
                let letter = integer(8).encoding(self.random.pick(&wide));
                ArrayClass::fixed(
                    4 * (self.random.below(4) + u64::from(self.kind.is_simple())),
                    letter,
                )
                .into()
            }
            _ => FloatClass {
                reversed: true,
                size: if self.kind.is_simple() {
                    64
                } else {
                    self.random.pick(&[16, 32, 64])
                },
                align: self.random.pick(&[1, 8, 64]),
                byte_order: self.order,
                attributes: None,
            }
            .into(),
        }
    }

    fn element(&mut self, depth: u32) -> FieldClass {
        let simple = self.kind.is_simple();
        self.class(if simple { 0 } else { depth })
    }

    fn class(&mut self, depth: u32) -> FieldClass {
        self.budget = self.budget.saturating_sub(1);
        if self.kind.is_ctf2() && self.random.below(4) == 0 {
            return self.class_of_ctf2();
        }
        let kinds = if depth == 0 || self.budget == 0 { 5 } else { 8 };
        match self.random.below(kinds) {
            0 | 1 => self.integer().into(),
            2 => self.enumeration(3).into(),
            3 => {
                // babeltrace2 does not support 16-bit floating point numbers.
                let sizes: &[u32] = match self.kind {
                    Kind::Simple | Kind::Simple2 => &[32, 64],
                    Kind::Ctf18 | Kind::Ctf2 => &[16, 32, 64],
                };
                let size = self.random.pick(sizes);
                FloatClass {
                    reversed: false,
                    size,
                    align: self.random.pick(&[8, 64]),
                    byte_order: self.order,
                    attributes: None,
                }
                .into()
            }
            4 => StringClass {
                encoding: Encoding::Utf8,
                attributes: None,
            }
            .into(),
            5 => self.structure(depth - 1, 1).into(),
            6 => {
                let length = self.random.below(4);
                ArrayClass::fixed(length, self.element(depth - 1)).into()
            }
            _ => {
                let letter = self.letter();
                ArrayClass::fixed(self.random.below(6) + 1, letter).into()
            }
        }
    }
}

/// An event header: plain, bit-packed with a wrapping time, or in LTTng's two layouts, with an extended form for ids
/// and times that don't fit into few bits.
fn event_header(random: &mut Random, order: ByteOrder, kind: Kind) -> StructClass {
    let bits = |size| IntegerClass::unsigned(size, order).align(1);
    let time = |class: IntegerClass| class.clock(ClockId(0));
    let shapes = |size: u32, compact: IntegerClass| {
        let last = (1 << size) - 1;
        let mapping = |label: &str, first, last| Mapping {
            label: label.into(),
            first: Value64::Unsigned(first),
            last: Value64::Unsigned(last),
        };
        let id = EnumerationClass {
            integer: bits(size).role(Role::EventId),
            mappings: Arc::new(Mappings::new(vec![
                mapping("compact", 0, last - 1),
                mapping("extended", last, last),
            ])),
        };
        let whole = StructClass::new()
            .with("id", IntegerClass::unsigned(32, order).role(Role::EventId))
            .with("timestamp", time(IntegerClass::unsigned(64, order)));
        let shapes = VariantClass {
            tag: Location::new("id"),
            choice: Choice::Labels,
            options: vec![
                Member::new(
                    "compact",
                    StructClass::new().with("timestamp", time(compact)),
                ),
                Member::new("extended", whole),
            ],
            attributes: None,
        };
        StructClass {
            min_align: 8,
            ..StructClass::new()
        }
        .with("id", id)
        .with("v", shapes)
    };
    // The last form is not used with babeltrace2: version 2.1 crashes on it.
    match random.below(if kind.is_simple() { 4 } else { 5 }) {
        0 => standard::event_header(order, ClockId(0)),
        // The layout that barectf writes.
        4 => StructClass::new()
            .with("id", IntegerClass::unsigned(64, order).role(Role::EventId))
            .with("timestamp", time(IntegerClass::unsigned(64, order))),
        1 => StructClass::new()
            .with("id", bits(5).role(Role::EventId))
            .with("timestamp", time(IntegerClass::unsigned(27, order))),
        // Ids are up to 15, so that some of them need the extended form.
        2 => shapes(3, bits(29)),
        _ => shapes(16, IntegerClass::unsigned(32, order)),
    }
}

/// Random metadata. `parts` limits its size.
pub fn metadata(random: &mut Random, parts: u32, kind: Kind) -> Metadata {
    let simple = kind.is_simple();
    let order = random.pick(&[ByteOrder::Little, ByteOrder::Big]);
    let mut metadata = Metadata::new(order);
    metadata.uuid = Some(Uuid([random.next() as u8; 16]));
    metadata
        .environment
        .push(("domain".into(), EnvValue::Text("te\"st\\\n".into())));
    metadata
        .environment
        .push(("number".into(), EnvValue::Integer(-5)));
    // babeltrace2 2.0 computes times in floating point, which is exact only for a clock of 1 GHz.
    let frequency = if simple {
        1_000_000_000
    } else {
        random.pick(&[1_000_000_000, 1_000_000, 32_768])
    };
    let mut clock = Clock::new("ticks", frequency);
    clock.offset_seconds = random.below(2_000_000_000) as i64;
    metadata.clocks.push(clock);
    metadata.packet_header = Some(standard::packet_header(order));
    let mut maker = Maker {
        random: Random::new(random.next()),
        order,
        budget: parts,
        names: 0,
        least: 0,
        kind,
    };
    for id in 0..maker.random.below(2) + 1 {
        let mut stream = StreamClass::new(id * 7);
        stream.packet_context = Some(
            standard::packet_context(order, ClockId(0)).with("cpu_id", standard::cpu_id(order)),
        );
        stream.event_header = Some(event_header(&mut maker.random, order, kind));
        if maker.random.below(2) == 0 {
            stream.event_context = Some(maker.structure(1, 1));
        }
        let step = if simple {
            5
        } else {
            maker.random.pick(&[1, 5])
        };
        for id in 0..maker.random.below(4) + 1 {
            let mut event = EventClass::new(id * step, format!("event:{id}"));
            event.log_level = (maker.random.below(2) == 0).then_some(6);
            if maker.random.below(3) == 0 {
                // babeltrace2 2.0 does not find lengths in an event's context.
                event.context = Some(maker.structure(u32::from(!simple), 1));
            }
            event.fields = Some(maker.structure(PAYLOAD, 1));
            stream.events.push(event);
        }
        metadata.streams.push(stream);
    }
    metadata
}

/// The bytes of a stream, and the time and text of each of its events.
pub type Stream = (Vec<u8>, Vec<(u64, String)>);

/// A stream of random events whose strings have at least `least` letters, with the time and text of each event; the
/// text is formatted by `shown` of the round-trip tests.
pub fn stream(
    plan: &Arc<kymo_ctf::Plan>,
    class: usize,
    random: &mut Random,
    events: u64,
    least: u64,
) -> Stream {
    let order = plan.metadata().byte_order;
    let mut maker = Maker {
        random: Random::new(random.next()),
        order,
        budget: 0,
        names: 0,
        least,
        kind: Kind::Ctf2,
    };
    let mut writer = StreamWriter::new(plan.clone(), class, Vec::new()).expect("class");
    let mut time = 1000 + maker.random.below(1 << 40);
    let mut expected = Vec::new();
    writer
        .begin_packet(time, &[Datum::Unsigned(3)])
        .expect("packet");
    let stream = &plan.metadata().streams[class];
    for _ in 0..events {
        time += maker.random.next() >> maker.random.pick(&[63, 50, 40]);
        let index = maker.random.below(stream.events.len() as u64) as usize;
        let event = &stream.events[index];
        let mut text = format!("{}:", event.name);
        let mut data = Vec::new();
        for scope in [&stream.event_context, &event.context, &event.fields]
            .into_iter()
            .flatten()
        {
            text.push('|');
            data.extend_from_slice(maker.data(scope, &mut text));
        }
        let mut written = writer.event(index, time, &data);
        if written.is_err() || writer.packet_size() > 4000 {
            // The time since the last event has more bits than its field, which requires a new packet.
            let tried_again = written.is_err();
            writer.end_packet(time, 0).expect("end");
            writer
                .begin_packet(time, &[Datum::Unsigned(3)])
                .expect("packet");
            if tried_again {
                written = writer.event(index, time, &data);
            }
        }
        written.expect("event");
        expected.push((time, text));
    }
    writer.end_packet(time, 0).expect("end");
    (writer.finish().expect("finished"), expected)
}
