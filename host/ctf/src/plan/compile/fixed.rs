//! Computes sizes of fields that are known before decoding.

use super::super::{Fixed, round_up};
use super::Compiler;
use crate::metadata::{FieldClass, Form, IntegerClass, Length};

impl Compiler<'_, '_> {
    /// The size of a field, if it is constant and nothing depends on the field's value.
    pub(super) fn fixed(&mut self, class: &FieldClass) -> Option<Fixed> {
        match class {
            FieldClass::Integer(class) => self.fixed_integer(class),
            FieldClass::Enumeration(class) => self.fixed_integer(&class.integer),
            FieldClass::Boolean(class) => self.fixed_integer(class),
            FieldClass::BitMap(class) => self.fixed_integer(&class.integer),
            FieldClass::Float(class) => self.fixed_leaf(class.align, class.size),
            FieldClass::Struct(class) => {
                let mut all = Fixed {
                    align: class.align(),
                    bits: 0,
                    empties: 0,
                };
                for (index, member) in (0u32..).zip(&class.members) {
                    self.steps.push(index);
                    let fixed = self.fixed(&member.class);
                    self.steps.pop();
                    let fixed = fixed?;
                    all.bits = round_up(all.bits, fixed.align).saturating_add(fixed.bits);
                    all.empties = all.empties.saturating_add(fixed.empties);
                }
                Some(all)
            }
            FieldClass::Array(class) => {
                let Length::Fixed(length) = class.length else {
                    return None;
                };
                if class.is_uuid {
                    return None;
                }
                let element = self.fixed(&class.element)?;
                let (bits, empties) = (element.times(length), element.empties_in(length));
                Some(Fixed {
                    align: element.align.max(class.min_align),
                    bits,
                    empties,
                })
            }
            FieldClass::Blob(class) => match class.length {
                Length::Fixed(length) if !class.is_uuid => Some(Fixed {
                    align: 8,
                    bits: length.saturating_mul(8),
                    empties: 0,
                }),
                _ => None,
            },
            FieldClass::String(_) | FieldClass::Variant(_) | FieldClass::Optional(_) => None,
        }
    }

    fn fixed_integer(&self, class: &IntegerClass) -> Option<Fixed> {
        let variable = class.form == Form::Variable;
        if variable || class.clock.is_some() || class.role.is_some() || self.written().is_some() {
            return None;
        }
        self.fixed_leaf(class.align, class.size)
    }

    fn fixed_leaf(&self, align: u32, size: u32) -> Option<Fixed> {
        // In a trace with two byte orders, fields that may share a byte must be checked.
        let whole = align.is_multiple_of(8) && size.is_multiple_of(8);
        (whole || !self.plan.mixed).then_some(Fixed {
            align,
            bits: u64::from(size),
            empties: 0,
        })
    }
}
