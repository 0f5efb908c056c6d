//! Decoder of packets of items, independent of the recorder's own.

use kymo_recorder::items::Timed;
use kymo_wire::event::{ByteOrder, Layout, PacketHeader, WordSize};
use kymo_wire::items::TIME;

/// A decoded packet of a ring.
#[derive(Clone, Debug)]
pub struct ItemPacket {
    /// Its header.
    pub header: PacketHeader,
    /// Items produced before it.
    pub before: u32,
    /// Its items.
    pub items: Vec<Timed>,
    /// Number of items that only carry a time.
    pub times: usize,
}

/// Decodes a number of the target.
fn number(order: ByteOrder, bytes: &[u8]) -> u64 {
    let digit = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, digit),
        ByteOrder::Big => bytes.iter().fold(0, digit),
    }
}

/// Bits `from..from + count` of bytes, in the target's bit order.
fn bits(order: ByteOrder, bytes: &[u8], from: u32, count: u32) -> u64 {
    let whole = number(order, &bytes[..8]);
    let shift = match order {
        ByteOrder::Little => from,
        ByteOrder::Big => 64 - from - count,
    };
    whole >> shift & ((1 << count) - 1)
}

/// The first time from `last` on with these low bits.
fn next_time(last: u64, low: u64, bits: u32) -> u64 {
    let mask = (1u64 << bits) - 1;
    last + (low.wrapping_sub(last) & mask)
}

impl ItemPacket {
    /// Decodes a packet.
    pub fn decode(layout: Layout, bytes: &[u8]) -> Self {
        let header = PacketHeader::read(layout, bytes).expect("a header");
        assert_eq!(header.stream, 1);
        assert_eq!(header.content_bits as usize, bytes.len() * 8);
        let (front, item) = match layout.word {
            WordSize::Bits32 => (48, 8),
            WordSize::Bits64 => (52, 12),
        };
        let before = number(layout.order, &bytes[front - 4..front]) as u32;
        let mut time = header.begin;
        let mut items = Vec::new();
        let mut times = 0;
        assert_eq!((bytes.len() - front) % item, 0);
        for bytes in bytes[front..].chunks(item) {
            let id = bits(layout.order, bytes, 0, 10) as u16;
            if id == TIME {
                time = next_time(time, bits(layout.order, bytes, 10, 54), 54);
                times += 1;
                continue;
            }
            time = next_time(time, bits(layout.order, bytes, 10, 22), 22);
            let data = number(layout.order, &bytes[4..]) as usize;
            items.push(Timed { time, data, id });
        }
        assert!(time <= header.end, "{time} after {}", header.end);
        Self {
            header,
            before,
            items,
            times,
        }
    }

    /// Separates the packets of items in a dump from the rest.
    pub fn take(layout: Layout, dump: &[u8]) -> (Vec<Self>, Vec<u8>) {
        let (mut items, mut others) = (Vec::new(), Vec::new());
        let mut rest = dump;
        while !rest.is_empty() {
            let header = PacketHeader::read(layout, rest).expect("a packet");
            let (packet, behind) = rest.split_at(header.packet_bits as usize / 8);
            match header.stream {
                1 => items.push(Self::decode(layout, packet)),
                _ => others.extend_from_slice(packet),
            }
            rest = behind;
        }
        (items, others)
    }
}
