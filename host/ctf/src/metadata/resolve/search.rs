//! Search for the field that a location refers to.
//!
//! CTF 1.8 names it and leaves the search to the reader; CTF 2 states the path step by step. In both, several fields
//! may be meant, one in each option of a variant on the path.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;

use super::Resolver;
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{FieldClass, Location, Route, Scope, StructClass, Target, VariantClass};
use crate::tsdl::MAX_PARTS;

/// Maximum number of fields that one location may refer to. Real traces have one, or one per option of a small variant.
const MAX_TARGETS: usize = 4096;
/// Maximum number of search steps for all locations of a metadata. Each may enter all options of a variant, so a short
/// text can require billions.
const MAX_STEPS: u32 = 1 << 24;
/// Number of members from which on a structure gets an index by name.
const MANY: usize = 16;

/// State shared by all searches in a metadata: members by name, and the number of steps.
#[derive(Default)]
pub(super) struct Names<'m> {
    /// The members of large structures, by their names for users and by their declared names.
    members: RefCell<HashMap<*const StructClass, [HashMap<&'m str, u32>; 2]>>,
    steps: Cell<u32>,
    targets: Cell<u32>,
}

impl<'m> Names<'m> {
    /// The index of the first member with a name: the name for users if it is `stated` so, else the declared one.
    fn member(&self, class: &'m StructClass, name: &str, stated: bool) -> Option<u32> {
        let mut members = (0u32..).zip(&class.members);
        if class.members.len() < MANY {
            let found = members.find(|(_, member)| match stated {
                true => member.name == name,
                false => member.declared == name,
            });
            return found.map(|(index, _)| index);
        }
        let mut known = self.members.borrow_mut();
        let [names, declared] = known.entry(ptr::from_ref(class)).or_insert_with(|| {
            let mut both = [HashMap::new(), HashMap::new()];
            for (index, member) in members {
                let [names, declared] = &mut both;
                names.entry(member.name.as_str()).or_insert(index);
                declared.entry(member.declared.as_str()).or_insert(index);
            }
            both
        });
        let map = if stated { names } else { declared };
        map.get(name).copied()
    }

    /// Counts a step; an error if there have been too many.
    fn step(&self) -> Result<(), Kind> {
        self.steps.set(self.steps.get().saturating_add(1));
        self.within()
    }

    /// Counts a field found; an error if there have been too many.
    fn target(&self) -> Result<(), Kind> {
        self.targets.set(self.targets.get().saturating_add(1));
        self.within()
    }

    fn within(&self) -> Result<(), Kind> {
        if self.steps.get() > MAX_STEPS || self.targets.get() > MAX_PARTS {
            Err(TOO_MANY)
        } else {
            Ok(())
        }
    }
}

const TOO_MANY: Kind = Kind::Unsupported("a length or tag in so many variant options");

/// Required kind of target.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Wanted {
    Length,
    Tag,
    /// An integer that selects by its value.
    Selector,
    /// A boolean that decides whether something is present.
    Boolean,
}

impl Wanted {
    const fn error(self) -> Kind {
        Kind::Location(match self {
            Self::Length => "unsigned integer",
            Self::Tag => "enumeration",
            Self::Selector => "integer",
            Self::Boolean => "boolean",
        })
    }
}
impl<'m> Resolver<'_, 'm> {
    /// Finds the fields that a location refers to, of the required kind.
    pub(super) fn locate(
        &self,
        location: &Location,
        wanted: Wanted,
    ) -> Result<Vec<Target>, MetadataError> {
        let fail = |kind| MetadataError {
            kind,
            offset: location.offset,
            line: 0,
            column: 0,
        };
        let missing = || fail(wanted.error());
        if let Some(route) = &location.route {
            return self.follow(route, wanted).map_err(fail);
        }
        if location.path.is_empty() {
            return Err(fail(Kind::Variant("without a tag")));
        }
        let absolute = Scope::ALL
            .into_iter()
            .zip(self.roots)
            .find_map(|(scope, root)| {
                let rest = location
                    .path
                    .strip_prefix(scope.path())?
                    .strip_prefix('.')?;
                Some((scope, root, rest))
            });
        let mut search = Search {
            resolver: self,
            stated: false,
            scope: self.scope,
            steps: Vec::new(),
            wanted,
            found: Vec::new(),
        };
        if let Some((scope, root, rest)) = absolute {
            let names: Vec<&str> = rest.split('.').collect();
            search.scope = scope;
            search
                .structure(root.ok_or_else(missing)?, &names)
                .map_err(fail)?;
            return Ok(search.found);
        }
        let names: Vec<&str> = location.path.split('.').collect();
        let first = names.first().copied().unwrap_or_default();
        for &(class, depth) in self.around.iter().rev() {
            let here = self.here.get(depth).copied().unwrap_or(0);
            let index = self.names.member(class, first, false);
            search.steps = self.here.get(..depth).unwrap_or(&[]).to_vec();
            if index.is_some_and(|index| index < here)
                && search.try_structure(class, &names).map_err(fail)?
            {
                return Ok(search.found);
            }
        }
        search.steps.clear();
        for (scope, root) in Scope::ALL
            .into_iter()
            .zip(self.roots)
            .rev()
            .filter(|(scope, _)| *scope < self.scope)
        {
            let Some(root) = root else { continue };
            search.scope = scope;
            if self.names.member(root, first, false).is_some()
                && search.try_structure(root, &names).map_err(fail)?
            {
                return Ok(search.found);
            }
        }
        Err(missing())
    }

    /// Finds the fields at the end of a path that is stated step by step.
    fn follow(&self, route: &Route, wanted: Wanted) -> Result<Vec<Target>, Kind> {
        // A step to a member and one back cancel each other, whether or not the member exists.
        let (mut names, mut up): (Vec<&str>, usize) = (Vec::new(), 0);
        for step in &route.path {
            match step {
                Some(name) => names.push(name),
                None if names.pop().is_none() => up += 1,
                None => {}
            }
        }
        let mut search = Search {
            resolver: self,
            stated: true,
            scope: self.scope,
            steps: Vec::new(),
            wanted,
            found: Vec::new(),
        };
        let root = match route.origin {
            Some(origin) => {
                let roots = Scope::ALL.into_iter().zip(self.roots);
                search.scope = origin;
                let mut roots = roots.filter(|(scope, _)| *scope == origin && up == 0);
                roots.next().and_then(|(_, root)| root)
            }
            None => {
                let around = self.around.iter().rev().nth(up);
                around.map(|&(root, depth)| {
                    search.steps = self.here.get(..depth).unwrap_or(&[]).to_vec();
                    root
                })
            }
        };
        search.structure(root.ok_or(wanted.error())?, &names)?;
        Ok(search.found)
    }
}
/// A walk from the root of a scope along the names of a location.
struct Search<'r, 'm> {
    resolver: &'r Resolver<'r, 'm>,
    /// Whether the path is stated (CTF 2), so that it uses the names for users.
    stated: bool,
    scope: Scope,
    steps: Vec<u32>,
    wanted: Wanted,
    found: Vec<Target>,
}

impl<'m> Search<'_, 'm> {
    /// Whether the current class encloses the start of the search: then it is in the current element and the selected
    /// option.
    fn inside(&self) -> bool {
        self.scope == self.resolver.scope && self.resolver.here.starts_with(&self.steps)
    }

    /// A field with the right name and the wrong kind does not hide others: the search continues outside.
    fn try_structure(&mut self, class: &'m StructClass, names: &[&str]) -> Result<bool, Kind> {
        self.found.clear();
        let found = self.structure(class, names).is_ok();
        self.resolver.names.within()?;
        Ok(found)
    }

    fn structure(&mut self, class: &'m StructClass, names: &[&str]) -> Result<(), Kind> {
        let (name, rest) = names.split_first().ok_or(self.wanted.error())?;
        let index = self.resolver.names.member(class, name, self.stated);
        let index = index.ok_or(self.wanted.error())?;
        let member = class.members.get(index as usize);
        let member = member.ok_or(self.wanted.error())?;
        let limit = self.resolver.here.get(self.steps.len());
        if self.inside() && limit.is_some_and(|&limit| index > limit) {
            return Err(self.wanted.error());
        }
        self.step(index, &member.class, rest)
    }

    fn step(&mut self, index: u32, class: &'m FieldClass, names: &[&str]) -> Result<(), Kind> {
        self.resolver.names.step()?;
        self.steps.push(index);
        let result = self.class(class, names);
        self.steps.pop();
        result
    }

    fn class(&mut self, class: &'m FieldClass, names: &[&str]) -> Result<(), Kind> {
        match class {
            FieldClass::Struct(class) => self.structure(class, names),
            FieldClass::Array(class) if self.inside() => self.class(&class.element, names),
            FieldClass::Optional(class) => self.class(&class.class, names),
            FieldClass::Variant(class) => self.variant(class, names),
            FieldClass::Integer(integer) if self.wanted == Wanted::Length && !integer.signed => {
                self.leaf(names)
            }
            FieldClass::Integer(_) if self.wanted == Wanted::Selector => self.leaf(names),
            FieldClass::Enumeration(enumeration) => match self.wanted {
                Wanted::Length if enumeration.integer.signed => Err(self.wanted.error()),
                Wanted::Boolean => Err(self.wanted.error()),
                _ => self.leaf(names),
            },
            FieldClass::Boolean(_) if self.wanted == Wanted::Boolean => self.leaf(names),
            _ => Err(self.wanted.error()),
        }
    }

    /// Through a variant a location refers to whichever option is selected; CTF 1.8 may also name one.
    fn variant(&mut self, class: &'m VariantClass, names: &[&str]) -> Result<(), Kind> {
        let before = self.found.len();
        let selected = if self.inside() {
            self.resolver.here.get(self.steps.len()).copied()
        } else {
            None
        };
        let any = (0u32..)
            .zip(&class.options)
            .filter(|(index, _)| selected.is_none_or(|selected| selected == *index))
            .try_for_each(|(index, option)| self.step(index, &option.class, names));
        if any.is_ok() {
            return Ok(());
        }
        self.found.truncate(before);
        let (name, rest) = names.split_first().ok_or(self.wanted.error())?;
        let named = (0u32..)
            .zip(&class.options)
            .find(|(_, option)| option.declared == *name);
        match named {
            Some((index, option)) if selected.is_none_or(|selected| selected == index) => {
                self.step(index, &option.class, rest)
            }
            _ => Err(self.wanted.error()),
        }
    }

    fn leaf(&mut self, names: &[&str]) -> Result<(), Kind> {
        // A field cannot contain its own length.
        if !names.is_empty() || (self.inside() && self.resolver.here == self.steps) {
            return Err(self.wanted.error());
        }
        if self.found.len() >= MAX_TARGETS {
            return Err(TOO_MANY);
        }
        self.resolver.names.target()?;
        self.found.push(Target {
            scope: self.scope,
            steps: self.steps.clone(),
        });
        Ok(())
    }
}
