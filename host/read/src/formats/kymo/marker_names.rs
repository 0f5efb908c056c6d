//! Names of named markers for the metadata of a recording, so that it can be read without the program's ELF file.

use std::collections::BTreeMap;

use kymo_event::Addr;
use kymo_wire::event::{EventId, Layout, PacketHeader};
use kymo_wire::metadata;
use kymo_wire::packet::ITEM_STREAM;

use super::number;
use super::records::Walk;

/// Maximum number of names: damaged packets can look like markers, each with another address.
const MOST: usize = 10_000;

/// Addresses of marker names in the packets, with the names found for them.
#[derive(Debug, Default)]
pub(super) struct MarkerNames {
    names: BTreeMap<u64, Option<String>>,
    /// Addresses that have not been looked up.
    new: Vec<u64>,
}

impl MarkerNames {
    /// Collects the markers of a packet; `content` is its header and records. Returns the number of intact records.
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

    /// Looks up the new addresses. Returns whether any name was found.
    pub(super) fn resolve(&mut self, string_at: impl Fn(Addr) -> Option<String>) -> bool {
        let mut found = false;
        for address in self.new.drain(..) {
            let name = string_at(Addr(address));
            found |= name.is_some();
            self.names.insert(address, name);
        }
        found
    }

    /// Appends the description of named markers to the metadata.
    pub(super) fn write(&self, out: &mut String) {
        let known = self.names.iter();
        let known = known.filter_map(|(address, name)| Some((*address, name.as_deref()?)));
        // Cannot fail: a string takes any text.
        let _ = metadata::write_markers(out, known);
    }
}
