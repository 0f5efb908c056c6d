//! Assigns names in the target version: TSDL requires identifiers, and readers remove one leading underscore.

use std::collections::BTreeSet;

use crate::metadata::{FieldClass, Member, Scope, StructClass, Version, is_keyword};
use crate::tsdl::implied_role;

/// New name of a member.
pub(super) struct Named {
    /// The name for users.
    pub name: String,
    /// The declared name.
    pub declared: String,
    /// Whether the name for users has changed.
    pub changed: bool,
}

/// Assigns unique names to the members of one structure, in order.
pub(super) struct Renamer {
    version: Version,
    /// Names for users. Names that differ only in an underscore are equal to some readers.
    taken: BTreeSet<String>,
    /// The scope, if names of members may imply roles there.
    reserved: Option<Scope>,
}

impl Renamer {
    /// Creates a renamer for the members of a structure in this scope of the result.
    pub fn new(version: Version, scope: Scope) -> Self {
        Self {
            version,
            taken: BTreeSet::new(),
            reserved: (version == Version::Ctf18).then_some(scope),
        }
    }

    /// Creates a renamer for members appended to the root structure of a scope.
    pub fn behind(version: Version, scope: Scope, members: &StructClass) -> Self {
        let mut renamer = Self::new(version, scope);
        let members = members.members.iter();
        let names = members.map(|member| member.name.clone());
        renamer.taken.extend(names);
        renamer
    }

    /// The name of the next member; one at the `top` of a packet context may be that of the CPU.
    pub fn name(&mut self, member: &Member, top: bool) -> Named {
        let mut declared = match self.version {
            Version::Ctf2 => member.name.clone(),
            Version::Ctf18 => declared(member),
        };
        if !declared.is_empty() {
            let role = |name: &str| self.reserved.and_then(|scope| implied_role(scope, name));
            let shown = |name: &str| match self.version {
                Version::Ctf2 => name.to_owned(),
                Version::Ctf18 => shown(name).to_owned(),
            };
            while self.taken.contains(&shown(&declared))
                || (role(&declared).is_some() && !(top && declared == crate::ctf2::CPU))
            {
                declared.push('_');
            }
            self.taken.insert(shown(&declared));
        }
        let name = match self.version {
            Version::Ctf2 => declared.clone(),
            Version::Ctf18 => shown(&declared).to_owned(),
        };
        Named {
            changed: name != member.name,
            name,
            declared,
        }
    }

    /// The declared name of the member at an index.
    pub fn nth(mut self, class: &StructClass, index: usize, top: bool) -> Option<String> {
        let members = class.members.iter().take(index + 1);
        members.map(|member| self.name(member, top).declared).last()
    }
}

/// The name for users.
fn shown(declared: &str) -> &str {
    declared.strip_prefix('_').unwrap_or(declared)
}

/// The declared name in CTF 1.8 that preserves the member's name for users as far as possible.
fn declared(member: &Member) -> String {
    let (name, old) = (&member.name, &member.declared);
    let nameless = matches!(member.class, FieldClass::Struct(_) | FieldClass::Variant(_));
    if (old.is_empty() && name.is_empty() && nameless)
        || (identifier(old) == *old && !is_keyword(old) && shown(old) == name)
    {
        return old.clone();
    }
    let plain = if name.is_empty() {
        "field".to_owned()
    } else {
        identifier(name)
    };
    // Users see one of two leading underscores; they should not see one before a digit.
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    if (plain.starts_with('_') && !digit) || is_keyword(&plain) {
        format!("_{plain}")
    } else {
        plain
    }
}

/// Converts a name to an identifier of C: letters, digits and underscores, not beginning with a digit.
pub(super) fn identifier(name: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let characters = name.chars();
    let plain: String = characters
        .map(|c| if simple(c) { c } else { '_' })
        .collect();
    if plain.is_empty() || plain.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("_{plain}");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{ByteOrder, IntegerClass};

    #[test]
    fn names_are_kept_as_users_see_them_where_c_has_such() {
        let class = IntegerClass::unsigned(8, ByteOrder::Little);
        let from = |name: &str| Member {
            name: name.into(),
            declared: name.into(),
            class: class.into(),
            attributes: None,
        };
        let cases = [
            ("plain", "plain", false),
            ("_vtid", "__vtid", false),
            ("9lives", "_9lives", false),
            ("string", "_string", false),
            ("a b", "a_b", true),
            ("a-b", "a_b_", true),
            ("", "field", true),
        ];
        let mut names = Renamer::new(Version::Ctf18, Scope::EventFields);
        for (name, declared, changed) in cases {
            let found = names.name(&from(name), true);
            assert_eq!(
                (&*found.declared, found.changed),
                (declared, changed),
                "{name}"
            );
        }
        let mut names = Renamer::new(Version::Ctf2, Scope::EventFields);
        for (name, new) in [("a b", "a b"), ("x", "x"), ("x", "x_")] {
            assert_eq!(names.name(&from(name), true).name, new);
        }
    }
}
