//! Values of fields, as a visitor sees them: they borrow from the reader until it moves on.

use std::borrow::Cow;

use crate::metadata::{Encoding, IntegerClass, Mappings, Value64};

/// The value of a field that holds no others.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// An integer, or an enumeration, which is an integer with labels.
    Integer {
        /// The number.
        value: Value64,
        /// How it is stored and meant to be shown.
        class: &'a IntegerClass,
        /// The labels, if it is an enumeration.
        mappings: Option<&'a Mappings>,
    },
    /// A floating point number.
    Float {
        /// The number, widened without loss.
        value: f64,
        /// Bits that it takes in the trace.
        size: u32,
    },
    /// A boolean (CTF 2).
    Boolean(bool),
    /// Bits that mean something one by one (CTF 2).
    Bits {
        /// The bits, the least significant one being number 0.
        value: u64,
        /// How many there are.
        size: u32,
        /// The names of ranges of them: [`Mappings::flags`] tells those that are set.
        flags: &'a Mappings,
    },
    /// Bytes that are nothing but bytes (CTF 2).
    Blob {
        /// The bytes.
        bytes: &'a [u8],
        /// What they are said to be (RFC 2046).
        media_type: &'a str,
    },
    /// An optional field that is not there (CTF 2).
    Absent,
    /// A string or text array, without its terminator.
    Text {
        /// The bytes as they are in the trace.
        bytes: &'a [u8],
        /// How they are said to be encoded.
        encoding: Encoding,
    },
}

impl<'a> Value<'a> {
    /// The number, of an integer or enumeration.
    #[must_use]
    pub const fn integer(&self) -> Option<Value64> {
        if let Self::Integer { value, .. } = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The number, if it is one and is not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.integer()?.as_u64()
    }

    /// The number, if it is one and fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.integer()?.as_i64()
    }

    /// The first label of an enumeration that covers the value.
    #[must_use]
    pub fn label(&self) -> Option<&'a str> {
        match self {
            Self::Integer {
                value,
                mappings: Some(mappings),
                ..
            } => mappings.label(*value),
            _ => None,
        }
    }

    /// The text of a string; what is invalid in its encoding is replaced.
    #[must_use]
    pub fn text(&self) -> Option<Cow<'a, str>> {
        if let Self::Text { bytes, encoding } = self {
            Some(decode(bytes, *encoding))
        } else {
            None
        }
    }

    /// The floating point number.
    #[must_use]
    pub const fn as_f64(&self) -> Option<f64> {
        if let Self::Float { value, .. } = self {
            Some(*value)
        } else {
            None
        }
    }
}

/// Text in any encoding as UTF-8.
fn decode(bytes: &[u8], encoding: Encoding) -> Cow<'_, str> {
    let words = |word: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2);
        let units = units.filter_map(|unit| Some(word(*unit.first_chunk()?)));
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    let longs = |word: fn([u8; 4]) -> u32| {
        let units = bytes.chunks_exact(4);
        let units = units.filter_map(|unit| Some(word(*unit.first_chunk()?)));
        units
            .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    Cow::Owned(match encoding {
        Encoding::None | Encoding::Utf8 | Encoding::Ascii => {
            // Nearly always; and to find that out is quicker than to look for what is invalid.
            return match std::str::from_utf8(bytes) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => String::from_utf8_lossy(bytes),
            };
        }
        Encoding::Utf16Be => words(u16::from_be_bytes),
        Encoding::Utf16Le => words(u16::from_le_bytes),
        Encoding::Utf32Be => longs(u32::from_be_bytes),
        Encoding::Utf32Le => longs(u32::from_le_bytes),
    })
}
