//! A dump: the recording of a target, fetched in pieces.
//!
//! Pieces arrive in any order, and some arrive twice or never; [`Pieces`] stores them and tracks what is missing.
//! [`Target`](crate::Target) requests them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kymo_wire::link::crc::crc32;
use kymo_wire::link::{DATA_BYTES, Identity};

/// Cancellation flag of a transfer, for a signal handler to set; clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag; it cannot be cleared.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Progress of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Size of the whole dump in bytes, once the target has reported it.
    pub total: Option<u64>,
    /// Pieces that arrived after a repeated request.
    pub resent: u64,
}

/// How a dump ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything arrived, and the checksum matches.
    Whole,
    /// Every piece arrived intact, but the checksum of the whole was wrong twice: the target's buffer changed during
    /// the transfer.
    Changed,
    /// The user cancelled it.
    Cancelled,
    /// The target stopped answering.
    Silent {
        /// How long the host waited before it gave up.
        waited: Duration,
    },
    /// The target kept sending, but never the missing pieces.
    Incomplete,
    /// The target refused to send a piece again; its reason.
    Refused(String),
    /// The target restarted: its clock began anew, so the recording is lost.
    Restarted,
    /// The connection was lost; the system's error.
    Disconnected(String),
    /// The target sends or announces more than its buffers hold according to its identity.
    TooLong {
        /// Greatest number of bytes that the host accepts.
        limit: u64,
    },
}

/// A target's recording as far as it arrived.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The target's identity, requested just before.
    pub identity: Identity,
    /// The bytes up to the last one that arrived, with zeros for missing pieces before that.
    pub bytes: Vec<u8>,
    /// Size of the whole dump in bytes, if the target reported it.
    pub total: Option<u64>,
    /// Byte ranges of the dump that did not arrive, in order.
    pub missing: Vec<Range<u64>>,
    /// How it ended.
    pub ended: Ended,
    /// Frames that arrived damaged.
    pub damaged: u64,
    /// Pieces that arrived after a repeated request.
    pub resent: u64,
}

impl Dump {
    /// Whether it is complete.
    pub fn is_whole(&self) -> bool {
        self.ended == Ended::Whole
    }
}

/// How many pieces may be missing before one that is accepted. The result has zeros for them, and a target that sends
/// nonsense must not fill the memory with those.
const MAX_AHEAD: usize = 1 << 16;

/// Smallest size limit of a dump, however small the buffer that the target announced: the firmware may have started
/// more streams since, and headers are extra.
const LEAST_LIMIT: u64 = 16 << 20;

/// Greatest size limit of a dump, however large the buffer that the target announced.
const GREATEST_LIMIT: u64 = 1 << 30;

/// Size limit of a dump from this target, in bytes: twice the size of its buffers according to its identity, because a
/// program can start streams between two requests.
pub(crate) fn limit_of(identity: &Identity) -> u64 {
    u64::from(identity.buffer_bytes)
        .saturating_mul(u64::from(identity.streams).max(1))
        .saturating_mul(2)
        .clamp(LEAST_LIMIT, GREATEST_LIMIT)
}

/// Size of a whole dump in bytes and pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Pieces.
    pub(crate) pieces: u32,
}

impl Extent {
    /// Extent of a dump of `bytes`; `None` if the number of pieces does not match.
    pub(crate) fn new(bytes: u64, pieces: u64) -> Option<Self> {
        let right = bytes.div_ceil(DATA_BYTES as u64) == pieces;
        let pieces = u32::try_from(pieces).ok()?;
        right.then_some(Self { bytes, pieces })
    }
}

/// The pieces of a dump that have arrived.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Greatest size of the whole in bytes.
    limit: u64,
    /// Content of the pieces, in the order of arrival.
    arrived: Vec<u8>,
    /// Offset in `arrived` and length of each piece.
    places: BTreeMap<u32, (usize, usize)>,
    /// The first missing piece. Kept, because searching for it each time would take longer and longer.
    front: u32,
    /// The size of the whole, once known.
    extent: Option<Extent>,
    /// The checksum of the whole, once known.
    crc: Option<u32>,
    /// Whether a piece beyond the limit arrived, no further ahead than [`MAX_AHEAD`].
    over: bool,
}

impl Pieces {
    /// No pieces yet, of a dump of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            arrived: Vec::new(),
            places: BTreeMap::new(),
            front: 0,
            extent: None,
            crc: None,
            over: false,
        }
    }

    /// Greatest size of the whole in bytes.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether the whole, as far as is known, exceeds the limit.
    pub(crate) fn is_too_long(&self) -> bool {
        self.extent.is_some_and(|extent| extent.bytes > self.limit) || self.over
    }

    /// The size of the whole, if known.
    pub(crate) fn extent(&self) -> Option<Extent> {
        self.extent
    }

    /// Whether nothing has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many bytes have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.arrived.len() as u64
    }

    /// Records the size that the target reported.
    pub(crate) fn set_extent(&mut self, extent: Extent) {
        self.extent = Some(extent);
    }

    /// Records the checksum that the target reported.
    pub(crate) fn set_crc(&mut self, crc: u32) {
        self.crc = Some(crc);
    }

    /// Stores a piece; returns whether it is new. Rejects a piece of the wrong length, which would shift all others,
    /// and one that is far ahead of all others, which can be requested later.
    pub(crate) fn insert(&mut self, number: u32, bytes: &[u8]) -> bool {
        let fits = match self.extent {
            Some(extent) => {
                let start = u64::from(number) * DATA_BYTES as u64;
                bytes.len() as u64 == extent.bytes.saturating_sub(start).min(DATA_BYTES as u64)
            }
            None => bytes.len() <= DATA_BYTES,
        };
        let near = number as usize <= self.places.len() + MAX_AHEAD;
        let end = u64::from(number) * DATA_BYTES as u64 + bytes.len() as u64;
        if end > self.limit {
            self.over |= near;
            return false;
        }
        if !fits || !near || bytes.is_empty() || self.places.contains_key(&number) {
            return false;
        }
        self.places
            .insert(number, (self.arrived.len(), bytes.len()));
        self.arrived.extend_from_slice(bytes);
        while self.places.contains_key(&self.front) {
            self.front = self.front.saturating_add(1);
        }
        true
    }

    /// The first run of missing pieces, as far as the size of the whole is known.
    pub(crate) fn first_missing(&self) -> Option<Range<u32>> {
        self.missing_pieces().next()
    }

    /// Whether the checksum of the whole is known. An empty dump needs none.
    pub(crate) fn has_crc(&self) -> bool {
        self.crc.is_some() || self.extent.is_some_and(|extent| extent.bytes == 0)
    }

    /// Runs of missing pieces, in order.
    fn missing_pieces(&self) -> impl Iterator<Item = Range<u32>> {
        let end = self.extent.map_or(0, |extent| extent.pieces);
        let mut next = self.front;
        let mut gaps = self
            .places
            .range(next..)
            .map(|(number, _)| *number)
            .chain(std::iter::once(end))
            .map(move |number| {
                let gap = next..number.min(end);
                next = number.saturating_add(1);
                gap
            })
            .filter(|gap| !gap.is_empty());
        std::iter::from_fn(move || gaps.next())
    }

    /// Puts the pieces in order: returns the bytes, with zeros for missing pieces, the size of the whole, the missing
    /// ranges, and whether the checksum is right (or unknown).
    pub(crate) fn assemble(&self) -> (Vec<u8>, Option<u64>, Vec<Range<u64>>, bool) {
        let mut bytes = Vec::with_capacity(self.arrived.len());
        let mut missing = Vec::new();
        for (&number, &(at, length)) in &self.places {
            let start = number as usize * DATA_BYTES;
            if start > bytes.len() {
                missing.push(bytes.len() as u64..start as u64);
            }
            bytes.resize(start, 0);
            bytes.extend_from_slice(self.arrived.get(at..at + length).unwrap_or(&[]));
        }
        let total = self.extent.map(|extent| extent.bytes);
        if let Some(total) = total.filter(|total| *total > bytes.len() as u64) {
            missing.push(bytes.len() as u64..total);
        }
        let right = self.crc.is_none_or(|crc| crc == crc32(&bytes));
        (bytes, total, missing, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(present: &[u32], bytes: u64) -> Pieces {
        let mut pieces = Pieces::new(u64::MAX);
        let extent = Extent::new(bytes, bytes.div_ceil(240)).unwrap();
        pieces.set_extent(extent);
        for &number in present {
            let length = (bytes - u64::from(number) * 240).min(240) as usize;
            assert!(pieces.insert(number, &vec![number as u8 + 1; length]));
        }
        pieces
    }

    #[test]
    fn missing_pieces_are_known_in_any_order_of_arrival() {
        let all = pieces(&[4, 2, 0], 1000);
        assert_eq!(all.missing_pieces().collect::<Vec<_>>(), [1..2, 3..4],);
        let (bytes, total, missing, _) = all.assemble();
        assert_eq!(bytes.len(), 1000);
        assert_eq!(total, Some(1000));
        assert_eq!(missing, [240..480, 720..960]);
        assert_eq!((bytes[0], bytes[240], bytes[480], bytes[999]), (1, 0, 3, 5));

        let cut = pieces(&[0], 1000);
        assert_eq!(cut.first_missing(), Some(1..5));
        let (bytes, _, missing, _) = cut.assemble();
        assert_eq!(bytes.len(), 240);
        assert_eq!(missing.first(), Some(&(240..1000)));

        assert_eq!(pieces(&[], 0).first_missing(), None);
        assert!(pieces(&[], 0).has_crc());
        assert_eq!(pieces(&[], 1).first_missing(), Some(0..1));
    }

    #[test]
    fn pieces_that_do_not_fit_are_not_taken() {
        let mut some = pieces(&[0], 1000);
        assert!(!some.insert(0, &[9; 240]), "twice");
        assert!(!some.insert(1, &[9; 239]), "too short");
        assert!(!some.insert(5, &[9; 240]), "past the end");
        assert!(!some.insert(u32::MAX, &[9; 240]), "far past the end");
        assert!(some.insert(4, &[9; 40]));
        let mut endless = Pieces::new(u64::MAX);
        assert!(!endless.insert(u32::MAX, &[9; 240]));
        assert!(endless.insert(1, &[9; 240]));
        assert_eq!(Extent::new(241, 1), None);
        assert_eq!(Extent::new(u64::MAX, u64::MAX / 240 + 1), None);
    }

    #[test]
    fn pieces_beyond_the_limit_are_not_kept() {
        let mut endless = Pieces::new(1000);
        for number in 0..4 {
            assert!(endless.insert(number, &[1; 240]));
        }
        assert!(!endless.is_too_long());
        assert!(!endless.insert(4, &[1; 240]));
        assert!(endless.is_too_long());
        assert_eq!(endless.bytes(), 960);
        let mut announced = Pieces::new(1000);
        announced.set_extent(Extent::new(1001, 5).unwrap());
        assert!(announced.is_too_long());
    }

    #[test]
    fn the_checksum_decides() {
        let mut some = pieces(&[0, 1], 300);
        assert!(!some.has_crc());
        some.set_crc(0);
        assert!(!some.assemble().3);
        let crc = crc32(&some.assemble().0);
        some.set_crc(crc);
        assert!(some.assemble().3);
    }
}
