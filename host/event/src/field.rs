//! The fields of an event as its source recorded them.

use std::borrow::Cow;
use std::fmt;

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in the source.
    pub name: Cow<'static, str>,
    /// The value.
    pub value: Value,
}

impl Field {
    /// A field of this name and value.
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// An address, or another number that reads best in hexadecimal.
    Hex(u64),
    /// A real number.
    Real(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Bytes without further meaning.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    Struct(Vec<Field>),
    /// Nothing: an option that is not there.
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

/// As a listing shows it: text in quotes, hexadecimal with `0x`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Real(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
            Self::Struct(fields) => {
                f.write_str("{ ")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{} = {}", field.name, field.value)?;
                }
                f.write_str(" }")
            }
            Self::None => f.write_str("none"),
        }
    }
}
