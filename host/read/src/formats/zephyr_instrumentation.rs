//! Dumps of Zephyr's own instrumentation subsystem: traces and profiles as the target sends them.
//!
//! Such a file is a capture of the target's serial port: one or more dumps between their marks, with console text
//! around them, or only the bytes between the marks. `kymo-zephyr-instrumentation` determines the layout of the records
//! and the end of a dump from the bytes alone. This module converts each record to one event, in recorded order, and
//! reports problems:
//!
//! - Time that steps back, as on real targets (Zephyr's system timer is read between its interrupt and its
//!   announcement), is a [`Gap::TimeBackward`](kymo_event::Gap::TimeBackward).
//! - Bytes that are not records, and interrupted dumps, are damage at their offset.
//! - Between two dumps of one file, an unknown number of events is missing.
//! - The subsystem's processor mode is in fact the low three bits of the thread's priority, and the field is named so
//!   here.
//! - Totals of a profile beyond 2^63 are sums of negative time differences, not times ([`ProfileDump`]).
//!
//! On Cortex-M all functions have odd addresses. If most addresses in a file are odd, bit 0 is the Thumb bit and is
//! removed.

mod dump;
mod piped;
mod profile;
mod source;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use kymo_ctf::metadata::Metadata;
use kymo_zephyr_instrumentation::{ByteOrder, Hints, PointerWidth};

pub use profile::{FunctionTotal, NoProfile, ProfileDump, decode_profile};

use crate::bytes::Bytes;
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, Source};

/// [`TraceInfo::format`](kymo_event::TraceInfo::format) of these dumps.
pub const FORMAT: &str = "zephyr-instrumentation";

/// Returns whether bytes contain a dump, or are the records of one.
pub fn is_dump(bytes: &[u8]) -> bool {
    dump::find(bytes, &Hints::default()).is_some()
}

/// Opens the data of a target: one or more dumps with any bytes around them.
///
/// `name` is the name of the event stream.
///
/// # Errors
/// [`OpenError::Unknown`] if it contains no dump.
pub fn open_bytes(
    name: &str,
    bytes: Vec<u8>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    open_shared(Path::new(name), &Bytes::from(bytes), None, options)
        .ok_or_else(|| crate::open::unknown(Path::new(name), "no dump".to_owned()))
}

/// Describes a dump that is interrupted before its first record is complete; `None` if there is none.
pub(crate) fn begun(bytes: &[u8]) -> Option<String> {
    let mark = dump::begun(bytes)?;
    let behind = bytes.len() - mark - kymo_zephyr_instrumentation::BEGIN.len();
    Some(format!(
        "the mark -*-# of such a dump at offset {mark} and {behind} bytes behind it, no whole record"
    ))
}

/// Opens the contents of a file. `name_bytes` is the name length in the metadata. `None` if it contains no dump.
pub(crate) fn open_shared(
    path: &Path,
    bytes: &Bytes,
    name_bytes: Option<usize>,
    options: &OpenOptions,
) -> Option<Box<dyn Source>> {
    let hints = hints(name_bytes, options);
    let dumps = dump::find(bytes, &hints)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    let mut source = source::DumpSource::new(&name, options);
    source.add(bytes.clone(), 0, dumps);
    Some(Box::new(source))
}

/// Known properties of the target that sent the dumps.
fn hints(name_bytes: Option<usize>, options: &OpenOptions) -> Hints {
    let program = options.program.as_deref().and_then(head);
    Hints {
        name_bytes,
        ..program.map(|head| elf_hints(&head)).unwrap_or_default()
    }
}

/// Opens a pipe, and reads each dump when it arrives.
///
/// # Errors
/// [`OpenError::Io`] if it cannot be read, [`OpenError::Unknown`] if there is no dump in it.
pub(crate) fn open_piped(peek: Peek, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
    let source = piped::Piped::open(peek, hints(None, options), options)?;
    Ok(Box::new(source))
}

/// Opens a file together with the metadata of the target's build, like a stream of a CTF trace; `None` if the
/// metadata or the file has another format.
///
/// # Errors
/// [`OpenError`] if the file cannot be read.
pub(crate) fn open_described(
    path: &Path,
    metadata: &Path,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Source>>, OpenError> {
    let Some(name_bytes) = described_name_bytes(metadata) else {
        return Ok(None);
    };
    let bytes = crate::open::file_bytes(path)?;
    Ok(open_shared(path, &bytes, Some(name_bytes), options))
}

/// Returns whether this is the metadata of a build with the instrumentation.
pub(crate) fn is_metadata(path: &Path) -> bool {
    described_name_bytes(path).is_some()
}

/// Returns the name length in such metadata.
fn described_name_bytes(metadata: &Path) -> Option<usize> {
    let parsed = Metadata::parse(&std::fs::read(metadata).ok()?).ok()?;
    dump::name_bytes(&parsed.metadata)
}

/// Escapes a name for display: invalid UTF-8 and control characters become `\x1b` and the like.
fn name_text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.extend(format!("\\x{:02x}", u32::from(c)).chars()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.extend(format!("\\x{byte:02x}").chars());
        }
    }
    text
}

/// Reads the start of an ELF file: its magic number, class and byte order.
fn head(path: &Path) -> Option<[u8; 6]> {
    let mut head = [0; 6];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    Some(head)
}

/// Returns the hints from the start of an ELF file (ELF specification, `e_ident`).
fn elf_hints(head: &[u8; 6]) -> Hints {
    let [0x7F, b'E', b'L', b'F', class, order] = *head else {
        return Hints::default();
    };
    Hints {
        pointer: match class {
            1 => Some(PointerWidth::Bits32),
            2 => Some(PointerWidth::Bits64),
            _ => None,
        },
        order: match order {
            1 => Some(ByteOrder::Little),
            2 => Some(ByteOrder::Big),
            _ => None,
        },
        name_bytes: None,
    }
}
