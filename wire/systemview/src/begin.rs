//! Where the packets of a stream begin that lacks its beginning: a ring whose oldest packet is overwritten in part, a capture
//! that was cut, a host that connected late.
//!
//! Any byte could be the first of a packet, and a wrong guess gives a few packets that never were. Packets read from wrong
//! places fall into step with the true ones soon, though, so the stream further on shows what it consists of: its ids,
//! tasks, interrupts and longest packet. A beginning is possible if the packets from there on look like those. The packets
//! are certain from the byte on at which those of all possible beginnings meet.

use crate::SYNC;
use crate::decode::{Decoded, decode};
use crate::error::Problem;
use crate::packet::{Form, Packet};
use crate::plausible::{Known, LONG, Oddity};
use crate::scan::{Arguments, LONG_TIME, decode_with};

/// Bytes of a stream that decide where its packets begin.
pub(crate) const WINDOW: usize = 1 << 11;

/// Packets that show what a stream consists of.
const SAMPLE: usize = 32;

/// Packets of an event may have so many bytes, however short all others are.
const SHORT: usize = 64;

/// Packets behind the first one that have to look like the stream's.
const FOLLOWING: usize = 8;

/// Where packets begin.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and no heap"
)]
pub(crate) enum Begin {
    /// At the first byte that is certain to be that of a packet; the packets behind it are like these.
    At(usize, Known),
    /// The bytes do not show it.
    Unknown,
    /// More bytes have to come.
    More,
}

/// Looks for the first packet in bytes that begin anywhere; `ended`: no more will come.
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
        // What is left of a recording before is too little to be certain.
        (None, Some(start)) => Begin::At(start, Known::default()),
        (None, None) => Begin::Unknown,
    }
}

/// Whether a recording starts here: with or without its ten zeros.
fn is_start(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(&SYNC).unwrap_or(bytes);
    if bytes.first() != Some(&10) {
        return false;
    }
    let Ok(start) = decode(bytes, Form::default(), 0) else {
        return false;
    };
    let init = bytes.get(start.bytes..).unwrap_or_default();
    match decode(init, Form::default(), 0).map(|init| init.packet) {
        Ok(packet @ Packet::Init { .. }) => Known::default().oddity(&packet) == Oddity::None,
        _ => false,
    }
}

/// Ids of events are lower: modules have some hundreds each.
const IDS: u32 = 1 << 16;

/// Whether targets send such a packet as a rule, of a stream of which nothing is known but that events have `most` bytes at
/// most. Numbers of 32 bits, addresses say, are neither times nor ids.
fn is_usual(decoded: &Decoded<'_>, most: usize) -> bool {
    if decoded.delta >= LONG_TIME {
        return false;
    }
    match decoded.packet {
        // Modules that were described before may have any id.
        Packet::Event { id, .. } => id < IDS && decoded.bytes <= most,
        Packet::Print { format, .. } => {
            let is_text = |byte: &u8| *byte >= b' ' || b"\t\n\r\x1b".contains(byte);
            format.0.iter().all(is_text)
        }
        packet => Known::default().oddity(&packet) != Oddity::Strange,
    }
}

/// Packets that follow each other, from any byte on.
struct Chains<'a> {
    bytes: &'a [u8],
    form: Form,
    arguments: Arguments<'a>,
}

/// What a stream consists of.
struct Like {
    known: Known,
    /// Ids up to 1023.
    ids: [u64; 16],
    /// Bytes of the longest packet.
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

    /// The first byte that is certain to be that of a packet, and what the stream consists of.
    fn first(&self) -> Option<(usize, Known)> {
        // What the packets are like on which all agree, wherever the first of them is.
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
        // The rest of a packet is shorter than it.
        let rest = like.longest.saturating_sub(1);
        let first = self.meet(rest, (2 * like.longest).max(SHORT));
        // In a text that is longer than all other packets none is.
        let first = first
            .and_then(|at| self.followed(at, &like))
            .or_else(|| self.followed(met, &like))?;
        Some((first, like.known))
    }

    /// The first packet from there on that is followed by packets like the stream's. Seldom ones can be the first, and of these it
    /// is not certain that they are any.
    fn followed(&self, mut at: usize, like: &Like) -> Option<usize> {
        while !self.is_followed(at, like) {
            at += self.decode(at).ok()?.bytes;
        }
        Some(at)
    }

    /// Whether packets like the stream's follow.
    fn is_followed(&self, mut at: usize, like: &Like) -> bool {
        (0..FOLLOWING).all(|_| {
            let decoded = self.decode(at).ok().filter(|it| like.has(it));
            at += decoded.map_or(0, |decoded| decoded.bytes);
            decoded.is_some()
        })
    }

    /// Where the packets meet that begin in the first bytes, the rest of a packet of at most `rest` bytes in front of them;
    /// events have `most` bytes at most.
    fn meet(&self, rest: usize, most: usize) -> Option<usize> {
        // Where packets begin, and how many of these places are not passed yet.
        let mut begins = Places([0; WINDOW / 64]);
        let mut count = 0;
        for at in 0..=rest {
            // A packet ends with the last byte of a number.
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

/// A set of places in the window.
struct Places([u64; WINDOW / 64]);

impl Places {
    fn has(&self, at: usize) -> bool {
        let word = self.0.get(at / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Adds a place, and whether it is new: one behind the window always is.
    fn add(&mut self, at: usize) -> bool {
        let is_new = !self.has(at);
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
        is_new
    }
}
