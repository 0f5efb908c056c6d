//! The hooks and the functions of `kymo.h`, with their state.

use kymo_arch_cortex_m::CortexM;
use kymo_recorder::Edge;
use kymo_recorder::config::{Config, Kept, note};
use kymo_recorder::gate::code;
use kymo_recorder::hot::Hot;
use kymo_recorder::minimal::Minimal;
use kymo_wire::event::Layout;
use kymo_wire::note::NOTE_BYTES;

/// State that the hooks check first. In `.data`, so that nothing is recorded until start-up code has copied that
/// section. A debugger that reads RAM finds the end of the newest packet in it: see `.note.kymo`.
#[unsafe(export_name = "kymo_hot")]
static HOT: Hot = Hot::new(&raw const HOT);

/// The rest of the recorder's state, in `.bss`.
#[unsafe(export_name = "kymo_recorder")]
static RECORDER: Minimal<CortexM> = Minimal::new(CortexM::new());

/// An ELF note, with the required alignment.
#[repr(C, align(4))]
struct Note([u8; NOTE_BYTES]);

/// Describes the memory of the recorder, so that packets can be read.
#[used]
#[unsafe(link_section = ".note.kymo")]
static NOTE: Note = Note(note(Layout::NATIVE, Kept::HOT));

// SAFETY: `kymo.h` has the same declaration; a test of the larger library compares the structures.
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

/// Slow path of the entry hook in assembly.
#[cfg(kymo_assembly)]
extern "C" fn slow_enter(function: usize, _call_site: usize) {
    RECORDER.slow_call(&HOT, config(), Edge::Enter, code(function));
}

/// Slow path of the exit hook in assembly.
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
    RECORDER.set_recording(&HOT, config(), true);
}

/// Turns recording off. All packets in the buffer are complete afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_off() {
    RECORDER.set_recording(&HOT, config(), false);
}

/// Extends the clock beyond the counter's width.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_tick() {
    RECORDER.tick(&HOT, config());
}
