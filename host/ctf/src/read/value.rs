//! Values of fields as a visitor receives them. They borrow from the reader until its next call.

use std::borrow::Cow;

use crate::metadata::{Encoding, IntegerClass, Mappings, Value64};

/// Value of a field without inner fields.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// An integer, or an enumeration, which is an integer with labels.
    Integer {
        /// The number.
        value: Value64,
        /// Its storage and display format.
        class: &'a IntegerClass,
        /// The labels, if it is an enumeration.
        mappings: Option<&'a Mappings>,
    },
    /// A floating point number.
    Float {
        /// The number, widened without loss.
        value: f64,
        /// Its size in the trace, in bits.
        size: u32,
    },
    /// A boolean (CTF 2).
    Boolean(bool),
    /// Bits with individual meanings (CTF 2).
    Bits {
        /// The bits, numbered from the least significant one.
        value: u64,
        /// Number of bits.
        size: u32,
        /// The names of bit ranges: [`Mappings::flags`] returns those that are set.
        flags: &'a Mappings,
    },
    /// Bytes without further structure (CTF 2).
    Blob {
        /// The bytes.
        bytes: &'a [u8],
        /// Their stated media type (RFC 2046).
        media_type: &'a str,
    },
    /// An absent optional field (CTF 2).
    Absent,
    /// A string or text array, without its terminator.
    Text {
        /// The bytes as they are in the trace.
        bytes: &'a [u8],
        /// Their stated encoding.
        encoding: Encoding,
    },
}

impl<'a> Value<'a> {
    /// The number of an integer or enumeration.
    #[must_use]
    pub const fn integer(&self) -> Option<Value64> {
        if let Self::Integer { value, .. } = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The number, if it is an integer and not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.integer()?.as_u64()
    }

    /// The number, if it is an integer and fits.
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

    /// The text of a string; invalid characters are replaced.
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

/// Converts text in any encoding to UTF-8.
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
            // The usual case; validation is faster than a search for invalid characters.
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
