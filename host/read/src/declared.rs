//! Events that a program declares itself (`kymo_event.h`). Their records are blocks of bytes with a type, and the
//! section `.kymo.events` of the program's ELF file describes their contents.
//!
//! The section consists of texts, each terminated by a zero byte:
//!
//! ```text
//! 7 sensor u8 channel u8 state f32 volts      type, name, and for each field its type and name
//! sensor.state 0=idle 1=busy                  event and field, and what values are called
//! enum Mode u8 0=Off 1=On                     a type of fields: name, type of its numbers, and what values are called
//! 8 heard Mode mode u16 samples[4]            fields of such a type; four numbers
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use kymo_event::{Batch, Event, Field, TraceInfo, Value};

use crate::{ReadError, Source};

/// Largest numbers of declared events, and of fields in one of them. They bound memory for hostile files.
const EVENTS: usize = 1 << 16;
const FIELDS: usize = 256;

/// Largest size of a field in bytes.
const FIELD_BYTES: usize = 1024;

/// Class of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unsigned,
    Signed,
    Hex,
    Real,
    Text,
    Bytes,
}

#[derive(Clone, Debug, PartialEq)]
struct Declared {
    class: Class,
    /// Size in bytes; of an array, that of an element.
    bytes: usize,
    /// Number of elements of an array.
    elements: Option<usize>,
    name: String,
    labels: Labels,
}

/// What values of a field are called.
type Labels = Arc<[(i128, String)]>;

/// A type of fields that the program declares (a labelled enum).
#[derive(Clone, Debug, PartialEq)]
struct Enum {
    class: Class,
    bytes: usize,
    labels: Labels,
}

/// Name and fields of an event.
#[derive(Clone, Debug, PartialEq)]
struct Declaration {
    name: String,
    fields: Vec<Declared>,
}

/// Events that programs declare, by record type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declarations {
    events: HashMap<u64, Declaration>,
    /// `None`: declarations of this name contradict each other.
    enums: HashMap<String, Option<Enum>>,
    big_endian: bool,
    /// Number of rejected texts.
    refused: u64,
}

impl Declarations {
    /// Adds the section of a program. Returns the texts that are invalid or that declare an event differently than an
    /// earlier one, which stays in effect.
    pub fn add(&mut self, section: &[u8], big_endian: bool) -> Vec<String> {
        self.big_endian = big_endian;
        let mut refused = Vec::new();
        let texts = section
            .split(|byte| *byte == 0)
            .filter(|text| !text.is_empty());
        let (mut labels, mut events) = (Vec::new(), Vec::new());
        // Types of fields may follow the events that have such fields, and so may events their labels.
        for text in texts {
            let text = String::from_utf8_lossy(text).into_owned();
            match text.split_ascii_whitespace().next().unwrap_or("") {
                "enum" if !self.add_enum(&text) => refused.push(text),
                "enum" => {}
                first if first.contains('.') => labels.push(text),
                _ => events.push(text),
            }
        }
        for text in events {
            let taken = declaration(&text, &self.enums).is_some_and(|(kind, new)| {
                let is_known = self.events.len() >= EVENTS || self.events.contains_key(&kind);
                match is_known {
                    true => self.events.get(&kind).is_some_and(|old| old.is_same(&new)),
                    false => self.events.insert(kind, new).is_none(),
                }
            });
            if !taken {
                refused.push(text);
            }
        }
        for text in labels {
            if self.label(&text).is_none() {
                refused.push(text);
            }
        }
        self.refused += refused.len() as u64;
        refused
    }

    /// Adds a type of fields. Returns whether it is valid and no other type has its name; where one has, neither is used
    /// from now on, because fields name their types and nothing else.
    fn add_enum(&mut self, text: &str) -> bool {
        let mut words = text.split_ascii_whitespace().skip(1);
        let parsed = words.next().zip(words.next()).and_then(|(name, numbers)| {
            let (class, bytes) = class_of(numbers)?;
            let labels = labels_of(words)?;
            matches!(class, Class::Unsigned | Class::Signed).then_some(())?;
            Some((
                name,
                Enum {
                    class,
                    bytes,
                    labels,
                },
            ))
        });
        let Some((name, new)) = parsed else {
            return false;
        };
        let is_full = self.enums.len() >= EVENTS;
        match self.enums.get_mut(name) {
            Some(old) if old.as_ref() == Some(&new) => true,
            Some(old) => {
                *old = None;
                false
            }
            None if is_full => false,
            None => self.enums.insert(name.to_owned(), Some(new)).is_none(),
        }
    }

    /// Sets the labels of a field, in all events with this name (there may be one for each record type).
    fn label(&mut self, text: &str) -> Option<()> {
        let mut words = text.split_ascii_whitespace();
        let (event, field) = words.next()?.split_once('.')?;
        let labels = labels_of(words)?;
        let events = self.events.values_mut().filter(|it| it.name == event);
        let fields = events.flat_map(|it| it.fields.iter_mut());
        let mut found = None;
        for field in fields.filter(|it| it.name == field) {
            field.labels.clone_from(&labels);
            found = Some(());
        }
        found
    }

    /// Returns whether there are no declarations.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Sets the name and fields of an event, if it is a declared record.
    pub fn describe(&self, event: &mut Event) {
        if event.name != "block" {
            return;
        }
        let find = |name: &str| event.fields.iter().find(|field| field.name == name);
        let (Some(Value::Unsigned(kind)), Some(Value::Bytes(data))) = (
            find("type").map(|it| &it.value),
            find("data").map(|it| &it.value),
        ) else {
            return;
        };
        let Some(declaration) = self.events.get(kind) else {
            return;
        };
        let mut rest = data.as_slice();
        let mut fields = Vec::new();
        for declared in &declaration.fields {
            // A record that is too short belongs to another program, or to an older build.
            let Some((bytes, behind)) = rest.split_at_checked(declared.size()) else {
                return;
            };
            rest = behind;
            let value = match declared.elements {
                None => declared.value(bytes, self.big_endian),
                Some(_) => {
                    let elements = bytes.chunks_exact(declared.bytes.max(1));
                    let values = elements.map(|bytes| declared.value(bytes, self.big_endian));
                    Value::List(values.collect())
                }
            };
            fields.push(Field::new(declared.name.clone(), value));
        }
        event.name = declaration.name.clone().into();
        event.fields = fields;
    }
}

impl Declaration {
    /// Returns whether two declarations are equal, ignoring labels: a header that two files include declares an event
    /// twice.
    fn is_same(&self, other: &Self) -> bool {
        let shape = |it: &Self| -> Vec<_> {
            let fields = it.fields.iter();
            fields
                .map(|it| (it.class, it.bytes, it.elements, it.name.clone()))
                .collect()
        };
        self.name == other.name && shape(self) == shape(other)
    }
}

impl Declared {
    /// Size of the field in bytes.
    fn size(&self) -> usize {
        self.bytes * self.elements.unwrap_or(1)
    }

    fn value(&self, bytes: &[u8], big_endian: bool) -> Value {
        let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let number = match big_endian {
            true => bytes.iter().take(8).fold(0, shift),
            false => bytes.iter().take(8).rev().fold(0, shift),
        };
        let unused = 64 - 8 * self.bytes.clamp(1, 8) as u32;
        let signed = (number << unused) as i64 >> unused;
        let labelled = match self.class {
            Class::Signed => signed.into(),
            _ => number.into(),
        };
        let label = self.labels.iter().find(|(value, _)| *value == labelled);
        let value = match self.class {
            Class::Unsigned => Value::Unsigned(number),
            Class::Hex => Value::Hex(number),
            Class::Signed => Value::Signed(signed),
            Class::Real if self.bytes == 4 => Value::Real(shortest(f32::from_bits(number as u32))),
            Class::Real => Value::Real(f64::from_bits(number)),
            Class::Text => {
                let end = bytes.iter().position(|byte| *byte == 0);
                let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            Class::Bytes => Value::Bytes(bytes.to_vec()),
        };
        // As an enumeration of CTF.
        match label {
            Some((_, label)) => value.with_label(label.clone()),
            None => value,
        }
    }
}

/// The value with the fewest digits that is this number in 32 bits: what the program wrote, as a rule.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(number.into())
}

/// Parses a C integer of any base, with a sign, a suffix and parentheses (C11, 6.4.4.1; binary: C23).
fn number_of(text: &str) -> Option<i128> {
    let inner = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    let text = inner.unwrap_or(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let digits = digits.trim_end_matches(['u', 'U', 'l', 'L']);
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match (lower.strip_prefix("0x"), lower.strip_prefix("0b")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ if lower.len() > 1 && lower.starts_with('0') => (lower.as_str(), 8),
        _ => (lower.as_str(), 10),
    };
    let number = i128::from(u64::from_str_radix(digits, radix).ok()?);
    Some(if negative { -number } else { number })
}

/// Parses labels: numbers and what they are called.
fn labels_of<'t>(words: impl Iterator<Item = &'t str>) -> Option<Labels> {
    let labels = words.map(|word| {
        let (number, name) = word.split_once('=')?;
        Some((number_of(number)?, name.to_owned()))
    });
    labels.collect::<Option<Labels>>()
}

/// Parses a declaration: record type, name and fields.
fn declaration(text: &str, enums: &HashMap<String, Option<Enum>>) -> Option<(u64, Declaration)> {
    let mut words = text.split_ascii_whitespace();
    let kind = u64::try_from(number_of(words.next()?)?).ok()?;
    let name = words.next()?.to_owned();
    let mut fields = Vec::new();
    while let Some(class) = words.next() {
        let (class, bytes, labels) = match enums.get(class) {
            Some(declared) => {
                let declared = declared.as_ref()?;
                (declared.class, declared.bytes, Arc::clone(&declared.labels))
            }
            None => class_of(class).map(|(class, bytes)| (class, bytes, Labels::default()))?,
        };
        let name = words.next()?;
        let (name, elements) = match name.strip_suffix(']') {
            Some(array) => {
                let (name, elements) = array.split_once('[')?;
                (name, Some(usize::try_from(number_of(elements)?).ok()?))
            }
            None => (name, None),
        };
        let is_small = (1..=FIELD_BYTES / bytes).contains(&elements.unwrap_or(1));
        is_small.then_some(())?;
        fields.push(Declared {
            class,
            bytes,
            elements,
            name: name.to_owned(),
            labels,
        });
    }
    let is_right = (1..=0xFFFF).contains(&kind) && fields.len() <= FIELDS;
    is_right.then_some((kind, Declaration { name, fields }))
}

/// Parses the type of a field, and returns its class and size in bytes.
fn class_of(name: &str) -> Option<(Class, usize)> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (letters, size) = name.split_at(digits);
    let size: usize = size.parse().ok()?;
    let class = match (letters, size) {
        ("u", 8 | 16 | 32 | 64) => Class::Unsigned,
        ("i", 8 | 16 | 32 | 64) => Class::Signed,
        ("x", 8 | 16 | 32 | 64) => Class::Hex,
        ("f", 32 | 64) => Class::Real,
        ("text", 1..=FIELD_BYTES) => return Some((Class::Text, size)),
        ("bytes", 1..=FIELD_BYTES) => return Some((Class::Bytes, size)),
        _ => return None,
    };
    Some((class, size / 8))
}

/// Sets the names and fields of records that programs declare. A remark states the number of invalid declarations.
pub fn describe_events(mut source: Box<dyn Source>, declarations: Declarations) -> Box<dyn Source> {
    if declarations.refused > 0 {
        source.info_mut().remarks.push(format!(
            "declared events of the program (section .kymo.events) that are not understood: {}; records of theirs stay blocks",
            declarations.refused
        ));
    }
    match declarations.is_empty() {
        true => source,
        false => Box::new(DescribeEvents {
            source,
            declarations,
        }),
    }
}

struct DescribeEvents {
    source: Box<dyn Source>,
    declarations: Declarations,
}

impl Source for DescribeEvents {
    fn threads(&self) -> usize {
        self.source.threads()
    }

    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let more = self.source.fill(batch)?;
        for event in batch.events_mut() {
            self.declarations.describe(event);
        }
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{EventKind, StreamId, Time};

    use super::*;

    fn block(kind: u64, data: &[u8]) -> Event {
        Event {
            time: Time(0),
            stream: StreamId(0),
            cpu: None,
            thread: None,
            kind: EventKind::Other,
            named: false,
            record: true,
            stamp: None,
            name: "block".into(),
            fields: vec![
                Field::new("type", kind),
                Field::new("length", data.len() as u64),
                Field::new("data", Value::Bytes(data.to_vec())),
            ],
        }
    }

    const SECTION: &[u8] = b"sensor.state 0=idle 0x1=busy\0\0\
        7 sensor u8 channel u8 state f32 volts i16 offset x16 flags text8 name bytes4 raw\0";

    #[test]
    fn records_get_names_and_values_in_both_byte_orders() {
        for big_endian in [false, true] {
            let mut declarations = Declarations::default();
            assert_eq!(declarations.add(SECTION, big_endian), [""; 0]);
            let mut data = vec![3, 1];
            let mut put = |little: &[u8]| match big_endian {
                true => data.extend(little.iter().rev()),
                false => data.extend(little),
            };
            put(&1.5f32.to_le_bytes());
            put(&(-2i16).to_le_bytes());
            put(&0xBEEFu16.to_le_bytes());
            data.extend(b"short\0??\x01\x02\x03\x04 padding");
            let mut event = block(7, &data);
            declarations.describe(&mut event);
            assert_eq!(event.name, "sensor");
            let expected = [
                Field::new("channel", Value::Unsigned(3)),
                Field::new("state", Value::Unsigned(1).with_label("busy")),
                Field::new("volts", Value::Real(1.5)),
                Field::new("offset", Value::Signed(-2)),
                Field::new("flags", Value::Hex(0xBEEF)),
                Field::new("name", Value::Text("short".into())),
                Field::new("raw", Value::Bytes(vec![1, 2, 3, 4])),
            ];
            assert_eq!(event.fields, expected);
        }
    }

    #[test]
    fn numbers_are_those_of_c() {
        let numbers = [
            ("10", 10),
            ("010", 8),
            ("0x1F", 31),
            ("0b101", 5),
            ("7u", 7),
            ("(7UL)", 7),
            ("0", 0),
            ("-1", -1),
            ("18446744073709551615u", u64::MAX.into()),
        ];
        for (text, number) in numbers {
            assert_eq!(number_of(text), Some(number), "{text}");
        }
        for text in ["", "u", "+", "0x", "08", "ERROR", "(7", "7.5", "--1", "-"] {
            assert_eq!(number_of(text), None, "{text}");
        }
    }

    #[test]
    fn arrays_and_types_of_the_program() {
        let section = b"7 heard Mode mode u16 samples[2] Mode modes[0x2] text4 names[2]\0\
            enum Mode i8 -1=Unset 1=On\0";
        for big_endian in [false, true] {
            let mut declarations = Declarations::default();
            assert_eq!(declarations.add(section, big_endian), [""; 0]);
            let mut data = vec![0xFF];
            for sample in [1u16, 0x0203] {
                data.extend(match big_endian {
                    true => sample.to_be_bytes(),
                    false => sample.to_le_bytes(),
                });
            }
            data.extend(b"\x01\x07one\0four");
            let mut event = block(7, &data);
            declarations.describe(&mut event);
            let text = |text: &str| Value::Text(text.into());
            let expected = [
                Field::new("mode", Value::Signed(-1).with_label("Unset")),
                Field::new("samples", Value::List(vec![1u64.into(), 0x203u64.into()])),
                Field::new(
                    "modes",
                    Value::List(vec![Value::Signed(1).with_label("On"), 7i64.into()]),
                ),
                Field::new("names", Value::List(vec![text("one"), text("four")])),
            ];
            assert_eq!(event.fields, expected);
        }
    }

    #[test]
    fn types_of_one_name_that_contradict_each_other_are_not_used() {
        let mut declarations = Declarations::default();
        // Those of an event that was complete before are known.
        assert_eq!(
            declarations.add(b"enum M u8 1=One\x007 a M m", false),
            [""; 0]
        );
        assert_eq!(
            declarations.add(b"enum M u8 1=One\x007 a M m", false),
            [""; 0]
        );
        let refused = declarations.add(b"8 b M m\0enum M u8 1=Eins", false);
        assert_eq!(refused, ["enum M u8 1=Eins", "8 b M m"]);
        let mut event = block(7, &[1]);
        declarations.describe(&mut event);
        assert_eq!(
            event.fields,
            [Field::new("m", Value::Unsigned(1).with_label("One"))]
        );
    }

    #[test]
    fn labels_are_those_of_all_events_of_the_name_and_may_be_negative() {
        let mut declarations = Declarations::default();
        let section = b"failed.err -1=timeout 0=ok\x007 failed i8 err\x0010 failed i32 err\0";
        assert_eq!(declarations.add(section, false), [""; 0]);
        for (kind, data) in [(7, &[0xFF][..]), (10, &[0xFF; 4])] {
            let mut event = block(kind, data);
            declarations.describe(&mut event);
            let expected = Field::new("err", Value::Signed(-1).with_label("timeout"));
            assert_eq!(event.fields, [expected], "{kind}");
        }
    }

    #[test]
    fn what_does_not_fit_stays_as_it_is() {
        let mut declarations = Declarations::default();
        declarations.add(SECTION, false);
        for event in [block(8, &[1; 100]), block(7, &[1; 21])] {
            let mut described = event.clone();
            declarations.describe(&mut described);
            assert_eq!(described, event);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_given_back() {
        let mut declarations = Declarations::default();
        for text in [
            "7",
            "0 zero u8 a",
            "65536 large u8 a",
            "seven sensor u8 a",
            "7 sensor u9 a",
            "7 sensor u8",
            "7 sensor text0 a",
            "7 sensor u8 a[0]",
            "7 sensor u8 a[-1]",
            "7 sensor u64 a[129]",
            "7 sensor text8 a[18446744073709551615]",
            "7 sensor u8 a[b]",
            "7 sensor u8 a]",
            "7 sensor Unknown a",
            "enum",
            "enum Mode",
            "enum Mode f32 1=One",
            "enum Mode u8 One",
            "sensor.state 0=idle",
        ] {
            assert_eq!(declarations.add(text.as_bytes(), false), [text]);
        }
        assert!(declarations.is_empty());
        // A repeated declaration changes nothing; another one for the same type is rejected.
        assert_eq!(declarations.add(b"7 a u8 x", false), [""; 0]);
        assert_eq!(declarations.add(b"7 a u8 x\0", false), [""; 0]);
        assert_eq!(declarations.add(b"7 b u8 x\0", false), ["7 b u8 x"]);
        assert_eq!(
            declarations.add(b"a.x 1=one two\0", false),
            ["a.x 1=one two"]
        );
    }

    struct Nothing(TraceInfo);

    impl Source for Nothing {
        fn info(&self) -> &TraceInfo {
            &self.0
        }

        fn info_mut(&mut self) -> &mut TraceInfo {
            &mut self.0
        }

        fn fill(&mut self, _: &mut Batch) -> Result<bool, ReadError> {
            Ok(false)
        }
    }

    #[test]
    fn a_remark_counts_what_cannot_be_understood() {
        let remarks = |section: &[u8]| {
            let mut declarations = Declarations::default();
            declarations.add(section, false);
            let source = describe_events(Box::new(Nothing(TraceInfo::default())), declarations);
            source.info().remarks.clone()
        };
        assert!(remarks(SECTION).is_empty());
        let [remark] = &remarks(b"7 sensor u9 a\x008 other u8 a\x009\0")[..] else {
            panic!("no remark")
        };
        assert!(remark.contains("not understood: 2;"), "{remark}");
    }
}
