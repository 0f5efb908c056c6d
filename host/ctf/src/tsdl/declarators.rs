//! Parser of the contents of structures and variants: members, their names and lengths.

use std::collections::HashSet;

use super::lexer::TokenKind;
use super::parser::Parser;
use super::types::{MAX_DEPTH, MAX_PARTS, Names, Typed, is_c_type_word};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{ArrayClass, FieldClass, Length, Location, Member, is_keyword};

impl Parser<'_> {
    /// Parses the members between braces; also returns the total number of parts.
    pub(super) fn members(&mut self) -> Result<(Vec<Member>, u32, u32), MetadataError> {
        self.mark("{")?;
        self.scopes.push(Names::default());
        let mut members = Vec::new();
        let mut names = HashSet::new();
        let (mut parts, mut depth) = (1u32, 0);
        while !self.accept("}") {
            if self.at_alias() {
                self.alias()?;
                continue;
            }
            let declares_tag = self.declares_tag();
            let start = self.offset();
            let base = self.type_specifier()?;
            if self.kind() == &TokenKind::Mark(";") {
                self.advance();
                if declares_tag {
                    continue;
                }
                // A member without a name: its own members are then usually the interesting ones.
                if !matches!(base.class, FieldClass::Struct(_) | FieldClass::Variant(_)) {
                    return Err(self.error_at(start, Kind::Missing("name of a field")));
                }
                self.tagged(&base, start)?;
                parts = parts.saturating_add(base.parts);
                depth = depth.max(base.depth);
                members.push(Member {
                    name: String::new(),
                    declared: String::new(),
                    class: base.class,
                    attributes: None,
                });
                continue;
            }
            loop {
                let (declared, offset) = self.declared_name()?;
                self.tagged(&base, start)?;
                let typed = self.lengths(base.clone())?;
                parts = parts.saturating_add(typed.parts);
                depth = depth.max(typed.depth);
                if parts.saturating_add(self.parts) > MAX_PARTS {
                    return Err(self.error_at(offset, Kind::Size(MAX_PARTS)));
                }
                if self.kind() == &TokenKind::Mark(",") {
                    self.copied(base.parts)?;
                }
                if !names.insert(declared.clone()) {
                    return Err(self.error_at(offset, Kind::Duplicate("field")));
                }
                let name = declared.strip_prefix('_').unwrap_or(&declared).to_owned();
                members.push(Member {
                    name,
                    declared,
                    class: typed.class,
                    attributes: None,
                });
                if !self.accept(",") {
                    break;
                }
            }
            self.mark(";")?;
        }
        self.scopes.pop();
        self.check_depth(depth + 1)?;
        Ok((members, parts, depth + 1))
    }

    /// Whether `struct NAME {`, `variant NAME {` or `enum NAME {` or `:` follows: a declaration that need not declare a
    /// field.
    pub(super) fn declares_tag(&self) -> bool {
        matches!(self.word(), Some("struct" | "variant" | "enum"))
            && matches!(self.kind_at(1), TokenKind::Word(_))
            && matches!(self.kind_at(2), TokenKind::Mark("{" | ":"))
    }

    fn tagged(&self, typed: &Typed, offset: usize) -> Result<(), MetadataError> {
        match &typed.class {
            FieldClass::Variant(class) if class.tag.path.is_empty() => {
                Err(self.error_at(offset, Kind::Variant("without a tag")))
            }
            _ => Ok(()),
        }
    }

    fn check_depth(&self, depth: u32) -> Result<(), MetadataError> {
        if depth > MAX_DEPTH {
            Err(self.error(Kind::Depth(MAX_DEPTH)))
        } else {
            Ok(())
        }
    }

    /// Parses the declared name of a declarator.
    pub(super) fn declared_name(&mut self) -> Result<(String, usize), MetadataError> {
        let offset = self.offset();
        match self.word() {
            // Keywords of C's types are accepted where only a name is possible, as in yactfr.
            Some(word)
                if is_keyword(word)
                    && !(is_c_type_word(word)
                        && matches!(self.kind_at(1), TokenKind::Mark(";" | "," | "["))) =>
            {
                Err(self.error(Kind::Keyword))
            }
            Some(word) => {
                let name = word.to_owned();
                self.advance();
                Ok((name, offset))
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Parses `[LENGTH]`s, applied to `base`: `t f[3][2]` is three arrays of two.
    pub(super) fn lengths(&mut self, base: Typed) -> Result<Typed, MetadataError> {
        let mut lengths = Vec::new();
        while self.accept("[") {
            let offset = self.offset();
            lengths.push(match self.kind() {
                TokenKind::Number(number) => {
                    let number = *number;
                    self.advance();
                    Length::Fixed(number)
                }
                TokenKind::Word(word) if word == "env" => Length::Fixed(self.env_length()?),
                TokenKind::Word(_) => {
                    let path = self.path()?;
                    self.check_field_path(&path, offset, "unsigned integer")?;
                    Length::Field(Location {
                        path,
                        route: None,
                        offset,
                        targets: Vec::new(),
                    })
                }
                _ => return self.unexpected("a length"),
            });
            self.mark("]")?;
            self.check_depth(
                base.depth
                    .saturating_add(u32::try_from(lengths.len()).unwrap_or(u32::MAX)),
            )?;
        }
        Ok(lengths
            .into_iter()
            .rev()
            .fold(base, |element, length| Typed {
                class: ArrayClass {
                    length,
                    min_align: 1,
                    element: Box::new(element.class),
                    is_uuid: false,
                    attributes: None,
                }
                .into(),
                parts: element.parts.saturating_add(1),
                depth: element.depth + 1,
            }))
    }

    /// Rejects a path to a field that the grammar interprets as a keyword or a type.
    pub(super) fn check_field_path(
        &self,
        path: &str,
        offset: usize,
        wanted: &'static str,
    ) -> Result<(), MetadataError> {
        let known = self.scopes.iter().any(|scope| scope.0.contains_key(path));
        if known || is_keyword(path) {
            Err(self.error_at(offset, Kind::Location(wanted)))
        } else {
            Ok(())
        }
    }

    /// A length taken from the environment: `env.NAME`.
    fn env_length(&mut self) -> Result<u64, MetadataError> {
        let offset = self.offset();
        let path = self.path()?;
        let name = path.strip_prefix("env.").unwrap_or("");
        self.env_number(name)
            .ok_or_else(|| self.error_at(offset, Kind::Location("non-negative number in env")))
    }
}
