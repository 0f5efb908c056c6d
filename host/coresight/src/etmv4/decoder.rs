//! Packet decoder of ETMv4 and ETE.

mod information;

use super::Config;
use super::headers::{ATOMS, kinds, reserved_kind};
use super::packet::{Address, Atoms, Context, Fields, KeyedResult, Kind, Packet, QElement};
use crate::isa::little_endian;

/// Iterator that splits the bytes of one source into packets. Every byte is in exactly one packet.
///
/// Bytes before the first alignment synchronization become [`Kind::NotSync`] packets of up to eight bytes, or more with
/// a run of zeros. The decoder reports an invalid packet as such and continues after it; the consumer decides whether
/// to trust the packets that follow. A packet that the end of the bytes truncates becomes [`Kind::IncompleteEot`].
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    config: Config,
    kinds: [Kind; 256],
    bytes: &'a [u8],
    at: usize,
    is_synced: bool,
    history: [Address; 3],
    is_64_bit: bool,
    timestamp: u64,
    has_timestamp: bool,
    cycle_threshold: u32,
    seen_info: bool,
}

/// Size of an alignment synchronization in bytes: eleven zeros and 0x80.
const ASYNC_LEN: usize = 12;

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from `start` on; positions of packets count from the beginning of `bytes`.
    pub fn new(config: &Config, bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            config: *config,
            kinds: kinds(config),
            bytes,
            at: start,
            is_synced: false,
            history: [Address::default(); 3],
            is_64_bit: false,
            timestamp: 0,
            has_timestamp: false,
            cycle_threshold: 0,
            seen_info: false,
        }
    }

    /// Whether the decoder has seen a timestamp packet.
    pub(crate) fn has_timestamp(&self) -> bool {
        self.has_timestamp
    }

    /// Position of the next packet.
    pub(crate) fn next_start(&self) -> usize {
        self.at
    }

    /// Whether both decoders yield the same packets from here on, given the same bytes.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.at == other.at
            && self.is_synced == other.is_synced
            && self.history == other.history
            && self.is_64_bit == other.is_64_bit
            && self.timestamp == other.timestamp
            && self.has_timestamp == other.has_timestamp
            && self.cycle_threshold == other.cycle_threshold
            && self.seen_info == other.seen_info
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

    /// Reads bytes before an alignment synchronization, or the synchronization itself.
    fn unsynced(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        let mut len = 0;
        while let Some(&byte) = rest.get(len) {
            if byte == 0 {
                let zeros = rest[len..].iter().take_while(|&&byte| byte == 0).count();
                let ends = rest.get(len + zeros);
                if zeros >= ASYNC_LEN - 1 && ends == Some(&0x80) {
                    // Zeros before its eleven belong to the unsynchronized part.
                    let before = len + zeros - (ASYNC_LEN - 1);
                    if before > 0 {
                        return Some(self.packet(Kind::NotSync, before, Fields::None));
                    }
                    self.is_synced = true;
                    return Some(self.packet(Kind::Async, ASYNC_LEN, Fields::None));
                }
                if ends.is_none() {
                    return Some(if len > 0 {
                        self.packet(Kind::NotSync, len, Fields::None)
                    } else {
                        let began_as = if zeros > 1 {
                            Kind::Async
                        } else {
                            Kind::Extension
                        };
                        self.bad(Kind::IncompleteEot, began_as, zeros)
                    });
                }
                if len > 0 {
                    return Some(self.packet(Kind::NotSync, len, Fields::None));
                }
                // The zeros, and the byte after them, belong to the unsynchronized packet.
                len += zeros;
            }
            len += 1;
            if len >= 8 {
                return Some(self.packet(Kind::NotSync, len, Fields::None));
            }
        }
        Some(self.bad(Kind::IncompleteEot, Kind::NotSync, len))
    }

    /// Returns position and atoms of the next packet if it is an atom packet. Faster than building a [`Packet`].
    #[inline]
    pub fn next_atoms(&mut self) -> Option<(usize, Atoms)> {
        let atoms = ATOMS[usize::from(*self.bytes.get(self.at)?)];
        if atoms.count == 0 || !self.is_synced {
            return None;
        }
        let at = self.at;
        self.at += 1;
        Some((at, atoms))
    }

    /// Returns position and address of the next packet if it is a complete address packet. Faster than building a
    /// [`Packet`].
    #[inline]
    pub fn next_address(&mut self) -> Option<(usize, Address)> {
        let header = *self.bytes.get(self.at)?;
        if !self.is_synced {
            return None;
        }
        let at = self.at;
        let body = at + 1;
        let (address, len) = match self.kinds[usize::from(header)] {
            Kind::AddressShortIs0 => self.peek_short(body, 0)?,
            Kind::AddressShortIs1 => self.peek_short(body, 1)?,
            Kind::Address32Is0 => (self.peek_long(body, 0, 4)?, 4),
            Kind::Address32Is1 => (self.peek_long(body, 1, 4)?, 4),
            Kind::Address64Is0 => (self.peek_long(body, 0, 8)?, 8),
            Kind::Address64Is1 => (self.peek_long(body, 1, 8)?, 8),
            Kind::AddressMatch => (self.peek_match(header & 3), 0),
            _ => return None,
        };
        self.at = body + len;
        self.push(address);
        Some((at, address))
    }

    /// Reads the packet at the current position, of any kind.
    fn other(&mut self, header: u8) -> Option<Packet> {
        let packet = self.synced(header);
        if packet.is_some() {
            return packet;
        }
        let kind = match self.kinds[usize::from(header)] {
            Kind::Extension if self.bytes.get(self.at + 1) == Some(&0) => Kind::Async,
            kind => kind,
        };
        Some(self.bad(Kind::IncompleteEot, kind, self.bytes.len() - self.at))
    }

    /// Reads the packet at the current position; `None` if the bytes end within it.
    #[inline]
    fn synced(&mut self, header: u8) -> Option<Packet> {
        let kind = self.kinds[usize::from(header)];
        let body = self.at + 1;
        Some(match kind {
            Kind::AddressShortIs0 | Kind::SourceShortIs0 => self.short_address(kind, 0)?,
            Kind::AddressShortIs1 | Kind::SourceShortIs1 => self.short_address(kind, 1)?,
            Kind::Address32Is0 | Kind::Source32Is0 => self.long_address(kind, 0, 4)?,
            Kind::Address32Is1 | Kind::Source32Is1 => self.long_address(kind, 1, 4)?,
            Kind::Address64Is0 | Kind::Source64Is0 => self.long_address(kind, 0, 8)?,
            Kind::Address64Is1 | Kind::Source64Is1 => self.long_address(kind, 1, 8)?,
            Kind::AddressMatch | Kind::SourceMatch => {
                let address = self.peek_match(header & 3);
                self.push(address);
                self.packet(kind, 1, Fields::Address(address))
            }
            Kind::AddressContext32Is0 => self.address_context(kind, 0, 4)?,
            Kind::AddressContext32Is1 => self.address_context(kind, 1, 4)?,
            Kind::AddressContext64Is0 => self.address_context(kind, 0, 8)?,
            Kind::AddressContext64Is1 => self.address_context(kind, 1, 8)?,
            Kind::Context if header & 1 == 0 => self.packet(kind, 1, Fields::Context(None)),
            Kind::Context => {
                let (context, len) = self.context(body)?;
                self.is_64_bit = context.is_64_bit;
                self.packet(kind, 1 + len, Fields::Context(Some(context)))
            }
            Kind::TraceOn
            | Kind::FunctionReturn
            | Kind::ExceptionReturn
            | Kind::TransactionStart
            | Kind::TransactionCommit
            | Kind::ConditionalFlush
            | Kind::Ignore
            | Kind::TimestampMarker => self.packet(kind, 1, Fields::None),
            Kind::Event => self.packet(kind, 1, Fields::Number(header & 0xf)),
            Kind::DataSyncNumbered | Kind::DataSyncUnnumbered => {
                self.packet(kind, 1, Fields::Number(header & 7))
            }
            Kind::Timestamp => self.timestamp(header)?,
            Kind::Exception => self.exception()?,
            Kind::CycleCountF1 | Kind::CycleCountF2 | Kind::CycleCountF3 => {
                self.cycle_count(kind, header)?
            }
            Kind::Commit => {
                let (count, len) = self.field32(body, 5)?;
                self.packet(kind, 1 + len, Fields::Commit(count))
            }
            Kind::CancelF1 | Kind::CancelF1Mispredict => {
                let (count, len) = self.field32(body, 5)?;
                self.packet(
                    kind,
                    1 + len,
                    Fields::Cancel {
                        atoms: Atoms::default(),
                        count,
                    },
                )
            }
            Kind::Mispredict | Kind::CancelF2 => {
                let atoms = match header & 3 {
                    1 => Atoms { bits: 1, count: 1 },
                    2 => Atoms { bits: 3, count: 2 },
                    3 => Atoms { bits: 0, count: 1 },
                    _ => Atoms::default(),
                };
                let count = u32::from(kind == Kind::CancelF2);
                self.packet(kind, 1, Fields::Cancel { atoms, count })
            }
            Kind::CancelF3 => {
                let atoms = Atoms {
                    bits: u32::from(header & 1),
                    count: header & 1,
                };
                let count = u32::from(header >> 1 & 3) + 2;
                self.packet(kind, 1, Fields::Cancel { atoms, count })
            }
            Kind::TraceInfo => self.trace_info()?,
            Kind::Instrumentation => {
                let bytes = self.bytes.get(body..body + 9)?;
                let value = little_endian(&bytes[1..]);
                self.packet(
                    kind,
                    10,
                    Fields::Instrumentation {
                        level: bytes[0] & 3,
                        value,
                    },
                )
            }
            Kind::Q => self.q(header)?,
            Kind::Extension => self.extension()?,
            Kind::ConditionalF2 | Kind::ConditionalResultF2 | Kind::ConditionalResultF4 => {
                self.packet(kind, 1, Fields::Conditional(u32::from(header & 7)))
            }
            Kind::ConditionalF1 => {
                let (key, len) = self.field32(body, 5)?;
                self.packet(kind, 1 + len, Fields::Conditional(key))
            }
            Kind::ConditionalF3 => {
                let byte = *self.bytes.get(body)?;
                self.packet(kind, 2, Fields::Conditional(u32::from(byte)))
            }
            Kind::ConditionalResultF3 => {
                let byte = *self.bytes.get(body)?;
                self.packet(
                    kind,
                    2,
                    Fields::Conditional(u32::from(header & 0xf) << 8 | u32::from(byte)),
                )
            }
            Kind::ConditionalResultF1 => {
                // One or two of result and key, each with its bit CI in the header.
                let count = if header & 0xfc == 0x6c { 1 } else { 2 };
                let mut results = [None; 2];
                let mut len = 1;
                for (number, result) in results.iter_mut().enumerate().take(count) {
                    let (field, bytes) = self.field32(self.at + len, 5)?;
                    len += bytes;
                    *result = Some(KeyedResult {
                        key: field >> 4,
                        result: field as u8 & 0xf,
                        implies_instructions: header >> number & 1 == 1,
                    });
                }
                self.packet(kind, len, Fields::Results(results))
            }
            // The bytes after the header determine the kind, or the byte is not a header.
            Kind::ReservedConfig => self.bad(Kind::ReservedConfig, reserved_kind(header), 1),
            Kind::BadTraceMode => self.bad(Kind::BadTraceMode, reserved_kind(header), 1),
            _ => self.bad(Kind::Reserved, Kind::Reserved, 1),
        })
    }

    fn extension(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at..)?;
        Some(match rest.get(1)? {
            3 => self.packet(Kind::Discard, 2, Fields::None),
            5 => self.packet(Kind::Overflow, 2, Fields::None),
            0 => {
                let zeros = rest
                    .iter()
                    .take(ASYNC_LEN)
                    .take_while(|&&byte| byte == 0)
                    .count();
                if zeros == ASYNC_LEN {
                    return Some(self.bad(Kind::BadSequence, Kind::Async, ASYNC_LEN));
                }
                let last = *rest.get(zeros)?;
                if zeros == ASYNC_LEN - 1 && last == 0x80 {
                    self.packet(Kind::Async, ASYNC_LEN, Fields::None)
                } else {
                    self.bad(Kind::BadSequence, Kind::Async, zeros + 1)
                }
            }
            _ => self.bad(Kind::BadSequence, Kind::Extension, 2),
        })
    }

    fn exception(&mut self) -> Option<Packet> {
        let first = *self.bytes.get(self.at + 1)?;
        let kind_bits = first >> 1 & 0x1f;
        let is_ete_special = self.config.is_ete && (kind_bits == 0 || kind_bits == 0x18);
        let len = if first & 0x80 != 0 || is_ete_special {
            3
        } else {
            2
        };
        let mut number = u16::from(kind_bits);
        let mut fault_pending = false;
        if len == 3 {
            let second = *self.bytes.get(self.at + 2)?;
            if first & 0x80 != 0 {
                number |= u16::from(second & 0x1f) << 5;
                fault_pending = second >> 5 & 1 == 1;
            }
        }
        let address = (first & 0x40) >> 5 | first & 1;
        let kind = match (self.config.is_ete, number) {
            (true, 0) => Kind::PeReset,
            (true, 0x18) => Kind::TransactionFail,
            _ => Kind::Exception,
        };
        if kind != Kind::Exception {
            self.history = [Address::default(); 3];
        }
        Some(self.packet(
            kind,
            len,
            Fields::Exception {
                number,
                address,
                fault_pending,
            },
        ))
    }

    fn cycle_count(&mut self, kind: Kind, header: u8) -> Option<Packet> {
        let has_commit = !self.config.commit_option();
        let mut len = 1;
        let (count, commit) = match kind {
            Kind::CycleCountF3 => (
                self.cycle_threshold.wrapping_add(u32::from(header & 3)),
                i32::from(header >> 2 & 3) + 1,
            ),
            Kind::CycleCountF2 => {
                let byte = *self.bytes.get(self.at + 1)?;
                len += 1;
                let base = if header & 1 == 1 {
                    self.config.max_speculation() as i32 - 15
                } else {
                    1
                };
                let commit = i32::from(byte >> 4).wrapping_add(base);
                (
                    self.cycle_threshold.wrapping_add(u32::from(byte & 0xf)),
                    commit,
                )
            }
            _ => {
                let mut commit = 0;
                if has_commit {
                    let (value, bytes) = self.field32(self.at + len, 5)?;
                    commit = value.min(i32::MAX as u32) as i32;
                    len += bytes;
                }
                let mut count = 0;
                if header & 1 == 0 {
                    let (value, bytes) = self.field32(self.at + len, 3)?;
                    count = self.cycle_threshold.wrapping_add(value);
                    len += bytes;
                }
                (count, commit)
            }
        };
        Some(self.packet(
            kind,
            len,
            Fields::Cycles {
                count,
                commit: has_commit.then_some(commit),
            },
        ))
    }

    fn q(&mut self, header: u8) -> Option<Packet> {
        let form = header & 0xf;
        let mut at = self.at + 1;
        let mut is_match = false;
        // The address history changes only if the packet is complete.
        let address = match form {
            0..=2 => {
                is_match = true;
                Some(self.peek_match(form))
            }
            5 | 6 => {
                let (address, len) = self.peek_short(at, form - 5)?;
                at += len;
                Some(address)
            }
            0xa | 0xb => {
                let address = self.peek_long(at, form - 0xa, 4)?;
                at += 4;
                Some(address)
            }
            _ => None,
        };
        let mut count = None;
        if form != 0xf {
            let (value, len) = self.field32(at, 5)?;
            count = Some(value);
            at += len;
        }
        if let Some(address) = address {
            self.push(address);
        }
        let len = at - self.at;
        Some(self.packet(
            Kind::Q,
            len,
            Fields::Q(QElement {
                form,
                count,
                address,
                is_match,
            }),
        ))
    }

    fn push(&mut self, address: Address) {
        self.history = [address, self.history[0], self.history[1]];
    }

    fn peek_match(&self, index: u8) -> Address {
        let mut address = self.history[usize::from(index.min(2))];
        address.bits = 0;
        address.match_index = index;
        address
    }

    fn peek_short(&self, at: usize, is: u8) -> Option<(Address, usize)> {
        let shift = if is == 0 { 2 } else { 1 };
        let first = *self.bytes.get(at)?;
        let mut value = u64::from(first & 0x7f) << shift;
        let mut bits = 7 + shift;
        let mut len = 1;
        if first & 0x80 != 0 {
            value |= u64::from(*self.bytes.get(at + 1)?) << bits;
            bits += 8;
            len = 2;
        }
        let mask = (1u64 << bits) - 1;
        let value = self.history[0].value & !mask | value;
        Some((
            Address {
                value,
                is,
                bits,
                match_index: 0,
            },
            len,
        ))
    }

    fn short_address(&mut self, kind: Kind, is: u8) -> Option<Packet> {
        let (address, len) = self.peek_short(self.at + 1, is)?;
        self.push(address);
        Some(self.packet(kind, 1 + len, Fields::Address(address)))
    }

    fn peek_long(&self, at: usize, is: u8, len: usize) -> Option<Address> {
        let bytes = self.bytes.get(at..at + len)?;
        let low = if is == 0 {
            u64::from(bytes[0] & 0x7f) << 2 | u64::from(bytes[1] & 0x7f) << 9
        } else {
            u64::from(bytes[0] & 0x7f) << 1 | u64::from(bytes[1]) << 8
        };
        let mut value = low | little_endian(&bytes[2..]) << 16;
        if len == 4 && self.is_64_bit {
            value |= self.history[0].value & !0xffff_ffff;
        }
        Some(Address {
            value,
            is,
            bits: 8 * len as u8,
            match_index: 0,
        })
    }

    fn long_address(&mut self, kind: Kind, is: u8, len: usize) -> Option<Packet> {
        let address = self.peek_long(self.at + 1, is, len)?;
        self.push(address);
        Some(self.packet(kind, 1 + len, Fields::Address(address)))
    }

    fn address_context(&mut self, kind: Kind, is: u8, len: usize) -> Option<Packet> {
        let address = self.peek_long(self.at + 1, is, len)?;
        let (context, context_len) = self.context(self.at + 1 + len)?;
        self.push(address);
        self.is_64_bit = context.is_64_bit;
        Some(self.packet(
            kind,
            1 + len + context_len,
            Fields::AddressContext(address, context),
        ))
    }

    fn context(&self, at: usize) -> Option<(Context, usize)> {
        let info = *self.bytes.get(at)?;
        let mut len = 1;
        let mut take = |present: bool, bytes: usize| -> Option<Option<u32>> {
            if !present || bytes == 0 {
                return Some(None);
            }
            let value = little_endian(self.bytes.get(at + len..at + len + bytes)?) as u32;
            len += bytes;
            Some(Some(value))
        };
        let vmid = take(info & 0x40 != 0, self.config.vmid_bytes())?;
        let context_id = take(info & 0x80 != 0, self.config.context_id_bytes())?;
        let context = Context {
            level: info & 3,
            is_64_bit: info & 0x10 != 0,
            ns: info & 0x20 != 0,
            nse: info & 8 != 0,
            context_id,
            vmid,
        };
        Some((context, len))
    }

    /// Reads a number of at most `limit` bytes, seven bits per byte, low bits first.
    fn field32(&self, at: usize, limit: usize) -> Option<(u32, usize)> {
        let mut value = 0;
        for len in 0..limit {
            let byte = *self.bytes.get(at + len)?;
            value |= u32::from(byte & 0x7f) << (7 * len);
            if byte & 0x80 == 0 || len + 1 == limit {
                return Some((value, len + 1));
            }
        }
        None
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
        if atoms.count > 0 {
            let kind = self.kinds[usize::from(header)];
            return Some(self.packet(kind, 1, Fields::Atoms(atoms)));
        }
        self.other(header)
    }
}
