//! Counters: samples of registered values, and the allocated bytes of heaps.

use std::collections::HashMap;

use kymo_event::{EventKind, Quantity};
use kymo_systemview::Packet;

use super::fields::sample;
use super::meaning::Meaning;

/// Remark about samples of unregistered values.
pub(super) const UNREGISTERED: &str = "samples of values whose registration is not in the recording are shown as unsigned numbers: only the \
     registration tells their name and type (call SEGGER_SYSVIEW_RegisterData when the recording starts)";

/// Largest number of known blocks. It bounds memory for hostile streams.
const BLOCKS: usize = 1 << 20;

/// Allocated bytes of heaps since the recording began.
#[derive(Default)]
pub(super) struct Heaps {
    /// Allocated bytes by heap id. `None` is the only heap of a target that has no ids.
    used: HashMap<Option<u32>, u64>,
    /// Block sizes, by heap and block.
    blocks: HashMap<(Option<u32>, u32), u64>,
}

impl Heaps {
    /// Adds a block. Returns the allocated bytes of its heap.
    fn allocate(&mut self, heap: Option<u32>, block: u32, size: u64) -> Option<u64> {
        if self.blocks.len() >= BLOCKS && !self.blocks.contains_key(&(heap, block)) {
            return None;
        }
        // The same block twice: the record of its release was lost.
        let before = self.blocks.insert((heap, block), size).unwrap_or(0);
        let used = self.used.entry(heap).or_default();
        *used = used.saturating_sub(before).saturating_add(size);
        Some(*used)
    }

    /// Removes a block. Returns `None` if it was allocated before the recording began.
    fn free(&mut self, heap: Option<u32>, block: u32) -> Option<u64> {
        let size = self.blocks.remove(&(heap, block))?;
        let used = self.used.entry(heap).or_default();
        *used = used.saturating_sub(size);
        Some(*used)
    }
}

impl Meaning {
    /// Returns the counter that a packet changes, if any.
    pub(super) fn counter(&mut self, packet: &Packet<'_>) -> Option<EventKind> {
        let (heap, used) = match *packet {
            Packet::DataSample { id, value } => {
                let known = self.names.data.get(&id);
                let kind = known.map(|known| known.1);
                self.unregistered |= known.is_none();
                return Some(EventKind::Counter {
                    name: match known {
                        Some(known) => known.0.clone(),
                        None => format!("value {id} (unregistered)"),
                    },
                    process: None,
                    value: sample(kind, value),
                });
            }
            Packet::HeapAlloc {
                heap, block, size, ..
            } => {
                let size = self.names.ids.size(size);
                (
                    Some(heap),
                    self.heaps.allocate(Some(heap), block, size.into()),
                )
            }
            Packet::HeapFree { heap, block } => (Some(heap), self.heaps.free(Some(heap), block)),
            Packet::Event { id, .. } => {
                let mut values = packet.values();
                let used = match Some(id) {
                    id if id == self.descriptions.heap_alloc => {
                        let (block, size) = (values.next()?, values.next()?);
                        self.heaps.allocate(None, block, size.into())
                    }
                    id if id == self.descriptions.heap_free => {
                        self.heaps.free(None, values.next()?)
                    }
                    _ => None,
                };
                (None, used)
            }
            _ => return None,
        };
        let name = match heap {
            Some(heap) => match self.names.resources.get(&heap) {
                Some(name) => format!("bytes used of heap {name}"),
                None => format!("bytes used of heap {:#x}", self.names.ids.address(heap)),
            },
            None => "bytes used of the heap".to_owned(),
        };
        Some(EventKind::Counter {
            name,
            process: None,
            value: Quantity::Unsigned(used?),
        })
    }
}
