//! Fastest projection: two numbers of many consecutive events. The offsets of the numbers and of the stream's event
//! context are looked up once for each header entry, and contexts are compared by words.

use crate::plan::field_program::NEAR;
use crate::plan::picks::{Load, Picks};

/// Offsets of the stream's event context and the first two selected numbers in the events of a header entry, if all are
/// near the beginning of the event and the numbers are unsigned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    context: u8,
    context_bytes: u8,
    numbers: [Load; 2],
    /// Bit set of those present; the others load 0.
    known: u64,
}

impl Plain {
    /// The plain part of the reduced program of a header entry, with the range of its context.
    pub(super) fn new(picks: &Picks, context: Option<(u32, u32)>) -> Option<Self> {
        let loads = picks.loads.as_ref().filter(|loads| loads.signed == 0)?;
        let nothing = Load {
            mask: 0,
            sign: 0,
            offset: 0,
            shift: 0,
            number: 0,
        };
        let mut numbers = [nothing; 2];
        for load in &loads.all {
            *numbers.get_mut(usize::from(load.number))? = *load;
        }
        let (from, to) = context?;
        let bytes = to.checked_sub(from)?;
        let is_near = from as usize + ContextBytes::MOST <= NEAR;
        Some(Self {
            context: u8::try_from(from).ok().filter(|_| is_near)?,
            context_bytes: u8::try_from(bytes).ok()?,
            numbers,
            known: loads.known,
        })
    }

    /// The numbers of the event at the start of `bytes`, 0 for an absent one, with a bit set of those present; if it
    /// has this context.
    #[inline(always)]
    pub(super) fn load(
        &self,
        event: &[u8; NEAR + 8],
        context: &ContextBytes,
    ) -> Option<([u64; 2], u64)> {
        let behind = event.get(usize::from(self.context)..)?;
        if usize::from(self.context_bytes) != context.bytes || !context.is_front_of(behind) {
            return None;
        }
        let mut values = [0; 2];
        for (value, load) in values.iter_mut().zip(&self.numbers) {
            let offset = usize::from(load.offset);
            let word = u64::from_le_bytes(*event[offset..offset + 8].first_chunk()?);
            *value = (word >> (load.shift & 63)) & load.mask;
        }
        Some((values, self.known))
    }
}

/// The bytes of a stream's event context, for comparison with many events.
#[derive(Debug, Clone, Copy)]
pub struct ContextBytes {
    /// Words of the context with masks of the bits that belong to it.
    words: [(u64, u64); Self::MOST / 8],
    bytes: usize,
}

impl ContextBytes {
    /// Maximum size of a context in bytes.
    const MOST: usize = 64;

    /// Creates a context of these bytes; `None` if there are too many for a fast comparison.
    #[must_use]
    pub fn new(context: &[u8]) -> Option<Self> {
        let mut words = [(0, 0); Self::MOST / 8];
        if context.len() > Self::MOST {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(context.chunks(8)) {
            let (mut value, mut mask) = ([0; 8], [0; 8]);
            for ((value, mask), byte) in value.iter_mut().zip(&mut mask).zip(bytes) {
                (*value, *mask) = (*byte, u8::MAX);
            }
            *word = (u64::from_le_bytes(value), u64::from_le_bytes(mask));
        }
        Some(Self {
            words,
            bytes: context.len(),
        })
    }

    /// Whether these bytes begin with the context; there must be at least [`MOST`](Self::MOST) bytes.
    #[inline(always)]
    fn is_front_of(&self, bytes: &[u8]) -> bool {
        let words = self.words.get(..self.bytes.div_ceil(8)).unwrap_or(&[]);
        let (found, _) = bytes.as_chunks::<8>();
        let mut pairs = words.iter().zip(found);
        pairs.all(|((word, mask), found)| (u64::from_le_bytes(*found) ^ word) & mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_compared_to_their_last_byte() {
        assert!(ContextBytes::new(&[0; ContextBytes::MOST + 1]).is_none());
        let same = [1; ContextBytes::MOST + 8];
        for length in 0..=ContextBytes::MOST {
            let context = ContextBytes::new(&same[..length]).unwrap();
            assert!(context.is_front_of(&same));
            for at in 0..length {
                let mut other = same;
                other[at] = 0;
                assert!(!context.is_front_of(&other), "{length} {at}");
            }
        }
    }
}
