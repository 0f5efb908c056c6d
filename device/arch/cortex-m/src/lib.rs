//! Recorder port for a Cortex-M: masks interrupts with PRIMASK, and reads a counter.
//!
//! The counter is DWT_CYCCNT if it exists and counts (Armv7-M and later; emulators often lack it), else SysTick if the
//! program has started it. SysTick counts down from its reload value, so the port inverts it. It wraps around in every
//! period, so `kymo_tick()` must run in the interrupt of every period. A period that was missed because interrupts were
//! masked for longer cannot be detected. A board timer in `kymo_config.clock` is better.
#![no_std]
#![cfg(target_arch = "arm")]

mod calls;
mod hooks;
mod items;
mod put;

#[doc(hidden)]
pub use hooks::{EXIT_NAMED, GATE, LIMIT, STOPPER, TEXT_BASE, TRIGGER};
#[doc(hidden)]
pub use items::PACKET_LEFT;
#[doc(hidden)]
pub use kymo_recorder;

use core::arch::asm;
use core::ffi::c_void;
use core::ptr::read_volatile;

use kymo_recorder::Target;
use kymo_recorder::cost::Hooks;
use kymo_recorder::items::{Item, Ring};
use kymo_recorder::link::Link;
use kymo_recorder::single::SinglePort;
use kymo_wire::event::Layout;

/// Registers, by their addresses (Armv7-M Architecture Reference Manual, B3 and C1).
mod register {
    /// DEMCR: bit 24 (TRCENA) enables the DWT.
    #[cfg(target_has_atomic = "32")]
    pub const DEMCR: *mut u32 = 0xE000_EDFC as *mut u32;
    /// DWT_CTRL: bit 0 (CYCCNTENA) starts the cycle counter. (Reads as 0 if there is none.)
    #[cfg(target_has_atomic = "32")]
    pub const DWT_CTRL: *mut u32 = 0xE000_1000 as *mut u32;
    /// DWT_LAR, the lock of the DWT's registers.
    #[cfg(target_has_atomic = "32")]
    pub const DWT_LAR: *mut u32 = 0xE000_1FB0 as *mut u32;
    /// DWT_CYCCNT.
    pub const DWT_CYCCNT: *mut u32 = 0xE000_1004 as *mut u32;
    /// SYST_CSR: bit 0 (ENABLE).
    pub const SYST_CSR: *mut u32 = 0xE000_E010 as *mut u32;
    /// SYST_RVR: the reload value, 24 bits.
    pub const SYST_RVR: *mut u32 = 0xE000_E014 as *mut u32;
    /// SYST_CVR: the current value.
    pub const SYST_CVR: *mut u32 = 0xE000_E018 as *mut u32;
}
use register::{DWT_CYCCNT, SYST_CSR, SYST_CVR, SYST_RVR};

/// A Cortex-M as target and port.
#[derive(Debug)]
pub struct CortexM(());

impl CortexM {
    /// Creates the port, which has no state.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Default for CortexM {
    fn default() -> Self {
        Self::new()
    }
}

impl Target for CortexM {
    const LAYOUT: Layout = Layout::NATIVE;
    #[inline(always)]
    fn mask_interrupts() -> usize {
        let was;
        // SAFETY: masking interrupts breaks nothing; `unmask_interrupts` restores the previous state. No `nomem`, so that the
        // compiler moves no access out of the masked part.
        unsafe {
            asm!(
                "mrs {}, PRIMASK",
                "cpsid i",
                out(reg) was,
                options(nostack, preserves_flags),
            );
        }
        was
    }

    #[inline(always)]
    fn somewhere<R>(it: &R) -> &R {
        let mut at: *const R = it;
        // SAFETY: there is no instruction: the register holds what it held.
        unsafe {
            asm!("/* {} */", inlateout(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        // SAFETY: it was a reference, and is the same one.
        unsafe { &*at }
    }

    #[inline(always)]
    fn unmask_interrupts(was: usize) {
        // SAFETY: it restores what `mask_interrupts` found.
        unsafe { asm!("msr PRIMASK, {}", in(reg) was, options(nostack, preserves_flags)) };
    }
}

kymo_recorder::program_hooks!([calls::nothing, calls::calling], enter);

/// Entry hook for measuring the overhead, with an additional jump. In compiled functions the call of the entry hook
/// takes one instruction more than a plain call, because they keep the return address for the exit (and some also the
/// function's address). The jump accounts for it.
#[cfg(target_has_atomic = "32")]
#[unsafe(naked)]
unsafe extern "C" fn enter(function: *const c_void, call_site: *const c_void) {
    core::arch::naked_asm!("b {hook}", hook = sym __cyg_profile_func_enter)
}

/// Entry hook for processors on which a jump may not reach that far.
#[cfg(not(target_has_atomic = "32"))]
unsafe extern "C" fn enter(function: *const c_void, call_site: *const c_void) {
    // SAFETY: it may be called from anywhere.
    unsafe { __cyg_profile_func_enter(function, call_site) };
}

impl SinglePort for CortexM {
    // True without hooks in assembly.
    const GUARDED: bool = cfg!(not(target_has_atomic = "32"));
    const PUTS_ITEMS: bool = true;

    #[inline(always)]
    unsafe fn put_items(ring: &Ring<Self>, counter: *const u32, items: &[Item]) -> bool {
        // SAFETY: by this function's contract.
        unsafe { put::put_items(ring, counter, items.as_ptr(), items.len()) != 0 }
    }

    fn hooks(&self) -> Option<&'static Hooks> {
        Some(&HOOKS)
    }

    fn link(&self) -> &Link {
        static LINK: Link = Link::new();
        &LINK
    }

    // (Unprivileged code reads 0.)
    #[inline(always)]
    fn is_masked(&self) -> bool {
        let primask: u32;
        // SAFETY: it reads a register.
        unsafe {
            asm!("mrs {}, PRIMASK", out(reg) primask, options(nomem, nostack, preserves_flags));
        }
        primask != 0
    }

    fn is_privileged(&self) -> bool {
        let (control, exception): (u32, u32);
        // SAFETY: reading these changes nothing, and is allowed at any privilege level.
        unsafe {
            asm!(
                "mrs {}, CONTROL",
                "mrs {}, IPSR",
                out(reg) control,
                out(reg) exception,
                options(nomem, nostack, preserves_flags),
            );
        }
        // Handlers are privileged whatever the value of CONTROL.
        control & 1 == 0 || exception & 0x1FF != 0
    }

    fn find_counter(&self) -> Option<u32> {
        if start_cycle_counter() {
            return Some(0);
        }
        // SAFETY: every Cortex-M has these registers, or reads them as zero.
        let (control, reload) = unsafe { (read_volatile(SYST_CSR), read_volatile(SYST_RVR)) };
        let reload = reload & 0x00FF_FFFF;
        if control & 1 == 0 || reload == 0 {
            return None;
        }
        Some(reload + 1)
    }

    fn counter_address(&self) -> Option<*const u32> {
        Some(DWT_CYCCNT.cast_const())
    }

    fn find_register(&self) -> Option<*const u32> {
        start_cycle_counter().then_some(DWT_CYCCNT.cast_const())
    }

    #[inline(always)]
    fn counter(&self) -> u32 {
        // SAFETY: as above.
        let (reload, value) = unsafe { (read_volatile(SYST_RVR), read_volatile(SYST_CVR)) };
        (reload & 0x00FF_FFFF).wrapping_sub(value & 0x00FF_FFFF)
    }
}

/// Starts DWT_CYCCNT; returns false if it does not exist or does not count. Armv6-M has none, and an access could fault
/// there. Armv6-M also lacks compare-and-swap, by which the compiler can recognize it.
#[cfg(target_has_atomic = "32")]
fn start_cycle_counter() -> bool {
    use core::ptr::write_volatile;
    use register::{DEMCR, DWT_CTRL, DWT_LAR};
    // SAFETY: Armv7-M has these registers; unimplemented ones read as zero.
    unsafe {
        write_volatile(DEMCR, read_volatile(DEMCR) | 1 << 24);
        // A Cortex-M7 ignores writes to its DWT until it receives this key; other processors ignore the key.
        write_volatile(DWT_LAR, 0xC5AC_CE55);
        write_volatile(DWT_CTRL, read_volatile(DWT_CTRL) | 1);
        let before = read_volatile(DWT_CYCCNT);
        asm!(
            "nop",
            "nop",
            "nop",
            "nop",
            options(nostack, preserves_flags)
        );
        read_volatile(DWT_CYCCNT) != before
    }
}

#[cfg(not(target_has_atomic = "32"))]
fn start_cycle_counter() -> bool {
    false
}
