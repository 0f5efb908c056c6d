//! The fields of an event as its source recorded them.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::push_number;

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in the source.
    pub name: Cow<'static, str>,
    /// The value.
    pub value: Value,
}

impl Field {
    /// Creates a field.
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// An address, or another number shown in hexadecimal.
    Hex(u64),
    /// A real number.
    Real(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Bytes without further structure.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    Struct(Vec<Field>),
    /// No value: an absent option.
    None,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// Label and number, if these fields are those of an enumeration's value.
pub(crate) fn labelled(fields: &[Field]) -> Option<(&str, &Value)> {
    match fields {
        [
            Field {
                name: first,
                value: Value::Text(label),
            },
            Field {
                name: second,
                value,
            },
        ] if first == "label" && second == "value" => Some((label, value)),
        _ => None,
    }
}

impl Value {
    /// Creates the value of an enumeration: a structure of its label and its number.
    #[must_use]
    pub fn with_label(self, label: impl Into<Value>) -> Self {
        Self::Struct(vec![Field::new("label", label), Field::new("value", self)])
    }

    /// Appends it to a text, formatted for a listing: text in quotes, hexadecimal with `0x`.
    ///
    /// It does not use the formatting of the standard library, which would take most of the time of a listing with
    /// millions of values.
    pub fn push(&self, out: &mut String) {
        match self {
            Self::Unsigned(value) => push_number(*value, out),
            Self::Signed(value) => {
                if *value < 0 {
                    out.push('-');
                }
                push_number(value.unsigned_abs(), out);
            }
            Self::Hex(value) => push_hexadecimal(*value, out),
            // Writing to a string cannot fail.
            Self::Real(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Text(value) => push_quoted(value, out),
            Self::Bytes(bytes) => {
                for byte in bytes {
                    out.push(digit(byte >> 4));
                    out.push(digit(byte & 15));
                }
            }
            Self::List(values) => {
                out.push('[');
                for (i, value) in values.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    value.push(out);
                }
                out.push(']');
            }
            Self::Struct(fields) => match labelled(fields) {
                Some((label, number)) => {
                    push_quoted(label, out);
                    out.push_str(" (");
                    number.push(out);
                    out.push(')');
                }
                None => {
                    out.push_str("{ ");
                    push_fields(fields, out);
                    out.push_str(" }");
                }
            },
            Self::None => out.push_str("none"),
        }
    }
}

/// Appends fields to a text: `name = value, name = value`.
pub fn push_fields(fields: &[Field], out: &mut String) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&field.name);
        out.push_str(" = ");
        field.value.push(out);
    }
}

fn push_hexadecimal(number: u64, out: &mut String) {
    out.push_str("0x");
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(digit((number >> (4 * place)) as u8 & 15));
    }
}

/// A hexadecimal digit.
fn digit(value: u8) -> char {
    char::from(match value {
        0..10 => b'0' + value,
        _ => b'a' - 10 + value,
    })
}

/// Appends a text in quotes, escaped as in Rust's `Debug`.
fn push_quoted(text: &str, out: &mut String) {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, "{text:?}");
    }
}

/// Formats it for a listing.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_the_standard_library_writes_them() {
        let mut numbers = vec![0, 1, 9, 10, 15, 16, 99, 100, 255, 256, u64::MAX];
        numbers.extend((0..64).map(|bit| 1 << bit));
        for number in numbers {
            assert_eq!(Value::Unsigned(number).to_string(), format!("{number}"));
            assert_eq!(Value::Hex(number).to_string(), format!("{number:#x}"));
            for signed in [number as i64, (number as i64).wrapping_neg()] {
                assert_eq!(Value::Signed(signed).to_string(), format!("{signed}"));
            }
        }
        for text in [
            "", "a b", "it's", "\"", "\\", "\n", "\u{7f}", "\u{85}", "é", "~",
        ] {
            assert_eq!(Value::from(text).to_string(), format!("{text:?}"));
        }
        assert_eq!(Value::Real(66.625).to_string(), "66.625");
        assert_eq!(Value::Real(-1e300).to_string(), format!("{}", -1e300));
        assert_eq!(Value::Bytes(vec![0, 0xa5, 0xff]).to_string(), "00a5ff");
    }

    #[test]
    fn what_holds_values_shows_them_in_order() {
        let fields = vec![
            Field::new("a", Value::Bool(true)),
            Field::new("b", Value::List(vec![Value::None, 7u64.into()])),
        ];
        let shown = Value::Struct(fields).to_string();
        assert_eq!(shown, "{ a = true, b = [none, 7] }");
        assert_eq!(Value::Struct(Vec::new()).to_string(), "{  }");
    }
}
