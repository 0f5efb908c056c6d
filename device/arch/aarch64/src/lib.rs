//! Recorder port for an AArch64 processor, alone or one of several: masks interrupts with DAIF, reads the generic
//! timer's counter, and identifies the CPU by a register.
//!
//! For programs at EL1. A register that only software uses holds a pointer to the CPU's own part of the recorder, so
//! that a hook finds it with one instruction: `TPIDR_EL1`, or the register of the feature `tpidrro_el0` or `tpidr_el0`
//! if the system itself uses that one (RTEMS SMP, Linux, FreeBSD). The register must be zero from the start of a CPU
//! until `kymo_cpu_start` (after reset its value is undefined).
//!
//! The counter is the generic timer's virtual one: 64 bits, constant frequency, and by the architecture the same on all
//! CPUs (unless software gives them different offsets).
#![no_std]
#![cfg(target_arch = "aarch64")]

use core::arch::asm;

use kymo_recorder::Target;
use kymo_recorder::cost::Hooks;
use kymo_recorder::cpus::CpusPort;
use kymo_wire::event::Layout;

#[cfg(all(feature = "tpidrro_el0", feature = "tpidr_el0"))]
compile_error!("one register holds the CPU's part: tpidrro_el0 or tpidr_el0, not both");

/// The register that holds a pointer to the CPU's own part of the recorder.
#[cfg(not(any(feature = "tpidrro_el0", feature = "tpidr_el0")))]
macro_rules! register {
    () => {
        "tpidr_el1"
    };
}
/// Likewise; programs at EL0 can read it.
#[cfg(feature = "tpidrro_el0")]
macro_rules! register {
    () => {
        "tpidrro_el0"
    };
}
/// Likewise; programs at EL0 can read and write it, and compilers use it for thread-local storage.
#[cfg(all(feature = "tpidr_el0", not(feature = "tpidrro_el0")))]
macro_rules! register {
    () => {
        "tpidr_el0"
    };
}

/// An AArch64 processor as target and port. One value serves all CPUs: its methods act on the CPU that calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64(());

impl Aarch64 {
    /// Creates the port, which has no state.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Target for Aarch64 {
    const LAYOUT: Layout = Layout::NATIVE;
    const FINISHED_ELSEWHERE: bool = true;
    const MIGRATES: bool = true;
}

kymo_recorder::program_hooks!();

impl CpusPort for Aarch64 {
    fn hooks(&self) -> Option<&'static Hooks> {
        Some(&HOOKS)
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        let was: usize;
        // SAFETY: masking IRQ and FIQ breaks nothing; `unmask` restores the previous state. No `nomem`, so that the
        // compiler moves no access out of the masked part.
        unsafe {
            asm!(
                "mrs {}, daif",
                "msr daifset, #3",
                out(reg) was,
                options(nostack, preserves_flags),
            );
        }
        was
    }

    #[inline(always)]
    fn unmask(&self, was: usize) {
        // SAFETY: it restores what `mask` found.
        unsafe { asm!("msr daif, {}", in(reg) was, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn cpu_pointer(&self) -> *const () {
        let cpu_pointer;
        // SAFETY: reading the register changes nothing.
        unsafe {
            asm!(
                concat!("mrs {}, ", register!()),
                out(reg) cpu_pointer,
                options(nomem, nostack, preserves_flags),
            )
        };
        cpu_pointer
    }

    fn set_cpu_pointer(&self, cpu_pointer: *const ()) {
        // SAFETY: the register is reserved for software; the processor does not use it.
        unsafe {
            asm!(
                concat!("msr ", register!(), ", {}"),
                in(reg) cpu_pointer,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Reads the counter without a barrier, for calls: the processor may read it some ten instructions early, which is
    /// about one tick.
    #[inline(always)]
    fn counter(&self) -> u64 {
        let now;
        // SAFETY: reading the counter changes nothing.
        unsafe { asm!("mrs {}, cntvct_el0", out(reg) now, options(nostack, preserves_flags)) };
        now
    }

    #[inline(always)]
    fn counter_in_order(&self) -> u64 {
        // SAFETY: it only makes the processor wait for preceding instructions.
        unsafe { asm!("isb", options(nostack, preserves_flags)) };
        self.counter()
    }

    fn counter_hz(&self) -> u64 {
        let hz;
        // SAFETY: reading the register changes nothing.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags))
        };
        hz
    }

    #[inline(always)]
    fn pause(&self) {
        core::hint::spin_loop();
    }
}
