//! Producer of items in assembly that first checks the ring for room
//! ([`SinglePort::put_items`](kymo_recorder::single::SinglePort::put_items)). With one item 18 instructions run masked,
//! 21 on an Armv6-M; each further item adds 5, or 7.

use kymo_recorder::items::{Item, Ring};
use kymo_wire::items::{ID_BITS, TIME_BITS};

use crate::CortexM;

// Layout of the item that the assembly writes; an item's data follows its id.
const _: () = assert!(ID_BITS == 10 && TIME_BITS == 22 && size_of::<Item>() == 8);

// The low bits of the address of the next item tell how much room there is.
const _: () = assert!(Ring::<CortexM>::PACKET == 1024 && Ring::<CortexM>::SENTINEL == 127 << 3);

/// Masks interrupts briefly, and stores items in a ring. Returns 1; or 0 if there is no room, if the last item is too
/// long ago, or if the upper half of the time has changed.
///
/// r0: the ring; r1: the counter's address, then the time; r2: the next item; r3: the end of the items; r4: the time
/// since the last item, then the item's first word; r5: its data; r6: its address in the ring; r12: the highest offset
/// that leaves room; lr: PRIMASK.
///
/// # Safety
/// Same as [`SinglePort::put_items`](kymo_recorder::single::SinglePort::put_items).
#[cfg(target_has_atomic = "32")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn put_items(
    ring: *const Ring<CortexM>,
    counter: *const u32,
    items: *const Item,
    count: usize,
) -> u32 {
    core::arch::naked_asm!(
        "push {{r4-r6, lr}}",
        "lsls r3, r3, #3",
        "rsb r12, r3, #1016",
        "adds r3, r3, r2",
        "mrs lr, PRIMASK",
        "cpsid i",
        "ldr r1, [r1]",
        "ldr r4, [r0, #{last}]",
        "subs r4, r1, r4",
        "blo 2f",
        "lsrs r4, r4, #22",
        "bne 2f",
        "ldr r6, [r0]",
        "ubfx r5, r6, #0, #10",
        "cmp r5, r12",
        "bhi 2f",
        "1: ldm r2!, {{r4, r5}}",
        "bfi r4, r1, #10, #22",
        "stm r6!, {{r4, r5}}",
        "cmp r2, r3",
        "bne 1b",
        "str r6, [r0]",
        "str r1, [r0, #{last}]",
        "msr PRIMASK, lr",
        "movs r0, #1",
        "pop {{r4-r6, pc}}",
        "2: msr PRIMASK, lr",
        "movs r0, #0",
        "pop {{r4-r6, pc}}",
        last = const Ring::<CortexM>::LAST_OFFSET,
    )
}

/// Does the same with the instructions of an Armv6-M. r7: the highest offset that leaves room, shifted left to drop the
/// bits above a packet's offset, like r4 when they are compared; r12: PRIMASK.
///
/// # Safety
/// As above.
#[cfg(not(target_has_atomic = "32"))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn put_items(
    ring: *const Ring<CortexM>,
    counter: *const u32,
    items: *const Item,
    count: usize,
) -> u32 {
    core::arch::naked_asm!(
        "push {{r4-r7, lr}}",
        "lsls r3, r3, #3",
        "movs r7, #127",
        "lsls r7, r7, #3",
        "subs r7, r7, r3",
        "lsls r7, r7, #22",
        "adds r3, r3, r2",
        "mrs r4, PRIMASK",
        "mov r12, r4",
        "cpsid i",
        "ldr r1, [r1]",
        "ldr r4, [r0, #{last}]",
        "subs r4, r1, r4",
        "blo 2f",
        "lsrs r4, r4, #22",
        "bne 2f",
        "ldr r6, [r0]",
        "lsls r4, r6, #22",
        "cmp r4, r7",
        "bhi 2f",
        "str r1, [r0, #{last}]",
        "lsls r1, r1, #10",
        "1: ldm r2!, {{r4, r5}}",
        "lsls r4, r4, #22",
        "lsrs r4, r4, #22",
        "orrs r4, r4, r1",
        "stm r6!, {{r4, r5}}",
        "cmp r2, r3",
        "bne 1b",
        "str r6, [r0]",
        "msr PRIMASK, r12",
        "movs r0, #1",
        "pop {{r4-r7, pc}}",
        "2: msr PRIMASK, r12",
        "movs r0, #0",
        "pop {{r4-r7, pc}}",
        last = const Ring::<CortexM>::LAST_OFFSET,
    )
}
