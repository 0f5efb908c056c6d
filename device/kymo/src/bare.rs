//! Recorder of a bare-metal program, or of one under an RTOS, on one processor.

#[cfg(target_arch = "arm")]
use kymo_arch_cortex_m::CortexM as Processor;
#[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
use kymo_arch_riscv::Riscv as Processor;
use kymo_recorder::by_memory::Memory;
use kymo_recorder::config::{Config, note};
#[cfg(kymo_assembly)]
use kymo_recorder::gate::code;
use kymo_recorder::hot::Hot;
use kymo_recorder::items::{Cursor, Drained, Item, Timed};
use kymo_recorder::single::{Request, Single};
use kymo_recorder::sums::of_program;
use kymo_recorder::survivors::dump_text as dump_text_of;
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::event::{EventId, Layout, MetadataType};
use kymo_wire::link::SetupError;
use kymo_wire::note::NOTE_BYTES;

/// State that the hooks check first. In `.data`, so that the gate stays closed until start-up code has copied that
/// section. Hooks in assembly find it by its symbol. A debugger that reads RAM finds the end of the newest packet in
/// it: see `.note.kymo`.
#[unsafe(export_name = "kymo_hot")]
static HOT: Hot = crate::hot(&raw const HOT);

/// The rest of the recorder's state, in `.bss`.
#[unsafe(export_name = "kymo_recorder")]
static RECORDER: Single<Processor> = Single::new(Processor::new());

/// Returns the recorder, hiding from the compiler that it is a static ([`Target::somewhere`]). For code that uses the
/// recorder in many functions: each gets the address as an argument instead of building it anew. Costs a few more
/// instructions at run time.
#[inline(always)]
fn recorder() -> &'static Single<Processor> {
    Processor::somewhere(&RECORDER)
}

/// An ELF note, with the required alignment.
#[repr(C, align(4))]
struct Note([u8; NOTE_BYTES]);

/// Describes the memory of the recorder, so that packets can be read without the program's help.
#[used]
#[unsafe(link_section = ".note.kymo")]
static NOTE: Note = Note(note(Layout::NATIVE, Single::<Processor>::KEPT));

// SAFETY: `kymo.h` has the same declaration; a test compares the structures.
unsafe extern "C" {
    /// Defined by the program.
    static kymo_config: Config;
}

/// Returns the program's configuration.
#[inline(always)]
fn config() -> &'static Config {
    // SAFETY: the program defines it, as a constant.
    unsafe { &kymo_config }
}

/// Stops the processor. There is no operating system to report to.
pub fn abort() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Records an event other than a call.
#[inline(always)]
pub fn hook(event: Event) {
    if let Event::WallClock { .. } = event {
        return recorder().hook(&HOT, config(), event);
    }
    #[cfg(feature = "duration")]
    if HOT.gate.in_duration() && recorder().duration_event(&HOT, config(), event) {
        return;
    }
    if RECORDER.record_direct(&HOT, event) {
        return;
    }
    if let Ok((id, first, second)) = event.parts::<Processor>() {
        hook_event(id, first, second);
    }
}

/// Records an event given in parts. Callers create the event as a constant variant, so that splitting it takes no code.
#[inline(never)]
fn hook_event(id: EventId, first: usize, second: usize) {
    recorder().hook_event(&HOT, config(), (id, first, second));
}

/// Records the entry to or exit from a function.
#[inline(always)]
pub fn call(edge: Edge, function: usize, caller: usize) {
    RECORDER.call(&HOT, config(), edge, function, caller);
}

/// Slow path of the entry hook in assembly.
#[cfg(kymo_assembly)]
extern "C" fn slow_enter(function: usize, call_site: usize) {
    slow(function, call_site, Edge::Enter);
}

/// Slow path of the exit hook in assembly.
#[cfg(kymo_assembly)]
extern "C" fn slow_exit(function: usize, call_site: usize) {
    slow(function, call_site, Edge::Exit);
}

#[cfg(kymo_assembly)]
#[inline(never)]
fn slow(function: usize, call_site: usize, edge: Edge) {
    recorder().open_call(&HOT, config(), edge, code(function), call_site);
}

/// Begins the next packet, for hooks in assembly that have masked interrupts. Does so only if a full packet is all that
/// keeps them from recording. The hooks then try again; if they fail again, nothing can be recorded at present.
#[cfg(all(kymo_assembly, feature = "depth"))]
extern "C" fn change() {
    RECORDER.change_packet_masked(&HOT);
}

#[cfg(all(
    kymo_assembly,
    feature = "depth",
    not(feature = "duration"),
    not(feature = "profile")
))]
kymo_arch_cortex_m::hooks!(counting, HOT, slow_enter, slow_exit, change);

#[cfg(all(
    kymo_assembly,
    feature = "depth",
    not(feature = "duration"),
    feature = "profile"
))]
kymo_arch_cortex_m::hooks!(
    counting, HOT, slow_enter, slow_exit, change, table: RECORDER, replace
);

#[cfg(all(kymo_assembly, feature = "duration", not(feature = "profile")))]
kymo_arch_cortex_m::hooks!(
    duration, HOT, slow_enter, slow_exit, change, long_enter, long_exit
);

#[cfg(all(kymo_assembly, feature = "duration", feature = "profile"))]
kymo_arch_cortex_m::hooks!(
    duration, HOT, slow_enter, slow_exit, change, long_enter, long_exit, table: RECORDER, replace
);

/// Slow path of hooks in assembly for an entry that has no slot in the profile table.
#[cfg(all(kymo_assembly, feature = "depth", feature = "profile"))]
extern "C" fn replace() {
    recorder().replace(&HOT);
}

/// Slow path of entry hooks in assembly, in duration mode.
#[cfg(all(kymo_assembly, feature = "duration"))]
extern "C" fn long_enter(function: usize, call_site: usize) {
    recorder().duration_enter(&HOT, code(function), HOT.gate.site(call_site));
}

/// Slow path of exit hooks in assembly, in duration mode; `now` is the time of the exit.
#[cfg(all(kymo_assembly, feature = "duration"))]
extern "C" fn long_exit(function: usize, now: usize) {
    recorder().duration_exit(&HOT, code(function), Some(now));
}

#[cfg(all(kymo_assembly, not(feature = "depth"), not(feature = "duration")))]
kymo_arch_cortex_m::hooks!(plain, HOT, slow_enter, slow_exit);

/// Enables or disables the gate. Calls nest.
#[inline(always)]
pub fn enable(enabled: bool) {
    request(if enabled {
        Request::Enable
    } else {
        Request::Disable
    });
}

/// Turns recording on or off.
#[inline(always)]
pub fn set_recording(on: bool) {
    request(if on { Request::On } else { Request::Off });
}

/// Sets trigger and stopper; `None` leaves one unchanged.
#[inline(always)]
pub fn set_sets(trigger: Option<usize>, stopper: Option<usize>) {
    if let Some(function) = trigger {
        request(Request::Trigger(function));
    }
    if let Some(function) = stopper {
        request(Request::Stopper(function));
    }
}

#[inline(never)]
fn request(request: Request) {
    recorder().request(&HOT, config(), request);
}

/// Discards the recorded events and the profile table.
pub fn clear() {
    recorder().clear(&HOT, config());
}

/// Names a thread.
#[inline(always)]
pub fn thread_name(thread: usize, name: &[u8]) {
    describe(thread, name, MetadataType::ThreadName);
}

/// A thread has ended.
pub fn thread_ended(thread: usize) {
    recorder().end_thread(&HOT, thread);
}

/// Names an interrupt.
#[inline(always)]
pub fn isr_name(irq: u16, name: &[u8]) {
    describe(irq.into(), name, MetadataType::IsrName);
}

/// Names a thread or an interrupt.
pub fn describe(number: usize, name: &[u8], kind: MetadataType) {
    recorder().describe(&HOT, config(), kind, number, name);
}

/// Returns why the recorder could not be set up. Sets it up if that has not been tried yet.
pub fn set_up_error() -> Option<SetupError> {
    recorder().set_up_error(&HOT, config())
}

/// Applies what a debugger requested in `memory`, and stores the state there.
pub fn follow_memory(memory: &Memory) {
    recorder().follow_memory(&HOT, config(), memory);
}

/// Handles the periodic tick.
pub fn tick() {
    recorder().tick(&HOT, config());
}

/// Takes a byte that arrived from the host.
pub fn receive(byte: u8) {
    recorder().receive(&HOT, byte);
}

/// Executes the host's commands.
pub fn poll() {
    recorder().poll(&HOT, config());
}

/// Counts events that the caller could not record, if recording is on.
pub fn lose(events: u32) {
    recorder().lose_unrecorded(&HOT, events);
}

/// Returns whether [`poll`] has work to do.
pub fn pending() -> bool {
    recorder().pending(&HOT, config())
}

/// Writes the whole recording to `put` as lines of text; returns false if there is nothing to write.
pub fn dump_text(put: &mut dyn FnMut(&[u8])) -> bool {
    recorder().dump_text(&HOT, config(), put)
}

/// Does the same with lines that a person can read.
pub fn dump_lines(put: &mut dyn FnMut(&[u8])) -> bool {
    recorder().dump_lines(&HOT, config(), put)
}

/// Does the same as [`dump_text`] with the recording that RAM still holds after a reset.
///
/// # Safety
/// Same as [`kymo_recorder::survivors::dump_text`].
pub unsafe fn dump_survivors(put: &mut dyn FnMut(&[u8])) -> bool {
    // SAFETY: by this function's contract.
    unsafe { dump_text_of::<Processor>(&raw const HOT, config(), of_program(), put) }
}

/// A ring of items.
pub type Ring = kymo_recorder::items::Ring<Processor>;

/// An address in the program, for the assembler.
#[cfg(target_pointer_width = "32")]
macro_rules! address_of {
    ($name:literal) => {
        concat!(".4byte ", $name)
    };
}

/// An address in the program, for the assembler.
#[cfg(target_pointer_width = "64")]
macro_rules! address_of {
    ($name:literal) => {
        concat!(".8byte ", $name)
    };
}

// The program's ring of items, if it has one: a weak reference, which Rust cannot express.
core::arch::global_asm!(
    ".weak kymo_items",
    ".pushsection .rodata.kymo_items_address,\"a\"",
    ".balign 8",
    ".globl kymo_items_address",
    ".hidden kymo_items_address",
    "kymo_items_address:",
    address_of!("kymo_items"),
    ".popsection",
);

// SAFETY: the assembly above defines the word.
unsafe extern "C" {
    static kymo_items_address: *const Ring;
}

/// Returns the program's default ring of items, if it defines one.
fn items() -> Option<&'static Ring> {
    // SAFETY: the linker made it the address of the program's ring, or null.
    unsafe { kymo_items_address.as_ref() }
}

/// Produces items that share one timestamp.
#[inline(never)]
pub fn produce(these: &[Item]) {
    if let Some(ring) = items() {
        produce_in(ring, these);
    }
}

/// Produces items in the given ring.
pub fn produce_in(ring: &'static Ring, these: &[Item]) {
    recorder().produce(&HOT, config(), ring, these);
}

/// Changes packets after a producer in assembly, which the program defines, has stored an item in the sentinel slot at
/// the end of a packet.
pub fn landed(ring: &'static Ring) {
    recorder().landed(&HOT, config(), ring, ring.pick_up(), None);
}

/// Does the same for `kymo_ring_put`, which has picked up the item and unmasked interrupts before the call.
///
/// # Safety
/// `ring` is static.
#[cfg(all(kymo_assembly, target_arch = "arm"))]
unsafe extern "C" fn put_from_sentinel(ring: *const Ring, id: u32, data: usize) {
    // SAFETY: by this function's contract; only the address of the counter is taken.
    let (ring, counter) = unsafe { (&*ring, &raw const kymo_counter) };
    recorder().landed(&HOT, config(), ring, Item { id, data }, Some(counter));
}

#[cfg(all(kymo_assembly, target_arch = "arm"))]
kymo_arch_cortex_m::items!(Ring, put_from_sentinel);

/// Returns the items after `cursor`.
pub fn drain(cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
    items().map_or_else(Drained::default, |ring| ring.drain(cursor, out))
}

/// Reserves a record of `length` bytes; null if that is not possible.
pub fn reserve(length: usize) -> *mut u8 {
    recorder().reserve(&HOT, config(), length)
}

/// Finishes a reserved record with this type; 0 discards it.
///
/// # Safety
/// Same as [`Single::commit`].
pub unsafe fn commit(data: *mut u8, kind: u16) {
    // SAFETY: by this function's contract.
    unsafe { recorder().commit(&HOT, data, kind) };
}
