//! Splits possibly damaged bytes into a target's packets and damage.
//!
//! Lossy links, cut files and full disks damage recordings. Every packet's header and all its
//! records are therefore checked once. The results are packets that a CTF reader accepts, and
//! [`Piece::Damage`] with offset and size for all other bytes. After damage the search continues at
//! the next packet's magic number: packets are self-contained, so damage never affects later ones.
//!
//! A packet whose end is missing is *cut*: its first part is kept and the rest is reported. Wrong bytes inside a packet
//! are detected only some records after the first wrong byte. The records in between look like events, but may name
//! wrong functions and threads. Therefore no record of such a packet is used.

use std::ops::Range;

use kymo_wire::event::{ByteOrder, Layout, PACKET_MAGIC, PacketHeader};
use kymo_wire::items;
use kymo_wire::packet::ITEM_STREAM;
use thiserror::Error;

use super::records;

/// The reason why bytes are not a packet, or not a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No packet begins here.
    #[error("expected a packet's magic number {expected:02x?}, found {found:02x?}")]
    Magic {
        /// The magic number in the order of the target.
        expected: [u8; 4],
        /// The bytes in its place; zeros after the end of the input.
        found: [u8; 4],
    },
    /// The input ends inside the packet's header.
    #[error("expected a packet's head of {expected} bytes, found {found}")]
    HeadCut {
        /// The size of the header in bytes.
        expected: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// A packet of an unknown stream.
    #[error("expected a packet of a known stream, found one of stream_id {found}")]
    Stream {
        /// The packet's `stream_id`.
        found: u8,
    },
    /// Invalid sizes: no target writes them.
    #[error(
        "expected a packet of at least {least} bits and whole bytes, found a content of {content} \
         of {packet} bits"
    )]
    Size {
        /// The size of the header alone, in bits.
        least: usize,
        /// The packet's `content_size`, in bits.
        content: u32,
        /// The packet's `packet_size`, in bits.
        packet: u32,
    },
    /// The packet ends before it begins.
    #[error("expected a packet that ends at tick {begin} or later, found {end}")]
    Times {
        /// The packet's `timestamp_begin`.
        begin: u64,
        /// The packet's `timestamp_end`.
        end: u64,
    },
    /// The input ends inside the packet.
    #[error(
        "expected a packet of {expected} bytes, found the first {found}: the last {} are missing",
        expected.saturating_sub(*found)
    )]
    Truncated {
        /// The size in the packet header.
        expected: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// Another packet begins inside the packet.
    #[error(
        "expected a packet of {expected} bytes, found the next packet after {found}: {} are missing, it is not known \
         where; no event of this packet is used",
        expected.saturating_sub(*found)
    )]
    Overlapped {
        /// The size in the packet header.
        expected: usize,
        /// The offset of the next packet, in bytes from the start of this one.
        found: usize,
    },
    /// The bytes never arrived.
    #[error("these bytes never arrived")]
    Missing,
    /// Zeros where events should be.
    #[error("expected an event, found a hole of zeros")]
    Hole,
    /// A record with an unknown id.
    #[error(
        "expected an event at byte {at} of a packet, found one of unknown id {id}; no event of this packet is used"
    )]
    UnknownEvent {
        /// Where in the packet, in bytes.
        at: usize,
        /// The id.
        id: u8,
    },
    /// An unnamed exit whose entry is not in the packet.
    #[error(
        "expected an event at byte {at} of a packet, found an exit without its entry; no event of this packet is used"
    )]
    ExitWithoutEnter {
        /// Where in the packet, in bytes.
        at: usize,
    },
    /// The packet's content ends inside an event.
    #[error(
        "expected a whole event at byte {at} of a packet, found {found} bytes before the content's end; no event of this \
         packet is used"
    )]
    EventCut {
        /// Where in the packet, in bytes.
        at: usize,
        /// How many bytes are left.
        found: usize,
    },
    /// An event after the packet's end: its time is wrong, or it is not an event.
    #[error(
        "expected an event until tick {end} at byte {at} of a packet, found one at tick {found}; no event of this packet \
         is used"
    )]
    EventLate {
        /// Where in the packet, in bytes.
        at: usize,
        /// The packet's `timestamp_end`.
        end: u64,
        /// The event's time.
        found: u64,
    },
}

/// A range of bytes: one packet, or damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A packet whose records are all valid.
    Packet(Packet),
    /// Bytes that are not a packet.
    Damage(Damaged),
}

/// A checked packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The range of its bytes, without those that were cut off.
    pub bytes: Range<usize>,
    /// Its header. For a cut packet the sizes are those of the remaining part, and
    /// [`PacketHeader::FLAG_CUT`] is set.
    pub header: PacketHeader,
    /// The bytes that this reader cut off at its end.
    pub cut: Option<Damaged>,
}

/// Bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Their range within the input.
    pub bytes: Range<usize>,
    /// The fault.
    pub fault: Fault,
}

impl Damaged {
    /// Merges `next` if it is adjacent, and returns whether it is. Adjacent damage is reported once,
    /// with its first fault, although it may have several: a cut packet, bytes that never arrived,
    /// the end of a packet without its header.
    pub fn join(&mut self, next: &Self) -> bool {
        let follows = self.bytes.end == next.bytes.start;
        if follows {
            self.bytes.end = next.bytes.end;
        }
        follows
    }
}

impl Packet {
    /// The packet's bytes for a reader, taken from the input `bytes`. A cut packet is copied to
    /// `scratch` with a new header.
    pub fn content<'a>(
        &self,
        layout: Layout,
        bytes: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let content = bytes.get(self.bytes.clone()).unwrap_or(&[]);
        if self.cut.is_none() {
            return content;
        }
        scratch.clear();
        scratch.extend_from_slice(content);
        // Cannot fail: a packet is never cut inside its header.
        let _ = self.header.write(layout, scratch);
        scratch
    }
}

/// Splits bytes into packets and damage, in order and without gaps.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    layout: Layout,
    bytes: &'a [u8],
    missing: &'a [Range<u64>],
    at: usize,
    check_records: bool,
}

impl<'a> Pieces<'a> {
    /// Iterates over the pieces of `bytes`.
    ///
    /// `missing` are the parts of them that never arrived; their contents are ignored. (Holes of
    /// zeros outside of `missing` are detected.)
    pub const fn new(layout: Layout, bytes: &'a [u8], missing: &'a [Range<u64>]) -> Self {
        Self {
            layout,
            bytes,
            missing,
            at: 0,
            check_records: true,
        }
    }

    /// Starts at `offset`.
    #[must_use]
    pub const fn starting_at(mut self, offset: usize) -> Self {
        self.at = offset;
        self
    }

    /// Checks the headers of packets only: a survey that reads a few bytes per packet.
    #[must_use]
    pub const fn heads_only(mut self) -> Self {
        self.check_records = false;
        self
    }

    /// The offset of the next piece.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The first missing part that ends after `at`, clipped to the bytes.
    fn missing_from(&self, at: usize) -> Option<Range<usize>> {
        let len = self.bytes.len();
        let clip = |offset| usize::try_from(offset).map_or(len, |offset| offset.min(len));
        self.missing
            .iter()
            .map(|range| clip(range.start)..clip(range.end))
            .filter(|range| range.end > at && !range.is_empty())
            .min_by_key(|range| range.start)
    }

    /// Reads the packet at `at`; the error is the reason why none begins there.
    fn packet(&self, at: usize) -> Result<Packet, Fault> {
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        let mut header = checked_header(self.layout, rest)?;
        let reported = (header.packet_bits / 8) as usize;
        let mut end = at.saturating_add(reported).min(self.bytes.len());
        let mut fault = (end - at < reported).then(|| Fault::Truncated {
            expected: reported,
            found: end - at,
        });
        if let Some(missing) = self.missing_from(at)
            && missing.start < end
        {
            end = missing.start.max(at);
            fault = Some(Fault::Missing);
        }
        // A packet that no other packet follows may lack a part in its middle: then the next one
        // begins inside it.
        if (fault.is_some() || !self.may_end_at(at + reported))
            && let Some(next) = self.find_header(at + 1, end)
        {
            end = next;
            fault = Some(Fault::Overlapped {
                expected: reported,
                found: next - at,
            });
        }
        let head = records_at(self.layout, &header);
        if end - at < head {
            return Err(Fault::HeadCut {
                expected: head,
                found: end - at,
            });
        }
        let mut kept = ((header.content_bits / 8) as usize).min(end - at);
        // Bytes are missing somewhere in the content; the records after them cannot be decoded.
        let is_torn = matches!(fault, Some(Fault::Overlapped { found, .. }) if kept == found);
        if is_torn {
            kept = head;
        } else if self.check_records || fault.is_some() {
            let content = rest.get(..kept).unwrap_or(&[]);
            let (records, broken) = records::check(self.layout, &header, content);
            (kept, fault) = match (fault, broken) {
                // The last record ends where the packet was cut.
                (Some(fault), None | Some(Fault::EventCut { .. })) => (records, Some(fault)),
                (fault, None) => (records, fault),
                (fault, Some(Fault::Hole)) => (records, fault.or(broken)),
                // Some of the records before it may be invalid, too.
                (_, Some(_)) => (head, broken),
            };
        }
        if fault.is_some() {
            header.flags |= PacketHeader::FLAG_CUT;
            header.content_bits = (kept * 8) as u32;
            header.packet_bits = header.content_bits;
        } else {
            kept = reported;
        }
        Ok(Packet {
            bytes: at..at + kept,
            header,
            cut: fault.map(|fault| Damaged {
                bytes: at + kept..end,
                fault,
            }),
        })
    }

    /// Whether a packet may end at `at`: at the end of the input, or where another packet or a
    /// missing part begins.
    fn may_end_at(&self, at: usize) -> bool {
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        rest.is_empty()
            || checked_header(self.layout, rest).is_ok()
            || self
                .missing_from(at)
                .is_some_and(|missing| missing.start <= at)
    }

    /// Whether a packet begins after the first one's header.
    pub(super) fn has_later_head(&self) -> bool {
        let from = self.at.saturating_add(self.layout.header_bytes());
        self.find_header(from, self.bytes.len()).is_some()
    }

    /// The offset of the next packet in `from..to`.
    fn find_header(&self, from: usize, to: usize) -> Option<usize> {
        let magic = magic(self.layout);
        let mut from = from;
        while from < to {
            let window = self
                .bytes
                .get(from..self.bytes.len().min(to.saturating_add(3)))?;
            let found = from + window.windows(4).position(|bytes| bytes == magic)?;
            let head = self.bytes.get(found..).unwrap_or(&[]);
            if checked_header(self.layout, head).is_ok() {
                return Some(found);
            }
            from = found + 1;
        }
        None
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let start = self.at;
        if start >= self.bytes.len() {
            return None;
        }
        let missing = self.missing_from(start);
        if let Some(missing) = &missing
            && missing.start <= start
        {
            self.at = missing.end;
            return Some(Piece::Damage(Damaged {
                bytes: start..missing.end,
                fault: Fault::Missing,
            }));
        }
        Some(match self.packet(start) {
            Ok(packet) => {
                self.at = packet
                    .cut
                    .as_ref()
                    .map_or(packet.bytes.end, |cut| cut.bytes.end);
                Piece::Packet(packet)
            }
            Err(fault) => {
                let end = missing.map_or(self.bytes.len(), |missing| missing.start);
                self.at = self.find_header(start + 1, end).unwrap_or(end);
                Piece::Damage(Damaged {
                    bytes: start..self.at,
                    fault,
                })
            }
        })
    }
}

/// The magic number in a packet's byte order.
pub(super) const fn magic(layout: Layout) -> [u8; 4] {
    match layout.order {
        ByteOrder::Little => PACKET_MAGIC.to_le_bytes(),
        ByteOrder::Big => PACKET_MAGIC.to_be_bytes(),
    }
}

/// The offset of the records in a packet.
pub(super) const fn records_at(layout: Layout, header: &PacketHeader) -> usize {
    match header.stream {
        ITEM_STREAM => items::header_bytes(layout),
        _ => layout.header_bytes(),
    }
}

/// Reads and checks the packet header at the start of `bytes`.
pub(super) fn checked_header(layout: Layout, bytes: &[u8]) -> Result<PacketHeader, Fault> {
    let size = layout.header_bytes();
    let expected = magic(layout);
    let mut found = [0; 4];
    for (found, byte) in found.iter_mut().zip(bytes) {
        *found = *byte;
    }
    if found != expected {
        return Err(Fault::Magic { expected, found });
    }
    let Some(header) = PacketHeader::read(layout, bytes) else {
        return Err(Fault::HeadCut {
            expected: size,
            found: bytes.len(),
        });
    };
    if header.stream > ITEM_STREAM {
        return Err(Fault::Stream {
            found: header.stream,
        });
    }
    let (packet, content) = (header.packet_bits, header.content_bits);
    let least = records_at(layout, &header) * 8;
    if packet % 8 != 0 || content % 8 != 0 || content > packet || (content as usize) < least {
        return Err(Fault::Size {
            least,
            content,
            packet,
        });
    }
    if header.begin > header.end {
        return Err(Fault::Times {
            begin: header.begin,
            end: header.end,
        });
    }
    Ok(header)
}
