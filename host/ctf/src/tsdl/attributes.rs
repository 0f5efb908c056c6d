//! Values of type attributes.

use super::parser::{Attribute, Parser};
use crate::error::MetadataError;
use crate::metadata::{Base, ByteOrder, Encoding};

impl Parser<'_> {
    pub(super) fn size_attribute(
        &self,
        attribute: &'static str,
        value: &Attribute,
    ) -> Result<u32, MetadataError> {
        match value.number().and_then(|number| u32::try_from(number).ok()) {
            Some(size) if size > 0 => Ok(size),
            _ => Err(self.bad(attribute, "a positive number of bits", value)),
        }
    }

    pub(super) fn align_attribute(&self, value: &Attribute) -> Result<u32, MetadataError> {
        match value.number().and_then(|number| u32::try_from(number).ok()) {
            Some(align) if align.is_power_of_two() => Ok(align),
            _ => Err(self.bad("align", "a power of two", value)),
        }
    }

    pub(super) fn flag_attribute(
        &self,
        attribute: &'static str,
        value: &Attribute,
    ) -> Result<bool, MetadataError> {
        match (value.number(), value.path()) {
            (Some(1), _) | (_, Some("true" | "TRUE")) => Ok(true),
            (Some(0), _) | (_, Some("false" | "FALSE")) => Ok(false),
            _ => Err(self.bad(attribute, "true or false", value)),
        }
    }

    pub(super) fn byte_order_attribute(
        &self,
        value: &Attribute,
    ) -> Result<ByteOrder, MetadataError> {
        match value.path() {
            Some("native") => Ok(self.byte_order),
            Some("le") => Ok(ByteOrder::Little),
            Some("be" | "network") => Ok(ByteOrder::Big),
            _ => Err(self.bad("byte_order", "le, be, network or native", value)),
        }
    }

    pub(super) fn base_attribute(&self, value: &Attribute) -> Result<Base, MetadataError> {
        match (value.number(), value.path()) {
            (Some(2), _) | (_, Some("binary" | "bin" | "b")) => Ok(Base::Binary),
            (Some(8), _) | (_, Some("octal" | "oct" | "o")) => Ok(Base::Octal),
            (Some(10), _) | (_, Some("decimal" | "dec" | "d" | "i" | "u")) => Ok(Base::Decimal),
            (Some(16), _) | (_, Some("hexadecimal" | "hex" | "x" | "X" | "p")) => {
                Ok(Base::Hexadecimal)
            }
            _ => Err(self.bad("base", "decimal, hexadecimal, octal or binary", value)),
        }
    }

    pub(super) fn encoding_attribute(&self, value: &Attribute) -> Result<Encoding, MetadataError> {
        match value.path() {
            Some("none") => Ok(Encoding::None),
            Some("UTF8" | "utf8") => Ok(Encoding::Utf8),
            Some("ASCII" | "ascii") => Ok(Encoding::Ascii),
            _ => Err(self.bad("encoding", "none, UTF8 or ASCII", value)),
        }
    }
}
