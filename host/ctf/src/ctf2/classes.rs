//! Reader of CTF 2 field classes.

use std::sync::Arc;

use super::json::{Data, Json};
use super::{Fragments, Object, Read};
use crate::error::MetadataErrorKind as Kind;
use crate::metadata::{
    ArrayClass, Base, BitMapClass, BlobClass, ByteOrder, Choice, ClockId, Encoding,
    EnumerationClass, FieldClass, FloatClass, Form, IntegerClass, Length, Location, Mapping,
    Mappings, Member, OptionalClass, Role, Route, Scope, StringClass, StructClass, Value64,
    VariantClass,
};
use crate::tsdl::{MAX_DEPTH, MAX_PARTS};

/// Types of drafts, in which enumerations were types of their own.
const DRAFT_TYPES: [&str; 4] = [
    "fixed-length-unsigned-enumeration",
    "fixed-length-signed-enumeration",
    "variable-length-unsigned-enumeration",
    "variable-length-signed-enumeration",
];

/// Place where a field class is used, which determines the meaning of its roles.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// The scope; `None` for an alias, which is not used yet.
    scope: Option<Scope>,
    /// The clock of the stream class.
    clock: Option<ClockId>,
}

impl Place {
    pub const fn of(scope: Scope, clock: Option<ClockId>) -> Self {
        Self {
            scope: Some(scope),
            clock,
        }
    }
}

/// The name of the top-level packet context field that LTTng and Trace Compass use for the CPU. CTF 2 has no role for
/// it.
pub(crate) const CPU: &str = "cpu_id";

type Ranges = Vec<(Value64, Value64)>;

impl Fragments<'_> {
    /// Reads a field class, or the name of one.
    pub(super) fn class(&mut self, json: &Json, place: &Place, depth: u32) -> Read<FieldClass> {
        if depth > MAX_DEPTH {
            return self.fail(json, Kind::Depth(MAX_DEPTH));
        }
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return self.fail(json, Kind::Size(MAX_PARTS));
        }
        let members = match &json.data {
            Data::Text(name) => {
                let Some(class) = self.aliases.get(name).cloned() else {
                    return self.fail(json, Kind::UnknownType);
                };
                return self.class(&class, place, depth + 1);
            }
            Data::Object(members) => members,
            _ => {
                return self.fail(
                    json,
                    Kind::Syntax {
                        expected: "a field class",
                        found: json.describe(),
                    },
                );
            }
        };
        let about = Object {
            members,
            offset: json.offset,
        };
        let Some(kind) = self.string(&about, "type")? else {
            return self.fail(json, Kind::Missing("type of the field class"));
        };
        let mut class = match kind {
            "fixed-length-bit-array" => BitMapClass {
                integer: self.bits(json, &[])?,
                flags: Arc::default(),
            }
            .into(),
            "fixed-length-bit-map" => self.bit_map(json)?.into(),
            "fixed-length-boolean" => FieldClass::Boolean(self.bits(json, &[])?),
            "fixed-length-unsigned-integer" => {
                let class = self.bits(json, &["preferred-display-base", "mappings", "roles"])?;
                self.integer(&about, class, place)?
            }
            "fixed-length-signed-integer" => {
                let mut class = self.bits(json, &["preferred-display-base", "mappings"])?;
                class.signed = true;
                self.integer(&about, class, place)?
            }
            "fixed-length-floating-point-number" => self.float(json)?.into(),
            "variable-length-unsigned-integer" => {
                self.object(json, &["preferred-display-base", "mappings", "roles"])?;
                self.integer(&about, IntegerClass::variable(false), place)?
            }
            "variable-length-signed-integer" => {
                self.object(json, &["preferred-display-base", "mappings"])?;
                self.integer(&about, IntegerClass::variable(true), place)?
            }
            "null-terminated-string" => {
                self.object(json, &["encoding"])?;
                let encoding = self.encoding(&about)?;
                StringClass {
                    encoding,
                    attributes: None,
                }
                .into()
            }
            "static-length-string" | "dynamic-length-string" => {
                let length = self.length(json, &about, kind, &["encoding"])?;
                // Text with a length is an array of bytes that are characters.
                let unit = IntegerClass::unsigned(8, ByteOrder::Little);
                let mut class = ArrayClass::fixed(0, unit.encoding(self.encoding(&about)?));
                class.length = length;
                class.into()
            }
            "static-length-blob" | "dynamic-length-blob" => self.blob(json, &about, kind, place)?,
            "structure" => self.structure(json, place, depth)?.into(),
            "static-length-array" | "dynamic-length-array" => {
                let known = ["element-field-class", "minimum-alignment"];
                let length = self.length(json, &about, kind, &known)?;
                let element = self.needed(&about, "element-field-class")?;
                let mut class = ArrayClass::fixed(0, self.class(element, place, depth + 1)?);
                class.length = length;
                class.min_align = self.alignment(&about, "minimum-alignment")?;
                class.into()
            }
            "optional" => self.optional(json, place, depth)?.into(),
            "variant" => self.variant(json, place, depth)?.into(),
            other => {
                let draft = DRAFT_TYPES.iter().find(|draft| **draft == other);
                let kind = draft.map_or(Kind::UnknownType, |draft| Kind::Draft(draft));
                return self.fail(json, kind);
            }
        };
        // Checking an alias where it is declared is not a use of it.
        if place.scope.is_some() {
            class.set_attributes(self.attributes(&about));
        }
        Ok(class)
    }

    /// Reads the common properties of field classes with a fixed number of bits.
    fn bits(&self, json: &Json, more: &[&str]) -> Read<IntegerClass> {
        let known = [&["length", "byte-order", "bit-order", "alignment"], more].concat();
        let about = self.object(json, &known)?;
        let length = self.needed(&about, "length")?;
        let size = match self.unsigned(&about, "length")? {
            Some(size @ 1..=64) => size as u32,
            Some(65..) => {
                return self.fail(length, Kind::Unsupported("field of more than 64 bits"));
            }
            _ => return self.wrong(length, "length", "more than 0"),
        };
        let order = self.needed(&about, "byte-order")?;
        let byte_order = match self.string(&about, "byte-order")? {
            Some("little-endian") => ByteOrder::Little,
            Some("big-endian") => ByteOrder::Big,
            _ => return self.wrong(order, "byte-order", "little-endian or big-endian"),
        };
        let mut class = IntegerClass::unsigned(size, byte_order);
        class.form = match (self.string(&about, "bit-order")?, byte_order) {
            (None, _)
            | (Some("first-to-last"), ByteOrder::Little)
            | (Some("last-to-first"), ByteOrder::Big) => Form::Fixed,
            (Some("first-to-last" | "last-to-first"), _) => Form::Reversed,
            _ => {
                let at = about.get("bit-order").unwrap_or(json);
                return self.wrong(at, "bit-order", "first-to-last or last-to-first");
            }
        };
        class.align = self.alignment(&about, "alignment")?;
        Ok(class)
    }

    fn alignment(&self, about: &Object<'_>, name: &'static str) -> Read<u32> {
        let Some(json) = about.get(name) else {
            return Ok(1);
        };
        let value = self.unsigned(about, name)?;
        let value = value.and_then(|value| u32::try_from(value).ok());
        match value.filter(|value| value.is_power_of_two()) {
            Some(value) => Ok(value),
            None => self.wrong(json, name, "a power of two below 2^32"),
        }
    }

    fn float(&self, json: &Json) -> Read<FloatClass> {
        // The allowed sizes differ from those of integers, so check this one first.
        let about = self.object(json, &["length", "byte-order", "bit-order", "alignment"])?;
        let length = self.needed(&about, "length")?;
        match self.unsigned(&about, "length")? {
            Some(16 | 32 | 64) => {}
            Some(size) if size >= 128 && size.is_multiple_of(32) => {
                let kind = Kind::Unsupported("floating point number of 128 bits or more");
                return self.fail(length, kind);
            }
            _ => {
                return self.wrong(
                    length,
                    "length",
                    "16, 32, 64 or a multiple of 32 from 128 on",
                );
            }
        }
        let class = self.bits(json, &[])?;
        Ok(FloatClass {
            size: class.size,
            reversed: class.form == Form::Reversed,
            align: class.align,
            byte_order: class.byte_order,
            attributes: None,
        })
    }

    fn bit_map(&self, json: &Json) -> Read<BitMapClass> {
        let integer = self.bits(json, &["flags"])?;
        let about = self.object(
            json,
            &["length", "byte-order", "bit-order", "alignment", "flags"],
        )?;
        let flags = self.needed(&about, "flags")?;
        let list = self.mappings(flags, "flags", false)?;
        if list.is_empty() {
            return self.wrong(flags, "flags", "one flag or more");
        }
        let flags = Arc::new(Mappings::new(list));
        Ok(BitMapClass { integer, flags })
    }

    /// Reads base, labels and roles of an integer.
    fn integer(
        &self,
        about: &Object<'_>,
        mut class: IntegerClass,
        place: &Place,
    ) -> Read<FieldClass> {
        if let Some(base) = about.get("preferred-display-base") {
            class.base = match base.data {
                Data::Integer(2) => Base::Binary,
                Data::Integer(8) => Base::Octal,
                Data::Integer(10) => Base::Decimal,
                Data::Integer(16) => Base::Hexadecimal,
                _ => return self.wrong(base, "preferred-display-base", "2, 8, 10 or 16"),
            };
        }
        if let Some(roles) = about.get("roles") {
            for (role, at) in self.roles(roles)? {
                self.role(&mut class, role, at, place)?;
            }
        }
        let mappings = match about.get("mappings") {
            Some(mappings) => self.mappings(mappings, "mappings", class.signed)?,
            None => Vec::new(),
        };
        Ok(if mappings.is_empty() {
            class.into()
        } else {
            EnumerationClass {
                integer: class,
                mappings: Arc::new(Mappings::new(mappings)),
            }
            .into()
        })
    }

    fn roles<'j>(&self, json: &'j Json) -> Read<Vec<(&'j str, &'j Json)>> {
        let Data::Array(list) = &json.data else {
            return self.wrong(json, "roles", "an array of strings");
        };
        let roles = list.iter().map(|role| match &role.data {
            Data::Text(name) => Ok((name.as_str(), role)),
            _ => self.wrong(role, "roles", "an array of strings"),
        });
        roles.collect()
    }

    /// Assigns a role to an integer. Roles without a meaning in this scope are ignored, as unknown ones are.
    fn role(&self, class: &mut IntegerClass, role: &str, at: &Json, place: &Place) -> Read<()> {
        let Some(scope) = place.scope else {
            return Ok(());
        };
        let role = match (scope, role) {
            (Scope::PacketHeader, "packet-magic-number") => {
                if class.size != 32 || class.form == Form::Variable {
                    return self.wrong(at, "roles", "32 bits for a magic number");
                }
                Role::Magic
            }
            (Scope::PacketHeader, "data-stream-class-id") => Role::StreamId,
            (Scope::PacketHeader, "data-stream-id") => Role::StreamInstanceId,
            (Scope::PacketContext, "packet-total-length") => Role::PacketSize,
            (Scope::PacketContext, "packet-content-length") => Role::ContentSize,
            (Scope::PacketContext, "default-clock-timestamp") => Role::TimestampBegin,
            (Scope::PacketContext, "packet-end-default-clock-timestamp") => Role::TimestampEnd,
            (Scope::PacketContext, "packet-sequence-number") => Role::PacketSeqNum,
            (Scope::PacketContext, "discarded-event-record-counter-snapshot") => {
                Role::EventsDiscarded
            }
            (Scope::EventHeader, "event-record-class-id") => Role::EventId,
            (Scope::EventHeader, "default-clock-timestamp") => {
                class.clock = Some(self.clock(at, place)?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if matches!(role, Role::TimestampBegin | Role::TimestampEnd) {
            class.clock = Some(self.clock(at, place)?);
        }
        // A field with both length roles needs only one of them: the lengths are equal.
        let lengths = |role| matches!(role, Role::PacketSize | Role::ContentSize);
        match class.role {
            Some(other) if other != role && !(lengths(other) && lengths(role)) => {
                self.fail(at, Kind::Unsupported("field of these several roles"))
            }
            _ => {
                class.role = Some(role);
                Ok(())
            }
        }
    }

    fn clock(&self, at: &Json, place: &Place) -> Read<ClockId> {
        match place.clock {
            Some(clock) => Ok(clock),
            None => self.fail(at, Kind::Missing("default clock of the data stream class")),
        }
    }

    /// Reads labels with their ranges of values, or flags with their ranges of bits.
    fn mappings(&self, json: &Json, name: &'static str, signed: bool) -> Read<Vec<Mapping>> {
        let Data::Object(labels) = &json.data else {
            return self.wrong(json, name, "an object");
        };
        let mut list = Vec::new();
        for (label, ranges) in labels {
            for (first, last) in self.ranges(ranges, signed)? {
                list.push(Mapping {
                    label: label.clone(),
                    first,
                    last,
                });
            }
        }
        Ok(list)
    }

    /// Reads a set of integer ranges.
    fn ranges(&self, json: &Json, signed: bool) -> Read<Ranges> {
        let expected = "a list of ranges, each of first and last value";
        let list = match &json.data {
            Data::Array(list) if !list.is_empty() => list,
            _ => return self.wrong(json, "ranges", expected),
        };
        let value = |value: i128| {
            if signed {
                i64::try_from(value).ok().map(Value64::Signed)
            } else {
                u64::try_from(value).ok().map(Value64::Unsigned)
            }
        };
        let mut ranges = Vec::with_capacity(list.len());
        for range in list {
            let ends = match &range.data {
                Data::Array(ends) => ends.as_slice(),
                _ => &[],
            };
            let range = match ends {
                [
                    Json {
                        data: Data::Integer(first),
                        ..
                    },
                    Json {
                        data: Data::Integer(last),
                        ..
                    },
                ] if first <= last => value(*first).zip(value(*last)),
                _ => None,
            }
            .ok_or_else(|| {
                let property = "ranges";
                Kind::Property { property, expected }.at(self.text, range.offset)
            })?;
            ranges.push(range);
        }
        Ok(ranges)
    }

    /// Reads the values of a selector. Its signedness is known only once the selector is found; until then, either is
    /// accepted.
    fn selecting(&self, json: &Json) -> Read<Ranges> {
        self.ranges(json, true)
            .or_else(|_| self.ranges(json, false))
    }

    fn encoding(&self, about: &Object<'_>) -> Read<Encoding> {
        Ok(
            match (self.string(about, "encoding")?, about.get("encoding")) {
                (Some("utf-8"), _) | (_, None) => Encoding::Utf8,
                (Some("utf-16be"), _) => Encoding::Utf16Be,
                (Some("utf-16le"), _) => Encoding::Utf16Le,
                (Some("utf-32be"), _) => Encoding::Utf32Be,
                (Some("utf-32le"), _) => Encoding::Utf32Le,
                (_, Some(json)) => {
                    return self.wrong(json, "encoding", "utf-8, utf-16be/le or utf-32be/le");
                }
            },
        )
    }

    /// Reads a static or dynamic length, depending on the type; `more` are other allowed properties.
    fn length(&self, json: &Json, about: &Object<'_>, kind: &str, more: &[&str]) -> Read<Length> {
        if kind.starts_with("static") {
            self.object(json, &[&["length"], more].concat())?;
            let length = self.unsigned(about, "length")?;
            match length {
                Some(length) => Ok(Length::Fixed(length)),
                None => self.fail(json, Kind::Missing("length")),
            }
        } else {
            self.object(json, &[&["length-field-location"], more].concat())?;
            let location = self.needed(about, "length-field-location")?;
            Ok(Length::Field(self.location(location)?))
        }
    }

    fn blob(&self, json: &Json, about: &Object<'_>, kind: &str, place: &Place) -> Read<FieldClass> {
        let fixed = kind == "static-length-blob";
        let known: &[&str] = if fixed {
            &["media-type", "roles"]
        } else {
            &["media-type"]
        };
        let length = self.length(json, about, kind, known)?;
        let media_type = self.string(about, "media-type")?;
        let mut is_uuid = false;
        if let Some(roles) = about.get("roles") {
            let wanted = (Some(Scope::PacketHeader), "metadata-stream-uuid");
            is_uuid = self
                .roles(roles)?
                .iter()
                .any(|(role, _)| (place.scope, *role) == wanted);
            if is_uuid && length != Length::Fixed(16) {
                return self.wrong(roles, "roles", "16 bytes for a UUID");
            }
            if is_uuid && self.metadata.uuid.is_none() {
                return self.fail(roles, Kind::Missing("uuid of the preamble"));
            }
        }
        Ok(BlobClass {
            length,
            media_type: media_type.unwrap_or("application/octet-stream").to_owned(),
            is_uuid,
            attributes: None,
        }
        .into())
    }

    /// Reads the location of a length or selector.
    fn location(&self, json: &Json) -> Read<Location> {
        let about = self.object(json, &["origin", "path"])?;
        let origin = match (self.string(&about, "origin")?, about.get("origin")) {
            (_, None) => None,
            (Some("packet-header"), _) => Some(Scope::PacketHeader),
            (Some("packet-context"), _) => Some(Scope::PacketContext),
            (Some("event-record-header"), _) => Some(Scope::EventHeader),
            (Some("event-record-common-context"), _) => Some(Scope::StreamEventContext),
            (Some("event-record-specific-context"), _) => Some(Scope::EventContext),
            (Some("event-record-payload"), _) => Some(Scope::EventFields),
            (_, Some(other)) => return self.wrong(other, "origin", "the name of a scope"),
        };
        let path = self.needed(&about, "path")?;
        let steps = match &path.data {
            Data::Array(steps) => steps.as_slice(),
            _ => &[],
        };
        let steps = steps.iter().map(|step| match &step.data {
            Data::Text(name) => Some(Some(name.clone())),
            Data::Null => Some(None),
            _ => None,
        });
        let steps: Option<Vec<Option<String>>> = steps.collect();
        let expected = "names, or null for the structure around, the last one a name";
        let Some(path_steps) = steps.filter(|steps| matches!(steps.last(), Some(Some(_)))) else {
            return self.wrong(path, "path", expected);
        };
        let names: Vec<&str> = path_steps
            .iter()
            .map(|step| step.as_deref().unwrap_or("<around>"))
            .collect();
        Ok(Location {
            path: names.join("."),
            route: Some(Route {
                origin,
                path: path_steps,
            }),
            offset: json.offset,
            targets: Vec::new(),
        })
    }

    fn structure(&mut self, json: &Json, place: &Place, depth: u32) -> Read<StructClass> {
        let about = self.object(json, &["member-classes", "minimum-alignment"])?;
        let mut class = StructClass::new();
        class.min_align = self.alignment(&about, "minimum-alignment")?;
        let Some(list) = about.get("member-classes") else {
            return Ok(class);
        };
        let Data::Array(members) = &list.data else {
            return self.wrong(list, "member-classes", "an array");
        };
        let mut names = std::collections::HashSet::new();
        for json in members {
            let about = self.object(json, &["name", "field-class"])?;
            let Some(name) = self.string(&about, "name")? else {
                return self.fail(json, Kind::Missing("name"));
            };
            if !names.insert(name) {
                return self.fail(json, Kind::Duplicate("member"));
            }
            let mut member = self.class(self.needed(&about, "field-class")?, place, depth + 1)?;
            if let (FieldClass::Integer(integer), CPU, Some(Scope::PacketContext), 1) =
                (&mut member, name, place.scope, depth)
                && !integer.signed
            {
                integer.role = integer.role.or(Some(Role::CpuId));
            }
            let mut member = Member::new(name, member);
            if place.scope.is_some() {
                member.attributes = self.attributes(&about);
            }
            class.members.push(member);
        }
        Ok(class)
    }

    fn optional(&mut self, json: &Json, place: &Place, depth: u32) -> Read<OptionalClass> {
        let known = [
            "selector-field-location",
            "selector-field-ranges",
            "field-class",
        ];
        let about = self.object(json, &known)?;
        let selector = self.location(self.needed(&about, "selector-field-location")?)?;
        let ranges = about.get("selector-field-ranges");
        let ranges = ranges.map(|ranges| self.selecting(ranges)).transpose()?;
        let class = self.needed(&about, "field-class")?;
        let class = Box::new(self.class(class, place, depth + 1)?);
        Ok(OptionalClass {
            selector,
            ranges,
            class,
            attributes: None,
        })
    }

    fn variant(&mut self, json: &Json, place: &Place, depth: u32) -> Read<VariantClass> {
        let about = self.object(json, &["selector-field-location", "options"])?;
        let tag = self.location(self.needed(&about, "selector-field-location")?)?;
        let list = self.needed(&about, "options")?;
        let options = match &list.data {
            Data::Array(options) if !options.is_empty() => options,
            _ => return self.wrong(list, "options", "one option or more"),
        };
        let (mut members, mut sets) = (Vec::new(), Vec::new());
        let mut names = std::collections::HashSet::new();
        for json in options {
            let about = self.object(json, &["name", "selector-field-ranges", "field-class"])?;
            let name = self.string(&about, "name")?;
            if name.is_some_and(|name| !names.insert(name)) {
                return self.fail(json, Kind::Duplicate("option"));
            }
            sets.push(self.selecting(self.needed(&about, "selector-field-ranges")?)?);
            let class = self.class(self.needed(&about, "field-class")?, place, depth + 1)?;
            let mut option = Member::new(name.unwrap_or_default(), class);
            if place.scope.is_some() {
                option.attributes = self.attributes(&about);
            }
            members.push(option);
        }
        Ok(VariantClass {
            tag,
            choice: Choice::Ranges(sets),
            options: members,
            attributes: None,
        })
    }
}
