//! Reader of a process's unfinished recording file ([`kymo_wire::process_file`]): of a killed or crashed
//! process, of one that called `_exit` or `exec`, or of one that still runs.
//!
//! Its regions are memory of the process with addresses, so packets are found in it in the same way as in
//! a dump of a board's memory.

use std::collections::HashSet;

use kymo_wire::event::{
    ByteOrder, EventId, Layout, METADATA_STREAM, MetadataType, PacketHeader, Shape,
};
use kymo_wire::link::Identity;
use kymo_wire::note::{NOWHERE, Note};
use kymo_wire::process_file::{self, REGION_ALIGN, header, read_u32, read_u64, region};

use super::image::Image;
use super::{Fault, Found, Recorder};
use crate::formats::kymo::packets::checked_header;
use crate::formats::kymo::records::{Walk, number};

mod open_calls;

/// Contents of an unfinished recording file.
pub(crate) struct Unfinished {
    pub(crate) identity: Identity,
    /// The packets of all streams.
    pub(crate) packets: Vec<u8>,
    pub(crate) remarks: Vec<String>,
    pub(crate) damage: Vec<Fault>,
}

/// Remark on a clock rate that was measured over only `measured_ns` nanoseconds, because the process ended early.
fn inexact(measured_ns: u64) -> Option<String> {
    /// Maximum time between reading both clocks of a pair, summed over two pairs.
    const UNCERTAIN_NS: u64 = 200;
    let per_mille = UNCERTAIN_NS * 1000 / measured_ns.max(1);
    (per_mille > 0).then(|| {
        let microseconds = measured_ns / 1000;
        format!(
            "the rate of the clock was measured over {microseconds} us only: times may be wrong by {}.{} %",
            per_mille / 10,
            per_mille % 10
        )
    })
}

/// Whether `bytes` begin like an unfinished recording file.
pub(crate) fn is_unfinished(bytes: &[u8]) -> bool {
    bytes.starts_with(&process_file::MAGIC)
}

/// A region of the file.
struct Region<'a> {
    order: ByteOrder,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Region<'a> {
    fn half(&self, at: usize) -> u32 {
        read_u32(self.order, self.bytes, at).unwrap_or(0)
    }

    fn long(&self, at: usize) -> u64 {
        read_u64(self.order, self.bytes, at).unwrap_or(0)
    }

    fn address(&self) -> u64 {
        self.long(region::ADDRESS)
    }

    /// The thread's name in the kernel.
    fn name(&self) -> &'a [u8] {
        let name = self
            .bytes
            .get(region::NAME..region::NAME + region::NAME_BYTES);
        let name = name.unwrap_or(&[]);
        let end = name.iter().position(|byte| *byte == 0);
        name.get(..end.unwrap_or(name.len())).unwrap_or(&[])
    }
}

/// Reads the file.
///
/// # Errors
/// A message with the expected and the actual content, and the offset.
pub(crate) fn read(bytes: &[u8]) -> Result<Unfinished, String> {
    let order = process_file::order(bytes).ok_or_else(|| {
        format!(
            "expected a process's recording of version {}, found another version or a damaged header",
            process_file::VERSION
        )
    })?;
    let line = bytes.get(header::IDENTITY..header::BYTES).unwrap_or(&[]);
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let mut identity = std::str::from_utf8(line)
        .ok()
        .and_then(Identity::parse)
        .ok_or_else(|| {
            let at = header::IDENTITY;
            format!("expected the identity of a process at offset {at}, found something else")
        })?;
    let process = read_u32(order, bytes, header::PROCESS).unwrap_or(0);
    let mut remarks = vec![format!(
        "process {process} has not completed this recording: it was killed, crashed, called _exit or exec, \
         ended while threads ran, or still runs"
    )];
    let mut damage = Vec::new();
    let regions = regions(order, bytes, &mut damage);
    let pairs = regions
        .iter()
        .filter(|it| it.half(region::KIND) == region::EVENTS);
    let pairs = pairs.filter_map(|it| process_file::newest_pair(order, it.bytes));
    let newest = pairs.max();
    match process_file::clock_hz(order, bytes, newest) {
        Some(hz) => {
            identity.clock_hz = hz;
            remarks.extend(process_file::measured_ns(order, bytes, newest).and_then(inexact));
        }
        None => {
            identity.clock_hz = 1_000_000_000;
            remarks.push(
                "the rate of the clock is not known: times are ticks, shown as nanoseconds"
                    .to_owned(),
            );
        }
    }
    let buffers = || {
        regions
            .iter()
            .filter(|it| it.half(region::KIND) == region::EVENTS)
    };
    identity.streams = u32::try_from(buffers().count()).unwrap_or(u32::MAX);
    let mut packets = Vec::new();
    let metadata = regions
        .iter()
        .find(|it| it.half(region::KIND) == region::METADATA);
    if let Some(metadata) = metadata {
        let lost = read_u32(order, bytes, header::LOST).unwrap_or(0);
        let names: Vec<_> = buffers()
            .map(|buffer| (u64::from(buffer.half(region::THREAD)), buffer.name()))
            .filter(|(_, name)| !name.is_empty())
            .collect();
        match complete_metadata(identity.layout, metadata, lost, &names) {
            Some(packet) => packets.extend_from_slice(&packet),
            None => damage.push(fault(metadata.at, "the names are damaged")),
        }
    }
    for buffer in buffers() {
        let mut image = Image::of(buffer.address(), buffer.bytes);
        for records in regions
            .iter()
            .filter(|it| it.half(region::KIND) == region::RECORDS)
        {
            image.add(records.address(), records.bytes);
        }
        let Some(recorder) = recorder(identity.layout, buffer) else {
            damage.push(fault(buffer.at, "the buffer of a thread is damaged"));
            continue;
        };
        let mut found = Found {
            recorder: &recorder,
            image: &image,
            packets: std::mem::take(&mut packets),
            remarks: Vec::new(),
            damage: Vec::new(),
        };
        found.stream(0);
        let (first, stride) = (buffer.half(region::RINGS), buffer.half(region::RING_STRIDE));
        for ring in 0..buffer.half(region::RING_COUNT).min(16) {
            let at = u64::from(first) + u64::from(ring) * u64::from(stride);
            let at = buffer.address().wrapping_add(at);
            if found.ring(at).is_none() {
                let message = "a ring of records is damaged".to_owned();
                found.damage.push(Fault { at, message });
            }
        }
        let thread = buffer.half(region::THREAD);
        let of_thread = |remark: String| format!("thread {thread}: {remark}");
        remarks.extend(found.remarks.into_iter().map(of_thread));
        // Converts addresses to offsets in the file.
        damage.extend(found.damage.into_iter().map(|fault| {
            Fault {
                at: fault
                    .at
                    .wrapping_sub(buffer.address())
                    .wrapping_add(buffer.at as u64),
                message: format!("thread {thread}: {}", fault.message),
            }
        }));
        packets = found.packets;
    }
    if open_calls::has_shadow_stacks(order, bytes) {
        let now = open_calls::last_time(identity.layout, &regions, &packets);
        let open = buffers().filter_map(|buffer| {
            let lost = read_u32(order, buffer.bytes, buffer.half(region::DISCARDED) as usize);
            let lost = lost.unwrap_or(0);
            open_calls::packet(identity.layout, buffer, now, &packets, lost)
        });
        let open: Vec<_> = open.collect();
        packets.extend(open.into_iter().flatten());
    }
    let in_memory = read_u32(order, bytes, header::MEMORY_ONLY).unwrap_or(0);
    if in_memory > 0 {
        damage.push(fault(
            header::MEMORY_ONLY,
            format!(
                "the recordings of {in_memory} threads are missing: the file could not be extended when they began (a full disk?)"
            ),
        ));
    }
    if damage.is_empty() {
        remarks[0] += "; all that was recorded until then is here";
    }
    Ok(Unfinished {
        identity,
        packets,
        remarks,
        damage,
    })
}

fn fault(at: usize, message: impl Into<String>) -> Fault {
    Fault {
        at: at as u64,
        message: message.into(),
    }
}

/// Finds the regions. After other data the search continues at each offset where a region may begin. A region that was
/// being created when the process ended is all zeros.
fn regions<'a>(order: ByteOrder, bytes: &'a [u8], damage: &mut Vec<Fault>) -> Vec<Region<'a>> {
    let mut regions = Vec::new();
    let mut at = REGION_ALIGN;
    // Whether the damage here has been reported.
    let mut is_lost = false;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let next = at + REGION_ALIGN;
        let page = rest.get(..REGION_ALIGN).unwrap_or(rest);
        if read_u32(order, rest, region::MARK) != Some(region::MAGIC) {
            if is_unfinished(rest) {
                let message = "another recording follows, which has to be in a file of its own";
                damage.push(fault(at, message));
                break;
            }
            if !is_lost && page.iter().any(|byte| *byte != 0) {
                let message = "expected a region of a thread, found something else";
                damage.push(fault(at, message));
                is_lost = true;
            }
            at = next;
            continue;
        }
        is_lost = false;
        let size = read_u64(order, rest, region::SIZE).and_then(|size| usize::try_from(size).ok());
        let sane = |size: &usize| *size > 0 && size.is_multiple_of(REGION_ALIGN);
        let Some(size) = size.filter(sane) else {
            damage.push(fault(at, "a region has no size that one can have"));
            is_lost = true;
            at = next;
            continue;
        };
        if size > rest.len() {
            let found = rest.len();
            damage.push(fault(
                at,
                format!("the file is cut off: expected {size} bytes, found {found}"),
            ));
        }
        let bytes = rest.get(..size).unwrap_or(rest);
        regions.push(Region { order, bytes, at });
        at = at.saturating_add(size);
    }
    let used = read_u64(order, bytes, header::USED).unwrap_or(0);
    if let Some(missing) = used.checked_sub(bytes.len() as u64).filter(|it| *it != 0) {
        let message = format!("the file is cut off: {missing} bytes behind its end are missing");
        damage.push(fault(bytes.len(), message));
    }
    regions
}

/// Describes a thread's packet buffer as that of the only CPU of a board.
fn recorder(layout: Layout, buffer: &Region<'_>) -> Option<Recorder> {
    let recorder = Recorder {
        duration: None,
        note: Note {
            layout,
            buffer_offset: 0,
            buffer_size_offset: 0,
            packet_size_offset: 0,
            function_shift_offset: 0,
            text_base_offset: 0,
            at_offset: buffer.half(region::AT),
            stride: 0,
            rings_offset: NOWHERE,
            clock_hz_offset: 0,
            metadata_offset: 0,
            metadata_size_offset: 0,
            cpu_count_offset: 0,
            ring_next_offset: 0,
            discarded_offset: NOWHERE,
            slots_offset: 0,
            state_slots: 0,
            state_offset: NOWHERE,
        },
        layout,
        buffer: buffer.address().wrapping_add(buffer.long(region::PACKETS)),
        buffer_bytes: u32::try_from(buffer.long(region::PACKETS_BYTES)).ok()?,
        packet_bytes: buffer.half(region::PACKET_BYTES),
        cpus: 1,
        text_base: 0,
        clock_hz: 0,
        metadata: 0,
        metadata_bytes: 0,
        table: (0, 0),
        cursor: Some(buffer.address()),
        state: None,
        discarded: {
            let count = |at| read_u32(buffer.order, buffer.bytes, buffer.half(at) as usize);
            let (own, lost) = (count(region::DISCARDED)?, count(region::LOST)?);
            own.wrapping_add(lost)
        },
    };
    let packets = buffer
        .long(region::PACKETS)
        .checked_add(recorder.buffer_bytes.into());
    let fits = packets.is_some_and(|end| end <= buffer.long(region::SIZE));
    (fits && recorder.places() != 0).then_some(recorder)
}

/// Completes the packet of names with missing thread names, and with losses that no stream counts.
fn complete_metadata(
    layout: Layout,
    metadata: &Region<'_>,
    lost: u32,
    names: &[(u64, &[u8])],
) -> Option<Vec<u8>> {
    let start = usize::try_from(metadata.long(region::PACKETS)).ok()?;
    let bytes = metadata.bytes.get(start..)?;
    let mut head = checked_header(layout, bytes).ok()?;
    if head.cpu != METADATA_STREAM {
        return None;
    }
    let mut packet = bytes.get(..(head.content_bits / 8) as usize)?.to_vec();
    let mut named = HashSet::new();
    let mut walk = Walk::new(layout, &head, &packet);
    while let Ok(Some(id)) = walk.next() {
        let kind = walk.payload.get(..2).map(|kind| number(layout.order, kind));
        let thread = walk.payload.get(4..4 + layout.word.bytes());
        if id == EventId::Metadata
            && kind == Some(MetadataType::ThreadName as u64)
            && let Some(thread) = thread
        {
            named.insert(number(layout.order, thread));
        }
    }
    for (thread, name) in names {
        if named.insert(*thread) {
            add_name(layout, &mut packet, head.end, *thread, name);
        }
    }
    if lost > head.discarded {
        head.discarded = lost;
        head.flags &= !PacketHeader::FLAG_FACTS;
    }
    head.content_bits = u32::try_from(packet.len() * 8).ok()?;
    head.packet_bits = head.content_bits;
    head.write(layout, &mut packet)?;
    Some(packet)
}

/// Appends the name of a thread, as the recorder does.
fn add_name(layout: Layout, packet: &mut Vec<u8>, time: u64, thread: u64, name: &[u8]) {
    let mut put = |value: u64, bytes: usize| match layout.order {
        ByteOrder::Little => packet.extend_from_slice(&value.to_le_bytes()[..bytes]),
        ByteOrder::Big => packet.extend_from_slice(&value.to_be_bytes()[8 - bytes..]),
    };
    let word = layout.word.bytes();
    put(Shape::time_record(layout.order, time), 8);
    put(
        Shape::other_header(layout.order, EventId::Metadata, time),
        kymo_wire::event::OTHER_BYTES,
    );
    put(MetadataType::ThreadName as u64, 2);
    put((word + name.len()) as u64, 2);
    put(thread, word);
    packet.extend_from_slice(name);
}

/// The header of a metadata packet has no thread, and needs none.
const _: () = assert!(PacketHeader::MAX_BYTES <= region::BYTES);
