//! Field programs: the fields of a scope as a list, for those who look at all of them.
//!
//! A tree of [nodes](super::Node) has to be asked at every field where it begins, whether that is still inside, and
//! which node comes next. Most of the answers are known beforehand: fields of known sizes lie at fixed distances from one
//! another, and what decoding has been through needs no checking again. So a scope is compiled into a list of
//! [operations](Op), each of which knows its distance from the last place that had to be computed (the scope's
//! beginning, the end of a string). Alternatives are jumps. What does not fit (arrays of structures, bits in the
//! opposite order, lengths that another scope holds) has no field program and is shown by the walk over the nodes. The
//! two show the same.

use std::collections::HashSet;

use super::{Child, Count, IntegerNode, Meaning, Node, NodeId, Plan, Program, round_up};
use crate::metadata::{ByteOrder, Encoding, Form, Scope};
use crate::read::Container;

/// Most operations of a program: options of options multiply.
const MAX_OPS: usize = 4096;
/// Distances from a computed place stay below this, in bits.
const MAX_OFFSET: u64 = 1 << 30;

/// Bytes behind the place in which a [near](Op::Number) integer may begin.
pub(crate) const NEAR: usize = 1 << 8;

/// A part of a field program. The *place* is a position in bits that moves along; `skip` is how far it moves first.
///
/// The tag has a byte of its own, where it is quickest to find.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(crate) enum Op {
    /// Moves the place on to a multiple of `align`.
    Align { skip: u32, align: u32 },
    /// A mere number near the place, which is at a byte: in the 8 bytes that begin `offset` bytes behind it, with `shift`
    /// bits below it.
    Number {
        offset: u8,
        shift: u8,
        name: Box<str>,
        /// As many bits set as it has.
        mask: u64,
        /// The sign bit, 0 if there is none.
        sign: u64,
        node: Box<IntegerNode>,
    },
    /// Any integer `offset` bits behind the place.
    Integer {
        offset: u32,
        name: Box<str>,
        node: Box<IntegerNode>,
    },
    /// A floating point number `offset` bits behind the place.
    Float {
        offset: u32,
        size: u32,
        name: Box<str>,
    },
    /// A string at the place, which moves behind it.
    String {
        encoding: Encoding,
        skip: u32,
        name: Box<str>,
    },
    /// Bytes that are text at the place, which moves behind them.
    Text {
        encoding: Encoding,
        skip: u32,
        name: Box<str>,
        count: Count,
    },
    /// Bytes at the place, which moves behind them.
    Blob {
        skip: u32,
        name: Box<str>,
        blob: Box<(Count, Box<str>)>,
    },
    /// As many elements at the place, which moves behind them.
    Array {
        skip: u32,
        name: Box<str>,
        elements: Box<Elements>,
    },
    /// The place moves behind an array that nobody asked for.
    Pass { skip: u32, elements: Box<Elements> },
    /// A structure or variant begins.
    Begin {
        name: Box<str>,
        container: Container,
    },
    /// It ends.
    End(Container),
    /// The fields of this scope follow.
    Scope(Scope),
    /// A variant (the node) goes on with the operation for the option that is selected.
    Variant {
        skip: u32,
        name: Box<str>,
        choice: Box<(NodeId, Box<[u32]>)>,
    },
    /// An option ends, and with it its variant, which goes on at the operation `target`.
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
    /// Bits from one element to the next, and of the last.
    pub stride: u32,
    pub size: u32,
    /// The class of integers; without, they are floating point numbers.
    pub integer: Option<IntegerNode>,
}

impl Elements {
    /// Bits that so many of them take.
    #[inline]
    pub fn bits(&self, count: u64) -> u64 {
        let before = count.checked_sub(1);
        before.map_or(0, |it| it * u64::from(self.stride) + u64::from(self.size))
    }
}

/// A program that is being compiled.
struct Compiler<'p> {
    plan: &'p Plan,
    ops: Vec<Op>,
    /// Distance from the place to the next field, in bits.
    offset: u64,
    /// The place is known to be a multiple of this.
    aligned: u32,
    /// Slots that the program itself reads.
    read: HashSet<u32>,
    /// Slots that have been filled so far, on every way here.
    written: HashSet<u32>,
    /// Which options the next variants have, if that is known.
    choices: &'p [u32],
}

/// Compiles the tree below `node`, the structure of a whole scope, if it has a shape for that.
pub(super) fn scope(plan: &Plan, node: NodeId) -> Option<Box<[Op]>> {
    let mut compiler = Compiler::new(plan, 1, &[])?;
    compiler.root(node)?;
    Some(compiler.end())
}

/// Compiles whole events that begin at a multiple of `aligned`, if they have a shape for that: tells also where what follows
/// the header begins. `choices` says which option each variant in the header has.
pub(super) fn event(
    plan: &Plan,
    (header, aligned, choices): (NodeId, u32, &[u32]),
    scopes: Scopes,
) -> Option<(Box<[Op]>, usize)> {
    let mut compiler = Compiler::new(plan, aligned, choices)?;
    compiler.root(header)?;
    let body = compiler.ops.len();
    // Who shows the rest alone has not been through the header.
    compiler.written.clear();
    compiler.scopes(scopes)?;
    Some((compiler.end(), body))
}

/// The scopes that follow an event's header.
pub(super) type Scopes = [(Scope, Option<Program>); 3];

/// Compiles what comes behind an event's header, all scopes in one, if they have shapes for that.
pub(super) fn body(plan: &Plan, scopes: Scopes) -> Option<Box<[Op]>> {
    let mut compiler = Compiler::new(plan, 1, &[])?;
    compiler.scopes(scopes)?;
    Some(compiler.end())
}

/// A program without the operations that show nothing but how fields lie in one another. (One with jumps, which no whole
/// event has that is known by its header, stays as it is: they count operations.)
pub(super) fn values(ops: &[Op]) -> Box<[Op]> {
    let jumps = |op: &Op| matches!(op, Op::Variant { .. } | Op::Leave { .. });
    let is_value = |op: &Op| !matches!(op, Op::Begin { .. } | Op::End(_) | Op::Scope(_));
    let whole = ops.iter().any(jumps);
    let left = ops.iter().filter(|op| whole || is_value(op));
    left.cloned().collect()
}

impl<'p> Compiler<'p> {
    fn new(plan: &'p Plan, aligned: u32, choices: &'p [u32]) -> Option<Self> {
        // Programs are run for one byte order.
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

    /// The structure of a scope, which is not shown as one.
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

    /// The next field begins at a multiple of `align`.
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

    /// How far the place has to move to the next field, which is at a multiple of `align`; from there it is aligned as
    /// `then` says.
    fn settle(&mut self, align: u32, then: u32) -> Option<u32> {
        self.align(align)?;
        self.aligned = then;
        u32::try_from(std::mem::take(&mut self.offset)).ok()
    }

    /// The distance of a field of `size` bits, behind which the next one comes.
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
        // As far as it must, the place moves on.
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
            // Later elements would fill the slots again.
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

    /// A count that the scope itself knows.
    fn count(&mut self, count: Count) -> Option<Count> {
        if let Count::Slot(slot) = count {
            if !self.written.contains(&slot) {
                return None;
            }
            self.read.insert(slot);
        }
        Some(count)
    }

    /// The program, in which integers that fill a slot that is read, or are no mere numbers, have a way of their own.
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
