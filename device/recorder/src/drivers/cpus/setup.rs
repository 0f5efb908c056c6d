//! Set-up: of the recorder by the first CPU, and of each CPU by itself.

use kymo_wire::event::Cause;
use kymo_wire::link::{Fault, SetupError};

use super::{CpuBuffer, CpuItems, Cpus, CpusPort};
use crate::WriterMemory;
use crate::clock::Rate;
use crate::config::{CONFIG_VERSION, Config, START_ON};
use crate::gate::Gate;
use crate::identity::{build_id_of, functions, mode, retained};
use crate::profile::Slot;
use crate::sync::Ordering;

/// Alignment of each CPU's memory in bytes, so that no two CPUs share a cache line.
pub const LINE: usize = 128;

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Starts recording of the calling CPU as number `number`; the first one sets the recorder up. Returns false if
    /// there is no buffer for a CPU of this number (its events are counted), or the configuration is invalid. `items`
    /// is the memory for items, if the program uses any.
    pub fn start(
        &'static self,
        gate: &Gate,
        config: &'static Config,
        items: Option<&'static CpuItems>,
        number: u16,
    ) -> bool {
        if !gate.state().alive() {
            return false;
        }
        let was = self.port.mask();
        let assign_buffer = || {
            let cpu_buffer = self.cpu_buffers().get(usize::from(number))?;
            let place = core::ptr::from_ref::<CpuBuffer<P>>(cpu_buffer);
            self.port.set_cpu_pointer(place.cast());
            Some(cpu_buffer)
        };
        self.shared.lock.with(&self.port, || {
            if gate.state().fresh() && gate.claim() {
                self.shared.config.set(Some(config));
                let result = self.try_set_up(gate, config);
                self.give_items(config, items);
                self.shared.fault.set(result.err());
                #[cfg(feature = "cost")]
                if let (Ok(()), Some(cpu_buffer)) = (result, assign_buffer()) {
                    self.measure(gate, cpu_buffer);
                }
                // After the measurement: its calls are not the program's.
                #[cfg(feature = "duration")]
                if result.is_ok() {
                    self.set_up_duration(gate, config);
                }
                gate.set_up(result.is_err(), false);
            }
        });
        let cpu_buffer = assign_buffer();
        let first =
            cpu_buffer.is_some() && config.flags & START_ON != 0 && !gate.state().was_ever_on();
        self.port.unmask(was);
        if cpu_buffer.is_some() {
            self.inside(gate, |cpu_buffer| {
                cpu_buffer.writer.query_thread();
                if first {
                    self.set_recording_inside(cpu_buffer, gate, true, Cause::Build);
                }
            });
        }
        cpu_buffer.is_some()
    }

    fn try_set_up(&'static self, gate: &Gate, config: &'static Config) -> Result<(), SetupError> {
        if config.version != CONFIG_VERSION {
            return Err(Fault::Version.of(config.version as usize));
        }
        let count = config.cpu_count.max(1);
        if count as usize > N {
            return Err(Fault::Cpus.of(count as usize));
        }
        let rate = self.rate(config)?;
        let size = config.buffer_size;
        for value in [config.buffer as usize, size as usize] {
            if count > 1 && !value.is_multiple_of(LINE) {
                return Err(Fault::CpuBuffers.of(value));
            }
        }
        self.set_up_stacks(config, count)?;
        for (i, cpu_buffer) in self.cpu_buffers.iter().take(count as usize).enumerate() {
            let buffer = config.buffer.cast::<u8>().wrapping_add(i * size as usize);
            let first = i * config.slot_count as usize;
            let memory = WriterMemory {
                buffer: (buffer, size),
                slots: config.slots.cast::<Slot>().wrapping_add(first),
                pool: Some(&self.shared.pool),
                ..WriterMemory::of(config)
            };
            // SAFETY: the program gives its memory to the recorder, `count` contiguous buffers of this size and as many
            // arrays of slots, and describes it and its promotions truly. Every CPU calls `current_thread` for itself.
            // The stacks are set up.
            unsafe {
                let numbers = (i as u16, functions(config));
                cpu_buffer
                    .writer
                    .set_up(config, &cpu_buffer.cursor, numbers, memory)?;
            }
            cpu_buffer.writer.stream().set_mode(mode(config));
            cpu_buffer.function.set(config.clock);
            cpu_buffer.writer.allow_fast(config.clock.is_none());
        }
        if let (Some(clock), Some(rate)) = (config.clock, &rate) {
            // All begin with the same reading, so that CPUs that read one counter have the same time.
            // SAFETY: the program gives a function that may be called from any context.
            let raw = unsafe { clock() };
            for cpu_buffer in &self.cpu_buffers {
                cpu_buffer.clock.set_up(rate);
                cpu_buffer.clock.advance(raw);
            }
        }
        if !config.metadata.is_null() {
            let metadata = &self.shared.metadata;
            let now = if rate.is_some() {
                0
            } else {
                self.port.counter()
            };
            // SAFETY: as above.
            unsafe { metadata.set_up(config.metadata.cast(), config.metadata_size, now)? };
            metadata.build_id(now, build_id_of(config));
            metadata.clock(now, self.hz(config), self.clock_bits(config));
            if config.tick_hz != 0 {
                metadata.compare_tick(now, now, config.tick_hz);
            }
        }
        self.shared
            .once
            .set(gate.restore_sets(config, build_id_of(config)));
        self.shared.count.store(count, Ordering::Release);
        Ok(())
    }

    /// Gives every CPU its ring.
    fn give_items(&'static self, config: &Config, items: Option<&'static CpuItems>) {
        let Some(items) = items else { return };
        for (cpu, cpu_buffer) in self.cpu_buffers.iter().enumerate() {
            let Some(memory) = items.of::<P>(cpu) else {
                return;
            };
            // SAFETY: the program gives this memory to the recorder, and describes it truly; nobody has
            // produced anything.
            if unsafe { cpu_buffer.ring.give(memory, items.packets, cpu as u16) } {
                cpu_buffer.ring.set_mode(mode(config));
                cpu_buffer.rings.add(&cpu_buffer.ring);
            }
        }
    }

    /// Properties of the program's clock; `None` if the processors' counter is the clock.
    fn rate(&self, config: &Config) -> Result<Option<Rate>, SetupError> {
        match config.clock {
            None if self.port.counter_hz() == 0 && config.clock_hz == 0 => {
                Err(Fault::ClockHz.of(0))
            }
            None => Ok(None),
            Some(_) if !(8..=32).contains(&config.clock_bits) => {
                Err(Fault::ClockBits.of(config.clock_bits as usize))
            }
            Some(_) if config.clock_hz == 0 => Err(Fault::ClockHz.of(0)),
            Some(_) => Ok(Some(Rate::of_counter(
                config.clock_hz,
                1u32.checked_shl(config.clock_bits).unwrap_or(0),
                config.tick_hz,
            ))),
        }
    }

    /// Frequency of the clock in Hz.
    pub(super) fn hz(&self, config: &Config) -> u64 {
        match config.clock_hz {
            0 => self.port.counter_hz(),
            hz => hz,
        }
    }

    /// Number of bits of the clock's counter.
    pub(super) fn clock_bits(&self, config: &Config) -> u32 {
        config.clock.map_or(64, |_| config.clock_bits)
    }

    /// Saves trigger and stopper for the next boot, where that is possible.
    pub(super) fn keep_sets(&self, gate: &Gate) {
        if let Some(config) = self.shared.config.get() {
            retained(config).store(gate.sets(self.shared.once.get()), build_id_of(config));
        }
    }
}
