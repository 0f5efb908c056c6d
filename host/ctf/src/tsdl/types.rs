//! Parser of TSDL's types: specifiers, declarators, aliases and scopes.

use std::collections::HashMap;
use std::sync::Arc;

use super::lexer::TokenKind;
use super::parser::Parser;
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    Choice, Encoding, EnumerationClass, FieldClass, FloatClass, IntegerClass, Location, Mapping,
    Mappings, StringClass, StructClass, Value64, VariantClass, is_keyword,
};

/// Maximum depth of nesting: far above that of real traces, far below what would exhaust the stack.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Maximum number of parts (field classes) that all types may expand to. Each use copies an alias, so 30 lines can
/// require a billion.
pub(crate) const MAX_PARTS: u32 = 1 << 19;

/// A type during parsing, with the cost of copying it.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub class: FieldClass,
    /// Number of field classes in it, including itself.
    pub parts: u32,
    /// Depth of nesting, including its own.
    pub depth: u32,
}

impl Typed {
    fn leaf(class: impl Into<FieldClass>) -> Self {
        Self {
            class: class.into(),
            parts: 1,
            depth: 1,
        }
    }
}

/// Types declared in one block. `struct x`, `variant x`, `enum x` and `x` are different names.
#[derive(Debug, Default)]
pub(super) struct Names(pub HashMap<String, Typed>);

/// Whether `word` is one that C combines into names of types.
pub(super) fn is_c_type_word(word: &str) -> bool {
    matches!(
        word,
        "void"
            | "char"
            | "short"
            | "int"
            | "long"
            | "float"
            | "double"
            | "signed"
            | "unsigned"
            | "_Bool"
            | "_Complex"
            | "_Imaginary"
            | "const"
    )
}

impl Parser<'_> {
    /// Whether a declaration of a type name starts here, rather than a field.
    pub(super) fn at_alias(&self) -> bool {
        matches!(self.word(), Some("typealias" | "typedef"))
    }

    /// `typealias TYPE := NAME;` or `typedef TYPE NAME, ...;`
    pub(super) fn alias(&mut self) -> Result<(), MetadataError> {
        let typealias = self.word() == Some("typealias");
        self.advance();
        let base = self.type_specifier()?;
        if typealias {
            // The left side may have an abstract declarator: `typealias integer {...} [4] := four`.
            let typed = self.lengths(base)?;
            self.mark(":=")?;
            let offset = self.offset();
            let mut name = String::new();
            while let TokenKind::Word(word) = self.kind() {
                let tag = matches!(word.as_str(), "struct" | "variant" | "enum")
                    && matches!(self.kind_at(1), TokenKind::Word(_));
                if is_keyword(word) && !is_c_type_word(word) && !tag {
                    return self.unexpected("a type name");
                }
                push_word(&mut name, word);
                self.advance();
            }
            self.stars(&mut name);
            if name.is_empty() {
                return self.unexpected("a type name");
            }
            let typed = self.lengths(typed)?;
            self.declare(name, typed, offset)?;
        } else {
            loop {
                let (name, offset) = self.declared_name()?;
                self.copied(base.parts)?;
                let typed = self.lengths(base.clone())?;
                self.declare(name, typed, offset)?;
                if !self.accept(",") {
                    break;
                }
            }
        }
        self.mark(";")
    }

    fn stars(&mut self, name: &mut String) {
        while self.kind() == &TokenKind::Mark("*") {
            push_word(name, "*");
            self.advance();
        }
    }

    fn declare(&mut self, name: String, typed: Typed, offset: usize) -> Result<(), MetadataError> {
        match self.scopes.last_mut() {
            Some(scope) if !scope.0.contains_key(&name) => {
                scope.0.insert(name, typed);
                Ok(())
            }
            _ => Err(self.error_at(offset, Kind::Duplicate("type name"))),
        }
    }

    /// A copy of the type called `name`, from the innermost scope that declares it.
    fn look_up(&mut self, name: &str) -> Result<Option<Typed>, MetadataError> {
        let Some(found) = self
            .scopes
            .iter()
            .rev()
            .find_map(|scope| scope.0.get(name))
            .cloned()
        else {
            return Ok(None);
        };
        self.copied(found.parts)?;
        Ok(Some(found))
    }

    /// Counts a copied type, wherever a short text can require many copies.
    pub(super) fn copied(&mut self, parts: u32) -> Result<(), MetadataError> {
        self.parts = self.parts.saturating_add(parts);
        if self.parts > MAX_PARTS {
            return Err(self.error(Kind::Size(MAX_PARTS)));
        }
        Ok(())
    }

    /// A type: `integer {...}`, `struct ...`, `unsigned long`, `uint8_t`, ...
    pub(super) fn type_specifier(&mut self) -> Result<Typed, MetadataError> {
        if self.nesting >= MAX_DEPTH {
            return Err(self.error(Kind::Depth(MAX_DEPTH)));
        }
        self.nesting += 1;
        let typed = match self.word() {
            Some("integer") => self.integer(),
            Some("floating_point") => self.float(),
            Some("string") => self.string(),
            Some("enum") => self.enumeration(),
            Some("struct") => self.structure(),
            Some("variant") => self.variant(),
            Some(_) => self.named_type(),
            None => self.unexpected("a type"),
        };
        self.nesting -= 1;
        typed
    }

    fn named_type(&mut self) -> Result<Typed, MetadataError> {
        let offset = self.offset();
        let mut name = String::new();
        while let Some(word) = self.word() {
            let first = name.is_empty();
            if is_c_type_word(word) || (first && !is_keyword(word)) || name == "const" {
                let word = word.to_owned();
                push_word(&mut name, &word);
                self.advance();
                if !is_c_type_word(&word) {
                    break;
                }
            } else {
                break;
            }
        }
        let plain = name.clone();
        self.stars(&mut name);
        if let Some(typed) = self.look_up(&name)? {
            return Ok(typed);
        }
        // `const` has no effect on the layout, so an alias without it matches.
        let without = plain.trim_start_matches("const ");
        if plain == name
            && without != name
            && let Some(typed) = self.look_up(without)?
        {
            return Ok(typed);
        }
        Err(self.error_at(offset, Kind::UnknownType))
    }

    fn integer(&mut self) -> Result<Typed, MetadataError> {
        let start = self.offset();
        self.advance();
        let attributes = self.attributes(&[
            "size",
            "align",
            "signed",
            "byte_order",
            "base",
            "encoding",
            "map",
        ])?;
        let (mut size, mut align) = (None, None);
        let mut class = IntegerClass::unsigned(8, self.byte_order);
        for (name, value) in &attributes {
            match *name {
                "size" => size = Some(self.size_attribute("size", value)?),
                "align" => align = Some(self.align_attribute(value)?),
                "signed" => class.signed = self.flag_attribute("signed", value)?,
                "byte_order" => class.byte_order = self.byte_order_attribute(value)?,
                "base" => class.base = self.base_attribute(value)?,
                "encoding" => class.encoding = self.encoding_attribute(value)?,
                _ => class.clock = Some(self.map_attribute(value)?),
            }
        }
        let Some(size) = size else {
            return Err(self.error_at(start, Kind::Missing("attribute size of integer")));
        };
        if size > 64 {
            return Err(self.error_at(start, Kind::Unsupported("integer of more than 64 bits")));
        }
        class.size = size;
        class.align = align.unwrap_or(if size.is_multiple_of(8) { 8 } else { 1 });
        Ok(Typed::leaf(class))
    }

    fn float(&mut self) -> Result<Typed, MetadataError> {
        let start = self.offset();
        self.advance();
        let attributes = self.attributes(&["exp_dig", "mant_dig", "byte_order", "align"])?;
        let (mut exponent, mut mantissa, mut align, mut byte_order) =
            (None, None, None, self.byte_order);
        for (name, value) in &attributes {
            match *name {
                "exp_dig" => exponent = Some(self.size_attribute("exp_dig", value)?),
                "mant_dig" => mantissa = Some(self.size_attribute("mant_dig", value)?),
                "align" => align = Some(self.align_attribute(value)?),
                _ => byte_order = self.byte_order_attribute(value)?,
            }
        }
        let size = match (exponent, mantissa) {
            (Some(5), Some(11)) => 16,
            (Some(8), Some(24)) => 32,
            (Some(11), Some(53)) => 64,
            (None, _) => {
                return Err(
                    self.error_at(start, Kind::Missing("attribute exp_dig of floating_point"))
                );
            }
            (_, None) => {
                return Err(
                    self.error_at(start, Kind::Missing("attribute mant_dig of floating_point"))
                );
            }
            _ => {
                return Err(self.error_at(
                    start,
                    Kind::Unsupported("floating point number other than binary16/32/64"),
                ));
            }
        };
        Ok(Typed::leaf(FloatClass {
            size,
            reversed: false,
            align: align.unwrap_or(8),
            byte_order,
            attributes: None,
        }))
    }

    fn string(&mut self) -> Result<Typed, MetadataError> {
        self.advance();
        let mut encoding = Encoding::Utf8;
        if self.kind() == &TokenKind::Mark("{") {
            for (_, value) in &self.attributes(&["encoding"])? {
                encoding = self.encoding_attribute(value)?;
            }
        }
        Ok(Typed::leaf(StringClass {
            encoding,
            attributes: None,
        }))
    }

    /// `enum [NAME] [: INTEGER] { ... }` or `enum NAME`.
    fn enumeration(&mut self) -> Result<Typed, MetadataError> {
        let (name, offset) = self.tag_name("enum");
        let base = if self.accept(":") {
            Some(self.type_specifier()?)
        } else {
            None
        };
        if self.kind() != &TokenKind::Mark("{") {
            return match name {
                Some(name) if base.is_none() => self.look_up_tag(&name, offset),
                _ => self.unexpected("{"),
            };
        }
        let base = match base {
            Some(base) => base,
            None => self
                .look_up("int")?
                .ok_or_else(|| self.error_at(offset, Kind::UnknownType))?,
        };
        let FieldClass::Integer(integer) = base.class else {
            return Err(self.error_at(
                offset,
                Kind::Syntax {
                    expected: "an integer type",
                    found: "another type",
                },
            ));
        };
        let mappings = self.mappings(integer)?;
        let typed = if mappings.is_empty() {
            Typed::leaf(integer)
        } else {
            let mappings = Arc::new(Mappings::new(mappings));
            Typed::leaf(EnumerationClass { integer, mappings })
        };
        self.declare_tag(name, &typed, offset)?;
        Ok(typed)
    }

    fn mappings(&mut self, integer: IntegerClass) -> Result<Vec<Mapping>, MetadataError> {
        self.mark("{")?;
        if self.kind() == &TokenKind::Mark("}") {
            return self.unexpected("a label");
        }
        let mut list = Vec::new();
        let mut next: i128 = 0;
        while !self.accept("}") {
            let offset = self.offset();
            let label = match self.kind() {
                TokenKind::Word(label) | TokenKind::Text(label) => label.clone(),
                _ => return self.unexpected("a label"),
            };
            self.advance();
            let (mut first, mut last) = (next, next);
            if self.accept("=") {
                first = self.signed_number()?;
                last = if self.accept("...") {
                    self.signed_number()?
                } else {
                    first
                };
            }
            next = last + 1;
            if first > last {
                return Err(self.error_at(offset, Kind::EnumerationRange));
            }
            // No value of the integer has a label outside its range. LTTng writes such labels where an enumeration of
            // negative values is recorded in an unsigned integer.
            let (least, greatest) = integer.range();
            let (first, last) = (first.max(least), last.min(greatest));
            if let (Some(first), Some(last)) = (in_range(first, integer), in_range(last, integer)) {
                list.push(Mapping { label, first, last });
            }
            if !self.accept(",") {
                self.mark("}")?;
                break;
            }
        }
        Ok(list)
    }

    /// `struct [NAME] { ... } [align(N)]` or `struct NAME`.
    fn structure(&mut self) -> Result<Typed, MetadataError> {
        let (name, offset) = self.tag_name("struct");
        if self.kind() != &TokenKind::Mark("{") {
            return match name {
                Some(mut name) => {
                    self.stars(&mut name);
                    self.look_up_tag(&name, offset)
                }
                None => self.unexpected("{"),
            };
        }
        let (members, parts, depth) = self.members()?;
        let mut min_align = 1;
        if self.word() == Some("align") {
            self.advance();
            self.mark("(")?;
            let value = self.attribute_value()?;
            min_align = self.align_attribute(&value)?;
            self.mark(")")?;
        }
        let typed = Typed {
            class: StructClass {
                min_align,
                members,
                attributes: None,
            }
            .into(),
            parts,
            depth,
        };
        self.declare_tag(name, &typed, offset)?;
        Ok(typed)
    }

    /// `variant [NAME] [<TAG>] { ... }` or `variant NAME [<TAG>]`.
    fn variant(&mut self) -> Result<Typed, MetadataError> {
        let (name, offset) = self.tag_name("variant");
        let mut tag = Location {
            path: String::new(),
            route: None,
            offset,
            targets: Vec::new(),
        };
        if self.accept("<") {
            tag.offset = self.offset();
            tag.path = self.path()?;
            self.check_field_path(&tag.path, tag.offset, "enumeration")?;
            self.mark(">")?;
        }
        if self.kind() == &TokenKind::Mark("{") {
            let (options, parts, depth) = self.members()?;
            if options.is_empty() {
                return Err(self.error_at(offset, Kind::Variant("without options")));
            }
            let typed = Typed {
                class: VariantClass {
                    tag,
                    choice: Choice::Labels,
                    options,
                    attributes: None,
                }
                .into(),
                parts,
                depth,
            };
            self.declare_tag(name, &typed, offset)?;
            return Ok(typed);
        }
        let Some(name) = name else {
            return self.unexpected("{");
        };
        let mut typed = self.look_up_tag(&name, offset)?;
        if let FieldClass::Variant(class) = &mut typed.class
            && !tag.path.is_empty()
        {
            if !class.tag.path.is_empty() {
                return Err(self.error_at(tag.offset, Kind::Duplicate("tag of a variant")));
            }
            class.tag = tag;
        }
        Ok(typed)
    }

    /// The name after `struct`, `variant` or `enum`, prefixed with that word.
    fn tag_name(&mut self, what: &str) -> (Option<String>, usize) {
        let offset = self.offset();
        self.advance();
        match self.word() {
            Some(word) if !is_keyword(word) => {
                let name = format!("{what} {word}");
                self.advance();
                (Some(name), offset)
            }
            _ => (None, offset),
        }
    }

    fn declare_tag(
        &mut self,
        name: Option<String>,
        typed: &Typed,
        offset: usize,
    ) -> Result<(), MetadataError> {
        match name {
            Some(name) => {
                self.copied(typed.parts)?;
                self.declare(name, typed.clone(), offset)
            }
            None => Ok(()),
        }
    }

    fn look_up_tag(&mut self, name: &str, offset: usize) -> Result<Typed, MetadataError> {
        self.look_up(name)?
            .ok_or_else(|| self.error_at(offset, Kind::UnknownType))
    }
}

fn push_word(name: &mut String, word: &str) {
    if !name.is_empty() {
        name.push(' ');
    }
    name.push_str(word);
}

/// Converts `value` to the signedness of `integer`, if it fits.
fn in_range(value: i128, integer: IntegerClass) -> Option<Value64> {
    let (least, greatest) = integer.range();
    if value < least || value > greatest {
        None
    } else if integer.signed {
        i64::try_from(value).ok().map(Value64::Signed)
    } else {
        u64::try_from(value).ok().map(Value64::Unsigned)
    }
}
