//! Adapts metadata to a version of CTF, with headers that every reader supports.
//!
//! Contexts and payloads keep their fields, in order. Headers are replaced by standard ones of whole bytes: their
//! information has roles, and the writer fills it in. Header fields without a role move into the following context. A
//! construct that the target version lacks is replaced by the nearest equivalent, and counted as a [`Change`].

mod attributes;
mod extras;
mod fields;
mod names;
mod selectors;

use std::collections::{BTreeMap, BTreeSet};

use self::extras::{HEADERS, extras, says};
use self::fields::{TAG, VALUE};
use self::names::{Renamer, identifier};
use self::selectors::Labels;
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    About, ArrayClass, Base, ByteOrder, ClockId, EventClass, FieldClass, Form, IntegerClass,
    Location, Member, Metadata, Role, Scope, StreamClass, StructClass, Target, Version, standard,
};
use crate::plan::Plan;

/// Tag values of the CTF 1.8 replacement of an optional field: for an absent field, and for a present one.
pub(super) const ABSENT: u64 = 0;
pub(super) const PRESENT: u64 = 1;

/// A change by a conversion of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Change {
    /// A field, option, clock or environment entry was renamed.
    Renamed,
    /// A boolean became an enumeration.
    Boolean,
    /// Bits lost their names.
    Flags,
    /// An optional field became a structure of a tag and a variant.
    Optional,
    /// A blob became an array of bytes, without its media type.
    Blob,
    /// A number of variable size became one of 64 bits, or one with reversed bits became one with bits in byte order.
    Form,
    /// A text was converted to UTF-8 with a terminating zero byte.
    Encoding,
    /// Tag values got an additional label: the name of the option that they select.
    Tag,
    /// A field other than a timestamp no longer updates the clock.
    Clock,
    /// A severity is not one of LTTng's.
    LogLevel,
    /// The alignment of the options of a variant, array elements or texts was reduced.
    Alignment,
    /// A floating point number of 16 bits became one of 32.
    Half,
    /// A label lost values that its integer cannot have.
    Label,
    /// A trace, clock, class or field lost further facts of CTF 2: names, unique id, attributes, accuracy, origin.
    About,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Renamed => "renamed",
            Self::Boolean => "booleans that are enumerations",
            Self::Flags => "bit maps without names of bits",
            Self::Optional => "optional fields that are structures of a tag and a variant",
            Self::Blob => "blobs that are arrays of bytes",
            Self::Form => "numbers of a fixed size and usual bit order",
            Self::Encoding => "texts in UTF-8",
            Self::Tag => "tags with labels for the options that they select",
            Self::Clock => "fields that do not move the clock any more",
            Self::LogLevel => "severities that are left out",
            Self::Alignment => "fields that are aligned to less",
            Self::Half => "floating point numbers of 32 bits instead of 16",
            Self::Label => "labels without the values that their numbers cannot have",
            Self::About => "identities and attributes that are left out",
        })
    }
}

/// Number of times that each change was made.
pub type Changes = BTreeMap<Change, u64>;

pub(super) use self::extras::Extras;

/// Adapted metadata, and its relation to the source.
pub(super) struct Adapted {
    pub metadata: Metadata,
    /// For each stream class: the fields of the packet header and of the packet context that move into the packet
    /// context, and the fields of the event header that move into the stream's event context.
    pub streams: Vec<[Extras; 3]>,
    pub changes: Changes,
}

/// Adapts the metadata to a version of CTF.
///
/// # Errors
/// When two variants share a selector in a way that CTF 1.8 cannot represent.
pub(super) fn adapt(plan: &Plan, version: Version) -> Result<Adapted, MetadataError> {
    let mut adapter = Adapter::new(plan, version);
    let metadata = adapter.trace()?;
    Ok(Adapted {
        metadata,
        streams: adapter.extras,
        changes: adapter.changes,
    })
}

/// State of the adaptation.
struct Adapter<'m> {
    plan: &'m Plan,
    metadata: &'m Metadata,
    version: Version,
    changes: Changes,
    extras: Vec<[Extras; 3]>,
    labels: Labels,
    /// New names of fields that moved into a context, by scope and position in the source.
    moved: BTreeMap<(Scope, u32), String>,
    /// Indices of the current stream class and event class.
    stream: usize,
    event: usize,
    /// The current scope, the path from its root to the current class, as [`Target::steps`], and the length of the path
    /// to the enclosing structure.
    scope: Scope,
    steps: Vec<u32>,
    around: usize,
}

impl<'m> Adapter<'m> {
    fn new(plan: &'m Plan, version: Version) -> Self {
        Self {
            plan,
            metadata: plan.metadata(),
            version,
            changes: Changes::new(),
            extras: Vec::new(),
            labels: Labels::default(),
            moved: BTreeMap::new(),
            stream: 0,
            event: 0,
            scope: Scope::PacketHeader,
            steps: Vec::new(),
            around: 0,
        }
    }

    fn change(&mut self, change: Change) {
        *self.changes.entry(change).or_default() += 1;
    }

    fn trace(&mut self) -> Result<Metadata, MetadataError> {
        let source = self.metadata;
        let mut metadata = Metadata::new(source.byte_order);
        metadata.uuid = source.uuid;
        metadata.about = self.about(&source.about);
        metadata
            .preamble_attributes
            .clone_from(&source.preamble_attributes);
        metadata.attributes.clone_from(&source.attributes);
        if self.version == Version::Ctf18 {
            metadata.attributes.clear();
            if metadata.preamble_attributes.take().is_some() {
                self.change(Change::About);
            }
        }
        metadata.environment.clone_from(&source.environment);
        metadata.clocks.clone_from(&source.clocks);
        for clock in &mut metadata.clocks {
            clock.about = self.about(&clock.about);
            if self.version == Version::Ctf18
                && (clock.accuracy.is_some() || clock.origin.is_some())
            {
                (clock.accuracy, clock.origin) = (None, None);
                self.change(Change::About);
            }
            // babeltrace2 2.0 does not accept a negative offset.
            let frequency = i64::try_from(clock.frequency).unwrap_or(i64::MAX).max(1);
            let seconds = clock.offset_ticks.div_euclid(frequency);
            if let Some(sum) = clock.offset_seconds.checked_add(seconds) {
                clock.offset_seconds = sum;
                clock.offset_ticks = clock.offset_ticks.rem_euclid(frequency);
            }
        }
        if self.version == Version::Ctf18 {
            let mut taken = BTreeSet::new();
            for (name, _) in &mut metadata.environment {
                self.make_identifier(name, &mut taken);
            }
            taken.clear();
            for clock in &mut metadata.clocks {
                self.make_identifier(&mut clock.name, &mut taken);
            }
        }
        let mut header = self.packet_header();
        self.inherit(source.packet_header.as_ref(), &mut header);
        metadata.packet_header = Some(header);
        if self.version == Version::Ctf18 {
            self.labels = Labels::of(source)?;
        }
        for (index, stream) in source.streams.iter().enumerate() {
            self.stream = index;
            let stream = self.stream(stream)?;
            metadata.streams.push(stream);
        }
        Ok(metadata)
    }

    /// Adapts facts besides the layout, which only CTF 2 can represent.
    fn about(&mut self, source: &About) -> About {
        if self.version == Version::Ctf18 && !source.is_empty() {
            self.change(Change::About);
            return About::NONE;
        }
        source.clone()
    }

    /// Makes a name a unique identifier of TSDL.
    fn make_identifier(&mut self, name: &mut String, taken: &mut BTreeSet<String>) {
        let mut new = identifier(name);
        while !taken.insert(new.clone()) {
            new.push('_');
        }
        if new != *name {
            self.change(Change::Renamed);
            *name = new;
        }
    }

    fn packet_header(&self) -> StructClass {
        let source = self.metadata;
        let order = source.byte_order;
        let word = IntegerClass::unsigned(32, order);
        let long = IntegerClass::unsigned(64, order);
        let mut header =
            StructClass::new().with("magic", word.base(Base::Hexadecimal).role(Role::Magic));
        if source.uuid.is_some() {
            let mut uuid = ArrayClass::fixed(16, IntegerClass::unsigned(8, order));
            uuid.is_uuid = true;
            header = header.with("uuid", uuid);
        }
        let small = source
            .streams
            .iter()
            .all(|stream| u32::try_from(stream.id).is_ok());
        let id = if small { word } else { long };
        header = header.with("stream_id", id.role(Role::StreamId));
        if says(source.packet_header.as_ref(), Role::StreamInstanceId) {
            header = header.with("stream_instance_id", long.role(Role::StreamInstanceId));
        }
        header
    }

    fn stream(&mut self, source: &'m StreamClass) -> Result<StreamClass, MetadataError> {
        let order = self.metadata.byte_order;
        let clock = self
            .plan
            .streams
            .get(self.stream)
            .and_then(|stream| stream.clock);
        let extras = extras(self.metadata, source);
        let roots = HEADERS.map(|scope| (scope, self.metadata.scope(self.stream, 0, scope)));
        self.moved.clear();

        let mut packet_context = packet_context(source, order, clock);
        self.inherit(source.packet_context.as_ref(), &mut packet_context);
        let mut names = Renamer::behind(self.version, Scope::PacketContext, &packet_context);
        for ((scope, root), extras) in roots.iter().zip(&extras).take(2) {
            self.place(*scope, *root, extras, &mut names);
        }
        for ((scope, root), extras) in roots.iter().zip(&extras).take(2) {
            self.convert(*scope, *root, Some(extras), &mut packet_context)?;
        }
        for member in &mut packet_context.members {
            name_cpu(member, self.version);
        }

        let mut event_context = StructClass::new();
        let mut names = Renamer::new(self.version, Scope::StreamEventContext);
        let [.., (header_scope, header)] = roots;
        let [.., header_extras] = &extras;
        let context = source.event_context.as_ref();
        let all = vec![true; context.map_or(0, |context| context.members.len())];
        let target = Scope::StreamEventContext;
        self.place(header_scope, header, header_extras, &mut names);
        self.place(target, context, &all, &mut names);
        self.convert(
            header_scope,
            header,
            Some(header_extras),
            &mut event_context,
        )?;
        self.convert(target, context, None, &mut event_context)?;
        let none = context.is_none() && event_context.members.is_empty();

        let mut stream = StreamClass::new(source.id);
        stream.about = self.about(&source.about);
        stream.packet_context = Some(packet_context);
        let mut header = event_header(source, order, clock);
        self.inherit(source.event_header.as_ref(), &mut header);
        stream.event_header = Some(header);
        stream.event_context = (!none).then_some(event_context);
        self.extras.push(extras);
        for (index, event) in source.events.iter().enumerate() {
            self.event = index;
            let event = self.event(event)?;
            stream.events.push(event);
        }
        Ok(stream)
    }

    fn event(&mut self, source: &'m EventClass) -> Result<EventClass, MetadataError> {
        let mut event = EventClass::new(source.id, source.name.clone());
        event.about = self.about(&source.about);
        event.log_level = source.log_level;
        event.emf_uri.clone_from(&source.emf_uri);
        let named = |level: i64| (0..crate::ctf2::LEVELS.len() as i64).contains(&level);
        if self.version == Version::Ctf2 && source.log_level.is_some_and(|level| !named(level)) {
            event.log_level = None;
            self.change(Change::LogLevel);
        }
        let roots = [
            (Scope::EventContext, &source.context, &mut event.context),
            (Scope::EventFields, &source.fields, &mut event.fields),
        ];
        for (scope, root, into) in roots {
            if let Some(root) = root {
                let mut class = StructClass::new();
                self.convert(scope, Some(root), None, &mut class)?;
                *into = Some(class);
            }
        }
        Ok(event)
    }

    /// Decides the scope and the names of selected fields of a root structure.
    fn place(
        &mut self,
        scope: Scope,
        root: Option<&StructClass>,
        wanted: &[bool],
        names: &mut Renamer,
    ) {
        let members = root.iter().flat_map(|root| &root.members);
        for ((index, member), wanted) in (0u32..).zip(members).zip(wanted) {
            if *wanted {
                let new = names.name(member, true);
                self.moved.insert((scope, index), new.declared);
            }
        }
    }

    /// Adds the fields of a root structure, or the selected ones, to a structure.
    fn convert(
        &mut self,
        scope: Scope,
        root: Option<&'m StructClass>,
        wanted: Option<&[bool]>,
        into: &mut StructClass,
    ) -> Result<(), MetadataError> {
        let Some(root) = root else { return Ok(()) };
        self.scope = scope;
        self.steps.clear();
        self.around = 0;
        let mut names = Renamer::behind(self.version, self.new_scope(), into);
        for (index, member) in (0u32..).zip(&root.members) {
            let number = usize::try_from(index).unwrap_or(usize::MAX);
            if wanted.is_none_or(|wanted| wanted.get(number) == Some(&true)) {
                self.steps.push(index);
                let member = self.member(member, &mut names)?;
                self.steps.pop();
                into.members.push(member);
            }
        }
        into.min_align = into.min_align.max(root.min_align);
        // Attributes of a header belong to its replacement.
        if !HEADERS.contains(&scope) {
            into.attributes = self.attributes(root.attributes);
        }
        Ok(())
    }

    /// The new location of a length or selector.
    fn location(&self, location: &Location) -> Result<Location, MetadataError> {
        let unknown = || Kind::Unsupported("a length or selector without a place").nowhere();
        let target = location.targets.first().ok_or_else(unknown)?;
        let names = self.names(target).ok_or_else(unknown)?;
        let around = self.steps.get(..self.around).unwrap_or_default();
        let last = target.steps.split_last();
        let beside = target.scope == self.scope
            && location.targets.len() == 1
            && last.is_some_and(|(_, before)| before == around);
        let scope = Self::scope_of(target.scope);
        if self.version == Version::Ctf2 {
            return Ok(Location {
                route: Some(crate::metadata::Route {
                    origin: Some(scope),
                    path: names.into_iter().map(Some).collect(),
                }),
                ..Location::new("")
            });
        }
        // babeltrace2 2.0 does not accept an absolute path for a length, so the path is relative if that suffices.
        let path = match names.last() {
            Some(name) if beside => name.clone(),
            _ if self.is_found_outward(target, &names) => names.join("."),
            _ => format!("{}.{}", scope.path(), names.join(".")),
        };
        Ok(Location::new(path))
    }

    /// Whether the search of CTF 1.8 (structures outward, then earlier scopes) finds a field by its relative path:
    /// whether no other member on the way has its first name.
    fn is_found_outward(&self, target: &Target, names: &[String]) -> bool {
        let Some(first) = names.first() else {
            return false;
        };
        let merged = |scope| HEADERS.contains(&scope) || scope == Scope::StreamEventContext;
        if [TAG, VALUE].contains(&first.as_str()) || merged(self.scope) || merged(target.scope) {
            return false;
        }
        let is_first = |name: &str| name == first || Some(name) == first.strip_prefix('_');
        let hides = |class: &StructClass| {
            let mut members = class.members.iter();
            members.any(|member| is_first(&member.name) || is_first(&member.declared))
        };
        let root = |scope| self.metadata.scope(self.stream, self.event, scope);
        // Structures between the location and the root of its scope.
        let inner = (1..=self.around).any(|length| {
            let steps = self.steps.get(..length).unwrap_or_default();
            match root(self.scope).and_then(|root| root.at(steps)) {
                Some(FieldClass::Struct(class)) => hides(class),
                _ => false,
            }
        });
        let outer = Scope::ALL
            .into_iter()
            .filter(|scope| *scope <= self.scope && *scope > target.scope)
            .filter_map(root)
            .any(hides);
        !inner && !outer
    }

    /// The new scope of a field of the source.
    const fn scope_of(scope: Scope) -> Scope {
        match scope {
            Scope::PacketHeader | Scope::PacketContext => Scope::PacketContext,
            Scope::EventHeader | Scope::StreamEventContext => Scope::StreamEventContext,
            Scope::EventContext => Scope::EventContext,
            Scope::EventFields => Scope::EventFields,
        }
    }

    /// The new scope of the current class.
    const fn new_scope(&self) -> Scope {
        Self::scope_of(self.scope)
    }

    /// The new names on the path to a field of the source.
    fn names(&self, target: &Target) -> Option<Vec<String>> {
        let root = self.metadata.scope(self.stream, self.event, target.scope)?;
        let (first, rest) = target.steps.split_first()?;
        let index = usize::try_from(*first).ok()?;
        let mut class = &root.members.get(index)?.class;
        let moved = self.moved.get(&(target.scope, *first));
        let renamer = || Renamer::new(self.version, Self::scope_of(target.scope));
        let mut names = vec![match moved {
            Some(name) => name.clone(),
            None => renamer().nth(root, index, true)?,
        }];
        for step in rest {
            let index = usize::try_from(*step).ok()?;
            class = match self.inner(class, &mut names) {
                FieldClass::Struct(inner) => {
                    names.push(renamer().nth(inner, index, false)?);
                    &inner.members.get(index)?.class
                }
                FieldClass::Variant(variant) => &variant.options.get(index)?.class,
                _ => return None,
            };
        }
        self.inner(class, &mut names);
        Some(names)
    }

    /// The class of an element or of an optional field, which in CTF 1.8 is one step deeper.
    fn inner(&self, class: &'m FieldClass, names: &mut Vec<String>) -> &'m FieldClass {
        let mut class = class;
        loop {
            class = match class {
                FieldClass::Array(array) => &array.element,
                FieldClass::Optional(optional) => {
                    if self.version == Version::Ctf18 {
                        names.push(VALUE.to_owned());
                    }
                    &optional.class
                }
                _ => return class,
            };
        }
    }
}

/// Whether all packets of a trace have sequence numbers.
pub(super) fn is_numbered(metadata: &Metadata) -> bool {
    let mut contexts = metadata.streams.iter().map(|it| it.packet_context.as_ref());
    contexts.all(|context| says(context, Role::PacketSeqNum))
}

/// The packet context of every output stream: times, if it has a clock; sizes; the sequence number, which shows gaps;
/// and discarded events, if the source counts them.
fn packet_context(source: &StreamClass, order: ByteOrder, clock: Option<ClockId>) -> StructClass {
    let usual = standard::packet_context(order, clock.unwrap_or(ClockId(0)));
    let mut context = StructClass::new();
    for member in usual.members {
        let role = member.class.as_integer().and_then(|class| class.role);
        let there = match role {
            Some(Role::TimestampBegin | Role::TimestampEnd) => clock.is_some(),
            Some(Role::EventsDiscarded) => {
                says(source.packet_context.as_ref(), Role::EventsDiscarded)
            }
            _ => true,
        };
        if there {
            context.members.push(member);
        }
    }
    context
}

/// The event header of every output stream: an id of whole bytes, and the low 32 bits of the time.
fn event_header(source: &StreamClass, order: ByteOrder, clock: Option<ClockId>) -> StructClass {
    let largest = source.events.iter().map(|event| event.id).max();
    let size = match largest.unwrap_or(0) {
        0..=0xff => 8,
        0x100..=0xffff => 16,
        0x1_0000..=0xffff_ffff => 32,
        _ => 64,
    };
    let header = StructClass::new().with(
        "id",
        IntegerClass::unsigned(size, order).role(Role::EventId),
    );
    match clock {
        Some(clock) => header.with("timestamp", IntegerClass::unsigned(32, order).clock(clock)),
        None => header,
    }
}

/// Names the CPU field, whose role depends on its name.
fn name_cpu(member: &mut Member, version: Version) {
    let named = match version {
        Version::Ctf18 => member.declared == crate::ctf2::CPU,
        Version::Ctf2 => member.name == crate::ctf2::CPU,
    };
    let class = match &mut member.class {
        FieldClass::Integer(class) => class,
        FieldClass::Enumeration(class) if version == Version::Ctf18 => &mut class.integer,
        _ => return,
    };
    // In CTF 2 it must be unsigned.
    let fits = version == Version::Ctf18 || (!class.signed && class.form != Form::Variable);
    if class.role.is_none_or(|role| role == Role::CpuId) {
        class.role = (named && fits).then_some(Role::CpuId);
    }
}
