//! Field programs: the fields of a scope as a flat list of operations, for showing all of them.
//!
//! At every field of a tree of [nodes](super::Node), an interpreter has to compute the position, check bounds, and find
//! the next node. Most of this is known beforehand: fields of known sizes are at fixed distances from one another, and
//! decoded content needs no further checks. So a scope is compiled into a list of [operations](Op), each with its
//! distance from the last position that had to be computed (the start of the scope, the end of a string). Alternatives
//! are jumps. Unsupported layouts (arrays of structures, bits in the opposite order, lengths in another scope) have no
//! field program and are shown by the walk over the nodes, with equal results.

use std::collections::HashSet;

use super::{Child, Count, IntegerNode, Meaning, Node, NodeId, Plan, Program, round_up};
use crate::metadata::{ByteOrder, Encoding, Form, Scope};
use crate::read::Container;

/// Maximum number of operations of a program: nested options multiply.
const MAX_OPS: usize = 4096;
/// Limit of distances from a computed position, in bits.
const MAX_OFFSET: u64 = 1 << 30;

/// Maximum distance in bytes of a [near](Op::Number) integer from the position.
pub(crate) const NEAR: usize = 1 << 8;

/// Operation of a field program. The *place* is the current position in bits; `skip` advances it first.
///
/// The tag occupies a byte of its own, where it is fastest to load.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(crate) enum Op {
    /// Advances the place to a multiple of `align`.
    Align { skip: u32, align: u32 },
    /// A plain number near the place, which is on a byte boundary: in the 8 bytes at `offset` bytes after the place,
    /// above `shift` other bits.
    Number {
        offset: u8,
        shift: u8,
        name: Box<str>,
        /// Mask of its size.
        mask: u64,
        /// The sign bit, 0 if there is none.
        sign: u64,
        node: Box<IntegerNode>,
    },
    /// Any integer, `offset` bits after the place.
    Integer {
        offset: u32,
        name: Box<str>,
        node: Box<IntegerNode>,
    },
    /// A floating point number, `offset` bits after the place.
    Float {
        offset: u32,
        size: u32,
        name: Box<str>,
    },
    /// A string at the place, which advances past it.
    String {
        encoding: Encoding,
        skip: u32,
        name: Box<str>,
    },
    /// Text bytes at the place, which advances past them.
    Text {
        encoding: Encoding,
        skip: u32,
        name: Box<str>,
        count: Count,
    },
    /// Bytes at the place, which advances past them.
    Blob {
        skip: u32,
        name: Box<str>,
        blob: Box<(Count, Box<str>)>,
    },
    /// Array elements at the place, which advances past them.
    Array {
        skip: u32,
        name: Box<str>,
        elements: Box<Elements>,
    },
    /// Advances the place past an array that is not shown.
    Pass { skip: u32, elements: Box<Elements> },
    /// Begins a structure or variant.
    Begin {
        name: Box<str>,
        container: Container,
    },
    /// Ends it.
    End(Container),
    /// Begins the fields of this scope.
    Scope(Scope),
    /// Jumps to the operation of the selected option of a variant (the node).
    Variant {
        skip: u32,
        name: Box<str>,
        choice: Box<(NodeId, Box<[u32]>)>,
    },
    /// Ends an option, and with it its variant, and jumps to the operation `target`.
    Leave { skip: u32, target: u32 },
}

impl Op {
    /// An integer, with its distance from the place in bits.
    pub fn integer(&self) -> Option<(u32, &str, &IntegerNode)> {
        match self {
            Self::Integer { offset, name, node } => Some((*offset, name, node)),
            Self::Number {
                offset,
                shift,
                name,
                node,
                ..
            } => {
                let inside = match node.class.byte_order {
                    ByteOrder::Little => u32::from(*shift),
                    ByteOrder::Big => 64 - u32::from(*shift) - node.class.size,
                };
                Some((u32::from(*offset) * 8 + inside, name, node))
            }
            _ => None,
        }
    }
}

/// The elements of an array.
#[derive(Debug, Clone)]
pub(crate) struct Elements {
    pub count: Count,
    /// Distance between elements and size of the last one, in bits.
    pub stride: u32,
    pub size: u32,
    /// The class of integer elements; `None` for floating point numbers.
    pub integer: Option<IntegerNode>,
}

impl Elements {
    /// Size in bits of `count` elements.
    #[inline]
    pub fn bits(&self, count: u64) -> u64 {
        let before = count.checked_sub(1);
        before.map_or(0, |it| it * u64::from(self.stride) + u64::from(self.size))
    }
}

/// A program under construction.
struct Compiler<'p> {
    plan: &'p Plan,
    ops: Vec<Op>,
    /// Distance from the place to the next field, in bits.
    offset: u64,
    /// The place is known to be a multiple of this.
    aligned: u32,
    /// Slots that the program itself reads.
    read: HashSet<u32>,
    /// Slots that have been written on every path to here.
    written: HashSet<u32>,
    /// The options of the next variants, if known.
    choices: &'p [u32],
}

/// Compiles the tree below `node`, the root structure of a scope, if its layout allows.
pub(super) fn scope(plan: &Plan, node: NodeId) -> Option<Box<[Op]>> {
    let mut compiler = Compiler::new(plan, 1, &[])?;
    compiler.root(node)?;
    Some(compiler.end())
}

/// Compiles whole events that begin at a multiple of `aligned`, if their layout allows; also returns where the part
/// after the header begins. `choices` are the options of the variants in the header.
pub(super) fn event(
    plan: &Plan,
    (header, aligned, choices): (NodeId, u32, &[u32]),
    scopes: Scopes,
) -> Option<(Box<[Op]>, usize)> {
    let mut compiler = Compiler::new(plan, aligned, choices)?;
    compiler.root(header)?;
    let body = compiler.ops.len();
    // A program for the part after the header cannot use slots that the header writes.
    compiler.written.clear();
    compiler.scopes(scopes)?;
    Some((compiler.end(), body))
}

/// The scopes after an event's header.
pub(super) type Scopes = [(Scope, Option<Program>); 3];

/// Compiles all scopes after an event's header into one program, if their layouts allow.
pub(super) fn body(plan: &Plan, scopes: Scopes) -> Option<Box<[Op]>> {
    let mut compiler = Compiler::new(plan, 1, &[])?;
    compiler.scopes(scopes)?;
    Some(compiler.end())
}

/// A program without operations that only show nesting. (A program with jumps, which are operation indices, is returned
/// unchanged; programs of events with a known header have none.)
pub(super) fn values(ops: &[Op]) -> Box<[Op]> {
    let jumps = |op: &Op| matches!(op, Op::Variant { .. } | Op::Leave { .. });
    let is_value = |op: &Op| !matches!(op, Op::Begin { .. } | Op::End(_) | Op::Scope(_));
    let whole = ops.iter().any(jumps);
    let left = ops.iter().filter(|op| whole || is_value(op));
    left.cloned().collect()
}

impl<'p> Compiler<'p> {
    fn new(plan: &'p Plan, aligned: u32, choices: &'p [u32]) -> Option<Self> {
        // Programs support a single byte order.
        plan.order?;
        Some(Self {
            plan,
            ops: Vec::new(),
            offset: 0,
            aligned,
            read: HashSet::new(),
            written: HashSet::new(),
            choices,
        })
    }

    /// Compiles the root structure of a scope, which is not shown as a structure.
    fn root(&mut self, node: NodeId) -> Option<()> {
        let Node::Struct { align, members } = self.plan.node(node)? else {
            return None;
        };
        self.align(*align)?;
        self.members(members.of(&self.plan.children))
    }

    fn scopes(&mut self, scopes: Scopes) -> Option<()> {
        for (scope, program) in scopes {
            if let Some(program) = program {
                self.push(Op::Scope(scope))?;
                self.root(program.full)?;
            }
        }
        Some(())
    }

    fn members(&mut self, members: &[Child]) -> Option<()> {
        members
            .iter()
            .try_for_each(|member| self.node(member.node, &member.name))
    }

    fn push(&mut self, op: Op) -> Option<()> {
        self.ops.push(op);
        (self.ops.len() < MAX_OPS).then_some(())
    }

    /// Aligns the next field to a multiple of `align`.
    fn align(&mut self, align: u32) -> Option<()> {
        if align > self.aligned {
            let skip = u32::try_from(self.offset).ok()?;
            self.push(Op::Align { skip, align })?;
            (self.offset, self.aligned) = (0, align);
        } else {
            self.offset = round_up(self.offset, align);
        }
        (self.offset < MAX_OFFSET).then_some(())
    }

    /// The distance by which the place must advance to the next field, at a multiple of `align`; from there it is
    /// aligned as `then` states.
    fn settle(&mut self, align: u32, then: u32) -> Option<u32> {
        self.align(align)?;
        self.aligned = then;
        u32::try_from(std::mem::take(&mut self.offset)).ok()
    }

    /// The distance of a field of `size` bits; the next field follows it.
    fn take(&mut self, align: u32, size: u32) -> Option<u32> {
        self.align(align)?;
        let offset = u32::try_from(self.offset).ok()?;
        self.offset += u64::from(size);
        Some(offset)
    }

    fn node(&mut self, id: NodeId, name: &str) -> Option<()> {
        let (plan, name) = (self.plan, Box::<str>::from(name));
        match plan.node(id)? {
            Node::Integer(node) => self.integer(name, node),
            Node::Float(class) if !class.reversed => {
                let (offset, size) = (self.take(class.align, class.size)?, class.size);
                self.push(Op::Float { offset, size, name })
            }
            Node::String(encoding) => {
                let (skip, encoding) = (self.settle(8, 8)?, *encoding);
                self.push(Op::String {
                    encoding,
                    skip,
                    name,
                })
            }
            Node::Text {
                align,
                count,
                encoding,
            } => {
                let (count, encoding) = (self.count(*count)?, *encoding);
                let skip = self.settle(*align, 8)?;
                self.push(Op::Text {
                    encoding,
                    skip,
                    name,
                    count,
                })
            }
            Node::Blob { count, media_type } => {
                let blob = Box::new((self.count(*count)?, media_type.clone()));
                let skip = self.settle(8, 8)?;
                self.push(Op::Blob { skip, name, blob })
            }
            Node::Array {
                align,
                count,
                element,
                ..
            } => self.array(name, *align, *count, *element),
            Node::Struct { align, members } => {
                self.align(*align)?;
                let container = Container::Struct;
                self.push(Op::Begin { name, container })?;
                self.members(members.of(&plan.children))?;
                self.push(Op::End(container))
            }
            Node::Variant(variant) => {
                if !self.written.contains(&variant.slot) {
                    return None;
                }
                if self.choices.is_empty() {
                    self.read.insert(variant.slot);
                }
                let options = variant.options.of(&plan.children);
                match self.choices.split_first() {
                    None => self.variant(id, name, options),
                    Some((choice, rest)) => {
                        self.choices = rest;
                        let (option, container) =
                            (options.get(*choice as usize)?, Container::Variant);
                        self.push(Op::Begin { name, container })?;
                        self.node(option.node, &option.name)?;
                        self.push(Op::End(container))
                    }
                }
            }
            Node::Float(_) | Node::Optional(_) | Node::Skip { .. } | Node::Uuid { .. } => None,
        }
    }

    fn integer(&mut self, name: Box<str>, node: &IntegerNode) -> Option<()> {
        let class = &node.class;
        if class.form != Form::Fixed {
            return None;
        }
        let offset = self.take(class.align, class.size)?;
        self.written.extend(node.slots.of(&self.plan.slot_lists));
        let node = Box::new(node.clone());
        if self.aligned < 8 {
            return self.push(Op::Integer { offset, name, node });
        }
        // Advance the place as far as necessary.
        let mut near = offset;
        if near as usize / 8 >= NEAR {
            let skip = near - near % self.aligned;
            self.push(Op::Align { skip, align: 1 })?;
            (near, self.offset) = (near - skip, self.offset - u64::from(skip));
        }
        let (inside, size) = (near % 8, class.size);
        match u8::try_from(near / 8) {
            Ok(offset) if inside + size <= 64 => self.push(Op::Number {
                offset,
                shift: match class.byte_order {
                    ByteOrder::Little => inside as u8,
                    ByteOrder::Big => (64 - inside - size) as u8,
                },
                name,
                mask: u64::MAX >> (64 - size),
                sign: if class.signed { 1 << (size - 1) } else { 0 },
                node,
            }),
            _ => self.push(Op::Integer {
                offset: near,
                name,
                node,
            }),
        }
    }

    fn array(&mut self, name: Box<str>, align: u32, count: Count, element: NodeId) -> Option<()> {
        let count = self.count(count)?;
        let (integer, align_of, size) = match self.plan.node(element)? {
            // Later elements would overwrite the slots.
            Node::Integer(node) if node.slots.is_empty() && node.class.form == Form::Fixed => {
                (Some(node.clone()), node.class.align, node.class.size)
            }
            Node::Float(class) if !class.reversed => (None, class.align, class.size),
            _ => return None,
        };
        let stride = size.checked_next_multiple_of(align_of)?;
        let align = align.max(align_of);
        let whole = [align, stride, size].into_iter().all(|it| it % 8 == 0);
        let skip = self.settle(align, if whole { 8 } else { 1 })?;
        let elements = Box::new(Elements {
            count,
            stride,
            size,
            integer,
        });
        self.push(Op::Array {
            skip,
            name,
            elements,
        })
    }

    fn variant(&mut self, node: NodeId, name: Box<str>, options: &[Child]) -> Option<()> {
        let skip = self.settle(1, 1)?;
        let (place, written) = (self.ops.len(), self.written.clone());
        self.push(Op::End(Container::Variant))?;
        let (mut targets, mut leaves) = (Vec::new(), Vec::new());
        let mut all = None::<HashSet<u32>>;
        for option in options {
            targets.push(u32::try_from(self.ops.len()).ok()?);
            (self.aligned, self.written) = (1, written.clone());
            self.node(option.node, &option.name)?;
            leaves.push((self.ops.len(), self.settle(1, 1)?));
            self.push(Op::End(Container::Variant))?;
            all = Some(match all {
                None => self.written.clone(),
                Some(all) => &all & &self.written,
            });
        }
        let target = u32::try_from(self.ops.len()).ok()?;
        for (leave, skip) in leaves {
            *self.ops.get_mut(leave)? = Op::Leave { skip, target };
        }
        *self.ops.get_mut(place)? = Op::Variant {
            skip,
            name,
            choice: Box::new((node, targets.into())),
        };
        (self.aligned, self.written) = (1, all.unwrap_or(written));
        Some(())
    }

    /// A count, if the scope itself determines it.
    fn count(&mut self, count: Count) -> Option<Count> {
        if let Count::Slot(slot) = count {
            if !self.written.contains(&slot) {
                return None;
            }
            self.read.insert(slot);
        }
        Some(count)
    }

    /// The finished program. Integers that fill a slot which is read, or are not plain numbers, get a general
    /// operation.
    fn end(mut self) -> Box<[Op]> {
        for op in &mut self.ops {
            let special = |node: &IntegerNode| {
                let mut slots = node.slots.of(&self.plan.slot_lists).iter();
                node.meaning != Meaning::Number || slots.any(|slot| self.read.contains(slot))
            };
            if let Some((offset, name, node)) = op.integer()
                && special(node)
            {
                let (name, node) = (name.into(), Box::new(node.clone()));
                *op = Op::Integer { offset, name, node };
            }
        }
        self.ops.into()
    }
}
