//! Roles that CTF 1.8 assigns to names.

use crate::metadata::{FieldClass, Length, Role, Scope, StructClass};

/// Assigns roles to the integers of a scope by their names, at any depth.
pub(super) fn assign_roles(class: &mut StructClass, scope: Scope) {
    for member in &mut class.members {
        assign_role(&member.declared, &mut member.class, scope);
    }
}

/// The role of an integer with this name in a scope of CTF 1.8.
pub(crate) fn implied_role(scope: Scope, name: &str) -> Option<Role> {
    match (scope, name) {
        (Scope::PacketHeader, "magic") => Some(Role::Magic),
        (Scope::PacketHeader, "stream_id") => Some(Role::StreamId),
        (Scope::PacketHeader, "stream_instance_id") => Some(Role::StreamInstanceId),
        (Scope::PacketContext, "packet_size") => Some(Role::PacketSize),
        (Scope::PacketContext, "content_size") => Some(Role::ContentSize),
        (Scope::PacketContext, "timestamp_begin") => Some(Role::TimestampBegin),
        (Scope::PacketContext, "timestamp_end") => Some(Role::TimestampEnd),
        (Scope::PacketContext, "events_discarded") => Some(Role::EventsDiscarded),
        (Scope::PacketContext, "packet_seq_num") => Some(Role::PacketSeqNum),
        (Scope::PacketContext, "cpu_id") => Some(Role::CpuId),
        (Scope::EventHeader, "id") => Some(Role::EventId),
        _ => None,
    }
}

fn assign_role(name: &str, class: &mut FieldClass, scope: Scope) {
    let role = implied_role(scope, name);
    match class {
        FieldClass::Integer(integer) => integer.role = role,
        FieldClass::Enumeration(enumeration) => enumeration.integer.role = role,
        FieldClass::Struct(inner) => assign_roles(inner, scope),
        FieldClass::Variant(variant) => {
            for option in &mut variant.options {
                assign_role(&option.declared, &mut option.class, scope);
            }
        }
        FieldClass::Array(array) => {
            array.is_uuid = (scope, name) == (Scope::PacketHeader, "uuid")
                && array.length == Length::Fixed(16)
                && array
                    .element
                    .as_integer()
                    .is_some_and(|integer| integer.size == 8 && integer.align == 8);
            assign_role("", &mut array.element, scope);
        }
        // CTF 1.8 does not have the others.
        FieldClass::Float(_)
        | FieldClass::String(_)
        | FieldClass::Boolean(_)
        | FieldClass::BitMap(_)
        | FieldClass::Optional(_)
        | FieldClass::Blob(_) => {}
    }
}
