//! Random values for random metadata, with their expected text.

use std::fmt::Write;

use kymo_ctf::Datum;
use kymo_ctf::metadata::{
    ArrayClass, Choice, Encoding, FieldClass, IntegerClass, Length, Mappings, StructClass, Value64,
};

use super::Maker;

impl Maker {
    /// Values for a structure, and their expected text.
    pub(super) fn data(
        &mut self,
        class: &StructClass,
        text: &mut String,
    ) -> &'static [Datum<'static>] {
        let mut data: Vec<Datum<'static>> = Vec::new();
        let mut pending = None;
        for (index, member) in class.members.iter().enumerate() {
            let next = class.members.get(index + 1).map(|next| &next.class);
            let chosen = match (next, &member.class) {
                (Some(FieldClass::Array(array)), FieldClass::Integer(_)) if is_sequence(array) => {
                    Some(Value64::Unsigned(self.random.below(5) + self.least))
                }
                (Some(FieldClass::Variant(variant)), selector) => {
                    let option = self.random.below(variant.options.len() as u64) as usize;
                    Some(match (&variant.choice, selector) {
                        (Choice::Labels, FieldClass::Enumeration(tag)) => {
                            tag.mappings.list()[option].first
                        }
                        (Choice::Ranges(sets), _) => sets[option][0].0,
                        other => panic!("{other:?}"),
                    })
                }
                (Some(FieldClass::Optional(optional)), _) => {
                    let limit = if optional.ranges.is_some() { 12 } else { 2 };
                    Some(Value64::Unsigned(self.random.below(limit)))
                }
                (Some(FieldClass::Blob(blob)), _) if matches!(blob.length, Length::Field(_)) => {
                    Some(Value64::Unsigned(self.random.below(20)))
                }
                _ => None,
            };
            let datum = self.datum(&member.name, &member.class, chosen, pending, text);
            data.push(datum);
            pending = chosen;
        }
        data.leak()
    }

    /// A value: `chosen` if later fields depend on it, and matching the value `before` if it depends on an earlier
    /// field.
    fn datum(
        &mut self,
        name: &str,
        class: &FieldClass,
        chosen: Option<Value64>,
        before: Option<Value64>,
        text: &mut String,
    ) -> Datum<'static> {
        match class {
            FieldClass::Integer(integer) => self.integer_datum(name, integer, None, chosen, text),
            FieldClass::Enumeration(class) => {
                self.integer_datum(name, &class.integer, Some(&class.mappings), chosen, text)
            }
            FieldClass::Float(class) => {
                let value = match class.size {
                    // As many bits as the mantissa of each size has.
                    16 => f64::from(self.random.next() as i8) * 4.0,
                    32 => f64::from((f64::from(self.random.next() as i32) / 8.0) as f32),
                    _ => f64::from(self.random.next() as i32) / 8.0,
                };
                let _ = write!(text, "{name}={value};");
                Datum::Float(value)
            }
            FieldClass::String(class) if class.encoding.unit() > 1 => {
                let count = self.random.below(5) + self.least;
                self.wide(name, class.encoding, count, text)
            }
            FieldClass::String(_) => {
                let letters: String = (0..self.random.below(9).max(self.least))
                    .map(|i| char::from(b'a' + i as u8))
                    .collect();
                let _ = write!(text, "{name}=\"{letters}\";");
                Datum::Text(letters.into_bytes().leak())
            }
            FieldClass::Struct(class) => {
                let _ = write!(text, "{name}{{");
                let data = self.data(class, text);
                text.push('}');
                Datum::Struct(data)
            }
            FieldClass::Array(array)
                if array.text().is_some_and(|encoding| encoding.unit() > 1) =>
            {
                let (encoding, length) = (array.text().unwrap(), length(array, before));
                let most = length / u64::from(encoding.unit());
                let count = self.random.below(most + 1).max(self.least.min(most));
                self.wide(name, encoding, count, text)
            }
            FieldClass::Array(array) if array.text().is_some() => {
                let length = length(array, before);
                let count = self.random.below(length + 1).max(self.least.min(length));
                let letters = vec![b'x'; count as usize].leak();
                let _ = write!(text, "{name}=\"{}\";", String::from_utf8_lossy(letters));
                Datum::Text(letters)
            }
            FieldClass::Array(array) => {
                let length = length(array, before);
                let _ = write!(text, "{name}[{length}]{{");
                let data: Vec<_> = (0..length)
                    .map(|_| self.datum("", &array.element, None, None, text))
                    .collect();
                text.push('}');
                Datum::Array(data.leak())
            }
            FieldClass::Variant(variant) => {
                let index = before.and_then(Value64::as_u64).unwrap_or(0) / 3;
                let option = &variant.options[index as usize];
                let _ = write!(text, "{name}<");
                let content = self.datum(&option.name, &option.class, None, None, text);
                text.push('>');
                Datum::Variant(option.name.clone().leak(), Box::leak(Box::new(content)))
            }
            FieldClass::Boolean(_) => {
                let value = chosen.unwrap_or(Value64::Unsigned(self.random.below(2)));
                let value = value.as_u64() == Some(1);
                let _ = write!(text, "{name}={value};");
                Datum::Bool(value)
            }
            FieldClass::BitMap(class) => {
                let Value64::Unsigned(bits) = self.number(&class.integer) else {
                    panic!("signed bits");
                };
                let flags: Vec<_> = class.flags.flags(bits).collect();
                let size = class.integer.size;
                let _ = write!(text, "{name}={bits:x}/{size}{flags:?};");
                Datum::Unsigned(bits)
            }
            FieldClass::Blob(class) => {
                let length = match class.length {
                    Length::Fixed(length) => length,
                    Length::Field(_) => before.and_then(Value64::as_u64).unwrap_or(0),
                };
                let bytes: Vec<u8> = (0..length).map(|_| self.random.next() as u8).collect();
                let _ = write!(text, "{name}={bytes:x?}{};", class.media_type);
                Datum::Blob(bytes.leak())
            }
            FieldClass::Optional(class) => {
                let value = before.and_then(Value64::as_u64).unwrap_or(0);
                let within = |(first, last): &(Value64, Value64)| {
                    (first.widen()..=last.widen()).contains(&i128::from(value))
                };
                let present = match &class.ranges {
                    Some(ranges) => ranges.iter().any(within),
                    None => value == 1,
                };
                if !present {
                    let _ = write!(text, "{name}=absent;");
                    return Datum::Absent;
                }
                let _ = write!(text, "{name}(");
                let datum = self.datum("", &class.class, None, None, text);
                text.push(')');
                datum
            }
        }
    }

    /// A text of multi-byte characters, each of which contains a zero byte.
    fn wide(
        &mut self,
        name: &str,
        encoding: Encoding,
        count: u64,
        text: &mut String,
    ) -> Datum<'static> {
        let unit = encoding.unit() as usize;
        let little = matches!(encoding, Encoding::Utf16Le | Encoding::Utf32Le);
        let mut bytes = vec![0; count as usize * unit];
        for character in bytes.chunks_exact_mut(unit) {
            // A letter, or a character whose lowest byte is zero.
            let place = self.random.below(2) as usize;
            let place = if little { place } else { unit - 1 - place };
            character[place] = b'a' + self.random.below(26) as u8;
        }
        let _ = write!(text, "{name}=\"{}\";", String::from_utf8_lossy(&bytes));
        Datum::Text(bytes.leak())
    }

    fn integer_datum(
        &mut self,
        name: &str,
        class: &IntegerClass,
        mappings: Option<&Mappings>,
        chosen: Option<Value64>,
        text: &mut String,
    ) -> Datum<'static> {
        let value = chosen.unwrap_or_else(|| self.number(class));
        let label = mappings
            .and_then(|mappings| mappings.label(value))
            .unwrap_or("");
        let _ = write!(text, "{name}={}{label};", value.widen());
        match value {
            Value64::Unsigned(value) => Datum::Unsigned(value),
            Value64::Signed(value) => Datum::Signed(value),
        }
    }
}

fn is_sequence(array: &ArrayClass) -> bool {
    matches!(array.length, Length::Field(_))
}

/// The number of elements of an array, if the field before it has this value.
fn length(array: &ArrayClass, before: Option<Value64>) -> u64 {
    match array.length {
        Length::Fixed(length) => length,
        Length::Field(_) => before.and_then(Value64::as_u64).unwrap_or(0),
    }
}
