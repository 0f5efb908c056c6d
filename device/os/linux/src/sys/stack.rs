//! Reading the calling thread's stack.

use core::ffi::c_int;

use super::{EFAULT, Errno, c, unnoticed};
use crate::machine;

/// Most bytes that are searched: longer frames are rare, and the result is then that nothing is known.
const MOST: usize = 64 << 10;
/// Size of the smallest page of any processor.
const PAGE: usize = 4096;

/// Returns the address of the first word at or above `from`, an address in the calling thread's stack, whose low half
/// is that of `value`. (AArch64 may sign the high bits of a return address.) The function that holds its return address
/// there owns all memory between. None for 0, and if there is no such word within 64 KiB that are mapped.
pub fn first_above(from: usize, value: usize) -> Option<usize> {
    const WORD: usize = size_of::<usize>();
    let first = from.next_multiple_of(WORD);
    for at in (first..).step_by(WORD).take(MOST / WORD) {
        // The first page is in use.
        if value == 0 || (at % PAGE == 0 && !is_readable(at)) {
            return None;
        }
        // SAFETY: the word is aligned, and its page readable. (It may change between two reads, but it is read once.)
        let word = unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
        if word as u32 == value as u32 {
            return Some(at);
        }
    }
    None
}

/// Returns whether the page at this address can be read: the kernel reads a set of signals there before it refuses what
/// is to be done with them.
fn is_readable(at: usize) -> bool {
    const NOTHING: c_int = -1;
    const SET_BYTES: usize = 8;
    unnoticed(|| {
        let (set, before) = (at, 0_usize);
        // SAFETY: no such operation exists, so nothing is changed, and the kernel checks the address.
        let done = unsafe { c::syscall(machine::SIGPROCMASK, NOTHING, set, before, SET_BYTES) };
        done != 0 && Errno::last() != EFAULT
    })
}
