//! Selects header fields that move into contexts: those that the writer cannot fill in, and those that other fields
//! depend on.

use crate::metadata::{
    FieldClass, IntegerClass, Length, Metadata, Role, Scope, StreamClass, StructClass, Target,
};

/// For each field of a header or of the packet context, whether it moves into the following context.
pub(in crate::convert) type Extras = Vec<bool>;

/// The scopes that are replaced.
pub(super) const HEADERS: [Scope; 3] = [
    Scope::PacketHeader,
    Scope::PacketContext,
    Scope::EventHeader,
];

/// The extras of a stream class, for each of [`HEADERS`].
pub(super) fn extras(metadata: &Metadata, stream: &StreamClass) -> [Extras; 3] {
    let roots = [
        metadata.packet_header.as_ref(),
        stream.packet_context.as_ref(),
        stream.event_header.as_ref(),
    ];
    let mut extras: [Extras; 3] = roots.map(|root| {
        let members = root.iter().flat_map(|root| &root.members);
        members.map(|member| is_unknown(&member.class)).collect()
    });
    let mut needed = Vec::new();
    let contexts = stream.event_context.iter();
    let events = stream.events.iter();
    let events = events.flat_map(|event| event.context.iter().chain(&event.fields));
    for class in contexts.chain(events) {
        collect_structure(class, &mut needed);
    }
    for (root, extras) in roots.iter().zip(&extras) {
        let members = root.iter().flat_map(|root| &root.members).zip(extras);
        for (member, _) in members.filter(|(_, extra)| **extra) {
            collect(&member.class, &mut needed);
        }
    }
    // Fields that others depend on may themselves depend on others.
    while let Some(target) = needed.pop() {
        let place = HEADERS.iter().position(|scope| *scope == target.scope);
        let first = target.steps.first().map(|step| *step as usize);
        let (Some(place), Some(first)) = (place, first) else {
            continue;
        };
        let extra = extras.get_mut(place).and_then(|it| it.get_mut(first));
        if extra.is_some_and(|extra| !std::mem::replace(extra, true)) {
            let root = roots.get(place).copied().flatten();
            if let Some(member) = root.and_then(|root| root.members.get(first)) {
                collect(&member.class, &mut needed);
            }
        }
    }
    extras
}

/// Whether a header field contains nothing that the writer can fill in. It cannot fill in the CPU.
pub(super) fn is_unknown(class: &FieldClass) -> bool {
    let uuid = match class {
        FieldClass::Array(array) => array.is_uuid,
        FieldClass::Blob(blob) => blob.is_uuid,
        _ => false,
    };
    let known = |class: &IntegerClass| {
        class.role.is_some_and(|role| role != Role::CpuId) || class.clock.is_some()
    };
    !uuid && !any(class, &known)
}

/// Whether an integer anywhere in a structure has a role.
pub(super) fn says(root: Option<&StructClass>, role: Role) -> bool {
    let wanted = |class: &IntegerClass| class.role == Some(role);
    let mut members = root.iter().flat_map(|root| &root.members);
    members.any(|member| any(&member.class, &wanted))
}

/// Whether any integer in a class satisfies a condition.
fn any(class: &FieldClass, wanted: &impl Fn(&IntegerClass) -> bool) -> bool {
    match class.inner() {
        FieldClass::Struct(class) => class.members.iter().any(|it| any(&it.class, wanted)),
        FieldClass::Variant(class) => class.options.iter().any(|it| any(&it.class, wanted)),
        class => class.as_integer().is_some_and(wanted),
    }
}

fn collect_structure(class: &StructClass, targets: &mut Vec<Target>) {
    for member in &class.members {
        collect(&member.class, targets);
    }
}

/// Collects the fields that lengths and selectors in a class refer to.
fn collect(class: &FieldClass, targets: &mut Vec<Target>) {
    match class {
        FieldClass::Struct(class) => collect_structure(class, targets),
        FieldClass::Array(class) => {
            if let Length::Field(location) = &class.length {
                targets.extend_from_slice(&location.targets);
            }
            collect(&class.element, targets);
        }
        FieldClass::Blob(class) => {
            if let Length::Field(location) = &class.length {
                targets.extend_from_slice(&location.targets);
            }
        }
        FieldClass::Optional(class) => {
            targets.extend_from_slice(&class.selector.targets);
            collect(&class.class, targets);
        }
        FieldClass::Variant(class) => {
            targets.extend_from_slice(&class.tag.targets);
            for option in &class.options {
                collect(&option.class, targets);
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
