//! Warnings about lost, skipped or mismatching trace, as text. All front ends show the same texts.

mod losses;
mod synchronization;

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;
use crate::doubts::{Doubts, Place};
use crate::element::Unsynced;
use crate::frames::{self, TraceId};
use crate::input::Buffer;
use crate::memory::{Memory, MemorySpace, Replaced};
use crate::perf::{Missing, Recording, hex};
use crate::source::Protocol;

/// Warning about trace that is left out, missing, or in conflict with the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Stream or buffer of the remark; empty for the whole input.
    pub stream: String,
    /// Offset of the first occurrence in the buffer, or in the file.
    pub offset: u64,
    /// Text of the remark. It can contain names from the input, which are not escaped.
    pub text: String,
    /// Whether the input is damaged there, or the image differs from the code that ran.
    pub is_damage: bool,
    /// Whether it applies to every trace of its kind: information, not a sign of a problem.
    pub is_note: bool,
}

impl Remark {
    /// Creates a warning that is no damage.
    pub fn warning(stream: &str, text: String) -> Self {
        Remark {
            stream: stream.to_owned(),
            offset: 0,
            text,
            is_damage: false,
            is_note: false,
        }
    }

    fn note(stream: &str, text: String) -> Self {
        Remark {
            is_note: true,
            ..Self::warning(stream, text)
        }
    }

    fn damage(stream: &str, offset: u64, text: String) -> Self {
        Remark {
            stream: stream.to_owned(),
            offset,
            text,
            is_damage: true,
            is_note: false,
        }
    }
}

impl std::fmt::Display for Remark {
    /// Formats the remark as a warning that follows the name of the input.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.stream.as_str() {
            "" => out.write_str(&self.text),
            stream => write!(out, "{stream}: {}", self.text),
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Suffix with the count: ", 29 times"; empty for 1.
fn times(count: u64) -> String {
    match count {
        1 => String::new(),
        count => format!(", {count} times"),
    }
}

/// Limit of trace IDs and files that are listed one by one.
const LISTED: usize = 8;

fn listed(ids: &[TraceId]) -> String {
    let first: Vec<_> = ids
        .iter()
        .take(LISTED)
        .map(|id| format!("{:x}", id.0))
        .collect();
    match ids.len().saturating_sub(LISTED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Remarks on bytes in an input's buffers that are no trace of its sources.
pub fn of_buffers(buffers: &[Buffer]) -> Vec<Remark> {
    let mut remarks: Vec<_> = buffers.iter().flat_map(of_buffer).collect();
    let streams = || {
        buffers.iter().flat_map(|buffer| {
            let streams = buffer.frames.streams.iter();
            let has_bytes = streams.filter(|stream| !stream.bytes.is_empty());
            has_bytes.map(move |stream| (buffer, stream))
        })
    };
    if streams().any(|(buffer, stream)| buffer.source_of(stream).is_some()) {
        remarks.extend(synchronization::of_buffers(buffers));
        return remarks;
    }
    let mut ids: Vec<_> = streams().map(|(_, stream)| stream.id).collect();
    ids.sort();
    ids.dedup();
    let sources = buffers.iter().flat_map(|buffer| &buffer.sources);
    let mut known: Vec<_> = sources.map(|source| source.id).collect();
    known.sort();
    known.dedup();
    let is_one = buffers.iter().all(|buffer| buffer.sources.len() == 1);
    let text = match (ids.as_slice(), known.as_slice()) {
        ([], _) => "there is no trace in it".to_owned(),
        (ids, [known]) if is_one => format!(
            "no trace of its source: it has the trace ID {:x}, and there is trace of {}; or the bytes are its own alone, without \
             frames (layout none)",
            known.0,
            listed(ids)
        ),
        (_, []) => "it describes no source of trace whose protocol is known".to_owned(),
        (ids, known) => format!(
            "no trace of its sources: they have the trace IDs {}, and there is trace of {}",
            listed(known),
            listed(ids)
        ),
    };
    let name = buffers.first().map_or("the input", |buffer| &*buffer.name);
    let remark = Remark::damage(name, 0, text);
    // Remarks that explain this one come first.
    let is_explained = |buffer: &Buffer| buffer.frames.port_frames > 0 || buffer.frames.is_unsynced;
    match buffers.iter().any(is_explained) {
        true => remarks.push(remark),
        false => remarks.insert(0, remark),
    }
    remarks
}

/// Texts on programs of a process at the same addresses if the trace cannot tell when the second one began.
fn of_replaced(buffers: &[Buffer]) -> Vec<String> {
    let code = buffers.iter().flat_map(|buffer| &buffer.code);
    // Sources share the history of processes, so the set removes duplicates.
    let all: BTreeSet<Replaced> = code.flat_map(Memory::replaced).collect();
    let more = all.len().saturating_sub(LISTED) as u64;
    let mut texts: Vec<_> = all
        .into_iter()
        .take(LISTED)
        .map(|replaced| {
            let Replaced { process, address, before, after } = replaced;
            format!(
                "process {process} executed another program, and nothing relates the trace's times to the recording's: from {address:#x} on, where \
                 both have code, that of {before} is read until code runs that only {after} has"
            )
        })
        .collect();
    if more > 0 {
        texts.push(format!("{} likewise", counted(more, "other program")));
    }
    texts
}

/// Remarks on images with different bytes at the same addresses, in one memory space or after an exec.
pub fn of_images(buffers: &[Buffer]) -> Vec<Remark> {
    // Cores share their images, so the set removes duplicates.
    let code = buffers.iter().flat_map(|buffer| &buffer.code);
    let texts: BTreeSet<String> = code
        .flat_map(Memory::conflicts)
        .map(|(used, other, address)| {
            let rest = match used.address > other.address {
                true => ", except for runs of instructions that begin before it",
                false => "",
            };
            let (used, other, space) = (&used.name, &other.name, used.space.name());
            format!("{used} and {other} differ at {address:#x} (memory space {space}): {used} is read{rest}")
        })
        .collect();
    let more = texts.len().saturating_sub(LISTED) as u64;
    let mut remarks: Vec<_> = texts.into_iter().take(LISTED).collect();
    if more > 0 {
        remarks.push(format!(
            "{} differ from others likewise",
            counted(more, "image")
        ));
    }
    remarks.extend(of_replaced(buffers));
    let remarks = remarks.into_iter().map(|text| Remark::warning("", text));
    remarks.collect()
}

fn of_buffer(buffer: &Buffer) -> Vec<Remark> {
    let Buffer { name, frames, .. } = buffer;
    let mut remarks = Vec::new();
    let unknown = frames.streams.iter();
    let unknown = unknown.filter(|stream| buffer.source_of(stream).is_none());
    let (mut bytes, mut ids) = (0, Vec::new());
    for stream in unknown {
        bytes += stream.bytes.len() as u64;
        ids.push(stream.id);
    }
    ids.sort();
    let mut left_out = |bytes: u64, why: String| {
        if bytes > 0 {
            let text = format!("{} left out: {why}", counted(bytes, "byte"));
            remarks.push(Remark::warning(name, text));
        }
    };
    let ids = listed(&ids);
    let described: Vec<_> = buffer.sources.iter().map(|source| source.id).collect();
    let hint = match frames::is_odd(&frames.head, &described) {
        true => {
            "; those of the described sources stand where frames have them that begin at one of the offsets 1, 3 to 15: cut \
                 off what is before it"
        }
        false => "",
    };
    left_out(
        bytes,
        format!("no source is described for trace ID {ids}{hint}"),
    );
    left_out(
        frames.skipped_bytes,
        "before the first synchronization, or in frames that one cuts".to_owned(),
    );
    left_out(
        frames.unnamed_bytes,
        "before the first trace ID, which would say whose they are".to_owned(),
    );
    left_out(
        frames.reserved_bytes,
        "under trace IDs that are reserved".to_owned(),
    );
    left_out(
        frames.trigger_bytes,
        "they mark where a trigger occurred (trace ID 0x7d)".to_owned(),
    );
    if frames.resets_within > 0 {
        let text = format!(
            "trace was lost {}: a frame of synchronization words resets the decoders, first at offset {}; what follows is not \
             decoded up to the next synchronization",
            counted(frames.resets_within, "time"),
            frames.reset_offset
        );
        remarks.push(Remark::warning(name, text));
    }
    if frames.port_frames > 0 {
        let text = format!(
            "the layout is said to be memory, and {} the synchronization of a trace port: give the layout tpiu",
            match frames.port_frames {
                1 => "one frame has".to_owned(),
                count => format!("{count} frames have"),
            }
        );
        remarks.push(Remark::damage(name, frames.port_offset, text));
    }
    if frames.is_unsynced {
        let text = "the layout is said to be that of a trace port, which would synchronize, and these bytes never do: give the \
                    layout memory if they are frames, or none"
            .to_owned();
        remarks.push(Remark::damage(name, 0, text));
    }
    if frames.rest_bytes > 0 {
        let rest = counted(frames.rest_bytes, "byte");
        let text = format!("the buffer ends within a frame: {rest} left out");
        remarks.push(Remark::damage(name, frames.rest_offset, text));
    }
    let has_bytes = frames.frames > 0
        || frames.skipped_bytes > 0
        || frames.streams.iter().any(|stream| !stream.bytes.is_empty());
    if !has_bytes {
        remarks.push(Remark::warning(name, "the buffer has no trace".to_owned()));
    }
    remarks
}

/// Remarks on files of a snapshot that cannot be read.
pub fn of_snapshot<'a>(missing: impl Iterator<Item = &'a Error>) -> Vec<Remark> {
    // Each core reports its own memory, so the set removes duplicates.
    let texts: BTreeSet<String> = missing.map(Error::to_string).collect();
    let remarks = texts.into_iter().map(|text| Remark::warning("", text));
    remarks.collect()
}

/// Remarks on a perf recording. `missing` are the mapped files that were not found; empty if no code is needed.
pub fn of_recording(recording: &Recording, missing: &[Missing]) -> Vec<Remark> {
    let mut remarks: Vec<_> = missing
        .iter()
        .take(LISTED)
        .map(|missing| Remark::warning("", missing.to_string()))
        .collect();
    let more = missing.len().saturating_sub(LISTED) as u64;
    if more > 0 {
        let text = format!("no file for {more} more: what ran there is not followed");
        remarks.push(Remark::warning("", text));
    }
    remarks.extend(losses::of_recording(&recording.losses));
    if recording.missing > 0 {
        let records = counted(recording.missing, "AUX record");
        let text =
            format!("{records} left out, in whole or from some byte on: no buffer has these bytes");
        remarks.push(Remark::warning("", text));
    }
    if recording.without_cpu > 0 {
        let buffers = counted(recording.without_cpu, "buffer");
        let text = format!(
            "{buffers} decoded as trace of the first processor: the AUX records do not say which one wrote it"
        );
        remarks.push(Remark::warning("", text));
    }
    let (bytes, of_none) = recording.scheduled_bytes();
    if bytes > 0 {
        let rest = match of_none {
            0 => String::new(),
            of_none => {
                let share = (100.0 * of_none as f64 / bytes as f64).ceil();
                let why = match recording.has_unnamed_clock {
                    true => {
                        "the recording does not say whether timestamps are of the kernel's clock (TS_SOURCE), so its \
                         switches have no place between them"
                    }
                    false => "several may have run there",
                };
                format!("; {share} % of it has no thread, as {why}")
            }
        };
        let text = format!(
            "the trace has no context IDs: threads are those that the kernel switched to, by the times of its records{rest}"
        );
        remarks.push(Remark::warning("", text));
    }
    if let Some(offset) = recording.features_cut_at {
        let text = format!(
            "the file ends at offset {offset}, before the sections behind its data do: build IDs of files and the release of the \
             kernel are missing, so files of other builds are not recognized"
        );
        remarks.push(Remark::warning("", text));
    }
    if let Some(offset) = recording.cut_at {
        let text = "the file ends before the recording does".to_owned();
        remarks.push(Remark::damage("perf.data", offset, text));
    }
    remarks
}

/// Merges places into one: the first in the trace, with the sum of all counts.
fn sum<'a>(places: impl IntoIterator<Item = &'a Place>) -> Option<Place> {
    places.into_iter().copied().reduce(|mut sum, place| {
        sum.count += place.count;
        if place.offset < sum.offset {
            (sum.address, sum.offset, sum.view) = (place.address, place.offset, place.view);
        }
        sum
    })
}

/// Name of the image that contains an address, as the end of a message.
fn suspect(code: &Memory, place: &Place) -> String {
    let code = code.seen(place.view);
    // The address can be the end of the last known instruction.
    let find = |address| code.find(MemorySpace::ANY, address);
    match find(place.address).or_else(|| find(place.address.wrapping_sub(1))) {
        Some(image) => format!(", in {}", image.name),
        None => String::new(),
    }
}

/// Remarks on trace of a source that was not followed or does not fit the code. The doubts must be
/// [located](Doubts::locate); `source` is the index in the buffer, `missing` are mapped files that were not found.
pub fn of_doubts(
    doubts: &Doubts,
    buffer: &Buffer,
    source: usize,
    missing: &[Missing],
) -> Vec<Remark> {
    let (Some(described), Some(code)) = (buffer.sources.get(source), buffer.code.get(source))
    else {
        return Vec::new();
    };
    let name = format!("{}/{}", buffer.name, described.name);
    let mut remarks = Vec::new();
    let mut warn = |text: String| remarks.push(Remark::warning(&name, text));
    let mut absent: BTreeMap<&str, (Place, String)> = BTreeMap::new();
    let mut nowhere = Vec::new();
    for place in doubts.not_accessible.values() {
        let path = code.name_at(place.view, place.address);
        let mut mappings = missing.iter().map(|missing| &missing.mapping);
        match mappings.find(|mapping| path == Some(&*mapping.path)) {
            Some(mapping) => {
                let id = match mapping.build_id.as_slice() {
                    [] => String::new(),
                    id => format!(" (build ID {})", hex(id)),
                };
                let known = absent.entry(&mapping.path).or_insert((*place, id));
                if known.0 != *place {
                    known.0 = sum([&known.0, place]).unwrap_or(known.0);
                }
            }
            None => nowhere.push(place),
        }
    }
    for (path, (place, id)) in absent {
        let (count, address, offset) = (counted(place.count, "time"), place.address, place.offset);
        warn(format!(
            "execution went {count} into {path}{id}, of which there is no file, first to {address:#x} at offset {offset}"
        ));
    }
    if let Some(place) = sum(nowhere) {
        let (count, address, offset) = (counted(place.count, "time"), place.address, place.offset);
        warn(format!(
            "execution went {count} where no image is, first to {address:#x} at offset {offset}: what ran there was not followed"
        ));
    }
    if doubts.address_unknown > 0 {
        let count = counted(doubts.address_unknown, "time");
        let hint = match described.protocol {
            Protocol::EtmV4(config) if !config.uses_return_stack() => {
                ": if the trace unit's return stack was on, TRCCONFIGR has to say so (bit 12)"
            }
            _ => "",
        };
        warn(format!(
            "execution went {count} to an address that the trace does not say{hint}"
        ));
    }
    if let Some(place) = doubts.cut {
        let offset = place.offset;
        warn(format!(
            "the trace ends within a packet, at offset {offset}"
        ));
    }
    for (why, place) in &doubts.unsynced {
        let (count, offset) = (counted(place.count, "time"), place.offset);
        let why = match why {
            Unsynced::Overflow => "the trace unit's buffer overflowed",
            Unsynced::Discard => "the trace unit discarded what was speculative",
            Unsynced::Truncated => "the recorder had no room (truncated AUX record)",
            Unsynced::Partial => "the recorder says that it has gaps (partial AUX record)",
            Unsynced::Collision => {
                "something else used the trace unit (AUX record with a collision)"
            }
            Unsynced::BadPacket | Unsynced::BadOpcode(_) | Unsynced::BadImage(_) => continue,
            Unsynced::EndOfTrace | Unsynced::Init | Unsynced::Reset => "it begins anew",
        };
        warn(format!(
            "trace was lost {count}: {why}, first at offset {offset}"
        ));
    }
    let skipped = doubts.skipped;
    if skipped.packets > 0 {
        warn(format!(
            "{} ({}) behind lost trace not decoded, up to the next synchronization: {} among them",
            counted(skipped.bytes, "byte"),
            counted(skipped.packets, "packet"),
            counted(skipped.overflows, "more overflow"),
        ));
    }
    remarks.extend(damage(doubts, &name, code));
    remarks
}

/// Remarks on damage of a source's trace and on conflicts with the code, in the order of the offsets.
fn damage(doubts: &Doubts, name: &str, code: &Memory) -> Vec<Remark> {
    let mut damage = Vec::new();
    if let Some(place) = doubts.unsynced.get(&Unsynced::BadPacket) {
        let text = format!("a packet is wrong{}", times(place.count));
        damage.push(Remark::damage(name, place.offset, text));
    }
    for (places, what) in [
        (&doubts.misfits, "the trace does not fit the code"),
        (&doubts.not_taken, "an unconditional branch was not taken"),
        (
            &doubts.diverted,
            "execution did not go on behind the instruction that came before",
        ),
        (
            &doubts.no_opcodes,
            "what ran is no A64 code (0 in the upper half)",
        ),
    ] {
        if let Some(place) = sum(places.values()) {
            let text = format!(
                "{what}, at {:#x}{}{}: the image is probably not what ran",
                place.address,
                suspect(code, &place),
                times(place.count)
            );
            damage.push(Remark::damage(name, place.offset, text));
        }
    }
    damage.sort_by_key(|remark| remark.offset);
    damage
}
