//! The names of a recording's markers, which its metadata tells to whoever reads it without the program.

use std::collections::BTreeMap;

use kymo_event::Addr;
use kymo_wire::event::{EventId, Layout, PacketHeader};
use kymo_wire::metadata;
use kymo_wire::packet::ITEM_STREAM;

use super::number;
use super::records::Walk;

/// So many names are told: damage looks like markers too, each with another address.
const MOST: usize = 10_000;

/// The addresses of names that occur, and the names of those of which it is known.
#[derive(Debug, Default)]
pub(super) struct MarkerNames {
    names: BTreeMap<u64, Option<String>>,
    /// Those that nobody was asked for yet.
    new: Vec<u64>,
}

impl MarkerNames {
    /// Notes the markers of a packet: `content` is its head and records. Gives how many records are good.
    pub(super) fn note(&mut self, layout: Layout, header: &PacketHeader, content: &[u8]) -> u64 {
        if header.stream == ITEM_STREAM {
            return 0;
        }
        let mut walk = Walk::new(layout, header, content);
        let mut records = 0;
        while let Ok(Some(id)) = walk.next() {
            records += 1;
            if id == EventId::NamedMarker {
                let name = walk.payload.get(..layout.word.bytes()).unwrap_or(&[]);
                self.add(number(layout.order, name));
            }
        }
        records
    }

    fn add(&mut self, address: u64) {
        if self.names.len() < MOST && !self.names.contains_key(&address) {
            self.names.insert(address, None);
            self.new.push(address);
        }
    }

    /// Asks for the names that are new. Says whether there was one.
    pub(super) fn resolve(&mut self, string_at: impl Fn(Addr) -> Option<String>) -> bool {
        let mut found = false;
        for address in self.new.drain(..) {
            let name = string_at(Addr(address));
            found |= name.is_some();
            self.names.insert(address, name);
        }
        found
    }

    /// The part of the metadata that is about them.
    pub(super) fn write(&self, out: &mut String) {
        let known = self.names.iter();
        let known = known.filter_map(|(address, name)| Some((*address, name.as_deref()?)));
        // Cannot fail: a string takes any text.
        let _ = metadata::write_markers(out, known);
    }
}
