//! User attributes, which only CTF 2 has: they follow their fields, also into replaced headers.

use super::extras::is_unknown;
use super::{Adapter, Change};
use crate::metadata::{AttributesId, FieldClass, IntegerClass, Role, StructClass, Version};

/// Identifies equivalent header fields: the role, and whether it is the time of an event.
type Key = (Option<Role>, bool);

/// A field of a header that has a role: attributes of the member that holds it, and of its class.
type Known = (Key, [Option<AttributesId>; 2]);

impl Adapter<'_> {
    /// The attributes, if the target version has any. (Their texts keep their indices.)
    pub fn attributes(&mut self, source: Option<AttributesId>) -> Option<AttributesId> {
        if self.version == Version::Ctf18 && source.is_some() {
            self.change(Change::About);
            return None;
        }
        source
    }

    /// Copies attributes to a replaced header and its fields from their equivalents in the source.
    pub fn inherit(&mut self, source: Option<&StructClass>, header: &mut StructClass) {
        let Some(source) = source else { return };
        header.attributes = self.attributes(source.attributes);
        let (mut known, mut all) = (Vec::new(), 0);
        let members = source.members.iter();
        for member in members.filter(|member| !is_unknown(&member.class)) {
            all += u64::from(member.attributes.is_some());
            all += collect(&member.class, member.attributes, &mut known);
        }
        let mut kept = 0;
        if self.version == Version::Ctf2 {
            for member in &mut header.members {
                let key = member.class.as_integer().map(key);
                let mut found = known.iter().filter(|(other, _)| Some(*other) == key);
                if let Some((_, [own, class])) = found.next() {
                    member.attributes = *own;
                    member.class.set_attributes(*class);
                    kept += [own, class].into_iter().flatten().count() as u64;
                }
            }
        }
        for _ in kept..all {
            self.change(Change::About);
        }
    }
}

fn key(class: &IntegerClass) -> Key {
    (class.role, class.clock.is_some())
}

/// Collects the fields in a class that have roles, and counts classes and members with attributes.
fn collect(class: &FieldClass, own: Option<AttributesId>, known: &mut Vec<Known>) -> u64 {
    let mut count = u64::from(class.attributes().is_some());
    let members = match class {
        FieldClass::Struct(class) => &class.members[..],
        FieldClass::Variant(class) => &class.options[..],
        FieldClass::Array(class) => return count + collect(&class.element, None, known),
        FieldClass::Optional(class) => return count + collect(&class.class, None, known),
        class => {
            if let Some(integer) = class.as_integer()
                && key(integer) != (None, false)
            {
                known.push((key(integer), [own, integer.attributes]));
            }
            return count;
        }
    };
    for member in members {
        count += u64::from(member.attributes.is_some());
        count += collect(&member.class, member.attributes, known);
    }
    count
}
