//! Control by plain memory writes: `kymo_control_t`.
//!
//! A debugger writes what it wants, then `request`. The program's next poll applies that, clears `request`, and
//! stores the recorder's state beside it, so that a debugger needs neither a link nor the recorder's own structures.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kymo_wire::link::Mode;

use crate::gate::code;
use crate::link::Control;

/// The word that identifies the structure: `KYMO_CONTROL_MAGIC` in `kymo_control.h`.
pub const MAGIC: u32 = 0x4B79_4374;

/// The version of the structure.
pub const VERSION: u32 = 1;

/// [`Memory::request`]: disables or enables recording, as the command does.
const ENABLED: u32 = 1;
/// [`Memory::request`]: turns recording on or off.
const RECORDING: u32 = 2;
/// [`Memory::request`]: sets the mode, and clears.
const MODE: u32 = 4;
/// [`Memory::request`]: sets the trigger.
const TRIGGER: u32 = 8;
/// [`Memory::request`]: sets the stopper.
const STOPPER: u32 = 16;
/// [`Memory::request`]: sets whether the trigger turns recording on only once.
const ONCE: u32 = 32;
/// [`Memory::request`]: drops all events.
const CLEAR: u32 = 64;

/// All of [`Memory::request`].
const ALL: u32 = 2 * CLEAR - 1;

/// The state that can be changed: `kymo_control_values_t`.
#[repr(C)]
#[derive(Debug)]
struct Values {
    enabled: AtomicU32,
    recording: AtomicU32,
    mode: AtomicU32,
    once: AtomicU32,
    trigger: AtomicUsize,
    stopper: AtomicUsize,
}

/// The program's structure: `kymo_control_t`, whose fields `kymo_control.h` documents.
#[repr(C)]
#[derive(Debug)]
pub struct Memory {
    magic: u32,
    version: u32,
    size: u32,
    request: AtomicU32,
    refused: AtomicU32,
    applied: AtomicU32,
    wanted: Values,
    now: Values,
    packets: AtomicU32,
    bytes: AtomicU32,
    lost: AtomicU32,
    hooks_refused: AtomicU32,
    clock_gaps: AtomicU32,
    setup_error: AtomicU32,
}

const fn number(mode: Mode) -> u32 {
    match mode {
        Mode::Overwrite => 0,
        Mode::Fixed => 1,
        Mode::Stream => 2,
    }
}

const fn mode(number: u32) -> Option<Mode> {
    match number {
        0 => Some(Mode::Overwrite),
        1 => Some(Mode::Fixed),
        2 => Some(Mode::Stream),
        _ => None,
    }
}

/// Loads a word that a debugger may have written.
fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Acquire)
}

/// Applies what was requested in `memory`, and stores the state there. While `is_read`, a host is reading a stream, and
/// what would drop its packets is refused.
pub(crate) fn follow(control: &impl Control, memory: &Memory, is_read: bool) {
    if memory.magic != MAGIC
        || memory.version != VERSION
        || (memory.size as usize) < size_of::<Memory>()
    {
        return;
    }
    let request = load(&memory.request);
    if request != 0 {
        let refused = if is_read { request & (MODE | CLEAR) } else { 0 };
        let more = apply(control, &memory.wanted, request & !refused);
        memory.refused.store(refused | more, Ordering::Relaxed);
        let applied = memory.applied.load(Ordering::Relaxed);
        memory
            .applied
            .store(applied.wrapping_add(1), Ordering::Relaxed);
    }
    let status = control.status();
    let (trigger, stopper) = control.sets();
    let now = &memory.now;
    for (word, value) in [
        (&now.enabled, status.enabled.into()),
        (&now.recording, status.on.into()),
        (&now.mode, number(status.mode)),
        (&now.once, status.once.is_some().into()),
        (&memory.packets, status.figures.packets),
        (&memory.bytes, status.figures.bytes),
        (&memory.lost, status.figures.discarded),
        (&memory.hooks_refused, status.refused),
        (&memory.clock_gaps, status.clock_gaps),
        (
            &memory.setup_error,
            status
                .setup_error
                .map_or(0, |error| error.fault.number().into()),
        ),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    now.trigger.store(trigger, Ordering::Relaxed);
    now.stopper.store(stopper, Ordering::Relaxed);
    if request != 0 {
        // Last: a debugger that waits for it finds the state that its request led to.
        memory.request.store(0, Ordering::Release);
    }
}

/// Applies the requested part of `wanted`; returns which part was refused.
fn apply(control: &impl Control, wanted: &Values, request: u32) -> u32 {
    let has = |part: u32| request & part != 0;
    let mut refused = request & !ALL;
    if has(MODE) {
        let done = mode(load(&wanted.mode)).map(|mode| control.set_mode(mode));
        if !matches!(done, Some(Ok(()))) {
            refused |= MODE;
        }
    }
    if has(TRIGGER) || has(STOPPER) {
        let (trigger, stopper) = control.sets();
        let new = |part, word: &AtomicUsize, old| match has(part) {
            true => code(word.load(Ordering::Relaxed)),
            false => old,
        };
        control.set_sets(
            new(TRIGGER, &wanted.trigger, trigger),
            new(STOPPER, &wanted.stopper, stopper),
        );
    }
    if has(ONCE) {
        control.set_once(load(&wanted.once) != 0);
    }
    if has(CLEAR) && control.clear().is_err() {
        refused |= CLEAR;
    }
    if has(RECORDING) {
        control.set_recording(load(&wanted.recording) != 0);
    }
    if has(ENABLED) {
        control.enable(load(&wanted.enabled) != 0);
    }
    refused
}
