//! Set-up of the recorder from the program's configuration and the environment; the process's identity.

use core::sync::atomic::Ordering;

use kymo_recorder::config::{CONFIG_VERSION, Config, Function, ONCE, START_ON};
use kymo_recorder::encode::{Functions, check_sizes};
use kymo_recorder::gate::Gate;
use kymo_recorder::identity::{build_id, functions, identity, mode};
use kymo_recorder::profile::check_stacks;
use kymo_recorder::threads::ThreadPort as _;
use kymo_wire::event::Cause;
use kymo_wire::link::{Fault, Identity, MAX_FUNCTION_SHIFT, SetupError};

use super::{DEFAULT_BUFFER, DEFAULT_METADATA, DEFAULT_PACKET, Process, Sizes};
use crate::port::Linux;
use crate::{elf, settings, sys};
use elf::Answer;

impl Process {
    /// Sets the recorder up at the first hook or constructor; does nothing if it is set up. `config` is the program's
    /// configuration, if it has one; `hook` is the entry hook that functions call, ours or not.
    #[cold]
    pub fn set_up(
        &'static self,
        gate: &'static Gate,
        config: Option<&'static Config>,
        hook: usize,
    ) {
        if !gate.claim() {
            return;
        }
        let answer = elf::answer(hook);
        self.answer.store(answer as u32, Ordering::Relaxed);
        if answer == Answer::Copy {
            return gate.set_up(true, false);
        }
        let config = config.unwrap_or(&DEFAULTS);
        let packet = or_default(config.packet_size, DEFAULT_PACKET);
        let own = settings::buffer_bytes(packet);
        self.sizes.set(Sizes {
            buffer: or_default(own.unwrap_or(config.buffer_size), DEFAULT_BUFFER),
            packet,
        });
        self.config.set(Some(config));
        if let Some(threads) = settings::ended_threads() {
            self.set_ended_threads(threads);
        }
        self.set_mode(settings::mode().unwrap_or_else(|| mode(config)));
        self.names_exits
            .store(settings::names_exits(), Ordering::Relaxed);
        self.watch_forks(gate);
        self.port.clock.set_up();
        self.port
            .fenced
            .store(!sys::register_barrier(), Ordering::Relaxed);
        #[cfg(feature = "duration")]
        self.set_up_duration(gate);
        #[cfg(not(feature = "duration"))]
        settings::refuse_threshold();
        let metadata = or_default(config.metadata_size, DEFAULT_METADATA);
        if let Some(output) = settings::output() {
            self.recording.name(output);
            self.open_recording();
        }
        if let Some((memory, bytes)) = self.metadata_memory(metadata) {
            // SAFETY: the memory is new, aligned to 64 bytes, and never given back.
            let set_up = unsafe { self.metadata.set_up(memory, bytes, self.port.now()) };
            debug_assert!(set_up.is_ok(), "a page is enough for a header");
            self.metadata.build_id(self.port.now(), program_id(config));
            self.describe_program(numbering(config).text_base);
        }
        let address = |function: Option<Function>| function.map_or(0, |it| it as usize);
        gate.set_trigger(address(config.trigger));
        gate.set_stopper(address(config.stopper));
        self.once.store(config.flags & ONCE != 0, Ordering::Relaxed);
        let fault = self.check(config).err();
        self.fault.set(fault);
        #[cfg(feature = "cost")]
        if fault.is_none() && answer == Answer::Own && !self.is_in_duration() {
            self.measure(gate);
        }
        self.wipe_in_children(gate);
        gate.set_up(fault.is_some(), false);
        self.gate_changed(gate);
        if settings::on().unwrap_or(config.flags & START_ON != 0) {
            self.set_recording(gate, true, Cause::Build);
        }
        self.buffers_at_start
            .store(self.thread_buffers.count(), Ordering::Relaxed);
        self.bytes_at_start
            .store(self.recorded_bytes(), Ordering::Relaxed);
    }

    /// Creates the file that this process records into, if one is named.
    pub(super) fn open_recording(&self) {
        self.recording.open(&self.port.clock, |line| {
            let _ = write!(line, "{}", self.identity_at(1));
        });
    }

    /// Checks the sizes that every thread buffer will have.
    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let sizes = self.sizes.get();
        if config.version != CONFIG_VERSION {
            return Err(Fault::Version.of(config.version as usize));
        }
        if config.function_shift > MAX_FUNCTION_SHIFT {
            return Err(Fault::FunctionShift.of(config.function_shift as usize));
        }
        check_sizes(sizes.buffer, sizes.packet)?;
        if config.slot_count != 0 {
            check_stacks(config.shadow_stacks, config.shadow_depth)?;
        }
        Ok(())
    }

    /// Returns the identity of the process: the reply to `identify`, and the first line of a saved file. May wait about
    /// 50 ms to measure the clock's frequency.
    pub fn identity(&self) -> Identity {
        self.identity_at(self.port.clock.hz())
    }

    /// Returns the identity with this frequency of the clock.
    pub(crate) fn identity_at(&self, clock_hz: u64) -> Identity {
        let config = self.config();
        let mut identity = identity::<Linux>(config, program_id(config));
        identity.clock_hz = clock_hz;
        identity.clock_bits = 64;
        identity.capabilities.sure_clock = true;
        identity.capabilities.stream = true;
        identity.capabilities.retained = false;
        #[cfg(feature = "duration")]
        {
            identity.capabilities.duration = self.is_in_duration();
        }
        identity.buffer_bytes = self.sizes.get().buffer;
        identity.packet_bytes = self.sizes.get().packet;
        identity.streams = self.thread_buffers.count();
        identity.mode = self.mode();
        identity.text_base = numbering(config).text_base as u64;
        identity
    }

    pub(crate) fn config(&self) -> &'static Config {
        self.config.get().unwrap_or(&DEFAULTS)
    }
}

/// Configuration of a program that defines none: record everything from the first event on.
static DEFAULTS: Config = Config {
    version: CONFIG_VERSION,
    flags: START_ON,
    ..Config::EMPTY
};

/// Returns the program's value, or the default if that is 0.
pub(super) fn or_default(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Returns how the program's functions are numbered.
pub(super) fn numbering(config: &Config) -> Functions {
    let functions = functions(config);
    if config.text_base.is_null() {
        Functions {
            text_base: elf::text_base() as usize,
            ..functions
        }
    } else {
        functions
    }
}

/// Returns the build id of the program.
fn program_id(config: &Config) -> &'static [u8] {
    if !config.build_id_note.is_null() {
        // SAFETY: the program's configuration guarantees that its note is there.
        let note = unsafe { core::slice::from_raw_parts(config.build_id_note.cast(), 16 + 32) };
        return build_id(note);
    }
    elf::notes()
        .map(build_id)
        .find(|id| !id.is_empty())
        .unwrap_or(&[])
}
