//! JSON parser that records positions.
//!
//! Errors in metadata must show where they are, so every value keeps its offset. Integers keep their full precision,
//! because ids and ranges have 64 bits. It implements RFC 8259, with a limit on nesting and without duplicate names.

use std::fmt::Write;

use crate::error::{MetadataError, MetadataErrorKind as Kind};

/// Maximum depth of nesting. A level of field classes takes up to three of JSON.
const MAX_NESTING: u32 = 256;

/// A value, with its offset in the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Json {
    pub data: Data,
    pub offset: usize,
}

/// Content of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Null,
    Boolean(bool),
    Integer(i128),
    /// A number with a fraction or exponent, as written: only attributes can contain one.
    Real(String),
    Text(String),
    Array(Vec<Json>),
    /// Names and values, in order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The kind of value, for messages.
    pub const fn describe(&self) -> &'static str {
        match self.data {
            Data::Null => "null",
            Data::Boolean(_) => "a boolean",
            Data::Integer(_) => "an integer",
            Data::Real(_) => "a number that is no integer",
            Data::Text(_) => "a string",
            Data::Array(_) => "an array",
            Data::Object(_) => "an object",
        }
    }

    /// Appends the value as JSON.
    pub fn write(&self, out: &mut String) {
        let mut separator = "";
        match &self.data {
            Data::Null => out.push_str("null"),
            Data::Boolean(true) => out.push_str("true"),
            Data::Boolean(false) => out.push_str("false"),
            Data::Integer(number) => {
                let _ = write!(out, "{number}");
            }
            Data::Real(text) => out.push_str(text),
            Data::Text(text) => out.push_str(&quoted(text)),
            Data::Array(elements) => {
                out.push('[');
                for element in elements {
                    out.push_str(std::mem::replace(&mut separator, ", "));
                    element.write(out);
                }
                out.push(']');
            }
            Data::Object(members) => {
                out.push('{');
                for (name, value) in members {
                    out.push_str(std::mem::replace(&mut separator, ", "));
                    out.push_str(&quoted(name));
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Quotes and escapes a text.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Parses one value, in `text` from `start` to `end`.
pub(super) fn read(text: &str, start: usize, end: usize) -> Result<Json, MetadataError> {
    let mut reader = Reader {
        text,
        bytes: text.as_bytes().get(..end).unwrap_or(&[]),
        at: start,
        nesting: 0,
    };
    let value = reader.value()?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.expected("the end of the fragment")),
    }
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    nesting: u32,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn error(&self, kind: Kind) -> MetadataError {
        kind.at(self.text, self.at)
    }

    fn expected(&self, expected: &'static str) -> MetadataError {
        let found = match self.peek() {
            None => "the end",
            Some(b'{') => "{",
            Some(b'}') => "}",
            Some(b'[') => "[",
            Some(b']') => "]",
            Some(b'"') => "a string",
            Some(b',') => ",",
            Some(b':') => ":",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(_) => "other text",
        };
        self.error(Kind::Syntax { expected, found })
    }

    fn value(&mut self) -> Result<Json, MetadataError> {
        self.space();
        let offset = self.at;
        if self.nesting == MAX_NESTING {
            return Err(self.error(Kind::Depth(MAX_NESTING)));
        }
        self.nesting += 1;
        let data = match self.peek() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.array()?,
            Some(b'"') => Data::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        self.nesting -= 1;
        Ok(Json { data, offset })
    }

    fn word(&mut self) -> Result<Data, MetadataError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let words = [
            ("null", Data::Null),
            ("true", Data::Boolean(true)),
            ("false", Data::Boolean(false)),
        ];
        for (word, data) in words {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(data);
            }
        }
        Err(self.expected("a value"))
    }

    fn object(&mut self) -> Result<Data, MetadataError> {
        self.at += 1;
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        if self.accept(b'}') {
            return Ok(Data::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a name"));
            }
            let offset = self.at;
            let name = self.string()?;
            if !names.insert(name.clone()) {
                return Err(Kind::Duplicate("property").at(self.text, offset));
            }
            if !self.accept(b':') {
                return Err(self.expected(":"));
            }
            members.push((name, self.value()?));
            if self.accept(b'}') {
                return Ok(Data::Object(members));
            }
            if !self.accept(b',') {
                return Err(self.expected(", or }"));
            }
        }
    }

    fn array(&mut self) -> Result<Data, MetadataError> {
        self.at += 1;
        let mut elements = Vec::new();
        if self.accept(b']') {
            return Ok(Data::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            if self.accept(b']') {
                return Ok(Data::Array(elements));
            }
            if !self.accept(b',') {
                return Err(self.expected(", or ]"));
            }
        }
    }

    fn number(&mut self) -> Result<Data, MetadataError> {
        let start = self.at;
        let digits = |reader: &mut Self| {
            let first = reader.at;
            while matches!(reader.peek(), Some(b'0'..=b'9')) {
                reader.at += 1;
            }
            reader.at - first
        };
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let length = digits(self);
        if length == 0 || (zero && length > 1) {
            return Err(self.error(Kind::Number("digits without leading zeros")));
        }
        let end = self.at;
        let mut real = false;
        if self.peek() == Some(b'.') {
            self.at += 1;
            real = true;
            if digits(self) == 0 {
                return Err(self.error(Kind::Number("digits behind the point")));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            real = true;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if digits(self) == 0 {
                return Err(self.error(Kind::Number("digits of the exponent")));
            }
        }
        if real {
            let text = self.text.get(start..self.at).unwrap_or("0");
            return Ok(Data::Real(text.to_owned()));
        }
        let number = self.text.get(start..end).and_then(|text| text.parse().ok());
        let fail = || Kind::Number("no more than 38 digits").at(self.text, start);
        number.map(Data::Integer).ok_or_else(fail)
    }

    fn string(&mut self) -> Result<String, MetadataError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let plain = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // Both ends are at ASCII characters, so never inside another one.
            out.push_str(self.text.get(plain..self.at).unwrap_or(""));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(control) => return Err(self.error(Kind::Character(char::from(control)))),
                None => return Err(Kind::Unterminated("string").at(self.text, start)),
            }
        }
    }

    fn escape(&mut self) -> Result<char, MetadataError> {
        self.at += 1;
        let escape = self.peek();
        self.at += 1;
        Ok(match escape {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'u') => {
                let first = self.unit()?;
                let mut units = vec![first];
                if matches!(first, 0xd800..=0xdbff)
                    && self.bytes.get(self.at..self.at + 2) == Some(b"\\u")
                {
                    self.at += 2;
                    units.push(self.unit()?);
                }
                let mut decoded = char::decode_utf16(units);
                match (decoded.next(), decoded.next()) {
                    (Some(Ok(c)), None) => c,
                    _ => return Err(self.error(Kind::NotText)),
                }
            }
            _ => return Err(self.expected("an escape sequence")),
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Result<u16, MetadataError> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let unit = digits.and_then(|text| u16::from_str_radix(text, 16).ok());
        let unit = unit.ok_or_else(|| self.error(Kind::Number("four hexadecimal digits")))?;
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Json, MetadataError> {
        read(text, 0, text.len())
    }

    #[test]
    fn values_with_their_places() {
        let json = all(" {\"a\\u00e9\\ud83e\\udd14\": [1, -2, 3e4, true, null],\n \"b\": {} }")
            .expect("JSON");
        let Data::Object(members) = json.data else {
            panic!("an object")
        };
        assert_eq!(json.offset, 1);
        assert_eq!(members[0].0, "aé🤔");
        let Data::Array(list) = &members[0].1.data else {
            panic!("an array")
        };
        let found: Vec<_> = list.iter().map(|it| it.data.clone()).collect();
        let expected = [
            Data::Integer(1),
            Data::Integer(-2),
            Data::Real("3e4".to_owned()),
            Data::Boolean(true),
            Data::Null,
        ];
        assert_eq!(found, expected);
        assert_eq!(members[1].1.data, Data::Object(Vec::new()));
    }

    #[test]
    fn what_is_no_json_is_refused_at_its_place() {
        for (text, column) in [
            ("", 1),
            ("{", 2),
            ("[1 2]", 4),
            ("[01]", 4),
            ("\"a", 1),
            ("\"\\x\"", 4),
            ("\"\\ud83e\"", 8),
            ("{\"a\": 1, \"a\": 2}", 10),
            ("1 1", 3),
            ("-", 2),
            ("1.", 3),
            ("\"\t\"", 2),
        ] {
            let error = all(text).expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
        }
        let deep = all(&"[".repeat(100_000)).expect_err("too deep");
        assert!(matches!(deep.kind, Kind::Depth(_)));
    }
}
