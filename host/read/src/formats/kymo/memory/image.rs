//! Memory of a target, by address.

use std::collections::HashMap;

use kymo_symbols::{Loaded, core_memory};
use kymo_wire::event::METADATA_STREAM;
use kymo_wire::packet::EVENT_STREAM;

use super::Recorder;
use crate::formats::kymo::packets::{checked_header, magic};

/// The bytes of dumps, and where in memory they were.
pub(super) struct Image<'a> {
    parts: Vec<Part<'a>>,
}

/// What was in one piece.
struct Part<'a> {
    address: u64,
    bytes: &'a [u8],
}

impl<'a> Image<'a> {
    /// The memory in a core file, or plain bytes from `address`; without that, from where their packets
    /// tell that they were.
    ///
    /// # Errors
    /// What is wrong with the core file, or that nothing tells the address.
    pub fn new(bytes: &'a [u8], recorder: &Recorder, address: Option<u64>) -> Result<Self, String> {
        if let Some(memory) = core_memory(bytes).map_err(|error| error.to_string())? {
            let part = |Loaded { address, file }: Loaded| {
                let bytes = bytes.get(file)?;
                Some(Part { address, bytes })
            };
            let parts = memory.into_iter().filter_map(part).collect();
            return Ok(Self { parts });
        }
        let address = address.or_else(|| Self::locate(bytes, recorder));
        let address = address.ok_or_else(|| {
            format!(
                "expected packets of {}, found none that tell where in memory they were",
                recorder.place()
            )
        })?;
        Ok(Self {
            parts: vec![Part { address, bytes }],
        })
    }

    /// Memory that was at `address`.
    pub fn of(address: u64, bytes: &'a [u8]) -> Self {
        Self {
            parts: vec![Part { address, bytes }],
        }
    }

    /// Takes in more memory, which was at `address`.
    pub fn add(&mut self, address: u64, bytes: &'a [u8]) {
        self.parts.push(Part { address, bytes });
    }

    /// How many bytes are here.
    pub fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// So many bytes of memory, if all of them are here.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|part| {
            let skip = usize::try_from(address.checked_sub(part.address)?).ok()?;
            part.bytes.get(skip..skip.checked_add(length)?)
        })
    }

    /// Where plain bytes were. A packet says its CPU and number, and by these it has its place in the
    /// buffer; the packet of names lies where the program wants it. Most of them have to agree.
    fn locate(bytes: &[u8], recorder: &Recorder) -> Option<u64> {
        let layout = recorder.layout;
        let magic = magic(layout);
        let mut votes = HashMap::<u64, usize>::new();
        let mut from = 0;
        while let Some(found) = bytes
            .get(from..)
            .and_then(|rest| rest.windows(4).position(|bytes| bytes == magic))
        {
            let at = from + found;
            from = at + 1;
            let Ok(header) = checked_header(layout, bytes.get(at..).unwrap_or(&[])) else {
                continue;
            };
            let place = match header.cpu {
                METADATA_STREAM if recorder.metadata != 0 => recorder.metadata,
                cpu if header.stream == EVENT_STREAM && u32::from(cpu) < recorder.cpus => {
                    recorder.packet_at(cpu.into(), header.sequence)
                }
                _ => continue,
            };
            if let Some(address) = place.checked_sub(at as u64) {
                *votes.entry(address).or_default() += 1;
            }
        }
        let most = votes
            .into_iter()
            .max_by_key(|(address, votes)| (*votes, *address));
        most.map(|(address, _)| address)
    }
}
