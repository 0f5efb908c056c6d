//! Reader of a memory dump: extracts a target's packets from its RAM, with the help of the program's ELF file.
//!
//! A crashed target does not answer the host. But it records packets directly into memory, and the
//! ELF file contains their address ([`kymo_wire::note`]). The memory saved by a debugger (`dump binary
//! memory` of GDB, `pmemsave` of QEMU, a core file) is converted to the packets that the target would
//! have sent, and read like these ([`Dump`]).
//!
//! There are three differences. The newest packet of each stream is incomplete: its records end at an
//! offset that the recorder keeps. Packets are numbered and fill the slots of the buffer in a cycle, so
//! older packets are found by going back from the newest one; other contents of the buffer (from
//! before a reboot or a clear) do not belong to this recording. And a plain file does not state its
//! address: it is computed from the sequence numbers of the packets in it, which determine their slots
//! ([`Image::locate`]).
//!
//! The newest packet includes losses that the recorder had counted but not yet written into a packet. Only
//! the losses of hooks refused since the packet began are counted elsewhere.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kymo_event::{Damage, TraceInfo};
use kymo_symbols::Program;
use kymo_wire::event::{ByteOrder, Layout, PacketHeader};
use kymo_wire::items;
use kymo_wire::link::Identity;
use kymo_wire::note::{NOWHERE, Note, ring};

use super::Dump;
use super::packets::{checked_header, records_at};
use super::records::{self, number};
use super::source::open_packets;
use crate::bytes::Bytes;
use crate::{OpenError, OpenOptions, Source};

mod duration;
mod identity;
mod image;
mod open_calls;
mod process_file;
mod table;
#[cfg(test)]
mod tests;

pub(super) use identity::{clock_of, identity_of};
use image::Image;
pub(crate) use process_file::{Unfinished, is_unfinished, read as read_unfinished};
pub use table::MemoryTable;

/// More rings of items than any program has: stops at a damaged, endless list.
const RINGS: usize = 256;

/// More CPUs than any recorder has buffers for.
const CPUS: u32 = 256;

/// A dump of a target's memory, for code that converts its packets instead of reading its events
/// ([`write_trace`](super::write_trace)).
#[derive(Clone, Debug)]
pub struct MemoryDump {
    path: PathBuf,
    identity: Identity,
    packets: Vec<u8>,
    remarks: Vec<String>,
    damage: Vec<Fault>,
}

/// Damage: memory contents that no recorder writes.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Its address, or its offset in a file.
    pub(crate) at: u64,
    pub(crate) message: String,
}

/// Adds the damage in a recorder's memory to the facts about its trace.
pub(crate) fn add_faults(info: &mut TraceInfo, stream: &str, faults: Vec<Fault>) {
    for fault in faults {
        info.add_damage(Damage {
            stream: stream.to_owned(),
            offset: fault.at,
            message: fault.message,
        });
    }
}

impl MemoryDump {
    /// Opens the dump at `path` of the memory of `program`: a core file, or plain bytes from `address`. An
    /// unknown address is computed from the bytes. `more` are files of plain bytes from other parts of the
    /// memory, with their addresses.
    ///
    /// # Errors
    /// [`OpenError`] if the dump cannot be read, or no recording is found in it.
    pub fn open(
        path: &Path,
        program: &Program,
        address: Option<u64>,
        more: &[(PathBuf, u64)],
    ) -> Result<Self, OpenError> {
        look(path, program, address, more, |found| {
            let identity = found.identity()?;
            if found.packets.is_empty() {
                return Err(format!(
                    "expected packets in {}, found none: nothing had been recorded, or the dump lacks \
                     that memory",
                    found.recorder.place()
                ));
            }
            Ok(Self {
                path: path.to_owned(),
                identity,
                packets: found.packets,
                remarks: found.remarks,
                damage: found.damage,
            })
        })
    }

    /// The identity of the target, as far as memory and ELF file contain it.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The packets. Offsets differ from those in the file.
    pub fn dump(&self) -> Dump<'_> {
        Dump {
            identity: &self.identity,
            bytes: &self.packets,
            missing: &[],
            target: self.path.to_str().unwrap_or("memory dump"),
        }
    }

    /// Descriptions of the parts of the recording that the dump lacks. They are gaps in the trace, too.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Reads its events.
    ///
    /// # Errors
    /// [`OpenError::Identity`] if the ELF file's data is not valid for a recording.
    pub fn into_source(self, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
        let bytes = Bytes::from(self.packets);
        let name = self.path.display().to_string();
        let mut source = open_packets(&self.identity, bytes, 0, &[], options)
            .map_err(|why| why.of_identity(self.path))?;
        add_faults(source.info_mut(), &name, self.damage);
        Ok(source)
    }
}

/// Finds a recorder's data in a memory dump ([`MemoryDump::open`]) and passes it to `take`.
fn look<R>(
    path: &Path,
    program: &Program,
    address: Option<u64>,
    more: &[(PathBuf, u64)],
    take: impl FnOnce(Found<'_>) -> Result<R, String>,
) -> Result<R, OpenError> {
    let bytes = crate::open::file_bytes(path)?;
    let others = more
        .iter()
        .map(|(path, address)| Ok((crate::open::file_bytes(path)?, *address)))
        .collect::<Result<Vec<_>, OpenError>>()?;
    let refuse = |message| OpenError::Memory {
        path: path.to_owned(),
        message,
    };
    let recorder = Recorder::of(program).map_err(refuse)?;
    let mut image = Image::new(&bytes, &recorder, address).map_err(refuse)?;
    for (bytes, address) in &others {
        image.add(*address, bytes);
    }
    let mut found = Found {
        recorder: &recorder,
        image: &image,
        packets: Vec::new(),
        remarks: Vec::new(),
        damage: Vec::new(),
    };
    found.collect();
    take(found).map_err(refuse)
}

/// The memory ranges of a program's recording that its ELF file states: packets, names, profile table. They exclude the
/// recorder's state and the rings of items, which are variables of the program. Empty if it has no recorder.
pub fn recorded_memory(program: &Program) -> Vec<Range<u64>> {
    let Ok(recorder) = Recorder::of(program) else {
        return Vec::new();
    };
    let names =
        recorder.metadata..(recorder.metadata).saturating_add(recorder.metadata_bytes.into());
    let packets = recorder.buffer..recorder.packet_at(recorder.cpus - 1, 0);
    let end = packets.end.saturating_add(recorder.buffer_bytes.into());
    let mut ranges = vec![packets.start..end, names, recorder.slots()];
    ranges.retain(|range| range.start != 0 && !range.is_empty());
    ranges
}

/// Data about the recorder from the ELF file.
struct Recorder {
    note: Note,
    layout: Layout,
    /// The address of the first CPU's packets.
    buffer: u64,
    /// The size of one CPU's packet memory, in bytes.
    buffer_bytes: u32,
    packet_bytes: u32,
    cpus: u32,
    text_base: u64,
    /// 0 if the metadata contains it.
    clock_hz: u64,
    /// The address of the packet of names; 0 if there is none.
    metadata: u64,
    metadata_bytes: u32,
    /// The address and the number of slots of the profile table's memory; (0, 0) if there is none or it is unknown.
    table: (u64, u32),
    duration: Option<duration::Place>,
    /// The base address of `at_offset`.
    cursor: Option<u64>,
    /// The base address of the other offsets.
    state: Option<u64>,
    /// Discarded events that neither packets nor the recorder's state count.
    discarded: u32,
}

impl Recorder {
    fn of(program: &Program) -> Result<Self, String> {
        let order = if program.is_big_endian() {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        };
        let note = program
            .section(".note.kymo")
            .ok_or("expected a section .note.kymo in the ELF file, found none")?;
        let note = Note::read(note, order).ok_or(
            "expected a note of a version that is known here in .note.kymo, found another",
        )?;
        if note.at_offset == NOWHERE {
            return Err(
                "expected a program whose packets have a fixed place, found one with threads: its \
                 recording is saved with kymo_save or KYMO_OUTPUT"
                    .to_owned(),
            );
        }
        let config = program
            .variable("kymo_config")
            .ok_or("expected the symbol kymo_config in the ELF file, found none")?;
        let field = |offset: u16, size: usize| {
            let at = config.wrapping_add(offset.into());
            let bytes = program.bytes_at(at, size);
            bytes.map(|bytes| number(order, bytes)).ok_or_else(|| {
                format!("expected kymo_config at {at:#x} in the ELF file, found nothing")
            })
        };
        let word = |offset| field(offset, note.layout.word.bytes());
        let half = |offset| field(offset, 4).map(|value| value as u32);
        let mut layout = note.layout;
        match half(note.function_shift_offset)? {
            0 => {}
            shift @ 1..=7 => layout.function_shift = shift as u8,
            shift => {
                return Err(format!(
                    "expected a function_shift of 0 to 7, found {shift}"
                ));
            }
        }
        let recorder = Self {
            layout,
            buffer: word(note.buffer_offset)?,
            buffer_bytes: half(note.buffer_size_offset)?,
            packet_bytes: half(note.packet_size_offset)?,
            cpus: half(note.cpu_count_offset)?.clamp(1, CPUS),
            text_base: word(note.text_base_offset)?,
            clock_hz: field(note.clock_hz_offset, 8)?,
            metadata: word(note.metadata_offset)?,
            metadata_bytes: half(note.metadata_size_offset)?,
            table: match note.slots_offset {
                0 => (0, 0),
                offset => {
                    let count = offset.saturating_add(note.layout.word.bytes() as u16);
                    (word(offset)?, half(count)?)
                }
            },
            duration: duration::Place::of(program),
            cursor: program.variable(match note.stride {
                0 => "kymo_hot",
                _ => "kymo_recorder",
            }),
            state: program.variable("kymo_recorder"),
            discarded: 0,
            note,
        };
        if recorder.places() == 0 {
            return Err(format!(
                "expected a buffer of whole packets in kymo_config, found {} bytes of {} each",
                recorder.buffer_bytes, recorder.packet_bytes
            ));
        }
        Ok(recorder)
    }

    /// The number of packet slots per CPU.
    const fn places(&self) -> u32 {
        match self.buffer_bytes.checked_div(self.packet_bytes) {
            Some(places) if self.packet_bytes as usize >= PacketHeader::MAX_BYTES => places,
            _ => 0,
        }
    }

    /// The address of a CPU's packet with this sequence number.
    fn packet_at(&self, cpu: u32, sequence: u32) -> u64 {
        let buffer = u64::from(cpu) * u64::from(self.buffer_bytes);
        let packet = u64::from(sequence % self.places().max(1)) * u64::from(self.packet_bytes);
        self.buffer.wrapping_add(buffer + packet)
    }

    /// The address of a CPU's field in the recorder, from its offset in the note.
    fn of_cpu(&self, base: Option<u64>, offset: u32, cpu: u32) -> Option<u64> {
        let stride = u64::from(self.note.stride) * u64::from(cpu);
        let at = base?.wrapping_add(u64::from(offset)).wrapping_add(stride);
        (offset != NOWHERE).then_some(at)
    }

    /// The expected address range of the packets, for messages.
    fn place(&self) -> String {
        let end = self.packet_at(self.cpus, 0);
        format!("the buffer at {:#x} to {end:#x}", self.buffer)
    }
}

/// Data found in the memory.
struct Found<'a> {
    recorder: &'a Recorder,
    image: &'a Image<'a>,
    /// Packets, one after the other.
    packets: Vec<u8>,
    remarks: Vec<String>,
    damage: Vec<Fault>,
}

impl Found<'_> {
    fn collect(&mut self) {
        self.metadata();
        for cpu in 0..self.recorder.cpus {
            self.stream(cpu);
        }
        duration::add(self);
        for cpu in 0..self.recorder.cpus {
            self.rings(cpu);
        }
    }

    /// Adds the packet of names, which is always complete.
    fn metadata(&mut self) {
        let (at, most) = (self.recorder.metadata, self.recorder.metadata_bytes);
        if at == 0 {
            return;
        }
        let layout = self.recorder.layout;
        let header = self.header(at);
        let length = header.map_or(0, |header| header.content_bits / 8);
        match self.image.bytes(at, length as usize) {
            Some(packet) if (layout.header_bytes() as u32..=most).contains(&length) => {
                self.packets.extend_from_slice(packet);
            }
            _ => self.remarks.push(format!(
                "the names at {at:#x} are not in the dump, or were not written yet"
            )),
        }
    }

    /// Adds the packets of a CPU, the oldest first.
    fn stream(&mut self, cpu: u32) {
        let recorder = self.recorder;
        let places = recorder.places();
        let address = recorder.of_cpu(recorder.cursor, recorder.note.at_offset, cpu);
        let at = address.and_then(|address| self.word(address));
        // Nothing recorded yet.
        if at == Some(0) {
            return;
        }
        let begin = recorder.packet_at(cpu, 0);
        let place_of = |at: u64| {
            let offset = at.checked_sub(begin)?.checked_sub(1)?;
            let place = u32::try_from(offset / u64::from(recorder.packet_bytes)).ok()?;
            (place < places).then_some(place)
        };
        let with_header = |place| Some((place, self.header(recorder.packet_at(cpu, place))?));
        let reported = at.map(|at| place_of(at).and_then(with_header));
        let is_damaged = matches!(reported, Some(None));
        let latest = || self.latest(cpu).and_then(with_header);
        let newest = reported.flatten().or_else(latest);
        if let (true, Some(at)) = (is_damaged, at) {
            self.damage.push(Fault {
                at: address.unwrap_or(at),
                message: format!(
                    "expected the end of the newest packet of cpu {cpu} in its buffer, found {at:#x}; its last packets \
                     are those that were completed last"
                ),
            });
        }
        let at = at.filter(|_| !is_damaged);
        let Some((newest, header)) = newest else {
            return;
        };
        for back in (0..places).rev() {
            let place = (newest + places - back) % places;
            let start = recorder.packet_at(cpu, place);
            // Sequence numbers wrap around from 2^32 - 1 to 0.
            let wanted = header.sequence.wrapping_sub(back);
            if back == 0 {
                self.newest(cpu, start, header, at);
            } else if back <= header.sequence || self.header(start).is_some() {
                self.packet(start, wanted, recorder.packet_bytes);
            }
        }
    }

    /// Adds the newest packet, whose records end at `at`.
    fn newest(&mut self, cpu: u32, start: u64, mut header: PacketHeader, at: Option<u64>) {
        let recorder = self.recorder;
        let layout = recorder.layout;
        let count = recorder.of_cpu(recorder.state, recorder.note.discarded_offset, cpu);
        let count = count.and_then(|at| self.half(at)).unwrap_or(0);
        header.discarded = header.discarded.max(count).max(recorder.discarded);
        let reported = (header.content_bits / 8) as usize;
        let length = match at.and_then(|at| usize::try_from(at.checked_sub(start)?).ok()) {
            Some(length) => length,
            None => {
                // The header of an incomplete packet states an empty content.
                if reported == layout.header_bytes() {
                    header.flags |= PacketHeader::FLAG_CUT;
                    self.remarks.push(format!(
                        "the last events of cpu {cpu} are not shown: where they end stands in {}, \
                         which is damaged or not in the dump",
                        match recorder.note.stride {
                            0 => "kymo_hot",
                            _ => "kymo_recorder",
                        }
                    ));
                }
                reported
            }
        };
        self.complete(start, header, length);
    }

    /// Adds a possibly incomplete packet of `length` bytes.
    fn complete(&mut self, start: u64, mut header: PacketHeader, length: usize) {
        let layout = self.recorder.layout;
        let Some(content) = self.image.bytes(start, length) else {
            self.remarks.push(format!(
                "expected {length} bytes of a packet at {start:#x}, which are not in the dump"
            ));
            return;
        };
        // A running process may have completed it meanwhile, with an end after the records read here.
        let is_whole = (header.content_bits / 8) as usize == length;
        header.content_bits = (length * 8) as u32;
        header.packet_bits = header.content_bits;
        let end = records::end(layout, &header, content);
        header.end = if is_whole { end.max(header.end) } else { end };
        let from = self.packets.len();
        self.packets.extend_from_slice(content);
        if let Some(front) = self.packets.get_mut(from..) {
            // Cannot fail: the packet contains a header.
            let _ = header.write(layout, front);
        }
    }

    /// Adds a complete packet if it has the wanted sequence number. Otherwise its slot was reused for
    /// a packet being started, or it is lost, which shows as a gap in the sequence numbers.
    fn packet(&mut self, start: u64, wanted: u32, most: u32) {
        let header = self.header(start);
        if header.is_some_and(|header| header.sequence != wanted) {
            return;
        }
        // A packet without a header is added whole: the reader reports it as damage.
        let length = header.map_or(most, |header| (header.content_bits / 8).min(most));
        if let Some(packet) = self.image.bytes(start, length as usize) {
            self.packets.extend_from_slice(packet);
        }
    }

    /// The slot of the latest packet, from the packets' headers.
    fn latest(&self, cpu: u32) -> Option<u32> {
        let recorder = self.recorder;
        let all = (0..recorder.places()).filter_map(|place| {
            let header = self.header(recorder.packet_at(cpu, place))?;
            (header.sequence % recorder.places() == place).then_some((header.begin, place))
        });
        all.max().map(|(_, place)| place)
    }

    /// Adds the packets in a CPU's rings of items.
    fn rings(&mut self, cpu: u32) {
        let recorder = self.recorder;
        let first = recorder.of_cpu(recorder.state, recorder.note.rings_offset, cpu);
        let mut next = first.and_then(|first| self.word(first)).unwrap_or(0);
        let mut seen = HashSet::new();
        while next != 0 && seen.len() < RINGS && seen.insert(next) {
            let at = next;
            if self.ring(at).is_none() {
                self.remarks.push(format!(
                    "the items of the ring at {at:#x} are not in the dump, or damaged"
                ));
            }
            let link = at.wrapping_add(recorder.note.ring_next_offset.into());
            next = self.word(link).unwrap_or(0);
        }
    }

    /// Adds the packets of a ring, the oldest first; `None` if the ring is incomplete in the dump.
    fn ring(&mut self, ring: u64) -> Option<()> {
        let layout = self.recorder.layout;
        let word = layout.word.bytes();
        let size = items::packet_bytes(layout.word) as u32;
        let field = |n: usize| ring.wrapping_add((n * word) as u64);
        let counts = field(ring::PACKETS_WORD);
        let at = self.word(field(ring::AT_WORD))?;
        let memory = self.word(field(ring::MEMORY_WORD))?;
        let places = self.half(counts)?;
        let sequence = self.half(counts.wrapping_add(ring::SEQUENCE_BYTES as u64))?;
        let content = self.half(counts.wrapping_add(ring::CONTENT_BYTES as u64))?;
        if sequence == 0 || places == 0 {
            return Some(());
        }
        if u64::from(places) * u64::from(size) > self.image.size() {
            return None;
        }
        let kept = sequence.min(places);
        for back in (0..kept).rev() {
            let number = sequence.wrapping_sub(1).wrapping_sub(back);
            let start = memory.wrapping_add(u64::from(number % places) * u64::from(size));
            match (back, content) {
                // The packet was being started.
                (0, 0) => {}
                (0, ring::OPEN) => {
                    let header = self.header(start)?;
                    self.complete(start, header, usize::try_from(at.checked_sub(start)?).ok()?);
                }
                _ => self.packet(start, number, size),
            }
        }
        Some(())
    }

    /// The header of the packet at an address, if there is one.
    fn header(&self, at: u64) -> Option<PacketHeader> {
        let layout = self.recorder.layout;
        let bytes = self.image.bytes(at, items::header_bytes(layout))?;
        let header = checked_header(layout, bytes).ok()?;
        (records_at(layout, &header) <= bytes.len()).then_some(header)
    }

    fn word(&self, at: u64) -> Option<u64> {
        let layout = self.recorder.layout;
        let bytes = self.image.bytes(at, layout.word.bytes())?;
        Some(number(layout.order, bytes))
    }

    fn half(&self, at: u64) -> Option<u32> {
        let bytes = self.image.bytes(at, 4)?;
        Some(number(self.recorder.layout.order, bytes) as u32)
    }
}
