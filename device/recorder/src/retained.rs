//! Trigger and stopper, and when they act, as they survive a reboot: `kymo_retained_t`.
//!
//! The memory is one that start-up code leaves alone. After power-on it holds anything, and after
//! an update the addresses of another program; so what stands there counts only with the right
//! checksum, which is the program's own.

use core::ptr;

use crate::gate::Gate;

/// How many words of 32 bits the program gives.
pub const WORDS: usize = 16 * size_of::<usize>() / 4;

/// A word of the machine in memory that is aligned for 32 bits.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Word(usize);

/// How many words a [`Condition`] has.
#[cfg(feature = "conditions")]
const OF_CONDITION: usize = 6;

/// How many words of the machine have a checksum behind them: trigger, stopper, single shot, and the conditions.
#[cfg(feature = "conditions")]
const KEPT: usize = 3 + 2 * OF_CONDITION;
#[cfg(not(feature = "conditions"))]
const KEPT: usize = 3;

const _: () = assert!((KEPT + 1) * size_of::<Word>() <= WORDS * 4);

/// What checksums begin with: not 0, which is what memory may hold all over.
const MAGIC: usize = 0x4B79_5268;

/// The prime of the FNV hash for words of 32 bits; no change of one bit is lost by multiplying with it.
const PRIME: usize = 16_777_619;

/// What of the condition of a trigger or stopper is kept: `from`, `end`, `hit`, `times`, `cold` and `cold_end`.
#[cfg(feature = "conditions")]
pub type Condition = [usize; OF_CONDITION];

/// What is kept: functions without the bit that tells the instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The trigger, or 0.
    pub trigger: usize,
    /// The stopper, or 0.
    pub stopper: usize,
    /// The trigger turns recording on once.
    pub once: bool,
    /// When trigger and stopper act.
    #[cfg(feature = "conditions")]
    pub conditions: [Condition; 2],
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
        let words: [usize; KEPT] = core::array::from_fn(word);
        let is_ours = words[2] <= 1 && check(&words, build_id) == word(KEPT);
        is_ours.then(|| Retained::of_words(&words))
    }

    /// Keeps `retained` there.
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

/// The checksum: FNV-1a, of the build id by bytes and of the rest by words.
#[inline(never)]
fn check(words: &[usize; KEPT], build_id: &[u8]) -> usize {
    let more = |sum: usize, word: usize| (sum ^ word).wrapping_mul(PRIME);
    let id = build_id.iter().map(|byte| usize::from(*byte));
    words.iter().copied().fold(id.fold(MAGIC, more), more)
}

impl Retained {
    /// With these functions, which act always.
    pub const fn new(trigger: usize, stopper: usize, once: bool) -> Self {
        Self {
            trigger,
            stopper,
            once,
            #[cfg(feature = "conditions")]
            conditions: [[0; OF_CONDITION]; 2],
        }
    }

    /// As it stands in memory.
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
    /// Takes trigger and stopper from memory that kept them over a reboot, or those of the build; returns whether the trigger
    /// turns recording on once.
    #[inline(always)]
    pub fn take_sets(&self, kept: Option<Retained>, built: Retained) -> bool {
        let sets = kept.unwrap_or(built);
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
