//! Duration mode in memory: `kymo_duration_t`, at the symbol `kymo_duration` (of several processors an array,
//! `kymo_duration_of_cpu`), and the frames of its shadow stacks (`kymo_open_call_t`). All are in the byte order of the target;
//! offsets are in bytes, by the width of its words. `kymo.h` has the fields that are a program's to set.
//!
//! The first frame of a stack is of the stack itself; the others are its open calls, the outermost first, up to [`TOP`] of
//! the one that [runs](running), and to [`END`] of the others and where a call found no room ([`DEEP`]).

use crate::event::WordSize;

/// What the u32 at [`magic`] holds.
pub const MAGIC: u32 = 0x4B79_4475;

/// A bit of the [`flags`]: duration mode is on.
pub const ON: u32 = 1;

/// The words of a frame.
pub const FRAME_WORDS: usize = 8;

/// Where the next frame goes: word 0 of the structure.
pub const TOP: usize = 0;

/// Of a call: its function, or 0 in a frame that is not filled. Its lowest bit is that of the instruction set (1 for Thumb), or the
/// other one where the frame has *aged*: then the upper halves of 32-bit times hold. Word 0 of a frame.
pub const FUNCTION: usize = 0;
/// Of a call: the durations of the calls that it made and that have ended. Word 1 of a frame.
pub const CALLEES: usize = 1;
/// Of a call: when it began. Of a stack: its thread. Word 2 of a frame.
pub const START: usize = 2;
/// Of a call that has aged: its [`CALLEES`] then. Of a stack that does not run: behind its last call. Word 3 of a frame.
pub const END: usize = 3;
/// Of a call that has aged: the upper half of [`START`]. Of a stack: its thread, once that runs on another processor. Word 5 of a frame.
pub const START_HIGH: usize = 5;
/// Of a call that has aged: the upper half of [`CALLEES`]. Word 6 of a frame.
pub const CALLEES_HIGH: usize = 6;
/// Of a stack: how many calls are open without a frame. Word 7 of a frame.
pub const DEEP: usize = 7;

/// The magic word, a u32.
pub const fn magic(word: WordSize) -> usize {
    6 * word.bytes()
}

/// The flags, a u32.
pub const fn flags(word: WordSize) -> usize {
    magic(word) + 4
}

/// The address of the frames, a word.
pub const fn frames(word: WordSize) -> usize {
    (13 * word.bytes() + 60).next_multiple_of(word.bytes())
}

/// The number of stacks, a u32, and behind it that of the frames of each.
pub const fn stacks(word: WordSize) -> usize {
    frames(word) + word.bytes()
}

/// The address of the first frame of the stack that runs, a word; null if none does.
pub const fn running(word: WordSize) -> usize {
    stacks(word) + 8
}

/// Bits 30 and up of the time at which frames aged last, a u32; 0 where they do not.
pub const fn age(word: WordSize) -> usize {
    running(word) + word.bytes() + 4
}

/// The size of the structure.
pub const fn bytes(word: WordSize) -> usize {
    (age(word) + 4).next_multiple_of(word.bytes()) + 2 * FRAME_WORDS * word.bytes()
}
