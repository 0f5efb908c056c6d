//! Storing a record that is ready, in assembly, for Armv7-M and the main line of Armv8-M.
//!
//! 19 instructions with interrupts masked: nobody has recorded meanwhile, there is room, the time is
//! near; then the record's words, the cursor's, and one word more
//! ([`Quick`](kymo_recorder::encode::Quick)). Records are stored unaligned, as by the hooks.

use kymo_recorder::encode::Quick;
use kymo_recorder::hot::{Cursor, word};

// The order in which the words of a cursor are loaded, and stored.
const _: () = assert!(word::LAST == 0 && word::AT == 1 && word::DEPTH == 2);

/// Masks interrupts for a moment, and stores a record if all is as it was when it was made: 1, or 0 if
/// not.
///
/// r0: the cursor, r1: the record, r2, r3: what is looked at, r4: the time of the last record, r5: where
/// it ends, r6: the counter, then now, r7: the first word, r8: the end, r10: the second word, r11:
/// PRIMASK, r12: where the next record goes, lr: the depth. (Not r9: in some images that is
/// everybody's.)
///
/// # Safety
/// As of [`SinglePort::store`](kymo_recorder::single::SinglePort::store).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn store(cursor: *const Cursor, record: *mut Quick) -> u32 {
    core::arch::naked_asm!(
        "push {{r4-r8, r10, r11, lr}}",
        "ldm r1, {{r4, r5, r6, r7, r8}}",
        "ldrd r10, r12, [r1, #20]",
        "ldr lr, [r1, #28]",
        "mrs r11, PRIMASK",
        "cpsid i",
        "ldrd r2, r3, [r0]",
        "cmp r2, r4",
        "bne 1f",
        "cmp r3, r5",
        "bne 1f",
        "ldr r2, [r0, #{limit}]",
        "cmp r8, r2",
        "bhs 1f",
        "ldr r6, [r6]",
        "sub r2, r6, r4",
        "lsrs r2, r2, #16",
        "bne 1f",
        "bfi r7, r6, #8, #16",
        "str r7, [r3]",
        "str r10, [r3, #4]",
        "ldrd r2, r3, [r1, #32]",
        "str r3, [r2]",
        "stm r0, {{r6, r12, lr}}",
        "msr PRIMASK, r11",
        "str r6, [r1, #40]",
        "movs r0, #1",
        "pop {{r4-r8, r10, r11, pc}}",
        "1: msr PRIMASK, r11",
        "movs r0, #0",
        "pop {{r4-r8, r10, r11, pc}}",
        limit = const word::LIMIT * 4,
    )
}
