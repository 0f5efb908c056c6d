//! Compiled text: a list of formatting steps for each event class.
//!
//! Nearly all of a line is known before the first event: field names, brackets, commas, the labels of enumerations. A
//! visitor has to assemble these anew for every event. So this module renders them once, into [labels](Label), and
//! converts the [field program](crate::plan::field_program) of the event class to a list of [steps](Step): a label to
//! copy, and a value to format. Hidden fields have no step. Event classes without a field program have no compiled
//! text, and use the [field formatter](super::fields).

use std::sync::Arc;

use super::fields::is_hidden;
use super::format;
use super::line::Label;
use crate::metadata::{Base, Encoding, Form, IntegerClass, Mappings};
use crate::plan::field_program::Op;
use crate::plan::{Count, IntegerNode, Meaning, NodeId, Span};
use crate::read::Container;

/// A list of steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    pub steps: Box<[Step]>,
    /// Total size of all labels in bytes.
    pub labels: usize,
}

/// A label to copy, and the action that follows.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub label: Label,
    pub action: Action,
}

/// Action after a label. The *place* is the current position in bits; `skip` advances it first.
///
/// The tag occupies a byte of its own, where it is fastest to load.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(super) enum Action {
    /// No action; only the label is shown.
    Nothing,
    /// Advances the place to a multiple of `align`.
    Align { skip: u32, align: u32 },
    /// Stores an integer that others depend on.
    Keep {
        offset: u32,
        bits: Bits,
        slots: Span,
    },
    /// Shows a value `offset` bits after the place.
    Show { offset: u32, value: Value },
    /// Shows the string at the place, which advances past it.
    String { skip: u32, encoding: Encoding },
    /// Shows text bytes at the place, which advances past them.
    Text {
        skip: u32,
        count: Count,
        encoding: Encoding,
    },
    /// Shows bytes at the place, which advances past them.
    Blob { skip: u32, count: Count },
    /// Shows array elements at the place, which advances past them.
    Array {
        skip: u32,
        count: Count,
        value: Value,
        stride: u32,
        size: u32,
    },
    /// Jumps to the step of the selected option of the variant (the node).
    Choose {
        skip: u32,
        node: NodeId,
        targets: Box<[u32]>,
    },
    /// Jumps to the step `target`.
    Jump { skip: u32, target: u32 },
}

/// Format of a value of fixed size.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(super) enum Value {
    Unsigned(Bits),
    Signed(Bits),
    /// Hexadecimal, with a mask of the bits shown of a negative number.
    Hexadecimal(Bits, u64),
    /// In any base.
    Based(Bits, Box<IntegerClass>),
    /// With the index of its [`Labels`].
    Labelled(Bits, u32),
    Boolean(Bits),
    Flags(Bits, Arc<Mappings>),
    /// A floating point number with this many bits.
    Float(u32),
}

/// Extraction of an integer from the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits {
    pub size: u32,
    /// Mask of its size.
    pub mask: u64,
    /// The sign bit, 0 if there is none.
    pub sign: u64,
}

impl Bits {
    /// The extraction for a class without reversed bits: field programs have no others.
    fn of(class: &IntegerClass) -> Option<Self> {
        let size = class.size;
        if class.form != Form::Fixed || !(1..=64).contains(&size) {
            return None;
        }
        Some(Self {
            size,
            mask: u64::MAX >> (64 - size),
            sign: if class.signed { 1 << (size - 1) } else { 0 },
        })
    }
}

/// Rendered labels of an enumeration.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    pub mappings: Arc<Mappings>,
    pub class: IntegerClass,
    /// For each mapping the text before the number; if that is the same for all values, the whole text.
    pub rendered: Vec<(Box<[Label]>, bool)>,
}

/// The enumerations that programs refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct Enumerations(pub Vec<Labels>);

impl Enumerations {
    /// The index of an enumeration, which many event classes may share.
    fn index(&mut self, mappings: &Arc<Mappings>, class: &IntegerClass) -> Option<u32> {
        let known = |labels: &Labels| {
            Arc::ptr_eq(&labels.mappings, mappings)
                && (labels.class.base, labels.class.size) == (class.base, class.size)
        };
        let index = self.0.iter().position(known).unwrap_or_else(|| {
            self.0.push(Labels::new(mappings, class));
            self.0.len() - 1
        });
        u32::try_from(index).ok()
    }
}

impl Labels {
    fn new(mappings: &Arc<Mappings>, class: &IntegerClass) -> Self {
        let mut text = Vec::new();
        let rendered = mappings.list().iter().map(|mapping| {
            text.clear();
            format::label(&mut text, &mapping.label);
            let whole = mapping.first == mapping.last;
            if whole {
                format::integer(&mut text, mapping.first, class);
                text.extend_from_slice(b" )");
            }
            (Label::all(&text).collect(), whole)
        });
        Self {
            rendered: rendered.collect(),
            mappings: Arc::clone(mappings),
            class: *class,
        }
    }
}

/// Compiles the field program of a packet context, omitting fields that describe the packet.
pub(super) fn context(ops: &[Op], enumerations: &mut Enumerations) -> Option<Program> {
    let mut compiler = Compiler::new(enumerations);
    compiler.head = true;
    compiler.scope();
    compiler.compile(ops)
}

/// Compiles the field program of everything after an event's header; `begun`: it follows a packet context.
pub(super) fn body(ops: &[Op], begun: bool, enumerations: &mut Enumerations) -> Option<Program> {
    let mut compiler = Compiler::new(enumerations);
    compiler.begun = begun;
    compiler.ends = true;
    compiler.compile(ops)
}

/// A program under construction.
struct Compiler<'t> {
    enumerations: &'t mut Enumerations,
    steps: Vec<Step>,
    /// Text to show before the next step.
    pending: Vec<u8>,
    /// Whether this is the packet context.
    head: bool,
    /// Whether a scope is open.
    begun: bool,
    /// Whether the last scope ends with the program.
    ends: bool,
    /// State of the open container: whether it is the option of a variant, which has no name, and whether it has had
    /// fields.
    inside: (bool, bool),
    /// The same for the enclosing containers.
    outer: Vec<(bool, bool)>,
}

impl<'t> Compiler<'t> {
    const fn new(enumerations: &'t mut Enumerations) -> Self {
        Self {
            enumerations,
            steps: Vec::new(),
            pending: Vec::new(),
            head: false,
            begun: false,
            ends: false,
            inside: (false, false),
            outer: Vec::new(),
        }
    }

    fn compile(mut self, ops: &[Op]) -> Option<Program> {
        // The step for each operation.
        let mut places = Vec::with_capacity(ops.len() + 1);
        for (index, op) in ops.iter().enumerate() {
            places.push(u32::try_from(self.steps.len()).ok()?);
            self.op(op, index)?;
        }
        if self.ends && self.begun {
            self.pending.extend_from_slice(b" }");
        }
        places.push(u32::try_from(self.steps.len()).ok()?);
        self.step(Action::Nothing);
        for step in &mut self.steps {
            match &mut step.action {
                Action::Choose { targets, .. } => {
                    for target in targets {
                        *target = *places.get(*target as usize)?;
                    }
                }
                Action::Jump { target, .. } => *target = *places.get(*target as usize)?,
                _ => {}
            }
        }
        Some(Program {
            labels: self.steps.iter().map(|step| step.label.length()).sum(),
            steps: self.steps.into(),
        })
    }

    fn step(&mut self, action: Action) {
        let mut labels = Label::all(&self.pending);
        let mut label = labels.next().unwrap_or_default();
        for next in labels {
            let (before, action) = (std::mem::replace(&mut label, next), Action::Nothing);
            self.steps.push(Step {
                label: before,
                action,
            });
        }
        self.steps.push(Step { label, action });
        self.pending.clear();
    }

    /// Begins the fields of a scope.
    fn scope(&mut self) {
        let before: &[u8] = if self.begun { b" }, {" } else { b"{" };
        self.pending.extend_from_slice(before);
        (self.begun, self.inside) = (true, (false, false));
    }

    /// Adds the separator and name before a field.
    fn name(&mut self, name: &str) {
        let (option, some) = &mut self.inside;
        let separator: &[u8] = if *some { b", " } else { b" " };
        self.pending.extend_from_slice(separator);
        *some = true;
        if !*option {
            self.pending.extend_from_slice(name.as_bytes());
            self.pending.extend_from_slice(b" = ");
        }
    }

    /// Adds a text, in quotes.
    fn quoted(&mut self, name: &str, text: Action) {
        self.name(name);
        self.pending.push(b'"');
        self.step(text);
        self.pending.push(b'"');
    }

    fn begin(&mut self, name: &str, option: bool) {
        self.name(name);
        self.pending.push(b'{');
        self.outer.push(self.inside);
        self.inside = (option, false);
    }

    fn end(&mut self) -> Option<()> {
        self.pending.extend_from_slice(b" }");
        self.inside = self.outer.pop()?;
        Some(())
    }

    fn op(&mut self, op: &Op, index: usize) -> Option<()> {
        match op {
            &Op::Align { skip, align } => {
                // The pending text is part of the field.
                let (label, action) = (Label::default(), Action::Align { skip, align });
                self.steps.push(Step { label, action });
            }
            Op::Number { .. } | Op::Integer { .. } => {
                let (offset, name, node) = op.integer()?;
                self.integer(name, offset, node)?;
            }
            Op::Float { name, offset, size } => {
                self.name(name);
                let (offset, value) = (*offset, Value::Float(*size));
                self.step(Action::Show { offset, value });
            }
            Op::String {
                name,
                skip,
                encoding,
            } => {
                let (skip, encoding) = (*skip, *encoding);
                self.quoted(name, Action::String { skip, encoding });
            }
            Op::Text {
                name,
                skip,
                count,
                encoding,
            } => {
                let text = Action::Text {
                    skip: *skip,
                    count: *count,
                    encoding: *encoding,
                };
                self.quoted(name, text);
            }
            Op::Blob { skip, name, blob } => {
                self.name(name);
                let (skip, count) = (*skip, blob.0);
                self.step(Action::Blob { skip, count });
            }
            Op::Array {
                skip,
                name,
                elements,
            } => {
                self.name(name);
                self.pending.push(b'[');
                let value = match &elements.integer {
                    Some(node) => self.value(node)?,
                    None => Value::Float(elements.size),
                };
                self.step(Action::Array {
                    skip: *skip,
                    count: elements.count,
                    value,
                    stride: elements.stride,
                    size: elements.size,
                });
                self.pending.extend_from_slice(b" ]");
            }
            Op::Begin { name, container } => {
                self.begin(name, *container == Container::Variant);
            }
            Op::End(_) => self.end()?,
            Op::Scope(_) => self.scope(),
            Op::Variant { skip, name, choice } => {
                self.begin(name, true);
                self.step(Action::Choose {
                    skip: *skip,
                    node: choice.0,
                    targets: choice.1.clone(),
                });
            }
            // Occurs only in programs for some of the fields.
            Op::Pass { .. } => return None,
            &Op::Leave { skip, target } => {
                self.end()?;
                self.step(Action::Jump { skip, target });
                if target as usize != index + 1 {
                    // The next option of the same variant.
                    self.outer.push(self.inside);
                    self.inside = (true, false);
                }
            }
        }
        Some(())
    }

    fn integer(&mut self, name: &str, offset: u32, node: &IntegerNode) -> Option<()> {
        let (bits, slots) = (Bits::of(&node.class)?, node.slots);
        if !slots.is_empty() {
            let action = Action::Keep {
                offset,
                bits,
                slots,
            };
            let label = Label::default();
            self.steps.push(Step { label, action });
        }
        let about_packet = node.meaning == Meaning::Number && is_hidden(node.class.role);
        if self.head && self.outer.is_empty() && about_packet {
            return Some(());
        }
        self.name(name);
        let value = self.value(node)?;
        self.step(Action::Show { offset, value });
        Some(())
    }

    fn value(&mut self, node: &IntegerNode) -> Option<Value> {
        let class = &node.class;
        let bits = Bits::of(class)?;
        Some(match (node.meaning, &node.mappings) {
            (Meaning::Boolean, _) => Value::Boolean(bits),
            (Meaning::Bits, flags) => Value::Flags(bits, flags.clone().unwrap_or_default()),
            (Meaning::Number, Some(mappings)) => {
                Value::Labelled(bits, self.enumerations.index(mappings, class)?)
            }
            (Meaning::Number, None) => match class.base {
                Base::Decimal if class.signed => Value::Signed(bits),
                Base::Decimal => Value::Unsigned(bits),
                Base::Hexadecimal => {
                    let shown = bits.size.next_multiple_of(4);
                    Value::Hexadecimal(bits, u64::MAX >> (64 - shown))
                }
                Base::Octal | Base::Binary => Value::Based(bits, Box::new(*class)),
            },
        })
    }
}
