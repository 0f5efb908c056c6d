//! What the metadata and the texts of an export say of threads.

use kymo_ctf::metadata::{FieldClass, Metadata, Value64};
use kymo_event::{Addr, Stack};

/// The class of the numbers of threads.
pub(super) fn thread_class(metadata: &Metadata) -> Option<&FieldClass> {
    let mut contexts = metadata
        .streams
        .iter()
        .filter_map(|it| it.event_context.as_ref());
    Some(&contexts.find_map(|context| context.member("thread"))?.class)
}

/// The names of threads, by their numbers.
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

/// The address that a text is, if it is one.
pub(super) fn address(text: &str) -> Option<Addr> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16)
        .ok()
        .map(Addr)
}

/// A stack: its lowest address, its bytes, and how many were in use, if that is known.
pub(super) fn stack(text: &str) -> Option<Stack> {
    let mut words = text.split(' ');
    Some(Stack {
        base: words.next().and_then(address)?,
        bytes: words.next()?.parse().ok()?,
        used: words.next().and_then(|used| used.parse().ok()),
    })
}
