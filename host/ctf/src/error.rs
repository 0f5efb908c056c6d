//! What can go wrong, said so that it can be found.
//!
//! Errors about content are `Copy`: they are made on paths that must not allocate, and kept in statistics by the
//! thousand. They carry where they happened, what was expected and what was found, as far as each applies.

use std::path::PathBuf;

use thiserror::Error;

use crate::metadata::Scope;
use crate::read::Origin;

/// Metadata that cannot be used, with the place in its text.
///
/// Names in the kinds are those of the format at hand: attributes and blocks in CTF 1.8, properties and fragments in CTF 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("metadata{}: {kind}", place(*.line, *.column))]
pub struct MetadataError {
    /// What is wrong.
    pub kind: MetadataErrorKind,
    /// Where, in bytes from the start of the text (of the joined contents when the metadata is packetized).
    pub offset: usize,
    /// Line, counted from 1; 0 when there is no text.
    pub line: u32,
    /// Column in characters, counted from 1; 0 when there is no text.
    pub column: u32,
}

/// Where in a text; nothing where there is none.
fn place(line: u32, column: u32) -> String {
    if line == 0 {
        return String::new();
    }
    format!(", line {line}, column {column}")
}

/// What is wrong with metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetadataErrorKind {
    /// The bytes are not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// The header of a metadata packet has a wrong value.
    #[error("metadata packet: expected {field} {expected}, found {found}")]
    Packet {
        /// Which field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: u64,
    },
    /// A character that begins no token.
    #[error("unexpected character {0:?}")]
    Character(char),
    /// A comment or text that is never closed.
    #[error("{0} without an end")]
    Unterminated(&'static str),
    /// A number that is malformed or does not fit.
    #[error("invalid number, expected {0}")]
    Number(&'static str),
    /// Another token stands here than the grammar wants.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// What the grammar wants.
        expected: &'static str,
        /// The kind of token that is there.
        found: &'static str,
    },
    /// A keyword of TSDL stands where a field or type gets its name. (Words of C's types are taken, as some writers use
    /// them.)
    #[error("a keyword can't be a name; writers put `_` before it")]
    Keyword,
    /// A zero byte in the text. Other readers stop there, so what follows would mean different things.
    #[error("a zero byte in the text")]
    Zero,
    /// The packets of the metadata have another byte order than the trace that they describe.
    #[error("metadata packets: expected {expected}, the byte order of the trace, found {found}")]
    PacketOrder {
        /// That of the trace.
        expected: &'static str,
        /// That of the packets' headers.
        found: &'static str,
    },
    /// A type name that has not been declared in any enclosing scope.
    #[error("unknown type name")]
    UnknownType,
    /// A name that is declared twice in one scope.
    #[error("{0} declared twice")]
    Duplicate(&'static str),
    /// Something that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An attribute has a value that it cannot have.
    #[error("attribute {attribute}: expected {expected}")]
    Attribute {
        /// Which attribute.
        attribute: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A property of a CTF 2 fragment or field class has a value that it cannot have.
    #[error("property {property}: expected {expected}")]
    Property {
        /// Which property.
        property: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A property that CTF 2 does not have at this place.
    #[error("unknown property")]
    UnknownProperty,
    /// Something that drafts of CTF 2 had (CTF2-SPECRC), and CTF 2.0 has not.
    #[error("{0} is of a draft of CTF 2, expected metadata of CTF 2.0")]
    Draft(&'static str),
    /// A legal construct that this crate does not decode.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    /// A value of an enumeration does not fit its integer, or ends before it starts.
    #[error("enumeration value out of the range of its integer")]
    EnumerationRange,
    /// The location of a length or tag leads nowhere.
    #[error("no field for this length or tag, expected an earlier {0} that is always present")]
    Location(&'static str),
    /// A variant without options that its tag can select, or without a tag.
    #[error("variant {0}")]
    Variant(&'static str),
    /// Declarations are nested too deeply.
    #[error("nested more than {0} levels deep")]
    Depth(u32),
    /// The types expand to more parts than is sane: metadata that was made to exhaust memory.
    #[error("types expand to more than {0} parts")]
    Size(u32),
}

impl MetadataErrorKind {
    /// The error at byte `offset` of `text`.
    pub(crate) fn at(self, text: &str, offset: usize) -> MetadataError {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        MetadataError {
            kind: self,
            offset,
            line: count(before.bytes().filter(|&byte| byte == b'\n').count() + 1),
            column: count(before.get(line_start..).unwrap_or("").chars().count() + 1),
        }
    }

    /// The error where there is no text: in metadata built by hand.
    pub(crate) const fn nowhere(self) -> MetadataError {
        MetadataError {
            kind: self,
            offset: 0,
            line: 0,
            column: 0,
        }
    }
}

/// A packet or event that cannot be decoded, with its place in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("packet {packet}, event {event}, byte {}: {kind}", offset / 8)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Where, in bits from the start of the stream.
    pub offset: u64,
    /// Number of the packet in the stream, from 0.
    pub packet: u64,
    /// Number of the event in its packet, from 0; events already decoded count, so 0 also stands for the packet's own
    /// fields.
    pub event: u64,
}

/// What is wrong with a packet or event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A field reaches beyond the content of its packet.
    #[error("a field needs {needed} bits, the packet has {left} left")]
    BeyondContent {
        /// Bits that the field takes.
        needed: u64,
        /// Bits left before the end of the content.
        left: u64,
    },
    /// The stream ends inside a packet.
    #[error("the stream ends {missing} bits before the end of the packet")]
    Truncated {
        /// Bits that the packet says it has and that are not there.
        missing: u64,
    },
    /// The packet header does not start with the magic number.
    #[error("magic number: expected 0xc1fc1fc1, found {found:#x}")]
    Magic {
        /// What is there.
        found: u64,
    },
    /// The packet header has another UUID than the metadata: the stream belongs to another trace.
    #[error(
        "the stream belongs to another trace: its packet header has another UUID than the metadata"
    )]
    ForeignUuid,
    /// The packet names a stream class that the metadata does not have.
    #[error("unknown stream class {found}")]
    UnknownStream {
        /// The id.
        found: u64,
    },
    /// The event names an event class that the metadata does not have.
    #[error("unknown event class {found}")]
    UnknownEvent {
        /// The id.
        found: u64,
    },
    /// A packet size that cannot be.
    #[error(
        "packet of {packet} bits with {content} bits of content: expected whole bytes, and at least {least} bits"
    )]
    PacketSize {
        /// Size with padding as the packet states it.
        packet: u64,
        /// Size without padding as the packet states it.
        content: u64,
        /// What the header and context alone take.
        least: u64,
    },
    /// The tag of a variant selects no option.
    #[error("{scope:?}: no variant option for tag value {found}")]
    VariantTag {
        /// Scope of the variant.
        scope: Scope,
        /// The raw value of the tag.
        found: u64,
    },
    /// The field that holds a length or tag is in an option that is not selected, or is negative.
    #[error("{scope:?}: the length or tag of this field is not there")]
    NoSelector {
        /// Scope of the field.
        scope: Scope,
    },
    /// An integer of variable size has a value of more than 64 bits.
    #[error("a variable-length integer of more than 64 bits")]
    VariableSize,
    /// A text does not consist of whole characters.
    #[error("a text of {found} bytes, expected a multiple of {expected}")]
    Characters {
        /// The size of a character in bytes.
        expected: u32,
        /// The size of the text in bytes.
        found: u64,
    },
    /// Two fields share a byte and differ in byte order.
    #[error("byte order changes inside a byte")]
    ByteOrder,
    /// An event takes no space: there would be no end of them.
    #[error("an event of no size")]
    EmptyEvent,
    /// Arrays claim to have very many elements that take no space.
    #[error("{found} array elements of no size, at most {limit} are believed")]
    TooManyEmpty {
        /// The limit.
        limit: u64,
        /// How many there would be, as far as they have been counted.
        found: u64,
    },
    /// A single event or packet header is larger than a reader is willing to hold in memory.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The input could not be read.
    #[error("reading: {0}")]
    Io(std::io::ErrorKind),
}

/// A stream, among those that are merged, that cannot be decoded further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("trace {}, stream {}: {error}", origin.trace, origin.stream)]
pub struct StreamError {
    /// Which stream.
    pub origin: Origin,
    /// What is wrong with it.
    pub error: DecodeError,
}

/// A trace that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or directory cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A name in a trace directory leads to a pipe, a socket or a device: reading it could wait for ever, or
    /// never end.
    #[error("{path}: expected a regular file, found {found}")]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The directory holds no trace, nor does any below it.
    #[error("{path}: no file named metadata here or below")]
    NoTrace {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The metadata of a trace is wrong.
    #[error("{path}: {source}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: MetadataError,
    },
}

/// A trace directory that cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A file or directory cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The directory holds files, which would become part of the trace.
    #[error("{path}: expected no directory or an empty one")]
    NotEmpty {
        /// Which.
        path: PathBuf,
    },
    /// The metadata is wrong, or cannot be said in the wanted version of CTF.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Something that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output failed.
    #[error("writing: {0}")]
    Io(#[from] std::io::Error),
    /// A value does not suit its field.
    #[error("{scope:?}: {error}")]
    Field {
        /// The scope of the field.
        scope: Scope,
        /// What does not suit.
        error: FieldError,
    },
    /// There is no stream class or event class at this position.
    #[error("no {what} at position {index}")]
    NoClass {
        /// Which kind of class.
        what: &'static str,
        /// The position that was asked for.
        index: usize,
    },
    /// Packets and events come in the wrong order.
    #[error("{0}")]
    Order(&'static str),
}

/// A value that does not suit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The field is of another kind.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// What the field is.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// A number does not fit.
    #[error("{found} does not fit {} {size}-bit integer", if *signed { "a signed" } else { "an unsigned" })]
    Range {
        /// Size of the field in bits.
        size: u32,
        /// Whether it is signed.
        signed: bool,
        /// What was given.
        found: i128,
    },
    /// A structure has another number of members, or an array another number of elements than its length says.
    #[error("expected {expected} values, found {found}")]
    Count {
        /// What there should be.
        expected: u64,
        /// What was given.
        found: u64,
    },
    /// A string has a zero byte, which would end it.
    #[error("a zero byte in a string")]
    Zero,
    /// The tag that was written selects another option of the variant, or none.
    #[error("another variant option than the tag selects")]
    Option,
    /// A time cannot be distinguished from an earlier or later one by the bits of the clock that the field has: it is before the
    /// last one, or too far behind it. A new packet can begin at any time.
    #[error("time {to} does not follow {from} by the {size} bits of the field")]
    Time {
        /// The clock before, in ticks.
        from: u64,
        /// The time to write, in ticks.
        to: u64,
        /// Bits of the field.
        size: u32,
    },
    /// Two fields of different byte order would share a byte.
    #[error("byte order changes inside a byte")]
    ByteOrder,
    /// What this crate does not write.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
}
