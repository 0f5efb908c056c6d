//! Headers: fields whose values the writer knows, as far as they have a meaning.
//!
//! A header may be of several shapes, as LTTng's are: a small id and the low bits of the time, or, if either does not fit,
//! an escape behind which both are whole. Which shape an event takes is for the writer to find: it tries the values that
//! select one, the plainest first, until the header says what it has to say.

use super::bits::MAX_VARIABLE;
use super::datum::Encoder;
use super::mask;
use crate::error::{FieldError, WriteError};
use crate::metadata::{Clock, Form, Role, Scope};
use crate::plan::{Count, IntegerNode, Node, NodeId, Plan, Program};

/// Most combinations of selecting values that are tried for a header.
const MAX_TRIES: usize = 256;

/// What an integer of a header is to say: its value, and how many bytes it takes at least if its size is variable.
pub(super) type Said = (u64, u32);

/// The integers of a header by which other fields of it are selected, each with the values that select one.
#[derive(Debug, Default)]
pub(super) struct Selectors(Vec<(NodeId, Vec<u64>)>);

impl Selectors {
    /// Those of a header.
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

    /// How many combinations there are to try; the first leaves all integers their own values.
    pub fn tries(&self) -> usize {
        let choices = self.0.iter().map(|(_, values)| values.len() + 1);
        choices.fold(1, usize::saturating_mul).min(MAX_TRIES)
    }

    /// The value that an integer is given in one of the combinations, if it is not to have its own.
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

/// The integers of a header that others depend on, and the values of slots that select something.
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
            // For most selectors the field is not there, and nearly always for 0.
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

/// Whether an integer has a role that this writer fills in by itself.
pub(super) fn is_known(node: &IntegerNode) -> bool {
    node.class.role.is_some_and(|role| role != Role::CpuId)
}

/// What a header field says of a time: its low bits, if readers will take them for that time; 0 for one that is no time.
/// A field of variable size has as many bits as it takes. In a stream whose time may step back, it is to be that time for
/// readers that go by that and for those that don't.
pub(super) fn stamp(
    clocks: &mut [u64],
    node: &IntegerNode,
    ticks: u64,
    steps_back: bool,
) -> Result<Said, FieldError> {
    let Some(clock) = node.class.clock else {
        // A begin time without a clock is just a number.
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
        // A reader takes as many bits as there are, up to 64.
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

/// Refuses a packet context with what is filled in when the packet ends anywhere but at its top, where it is found.
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
    /// A field of a header, by one of the combinations of selecting values. `value` knows what integers say; what it does
    /// not know is 0, and so is every other field.
    pub fn header(
        &mut self,
        id: NodeId,
        selectors: &Selectors,
        number: usize,
        value: &mut impl FnMut(&IntegerNode) -> Result<Said, FieldError>,
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
            // Only in programs for skipping, by which nothing is written.
            Node::Skip { .. } | Node::Uuid { .. } => Ok(()),
        }
    }

    /// The bytes of a UUID, in whatever it stands: an array of bytes, or a blob.
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
