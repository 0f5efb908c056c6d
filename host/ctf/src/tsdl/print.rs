//! Writer of TSDL.
//!
//! Everything is explicit (sizes, alignments, byte orders) and nothing is aliased, so that no reader depends on
//! defaults.

use std::fmt::Write;

use super::roles::implied_role;
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    About, AttributesId, Base, ByteOrder, Choice, Encoding, EnvValue, EventClass, FieldClass, Form,
    IntegerClass, Length, Location, Member, Metadata, Scope, StreamClass, StructClass, Value64,
};

/// Writes the text of a metadata file.
pub(crate) fn print(metadata: &Metadata) -> Result<String, MetadataError> {
    let mut printer = Printer {
        metadata,
        out: String::from("/* CTF 1.8 */\n"),
        depth: 0,
        scope: Scope::PacketHeader,
    };
    printer.trace()?;
    printer.environment()?;
    printer.clocks()?;
    for stream in &metadata.streams {
        printer.stream(stream)?;
        for event in &stream.events {
            printer.event(stream, event)?;
        }
    }
    Ok(printer.out)
}

struct Printer<'m> {
    metadata: &'m Metadata,
    out: String,
    depth: usize,
    scope: Scope,
}

type Printed = Result<(), MetadataError>;

impl Printer<'_> {
    /// A new line, indented.
    fn line(&mut self, text: &str) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n('\t', self.depth));
        self.out.push_str(text);
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.out.push_str(" {");
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("};");
    }

    fn trace(&mut self) -> Printed {
        check_about(&self.metadata.about)?;
        if self.metadata.preamble_attributes.is_some() {
            return Err(refused("attributes of the preamble, in CTF 1.8"));
        }
        self.open("trace");
        self.line("major = 1;");
        self.line("minor = 8;");
        if let Some(uuid) = self.metadata.uuid {
            self.line(&format!("uuid = \"{uuid}\";"));
        }
        self.line(&format!(
            "byte_order = {};",
            order(self.metadata.byte_order)
        ));
        self.scope(
            "packet.header",
            Scope::PacketHeader,
            self.metadata.packet_header.as_ref(),
        )?;
        self.close();
        Ok(())
    }

    fn environment(&mut self) -> Printed {
        if self.metadata.environment.is_empty() {
            return Ok(());
        }
        self.open("env");
        for (name, value) in &self.metadata.environment {
            check_name(name)?;
            let value = match value {
                EnvValue::Integer(number) => number.to_string(),
                EnvValue::Text(text) => quoted(text),
            };
            self.line(&format!("{name} = {value};"));
        }
        self.close();
        Ok(())
    }

    fn clocks(&mut self) -> Printed {
        for clock in &self.metadata.clocks {
            check_about(&clock.about)?;
            if clock.accuracy.is_some() || clock.origin.is_some() {
                return Err(
                    Kind::Unsupported("accuracy and origin of a clock, in CTF 1.8").nowhere(),
                );
            }
            check_name(&clock.name)?;
            self.open("clock");
            self.line(&format!("name = {};", clock.name));
            if let Some(uuid) = clock.uuid {
                self.line(&format!("uuid = \"{uuid}\";"));
            }
            if let Some(description) = &clock.description {
                self.line(&format!("description = {};", quoted(description)));
            }
            self.line(&format!("freq = {};", clock.frequency));
            self.line(&format!("precision = {};", clock.precision));
            self.line(&format!("offset_s = {};", clock.offset_seconds));
            self.line(&format!("offset = {};", clock.offset_ticks));
            self.line(&format!("absolute = {};", clock.absolute));
            self.close();
        }
        Ok(())
    }

    fn stream(&mut self, stream: &StreamClass) -> Printed {
        check_about(&stream.about)?;
        self.open("stream");
        self.line(&format!("id = {};", stream.id));
        self.scope(
            "packet.context",
            Scope::PacketContext,
            stream.packet_context.as_ref(),
        )?;
        self.scope(
            "event.header",
            Scope::EventHeader,
            stream.event_header.as_ref(),
        )?;
        self.scope(
            "event.context",
            Scope::StreamEventContext,
            stream.event_context.as_ref(),
        )?;
        self.close();
        Ok(())
    }

    fn event(&mut self, stream: &StreamClass, event: &EventClass) -> Printed {
        check_about(&event.about)?;
        self.open("event");
        self.line(&format!("name = {};", quoted(&event.name)));
        self.line(&format!("id = {};", event.id));
        self.line(&format!("stream_id = {};", stream.id));
        if let Some(level) = event.log_level {
            self.line(&format!("loglevel = {level};"));
        }
        if let Some(uri) = &event.emf_uri {
            self.line(&format!("model.emf.uri = {};", quoted(uri)));
        }
        self.scope("context", Scope::EventContext, event.context.as_ref())?;
        self.scope("fields", Scope::EventFields, event.fields.as_ref())?;
        self.close();
        Ok(())
    }

    fn scope(&mut self, name: &str, scope: Scope, root: Option<&StructClass>) -> Printed {
        let Some(root) = root else { return Ok(()) };
        self.scope = scope;
        self.line(&format!("{name} := "));
        self.structure(root)?;
        self.out.push(';');
        Ok(())
    }

    fn structure(&mut self, class: &StructClass) -> Printed {
        check_attributes(class.attributes)?;
        self.out.push_str("struct ");
        self.members(&class.members)?;
        if class.min_align > 1 {
            let _ = write!(self.out, " align({})", class.min_align);
        }
        Ok(())
    }

    fn members(&mut self, members: &[Member]) -> Printed {
        self.out.push('{');
        self.depth += 1;
        for member in members {
            let nameless = matches!(member.class, FieldClass::Struct(_) | FieldClass::Variant(_));
            // Only these may be unnamed here; in CTF 2 any field may.
            if !member.declared.is_empty() || !nameless {
                check_name(&member.declared)?;
            }
            self.line("");
            self.member(member)?;
        }
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn member(&mut self, member: &Member) -> Printed {
        check_attributes(member.attributes)?;
        // The lengths of arrays follow the name, outer arrays first.
        let mut lengths = String::new();
        let mut class = &member.class;
        while let FieldClass::Array(array) = class {
            check_attributes(array.attributes)?;
            if array.min_align > array.element.align() {
                return Err(refused(
                    "an array that is aligned to more than its elements, in CTF 1.8",
                ));
            }
            let _ = match &array.length {
                Length::Fixed(length) => write!(lengths, "[{length}]"),
                Length::Field(location) => write!(lengths, "[{}]", path(location)?),
            };
            class = &array.element;
        }
        let implied = implied_role(self.scope, &member.declared);
        if class
            .as_integer()
            .is_some_and(|integer| integer.role != implied)
        {
            return Err(
                Kind::Unsupported("a field whose role and name disagree, in CTF 1.8").nowhere(),
            );
        }
        // The only clock of a trace is also that of fields with certain names, even without an attribute.
        let stamp = matches!(
            (self.scope, member.name.as_str()),
            (Scope::EventHeader, "timestamp")
                | (Scope::PacketContext, "timestamp_begin" | "timestamp_end")
        );
        if stamp
            && self.metadata.clocks.len() <= 1
            && class
                .as_integer()
                .is_some_and(|integer| integer.clock.is_none() && !integer.signed)
        {
            return Err(Kind::Unsupported(
                "a field that has the name of a timestamp and is none, in CTF 1.8",
            )
            .nowhere());
        }
        self.class(class)?;
        if !member.declared.is_empty() {
            let _ = write!(self.out, " {}{lengths}", member.declared);
        }
        self.out.push(';');
        Ok(())
    }

    fn class(&mut self, class: &FieldClass) -> Printed {
        check_attributes(class.attributes())?;
        match class {
            FieldClass::Integer(class) => self.integer(class),
            FieldClass::Enumeration(class) => {
                self.out.push_str("enum : ");
                self.integer(&class.integer)?;
                self.out.push_str(" {");
                self.depth += 1;
                let (least, greatest) = class.integer.range();
                for mapping in class.mappings.list() {
                    if mapping.first.widen() < least || mapping.last.widen() > greatest {
                        return Err(refused(
                            "a label for values that its number cannot have, in CTF 1.8",
                        ));
                    }
                    let (first, last) = (number(mapping.first), number(mapping.last));
                    let label = quoted(&mapping.label);
                    let range = if first == last {
                        first
                    } else {
                        format!("{first} ... {last}")
                    };
                    self.line(&format!("{label} = {range},"));
                }
                self.depth -= 1;
                self.line("}");
                Ok(())
            }
            FieldClass::Float(class) if class.reversed => Err(refused(REVERSED)),
            FieldClass::Float(class) => {
                let (exponent, mantissa) = match class.size {
                    16 => (5, 11),
                    32 => (8, 24),
                    _ => (11, 53),
                };
                let _ = write!(
                    self.out,
                    "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; byte_order = {}; align = {}; }}",
                    order(class.byte_order),
                    class.align
                );
                Ok(())
            }
            FieldClass::String(class) => {
                let _ = write!(
                    self.out,
                    "string {{ encoding = {}; }}",
                    encoding(class.encoding)?
                );
                Ok(())
            }
            FieldClass::Boolean(_) => Err(refused("a boolean, in CTF 1.8")),
            FieldClass::BitMap(_) => Err(refused("a bit array or bit map, in CTF 1.8")),
            FieldClass::Optional(_) => Err(refused("an optional field, in CTF 1.8")),
            FieldClass::Blob(_) => Err(refused("a blob, in CTF 1.8")),
            FieldClass::Struct(class) => self.structure(class),
            FieldClass::Variant(class) => {
                if class.choice != Choice::Labels {
                    let what = "a variant whose options are not selected by labels, in CTF 1.8";
                    return Err(refused(what));
                }
                let _ = write!(self.out, "variant <{}> ", path(&class.tag)?);
                self.members(&class.options)
            }
            // Arrays are written with their names.
            FieldClass::Array(_) => Ok(()),
        }
    }

    fn integer(&mut self, class: &IntegerClass) -> Printed {
        match class.form {
            Form::Fixed => {}
            Form::Reversed => return Err(refused(REVERSED)),
            Form::Variable => return Err(refused("an integer of variable size, in CTF 1.8")),
        }
        let base = match class.base {
            Base::Binary => 2,
            Base::Octal => 8,
            Base::Decimal => 10,
            Base::Hexadecimal => 16,
        };
        let _ = write!(
            self.out,
            "integer {{ size = {}; align = {}; signed = {}; byte_order = {}; base = {base}; encoding = {};",
            class.size,
            class.align,
            class.signed,
            order(class.byte_order),
            encoding(class.encoding)?,
        );
        if let Some(clock) = class
            .clock
            .and_then(|clock| self.metadata.clocks.get(clock.0 as usize))
        {
            let _ = write!(self.out, " map = clock.{}.value;", clock.name);
        }
        self.out.push_str(" }");
        Ok(())
    }
}

const fn order(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}

fn encoding(encoding: Encoding) -> Result<&'static str, MetadataError> {
    Ok(match encoding {
        Encoding::None => "none",
        Encoding::Utf8 => "UTF8",
        Encoding::Ascii => "ASCII",
        Encoding::Utf16Be | Encoding::Utf16Le | Encoding::Utf32Be | Encoding::Utf32Le => {
            return Err(refused("text in UTF-16 or UTF-32, in CTF 1.8"));
        }
    })
}

/// The path of a location, which CTF 1.8 requires to be searched for; it cannot represent a path stated step by step.
fn path(location: &Location) -> Result<&str, MetadataError> {
    match location.route {
        Some(_) => Err(refused(
            "a location that is stated step by step, in CTF 1.8",
        )),
        None => Ok(&location.path),
    }
}

/// Constructs that CTF 1.8 lacks.
const REVERSED: &str = "a number whose bits lie against its byte order, in CTF 1.8";

const fn refused(what: &'static str) -> MetadataError {
    Kind::Unsupported(what).nowhere()
}

fn number(value: Value64) -> String {
    value.widen().to_string()
}

/// Rejects facts that only CTF 2 can represent.
fn check_about(about: &About) -> Printed {
    if about.is_empty() {
        Ok(())
    } else {
        Err(Kind::Unsupported("identities and attributes, in CTF 1.8").nowhere())
    }
}

/// Rejects attributes of a field.
fn check_attributes(attributes: Option<AttributesId>) -> Printed {
    match attributes {
        None => Ok(()),
        Some(_) => Err(refused("attributes of fields, in CTF 1.8")),
    }
}

fn check_name(name: &str) -> Printed {
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Ok(())
    } else {
        Err(Kind::Unsupported("a name that is no C identifier, in CTF 1.8").nowhere())
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Three digits, so that a following digit is not part of it.
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\{:03o}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
