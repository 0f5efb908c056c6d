//! Quantities over time: samples of registered values, and the bytes that heaps have given out.

use std::collections::HashMap;

use kymo_event::{EventKind, Quantity};
use kymo_systemview::Packet;

use super::fields::sample;
use super::meaning::Meaning;

/// What a user should know of samples of unknown values.
pub(super) const UNREGISTERED: &str = "samples of values whose registration is not in the recording are shown as unsigned numbers: only the \
     registration tells their name and type (call SEGGER_SYSVIEW_RegisterData when the recording starts)";

/// Blocks that are known at a time; a hostile stream must not fill the memory.
const BLOCKS: usize = 1 << 20;

/// The bytes that heaps have given out since the recording began.
#[derive(Default)]
pub(super) struct Heaps {
    /// By the heap's id; `None` is the only one of a target that numbers none.
    used: HashMap<Option<u32>, u64>,
    /// Sizes of blocks, by heap and block.
    blocks: HashMap<(Option<u32>, u32), u64>,
}

impl Heaps {
    /// A block is given out: the bytes of its heap that are.
    fn allocate(&mut self, heap: Option<u32>, block: u32, size: u64) -> Option<u64> {
        if self.blocks.len() >= BLOCKS && !self.blocks.contains_key(&(heap, block)) {
            return None;
        }
        // The same block twice: that it was freed was lost.
        let before = self.blocks.insert((heap, block), size).unwrap_or(0);
        let used = self.used.entry(heap).or_default();
        *used = used.saturating_sub(before).saturating_add(size);
        Some(*used)
    }

    /// A block is given back; `None` if it was given out before the recording began.
    fn free(&mut self, heap: Option<u32>, block: u32) -> Option<u64> {
        let size = self.blocks.remove(&(heap, block))?;
        let used = self.used.entry(heap).or_default();
        *used = used.saturating_sub(size);
        Some(*used)
    }
}

impl Meaning {
    /// The quantity that has a new value with a packet, if one has.
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
