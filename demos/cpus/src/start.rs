//! Start-up code from reset to Rust: stacks, the floating point unit, caches, and the registers that an interrupt
//! saves; and what ends the program: faults, panics.
//!
//! Exclusive accesses (atomics) between CPUs need caches, and caches need the MMU: memory is mapped one to one, the
//! first GiB as devices and the next as memory. No code here is instrumented, and the register reserved for the
//! recorder is cleared before any instrumented code runs.

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;

use crate::{board, say_line};

global_asm!(
    ".pushsection .text.start, \"ax\"",
    // The first CPU, as started by QEMU: at EL1, interrupts masked.
    ".globl start",
    "start:",
    "adrp x1, bss_start",
    "add x1, x1, :lo12:bss_start",
    "adrp x2, bss_end",
    "add x2, x2, :lo12:bss_end",
    "0:",
    "cmp x1, x2",
    "b.hs 1f",
    "stp xzr, xzr, [x1], #16",
    "b 0b",
    "1:",
    "mov x0, xzr",
    // The other CPUs, as started by PSCI, with their number in x0.
    ".globl start_another",
    "start_another:",
    "msr daifset, #15",
    "msr tpidrro_el0, xzr",
    // If that register is reserved for the recorder, the other one has an arbitrary value.
    "mov x1, #{own}",
    "msr tpidr_el1, x1",
    "adrp x1, stacks",
    "add x1, x1, :lo12:stacks",
    "add x2, x0, #1",
    "add x1, x1, x2, lsl #16",
    "mov sp, x1",
    // MAIR: 0 = device, 1 = cached memory.
    "mov x1, #0xFF00",
    "msr mair_el1, x1",
    // TCR: 39-bit addresses, tables cached and shared, pages of 4 KiB, no upper half, 36-bit physical addresses.
    "ldr x1, =0x100803519",
    "msr tcr_el1, x1",
    "adrp x1, translation",
    "msr ttbr0_el1, x1",
    "dsb ish",
    "tlbi vmalle1",
    "dsb ish",
    "ic iallu",
    "dsb ish",
    "isb",
    "mrs x1, sctlr_el1",
    "mov x2, #0x1005", // MMU, data and instruction caches
    "orr x1, x1, x2",
    "bic x1, x1, #2", // no check of alignment
    "msr sctlr_el1, x1",
    "mov x1, #(3 << 20)", // the floating point unit, which Rust uses
    "msr cpacr_el1, x1",
    "adrp x1, vectors",
    "add x1, x1, :lo12:vectors",
    "msr vbar_el1, x1",
    "isb",
    "mov x29, xzr",
    "mov x30, xzr",
    "b cpu_main",
    ".ltorg",
    // Saves the registers that an interrupt may change; all other exceptions are fatal.
    ".balign 2048",
    "vectors:",
    ".rept 5",
    "b {fault}",
    ".balign 128",
    ".endr",
    "b interrupted",
    ".balign 128",
    ".rept 10",
    "b {fault}",
    ".balign 128",
    ".endr",
    "interrupted:",
    "sub sp, sp, #592",
    "stp x0, x1, [sp]",
    "stp x2, x3, [sp, #16]",
    "stp x4, x5, [sp, #32]",
    "stp x6, x7, [sp, #48]",
    "stp x8, x9, [sp, #64]",
    "stp x10, x11, [sp, #80]",
    "stp x12, x13, [sp, #96]",
    "stp x14, x15, [sp, #112]",
    "stp x16, x17, [sp, #128]",
    "stp x18, x29, [sp, #144]",
    "mrs x0, elr_el1",
    "mrs x1, spsr_el1",
    "stp x30, x0, [sp, #160]",
    "str x1, [sp, #176]",
    "mrs x0, fpsr",
    "str x0, [sp, #184]",
    "add x0, sp, #192",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "stp q4, q5, [x0, #64]",
    "stp q6, q7, [x0, #96]",
    "stp q16, q17, [x0, #128]",
    "stp q18, q19, [x0, #160]",
    "stp q20, q21, [x0, #192]",
    "stp q22, q23, [x0, #224]",
    "stp q24, q25, [x0, #256]",
    "stp q26, q27, [x0, #288]",
    "stp q28, q29, [x0, #320]",
    "stp q30, q31, [x0, #352]",
    "bl cpu_interrupt",
    "add x0, sp, #192",
    "ldp q0, q1, [x0]",
    "ldp q2, q3, [x0, #32]",
    "ldp q4, q5, [x0, #64]",
    "ldp q6, q7, [x0, #96]",
    "ldp q16, q17, [x0, #128]",
    "ldp q18, q19, [x0, #160]",
    "ldp q20, q21, [x0, #192]",
    "ldp q22, q23, [x0, #224]",
    "ldp q24, q25, [x0, #256]",
    "ldp q26, q27, [x0, #288]",
    "ldp q28, q29, [x0, #320]",
    "ldp q30, q31, [x0, #352]",
    "ldr x0, [sp, #184]",
    "msr fpsr, x0",
    "ldr x1, [sp, #176]",
    "ldp x30, x0, [sp, #160]",
    "msr elr_el1, x0",
    "msr spsr_el1, x1",
    "ldp x18, x29, [sp, #144]",
    "ldp x16, x17, [sp, #128]",
    "ldp x14, x15, [sp, #112]",
    "ldp x12, x13, [sp, #96]",
    "ldp x10, x11, [sp, #80]",
    "ldp x8, x9, [sp, #64]",
    "ldp x6, x7, [sp, #48]",
    "ldp x4, x5, [sp, #32]",
    "ldp x2, x3, [sp, #16]",
    "ldp x0, x1, [sp]",
    "add sp, sp, #592",
    "eret",
    ".popsection",
    // The translation table: one GiB of devices, and one of memory (shared by all CPUs, executable).
    ".pushsection .rodata.translation, \"a\"",
    ".balign 4096",
    "translation:",
    ".quad 0x0060000000000401",
    ".quad 0x0000000040000705",
    ".fill 510, 8, 0",
    ".popsection",
    own = const if cfg!(feature = "own_register") { 0xBAD } else { 0 },
    fault = sym fault,
);

/// Handler of any other exception.
extern "C" fn fault() -> ! {
    let (syndrome, address, at): (u64, u64, u64);
    // SAFETY: reading registers changes nothing.
    unsafe {
        asm!(
            "mrs {}, esr_el1",
            "mrs {}, far_el1",
            "mrs {}, elr_el1",
            out(reg) syndrome,
            out(reg) address,
            out(reg) at,
        );
    }
    say_line!(
        "fault {syndrome:#x} for {address:#x} at {at:#x} on CPU {}",
        board::cpu()
    );
    board::off()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say_line!("{info}");
    board::off()
}
