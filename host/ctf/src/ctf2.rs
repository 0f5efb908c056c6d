//! Reader of CTF 2 metadata: converts a sequence of JSON fragments to the model.
//!
//! Each fragment declares one thing (a clock, a stream class, an event class), and may refer only to earlier ones, so
//! fragments are processed in order. Unlike in TSDL names carry no meaning: roles, locations and selecting values are
//! explicit. It follows CTF2-SPEC-2.0rB.

mod about;
mod classes;
mod json;
mod print;
mod properties;

use std::collections::HashMap;

use about::{attributes, lttng};
pub(crate) use classes::CPU;
use classes::Place;
use json::{Data, Json};
pub(crate) use print::print;

use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    About, AttributesId, ByteOrder, Clock, ClockId, ClockOrigin, EnvValue, EventClass, FieldClass,
    Metadata, Scope, StreamClass, StructClass, Uuid,
};

/// The separator before each fragment (RFC 7464).
pub(crate) const SEPARATOR: char = '\u{1e}';

/// Parses the text of a metadata file.
pub(crate) fn parse(text: &str) -> Result<Metadata, MetadataError> {
    let mut reader = Fragments {
        text,
        metadata: Metadata::new(ByteOrder::Little),
        begun: false,
        trace: false,
        clocks: HashMap::new(),
        streams: HashMap::new(),
        aliases: HashMap::new(),
        identities: HashMap::new(),
        attributes: HashMap::new(),
        parts: 0,
    };
    let mut starts: Vec<usize> = text.match_indices(SEPARATOR).map(|(at, _)| at).collect();
    starts.push(text.len());
    for pair in starts.windows(2) {
        if let [before, end] = *pair {
            let start = before + SEPARATOR.len_utf8();
            // Separators may be repeated.
            if text.get(start..end).is_some_and(|it| !it.trim().is_empty()) {
                reader.fragment(&json::read(text, start, end)?)?;
            }
        }
    }
    reader.finish()
}

/// Fragment properties of drafts, which referred to clocks by name, named attributes differently, and gave trace classes
/// UUIDs.
const DRAFT_PROPERTIES: [&str; 3] = ["default-clock-class-name", "user-attributes", "uuid"];

/// Properties that every fragment and field class may have; none alters decoding.
const EVERYWHERE: [&str; 3] = ["type", "attributes", "extensions"];

/// Log levels of LTTng by number.
pub(crate) const LEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// An object that has only known properties.
#[derive(Clone, Copy)]
struct Object<'j> {
    members: &'j [(String, Json)],
    offset: usize,
}

impl<'j> Object<'j> {
    fn get(&self, name: &str) -> Option<&'j Json> {
        let mut found = self.members.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value)
    }
}

struct Fragments<'t> {
    text: &'t str,
    metadata: Metadata,
    /// Whether the preamble has been seen.
    begun: bool,
    /// Whether a trace class has been seen.
    trace: bool,
    /// Clock classes and data stream classes, by id.
    clocks: HashMap<String, ClockId>,
    streams: HashMap<u64, usize>,
    /// Named field classes. They are converted anew for each use, because roles and clocks depend on the place of use.
    aliases: HashMap<String, Json>,
    /// Identities of clocks: namespace, name and unique id, with the rest of their description.
    identities: HashMap<[String; 3], String>,
    /// The attributes of fields so far, shared because an alias may be used a thousand times.
    attributes: HashMap<String, AttributesId>,
    /// Number of field classes so far, counting those in aliases for each use.
    parts: u32,
}

type Read<T> = Result<T, MetadataError>;

impl Fragments<'_> {
    fn fail<T>(&self, at: &Json, kind: Kind) -> Read<T> {
        Err(kind.at(self.text, at.offset))
    }

    /// Creates the error for a property of the wrong kind or value.
    fn wrong<T>(&self, at: &Json, property: &'static str, expected: &'static str) -> Read<T> {
        self.fail(at, Kind::Property { property, expected })
    }

    /// Checks that `json` is an object with only `known` properties and those allowed everywhere.
    fn object<'j>(&self, json: &'j Json, known: &[&str]) -> Read<Object<'j>> {
        let Data::Object(members) = &json.data else {
            return self.fail(
                json,
                Kind::Syntax {
                    expected: "an object",
                    found: json.describe(),
                },
            );
        };
        for (name, value) in members {
            let name = name.as_str();
            if !known.contains(&name) && !EVERYWHERE.contains(&name) {
                let draft = DRAFT_PROPERTIES.iter().find(|draft| **draft == name);
                let kind = draft.map_or(Kind::UnknownProperty, |draft| Kind::Draft(draft));
                return self.fail(value, kind);
            }
            match (name, &value.data) {
                ("attributes", Data::Object(_)) => {}
                ("attributes", _) => return self.wrong(value, "attributes", "an object"),
                // An extension may alter decoding in any way, and this reader supports none.
                ("extensions", Data::Object(list)) if list.is_empty() => {}
                ("extensions", Data::Object(_)) => {
                    return self.fail(value, Kind::Unsupported("extension of CTF 2"));
                }
                ("extensions", _) => return self.wrong(value, "extensions", "an object"),
                _ => {}
            }
        }
        Ok(Object {
            members,
            offset: json.offset,
        })
    }

    /// Returns a required property.
    fn needed<'j>(&self, object: &Object<'j>, name: &'static str) -> Read<&'j Json> {
        let missing = || Kind::Missing(name).at(self.text, object.offset);
        object.get(name).ok_or_else(missing)
    }

    fn string<'j>(&self, object: &Object<'j>, name: &'static str) -> Read<Option<&'j str>> {
        match object.get(name) {
            None => Ok(None),
            Some(Json {
                data: Data::Text(text),
                ..
            }) => Ok(Some(text)),
            Some(other) => self.wrong(other, name, "a string"),
        }
    }

    /// Returns a nonnegative number, if the property exists.
    fn unsigned(&self, object: &Object<'_>, name: &'static str) -> Read<Option<u64>> {
        let Some(json) = object.get(name) else {
            return Ok(None);
        };
        let value = match json.data {
            Data::Integer(value) => u64::try_from(value).ok(),
            _ => None,
        };
        match value {
            Some(value) => Ok(Some(value)),
            None => self.wrong(json, name, "an unsigned 64-bit integer"),
        }
    }

    fn fragment(&mut self, json: &Json) -> Read<()> {
        let Data::Object(members) = &json.data else {
            return self.fail(
                json,
                Kind::Syntax {
                    expected: "a fragment",
                    found: json.describe(),
                },
            );
        };
        let about = Object {
            members,
            offset: json.offset,
        };
        let kind = match self.string(&about, "type")? {
            Some(kind) => kind,
            None => return self.fail(json, Kind::Missing("type of the fragment")),
        };
        if (kind == "preamble") == self.begun {
            return self.fail(
                json,
                if self.begun {
                    Kind::Duplicate("preamble")
                } else {
                    Kind::Missing("preamble at the beginning")
                },
            );
        }
        match kind {
            "preamble" => self.preamble(json),
            "field-class-alias" => self.alias(json),
            "trace-class" => self.trace_class(json),
            "clock-class" => self.clock_class(json),
            "data-stream-class" => self.stream_class(json),
            "event-record-class" => self.event_class(json),
            _ => self.fail(json, Kind::Unsupported("type of fragment")),
        }
    }

    fn preamble(&mut self, json: &Json) -> Read<()> {
        let about = self.object(json, &["version", "uuid"])?;
        self.begun = true;
        self.metadata.preamble_attributes = about.get("attributes").and_then(attributes);
        let version = self.needed(&about, "version")?;
        if version.data != Data::Integer(2) {
            return self.wrong(version, "version", "2");
        }
        if let Some(uuid) = about.get("uuid") {
            let Data::Array(bytes) = &uuid.data else {
                return self.wrong(uuid, "uuid", "16 bytes");
            };
            let bytes = bytes.iter().map(|byte| match byte.data {
                Data::Integer(byte) => u8::try_from(byte).ok(),
                _ => None,
            });
            let bytes: Option<Vec<u8>> = bytes.collect();
            match bytes.and_then(|bytes| bytes.try_into().ok()) {
                Some(bytes) => self.metadata.uuid = Some(Uuid(bytes)),
                None => return self.wrong(uuid, "uuid", "16 bytes"),
            }
        }
        Ok(())
    }

    fn alias(&mut self, json: &Json) -> Read<()> {
        let about = self.object(json, &["name", "field-class"])?;
        let Some(name) = self.string(&about, "name")? else {
            return self.fail(json, Kind::Missing("name"));
        };
        let class = self.needed(&about, "field-class")?;
        // An alias must be valid even if it is never used.
        self.class(class, &Place::default(), 1)?;
        if self
            .aliases
            .insert(name.to_owned(), class.clone())
            .is_some()
        {
            return self.fail(json, Kind::Duplicate("field class alias"));
        }
        Ok(())
    }

    /// Reads identity and attributes.
    fn about(&self, about: &Object<'_>) -> Read<About> {
        let text = |name| Ok(self.string(about, name)?.map(str::to_owned));
        Ok(About {
            namespace: text("namespace")?,
            name: text("name")?,
            uid: text("uid")?,
            attributes: about.get("attributes").and_then(attributes),
        })
    }

    /// Reads the attributes of a field class, member or option, if it has any.
    fn attributes(&mut self, about: &Object<'_>) -> Option<AttributesId> {
        let text = attributes(about.get("attributes")?)?;
        if let Some(known) = self.attributes.get(&text) {
            return Some(*known);
        }
        let id = self.metadata.attributes_id(text.clone());
        self.attributes.insert(text, id);
        Some(id)
    }

    fn trace_class(&mut self, json: &Json) -> Read<()> {
        let about = self.object(
            json,
            &[
                "namespace",
                "name",
                "uid",
                "environment",
                "packet-header-field-class",
            ],
        )?;
        if std::mem::replace(&mut self.trace, true) {
            return self.fail(json, Kind::Duplicate("trace class"));
        }
        if !self.metadata.streams.is_empty() {
            return self.fail(json, Kind::Missing("trace class before the stream classes"));
        }
        self.metadata.about = self.about(&about)?;
        if let Some(environment) = about.get("environment") {
            let Data::Object(entries) = &environment.data else {
                return self.wrong(environment, "environment", "an object");
            };
            for (name, value) in entries {
                let value = match &value.data {
                    Data::Text(text) => EnvValue::Text(text.clone()),
                    Data::Integer(number) if i64::try_from(*number).is_ok() => {
                        EnvValue::Integer(*number as i64)
                    }
                    _ => return self.wrong(value, "environment", "strings and 64-bit integers"),
                };
                self.metadata.environment.push((name.clone(), value));
            }
        }
        let place = Place::of(Scope::PacketHeader, None);
        self.metadata.packet_header = self.root(&about, "packet-header-field-class", &place)?;
        Ok(())
    }

    /// Reads the structure of a scope.
    fn root(
        &mut self,
        about: &Object<'_>,
        name: &'static str,
        place: &Place,
    ) -> Read<Option<StructClass>> {
        let Some(json) = about.get(name) else {
            return Ok(None);
        };
        match self.class(json, place, 1)? {
            FieldClass::Struct(class) => Ok(Some(class)),
            _ => self.wrong(json, name, "a structure"),
        }
    }

    fn clock_class(&mut self, json: &Json) -> Read<()> {
        let about = self.object(
            json,
            &[
                "id",
                "namespace",
                "name",
                "uid",
                "description",
                "frequency",
                "precision",
                "accuracy",
                "origin",
                "offset-from-origin",
            ],
        )?;
        let Some(id) = self.string(&about, "id")? else {
            let kind = match about.get("name") {
                Some(_) => Kind::Draft("a clock class with a name and no id"),
                None => Kind::Missing("id"),
            };
            return self.fail(json, kind);
        };
        let next = u32::try_from(self.metadata.clocks.len()).unwrap_or(u32::MAX);
        if self.clocks.insert(id.to_owned(), ClockId(next)).is_some() {
            return self.fail(json, Kind::Duplicate("clock class"));
        }
        let frequency = match self.unsigned(&about, "frequency")? {
            Some(frequency @ 1..) => frequency,
            Some(_) => {
                return self.wrong(
                    about.get("frequency").unwrap_or(json),
                    "frequency",
                    "more than 0",
                );
            }
            None => return self.fail(json, Kind::Missing("frequency")),
        };
        let mut clock = Clock::new(id, frequency);
        clock.description = self.string(&about, "description")?.map(str::to_owned);
        clock.precision = self.unsigned(&about, "precision")?.unwrap_or(0);
        clock.accuracy = self.unsigned(&about, "accuracy")?;
        match about.get("origin") {
            None => {}
            Some(Json {
                data: Data::Text(origin),
                ..
            }) if origin == "unix-epoch" => clock.absolute = true,
            Some(
                custom @ Json {
                    data: Data::Object(_),
                    ..
                },
            ) => {
                let custom = self.object(custom, &["namespace", "name", "uid"])?;
                self.needed(&custom, "name")?;
                self.needed(&custom, "uid")?;
                let who = self.about(&custom)?;
                clock.origin = Some(ClockOrigin {
                    namespace: who.namespace,
                    name: who.name.unwrap_or_default(),
                    uid: who.uid.unwrap_or_default(),
                });
            }
            Some(other) => return self.wrong(other, "origin", "\"unix-epoch\" or an object"),
        }
        if let Some(offset) = about.get("offset-from-origin") {
            let parts = self.object(offset, &["seconds", "cycles"])?;
            if let Some(seconds) = parts.get("seconds") {
                clock.offset_seconds = match seconds.data {
                    Data::Integer(value) if i64::try_from(value).is_ok() => value as i64,
                    _ => return self.wrong(seconds, "seconds", "a signed 64-bit integer"),
                };
            }
            let cycles = self.unsigned(&parts, "cycles")?.unwrap_or(0);
            match i64::try_from(cycles) {
                Ok(ticks) if cycles < frequency => clock.offset_ticks = ticks,
                _ => return self.wrong(offset, "cycles", "less than the frequency"),
            }
        }
        clock.about = self.about(&about)?;
        let About {
            namespace,
            name,
            uid,
            ..
        } = clock.about.clone();
        clock.uuid = uid.as_deref().and_then(Uuid::parse);
        let canonical = clock.uuid.map(|uuid| uuid.to_string());
        clock.about.name.take_if(|name| *name == clock.name);
        clock
            .about
            .uid
            .take_if(|uid| Some(&*uid) == canonical.as_ref());
        if let (Some(namespace), Some(name), Some(uid)) = (namespace, name, uid) {
            // Two descriptions of one clock must agree.
            let who = [namespace, name, uid];
            let origin = (clock.absolute, &clock.origin);
            let what = format!(
                "{frequency} {} {:?} {origin:?}",
                clock.precision, clock.accuracy
            );
            let known = self.identities.get(&who);
            if known.is_some_and(|other| *other != what) {
                return self.fail(json, Kind::Duplicate("clock with other properties"));
            }
            self.identities.insert(who, what);
        }
        self.metadata.clocks.push(clock);
        Ok(())
    }

    fn stream_class(&mut self, json: &Json) -> Read<()> {
        let about = self.object(
            json,
            &[
                "id",
                "namespace",
                "name",
                "uid",
                "default-clock-class-id",
                "packet-context-field-class",
                "event-record-header-field-class",
                "event-record-common-context-field-class",
            ],
        )?;
        let id = self.unsigned(&about, "id")?.unwrap_or(0);
        let next = self.metadata.streams.len();
        if self.streams.insert(id, next).is_some() {
            return self.fail(json, Kind::Duplicate("data stream class"));
        }
        let clock = match self.string(&about, "default-clock-class-id")? {
            None => None,
            Some(id) => match self.clocks.get(id) {
                Some(clock) => Some(*clock),
                None => return self.fail(json, Kind::Missing("default clock class")),
            },
        };
        let mut class = StreamClass::new(id);
        class.about = self.about(&about)?;
        let place = |scope| Place::of(scope, clock);
        let context = place(Scope::PacketContext);
        class.packet_context = self.root(&about, "packet-context-field-class", &context)?;
        let header = place(Scope::EventHeader);
        class.event_header = self.root(&about, "event-record-header-field-class", &header)?;
        let common = place(Scope::StreamEventContext);
        let name = "event-record-common-context-field-class";
        class.event_context = self.root(&about, name, &common)?;
        self.metadata.streams.push(class);
        Ok(())
    }

    fn event_class(&mut self, json: &Json) -> Read<()> {
        let about = self.object(
            json,
            &[
                "id",
                "data-stream-class-id",
                "namespace",
                "name",
                "uid",
                "specific-context-field-class",
                "payload-field-class",
            ],
        )?;
        let mut who = self.about(&about)?;
        let id = self.unsigned(&about, "id")?.unwrap_or(0);
        let mut class = EventClass::new(id, who.name.take().unwrap_or_default());
        (class.log_level, class.emf_uri, who.attributes) = lttng(&about);
        class.about = who;
        let place = Place::of(Scope::EventContext, None);
        class.context = self.root(&about, "specific-context-field-class", &place)?;
        let place = Place::of(Scope::EventFields, None);
        class.fields = self.root(&about, "payload-field-class", &place)?;
        let parent = self.unsigned(&about, "data-stream-class-id")?.unwrap_or(0);
        let stream = self.streams.get(&parent).copied();
        let Some(stream) = stream.and_then(|index| self.metadata.streams.get_mut(index)) else {
            return self.fail(json, Kind::Missing("data stream class of the event"));
        };
        stream.events.push(class);
        Ok(())
    }

    fn finish(mut self) -> Read<Metadata> {
        if self.metadata.streams.is_empty() {
            let kind = Kind::Missing("data stream class");
            return Err(kind.at(self.text, self.text.len()));
        }
        let resolved = self.metadata.resolve();
        resolved.map_err(|error| error.kind.at(self.text, error.offset))?;
        Ok(self.metadata)
    }
}
