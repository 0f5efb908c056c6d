//! Basis of the parser: tokens, attributes, errors.

mod blocks;

use std::collections::{HashMap, HashSet};

use super::Warning;
use super::lexer::{self, Token, TokenKind};
use super::types::Names;
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{ByteOrder, ClockId, EventClass, FieldClass, Metadata, StreamClass};

/// Value of an attribute, with its position.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    value: Value,
    pub offset: usize,
}

#[derive(Debug, Clone)]
enum Value {
    Number(i128),
    Text(String),
    Path(String),
}

impl Attribute {
    pub fn number(&self) -> Option<i128> {
        if let Value::Number(number) = self.value {
            Some(number)
        } else {
            None
        }
    }

    pub fn path(&self) -> Option<&str> {
        if let Value::Path(path) = &self.value {
            Some(path)
        } else {
            None
        }
    }

    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value {
            Some(text)
        } else {
            None
        }
    }

    /// The name, quoted or not.
    fn name(&self) -> Option<&str> {
        self.text().or_else(|| self.path())
    }
}

/// Part of a block of assignments.
enum Entry {
    Attribute(String, Attribute),
    Type(String, FieldClass, usize),
}

pub(super) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    at: usize,
    /// The byte order for `native`, and the default.
    pub byte_order: ByteOrder,
    pub scopes: Vec<Names>,
    /// Number of parts of all types so far, including copies.
    pub parts: u32,
    /// Depth of nested type specifiers being parsed.
    pub nesting: u32,
    metadata: Metadata,
    trace_seen: bool,
    /// The clocks by name: fields may refer to a clock whose block follows later.
    clocks: HashMap<String, ClockId>,
    /// The names of the clocks whose blocks have been parsed.
    clock_names: HashSet<String>,
    /// The entries of the environment, by name.
    environment: HashMap<String, usize>,
    /// Streams with the positions of their blocks; the id is `None` if not given.
    streams: Vec<(Option<u64>, StreamClass, usize)>,
    /// Events with the ids of their streams and their own, if given.
    events: Vec<(Option<u64>, Option<u64>, EventClass, usize)>,
    warnings: Vec<Warning>,
}

impl<'t> Parser<'t> {
    pub fn new(text: &'t str) -> Result<Self, MetadataError> {
        let tokens = lexer::tokens(text)?;
        let byte_order = find_byte_order(&tokens);
        let clocks = find_attribute(&tokens, "clock", "name");
        let mut ids = HashMap::new();
        for (id, token) in (0..).map(ClockId).zip(clocks) {
            if let TokenKind::Word(name) | TokenKind::Text(name) = &token.kind {
                ids.entry(name.clone()).or_insert(id);
            }
        }
        Ok(Self {
            text,
            clocks: ids,
            clock_names: HashSet::new(),
            environment: HashMap::new(),
            tokens,
            at: 0,
            byte_order,
            scopes: vec![Names::default()],
            parts: 0,
            nesting: 0,
            metadata: Metadata::new(byte_order),
            trace_seen: false,
            streams: Vec::new(),
            events: Vec::new(),
            warnings: Vec::new(),
        })
    }

    pub fn parse(mut self) -> Result<(Metadata, Vec<Warning>), MetadataError> {
        while self.kind() != &TokenKind::End {
            self.root()?;
        }
        self.finish()?;
        let text = self.text;
        self.metadata
            .resolve()
            .map_err(|error| error.kind.at(text, error.offset))?;
        Ok((self.metadata, self.warnings))
    }

    /// Parses the entries of a block with its scope of types, in order, and the semicolon after it.
    fn block(&mut self) -> Result<Vec<Entry>, MetadataError> {
        let mut entries = Vec::new();
        self.entries(|entry| entries.push(entry))?;
        self.mark(";")?;
        Ok(entries)
    }

    fn entries(&mut self, mut take: impl FnMut(Entry)) -> Result<(), MetadataError> {
        self.mark("{")?;
        self.scopes.push(Names::default());
        let mut names = HashSet::new();
        while !self.accept("}") {
            if self.at_alias() || self.declares_tag() {
                self.declaration()?;
                continue;
            }
            let offset = self.offset();
            let name = self.path()?;
            if self.accept(":=") {
                let typed = self.type_specifier()?;
                take(Entry::Type(name.clone(), typed.class, offset));
            } else {
                self.mark("=")?;
                let value = self.attribute_value()?;
                take(Entry::Attribute(name.clone(), value));
            }
            if !names.insert(name) {
                return Err(self.error_at(offset, Kind::Duplicate("attribute")));
            }
            self.mark(";")?;
        }
        self.scopes.pop();
        Ok(())
    }

    /// Parses the attributes of a type between braces; those not in `known` are ignored with a warning.
    pub fn attributes(
        &mut self,
        known: &[&'static str],
    ) -> Result<Vec<(&'static str, Attribute)>, MetadataError> {
        let mut found: Vec<(&'static str, Attribute)> = Vec::new();
        let mut unknown = Vec::new();
        self.entries(|entry| match entry {
            Entry::Attribute(name, value) => match known.iter().find(|it| **it == name) {
                Some(name) => found.push((name, value)),
                None => unknown.push((name, value.offset)),
            },
            Entry::Type(name, _, offset) => unknown.push((name, offset)),
        })?;
        for (name, offset) in unknown {
            self.warn(name, offset);
        }
        Ok(found)
    }

    pub fn attribute_value(&mut self) -> Result<Attribute, MetadataError> {
        let offset = self.offset();
        let value = match self.kind() {
            TokenKind::Text(text) => {
                let text = text.clone();
                self.advance();
                Value::Text(text)
            }
            TokenKind::Word(_) => Value::Path(self.path()?),
            _ => Value::Number(self.signed_number()?),
        };
        Ok(Attribute { value, offset })
    }

    pub fn signed_number(&mut self) -> Result<i128, MetadataError> {
        let negative = self.accept("-");
        if !negative {
            self.accept("+");
        }
        let TokenKind::Number(number) = *self.kind() else {
            return self.unexpected("a number");
        };
        self.advance();
        Ok(if negative {
            -i128::from(number)
        } else {
            i128::from(number)
        })
    }

    /// Parses words separated by dots; returns them joined.
    pub fn path(&mut self) -> Result<String, MetadataError> {
        let mut path = String::new();
        loop {
            let Some(word) = self.word() else {
                return self.unexpected("a name");
            };
            path.push_str(word);
            self.advance();
            if !self.accept(".") {
                return Ok(path);
            }
            path.push('.');
        }
    }

    fn warn(&mut self, name: String, offset: usize) {
        self.warnings.push(Warning { name, offset });
    }

    pub fn kind(&self) -> &TokenKind {
        self.kind_at(0)
    }

    pub fn kind_at(&self, ahead: usize) -> &TokenKind {
        self.tokens
            .get(self.at + ahead)
            .map_or(&TokenKind::End, |token| &token.kind)
    }

    pub fn word(&self) -> Option<&str> {
        if let TokenKind::Word(word) = self.kind() {
            Some(word)
        } else {
            None
        }
    }

    pub fn offset(&self) -> usize {
        self.tokens
            .get(self.at)
            .map_or(self.text.len(), |token| token.offset)
    }

    pub fn advance(&mut self) {
        self.at += 1;
    }

    pub fn accept(&mut self, mark: &'static str) -> bool {
        let found = self.kind() == &TokenKind::Mark(mark);
        self.at += usize::from(found);
        found
    }

    pub fn mark(&mut self, mark: &'static str) -> Result<(), MetadataError> {
        if self.accept(mark) {
            Ok(())
        } else {
            self.unexpected(mark)
        }
    }

    pub fn error_at(&self, offset: usize, kind: Kind) -> MetadataError {
        kind.at(self.text, offset)
    }

    pub fn error(&self, kind: Kind) -> MetadataError {
        self.error_at(self.offset(), kind)
    }

    pub fn bad(
        &self,
        attribute: &'static str,
        expected: &'static str,
        value: &Attribute,
    ) -> MetadataError {
        self.error_at(
            value.offset,
            Kind::Attribute {
                attribute,
                expected,
            },
        )
    }

    pub fn unexpected<T>(&self, expected: &'static str) -> Result<T, MetadataError> {
        Err(self.error(Kind::Syntax {
            expected,
            found: self.kind().describe(),
        }))
    }
}

/// The byte order in the `trace` block, which types before the block depend on.
fn find_byte_order(tokens: &[Token]) -> ByteOrder {
    match find_attribute(tokens, "trace", "byte_order")
        .next()
        .map(|token| &token.kind)
    {
        Some(TokenKind::Word(order)) if order == "be" || order == "network" => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

/// The first tokens of the values of `attribute` in root blocks called `block`.
fn find_attribute<'k>(
    tokens: &'k [Token],
    block: &'k str,
    attribute: &'k str,
) -> impl Iterator<Item = &'k Token> {
    let is_mark = |token: &Token, mark| token.kind == TokenKind::Mark(mark);
    let is_word =
        |token: &Token, word: &str| matches!(&token.kind, TokenKind::Word(it) if it == word);
    let mut depth = 0usize;
    let mut inside = false;
    tokens.windows(3).filter_map(move |window| {
        let [first, second, third] = window else {
            return None;
        };
        if depth == 0 {
            inside = is_word(first, block) && is_mark(second, "{") || inside && is_mark(first, "{");
        }
        let found = depth == 1 && inside && is_word(first, attribute) && is_mark(second, "=");
        if is_mark(first, "{") {
            depth += 1;
        } else if is_mark(first, "}") {
            depth = depth.saturating_sub(1);
        }
        found.then_some(third)
    })
}
