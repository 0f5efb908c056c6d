//! The first thing a recorder does: taking the program's configuration, or saying what is wrong with
//! it.

use core::ptr::null;

use kymo_wire::event::{Cause, WordSize};

use super::{Single, SinglePort};
use crate::clock::Rate;
use crate::config::{CONFIG_VERSION, Config, Function, START_ON};
use crate::encode::SetupError;
use crate::hot::Hot;
use crate::identity::{build_id_of, functions, mode, retained};
use crate::profile::TableError;
use crate::retained::Retained;

/// Why the recorder is not set up. (No number is 0: that is no fault.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// `kymo_config.version` is not that of this library.
    Version = 1,
    /// There is no event buffer.
    NoBuffer,
    /// It, or a packet, is not aligned.
    BufferAlignment,
    /// A packet is too small or too large.
    PacketSize,
    /// The buffer has not room for whole packets, or for two.
    BufferSize,
    /// There are too few shadow stacks, or too many.
    ShadowStacks,
    /// They have too few frames.
    ShadowDepth,
    /// The memory of the profile table is unusable.
    ProfileMemory,
    /// No clock counts (yet).
    NoClock,
    /// `clock_hz` or `clock_bits` is out of range.
    Rate,
    /// `cpu_count` is more than the library was built for.
    Cpus,
    /// A profile table is wanted of several CPUs.
    ProfileOnCpus,
}

/// What `status` says of each, from 1 on.
const NAMES: [&str; 12] = [
    "config_version",
    "no_buffer",
    "buffer_alignment",
    "packet_size",
    "buffer_size",
    "shadow_stacks",
    "shadow_depth",
    "profile_memory",
    "no_clock",
    "clock_rate",
    "cpu_count",
    "profile_on_cpus",
];

impl Fault {
    /// The word for the fault of this number; `None` if it is 0.
    pub fn name(number: u8) -> Option<&'static str> {
        let at = usize::from(number).checked_sub(1)?;
        NAMES.get(at).copied()
    }
}

impl From<SetupError> for Fault {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::NoBuffer => Self::NoBuffer,
            SetupError::Alignment => Self::BufferAlignment,
            SetupError::PacketSize => Self::PacketSize,
            SetupError::BufferSize => Self::BufferSize,
        }
    }
}

impl From<TableError> for Fault {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Stacks => Self::ShadowStacks,
            TableError::Depth => Self::ShadowDepth,
            TableError::Memory => Self::ProfileMemory,
        }
    }
}

impl<P: SinglePort + 'static> Single<P> {
    /// Whether RAM is initialized, so that the recorder may be touched. Sets it up if it is not yet; without
    /// a clock the next call tries again.
    #[inline(never)]
    pub(super) fn wake(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        let state = hot.gate.state();
        if !state.alive() {
            return false;
        }
        if state.fresh() && self.set_up(hot, config) {
            #[cfg(feature = "cost")]
            self.measure(hot);
            if config.flags & START_ON != 0 {
                self.turn_outside(&hot.gate, true, Cause::Build);
            }
        }
        true
    }

    /// Whether it is set up now, by this.
    #[cold]
    #[inline(never)]
    fn set_up(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        let gate = &hot.gate;
        let done = self.masked(|| {
            if !gate.state().fresh() {
                return false;
            }
            const NO_CLOCK: u8 = Fault::NoClock as u8;
            let fault = match self.try_set_up(hot, config) {
                Ok(()) => 0,
                Err(fault) => fault as u8,
            };
            self.fault.set(fault);
            match fault {
                0 => gate.set_up(false, false),
                NO_CLOCK => gate.set_up(false, true),
                _ => gate.set_up(true, false),
            }
            fault == 0
        });
        done == Some(true)
    }

    fn try_set_up(&self, hot: &'static Hot, config: &'static Config) -> Result<(), Fault> {
        let (gate, stream) = (&hot.gate, self.writer.stream());
        if config.version != CONFIG_VERSION {
            return Err(Fault::Version);
        }
        let turn = match config.clock {
            _ if !config.counter.is_null() => 0,
            Some(_) if (8..=32).contains(&config.clock_bits) => 2 << (config.clock_bits - 1),
            Some(_) => return Err(Fault::Rate),
            None => self.port.find_counter().ok_or(Fault::NoClock)?,
        };
        let rate = Rate::of_turn(config.clock_hz, turn, config.tick_hz);
        if rate.hz == 0 {
            return Err(Fault::Rate);
        }
        self.clock.set_up(&rate);
        // SAFETY: the program gives its buffers to the recorder, and describes them truly.
        unsafe {
            stream.set_up(
                &hot.cursor,
                (config.buffer.cast(), config.buffer_size),
                config.packet_size,
                0,
                functions(config),
            )?;
        }
        let counter = self.fast_counter(config, turn);
        hot.cursor.counter.set(counter);
        // SAFETY: as above.
        unsafe { self.writer.set_up(config) };
        // The clock can be read from here on. It begins where the counter stands.
        self.advance();
        stream.set_mode(mode(config));
        if config.slot_count != 0 && !cfg!(feature = "profile") {
            return Err(Fault::ProfileMemory);
        }
        if config.slot_count != 0 {
            // SAFETY: as above.
            unsafe {
                self.writer.give_table(
                    (config.slots.cast(), config.slot_count),
                    config.frames.cast(),
                    config.shadow_stacks,
                    config.shadow_depth,
                )?;
            }
        }
        // It depends on whether there is a table.
        self.writer.allow_fast(!counter.is_null());
        let build_id = build_id_of(config);
        if cfg!(feature = "metadata") && !config.metadata.is_null() {
            // SAFETY: as above.
            unsafe {
                self.metadata
                    .set_up(config.metadata.cast(), config.metadata_size, 0)?;
            }
            self.metadata.build_id(0, build_id);
            self.metadata.clock(0, rate.hz, rate.bits());
        }
        let built = |function: Option<Function>| function.map_or(0, |function| function as usize);
        let Retained { trigger, stopper } = retained(config).load(build_id).unwrap_or(Retained {
            trigger: built(config.trigger),
            stopper: built(config.stopper),
        });
        gate.set_trigger(trigger);
        gate.set_stopper(stopper);
        Ok(())
    }

    /// How the clock counts, once it has been set up.
    pub(super) fn rate(&self, config: &Config) -> Rate {
        Rate::of_turn(config.clock_hz, self.clock.turn(), config.tick_hz)
    }

    /// The counter that the fast path can read: one of 32 bits whose place is known, on a target
    /// whose cursor keeps so many bits of the time. Null if there is none.
    fn fast_counter(&self, config: &Config, turn: u32) -> *const u32 {
        if P::LAYOUT.word != WordSize::Bits32 || turn != 0 {
            null()
        } else if !config.counter.is_null() || config.clock.is_some() {
            config.counter
        } else {
            self.port.counter_address().unwrap_or_default()
        }
    }
}
