//! Fast check that all records of a packet are valid, in a fraction of the time of decoding.
//!
//! The result agrees with [`check`](super::records::check), which also locates the fault. The same pass looks for
//! wall-clock records, which the reader needs before it returns the first event.

use kymo_wire::event::{ByteOrder, EventId, Form, Layout, PacketHeader};

use super::header_table::{HeaderTable, Size, load};
use super::packets::Packet;

/// Checks packets with a table indexed by the first byte of a record.
#[derive(Debug)]
pub(super) struct QuickCheck {
    layout: Layout,
    table: HeaderTable,
    /// By the first byte of a record.
    records: [Record; 256],
}

/// Properties of a record that follow from its first byte.
#[derive(Clone, Copy, Debug)]
struct Record {
    time_mask: u64,
    time_shift: u8,
    /// In bytes; 0 for records that need the slow path.
    size: u8,
    /// The change of the number of open calls that an unnamed exit may close: 1, 0 or -1.
    calls: i8,
}

/// Result of checking a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All records are valid.
    Whole {
        /// Whether they include wall-clock records.
        wall_clock: bool,
    },
    /// A record is invalid, or may be.
    Suspect,
}

impl QuickCheck {
    pub(super) fn new(layout: Layout) -> Self {
        let table = HeaderTable::new(layout);
        let mut first = 0;
        let records = [(); 256].map(|()| {
            let record = record(layout, &table, first);
            first = first.wrapping_add(1);
            record
        });
        Self {
            layout,
            table,
            records,
        }
    }

    /// The layout of the packets.
    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Checks the records of a packet of events in `bytes`.
    pub(super) fn walk(&self, packet: &Packet, bytes: &[u8]) -> Found {
        let content = bytes.get(packet.bytes.clone()).unwrap_or(&[]);
        let content = content.get(..(packet.header.content_bits / 8) as usize);
        let Some(rest) = content.and_then(|content| content.get(self.layout.header_bytes()..))
        else {
            return Found::Suspect;
        };
        match self.layout.order {
            ByteOrder::Big => self.walk_records::<true>(&packet.header, rest),
            ByteOrder::Little => self.walk_records::<false>(&packet.header, rest),
        }
    }

    #[inline(never)]
    fn walk_records<const BIG: bool>(&self, header: &PacketHeader, records: &[u8]) -> Found {
        let front = self.layout.header_bytes();
        let (mut rest, mut clock) = (records, header.begin);
        let mut wall_clock = false;
        let mut calls: i64 = match header.flags & PacketHeader::FLAG_NESTED {
            0 => 0,
            _ => i64::MAX / 2,
        };
        while !rest.is_empty() {
            let head = load(BIG, rest, 0);
            let first = if BIG { head >> 56 } else { head } as u8;
            let record = &self.records[usize::from(first)];
            let mut size = usize::from(record.size);
            if size == 0 {
                // Zeros may be missing data.
                let at = front + records.len() - rest.len();
                match self.size(rest, at).filter(|_| head != 0) {
                    Some(found) => size = found,
                    None => return Found::Suspect,
                }
                let form = Form::of(self.layout.order, first);
                wall_clock |= form == Form::Other && self.table.get(first).id == EventId::WallClock;
            }
            // The clock never goes back: if any record is later than the packet's end, the last one is too.
            let elapsed = (head >> record.time_shift).wrapping_sub(clock) & record.time_mask;
            clock = clock.wrapping_add(elapsed);
            calls += i64::from(record.calls);
            match rest.get(size..) {
                Some(behind) if calls >= 0 => rest = behind,
                _ => return Found::Suspect,
            }
        }
        // With ticks of at most 63 bits, the 64-bit clock cannot have wrapped around within the packet.
        match clock <= header.end && header.end < u64::MAX >> 1 {
            true => Found::Whole { wall_clock },
            false => Found::Suspect,
        }
    }

    /// The size of the record at the start of `rest`, which is at offset `at` of its packet.
    #[cold]
    fn size(&self, rest: &[u8], at: usize) -> Option<usize> {
        let known = self.table.get(*rest.first()?).size;
        if known > 0 {
            return Some(known.into());
        }
        match self.table.size_of(rest, at) {
            Size::Bytes(bytes) => Some(bytes),
            Size::Cut | Size::Unknown(_) => None,
        }
    }
}

fn record(layout: Layout, table: &HeaderTable, first: u8) -> Record {
    let header = table.get(first);
    let id = match Form::of(layout.order, first) {
        Form::Other => EventId::from_number(Form::other_id(layout.order, first)),
        _ => Some(header.id),
    };
    Record {
        time_mask: header.time_mask,
        time_shift: header.time_shift,
        size: match id {
            Some(EventId::WallClock) => 0,
            // A record that begins with a zero may be missing data.
            _ if first == 0 => 0,
            _ => header.size,
        },
        calls: match id {
            Some(
                EventId::Enter
                | EventId::EnterLong
                | EventId::EnterFar
                | EventId::EnterFrom
                | EventId::EnterFarFrom,
            ) => 1,
            Some(EventId::Exit) => -1,
            _ => 0,
        },
    }
}
