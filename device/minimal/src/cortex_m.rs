//! The hooks, the functions of `kymo.h`, and what they work on.

use kymo_arch_cortex_m::CortexM;
use kymo_recorder::Edge;
use kymo_recorder::config::{Config, Kept, note};
use kymo_recorder::gate::code;
use kymo_recorder::hot::Hot;
use kymo_recorder::minimal::Minimal;
use kymo_wire::event::Layout;
use kymo_wire::note::NOTE_BYTES;

/// What hooks look at first: in `.data`, so that nothing is recorded until start-up code has copied
/// that. A debugger that reads RAM finds the end of the newest packet there: see `.note.kymo`.
#[unsafe(export_name = "kymo_hot")]
static HOT: Hot = Hot::new(&raw const HOT);

/// Everything else: in `.bss`.
#[unsafe(export_name = "kymo_recorder")]
static RECORDER: Minimal<CortexM> = Minimal::new(CortexM::new());

/// An ELF note, aligned as one must be.
#[repr(C, align(4))]
struct Note([u8; NOTE_BYTES]);

/// How to read the packets.
#[used]
#[unsafe(link_section = ".note.kymo")]
static NOTE: Note = Note(note(Layout::NATIVE, Kept::HOT));

// SAFETY: `kymo.h` has the same declaration; a test of the larger library compares the structures.
unsafe extern "C" {
    /// The program's.
    static kymo_config: Config;
}

/// The program's configuration.
#[inline(always)]
fn config() -> &'static Config {
    // SAFETY: the program defines it, as a constant.
    unsafe { &kymo_config }
}

/// What the hook at entries leaves to this.
#[cfg(kymo_assembly)]
extern "C" fn slow_enter(function: usize, _call_site: usize) {
    RECORDER.slow_call(&HOT, config(), Edge::Enter, code(function));
}

/// The same of exits.
#[cfg(kymo_assembly)]
extern "C" fn slow_exit(function: usize, _call_site: usize) {
    RECORDER.slow_call(&HOT, config(), Edge::Exit, code(function));
}

#[cfg(kymo_assembly)]
kymo_arch_cortex_m::hooks!(plain, HOT, slow_enter, slow_exit);

/// Called by the compiler at the entry of every function, with `-finstrument-functions`.
#[cfg(not(kymo_assembly))]
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_enter(function: usize, _call_site: usize) {
    RECORDER.call(&HOT, config(), Edge::Enter, code(function));
}

/// Called by the compiler at every return.
#[cfg(not(kymo_assembly))]
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_exit(function: usize, _call_site: usize) {
    RECORDER.call(&HOT, config(), Edge::Exit, code(function));
}

/// Turns recording on.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_on() {
    RECORDER.turn(&HOT, config(), true);
}

/// Turns recording off; then all packets in the buffer are complete.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_off() {
    RECORDER.turn(&HOT, config(), false);
}

/// Keeps the clock's upper bits.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_tick() {
    RECORDER.tick(&HOT, config());
}
