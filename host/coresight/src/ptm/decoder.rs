//! Packet decoder of PTM.

use super::{Branch, Config, Context, Fields, Kind, Packet};
use crate::etmv4::Atoms;
use crate::isa::{
    Isa, PartialAddress, SyncReason, UNSYNCED_LEN, context_id, from_gray, timestamp, to_gray,
    with_low_bits, zeros_of_async,
};

/// Iterator that splits the bytes of one PTM into packets. Every byte is in exactly one packet.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    config: Config,
    bytes: &'a [u8],
    at: usize,
    is_synced: bool,
    address: PartialAddress,
    isa: Isa,
    context: Context,
    timestamp: u64,
}

/// Atoms of each header that carries atoms, if cycles are not counted.
const ATOMS: [Atoms; 256] = {
    let mut table = [Atoms { bits: 0, count: 0 }; 256];
    let mut header = 0x80;
    while header < 256 {
        let count = match header {
            0x80..=0x87 => 1,
            0x88..=0x8f => 2,
            0x90..=0x9f => 3,
            0xa0..=0xbf => 4,
            _ => 5,
        };
        // Bit 1 is the newest, and a zero is an E.
        let mut bits = 0;
        let mut at = 0;
        while at < count {
            bits = bits << 1 | (!(header as u32) >> (1 + at) & 1);
            at += 1;
        }
        table[header] = Atoms { bits, count };
        header += 2;
    }
    table
};

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from `start` on; positions of packets count from the beginning of `bytes`.
    pub fn new(config: &Config, bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            config: *config,
            bytes,
            at: start,
            is_synced: false,
            address: PartialAddress::default(),
            isa: Isa::Unknown,
            context: Context::default(),
            timestamp: 0,
        }
    }

    /// Position of the next packet.
    pub(crate) fn next_start(&self) -> usize {
        self.at
    }

    /// Whether both decoders yield the same packets from here on, given the same bytes.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.at == other.at
            && self.is_synced == other.is_synced
            && self.address == other.address
            && self.isa == other.isa
            && self.context == other.context
            && self.timestamp == other.timestamp
    }

    fn packet(&mut self, kind: Kind, len: usize, fields: Fields) -> Packet {
        let start = self.at;
        self.at += len;
        Packet {
            kind,
            began_as: kind,
            start,
            len,
            cycles: None,
            fields,
        }
    }

    fn bad(&mut self, kind: Kind, began_as: Kind, len: usize) -> Packet {
        let mut packet = self.packet(kind, len, Fields::None);
        packet.began_as = began_as;
        packet
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(self.at + at).copied()
    }

    fn unsynced(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let mut len = 0;
        while len < rest.len().min(UNSYNCED_LEN) {
            let (zeros, is_async) = zeros_of_async(&rest[len..]);
            if is_async {
                if len > 0 {
                    break;
                }
                self.is_synced = true;
                return Some(self.packet(Kind::Async, zeros + 1, Fields::None));
            }
            len += zeros.max(1);
        }
        Some(self.packet(Kind::NotSync, len, Fields::None))
    }

    /// Reads the packet at the current position, or returns the kind of its header if the bytes end within it.
    fn synced(&mut self, header: u8) -> Result<Packet, Kind> {
        if header & 1 == 1 {
            return self.branch().ok_or(Kind::BranchAddress);
        }
        if header & 0x80 != 0 {
            return self.atom(header).ok_or(Kind::Atom);
        }
        match header {
            0x00 => {
                let rest = &self.bytes[self.at..];
                let (zeros, is_async) = zeros_of_async(rest);
                match rest.get(zeros) {
                    Some(_) if is_async => Ok(self.packet(Kind::Async, zeros + 1, Fields::None)),
                    Some(_) => Ok(self.bad(Kind::BadSequence, Kind::Async, zeros + 1)),
                    None => Err(Kind::Async),
                }
            }
            0x08 => self.isync().ok_or(Kind::ISync),
            0x0c => Ok(self.packet(Kind::Trigger, 1, Fields::None)),
            0x72 => self.waypoint().ok_or(Kind::WaypointUpdate),
            0x66 => Ok(self.packet(Kind::Ignore, 1, Fields::None)),
            0x76 => Ok(self.packet(Kind::ExceptionReturn, 1, Fields::None)),
            0x6e => {
                let len = self.config.context_id_bytes();
                let id = self
                    .context_id(1)
                    .ok_or(Kind::ContextId)?
                    .unwrap_or_default();
                Ok(self.packet(Kind::ContextId, 1 + len, Fields::ContextId(id)))
            }
            0x3c => {
                let vmid = self.byte(1).ok_or(Kind::Vmid)?;
                Ok(self.packet(Kind::Vmid, 2, Fields::Vmid(vmid)))
            }
            0x42 | 0x46 => self.timestamp().ok_or(Kind::Timestamp),
            _ => Ok(self.bad(Kind::Reserved, Kind::Reserved, 1)),
        }
    }

    fn context_id(&self, at: usize) -> Option<Option<u32>> {
        context_id(
            self.bytes.get(self.at + at..)?,
            self.config.context_id_bytes(),
        )
    }

    /// Reads a cycle count: four bits in the first byte, seven in each of at most four more.
    fn cycles(&self, at: usize) -> Option<(u32, usize)> {
        let first = self.byte(at)?;
        let mut value = u32::from(first >> 2 & 0xf);
        let mut goes_on = first & 0x40 != 0;
        let mut len = 1;
        while goes_on {
            let byte = self.byte(at + len)?;
            value |= u32::from(byte & 0x7f) << (4 + 7 * (len - 1));
            len += 1;
            goes_on = byte & 0x80 != 0 && len < 5;
        }
        Some((value, len))
    }

    fn atom(&mut self, header: u8) -> Option<Packet> {
        if self.config.is_cycle_accurate() {
            let (cycles, len) = self.cycles(0)?;
            let atoms = Atoms {
                bits: u32::from(header & 2 == 0),
                count: 1,
            };
            let mut packet = self.packet(Kind::Atom, len, Fields::Atoms(atoms));
            packet.cycles = Some(cycles);
            return Some(packet);
        }
        let atoms = ATOMS[usize::from(header)];
        Some(self.packet(Kind::Atom, 1, Fields::Atoms(atoms)))
    }

    /// Returns the size of an address in bytes, the instruction set in its fifth byte, and whether more bytes follow.
    fn address_len(&self, at: usize) -> Option<(usize, Option<Isa>, bool)> {
        for len in 1..5 {
            let byte = self.byte(at + len - 1)?;
            if byte & 0x80 == 0 {
                let has_more = len > 1 && byte & 0x40 != 0;
                return Some((len, None, has_more));
            }
        }
        let last = self.byte(at + 4)?;
        let isa = match last {
            _ if last & 0x20 != 0 => Isa::Jazelle,
            _ if last & 0x30 == 0x10 => Isa::T32,
            _ => Isa::A32,
        };
        Some((5, Some(isa), last & 0x40 != 0))
    }

    fn set_address(&mut self, at: usize, len: usize) {
        let isa = self.isa;
        let mut value = 0u64;
        let mut bits = 0;
        let mut shift = 0;
        for index in 0..len {
            let byte = self.bytes[self.at + at + index];
            let (mask, width) = match index {
                0 => (0x7e, 7),
                4 => match isa {
                    Isa::Jazelle => (0x1f, 5),
                    Isa::A32 => (0x07, 3),
                    _ => (0x0f, 4),
                },
                _ if index + 1 == len => (0x3f, 6),
                _ => (0x7f, 7),
            };
            value |= u64::from(byte & mask) << shift;
            bits += width;
            shift += 7;
            if index == 0 && isa == Isa::Jazelle {
                value >>= 1;
                shift = 6;
                bits -= 1;
            }
        }
        if isa == Isa::A32 {
            value <<= 1;
            bits += 1;
        }
        self.address.update(value as u32, bits);
    }

    /// Updates the instruction set from an address packet. Returns whether it changed.
    fn set_isa(&mut self, isa: Option<Isa>, alt_isa: bool) -> bool {
        let before = self.isa;
        self.isa = match isa.unwrap_or(before) {
            Isa::ThumbEe | Isa::T32 if isa.is_some() || before == Isa::ThumbEe => {
                if alt_isa {
                    Isa::ThumbEe
                } else {
                    Isa::T32
                }
            }
            isa => isa,
        };
        self.isa != before
    }

    fn branch(&mut self) -> Option<Packet> {
        let (address_len, isa, has_exception) = self.address_len(0)?;
        let mut len = address_len;
        let mut exception = None;
        let mut context = None;
        if has_exception {
            let first = self.byte(len)?;
            len += 1;
            let mut number = u16::from(first >> 1 & 0xf);
            let mut new = Context {
                ns: first & 1 == 1,
                alt_isa: first & 0x40 != 0,
                ..self.context
            };
            if first & 0x80 != 0 {
                let second = self.byte(len)?;
                len += 1;
                number |= u16::from(second & 0x1f) << 4;
                new.hyp = second & 0x20 != 0;
            }
            exception = Some(number);
            context = Some(new);
        }
        let mut cycles = None;
        if self.config.is_cycle_accurate() {
            let (count, bytes) = self.cycles(len)?;
            cycles = Some(count);
            len += bytes;
        }
        if let Some(context) = context {
            self.context = context;
        }
        let isa_changed = self.set_isa(isa, context.is_some_and(|context| context.alt_isa));
        self.set_address(0, address_len);
        let branch = Branch {
            address: self.address,
            isa: self.isa,
            isa_changed,
            exception,
            context,
        };
        let mut packet = self.packet(Kind::BranchAddress, len, Fields::Branch(branch));
        packet.cycles = cycles;
        Some(packet)
    }

    fn waypoint(&mut self) -> Option<Packet> {
        let (address_len, isa, has_info) = self.address_len(1)?;
        // Shorter addresses have no information byte; bit 6 of their last byte is part of the address.
        let has_info = has_info && address_len == 5;
        let mut alt_isa = false;
        let mut len = 1 + address_len;
        if has_info {
            alt_isa = self.byte(len)? & 0x40 != 0;
            len += 1;
        }
        let isa_changed = self.set_isa(isa, alt_isa);
        self.set_address(1, address_len);
        let branch = Branch {
            address: self.address,
            isa: self.isa,
            isa_changed,
            exception: None,
            context: None,
        };
        Some(self.packet(Kind::WaypointUpdate, len, Fields::Branch(branch)))
    }

    fn isync(&mut self) -> Option<Packet> {
        let bytes = self.bytes.get(self.at + 1..self.at + 6)?;
        let address = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let info = bytes[4];
        let mut len = 6;
        let reason = SyncReason::of_bits(info >> 5);
        let mut cycles = None;
        if self.config.is_cycle_accurate() && reason != SyncReason::Periodic {
            let (count, bytes) = self.cycles(len)?;
            cycles = Some(count);
            len += bytes;
        }
        let id = self.context_id(len)?;
        len += self.config.context_id_bytes();
        self.context = Context {
            ns: info & 8 != 0,
            alt_isa: info & 4 != 0,
            hyp: info & 2 != 0,
            id,
        };
        self.isa = match (address & 1, self.context.alt_isa) {
            (0, _) => Isa::A32,
            (_, false) => Isa::T32,
            (_, true) => Isa::ThumbEe,
        };
        self.address.update(address & !1, 32);
        let fields = Fields::ISync {
            reason,
            address: self.address,
            isa: self.isa,
            context: self.context,
        };
        let mut packet = self.packet(Kind::ISync, len, fields);
        packet.cycles = cycles;
        Some(packet)
    }

    fn timestamp(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at + 1..)?;
        let (value, bits, len) = timestamp(rest, self.config.has_64_bit_timestamps())?;
        let mut len = 1 + len;
        let mut cycles = None;
        if self.config.is_cycle_accurate() {
            let (count, bytes) = self.cycles(len)?;
            cycles = Some(count);
            len += bytes;
        }
        self.timestamp = if self.config.has_binary_timestamps() {
            with_low_bits(self.timestamp, value, bits)
        } else {
            from_gray(with_low_bits(to_gray(self.timestamp), value, bits))
        };
        let fields = Fields::Timestamp {
            value: self.timestamp,
            bits,
        };
        let mut packet = self.packet(Kind::Timestamp, len, fields);
        packet.cycles = cycles;
        Some(packet)
    }
}

impl Iterator for Decoder<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        if !self.is_synced {
            return self.unsynced();
        }
        let header = *self.bytes.get(self.at)?;
        // Most packets are atoms.
        let atoms = ATOMS[usize::from(header)];
        if atoms.count > 0 && !self.config.is_cycle_accurate() {
            return Some(self.packet(Kind::Atom, 1, Fields::Atoms(atoms)));
        }
        Some(self.synced(header).unwrap_or_else(|began_as| {
            let rest = self.bytes.len() - self.at;
            self.bad(Kind::IncompleteEot, began_as, rest)
        }))
    }
}
