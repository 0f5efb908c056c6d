//! Plan compiler: assigns slots, and flattens each scope into its two programs.

mod fixed;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::survey::{byte_orders, role_size, stamp};
use super::{
    Child, Count, EventPlan, Fixed, IntegerNode, Meaning, NO_OPTION, Node, NodeId, OptionalNode,
    Plan, Program, Span, StreamPlan, VariantNode, fast_path, field_program, header_table, quirks,
    round_up,
};
use crate::metadata::{
    ArrayClass, BlobClass, Choice, EnumerationClass, FieldClass, IntegerClass, Length, Location,
    Mappings, Metadata, OptionalClass, Role, Scale, Scope, StreamClass, StructClass, Target,
    Value64, VariantClass,
};

/// Event ids below this are looked up in a table.
const DENSE_IDS: usize = 4096;
/// Tag values below this are looked up in a table.
const DENSE_TAGS: i128 = 256;

/// Fills the nodes and streams of a plan.
pub(super) fn compile(plan: &mut Plan, metadata: &Metadata) {
    (plan.mixed, plan.order) = byte_orders(metadata);
    Compiler::new(plan, metadata).trace();
}

/// Slots assigned so far.
#[derive(Default)]
struct Slots {
    /// The slot of each set of targets that a location has.
    by_targets: HashMap<Vec<Target>, u32>,
    /// The slots that each field must write.
    by_field: BTreeMap<Target, Vec<u32>>,
}

impl Slots {
    fn reserve(&mut self, location: &Location, next: &mut u32) {
        if !self.by_targets.contains_key(&location.targets) {
            for target in &location.targets {
                self.by_field.entry(target.clone()).or_default().push(*next);
            }
            self.by_targets.insert(location.targets.clone(), *next);
            *next += 1;
        }
    }
}

/// Lifetime of the fields that a location can lead to.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    /// The packet header: for all streams.
    Trace,
    /// Up to the stream's event context: for all events of a stream.
    Stream,
    /// Event context and payload: for one event.
    Event,
}

const fn life(scope: Scope) -> Life {
    match scope {
        Scope::PacketHeader => Life::Trace,
        Scope::PacketContext | Scope::EventHeader | Scope::StreamEventContext => Life::Stream,
        Scope::EventContext | Scope::EventFields => Life::Event,
    }
}

struct Compiler<'p, 'm> {
    plan: &'p mut Plan,
    metadata: &'m Metadata,
    /// Indices of the current stream class and event class.
    stream_index: usize,
    event_index: usize,
    /// Slots for fields of the packet header, of the current stream and of the current event.
    trace: Slots,
    stream: Slots,
    event: Slots,
    /// The next free slot. Event classes reuse the same ones.
    next: u32,
    /// Position of the current class in the metadata.
    scope: Scope,
    steps: Vec<u32>,
}

impl<'p, 'm> Compiler<'p, 'm> {
    fn new(plan: &'p mut Plan, metadata: &'m Metadata) -> Self {
        Self {
            plan,
            metadata,
            stream_index: 0,
            event_index: 0,
            trace: Slots::default(),
            stream: Slots::default(),
            event: Slots::default(),
            next: 0,
            scope: Scope::PacketHeader,
            steps: Vec::new(),
        }
    }

    fn trace(&mut self) {
        let metadata = self.metadata;
        // Compiling a field requires the locations that refer to it: collect all locations first.
        self.collect(metadata.packet_header.as_ref(), Life::Trace);
        for class in &metadata.streams {
            self.collect_stream(class, Life::Trace);
        }
        self.plan.packet_header =
            self.program(metadata.packet_header.as_ref(), Scope::PacketHeader);
        let shared = self.next;
        for (index, class) in metadata.streams.iter().enumerate() {
            self.next = shared;
            self.stream_index = index;
            self.stream = Slots::default();
            self.collect_stream(class, Life::Stream);
            let stream = self.compile_stream(class);
            self.plan.streams.push(stream);
        }
    }

    fn compile_stream(&mut self, class: &StreamClass) -> StreamPlan {
        let header = class.event_header.as_ref();
        let context = class.packet_context.as_ref();
        let clock = stamp(header).or_else(|| stamp(context));
        let scale = clock.and_then(|clock| self.metadata.clocks.get(clock.0 as usize));
        let mut stream = StreamPlan {
            packet_context: self.program(context, Scope::PacketContext),
            event_header: self.program(header, Scope::EventHeader),
            header_table: None,
            event_context: self.program(class.event_context.as_ref(), Scope::StreamEventContext),
            events: Vec::with_capacity(class.events.len()),
            dense: Vec::new(),
            sparse: BTreeMap::new(),
            clock,
            scale: scale.and_then(Scale::new),
            steps_back: quirks::steps_back(self.metadata, class),
            discarded_size: role_size(context, Role::EventsDiscarded),
            sequence_size: role_size(context, Role::PacketSeqNum),
        };
        // The fast path requires a clock that follows its field.
        let header = fast_path::header(self.plan, &stream).filter(|_| !stream.steps_back);
        let shared = self.next;
        for (index, event) in (0u32..).zip(&class.events) {
            self.next = shared;
            self.event_index = index as usize;
            self.event = Slots::default();
            self.collect(event.context.as_ref(), Life::Event);
            self.collect(event.fields.as_ref(), Life::Event);
            let context = self.program(event.context.as_ref(), Scope::EventContext);
            let fields = self.program(event.fields.as_ref(), Scope::EventFields);
            let body = [
                (Scope::StreamEventContext, stream.event_context),
                (Scope::EventContext, context),
                (Scope::EventFields, fields),
            ];
            let contexts = [stream.event_context, context];
            let fast_path =
                fast_path::payload(self.plan, contexts, fields).filter(|_| header.is_some());
            stream.events.push(EventPlan {
                context,
                fields,
                body: field_program::body(self.plan, body),
                fast_path,
            });
            match usize::try_from(event.id) {
                Ok(id) if id < DENSE_IDS => {
                    if stream.dense.len() <= id {
                        stream.dense.resize(id + 1, u32::MAX);
                    }
                    if let Some(slot) = stream.dense.get_mut(id) {
                        *slot = index;
                    }
                }
                _ => {
                    stream.sparse.insert(event.id, index);
                }
            }
        }
        stream.header_table =
            header.and_then(|it| header_table::HeaderTable::new(self.plan, it, &stream));
        stream
    }

    fn collect_stream(&mut self, class: &StreamClass, wanted: Life) {
        self.collect(class.packet_context.as_ref(), wanted);
        self.collect(class.event_header.as_ref(), wanted);
        self.collect(class.event_context.as_ref(), wanted);
        for event in &class.events {
            self.collect(event.context.as_ref(), wanted);
            self.collect(event.fields.as_ref(), wanted);
        }
    }

    /// Assigns a slot to every location below `class` whose targets have lifetime `wanted`. Equal locations share one.
    fn collect(&mut self, class: Option<&StructClass>, wanted: Life) {
        for member in class.iter().flat_map(|class| &class.members) {
            self.collect_class(&member.class, wanted);
        }
    }

    fn collect_class(&mut self, class: &FieldClass, wanted: Life) {
        match class {
            FieldClass::Struct(class) => self.collect(Some(class), wanted),
            FieldClass::Array(class) => {
                self.collect_length(&class.length, wanted);
                self.collect_class(&class.element, wanted);
            }
            FieldClass::Blob(class) => self.collect_length(&class.length, wanted),
            FieldClass::Optional(class) => {
                self.reserve(&class.selector, wanted);
                self.collect_class(&class.class, wanted);
            }
            FieldClass::Variant(class) => {
                self.reserve(&class.tag, wanted);
                for option in &class.options {
                    self.collect_class(&option.class, wanted);
                }
            }
            FieldClass::Integer(_)
            | FieldClass::Enumeration(_)
            | FieldClass::Boolean(_)
            | FieldClass::BitMap(_)
            | FieldClass::Float(_)
            | FieldClass::String(_) => {}
        }
    }

    fn collect_length(&mut self, length: &Length, wanted: Life) {
        if let Length::Field(location) = length {
            self.reserve(location, wanted);
        }
    }

    fn reserve(&mut self, location: &Location, wanted: Life) {
        if location
            .targets
            .first()
            .is_some_and(|target| life(target.scope) == wanted)
        {
            let slots = match wanted {
                Life::Trace => &mut self.trace,
                Life::Stream => &mut self.stream,
                Life::Event => &mut self.event,
            };
            slots.reserve(location, &mut self.next);
            self.plan.slots = self.plan.slots.max(self.next as usize);
        }
    }

    fn slots(&self, scope: Scope) -> &Slots {
        match life(scope) {
            Life::Trace => &self.trace,
            Life::Stream => &self.stream,
            Life::Event => &self.event,
        }
    }

    /// The slot that a location reads.
    fn slot(&self, location: &Location) -> u32 {
        let scope = location
            .targets
            .first()
            .map_or(self.scope, |target| target.scope);
        // Resolved metadata has targets everywhere; without targets, the slot is never written.
        self.slots(scope)
            .by_targets
            .get(&location.targets)
            .copied()
            .unwrap_or(u32::MAX)
    }

    fn program(&mut self, class: Option<&StructClass>, scope: Scope) -> Option<Program> {
        let class = class?;
        self.scope = scope;
        self.steps.clear();
        let full = self.structure(class, false);
        let skip = self.structure(class, true);
        let flat = field_program::scope(self.plan, full);
        let flat = self.flat(flat);
        Some(Program { full, skip, flat })
    }

    /// Stores a field program, if there is one.
    fn flat(&mut self, ops: Option<Box<[field_program::Op]>>) -> Option<u32> {
        self.plan.flat.push(ops?);
        u32::try_from(self.plan.flat.len() - 1).ok()
    }

    fn push(&mut self, node: Node) -> NodeId {
        let id = u32::try_from(self.plan.nodes.len()).unwrap_or(u32::MAX);
        self.plan.nodes.push(node);
        id
    }

    fn children(&mut self, children: Vec<Child>) -> Span {
        let start = u32::try_from(self.plan.children.len()).unwrap_or(u32::MAX);
        self.plan.children.extend(children);
        Span {
            start,
            end: u32::try_from(self.plan.children.len()).unwrap_or(u32::MAX),
        }
    }

    fn slot_list(&mut self, slots: &[u32]) -> Span {
        let start = u32::try_from(self.plan.slot_lists.len()).unwrap_or(u32::MAX);
        self.plan.slot_lists.extend(slots);
        Span {
            start,
            end: u32::try_from(self.plan.slot_lists.len()).unwrap_or(u32::MAX),
        }
    }

    fn structure(&mut self, class: &StructClass, skip: bool) -> NodeId {
        let align = class.align();
        let mut members = Vec::with_capacity(if skip { 1 } else { class.members.len() });
        // The trailing run of fixed-size members, which the next one may extend.
        let mut run: Option<Fixed> = None;
        for (index, member) in (0u32..).zip(&class.members) {
            self.steps.push(index);
            let fixed = if skip {
                self.fixed(&member.class)
            } else {
                None
            };
            match (fixed, &mut run) {
                (Some(fixed), Some(run)) if fixed.align <= run.align => {
                    run.bits = round_up(run.bits, fixed.align).saturating_add(fixed.bits);
                    run.empties = run.empties.saturating_add(fixed.empties);
                }
                (Some(fixed), _) => {
                    self.flush(run.replace(fixed), &mut members);
                }
                (None, _) => {
                    self.flush(run.take(), &mut members);
                    let node = self.class(&member.class, skip);
                    let name = if skip {
                        "".into()
                    } else {
                        member.name.as_str().into()
                    };
                    members.push(Child { name, node });
                }
            }
            self.steps.pop();
        }
        self.flush(run, &mut members);
        if let ([Child { node, .. }], true) = (members.as_slice(), skip)
            && self.aligns(*node, align)
        {
            return *node;
        }
        let members = self.children(members);
        self.push(Node::Struct { align, members })
    }

    /// Whether a node by itself begins at a multiple of `align`, so that the structure around it needs no alignment.
    fn aligns(&self, node: NodeId, wanted: u32) -> bool {
        match self.plan.node(node) {
            Some(Node::Integer(integer)) => integer.class.align >= wanted,
            Some(Node::Skip { align, .. } | Node::Struct { align, .. }) => *align >= wanted,
            _ => false,
        }
    }

    fn flush(&mut self, run: Option<Fixed>, members: &mut Vec<Child>) {
        if let Some(Fixed {
            align,
            bits,
            empties,
        }) = run
        {
            let node = self.push(Node::Skip {
                align,
                bits,
                empties,
            });
            members.push(Child {
                name: "".into(),
                node,
            });
        }
    }

    fn class(&mut self, class: &FieldClass, skip: bool) -> NodeId {
        let node = match class {
            FieldClass::Integer(class) => self.integer(*class, Meaning::Number, None),
            FieldClass::Enumeration(EnumerationClass { integer, mappings }) => {
                self.integer(*integer, Meaning::Number, Some(mappings))
            }
            FieldClass::Boolean(class) => self.integer(*class, Meaning::Boolean, None),
            FieldClass::BitMap(class) => {
                self.integer(class.integer, Meaning::Bits, Some(&class.flags))
            }
            FieldClass::Float(class) => Node::Float(*class),
            FieldClass::String(class) => Node::String(class.encoding),
            FieldClass::Struct(class) => return self.structure(class, skip),
            FieldClass::Array(class) => self.array(class, skip),
            FieldClass::Variant(class) => self.variant(class, skip),
            FieldClass::Optional(class) => self.optional(class, skip),
            FieldClass::Blob(class) => self.blob(class, skip),
        };
        self.push(node)
    }

    /// The slots that the current field writes.
    fn written(&self) -> Option<&[u32]> {
        let target = Target {
            scope: self.scope,
            steps: self.steps.clone(),
        };
        self.slots(self.scope)
            .by_field
            .get(&target)
            .map(Vec::as_slice)
    }

    fn integer(
        &mut self,
        class: IntegerClass,
        meaning: Meaning,
        mappings: Option<&Arc<Mappings>>,
    ) -> Node {
        let written = self.written().map(<[u32]>::to_vec).unwrap_or_default();
        let slots = self.slot_list(&written);
        Node::Integer(IntegerNode {
            class,
            meaning,
            mappings: mappings.cloned(),
            slots,
        })
    }

    fn count(&self, length: &Length) -> Count {
        match length {
            Length::Fixed(length) => Count::Fixed(*length),
            Length::Field(location) => Count::Slot(self.slot(location)),
        }
    }

    fn blob(&mut self, class: &BlobClass, skip: bool) -> Node {
        if skip && class.is_uuid {
            return Node::Uuid { align: 8 };
        }
        Node::Blob {
            count: self.count(&class.length),
            media_type: class.media_type.as_str().into(),
        }
    }

    fn array(&mut self, class: &ArrayClass, skip: bool) -> Node {
        let count = self.count(&class.length);
        let align = class.align();
        if skip && class.is_uuid {
            return Node::Uuid { align };
        }
        if let Some(encoding) = class.text() {
            return Node::Text {
                align,
                count,
                encoding,
            };
        }
        let size = self.fixed(&class.element);
        let element = self.class(&class.element, skip);
        Node::Array {
            align,
            count,
            element,
            size,
        }
    }

    fn variant(&mut self, class: &VariantClass, skip: bool) -> Node {
        let slot = self.slot(&class.tag);
        let clears = self.written_below();
        let clears = self.slot_list(&clears);
        let tag = self.selector(&class.tag);
        let signed = tag
            .and_then(FieldClass::as_integer)
            .is_some_and(|integer| integer.signed);
        let (mut ranges, mut options) = (Vec::new(), Vec::new());
        for (index, option) in (0u32..).zip(&class.options) {
            let mut selects = |(first, last): (Value64, Value64)| {
                ranges.push((first.widen(), last.widen(), index));
            };
            match (&class.choice, tag) {
                (Choice::Labels, Some(FieldClass::Enumeration(tag))) => {
                    option.selected_by(tag).for_each(&mut selects);
                }
                (Choice::Labels, _) => {}
                (Choice::Ranges(sets), _) => {
                    let set = sets.get(index as usize).into_iter().flatten();
                    set.copied().for_each(&mut selects);
                }
            }
            self.steps.push(index);
            let node = self.class(&option.class, skip);
            self.steps.pop();
            options.push(Child {
                name: option.name.as_str().into(),
                node,
            });
        }
        let options = self.children(options);
        let mut variant = VariantNode {
            slot,
            clears,
            options,
            signed,
            dense: Vec::new(),
            ranges,
        };
        let highest = variant
            .ranges
            .iter()
            .map(|(_, last, _)| *last)
            .max()
            .unwrap_or(-1);
        let dense = (0..DENSE_TAGS).take_while(|tag| *tag <= highest);
        variant.dense = dense
            .map(|tag| {
                variant
                    .search(tag)
                    .and_then(|option| u16::try_from(option).ok())
                    .unwrap_or(NO_OPTION)
            })
            .collect();
        if class.options.len() >= usize::from(NO_OPTION) {
            variant.dense.clear();
        }
        Node::Variant(variant)
    }

    fn optional(&mut self, class: &OptionalClass, skip: bool) -> Node {
        let slot = self.slot(&class.selector);
        let clears = self.written_below();
        let clears = self.slot_list(&clears);
        let signed = self
            .selector(&class.selector)
            .and_then(FieldClass::as_integer)
            .is_some_and(|integer| integer.signed);
        let ranges = match &class.ranges {
            Some(ranges) => ranges
                .iter()
                .map(|(first, last)| (first.widen(), last.widen()))
                .collect(),
            // A boolean is true unless it is 0.
            None => vec![(1, i128::from(u64::MAX))],
        };
        let node = self.class(&class.class, skip);
        Node::Optional(OptionalNode {
            slot,
            clears,
            node,
            signed,
            ranges,
        })
    }

    /// The slots that fields below the current class write.
    fn written_below(&self) -> Vec<u32> {
        let start = Target {
            scope: self.scope,
            steps: self.steps.clone(),
        };
        let fields = self.slots(self.scope).by_field.range(start..);
        let below = fields
            .take_while(|(it, _)| it.scope == self.scope && it.steps.starts_with(&self.steps));
        below.flat_map(|(_, slots)| slots).copied().collect()
    }

    /// The class of a selector field.
    fn selector(&self, location: &Location) -> Option<&'m FieldClass> {
        let target = location.targets.first()?;
        self.metadata
            .scope(self.stream_index, self.event_index, target.scope)?
            .at(&target.steps)
    }
}
