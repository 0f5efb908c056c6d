//! Resolver: finds the fields that hold lengths and tags, and checks that a model can be decoded.
//!
//! A location is resolved where its class is used, not where it was written, searching outwards: the enclosing
//! structures, innermost first, then the scopes decoded before its own, latest first. The field found must be decoded
//! earlier, and be present whenever the location is needed.

mod search;

use std::collections::HashSet;

use search::{Names, Wanted};

use super::{
    ArrayClass, Choice, EnumerationClass, FieldClass, Form, IntegerClass, Length, Location,
    Metadata, OptionalClass, Role, Scope, StructClass, Target, Value64, VariantClass,
};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::tsdl::MAX_DEPTH;

impl Metadata {
    /// Resolves every [`Location`] and checks sizes, alignments, ids and references.
    ///
    /// Parsed metadata is already resolved; a model built by hand is resolved when it is compiled or written. Resolving
    /// can be repeated after a change.
    ///
    /// # Errors
    /// The first error, with its position if a location from a text causes it.
    pub fn resolve(&mut self) -> Result<(), MetadataError> {
        let mut ids = HashSet::new();
        for stream in &self.streams {
            let mut events = HashSet::new();
            if !ids.insert(stream.id) {
                return Err(Kind::Duplicate("stream id").nowhere());
            }
            if !stream.events.iter().all(|event| events.insert(event.id)) {
                return Err(Kind::Duplicate("event id").nowhere());
            }
        }
        if self.streams.len() > 1 && !has_role(self.packet_header.as_ref(), Role::StreamId) {
            return Err(Kind::Missing(
                "stream_id in the packet header, with several stream classes,",
            )
            .nowhere());
        }
        if self.clocks.iter().any(|clock| clock.frequency == 0) {
            return Err(Kind::Attribute {
                attribute: "freq",
                expected: "a positive number",
            }
            .nowhere());
        }
        let names = Names::default();
        let mut places = vec![(0, 0, Scope::PacketHeader)];
        for (index, stream) in self.streams.iter().enumerate() {
            let common = [
                Scope::PacketContext,
                Scope::EventHeader,
                Scope::StreamEventContext,
            ];
            places.extend(common.map(|scope| (index, 0, scope)));
            let own = [Scope::EventContext, Scope::EventFields];
            let events = 0..stream.events.len();
            places.extend(events.flat_map(|event| own.map(|scope| (index, event, scope))));
        }
        let found: Result<Vec<_>, _> = places
            .iter()
            .map(|&(stream, event, scope)| self.locations(stream, event, scope, &names))
            .collect();
        for ((stream, event, scope), found) in places.into_iter().zip(found?) {
            if let Some(root) = self.scope_mut(stream, event, scope) {
                store_structure(root, &mut found.into_iter());
            }
        }
        Ok(())
    }

    /// The structure of a scope, for the event class with these indices.
    #[must_use]
    pub fn scope(&self, stream: usize, event: usize, scope: Scope) -> Option<&StructClass> {
        let stream = self.streams.get(stream);
        let event = || stream?.events.get(event);
        match scope {
            Scope::PacketHeader => self.packet_header.as_ref(),
            Scope::PacketContext => stream?.packet_context.as_ref(),
            Scope::EventHeader => stream?.event_header.as_ref(),
            Scope::StreamEventContext => stream?.event_context.as_ref(),
            Scope::EventContext => event()?.context.as_ref(),
            Scope::EventFields => event()?.fields.as_ref(),
        }
    }

    fn scope_mut(&mut self, stream: usize, event: usize, scope: Scope) -> Option<&mut StructClass> {
        if scope == Scope::PacketHeader {
            return self.packet_header.as_mut();
        }
        let stream = self.streams.get_mut(stream)?;
        match scope {
            Scope::PacketHeader | Scope::PacketContext => stream.packet_context.as_mut(),
            Scope::EventHeader => stream.event_header.as_mut(),
            Scope::StreamEventContext => stream.event_context.as_mut(),
            Scope::EventContext => stream.events.get_mut(event)?.context.as_mut(),
            Scope::EventFields => stream.events.get_mut(event)?.fields.as_mut(),
        }
    }

    /// The targets of the locations in a scope, in order.
    fn locations<'m>(
        &'m self,
        stream: usize,
        event: usize,
        scope: Scope,
        names: &Names<'m>,
    ) -> Result<Vec<Vec<Target>>, MetadataError> {
        let Some(root) = self.scope(stream, event, scope) else {
            return Ok(Vec::new());
        };
        let mut roots = [None; 6];
        for (slot, visible) in roots.iter_mut().zip(Scope::ALL) {
            if visible <= scope {
                *slot = self.scope(stream, event, visible);
            }
        }
        let mut resolver = Resolver {
            roots,
            scope,
            clocks: self.clocks.len(),
            names,
            here: Vec::new(),
            around: Vec::new(),
            found: Vec::new(),
        };
        resolver.structure(root, 1)?;
        Ok(resolver.found)
    }
}

/// Whether an integer anywhere in `class` has `role`.
fn has_role(class: Option<&StructClass>, role: Role) -> bool {
    fn in_class(class: &FieldClass, role: Role) -> bool {
        match class {
            FieldClass::Struct(class) => class
                .members
                .iter()
                .any(|member| in_class(&member.class, role)),
            FieldClass::Variant(class) => class
                .options
                .iter()
                .any(|option| in_class(&option.class, role)),
            FieldClass::Array(_) | FieldClass::Optional(_) => in_class(class.inner(), role),
            _ => class
                .as_integer()
                .is_some_and(|integer| integer.role == Some(role)),
        }
    }
    class.is_some_and(|class| {
        class
            .members
            .iter()
            .any(|member| in_class(&member.class, role))
    })
}

/// Stores the targets in the locations, in the order in which [`Resolver`] visited them.
fn store_structure(class: &mut StructClass, found: &mut impl Iterator<Item = Vec<Target>>) {
    for member in &mut class.members {
        store(&mut member.class, found);
    }
}

fn store(class: &mut FieldClass, found: &mut impl Iterator<Item = Vec<Target>>) {
    match class {
        FieldClass::Struct(class) => store_structure(class, found),
        FieldClass::Array(class) => {
            store_length(&mut class.length, found);
            store(&mut class.element, found);
        }
        FieldClass::Blob(class) => store_length(&mut class.length, found),
        FieldClass::Optional(class) => {
            class.selector.targets = found.next().unwrap_or_default();
            store(&mut class.class, found);
        }
        FieldClass::Variant(class) => {
            class.tag.targets = found.next().unwrap_or_default();
            for option in &mut class.options {
                store(&mut option.class, found);
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

fn store_length(length: &mut Length, found: &mut impl Iterator<Item = Vec<Target>>) {
    if let Length::Field(location) = length {
        location.targets = found.next().unwrap_or_default();
    }
}

struct Resolver<'r, 'm> {
    /// The scopes decoded no later than the current one.
    roots: [Option<&'m StructClass>; 6],
    scope: Scope,
    clocks: usize,
    names: &'r Names<'m>,
    /// The path from the root of the scope to the current class.
    here: Vec<u32>,
    /// The enclosing structures, each with the length of the path to it.
    around: Vec<(&'m StructClass, usize)>,
    found: Vec<Vec<Target>>,
}

impl<'m> Resolver<'_, 'm> {
    fn structure(&mut self, class: &'m StructClass, depth: u32) -> Result<(), MetadataError> {
        check_align(class.min_align.max(1))?;
        self.around.push((class, self.here.len()));
        for (index, member) in (0u32..).zip(&class.members) {
            self.here.push(index);
            self.class(&member.class, depth)?;
            self.here.pop();
        }
        self.around.pop();
        Ok(())
    }

    fn class(&mut self, class: &'m FieldClass, depth: u32) -> Result<(), MetadataError> {
        if depth > MAX_DEPTH {
            return Err(Kind::Depth(MAX_DEPTH).nowhere());
        }
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::Enumeration(enumeration) => self.integer(&enumeration.integer),
            FieldClass::Boolean(integer) => self.bits(integer),
            FieldClass::BitMap(map) => self.bits(&map.integer),
            FieldClass::Blob(class) => self.length(&class.length),
            FieldClass::Optional(class) => self.optional(class, depth),
            FieldClass::Float(float) if !matches!(float.size, 16 | 32 | 64) => {
                Err(Kind::Unsupported("floating point number other than binary16/32/64").nowhere())
            }
            FieldClass::Float(float) => check_align(float.align),
            FieldClass::String(_) => Ok(()),
            FieldClass::Struct(class) => self.structure(class, depth + 1),
            FieldClass::Array(class) => self.array(class, depth),
            FieldClass::Variant(class) => self.variant(class, depth),
        }
    }

    fn integer(&self, class: &IntegerClass) -> Result<(), MetadataError> {
        if !(1..=64).contains(&class.size) {
            return Err(Kind::Attribute {
                attribute: "size",
                expected: "1 to 64 bits",
            }
            .nowhere());
        }
        if class
            .clock
            .is_some_and(|clock| clock.0 as usize >= self.clocks)
        {
            return Err(Kind::Missing("clock of a field").nowhere());
        }
        if class.form == Form::Variable && (class.size, class.align) != (64, 8) {
            return Err(Kind::Attribute {
                attribute: "size",
                expected: "64 bits, aligned to 8, for an integer of variable size",
            }
            .nowhere());
        }
        check_align(class.align)
    }

    /// Checks that a boolean or bit map is an unsigned integer of fixed size.
    fn bits(&self, class: &IntegerClass) -> Result<(), MetadataError> {
        if class.signed || class.form == Form::Variable {
            return Err(Kind::Unsupported("signed or variable-length bits").nowhere());
        }
        self.integer(class)
    }

    fn length(&mut self, length: &Length) -> Result<(), MetadataError> {
        if let Length::Field(location) = length {
            let targets = self.locate(location, Wanted::Length)?;
            self.found.push(targets);
        }
        Ok(())
    }

    fn array(&mut self, class: &'m ArrayClass, depth: u32) -> Result<(), MetadataError> {
        check_align(class.min_align)?;
        if let (Some(encoding), Length::Fixed(length)) = (class.text(), &class.length)
            && !length.is_multiple_of(u64::from(encoding.unit()))
        {
            return Err(Kind::Attribute {
                attribute: "length",
                expected: "a multiple of the size of a character",
            }
            .nowhere());
        }
        self.length(&class.length)?;
        self.class(&class.element, depth + 1)
    }

    fn optional(&mut self, class: &'m OptionalClass, depth: u32) -> Result<(), MetadataError> {
        let wanted = match class.ranges {
            Some(_) => Wanted::Selector,
            None => Wanted::Boolean,
        };
        let targets = self.locate(&class.selector, wanted)?;
        if let Some(ranges) = &class.ranges {
            self.check_ranges(&class.selector, &targets, [ranges.as_slice()])?;
        }
        self.found.push(targets);
        self.class(&class.class, depth + 1)
    }

    /// Checks selecting values: the integers have one signedness, which the values have too, and no value is in two
    /// sets.
    fn check_ranges<'r>(
        &self,
        location: &Location,
        targets: &[Target],
        sets: impl IntoIterator<Item = &'r [(Value64, Value64)]>,
    ) -> Result<(), MetadataError> {
        let fail = |kind| MetadataError {
            offset: location.offset,
            ..Kind::nowhere(kind)
        };
        let integers = targets.iter().filter_map(|it| self.at(it)?.as_integer());
        let signs: Vec<bool> = integers.map(|integer| integer.signed).collect();
        if !signs.is_sorted_by(|a, b| a == b) {
            return Err(fail(Kind::Unsupported(
                "a selector that may be signed or unsigned",
            )));
        }
        let signed = signs.first() == Some(&true);
        let mut all = Vec::new();
        for (index, set) in sets.into_iter().enumerate() {
            if set.is_empty() {
                return Err(fail(Kind::Missing("range of selecting values")));
            }
            all.extend(set.iter().map(|(a, b)| (a.widen(), b.widen(), index)));
        }
        all.sort_unstable();
        if all
            .iter()
            .any(|(first, last, _)| last < first || (!signed && *first < 0))
        {
            return Err(fail(Kind::Attribute {
                attribute: "selector-field-ranges",
                expected: "ranges of values that the selector can have",
            }));
        }
        // Sorted by begin, so a set that begins before the furthest end so far shares values.
        let mut furthest: Option<(i128, usize)> = None;
        for (first, last, set) in all {
            if furthest.is_some_and(|(end, of)| first <= end && of != set) {
                return Err(fail(Kind::Variant("with two options for one value")));
            }
            if furthest.is_none_or(|(end, _)| last > end) {
                furthest = Some((last, set));
            }
        }
        Ok(())
    }

    fn variant(&mut self, class: &'m VariantClass, depth: u32) -> Result<(), MetadataError> {
        let targets = match &class.choice {
            Choice::Labels => self.labelled(class)?,
            Choice::Ranges(ranges) => {
                let targets = self.locate(&class.tag, Wanted::Selector)?;
                if ranges.len() != class.options.len() {
                    return Err(
                        Kind::Variant("whose options and ranges differ in number").nowhere()
                    );
                }
                self.check_ranges(&class.tag, &targets, ranges.iter().map(Vec::as_slice))?;
                targets
            }
        };
        self.found.push(targets);
        for (index, option) in (0u32..).zip(&class.options) {
            self.here.push(index);
            self.class(&option.class, depth + 1)?;
            self.here.pop();
        }
        Ok(())
    }

    /// The enumerations whose labels select the options of a variant.
    fn labelled(&self, class: &VariantClass) -> Result<Vec<Target>, MetadataError> {
        let targets = self.locate(&class.tag, Wanted::Tag)?;
        let fail = |kind| MetadataError {
            kind,
            offset: class.tag.offset,
            line: 0,
            column: 0,
        };
        let tags: Vec<_> = targets
            .iter()
            .filter_map(|target| self.enumeration(target))
            .collect();
        let selectable = |tag: &EnumerationClass| {
            class
                .options
                .iter()
                .any(|it| it.selected_by(tag).next().is_some())
        };
        if !tags.first().is_some_and(|tag| selectable(tag)) {
            return Err(fail(Kind::Variant(
                "without an option that its tag can select",
            )));
        }
        if !tags
            .is_sorted_by(|a, b| a.mappings == b.mappings && a.integer.signed == b.integer.signed)
        {
            return Err(fail(Kind::Unsupported(
                "variant whose tag may be in enumerations that differ",
            )));
        }
        Ok(targets)
    }

    /// The enumeration at a target.
    fn enumeration(&self, target: &Target) -> Option<&'m EnumerationClass> {
        match self.at(target)? {
            FieldClass::Enumeration(class) => Some(class),
            _ => None,
        }
    }

    /// The class at a target.
    fn at(&self, target: &Target) -> Option<&'m FieldClass> {
        let root = Scope::ALL
            .into_iter()
            .zip(self.roots)
            .find(|(scope, _)| *scope == target.scope)?
            .1?;
        root.at(&target.steps)
    }
}

fn check_align(align: u32) -> Result<(), MetadataError> {
    if align.is_power_of_two() {
        Ok(())
    } else {
        Err(Kind::Attribute {
            attribute: "align",
            expected: "a power of two",
        }
        .nowhere())
    }
}
