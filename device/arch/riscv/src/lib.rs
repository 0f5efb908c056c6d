//! What a RISC-V hart offers a recorder: masking interrupts with `mstatus.MIE`, and its cycle
//! counter.
//!
//! In machine mode, as firmware without an operating system runs: one hart records (several need a
//! driver with a stream for each). The counter is `mcycle`, which every hart has, though it may be
//! stopped (`mcountinhibit`) or wired to zero; a board timer (`mtime`) named in `kymo_config.clock`
//! serves too, and must where the core's speed changes.
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

/// The number of the register `mcycle` (volume II, 2.2). No timer of a board has that address.
const MCYCLE: usize = 0xB00;

/// `mstatus.MIE`: interrupts are taken (The RISC-V Instruction Set Manual, volume II, 3.1.6).
const MIE: usize = 8;

/// A RISC-V hart in machine mode as target and port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Riscv(());

impl Riscv {
    /// There is nothing to remember. All zero.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Target for Riscv {
    const LAYOUT: Layout = Layout::NATIVE;
    const SINGLE: bool = true;

    #[inline(always)]
    fn hold() -> usize {
        let was: usize;
        // SAFETY: masking interrupts breaks nothing; `let_go` brings back what was. No `nomem`, so
        // that the compiler moves no access out of the masked part.
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
    fn let_go(was: usize) {
        // SAFETY: it brings back what `hold` found: only the one bit, and only if it was set.
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
        // (Of a section of its own: else it would be put together with what every program needs, and be in programs
        // without a link too.)
        #[unsafe(link_section = ".bss.kymo_link")]
        static LINK: Link = Link::new();
        &LINK
    }

    fn find_counter(&self) -> Option<u32> {
        let before = self.counter();
        // A counter that is divided down still moves within this.
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

    /// It is a register of the core, not of the memory: its number there stands for it.
    fn counter_address(&self) -> Option<*const u32> {
        Some(without_provenance(MCYCLE))
    }

    #[inline(always)]
    unsafe fn read(&self, counter: *const u32) -> u32 {
        if counter.addr() == MCYCLE {
            return self.counter();
        }
        // SAFETY: by this function's contract it is there, in memory then.
        unsafe { counter.read_volatile() }
    }
}
