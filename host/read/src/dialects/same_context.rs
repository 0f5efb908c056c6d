//! Cache of the last decoded context in a stream.
//!
//! Tracers that write a context into every event (its thread, its processor) repeat the same bytes thousands of times.
//! Equal bytes have equal meanings, so they need not be decoded again.

/// Decoded context of the last event in one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct SameContext<T> {
    /// Stream class, and the encoded bytes.
    class: usize,
    bytes: Vec<u8>,
    /// Decoded meaning, once there is one.
    says: Option<T>,
}

/// Largest cached context in bytes.
const LARGEST: usize = 256;

impl<T> SameContext<T> {
    /// Returns the cached meaning, if the bytes are equal to the cached ones.
    #[inline]
    pub(super) fn get(&self, class: usize, bytes: Option<&[u8]>) -> Option<&T> {
        let (known, says) = self.last(class)?;
        bytes.is_some_and(|bytes| bytes == known).then_some(says)
    }

    /// Returns the cached bytes and meaning, if they are of this stream class.
    #[inline]
    pub(super) fn last(&self, class: usize) -> Option<(&[u8], &T)> {
        let says = self.says.as_ref().filter(|_| self.class == class)?;
        Some((&self.bytes, says))
    }

    /// Caches the meaning of these bytes.
    pub(super) fn set(&mut self, class: usize, bytes: Option<&[u8]>, says: T) {
        let bytes = bytes.filter(|bytes| bytes.len() <= LARGEST);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes.unwrap_or(&[]));
        self.class = class;
        self.says = bytes.map(|_| says);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_of_any_length_are_others() {
        let mut context = SameContext::default();
        assert_eq!(context.get(0, Some(&[])), None);
        for length in 0..40 {
            let bytes = vec![7; length];
            context.set(1, Some(&bytes), length);
            assert_eq!(context.get(1, Some(&bytes)), Some(&length));
            assert_eq!(context.get(0, Some(&bytes)), None);
            assert_eq!(context.get(1, Some(&vec![7; length + 1])), None);
            assert_eq!(context.get(1, None), None);
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] = 8;
                assert_eq!(context.get(1, Some(&other)), None);
            }
        }
        context.set(1, Some(&[0; LARGEST + 1]), 0);
        assert_eq!(context.get(1, Some(&[0; LARGEST + 1])), None);
        context.set(1, None, 0);
        assert_eq!(context.get(1, Some(&[])), None);
    }
}
