//! Function filter: two bits for each granule of the program's text.

use core::sync::atomic::{AtomicU8, Ordering};

use kymo_wire::link::Action;

/// Position of a function's bits: the byte, and the shift within it. `None` if the filter does not cover the function.
#[inline(always)]
pub(super) fn place(
    function: usize,
    (base, shift): (usize, u32),
    bytes: u32,
) -> Option<(usize, u32)> {
    let granule = function.wrapping_sub(base).checked_shr(shift)?;
    let byte = granule / 4;
    (byte < bytes as usize).then_some((byte, (granule as u32 & 3) * 2))
}

/// The action encoded by the bits at this position.
pub(super) fn get(byte: &AtomicU8, shift: u32) -> Action {
    action(u32::from(byte.load(Ordering::Relaxed) >> shift))
}

/// The action encoded by the two lowest bits.
pub(super) fn action(bits: u32) -> Action {
    // 3 is not an action, and means to record.
    match bits & 3 {
        1 => Action::Skip,
        2 => Action::Below,
        _ => Action::Record,
    }
}

/// Stores an action at this position.
pub(super) fn set(byte: &AtomicU8, shift: u32, action: Action) {
    let others = byte.load(Ordering::Relaxed) & !(3 << shift);
    byte.store(others | (action as u8) << shift, Ordering::Relaxed);
}
