//! Packet decoder of STM (MIPI STPv2).

use super::{Kind, Packet};
use crate::isa::{from_gray, to_gray};

/// Iterator that splits the bytes of an STM into packets. Every nibble is in exactly one packet.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    /// Next nibble.
    at: usize,
    is_synced: bool,
    master: u16,
    channel: u16,
    timestamp: u64,
    encoding: Encoding,
}

/// Encoding of timestamps, given by the version packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Unknown,
    Binary,
    Gray,
}

/// Nibbles of an alignment synchronization: 21 of `F`, then a zero.
const ASYNC_LEN: usize = 22;

/// Largest size of an unsynchronized packet, in nibbles.
const UNSYNCED_LEN: usize = 32;

/// Properties of an opcode, known before its payload is read.
struct Opcode {
    kind: Kind,
    /// Nibbles of the opcode.
    len: usize,
    /// Nibbles of the value.
    value: usize,
    is_marker: bool,
    has_timestamp: bool,
}

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from `start` on; positions of packets count from the beginning of `bytes`.
    pub fn new(bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            bytes,
            at: 2 * start,
            is_synced: false,
            master: 0,
            channel: 0,
            timestamp: 0,
            encoding: Encoding::Unknown,
        }
    }

    fn nibble(&self, at: usize) -> Option<u8> {
        let byte = *self.bytes.get(at / 2)?;
        Some(if at.is_multiple_of(2) {
            byte & 0xf
        } else {
            byte >> 4
        })
    }

    fn packet(&mut self, kind: Kind, nibbles: usize) -> Packet {
        let start_nibble = self.at;
        self.at += nibbles;
        Packet {
            kind,
            began_as: kind,
            start_nibble,
            nibbles,
            master: self.master,
            channel: self.channel,
            value: 0,
            is_marker: false,
            timestamp: None,
        }
    }

    fn bad(&mut self, kind: Kind, began_as: Kind, nibbles: usize) -> Packet {
        let mut packet = self.packet(kind, nibbles);
        packet.began_as = began_as;
        packet
    }

    fn unsynced(&mut self) -> Option<Packet> {
        let mut ones = 0;
        let mut len = 0;
        while let Some(nibble) = self.nibble(self.at + len) {
            len += 1;
            match nibble {
                0xf => ones += 1,
                0 if ones >= ASYNC_LEN - 1 => {
                    if len > ASYNC_LEN {
                        return Some(self.packet(Kind::NotSync, len - ASYNC_LEN));
                    }
                    self.is_synced = true;
                    return Some(self.packet(Kind::Async, ASYNC_LEN));
                }
                _ => {
                    ones = 0;
                    if len >= UNSYNCED_LEN {
                        return Some(self.packet(Kind::NotSync, len));
                    }
                }
            }
        }
        (len > 0).then(|| self.packet(Kind::NotSync, len))
    }

    fn opcode(&self) -> Option<Opcode> {
        let plain = |kind, len, value| Opcode {
            kind,
            len,
            value,
            is_marker: false,
            has_timestamp: false,
        };
        let with = |opcode: Opcode, is_marker, has_timestamp| Opcode {
            is_marker,
            has_timestamp,
            ..opcode
        };
        let data = |size: u8, len| match size & 3 {
            0 => plain(Kind::Data8, len, 2),
            1 => plain(Kind::Data16, len, 4),
            2 => plain(Kind::Data32, len, 8),
            _ => plain(Kind::Data64, len, 16),
        };
        Some(match self.nibble(self.at)? {
            0x0 => plain(Kind::Null, 1, 0),
            0x1 => plain(Kind::Master8, 1, 2),
            0x2 => plain(Kind::MasterError, 1, 2),
            0x3 => plain(Kind::Channel8, 1, 2),
            size @ 0x4..=0x7 => data(size, 1),
            size @ 0x8..=0xb => with(data(size, 1), true, true),
            0xc => plain(Kind::Data4, 1, 1),
            0xd => with(plain(Kind::Data4, 1, 1), true, true),
            0xe => with(plain(Kind::Flag, 1, 0), false, true),
            _ => match self.nibble(self.at + 1)? {
                0x0 => match self.nibble(self.at + 2)? {
                    0x0 => plain(Kind::Version, 3, 1),
                    0x1 => with(plain(Kind::Null, 3, 0), false, true),
                    0x6 => plain(Kind::Trigger, 3, 2),
                    0x7 => with(plain(Kind::Trigger, 3, 2), false, true),
                    0x8 => plain(Kind::Frequency, 3, 8),
                    _ => plain(Kind::Reserved, 3, 0),
                },
                // STPv2 has it; Arm's STMs have up to 128 masters and send only the short one.
                0x1 => plain(Kind::Master16, 2, 4),
                0x2 => plain(Kind::GlobalError, 2, 2),
                0x3 => plain(Kind::Channel16, 2, 4),
                size @ 0x4..=0x7 => with(data(size, 2), false, true),
                size @ 0x8..=0xb => with(data(size, 2), true, false),
                0xc => with(plain(Kind::Data4, 2, 1), false, true),
                0xd => with(plain(Kind::Data4, 2, 1), true, false),
                0xe => plain(Kind::Flag, 2, 0),
                0xf => plain(Kind::Async, 2, 0),
                _ => plain(Kind::Reserved, 2, 0),
            },
        })
    }

    /// Reads an alignment synchronization between packets.
    fn resync(&mut self) -> Packet {
        let mut len = 2;
        loop {
            match self.nibble(self.at + len) {
                Some(0xf) => len += 1,
                Some(0) if len >= ASYNC_LEN - 1 => return self.packet(Kind::Async, len + 1),
                Some(_) => return self.bad(Kind::BadSequence, Kind::Async, len + 1),
                None => return self.bad(Kind::IncompleteEot, Kind::Async, len),
            }
        }
    }

    /// Reads the packet at the current position, or returns the kind of its header if the bytes end within it.
    fn synced(&mut self) -> Result<Packet, Kind> {
        let opcode = self.opcode().ok_or(Kind::Reserved)?;
        let kind = opcode.kind;
        if kind == Kind::Async {
            return Ok(self.resync());
        }
        let mut len = opcode.len;
        let value = self.number(len, opcode.value).ok_or(kind)?;
        len += opcode.value;
        match kind {
            Kind::Version => {
                self.encoding = match value {
                    3 => Encoding::Binary,
                    4 => Encoding::Gray,
                    _ => return Ok(self.bad(Kind::BadSequence, kind, len)),
                };
                self.master = 0;
                self.channel = 0;
            }
            Kind::Master8 | Kind::Master16 => {
                self.master = value as u16;
                self.channel = 0;
            }
            Kind::Channel8 => self.channel = self.channel & 0xff00 | value as u16,
            Kind::Channel16 => self.channel = value as u16,
            Kind::MasterError => self.channel = 0,
            Kind::GlobalError => {
                self.master = 0;
                self.channel = 0;
            }
            _ => {}
        }
        let mut timestamp = None;
        if opcode.has_timestamp {
            let nibbles = match self.nibble(self.at + len).ok_or(kind)? {
                0xd => 14,
                0xe => 16,
                0xf => return Ok(self.bad(Kind::BadSequence, kind, len + 1)),
                nibbles => usize::from(nibbles),
            };
            len += 1;
            let update = self.number(len, nibbles).ok_or(kind)?;
            len += nibbles;
            let bits = 4 * nibbles as u8;
            let mask = if bits == 64 {
                u64::MAX
            } else {
                (1 << bits) - 1
            };
            self.timestamp = match self.encoding {
                Encoding::Binary => self.timestamp & !mask | update,
                Encoding::Gray => from_gray(to_gray(self.timestamp) & !mask | update),
                Encoding::Unknown => return Ok(self.bad(Kind::BadSequence, kind, len)),
            };
            timestamp = Some((self.timestamp, bits));
        }
        let mut packet = self.packet(kind, len);
        packet.value = value;
        packet.is_marker = opcode.is_marker;
        packet.timestamp = timestamp;
        Ok(packet)
    }

    /// Reads a number of this many nibbles, the most significant first, after `skip` nibbles of the packet.
    fn number(&self, skip: usize, nibbles: usize) -> Option<u64> {
        (0..nibbles).try_fold(0, |value, at| {
            Some(value << 4 | u64::from(self.nibble(self.at + skip + at)?))
        })
    }
}

impl Iterator for Decoder<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        self.nibble(self.at)?;
        if !self.is_synced {
            return self.unsynced();
        }
        Some(self.synced().unwrap_or_else(|began_as| {
            let rest = 2 * self.bytes.len() - self.at;
            self.bad(Kind::IncompleteEot, began_as, rest)
        }))
    }
}
