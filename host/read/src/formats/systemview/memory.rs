//! Memory images of a target: finds the RTT control block and reads the channel's ring buffer.
//!
//! An image is raw bytes or a core file. The program's ELF file has the address of `_SEGGER_RTT`, which gives the
//! address of raw bytes. Without it, the block is searched, and the image gets the roundest address at which it
//! contains the rings.

use std::path::Path;

use kymo_symbols::{Program, core_memory};
use kymo_systemview::rtt::{Channel, ControlBlock, ID, Layout};
use kymo_systemview::scan::UNKNOWN;
use kymo_systemview::{Form, Piece, SYNC, Scan};

use super::files;
use super::source::SystemViewSource;
use super::stream::{self, Stream};
use crate::bytes::Bytes;
use crate::{OpenError, OpenOptions, Source};

/// Number of bytes of an image in which the control block is searched.
const LOOKED_AT: usize = 256 << 20;

/// Largest number of control blocks that are tried. Text in an image can look like their start.
const BLOCKS: usize = 64;

/// Returns whether an image has a control block.
pub(super) fn is_image(bytes: &[u8]) -> bool {
    blocks(bytes).next().is_some()
}

/// Returns the control blocks in an image, with their offsets.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (usize, ControlBlock<'_>)> {
    let bytes = bytes.get(..LOOKED_AT).unwrap_or(bytes);
    let found = memchr::memmem::find_iter(bytes, ID).take(BLOCKS);
    found.filter_map(|at| {
        let rest = bytes.get(at..)?;
        let parse = |layout| ControlBlock::parse(rest, layout);
        Some((at, Layout::ALL.into_iter().find_map(parse)?))
    })
}

/// Memory by address.
struct Image<'a>(Vec<(u64, &'a [u8])>);

impl Image<'_> {
    fn bytes(&self, range: &std::ops::Range<u64>) -> Option<&[u8]> {
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        self.0.iter().find_map(|(address, bytes)| {
            let skip = usize::try_from(range.start.checked_sub(*address)?).ok()?;
            bytes.get(skip..skip.checked_add(length)?)
        })
    }

    /// Returns a zero-terminated text.
    fn text(&self, address: u64) -> Option<&[u8]> {
        let bytes = (1..64)
            .rev()
            .find_map(|length| self.bytes(&(address..address + length)))?;
        bytes.split(|byte| *byte == 0).next()
    }

    /// Returns the contents of a ring, oldest first.
    fn ring(&self, channel: &Channel) -> Option<Vec<u8>> {
        // Data that the host has read is still in the ring.
        let all = channel.read == channel.write;
        let [first, second] = channel.parts(all);
        let bytes = [self.bytes(&first)?, self.bytes(&second)?].concat();
        // The rest of a ring that was never full is zero.
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Some(bytes.get(zeros.saturating_sub(SYNC.len())..)?.to_vec())
    }
}

/// Opens a memory image. Raw bytes begin at `base_address`, if that is known. Returns `None` if the image has no
/// SystemView packets.
pub(super) fn open(
    path: &Path,
    bytes: &Bytes,
    base_address: Option<u64>,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Source>>, OpenError> {
    let program = options.program.as_deref();
    let known = program.and_then(|path| Program::open(path).ok()?.variable("_SEGGER_RTT"));
    let core = core_memory(bytes).ok().flatten();
    for (at, block) in blocks(bytes) {
        let parts = match &core {
            Some(loaded) => {
                let part =
                    |it: &kymo_symbols::Loaded| Some((it.address, bytes.get(it.file.clone())?));
                loaded.iter().filter_map(part).collect()
            }
            None => {
                let known = known.and_then(|known| known.checked_sub(at as u64));
                let known = base_address.or(known);
                let Some(base) = known.or_else(|| base(&block, bytes.len() as u64)) else {
                    continue;
                };
                vec![(base, &**bytes)]
            }
        };
        let image = Image(parts);
        let mut channels: Vec<_> = block.up().filter(|channel| channel.size > 0).collect();
        channels.sort_by_key(|channel| image.text(channel.name) != Some(b"SysView"));
        let mut streams = channels
            .iter()
            .filter_map(|channel| Some((channel, image.ring(channel)?)));
        if let Some((channel, found)) = streams.find(|(_, bytes)| is_stream(bytes)) {
            let all = found.len() as u64;
            let name = files::name(path);
            let stream = Stream::new(&name, None, Bytes::from(found), 0..all, Form::default());
            let mut source = SystemViewSource::new(vec![stream], Some(path), options);
            let remark = format!(
                "{name}: read as an image of a target's memory: {all} bytes of the ring of {} bytes at address {:#x}, which \
                 the RTT control block at offset {at} names; offsets count in the ring, oldest byte first",
                channel.size, channel.buffer
            );
            source.info_mut().remarks.push(remark);
            return Ok(Some(Box::new(source)));
        }
    }
    Ok(None)
}

/// Returns whether bytes are packets: most of them are, or a recording begins in them.
fn is_stream(bytes: &[u8]) -> bool {
    if stream::start_in(bytes).is_some() {
        return true;
    }
    let mut scan = Scan::default();
    let (mut packets, mut damaged) = (0, 0);
    while let Some(piece) = usize::try_from(scan.offset())
        .ok()
        .and_then(|at| scan.next(bytes.get(at..)?, true, UNKNOWN))
    {
        match piece {
            Piece::Record(_) => packets += 1,
            Piece::Damage { bytes, .. } => damaged += bytes,
            Piece::Sync { .. } => {}
        }
    }
    packets > 16 && damaged * 4 < bytes.len() as u64
}

/// Returns the roundest address of raw bytes that contain all rings of a block. `None` if the rings are further apart
/// than the image is long: the block is a copy in a buffer, or a part of its memory is missing.
fn base(block: &ControlBlock<'_>, length: u64) -> Option<u64> {
    let rings = || block.all().filter(|channel| channel.size > 0);
    let first = rings().map(|channel| channel.buffer).min()?;
    let end = rings()
        .map(|it| it.buffer.saturating_add(it.size.into()))
        .max()?;
    let least = end.saturating_sub(length);
    if first < least {
        return None;
    }
    // Clears low bits of the highest possible address while it stays high enough.
    let mut base = first;
    for bit in 0..u64::BITS {
        let rounder = base & !(1 << bit);
        if rounder < least {
            break;
        }
        base = rounder;
    }
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roundest_address_is_found() {
        let mut bytes = ID.to_vec();
        for field in [1u32, 0, 0, 0x2000_4100, 256, 1, 1, 0] {
            bytes.extend(field.to_le_bytes());
        }
        let block = ControlBlock::parse(&bytes, Layout::ALL[0]).unwrap();
        assert_eq!(base(&block, 0x8000), Some(0x2000_0000));
        assert_eq!(base(&block, 0x300), Some(0x2000_4000));
        assert_eq!(base(&block, 0xff), None);
    }
}
