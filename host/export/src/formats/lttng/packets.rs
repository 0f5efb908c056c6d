//! Packet streams in the layout of LTTng's kernel tracer: byte-aligned, little endian.
//!
//! An event's header takes 4 bytes if its number is below 31 and its time less than 2^27 ns (134 ms) after the event
//! before: 5 bits of number, 27 bits of time. Otherwise it takes 13 bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// The trace's UUID in packets and metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uuid([u8; 16]);

impl Uuid {
    /// The UUID of a trace with this description: the same trace always gets the same one. It is a hash (FNV-1a) in the
    /// form of version 8 of RFC 9562, for custom UUIDs.
    pub fn of(says: &str) -> Self {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let add = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        let hash = says.bytes().fold(BASIS, add);
        let marked = hash & !(0xF << 76 | 0x3 << 62) | 0x8 << 76 | 0x2 << 62;
        Self(marked.to_be_bytes())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let dash = if matches!(place, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

const MAGIC: u32 = 0xc1fc_1fc1;

/// Size of a packet's header and context in bytes.
const HEAD: usize = 4 + 16 + 4 + 8 + 6 * 8 + 4;

/// Offset of the header fields that are known at the packet's end.
const END_AT: usize = 4 + 16 + 4 + 8 + 8;

/// Length in bytes at which a packet is closed: readers keep one packet in memory.
const LONGEST: usize = 256 << 10;

/// Limit of event numbers in a short header.
const SHORT_IDS: u32 = 31;

/// Number of time bits in a short header.
const SHORT_BITS: u32 = 27;

/// Position in a stream's file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u64);

impl Position {
    /// The position this many bytes after it.
    pub const fn behind(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The packets of one processor.
pub(super) struct Stream {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    uuid: Uuid,
    instance: u64,
    cpu: u32,
    bytes: Vec<u8>,
    /// Bytes of the packets before the open one.
    written: u64,
    /// Position of the last event's fields.
    payload: u64,
    begin: u64,
    /// The time of the last event.
    pub last: u64,
    sequence: u64,
    discarded: u64,
}

impl Stream {
    /// Creates a stream; its file is created with the first packet.
    pub fn new(path: PathBuf, uuid: Uuid, instance: u64, cpu: u32) -> Self {
        Self {
            path,
            file: None,
            uuid,
            instance,
            cpu,
            bytes: Vec::new(),
            written: 0,
            payload: 0,
            begin: 0,
            last: 0,
            sequence: 0,
            discarded: 0,
        }
    }

    /// Writes an event with this number, not earlier than the one before; `payload` adds its fields.
    pub fn event(
        &mut self,
        id: u32,
        ticks: u64,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        if self.bytes.is_empty() {
            self.begin_packet(ticks);
        }
        let is_near = ticks - self.last < 1 << SHORT_BITS;
        if id < SHORT_IDS && is_near {
            let time = (ticks & ((1 << SHORT_BITS) - 1)) as u32;
            self.bytes.extend((id | time << 5).to_le_bytes());
        } else {
            self.bytes.push(SHORT_IDS as u8);
            self.bytes.extend(id.to_le_bytes());
            self.bytes.extend(ticks.to_le_bytes());
        }
        self.last = ticks;
        self.payload = self.written + self.bytes.len() as u64;
        payload(&mut self.bytes);
        if self.bytes.len() >= LONGEST {
            return self.end_packet();
        }
        Ok(())
    }

    /// The position of the last event's fields.
    pub const fn payload(&self) -> Position {
        Position(self.payload)
    }

    /// Overwrites bytes in the open packet or an earlier one.
    pub fn set(&mut self, position: Position, value: &[u8]) -> io::Result<()> {
        if let Some(place) = position.0.checked_sub(self.written) {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let room = self.bytes.get_mut(place..);
            if let Some(room) = room.and_then(|room| room.get_mut(..value.len())) {
                room.copy_from_slice(value);
            }
            return Ok(());
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(position.0))?;
        file.write_all(value)?;
        file.seek(SeekFrom::Start(self.written))?;
        Ok(())
    }

    /// Counts lost events, which are behind those of the packet that counts them.
    pub fn lose(&mut self, events: u64, ticks: u64) -> io::Result<()> {
        if self.bytes.is_empty() {
            self.begin_packet(ticks);
        }
        if self.sequence == 0 {
            // Readers determine the number of lost events from the difference to the packet before.
            self.end_packet()?;
            self.begin_packet(ticks);
        }
        self.discarded = self.discarded.saturating_add(events);
        self.end_packet()
    }

    fn begin_packet(&mut self, ticks: u64) {
        self.begin = ticks;
        // A short header's upper time bits refer to the beginning of the packet.
        self.last = ticks;
        self.bytes.extend(MAGIC.to_le_bytes());
        self.bytes.extend(self.uuid.0);
        self.bytes.extend(0_u32.to_le_bytes());
        self.bytes.extend(self.instance.to_le_bytes());
        self.bytes.extend(ticks.to_le_bytes());
        self.bytes.extend([0; 5 * 8]);
        self.bytes.extend(self.cpu.to_le_bytes());
        debug_assert_eq!(self.bytes.len(), HEAD);
    }

    fn end_packet(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let bits = self.bytes.len() as u64 * 8;
        let late = [self.last, bits, bits, self.sequence, self.discarded];
        let late: Vec<u8> = late.into_iter().flat_map(u64::to_le_bytes).collect();
        if let Some(room) = self.bytes.get_mut(END_AT..END_AT + late.len()) {
            room.copy_from_slice(&late);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(File::create_new(&self.path)?)),
        };
        file.write_all(&self.bytes)?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        self.sequence += 1;
        Ok(())
    }

    /// Closes the stream.
    pub fn finish(mut self) -> io::Result<()> {
        self.end_packet()?;
        match self.file {
            Some(mut file) => file.flush(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_those_of_what_is_said() {
        let text = Uuid::of("a trace").to_string();
        assert_eq!(text, Uuid::of("a trace").to_string());
        assert_ne!(text, Uuid::of("another").to_string());
        // Version 8, and the variant of RFC 9562.
        assert_eq!(text.len(), 36);
        assert_eq!(text.get(14..15), Some("8"));
        assert!(text.get(19..20).is_some_and(|it| "89ab".contains(it)));
    }
}
