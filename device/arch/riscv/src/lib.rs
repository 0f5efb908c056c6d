//! Recorder port for a RISC-V hart: masks interrupts with `mstatus.MIE`, and reads its cycle counter.
//!
//! For machine mode, in which firmware without an operating system runs. One hart records (several need a driver with a
//! stream for each). The counter is `mcycle`, which every hart has, though it may be stopped (`mcountinhibit`) or wired
//! to zero. A board timer (`mtime`) in `kymo_config.clock` is an alternative, and is required if the core's frequency
//! changes.
#![no_std]
#![cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]

mod calls;

use core::arch::asm;
use core::ptr::without_provenance;

use kymo_recorder::Target;
use kymo_recorder::cost::Hooks;
use kymo_recorder::link::Link;
use kymo_recorder::single::SinglePort;
use kymo_wire::event::Layout;

/// Number of the register `mcycle` (volume II, 2.2). No board has a timer at that address.
const MCYCLE: usize = 0xB00;

/// `mstatus.MIE`: interrupts are enabled (The RISC-V Instruction Set Manual, volume II, 3.1.6).
const MIE: usize = 8;

/// A RISC-V hart in machine mode as target and port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Riscv(());

impl Riscv {
    /// Creates the port, which has no state.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Target for Riscv {
    const LAYOUT: Layout = Layout::NATIVE;
    #[inline(always)]
    fn mask_interrupts() -> usize {
        let was: usize;
        // SAFETY: masking interrupts breaks nothing; `unmask_interrupts` restores the previous state. No `nomem`, so that the
        // compiler moves no access out of the masked part.
        unsafe {
            asm!(
                "csrrci {was}, mstatus, {MIE}",
                was = out(reg) was,
                MIE = const MIE,
                options(nostack, preserves_flags),
            );
        }
        was
    }

    #[inline(always)]
    fn unmask_interrupts(was: usize) {
        // SAFETY: it restores what `mask_interrupts` found: only the one bit, and only if it was set.
        unsafe {
            asm!("csrs mstatus, {}", in(reg) was & MIE, options(nostack, preserves_flags));
        }
    }
}

kymo_recorder::program_hooks!([calls::nothing, calls::calling]);

impl SinglePort for Riscv {
    fn hooks(&self) -> Option<&'static Hooks> {
        Some(&HOOKS)
    }

    fn link(&self) -> &Link {
        // In a section of its own. Otherwise it would be merged with data that every program needs, and be in programs
        // without a link, too.
        #[unsafe(link_section = ".bss.kymo_link")]
        static LINK: Link = Link::new();
        &LINK
    }

    fn find_counter(&self) -> Option<u32> {
        let before = self.counter();
        // A counter with a prescaler still changes within these reads.
        let moves = (0..64).any(|_| self.counter() != before);
        moves.then_some(0)
    }

    #[inline(always)]
    fn counter(&self) -> u32 {
        let low: usize;
        // SAFETY: machine mode may read it, and reading changes nothing.
        unsafe { asm!("csrr {}, mcycle", out(reg) low, options(nomem, nostack, preserves_flags)) };
        low as u32
    }

    /// `mcycle` is a register of the core, not in memory: its register number stands in for an address.
    fn counter_address(&self) -> Option<*const u32> {
        Some(without_provenance(MCYCLE))
    }

    #[inline(always)]
    unsafe fn read(&self, counter: *const u32) -> u32 {
        if counter.addr() == MCYCLE {
            return self.counter();
        }
        // SAFETY: by this function's contract there is a counter at the address, in memory.
        unsafe { counter.read_volatile() }
    }
}
