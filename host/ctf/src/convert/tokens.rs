//! Flat list of field values between a reader and a writer, in trace order, without a tree to allocate.
//!
//! Constructs that only CTF 2 has are converted to their CTF 1.8 replacements here, matching the classes made by
//! [`adapt`](super::adapt).

use std::borrow::Cow;

use super::adapt::{ABSENT, PRESENT};
use crate::metadata::{Encoding, Value64, Version};
use crate::read::{Container, Value, Visitor};
use crate::write::{Item, View};

/// A value, or the begin of one with inner values, which follow it.
#[derive(Debug, Clone)]
enum Token<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'a, [u8]>),
    Bool(bool),
    Blob(Cow<'a, [u8]>),
    Absent,
    /// `items` values, up to the token at index `end`.
    Open {
        what: Open,
        items: usize,
        end: usize,
    },
}

impl Token<'_> {
    /// The same value without borrowed data.
    fn into_owned<'b>(self) -> Token<'b> {
        match self {
            Self::Text(bytes) => Token::Text(Cow::Owned(bytes.into_owned())),
            Self::Blob(bytes) => Token::Blob(Cow::Owned(bytes.into_owned())),
            Self::Unsigned(value) => Token::Unsigned(value),
            Self::Signed(value) => Token::Signed(value),
            Self::Float(value) => Token::Float(value),
            Self::Bool(value) => Token::Bool(value),
            Self::Absent => Token::Absent,
            Self::Open { what, items, end } => Token::Open { what, items, end },
        }
    }
}

/// Kind of a value with inner values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Struct,
    Array,
    Variant,
}

/// The fields of one or more scopes.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens<'a> {
    list: Vec<Token<'a>>,
    /// Number of top-level values.
    top: usize,
}

impl<'a> Tokens<'a> {
    /// Removes all values, and keeps the memory for values with another lifetime.
    pub fn recycle<'b>(mut self) -> Tokens<'b> {
        self.list.clear();
        // The list is empty, so this only changes its type.
        self.into_owned()
    }

    /// The same values without borrowed data.
    pub fn into_owned<'b>(self) -> Tokens<'b> {
        let list: Vec<_> = self.list.into_iter().map(Token::into_owned).collect();
        let top = if list.is_empty() { 0 } else { self.top };
        Tokens { list, top }
    }

    /// The top-level values.
    pub fn items(&self) -> Parts<'_> {
        Parts {
            tokens: &self.list,
            at: 0,
            left: self.top,
        }
    }
}

/// Consecutive values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    left: usize,
}

/// One value of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
}

impl<'t> Iterator for Parts<'t> {
    type Item = Part<'t>;

    fn next(&mut self) -> Option<Part<'t>> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = match self.tokens.get(at) {
            Some(Token::Open { end, .. }) => *end,
            _ => at + 1,
        };
        Some(Part {
            tokens: self.tokens,
            at,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Parts<'_> {}

impl<'t> Item<'t> for Part<'t> {
    type Items = Parts<'t>;

    fn view(self) -> View<'t, Self> {
        let inner = Part {
            tokens: self.tokens,
            at: self.at + 1,
        };
        let parts = |items| Parts {
            tokens: self.tokens,
            at: self.at + 1,
            left: items,
        };
        match self.tokens.get(self.at) {
            Some(Token::Unsigned(value)) => View::Unsigned(*value),
            Some(Token::Signed(value)) => View::Signed(*value),
            Some(Token::Float(value)) => View::Float(*value),
            Some(Token::Text(bytes)) => View::Text(bytes),
            Some(Token::Bool(value)) => View::Bool(*value),
            Some(Token::Blob(bytes)) => View::Blob(bytes),
            Some(Token::Absent) | None => View::Absent,
            Some(Token::Open { what, items, .. }) => match what {
                Open::Struct => View::Struct(parts(*items)),
                Open::Array => View::Array(parts(*items)),
                Open::Variant => View::Variant(None, inner),
            },
        }
    }
}

/// Visitor that collects fields.
pub(super) struct Collect<'a, 'w> {
    tokens: Tokens<'a>,
    /// Indices of the open containers.
    open: Vec<usize>,
    version: Version,
    /// Which top-level fields are selected; `None`: all.
    wanted: Option<&'w [bool]>,
    /// Index of the current top-level field, depth of the next field, and whether the current field is not selected.
    member: usize,
    depth: u32,
    ignored: bool,
}

impl<'a, 'w> Collect<'a, 'w> {
    /// Appends to existing tokens.
    pub const fn new(tokens: Tokens<'a>, version: Version) -> Self {
        Self {
            tokens,
            open: Vec::new(),
            version,
            wanted: None,
            member: 0,
            depth: 0,
            ignored: false,
        }
    }

    /// Begins the next scope, with the selection of its top-level fields.
    pub const fn scope(&mut self, wanted: Option<&'w [bool]>) {
        (self.wanted, self.member) = (wanted, 0);
    }

    /// The collected values.
    pub fn finish(self) -> Tokens<'a> {
        self.tokens
    }

    /// Whether a field that begins here is selected.
    fn wants(&mut self) -> bool {
        if self.depth > 0 {
            return !self.ignored;
        }
        let member = self.member;
        self.member += 1;
        let wanted = |wanted: &[bool]| wanted.get(member) == Some(&true);
        self.wanted.is_none_or(wanted)
    }

    fn push(&mut self, token: Token<'a>) {
        match self
            .open
            .last()
            .and_then(|at| self.tokens.list.get_mut(*at))
        {
            Some(Token::Open { items, .. }) => *items += 1,
            _ => self.tokens.top += 1,
        }
        self.tokens.list.push(token);
    }

    fn open(&mut self, what: Open) {
        let at = self.tokens.list.len();
        self.push(Token::Open {
            what,
            items: 0,
            end: at + 1,
        });
        self.open.push(at);
    }

    fn close(&mut self) {
        let behind = self.tokens.list.len();
        let at = self.open.pop();
        if let Some(Token::Open { end, .. }) = at.and_then(|at| self.tokens.list.get_mut(at)) {
            *end = behind;
        }
    }

    /// Opens the CTF 1.8 replacement of an optional field, up to its content.
    fn open_optional(&mut self, present: u64) {
        self.open(Open::Struct);
        self.push(Token::Unsigned(present));
        self.open(Open::Variant);
    }

    fn close_optional(&mut self) {
        self.close();
        self.close();
    }
}

impl<'a> Visitor<'a> for Collect<'a, '_> {
    fn value(&mut self, _: &'a str, value: Value<'a>) {
        if !self.wants() {
            return;
        }
        let old = self.version == Version::Ctf18;
        match value {
            Value::Integer { value, .. } => self.push(match value {
                Value64::Unsigned(value) => Token::Unsigned(value),
                Value64::Signed(value) => Token::Signed(value),
            }),
            Value::Float { value, .. } => self.push(Token::Float(value)),
            Value::Boolean(value) if old => self.push(Token::Unsigned(value.into())),
            Value::Boolean(value) => self.push(Token::Bool(value)),
            Value::Bits { value, .. } => self.push(Token::Unsigned(value)),
            Value::Blob { bytes, .. } if old => {
                self.open(Open::Array);
                for byte in bytes {
                    self.push(Token::Unsigned((*byte).into()));
                }
                self.close();
            }
            Value::Blob { bytes, .. } => self.push(Token::Blob(bytes.into())),
            Value::Absent if old => {
                self.open_optional(ABSENT);
                self.open(Open::Struct);
                self.close();
                self.close_optional();
            }
            Value::Absent => self.push(Token::Absent),
            Value::Text { encoding, .. } if old && is_wide(encoding) => {
                let text = value.text().unwrap_or_default().into_owned();
                self.push(Token::Text(text.into_bytes().into()));
            }
            Value::Text { bytes, .. } => self.push(Token::Text(bytes.into())),
        }
    }

    fn begin(&mut self, _: &'a str, container: Container) {
        let wanted = self.wants();
        self.depth += 1;
        if !wanted {
            self.ignored = true;
            return;
        }
        match container {
            Container::Struct => self.open(Open::Struct),
            Container::Array(_) => self.open(Open::Array),
            Container::Variant => self.open(Open::Variant),
            Container::Optional if self.version == Version::Ctf18 => self.open_optional(PRESENT),
            // Its content takes its place.
            Container::Optional => {}
        }
    }

    fn end(&mut self, container: Container) {
        self.depth -= 1;
        if self.ignored {
            self.ignored = self.depth > 0;
            return;
        }
        match container {
            Container::Struct | Container::Array(_) | Container::Variant => self.close(),
            Container::Optional if self.version == Version::Ctf18 => self.close_optional(),
            Container::Optional => {}
        }
    }
}

/// Whether CTF 1.8 lacks the encoding of a text.
pub(super) const fn is_wide(encoding: Encoding) -> bool {
    encoding.unit() > 1
}
