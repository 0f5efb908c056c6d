//! Properties of fragments that follow from one value of the model.

use super::json::quoted;
use crate::metadata::{ByteOrder, Encoding, FloatClass, Form, IntegerClass, Mappings, Value64};

pub(super) fn joined(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}

pub(super) fn bits(kind: &str, class: &IntegerClass, properties: &[String]) -> String {
    let (size, align) = (class.size, class.align);
    let order = orders(class.byte_order, class.form == Form::Reversed);
    let more: String = properties.iter().map(|it| format!(", {it}")).collect();
    format!("{{\"type\": \"{kind}\", \"length\": {size}, {order}, \"alignment\": {align}{more}}}")
}

pub(super) fn float(class: &FloatClass) -> String {
    let (size, align) = (class.size, class.align);
    let order = orders(class.byte_order, class.reversed);
    let kind = "fixed-length-floating-point-number";
    format!("{{\"type\": \"{kind}\", \"length\": {size}, {order}, \"alignment\": {align}}}")
}

/// Byte order, and bit order if it does not match.
const fn orders(order: ByteOrder, reversed: bool) -> &'static str {
    match (order, reversed) {
        (ByteOrder::Little, false) => "\"byte-order\": \"little-endian\"",
        (ByteOrder::Big, false) => "\"byte-order\": \"big-endian\"",
        (ByteOrder::Little, true) => {
            "\"byte-order\": \"little-endian\", \"bit-order\": \"last-to-first\""
        }
        (ByteOrder::Big, true) => {
            "\"byte-order\": \"big-endian\", \"bit-order\": \"first-to-last\""
        }
    }
}

pub(super) const fn uuid_role(is_uuid: bool) -> &'static str {
    if is_uuid {
        ", \"roles\": [\"metadata-stream-uuid\"]"
    } else {
        ""
    }
}

pub(super) const fn encoding(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::None | Encoding::Utf8 | Encoding::Ascii => "utf-8",
        Encoding::Utf16Be => "utf-16be",
        Encoding::Utf16Le => "utf-16le",
        Encoding::Utf32Be => "utf-32be",
        Encoding::Utf32Le => "utf-32le",
    }
}

pub(super) fn ranges(set: &[(Value64, Value64)]) -> String {
    let set = set.iter();
    let pairs = set.map(|(first, last)| format!("[{}, {}]", first.widen(), last.widen()));
    format!("[{}]", joined(pairs))
}

/// Labels with all their ranges, in the order of their first ranges.
pub(super) fn labels(mappings: &Mappings) -> String {
    let mut places = std::collections::HashMap::new();
    let mut sets: Vec<(&str, Vec<(Value64, Value64)>)> = Vec::new();
    for mapping in mappings.list() {
        let label = mapping.label.as_str();
        let place = *places.entry(label).or_insert_with(|| {
            sets.push((label, Vec::new()));
            sets.len() - 1
        });
        if let Some((_, set)) = sets.get_mut(place) {
            set.push((mapping.first, mapping.last));
        }
    }
    let sets = sets.iter();
    let parts = sets.map(|(label, set)| format!("{}: {}", quoted(label), ranges(set)));
    format!("{{{}}}", joined(parts))
}
