//! A configuration that is put together without `unsafe`: its memory is typed, and sizes follow from the types.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use kymo_recorder::buffer::{MAX_PACKET, MIN_PACKET};
use kymo_recorder::profile::{Frame, Slot, check_stacks};

use crate::link::{Link, send};
use crate::{Buffer, CONFIG_VERSION, Config, Function, Promotion, Retained};

/// Memory for events: `PACKETS` packets of `BYTES` bytes. All zero at first.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Packets<const BYTES: usize, const PACKETS: usize>(
    UnsafeCell<MaybeUninit<[[u8; BYTES]; PACKETS]>>,
);

// SAFETY: only the recorder uses what is inside, under its own rules.
unsafe impl<const BYTES: usize, const PACKETS: usize> Sync for Packets<BYTES, PACKETS> {}

impl<const BYTES: usize, const PACKETS: usize> Packets<BYTES, PACKETS> {
    /// All zero. Sizes that the recorder refuses are an error when this is compiled.
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
            assert!(PACKETS > 0, "there is at least one packet");
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

/// Memory for a profile table: `SLOTS` functions; `STACKS` stacks (one for interrupts, the others for as many threads
/// at a time) of `DEPTH` frames, one of which is the stack's own.
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
    /// All zero. Sizes that the recorder refuses are an error when this is compiled.
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

/// A configuration and its memory, for [`recorder!`](crate::recorder). What is not given is as in
/// [`Config::EMPTY`]; `kymo.h` says what each field means.
#[derive(Debug)]
pub struct Recorder(Config);

impl Recorder {
    /// Records into these packets.
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

    /// Keeps names and facts here.
    pub const fn names<const BYTES: usize>(mut self, names: &'static Buffer<BYTES>) -> Self {
        const { assert!(BYTES <= u32::MAX as usize, "less than 4 GiB") };
        self.0.metadata = names.get();
        self.0.metadata_size = BYTES as u32;
        self
    }

    /// Keeps a profile table here.
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

    /// Records these functions as something else.
    pub const fn promotions(mut self, promotions: &'static [Promotion]) -> Self {
        self.0.promotions = promotions.as_ptr();
        self.0.promotion_count = promotions.len() as u32;
        self
    }

    /// Turns recording on when `trigger` is entered, and off when `stopper` is left.
    pub const fn between(mut self, trigger: Option<Function>, stopper: Option<Function>) -> Self {
        self.0.trigger = trigger;
        self.0.stopper = stopper;
        self
    }

    /// Keeps trigger and stopper over a reboot here.
    pub const fn retained(mut self, retained: &'static Retained) -> Self {
        self.0.retained = retained.get();
        self
    }

    /// Numbers functions from this address on: that of the linker script's symbol.
    pub const fn text_base(mut self, text_base: *const c_void) -> Self {
        self.0.text_base = text_base;
        self
    }

    /// The clock counts so many ticks a second.
    pub const fn clock_hz(mut self, hz: u64) -> Self {
        self.0.clock_hz = hz;
        self
    }

    /// Reads the time from this register, a counter of 32 bits that counts up.
    pub const fn counter(mut self, counter: &'static AtomicU32) -> Self {
        self.0.counter = counter.as_ptr().cast_const();
        self
    }

    /// Reads the time by a function, which counts up in so many bits, from any context.
    pub const fn clock(mut self, clock: extern "C" fn() -> u32, bits: u32) -> Self {
        self.0.clock = Some(clock);
        self.0.clock_bits = bits;
        self
    }

    /// The program calls [`tick`](crate::tick) so many times a second.
    pub const fn tick_hz(mut self, hz: u32) -> Self {
        self.0.tick_hz = hz;
        self
    }

    /// Asks this function which thread runs, from any context.
    pub const fn current_thread(mut self, current_thread: extern "C" fn() -> usize) -> Self {
        self.0.current_thread = Some(current_thread);
        self
    }

    /// Sends to the host by this function, which gets a pointer to readable bytes and their number.
    pub const fn send(mut self, send: unsafe extern "C" fn(*const u8, usize)) -> Self {
        self.0.send = Some(send);
        self
    }

    /// Sends to the host through this link; [`poll_link`](crate::poll_link) does the rest.
    pub const fn link<L: Link>(mut self) -> Self {
        self.0.send = Some(send::<L>);
        self
    }

    /// Restarts the machine by this function.
    pub const fn reboot(mut self, reboot: extern "C" fn()) -> Self {
        self.0.reboot = Some(reboot);
        self
    }

    /// The configuration.
    #[doc(hidden)]
    pub const fn config(self) -> Config {
        self.0
    }
}

/// Defines the program's recorder, once in a program, from a [`Recorder`]: no word `unsafe` is needed, because its
/// memory is typed.
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
/// Sizes that cannot be are errors when the program is compiled:
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
        // SAFETY: only a program that defines its recorder twice has two of this name, which does not link.
        #[unsafe(no_mangle)]
        static kymo_config: $crate::Config = {
            const RECORDER: $crate::Recorder = $recorder;
            RECORDER.config()
        };
    };
}
