//! Compiled plan: metadata flattened into the data that decoding needs.
//!
//! Each scope (packet header, event header, payload, ...) is compiled twice. The *full* program has a node for every
//! field, for showing fields. The *skip* program only finds the end of the scope: everything of fixed size on which
//! nothing depends is merged into a single node, so most payloads are skipped in one step. Common layouts have a faster
//! path for both: [header tables](header_table) for skipping, [field programs](field_program) for showing. Lengths and
//! tags use numbered slots: a field stores its value there when it is decoded, and dependent fields read it.

mod compile;
pub(crate) mod fast_path;
pub(crate) mod field_program;
pub(crate) mod header_table;
pub(crate) mod picks;
mod quirks;
mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::MetadataError;
use crate::metadata::{
    ByteOrder, ClockId, Encoding, FloatClass, IntegerClass, Mappings, Metadata, Scale,
};

/// Index of a node in [`Plan::nodes`].
pub(crate) type NodeId = u32;

/// A range of indices into one of the plan's tables.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub fn of<T>(self, table: &[T]) -> &[T] {
        table
            .get(self.start as usize..self.end as usize)
            .unwrap_or(&[])
    }
}

/// Decoding instruction for one field, or a run of them.
#[derive(Debug)]
pub(crate) enum Node {
    /// `bits` of fields without effect on others, including array elements of no size.
    Skip { align: u32, bits: u64, empties: u64 },
    /// An integer or enumeration.
    Integer(IntegerNode),
    /// A floating point number.
    Float(FloatClass),
    /// A zero-terminated string.
    String(Encoding),
    /// Bytes, with their stated media type.
    Blob { count: Count, media_type: Box<str> },
    /// The UUID in a packet header, as decoding needs it.
    Uuid { align: u32 },
    /// Members in order.
    Struct { align: u32, members: Span },
    /// Elements, each of `size` if that is fixed.
    Array {
        align: u32,
        count: Count,
        element: NodeId,
        size: Option<Fixed>,
    },
    /// An array of characters.
    Text {
        align: u32,
        count: Count,
        encoding: Encoding,
    },
    /// One of several options.
    Variant(VariantNode),
    /// A field that may be missing.
    Optional(OptionalNode),
}

/// Interpretation of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Number,
    Boolean,
    Bits,
}

/// An integer, with everything that depends on its value.
#[derive(Debug, Clone)]
pub(crate) struct IntegerNode {
    pub class: IntegerClass,
    pub meaning: Meaning,
    /// The labels of an enumeration, or of the bits of a bit map.
    pub mappings: Option<Arc<Mappings>>,
    /// Slots that receive the value.
    pub slots: Span,
}

/// Source of an array's length.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Fixed(u64),
    Slot(u32),
}

/// A variant: maps values of the tag to options.
#[derive(Debug)]
pub(crate) struct VariantNode {
    /// The slot that holds the tag.
    pub slot: u32,
    /// Slots that a field in one of the options writes: cleared before the selected one is decoded.
    pub clears: Span,
    /// The options with their names.
    pub options: Span,
    signed: bool,
    /// Option for each tag value from 0 on; [`NO_OPTION`] if none.
    dense: Vec<u16>,
    /// First and last tag value, and option, in the order of the options.
    ranges: Vec<(i128, i128, u32)>,
}

impl VariantNode {
    /// Index of the option that the raw tag value selects.
    pub fn select(&self, tag: u64) -> Option<u32> {
        if let Some(&option) = usize::try_from(tag)
            .ok()
            .and_then(|tag| self.dense.get(tag))
        {
            return (option != NO_OPTION).then_some(u32::from(option));
        }
        self.search(widen(tag, self.signed))
    }

    /// One value of the tag for each range that selects an option.
    pub fn tags(&self) -> impl Iterator<Item = i128> {
        self.ranges.iter().map(|(first, ..)| *first)
    }

    fn search(&self, tag: i128) -> Option<u32> {
        self.ranges
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&tag))
            .map(|(.., option)| *option)
    }
}

/// A field that is present for some values of its selector.
#[derive(Debug)]
pub(crate) struct OptionalNode {
    /// The slot that holds the selector.
    pub slot: u32,
    /// Slots that the field, or one in it, writes: cleared before it is decoded, and if it is absent.
    pub clears: Span,
    pub node: NodeId,
    signed: bool,
    ranges: Vec<(i128, i128)>,
}

impl OptionalNode {
    /// One value of the selector for each range that makes the field present.
    pub fn selectors(&self) -> impl Iterator<Item = i128> {
        self.ranges.iter().map(|(first, _)| *first)
    }

    /// Whether the raw value of the selector makes the field present.
    pub fn present(&self, selector: u64) -> bool {
        let value = widen(selector, self.signed);
        self.ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&value))
    }
}

/// The number in a slot.
const fn widen(raw: u64, signed: bool) -> i128 {
    if signed {
        raw as i64 as i128
    } else {
        raw as i128
    }
}

/// A member of a structure or an option of a variant.
#[derive(Debug)]
pub(crate) struct Child {
    pub name: Box<str>,
    pub node: NodeId,
}

/// Programs of a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub full: NodeId,
    pub skip: NodeId,
    /// The full one as a list, an index into [`Plan::flat`], if it can be one.
    pub flat: Option<u32>,
}

/// An event class, compiled.
#[derive(Debug)]
pub(crate) struct EventPlan {
    pub context: Option<Program>,
    pub fields: Option<Program>,
    /// The field program of everything after the header.
    pub body: Option<Box<[field_program::Op]>>,
    /// The fast path for the stream's event context, the event context and the payload, if they are simple.
    pub fast_path: Option<fast_path::Payload>,
}

/// A stream class, compiled.
#[derive(Debug)]
pub(crate) struct StreamPlan {
    pub packet_context: Option<Program>,
    pub event_header: Option<Program>,
    /// Table of the events' first bits, if the header is simple.
    pub header_table: Option<header_table::HeaderTable>,
    pub event_context: Option<Program>,
    pub events: Vec<EventPlan>,
    /// Event classes by id: a table for small ids ...
    dense: Vec<u32>,
    /// ... and a map for the others.
    sparse: BTreeMap<u64, u32>,
    /// The clock of the events' timestamps, and its fast conversion.
    pub clock: Option<ClockId>,
    pub scale: Option<Scale>,
    /// Whether its times may step back: they [approach](crate::metadata::Clock::approach) the clock instead of
    /// following it.
    pub steps_back: bool,
    /// Size in bits of the counter of discarded events, and of the packet sequence number.
    pub discarded_size: u32,
    pub sequence_size: u32,
}

/// Marks a tag value that selects no option.
const NO_OPTION: u16 = u16::MAX;

impl StreamPlan {
    /// Index of the event class with this id.
    pub fn event(&self, id: u64) -> Option<usize> {
        let index = match usize::try_from(id).ok().and_then(|id| self.dense.get(id)) {
            Some(&u32::MAX) => None,
            Some(&index) => Some(index),
            None => self.sparse.get(&id).copied(),
        };
        index.map(|index| index as usize)
    }
}

/// Compiled metadata, ready for decoding. It is compiled once and shared by any number of streams.
#[derive(Debug)]
pub struct Plan {
    pub(crate) metadata: Metadata,
    pub(crate) nodes: Vec<Node>,
    pub(crate) children: Vec<Child>,
    pub(crate) flat: Vec<Box<[field_program::Op]>>,
    /// Slot numbers, referred to by spans.
    pub(crate) slot_lists: Vec<u32>,
    /// Number of slots.
    pub(crate) slots: usize,
    pub(crate) packet_header: Option<Program>,
    pub(crate) streams: Vec<StreamPlan>,
    /// Whether fields of both byte orders occur.
    pub(crate) mixed: bool,
    /// The byte order, if there is only one.
    pub(crate) order: Option<ByteOrder>,
}

impl Plan {
    /// Compiles metadata, resolving it first.
    ///
    /// # Errors
    /// Those of [`Metadata::resolve`].
    pub fn new(mut metadata: Metadata) -> Result<Self, MetadataError> {
        metadata.resolve()?;
        let mut plan = Self {
            nodes: Vec::new(),
            children: Vec::new(),
            flat: Vec::new(),
            slot_lists: Vec::new(),
            slots: 0,
            packet_header: None,
            streams: Vec::new(),
            mixed: false,
            order: None,
            metadata: Metadata::new(ByteOrder::Little),
        };
        compile::compile(&mut plan, &metadata);
        plan.metadata = metadata;
        Ok(plan)
    }

    /// The metadata that this plan was compiled from.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)
    }
}

/// A size known before decoding, if the field begins at a multiple of `align`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fixed {
    pub align: u32,
    pub bits: u64,
    /// Number of elements of arrays in it that take no space, which count against their limit.
    pub empties: u64,
}

impl Fixed {
    /// The size of an array with `count` such elements: each but the last is padded to the alignment of the next.
    pub fn times(self, count: u64) -> u64 {
        let before = count
            .saturating_sub(1)
            .saturating_mul(round_up(self.bits, self.align));
        if count == 0 {
            0
        } else {
            before.saturating_add(self.bits)
        }
    }

    /// Number of elements of no size in an array of `count` of these, including these themselves.
    pub fn empties_in(self, count: u64) -> u64 {
        count.saturating_mul(self.empties.saturating_add(u64::from(self.bits == 0)))
    }
}

/// `bits` rounded up to a multiple of `align`.
fn round_up(bits: u64, align: u32) -> u64 {
    bits.checked_next_multiple_of(u64::from(align))
        .unwrap_or(u64::MAX)
}
