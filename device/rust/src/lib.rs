//! Kymo's recorder for programs.
//!
//! C programs link this crate as `libkymo.a` (folder `device/c`) and use `kymo.h`; its functions
//! are in [`abi`]. Rust programs use the functions here, which do the same under the same names
//! without the prefix. `kymo.h` has the whole story: the gate, the clock, the link.
//!
//! A program for bare metal describes itself once:
//!
//! ```no_run
//! use kymo::{Buffer, Packets, Recorder, Table};
//!
//! static EVENTS: Packets<1024, 64> = Packets::new();
//! static NAMES: Buffer<512> = Buffer::new();
//! static TABLE: Table<128, 3, 32> = Table::new();
//!
//! kymo::recorder!(
//!     Recorder::new(&EVENTS)
//!         .names(&NAMES)
//!         .table(&TABLE)
//!         .clock_hz(64_000_000)
//! );
//! # fn main() {}
//! ```
//!
//! Rust's compiler does not instrument functions on stable; [`call`] marks the calls that one
//! wants to see. C code that is linked in is instrumented as usual.
#![no_std]

pub mod abi;
pub mod blocks;
mod configure;
pub mod events;
#[cfg(not(kymo_assembly))]
pub mod hooks;
pub mod items;
pub mod jumps;
pub mod kernel;
mod link;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;

#[cfg(all(
    any(target_arch = "arm", target_arch = "riscv32", target_arch = "riscv64"),
    target_os = "none"
))]
#[path = "bare.rs"]
mod system;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
#[path = "cpus.rs"]
mod system;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::marker::PhantomData;
use core::mem::MaybeUninit;

pub use kymo_recorder::config::{
    CALL_SITES, CONFIG_VERSION, Config, FIXED, Function, PROMOTE_ISR, PROMOTE_NOTHING,
    PROMOTE_SWITCHED_IN, PROMOTE_SWITCHED_OUT, Promotion, START_ON, STREAM,
};
use kymo_recorder::gate::code;
use kymo_recorder::hot::Hot;
use kymo_recorder::profile::{Frame, Slot};
use kymo_recorder::retained::WORDS;
use kymo_recorder::{Edge, Event};
pub use kymo_transport as transport;
pub use kymo_wire::link::{Fault, SetupError};
pub use link::{Link, poll_link};

/// Defines the program's configuration: a [`Config`], once in a program. The recorder writes wherever it
/// says, so the word `unsafe` stands before it, and who writes that vouches for this:
///
/// - `buffer`, `metadata`, `slots`, `frames` and `retained` are null, or memory of at least the sizes that
///   are given, aligned as [`Buffer`], [`Slots`], [`Frames`] and [`Retained`] are, and used by nothing else;
/// - `counter` is null or the address of a register that may be read at any time; `promotions` and
///   `build_id_note` point to what they say, for good;
/// - `clock`, `current_thread`, `send` and `reboot` may be called from any context.
///
/// ```compile_fail
/// kymo::config!(kymo::Config { buffer_size: 4096, ..kymo::Config::EMPTY });
/// ```
#[macro_export]
macro_rules! config {
    // SAFETY: who writes the word vouches for the configuration.
    (unsafe $config:expr) => {
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        static kymo_config: $crate::Config = $crate::Config::checked($config);
    };
}

pub use configure::{Packets, Recorder, Table};

/// When trigger and stopper act: `kymo.h` has the structure.
#[cfg(feature = "conditions")]
#[unsafe(export_name = "kymo_conditions")]
static CONDITIONS: kymo_recorder::conditions::Conditions =
    kymo_recorder::conditions::Conditions::new();

/// A gate and a cursor that will lie at `this`.
const fn hot(this: *const Hot) -> Hot {
    #[cfg(feature = "conditions")]
    return Hot::with(this, &CONDITIONS);
    #[cfg(not(feature = "conditions"))]
    Hot::new(this)
}

/// Memory that a program gives to the recorder, all zero at first.
macro_rules! memory {
    ($(#[$doc:meta])* $name:ident, $align:literal, $element:ty) => {
        $(#[$doc])*
        #[repr(C, align($align))]
        #[derive(Debug)]
        pub struct $name<const N: usize>(UnsafeCell<MaybeUninit<[$element; N]>>);

        // SAFETY: only the recorder uses what is inside, under its own rules.
        unsafe impl<const N: usize> Sync for $name<N> {}

        impl<const N: usize> $name<N> {
            /// All zero.
            pub const fn new() -> Self {
                Self(UnsafeCell::new(MaybeUninit::zeroed()))
            }

            /// Its address, for the [`Config`].
            pub const fn get(&'static self) -> *mut c_void {
                self.0.get().cast()
            }
        }

        impl<const N: usize> Default for $name<N> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

memory! {
    /// `N` bytes for [`Config::buffer`] or [`Config::metadata`].
    Buffer, 8, u8
}
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
memory! {
    /// `N` bytes for [`Config::buffer`] of several CPUs: on cache lines of their own.
    CpuBuffers, 128, u8
}
memory! {
    /// `N` slots for [`Config::slots`].
    Slots, 8, Slot
}
memory! {
    /// `N` frames for [`Config::frames`].
    Frames, 8, Frame
}

/// Memory for [`Config::retained`]. Put it where start-up code does not write
/// (`#[link_section = ".noinit"]`).
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Retained(UnsafeCell<MaybeUninit<[u32; WORDS]>>);

// SAFETY: only the recorder uses what is inside, with interrupts masked.
unsafe impl Sync for Retained {}

impl Retained {
    /// Whatever the memory holds.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Its address, for the [`Config`].
    pub const fn get(&'static self) -> *mut c_void {
        self.0.get().cast()
    }
}

impl Default for Retained {
    fn default() -> Self {
        Self::new()
    }
}

/// A call that is being recorded; it ends when this is dropped.
#[derive(Debug)]
pub struct Call {
    function: usize,
    /// A call ends in the thread that began it.
    here: PhantomData<*const ()>,
}

/// Records that `function` (its address) is entered now, and left when the result is dropped.
#[inline(always)]
#[must_use = "the call ends when this is dropped"]
pub fn call(function: usize) -> Call {
    let function = code(function);
    system::call(Edge::Enter, function, 0);
    Call {
        function,
        here: PhantomData,
    }
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        system::call(Edge::Exit, self.function, 0);
    }
}

/// Takes one [`disable`] back.
pub fn enable() {
    system::enable(true);
}

/// Nothing is recorded until as many [`enable`].
pub fn disable() {
    system::enable(false);
}

/// Turns recording on, without the trigger.
pub fn on() {
    system::turn(true);
}

/// Turns recording off.
pub fn off() {
    system::turn(false);
}

/// The function (its address) whose entry turns recording on; 0 for none.
pub fn set_trigger(function: usize) {
    system::set_sets(Some(function), None);
}

/// The function (its address) whose exit turns recording off; 0 for none.
pub fn set_stopper(function: usize) {
    system::set_sets(None, Some(function));
}

/// Whether the program's configuration can be used. The recorder is set up now if it has not been.
///
/// # Errors
/// The rule that the configuration breaks, and the value that does.
pub fn status() -> Result<(), SetupError> {
    match system::set_up_error() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Forgets the recorded events and the profile table.
pub fn clear() {
    system::clear();
}

/// A thread gets the processor.
pub fn switched_in(thread: usize) {
    system::hook(Event::SwitchedIn(thread));
}

/// The processor goes from the thread that runs to `next`: both at once, in one record.
pub fn switch(next: usize) {
    system::hook(Event::SwitchedIn(next));
}

/// A thread loses the processor.
pub fn switched_out(thread: usize) {
    system::hook(Event::SwitchedOut(thread));
}

/// An interrupt handler begins; `irq` as the architecture counts.
pub fn isr_enter(irq: u16) {
    system::hook(Event::IsrEnter(irq));
}

/// An interrupt handler ends.
pub fn isr_exit(irq: u16) {
    system::hook(Event::IsrExit(irq));
}

/// The program says something.
pub fn marker(value: u32) {
    system::hook(Event::Marker(value));
}

/// The program says something under a name, which must be a constant of the program's image: only
/// its address is recorded.
pub fn named_marker(name: &'static CStr, value: u32) {
    let name = name.as_ptr() as usize;
    system::hook(Event::NamedMarker { name, value });
}

/// What time it is in the world, in nanoseconds since 1970 UTC, for programs that know: at the start
/// and now and then, so that the host knows dates and the clock's drift.
pub fn wall_clock(ns: u64) {
    system::hook(Event::WallClock { ns, uncertainty: 0 });
}

/// The name of a thread, of which 64 bytes are kept.
pub fn thread_name(thread: usize, name: &str) {
    system::thread_name(thread, name.as_bytes());
}

/// The name of an interrupt, of which 64 bytes are kept.
pub fn isr_name(irq: u16, name: &str) {
    system::isr_name(irq, name.as_bytes());
}

/// Thread, priority or mode changed.
pub fn context(thread: usize, priority: i16, mode: u16) {
    system::hook(Event::Context {
        thread,
        priority,
        mode,
    });
}

/// Keeps the clock's upper bits; from a periodic interrupt.
pub fn tick() {
    system::tick();
}

/// A byte arrived from the host. From any context, but not from two at once.
pub fn link_receive(byte: u8) {
    system::receive(byte);
}

/// Does what the host asked for, from a context that may take its time.
pub fn link_poll() {
    system::poll();
}

/// Whether [`link_poll`] would have something to do: bytes have arrived, or a stream has something
/// to send. From any context, for instance the tick that wakes the thread that polls.
pub fn link_pending() -> bool {
    system::pending()
}

/// Gives all that was recorded so far to `put`, as lines of text for a console: where the program dies, or where there is no
/// link. `kymo` reads it out of whatever log it stands in. Nothing is recorded meanwhile. From any context, fault handlers too;
/// false, and nothing is given, if nothing can have been recorded, or this interrupted the recorder at its work.
#[cfg(not(any(target_os = "linux", target_arch = "aarch64")))]
pub fn dump_text(mut put: impl FnMut(&[u8])) -> bool {
    system::dump_text(&mut put)
}

#[cfg(target_os = "linux")]
pub use system::{SaveError, save};

/// The CPU that calls this records from now on, as `number` (from 0). Each calls it once it runs,
/// caches and all, before the first function that it shall record; the first one to do so sets the
/// recorder up. False if the configuration gives no buffer to a CPU of this number, or is wrong.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn cpu_start(number: u16) -> bool {
    system::cpu_start(number)
}

/// In stream mode: closes the packet that this CPU has open, so that [`take_packets`] gives all that
/// it has recorded so far.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn flush() {
    system::flush();
}

/// In stream mode: gives `take` packets that have been closed, with the number of their CPU, each
/// CPU's in their order; then their places are the CPUs' again. Some packets at a time; returns how
/// many. For one reader at a time, on any CPU: others get none meanwhile.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn take_packets(take: impl FnMut(u16, &[u8])) -> u32 {
    system::take_packets(take)
}

/// Ends the program: for the panic handler of a program that has none of its own.
pub fn abort() -> ! {
    system::abort()
}
