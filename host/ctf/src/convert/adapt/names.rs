//! Names in the wanted version: TSDL knows identifiers only, and readers take one leading underscore off.

use std::collections::BTreeSet;

use crate::metadata::{FieldClass, Member, Scope, StructClass, Version, is_keyword};
use crate::tsdl::implied_role;

/// What a member is called.
pub(super) struct Named {
    /// For users.
    pub name: String,
    /// In the metadata.
    pub declared: String,
    /// Whether users see another name than before.
    pub changed: bool,
}

/// Gives the members of one structure their names, in their order, none of them twice.
pub(super) struct Renamer {
    version: Version,
    /// Names as users see them: two that differ in an underscore only are one to some readers.
    taken: BTreeSet<String>,
    /// The scope, where names of members may give them a role.
    reserved: Option<Scope>,
}

impl Renamer {
    /// For the members of a structure in this scope of the result.
    pub fn new(version: Version, scope: Scope) -> Self {
        Self {
            version,
            taken: BTreeSet::new(),
            reserved: (version == Version::Ctf18).then_some(scope),
        }
    }

    /// For members behind those of a structure that is the root of a scope.
    pub fn behind(version: Version, scope: Scope, members: &StructClass) -> Self {
        let mut renamer = Self::new(version, scope);
        let members = members.members.iter();
        let names = members.map(|member| member.name.clone());
        renamer.taken.extend(names);
        renamer
    }

    /// The name of the next member; one at the `top` of a packet context may be the processor's.
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

    /// The declared name of the member at a position.
    pub fn nth(mut self, class: &StructClass, index: usize, top: bool) -> Option<String> {
        let members = class.members.iter().take(index + 1);
        members.map(|member| self.name(member, top).declared).last()
    }
}

/// A name as users see it.
fn shown(declared: &str) -> &str {
    declared.strip_prefix('_').unwrap_or(declared)
}

/// How CTF 1.8 has to declare a member so that users see its name, as far as that can be.
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
    // Of two underscores in front, users see one; that before a digit they are not to see.
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    if (plain.starts_with('_') && !digit) || is_keyword(&plain) {
        format!("_{plain}")
    } else {
        plain
    }
}

/// A name as C has them: of letters, digits and underscores, with no digit in front.
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
