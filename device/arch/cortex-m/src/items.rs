//! Producers of items in assembly, for Armv7-M and the Armv8-M mainline.
//!
//! One item (a 10-bit id and 22 bits of the clock, then a word) takes 12 instructions, 8 of them with interrupts
//! masked. A producer for a ring that only one interrupt level uses takes 9, with nothing masked. The producers know
//! only the address of a ring's next item ([`kymo_recorder::items`]). A closed gate and the end of a packet both show
//! when an item is stored in the *sentinel slot* at the end of a packet. The producer then takes the item out, makes
//! the slot free for the next one, restores the interrupt mask, and passes the item to the recorder.
//!
//! The address of the counter is a literal, the symbol `kymo_counter`, because loading it from the configuration would
//! take another instruction. The symbol is defined as DWT_CYCCNT wherever a ring is defined. It is weak, so that the
//! program's linker script can override it. (If it were defined here, the assembler would resolve the literal before
//! the linker runs.) A program without a ring does not define it, and links all the same, because the reference is
//! weak, too.

use kymo_wire::event::WordSize;
use kymo_wire::items::{ID_BITS, TIME_BITS, packet_bytes};

// Layout of the item that the assembly writes.
const _: () = assert!(ID_BITS == 10 && TIME_BITS == 22);

/// Shift count with which `lsls` yields 0 for a multiple of a packet's size.
#[doc(hidden)]
pub const PACKET_LEFT: u32 = 32 - packet_bytes(WordSize::Bits32).ilog2();

/// Defines `kymo_ring_put`, the producer for rings of the type `$ring`. `$landed`, an `extern "C"` function of a ring
/// and an item (`u32`, whose low 10 bits are the id, and `usize`), receives the items that were stored in the sentinel
/// slot.
#[macro_export]
macro_rules! items {
    ($ring:path, $landed:path) => {
        // SAFETY: the symbol stands for a register's address; only the address is used.
        unsafe extern "C" {
            /// The counter that these producers read.
            static kymo_counter: u32;
        }

        /// Produces an item, with interrupts masked. r3 holds in turn the counter's address, the time, and the address
        /// of the next item; r12 holds PRIMASK.
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
