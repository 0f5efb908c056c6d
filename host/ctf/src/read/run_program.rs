//! Interpreter of [field programs](crate::plan::field_program): shows all fields of a scope that was decoded before.

use super::bits::{extend, float, load, near_zero, zero};
use super::walk::{Container, Sink, SlotValues};
use crate::metadata::{ByteOrder, Encoding};
use crate::plan::field_program::{Elements, NEAR, Op};
use crate::plan::picks::Load;
use crate::plan::{Count, IntegerNode, Node, NodeId, Plan};

/// Location of fields in memory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a, 's> {
    pub plan: &'a Plan,
    pub slots: &'s SlotValues,
    /// The part of the stream in memory, which contains all fields that are shown ...
    pub bytes: &'a [u8],
    /// ... and the bit position of the packet's start in it. If the start is no longer in memory this is a negative
    /// number, modulo 2^64.
    pub packet: u64,
}

/// The bytes after a position, if there are enough.
pub(super) type Near<'a> = Option<&'a [u8; NEAR + 8]>;

impl<'a> Place<'a, '_> {
    /// Passes the plain numbers at the start of a program, which begins at bit `at` of the packet, to `taken` until
    /// that returns false. Returns the number of operations executed.
    #[inline(always)]
    pub fn numbers(
        &self,
        ops: &'a [Op],
        at: u64,
        taken: &mut impl FnMut(&'a str, &'a IntegerNode, u64) -> bool,
    ) -> Option<usize> {
        let at = at.wrapping_add(self.packet);
        let little = self.plan.order? == ByteOrder::Little;
        let near = self.near(at);
        for (count, op) in ops.iter().enumerate() {
            let Op::Number {
                offset,
                shift,
                name,
                mask,
                sign,
                node,
            } = op
            else {
                return Some(count);
            };
            let word = self.word::<true>(near, at, *offset)?;
            let word = if little { word } else { word.swap_bytes() };
            let value = (word >> (*shift & 63)) & *mask;
            if !taken(name, node, (value ^ *sign).wrapping_sub(*sign)) {
                return Some(count + 1);
            }
        }
        Some(ops.len())
    }

    /// Stores numbers near bit `at` of the packet in `values` at their positions, sign-extended where signed. `None` if
    /// the bytes are not there.
    #[inline(always)]
    pub(super) fn load_all<const N: usize>(
        &self,
        loads: &[Load],
        at: u64,
        values: &mut [u64; N],
    ) -> Option<()> {
        let at = at.wrapping_add(self.packet);
        let mut put = |load: &Load, word: u64| {
            let value = (word >> (load.shift & 63)) & load.mask;
            if let Some(own) = values.get_mut(usize::from(load.number)) {
                *own = (value ^ load.sign).wrapping_sub(load.sign);
            }
        };
        let near = self.near(at);
        match (near, self.plan.order?) {
            (Some(near), ByteOrder::Little) => {
                for load in loads {
                    let offset = usize::from(load.offset);
                    let word = near[offset..offset + 8].first_chunk().copied()?;
                    put(load, u64::from_le_bytes(word));
                }
            }
            (_, ByteOrder::Little) => {
                for load in loads {
                    put(load, self.word::<true>(near, at, load.offset)?);
                }
            }
            (_, ByteOrder::Big) => {
                for load in loads {
                    put(load, self.word::<false>(near, at, load.offset)?);
                }
            }
        }
        Some(())
    }

    /// Shows fields with a program that begins with numbers, as most programs for values do: these have a fast path.
    #[inline(always)]
    pub(super) fn show_values<S: Sink<'a>>(
        &self,
        ops: &'a [Op],
        at: u64,
        sink: &mut S,
    ) -> Option<()> {
        let first = self.numbers(ops, at, &mut |name, node, value| {
            sink.number(name, node, value);
            sink.wants_more()
        })?;
        if first == ops.len() {
            return Some(());
        }
        self.show(ops, first, at, sink)
    }

    /// Shows fields from bit `at` of the packet on, beginning with operation `first`. `None` only if the fields differ
    /// from those that were decoded, which is impossible.
    #[inline(always)]
    pub(super) fn show<S: Sink<'a>>(
        &self,
        ops: &'a [Op],
        first: usize,
        at: u64,
        sink: &mut S,
    ) -> Option<()> {
        let at = at.wrapping_add(self.packet);
        match self.plan.order? {
            ByteOrder::Little => self.run::<true, S>(ops, first, at, sink),
            ByteOrder::Big => self.run::<false, S>(ops, first, at, sink),
        }
    }

    /// Runs from operation `first` on; `at` is relative to the first byte in memory.
    fn run<const LITTLE: bool, S: Sink<'a>>(
        &self,
        ops: &'a [Op],
        first: usize,
        mut at: u64,
        sink: &mut S,
    ) -> Option<()> {
        let mut near = self.near(at);
        let mut rest = ops.get(first..)?.iter();
        while let Some(op) = rest.next() {
            if !sink.wants_more() {
                return Some(());
            }
            // Most operations are numbers, and a conditional branch is predicted better than a jump table.
            if let Op::Number {
                offset,
                shift,
                name,
                mask,
                sign,
                node,
            } = op
            {
                let word = self.word::<LITTLE>(near, at, *offset)?;
                let value = (word >> (*shift & 63)) & *mask;
                sink.number(name, node, (value ^ *sign).wrapping_sub(*sign));
                continue;
            }
            match op {
                Op::Number { .. } => {}
                Op::Begin { name, container } => {
                    sink.begin(name, *container);
                    continue;
                }
                Op::End(container) => {
                    sink.end(*container);
                    continue;
                }
                Op::Scope(scope) => {
                    sink.scope(*scope);
                    continue;
                }
                Op::Integer { offset, name, node } => {
                    let value = self.integer::<LITTLE>(node, at + u64::from(*offset));
                    for &slot in node.slots.of(&self.plan.slot_lists) {
                        self.slots.get(slot as usize)?.set(Some(value));
                    }
                    sink.integer(name, node, value, node.class.size);
                    continue;
                }
                Op::Float { offset, size, name } => {
                    let value = self.float::<LITTLE>(at + u64::from(*offset), *size);
                    sink.float(name, value, *size);
                    continue;
                }
                Op::Align { skip, align } => {
                    // Alignment is relative to the start of the packet.
                    let mask = u64::from(*align) - 1;
                    let place = (at + u64::from(*skip)).wrapping_sub(self.packet);
                    at = ((place + mask) & !mask).wrapping_add(self.packet);
                }
                Op::String {
                    encoding,
                    skip,
                    name,
                } => {
                    at += u64::from(*skip);
                    let (text, behind) = self.string(at, *encoding)?;
                    sink.text(name, text, *encoding);
                    at = behind;
                }
                Op::Text {
                    encoding,
                    skip,
                    name,
                    count,
                } => {
                    at += u64::from(*skip);
                    let (text, behind) = self.text(at, *count, *encoding)?;
                    sink.text(name, text, *encoding);
                    at = behind;
                }
                Op::Blob { skip, name, blob } => {
                    at += u64::from(*skip);
                    let (count, media_type) = &**blob;
                    sink.blob(name, self.take(&mut at, *count)?, media_type);
                }
                Op::Array {
                    skip,
                    name,
                    elements,
                } => {
                    at += u64::from(*skip);
                    let count = self.count(elements.count)?;
                    sink.begin(name, Container::Array(count));
                    self.elements::<LITTLE, S>(elements, count, at, sink)?;
                    sink.end(Container::Array(count));
                    at += elements.bits(count);
                }
                Op::Pass { skip, elements } => {
                    at += u64::from(*skip) + elements.bits(self.count(elements.count)?);
                }
                Op::Variant { skip, name, choice } => {
                    at += u64::from(*skip);
                    let (node, targets) = &**choice;
                    let option = self.choose(*node)?;
                    rest = ops.get(*targets.get(option as usize)? as usize..)?.iter();
                    sink.begin(name, Container::Variant);
                }
                Op::Leave { skip, target } => {
                    at += u64::from(*skip);
                    sink.end(Container::Variant);
                    rest = ops.get(*target as usize..)?.iter();
                }
            }
            near = self.near(at);
        }
        Some(())
    }

    /// The string at a position, and the position after it.
    #[inline(never)]
    fn string(&self, at: u64, encoding: Encoding) -> Option<(&'a [u8], u64)> {
        let bytes = self.bytes.get(byte(at)..)?;
        match near_zero(bytes) {
            Some(length) if encoding.unit() == 1 => {
                Some((bytes.get(..length)?, at + (length as u64 + 1) * 8))
            }
            _ => self.any_string(at, encoding),
        }
    }

    /// As `string`, for long strings and other encodings.
    #[cold]
    fn any_string(&self, at: u64, encoding: Encoding) -> Option<(&'a [u8], u64)> {
        let bytes = self.bytes.get(byte(at)..)?;
        let unit = encoding.unit();
        let length = zero(bytes, unit)?;
        let behind = at + (length as u64 + u64::from(unit)) * 8;
        Some((bytes.get(..length)?, behind))
    }

    /// The text of `count` bytes at a position, up to the first zero in it, and the position after the bytes.
    #[inline(never)]
    fn text(&self, mut at: u64, count: Count, encoding: Encoding) -> Option<(&'a [u8], u64)> {
        let bytes = self.take(&mut at, count)?;
        match near_zero(bytes) {
            Some(length) if encoding.unit() == 1 => Some((bytes.get(..length)?, at)),
            _ => self.any_text(bytes, at, encoding),
        }
    }

    /// As `text`, for long texts and other encodings.
    #[cold]
    fn any_text(
        &self,
        bytes: &'a [u8],
        behind: u64,
        encoding: Encoding,
    ) -> Option<(&'a [u8], u64)> {
        let end = zero(bytes, encoding.unit()).unwrap_or(bytes.len());
        Some((bytes.get(..end)?, behind))
    }

    /// The selected option of a variant.
    #[inline(never)]
    fn choose(&self, node: NodeId) -> Option<u32> {
        let Some(Node::Variant(variant)) = self.plan.node(node) else {
            return None;
        };
        let tag = self.slots.get(variant.slot as usize)?.get()?;
        let option = variant.select(tag)?;
        for &slot in variant.clears.of(&self.plan.slot_lists) {
            self.slots.get(slot as usize)?.set(None);
        }
        Some(option)
    }

    /// Shows the elements of an array.
    #[inline(never)]
    fn elements<const LITTLE: bool, S: Sink<'a>>(
        &self,
        elements: &'a Elements,
        count: u64,
        at: u64,
        sink: &mut S,
    ) -> Option<()> {
        let (stride, size) = (u64::from(elements.stride), elements.size);
        if let (Some(node), 8, 8, 0) = (&elements.integer, stride, size, at % 8) {
            let bytes = self.bytes.get(byte(at)..)?;
            for &value in bytes.get(..usize::try_from(count).ok()?)? {
                if !sink.wants_more() {
                    break;
                }
                let sign = u64::from(node.class.signed) << 7;
                let value = (u64::from(value) ^ sign).wrapping_sub(sign);
                sink.integer("", node, value, size);
            }
            return Some(());
        }
        let mut place = at;
        for _ in 0..count {
            if !sink.wants_more() {
                break;
            }
            match &elements.integer {
                Some(node) => {
                    sink.integer("", node, self.integer::<LITTLE>(node, place), size);
                }
                None => sink.float("", self.float::<LITTLE>(place, size), size),
            }
            place += stride;
        }
        Some(())
    }

    /// The bytes after a position, for integers near it, unless the end of memory is too close.
    #[inline(always)]
    fn near(&self, at: u64) -> Near<'a> {
        self.bytes.get(byte(at)..)?.first_chunk()
    }

    /// The bytes after bit `at` of the packet, unless the end of memory is too close.
    #[inline(always)]
    pub(super) fn near_bit(&self, at: u64) -> Near<'a> {
        self.near(at.wrapping_add(self.packet))
    }

    /// The 8 bytes at `offset` bytes after a position.
    #[inline(always)]
    fn word<const LITTLE: bool>(&self, near: Near<'a>, at: u64, offset: u8) -> Option<u64> {
        let offset = usize::from(offset);
        let chunk = match near {
            Some(near) => near[offset..offset + 8].first_chunk().copied()?,
            None => self.last(byte(at) + offset),
        };
        Some(if LITTLE {
            u64::from_le_bytes(chunk)
        } else {
            u64::from_be_bytes(chunk)
        })
    }

    /// The last bytes in memory, padded with zeros.
    #[cold]
    fn last(&self, place: usize) -> [u8; 8] {
        let mut chunk = [0; 8];
        let bytes = self.bytes.get(place..).unwrap_or(&[]);
        chunk
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        chunk
    }

    #[inline(never)]
    fn float<const LITTLE: bool>(&self, place: u64, size: u32) -> f64 {
        float(self.load::<LITTLE>(place, size), size)
    }

    /// The value of an integer, sign-extended.
    #[inline(never)]
    fn integer<const LITTLE: bool>(&self, node: &IntegerNode, place: u64) -> u64 {
        let size = node.class.size;
        let raw = self.load::<LITTLE>(place, size);
        match node.class.signed {
            true => extend(raw, size) as u64,
            false => raw,
        }
    }

    #[inline(always)]
    pub fn load<const LITTLE: bool>(&self, place: u64, size: u32) -> u64 {
        let order = if LITTLE {
            ByteOrder::Little
        } else {
            ByteOrder::Big
        };
        let bytes = self.bytes.get(byte(place)..).unwrap_or(&[]);
        load(bytes, (place & 7) as u32, size, order)
    }

    /// The `count` bytes at the position, which moves past them.
    #[inline(always)]
    pub fn take(&self, at: &mut u64, count: Count) -> Option<&'a [u8]> {
        let length = usize::try_from(self.count(count)?).ok()?;
        let bytes = self.bytes.get(byte(*at)..)?.get(..length)?;
        *at += length as u64 * 8;
        Some(bytes)
    }

    #[inline(always)]
    pub fn count(&self, count: Count) -> Option<u64> {
        match count {
            Count::Fixed(count) => Some(count),
            Count::Slot(slot) => self.slots.get(slot as usize)?.get(),
        }
    }
}

/// The index of the byte that contains a bit.
#[inline(always)]
const fn byte(at: u64) -> usize {
    (at / 8) as usize
}
