//! Recorder of a bare-metal program on several processors.

use kymo_arch_aarch64::Aarch64;
use kymo_recorder::by_memory::Memory;
use kymo_recorder::config::{Config, note};
use kymo_recorder::cpus::{CpuItems, Cpus};
use kymo_recorder::gate::Gate;
use kymo_recorder::hot::Hot;
use kymo_recorder::items::{Cursor, Drained, Item, Timed};
use kymo_recorder::{Edge, Event};
use kymo_wire::event::{Layout, MetadataType};
use kymo_wire::link::SetupError;
use kymo_wire::note::NOTE_BYTES;

/// Maximum number of CPUs. Each takes 1 KiB of RAM, used or not.
const MAX_CPUS: usize = 16;

/// A value on cache lines of its own, because all CPUs read it at every event.
#[repr(C, align(128))]
struct Alone<T>(T);

/// State that the hooks check first. In `.data`, so that the gate stays closed until start-up code has copied that
/// section. (The cursors are per CPU.)
static HOT: Alone<Hot> = Alone(crate::hot(&raw const HOT.0));
/// The only field of `HOT` that is used here.
static GATE: &Gate = &HOT.0.gate;

/// The rest of the recorder's state, in `.bss`.
#[unsafe(export_name = "kymo_recorder")]
static RECORDER: Cpus<Aarch64, MAX_CPUS> = Cpus::new(Aarch64::new());

/// An ELF note, with the required alignment.
#[repr(C, align(4))]
struct Note([u8; NOTE_BYTES]);

/// Describes the memory of the recorder, so that packets can be read without the program's help.
#[used]
#[unsafe(link_section = ".note.kymo")]
static NOTE: Note = Note(note(Layout::NATIVE, Cpus::<Aarch64, MAX_CPUS>::KEPT));

// SAFETY: `kymo.h` has the same declaration; a test compares the structures.
unsafe extern "C" {
    /// Defined by the program.
    static kymo_config: Config;
}

/// Registers the calling CPU as `number`; the recorder records its events from then on.
pub fn cpu_start(number: u16) -> bool {
    // SAFETY: the program defines it, as a constant.
    let config = unsafe { &kymo_config };
    // SAFETY: the linker made it the address of the program's memory for items, or null.
    let items = unsafe { kymo_cpu_items_address.as_ref() };
    RECORDER.start(GATE, config, items, number)
}

// The program's memory for items, if it has any: a weak reference, which Rust cannot express.
core::arch::global_asm!(
    // Not `.weak`: link-time optimization may have put the program's definition into the same module.
    ".weakref kymo_cpu_items_if_any, kymo_cpu_items",
    ".pushsection .rodata.kymo_cpu_items_address,\"a\"",
    ".balign 8",
    ".globl kymo_cpu_items_address",
    ".hidden kymo_cpu_items_address",
    "kymo_cpu_items_address:",
    ".8byte kymo_cpu_items_if_any",
    ".popsection",
);

// SAFETY: the assembly above defines the word.
unsafe extern "C" {
    static kymo_cpu_items_address: *const CpuItems;
}

/// A ring of items.
pub type Ring = kymo_recorder::items::Ring<Aarch64>;

/// Produces items of this CPU that share one timestamp. Masks interrupts meanwhile, even if the caller has masked them
/// already.
pub fn produce(items: &[Item]) {
    RECORDER.produce(GATE, items);
}

/// Returns this CPU's items after `cursor`.
pub fn drain(cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
    RECORDER.drain(cursor, out)
}

/// Reserves a record of `length` bytes in this CPU's stream; null if that is not possible.
pub fn reserve(length: usize) -> *mut u8 {
    RECORDER.reserve(GATE, length)
}

/// Finishes a reserved record with this type; 0 discards it.
///
/// # Safety
/// Same as [`Cpus::commit`].
pub unsafe fn commit(data: *mut u8, kind: u16) {
    // SAFETY: by this function's contract.
    unsafe { RECORDER.commit(GATE, data, kind) };
}

/// Stops the CPU. There is no operating system to report to.
pub fn abort() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Records an event other than a call.
#[inline(always)]
pub fn hook(event: Event) {
    RECORDER.event(GATE, event);
}

/// Records the entry to or exit from a function.
#[inline(always)]
pub fn call(edge: Edge, function: usize, caller: usize) {
    RECORDER.call(GATE, edge, function, caller);
}

/// Enables or disables the gate. Calls nest.
pub fn enable(enabled: bool) {
    RECORDER.enable(GATE, enabled);
}

/// Turns recording on or off.
pub fn set_recording(on: bool) {
    RECORDER.set_recording(GATE, on);
}

/// Sets trigger and stopper; `None` leaves one unchanged.
pub fn set_sets(trigger: Option<usize>, stopper: Option<usize>) {
    RECORDER.set_sets(GATE, trigger, stopper);
}

/// Returns why the CPU that started first could not set the recorder up.
pub fn set_up_error() -> Option<SetupError> {
    RECORDER.fault()
}

/// Discards the recorded events.
pub fn clear() {
    RECORDER.clear(GATE);
}

/// Names a thread.
pub fn thread_name(thread: usize, name: &[u8]) {
    RECORDER.describe(GATE, |metadata, now| {
        metadata.thread_name(now, thread, name);
    });
}

/// A thread has ended.
pub fn thread_ended(thread: usize) {
    RECORDER.end_thread(GATE, thread);
}

/// Names a thread or an interrupt.
pub fn describe(number: usize, name: &[u8], kind: MetadataType) {
    match kind {
        MetadataType::IsrName => isr_name(number as u16, name),
        _ => thread_name(number, name),
    }
}

/// Names an interrupt.
pub fn isr_name(irq: u16, name: &[u8]) {
    RECORDER.describe(GATE, |metadata, now| metadata.isr_name(now, irq, name));
}

/// Handles this CPU's periodic tick.
pub fn tick() {
    RECORDER.tick(GATE);
}

/// Takes a byte that arrived from the host.
pub fn receive(byte: u8) {
    RECORDER.receive(GATE, byte);
}

/// Returns whether [`poll`] has work to do.
pub fn pending() -> bool {
    RECORDER.pending(GATE)
}

/// Executes the host's commands.
pub fn poll() {
    RECORDER.poll(GATE);
}

/// Applies what a debugger requested in `memory`, and stores the state there.
pub fn follow_memory(memory: &Memory) {
    RECORDER.follow_memory(GATE, memory);
}

/// Closes this CPU's open packet, in stream mode.
pub fn flush() {
    RECORDER.flush(GATE);
}

/// Passes closed packets to `take`, in stream mode.
pub fn take_packets(take: impl FnMut(u16, &[u8])) -> u32 {
    RECORDER.take_packets(GATE, take)
}
