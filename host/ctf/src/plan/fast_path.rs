//! Fast path for nearly every event of real traces, restricted to simple layouts.
//!
//! The event headers of all tracers have few layouts, which differ by a tag or two in their first bits. So a header is
//! compiled into a table of its [forms](Form): for each, the positions of id and time and its end, in bits from its
//! start (together with the payloads, these make the [header table](super::header_table)). Payloads become a list of
//! [steps](Step) that find their end. Unsupported layouts (fields that update another clock, variants in payloads,
//! mixed byte orders, positions that depend on the event's position) have no fast path, and are left to the walk over
//! the [nodes](super::Node), which decodes any layout. Both give equal results.

use super::{Count, IntegerNode, Node, NodeId, Plan, Program, StreamPlan, VariantNode};
use crate::metadata::{ByteOrder, Form as Stored, Role};

/// Maximum size in bits of an event header with a fast path, so that the number of bytes needed is known.
pub(crate) const MAX_HEADER: u32 = 256;
/// Maximum number of forms and branches of a header.
const MAX_NODES: usize = 256;
/// Number of array lengths that one payload may store.
pub(crate) const REGISTERS: usize = 4;

/// Bytes that must be in memory from the start of a header, in order to decode it.
pub(crate) const ROOM: usize = MAX_HEADER as usize / 8 + 8;

/// A field in a header, which lies within 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits {
    /// Index of the first byte, below `MAX_HEADER / 8`.
    byte: u8,
    /// Bits to shift out at the low end, after loading 8 bytes.
    shift: u8,
    /// Size in bits.
    pub size: u8,
    /// Its offset in bits from the start of the header.
    pub offset: u16,
    /// Mask of its size; 0 for an absent field.
    pub mask: u64,
}

impl Bits {
    fn new(offset: u32, size: u32, order: ByteOrder) -> Option<Self> {
        let (byte, inside) = (offset / 8, offset % 8);
        if size == 0 || inside + size > 64 || offset >= MAX_HEADER {
            return None;
        }
        let shift = match order {
            ByteOrder::Little => inside,
            ByteOrder::Big => 64 - inside - size,
        };
        Some(Self {
            byte: byte as u8,
            shift: shift as u8,
            size: size as u8,
            mask: u64::MAX >> (64 - size),
            offset: offset as u16,
        })
    }

    /// An absent field, whose value is 0.
    pub const NONE: Self = Self {
        byte: 0,
        shift: 0,
        size: 0,
        offset: 0,
        mask: 0,
    };

    /// Extracts the value from the bytes of a header.
    #[inline(always)]
    pub fn of(self, header: &[u8; ROOM], order: ByteOrder) -> u64 {
        const BYTES: usize = ROOM - 9;
        let mut bytes = [0; 8];
        let at = usize::from(self.byte) & BYTES;
        bytes.copy_from_slice(&header[at..at + 8]);
        (integer(bytes, order) >> self.shift) & self.mask
    }
}

/// Eight bytes as an integer.
#[inline(always)]
pub(crate) const fn integer(bytes: [u8; 8], order: ByteOrder) -> u64 {
    match order {
        ByteOrder::Little => u64::from_le_bytes(bytes),
        ByteOrder::Big => u64::from_be_bytes(bytes),
    }
}

/// One layout of an event header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// The id of the event class.
    pub id: Option<Bits>,
    /// The lowest bits of the clock.
    pub time: Option<Bits>,
    /// End of the header, in bits.
    pub end: u32,
}

/// Decision tree that finds the form of a header.
#[derive(Debug)]
enum Tree {
    Leaf(u16),
    Branch {
        tag: Bits,
        /// Tag values, with the tree for each.
        options: Vec<(u64, u64, u16)>,
    },
}

/// Compiled event header of a stream class.
#[derive(Debug)]
pub(crate) struct Header {
    pub order: ByteOrder,
    /// Events begin at multiples of this, a multiple of 8.
    pub align: u32,
    pub forms: Vec<Form>,
    /// For each form, the selected options of the variants, in order.
    pub shapes: Vec<Vec<u32>>,
    trees: Vec<Tree>,
}

impl Header {
    /// The fields that determine the form of a header.
    pub fn tags(&self) -> impl Iterator<Item = Bits> {
        self.trees.iter().filter_map(|tree| match tree {
            Tree::Leaf(_) => None,
            Tree::Branch { tag, .. } => Some(*tag),
        })
    }

    /// The index of the form of the header at the start of `bytes`.
    pub fn form(&self, bytes: &[u8; ROOM]) -> Option<u16> {
        let mut tree = self.trees.last()?;
        loop {
            match tree {
                Tree::Leaf(form) => return Some(*form),
                Tree::Branch { tag, options } => {
                    let value = tag.of(bytes, self.order);
                    let found = options
                        .iter()
                        .find(|(first, last, _)| (*first..=*last).contains(&value))?;
                    tree = self.trees.get(usize::from(found.2))?;
                }
            }
        }
    }
}

/// Decoding step for a part of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Fields of a known size.
    Skip { align: u32, bits: u64 },
    /// A string that ends with a zero byte.
    String,
    /// An integer that is stored as the length of a later array.
    Length { align: u32, size: u32, register: u8 },
    /// An array of elements with `bits` each; its length is in a register.
    Array { align: u32, bits: u64, register: u8 },
}

/// Compiled fields of an event.
#[derive(Debug)]
pub(crate) struct Payload {
    /// Alignment and size of the stream's event context and of the event's context.
    pub contexts: [(u32, u64); 2],
    /// Alignment and size of the payload's first part.
    pub first: (u32, u64),
    /// The remaining parts.
    pub rest: Box<[Step]>,
}

/// Maximum size in bits of a part of known size, so that positions never overflow.
const MAX_PART: u64 = 1 << 40;

/// State of following a header.
#[derive(Clone, Default)]
struct State {
    offset: u32,
    id: Option<Bits>,
    time: Option<Bits>,
    /// Slots and the fields that fill them.
    slots: Vec<(u32, Bits)>,
    /// The options selected so far.
    choices: Vec<u32>,
}

struct Compiler<'p> {
    plan: &'p Plan,
    stream: &'p StreamPlan,
    header: Header,
}

/// The next multiple of `align`, a power of two. Positions never overflow.
#[inline(always)]
pub(crate) const fn round_up(at: u64, align: u32) -> u64 {
    let mask = align as u64 - 1;
    (at + mask) & !mask
}

/// Compiles the header of a stream class, if its layout allows.
pub(super) fn header(plan: &Plan, stream: &StreamPlan) -> Option<Header> {
    let program = stream.event_header?;
    let Some(Node::Struct { align, .. }) = plan.node(program.skip) else {
        return None;
    };
    if plan.mixed || !align.is_multiple_of(8) || *align > MAX_HEADER {
        return None;
    }
    let mut compiler = Compiler {
        plan,
        stream,
        header: Header {
            order: plan.order?,
            align: *align,
            forms: Vec::new(),
            shapes: Vec::new(),
            trees: Vec::new(),
        },
    };
    compiler.follow(vec![program.skip], State::default())?;
    Some(compiler.header)
}

impl Compiler<'_> {
    /// Compiles the rest of a header (`work`, with the next node last), and returns the index of its tree.
    fn follow(&mut self, mut work: Vec<NodeId>, mut state: State) -> Option<u16> {
        while let Some(node) = work.pop() {
            match self.plan.node(node)? {
                Node::Struct { align, members } => {
                    self.align(&mut state, *align)?;
                    let members = members.of(&self.plan.children);
                    work.extend(members.iter().rev().map(|member| member.node));
                }
                Node::Skip {
                    align,
                    bits,
                    empties: 0,
                } => {
                    self.align(&mut state, *align)?;
                    state.offset = state.offset.checked_add(u32::try_from(*bits).ok()?)?;
                }
                Node::Integer(node) => self.integer(node, &mut state)?,
                Node::Variant(variant) => return self.variant(variant, &work, &state),
                _ => return None,
            }
        }
        if state.offset > MAX_HEADER {
            return None;
        }
        let form = u16::try_from(self.header.forms.len()).ok()?;
        self.header.forms.push(Form {
            id: state.id,
            time: state.time,
            end: state.offset,
        });
        self.header.shapes.push(state.choices);
        self.push(Tree::Leaf(form))
    }

    fn push(&mut self, tree: Tree) -> Option<u16> {
        self.header.trees.push(tree);
        let count = self.header.trees.len();
        (count < MAX_NODES)
            .then(|| u16::try_from(count - 1).ok())
            .flatten()
    }

    /// Positions are known only if no field has a larger alignment than the header.
    fn align(&self, state: &mut State, align: u32) -> Option<()> {
        state.offset = state.offset.checked_next_multiple_of(align)?;
        (align <= self.header.align).then_some(())
    }

    fn integer(&self, node: &IntegerNode, state: &mut State) -> Option<()> {
        let class = &node.class;
        if class.form != Stored::Fixed || class.signed {
            return None;
        }
        self.align(state, class.align)?;
        let bits = Bits::new(state.offset, class.size, self.header.order)?;
        state.offset = state.offset.checked_add(class.size)?;
        match class.role {
            Some(Role::EventId) => state.id = Some(bits),
            None => {}
            Some(_) => return None,
        }
        if class.clock.is_some() {
            // Two fields of one clock would each update it.
            if class.clock != self.stream.clock || state.time.is_some() {
                return None;
            }
            state.time = Some(bits);
        }
        let slots = node.slots.of(&self.plan.slot_lists);
        state.slots.extend(slots.iter().map(|slot| (*slot, bits)));
        Some(())
    }

    fn variant(&mut self, variant: &VariantNode, work: &[NodeId], state: &State) -> Option<u16> {
        // The last field that fills the slot is the effective one.
        let tag = state.slots.iter().rev();
        let tag = tag.clone().find(|(slot, _)| *slot == variant.slot)?.1;
        let children = variant.options.of(&self.plan.children);
        let mut trees = Vec::with_capacity(children.len());
        for (index, child) in (0u32..).zip(children) {
            let (mut work, mut state) = (work.to_vec(), state.clone());
            work.push(child.node);
            state.choices.push(index);
            trees.push(self.follow(work, state)?);
        }
        let mut options = Vec::with_capacity(variant.ranges.len());
        for (first, last, option) in &variant.ranges {
            let (Ok(first), Ok(last)) = (u64::try_from(*first), u64::try_from(*last)) else {
                return None;
            };
            options.push((first, last, *trees.get(*option as usize)?));
        }
        self.push(Tree::Branch { tag, options })
    }
}

/// Compiles the contexts and payload of an event class, if their layouts allow.
pub(super) fn payload(
    plan: &Plan,
    contexts: [Option<Program>; 2],
    fields: Option<Program>,
) -> Option<Payload> {
    let mut sizes = [(1, 0); 2];
    for (context, size) in contexts.into_iter().zip(&mut sizes) {
        let Some(context) = context else { continue };
        let mut steps = Steps::default();
        steps.add(plan, context.skip)?;
        *size = match *steps.end()? {
            [] => (1, 0),
            [Step::Skip { align, bits }] => (align, bits),
            _ => return None,
        };
    }
    let mut steps = Steps::default();
    if let Some(fields) = fields {
        steps.add(plan, fields.skip)?;
    }
    let steps = steps.end()?;
    let (first, rest) = match &*steps {
        [Step::Skip { align, bits }, rest @ ..] => ((*align, *bits), rest),
        all => ((1, 0), all),
    };
    let rest = rest.into();
    Some(Payload {
        contexts: sizes,
        first,
        rest,
    })
}

#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    /// The slot stored in each register.
    registers: Vec<u32>,
}

impl Steps {
    fn add(&mut self, plan: &Plan, node: NodeId) -> Option<()> {
        match plan.node(node)? {
            Node::Struct { align, members } => {
                self.skip(*align, 0);
                for member in members.of(&plan.children) {
                    self.add(plan, member.node)?;
                }
            }
            Node::Skip {
                align,
                bits,
                empties: 0,
            } => self.skip(*align, *bits),
            Node::Float(class) => self.skip(class.align, u64::from(class.size)),
            Node::String(encoding) if encoding.unit() == 1 => self.steps.push(Step::String),
            Node::Integer(node) => {
                let class = &node.class;
                if class.clock.is_some() || class.role.is_some() || class.form == Stored::Variable {
                    return None;
                }
                let slots = node.slots.of(&plan.slot_lists);
                if slots.is_empty() {
                    self.skip(class.align, u64::from(class.size));
                    return Some(());
                }
                let &[slot] = slots else { return None };
                let whole = class.size.is_multiple_of(8) && class.align.is_multiple_of(8);
                if class.signed || class.form != Stored::Fixed || !whole {
                    return None;
                }
                let register = u8::try_from(self.registers.len()).ok()?;
                if usize::from(register) >= REGISTERS {
                    return None;
                }
                self.registers.push(slot);
                self.steps.push(Step::Length {
                    align: class.align,
                    size: class.size,
                    register,
                });
            }
            Node::Array {
                align,
                count: Count::Slot(slot),
                size: Some(size),
                ..
            } if size.empties == 0
                && size.bits > 0
                && size.bits.is_multiple_of(u64::from(size.align)) =>
            {
                self.array(*align, size.bits, *slot)?;
            }
            Node::Text {
                align,
                count: Count::Slot(slot),
                encoding,
            } if encoding.unit() == 1 => self.array(*align, 8, *slot)?,
            Node::Blob {
                count: Count::Slot(slot),
                ..
            } => self.array(8, 8, *slot)?,
            _ => return None,
        }
        Some(())
    }

    /// All steps, if each has a reasonable size.
    fn end(self) -> Option<Box<[Step]>> {
        let reasonable = self.steps.iter().all(|step| match step {
            Step::Skip { bits, .. } | Step::Array { bits, .. } => *bits <= MAX_PART,
            Step::String | Step::Length { .. } => true,
        });
        reasonable.then(|| self.steps.into())
    }

    fn array(&mut self, align: u32, bits: u64, slot: u32) -> Option<()> {
        let mut registers = self.registers.iter();
        let register = registers.rposition(|it| *it == slot)?;
        self.steps.push(Step::Array {
            align,
            bits,
            register: u8::try_from(register).ok()?,
        });
        Some(())
    }

    /// Adds a part of known size, merged with the previous one if that has the larger alignment.
    fn skip(&mut self, align: u32, bits: u64) {
        if align == 1 && bits == 0 {
            return;
        }
        match self.steps.last_mut() {
            Some(Step::Skip {
                align: before,
                bits: run,
            }) if align <= *before => {
                *run = super::round_up(*run, align).saturating_add(bits);
            }
            _ => self.steps.push(Step::Skip { align, bits }),
        }
    }
}
