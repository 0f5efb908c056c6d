//! Driver for QEMU's machine `virt`: the UART, the interrupt controller, the timer, and its firmware.

use core::arch::{asm, global_asm};
use core::fmt;
use core::ptr::{read_volatile, write_volatile};

/// The UART, a PL011.
const UART: usize = 0x0900_0000;
/// The interrupt controller's distributor (GICv2).
const DISTRIBUTOR: usize = 0x0800_0000;
/// Its interface to the current CPU.
const INTERFACE: usize = 0x0801_0000;
/// The virtual timer's interrupt, which is private to each CPU.
pub const TIMER_IRQ: u16 = 27;

fn read(address: usize) -> u32 {
    // SAFETY: the addresses in this module are registers of the machine.
    unsafe { read_volatile(address as *const u32) }
}

fn write(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { write_volatile(address as *mut u32, value) };
}

/// Enables the UART's FIFO, which stores up to 16 received bytes of 8 bits.
pub fn start_uart() {
    write(UART + 0x2C, 0x70);
}

/// Sends bytes.
///
/// # Safety
/// There are `count` readable bytes at `bytes`.
pub unsafe extern "C" fn send(bytes: *const u8, count: usize) {
    // SAFETY: by this function's contract.
    for byte in unsafe { core::slice::from_raw_parts(bytes, count) } {
        while read(UART + 0x18) & 1 << 5 != 0 {}
        write(UART, (*byte).into());
    }
}

/// Returns a received byte.
pub fn receive() -> Option<u8> {
    (read(UART + 0x18) & 1 << 4 == 0).then(|| read(UART) as u8)
}

/// Prints; only one CPU at a time may use it.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: it is a slice.
        unsafe { send(text.as_ptr(), text.len()) };
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! say_line {
    ($($arguments:tt)*) => {{
        use core::fmt::Write as _;
        let _ = write!($crate::board::Console, "demo: {}\r\n", format_args!($($arguments)*));
    }};
}

/// The counter.
pub fn counter() -> u64 {
    let now;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) now, options(nostack)) };
    now
}

/// The counter's frequency in Hz.
pub fn counter_hz() -> u64 {
    let hz;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nostack)) };
    hz
}

/// The number of this CPU.
pub fn cpu() -> u16 {
    let affinity: u64;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) affinity, options(nostack)) };
    (affinity & 0xFF) as u16
}

/// Sets the timer to interrupt this CPU after this many ticks.
pub fn set_timer(ticks: u64) {
    // SAFETY: the timer's own registers.
    unsafe {
        asm!("msr cntv_tval_el0, {}", in(reg) ticks, options(nostack));
        asm!("msr cntv_ctl_el0, {}", in(reg) 1u64, options(nostack));
    }
}

/// Enables the timer's interrupt on this CPU.
pub fn enable_timer() {
    write(DISTRIBUTOR, 1);
    write(DISTRIBUTOR + 0x100, 1 << TIMER_IRQ);
    write(INTERFACE + 4, 0xFF);
    write(INTERFACE, 1);
    // SAFETY: vectors and stack are there.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Disables interrupts on this CPU.
pub fn disable_interrupts() {
    // SAFETY: masking breaks nothing.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
}

/// Acknowledges the pending interrupt.
pub fn take_interrupt() -> u32 {
    read(INTERFACE + 0xC)
}

/// Signals the end of an interrupt.
pub fn end_interrupt(taken: u32) {
    write(INTERFACE + 0x10, taken);
}

global_asm!(
    ".pushsection .text.firmware, \"ax\"",
    "call_firmware:",
    "hvc #0",
    "ret",
    ".popsection",
);

// SAFETY: defined above (`call_firmware`) and in `start.rs`.
unsafe extern "C" {
    fn call_firmware(function: u64, a: u64, b: u64, c: u64) -> i64;
    fn start_another();
}

/// Starts a CPU through PSCI (Arm's power state coordination interface): `CPU_ON`. The CPU gets its number in its first
/// register.
pub fn start_cpu(number: u16) -> bool {
    const CPU_ON: u64 = 0xC400_0003;
    let entry = start_another as *const () as u64;
    // SAFETY: the entry sets the CPU up as it needs.
    unsafe { call_firmware(CPU_ON, number.into(), entry, number.into()) == 0 }
}

/// Switches the machine off.
pub fn off() -> ! {
    const SYSTEM_OFF: u64 = 0x8400_0008;
    // SAFETY: nothing comes after it.
    unsafe { call_firmware(SYSTEM_OFF, 0, 0, 0) };
    wait_forever()
}

/// Resets the machine.
pub extern "C" fn reboot() {
    const SYSTEM_RESET: u64 = 0x8400_0009;
    // SAFETY: nothing comes after it.
    unsafe { call_firmware(SYSTEM_RESET, 0, 0, 0) };
}

/// Waits for an interrupt.
pub fn wait() {
    // SAFETY: it only waits.
    unsafe { asm!("wfi", options(nostack)) };
}

/// Waits forever.
pub fn wait_forever() -> ! {
    loop {
        wait();
    }
}
