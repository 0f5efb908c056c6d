//! Trigger and stopper, with their conditions, in memory that survives a reboot: `kymo_retained_t`.
//!
//! Start-up code does not initialize this memory. After power-on its content is undefined, and after an update it holds
//! addresses of another program; so it is valid only with the right checksum, which depends on the program.

use core::ptr;

use crate::config::{Config, Function, ONCE};
use crate::gate::Gate;
use crate::identity::retained;

/// Number of 32-bit words of that memory.
pub const WORDS: usize = 16 * size_of::<usize>() / 4;

/// A machine word in memory that is aligned for 32 bits.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Word(usize);

/// Number of words of a [`Condition`].
#[cfg(feature = "conditions")]
const OF_CONDITION: usize = 6;

/// Number of machine words before the checksum: trigger, stopper, single shot, and the conditions.
#[cfg(feature = "conditions")]
const KEPT: usize = 3 + 2 * OF_CONDITION;
#[cfg(not(feature = "conditions"))]
const KEPT: usize = 3;

const _: () = assert!((KEPT + 1) * size_of::<Word>() <= WORDS * 4);

/// Initial value of checksums: not 0, with which all of the memory may be filled.
const MAGIC: usize = 0x4B79_5268;

/// The FNV prime for 32-bit words; multiplication by it loses no change of a single bit.
const PRIME: usize = 16_777_619;

/// The part of a condition that survives a reboot: `from`, `end`, `hit`, `times`, `cold` and `cold_end`.
#[cfg(feature = "conditions")]
pub type Condition = [usize; OF_CONDITION];

/// The retained settings. Addresses have no Thumb bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The trigger, or 0.
    pub trigger: usize,
    /// The stopper, or 0.
    pub stopper: usize,
    /// Whether the trigger turns recording on only once.
    pub once: bool,
    /// Conditions of trigger and stopper.
    #[cfg(feature = "conditions")]
    pub conditions: [Condition; 2],
}

/// The memory. Null where the program has none.
#[derive(Clone, Copy, Debug)]
pub struct Place(*mut u32);

impl Place {
    /// The program's memory, which may be null.
    ///
    /// # Safety
    /// `at` is null or points to [`WORDS`] aligned words that only the recorder uses.
    pub const unsafe fn new(at: *mut u32) -> Self {
        Self(at)
    }

    /// Loads the settings that the program with this build id has stored; `None` if there are none.
    pub fn load(self, build_id: &[u8]) -> Option<Retained> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: by the contract of `new`. Volatile, because the compiler must not assume what RAM holds after a
        // reset.
        let word = |at| unsafe { ptr::read_volatile(self.0.cast::<Word>().add(at)) }.0;
        let words: [usize; KEPT] = core::array::from_fn(word);
        let is_ours = words[2] <= 1 && check(&words, build_id) == word(KEPT);
        is_ours.then(|| Retained::of_words(&words))
    }

    /// Stores `retained`.
    pub fn store(self, retained: Retained, build_id: &[u8]) {
        if self.0.is_null() {
            return;
        }
        let words = retained.words();
        // SAFETY: as in `load`.
        let put = |at, word| unsafe { self.0.cast::<Word>().add(at).write(Word(word)) };
        for (at, word) in words.iter().enumerate() {
            put(at, *word);
        }
        put(KEPT, check(&words, build_id));
    }
}

/// Checksum: FNV-1a, of the build id by bytes and of the rest by words.
#[inline(never)]
fn check(words: &[usize; KEPT], build_id: &[u8]) -> usize {
    let more = |sum: usize, word: usize| (sum ^ word).wrapping_mul(PRIME);
    let id = build_id.iter().map(|byte| usize::from(*byte));
    words.iter().copied().fold(id.fold(MAGIC, more), more)
}

impl Retained {
    /// Settings with these functions, without conditions.
    pub const fn new(trigger: usize, stopper: usize, once: bool) -> Self {
        Self {
            trigger,
            stopper,
            once,
            #[cfg(feature = "conditions")]
            conditions: [[0; OF_CONDITION]; 2],
        }
    }

    /// The settings as stored in memory.
    #[inline(always)]
    fn words(&self) -> [usize; KEPT] {
        let once = self.once.into();
        #[cfg(feature = "conditions")]
        {
            let mut words = [0; KEPT];
            (words[0], words[1], words[2]) = (self.trigger, self.stopper, once);
            let kept = self.conditions.as_flattened();
            words[KEPT - kept.len()..].copy_from_slice(kept);
            words
        }
        #[cfg(not(feature = "conditions"))]
        [self.trigger, self.stopper, once]
    }

    #[inline(always)]
    fn of_words(words: &[usize; KEPT]) -> Self {
        #[cfg(feature = "conditions")]
        {
            let mut kept = Self::new(words[0], words[1], words[2] != 0);
            let conditions = kept.conditions.as_flattened_mut();
            conditions.copy_from_slice(&words[KEPT - 2 * OF_CONDITION..]);
            kept
        }
        #[cfg(not(feature = "conditions"))]
        {
            let [trigger, stopper, once] = *words;
            Self::new(trigger, stopper, once != 0)
        }
    }
}

impl Gate {
    /// Sets trigger and stopper to those that survived a reboot of this build, or those of the configuration; returns
    /// whether the trigger turns recording on only once.
    #[inline(always)]
    pub fn restore_sets(&self, config: &Config, build_id: &[u8]) -> bool {
        let address = |function: Option<Function>| function.map_or(0, |it| it as usize);
        let kept = retained(config).load(build_id);
        let sets = kept.unwrap_or_else(|| {
            let once = config.flags & ONCE != 0;
            Retained::new(address(config.trigger), address(config.stopper), once)
        });
        self.set_trigger(sets.trigger);
        self.set_stopper(sets.stopper);
        #[cfg(feature = "conditions")]
        if let (Some(kept), Some(conditions)) = (kept, self.conditions()) {
            conditions.take(&kept.conditions);
        }
        sets.once
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
            #[cfg(feature = "conditions")]
            conditions: [[0x100, 0x200, 3, 1, 0x40, 0x50], [0, 0, 0, 7, 0, 0]],
            ..Retained::new(0x0800_0100, usize::MAX - 1, true)
        };
        place.store(retained, b"id");
        assert_eq!(place.load(b"id"), Some(retained));
        assert_eq!(place.load(b"another"), None);
        assert_eq!(place.load(b""), None);
        for word in 0..(KEPT + 1) * size_of::<Word>() / 4 {
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
