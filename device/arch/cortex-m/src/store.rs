//! Storing a record that is ready, in assembly, for Armv7-M and the main line of Armv8-M.
//!
//! Entries and exits that hooks leave to the slow path, because a table is kept: 20 instructions with interrupts
//! masked, 18 in their shorter form. Everything else: 19 instructions with interrupts masked: nobody has recorded meanwhile, there is room, the time is
//! near; then the record's words, the cursor's, and one word more
//! ([`Quick`](kymo_recorder::encode::Quick)). Records are stored unaligned, as by the hooks.

use kymo_recorder::encode::{Quick, Seen};
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

/// What came of storing a call, as two registers hold it.
#[repr(transparent)]
pub(crate) struct Done(u64);

impl Done {
    /// The time, if it was stored.
    #[inline(always)]
    pub fn time(self) -> Option<usize> {
        (self.0 as u32 != 0).then_some((self.0 >> 32) as usize)
    }
}

/// Masks interrupts for a moment, and stores an entry if nothing has been recorded since it was seen.
///
/// r0: the cursor, r1: what was seen, then its time, r2: the number, r3: the depth, then the distance, r4: the
/// counter, then now, r5: the short form, then where the next record goes, r6: the long form, r7: the upper bits
/// of the number, r8, r10: what is looked at, r11: PRIMASK, r12: the depth, lr: the limit.
///
/// # Safety
/// As of [`SinglePort::enter`](kymo_recorder::single::SinglePort::enter).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter(
    cursor: *const Cursor,
    seen: *const Seen,
    number: usize,
    calls: usize,
) -> Done {
    core::arch::naked_asm!(
        "push {{r4-r8, r10, r11, lr}}",
        "lsl r5, r2, #11",
        "lsl r6, r2, #15",
        "add r6, #4",
        "lsr r7, r2, #5",
        "mov r12, r3",
        "ldm r1, {{r1, r2, r4}}",
        "mrs r11, PRIMASK",
        "cpsid i",
        "ldrd r8, r10, [r0]",
        "ldr lr, [r0, #{limit}]",
        "cmp r8, r1",
        "bne 1f",
        "cmp r10, r2",
        "bne 1f",
        "cmp r2, lr",
        "bhs 1f",
        "ldr r4, [r4]",
        "sub r3, r4, r1",
        "orr r3, r7",
        "cmp r3, #256",
        "bhs 2f",
        "bfi r5, r4, #3, #8",
        "str r5, [r2]",
        "add r5, r2, #3",
        "stm r0, {{r4, r5, r12}}",
        "msr PRIMASK, r11",
        "3: movs r0, #1",
        "mov r1, r4",
        "pop {{r4-r8, r10, r11, pc}}",
        "2: cmp r3, #4096",
        "bhs 1f",
        "bfi r6, r4, #3, #12",
        "str r6, [r2]",
        "add r5, r2, #4",
        "stm r0, {{r4, r5, r12}}",
        "msr PRIMASK, r11",
        "b 3b",
        "1: msr PRIMASK, r11",
        "movs r0, #0",
        "pop {{r4-r8, r10, r11, pc}}",
        limit = const word::LIMIT * 4,
    )
}

/// The same of an exit.
///
/// r0: the cursor, r1: what was seen, then its time, r2: the depth, then where the record goes, r3: the limit, then
/// the distance, r4: the counter, then now, r5: the record, then where the next one goes, r6, r7: what is looked
/// at, r8: PRIMASK, r12: the depth.
///
/// # Safety
/// As of [`SinglePort::exit`](kymo_recorder::single::SinglePort::exit).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn exit(
    cursor: *const Cursor,
    seen: *const Seen,
    calls: usize,
) -> Done {
    core::arch::naked_asm!(
        "push {{r4-r8, lr}}",
        "mov r12, r2",
        "ldm r1, {{r1, r2, r4}}",
        "mrs r8, PRIMASK",
        "cpsid i",
        "ldrd r6, r7, [r0]",
        "ldr r3, [r0, #{limit}]",
        "cmp r6, r1",
        "bne 1f",
        "cmp r7, r2",
        "bne 1f",
        "cmp r2, r3",
        "bhs 1f",
        "ldr r4, [r4]",
        "sub r3, r4, r1",
        "cmp r3, #128",
        "bhs 2f",
        "lsl r5, r4, #1",
        "orr r5, #1",
        "strb r5, [r2]",
        "add r5, r2, #1",
        "stm r0, {{r4, r5, r12}}",
        "msr PRIMASK, r8",
        "3: movs r0, #1",
        "mov r1, r4",
        "pop {{r4-r8, pc}}",
        "2: cmp r3, #8192",
        "bhs 1f",
        "lsl r5, r4, #3",
        "orr r5, #2",
        "strh r5, [r2]",
        "add r5, r2, #2",
        "stm r0, {{r4, r5, r12}}",
        "msr PRIMASK, r8",
        "b 3b",
        "1: msr PRIMASK, r8",
        "movs r0, #0",
        "pop {{r4-r8, pc}}",
        limit = const word::LIMIT * 4,
    )
}
