//! Dumps of Zephyr's own instrumentation subsystem: traces and profiles as the target sent them.
//!
//! Such a file is whatever came over the target's serial port: a dump between its marks, perhaps several,
//! with a console's text around them; or only what was between the marks. How records are laid out, and
//! where a dump ends, is found by `kymo-zephyr-instrumentation` from the bytes alone. Here records become events, one
//! each, in the order in which they were recorded, and what is wrong with them is reported:
//!
//! - Time that steps back, as it does on real targets (Zephyr's system timer read between its interrupt
//!   and its announcement), is a [`Gap::TimeBackward`](kymo_event::Gap::TimeBackward).
//! - Bytes that are no records, and a dump that breaks off, are damage at their place.
//! - Between two dumps of one file anything may have happened: events are missing, how many is unknown.
//! - What the subsystem calls the processor's mode are the low three bits of the thread's priority, and
//!   so the field is called here.
//! - Totals of a profile beyond 2^63 are differences of times that stepped back, and no times
//!   ([`ProfileDump`]).
//!
//! On Cortex-M all functions have odd addresses; if most of a file are odd, bit 0 is Thumb's and
//! taken off.

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

/// What [`TraceInfo::format`](kymo_event::TraceInfo::format) says of these.
pub const FORMAT: &str = "zephyr-instrumentation";

/// Whether bytes hold a dump, or are the records of one.
pub fn is_dump(bytes: &[u8]) -> bool {
    dump::find(bytes, &Hints::default()).is_some()
}

/// Opens what a target sent: one or more dumps with whatever came around them.
///
/// `name` is what the stream of events is called.
///
/// # Errors
/// [`OpenError::Unknown`] if there is no dump in it.
pub fn open_bytes(
    name: &str,
    bytes: Vec<u8>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    open_shared(Path::new(name), &Bytes::from(bytes), None, options)
        .ok_or_else(|| crate::open::unknown(Path::new(name), "no dump".to_owned()))
}

/// What is found where a dump begins and breaks off before one record is whole; `None` if that isn't so.
pub(crate) fn begun(bytes: &[u8]) -> Option<String> {
    let mark = dump::begun(bytes)?;
    let behind = bytes.len() - mark - kymo_zephyr_instrumentation::BEGIN.len();
    Some(format!(
        "the mark -*-# of such a dump at offset {mark} and {behind} bytes behind it, no whole record"
    ))
}

/// Opens the content of a file, of which the metadata says so long names; `None` if there is no dump in it.
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

/// What is known of the target that sent dumps.
fn hints(name_bytes: Option<usize>, options: &OpenOptions) -> Hints {
    let program = options.program.as_deref().and_then(head);
    Hints {
        name_bytes,
        ..program.map(|head| elf_hints(&head)).unwrap_or_default()
    }
}

/// Opens what comes through a pipe: each dump as it comes.
///
/// # Errors
/// [`OpenError::Io`] if it cannot be read, [`OpenError::Unknown`] if there is no dump in it.
pub(crate) fn open_piped(peek: Peek, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
    let source = piped::Piped::open(peek, hints(None, options), options)?;
    Ok(Box::new(source))
}

/// Opens a file of which the metadata of the target's build is given, as it is for a stream of a CTF trace;
/// `None` if that metadata or the file is something else.
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

/// Whether this is the metadata of a build with the instrumentation.
pub(crate) fn is_metadata(path: &Path) -> bool {
    described_name_bytes(path).is_some()
}

/// How long names are by such metadata.
fn described_name_bytes(metadata: &Path) -> Option<usize> {
    let parsed = Metadata::parse(&std::fs::read(metadata).ok()?).ok()?;
    dump::name_bytes(&parsed.metadata)
}

/// A name as it is shown: what is no text in it, and what would do something to a terminal or a file's
/// lines, as `\x1b`.
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

/// What an ELF file begins with: its magic number, class and byte order.
fn head(path: &Path) -> Option<[u8; 6]> {
    let mut head = [0; 6];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    Some(head)
}

/// What the beginning of an ELF file says (ELF specification, `e_ident`).
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
