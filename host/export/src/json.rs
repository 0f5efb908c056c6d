//! Streaming JSON writer: appends members to a buffer. Everything that Kymo writes in JSON uses it.
//!
//! Kymo writes many objects, each once, so there is no tree of values: an [`Object`] appends to a `Vec<u8>`, which
//! cannot fail and which its owner flushes when it is full. Members keep the order of the code, so the same trace
//! always gives the same bytes. [`Json`] is the trait of values.
//!
//! Text is escaped as JSON requires, and so are the control characters that JSON allows (DEL and U+0080 to U+009F), so
//! that no name from a trace can send control sequences to a terminal.
//!
//! ```
//! use kymo_export::json::{Object, list};
//!
//! let mut out = Vec::new();
//! let mut object = Object::begin(&mut out);
//! object
//!     .member("name", "main")
//!     .member("cpu", None::<u32>)
//!     .object("times", |times| {
//!         times.member("total_ns", 12_u64).member("self_ns", 5_u64);
//!     })
//!     .with("threads", |out| list(out, ["a", "b"], |out, name| kymo_export::json::string(out, name)));
//! object.end();
//! assert_eq!(
//!     out,
//!     br#"{"name":"main","cpu":null,"times":{"total_ns":12,"self_ns":5},"threads":["a","b"]}"#
//! );
//! ```

use kymo_event::{Addr, Cpu, Duration, Field, Irq, StreamId, Tid, Time, Value};

/// An object being written. [`end`](Self::end) closes it.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    #[inline]
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Closes the object.
    #[inline]
    pub fn end(self) {
        self.out.push(b'}');
    }

    /// Adds a member.
    #[inline]
    pub fn member(&mut self, name: &str, value: impl Json) -> &mut Self {
        self.name(name);
        value.write(self.out);
        self
    }

    /// Adds a member that is an object, which `write` fills.
    pub fn object(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.name(name);
        let mut object = Object::begin(self.out);
        write(&mut object);
        object.end();
        self
    }

    /// Adds a member whose value `write` appends: one complete JSON value.
    pub fn with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.name(name);
        write(self.out);
        self
    }

    /// Adds the fields of an event as members.
    pub fn fields<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>) -> &mut Self {
        for field in fields {
            self.member(&field.name, &field.value);
        }
        self
    }

    #[inline]
    fn name(&mut self, name: &str) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        string(self.out, name);
        self.out.push(b':');
    }
}

/// Types that can be written as a JSON value.
pub trait Json {
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);
}

impl<T: Json + ?Sized> Json for &T {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

/// `null` for `None`.
impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

impl<T: Json> Json for [T] {
    fn write(&self, out: &mut Vec<u8>) {
        list(out, self, |out, value| value.write(out));
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}

impl Json for str {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        string(out, self);
    }
}

impl Json for String {
    fn write(&self, out: &mut Vec<u8>) {
        string(out, self);
    }
}

impl Json for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl Json for u64 {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, *self);
    }
}

impl Json for i64 {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if *self < 0 {
            out.push(b'-');
        }
        number(out, self.unsigned_abs());
    }
}

/// Implements [`Json`] by conversion to a wider number.
macro_rules! as_wider {
    ($($type:ty as $wider:ty),*) => {$(
        impl Json for $type {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                (*self as $wider).write(out);
            }
        }
    )*};
}

as_wider!(u8 as u64, u16 as u64, u32 as u64, usize as u64, i32 as i64);

/// Writes the numbers of the event model as numbers, including addresses.
macro_rules! as_inner {
    ($($type:ty),*) => {$(
        impl Json for $type {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
        }
    )*};
}

as_inner!(Time, Duration, Cpu, Tid, Irq, Addr, StreamId);

/// `null` for NaN and infinities, which JSON cannot represent.
impl Json for f64 {
    fn write(&self, out: &mut Vec<u8>) {
        // Writing a number to a `Vec` cannot fail.
        let _ = serde_json::to_writer(out, self);
    }
}

/// Numbers as numbers, bytes as a string of hexadecimal digits, and the real numbers that JSON does not have as text
/// (`"NaN"`, `"inf"`), so that no information is lost.
impl Json for Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unsigned(value) | Self::Hex(value) => value.write(out),
            Self::Signed(value) => value.write(out),
            Self::Real(value) if value.is_finite() => value.write(out),
            Self::Real(value) => value.to_string().write(out),
            Self::Bool(value) => value.write(out),
            Self::Text(value) => value.write(out),
            Self::Bytes(bytes) => {
                out.push(b'"');
                for byte in bytes {
                    out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
                }
                out.push(b'"');
            }
            Self::List(values) => values.as_slice().write(out),
            Self::Struct(fields) => fields.as_slice().write(out),
            Self::None => out.extend_from_slice(b"null"),
        }
    }
}

/// Fields as an object, in their order.
impl Json for [Field] {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.fields(self);
        object.end();
    }
}

/// Appends a list; `write` appends each of its elements.
pub fn list<T>(
    out: &mut Vec<u8>,
    values: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, value) in values.into_iter().enumerate() {
        if i != 0 {
            out.push(b',');
        }
        write(out, value);
    }
    out.push(b']');
}

/// Pairs of digits, from 00 to 99.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut at = 0;
    while at < 100 {
        pairs[2 * at] = b'0' + (at / 10) as u8;
        pairs[2 * at + 1] = b'0' + (at % 10) as u8;
        at += 1;
    }
    pairs
};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a number in decimal, several times as fast as the standard library's formatting.
#[inline]
pub fn number(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number >= 100 {
        let pair = 2 * (number % 100) as usize;
        number /= 100;
        at -= 2;
        digits[at] = PAIRS[pair];
        digits[at + 1] = PAIRS[pair + 1];
    }
    let pair = 2 * number as usize;
    at -= 1;
    digits[at] = PAIRS[pair + 1];
    if number >= 10 {
        at -= 1;
        digits[at] = PAIRS[pair];
    }
    out.extend_from_slice(&digits[at..]);
}

/// Escape of each byte: 0 for none, [`LONG`] for `\u00xx`, else the character after the backslash.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        escapes[control] = LONG;
        control += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x09] = b't';
    escapes[0x0A] = b'n';
    escapes[0x0C] = b'f';
    escapes[0x0D] = b'r';
    escapes[0x22] = b'"';
    escapes[0x5C] = b'\\';
    escapes[0x7F] = LONG;
    escapes[0xC2] = LEAD;
    escapes
};

/// In [`ESCAPES`]: escaped as `\u00xx`.
const LONG: u8 = b'u';

/// In [`ESCAPES`]: the first of the two bytes of U+0080 to U+00BF, whose lower half are control characters.
const LEAD: u8 = 1;

/// Appends a quoted text.
#[inline]
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    if bytes.iter().all(|byte| ESCAPES[usize::from(*byte)] == 0) {
        out.extend_from_slice(bytes);
    } else {
        escaped(out, bytes);
    }
    out.push(b'"');
}

/// Appends a text that needs escapes.
#[cold]
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut bytes = bytes.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match ESCAPES[usize::from(byte)] {
            0 => out.push(byte),
            LONG => by_number(out, byte),
            LEAD => match bytes.next_if(|next| *next < 0xA0) {
                Some(next) => by_number(out, next),
                None => out.push(byte),
            },
            short => out.extend([b'\\', short]),
        }
    }
}

fn by_number(out: &mut Vec<u8>, character: u8) {
    out.extend_from_slice(b"\\u00");
    let (high, low) = (character >> 4, character & 15);
    out.extend([HEX[usize::from(high)], HEX[usize::from(low)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: impl Json) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_value_is_json() {
        let fields = [
            Field::new("u", 3_u64),
            Field::new("s", -3_i64),
            Field::new("h", Value::Hex(u64::MAX)),
            Field::new("r", Value::Real(1.5)),
            Field::new("nan", Value::Real(f64::NAN)),
            Field::new("t", "a\"b\n \u{1}"),
            Field::new("b", Value::Bytes(vec![0, 1, 0xFF])),
            Field::new("l", Value::List(vec![Value::Bool(true), Value::None])),
            Field::new("o", Value::Struct(vec![Field::new("x", 1_u64)])),
        ];
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object.member("cpu", None::<u32>).fields(&fields);
        object.member("fields", fields.as_slice());
        object.end();
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let fields = serde_json::json!({
            "u": 3, "s": -3, "h": u64::MAX, "r": 1.5, "nan": "NaN", "t": "a\"b\n \u{1}",
            "b": "0001ff", "l": [true, null], "o": {"x": 1}
        });
        let mut wanted = fields.clone();
        wanted["cpu"] = serde_json::Value::Null;
        wanted["fields"] = fields;
        assert_eq!(parsed, wanted);
        assert!(out.starts_with(b"{\"cpu\":null,\"u\":3"), "order is kept");
    }

    #[test]
    fn numbers_are_as_the_standard_library_writes_them() {
        let ends = (0..20).flat_map(|power| [10u64.pow(power) - 1, 10u64.pow(power)]);
        for number in (0..2000).chain(ends).chain([u64::MAX]) {
            assert_eq!(written(number), number.to_string());
            let signed = number as i64;
            assert_eq!(written(signed), signed.to_string());
        }
        assert_eq!(written(i64::MIN), i64::MIN.to_string());
        assert_eq!(written(f64::INFINITY), "null");
        assert_eq!(written(1e300).parse(), Ok(1e300));
    }

    #[test]
    fn every_character_comes_back_and_none_commands_a_terminal() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        for text in [&*all, "", "plain", "ünïcode", "a \"b\" \\c/", "\u{10FFFF}"] {
            let json = written(text);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            assert!(!json.chars().any(char::is_control), "{json}");
        }
        assert_eq!(written("\u{7f}\u{9b}\u{a0}"), "\"\\u007f\\u009b\u{a0}\"");
        assert_eq!(written("\n\u{8}\u{1}"), r#""\n\b\u0001""#);
    }
}
