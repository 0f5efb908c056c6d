//! Producers of items in assembly, for Armv7-M and the main line of Armv8-M.
//!
//! One item (an id of 10 bits under 22 bits of the clock, and a word) takes 12 instructions, 9 of them
//! with interrupts masked, and 9 into a ring that only one level of interrupts uses, with nothing
//! masked. They know no more of a ring than where its next item goes ([`kymo_recorder::items`]):
//! whether anything is to be recorded, and where packets end, shows when an item *lands* at the end
//! of a packet. Then they take it from there, let the next one land in its place, and others in again,
//! and leave it to the recorder.
//!
//! The address of the counter is a literal, because there is no instruction left to load it from the
//! configuration: the symbol `kymo_counter`. It is defined where a ring is, as DWT_CYCCNT, and weak, so
//! that the program's linker script may say otherwise. (Defined here the literal would be settled
//! before the linker comes.) A program without a ring has none, and links all the same: the reference is
//! weak, too.

use kymo_wire::event::WordSize;
use kymo_wire::items::{ID_BITS, TIME_BITS, packet_bytes};

// The item that is written.
const _: () = assert!(ID_BITS == 10 && TIME_BITS == 22);

/// `lsls` by so much leaves nothing of a multiple of a packet's size.
#[doc(hidden)]
pub const PACKET_LEFT: u32 = 32 - packet_bytes(WordSize::Bits32).ilog2();

/// Defines `kymo_ring_put`, the producer into rings of the type `$ring`. `$landed`,
/// an `extern "C"` function of a ring and an item (`u32`, of which the low 10 bits are the id, and `usize`),
/// gets the items that have landed.
#[macro_export]
macro_rules! items {
    ($ring:path, $landed:path) => {
        // SAFETY: the symbol stands for a register's address; only that is used.
        unsafe extern "C" {
            /// The counter that these producers read.
            static kymo_counter: u32;
        }

        /// Produces an item, with interrupts masked. r3: the counter, the time, then where the next
        /// item goes; r12: PRIMASK.
        ///
        /// # Safety
        /// The ring was defined by `KYMO_RING`, and the clock is the counter `kymo_counter`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn kymo_ring_put(ring: *const $ring, id: u32, data: usize) {
            core::arch::naked_asm!(
                "ldr r3, 9f",
                "mrs r12, PRIMASK",
                "cpsid i",
                "ldr r3, [r3]",
                "bfi r1, r3, #10, #22",
                "ldr r3, [r0]",
                "stm r3!, {{r1, r2}}",
                "str r3, [r0]",
                "lsls r1, r3, #{left}",
                "beq 1f",
                "msr PRIMASK, r12",
                "bx lr",
                "1: ldr r1, [r3, #-8]!",
                "str r3, [r0]",
                "msr PRIMASK, r12",
                "b {landed}",
                ".p2align 2",
                ".weak {counter}",
                "9: .word {counter}",
                left = const $crate::PACKET_LEFT,
                landed = sym $landed,
                counter = sym kymo_counter,
            )
        }
    };
}
