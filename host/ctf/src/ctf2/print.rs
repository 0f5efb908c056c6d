//! Writer of CTF 2 metadata.
//!
//! Everything is explicit, as for CTF 1.8: no aliases, no defaults, and every location with its origin. The output is
//! parsed again before it is returned, so whatever CTF 2 cannot represent is an error and does not change its meaning.

use std::fmt::Write;

use super::about::{properties as about, property, with_lttng};
use super::json::quoted;
use super::properties::{bits, encoding, float, joined, labels, ranges, uuid_role};
use super::{LEVELS, SEPARATOR, classes::CPU};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    ArrayClass, AttributesId, Base, BlobClass, Choice, Clock, ClockId, EnvValue, EventClass,
    FieldClass, Form, IntegerClass, Length, Location, Mappings, Metadata, Role, Scope, StreamClass,
    StructClass, Target, VariantClass,
};

/// Writes the text of a metadata file.
pub(crate) fn print(metadata: &Metadata) -> Result<String, MetadataError> {
    let mut metadata = metadata.clone();
    metadata.resolve()?;
    let mut printer = Printer {
        metadata: &metadata,
        out: String::new(),
        stream: 0,
        event: 0,
        clock: None,
        scope: Scope::PacketHeader,
        steps: Vec::new(),
        around: 0,
    };
    printer.trace()?;
    for (index, stream) in metadata.streams.iter().enumerate() {
        printer.stream = index;
        printer.stream(stream)?;
        for (index, event) in stream.events.iter().enumerate() {
            printer.event = index;
            printer.event(stream, event)?;
        }
    }
    let text = printer.out;
    super::parse(&text).map_err(|error| error.kind.nowhere())?;
    Ok(text)
}

type Printed<T = String> = Result<T, MetadataError>;

fn unsupported<T>(what: &'static str) -> Printed<T> {
    Err(Kind::Unsupported(what).nowhere())
}

struct Printer<'m> {
    metadata: &'m Metadata,
    out: String,
    /// Indices of the current stream class and event class, and the clock of the stream class.
    stream: usize,
    event: usize,
    clock: Option<ClockId>,
    /// The current scope.
    scope: Scope,
    /// The path from its root to the current class, as [`Target::steps`], and the length of the path to the enclosing
    /// structure.
    steps: Vec<u32>,
    around: usize,
}

impl<'m> Printer<'m> {
    fn fragment(&mut self, kind: &str, properties: &[String]) {
        self.out.push(SEPARATOR);
        let _ = write!(self.out, "{{\"type\": \"{kind}\"");
        for property in properties {
            let _ = write!(self.out, ", {property}");
        }
        self.out.push_str("}\n");
    }

    fn trace(&mut self) -> Printed<()> {
        let metadata = self.metadata;
        let mut preamble = vec!["\"version\": 2".to_owned()];
        if let Some(uuid) = metadata.uuid {
            preamble.push(format!("\"uuid\": {:?}", uuid.0));
        }
        if let Some(text) = &metadata.preamble_attributes {
            preamble.push(property(text)?);
        }
        self.fragment("preamble", &preamble);
        let mut properties = about(&metadata.about)?;
        if !metadata.environment.is_empty() {
            let entries = metadata.environment.iter().map(|(name, value)| {
                let value = match value {
                    EnvValue::Integer(number) => number.to_string(),
                    EnvValue::Text(text) => quoted(text),
                };
                format!("{}: {value}", quoted(name))
            });
            properties.push(format!("\"environment\": {{{}}}", joined(entries)));
        }
        let header = metadata.packet_header.as_ref();
        self.root(
            &mut properties,
            "packet-header",
            Scope::PacketHeader,
            header,
        )?;
        self.fragment("trace-class", &properties);
        for clock in &metadata.clocks {
            self.clock(clock)?;
        }
        Ok(())
    }

    fn clock(&mut self, clock: &Clock) -> Printed<()> {
        let mut properties = vec![format!("\"id\": {}", quoted(&clock.name))];
        let mut who = clock.about.clone();
        who.name.get_or_insert_with(|| clock.name.clone());
        who.uid = who.uid.or_else(|| clock.uuid.map(|uuid| uuid.to_string()));
        properties.extend(about(&who)?);
        if let Some(description) = &clock.description {
            properties.push(format!("\"description\": {}", quoted(description)));
        }
        properties.push(format!("\"frequency\": {}", clock.frequency));
        properties.push(format!("\"precision\": {}", clock.precision));
        if let Some(accuracy) = clock.accuracy {
            properties.push(format!("\"accuracy\": {accuracy}"));
        }
        match &clock.origin {
            None if clock.absolute => properties.push("\"origin\": \"unix-epoch\"".to_owned()),
            None => {}
            Some(_) if clock.absolute => return unsupported("a clock with two origins"),
            Some(origin) => {
                let namespace = origin.namespace.as_ref();
                let namespace = namespace.map(|it| format!("\"namespace\": {}, ", quoted(it)));
                let (name, uid) = (quoted(&origin.name), quoted(&origin.uid));
                let namespace = namespace.unwrap_or_default();
                properties.push(format!(
                    "\"origin\": {{{namespace}\"name\": {name}, \"uid\": {uid}}}"
                ));
            }
        }
        // CTF 2 limits the tick offset to less than a second.
        let frequency = i128::from(clock.frequency);
        let ticks = i128::from(clock.offset_ticks);
        let seconds = i128::from(clock.offset_seconds) + ticks.div_euclid(frequency);
        let Ok(seconds) = i64::try_from(seconds) else {
            return unsupported("a clock offset of more than 64 bits of seconds");
        };
        let cycles = ticks.rem_euclid(frequency);
        properties.push(format!(
            "\"offset-from-origin\": {{\"seconds\": {seconds}, \"cycles\": {cycles}}}"
        ));
        self.fragment("clock-class", &properties);
        Ok(())
    }

    fn stream(&mut self, stream: &StreamClass) -> Printed<()> {
        let mut properties = vec![format!("\"id\": {}", stream.id)];
        properties.extend(about(&stream.about)?);
        self.clock = None;
        let roots = [
            (
                "packet-context",
                Scope::PacketContext,
                &stream.packet_context,
            ),
            (
                "event-record-header",
                Scope::EventHeader,
                &stream.event_header,
            ),
            (
                "event-record-common-context",
                Scope::StreamEventContext,
                &stream.event_context,
            ),
        ];
        for (name, scope, root) in roots {
            self.root(&mut properties, name, scope, root.as_ref())?;
        }
        let clock = self.clock.map(|clock| clock.0 as usize);
        if let Some(clock) = clock.and_then(|clock| self.metadata.clocks.get(clock)) {
            let id = quoted(&clock.name);
            properties.push(format!("\"default-clock-class-id\": {id}"));
        }
        self.fragment("data-stream-class", &properties);
        Ok(())
    }

    fn event(&mut self, stream: &StreamClass, event: &EventClass) -> Printed<()> {
        let mut properties = vec![
            format!("\"data-stream-class-id\": {}", stream.id),
            format!("\"id\": {}", event.id),
        ];
        if !event.name.is_empty() {
            properties.push(format!("\"name\": {}", quoted(&event.name)));
        }
        let mut who = event.about.clone();
        if who.name.is_some() {
            return unsupported("a second name of an event");
        }
        let mut attributes = Vec::new();
        if let Some(level) = event.log_level {
            let name = usize::try_from(level).ok().and_then(|it| LEVELS.get(it));
            match name {
                Some(name) => attributes.push(("log-level", (*name).to_owned())),
                None => return unsupported("a log level that LTTng does not have, in CTF 2"),
            }
        }
        if let Some(uri) = &event.emf_uri {
            attributes.push(("emf-uri", uri.clone()));
        }
        if !attributes.is_empty() {
            who.attributes = Some(with_lttng(who.attributes.as_deref(), attributes)?);
        }
        properties.extend(about(&who)?);
        let roots = [
            ("specific-context", Scope::EventContext, &event.context),
            ("payload", Scope::EventFields, &event.fields),
        ];
        for (name, scope, root) in roots {
            self.root(&mut properties, name, scope, root.as_ref())?;
        }
        self.fragment("event-record-class", &properties);
        Ok(())
    }

    fn root(
        &mut self,
        properties: &mut Vec<String>,
        name: &str,
        scope: Scope,
        root: Option<&StructClass>,
    ) -> Printed<()> {
        self.scope = scope;
        self.steps.clear();
        if let Some(root) = root {
            let class = self.structure(root, true)?;
            properties.push(format!("\"{name}-field-class\": {class}"));
        }
        Ok(())
    }

    fn structure(&mut self, class: &StructClass, top: bool) -> Printed {
        let mut members = Vec::with_capacity(class.members.len());
        let outer = std::mem::replace(&mut self.around, self.steps.len());
        for (index, member) in (0u32..).zip(&class.members) {
            let (name, class) = (&member.name, &member.class);
            let cpu = top && self.scope == Scope::PacketContext && name == CPU;
            let implied = cpu && matches!(class, FieldClass::Integer(class) if !class.signed);
            let role = class.as_integer().and_then(|integer| integer.role);
            if implied != (role == Some(Role::CpuId)) && (role.is_none() || !implied) {
                return unsupported("a CPU number of another name or class than cpu_id, in CTF 2");
            }
            self.steps.push(index);
            let class = self.class(class)?;
            self.steps.pop();
            let attributes = self.attributes(member.attributes)?;
            members.push(format!(
                "{{\"name\": {}, \"field-class\": {class}{attributes}}}",
                quoted(name)
            ));
        }
        self.around = outer;
        let (align, members) = (class.min_align.max(1), joined(members));
        let attributes = self.attributes(class.attributes)?;
        Ok(format!(
            "{{\"type\": \"structure\", \"minimum-alignment\": {align}, \"member-classes\": [{members}]{attributes}}}"
        ))
    }

    /// The property for attributes, to append to an object.
    fn attributes(&self, id: Option<AttributesId>) -> Printed {
        if id.is_none() {
            return Ok(String::new());
        }
        match self.metadata.attributes_of(id) {
            Some(text) => Ok(format!(", {}", property(text)?)),
            None => unsupported("a field with attributes that the metadata does not have"),
        }
    }

    fn class(&mut self, class: &FieldClass) -> Printed {
        let text = self.bare_class(class)?;
        // A structure writes its own, since it may be the root of a scope.
        let own = class.attributes();
        match text.strip_suffix('}') {
            Some(open) if own.is_some() && !matches!(class, FieldClass::Struct(_)) => {
                Ok(format!("{open}{}}}", self.attributes(own)?))
            }
            _ => Ok(text),
        }
    }

    /// A class without its attributes.
    fn bare_class(&mut self, class: &FieldClass) -> Printed {
        match class {
            FieldClass::Integer(class) => self.integer(class, None),
            FieldClass::Enumeration(class) => self.integer(&class.integer, Some(&class.mappings)),
            FieldClass::Boolean(class) => Ok(bits("fixed-length-boolean", class, &[])),
            FieldClass::BitMap(class) if class.flags.list().is_empty() => {
                Ok(bits("fixed-length-bit-array", &class.integer, &[]))
            }
            FieldClass::BitMap(class) => {
                let flags = format!("\"flags\": {}", labels(&class.flags));
                Ok(bits("fixed-length-bit-map", &class.integer, &[flags]))
            }
            FieldClass::Float(class) => Ok(float(class)),
            FieldClass::String(class) => Ok(format!(
                "{{\"type\": \"null-terminated-string\", \"encoding\": \"{}\"}}",
                encoding(class.encoding)
            )),
            FieldClass::Struct(class) => self.structure(class, false),
            FieldClass::Array(class) => self.array(class),
            FieldClass::Variant(class) => self.variant(class),
            FieldClass::Optional(class) => {
                let selector = self.location(&class.selector)?;
                let ranges = class.ranges.as_ref().map_or(String::new(), |set| {
                    format!(", \"selector-field-ranges\": {}", ranges(set))
                });
                let class = self.class(&class.class)?;
                Ok(format!(
                    "{{\"type\": \"optional\", \"selector-field-location\": {selector}{ranges}, \"field-class\": {class}}}"
                ))
            }
            FieldClass::Blob(class) => {
                let length = self.length(&class.length, "blob")?;
                let media_type = quoted(&class.media_type);
                // The role requires a UUID in the preamble to compare with.
                let role = uuid_role(class.is_uuid && self.metadata.uuid.is_some());
                Ok(format!("{{{length}, \"media-type\": {media_type}{role}}}"))
            }
        }
    }

    /// The type of a class with a length, and the length.
    fn length(&self, length: &Length, what: &str) -> Printed {
        Ok(match length {
            Length::Fixed(length) => {
                format!("\"type\": \"static-length-{what}\", \"length\": {length}")
            }
            Length::Field(location) => {
                let location = self.location(location)?;
                format!(
                    "\"type\": \"dynamic-length-{what}\", \"length-field-location\": {location}"
                )
            }
        })
    }

    fn array(&mut self, class: &ArrayClass) -> Printed {
        if class.is_uuid {
            let bytes = BlobClass {
                length: class.length.clone(),
                media_type: "application/octet-stream".to_owned(),
                is_uuid: true,
                attributes: None,
            };
            return self.bare_class(&bytes.into());
        }
        if let Some(text) = class.text() {
            if class.align() > 8 {
                return unsupported("text that is aligned to more than bytes, in CTF 2");
            }
            let length = self.length(&class.length, "string")?;
            return Ok(format!(
                "{{{length}, \"encoding\": \"{}\"}}",
                encoding(text)
            ));
        }
        let length = self.length(&class.length, "array")?;
        let element = self.class(&class.element)?;
        let align = class.min_align;
        Ok(format!(
            "{{{length}, \"minimum-alignment\": {align}, \"element-field-class\": {element}}}"
        ))
    }

    fn variant(&mut self, class: &VariantClass) -> Printed {
        let tag = class.tag.targets.first().and_then(|target| self.at(target));
        let mut options = Vec::with_capacity(class.options.len());
        for (index, option) in class.options.iter().enumerate() {
            let set: Vec<_> = match (&class.choice, tag) {
                (Choice::Ranges(sets), _) => sets.get(index).cloned().unwrap_or_default(),
                (Choice::Labels, Some(FieldClass::Enumeration(tag))) => {
                    option.selected_by(tag).collect()
                }
                (Choice::Labels, _) => Vec::new(),
            };
            // An option that no value selects is legal only in CTF 1.8, and never present.
            if set.is_empty() {
                continue;
            }
            let name = if option.name.is_empty() {
                String::new()
            } else {
                format!("\"name\": {}, ", quoted(&option.name))
            };
            self.steps.push(u32::try_from(index).unwrap_or(u32::MAX));
            let class = self.class(&option.class)?;
            self.steps.pop();
            let attributes = self.attributes(option.attributes)?;
            options.push(format!(
                "{{{name}\"selector-field-ranges\": {}, \"field-class\": {class}{attributes}}}",
                ranges(&set)
            ));
        }
        let (tag, options) = (self.location(&class.tag)?, joined(options));
        Ok(format!(
            "{{\"type\": \"variant\", \"selector-field-location\": {tag}, \"options\": [{options}]}}"
        ))
    }

    fn at(&self, target: &Target) -> Option<&'m FieldClass> {
        let root = self.metadata.scope(self.stream, self.event, target.scope)?;
        root.at(&target.steps)
    }

    /// The names of the members on the path to a field; variants take no name.
    fn names(&self, target: &Target) -> Option<Vec<String>> {
        let root = self.metadata.scope(self.stream, self.event, target.scope)?;
        let mut names = Vec::new();
        for (index, step) in target.steps.iter().enumerate() {
            let before = target.steps.get(..index)?;
            let around = if before.is_empty() {
                Some(root)
            } else {
                match root.at(before)? {
                    FieldClass::Struct(class) => Some(class),
                    _ => None,
                }
            };
            if let Some(class) = around {
                names.push(quoted(&class.members.get(*step as usize)?.name));
            }
        }
        Some(names)
    }

    fn location(&self, location: &Location) -> Printed {
        let mut ways = location.targets.iter().map(|target| self.names(target));
        let (Some(first), Some(Some(names))) = (location.targets.first(), ways.next()) else {
            return unsupported("a location that leads nowhere");
        };
        // All targets must have the same path.
        if !ways.all(|way| way.as_ref() == Some(&names)) {
            return unsupported("a location of several paths, in CTF 2");
        }
        // Inside a structure that is not the root, the path is relative to that if possible: it then has one step,
        // which is all that some readers support.
        let around = self.steps.get(..self.around).unwrap_or_default();
        if let ([_], [.., name], Some((_, before))) = (
            location.targets.as_slice(),
            names.as_slice(),
            first.steps.split_last(),
        ) && first.scope == self.scope
            && !around.is_empty()
            && before == around
        {
            return Ok(format!("{{\"path\": [{name}]}}"));
        }
        let origin = match first.scope {
            Scope::PacketHeader => "packet-header",
            Scope::PacketContext => "packet-context",
            Scope::EventHeader => "event-record-header",
            Scope::StreamEventContext => "event-record-common-context",
            Scope::EventContext => "event-record-specific-context",
            Scope::EventFields => "event-record-payload",
        };
        let path = joined(names);
        Ok(format!("{{\"origin\": \"{origin}\", \"path\": [{path}]}}"))
    }

    fn integer(&mut self, class: &IntegerClass, mappings: Option<&Mappings>) -> Printed {
        let base = match class.base {
            Base::Binary => 2,
            Base::Octal => 8,
            Base::Decimal => 10,
            Base::Hexadecimal => 16,
        };
        let mut properties = vec![format!("\"preferred-display-base\": {base}")];
        if let Some(mappings) = mappings {
            properties.push(format!("\"mappings\": {}", labels(mappings)));
        }
        if let Some(role) = self.role(class)? {
            if class.signed {
                return unsupported("a signed integer with a role, in CTF 2");
            }
            properties.push(format!("\"roles\": [\"{role}\"]"));
        }
        let sign = if class.signed { "signed" } else { "unsigned" };
        Ok(if class.form == Form::Variable {
            let properties = joined(properties);
            format!("{{\"type\": \"variable-length-{sign}-integer\", {properties}}}")
        } else {
            bits(&format!("fixed-length-{sign}-integer"), class, &properties)
        })
    }

    /// The role of an integer. The clock is that of the stream, and updated by its role alone.
    fn role(&mut self, class: &IntegerClass) -> Printed<Option<&'static str>> {
        let stamped = matches!(class.role, Some(Role::TimestampBegin | Role::TimestampEnd));
        let header = self.scope == Scope::EventHeader && class.role.is_none();
        if stamped != class.clock.is_some() && !(header && class.clock.is_some()) {
            return unsupported(
                "a clock value that is no timestamp of a packet or event, in CTF 2",
            );
        }
        if class.clock.is_some() {
            if self.clock.is_some() && self.clock != class.clock {
                return unsupported("a stream with two clocks, in CTF 2");
            }
            self.clock = class.clock;
        }
        Ok(match class.role {
            None if class.clock.is_some() => Some("default-clock-timestamp"),
            None | Some(Role::CpuId) => None,
            Some(Role::Magic) => Some("packet-magic-number"),
            Some(Role::StreamId) => Some("data-stream-class-id"),
            Some(Role::StreamInstanceId) => Some("data-stream-id"),
            Some(Role::PacketSize) => Some("packet-total-length"),
            Some(Role::ContentSize) => Some("packet-content-length"),
            Some(Role::TimestampBegin) => Some("default-clock-timestamp"),
            Some(Role::TimestampEnd) => Some("packet-end-default-clock-timestamp"),
            Some(Role::EventsDiscarded) => Some("discarded-event-record-counter-snapshot"),
            Some(Role::PacketSeqNum) => Some("packet-sequence-number"),
            Some(Role::EventId) => Some("event-record-class-id"),
        })
    }
}
