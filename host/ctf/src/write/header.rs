//! Header encoder: fields whose values the writer determines from their roles.
//!
//! A header may have several layouts, as LTTng's do: a small id and the low bits of the time, or, if either does not
//! fit, an escape followed by both in full. The writer chooses the layout: it tries the selector values, simplest
//! first, until the header represents id and time.

use super::bits::MAX_VARIABLE;
use super::datum::Encoder;
use super::mask;
use crate::error::{FieldError, WriteError};
use crate::metadata::{Clock, Form, Role, Scope};
use crate::plan::{Count, IntegerNode, Node, NodeId, Plan, Program};

/// Maximum number of combinations of selector values tried for a header.
const MAX_TRIES: usize = 256;

/// Value of a header integer, and its minimum number of bytes if its size is variable.
pub(super) type HeaderValue = (u64, u32);

/// The integers of a header that select other fields, each with the possible values.
#[derive(Debug, Default)]
pub(super) struct Selectors(Vec<(NodeId, Vec<u64>)>);

impl Selectors {
    /// Collects the selectors of a header.
    pub fn of(plan: &Plan, header: NodeId) -> Self {
        let mut integers = Vec::new();
        let mut values = Vec::new();
        collect(plan, header, &mut integers, &mut values);
        let selectors = integers.into_iter().filter_map(|(id, node)| {
            let slots = node.slots.of(&plan.slot_lists);
            let mut own: Vec<u64> = values
                .iter()
                .filter(|(slot, _)| slots.contains(slot))
                .map(|(_, value)| *value as u64)
                .collect();
            own.dedup();
            (!own.is_empty()).then_some((id, own))
        });
        Self(selectors.collect())
    }

    /// Number of combinations to try; in the first, all integers keep their own values.
    pub fn tries(&self) -> usize {
        let choices = self.0.iter().map(|(_, values)| values.len() + 1);
        choices.fold(1, usize::saturating_mul).min(MAX_TRIES)
    }

    /// The value of an integer in a combination; `None` if it keeps its own.
    fn value(&self, mut number: usize, integer: NodeId) -> Option<u64> {
        for (id, values) in &self.0 {
            let choices = values.len() + 1;
            if *id == integer {
                return values.get((number % choices).checked_sub(1)?).copied();
            }
            number /= choices;
        }
        None
    }
}

/// Collects the integers that other fields depend on, and the slot values that select something.
fn collect<'p>(
    plan: &'p Plan,
    id: NodeId,
    integers: &mut Vec<(NodeId, &'p IntegerNode)>,
    values: &mut Vec<(u32, i128)>,
) {
    match plan.node(id) {
        Some(Node::Integer(node)) if !node.slots.of(&plan.slot_lists).is_empty() => {
            integers.push((id, node));
        }
        Some(Node::Struct { members, .. }) => {
            for member in members.of(&plan.children) {
                collect(plan, member.node, integers, values);
            }
        }
        Some(Node::Array { element, .. }) => collect(plan, *element, integers, values),
        Some(Node::Variant(variant)) => {
            values.extend(variant.tags().map(|tag| (variant.slot, tag)));
            for option in variant.options.of(&plan.children) {
                collect(plan, option.node, integers, values);
            }
        }
        Some(Node::Optional(optional)) => {
            let present = optional.selectors().map(|value| (optional.slot, value));
            values.extend(present);
            // Most selector values make the field absent, nearly always including 0.
            values.push((optional.slot, 0));
            collect(plan, optional.node, integers, values);
        }
        _ => {}
    }
}

/// Whether any integer at or below a node satisfies a condition.
pub(super) fn any(plan: &Plan, id: NodeId, wanted: &impl Fn(&IntegerNode) -> bool) -> bool {
    match plan.node(id) {
        Some(Node::Integer(node)) => wanted(node),
        Some(Node::Struct { members, .. }) => {
            let mut members = members.of(&plan.children).iter();
            members.any(|member| any(plan, member.node, wanted))
        }
        Some(Node::Array { element, .. }) => any(plan, *element, wanted),
        Some(Node::Variant(variant)) => {
            let mut options = variant.options.of(&plan.children).iter();
            options.any(|option| any(plan, option.node, wanted))
        }
        Some(Node::Optional(optional)) => any(plan, optional.node, wanted),
        _ => false,
    }
}

/// Whether an integer has a role that this writer fills in.
pub(super) fn is_known(node: &IntegerNode) -> bool {
    node.class.role.is_some_and(|role| role != Role::CpuId)
}

/// The value of a time field: the low bits of the time, if readers reconstruct the time from them; 0 for a field that
/// is not a time. A field of variable size gets as many bits as necessary. If the stream's time may step back, both
/// readers that allow for that and those that don't must reconstruct it.
pub(super) fn stamp(
    clocks: &mut [u64],
    node: &IntegerNode,
    ticks: u64,
    steps_back: bool,
) -> Result<HeaderValue, FieldError> {
    let Some(clock) = node.class.clock else {
        // A begin time without a clock is a plain number.
        let begins = node.class.role == Some(Role::TimestampBegin);
        return Ok((if begins { ticks } else { 0 }, 1));
    };
    let size = node.class.size;
    let Some(clock) = clocks.get_mut(clock.0 as usize) else {
        return Ok((0, 1));
    };
    let from = *clock;
    let fits = |size| {
        let approached = !steps_back || Clock::approach(from, ticks, size) == ticks;
        approached && Clock::follow(from, ticks, size) == ticks
    };
    let sizes = match node.class.form {
        Form::Variable => 1..=MAX_VARIABLE,
        Form::Fixed | Form::Reversed => MAX_VARIABLE..=MAX_VARIABLE,
    };
    for bytes in sizes {
        // A reader uses all bits present, up to 64.
        let bits = size.min(7 * bytes);
        if fits(bits) {
            *clock = ticks;
            return Ok((ticks & mask(bits), bytes));
        }
    }
    Err(FieldError::Time {
        from,
        to: ticks,
        size,
    })
}

/// Rejects a packet context whose fields for the end of the packet are not at its top, where the writer fills them in.
pub(super) fn check_context(plan: &Plan, context: Option<Program>) -> Result<(), WriteError> {
    let Some(Node::Struct { members, .. }) = context.and_then(|it| plan.node(it.full)) else {
        return Ok(());
    };
    let hidden =
        |node| !matches!(plan.node(node), Some(Node::Integer(_))) && any(plan, node, &is_known);
    let mut members = members.of(&plan.children).iter();
    if members.any(|member| hidden(member.node)) {
        let what = "a size or time of a packet inside of another field";
        return Err(WriteError::Field {
            scope: Scope::PacketContext,
            error: FieldError::Unsupported(what),
        });
    }
    Ok(())
}

impl Encoder<'_, '_> {
    /// Encodes a field of a header, with one of the combinations of selector values. `value` returns the values of
    /// integers; all others, and every other field, are 0.
    pub fn header(
        &mut self,
        id: NodeId,
        selectors: &Selectors,
        number: usize,
        value: &mut impl FnMut(&IntegerNode) -> Result<HeaderValue, FieldError>,
    ) -> Result<(), FieldError> {
        let plan = self.plan;
        let Some(node) = plan.node(id) else {
            return Ok(());
        };
        match node {
            Node::Integer(node) => {
                let own = value(node)?;
                let (value, least) = selectors.value(number, id).map_or(own, |value| (value, 1));
                let value = if node.class.signed {
                    i128::from(value as i64)
                } else {
                    i128::from(value)
                };
                self.padded(node, value, least)
            }
            Node::Struct { align, members } => {
                self.bits.align(*align);
                let mut members = members.of(&plan.children).iter();
                members.try_for_each(|member| self.header(member.node, selectors, number, value))
            }
            Node::Array {
                align,
                count,
                element,
                ..
            } => {
                let length = self.count(*count)?;
                self.bits.align(*align);
                (0..length).try_for_each(|_| self.header(*element, selectors, number, value))
            }
            Node::Variant(variant) => {
                let tag = self.slot(variant.slot).ok_or(FieldError::Option)?;
                let options = variant.options.of(&plan.children);
                let option = variant
                    .select(tag)
                    .and_then(|index| options.get(index as usize))
                    .ok_or(FieldError::Option)?;
                self.clear(variant.clears);
                self.header(option.node, selectors, number, value)
            }
            Node::Optional(optional) => {
                let selector = self.slot(optional.slot).ok_or(FieldError::Option)?;
                self.clear(optional.clears);
                if optional.present(selector) {
                    self.header(optional.node, selectors, number, value)
                } else {
                    Ok(())
                }
            }
            Node::Float(class) => self.float(class, 0.0),
            Node::String(encoding) => {
                self.bits.align(8);
                self.bits.put_bytes(&[0; 4][..encoding.unit() as usize]);
                Ok(())
            }
            Node::Text { align, count, .. } => self.text(*align, *count, &[]),
            Node::Blob { count, .. } => self.text(8, *count, &[]),
            // Occurs only in skip programs, which are not used for writing.
            Node::Skip { .. } | Node::Uuid { .. } => Ok(()),
        }
    }

    /// Encodes the bytes of a UUID, as an array of bytes or a blob.
    pub fn uuid(&mut self, id: NodeId, bytes: [u8; 16]) -> Result<(), FieldError> {
        let align = match self.plan.node(id) {
            Some(Node::Array {
                align,
                count: Count::Fixed(16),
                ..
            }) => *align,
            Some(Node::Blob {
                count: Count::Fixed(16),
                ..
            }) => 8,
            _ => return Err(FieldError::Unsupported("a UUID of other than 16 bytes")),
        };
        self.bits.align(align.max(8));
        self.bits.put_bytes(&bytes);
        Ok(())
    }
}
