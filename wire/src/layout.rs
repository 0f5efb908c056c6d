//! Properties common to all records of a target: byte order, width of an address, numbering of functions.
//!
//! They are properties of the program, not of a record, so packets do not contain them. The ELF note
//! ([`note`](crate::note)), the link's `identify`, and the metadata do.

use crate::event::{Form, OTHER_BYTES, Shape};
use crate::packet::PacketHeader;

/// Order of bytes, and also of bits, in everything that a target writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

impl ByteOrder {
    /// Byte order of the machine that this is compiled for.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// Returns `le` or `be`, as in metadata and on the link.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Little => "le",
            Self::Big => "be",
        }
    }

    /// Parses a [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "le" => Some(Self::Little),
            "be" => Some(Self::Big),
            _ => None,
        }
    }
}

/// Width of a target's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordSize {
    /// 4 bytes.
    Bits32,
    /// 8 bytes.
    Bits64,
}

impl WordSize {
    /// Word size of the machine that this is compiled for.
    pub const NATIVE: Self = if cfg!(target_pointer_width = "64") {
        Self::Bits64
    } else {
        Self::Bits32
    };

    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }

    /// The size in bits.
    pub const fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }

    /// Returns the word size with this many bits.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            32 => Some(Self::Bits32),
            64 => Some(Self::Bits64),
            _ => None,
        }
    }
}

/// Layout of a target's packets: everything that a reader needs besides the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The bit layout of records.
    pub shape: Shape,
    /// The width of an address.
    pub word: WordSize,
    /// The order of bytes.
    pub order: ByteOrder,
    /// Functions are numbered in units of `1 << function_shift` bytes: the alignment of code addresses (1 for Thumb, 2
    /// for AArch64), or more if the program is linked so.
    pub function_shift: u8,
}

impl Layout {
    /// Layout of the machine that this is compiled for, for programs that align functions no more than the architecture
    /// does.
    pub const NATIVE: Self = Self {
        shape: Shape::NATIVE,
        word: WordSize::NATIVE,
        order: ByteOrder::NATIVE,
        function_shift: if cfg!(target_arch = "arm") {
            1
        } else if cfg!(target_arch = "aarch64") {
            2
        } else {
            0
        },
    };

    /// Returns the number of the function at `address`, its distance from `text_base` in units of `1 <<
    /// function_shift`, if it fits into `bits` bits. Returns `None` if the address is between two units, or out of
    /// range.
    #[inline(always)]
    pub const fn function(self, bits: u32, address: u64, text_base: u64) -> Option<u32> {
        let distance = match self.word {
            WordSize::Bits32 => (address as u32).wrapping_sub(text_base as u32) as u64,
            WordSize::Bits64 => address.wrapping_sub(text_base),
        };
        let number = distance >> self.function_shift;
        if number >> bits == 0 && number << self.function_shift == distance {
            Some(number as u32)
        } else {
            None
        }
    }

    /// Returns the address of a function: the inverse of [`function`](Self::function).
    pub const fn address(self, function: u32, text_base: u64) -> u64 {
        let address = text_base.wrapping_add((function as u64) << self.function_shift);
        match self.word {
            WordSize::Bits32 => address as u32 as u64,
            WordSize::Bits64 => address,
        }
    }

    /// Size of a packet header in bytes.
    pub const fn header_bytes(self) -> usize {
        PacketHeader::WORD_OFFSET + self.word.bytes()
    }

    /// Maximum number of bytes that the recorder's fast path writes at once: an entry in the long form, or an exit that
    /// records its function ([`EventId::ExitNamed`](crate::event::EventId::ExitNamed)), which is stored with 4 bytes.
    pub const fn fast_bytes(self) -> usize {
        let (entry, exit) = (self.shape.bytes(Form::EnterLong), OTHER_BYTES + 4);
        if entry > exit { entry } else { exit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_out_of_range_or_between_two_numbers_are_told() {
        let layout = Layout {
            shape: Shape::Compact,
            word: WordSize::Bits32,
            order: ByteOrder::Little,
            function_shift: 1,
        };
        assert_eq!(layout.function(17, 0x0800_0102, 0x0800_0000), Some(0x81));
        assert_eq!(layout.address(0x81, 0x0800_0000), 0x0800_0102);
        assert_eq!(layout.function(17, 0x0804_0000, 0x0800_0000), None);
        assert_eq!(layout.function(17, 0x07FF_FFFE, 0x0800_0000), None);
        let last = layout.function(17, 0x0803_FFFE, 0x0800_0000);
        assert_eq!(last, Some(0x1_FFFF));
        assert_eq!(layout.function(13, 0x0800_4000, 0x0800_0000), None);
        let aligned = Layout {
            function_shift: 4,
            ..layout
        };
        assert_eq!(aligned.function(13, 0x0800_4010, 0x0800_0000), Some(0x401));
        assert_eq!(aligned.function(13, 0x0800_4018, 0x0800_0000), None);
    }
}
