//! Interpreter of [compiled text](super::program): formats an event's fields directly from its bytes into a line.

use super::format;
use super::line::{Line, Out as _};
use super::program::{Action, Bits, Enumerations, Labels, Program, Value};
use crate::metadata::{ByteOrder, Value64};
use crate::plan::Node;
use crate::read::Value as Shown;
use crate::read::bits::{float, zero};
use crate::read::run_program::Place;

impl Enumerations {
    /// Appends the fields that begin at bit `at` of the packet. `None` only if the fields differ from those that were
    /// decoded, which is impossible.
    #[inline(always)]
    pub fn run(
        &self,
        program: &Program,
        place: &Place<'_, '_>,
        at: u64,
        line: &mut Line<'_>,
    ) -> Option<()> {
        let at = at.wrapping_add(place.packet);
        match place.plan.order? {
            ByteOrder::Little => self.steps::<true>(program, place, at, line),
            ByteOrder::Big => self.steps::<false>(program, place, at, line),
        }
    }

    /// `at` is relative to the first byte in memory.
    fn steps<const LITTLE: bool>(
        &self,
        program: &Program,
        place: &Place<'_, '_>,
        mut at: u64,
        line: &mut Line<'_>,
    ) -> Option<()> {
        let mut rest = program.steps.iter();
        while let Some(step) = rest.next() {
            step.label.put(line);
            match &step.action {
                Action::Nothing => {}
                Action::Align { skip, align } => {
                    // Alignment is relative to the start of the packet.
                    let mask = u64::from(*align) - 1;
                    let inside = (at + u64::from(*skip)).wrapping_sub(place.packet);
                    at = ((inside + mask) & !mask).wrapping_add(place.packet);
                }
                Action::Keep {
                    offset,
                    bits,
                    slots,
                } => {
                    let value = integer::<LITTLE>(place, bits, at + u64::from(*offset));
                    for &slot in slots.of(&place.plan.slot_lists) {
                        place.slots.get(slot as usize)?.set(Some(value));
                    }
                }
                Action::Show { offset, value } => {
                    self.value::<LITTLE>(value, place, at + u64::from(*offset), line);
                }
                Action::String { skip, encoding } => {
                    at += u64::from(*skip);
                    let bytes = place.bytes.get((at / 8) as usize..)?;
                    let length = match encoding.unit() {
                        1 => format::text::<true, _>(line, bytes, usize::MAX),
                        unit => {
                            let length = zero(bytes, unit)?;
                            let bytes = bytes.get(..length)?;
                            line.aside(|line| wide(line, bytes, *encoding));
                            length
                        }
                    };
                    at += (length as u64 + u64::from(encoding.unit())) * 8;
                }
                Action::Text {
                    skip,
                    count,
                    encoding,
                } => {
                    at += u64::from(*skip);
                    let behind = place.bytes.get((at / 8) as usize..)?;
                    let bytes = place.take(&mut at, *count)?;
                    match encoding.unit() {
                        1 => drop(format::text::<true, _>(line, behind, bytes.len())),
                        unit => {
                            let end = zero(bytes, unit).unwrap_or(bytes.len());
                            let bytes = bytes.get(..end)?;
                            line.aside(|line| wide(line, bytes, *encoding));
                        }
                    }
                }
                Action::Blob { skip, count } => {
                    at += u64::from(*skip);
                    let bytes = place.take(&mut at, *count)?;
                    line.aside(|line| format::blob(line, bytes));
                }
                Action::Array {
                    skip,
                    count,
                    value,
                    stride,
                    size,
                } => {
                    at += u64::from(*skip);
                    let count = place.count(*count)?;
                    let mut element = at;
                    for index in 0..count {
                        format::index(line, index);
                        self.value::<LITTLE>(value, place, element, line);
                        element += u64::from(*stride);
                    }
                    if let Some(before) = count.checked_sub(1) {
                        at += before * u64::from(*stride) + u64::from(*size);
                    }
                }
                Action::Choose {
                    skip,
                    node,
                    targets,
                } => {
                    at += u64::from(*skip);
                    let Some(Node::Variant(variant)) = place.plan.node(*node) else {
                        return None;
                    };
                    let tag = place.slots.get(variant.slot as usize)?.get()?;
                    let option = variant.select(tag)?;
                    for &slot in variant.clears.of(&place.plan.slot_lists) {
                        place.slots.get(slot as usize)?.set(None);
                    }
                    let target = *targets.get(option as usize)?;
                    rest = program.steps.get(target as usize..)?.iter();
                }
                Action::Jump { skip, target } => {
                    at += u64::from(*skip);
                    rest = program.steps.get(*target as usize..)?.iter();
                }
            }
        }
        Some(())
    }

    /// Appends a value.
    #[inline(always)]
    fn value<const LITTLE: bool>(
        &self,
        value: &Value,
        place: &Place<'_, '_>,
        at: u64,
        line: &mut Line<'_>,
    ) {
        let get = |bits: &Bits| integer::<LITTLE>(place, bits, at);
        match value {
            Value::Unsigned(bits) => format::decimal(line, get(bits)),
            Value::Signed(bits) => format::signed(line, get(bits) as i64),
            Value::Hexadecimal(bits, shown) => {
                line.put(b"0x", 2);
                format::hexadecimal(line, get(bits) & shown);
            }
            Value::Based(bits, class) => {
                let value = number(bits, get(bits));
                line.aside(|line| format::integer(line, value, class));
            }
            Value::Labelled(bits, labels) => {
                if let Some(labels) = self.0.get(*labels as usize) {
                    self.labelled(labels, number(bits, get(bits)), line);
                }
            }
            Value::Boolean(bits) => line.aside(|line| format::boolean(line, get(bits) != 0)),
            Value::Flags(bits, flags) => line.aside(|line| format::bits(line, get(bits), flags)),
            Value::Float(size) => {
                let bits = load::<LITTLE>(place, at, *size);
                format::float(line, float(bits, *size));
            }
        }
    }

    #[inline(always)]
    fn labelled(&self, labels: &Labels, value: Value64, line: &mut Line<'_>) {
        let index = labels.mappings.position(value);
        match index.and_then(|index| labels.rendered.get(index)) {
            Some((text, whole)) => {
                text.iter().for_each(|label| label.put(line));
                if !whole {
                    line.aside(|line| {
                        format::integer(line, value, &labels.class);
                        line.bytes(b" )");
                    });
                }
            }
            // Several labels, or none.
            None => line.aside(|line| {
                format::enumeration(line, value, &labels.class, &labels.mappings);
            }),
        }
    }
}

/// Interprets the bits of an integer.
#[inline(always)]
const fn number(bits: &Bits, value: u64) -> Value64 {
    if bits.sign == 0 {
        Value64::Unsigned(value)
    } else {
        Value64::Signed(value as i64)
    }
}

/// The raw value of an integer, sign-extended.
#[inline(always)]
fn integer<const LITTLE: bool>(place: &Place<'_, '_>, bits: &Bits, at: u64) -> u64 {
    let raw = load::<LITTLE>(place, at, bits.size) & bits.mask;
    (raw ^ bits.sign).wrapping_sub(bits.sign)
}

/// Loads the bits of an integer, possibly with others above them.
#[inline(always)]
fn load<const LITTLE: bool>(place: &Place<'_, '_>, at: u64, size: u32) -> u64 {
    let (byte, end) = ((at / 8) as usize, (at & 7) as u32 + size);
    let eight = place.bytes.get(byte..byte + 8);
    if let Some(eight) = eight.and_then(<[u8]>::first_chunk)
        && end <= 64
    {
        return match LITTLE {
            true => u64::from_le_bytes(*eight) >> (end - size),
            false => u64::from_be_bytes(*eight) >> (64 - end),
        };
    }
    // The last field of a packet's context, shown with each event.
    let four = place.bytes.get(byte..byte + 4);
    if let Some(four) = four.and_then(<[u8]>::first_chunk)
        && end <= 32
    {
        return match LITTLE {
            true => u64::from(u32::from_le_bytes(*four) >> (end - size)),
            false => u64::from(u32::from_be_bytes(*four) >> (32 - end)),
        };
    }
    place.load::<LITTLE>(at, size)
}

/// Shows text of wide characters.
#[cold]
fn wide(line: &mut Line<'_>, bytes: &[u8], encoding: crate::metadata::Encoding) {
    let value = Shown::Text { bytes, encoding };
    let text = value.text().unwrap_or_default();
    format::text::<false, _>(line, text.as_bytes(), text.len());
}
