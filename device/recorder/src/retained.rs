//! Trigger and stopper as they survive a reboot: `kymo_retained_t`.
//!
//! The memory is one that start-up code leaves alone. After power-on it holds anything, and after
//! an update the addresses of another program; so what stands there counts only with the right
//! magic number, checksum and program.

use core::ptr;

use kymo_wire::link::crc::Crc32;

/// How many words of 32 bits there are.
pub const WORDS: usize = 8;

const MAGIC: u32 = 0x4B79_5266;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The trigger, or 0.
    pub trigger: u64,
    /// The stopper, or 0.
    pub stopper: u64,
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
        // SAFETY: by the contract of `new`; the index is that of a word. Volatile, for the compiler must
        // not think that it knows what RAM holds after a reset.
        let word = |i: usize| unsafe { ptr::read_volatile(self.0.add(i)) };
        let long = |i: usize| u64::from(word(i)) | u64::from(word(i + 1)) << 32;
        let retained = Retained {
            trigger: long(1),
            stopper: long(3),
        };
        let words = retained.words(build_id);
        let same = words.iter().enumerate().all(|(i, it)| *it == word(i));
        same.then_some(retained)
    }

    /// Keeps `retained` there.
    pub fn store(self, retained: Retained, build_id: &[u8]) {
        if self.0.is_null() {
            return;
        }
        for (i, word) in retained.words(build_id).into_iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { ptr::write_volatile(self.0.add(i), word) };
        }
    }
}

impl Retained {
    #[inline(never)]
    fn words(self, build_id: &[u8]) -> [u32; WORDS] {
        let mut words = [
            MAGIC,
            self.trigger as u32,
            (self.trigger >> 32) as u32,
            self.stopper as u32,
            (self.stopper >> 32) as u32,
            0,
            0,
            0,
        ];
        let mut sum = Crc32::new();
        sum.update(build_id);
        let [said @ .., check] = &mut words;
        for word in said {
            sum.update(&word.to_le_bytes());
        }
        *check = sum.value();
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_stored_by_the_same_program_counts() {
        let mut memory = [0xDEAD_BEEF; WORDS];
        // SAFETY: the place is `memory`, which is used through it alone until the end.
        let place = unsafe { Place::new(memory.as_mut_ptr()) };
        assert_eq!(place.load(b"id"), None);
        let retained = Retained {
            trigger: 0x0800_0100,
            stopper: u64::MAX - 1,
        };
        place.store(retained, b"id");
        assert_eq!(place.load(b"id"), Some(retained));
        assert_eq!(place.load(b"another"), None);
        for word in 0..WORDS {
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
}
