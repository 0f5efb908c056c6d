//! Interpreter of a plan over the bytes of a packet.
//!
//! The same walk serves decoding, which only finds the end of an event and extracts times and ids, and visiting, which
//! passes on every field. It never allocates.

use std::cell::Cell;

use super::bits::{Cursor, Stop, extend, reverse, zero};
use crate::error::DecodeErrorKind as Kind;
use crate::metadata::{Encoding, Form, Scope, Value64};
use crate::plan::{Count, IntegerNode, Node, NodeId, OptionalNode, Plan, VariantNode};

/// Maximum number of array elements of no size in an event. They take no space in the trace, so nothing else limits the
/// number that a trace claims.
const MAX_EMPTY_ELEMENTS: u64 = 1 << 10;

/// Values of fields that later fields depend on.
pub(crate) type SlotValues = [Cell<Option<u64>>];

/// Receiver of the fields of a walk.
pub(super) trait Sink<'a> {
    /// Whether it needs fields that nothing depends on.
    const FIELDS: bool;

    /// Whether to continue.
    fn wants_more(&self) -> bool {
        true
    }
    /// Begins the fields of a scope, if several are shown in one walk.
    fn scope(&mut self, _scope: Scope) {}
    /// A plain number of fixed size.
    #[inline(always)]
    fn number(&mut self, name: &'a str, node: &'a IntegerNode, value: u64) {
        self.integer(name, node, value, node.class.size);
    }
    /// `size` is the number of significant bits: those of the class, unless the size is variable.
    fn integer(&mut self, _name: &'a str, _node: &'a IntegerNode, _value: u64, _size: u32) {}
    fn float(&mut self, _name: &'a str, _value: f64, _size: u32) {}
    fn text(&mut self, _name: &'a str, _bytes: &'a [u8], _encoding: Encoding) {}
    fn blob(&mut self, _name: &'a str, _bytes: &'a [u8], _media_type: &'a str) {}
    fn absent(&mut self, _name: &'a str) {}
    fn uuid(&mut self, _bytes: &'a [u8]) {}
    fn begin(&mut self, _name: &'a str, _container: Container) {}
    fn end(&mut self, _container: Container) {}
}

/// Kind of a field with inner fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// A structure.
    Struct,
    /// An array or sequence with this many elements.
    Array(u64),
    /// A variant, with its selected option.
    Variant,
    /// A present optional field. An absent one is [`Value::Absent`](super::Value::Absent).
    Optional,
}

/// A walk over one or more scopes of a packet or event.
pub(super) struct Walk<'a, 's> {
    pub plan: &'a Plan,
    pub slots: &'s SlotValues,
    pub scope: Scope,
    /// Number of array elements of no size so far.
    pub empties: Cell<u64>,
}

impl<'a> Walk<'a, '_> {
    /// Decodes a whole scope, whose root structure is not reported.
    pub fn scope<S: Sink<'a>>(
        &self,
        node: NodeId,
        cursor: &mut Cursor<'a>,
        sink: &mut S,
    ) -> Result<(), Stop> {
        let Some(Node::Struct { align, members }) = self.plan.node(node) else {
            return self.node(node, "", cursor, sink);
        };
        cursor.align(*align)?;
        for member in members.of(&self.plan.children) {
            if !sink.wants_more() {
                return Ok(());
            }
            self.node(member.node, &member.name, cursor, sink)?;
        }
        Ok(())
    }

    /// Decodes `node` at the cursor.
    pub fn node<S: Sink<'a>>(
        &self,
        node: NodeId,
        name: &'a str,
        cursor: &mut Cursor<'a>,
        sink: &mut S,
    ) -> Result<(), Stop> {
        let Some(node) = self.plan.node(node) else {
            return Ok(());
        };
        match node {
            Node::Skip {
                align,
                bits,
                empties,
            } => {
                cursor.align(*align)?;
                cursor.skip(*bits)?;
                if *empties > 0 {
                    self.count_empties(*empties, cursor)?;
                }
            }
            Node::Integer(integer) => {
                let class = &integer.class;
                cursor.align(class.align)?;
                let (value, size) = if class.form == Form::Variable {
                    cursor.variable(class.signed)?
                } else {
                    let mut raw = cursor.integer(class.size, class.byte_order)?;
                    if class.form == Form::Reversed {
                        raw = reverse(raw, class.size);
                    }
                    if class.signed {
                        raw = extend(raw, class.size) as u64;
                    }
                    (raw, class.size)
                };
                for &slot in integer.slots.of(&self.plan.slot_lists) {
                    self.set(slot, Some(value));
                }
                sink.integer(name, integer, value, size);
            }
            Node::Float(class) => {
                cursor.align(class.align)?;
                let value = cursor.float(class)?;
                sink.float(name, value, class.size);
            }
            Node::String(encoding) => {
                cursor.align(8)?;
                let text = cursor.string(encoding.unit())?;
                sink.text(name, text, *encoding);
            }
            Node::Text {
                align,
                count,
                encoding,
            } => {
                let length = self.count(*count, cursor)?;
                cursor.align(*align)?;
                let unit = encoding.unit();
                if !length.is_multiple_of(u64::from(unit)) {
                    let (expected, found) = (unit, length);
                    return Err(Stop::Fault(Kind::Characters { expected, found }, cursor.at));
                }
                let bytes = cursor.bytes(length)?;
                let end = zero(bytes, unit).unwrap_or(bytes.len());
                sink.text(name, bytes.get(..end).unwrap_or(bytes), *encoding);
            }
            Node::Blob { count, media_type } => {
                let length = self.count(*count, cursor)?;
                cursor.align(8)?;
                sink.blob(name, cursor.bytes(length)?, media_type);
            }
            Node::Uuid { align } => {
                cursor.align(*align)?;
                sink.uuid(cursor.bytes(16)?);
            }
            Node::Struct { align, members } => {
                cursor.align(*align)?;
                sink.begin(name, Container::Struct);
                for member in members.of(&self.plan.children) {
                    if !sink.wants_more() {
                        return Ok(());
                    }
                    self.node(member.node, &member.name, cursor, sink)?;
                }
                sink.end(Container::Struct);
            }
            Node::Array { .. } => self.array(node, name, cursor, sink)?,
            Node::Variant(variant) => self.variant(variant, name, cursor, sink)?,
            Node::Optional(optional) => self.optional(optional, name, cursor, sink)?,
        }
        Ok(())
    }

    fn optional<S: Sink<'a>>(
        &self,
        optional: &'a OptionalNode,
        name: &'a str,
        cursor: &mut Cursor<'a>,
        sink: &mut S,
    ) -> Result<(), Stop> {
        let Some(selector) = self.get(optional.slot) else {
            return Err(Stop::Fault(
                Kind::NoSelector { scope: self.scope },
                cursor.at,
            ));
        };
        for &slot in optional.clears.of(&self.plan.slot_lists) {
            self.set(slot, None);
        }
        if optional.present(selector) {
            sink.begin(name, Container::Optional);
            self.node(optional.node, "", cursor, sink)?;
            sink.end(Container::Optional);
        } else {
            sink.absent(name);
        }
        Ok(())
    }

    fn array<S: Sink<'a>>(
        &self,
        node: &'a Node,
        name: &'a str,
        cursor: &mut Cursor<'a>,
        sink: &mut S,
    ) -> Result<(), Stop> {
        let Node::Array {
            align,
            count,
            element,
            size,
        } = node
        else {
            return Ok(());
        };
        let length = self.count(*count, cursor)?;
        cursor.align(*align)?;
        if let Some(size) = size {
            // A single check shows whether all elements are in memory, however many the field claims.
            let mut end = *cursor;
            end.skip(size.times(length))?;
            if !S::FIELDS {
                *cursor = end;
                return self.count_empties(size.empties_in(length), cursor);
            }
        }
        sink.begin(name, Container::Array(length));
        for _ in 0..length {
            if !sink.wants_more() {
                return Ok(());
            }
            let before = cursor.at;
            self.node(*element, "", cursor, sink)?;
            if cursor.at == before && !S::FIELDS {
                self.count_empties(1, cursor)?;
            }
        }
        sink.end(Container::Array(length));
        Ok(())
    }

    fn variant<S: Sink<'a>>(
        &self,
        variant: &'a VariantNode,
        name: &'a str,
        cursor: &mut Cursor<'a>,
        sink: &mut S,
    ) -> Result<(), Stop> {
        let Some(tag) = self.get(variant.slot) else {
            return Err(Stop::Fault(
                Kind::NoSelector { scope: self.scope },
                cursor.at,
            ));
        };
        let options = variant.options.of(&self.plan.children);
        let option = variant
            .select(tag)
            .and_then(|index| options.get(index as usize));
        let Some(option) = option else {
            return Err(Stop::Fault(
                Kind::VariantTag {
                    scope: self.scope,
                    found: tag,
                },
                cursor.at,
            ));
        };
        for &slot in variant.clears.of(&self.plan.slot_lists) {
            self.set(slot, None);
        }
        sink.begin(name, Container::Variant);
        self.node(option.node, &option.name, cursor, sink)?;
        sink.end(Container::Variant);
        Ok(())
    }

    /// Counts elements of no size against their limit when decoding, so that visiting terminates.
    fn count_empties(&self, count: u64, cursor: &Cursor<'a>) -> Result<(), Stop> {
        let found = self.empties.get().saturating_add(count);
        self.empties.set(found);
        let limit = MAX_EMPTY_ELEMENTS;
        if found <= limit {
            Ok(())
        } else {
            Err(Stop::Fault(Kind::TooManyEmpty { limit, found }, cursor.at))
        }
    }

    fn count(&self, count: Count, cursor: &Cursor<'a>) -> Result<u64, Stop> {
        match count {
            Count::Fixed(length) => Ok(length),
            Count::Slot(slot) => self.get(slot).ok_or(Stop::Fault(
                Kind::NoSelector { scope: self.scope },
                cursor.at,
            )),
        }
    }

    fn get(&self, slot: u32) -> Option<u64> {
        self.slots.get(slot as usize).and_then(Cell::get)
    }

    fn set(&self, slot: u32, value: Option<u64>) {
        if let Some(cell) = self.slots.get(slot as usize) {
            cell.set(value);
        }
    }
}

/// The value of an integer node as a number.
#[inline(always)]
pub(super) const fn number(node: &IntegerNode, value: u64) -> Value64 {
    if node.class.signed {
        Value64::Signed(value as i64)
    } else {
        Value64::Unsigned(value)
    }
}
