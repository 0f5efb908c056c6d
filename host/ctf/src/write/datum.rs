//! Values of fields, and their encoding.

use super::bits::{Bits, MAX_VARIABLE};
use crate::error::FieldError;
use crate::metadata::{ByteOrder, FloatClass, Form, IntegerClass, Role};
use crate::plan::{
    Count, IntegerNode, Meaning, Node, NodeId, OptionalNode, Plan, Span, VariantNode,
};
use crate::read::bits::{reverse, zero};

/// Maximum number of zeros that pad a text array: the amount of an event that readers hold in memory.
const MAX_PADDING: usize = 32 << 20;

/// A value to write. It must match the class of the field: nothing is converted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Datum<'a> {
    /// For an integer or enumeration of either signedness, as long as it fits.
    Unsigned(u64),
    /// As `Unsigned`.
    Signed(i64),
    /// For a floating point number; it is rounded to the size of the field.
    Float(f64),
    /// For a string (which must not contain a zero character), or a text array (which is padded with zeros): the bytes
    /// in the encoding of the field.
    Text(&'a [u8]),
    /// For a boolean (CTF 2).
    Bool(bool),
    /// For bytes without further structure (CTF 2): as many as the length states.
    Blob(&'a [u8]),
    /// For an absent optional field (CTF 2). A present one takes its content.
    Absent,
    /// For a structure: its members in order.
    Struct(&'a [Datum<'a>]),
    /// For an array, or a sequence, whose length field must have the number of these.
    Array(&'a [Datum<'a>]),
    /// For a variant: the name of the option, which the tag must select, and its content.
    Variant(&'a str, &'a Datum<'a>),
}

impl From<u64> for Datum<'_> {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<u32> for Datum<'_> {
    fn from(value: u32) -> Self {
        Self::Unsigned(value.into())
    }
}

impl From<i64> for Datum<'_> {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Datum<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<'a> From<&'a str> for Datum<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.as_bytes())
    }
}

/// A value in any representation: a tree built by a caller, or fields that were just read.
pub(crate) trait Item<'d>: Sized {
    /// The inner values.
    type Items: ExactSizeIterator<Item = Self>;

    /// Returns the content of the value.
    fn view(self) -> View<'d, Self>;
}

/// Content of an [`Item`]; the cases are those of [`Datum`].
pub(crate) enum View<'d, I: Item<'d>> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'d [u8]),
    Bool(bool),
    Blob(&'d [u8]),
    Absent,
    Struct(I::Items),
    Array(I::Items),
    /// Without a name, the option that the tag selects.
    Variant(Option<&'d str>, I),
}

impl<'d> Item<'d> for Datum<'d> {
    type Items = std::iter::Copied<std::slice::Iter<'d, Datum<'d>>>;

    fn view(self) -> View<'d, Self> {
        match self {
            Self::Unsigned(value) => View::Unsigned(value),
            Self::Signed(value) => View::Signed(value),
            Self::Float(value) => View::Float(value),
            Self::Text(bytes) => View::Text(bytes),
            Self::Bool(value) => View::Bool(value),
            Self::Blob(bytes) => View::Blob(bytes),
            Self::Absent => View::Absent,
            Self::Struct(members) => View::Struct(members.iter().copied()),
            Self::Array(elements) => View::Array(elements.iter().copied()),
            Self::Variant(name, content) => View::Variant(Some(name), *content),
        }
    }
}

impl<'d, I: Item<'d>> View<'d, I> {
    const fn describe(&self) -> &'static str {
        match self {
            Self::Unsigned(_) | Self::Signed(_) => "a number",
            Self::Float(_) => "a floating point number",
            Self::Text(_) => "a text",
            Self::Bool(_) => "a boolean",
            Self::Blob(_) => "a blob",
            Self::Absent => "nothing",
            Self::Struct(_) => "a structure",
            Self::Array(_) => "an array",
            Self::Variant(..) => "a variant",
        }
    }
}

/// Encodes values into the bits of a packet, with the same plan that decodes them: so a length that differs from that
/// of its array, or a tag that selects another option, is an error.
pub(super) struct Encoder<'p, 's> {
    pub plan: &'p Plan,
    pub bits: &'s mut Bits,
    pub slots: &'s mut [Option<u64>],
    /// Byte order of the previous field.
    pub last: Option<ByteOrder>,
    /// The id of the last event header.
    pub event_id: Option<u64>,
}

impl Encoder<'_, '_> {
    /// Encodes the members of a scope's root structure.
    pub fn root<'d, I: Item<'d>>(
        &mut self,
        node: NodeId,
        data: impl ExactSizeIterator<Item = I>,
    ) -> Result<(), FieldError> {
        match self.plan.node(node) {
            Some(Node::Struct { align, members }) => self.members(*align, *members, data),
            _ => Ok(()),
        }
    }

    fn members<'d, I: Item<'d>>(
        &mut self,
        align: u32,
        members: Span,
        data: impl ExactSizeIterator<Item = I>,
    ) -> Result<(), FieldError> {
        let members = members.of(&self.plan.children);
        if members.len() != data.len() {
            return Err(FieldError::Count {
                expected: members.len() as u64,
                found: data.len() as u64,
            });
        }
        self.bits.align(align);
        let mut members = members.iter().zip(data);
        members.try_for_each(|(member, item)| self.node(member.node, item))
    }

    /// Encodes a field of any class.
    pub fn node<'d, I: Item<'d>>(&mut self, node: NodeId, item: I) -> Result<(), FieldError> {
        let Some(node) = self.plan.node(node) else {
            return Ok(());
        };
        if let Node::Optional(optional) = node {
            return self.optional(optional, item);
        }
        match (node, item.view()) {
            (Node::Integer(node), View::Bool(value)) if node.meaning == Meaning::Boolean => {
                self.integer(node, i128::from(value))
            }
            (Node::Integer(node), View::Unsigned(value)) if node.meaning != Meaning::Boolean => {
                self.integer(node, i128::from(value))
            }
            (Node::Integer(node), View::Signed(value)) if node.meaning == Meaning::Number => {
                self.integer(node, i128::from(value))
            }
            (Node::Float(class), View::Float(value)) => self.float(class, value),
            (Node::String(encoding), View::Text(bytes)) => {
                let unit = encoding.unit();
                check_unit(bytes, unit)?;
                if zero(bytes, unit).is_some() {
                    return Err(FieldError::Zero);
                }
                self.bits.align(8);
                self.bits.put_bytes(bytes);
                self.bits.put_bytes(&[0; 4][..unit as usize]);
                Ok(())
            }
            (
                Node::Text {
                    align,
                    count,
                    encoding,
                },
                View::Text(bytes),
            ) => {
                check_unit(bytes, encoding.unit())?;
                self.text(*align, *count, bytes)
            }
            (Node::Blob { count, .. }, View::Blob(bytes)) => {
                self.exactly(*count, bytes.len() as u64)?;
                self.bits.align(8);
                self.bits.put_bytes(bytes);
                Ok(())
            }
            (Node::Struct { align, members }, View::Struct(data)) => {
                self.members(*align, *members, data)
            }
            (
                Node::Array {
                    align,
                    count,
                    element,
                    ..
                },
                View::Array(mut data),
            ) => {
                self.exactly(*count, data.len() as u64)?;
                self.bits.align(*align);
                data.try_for_each(|item| self.node(*element, item))
            }
            (Node::Variant(variant), View::Variant(name, content)) => {
                self.variant(variant, name, content)
            }
            (node, view) => Err(FieldError::Kind {
                expected: describe(node),
                found: view.describe(),
            }),
        }
    }

    /// Encodes an integer, which must fit.
    pub fn integer(&mut self, node: &IntegerNode, value: i128) -> Result<(), FieldError> {
        self.padded(node, value, 1)
    }

    /// Encodes an integer, which must fit, in at least `least` bytes if its size is variable.
    pub fn padded(
        &mut self,
        node: &IntegerNode,
        value: i128,
        least: u32,
    ) -> Result<(), FieldError> {
        let class = &node.class;
        let lowest = if class.signed {
            -(1i128 << (class.size - 1))
        } else {
            0
        };
        if !(lowest..lowest + (1i128 << class.size)).contains(&value) {
            return Err(FieldError::Range {
                size: class.size,
                signed: class.signed,
                found: value,
            });
        }
        for &slot in node.slots.of(&self.plan.slot_lists) {
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                *slot = Some(value as u64);
            }
        }
        if class.role == Some(Role::EventId) {
            self.event_id = Some(value as u64);
        }
        self.bits.align(class.align);
        if class.form == Form::Variable {
            self.bits
                .put_variable(value, class.signed, least.min(MAX_VARIABLE));
            return Ok(());
        }
        self.raw(in_form(class, value as u64), class.size, class.byte_order)
    }

    pub fn float(&mut self, class: &FloatClass, value: f64) -> Result<(), FieldError> {
        let bits = match class.size {
            16 => u64::from(half(value)),
            32 => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        };
        let bits = if class.reversed {
            reverse(bits, class.size)
        } else {
            bits
        };
        self.bits.align(class.align);
        self.raw(bits, class.size, class.byte_order)
    }

    fn raw(&mut self, value: u64, size: u32, order: ByteOrder) -> Result<(), FieldError> {
        if !self.bits.position().is_multiple_of(8) && self.last.is_some_and(|last| last != order) {
            return Err(FieldError::ByteOrder);
        }
        self.last = Some(order);
        self.bits.put(value, size, order);
        Ok(())
    }

    /// Encodes a text, padded with zeros, at which readers end it.
    pub fn text(&mut self, align: u32, count: Count, bytes: &[u8]) -> Result<(), FieldError> {
        let (length, found) = (self.count(count)?, bytes.len() as u64);
        let padding = length.checked_sub(found);
        let padding = padding.ok_or(FieldError::Count {
            expected: length,
            found,
        })?;
        let padding = usize::try_from(padding).unwrap_or(usize::MAX);
        if padding > MAX_PADDING {
            return Err(FieldError::Unsupported("a text array of this size"));
        }
        self.bits.align(align);
        self.bits.put_bytes(bytes);
        self.bits.put_bytes(&vec![0; padding]);
        Ok(())
    }

    /// The length of an array, from its class or from the length field written before.
    pub fn count(&self, count: Count) -> Result<u64, FieldError> {
        match count {
            Count::Fixed(length) => Ok(length),
            Count::Slot(slot) => self.slot(slot).ok_or(FieldError::Unsupported(
                "a length that has not been written",
            )),
        }
    }

    /// Checks the number of elements against the length.
    fn exactly(&self, count: Count, found: u64) -> Result<(), FieldError> {
        match self.count(count)? {
            length if length == found => Ok(()),
            expected => Err(FieldError::Count { expected, found }),
        }
    }

    fn optional<'d, I: Item<'d>>(
        &mut self,
        optional: &OptionalNode,
        content: I,
    ) -> Result<(), FieldError> {
        let selector = self.slot(optional.slot).ok_or(FieldError::Unsupported(
            "a selector that has not been written",
        ))?;
        self.clear(optional.clears);
        if optional.present(selector) {
            return self.node(optional.node, content);
        }
        match content.view() {
            View::Absent => Ok(()),
            _ => Err(FieldError::Option),
        }
    }

    fn variant<'d, I: Item<'d>>(
        &mut self,
        variant: &VariantNode,
        name: Option<&str>,
        content: I,
    ) -> Result<(), FieldError> {
        let tag = self.slot(variant.slot);
        let options = variant.options.of(&self.plan.children);
        let selected = tag.and_then(|tag| options.get(variant.select(tag)? as usize));
        let option = selected
            .filter(|option| name.is_none_or(|name| *option.name == *name))
            .ok_or(FieldError::Option)?;
        self.clear(variant.clears);
        self.node(option.node, content)
    }

    /// The value of the field that a slot belongs to.
    pub fn slot(&self, slot: u32) -> Option<u64> {
        self.slots.get(slot as usize).copied().flatten()
    }

    /// Clears the slots of fields in an option.
    pub fn clear(&mut self, slots: Span) {
        for &slot in slots.of(&self.plan.slot_lists) {
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                *slot = None;
            }
        }
    }
}

/// The bits of an integer of fixed size, in the bit order of its class.
pub(super) const fn in_form(class: &IntegerClass, value: u64) -> u64 {
    match class.form {
        Form::Reversed => reverse(value << (64 - class.size) >> (64 - class.size), class.size),
        Form::Fixed | Form::Variable => value,
    }
}

/// Checks that a text consists of whole characters.
const fn check_unit(bytes: &[u8], unit: u32) -> Result<(), FieldError> {
    if bytes.len().is_multiple_of(unit as usize) {
        Ok(())
    } else {
        Err(FieldError::Unsupported(
            "a text that does not consist of whole characters of its encoding",
        ))
    }
}

/// Converts a number to IEEE 754 binary16, rounding to the nearest, ties to even.
fn half(value: f64) -> u16 {
    let sign = ((value.to_bits() >> 48) & 0x8000) as u16;
    let size = value.abs();
    let bits = if size.is_nan() {
        0x7e00
    } else if size >= 65520.0 {
        0x7c00
    } else if size < 2f64.powi(-14) {
        // Multiples of the smallest number; the first number beyond these is the first normal one.
        (size * 2f64.powi(24)).round_ties_even() as u16
    } else {
        let exponent = ((size.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        let fraction = (size / 2f64.powi(exponent - 10)).round_ties_even() as u16;
        // A fraction rounded up to 2 carries into the exponent.
        (((exponent + 14) as u16) << 10) + fraction
    };
    sign | bits
}

const fn describe(node: &Node) -> &'static str {
    match node {
        Node::Integer(node) => match node.meaning {
            Meaning::Boolean => "a boolean",
            Meaning::Number | Meaning::Bits => "a number",
        },
        Node::Float(_) => "a floating point number",
        Node::String(_) | Node::Text { .. } => "a text",
        Node::Struct { .. } => "a structure",
        Node::Array { .. } => "an array",
        Node::Variant(_) => "a variant",
        Node::Blob { .. } => "a blob",
        Node::Optional(_) => "an optional field",
        // Occurs only in skip programs, which are not used for writing.
        Node::Skip { .. } | Node::Uuid { .. } => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_rounded_to_the_nearest() {
        let cases = [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (2f64.powi(-24), 1),
            (2f64.powi(-25), 0),
            (1.5 * 2f64.powi(-24), 2),
            (2f64.powi(-14), 0x0400),
            (2f64.powi(-14) - 2f64.powi(-26), 0x0400),
            (65504.0, 0x7bff),
            (65519.9, 0x7bff),
            (65520.0, 0x7c00),
            (f64::NEG_INFINITY, 0xfc00),
            (2049.0, 0x6800),
            (2051.0, 0x6802),
            (4095.9, 0x6c00),
        ];
        for (value, bits) in cases {
            assert_eq!(half(value), bits, "{value}");
        }
        assert_eq!(half(f64::NAN) & 0x7e00, 0x7e00);
    }
}
