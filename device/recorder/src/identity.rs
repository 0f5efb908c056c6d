//! The recorder's answer to `identify`, from its configuration.

use kymo_wire::link::{Capabilities, Identity, Mode, PROTOCOL};

use crate::Target;
use crate::config::{Config, FIXED, STREAM};
use crate::encode::Functions;
use crate::retained::Place;

/// The mode in the program's configuration.
pub fn mode(config: &Config) -> Mode {
    if config.flags & STREAM != 0 {
        Mode::Stream
    } else if config.flags & FIXED != 0 {
        Mode::Fixed
    } else {
        Mode::Overwrite
    }
}

/// The numbering of functions in the program's configuration.
pub fn functions(config: &Config) -> Functions {
    Functions {
        text_base: config.text_base as usize,
        shift: config.function_shift,
    }
}

/// The identity of a recorder with this configuration; its driver corrects what it knows better (clock, streams,
/// current mode).
pub fn identity<T: Target>(config: &Config, build_id: &[u8]) -> Identity {
    let mut id = ([0; 32], 0);
    if let Some(to) = id.0.get_mut(..build_id.len()) {
        to.copy_from_slice(build_id);
        id.1 = build_id.len();
    }
    Identity {
        protocol: PROTOCOL,
        layout: functions(config).layout::<T>(),
        clock_hz: config.clock_hz,
        clock_bits: config.clock_bits,
        buffer_bytes: config.buffer_size,
        packet_bytes: config.packet_size,
        streams: 1,
        mode: mode(config),
        text_base: config.text_base as usize as u64,
        capabilities: Capabilities {
            trace: true,
            profile: config.slot_count != 0,
            reboot: config.reboot.is_some(),
            retained: cfg!(feature = "retained") && !config.retained.is_null(),
            sure_clock: config.tick_hz != 0,
            stream: false,
            duration: false,
            conditions: cfg!(feature = "conditions"),
        },
        build_id: id,
    }
}

/// Memory that preserves trigger and stopper over a reboot.
pub fn retained(config: &Config) -> Place {
    let at = match cfg!(feature = "retained") {
        true => config.retained.cast(),
        false => core::ptr::null_mut(),
    };
    // SAFETY: the program gives this memory to the recorder, or none.
    unsafe { Place::new(at) }
}

/// The build id in the program's configuration; empty if there is none.
#[inline(never)]
pub fn build_id_of(config: &Config) -> &'static [u8] {
    let at = config.build_id_note;
    if at.is_null() {
        return &[];
    }
    // SAFETY: by the program's configuration its note is there. It has a header of 12 bytes, of which the second word
    // is the id's length.
    let note = unsafe {
        let length = at.cast::<u32>().add(1).read_unaligned();
        let length = 16 + length.min(32) as usize;
        core::slice::from_raw_parts(at.cast(), length)
    };
    build_id(note)
}

/// The build id in an ELF note (`n_namesz, n_descsz, n_type, "GNU\0", id`, in 32-bit words of the machine); empty if it
/// is no such note, or the id is longer than 32 bytes.
pub fn build_id(note: &[u8]) -> &[u8] {
    let word = |at: usize| {
        let bytes = note.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let id = || {
        let length = word(4)? as usize;
        if word(0)? != 4 || word(8)? != 3 || note.get(12..16)? != b"GNU\0" || length > 32 {
            return None;
        }
        note.get(16..16 + length)
    };
    id().unwrap_or(&[])
}
