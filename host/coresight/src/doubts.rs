//! What of a trace was not followed, and where trace and code do not fit: counted, with the first place of each kind.

use std::collections::BTreeMap;

use crate::element::{Element, Range, Unsynced};
use crate::frames::Stream;
use crate::instruction::Class;
use crate::isa::Isa;
use crate::memory::View;

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
    /// Unconditional branches that the trace says were not taken, by their address.
    pub not_taken: BTreeMap<u64, Place>,
    /// Runs with an instruction that is 0 in its upper half, which A64 does not have, by their start.
    pub no_opcodes: BTreeMap<u64, Place>,
    /// Address behind the last range.
    last: u64,
    /// What is in memory.
    pub view: View,
}

/// Counts one more in a map of places.
fn count<K: Ord>(places: &mut BTreeMap<K, Place>, key: K, (address, view): (u64, View), at: usize) {
    let place = places.entry(key).or_insert(Place {
        count: 0,
        address,
        offset: at as u64,
        view,
    });
    place.count += 1;
}

impl Doubts {
    /// Takes an element that is no range, which comes from the packet at position `at` of the stream.
    pub fn element(&mut self, at: usize, element: &Element) {
        match *element {
            Element::NotAccessible { address, .. } => {
                let key = (self.view.program(), address >> 12);
                count(&mut self.not_accessible, key, (address, self.view), at);
            }
            Element::AddressUnknown => self.address_unknown += 1,
            Element::NoSync(why) if !matches!(why, Unsynced::Init | Unsynced::Reset) => {
                count(&mut self.unsynced, why, (self.last, self.view), at);
            }
            _ => {}
        }
    }

    /// Takes the end of a range that raises none.
    #[inline]
    pub fn reach(&mut self, end: u64) {
        self.last = end;
    }

    /// Takes a range.
    #[inline]
    pub fn range(&mut self, at: usize, range: &Range) {
        self.last = range.end;
        if !range.is_taken && !range.last.is_conditional {
            self.unconditional(at, range);
        }
    }

    /// Takes a range that did not take its last instruction, an unconditional one. T32 has branches that are conditional
    /// by an IT instruction before, which may be in another block.
    #[cold]
    fn unconditional(&mut self, at: usize, range: &Range) {
        let is_branch = matches!(range.last.class, Class::Branch | Class::Indirect);
        if is_branch && range.isa != Isa::T32 {
            let address = range.end.wrapping_sub(u64::from(range.last.size));
            count(&mut self.not_taken, address, (address, self.view), at);
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
        merge(&mut self.not_taken, other.not_taken);
        merge(&mut self.no_opcodes, other.no_opcodes);
    }

    /// Turns positions in the stream into offsets in the buffer.
    pub fn locate(&mut self, stream: &Stream<'_>) {
        let mut places: Vec<&mut Place> = self
            .not_accessible
            .values_mut()
            .chain(self.unsynced.values_mut())
            .chain(self.not_taken.values_mut())
            .collect();
        places.sort_by_key(|place| place.offset);
        let mut offsets = stream.offsets();
        for place in places {
            place.offset = offsets.of(place.offset as usize);
        }
    }
}
