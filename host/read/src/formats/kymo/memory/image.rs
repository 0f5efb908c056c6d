//! Memory image of a target, accessed by address.

use std::collections::HashMap;

use kymo_symbols::{Loaded, core_memory};
use kymo_wire::event::METADATA_STREAM;
use kymo_wire::packet::EVENT_STREAM;

use super::Recorder;
use crate::formats::kymo::packets::{checked_header, magic};

/// The bytes of dumps, with their addresses.
pub(super) struct Image<'a> {
    parts: Vec<Part<'a>>,
}

/// A contiguous range of memory.
struct Part<'a> {
    address: u64,
    bytes: &'a [u8],
}

impl<'a> Image<'a> {
    /// The memory in a core file, or plain bytes from `address`; without an address it is computed from
    /// the packets in the bytes.
    ///
    /// # Errors
    /// A message if the core file is damaged, or the address is unknown.
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

    /// Memory at `address`.
    pub fn of(address: u64, bytes: &'a [u8]) -> Self {
        Self {
            parts: vec![Part { address, bytes }],
        }
    }

    /// Adds memory at `address`.
    pub fn add(&mut self, address: u64, bytes: &'a [u8]) {
        self.parts.push(Part { address, bytes });
    }

    /// The total size in bytes.
    pub fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// `length` bytes from `address`; `None` unless one part holds all of them.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|part| {
            let skip = usize::try_from(address.checked_sub(part.address)?).ok()?;
            part.bytes.get(skip..skip.checked_add(length)?)
        })
    }

    /// Computes the address of plain bytes. A packet's CPU and sequence number determine its slot in the
    /// buffer; the packet of names has a fixed address. Most packets must agree.
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
