//! Set-up of the recorder: checks the program's configuration, and applies it or reports the error.

use core::ptr::null;

use kymo_wire::event::{Cause, WordSize};
use kymo_wire::link::{Fault, SetupError};

use super::{Single, SinglePort};
use crate::WriterMemory;
use crate::clock::Rate;
use crate::config::{CONFIG_VERSION, Config, START_ON};
use crate::hot::Hot;
use crate::identity::{build_id_of, functions, mode};

impl<P: SinglePort + 'static> Single<P> {
    /// Whether RAM is initialized, so that the recorder may be used. Sets the recorder up if it is not yet; without a
    /// clock the next call tries again.
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
                self.set_recording_outside(&hot.gate, true, Cause::Build);
            }
        }
        true
    }

    /// Sets the recorder up; returns whether this call did it.
    #[cold]
    #[inline(never)]
    fn set_up(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        let gate = &hot.gate;
        let done = self.masked(|| {
            if !gate.state().fresh() {
                return false;
            }
            const NO_CLOCK: u8 = Fault::NoClock.number();
            let (fault, value) = match self.try_set_up(hot, config) {
                Ok(()) => (0, 0),
                Err(error) => (error.fault.number(), error.value),
            };
            self.fault.set(fault);
            self.culprit.set(value);
            match fault {
                0 => gate.set_up(false, false),
                NO_CLOCK => gate.set_up(false, true),
                _ => gate.set_up(true, false),
            }
            fault == 0
        });
        done == Some(true)
    }

    fn try_set_up(&self, hot: &'static Hot, config: &'static Config) -> Result<(), SetupError> {
        let (gate, stream) = (&hot.gate, self.writer.stream());
        if !self.port.is_privileged() {
            return Err(Fault::Unprivileged.of(0));
        }
        if config.version != CONFIG_VERSION {
            return Err(Fault::Version.of(config.version as usize));
        }
        if config.cpu_count > 1 {
            return Err(Fault::OneCpu.of(config.cpu_count as usize));
        }
        let build_id = build_id_of(config);
        // Names may be added before there is a clock.
        let has_metadata = cfg!(feature = "metadata") && !config.metadata.is_null();
        if has_metadata && !self.metadata.is_set_up() {
            // SAFETY: the program gives its memory to the recorder, and describes it truly.
            unsafe {
                self.metadata
                    .set_up(config.metadata.cast(), config.metadata_size, 0)?;
            }
            self.metadata.build_id(0, build_id);
        }
        let wrap = match config.clock {
            _ if !config.counter.is_null() => 0,
            Some(_) if (8..=32).contains(&config.clock_bits) => 2 << (config.clock_bits - 1),
            Some(_) => return Err(Fault::ClockBits.of(config.clock_bits as usize)),
            None => self.port.find_counter().ok_or(Fault::NoClock.of(0))?,
        };
        let rate = Rate::of_counter(config.clock_hz, wrap, config.tick_hz);
        if rate.hz == 0 {
            return Err(Fault::ClockHz.of(0));
        }
        self.clock.set_up(&rate);
        // SAFETY: the program gives its memory to the recorder, and describes it and its promotions truly.
        unsafe {
            let numbers = (0, functions(config));
            self.writer
                .set_up(config, &hot.cursor, numbers, WriterMemory::of(config))?;
        }
        stream.set_mode(mode(config));
        let counter = self.fast_counter(config, wrap);
        hot.cursor.counter.set(counter);
        // The clock can be read from here on. It begins at the counter's value.
        let now = self.advance();
        // After the table, on which the choice depends.
        self.writer.allow_fast(!counter.is_null());
        if has_metadata {
            self.metadata.clock(0, rate.hz, rate.bits());
            if rate.tick_hz != 0 {
                self.metadata.compare_tick(now, 0, rate.tick_hz);
            }
        }
        self.once.set(gate.restore_sets(config, build_id));
        #[cfg(feature = "duration")]
        self.set_up_duration(hot, config, build_id);
        #[cfg(feature = "sums")]
        self.give_sums(crate::sums::of_program());
        Ok(())
    }

    /// Whether a hook may continue: in a library built as [`checked`](crate), each hook checks that it can mask
    /// interrupts, once the recorder is set up.
    #[inline(always)]
    pub(super) fn is_allowed(&self, hot: &Hot) -> bool {
        !cfg!(feature = "checked") || self.port.is_privileged() || {
            let state = hot.gate.state();
            let refused = state.alive() && state.set_up() && !state.claimed();
            if refused {
                self.can_mask(hot);
            }
            // The set-up itself refuses a recorder that is not set up yet.
            !refused
        }
    }

    /// Checks, at changes of packets, that interrupts can be masked here. If not, stops recording for good, and
    /// `status` reports why: records since the last check may be torn.
    #[inline(never)]
    pub(super) fn can_mask(&self, hot: &Hot) -> bool {
        if self.port.is_privileged() {
            return true;
        }
        self.fault.set(Fault::Unprivileged.number());
        self.culprit.set(0);
        hot.gate.set_up(true, false);
        self.writer.stream().suspend();
        false
    }

    /// Properties of the clock, once it has been set up.
    pub(super) fn rate(&self, config: &Config) -> Rate {
        Rate::of_counter(config.clock_hz, self.clock.wrap(), config.tick_hz)
    }

    /// Address of the counter for the fast path: a 32-bit counter with a known address, on a target whose cursor keeps
    /// 32 bits of the time. Null if there is none.
    fn fast_counter(&self, config: &Config, wrap: u32) -> *const u32 {
        if P::LAYOUT.word != WordSize::Bits32 || wrap != 0 {
            null()
        } else if !config.counter.is_null() || config.clock.is_some() {
            config.counter
        } else {
            self.port.counter_address().unwrap_or_default()
        }
    }
}
