//! Hooks with C symbols that every program has, because the recorder calls them to measure what they cost: portable
//! `-finstrument-functions` hooks (some processors have their own in assembly: `device/arch`), and the functions of
//! `kymo.h` for thread switches and interrupts.

#[cfg(not(kymo_assembly))]
use core::ffi::c_void;

#[cfg(not(kymo_assembly))]
use kymo_recorder::Edge;
use kymo_recorder::Event;
#[cfg(not(kymo_assembly))]
use kymo_recorder::gate::code;

use crate::system;

/// Called by the compiler at the entry of every function, with `-finstrument-functions`.
#[cfg(not(kymo_assembly))]
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_enter(function: *const c_void, call_site: *const c_void) {
    system::call(Edge::Enter, code(function as usize), call_site as usize);
}

/// Called by the compiler at every return.
#[cfg(not(kymo_assembly))]
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_exit(function: *const c_void, _call_site: *const c_void) {
    system::call(Edge::Exit, code(function as usize), 0);
}

/// Records that a thread got the processor.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switched_in(thread: usize) {
    system::hook(Event::SwitchedIn(thread));
}

/// Records that a thread lost the processor.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switched_out(thread: usize) {
    system::hook(Event::SwitchedOut(thread));
}

/// Records that an interrupt handler begins.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_isr_enter(irq: u16) {
    system::hook(Event::IsrEnter(irq));
}

/// Records that an interrupt handler ends.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_isr_exit(irq: u16) {
    system::hook(Event::IsrExit(irq));
}
