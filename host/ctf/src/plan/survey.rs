//! Properties of metadata as a whole that the compiler needs.

use crate::metadata::{
    ByteOrder, ClockId, FieldClass, Form, IntegerClass, Metadata, Role, Scope, StructClass,
};

/// Calls `visit` for every integer of a structure, in order.
fn integers(class: &StructClass, visit: &mut impl FnMut(&IntegerClass)) {
    fn inside(class: &FieldClass, visit: &mut impl FnMut(&IntegerClass)) {
        match class {
            FieldClass::Integer(class) => visit(class),
            FieldClass::Enumeration(class) => visit(&class.integer),
            FieldClass::Struct(class) => integers(class, visit),
            FieldClass::Array(_) | FieldClass::Optional(_) => inside(class.inner(), visit),
            FieldClass::Variant(class) => class
                .options
                .iter()
                .for_each(|option| inside(&option.class, visit)),
            FieldClass::Boolean(_)
            | FieldClass::BitMap(_)
            | FieldClass::Float(_)
            | FieldClass::String(_)
            | FieldClass::Blob(_) => {}
        }
    }
    class
        .members
        .iter()
        .for_each(|member| inside(&member.class, visit));
}

/// The clock of the first field in a structure that updates one.
pub(super) fn stamp(class: Option<&StructClass>) -> Option<ClockId> {
    let mut clock = None;
    integers(class?, &mut |class| {
        if class.role != Some(Role::TimestampEnd) {
            clock = clock.or(class.clock);
        }
    });
    clock
}

/// The size in bits of the field with `role`, 0 if there is none.
pub(super) fn role_size(class: Option<&StructClass>, role: Role) -> u32 {
    let mut size = 0;
    if let Some(class) = class {
        integers(class, &mut |class| {
            if class.role == Some(role) {
                size = class.size;
            }
        });
    }
    size
}

/// Whether fields of both byte orders occur, and the byte order if there is only one.
pub(super) fn byte_orders(metadata: &Metadata) -> (bool, Option<ByteOrder>) {
    let (mut little, mut big) = (false, false);
    for (stream, class) in metadata.streams.iter().enumerate() {
        for event in 0..class.events.len().max(1) {
            for scope in Scope::ALL
                .into_iter()
                .filter(|scope| event == 0 || *scope > Scope::StreamEventContext)
            {
                if let Some(root) = metadata.scope(stream, event, scope) {
                    orders(root, &mut |order| match order {
                        ByteOrder::Little => little = true,
                        ByteOrder::Big => big = true,
                    });
                }
            }
        }
    }
    let order = match (little, big) {
        (true, true) => None,
        (_, false) => Some(ByteOrder::Little),
        (false, true) => Some(ByteOrder::Big),
    };
    (order.is_none(), order)
}

fn orders(class: &StructClass, visit: &mut impl FnMut(ByteOrder)) {
    fn inside(class: &FieldClass, visit: &mut impl FnMut(ByteOrder)) {
        match class {
            FieldClass::Integer(class) if class.form == Form::Variable => {}
            FieldClass::Integer(class) | FieldClass::Boolean(class) => visit(class.byte_order),
            FieldClass::BitMap(class) => visit(class.integer.byte_order),
            FieldClass::Enumeration(class) => visit(class.integer.byte_order),
            FieldClass::Float(class) => visit(class.byte_order),
            FieldClass::Struct(class) => orders(class, visit),
            FieldClass::Array(_) | FieldClass::Optional(_) => inside(class.inner(), visit),
            FieldClass::Variant(class) => class
                .options
                .iter()
                .for_each(|option| inside(&option.class, visit)),
            FieldClass::String(_) | FieldClass::Blob(_) => {}
        }
    }
    class
        .members
        .iter()
        .for_each(|member| inside(&member.class, visit));
}
