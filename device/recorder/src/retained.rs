//! Trigger and stopper as they survive a reboot: `kymo_retained_t`.
//!
//! The memory is one that start-up code leaves alone. After power-on it holds anything, and after
//! an update the addresses of another program; so what stands there counts only with the right
//! checksum, which is the program's own.

use core::ptr;

/// How many words of 32 bits the program gives.
pub const WORDS: usize = 8;

/// A word of the machine in memory that is aligned for 32 bits.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Word(usize);

/// How many of these are used: trigger, stopper, single shot, checksum.
const USED: usize = 4;

const _: () = assert!(USED * size_of::<Word>() <= WORDS * 4);

/// What checksums begin with: not 0, which is what memory may hold all over.
const MAGIC: usize = 0x4B79_5268;

/// The prime of the FNV hash for words of 32 bits; no change of one bit is lost by multiplying with it.
const PRIME: usize = 16_777_619;

/// What is kept: functions without the bit that tells the instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The trigger, or 0.
    pub trigger: usize,
    /// The stopper, or 0.
    pub stopper: usize,
    /// The trigger turns recording on once.
    pub once: bool,
}

/// The memory. Empty where the program has none.
#[derive(Clone, Copy, Debug)]
pub struct Place(*mut u32);

impl Place {
    /// The program's place, which may be null.
    ///
    /// # Safety
    /// `at` is null or points to [`WORDS`] aligned words that only the recorder uses.
    pub const unsafe fn new(at: *mut u32) -> Self {
        Self(at)
    }

    /// What is kept there by the program with this build id; `None` if that is nothing.
    pub fn load(self, build_id: &[u8]) -> Option<Retained> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: by the contract of `new`. Volatile, for the compiler must not think that it knows what
        // RAM holds after a reset.
        let word = |at| unsafe { ptr::read_volatile(self.0.cast::<Word>().add(at)) }.0;
        let (trigger, stopper, once, check) = (word(0), word(1), word(2), word(3));
        let retained = Retained {
            trigger,
            stopper,
            once: once != 0,
        };
        (once <= 1 && retained.check(build_id) == check).then_some(retained)
    }

    /// Keeps `retained` there.
    pub fn store(self, retained: Retained, build_id: &[u8]) {
        if self.0.is_null() {
            return;
        }
        let Retained {
            trigger,
            stopper,
            once,
        } = retained;
        let check = retained.check(build_id);
        // SAFETY: as in `load`.
        let put = |at, word| unsafe { self.0.cast::<Word>().add(at).write(Word(word)) };
        put(0, trigger);
        put(1, stopper);
        put(2, once.into());
        put(3, check);
    }
}

impl Retained {
    /// The checksum: FNV-1a, of the build id by bytes and of the rest by words.
    #[inline(never)]
    fn check(self, build_id: &[u8]) -> usize {
        let more = |sum: usize, word: usize| (sum ^ word).wrapping_mul(PRIME);
        let id = build_id.iter().map(|byte| usize::from(*byte));
        let functions = more(more(id.fold(MAGIC, more), self.trigger), self.stopper);
        more(functions, self.once.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_stored_by_the_same_program_counts() {
        let mut memory = [u32::MAX / 3; WORDS];
        // SAFETY: the place is `memory`, which is used through it alone until the end.
        let place = unsafe { Place::new(memory.as_mut_ptr()) };
        assert_eq!(place.load(b"id"), None);
        let retained = Retained {
            trigger: 0x0800_0100,
            stopper: usize::MAX - 1,
            once: true,
        };
        place.store(retained, b"id");
        assert_eq!(place.load(b"id"), Some(retained));
        assert_eq!(place.load(b"another"), None);
        assert_eq!(place.load(b""), None);
        for word in 0..USED * size_of::<Word>() / 4 {
            for bit in 0..32 {
                // SAFETY: `word` is within the memory.
                let at = unsafe { place.0.add(word) };
                // SAFETY: as above.
                unsafe { *at ^= 1 << bit };
                assert_eq!(place.load(b"id"), None, "bit {bit} of word {word}");
                // SAFETY: as above.
                unsafe { *at ^= 1 << bit };
            }
        }
        assert_eq!(place.load(b"id"), Some(retained));
    }

    #[test]
    fn memory_that_holds_nothing_is_nobodys() {
        for all in [0, u32::MAX] {
            let mut memory = [all; WORDS];
            // SAFETY: as above.
            let place = unsafe { Place::new(memory.as_mut_ptr()) };
            assert_eq!(place.load(b""), None);
            assert_eq!(place.load(&[0; 20]), None);
        }
    }
}
