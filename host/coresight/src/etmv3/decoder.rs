//! Packet decoder of ETMv3.

use super::{Branch, Config, Context, Exception, Fields, ISync, Kind, Packet};
use crate::etmv4::Atoms;
use crate::isa::{
    ASYNC_ZEROS, Isa, PartialAddress, SyncReason, UNSYNCED_LEN, context_id, little_endian,
    timestamp, with_low_bits, zeros_of_async,
};

/// Iterator that splits the bytes of one ETMv3 into packets. Every byte is in exactly one packet.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    config: Config,
    bytes: &'a [u8],
    at: usize,
    is_synced: bool,
    address: PartialAddress,
    data_address: PartialAddress,
    isa: Isa,
    context: Context,
    timestamp: u64,
}

/// Address bits of a branch packet, before they are aligned to the instruction set.
struct BranchBits {
    value: u32,
    bits: u8,
    /// The fifth byte, if there is one.
    fifth: Option<u8>,
    /// Bytes.
    len: usize,
    has_exception: bool,
}

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from `start` on; positions of packets count from the beginning of `bytes`.
    pub fn new(config: &Config, bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            config: *config,
            bytes,
            at: start,
            is_synced: false,
            address: PartialAddress::default(),
            data_address: PartialAddress::default(),
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
            && self.data_address == other.data_address
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
                // Zeros before the five belong to the unsynchronized part.
                let before = len + zeros - ASYNC_ZEROS;
                if before > 0 {
                    return Some(self.packet(Kind::NotSync, before, Fields::None));
                }
                self.is_synced = true;
                return Some(self.packet(Kind::Async, ASYNC_ZEROS + 1, Fields::None));
            }
            len += zeros.max(1);
        }
        Some(self.packet(Kind::NotSync, len, Fields::None))
    }

    /// Reads the packet at the current position, or returns the kind of its header if the bytes end within it.
    fn synced(&mut self, header: u8) -> Result<Packet, Kind> {
        let config = self.config;
        if header & 1 == 1 {
            return self.branch().ok_or(Kind::BranchAddress);
        }
        if header & 0x80 != 0 {
            return Ok(self.bad(Kind::Reserved, Kind::PHeader, 1));
        }
        let data_mode = |kind, is_on: bool| if is_on { Ok(kind) } else { Err(kind) };
        let data = match header {
            0x00 => return self.async_or_bad(),
            0x04 => {
                let (cycles, len) = self.cycles(1).ok_or(Kind::CycleCount)?;
                return Ok(self.packet(Kind::CycleCount, 1 + len, Fields::Cycles(cycles)));
            }
            0x08 => return self.isync(Kind::ISync).ok_or(Kind::ISync),
            0x70 => return self.isync(Kind::ISyncCycle).ok_or(Kind::ISyncCycle),
            0x0c => return Ok(self.packet(Kind::Trigger, 1, Fields::None)),
            0x66 => return Ok(self.packet(Kind::Ignore, 1, Fields::None)),
            0x76 => return Ok(self.packet(Kind::ExceptionExit, 1, Fields::None)),
            0x7e => return Ok(self.packet(Kind::ExceptionEntry, 1, Fields::None)),
            0x3c => {
                let vmid = self.byte(1).ok_or(Kind::Vmid)?;
                return Ok(self.packet(Kind::Vmid, 2, Fields::Vmid(vmid)));
            }
            0x6e => {
                let id = self
                    .context_id(1)
                    .ok_or(Kind::ContextId)?
                    .unwrap_or_default();
                let len = 1 + config.context_id_bytes();
                return Ok(self.packet(Kind::ContextId, len, Fields::ContextId(id)));
            }
            0x42 | 0x46 => return self.timestamp().ok_or(Kind::Timestamp),
            0x50 => data_mode(Kind::StoreFailed, config.traces_data_values()),
            0x62 => data_mode(Kind::DataSuppressed, config.traces_data()),
            0x6a | 0x7a => data_mode(Kind::ValueNotTraced, config.traces_data()),
            _ if header & 0x93 == 0x00 => {
                data_mode(Kind::OutOfOrderData, config.traces_data_values())
            }
            _ if header & 0xd3 == 0x50 => {
                data_mode(Kind::OutOfOrderPlaceholder, config.traces_data())
            }
            _ if header & 0xd3 == 0x02 => data_mode(Kind::NormalData, config.traces_data()),
            _ => return Ok(self.bad(Kind::Reserved, Kind::Reserved, 1)),
        };
        match data {
            Ok(kind) => self.data(kind, header).ok_or(kind),
            Err(kind) => Ok(self.bad(Kind::BadTraceMode, kind, 1)),
        }
    }

    fn async_or_bad(&mut self) -> Result<Packet, Kind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let zeros = rest
            .iter()
            .take(ASYNC_ZEROS + 1)
            .take_while(|byte| **byte == 0)
            .count();
        if zeros > ASYNC_ZEROS {
            // The first zero is one too many.
            return Ok(self.bad(Kind::BadSequence, Kind::Async, 1));
        }
        match rest.get(zeros) {
            Some(0x80) if zeros == ASYNC_ZEROS => {
                Ok(self.packet(Kind::Async, ASYNC_ZEROS + 1, Fields::None))
            }
            Some(_) => Ok(self.bad(Kind::BadSequence, Kind::Async, zeros)),
            None => Err(Kind::Async),
        }
    }

    fn context_id(&self, at: usize) -> Option<Option<u32>> {
        context_id(
            self.bytes.get(self.at + at..)?,
            self.config.context_id_bytes(),
        )
    }

    /// Reads a cycle count: seven bits in each of at most five bytes, four in the fifth.
    fn cycles(&self, at: usize) -> Option<(u32, usize)> {
        let mut value = 0;
        for len in 0..5 {
            let byte = self.byte(at + len)?;
            let mask = if len == 4 { 0xf } else { 0x7f };
            value |= u32::from(byte & mask) << (7 * len);
            if byte & 0x80 == 0 || len == 4 {
                return Some((value, len + 1));
            }
        }
        None
    }

    /// Reads the address bytes of a branch packet.
    fn branch_bits(&self, at: usize) -> Option<BranchBits> {
        let first = self.byte(at)?;
        let mut bits = BranchBits {
            value: u32::from(first >> 1 & 0x3f),
            bits: 6,
            fifth: None,
            len: 1,
            has_exception: false,
        };
        if first & 0x80 == 0 {
            return Some(bits);
        }
        while bits.len < 4 {
            let byte = self.byte(at + bits.len)?;
            bits.len += 1;
            let goes_on = byte & 0x80 != 0;
            let is_last_alternative = self.config.has_alternative_branches() && !goes_on;
            let (mask, width) = if is_last_alternative {
                (0x3f, 6)
            } else {
                (0x7f, 7)
            };
            bits.value |= u32::from(byte & mask) << bits.bits;
            bits.bits += width;
            if !goes_on {
                bits.has_exception = is_last_alternative && byte & 0x40 != 0;
                return Some(bits);
            }
        }
        let fifth = self.byte(at + 4)?;
        bits.len = 5;
        bits.fifth = Some(fifth);
        bits.has_exception = fifth & 0xc0 == 0x40;
        Some(bits)
    }

    /// Aligns address bits to the current instruction set and replaces those of the address.
    fn aligned(&self, bits: &BranchBits, mut address: PartialAddress) -> PartialAddress {
        let (mask, width, shift) = match self.isa {
            Isa::T32 | Isa::ThumbEe => (0xf, 4, 1),
            Isa::Jazelle => (0x1f, 5, 0),
            _ => (0x7, 3, 2),
        };
        let mut value = bits.value;
        let mut count = bits.bits;
        if let Some(fifth) = bits.fifth {
            value |= u32::from(fifth & mask) << count;
            count += width;
        }
        address.update(value << shift, count + shift);
        address
    }

    fn branch(&mut self) -> Option<Packet> {
        let bits = self.branch_bits(0)?;
        let mut len = bits.len;
        let before = self.isa;
        let mut exception = None;
        let mut context = None;
        if bits.has_exception {
            let (found, new, bytes) = self.exception(len)?;
            exception = Some(found);
            context = Some(new);
            len += bytes;
        }
        if let Some(context) = context {
            self.context = context;
        }
        if let Some(fifth) = bits.fifth {
            self.isa = match fifth {
                // The original encoding: Arm state, with the exception in this byte.
                _ if fifth & 0x80 != 0 => {
                    let number = u16::from(fifth >> 3 & 7);
                    exception = Some(Exception {
                        number,
                        cancels: fifth & 0x40 != 0,
                        resume: 0,
                    });
                    Isa::A32
                }
                _ if fifth & 0x38 == 0x08 => Isa::A32,
                _ if fifth & 0x30 == 0x10 && self.context.alt_isa => Isa::ThumbEe,
                _ if fifth & 0x30 == 0x10 => Isa::T32,
                _ if fifth & 0x20 == 0x20 => Isa::Jazelle,
                _ => return Some(self.bad(Kind::BadSequence, Kind::BranchAddress, len)),
            };
        }
        self.address = self.aligned(&bits, self.address);
        let branch = Branch {
            address: self.address,
            isa: self.isa,
            isa_changed: self.isa != before,
            exception,
            context,
        };
        Some(self.packet(Kind::BranchAddress, len, Fields::Branch(branch)))
    }

    /// Reads the exception bytes after an address.
    fn exception(&self, at: usize) -> Option<(Exception, Context, usize)> {
        let is_m_profile = self.config.is_m_profile;
        let first = self.byte(at)?;
        let mut number = u16::from(first >> 1 & 0xf);
        let mut context = Context {
            ns: first & 1 == 1,
            alt_isa: first & 0x40 != 0,
            ..self.context
        };
        let mut exception = Exception {
            number,
            cancels: first & 0x20 != 0,
            resume: 0,
        };
        let mut len = 1;
        if first & 0x80 != 0 {
            let mut byte = self.byte(at + 1)?;
            len = 2;
            let mut has_resume = byte & 0x40 != 0;
            if !has_resume {
                if is_m_profile {
                    number |= u16::from(byte & 0x1f) << 4;
                }
                context.hyp = byte & 0x20 != 0;
                if byte & 0x80 != 0 {
                    byte = self.byte(at + 2)?;
                    len = 3;
                    has_resume = true;
                }
            }
            if has_resume {
                exception.resume = byte & 0xf;
            }
        }
        exception.number = if is_m_profile {
            number & 0x1ff
        } else {
            number & 0xf
        };
        Some((exception, context, len))
    }

    fn isync(&mut self, kind: Kind) -> Option<Packet> {
        let mut len = 1;
        let mut cycles = None;
        if kind == Kind::ISyncCycle {
            let (count, bytes) = self.cycles(len)?;
            cycles = Some(count);
            len += bytes;
        }
        let id = self.context_id(len)?;
        len += self.config.context_id_bytes();
        let info = self.byte(len)?;
        len += 1;
        let has_alt_isa = self.config.minor_version() >= 3;
        let context = Context {
            ns: info & 8 != 0,
            hyp: if self.config.has_virtualization() {
                info & 2 != 0
            } else {
                self.context.hyp
            },
            alt_isa: has_alt_isa && info & 4 != 0,
        };
        let mut isync = ISync {
            reason: SyncReason::of_bits(info >> 5),
            address: None,
            isa: self.isa,
            context,
            id,
            cycles,
            current: None,
        };
        if self.config.traces_instructions() {
            let bytes = self.bytes.get(self.at + len..self.at + len + 4)?;
            let address = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            len += 4;
            let isa = match (info & 0x10 != 0, address & 1 == 1, context.alt_isa) {
                (true, _, _) => Isa::Jazelle,
                (_, false, _) => Isa::A32,
                (_, _, true) => Isa::ThumbEe,
                _ => Isa::T32,
            };
            let follows = if info & 0x80 != 0 {
                Some(self.branch_bits(len)?)
            } else {
                None
            };
            self.isa = isa;
            self.address.update(address & !1, 32);
            isync.isa = isa;
            isync.address = Some(self.address);
            if let Some(bits) = follows {
                isync.current = Some(self.aligned(&bits, self.address));
                len += bits.len;
            }
        }
        self.context = context;
        Some(self.packet(kind, len, Fields::ISync(isync)))
    }

    fn timestamp(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at + 1..)?;
        let (value, bits, len) = timestamp(rest, self.config.has_64_bit_timestamps())?;
        self.timestamp = with_low_bits(self.timestamp, value, bits);
        let len = 1 + len;
        Some(self.packet(Kind::Timestamp, len, Fields::Timestamp(self.timestamp)))
    }

    /// Reads a data trace packet.
    fn data(&mut self, kind: Kind, header: u8) -> Option<Packet> {
        let mut len = 1;
        let has_address = matches!(
            kind,
            Kind::NormalData | Kind::ValueNotTraced | Kind::OutOfOrderPlaceholder
        ) && header & 0x20 != 0
            && self.config.traces_data_addresses();
        let has_address = match kind {
            Kind::ValueNotTraced => header & 0x10 != 0 && self.config.traces_data_addresses(),
            _ => has_address,
        };
        let mut address = self.data_address;
        if has_address {
            let mut value = 0;
            for index in 0..5 {
                let byte = self.byte(len)?;
                len += 1;
                let mask = if index == 4 { 0xf } else { 0x7f };
                value |= u32::from(byte & mask) << (7 * index);
                if byte & 0x80 == 0 || index == 4 {
                    address.update(value, (7 * (index + 1)).min(32) as u8);
                    break;
                }
            }
        }
        let mut value = None;
        if matches!(kind, Kind::NormalData | Kind::OutOfOrderData) {
            let size = [0, 1, 2, 4][usize::from(header >> 2 & 3)];
            let bytes = self.bytes.get(self.at + len..self.at + len + size)?;
            value = Some(little_endian(bytes) as u32);
            len += size;
        }
        let tag = match kind {
            Kind::OutOfOrderData => header >> 5 & 3,
            Kind::OutOfOrderPlaceholder => header >> 2 & 3,
            _ => 0,
        };
        self.data_address = address;
        let address = has_address.then_some(address);
        Some(self.packet(
            kind,
            len,
            Fields::Data {
                address,
                value,
                tag,
            },
        ))
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
        if header & 0x81 == 0x80
            && let Some(fields) =
                P_HEADERS[usize::from(self.config.is_cycle_accurate())][usize::from(header & 0x7f)]
        {
            return Some(self.packet(Kind::PHeader, 1, fields));
        }
        Some(self.synced(header).unwrap_or_else(|began_as| {
            let rest = self.bytes.len() - self.at;
            self.bad(Kind::IncompleteEot, began_as, rest)
        }))
    }
}

/// Content of each P-header, by its lower bits; the second table applies if cycles are counted.
static P_HEADERS: [[Option<Fields>; 128]; 2] = {
    let mut table = [[None; 128]; 2];
    let mut header = 0;
    while header < 128 {
        table[0][header] = p_header(header as u8 | 0x80, false);
        table[1][header] = p_header(header as u8 | 0x80, true);
        header += 1;
    }
    table
};

/// Atoms and cycles of a P-header.
const fn p_header(header: u8, is_cycle_accurate: bool) -> Option<Fields> {
    let two = Atoms {
        bits: (header & 8 == 0) as u32 | ((header & 4 == 0) as u32) << 1,
        count: 2,
    };
    let not = header >> 6 & 1;
    let (atoms, cycles, format) = if is_cycle_accurate {
        match header & 0xa3 {
            0x80 => {
                let atoms = executed_then(header >> 2 & 7, not);
                if atoms.count == 0 {
                    return None;
                }
                (atoms, atoms.count as u32, 1)
            }
            0x82 if header & 0x10 != 0 => {
                let atoms = Atoms {
                    bits: (header & 4 == 0) as u32,
                    count: 1,
                };
                (atoms, 0, 4)
            }
            0x82 => (two, 1, 2),
            0xa0 => (executed_then(not, 0), (header >> 2 & 7) as u32 + 1, 3),
            _ => return None,
        }
    } else {
        match header & 3 {
            0 => (executed_then(header >> 2 & 0xf, not), 0, 1),
            2 => (two, 0, 2),
            _ => return None,
        }
    };
    Some(Fields::PHeader {
        atoms,
        cycles,
        format,
    })
}

/// Returns `executed` E atoms followed by `not` N atoms.
const fn executed_then(executed: u8, not: u8) -> Atoms {
    Atoms {
        bits: (1 << executed) - 1,
        count: executed + not,
    }
}
