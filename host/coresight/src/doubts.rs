//! What of a trace was not followed, and where trace and code do not fit: counted, with the first place of each kind.

mod skipped;

pub use skipped::Skipped;

use std::collections::BTreeMap;

use crate::element::{Element, Leave, Range, Unsynced};
use crate::frames::Stream;
use crate::listing::{Packet, PacketDecoder};
use crate::memory::View;
use crate::source::Protocol;
use crate::{itm, stm};

/// How often something happened, and where first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How often.
    pub count: u64,
    /// The address that was executed there, or the last one that is known.
    pub address: u64,
    /// Position in the stream; of [located](Doubts::locate) doubts, offset in the trace buffer.
    pub offset: u64,
    /// What was in memory.
    pub view: View,
}

/// What was not followed, and what does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Execution where no image has the code, by program and page of 4 KiB.
    pub not_accessible: BTreeMap<(u32, u64), Place>,
    /// Execution at an address that is not known.
    pub address_unknown: u64,
    /// What is known no more, by the reason. The beginning of a source and a reset are none.
    pub unsynced: BTreeMap<Unsynced, Place>,
    /// What was not decoded behind overflows and the like, of an ETMv4 or ETE.
    pub skipped: Skipped,
    /// Unconditional branches that the trace says were not taken, by their address.
    pub not_taken: BTreeMap<u64, Place>,
    /// Instructions that lead to the next one only, and execution went on elsewhere, by the address of the next one.
    pub diverted: BTreeMap<u64, Place>,
    /// Runs that fit neither the code nor the trace, by their address: without a branch for longer than code is, or with one
    /// that decoding was to give up at.
    pub misfits: BTreeMap<u64, Place>,
    /// Runs with an instruction that is 0 in its upper half, which A64 does not have, by their start.
    pub no_opcodes: BTreeMap<u64, Place>,
    /// The end of the trace, where it cuts a packet of an STM or ITM short.
    pub cut: Option<Place>,
    /// Address behind the last range.
    last: u64,
    /// Address at which execution goes on, if the last range leads nowhere else.
    next: Option<u64>,
    /// What is in memory.
    pub view: View,
}

/// Places of a kind that are kept apart. Hostile input has millions.
const PLACES: usize = 4096;

/// Counts one more in a map of places. Behind so many, others count as the first one.
fn count<K: Ord>(places: &mut BTreeMap<K, Place>, key: K, (address, view): (u64, View), at: usize) {
    if places.len() >= PLACES
        && !places.contains_key(&key)
        && let Some(mut first) = places.first_entry()
    {
        first.get_mut().count += 1;
        return;
    }
    let place = places.entry(key).or_insert(Place {
        count: 0,
        address,
        offset: at as u64,
        view,
    });
    place.count += 1;
}

impl Doubts {
    /// The same place in the trace, with no doubt yet.
    pub(crate) fn emptied(&self) -> Self {
        Doubts {
            last: self.last,
            next: self.next,
            view: self.view,
            ..Doubts::default()
        }
    }

    /// Takes an element that is no range, which comes from the packet at position `at` of the stream.
    pub fn element(&mut self, at: usize, element: &Element) {
        if !matches!(
            element,
            Element::Context(_)
                | Element::Timestamp { .. }
                | Element::Cycles(_)
                | Element::Event(_)
                | Element::Conditional { .. }
                | Element::ConditionalResult { .. }
                | Element::ConditionalFlush
                | Element::Data { .. }
                | Element::StoreFailed
                | Element::DataSuppressed
        ) {
            self.next = None;
        }
        match *element {
            Element::NotAccessible { address, .. } => {
                let key = (self.view.program(), address >> 12);
                count(&mut self.not_accessible, key, (address, self.view), at);
            }
            Element::AddressUnknown => self.address_unknown += 1,
            Element::NoSync(Unsynced::BadImage(address)) => {
                count(&mut self.misfits, address, (address, self.view), at);
            }
            Element::NoSync(Unsynced::BadOpcode(address)) => {
                count(&mut self.no_opcodes, address, (address, self.view), at);
            }
            Element::NoSync(why) if !matches!(why, Unsynced::Init | Unsynced::Reset) => {
                count(&mut self.unsynced, why, (self.last, self.view), at);
            }
            _ => {}
        }
    }

    /// Takes any element.
    pub fn any(&mut self, at: usize, element: &Element) {
        match element {
            Element::Range(range) => self.range(at, range),
            other => self.element(at, other),
        }
    }

    /// Takes the packets of a stream, if it is one of an STM or ITM, whose elements say less, or an ETMv4 that lost trace. Their
    /// places are offsets of the buffer.
    pub fn messages(&mut self, protocol: &Protocol, stream: &Stream<'_>) {
        let is_lost = |why| self.unsynced.contains_key(why);
        let loses = [Unsynced::Overflow, Unsynced::Discard];
        if matches!(protocol, Protocol::EtmV4(_)) && loses.iter().any(is_lost) {
            self.skipped.add(Skipped::of(protocol, stream));
        }
        if !matches!(protocol, Protocol::Stm(_) | Protocol::Itm(_)) {
            return;
        }
        for segment in stream.segments() {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            for packet in PacketDecoder::new(protocol, bytes, segment.start) {
                self.message(&packet);
            }
        }
        self.locate(stream);
    }

    fn message(&mut self, packet: &Packet) {
        let at = packet.start();
        let mut unsynced = |why| count(&mut self.unsynced, why, (0, View::default()), at);
        match packet {
            Packet::Stm(packet) => match packet.kind {
                stm::Kind::BadSequence | stm::Kind::Reserved => unsynced(Unsynced::BadPacket),
                stm::Kind::GlobalError | stm::Kind::MasterError => unsynced(Unsynced::Overflow),
                stm::Kind::IncompleteEot => self.end_within_packet(at),
                _ => {}
            },
            Packet::Itm(packet) => match packet.kind {
                itm::Kind::BadSequence | itm::Kind::Reserved => unsynced(Unsynced::BadPacket),
                itm::Kind::Overflow => unsynced(Unsynced::Overflow),
                itm::Kind::IncompleteEot => self.end_within_packet(at),
                _ => {}
            },
            _ => {}
        }
    }

    fn end_within_packet(&mut self, at: usize) {
        self.cut = Some(Place {
            count: 1,
            address: 0,
            offset: at as u64,
            view: View::default(),
        });
    }

    /// Takes the start of what executes next.
    #[inline]
    pub fn arrive(&mut self, at: usize, start: u64) {
        if let Some(next) = self.next.take()
            && next != start
        {
            count(&mut self.diverted, next, (next, self.view), at);
        }
    }

    /// Takes the end of a range that raises no doubt and ends with a branch that was taken.
    #[inline]
    pub fn reach(&mut self, end: u64) {
        self.last = end;
        self.next = None;
    }

    /// Takes the end of a range that raises no doubt and leads to what follows it.
    #[inline]
    pub fn fall(&mut self, end: u64) {
        self.last = end;
        self.next = Some(end);
    }

    /// Takes a range.
    #[inline]
    pub fn range(&mut self, at: usize, range: &Range) {
        self.arrive(at, range.start);
        self.last = range.end;
        self.next = (range.leave() == Leave::Next).then_some(range.end);
        if range.has_no_opcode {
            let place = (range.start, self.view);
            count(&mut self.no_opcodes, range.start, place, at);
        }
        if range.is_mismatch() {
            let address = range.end.wrapping_sub(u64::from(range.last.size));
            count(&mut self.not_taken, address, (address, self.view), at);
        }
    }

    /// Forgets what depends on the code: of a trace that was read without it.
    pub fn without_code(self) -> Self {
        Doubts {
            unsynced: self.unsynced,
            skipped: self.skipped,
            cut: self.cut,
            ..Doubts::default()
        }
    }

    /// Adds those of another stream. Of equal ones, the first place of this one stays.
    pub fn add(&mut self, other: Doubts) {
        fn merge<K: Ord>(ours: &mut BTreeMap<K, Place>, theirs: BTreeMap<K, Place>) {
            for (key, place) in theirs {
                ours.entry(key)
                    .and_modify(|known| known.count += place.count)
                    .or_insert(place);
            }
        }
        merge(&mut self.not_accessible, other.not_accessible);
        self.address_unknown += other.address_unknown;
        merge(&mut self.unsynced, other.unsynced);
        self.skipped.add(other.skipped);
        merge(&mut self.not_taken, other.not_taken);
        merge(&mut self.diverted, other.diverted);
        merge(&mut self.misfits, other.misfits);
        merge(&mut self.no_opcodes, other.no_opcodes);
        self.cut = self.cut.or(other.cut);
        (self.last, self.next, self.view) = (other.last, other.next, other.view);
    }

    /// Turns positions in the stream into offsets in the buffer.
    pub fn locate(&mut self, stream: &Stream<'_>) {
        let mut places: Vec<&mut Place> = self
            .not_accessible
            .values_mut()
            .chain(self.unsynced.values_mut())
            .chain(self.not_taken.values_mut())
            .chain(self.diverted.values_mut())
            .chain(self.misfits.values_mut())
            .chain(self.no_opcodes.values_mut())
            .chain(self.cut.as_mut())
            .collect();
        places.sort_by_key(|place| place.offset);
        let mut offsets = stream.offsets();
        for place in places {
            place.offset = offsets.of(place.offset as usize);
        }
    }
}
