//! Selectors of variants in CTF 1.8: enumerations, whose labels are the names of the options.
//!
//! In CTF 2 any integer can select, by ranges of values. Such an integer gets a label for each option that it selects,
//! besides its own labels.

use std::collections::BTreeMap;

use super::fields::Set;
use super::names::{Named, Renamer};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::{
    Choice, FieldClass, Mapping, Metadata, Scope, StructClass, Target, VariantClass, Version,
};

/// Location of a selector: indices of the stream class and event class, as far as its scope depends on them, and the
/// target.
type Place = (usize, usize, Target);

/// Labels that selectors get.
#[derive(Default)]
pub(super) struct Labels(BTreeMap<Place, Vec<Mapping>>);

/// The new names of a variant's options.
pub(super) fn options(variant: &VariantClass, version: Version, scope: Scope) -> Vec<Named> {
    let mut names = Renamer::new(version, scope);
    let options = variant.options.iter();
    options.map(|option| names.name(option, false)).collect()
}

impl Labels {
    /// Collects the labels of all variants whose options are selected by ranges.
    pub fn of(metadata: &Metadata) -> Result<Self, MetadataError> {
        let mut labels = Self::default();
        for (stream, class) in metadata.streams.iter().enumerate() {
            let scopes = [
                (Scope::PacketHeader, &metadata.packet_header),
                (Scope::PacketContext, &class.packet_context),
                (Scope::EventHeader, &class.event_header),
                (Scope::StreamEventContext, &class.event_context),
            ];
            for (scope, root) in scopes {
                labels.structure(root.as_ref(), (stream, 0, scope))?;
            }
            for (event, class) in class.events.iter().enumerate() {
                let scopes = [
                    (Scope::EventContext, &class.context),
                    (Scope::EventFields, &class.fields),
                ];
                for (scope, root) in scopes {
                    labels.structure(root.as_ref(), (stream, event, scope))?;
                }
            }
        }
        Ok(labels)
    }

    /// The labels for the integer at a target.
    pub fn at(&self, stream: usize, event: usize, target: &Target) -> &[Mapping] {
        let labels = self.0.get(&place(stream, event, target));
        labels.map_or(&[], Vec::as_slice)
    }

    fn structure(
        &mut self,
        class: Option<&StructClass>,
        here: (usize, usize, Scope),
    ) -> Result<(), MetadataError> {
        let mut members = class.iter().flat_map(|class| &class.members);
        members.try_for_each(|member| self.class(&member.class, here))
    }

    fn class(
        &mut self,
        class: &FieldClass,
        here: (usize, usize, Scope),
    ) -> Result<(), MetadataError> {
        match class.inner() {
            FieldClass::Struct(class) => self.structure(Some(class), here),
            FieldClass::Variant(variant) => {
                if let Choice::Ranges(sets) = &variant.choice {
                    for target in &variant.tag.targets {
                        self.variant(variant, sets, place(here.0, here.1, target))?;
                    }
                }
                let mut options = variant.options.iter();
                options.try_for_each(|option| self.class(&option.class, here))
            }
            _ => Ok(()),
        }
    }

    fn variant(
        &mut self,
        variant: &VariantClass,
        sets: &[Set],
        place: Place,
    ) -> Result<(), MetadataError> {
        let known = self.0.entry(place).or_default();
        // Names of options never imply roles.
        let names = options(variant, Version::Ctf18, Scope::EventFields);
        for (name, set) in names.into_iter().zip(sets) {
            let mappings = set.iter().map(|(first, last)| Mapping {
                label: name.declared.clone(),
                first: *first,
                last: *last,
            });
            let new: Vec<Mapping> = mappings.collect();
            let old: Vec<&Mapping> = known
                .iter()
                .filter(|it| it.label == name.declared)
                .collect();
            if old.is_empty() {
                known.extend(new);
            } else if !old.into_iter().eq(&new) {
                let what = "two variants that share a selector and names of options, in CTF 1.8";
                return Err(Kind::Unsupported(what).nowhere());
            }
        }
        Ok(())
    }
}

/// The location of a selector; fields of a trace or stream are shared by all classes below.
fn place(stream: usize, event: usize, target: &Target) -> Place {
    match target.scope {
        Scope::PacketHeader => (0, 0, target.clone()),
        Scope::PacketContext | Scope::EventHeader | Scope::StreamEventContext => {
            (stream, 0, target.clone())
        }
        Scope::EventContext | Scope::EventFields => (stream, event, target.clone()),
    }
}
