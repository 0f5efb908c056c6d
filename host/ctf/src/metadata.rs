//! Metadata model: the layout of a trace, as the trace describes it.
//!
//! One model represents CTF 1.8 (written in TSDL) and CTF 2. [`Metadata::parse`] reads it from text; programs build it
//! by hand for the [writer](crate::StreamWriter). It is plain data: everything is public, and nothing depends on the
//! syntax that it was read from.

mod about;
mod clock;
mod enumeration;
mod fields;
mod location;
mod packets;
mod resolve;
pub mod standard;

pub use about::{About, AttributesId, ClockOrigin};
pub(crate) use clock::Scale;
pub use clock::{Clock, ClockId};
pub use enumeration::{Mapping, Mappings};
pub use fields::{
    ArrayClass, Base, BitMapClass, BlobClass, Choice, Encoding, EnumerationClass, FieldClass,
    FloatClass, Form, IntegerClass, Length, Member, OptionalClass, Role, StringClass, StructClass,
    VariantClass,
};
pub use location::{Location, Route, Scope, Target};

use crate::error::MetadataError;
pub use crate::tsdl::Warning;

/// Byte order of multi-byte fields, and with it the bit order within a byte: a little-endian field fills bytes from the
/// least significant bit, a big-endian one from the most significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte and bit first.
    Little,
    /// Most significant byte and bit first.
    Big,
}

impl ByteOrder {
    /// Its name in metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        }
    }
}

/// A 64-bit integer of either signedness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value64 {
    /// The value of an unsigned field.
    Unsigned(u64),
    /// The value of a signed field.
    Signed(i64),
}

impl Value64 {
    /// The number, in a type wide enough for both.
    #[must_use]
    pub const fn widen(self) -> i128 {
        match self {
            Self::Unsigned(value) => value as i128,
            Self::Signed(value) => value as i128,
        }
    }

    /// The value, unless it is negative.
    #[must_use]
    pub const fn as_u64(self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) if value >= 0 => Some(value as u64),
            Self::Signed(_) => None,
        }
    }

    /// The value, if it fits a signed 64-bit integer.
    #[must_use]
    pub const fn as_i64(self) -> Option<i64> {
        match self {
            Self::Signed(value) => Some(value),
            Self::Unsigned(value) if value <= i64::MAX as u64 => Some(value as i64),
            Self::Unsigned(_) => None,
        }
    }
}

/// A universally unique identifier (RFC 4122), its bytes in the order of the notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses the usual notation: `2a6422d0-6cee-11e0-8c08-cb07d7b3a564`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let groups = [8, 4, 4, 4, 12];
        let mut digits = String::with_capacity(32);
        let mut parts = text.split('-');
        for length in groups {
            let part = parts.next().filter(|part| part.len() == length)?;
            digits.push_str(part);
        }
        if parts.next().is_some() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Versions of CTF. They differ in their metadata, and in the field classes that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// CTF 1.8, described in TSDL.
    Ctf18,
    /// CTF 2, described in JSON fragments.
    Ctf2,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ctf18 => "CTF 1.8",
            Self::Ctf2 => "CTF 2",
        })
    }
}

/// A value in the environment of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
}

/// Metadata of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// Default byte order of fields.
    pub byte_order: ByteOrder,
    /// Identity of the trace.
    pub uuid: Option<Uuid>,
    /// Further facts about the trace.
    pub about: About,
    /// User attributes of the preamble, in CTF 2: the text of a JSON object.
    pub preamble_attributes: Option<String>,
    /// User attributes of fields, in CTF 2, indexed by [`AttributesId`]: texts of JSON objects.
    /// [`attributes_id`](Self::attributes_id) adds to them.
    pub attributes: Vec<String>,
    /// Environment of the trace, in order.
    pub environment: Vec<(String, EnvValue)>,
    /// The clocks, indexed by [`ClockId`].
    pub clocks: Vec<Clock>,
    /// Fields at the start of every packet.
    pub packet_header: Option<StructClass>,
    /// Classes of streams.
    pub streams: Vec<StreamClass>,
}

impl Metadata {
    /// Creates metadata without clocks and streams, to be completed by the caller.
    #[must_use]
    pub const fn new(byte_order: ByteOrder) -> Self {
        Self {
            byte_order,
            uuid: None,
            about: About::NONE,
            preamble_attributes: None,
            attributes: Vec::new(),
            environment: Vec::new(),
            clocks: Vec::new(),
            packet_header: None,
            streams: Vec::new(),
        }
    }

    /// Parses a metadata file: CTF 1.8 text, plain or in metadata packets, or CTF 2 fragments.
    ///
    /// In CTF 1.8, unknown attributes are harmless and become [warnings](Parsed::warnings).
    ///
    /// # Errors
    /// The first error, with its line and column.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, MetadataError> {
        let (text, packet_order) = packets::unpack(bytes)?;
        let (metadata, warnings) = if text.starts_with(crate::ctf2::SEPARATOR) {
            (crate::ctf2::parse(&text)?, Vec::new())
        } else {
            crate::tsdl::parse(&text)?
        };
        if let Some(found) = packet_order.filter(|order| *order != metadata.byte_order) {
            let kind = crate::error::MetadataErrorKind::PacketOrder {
                expected: metadata.byte_order.name(),
                found: found.name(),
            };
            return Err(kind.nowhere());
        }
        Ok(Parsed {
            metadata,
            warnings,
            text: text.into_owned(),
        })
    }

    /// Writes the metadata as CTF 1.8 text, for the file `metadata` of a trace directory.
    ///
    /// # Errors
    /// When CTF 1.8 cannot represent something: a name that is not a C identifier, a role that does not match the name
    /// of its field.
    pub fn to_tsdl(&self) -> Result<String, MetadataError> {
        crate::tsdl::print(self)
    }

    /// Writes the metadata as CTF 2 fragments, for the file `metadata` of a trace directory. The streams are the same
    /// in both.
    ///
    /// # Errors
    /// When CTF 2 cannot represent something: two clocks in one stream, clock values outside packet contexts and event
    /// headers, a variant with two options that share a value.
    pub fn to_ctf2(&self) -> Result<String, MetadataError> {
        crate::ctf2::print(self)
    }

    /// Writes the metadata in a version of CTF, for the file `metadata` of a trace directory.
    ///
    /// # Errors
    /// Those of [`to_tsdl`](Self::to_tsdl) or [`to_ctf2`](Self::to_ctf2).
    pub fn to_text(&self, version: Version) -> Result<String, MetadataError> {
        match version {
            Version::Ctf18 => self.to_tsdl(),
            Version::Ctf2 => self.to_ctf2(),
        }
    }

    /// Adds user attributes that fields may have then: the text of a JSON object.
    ///
    /// ```
    /// # use kymo_ctf::metadata::{ByteOrder, IntegerClass, Metadata, StructClass};
    /// let mut metadata = Metadata::new(ByteOrder::Little);
    /// let mut class = IntegerClass::unsigned(16, ByteOrder::Little);
    /// class.attributes = Some(metadata.attributes_id(r#"{"example.com": {"unit": "mV"}}"#));
    /// let fields = StructClass::new().with("voltage", class);
    /// # assert_eq!(metadata.attributes.len(), 1);
    /// # assert!(metadata.attributes_of(class.attributes).is_some_and(|text| text.contains("mV")));
    /// ```
    pub fn attributes_id(&mut self, text: impl Into<String>) -> AttributesId {
        let next = u32::try_from(self.attributes.len()).unwrap_or(u32::MAX);
        self.attributes.push(text.into());
        AttributesId(next)
    }

    /// The text of the attributes of a field.
    #[must_use]
    pub fn attributes_of(&self, id: Option<AttributesId>) -> Option<&str> {
        let index = usize::try_from(id?.0).ok()?;
        self.attributes.get(index).map(String::as_str)
    }

    /// The value of `name` in the environment.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<&EnvValue> {
        self.environment
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }
}

/// Result of [`Metadata::parse`].
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The model, with all locations resolved.
    pub metadata: Metadata,
    /// Parts that were not understood and ignored.
    pub warnings: Vec<Warning>,
    /// The text without metadata packets, to which offsets of errors and warnings refer.
    pub text: String,
}

/// A class of streams: the common layout of their packets and events.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamClass {
    /// Its id in packet headers.
    pub id: u64,
    /// Further facts about it.
    pub about: About,
    /// Fields after the packet header.
    pub packet_context: Option<StructClass>,
    /// Fields at the start of every event.
    pub event_header: Option<StructClass>,
    /// Fields after the event header in every event.
    pub event_context: Option<StructClass>,
    /// Classes of events.
    pub events: Vec<EventClass>,
}

impl StreamClass {
    /// Creates a stream class without any fields, to be completed by the caller.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self {
            id,
            about: About::NONE,
            packet_context: None,
            event_header: None,
            event_context: None,
            events: Vec::new(),
        }
    }
}

impl EventClass {
    /// Creates an event class without any fields, to be completed by the caller.
    #[must_use]
    pub const fn new(id: u64, name: String) -> Self {
        Self {
            id,
            name,
            about: About::NONE,
            log_level: None,
            emf_uri: None,
            context: None,
            fields: None,
        }
    }
}

/// A class of events.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventClass {
    /// Its id in event headers.
    pub id: u64,
    /// Its name; empty when the metadata gives none.
    pub name: String,
    /// Further facts about it.
    pub about: About,
    /// Severity, as numbered by `syslog` or LTTng.
    pub log_level: Option<i64>,
    /// Address of the event's description (Eclipse Modeling Framework).
    pub emf_uri: Option<String>,
    /// Fields between the stream's event context and the payload.
    pub context: Option<StructClass>,
    /// The payload.
    pub fields: Option<StructClass>,
}

/// Whether TSDL reserves `name`, so that no field can have that name.
#[must_use]
pub fn is_keyword(name: &str) -> bool {
    const KEYWORDS: [&str; 26] = [
        "align",
        "callsite",
        "const",
        "char",
        "clock",
        "double",
        "enum",
        "env",
        "event",
        "floating_point",
        "float",
        "integer",
        "int",
        "long",
        "short",
        "signed",
        "stream",
        "string",
        "struct",
        "trace",
        "typealias",
        "typedef",
        "unsigned",
        "variant",
        "void",
        "_Bool",
    ];
    KEYWORDS.contains(&name) || matches!(name, "_Complex" | "_Imaginary")
}
