//! Safe construction of a configuration: its memory is typed, and sizes follow from the types.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use kymo_recorder::buffer::{MAX_PACKET, MIN_PACKET};
use kymo_recorder::profile::{Frame, Slot, check_stacks};

use crate::link::{Link, send};
use crate::{Buffer, CONFIG_VERSION, Config, Function, Promotion, Retained};

/// Memory for events: `PACKETS` packets of `BYTES` bytes. Zero-initialized.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Packets<const BYTES: usize, const PACKETS: usize>(
    UnsafeCell<MaybeUninit<[[u8; BYTES]; PACKETS]>>,
);

// SAFETY: only the recorder uses what is inside, under its own rules.
unsafe impl<const BYTES: usize, const PACKETS: usize> Sync for Packets<BYTES, PACKETS> {}

impl<const BYTES: usize, const PACKETS: usize> Packets<BYTES, PACKETS> {
    /// Creates zeroed memory. Sizes that the recorder refuses are compile-time errors.
    pub const fn new() -> Self {
        const {
            assert!(
                BYTES.is_multiple_of(8),
                "a packet's bytes are a multiple of 8"
            );
            assert!(
                BYTES >= MIN_PACKET as usize && BYTES <= MAX_PACKET as usize,
                "a packet has 128 to 524288 bytes"
            );
            assert!(PACKETS >= 2, "there are at least two packets");
            assert!(
                PACKETS <= u32::MAX as usize / BYTES,
                "all packets together have less than 4 GiB"
            );
        }
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }
}

impl<const BYTES: usize, const PACKETS: usize> Default for Packets<BYTES, PACKETS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory for a profile table: `SLOTS` functions, and `STACKS` shadow stacks of `DEPTH` frames. One stack is for
/// interrupts, each of the others for one thread at a time. One frame of each stack is the stack's own.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Table<const SLOTS: usize, const STACKS: usize, const DEPTH: usize> {
    slots: UnsafeCell<MaybeUninit<[Slot; SLOTS]>>,
    frames: UnsafeCell<MaybeUninit<[[Frame; DEPTH]; STACKS]>>,
}

// SAFETY: as above.
unsafe impl<const SLOTS: usize, const STACKS: usize, const DEPTH: usize> Sync
    for Table<SLOTS, STACKS, DEPTH>
{
}

impl<const SLOTS: usize, const STACKS: usize, const DEPTH: usize> Table<SLOTS, STACKS, DEPTH> {
    /// Creates zeroed memory. Sizes that the recorder refuses are compile-time errors.
    pub const fn new() -> Self {
        const {
            assert!(
                SLOTS >= 3,
                "a table has at least 3 slots, two of which may be its own"
            );
            assert!(
                SLOTS <= u32::MAX as usize / size_of::<Slot>(),
                "too many slots"
            );
            assert!(
                STACKS <= u32::MAX as usize
                    && DEPTH <= u32::MAX as usize
                    && check_stacks(STACKS as u32, DEPTH as u32).is_ok(),
                "a table has 2 to 32 stacks of 2 to 65535 frames"
            );
        }
        Self {
            slots: UnsafeCell::new(MaybeUninit::zeroed()),
            frames: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }
}

impl<const SLOTS: usize, const STACKS: usize, const DEPTH: usize> Default
    for Table<SLOTS, STACKS, DEPTH>
{
    fn default() -> Self {
        Self::new()
    }
}

/// A configuration and its memory, for [`recorder!`](crate::recorder). Settings that are not made are as in
/// [`Config::EMPTY`]; `kymo.h` describes each field.
#[derive(Debug)]
pub struct Recorder(Config);

impl Recorder {
    /// Creates a configuration that records into these packets.
    pub const fn new<const BYTES: usize, const PACKETS: usize>(
        packets: &'static Packets<BYTES, PACKETS>,
    ) -> Self {
        Self(Config {
            version: CONFIG_VERSION,
            buffer: packets.0.get().cast(),
            buffer_size: (BYTES * PACKETS) as u32,
            packet_size: BYTES as u32,
            ..Config::EMPTY
        })
    }

    /// Sets [flags](Config::flags): [`START_ON`](crate::START_ON) and others.
    pub const fn flags(mut self, flags: u32) -> Self {
        self.0.flags = flags;
        self
    }

    /// Sets the memory for names and other metadata.
    pub const fn names<const BYTES: usize>(mut self, names: &'static Buffer<BYTES>) -> Self {
        const { assert!(BYTES <= u32::MAX as usize, "less than 4 GiB") };
        self.0.metadata = names.get();
        self.0.metadata_size = BYTES as u32;
        self
    }

    /// Sets the memory for a profile table.
    pub const fn table<const SLOTS: usize, const STACKS: usize, const DEPTH: usize>(
        mut self,
        table: &'static Table<SLOTS, STACKS, DEPTH>,
    ) -> Self {
        self.0.slots = table.slots.get().cast();
        self.0.slot_count = SLOTS as u32;
        self.0.frames = table.frames.get().cast();
        self.0.shadow_stacks = STACKS as u32;
        self.0.shadow_depth = DEPTH as u32;
        self
    }

    /// Replaces the calls of these functions with other events.
    pub const fn promotions(mut self, promotions: &'static [Promotion]) -> Self {
        self.0.promotions = promotions.as_ptr();
        self.0.promotion_count = promotions.len() as u32;
        self
    }

    /// Turns recording on at the entry of `trigger`, and off at the exit of `stopper`.
    pub const fn between(mut self, trigger: Option<Function>, stopper: Option<Function>) -> Self {
        self.0.trigger = trigger;
        self.0.stopper = stopper;
        self
    }

    /// Keeps trigger and stopper in this memory over a reboot.
    pub const fn retained(mut self, retained: &'static Retained) -> Self {
        self.0.retained = retained.get();
        self
    }

    /// Numbers functions from this address on, usually that of a linker script's symbol.
    pub const fn text_base(mut self, text_base: *const c_void) -> Self {
        self.0.text_base = text_base;
        self
    }

    /// Sets the clock's frequency in ticks per second.
    pub const fn clock_hz(mut self, hz: u64) -> Self {
        self.0.clock_hz = hz;
        self
    }

    /// Reads the clock from this register, a 32-bit counter that counts up.
    pub const fn counter(mut self, counter: &'static AtomicU32) -> Self {
        self.0.counter = counter.as_ptr().cast_const();
        self
    }

    /// Reads the clock by a function, which counts up in `bits` bits and may be called from any context.
    pub const fn clock(mut self, clock: extern "C" fn() -> u32, bits: u32) -> Self {
        self.0.clock = Some(clock);
        self.0.clock_bits = bits;
        self
    }

    /// Sets how often per second the program calls [`tick`](crate::tick).
    pub const fn tick_hz(mut self, hz: u32) -> Self {
        self.0.tick_hz = hz;
        self
    }

    /// Sets a function that returns the running thread, and that may be called from any context.
    pub const fn current_thread(mut self, current_thread: extern "C" fn() -> usize) -> Self {
        self.0.current_thread = Some(current_thread);
        self
    }

    /// Sends to the host by this function, whose arguments are a pointer to readable bytes and their number.
    pub const fn send(mut self, send: unsafe extern "C" fn(*const u8, usize)) -> Self {
        self.0.send = Some(send);
        self
    }

    /// Sends to the host through this link; call [`poll_link`](crate::poll_link) for the other direction.
    pub const fn link<L: Link>(mut self) -> Self {
        self.0.send = Some(send::<L>);
        self
    }

    /// Sets a function that resets the machine.
    pub const fn reboot(mut self, reboot: extern "C" fn()) -> Self {
        self.0.reboot = Some(reboot);
        self
    }

    /// Returns the configuration.
    #[doc(hidden)]
    pub const fn config(self) -> Config {
        self.0
    }
}

/// Defines the program's recorder, once per program, from a [`Recorder`]. Needs no `unsafe`, because the memory is
/// typed.
///
/// ```no_run
/// use kymo::{Buffer, Packets, Recorder, Table};
///
/// static EVENTS: Packets<1024, 64> = Packets::new();
/// static NAMES: Buffer<512> = Buffer::new();
/// static TABLE: Table<128, 3, 32> = Table::new();
///
/// kymo::recorder!(
///     Recorder::new(&EVENTS)
///         .flags(kymo::START_ON)
///         .names(&NAMES)
///         .table(&TABLE)
///         .clock_hz(64_000_000)
/// );
/// # fn main() {}
/// ```
///
/// Invalid sizes are compile-time errors:
///
/// ```compile_fail
/// static EVENTS: kymo::Packets<500, 64> = kymo::Packets::new();
/// kymo::recorder!(kymo::Recorder::new(&EVENTS));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! recorder {
    ($recorder:expr $(,)?) => {
        #[allow(non_upper_case_globals)]
        // SAFETY: only a program that defines its recorder twice has two symbols of this name, and does not link.
        #[unsafe(no_mangle)]
        static kymo_config: $crate::Config = {
            const RECORDER: $crate::Recorder = $recorder;
            RECORDER.config()
        };
    };
}
