//! Whether the events of a stream have the context of the event before.
//!
//! Tracers that put a context into every event (its thread, its processor) write the same bytes thousands of times: equal
//! bytes say the same, and nothing in them has to be looked at again.

/// What a context has said of the events of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct SameContext<T> {
    /// The stream class, and the bytes.
    class: usize,
    bytes: Vec<u8>,
    /// What they say, once they have said something.
    says: Option<T>,
}

/// The largest context that is kept, in bytes.
const LARGEST: usize = 256;

impl<T> SameContext<T> {
    /// What the bytes of an event's context say, if they are those of the last one.
    #[inline]
    pub(super) fn get(&self, class: usize, bytes: Option<&[u8]>) -> Option<&T> {
        let (known, says) = self.last(class)?;
        bytes.is_some_and(|bytes| bytes == known).then_some(says)
    }

    /// The bytes of the last context, if it was of this stream class, and what they say.
    #[inline]
    pub(super) fn last(&self, class: usize) -> Option<(&[u8], &T)> {
        let says = self.says.as_ref().filter(|_| self.class == class)?;
        Some((&self.bytes, says))
    }

    /// Keeps what these bytes say.
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
