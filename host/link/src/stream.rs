//! Reassembles the packets of a stream from numbered pieces.
//!
//! A target that streams sends its packets in numbered pieces ([`kymo_wire::link`]). Pieces may be lost or repeated.
//! [`Sequence`] accepts them in any order, returns packets in the order in which the target sent them, and tracks what
//! to report to the target: what has arrived, and what is missing. [`Stream`](crate::Stream) runs the protocol.
//!
//! [`MAX_AHEAD`], [`MAX_PACKET`] and [`MAX_READY`] bound the memory, whatever the target sends.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use kymo_wire::event::{Layout, PacketHeader};
use kymo_wire::link::DATA_BYTES;

/// How many pieces ahead of the next expected one a piece may be. A piece beyond it is rejected, and requested again
/// later.
const MAX_AHEAD: u64 = 1 << 16;

/// Longest packet in bytes. Targets are built with packets of a few KiB.
const MAX_PACKET: usize = 16 << 20;

/// Bytes of complete packets that may wait to be consumed. Beyond this, pieces are rejected, so the target has to wait
/// and send them again.
const MAX_READY: usize = 32 << 20;

/// Reassembly state of one stream.
#[derive(Debug)]
pub(crate) struct Sequence {
    layout: Layout,
    /// Number of the next expected piece, extended beyond the wraparound of the numbers on the line.
    next: u64,
    /// Pieces that arrived before their predecessors.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// The incomplete packet, and its final length.
    packet: Vec<u8>,
    length: usize,
    /// Complete packets.
    ready: VecDeque<Vec<u8>>,
    /// Bytes in `ready`.
    ready_bytes: usize,
    /// Pieces that do not belong to any packet: only a target that violates the protocol sends them.
    stray: u64,
}

impl Sequence {
    /// Creates the state of a stream with packets of this layout.
    pub(crate) const fn new(layout: Layout) -> Self {
        Self {
            layout,
            next: 0,
            ahead: BTreeMap::new(),
            packet: Vec::new(),
            length: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            stray: 0,
        }
    }

    /// Stores a piece; returns whether it is new.
    pub(crate) fn take(&mut self, number: u32, bytes: Vec<u8>) -> bool {
        let distance = number.wrapping_sub(self.next as u32);
        if u64::from(distance) > MAX_AHEAD || self.ready_bytes > MAX_READY {
            // It arrived before, is too far ahead, or the packets are not being consumed.
            return false;
        }
        let number = self.next + u64::from(distance);
        if bytes.is_empty() || bytes.len() > DATA_BYTES || self.ahead.contains_key(&number) {
            return false;
        }
        self.ahead.insert(number, bytes);
        while let Some(bytes) = self.ahead.remove(&self.next) {
            self.next += 1;
            self.append(&bytes);
        }
        true
    }

    /// Appends the next expected piece.
    fn append(&mut self, bytes: &[u8]) {
        if self.packet.is_empty() {
            let header = PacketHeader::read(self.layout, bytes);
            let least = self.layout.header_bytes();
            let length = header.map_or(0, |header| (header.packet_bits / 8) as usize);
            if length < least || length > MAX_PACKET {
                self.stray += 1;
                return;
            }
            self.length = length;
        }
        self.packet.extend_from_slice(bytes);
        if self.packet.len() >= self.length {
            if self.packet.len() > self.length {
                self.stray += 1;
                self.packet.truncate(self.length);
            }
            self.ready_bytes += self.packet.len();
            self.ready.push_back(std::mem::take(&mut self.packet));
        }
    }

    /// Removes the oldest complete packet.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let packet = self.ready.pop_front()?;
        self.ready_bytes = self.ready_bytes.saturating_sub(packet.len());
        Some(packet)
    }

    /// Number on the line of the first piece that has not arrived.
    pub(crate) const fn arrived(&self) -> u32 {
        self.next as u32
    }

    /// The first run of pieces that are missing although later ones arrived.
    pub(crate) fn missing(&self) -> Option<RangeInclusive<u32>> {
        let (first, _) = self.ahead.first_key_value()?;
        Some(self.next as u32..=(first - 1) as u32)
    }

    /// Pieces that belong to no packet.
    pub(crate) const fn stray(&self) -> u64 {
        self.stray
    }
}

#[cfg(test)]
mod tests {
    use kymo_wire::event::{ByteOrder, Shape, WordSize};

    use super::*;

    const LAYOUT: Layout = Layout {
        shape: Shape::Compact,
        word: WordSize::Bits32,
        order: ByteOrder::Little,
        function_shift: 1,
    };

    fn packet(sequence: u32, length: usize) -> Vec<u8> {
        let bits = length as u32 * 8;
        let header = PacketHeader {
            sequence,
            packet_bits: bits,
            content_bits: bits,
            ..PacketHeader::read(LAYOUT, &blank()).unwrap()
        };
        let mut bytes = vec![sequence as u8; length];
        header.write(LAYOUT, &mut bytes).unwrap();
        bytes
    }

    /// An empty header.
    fn blank() -> Vec<u8> {
        let mut bytes = vec![0; LAYOUT.header_bytes()];
        bytes[..4].copy_from_slice(&kymo_wire::event::PACKET_MAGIC.to_le_bytes());
        bytes
    }

    fn pieces(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let pieces = packets.iter().flat_map(|packet| packet.chunks(DATA_BYTES));
        pieces.map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn packets_come_out_in_order_whatever_the_order_of_their_pieces() {
        let packets = [
            packet(0, 44),
            packet(1, 1000),
            packet(2, 240),
            packet(3, 480),
        ];
        let pieces = pieces(&packets);
        assert_eq!(pieces.len(), 1 + 5 + 1 + 2);
        let orders: [&[usize]; 3] = [
            &[0, 1, 2, 3, 4, 5, 6, 7, 8],
            &[8, 7, 6, 5, 4, 3, 2, 1, 0],
            &[1, 0, 0, 5, 3, 4, 2, 2, 8, 6, 6, 7],
        ];
        for order in orders {
            let mut sequence = Sequence::new(LAYOUT);
            for &n in order {
                sequence.take(n as u32, pieces[n].clone());
            }
            let out: Vec<_> = std::iter::from_fn(|| sequence.pop()).collect();
            assert_eq!(out, packets);
            assert_eq!((sequence.arrived(), sequence.stray()), (9, 0));
            assert_eq!(sequence.missing(), None);
        }
    }

    #[test]
    fn what_is_missing_is_known_and_what_came_is_not_taken_twice() {
        let pieces = pieces(&[packet(0, 1000), packet(1, 1000)]);
        let mut sequence = Sequence::new(LAYOUT);
        assert!(sequence.take(0, pieces[0].clone()));
        assert!(!sequence.take(0, pieces[0].clone()));
        assert_eq!(sequence.missing(), None);
        assert!(sequence.take(4, pieces[4].clone()));
        assert_eq!(sequence.missing(), Some(1..=3));
        assert!(sequence.take(2, pieces[2].clone()));
        assert_eq!(sequence.missing(), Some(1..=1));
        assert!(!sequence.take(1 << 20, pieces[5].clone()), "far ahead");
        assert!(!sequence.take(1, Vec::new()));
        assert_eq!(sequence.arrived(), 1);
        assert_eq!(sequence.pop(), None);
    }

    #[test]
    fn numbers_come_round() {
        let packets: Vec<_> = (0..6).map(|n| packet(n, 200)).collect();
        let mut sequence = Sequence::new(LAYOUT);
        sequence.next = u64::from(u32::MAX) - 2;
        for (n, packet) in packets.iter().enumerate().rev() {
            let number = (u32::MAX - 2).wrapping_add(n as u32);
            assert!(sequence.take(number, packet.clone()));
            if n > 0 {
                assert_eq!(
                    sequence.missing(),
                    Some(u32::MAX - 2..=number.wrapping_sub(1))
                );
            }
        }
        assert_eq!(std::iter::from_fn(|| sequence.pop()).count(), 6);
        assert_eq!(sequence.arrived(), 3);
    }

    #[test]
    fn packets_that_nobody_takes_hold_back_the_stream() {
        let packets: Vec<_> = (0..3).map(|n| packet(n, MAX_READY / 2 + 240)).collect();
        let pieces = pieces(&packets);
        // Longer than any packet may be.
        let mut sequence = Sequence::new(LAYOUT);
        assert!(sequence.take(0, pieces[0].clone()));
        assert!(sequence.packet.is_empty() && sequence.stray() == 1);

        let small: Vec<_> = (0..40).map(|n| packet(n, 1 << 20)).collect();
        let pieces = self::pieces(&small);
        let mut sequence = Sequence::new(LAYOUT);
        let taken = pieces
            .iter()
            .zip(0..)
            .take_while(|(piece, n)| sequence.take(*n, piece.to_vec()))
            .count();
        assert!(taken < pieces.len() && sequence.ready_bytes <= MAX_READY + (1 << 20));
        assert!(!sequence.take(taken as u32, pieces[taken].clone()));
        assert!(sequence.pop().is_some() && sequence.pop().is_some());
        assert!(sequence.take(taken as u32, pieces[taken].clone()));
    }

    #[test]
    fn pieces_of_no_packet_are_counted() {
        let mut sequence = Sequence::new(LAYOUT);
        sequence.take(0, vec![1; 240]);
        sequence.take(1, packet(0, 100));
        // Longer than its head says.
        let mut long = packet(1, 100);
        long.push(0);
        sequence.take(2, long);
        assert_eq!(sequence.stray(), 2);
        assert_eq!(sequence.pop(), Some(packet(0, 100)));
        assert_eq!(sequence.pop(), Some(packet(1, 100)));
    }
}
