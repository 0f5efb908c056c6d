//! Adapts field classes to the target version.

use std::sync::Arc;

use super::names::Renamer;
use super::selectors::options;
use super::{ABSENT, Adapter, Change, PRESENT};
use crate::convert::tokens::is_wide;
use crate::error::MetadataError;
use crate::metadata::{
    ArrayClass, Base, ByteOrder, Choice, Encoding, EnumerationClass, FieldClass, FloatClass, Form,
    IntegerClass, Length, Location, Mapping, Mappings, Member, OptionalClass, Scope, StringClass,
    StructClass, Target, Value64, VariantClass, Version,
};

/// Values that select an option.
pub(super) type Set = Vec<(Value64, Value64)>;

/// The members of the CTF 1.8 replacement of an optional field.
pub(super) const TAG: &str = "is";
pub(super) const VALUE: &str = "value";

type Converted<T> = Result<T, MetadataError>;

impl<'m> Adapter<'m> {
    /// Adapts a member and assigns its new name.
    pub fn member(&mut self, source: &'m Member, names: &mut Renamer) -> Converted<Member> {
        let name = names.name(source, self.steps.len() == 1);
        if name.changed {
            self.change(Change::Renamed);
        }
        Ok(Member {
            attributes: self.attributes(source.attributes),
            class: self.class(&source.class)?,
            name: name.name,
            declared: name.declared,
        })
    }

    fn structure(&mut self, source: &'m StructClass) -> Converted<StructClass> {
        let outer = std::mem::replace(&mut self.around, self.steps.len());
        let mut names = Renamer::new(self.version, self.new_scope());
        let mut class = StructClass::new();
        class.min_align = source.min_align.max(1);
        for (index, member) in (0u32..).zip(&source.members) {
            self.steps.push(index);
            let member = self.member(member, &mut names)?;
            self.steps.pop();
            class.members.push(member);
        }
        self.around = outer;
        Ok(class)
    }

    fn class(&mut self, source: &'m FieldClass) -> Converted<FieldClass> {
        let mut class = match self.version {
            Version::Ctf18 => self.class_of_ctf18(source)?,
            Version::Ctf2 => self.class_of_both(source)?,
        };
        class.set_attributes(self.attributes(source.attributes()));
        Ok(class)
    }

    /// Adapts a class to CTF 1.8: classes that only CTF 2 has become their nearest equivalents.
    fn class_of_ctf18(&mut self, source: &'m FieldClass) -> Converted<FieldClass> {
        Ok(match source {
            FieldClass::Boolean(class) => {
                self.change(Change::Boolean);
                let labels = [
                    ("false", Value64::Unsigned(0)),
                    ("true", Value64::Unsigned(1)),
                ];
                EnumerationClass {
                    integer: self.plain(class),
                    mappings: Arc::new(Mappings::from_values(labels)),
                }
                .into()
            }
            FieldClass::BitMap(class) => {
                if !class.flags.list().is_empty() {
                    self.change(Change::Flags);
                }
                self.plain(&class.integer).base(Base::Hexadecimal).into()
            }
            FieldClass::Float(class) if class.reversed && class.size != 16 => {
                self.change(Change::Form);
                FloatClass {
                    reversed: false,
                    ..*class
                }
                .into()
            }
            FieldClass::String(class) if is_wide(class.encoding) => self.utf8(),
            FieldClass::Array(class) if class.text().is_some_and(is_wide) => self.utf8(),
            FieldClass::Optional(class) => self.tagged(class)?.into(),
            FieldClass::Blob(class) => {
                self.change(Change::Blob);
                let byte = IntegerClass::unsigned(8, ByteOrder::Little).base(Base::Hexadecimal);
                ArrayClass {
                    length: self.length(&class.length)?,
                    ..ArrayClass::fixed(0, byte)
                }
                .into()
            }
            other => self.class_of_both(other)?,
        })
    }

    /// Adapts a class that both versions have.
    fn class_of_both(&mut self, source: &'m FieldClass) -> Converted<FieldClass> {
        Ok(match source {
            FieldClass::Integer(class) => self.labelled(class, None),
            FieldClass::Enumeration(class) => self.labelled(&class.integer, Some(&class.mappings)),
            // babeltrace2 does not support 16 bits, and aborts.
            FieldClass::Float(class) if class.size == 16 => {
                self.change(Change::Half);
                FloatClass {
                    size: 32,
                    reversed: false,
                    ..*class
                }
                .into()
            }
            FieldClass::Boolean(_)
            | FieldClass::BitMap(_)
            | FieldClass::Float(_)
            | FieldClass::String(_) => source.clone(),
            FieldClass::Struct(class) => self.structure(class)?.into(),
            FieldClass::Array(class) => self.array(class)?.into(),
            FieldClass::Variant(class) => self.variant(class)?.into(),
            FieldClass::Optional(class) => OptionalClass {
                selector: self.location(&class.selector)?,
                ranges: class.ranges.clone(),
                class: Box::new(self.class(&class.class)?),
                attributes: None,
            }
            .into(),
            FieldClass::Blob(class) => {
                let mut blob = class.clone();
                blob.is_uuid = false;
                blob.length = self.length(&class.length)?;
                blob.into()
            }
        })
    }

    /// The class of a converted CTF 2 text, the same for all encodings.
    fn utf8(&mut self) -> FieldClass {
        self.change(Change::Encoding);
        let encoding = Encoding::Utf8;
        StringClass {
            encoding,
            attributes: None,
        }
        .into()
    }

    /// Adapts an integer to a plain number.
    fn plain(&mut self, source: &IntegerClass) -> IntegerClass {
        let mut class = *source;
        class.role = None;
        if class.clock.take().is_some() {
            self.change(Change::Clock);
        }
        if self.version == Version::Ctf18 && class.form != Form::Fixed {
            class.form = Form::Fixed;
            self.change(Change::Form);
        }
        class
    }

    /// Adapts an integer with its own labels and those by which it selects.
    fn labelled(&mut self, source: &IntegerClass, mappings: Option<&Arc<Mappings>>) -> FieldClass {
        let integer = self.plain(source);
        let target = Target {
            scope: self.scope,
            steps: self.steps.clone(),
        };
        let mappings = mappings.map(|mappings| self.possible(&integer, mappings));
        let mappings = mappings.as_ref();
        let more = self.labels.at(self.stream, self.event, &target);
        let old = mappings.map_or(&[][..], |mappings| mappings.list());
        let new = more.iter().filter(|it| !old.contains(it));
        let new: Vec<Mapping> = new.cloned().collect();
        if new.is_empty() {
            return match mappings.cloned() {
                Some(mappings) => EnumerationClass { integer, mappings }.into(),
                None => integer.into(),
            };
        }
        // The same label for other values would also select the option.
        let old = old.iter().cloned().map(|mut mapping| {
            let selects = more.iter().any(|it| it.label == mapping.label);
            if selects && !more.contains(&mapping) {
                mapping.label.push('_');
            }
            mapping
        });
        let mappings = Arc::new(Mappings::new(old.chain(new).collect()));
        self.change(Change::Tag);
        EnumerationClass { integer, mappings }.into()
    }

    /// Labels for CTF 1.8, restricted to values that the integer can have.
    fn possible(&mut self, integer: &IntegerClass, mappings: &Arc<Mappings>) -> Arc<Mappings> {
        let (least, greatest) = integer.range();
        let fits = |it: &Mapping| it.first.widen() >= least && it.last.widen() <= greatest;
        if self.version == Version::Ctf2 || mappings.list().iter().all(fits) {
            return Arc::clone(mappings);
        }
        self.change(Change::Label);
        let value = |value: i128| match integer.signed {
            true => Value64::Signed(value as i64),
            false => Value64::Unsigned(value as u64),
        };
        let left = mappings.list().iter().filter_map(|mapping| {
            let first = mapping.first.widen().max(least);
            let last = mapping.last.widen().min(greatest);
            (first <= last).then(|| Mapping {
                label: mapping.label.clone(),
                first: value(first),
                last: value(last),
            })
        });
        Arc::new(Mappings::new(left.collect()))
    }

    fn length(&self, source: &Length) -> Converted<Length> {
        Ok(match source {
            Length::Fixed(length) => Length::Fixed(*length),
            Length::Field(location) => Length::Field(self.location(location)?),
        })
    }

    fn array(&mut self, source: &'m ArrayClass) -> Converted<ArrayClass> {
        let mut class = ArrayClass {
            length: self.length(&source.length)?,
            min_align: source.min_align,
            element: Box::new(self.class(&source.element)?),
            is_uuid: false,
            attributes: None,
        };
        if self.version == Version::Ctf18 && class.min_align > class.element.align() {
            class.min_align = 1;
            self.change(Change::Alignment);
        }
        if self.version == Version::Ctf2
            && class.text().is_some()
            && class.align() > 8
            && let FieldClass::Integer(element) = &mut *class.element
        {
            (element.align, class.min_align) = (8, 1);
            self.change(Change::Alignment);
        }
        Ok(class)
    }

    fn variant(&mut self, source: &'m VariantClass) -> Converted<VariantClass> {
        let tag = self.location(&source.tag)?;
        let names = options(source, self.version, Scope::EventFields);
        let mut members = Vec::new();
        for ((index, option), name) in (0u32..).zip(&source.options).zip(names) {
            if name.changed {
                self.change(Change::Renamed);
            }
            self.steps.push(index);
            let class = self.class(&option.class)?;
            self.steps.pop();
            members.push(Member {
                name: name.name,
                declared: name.declared,
                class,
                attributes: self.attributes(option.attributes),
            });
        }
        let mut sets = match &source.choice {
            Choice::Ranges(sets) => sets.clone(),
            Choice::Labels => self.ranges(source),
        };
        // An option that no value selects is legal only in CTF 1.8, and never present.
        let mut empty = sets.iter().map(Vec::is_empty);
        members.retain(|_| empty.next() == Some(false));
        sets.retain(|set| !set.is_empty());
        let choice = match self.version {
            Version::Ctf18 => Choice::Labels,
            Version::Ctf2 => Choice::Ranges(sets),
        };
        Ok(VariantClass {
            tag,
            choice,
            options: members,
            attributes: None,
        })
    }

    /// The values that select each option of a variant by labels; if a value selects several options, the first wins.
    fn ranges(&self, variant: &VariantClass) -> Vec<Set> {
        let target = variant.tag.targets.first();
        let tag = target.and_then(|target| {
            let root = self.metadata.scope(self.stream, self.event, target.scope)?;
            root.at(&target.steps)
        });
        let Some(FieldClass::Enumeration(tag)) = tag else {
            return vec![Vec::new(); variant.options.len()];
        };
        let mut before: Set = Vec::new();
        let mut sets = Vec::new();
        for option in &variant.options {
            let mut set: Set = Vec::new();
            for (first, last) in option.selected_by(tag) {
                let parts = without(first.widen(), last.widen(), &before);
                let signed = tag.integer.signed;
                set.extend(parts.into_iter().filter_map(|(first, last)| {
                    Some((value(first, signed)?, value(last, signed)?))
                }));
            }
            before.extend(&set);
            sets.push(set);
        }
        sets
    }

    /// The CTF 1.8 replacement of an optional field: a structure of a tag and a variant, which can be an element of an
    /// array as well as a member.
    fn tagged(&mut self, source: &'m OptionalClass) -> Converted<StructClass> {
        self.change(Change::Optional);
        let labels = [("absent", ABSENT), ("present", PRESENT)];
        let labels = labels.map(|(label, value)| (label, Value64::Unsigned(value)));
        let tag = EnumerationClass {
            integer: IntegerClass::unsigned(8, self.metadata.byte_order),
            mappings: Arc::new(Mappings::from_values(labels)),
        };
        let variant = VariantClass {
            tag: Location::new(TAG),
            choice: Choice::Labels,
            options: vec![
                Member::new("absent", StructClass::new()),
                Member::new("present", self.class(&source.class)?),
            ],
            attributes: None,
        };
        Ok(StructClass::new().with(TAG, tag).with(VALUE, variant))
    }
}

/// A number with the signedness of a tag.
fn value(number: i128, signed: bool) -> Option<Value64> {
    if signed {
        i64::try_from(number).ok().map(Value64::Signed)
    } else {
        u64::try_from(number).ok().map(Value64::Unsigned)
    }
}

/// The parts of a range that are not in other ranges.
fn without(first: i128, last: i128, others: &Set) -> Vec<(i128, i128)> {
    let mut parts = vec![(first, last)];
    for (from, to) in others {
        let (from, to) = (from.widen(), to.widen());
        let cut = |(first, last): (i128, i128)| {
            let below = (first, last.min(from - 1));
            let above = (first.max(to + 1), last);
            [below, above]
                .into_iter()
                .filter(|(first, last)| first <= last)
        };
        parts = parts.into_iter().flat_map(cut).collect();
    }
    parts
}
