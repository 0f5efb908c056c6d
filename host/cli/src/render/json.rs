//! JSON for programs, one object a line.
//!
//! Objects are written as they are found, member by member and in the order of the code, so that a
//! listing of a long trace needs no tree of values in memory and the same trace always gives the
//! same bytes.

use std::io::{self, Write};

use kymo_event::{Field, Value};

/// An object that is being written. [`end`](Self::end) closes it.
pub struct Object<'a> {
    out: &'a mut dyn Write,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(b"{")?;
        Ok(Self { out, empty: true })
    }

    /// Writes a member.
    pub fn member(&mut self, name: &str, value: impl Json) -> io::Result<&mut Self> {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.write_all(b",")?;
        }
        name.write(self.out)?;
        self.out.write_all(b":")?;
        value.write(self.out)?;
        Ok(self)
    }

    /// Closes the object.
    pub fn end(self) -> io::Result<()> {
        self.out.write_all(b"}")
    }
}

/// What can be written as JSON.
pub trait Json {
    /// Writes the value.
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}

impl<T: Json + ?Sized> Json for &T {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        (**self).write(out)
    }
}

/// `null` for nothing.
impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Some(value) => value.write(out),
            None => out.write_all(b"null"),
        }
    }
}

impl<T: Json> Json for [T] {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        list(out, self, |out, value| value.write(out))
    }
}

macro_rules! through_serde {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn write(&self, out: &mut dyn Write) -> io::Result<()> {
                Ok(serde_json::to_writer(out, self)?)
            }
        }
    )*};
}

through_serde!(str, String, bool, u32, u64, i64);

/// `null` for what is not a number, as JSON has none for it.
impl Json for f64 {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, self)?)
    }
}

/// Numbers as numbers, bytes as a string of hexadecimal digits.
impl Json for Value {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Unsigned(value) | Self::Hex(value) => value.write(out),
            Self::Signed(value) => value.write(out),
            Self::Real(value) => value.write(out),
            Self::Bool(value) => value.write(out),
            Self::Text(value) => value.write(out),
            Self::Bytes(_) => self.to_string().write(out),
            Self::List(values) => values.as_slice().write(out),
            Self::Struct(fields) => fields.as_slice().write(out),
            Self::None => out.write_all(b"null"),
        }
    }
}

/// Fields as an object, in their order.
impl Json for [Field] {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut object = Object::begin(out)?;
        for field in self {
            object.member(&field.name, &field.value)?;
        }
        object.end()
    }
}

/// Writes a list of what is no [`Json`] by itself, with a function for its elements.
pub fn list<T>(
    out: &mut dyn Write,
    values: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (i, value) in values.into_iter().enumerate() {
        if i != 0 {
            out.write_all(b",")?;
        }
        write(out, value)?;
    }
    out.write_all(b"]")
}

/// A value that is written by a function: for objects within objects.
pub struct With<F>(pub F);

impl<F: Fn(&mut dyn Write) -> io::Result<()>> Json for With<F> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.0)(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_valid_json() {
        let fields = [
            Field::new("text", "\"quoted\" \u{1}\n"),
            Field::new("hex", Value::Hex(u64::MAX)),
            Field::new("signed", -1_i64),
            Field::new("real", Value::Real(f64::NAN)),
            Field::new("bytes", Value::Bytes(vec![0, 255])),
            Field::new("list", Value::List(vec![Value::Bool(true), Value::None])),
            Field::new("struct", Value::Struct(vec![Field::new("a", 1_u64)])),
        ];
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out).unwrap();
        object.member("fields", fields.as_slice()).unwrap();
        object.member("none", None::<u64>).unwrap();
        object.end().unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!({
                "fields": {
                    "text": "\"quoted\" \u{1}\n", "hex": u64::MAX, "signed": -1, "real": null,
                    "bytes": "00ff", "list": [true, null], "struct": {"a": 1},
                },
                "none": null,
            })
        );
        assert!(out.starts_with(b"{\"fields\":{\"text\""), "order is kept");
    }
}
