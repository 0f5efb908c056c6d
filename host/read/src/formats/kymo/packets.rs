//! A target's packets among bytes of any quality.
//!
//! Between a target's memory and here lie lossy links, cut files and full disks. So nothing is
//! taken on trust: every packet's head is checked, and its records are walked through, once. What
//! comes out is packets that a CTF reader takes without complaint, and [`Piece::Damage`] with its
//! place and size for all else. After damage the search goes on at the next packet's magic number:
//! packets are self-contained, so nothing behind a hole is lost with it.
//!
//! A packet whose end is missing is *cut*: the part that is there is kept and the rest reported. Where bytes inside a
//! packet are wrong, a record is found to be none only some records behind the first wrong byte: those in between look
//! like events and may be of other functions and threads. So none of the records of such a packet are used.

use std::ops::Range;

use kymo_wire::event::{ByteOrder, Layout, PACKET_MAGIC, PacketHeader};
use kymo_wire::items;
use kymo_wire::packet::ITEM_STREAM;
use thiserror::Error;

use super::records;

/// Why bytes are not a packet, or not a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No packet begins here.
    #[error("expected a packet's magic number {expected:02x?}, found {found:02x?}")]
    Magic {
        /// The magic number in the order of the target.
        expected: [u8; 4],
        /// What stands there; zeros where there is nothing.
        found: [u8; 4],
    },
    /// The end comes inside the packet's head.
    #[error("expected a packet's head of {expected} bytes, found {found}")]
    HeadCut {
        /// The size of the head.
        expected: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// A packet of a kind that is not known here.
    #[error("expected a packet of a known stream, found one of stream_id {found}")]
    Stream {
        /// The packet's `stream_id`.
        found: u8,
    },
    /// Sizes that no target writes.
    #[error(
        "expected a packet of at least {least} bits and whole bytes, found a content of {content} \
         of {packet} bits"
    )]
    Size {
        /// The head alone, in bits.
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
    /// The end comes inside the packet.
    #[error(
        "expected a packet of {expected} bytes, found the first {found}: the last {} are missing",
        expected.saturating_sub(*found)
    )]
    Truncated {
        /// The size that the packet tells.
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
        /// The size that the packet tells.
        expected: usize,
        /// After how many bytes the next one begins.
        found: usize,
    },
    /// The bytes never arrived.
    #[error("these bytes never arrived")]
    Missing,
    /// Zeros where events should be.
    #[error("expected an event, found a hole of zeros")]
    Hole,
    /// A record of a kind that there is none of.
    #[error(
        "expected an event at byte {at} of a packet, found one of unknown id {id}; no event of this packet is used"
    )]
    UnknownEvent {
        /// Where in the packet, in bytes.
        at: usize,
        /// The id.
        id: u8,
    },
    /// An exit without a name of which the enter is not in the packet.
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
    /// An event from after the packet's end: its time is wrong, or what it stands for.
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

/// A run of bytes: one packet, or what is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A packet whose records were all found to be whole.
    Packet(Packet),
    /// Bytes that are no packet.
    Damage(Damaged),
}

/// A packet, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where its bytes are, without those that were cut off.
    pub bytes: Range<usize>,
    /// Its head. Where the packet was cut, the sizes are those that are left and [`PacketHeader::FLAG_CUT`]
    /// is set.
    pub header: PacketHeader,
    /// What was cut off at its end, here and now.
    pub cut: Option<Damaged>,
}

/// Bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where they are, as far as they are there.
    pub bytes: Range<usize>,
    /// What is wrong.
    pub fault: Fault,
}

impl Damaged {
    /// Takes in `next` if it follows at once, and tells whether it did. One hole is one damage,
    /// reported by how it begins, although it has several faults: a packet that is cut, bytes that
    /// never arrived, the end of a packet without its head.
    pub fn join(&mut self, next: &Self) -> bool {
        let follows = self.bytes.end == next.bytes.start;
        if follows {
            self.bytes.end = next.bytes.end;
        }
        follows
    }
}

impl Packet {
    /// The packet's bytes for a reader, out of all `bytes`. Where it was cut, its head is written
    /// anew, which `scratch` is for.
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
        // Cannot fail: a packet is never cut inside its head.
        let _ = self.header.write(layout, scratch);
        scratch
    }
}

/// Takes bytes apart into packets and damage, in order and without leaving any out.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    layout: Layout,
    bytes: &'a [u8],
    missing: &'a [Range<u64>],
    at: usize,
    check_records: bool,
}

impl<'a> Pieces<'a> {
    /// The pieces of `bytes`.
    ///
    /// `missing` are the parts of them that never arrived; whatever stands there is not looked
    /// at. (Holes of zeros that are not announced are found as such.)
    pub const fn new(layout: Layout, bytes: &'a [u8], missing: &'a [Range<u64>]) -> Self {
        Self {
            layout,
            bytes,
            missing,
            at: 0,
            check_records: true,
        }
    }

    /// The pieces from `offset` on.
    #[must_use]
    pub const fn starting_at(mut self, offset: usize) -> Self {
        self.at = offset;
        self
    }

    /// Looks at the heads of packets alone: for finding out what is there, at the cost of a few
    /// bytes a packet.
    #[must_use]
    pub const fn heads_only(mut self) -> Self {
        self.check_records = false;
        self
    }

    /// The offset of the next piece.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The first missing part that ends behind `at`, as far as it lies inside the bytes.
    fn missing_from(&self, at: usize) -> Option<Range<usize>> {
        let len = self.bytes.len();
        let clip = |offset| usize::try_from(offset).map_or(len, |offset| offset.min(len));
        self.missing
            .iter()
            .map(|range| clip(range.start)..clip(range.end))
            .filter(|range| range.end > at && !range.is_empty())
            .min_by_key(|range| range.start)
    }

    /// The packet at `at`, if one begins there; else why none does.
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
        // A packet that is followed by something else than a packet may lack a part in its
        // middle: then the next one begins inside it.
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
        // Bytes are missing somewhere in the content; what is behind them is read as what it is not.
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
                // Some of the records in front of it may be none, too.
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

    /// Whether a packet may end at `at`: at the end of all, or where another packet or a missing
    /// part begins.
    fn may_end_at(&self, at: usize) -> bool {
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        rest.is_empty()
            || checked_header(self.layout, rest).is_ok()
            || self
                .missing_from(at)
                .is_some_and(|missing| missing.start <= at)
    }

    /// Whether a packet begins behind the first one's head.
    pub(super) fn has_later_head(&self) -> bool {
        let from = self.at.saturating_add(self.layout.header_bytes());
        self.find_header(from, self.bytes.len()).is_some()
    }

    /// Where the next packet begins in `from..to`.
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

/// The magic number as it stands in a packet.
pub(super) const fn magic(layout: Layout) -> [u8; 4] {
    match layout.order {
        ByteOrder::Little => PACKET_MAGIC.to_le_bytes(),
        ByteOrder::Big => PACKET_MAGIC.to_be_bytes(),
    }
}

/// Where the records begin in a packet.
pub(super) const fn records_at(layout: Layout, header: &PacketHeader) -> usize {
    match header.stream {
        ITEM_STREAM => items::header_bytes(layout),
        _ => layout.header_bytes(),
    }
}

/// Reads the head of a packet at the front of `bytes`, if it can be one.
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
