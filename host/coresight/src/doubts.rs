//! Counts of trace that was not followed and of conflicts between trace and code, with the first place of each kind.

mod skipped;

pub use skipped::Skipped;

use std::collections::BTreeMap;

use crate::element::{Element, Leave, Range, Unsynced};
use crate::frames::Stream;
use crate::listing::{Packet, PacketDecoder};
use crate::memory::View;
use crate::source::Protocol;
use crate::{itm, stm};

/// Number of occurrences, and the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of occurrences.
    pub count: u64,
    /// Address executed there, or the last known address.
    pub address: u64,
    /// Position in the stream; for [located](Doubts::locate) doubts, offset in the trace buffer.
    pub offset: u64,
    /// View of the memory at the time.
    pub view: View,
}

/// Trace of a stream that was not followed, and conflicts between trace and code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Execution where no image has the code, by program and page of 4 KiB.
    pub not_accessible: BTreeMap<(u32, u64), Place>,
    /// Number of executions at an unknown address.
    pub address_unknown: u64,
    /// Losses of trace, by reason. The beginning of a source and a reset do not count.
    pub unsynced: BTreeMap<Unsynced, Place>,
    /// ETMv4 or ETE trace that was not decoded after overflows and the like.
    pub skipped: Skipped,
    /// Unconditional branches that the trace reports as not taken, by their address.
    pub not_taken: BTreeMap<u64, Place>,
    /// Instructions that are no branches, after which execution continued elsewhere, by the address of the next
    /// instruction.
    pub diverted: BTreeMap<u64, Place>,
    /// Runs of instructions that do not fit the trace, by their address: without a branch for longer than real code, or
    /// with a branch at which the decoder is configured to stop.
    pub misfits: BTreeMap<u64, Place>,
    /// Runs with an instruction whose upper half is 0, which is no A64 instruction, by their start.
    pub no_opcodes: BTreeMap<u64, Place>,
    /// Incomplete STM or ITM packet at the end of the trace.
    pub cut: Option<Place>,
    /// End address of the last range.
    last: u64,
    /// Address at which execution must continue, if the last range ended without a taken branch.
    next: Option<u64>,
    /// Current view of the memory.
    pub view: View,
}

/// Limit of separate places of each kind. Hostile input has millions.
const PLACES: usize = 4096;

/// Adds an occurrence to a map of places. At the limit, occurrences with new keys count for the first key.
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
    /// Empty doubts at the same position of the trace.
    pub(crate) fn emptied(&self) -> Self {
        Doubts {
            last: self.last,
            next: self.next,
            view: self.view,
            ..Doubts::default()
        }
    }

    /// Checks an element other than a range, from the packet at position `at` of the stream.
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

    /// Checks any element.
    pub fn any(&mut self, at: usize, element: &Element) {
        match element {
            Element::Range(range) => self.range(at, range),
            other => self.element(at, other),
        }
    }

    /// Checks the packets of an STM or ITM stream, whose elements have less detail, or of an ETMv4 stream that lost
    /// trace. Places become offsets in the buffer.
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

    /// Checks the start address of the next range.
    #[inline]
    pub fn arrive(&mut self, at: usize, start: u64) {
        if let Some(next) = self.next.take()
            && next != start
        {
            count(&mut self.diverted, next, (next, self.view), at);
        }
    }

    /// Records the end of a range without doubts that ends with a taken branch.
    #[inline]
    pub fn reach(&mut self, end: u64) {
        self.last = end;
        self.next = None;
    }

    /// Records the end of a range without doubts that continues with the next instruction.
    #[inline]
    pub fn fall(&mut self, end: u64) {
        self.last = end;
        self.next = Some(end);
    }

    /// Checks a range.
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

    /// Removes all doubts that depend on code, for a trace decoded without code.
    pub fn without_code(self) -> Self {
        Doubts {
            unsynced: self.unsynced,
            skipped: self.skipped,
            cut: self.cut,
            ..Doubts::default()
        }
    }

    /// Adds the doubts of another stream. For equal keys, this stream's place stays.
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

    /// Converts positions in the stream to offsets in the buffer.
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
