//! Instrumentation Trace Macrocell and DWT (Armv7-M and Armv8-M architecture, appendix "Debug ITM and DWT packet
//! protocol"): software stimulus, hardware source and timestamp packets.

mod text;

pub use text::describe;
pub(crate) use text::name;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the names are the protocol's, and `describe` spells them out"
)]
pub enum Kind {
    NotSync,
    IncompleteEot,
    BadSequence,
    Reserved,
    Async,
    Overflow,
    Software,
    Hardware,
    LocalTimestamp,
    GlobalTimestamp1,
    GlobalTimestamp2,
    Extension,
}

/// One packet of an ITM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Kind of the packet.
    pub kind: Kind,
    /// For an invalid or truncated packet, the kind that its header announced.
    pub began_as: Kind,
    /// Position of its first byte in the stream.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// Stimulus port, DWT discriminator, delay of a local timestamp (TC), or wrap and clock change of a global one.
    pub source: u8,
    /// Payload.
    pub value: u64,
    /// Size of the packet's payload in bytes; for an extension, the number of its highest bit.
    pub size: u8,
}

impl Packet {
    /// Position after its last byte.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Iterator that splits the bytes of an ITM into packets. Every byte is in exactly one packet.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    is_synced: bool,
}

/// Number of zeros in a synchronization, before its 0x80.
const ASYNC_ZEROS: usize = 5;

/// Whether the bytes are packets from the first byte up to a synchronization; also true without any synchronization.
/// The check is needed because captures of a serial wire begin anywhere.
fn begins_with_packets(bytes: &[u8], start: usize) -> bool {
    let mut packets = Decoder::synchronized(bytes, start).map(|packet| packet.kind);
    let first =
        packets.find(|kind| matches!(kind, Kind::Async | Kind::BadSequence | Kind::Reserved));
    match first {
        Some(Kind::Async) | None => true,
        Some(_) => !has_synchronization(bytes.get(start..).unwrap_or_default()),
    }
}

fn has_synchronization(bytes: &[u8]) -> bool {
    let mut zeros = 0;
    bytes.iter().any(|byte| {
        let is_end = *byte == 0x80 && zeros >= ASYNC_ZEROS;
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        is_end
    })
}

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from `start` on. A capture of a serial wire can begin anywhere. It may have no synchronization,
    /// since the DWT must be configured to send it. Decoding begins at `start` if the bytes from there are packets up
    /// to the first synchronization, or if there is none; otherwise at the first synchronization.
    pub fn new(bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            bytes,
            at: start,
            is_synced: begins_with_packets(bytes, start),
        }
    }

    /// Decodes from `start` on, where a packet must begin. For captures without synchronization.
    pub fn synchronized(bytes: &'a [u8], start: usize) -> Self {
        Decoder {
            bytes,
            at: start,
            is_synced: true,
        }
    }

    fn packet(&mut self, kind: Kind, len: usize, source: u8, value: u64, size: u8) -> Packet {
        let start = self.at;
        self.at += len;
        Packet {
            kind,
            began_as: kind,
            start,
            len,
            source,
            value,
            size,
        }
    }

    fn bad(&mut self, kind: Kind, began_as: Kind, len: usize) -> Packet {
        let mut packet = self.packet(kind, len, 0, 0, 0);
        packet.began_as = began_as;
        packet
    }

    fn unsynced(&mut self) -> Option<Packet> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        if zeros >= ASYNC_ZEROS && rest.get(zeros) == Some(&0x80) {
            self.is_synced = true;
            return Some(self.packet(Kind::Async, zeros + 1, 0, 0, 0));
        }
        // Up to the next zero, because a synchronization may begin there.
        let others = rest[zeros..]
            .iter()
            .take_while(|byte| **byte != 0)
            .take(8)
            .count();
        Some(self.packet(Kind::NotSync, (zeros + others).max(1), 0, 0, 0))
    }

    /// Reads a number after the header, seven bits per byte, low bits first. `Err` if it exceeds `limit` bytes.
    fn field(&self, limit: usize) -> Option<Result<(u64, usize), usize>> {
        let mut value = 0;
        for len in 0..limit {
            let byte = *self.bytes.get(self.at + 1 + len)?;
            value |= u64::from(byte & 0x7f) << (7 * len);
            if byte & 0x80 == 0 {
                return Some(Ok((value, len + 1)));
            }
        }
        Some(Err(limit))
    }

    /// Reads a packet whose payload is one number of continued bytes.
    fn continued(&mut self, kind: Kind, source: u8, limit: usize) -> Option<Packet> {
        Some(match self.field(limit)? {
            Ok((value, len)) => self.packet(kind, 1 + len, source, value, len as u8),
            Err(len) => self.bad(Kind::BadSequence, kind, 1 + len),
        })
    }

    /// Reads the packet at the current position, or returns the kind of its header if the bytes end within it.
    fn synced(&mut self, header: u8) -> Result<Packet, Kind> {
        if header & 3 != 0 {
            let kind = if header & 4 != 0 {
                Kind::Hardware
            } else {
                Kind::Software
            };
            let size = if header & 3 == 3 {
                4
            } else {
                usize::from(header & 3)
            };
            let bytes = self
                .bytes
                .get(self.at + 1..self.at + 1 + size)
                .ok_or(kind)?;
            let value = bytes
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte));
            return Ok(self.packet(kind, 1 + size, header >> 3, value, size as u8));
        }
        match header {
            0x00 => {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                let zeros = rest.iter().take_while(|byte| **byte == 0).count();
                match rest.get(zeros) {
                    Some(0x80) if zeros >= ASYNC_ZEROS => {
                        Ok(self.packet(Kind::Async, zeros + 1, 0, 0, 0))
                    }
                    Some(_) => Ok(self.bad(Kind::BadSequence, Kind::Async, zeros + 1)),
                    None => Err(Kind::Async),
                }
            }
            0x70 => Ok(self.packet(Kind::Overflow, 1, 0, 0, 0)),
            _ if header & 0x8f == 0 => {
                Ok(self.packet(Kind::LocalTimestamp, 1, 0, u64::from(header >> 4), 1))
            }
            _ if header & 0xf == 0 => {
                let kind = Kind::LocalTimestamp;
                self.continued(kind, header >> 4 & 3, 4).ok_or(kind)
            }
            _ if header & 0xb == 8 => self.extension(header).ok_or(Kind::Extension),
            0x94 => {
                let kind = Kind::GlobalTimestamp1;
                let mut packet = self.continued(kind, 0, 4).ok_or(kind)?;
                if packet.kind == kind && packet.size == 4 {
                    // Bits 5 and 6 of the fourth byte: the clock changed, the upper bits wrapped.
                    packet.source = (packet.value >> 26) as u8 & 3;
                    packet.value &= (1 << 26) - 1;
                }
                Ok(packet)
            }
            0xb4 => {
                let kind = Kind::GlobalTimestamp2;
                let mut packet = self.continued(kind, 0, 6).ok_or(kind)?;
                if packet.size > 4 {
                    packet.size = 5;
                }
                Ok(packet)
            }
            _ => Ok(self.bad(Kind::Reserved, Kind::Reserved, 1)),
        }
    }

    fn extension(&mut self, header: u8) -> Option<Packet> {
        let low = u64::from(header >> 4 & 7);
        let source = header & 4;
        if header & 0x80 == 0 {
            return Some(self.packet(Kind::Extension, 1, source, low, 2));
        }
        Some(match self.field(4)? {
            Ok((value, len)) => {
                let highest_bit = [2, 9, 16, 23, 31][len];
                self.packet(
                    Kind::Extension,
                    1 + len,
                    source,
                    value << 3 | low,
                    highest_bit,
                )
            }
            Err(len) => self.bad(Kind::BadSequence, Kind::Extension, 1 + len),
        })
    }
}

impl Iterator for Decoder<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        if !self.is_synced {
            return self.unsynced();
        }
        let header = *self.bytes.get(self.at)?;
        Some(self.synced(header).unwrap_or_else(|began_as| {
            let rest = self.bytes.len() - self.at;
            self.bad(Kind::IncompleteEot, began_as, rest)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_without_synchronization_begins_with_a_packet() {
        let sample = [0x17, 0x04, 0x02, 0x00, 0x08];
        let bytes = [&[0xc0, 0x01][..], &sample, &[0x04], &sample].concat();
        let kinds =
            |bytes: &[u8]| -> Vec<_> { Decoder::new(bytes, 0).map(|packet| packet.kind).collect() };
        let expected = [
            Kind::LocalTimestamp,
            Kind::Hardware,
            Kind::Reserved,
            Kind::Hardware,
        ];
        assert_eq!(kinds(&bytes), expected);

        let synchronized = [&bytes[..], &[0, 0, 0, 0, 0, 0x80], &sample].concat();
        let kinds = kinds(&synchronized);
        assert_eq!(kinds.first(), Some(&Kind::NotSync));
        assert_eq!(kinds[kinds.len() - 2..], [Kind::Async, Kind::Hardware]);
    }
}
