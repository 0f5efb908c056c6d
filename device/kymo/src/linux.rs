//! Recorder of a Linux process, with its automatic start and its automatic save at exit.

use core::ffi::CStr;

use kymo_os_linux::process::{Follower, GatePage, Process};
use kymo_os_linux::sys;
use kymo_recorder::config::{Config, Kept, note};
use kymo_recorder::gate::{Gate, Look};
use kymo_recorder::items::{Cursor, Drained, Item, Timed};
use kymo_recorder::{Edge, Event};
use kymo_wire::event::{Cause, Layout, MetadataType};
use kymo_wire::link::SetupError;
use kymo_wire::note::NOTE_BYTES;

/// The gate, in initialized memory. (The cursors are per thread.)
static PAGE: GatePage = GatePage {
    hot: crate::hot((&raw const PAGE).cast()),
};
/// The only field of `PAGE` that is used here.
static GATE: &Gate = &PAGE.hot.gate;
/// The rest of the recorder's state, in zeroed memory.
static PROCESS: Process = Process::new();

// The program's configuration, if it has one: a weak reference, which Rust cannot express.
core::arch::global_asm!(
    ".weak kymo_config",
    ".pushsection .data.rel.ro.kymo_config_address,\"aw\"",
    ".balign 8",
    ".globl kymo_config_address",
    ".hidden kymo_config_address",
    "kymo_config_address:",
    kymo_os_linux::address_of!("kymo_config"),
    ".popsection",
);

// Likewise the program's number of packets of items per thread.
core::arch::global_asm!(
    ".weak kymo_items_packets",
    ".pushsection .data.rel.ro.kymo_items_packets_address,\"aw\"",
    ".balign 8",
    ".globl kymo_items_packets_address",
    ".hidden kymo_items_packets_address",
    "kymo_items_packets_address:",
    kymo_os_linux::address_of!("kymo_items_packets"),
    ".popsection",
);

// Likewise the program's number of exited threads whose recordings are kept.
core::arch::global_asm!(
    ".weak kymo_ended_threads",
    ".pushsection .data.rel.ro.kymo_ended_threads_address,\"aw\"",
    ".balign 8",
    ".globl kymo_ended_threads_address",
    ".hidden kymo_ended_threads_address",
    "kymo_ended_threads_address:",
    kymo_os_linux::address_of!("kymo_ended_threads"),
    ".popsection",
);

// The entry hook that functions call. It may be another one than ours if the recorder is in a shared library.
core::arch::global_asm!(
    ".pushsection .data.rel.ro.kymo_hook_address,\"aw\"",
    ".balign 8",
    ".globl kymo_hook_address",
    ".hidden kymo_hook_address",
    "kymo_hook_address:",
    kymo_os_linux::address_of!("__cyg_profile_func_enter"),
    ".popsection",
);

// The function that creates threads, if the program links it: before glibc 2.34 it is in a library of its own.
core::arch::global_asm!(
    ".weak pthread_create",
    ".pushsection .data.rel.ro.kymo_thread_address,\"aw\"",
    ".balign 8",
    ".globl kymo_thread_address",
    ".hidden kymo_thread_address",
    "kymo_thread_address:",
    kymo_os_linux::address_of!("pthread_create"),
    ".popsection",
);

/// An ELF note, with the required alignment.
#[repr(C, align(4))]
struct Note([u8; NOTE_BYTES]);

/// Describes the memory of the recorder, so that packets can be read without the program's help.
#[used]
#[unsafe(link_section = ".note.kymo")]
static NOTE: Note = Note(note(Layout::NATIVE, Kept::NOWHERE));

// SAFETY: the assembly above defines the word, and the C library `abort`.
unsafe extern "C" {
    static kymo_config_address: *const Config;
    static kymo_items_packets_address: *const u32;
    static kymo_ended_threads_address: *const u32;
    static kymo_hook_address: usize;
    static kymo_thread_address: Option<sys::sockets::Spawn>;
    #[link_name = "abort"]
    fn c_abort() -> !;
}

/// Ends the process.
pub fn abort() -> ! {
    // SAFETY: it takes nothing.
    unsafe { c_abort() }
}

/// Records that the calling thread enters or leaves a function.
#[inline(always)]
pub fn call(edge: Edge, function: usize, caller: usize) {
    match (GATE.look(), edge) {
        (Look::Open, _) if GATE.open() => PROCESS.call(GATE, edge, function, caller),
        (Look::Open, _) => closed(edge.of(function, caller)),
        #[cfg(feature = "duration")]
        (Look::Duration(_), _) => in_duration(edge, function, caller),
        (Look::Armed, Edge::Enter) if function == GATE.trigger() => {
            closed(edge.of(function, caller))
        }
        (Look::Closed, _) if !GATE.state().alive() => closed(edge.of(function, caller)),
        _ => {}
    }
}

/// Does the same in duration mode. Not inlined, because hooks that wait for a trigger would save its registers.
#[cfg(feature = "duration")]
#[inline(never)]
fn in_duration(edge: Edge, function: usize, caller: usize) {
    match GATE.open() {
        true => PROCESS.duration_call(GATE, edge, function, caller),
        false => closed(edge.of(function, caller)),
    }
}

/// The hooks that the compiler calls, with the fast path in assembly.
#[cfg(kymo_assembly)]
pub mod fast {
    use kymo_os_linux::hooks;
    use kymo_recorder::Edge;

    use super::{GATE, PAGE, PROCESS};

    hooks!(PAGE, call, nested, inside, come_back);

    /// Slow path before the assembly has done anything.
    fn call(edge: Edge, function: usize, caller: usize) {
        super::call(edge, function, caller);
    }

    /// Slow path for a thread that was within the recorder before the hook began: in a signal handler, or after a jump.
    fn nested(edge: Edge, (function, caller): (usize, usize), stack: *mut u8) {
        if GATE.open() {
            PROCESS.call_nested(GATE, edge, (function, caller), stack);
        } else {
            super::closed(edge.of(function, caller));
        }
    }

    /// Slow path for a thread that the assembly has marked as within the recorder.
    fn inside(edge: Edge, function: usize, caller: usize) {
        PROCESS.call_inside(GATE, edge, function, caller);
    }

    /// Slow path after the record has been written.
    fn come_back() {
        PROCESS.come_back(GATE);
    }
}

/// Records an event other than a call in the calling thread.
pub fn hook(event: Event) {
    if GATE.open() {
        PROCESS.hook(GATE, event);
    } else {
        closed(event);
    }
}

/// Handles an event that occurs while the gate is closed.
#[cold]
#[inline(never)]
fn closed(event: Event) {
    prepare();
    PROCESS.closed(GATE, event);
}

/// Sets the recorder up if that has not happened in this process.
#[inline]
fn prepare() {
    if GATE.open() {
        return;
    }
    let state = GATE.state();
    if state.fresh() {
        set_up();
    } else if !state.alive() {
        PROCESS.start_if_wiped(GATE);
    }
}

/// Sets the recorder up.
#[cold]
fn set_up() {
    // SAFETY: the linker made it the address of the program's number, or null.
    if let Some(packets) = unsafe { kymo_items_packets_address.as_ref() } {
        PROCESS.set_item_packets(*packets);
    }
    // SAFETY: as above.
    if let Some(threads) = unsafe { kymo_ended_threads_address.as_ref() } {
        PROCESS.set_ended_threads(*threads);
    }
    // SAFETY: the linker made it the address of the program's configuration, or null.
    let config = unsafe { kymo_config_address.as_ref() };
    // SAFETY: the linker made it the address of a function.
    PROCESS.set_up(GATE, config, unsafe { kymo_hook_address });
}

/// Returns the recorder after setting it up.
pub fn process() -> &'static Process {
    prepare();
    &PROCESS
}

/// Error of [`save`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveError {
    /// The system's error number. Also `EBUSY` if a dump or a stream is in progress, or if a thread's recording is
    /// missing because the thread does not leave its hook.
    pub errno: i32,
}

impl core::fmt::Display for SaveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the recording was not saved whole: error {}", self.errno)
    }
}

impl core::error::Error for SaveError {}

/// Writes the whole recording to a file that `kymo` reads. Recording continues.
///
/// # Errors
/// If the file cannot be written, or not completely.
pub fn save(path: &CStr) -> Result<(), SaveError> {
    let result = process().save(GATE, path.to_bytes_with_nul());
    result.map_err(|sys::Errno(errno)| SaveError { errno })
}

/// Sets the recorder up before the program's own constructors, so that its clock is measured from the start. (Code that
/// runs even earlier sets it up with its first hook.)
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_START: extern "C" fn() = {
    extern "C" fn start() {
        // SAFETY: the linker made it the address of the C library's function, or null.
        process().serve_hosts(unsafe { kymo_thread_address });
    }
    start
};

/// Saves to the file that `KYMO_OUTPUT` names, after the program's own destructors: with the lowest priority, because one
/// of 101, the lowest of a program's own, may call hooks, too.
#[used]
#[unsafe(link_section = ".fini_array.00000")]
static AT_END: extern "C" fn() = {
    extern "C" fn end() {
        process().end_service();
        process().save_at_exit(GATE);
    }
    end
};

/// Enables or disables the gate. Calls nest.
pub fn enable(enabled: bool) {
    if enabled {
        GATE.enable();
    } else {
        GATE.disable();
    }
    PROCESS.gate_changed(GATE);
}

/// Calls `follower` with whether hooks are needed, now and whenever that may have changed. Returns false, and calls it
/// only once, if there are too many followers.
pub fn follow_gate(follower: Follower) -> bool {
    process().follow_gate(GATE, follower)
}

/// Reverts [`follow_gate`].
pub fn unfollow_gate(follower: Follower) {
    PROCESS.unfollow_gate(follower);
}

/// Turns recording on or off.
pub fn set_recording(on: bool) {
    process().set_recording(GATE, on, Cause::Command);
}

/// Sets trigger and stopper; `None` leaves one unchanged.
pub fn set_sets(trigger: Option<usize>, stopper: Option<usize>) {
    process();
    if let Some(trigger) = trigger {
        GATE.set_trigger(trigger);
    }
    if let Some(stopper) = stopper {
        GATE.set_stopper(stopper);
    }
    PROCESS.gate_changed(GATE);
}

/// Returns why the recorder could not be set up.
pub fn set_up_error() -> Option<SetupError> {
    process().set_up_error()
}

/// Discards the recorded events and the profile table.
pub fn clear() {
    process().clear(GATE);
}

/// Names a thread.
pub fn thread_name(thread: usize, name: &[u8]) {
    process().thread_name(thread, name);
}

/// Does nothing: each thread has a recorder of its own, which sees its end.
pub fn thread_ended(_: usize) {}

/// Names a thread or an interrupt.
pub fn describe(number: usize, name: &[u8], kind: MetadataType) {
    match kind {
        MetadataType::IsrName => isr_name(number as u16, name),
        _ => thread_name(number, name),
    }
}

/// Names an interrupt.
pub fn isr_name(irq: u16, name: &[u8]) {
    process().isr_name(irq, name);
}

/// Does nothing: the clock needs no tick on Linux.
pub fn tick() {}

/// Takes a byte that arrived from the host.
pub fn receive(byte: u8) {
    PROCESS.receive(byte);
}

/// Executes the host's commands.
pub fn poll() {
    process().poll(GATE);
    // Commands may change the gate.
    PROCESS.gate_changed(GATE);
}

/// Counts events that the caller could not record, if recording is on.
pub fn lose(events: u32) {
    process().lose_unrecorded(GATE, events);
}

/// Returns whether [`poll`] has work to do.
pub fn pending() -> bool {
    process().pending(GATE)
}

/// Produces items of the calling thread that share one timestamp. Each thread has its own rings, so no lock is needed.
pub fn produce(items: &[Item]) {
    prepare();
    PROCESS.produce(GATE, items);
}

/// Returns the calling thread's items after `cursor`.
pub fn drain(cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
    process().drain(cursor, out)
}

/// Reserves a record of `length` bytes in the calling thread's stream; null if that is not possible.
pub fn reserve(length: usize) -> *mut u8 {
    prepare();
    PROCESS.reserve(GATE, length)
}

/// Finishes a reserved record with this type; 0 discards it.
///
/// # Safety
/// Same as [`Process::commit`].
pub unsafe fn commit(data: *mut u8, kind: u16) {
    // SAFETY: by this function's contract.
    unsafe { PROCESS.commit(GATE, data, kind) };
}
