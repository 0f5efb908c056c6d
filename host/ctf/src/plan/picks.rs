//! Reduction of a [field program](super::field_program) to selected fields: their operations, and those that advance
//! the place to them.

use super::Count;
use super::field_program::Op;
use crate::metadata::Scope;

/// A selected field, with its index in the selection.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The scope at whose top it is; `None`: the innermost scope that has it.
    pub scope: Option<Scope>,
    pub name: Box<str>,
    pub number: u16,
}

/// A plain number near the start of the event, as in [`Op::Number`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub mask: u64,
    /// The sign bit, 0 if there is none.
    pub sign: u64,
    pub offset: u8,
    pub shift: u8,
    /// Its index in the selection.
    pub number: u16,
}

/// All loads for an event.
#[derive(Debug)]
pub(crate) struct Loads {
    pub all: Box<[Load]>,
    /// Bit set of the first 64 selected fields that are present.
    pub known: u64,
    /// Bit set of those that are signed.
    pub signed: u64,
}

impl From<Box<[Load]>> for Loads {
    fn from(all: Box<[Load]>) -> Self {
        let bit = |load: &Load| 1u64.checked_shl(load.number.into());
        let known = all.iter().filter_map(bit).sum();
        let signed = all.iter().filter(|load| load.sign != 0);
        let signed = signed.filter_map(bit).sum();
        Self { all, known, signed }
    }
}

/// The reduced program.
#[derive(Debug, Default)]
pub(crate) struct Picks {
    /// Direct loads, if all fields are plain numbers near the start of the event.
    pub loads: Option<Loads>,
    pub ops: Box<[Op]>,
    /// For each field that the operations show, its index in the selection, if it is selected.
    pub numbers: Box<[Option<u16>]>,
}

impl Picks {
    /// Reduces the program of whole events. `None` if it has variants: then positions depend on the event.
    pub fn of(ops: &[Op], wanted: &[Wanted]) -> Option<Self> {
        if ops.iter().any(|op| matches!(op, Op::Variant { .. })) {
            return None;
        }
        let (mut scope, mut depth) = (Scope::EventHeader, 0u32);
        let mut found: Vec<Option<(Scope, usize)>> = vec![None; wanted.len()];
        for (place, op) in ops.iter().enumerate() {
            match op {
                Op::Scope(of) => scope = *of,
                Op::Begin { .. } => depth += 1,
                Op::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
            let name = value(op).filter(|_| depth == 0);
            let mut requested = wanted.iter().zip(&mut found);
            let requested = requested.find(|(wanted, _)| {
                Some(&*wanted.name) == name && wanted.scope.is_none_or(|it| it == scope)
            });
            // Scopes are ordered from the outermost to the innermost.
            if let Some((_, found)) = requested
                && found.is_none_or(|(before, _)| before < scope)
            {
                *found = Some((scope, place));
            }
        }
        let places = || found.iter().filter_map(|found| Some(found.as_ref()?.1));
        let number = |place: usize| {
            let mut all = wanted.iter().zip(&found);
            let found = all.find(|(_, found)| found.is_some_and(|(_, it)| it == place))?;
            Some(found.0.number)
        };
        let (mut kept, mut numbers) = (Vec::new(), Vec::new());
        let needed = places().max().map_or(0, |last| last + 1);
        for (place, op) in ops.iter().enumerate().take(needed) {
            let number = number(place);
            match op {
                // Needed to reach later fields.
                Op::String { .. } | Op::Text { .. } | Op::Blob { .. } | Op::Integer { .. } => {}
                Op::Align { .. } => {}
                Op::Array { skip, elements, .. } => {
                    let (skip, elements) = (*skip, elements.clone());
                    kept.push(Op::Pass { skip, elements });
                    continue;
                }
                _ if number.is_none() => continue,
                _ => {}
            }
            kept.push(op.clone());
            if value(op).is_some() {
                numbers.push(number);
            }
        }
        Some(Self {
            loads: loads(&kept, &numbers).map(Loads::from),
            ops: kept.into(),
            numbers: numbers.into(),
        })
    }
}

/// The direct loads of a program that shows only numbers, if everything before them has a known size.
fn loads(ops: &[Op], numbers: &[Option<u16>]) -> Option<Box<[Load]>> {
    let mut numbers = numbers.iter();
    let mut loads = Vec::new();
    // The place, in bits from the start of the event.
    let mut place = 0u64;
    for op in ops {
        let number = value(op).and_then(|_| *numbers.next()?);
        match (op, number) {
            (
                Op::Number {
                    offset,
                    shift,
                    mask,
                    sign,
                    ..
                },
                Some(number),
            ) => loads.push(Load {
                mask: *mask,
                sign: *sign,
                offset: u8::try_from(place / 8 + u64::from(*offset)).ok()?,
                shift: *shift,
                number,
            }),
            (
                Op::Text {
                    skip,
                    count: Count::Fixed(count),
                    ..
                },
                None,
            ) => {
                let bits = count.checked_mul(8)?.checked_add(u64::from(*skip))?;
                place = place.checked_add(bits)?;
            }
            _ => return None,
        }
        if !place.is_multiple_of(8) {
            return None;
        }
    }
    Some(loads.into())
}

/// The name of the single value that an operation shows.
fn value(op: &Op) -> Option<&str> {
    match op {
        Op::Number { name, .. }
        | Op::Integer { name, .. }
        | Op::Float { name, .. }
        | Op::String { name, .. }
        | Op::Text { name, .. }
        | Op::Blob { name, .. } => Some(name),
        _ => None,
    }
}
