//! The program's configuration: the structures of `kymo.h`.
//!
//! All sizes come from here, at run time, so that one build of the library serves every program. The C header has the
//! documentation for users; a test compiles it and compares every offset with these.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{null, null_mut};

use kymo_wire::event::Layout;
use kymo_wire::note::{NOTE_BYTES, NOWHERE, Note};

use crate::hot::word;
use crate::sync::ALONE;

/// The version of the structures, in [`Config::version`].
pub const CONFIG_VERSION: u32 = 3;

/// [`Config::flags`]: record from the first event on, without a trigger.
pub const START_ON: u32 = 1;
/// [`Config::flags`]: when the buffer is full, keep the oldest events.
pub const FIXED: u32 = 2;
/// [`Config::flags`]: a reader takes packets out while recording goes on. When it is late, new events are counted and
/// not kept.
pub const STREAM: u32 = 4;

/// [`Config::flags`]: record the call site with every entry.
pub const CALL_SITES: u32 = 8;

/// [`Config::flags`]: single shot. After the stopper has returned the trigger has no effect, until events are cleared
/// or the trigger is set.
pub const ONCE: u32 = 16;

/// A function of the program.
pub type Function = unsafe extern "C" fn();

/// [`Promotion::kind`]: records an entry as a switch to the current thread; an exit as nothing.
pub const PROMOTE_SWITCHED_IN: u16 = 1;
/// [`Promotion::kind`]: records an entry as a switch away from the current thread; an exit as nothing.
pub const PROMOTE_SWITCHED_OUT: u16 = 2;
/// [`Promotion::kind`]: records entry and exit of an interrupt, besides the call.
pub const PROMOTE_ISR: u16 = 3;
/// [`Promotion::kind`]: records neither entry nor exit.
pub const PROMOTE_NOTHING: u16 = 4;

/// A function whose entry and exit are recorded as something else.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Promotion {
    /// The function.
    pub function: Option<Function>,
    /// One of the `PROMOTE_` constants.
    pub kind: u16,
    /// The interrupt's number, for [`PROMOTE_ISR`].
    pub irq: u16,
}

/// The program's configuration: `kymo_config` in C. See `kymo.h` for each field.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "kymo.h documents them, for both languages")]
pub struct Config {
    pub version: u32,
    pub flags: u32,
    pub buffer: *mut c_void,
    pub buffer_size: u32,
    pub packet_size: u32,
    pub metadata: *mut c_void,
    pub metadata_size: u32,
    pub slots: *mut c_void,
    pub slot_count: u32,
    pub frames: *mut c_void,
    pub shadow_stacks: u32,
    pub shadow_depth: u32,
    pub promotions: *const Promotion,
    pub promotion_count: u32,
    pub trigger: Option<Function>,
    pub stopper: Option<Function>,
    pub retained: *mut c_void,
    pub text_base: *const c_void,
    pub function_shift: u32,
    pub counter: *const u32,
    pub clock: Option<unsafe extern "C" fn() -> u32>,
    pub clock_hz: u64,
    pub clock_bits: u32,
    pub tick_hz: u32,
    pub current_thread: Option<unsafe extern "C" fn() -> usize>,
    pub send: Option<unsafe extern "C" fn(*const u8, usize)>,
    pub reboot: Option<unsafe extern "C" fn()>,
    pub build_id_note: *const c_void,
    pub cpu_count: u32,
}

// SAFETY: it is constant; what it points to is only used by the recorder, under its own rules.
unsafe impl Sync for Config {}

impl Config {
    /// Every field zero, as of a C initializer that omits it.
    pub const EMPTY: Self = Self {
        version: 0,
        flags: 0,
        buffer: null_mut(),
        buffer_size: 0,
        packet_size: 0,
        metadata: null_mut(),
        metadata_size: 0,
        slots: null_mut(),
        slot_count: 0,
        frames: null_mut(),
        shadow_stacks: 0,
        shadow_depth: 0,
        promotions: null(),
        promotion_count: 0,
        trigger: None,
        stopper: None,
        retained: null_mut(),
        text_base: null(),
        function_shift: 0,
        counter: null(),
        clock: None,
        clock_hz: 0,
        clock_bits: 0,
        tick_hz: 0,
        current_thread: None,
        send: None,
        reboot: None,
        build_id_note: null(),
        cpu_count: 0,
    };

    /// Returns this configuration unchanged. Compilation fails for one with several processors if the target's recorder
    /// excludes other writers by masking the interrupts of one, which does not exclude the other processors.
    pub const fn checked(self) -> Self {
        assert!(
            !ALONE || self.cpu_count <= 1,
            "cpu_count: the recorder for this target is made for one processor"
        );
        self
    }
}

/// Locations in a recorder that readers of RAM need: [`kymo_wire::note`].
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// [`Note::at_offset`].
    pub at: u32,
    /// [`Note::stride`].
    pub stride: u32,
    /// [`Note::rings_offset`].
    pub rings: u32,
    /// [`Note::ring_next_offset`].
    pub ring_next: u16,
    /// [`Note::discarded_offset`].
    pub discarded: u32,
    /// [`Note::state_slots`] and [`Note::state_offset`]; `None` where there is no profile table.
    pub table: Option<(u8, u32)>,
}

impl Kept {
    /// No fixed locations.
    pub const NOWHERE: Self = Self {
        at: NOWHERE,
        stride: 0,
        rings: NOWHERE,
        ring_next: 0,
        discarded: NOWHERE,
        table: None,
    };

    /// The location of one stream in `kymo_hot`, without items.
    pub const HOT: Self = Self {
        at: (word::AT * size_of::<usize>()) as u32,
        ..Self::NOWHERE
    };
}

/// The note that describes how to read the recorder's packets from RAM ([`kymo_wire::note`]).
pub const fn note(layout: Layout, kept: Kept) -> [u8; NOTE_BYTES] {
    let (slots_offset, (state_slots, state_offset)) = match kept.table {
        Some(table) => (offset_of!(Config, slots) as u16, table),
        None => (0, (0, NOWHERE)),
    };
    Note {
        layout,
        buffer_offset: offset_of!(Config, buffer) as u16,
        buffer_size_offset: offset_of!(Config, buffer_size) as u16,
        packet_size_offset: offset_of!(Config, packet_size) as u16,
        function_shift_offset: offset_of!(Config, function_shift) as u16,
        text_base_offset: offset_of!(Config, text_base) as u16,
        at_offset: kept.at,
        stride: kept.stride,
        rings_offset: kept.rings,
        clock_hz_offset: offset_of!(Config, clock_hz) as u16,
        metadata_offset: offset_of!(Config, metadata) as u16,
        metadata_size_offset: offset_of!(Config, metadata_size) as u16,
        cpu_count_offset: offset_of!(Config, cpu_count) as u16,
        ring_next_offset: kept.ring_next,
        discarded_offset: kept.discarded,
        slots_offset,
        state_slots,
        state_offset,
    }
    .to_bytes()
}

/// Layout that readers of memory rely on ([`kymo_wire::note`]).
const _: () =
    assert!(offset_of!(Config, slot_count) == offset_of!(Config, slots) + size_of::<*mut c_void>());

/// Sizes in `kymo.h` for 32-bit programs. (A test compares every offset on the host, and checks that the header asserts
/// these sizes on 32-bit machines too.)
#[cfg(target_pointer_width = "32")]
const _: () = {
    assert!(size_of::<Config>() == 128);
    assert!(offset_of!(Config, clock_hz) == 88);
    assert!(offset_of!(Config, build_id_note) == 116);
    assert!(size_of::<Promotion>() == 8);
    assert!(size_of::<crate::profile::Slot>() == 48);
    assert!(size_of::<crate::profile::Frame>() == 32);
};
