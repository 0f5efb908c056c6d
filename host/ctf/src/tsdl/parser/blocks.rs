//! Parser of TSDL's blocks: `trace`, `env`, `clock`, `stream`, `event`.

use std::collections::{HashMap, HashSet};

use super::super::lexer::TokenKind;
use super::super::roles::assign_roles;
use super::{Attribute, Entry, Parser, Value};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    Clock, ClockId, EnvValue, EventClass, FieldClass, Scope, StreamClass, StructClass, Uuid,
};

impl Parser<'_> {
    pub(super) fn root(&mut self) -> Result<(), MetadataError> {
        let block = matches!(self.kind_at(1), TokenKind::Mark("{"));
        match self.word() {
            Some("trace") if block => self.trace(),
            Some("env") if block => self.env(),
            Some("clock") if block => self.clock(),
            Some("stream") if block => self.stream(),
            Some("event") if block => self.event(),
            Some("callsite") if block => {
                self.advance();
                self.entries(|_| {})?;
                self.mark(";")
            }
            Some("struct") if self.declares_tag() => {
                self.type_specifier()?;
                // A definition is complete at its brace; other readers also accept it without the semicolon.
                self.accept(";");
                Ok(())
            }
            _ => self.declaration(),
        }
    }

    /// Parses a type declaration outside of structures: an alias, or a tag without a field.
    pub(super) fn declaration(&mut self) -> Result<(), MetadataError> {
        if self.at_alias() {
            self.alias()
        } else if self.declares_tag() {
            self.type_specifier()?;
            self.mark(";")
        } else {
            self.unexpected("a block or a type declaration")
        }
    }

    fn trace(&mut self) -> Result<(), MetadataError> {
        let start = self.offset();
        self.advance();
        if std::mem::replace(&mut self.trace_seen, true) {
            return Err(self.error_at(start, Kind::Duplicate("trace block")));
        }
        let (mut major, mut minor, mut byte_order) = (false, false, false);
        for entry in self.block()? {
            match entry {
                Entry::Attribute(name, value) => match name.as_str() {
                    "major" if value.number() == Some(1) => major = true,
                    "major" => return Err(self.bad("major", "1", &value)),
                    "minor" if value.number() == Some(8) => minor = true,
                    "minor" => return Err(self.bad("minor", "8", &value)),
                    "uuid" => self.metadata.uuid = Some(self.uuid(&value)?),
                    "byte_order" if value.path() == Some("native") => {
                        return Err(self.bad("byte_order", "le, be or network", &value));
                    }
                    "byte_order" => {
                        self.metadata.byte_order = self.byte_order_attribute(&value)?;
                        byte_order = true;
                    }
                    _ => self.warn(name, value.offset),
                },
                Entry::Type(name, class, offset) if name == "packet.header" => {
                    self.metadata.packet_header =
                        Some(self.scope_root(class, offset, Scope::PacketHeader)?);
                }
                Entry::Type(name, _, offset) => self.warn(name, offset),
            }
        }
        let missing = [
            (major, "attribute major of trace"),
            (minor, "attribute minor of trace"),
            (byte_order, "attribute byte_order of trace"),
        ];
        match missing.iter().find(|(found, _)| !found) {
            Some((_, what)) => Err(self.error_at(start, Kind::Missing(what))),
            None => Ok(()),
        }
    }

    fn env(&mut self) -> Result<(), MetadataError> {
        self.advance();
        for entry in self.block()? {
            let Entry::Attribute(name, value) = entry else {
                continue;
            };
            let index = self.metadata.environment.len();
            if self.environment.insert(name.clone(), index).is_some() {
                return Err(self.error_at(value.offset, Kind::Duplicate("environment entry")));
            }
            let entry = match &value.value {
                Value::Number(number) => match i64::try_from(*number) {
                    Ok(number) => EnvValue::Integer(number),
                    Err(_) => return Err(self.bad("env", "a signed 64-bit integer", &value)),
                },
                Value::Text(text) | Value::Path(text) => EnvValue::Text(text.clone()),
            };
            self.metadata.environment.push((name, entry));
        }
        Ok(())
    }

    /// A number from the environment that can be a length.
    pub fn env_number(&self, name: &str) -> Option<u64> {
        let index = *self.environment.get(name)?;
        match self.metadata.environment.get(index)? {
            (_, EnvValue::Integer(number)) => u64::try_from(*number).ok(),
            (_, EnvValue::Text(_)) => None,
        }
    }

    fn clock(&mut self) -> Result<(), MetadataError> {
        let start = self.offset();
        self.advance();
        let mut clock = Clock::new("", 1_000_000_000);
        let mut named = false;
        for entry in self.block()? {
            let Entry::Attribute(name, value) = entry else {
                continue;
            };
            let number = value.number();
            let unsigned = number.and_then(|number| u64::try_from(number).ok());
            let signed = number.and_then(|number| i64::try_from(number).ok());
            match (name.as_str(), unsigned, signed, value.name()) {
                ("name", _, _, Some(name)) => {
                    name.clone_into(&mut clock.name);
                    named = true;
                }
                ("name", ..) => return Err(self.bad("name", "a name", &value)),
                ("uuid", ..) => clock.uuid = Some(self.uuid(&value)?),
                ("description", ..) => match value.text() {
                    Some(text) => clock.description = Some(text.to_owned()),
                    None => return Err(self.bad("description", "a text", &value)),
                },
                ("freq", Some(frequency @ 1..), ..) => clock.frequency = frequency,
                ("freq", ..) => return Err(self.bad("freq", "a positive number", &value)),
                ("precision", Some(precision), ..) => clock.precision = precision,
                ("precision", ..) => return Err(self.bad("precision", "a number", &value)),
                ("offset_s", _, Some(offset), _) => clock.offset_seconds = offset,
                ("offset_s", ..) => {
                    return Err(self.bad("offset_s", "a signed 64-bit number", &value));
                }
                ("offset", _, Some(offset), _) => clock.offset_ticks = offset,
                ("offset", ..) => return Err(self.bad("offset", "a signed 64-bit number", &value)),
                ("absolute", ..) => clock.absolute = self.flag_attribute("absolute", &value)?,
                _ => self.warn(name, value.offset),
            }
        }
        if !named {
            return Err(self.error_at(start, Kind::Missing("attribute name of clock")));
        }
        if !self.clock_names.insert(clock.name.clone()) {
            // babeltrace2's writer repeats the block for each stream class.
            let mut known = self.metadata.clocks.iter();
            return match known.any(|known| *known == clock) {
                true => Ok(()),
                false => Err(self.error_at(start, Kind::Duplicate("clock"))),
            };
        }
        self.metadata.clocks.push(clock);
        Ok(())
    }

    /// The id of the clock called `name`. If there is none, it is an invalid id, which matters only once a field uses
    /// it.
    fn clock_id(&self, name: &str) -> ClockId {
        self.clocks.get(name).copied().unwrap_or(ClockId(u32::MAX))
    }

    /// `map = clock.NAME.value`
    pub fn map_attribute(&self, value: &Attribute) -> Result<ClockId, MetadataError> {
        let name = value
            .path()
            .and_then(|path| path.strip_prefix("clock.")?.strip_suffix(".value"));
        match name {
            Some(name) if !name.is_empty() => Ok(self.clock_id(name)),
            _ => Err(self.bad("map", "clock.NAME.value", value)),
        }
    }

    fn stream(&mut self) -> Result<(), MetadataError> {
        let start = self.offset();
        self.advance();
        let (mut id, mut stream) = (None, StreamClass::default());
        for entry in self.block()? {
            match entry {
                Entry::Attribute(name, value) if name == "id" => id = Some(self.id("id", &value)?),
                Entry::Attribute(name, value) => self.warn(name, value.offset),
                Entry::Type(name, class, offset) => match name.as_str() {
                    "packet.context" => {
                        stream.packet_context =
                            Some(self.scope_root(class, offset, Scope::PacketContext)?);
                    }
                    "event.header" => {
                        stream.event_header =
                            Some(self.scope_root(class, offset, Scope::EventHeader)?)
                    }
                    "event.context" => {
                        stream.event_context =
                            Some(self.scope_root(class, offset, Scope::StreamEventContext)?);
                    }
                    _ => self.warn(name, offset),
                },
            }
        }
        stream.id = id.unwrap_or(0);
        self.streams.push((id, stream, start));
        Ok(())
    }

    fn event(&mut self) -> Result<(), MetadataError> {
        let start = self.offset();
        self.advance();
        let (mut id, mut stream_id, mut event) = (None, None, EventClass::default());
        for entry in self.block()? {
            match entry {
                Entry::Attribute(name, value) => match (name.as_str(), value.name()) {
                    ("id", _) => id = Some(self.id("id", &value)?),
                    ("stream_id", _) => stream_id = Some(self.id("stream_id", &value)?),
                    ("name", Some(name)) => name.clone_into(&mut event.name),
                    ("name", None) => return Err(self.bad("name", "a name", &value)),
                    ("loglevel", _) => match value
                        .number()
                        .and_then(|number| i64::try_from(number).ok())
                    {
                        Some(level) => event.log_level = Some(level),
                        None => return Err(self.bad("loglevel", "a signed 64-bit number", &value)),
                    },
                    ("model.emf.uri", _) => match value.text() {
                        Some(uri) => event.emf_uri = Some(uri.to_owned()),
                        None => return Err(self.bad("model.emf.uri", "a text", &value)),
                    },
                    _ => self.warn(name, value.offset),
                },
                Entry::Type(name, class, offset) => match name.as_str() {
                    "context" => {
                        event.context = Some(self.scope_root(class, offset, Scope::EventContext)?)
                    }
                    "fields" => {
                        event.fields = Some(self.scope_root(class, offset, Scope::EventFields)?)
                    }
                    _ => self.warn(name, offset),
                },
            }
        }
        event.id = id.unwrap_or(0);
        self.events.push((stream_id, id, event, start));
        Ok(())
    }

    /// Assigns events to their streams and performs the checks that need all blocks.
    pub(super) fn finish(&mut self) -> Result<(), MetadataError> {
        if !self.trace_seen {
            return Err(self.error(Kind::Missing("trace block")));
        }
        if self.streams.is_empty() {
            self.streams.push((Some(0), StreamClass::default(), 0));
        }
        let only = self.streams.len() == 1;
        let mut positions = HashMap::new();
        for (id, stream, offset) in std::mem::take(&mut self.streams) {
            if id.is_none() && !only {
                return Err(self.error_at(
                    offset,
                    Kind::Missing("attribute id of one stream of several"),
                ));
            }
            let position = self.metadata.streams.len();
            if positions.insert(stream.id, position).is_some() {
                return Err(self.error_at(offset, Kind::Duplicate("stream id")));
            }
            self.metadata.streams.push(stream);
        }
        let mut seen: Vec<(HashSet<u64>, bool)> =
            vec![Default::default(); self.metadata.streams.len()];
        for (stream_id, id, event, offset) in std::mem::take(&mut self.events) {
            let position = match stream_id {
                None if only => Some(0),
                None => {
                    return Err(self.error_at(
                        offset,
                        Kind::Missing("attribute stream_id of an event among several streams"),
                    ));
                }
                Some(wanted) => positions.get(&wanted).copied(),
            };
            let slot = position.and_then(|index| {
                Some((self.metadata.streams.get_mut(index)?, seen.get_mut(index)?))
            });
            let Some((stream, (ids, unnumbered))) = slot else {
                return Err(self.error_at(offset, Kind::Missing("stream of this event")));
            };
            *unnumbered |= id.is_none();
            let duplicate = !ids.insert(event.id);
            stream.events.push(event);
            if *unnumbered && stream.events.len() > 1 {
                return Err(self.error_at(
                    offset,
                    Kind::Missing("attribute id of one event of several"),
                ));
            }
            if duplicate {
                return Err(self.error_at(offset, Kind::Duplicate("event id")));
            }
        }
        self.map_implicit_clock();
        Ok(())
    }

    /// Assigns the only clock to integers whose names imply that they are times.
    ///
    /// Metadata without any clock may still have timestamps (Zephyr's does); they count nanoseconds, by the default
    /// frequency.
    fn map_implicit_clock(&mut self) {
        if self.metadata.clocks.len() > 1 {
            return;
        }
        let mut used = false;
        for stream in &mut self.metadata.streams {
            let header = stream
                .event_header
                .iter_mut()
                .flat_map(|class| &mut class.members);
            let context = stream
                .packet_context
                .iter_mut()
                .flat_map(|class| &mut class.members);
            let times = header
                .filter(|member| member.name == "timestamp")
                .chain(context.filter(|member| {
                    matches!(member.name.as_str(), "timestamp_begin" | "timestamp_end")
                }));
            for member in times {
                let integer = match &mut member.class {
                    FieldClass::Integer(class) => class,
                    FieldClass::Enumeration(class) => &mut class.integer,
                    _ => continue,
                };
                if integer.clock.is_none() && !integer.signed {
                    integer.clock = Some(ClockId(0));
                    used = true;
                }
            }
        }
        if used && self.metadata.clocks.is_empty() {
            self.metadata
                .clocks
                .push(Clock::new("default", 1_000_000_000));
        }
    }

    /// The root structure of a scope, with the roles that its names imply.
    fn scope_root(
        &mut self,
        class: FieldClass,
        offset: usize,
        scope: Scope,
    ) -> Result<StructClass, MetadataError> {
        let FieldClass::Struct(mut root) = class else {
            return Err(self.error_at(
                offset,
                Kind::Syntax {
                    expected: "a structure",
                    found: "another type",
                },
            ));
        };
        assign_roles(&mut root, scope);
        Ok(root)
    }

    fn id(&self, attribute: &'static str, value: &Attribute) -> Result<u64, MetadataError> {
        let number = value.number().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| self.bad(attribute, "an unsigned 64-bit number", value))
    }

    fn uuid(&self, value: &Attribute) -> Result<Uuid, MetadataError> {
        let parsed = value.text().and_then(Uuid::parse);
        parsed.ok_or_else(|| self.bad("uuid", "a UUID in quotes", value))
    }
}
