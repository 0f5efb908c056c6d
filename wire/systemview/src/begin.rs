//! Finds the first packet of a stream that lacks its start: a ring whose oldest packet is partly overwritten, a
//! truncated capture, a host that connected late.
//!
//! Any byte could be the first of a packet, and a wrong guess yields a few packets that never existed. But packets read
//! from wrong offsets soon fall into step with the true ones, so the later stream shows its characteristics: its ids,
//! tasks, interrupts and longest packet. A start is possible if the packets from there on match these. The packets are
//! certain from the byte on at which those of all possible starts meet.

use crate::SYNC;
use crate::decode::{Decoded, decode};
use crate::error::Problem;
use crate::packet::{Form, Packet, Payload};
use crate::plausible::{Known, LONG, Oddity};
use crate::scan::{Arguments, LONG_TIME, decode_with};

/// Number of bytes that are examined for the first packet.
pub(crate) const WINDOW: usize = 1 << 11;

/// Minimum number of packets to determine the characteristics of a stream.
const SAMPLE: usize = 32;

/// Minimum limit of an event packet's size in bytes, even if all other packets are shorter.
const SHORT: usize = 64;

/// Number of packets after the first one that must match the stream's characteristics.
const FOLLOWING: usize = 8;

/// Result of the search for the first packet.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and no heap"
)]
pub(crate) enum Begin {
    /// The first byte that is certain to start a packet, and what is known of the packets after it.
    At(usize, Known),
    /// The bytes do not determine it.
    Unknown,
    /// More bytes are needed.
    More,
}

/// Searches for the first packet in bytes that start anywhere. `ended` means that no more bytes will come.
pub(crate) fn begin(bytes: &[u8], form: Form, ended: bool, arguments: Arguments<'_>) -> Begin {
    let window = bytes.get(..WINDOW).unwrap_or(bytes);
    let start = (0..window.len()).find(|at| is_start(window.get(*at..).unwrap_or_default()));
    if start == Some(0) {
        return Begin::At(0, Known::default());
    }
    if start.is_none() && window.len() < WINDOW && !ended {
        return Begin::More;
    }
    let chains = Chains {
        bytes: window
            .get(..start.unwrap_or(window.len()))
            .unwrap_or(window),
        form,
        arguments,
    };
    match (chains.first(), start) {
        (Some((at, known)), _) => Begin::At(at, known),
        // The rest of an earlier recording is too short to be certain.
        (None, Some(start)) => Begin::At(start, Known::default()),
        (None, None) => Begin::Unknown,
    }
}

/// Returns whether a recording starts here, with or without its ten zeros.
fn is_start(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(&SYNC).unwrap_or(bytes);
    if bytes.first() != Some(&10) {
        return false;
    }
    let Ok(start) = decode(bytes, Form::default(), Payload::default()) else {
        return false;
    };
    let init = bytes.get(start.bytes..).unwrap_or_default();
    match decode(init, Form::default(), Payload::default()).map(|init| init.packet) {
        Ok(packet @ Packet::Init { .. }) => Known::default().oddity(&packet) == Oddity::None,
        _ => false,
    }
}

/// Limit of event ids: modules have some hundreds each.
const IDS: u32 = 1 << 16;

/// Returns whether targets usually send such a packet, if nothing is known of the stream except that event packets have
/// at most `most` bytes. 32-bit numbers such as addresses are neither times nor ids.
fn is_usual(decoded: &Decoded<'_>, most: usize) -> bool {
    if decoded.delta >= LONG_TIME {
        return false;
    }
    match decoded.packet {
        // Modules that were described earlier may have any id.
        Packet::Event { id, .. } => id < IDS && decoded.bytes <= most,
        Packet::Print { format, .. } => {
            let is_text = |byte: &u8| *byte >= b' ' || b"\t\n\r\x1b".contains(byte);
            format.0.iter().all(is_text)
        }
        packet => Known::default().oddity(&packet) != Oddity::Strange,
    }
}

/// Chains of consecutive packets, from any byte on.
struct Chains<'a> {
    bytes: &'a [u8],
    form: Form,
    arguments: Arguments<'a>,
}

/// Characteristics of a stream.
struct Like {
    known: Known,
    /// Set of ids up to 1023.
    ids: [u64; 16],
    /// Size of the longest packet in bytes.
    longest: usize,
}

impl Like {
    fn place(id: u32) -> (usize, u64) {
        let id = id.min(1023);
        (id as usize / 64, 1 << (id % 64))
    }

    fn learn(&mut self, decoded: &Decoded<'_>) {
        self.known.learn(&decoded.packet);
        self.longest = self.longest.max(decoded.bytes);
        let (word, bit) = Self::place(decoded.packet.id());
        if let Some(word) = self.ids.get_mut(word) {
            *word |= bit;
        }
    }

    fn has(&self, decoded: &Decoded<'_>) -> bool {
        let (word, bit) = Self::place(decoded.packet.id());
        self.ids.get(word).is_some_and(|word| word & bit != 0)
            && decoded.bytes <= self.longest
            && self.known.oddity(&decoded.packet) == Oddity::None
    }
}

impl Chains<'_> {
    fn decode(&self, at: usize) -> Result<Decoded<'_>, Problem> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        decode_with(rest, self.form, &Known::default(), self.arguments)
    }

    /// Returns the first byte that is certain to start a packet, and the characteristics of the stream.
    fn first(&self) -> Option<(usize, Known)> {
        // Characteristics of the packets on which all chains agree, wherever the first packet starts.
        let any = LONG.min(self.bytes.len() / 4);
        let met = self.meet(any, LONG)?;
        let mut at = met;
        let mut like = Like {
            known: Known::default(),
            ids: [0; 16],
            longest: 0,
        };
        let mut packets = 0;
        while let Ok(decoded) = self.decode(at) {
            like.learn(&decoded);
            at += decoded.bytes;
            packets += 1;
        }
        if packets < SAMPLE {
            return None;
        }
        like.known.forget_order();
        // The rest of a packet is shorter than the packet.
        let rest = like.longest.saturating_sub(1);
        let first = self.meet(rest, (2 * like.longest).max(SHORT));
        // If that is within a text longer than all other packets, no matching packets follow.
        let first = first
            .and_then(|at| self.followed(at, &like))
            .or_else(|| self.followed(met, &like))?;
        Some((first, like.known))
    }

    /// Returns the first packet from `at` on that is followed by packets with the stream's characteristics. Packets of
    /// rare kinds may come first, but it is uncertain whether they are packets.
    fn followed(&self, mut at: usize, like: &Like) -> Option<usize> {
        while !self.is_followed(at, like) {
            at += self.decode(at).ok()?.bytes;
        }
        Some(at)
    }

    /// Returns whether packets with the stream's characteristics follow.
    fn is_followed(&self, mut at: usize, like: &Like) -> bool {
        (0..FOLLOWING).all(|_| {
            let decoded = self.decode(at).ok().filter(|it| like.has(it));
            at += decoded.map_or(0, |decoded| decoded.bytes);
            decoded.is_some()
        })
    }

    /// Returns the offset at which all chains meet that start in the first bytes, after the rest of a packet of at most
    /// `rest` bytes; event packets have at most `most` bytes.
    fn meet(&self, rest: usize, most: usize) -> Option<usize> {
        // Offsets at which packets start, and the number of those that are not passed yet.
        let mut begins = Places([0; WINDOW / 64]);
        let mut count = 0;
        for at in 0..=rest {
            // The last byte of a packet is the last byte of a number.
            let before = at.checked_sub(1).and_then(|before| self.bytes.get(before));
            if before.is_none_or(|before| before & 0x80 == 0) {
                count += usize::from(begins.add(at));
            }
        }
        for at in 0..self.bytes.len() {
            if !begins.has(at) {
                continue;
            }
            if count == 1 {
                return Some(at);
            }
            count -= 1;
            if let Ok(decoded) = self.decode(at)
                && is_usual(&decoded, most)
            {
                count += usize::from(begins.add(at + decoded.bytes));
            }
        }
        None
    }
}

/// Set of offsets in the window.
struct Places([u64; WINDOW / 64]);

impl Places {
    fn has(&self, at: usize) -> bool {
        let word = self.0.get(at / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Adds an offset and returns whether it is new; one beyond the window always is.
    fn add(&mut self, at: usize) -> bool {
        let is_new = !self.has(at);
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
        is_new
    }
}
