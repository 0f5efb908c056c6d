//! What of a hardware trace is not in a result: trace in no packet, code that is missing or does not fit.

use std::collections::BTreeMap;

use kymo_coresight::doubts::{Doubts, Place};
use kymo_coresight::element::Unsynced;
use kymo_coresight::frames::TraceId;
use kymo_coresight::input::Buffer;
use kymo_coresight::memory::{Memory, MemorySpace, Scene};

use super::{Opened, build_id};
use crate::context::Context;
use crate::render::count::counted;
use crate::render::escape::escaped;

/// Says what of the buffer is in no packet. `false` if the buffer is cut or empty.
pub fn remark_frames(buffer: &Buffer, context: &Context) -> bool {
    let Buffer {
        name,
        sources,
        frames,
        ..
    } = buffer;
    for stream in &frames.streams {
        let is_known = match stream.id {
            TraceId::NONE => !sources.is_empty(),
            id => sources.iter().any(|source| source.id == id),
        };
        if !is_known {
            let (id, bytes) = (stream.id.0, stream.bytes.len());
            context.warn(format_args!(
                "{name}: {bytes} bytes of trace ID {id:x} left out: the snapshot describes no source with this ID"
            ));
        }
    }
    if frames.skipped_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} bytes skipped before the first synchronization and between cut frames",
            frames.skipped_bytes
        ));
    }
    if frames.reserved_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} bytes under reserved trace IDs left out",
            frames.reserved_bytes
        ));
    }
    if frames.rest_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} left out: the buffer ends within a frame",
            counted(frames.rest_bytes, "byte")
        ));
    }
    let is_empty =
        frames.frames == 0 && frames.streams.iter().all(|stream| stream.bytes.is_empty());
    if is_empty {
        context.warn(format_args!("{name}: the buffer has no trace"));
    }
    frames.rest_bytes == 0 && !is_empty
}

/// Several places as one: the first, with all counts.
fn sum<'a>(places: impl IntoIterator<Item = &'a Place>) -> Option<Place> {
    places.into_iter().copied().reduce(|mut sum, place| {
        sum.count += place.count;
        if place.offset < sum.offset {
            (sum.address, sum.offset) = (place.address, place.offset);
        }
        sum
    })
}

fn times(count: u64) -> String {
    counted(count, "time")
}

/// Says what execution of a buffer was not followed, and where trace and code do not fit.
pub fn remark_doubts(
    doubts: &Doubts,
    opened: &Opened,
    buffer: &Buffer,
    code: &Memory,
    context: &Context,
) {
    let name = &buffer.name;
    let mut missing: BTreeMap<&str, (Place, String)> = BTreeMap::new();
    let mut nowhere = Vec::new();
    for place in doubts.not_accessible.values() {
        let name = code.name_at(place.view, place.address);
        let mapping = opened
            .missing
            .iter()
            .map(|missing| &missing.mapping)
            .find(|mapping| name == Some(&*mapping.path));
        match mapping {
            Some(mapping) => {
                missing
                    .entry(&mapping.path)
                    .and_modify(|(known, _)| *known = sum([&*known, place]).unwrap_or(*known))
                    .or_insert_with(|| (*place, build_id(mapping)));
            }
            None => nowhere.push(place),
        }
    }
    for (path, (place, build_id)) in missing {
        context.warn(format_args!(
            "{name}: execution went {} into {}{build_id}, of which there is no file, first to {:#x} at offset {}",
            times(place.count),
            escaped(path),
            place.address,
            place.offset
        ));
    }
    if let Some(place) = sum(nowhere) {
        context.warn(format_args!(
            "{name}: execution went {} where no image is, first to {:#x} at offset {}: what ran there was not followed",
            times(place.count),
            place.address,
            place.offset
        ));
    }
    if doubts.address_unknown > 0 {
        context.warn(format_args!(
            "{name}: execution went {} to an address that the trace does not say",
            times(doubts.address_unknown)
        ));
    }
    for (why, place) in &doubts.unsynced {
        let why = match why {
            Unsynced::Overflow => "the trace unit's buffer overflowed",
            Unsynced::Discard => "the trace unit discarded what was speculative",
            Unsynced::BadPacket => "a packet is wrong",
            Unsynced::BadOpcode => "the code has an instruction that A64 does not have",
            Unsynced::BadImage => "the trace does not fit the code",
            Unsynced::Truncated => "the recorder had no room (truncated AUX record)",
            Unsynced::Partial => "the recorder says that it has gaps (partial AUX record)",
            Unsynced::Collision => {
                "something else used the trace unit (AUX record with a collision)"
            }
            Unsynced::EndOfTrace | Unsynced::Init | Unsynced::Reset => "the trace begins anew",
        };
        context.warn(format_args!(
            "{name}: trace was lost {}: {why}, first at offset {}{}",
            times(place.count),
            place.offset,
            suspect(code.seen(place.view), place.address)
        ));
    }
    for (places, what) in [
        (&doubts.not_taken, "an unconditional branch was not taken"),
        (
            &doubts.no_opcodes,
            "what ran is no A64 code (0 in the upper half)",
        ),
    ] {
        if let Some(place) = sum(places.values()) {
            context.warn(format_args!(
                "{name}: {what}, {}, first at {:#x}{}: the image is probably not what ran",
                times(place.count),
                place.address,
                suspect(code.seen(place.view), place.address)
            ));
        }
    }
}

/// The image that has an address, for the end of a message.
fn suspect(code: Scene<'_>, address: u64) -> String {
    // The address can be the one behind the last instruction that is known.
    let find = |address| code.find(MemorySpace::ANY, address);
    match find(address).or_else(|| find(address.wrapping_sub(1))) {
        Some(image) => format!(", in {}", escaped(&image.name)),
        None => String::new(),
    }
}
