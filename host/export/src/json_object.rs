//! JSON as far as writing objects goes, member by member to the end of a buffer.
//!
//! Our objects are flat, many, and written once; building a tree of values for each of them would
//! cost more than all the rest.

use std::fmt::Display;
use std::io::Write;

use kymo_event::{Field, Value};

/// An object that is being written; [`end`](Self::end) closes it.
pub(crate) struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.push(b'}');
    }

    /// A member that is text.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name);
        string(self.out, value);
        self
    }

    /// A member that is a number, or anything that reads as JSON as it is displayed.
    pub fn raw(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.name(name);
        display(self.out, value);
        self
    }

    /// A member that is a number or, if there is none, `null`.
    pub fn optional(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// A member that is an object.
    pub fn object(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.name(name);
        let mut object = Object::new(self.out);
        write(&mut object);
        object.end();
        self
    }

    /// The fields of an event as members.
    pub fn fields<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>) -> &mut Self {
        for field in fields {
            self.name(&field.name);
            value(self.out, &field.value);
        }
        self
    }

    fn name(&mut self, name: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        string(self.out, name);
        self.out.push(b':');
    }
}

/// Appends a text in quotes.
fn string(out: &mut Vec<u8>, text: &str) {
    // Neither a `Vec` nor a `str` can fail here.
    let _ = serde_json::to_writer(out, text);
}

/// Appends what something is displayed as.
fn display(out: &mut Vec<u8>, value: impl Display) {
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "{value}");
}

/// Appends a value: numbers as numbers, bytes as text in hexadecimal, and the real numbers that
/// JSON does not have as text.
fn value(out: &mut Vec<u8>, from: &Value) {
    match from {
        Value::Unsigned(number) | Value::Hex(number) => display(out, number),
        Value::Signed(number) => display(out, number),
        Value::Real(number) if number.is_finite() => display(out, number),
        Value::Real(number) => string(out, &number.to_string()),
        Value::Bool(truth) => display(out, truth),
        Value::Text(text) => string(out, text),
        Value::Bytes(_) => string(out, &from.to_string()),
        Value::List(values) => {
            out.push(b'[');
            for (i, element) in values.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                value(out, element);
            }
            out.push(b']');
        }
        Value::Struct(fields) => {
            let mut object = Object::new(out);
            object.fields(fields);
            object.end();
        }
        Value::None => display(out, "null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_json() {
        let fields = [
            Field::new("u", 3_u64),
            Field::new("s", -3_i64),
            Field::new("h", Value::Hex(16)),
            Field::new("r", Value::Real(1.5)),
            Field::new("nan", Value::Real(f64::NAN)),
            Field::new("t", "a\"b\n"),
            Field::new("b", Value::Bytes(vec![1, 0xFF])),
            Field::new("l", Value::List(vec![Value::Bool(true), Value::None])),
            Field::new("o", Value::Struct(vec![Field::new("x", 1_u64)])),
        ];
        let mut out = Vec::new();
        let mut object = Object::new(&mut out);
        object.optional("cpu", None::<u32>).fields(&fields);
        object.end();
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!({
                "cpu": null, "u": 3, "s": -3, "h": 16, "r": 1.5, "nan": "NaN", "t": "a\"b\n",
                "b": "01ff", "l": [true, null], "o": {"x": 1}
            })
        );
    }
}
