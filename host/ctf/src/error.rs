//! Error types, precise enough to locate each fault.
//!
//! Errors about content are `Copy`: they are created on paths that must not allocate, and statistics store thousands of
//! them. They carry the position, the expected value and the value found, as far as each applies.

use std::path::PathBuf;

use thiserror::Error;

use crate::metadata::Scope;
use crate::read::Origin;

/// Metadata that cannot be used, with the position in its text.
///
/// Names in the kinds are those of the format at hand: attributes and blocks in CTF 1.8, properties and fragments in
/// CTF 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("metadata{}: {kind}", place(*.line, *.column))]
pub struct MetadataError {
    /// What is wrong.
    pub kind: MetadataErrorKind,
    /// Position in bytes from the start of the text (of the joined contents when the metadata is packetized).
    pub offset: usize,
    /// Line, counted from 1; 0 when there is no text.
    pub line: u32,
    /// Column in characters, counted from 1; 0 when there is no text.
    pub column: u32,
}

/// Formats a position in a text; empty if there is no text.
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
        /// The field.
        field: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The value found.
        found: u64,
    },
    /// A character that no token begins with.
    #[error("unexpected character {0:?}")]
    Character(char),
    /// A comment or text without an end.
    #[error("{0} without an end")]
    Unterminated(&'static str),
    /// A number that is malformed or does not fit.
    #[error("invalid number, expected {0}")]
    Number(&'static str),
    /// A token that the grammar does not allow here.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// What the grammar allows.
        expected: &'static str,
        /// The kind of token found.
        found: &'static str,
    },
    /// A keyword of TSDL used as the name of a field or type. (Keywords of C's types are accepted, as some writers use
    /// them.)
    #[error("a keyword can't be a name; writers put `_` before it")]
    Keyword,
    /// A zero byte in the text. Other readers stop there, so they would read different metadata.
    #[error("a zero byte in the text")]
    Zero,
    /// The packets of the metadata have a byte order other than that of the trace that they describe.
    #[error("metadata packets: expected {expected}, the byte order of the trace, found {found}")]
    PacketOrder {
        /// The byte order of the trace.
        expected: &'static str,
        /// The byte order of the packets' headers.
        found: &'static str,
    },
    /// A type name that no enclosing scope declares.
    #[error("unknown type name")]
    UnknownType,
    /// A name that is declared twice in one scope.
    #[error("{0} declared twice")]
    Duplicate(&'static str),
    /// A required part is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An invalid value of an attribute.
    #[error("attribute {attribute}: expected {expected}")]
    Attribute {
        /// The attribute.
        attribute: &'static str,
        /// What it accepts.
        expected: &'static str,
    },
    /// An invalid value of a property of a CTF 2 fragment or field class.
    #[error("property {property}: expected {expected}")]
    Property {
        /// The property.
        property: &'static str,
        /// What it accepts.
        expected: &'static str,
    },
    /// A property that CTF 2 does not define here.
    #[error("unknown property")]
    UnknownProperty,
    /// A construct of drafts of CTF 2 (CTF2-SPECRC) that CTF 2.0 does not have.
    #[error("{0} is of a draft of CTF 2, expected metadata of CTF 2.0")]
    Draft(&'static str),
    /// A legal construct that this crate does not decode.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    /// A value of an enumeration does not fit its integer, or ends before it starts.
    #[error("enumeration value out of the range of its integer")]
    EnumerationRange,
    /// The location of a length or tag leads to no field.
    #[error("no field for this length or tag, expected an earlier {0} that is always present")]
    Location(&'static str),
    /// A variant without options that its tag can select, or without a tag.
    #[error("variant {0}")]
    Variant(&'static str),
    /// Declarations are nested too deeply.
    #[error("nested more than {0} levels deep")]
    Depth(u32),
    /// The types expand to too many parts: metadata made to exhaust memory.
    #[error("types expand to more than {0} parts")]
    Size(u32),
}

impl MetadataErrorKind {
    /// Creates the error at byte `offset` of `text`.
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

    /// Creates the error for metadata without a text, built by hand.
    pub(crate) const fn nowhere(self) -> MetadataError {
        MetadataError {
            kind: self,
            offset: 0,
            line: 0,
            column: 0,
        }
    }
}

/// A packet or event that cannot be decoded, with its position in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("packet {packet}, event {event}, byte {}: {kind}", offset / 8)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Position in bits from the start of the file.
    pub offset: u64,
    /// Number of the file among those of the stream, from 0: see [`Trace::files`](crate::Trace::files).
    pub file: u32,
    /// Number of the packet in the stream, from 0.
    pub packet: u64,
    /// Number of the event in its packet, from 0. It is the number of events decoded before, so 0 also stands for the
    /// packet's own fields.
    pub event: u64,
}

/// What is wrong with a packet or event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A field extends beyond the content of its packet.
    #[error("a field needs {needed} bits, the packet has {left} left")]
    BeyondContent {
        /// Size of the field in bits.
        needed: u64,
        /// Bits remaining up to the end of the content.
        left: u64,
    },
    /// The stream ends inside a packet.
    #[error("the stream ends {missing} bits before the end of the packet")]
    Truncated {
        /// Bits that the packet's size includes and the stream lacks.
        missing: u64,
    },
    /// The packet header does not start with the magic number.
    #[error("magic number: expected 0xc1fc1fc1, found {found:#x}")]
    Magic {
        /// The value found.
        found: u64,
    },
    /// The packet header has a UUID other than that of the metadata: the stream belongs to another trace.
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
    /// An impossible packet size.
    #[error(
        "packet of {packet} bits with {content} bits of content: expected whole bytes, and at least {least} bits"
    )]
    PacketSize {
        /// Stated size with padding.
        packet: u64,
        /// Stated size without padding.
        content: u64,
        /// Size of the header and context alone.
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
    /// The field that holds a length or tag is negative, or in an option that is not selected.
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
    /// An event that takes no space: a packet could hold endlessly many.
    #[error("an event of no size")]
    EmptyEvent,
    /// Arrays with too many elements that take no space.
    #[error("{found} array elements of no size, at most {limit} are believed")]
    TooManyEmpty {
        /// The limit.
        limit: u64,
        /// The number, as far as it was counted.
        found: u64,
    },
    /// A single event or packet header that is larger than a reader holds in memory.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The input could not be read.
    #[error("reading: {0}")]
    Io(std::io::ErrorKind),
}

/// A stream of a merge that cannot be decoded further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("trace {}, stream {}: {error}", origin.trace, origin.stream)]
pub struct StreamError {
    /// The stream.
    pub origin: Origin,
    /// The error.
    pub error: DecodeError,
}

/// A trace that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or directory cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A name in a trace directory refers to a pipe, a socket or a device: reading it could block forever, or never
    /// end.
    #[error("{path}: expected a regular file, found {found}")]
    NotAFile {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Neither the directory nor any below it holds a trace.
    #[error("{path}: no file named metadata here or below")]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// The metadata of a trace is wrong.
    #[error("{path}: {source}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// The error in it.
        source: MetadataError,
    },
}

/// A trace directory that cannot be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A file or directory cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The directory is not empty; its files would become part of the trace.
    #[error("{path}: expected no directory or an empty one")]
    NotEmpty {
        /// Its path.
        path: PathBuf,
    },
    /// The metadata is wrong, or cannot be represented in this version of CTF.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Error of a writer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output failed.
    #[error("writing: {0}")]
    Io(#[from] std::io::Error),
    /// A value that does not suit its field.
    #[error("{scope:?}: {error}")]
    Field {
        /// The scope of the field.
        scope: Scope,
        /// The mismatch.
        error: FieldError,
    },
    /// There is no stream class or event class at this position.
    #[error("no {what} at position {index}")]
    NoClass {
        /// The kind of class.
        what: &'static str,
        /// The requested position.
        index: usize,
    },
    /// Packets and events are written in the wrong order.
    #[error("{0}")]
    Order(&'static str),
}

/// A value that does not suit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The field is of another kind than the value.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// The kind of the field.
        expected: &'static str,
        /// The kind of the value.
        found: &'static str,
    },
    /// A number does not fit.
    #[error("{found} does not fit {} {size}-bit integer", if *signed { "a signed" } else { "an unsigned" })]
    Range {
        /// Size of the field in bits.
        size: u32,
        /// Whether it is signed.
        signed: bool,
        /// The value.
        found: i128,
    },
    /// The wrong number of members for a structure, or of elements for the length of an array.
    #[error("expected {expected} values, found {found}")]
    Count {
        /// The required number.
        expected: u64,
        /// The number of values.
        found: u64,
    },
    /// A string contains a zero byte, which would end it.
    #[error("a zero byte in a string")]
    Zero,
    /// The tag written before selects another option of the variant, or none.
    #[error("another variant option than the tag selects")]
    Option,
    /// A time that readers could not reconstruct from the clock bits in the field: it is before the last one, or too
    /// far after it. A new packet can begin at any time.
    #[error("time {to} does not follow {from} by the {size} bits of the field")]
    Time {
        /// The previous clock value, in ticks.
        from: u64,
        /// The time to write, in ticks.
        to: u64,
        /// Bits of the field.
        size: u32,
    },
    /// Two fields of different byte order would share a byte.
    #[error("byte order changes inside a byte")]
    ByteOrder,
    /// A construct that this crate does not write.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
}
