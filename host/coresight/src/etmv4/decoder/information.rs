//! Trace info and timestamp packets.

use super::Decoder;
use crate::etmv4::packet::{Address, Fields, Kind, Packet, TraceInfo};

impl Decoder<'_> {
    pub(super) fn trace_info(&mut self) -> Option<Packet> {
        let mut at = self.at + 1;
        let control = *self.bytes.get(at)?;
        // Further control bytes are reserved.
        while *self.bytes.get(at)? & 0x80 != 0 {
            at += 1;
        }
        at += 1;
        let mut sections = [0; 5];
        for (bit, section) in sections.iter_mut().enumerate() {
            if control >> bit & 1 == 1 {
                let (value, len) = self.section(at)?;
                *section = value;
                at += len;
            }
        }
        self.cycle_threshold = if control & 8 != 0 { sections[3] } else { 0 };
        let info = TraceInfo {
            info: sections[0],
            key: sections[1],
            speculation: (control & 4 != 0).then_some(sections[2]),
            cycle_threshold: self.cycle_threshold,
            is_first: !self.seen_info,
        };
        self.seen_info = true;
        // Address packets behind it do not refer to addresses before it (Arm IHI 0064, "Trace Info instruction trace
        // packet").
        self.history = [Address::default(); 3];
        let len = at - self.at;
        Some(self.packet(Kind::TraceInfo, len, Fields::TraceInfo(info)))
    }

    /// Reads a section of trace info. It may have any length, but only its first five bytes have a meaning.
    fn section(&self, at: usize) -> Option<(u32, usize)> {
        let len = 1 + self
            .bytes
            .get(at..)?
            .iter()
            .position(|byte| byte & 0x80 == 0)?;
        let value = self.field32(at, 5)?.0;
        Some((value, len))
    }

    pub(super) fn timestamp(&mut self, header: u8) -> Option<Packet> {
        let mut value = 0u64;
        let mut len = 0;
        loop {
            let byte = *self.bytes.get(self.at + 1 + len)?;
            let bits = if len == 8 { byte } else { byte & 0x7f };
            value |= u64::from(bits) << (7 * len);
            len += 1;
            if len == 9 || byte & 0x80 == 0 {
                break;
            }
        }
        let mut bits = if len == 9 { 64 } else { 7 * len };
        let mut total = 1 + len;
        let cycles = if header & 1 == 1 {
            let (count, len) = self.field32(self.at + total, 3)?;
            total += len;
            Some(count & ((1u64 << self.config.cycle_count_bits()) - 1) as u32)
        } else {
            None
        };
        if !self.has_timestamp && self.seen_info {
            bits = 64;
        }
        let mask = if bits == 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        };
        self.timestamp = self.timestamp & !mask | value & mask;
        self.has_timestamp = true;
        let value = self.timestamp;
        Some(self.packet(Kind::Timestamp, total, Fields::Timestamp { value, cycles }))
    }
}
