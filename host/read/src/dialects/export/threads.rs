//! Threads in the metadata and texts of an export.

use kymo_ctf::metadata::{FieldClass, Metadata, Value64};
use kymo_event::{Addr, Stack};

/// Returns the class of the thread number.
pub(super) fn thread_class(metadata: &Metadata) -> Option<&FieldClass> {
    let mut contexts = metadata
        .streams
        .iter()
        .filter_map(|it| it.event_context.as_ref());
    Some(&contexts.find_map(|context| context.member("thread"))?.class)
}

/// Returns the names of threads with their numbers.
pub(super) fn thread_labels(metadata: &Metadata) -> impl Iterator<Item = (u64, &str)> {
    let mappings = match thread_class(metadata) {
        Some(FieldClass::Enumeration(class)) => class.mappings.list(),
        _ => &[],
    };
    mappings.iter().map(|mapping| {
        let number = match mapping.first {
            Value64::Signed(number) => number.cast_unsigned(),
            Value64::Unsigned(number) => number,
        };
        (number, mapping.label.as_str())
    })
}

/// Parses an address.
pub(super) fn address(text: &str) -> Option<Addr> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16)
        .ok()
        .map(Addr)
}

/// Parses a stack: its lowest address, its size in bytes, and the number of used bytes, if known.
pub(super) fn stack(text: &str) -> Option<Stack> {
    let mut words = text.split(' ');
    Some(Stack {
        base: words.next().and_then(address)?,
        bytes: words.next()?.parse().ok()?,
        used: words.next().and_then(|used| used.parse().ok()),
    })
}
