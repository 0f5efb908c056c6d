//! Kymo's recorder for programs.
//!
//! C programs link it as `libkymo.a` and use `kymo.h`, whose functions are in the crate `kymo-abi` (`device/c/abi`). Rust
//! programs use the functions here, which do the same under the same names without the prefix. `kymo.h` describes
//! everything in full: the gate, the clock, the link.
//!
//! A bare-metal program defines its configuration once:
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
//! Stable Rust cannot instrument functions; [`call`] records a call explicitly. C code that is linked in is
//! instrumented as usual.
#![no_std]

pub mod blocks;
mod configure;
pub mod events;
pub mod hooks;
pub mod items;
pub mod kernel;
mod link;

#[cfg(target_os = "linux")]
#[doc(hidden)]
#[path = "linux.rs"]
pub mod system;

#[cfg(all(
    any(target_arch = "arm", target_arch = "riscv32", target_arch = "riscv64"),
    target_os = "none"
))]
#[doc(hidden)]
#[path = "bare.rs"]
pub mod system;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
#[doc(hidden)]
#[path = "cpus.rs"]
pub mod system;

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

/// Defines the program's configuration, a [`Config`], once per program. The recorder writes wherever the configuration
/// points, so the macro requires the word `unsafe`. By writing it the programmer guarantees that:
///
/// - `buffer`, `metadata`, `slots`, `frames` and `retained` are null, or memory of at least the sizes that
///   are given, aligned as [`Buffer`], [`Slots`], [`Frames`] and [`Retained`] are, and used by nothing else;
/// - `counter` is null or the address of a register that may be read at any time; `promotions` and `build_id_note`
///   point to valid data of static lifetime;
/// - `clock`, `current_thread`, `send` and `reboot` may be called from any context.
///
/// ```compile_fail
/// kymo::config!(kymo::Config { buffer_size: 4096, ..kymo::Config::EMPTY });
/// ```
#[macro_export]
macro_rules! config {
    // SAFETY: the author of the word `unsafe` vouches for the configuration.
    (unsafe $config:expr) => {
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        static kymo_config: $crate::Config = $crate::Config::checked($config);
    };
}

pub use configure::{Packets, Recorder, Table};

/// Conditions under which trigger and stopper act: `kymo.h` describes the structure.
#[cfg(feature = "conditions")]
#[unsafe(export_name = "kymo_conditions")]
static CONDITIONS: kymo_recorder::conditions::Conditions =
    kymo_recorder::conditions::Conditions::new();

/// Creates a gate and a cursor for the static at `this`.
const fn hot(this: *const Hot) -> Hot {
    #[cfg(feature = "conditions")]
    return Hot::with(this, &CONDITIONS);
    #[cfg(not(feature = "conditions"))]
    Hot::new(this)
}

/// Defines a type of zero-initialized memory that a program passes to the recorder.
macro_rules! memory {
    ($(#[$doc:meta])* $name:ident, $align:literal, $element:ty) => {
        $(#[$doc])*
        #[repr(C, align($align))]
        #[derive(Debug)]
        pub struct $name<const N: usize>(UnsafeCell<MaybeUninit<[$element; N]>>);

        // SAFETY: only the recorder uses what is inside, under its own rules.
        unsafe impl<const N: usize> Sync for $name<N> {}

        impl<const N: usize> $name<N> {
            /// Creates zeroed memory.
            pub const fn new() -> Self {
                Self(UnsafeCell::new(MaybeUninit::zeroed()))
            }

            /// Returns its address, for the [`Config`].
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
    /// `N` bytes for [`Config::buffer`] of several CPUs, on cache lines of their own.
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

/// Memory for [`Config::retained`]. Place it where start-up code does not write (`#[link_section = ".noinit"]`).
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Retained(UnsafeCell<MaybeUninit<[u32; WORDS]>>);

// SAFETY: only the recorder uses what is inside, with interrupts masked.
unsafe impl Sync for Retained {}

impl Retained {
    /// Creates uninitialized memory, which keeps what it held before.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Returns its address, for the [`Config`].
    pub const fn get(&'static self) -> *mut c_void {
        self.0.get().cast()
    }
}

impl Default for Retained {
    fn default() -> Self {
        Self::new()
    }
}

/// Guard of a call that is being recorded. Dropping it records the exit.
#[derive(Debug)]
pub struct Call {
    function: usize,
    /// Makes the guard `!Send`: a call ends in the thread that began it.
    here: PhantomData<*const ()>,
}

/// Records that `function` (its address) is entered now, and exited when the result is dropped.
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

/// Reverts one [`disable`].
pub fn enable() {
    system::enable(true);
}

/// Disables recording until the matching [`enable`].
pub fn disable() {
    system::enable(false);
}

/// Turns recording on, without the trigger.
pub fn on() {
    system::set_recording(true);
}

/// Turns recording off.
pub fn off() {
    system::set_recording(false);
}

/// Sets the function (its address) whose entry turns recording on; 0 for none.
pub fn set_trigger(function: usize) {
    system::set_sets(Some(function), None);
}

/// Sets the function (its address) whose exit turns recording off; 0 for none.
pub fn set_stopper(function: usize) {
    system::set_sets(None, Some(function));
}

/// Checks whether the program's configuration is usable. Sets the recorder up if that has not happened yet.
///
/// # Errors
/// The rule that the configuration breaks, and the offending value.
pub fn status() -> Result<(), SetupError> {
    match system::set_up_error() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Discards the recorded events and the profile table.
pub fn clear() {
    system::clear();
}

/// Records that a thread gets the processor.
pub fn switched_in(thread: usize) {
    system::hook(Event::SwitchedIn(thread));
}

/// Records a switch from the running thread to `next`, in one record.
pub fn switch(next: usize) {
    system::hook(Event::SwitchedIn(next));
}

/// Records that a thread loses the processor.
pub fn switched_out(thread: usize) {
    system::hook(Event::SwitchedOut(thread));
}

/// Records that an interrupt handler begins; `irq` is the architecture's number.
pub fn isr_enter(irq: u16) {
    system::hook(Event::IsrEnter(irq));
}

/// Records that an interrupt handler ends.
pub fn isr_exit(irq: u16) {
    system::hook(Event::IsrExit(irq));
}

/// Records a marker.
pub fn marker(value: u32) {
    system::hook(Event::Marker(value));
}

/// Records a marker with a name, which must be a constant in the program's image: only its address is recorded.
pub fn named_marker(name: &'static CStr, value: u32) {
    let name = name.as_ptr() as usize;
    system::hook(Event::NamedMarker { name, value });
}

/// Records the wall-clock time, in nanoseconds since 1970 UTC. A program that knows the time calls it at the start and
/// repeatedly afterwards, so that the host can show dates and correct the clock's drift.
pub fn wall_clock(ns: u64) {
    system::hook(Event::WallClock { ns, uncertainty: 0 });
}

/// Names a thread; at most 64 bytes are kept.
pub fn thread_name(thread: usize, name: &str) {
    system::thread_name(thread, name.as_bytes());
}

/// Reports that a thread has ended, or was deleted, before its number is that of another: what the recorder keeps of it
/// is free for other threads, and open calls of the stopper in it do not keep recording on. Records a marker
/// `thread_ended`. (On Linux that is all: the recorder sees the end of threads.)
pub fn thread_ended(thread: usize) {
    named_marker(c"thread_ended", thread as u32);
    system::thread_ended(thread);
}

/// Names an interrupt; at most 64 bytes are kept.
pub fn isr_name(irq: u16, name: &str) {
    system::isr_name(irq, name.as_bytes());
}

/// Records a change of thread, priority or mode.
pub fn context(thread: usize, priority: i16, mode: u16) {
    system::hook(Event::Context {
        thread,
        priority,
        mode,
    });
}

/// Extends the clock beyond the counter's width. Call it from a periodic interrupt.
pub fn tick() {
    system::tick();
}

/// Takes a byte that arrived from the host. Callable from any context, but not from two at once.
pub fn link_receive(byte: u8) {
    system::receive(byte);
}

/// Executes the host's commands. Call it from a context that may block.
pub fn link_poll() {
    system::poll();
}

/// Returns whether [`link_poll`] has work to do: bytes have arrived, or a stream has data to send. Callable from any
/// context, for instance from the tick, which then wakes the polling thread.
pub fn link_pending() -> bool {
    system::pending()
}

/// Writes the whole recording to `put`, as lines of text for a console. For the point where the program dies, or for a
/// program without a link. `kymo` finds the lines in any log that contains them. Nothing is recorded meanwhile.
/// Callable from any context, fault handlers included. Returns false, and writes nothing, if nothing can have been
/// recorded, or if the caller interrupted the recorder itself.
#[cfg(not(any(target_os = "linux", target_arch = "aarch64")))]
pub fn dump_text(mut put: impl FnMut(&[u8])) -> bool {
    system::dump_text(&mut put)
}

#[cfg(target_os = "linux")]
pub use system::{SaveError, save};

/// Registers the calling CPU as `number` (from 0). Each CPU calls it once, after caches are on and before the first
/// function to be recorded; the first call sets the recorder up. Returns false if the configuration has no buffer for a
/// CPU of this number, or is wrong.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn cpu_start(number: u16) -> bool {
    system::cpu_start(number)
}

/// Closes this CPU's open packet, so that [`take_packets`] returns everything it has recorded so far. In stream mode.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn flush() {
    system::flush();
}

/// Passes closed packets to `take`, with the number of their CPU and in each CPU's order, then releases their memory to
/// the CPU. Returns the number of packets, at most a few per call. For one reader at a time, on any CPU: a second
/// reader gets none meanwhile. In stream mode.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub fn take_packets(take: impl FnMut(u16, &[u8])) -> u32 {
    system::take_packets(take)
}

/// Ends the program. For the panic handler of a program that has none of its own.
pub fn abort() -> ! {
    system::abort()
}
