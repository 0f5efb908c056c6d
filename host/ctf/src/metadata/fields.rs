//! Field classes: the layout and meaning of a field's bits.
//!
//! The same types describe fields of both CTF versions: a front end (TSDL or JSON) produces them, the plan compiler and
//! the writer consume them. Names with a meaning in CTF 1.8 (`timestamp_begin`, `packet_size`, ...) become [`Role`]s
//! here, so nothing after the front end depends on names.

use std::sync::Arc;

use super::{AttributesId, ByteOrder, ClockId, Location, Mappings, Value64};

/// Preferred base for displaying an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Base {
    /// Base 2, shown with `0b`.
    Binary,
    /// Base 8, shown with a leading `0`.
    Octal,
    /// Base 10.
    #[default]
    Decimal,
    /// Base 16, shown with `0x`.
    Hexadecimal,
}

/// The character encoding of a string, or of an integer that is one character of a text array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// Not text (integers), or not stated (strings, which are then UTF-8).
    #[default]
    None,
    /// UTF-8.
    Utf8,
    /// ASCII.
    Ascii,
    /// UTF-16 with the most significant byte first (CTF 2).
    Utf16Be,
    /// UTF-16 with the least significant byte first (CTF 2).
    Utf16Le,
    /// UTF-32 with the most significant byte first (CTF 2).
    Utf32Be,
    /// UTF-32 with the least significant byte first (CTF 2).
    Utf32Le,
}

impl Encoding {
    /// The size of a code unit in bytes: 1, 2 or 4. A text ends with a unit that is zero.
    #[must_use]
    pub const fn unit(self) -> u32 {
        match self {
            Self::None | Self::Utf8 | Self::Ascii => 1,
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }
}

/// Bit layout of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// A fixed number of bits, in the bit order that matches the byte order.
    #[default]
    Fixed,
    /// A fixed number of bits in the opposite order (CTF 2: `bit-order`).
    Reversed,
    /// LEB128: seven bits a byte, as many bytes as the value needs (CTF 2). The size of the class is then 64, the
    /// maximum, and it is aligned to bytes.
    Variable,
}

/// Meaning of an integer field for its packet or event.
///
/// CTF 1.8 assigns roles by the names of members of packet headers, packet contexts and event headers; CTF 2 states
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Packet header: the constant `0xC1FC1FC1`.
    Magic,
    /// Packet header: id of the [`StreamClass`](super::StreamClass) of the packet.
    StreamId,
    /// Packet header: number of the packet's stream within its class.
    StreamInstanceId,
    /// Packet context: size of the packet with padding, in bits.
    PacketSize,
    /// Packet context: size of the packet without padding, in bits.
    ContentSize,
    /// Packet context: clock value at the beginning of the packet, in ticks.
    TimestampBegin,
    /// Packet context: clock value at the end of the packet, in ticks. It never updates the running clock.
    TimestampEnd,
    /// Packet context: number of events that the stream has dropped so far, a counter that may wrap.
    EventsDiscarded,
    /// Packet context: number of the packet within its stream, a counter that may wrap.
    PacketSeqNum,
    /// Packet context: the CPU of the packet's events.
    CpuId,
    /// Event header: id of the [`EventClass`](super::EventClass) of the event; the last one decoded is effective.
    EventId,
}

/// An integer of a fixed or, in CTF 2, variable size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntegerClass {
    /// Its bit layout.
    pub form: Form,
    /// Size in bits, 1 to 64.
    pub size: u32,
    /// Alignment in bits from the start of the packet, a power of two.
    pub align: u32,
    /// Two's complement when set.
    pub signed: bool,
    /// Byte order; it also determines at which end of a byte bits are filled first.
    pub byte_order: ByteOrder,
    /// Preferred base for display.
    pub base: Base,
    /// Set when the integer is a character, which makes an array of it text.
    pub encoding: Encoding,
    /// The clock that this field updates, if it is a (possibly partial) clock value.
    pub clock: Option<ClockId>,
    /// Meaning of the value for its packet or event.
    pub role: Option<Role>,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

impl IntegerClass {
    /// The least and the greatest possible value.
    #[must_use]
    pub const fn range(&self) -> (i128, i128) {
        if self.signed {
            let half = 1i128 << (self.size - 1);
            (-half, half - 1)
        } else {
            (0, (1i128 << self.size) - 1)
        }
    }

    /// An unsigned integer of `size` bits, aligned to bytes when it fills whole bytes and to bits otherwise: the
    /// default of CTF 1.8.
    #[must_use]
    pub const fn unsigned(size: u32, byte_order: ByteOrder) -> Self {
        Self {
            form: Form::Fixed,
            size,
            align: if size.is_multiple_of(8) { 8 } else { 1 },
            signed: false,
            byte_order,
            base: Base::Decimal,
            encoding: Encoding::None,
            clock: None,
            role: None,
            attributes: None,
        }
    }

    /// Like [`unsigned`](Self::unsigned), in two's complement.
    #[must_use]
    pub const fn signed(size: u32, byte_order: ByteOrder) -> Self {
        let mut class = Self::unsigned(size, byte_order);
        class.signed = true;
        class
    }

    /// An integer of variable size.
    #[must_use]
    pub const fn variable(signed: bool) -> Self {
        let mut class = Self::unsigned(64, ByteOrder::Little);
        (class.signed, class.form) = (signed, Form::Variable);
        class
    }

    /// The same class with another alignment, in bits (a power of two).
    #[must_use]
    pub const fn align(mut self, bits: u32) -> Self {
        self.align = bits;
        self
    }

    /// The same class, shown in another base.
    #[must_use]
    pub const fn base(mut self, base: Base) -> Self {
        self.base = base;
        self
    }

    /// The same class as a value of `clock`.
    #[must_use]
    pub const fn clock(mut self, clock: ClockId) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The same class with a role. In CTF 1.8 the name of the field must match it.
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }

    /// The same class as a character in `encoding`.
    #[must_use]
    pub const fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }
}

/// An integer whose values have names.
#[derive(Debug, Clone, PartialEq)]
pub struct EnumerationClass {
    /// Storage of the value.
    pub integer: IntegerClass,
    /// The names; shared, because there may be thousands and the class may be used in many places.
    pub mappings: Arc<Mappings>,
}

/// An IEEE 754 binary floating point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloatClass {
    /// Size in bits: 16, 32 or 64.
    pub size: u32,
    /// Whether its bits are in the order opposite to that of its byte order (CTF 2: `bit-order`).
    pub reversed: bool,
    /// Alignment in bits, a power of two.
    pub align: u32,
    /// Order of the bytes.
    pub byte_order: ByteOrder,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

/// An unsigned integer whose bits have individual meanings (CTF 2).
#[derive(Debug, Clone, PartialEq)]
pub struct BitMapClass {
    /// Storage of the bits.
    pub integer: IntegerClass,
    /// Names of ranges of bits, counted from the least significant one; empty for a plain array of bits.
    pub flags: Arc<Mappings>,
}

/// Bytes without further structure, on a byte boundary (CTF 2).
#[derive(Debug, Clone, PartialEq)]
pub struct BlobClass {
    /// Number of bytes.
    pub length: Length,
    /// Media type (RFC 2046); `application/octet-stream` if not stated.
    pub media_type: String,
    /// Whether they are the UUID of the trace in the packet header.
    pub is_uuid: bool,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

/// A field that is present or absent, depending on an earlier field (CTF 2).
#[derive(Debug, Clone, PartialEq)]
pub struct OptionalClass {
    /// Location of that field, the selector.
    pub selector: Location,
    /// Values of an integer selector for which the field is present. `None` for a boolean selector, which is true if
    /// the field is present.
    pub ranges: Option<Vec<(Value64, Value64)>>,
    /// Class of the field.
    pub class: Box<FieldClass>,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

/// A byte-aligned string that ends with a zero character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StringClass {
    /// Encoding of its characters.
    pub encoding: Encoding,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

/// A member of a structure or an option of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The name for users: without the single leading underscore that CTF 1.8 writers add against clashes.
    pub name: String,
    /// The declared name, used by locations and enumeration labels.
    pub declared: String,
    /// What it holds.
    pub class: FieldClass,
    /// User attributes of the member or option itself, besides those of its class (CTF 2).
    pub attributes: Option<AttributesId>,
}

impl Member {
    /// Creates a member with the same name for users and in the metadata.
    ///
    /// If CTF 1.8 does not allow a name (a keyword, or a leading underscore), the writer declares it with one more
    /// leading underscore, which every reader removes.
    #[must_use]
    pub fn new(name: impl Into<String>, class: impl Into<FieldClass>) -> Self {
        let name = name.into();
        let declared = if name.starts_with('_') || super::is_keyword(&name) {
            format!("_{name}")
        } else {
            name.clone()
        };
        Self {
            name,
            declared,
            class: class.into(),
            attributes: None,
        }
    }
}

impl Member {
    /// The values of `tag` that select this member as the option of a variant: those labelled with its name.
    ///
    /// Writers differ in whether a label has the leading underscore of the option's name, so both match.
    pub fn selected_by<'t>(
        &'t self,
        tag: &'t EnumerationClass,
    ) -> impl Iterator<Item = (Value64, Value64)> + 't {
        let exact = tag.mappings.labelled(&self.declared).next().is_some();
        let wanted = if exact { &self.declared } else { &self.name };
        let mappings = tag.mappings.labelled(wanted);
        mappings.map(|mapping| (mapping.first, mapping.last))
    }
}

/// Fields one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StructClass {
    /// The least alignment in bits; the real one is the largest of this and the members' (variants do not count).
    pub min_align: u32,
    /// The members in order.
    pub members: Vec<Member>,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

impl StructClass {
    /// A structure without members, to be filled with [`with`](Self::with).
    #[must_use]
    pub const fn new() -> Self {
        Self {
            min_align: 1,
            members: Vec::new(),
            attributes: None,
        }
    }

    /// The structure with one more member appended.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, class: impl Into<FieldClass>) -> Self {
        self.members.push(Member::new(name, class));
        self
    }

    /// The alignment in bits: the largest of its own and its members'.
    #[must_use]
    pub fn align(&self) -> u32 {
        self.members
            .iter()
            .map(|member| member.class.align())
            .fold(self.min_align.max(1), u32::max)
    }

    /// The class at the end of the way that a [`Target`](super::Target) describes.
    #[must_use]
    pub fn at(&self, steps: &[u32]) -> Option<&FieldClass> {
        let (&first, rest) = steps.split_first()?;
        let mut class = &self.members.get(first as usize)?.class;
        for &step in rest {
            class = match class.inner() {
                FieldClass::Struct(inner) => &inner.members.get(step as usize)?.class,
                FieldClass::Variant(variant) => &variant.options.get(step as usize)?.class,
                _ => return None,
            };
        }
        Some(class.inner())
    }

    /// The member that users know as `name`.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// One field out of several, chosen by an integer that comes earlier.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantClass {
    /// Where the selecting integer is.
    pub tag: Location,
    /// What selects which option.
    pub choice: Choice,
    /// The options.
    pub options: Vec<Member>,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

/// What selects an option of a variant.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// The tag is an enumeration, and its label that equals the declared name of an option selects that (CTF 1.8).
    Labels,
    /// For each option the values that select it, first and last of each range. No two options share a value (CTF 2).
    Ranges(Vec<Vec<(Value64, Value64)>>),
}

/// How many elements an array has.
#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    /// As many as the metadata says (an *array* in CTF 1.8).
    Fixed(u64),
    /// As many as an earlier unsigned integer field says (a *sequence* in CTF 1.8).
    Field(Location),
}

/// Elements of one class one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayClass {
    /// How many.
    pub length: Length,
    /// The least alignment of the array in bits, a power of two; the real one is the larger of this and the element's.
    pub min_align: u32,
    /// What each holds.
    pub element: Box<FieldClass>,
    /// The array is the 16 bytes of the trace's UUID in the packet header.
    pub is_uuid: bool,
    /// User attributes of the class (CTF 2).
    pub attributes: Option<AttributesId>,
}

impl ArrayClass {
    /// An array of a fixed number of elements.
    #[must_use]
    pub fn fixed(length: u64, element: impl Into<FieldClass>) -> Self {
        Self {
            length: Length::Fixed(length),
            min_align: 1,
            element: Box::new(element.into()),
            is_uuid: false,
            attributes: None,
        }
    }

    /// A sequence whose length is the value of the field at `path`.
    #[must_use]
    pub fn sequence(path: impl Into<String>, element: impl Into<FieldClass>) -> Self {
        Self {
            length: Length::Field(Location::new(path)),
            min_align: 1,
            element: Box::new(element.into()),
            is_uuid: false,
            attributes: None,
        }
    }

    /// The alignment in bits: the larger of its own and its elements'.
    #[must_use]
    pub fn align(&self) -> u32 {
        self.element.align().max(self.min_align)
    }

    /// The encoding when the array is text: elements are byte-aligned 8-bit integers that have one.
    #[must_use]
    pub fn text(&self) -> Option<Encoding> {
        match *self.element {
            FieldClass::Integer(class)
                if class.size == 8
                    && class.align.is_multiple_of(8)
                    && class.encoding != Encoding::None =>
            {
                Some(class.encoding)
            }
            _ => None,
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldClass {
    /// A fixed-size integer.
    Integer(IntegerClass),
    /// An integer with named values.
    Enumeration(EnumerationClass),
    /// An unsigned integer that means true unless it is 0 (CTF 2).
    Boolean(IntegerClass),
    /// An array of bits, which may have names (CTF 2).
    BitMap(BitMapClass),
    /// A floating point number.
    Float(FloatClass),
    /// A zero-terminated string.
    String(StringClass),
    /// Members in order.
    Struct(StructClass),
    /// An array or sequence.
    Array(ArrayClass),
    /// One of several options.
    Variant(VariantClass),
    /// A field that may be missing (CTF 2).
    Optional(OptionalClass),
    /// Bytes without further meaning (CTF 2).
    Blob(BlobClass),
}

impl FieldClass {
    /// The alignment in bits, from the start of the packet, at which a field of this class begins.
    ///
    /// A variant has 1, and so has what is optional: what there is aligns itself.
    #[must_use]
    pub fn align(&self) -> u32 {
        match self {
            Self::Integer(class) | Self::Boolean(class) => class.align,
            Self::Enumeration(class) => class.integer.align,
            Self::BitMap(class) => class.integer.align,
            Self::Float(class) => class.align,
            Self::String(_) | Self::Blob(_) => 8,
            Self::Struct(class) => class.align(),
            Self::Array(class) => class.align(),
            Self::Variant(_) | Self::Optional(_) => 1,
        }
    }

    /// The integer class of an integer or enumeration, which can have a role.
    #[must_use]
    pub fn as_integer(&self) -> Option<&IntegerClass> {
        match self {
            Self::Integer(class) => Some(class),
            Self::Enumeration(class) => Some(&class.integer),
            _ => None,
        }
    }

    /// User attributes (CTF 2). Those of an enumeration or bit map are its integer's.
    #[must_use]
    pub const fn attributes(&self) -> Option<AttributesId> {
        match self {
            Self::Integer(class) | Self::Boolean(class) => class.attributes,
            Self::Enumeration(class) => class.integer.attributes,
            Self::BitMap(class) => class.integer.attributes,
            Self::Float(class) => class.attributes,
            Self::String(class) => class.attributes,
            Self::Struct(class) => class.attributes,
            Self::Array(class) => class.attributes,
            Self::Variant(class) => class.attributes,
            Self::Optional(class) => class.attributes,
            Self::Blob(class) => class.attributes,
        }
    }

    /// Gives the class other user attributes.
    pub const fn set_attributes(&mut self, attributes: Option<AttributesId>) {
        *match self {
            Self::Integer(class) | Self::Boolean(class) => &mut class.attributes,
            Self::Enumeration(class) => &mut class.integer.attributes,
            Self::BitMap(class) => &mut class.integer.attributes,
            Self::Float(class) => &mut class.attributes,
            Self::String(class) => &mut class.attributes,
            Self::Struct(class) => &mut class.attributes,
            Self::Array(class) => &mut class.attributes,
            Self::Variant(class) => &mut class.attributes,
            Self::Optional(class) => &mut class.attributes,
            Self::Blob(class) => &mut class.attributes,
        } = attributes;
    }

    /// The class of an element, through any number of arrays; and of an optional field as if it were always there.
    #[must_use]
    pub fn inner(&self) -> &Self {
        let mut class = self;
        loop {
            class = match class {
                Self::Array(array) => &array.element,
                Self::Optional(optional) => &optional.class,
                _ => return class,
            };
        }
    }
}

macro_rules! from_class {
    ($($class:ident => $variant:ident),*) => {$(
        impl From<$class> for FieldClass {
            fn from(class: $class) -> Self {
                Self::$variant(class)
            }
        }
    )*};
}
from_class!(IntegerClass => Integer, EnumerationClass => Enumeration, FloatClass => Float, StringClass => String,
    StructClass => Struct, ArrayClass => Array, VariantClass => Variant, BitMapClass => BitMap, BlobClass => Blob,
    OptionalClass => Optional);
