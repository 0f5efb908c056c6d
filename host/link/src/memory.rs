//! RTT rings in a memory file, for a host that shares memory with its guest: QEMU with `-object
//! memory-backend-file,share=on`, a RAM file, or ivshmem. The host accesses the file as a debug probe accesses the
//! target's memory.
//!
//! If the guest reads an index that is half written, at most one frame is damaged, and it is requested again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{Address, LinkError, Transport};

/// First bytes of the control block, which is aligned to four bytes.
const ID: &[u8; 16] = b"SEGGER RTT\0\0\0\0\0\0";

/// Bytes searched at a time.
const PIECE: usize = 1 << 20;

/// Interval at which the host polls the rings.
const PAUSE: Duration = Duration::from_millis(1);

/// Greatest accepted number of channels.
const MOST_CHANNELS: u32 = 64;

/// One channel from the guest and one to it.
struct SharedRings {
    file: File,
    /// The guest's address of the first byte of the file.
    base: u64,
    bytes: u64,
    /// Bytes of a pointer.
    word: u64,
    /// Offsets of the two channels' descriptors in the file.
    up: u64,
    down: u64,
}

/// A ring as its descriptor currently describes it.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// Offset of its memory in the file.
    memory: u64,
    size: u32,
    write: u32,
    read: u32,
}

/// Searches a file for the control block until it is there or `timeout` has passed.
pub(crate) fn open(
    address: &Address,
    path: &Path,
    base: u64,
    channel: u8,
    timeout: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    let error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => LinkError::NotFound {
            address: address.clone(),
            source,
        },
        io::ErrorKind::PermissionDenied => LinkError::PermissionDenied {
            address: address.clone(),
            source,
        },
        _ => LinkError::Open {
            address: address.clone(),
            source,
        },
    };
    let deadline = Instant::now() + timeout;
    loop {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.map_err(error)?;
        let bytes = file.metadata().map_err(error)?.len();
        let at = find(&mut file).map_err(error)?;
        if let Some(at) = at
            && let Some(rings) = SharedRings::at(file, (base, bytes), at, channel).map_err(error)?
        {
            return Ok(Box::new(rings));
        }
        if Instant::now() >= deadline {
            let what = match at {
                Some(_) => "the control block of RTT in it has no such channel at this address",
                None => "there is no control block of RTT in it",
            };
            return Err(error(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        sleep(PAUSE * 20);
    }
}

/// Finds the offset of the control block.
fn find(file: &mut File) -> io::Result<Option<u64>> {
    let mut piece = vec![0; PIECE + ID.len()];
    let mut at = 0u64;
    loop {
        file.seek(SeekFrom::Start(at))?;
        let mut filled = 0;
        while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read(rest)? {
                0 => break,
                count => filled += count,
            }
        }
        let bytes = piece.get(..filled).unwrap_or_default();
        let mut places = bytes.windows(ID.len()).step_by(4);
        if let Some(place) = places.position(|window| window == ID) {
            return Ok(Some(at + 4 * place as u64));
        }
        if filled < piece.len() {
            return Ok(None);
        }
        at += PIECE as u64;
    }
}

impl SharedRings {
    /// The channel of the block at offset `at`, with pointers of 32 or 64 bits; `None` if there is no such channel.
    fn at(
        mut file: File,
        (base, bytes): (u64, u64),
        at: u64,
        channel: u8,
    ) -> io::Result<Option<Self>> {
        let counts = at + ID.len() as u64;
        let (ups, downs) = (number(&mut file, counts)?, number(&mut file, counts + 4)?);
        let channel = u32::from(channel);
        if ups > MOST_CHANNELS || downs > MOST_CHANNELS || channel >= ups.min(downs) {
            return Ok(None);
        }
        let mut rings = Self {
            file,
            base,
            bytes,
            word: 0,
            up: 0,
            down: 0,
        };
        for word in [4, 8] {
            rings.word = word;
            let place = |n: u32| counts + 8 + u64::from(n) * (2 * word + 16);
            (rings.up, rings.down) = (place(channel), place(ups + channel));
            if rings.ring(rings.up)?.is_some() && rings.ring(rings.down)?.is_some() {
                return Ok(Some(rings));
            }
        }
        Ok(None)
    }

    /// Reads a channel's descriptor; `None` if it is invalid, as while the guest starts.
    fn ring(&mut self, channel: u64) -> io::Result<Option<Ring>> {
        let pointer = channel + self.word;
        let mut memory = u64::from(number(&mut self.file, pointer)?);
        if self.word == 8 {
            memory |= u64::from(number(&mut self.file, pointer + 4)?) << 32;
        }
        let rest = pointer + self.word;
        let ring = Ring {
            memory: memory.wrapping_sub(self.base),
            size: number(&mut self.file, rest)?,
            write: number(&mut self.file, rest + 4)?,
            read: number(&mut self.file, rest + 8)?,
        };
        let fits = ring.size >= 2
            && ring
                .memory
                .checked_add(ring.size.into())
                .is_some_and(|end| end <= self.bytes);
        Ok((fits && ring.write < ring.size && ring.read < ring.size).then_some(ring))
    }

    /// Sets an index of a channel: the reader's or the writer's.
    fn set_index(&mut self, channel: u64, is_reader: bool, index: u32) -> io::Result<()> {
        let place = channel + 2 * self.word + 4 + 4 * u64::from(is_reader);
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&index.to_le_bytes())
    }
}

/// Reads a little-endian `u32`.
fn number(file: &mut File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The index after `count` more bytes.
const fn behind(index: u32, count: u32, size: u32) -> u32 {
    (index + count) % size
}

impl Transport for SharedRings {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(ring) = self.ring(self.up)?
                && ring.write != ring.read
            {
                // As much as is contiguous.
                let end = if ring.write > ring.read {
                    ring.write
                } else {
                    ring.size
                };
                let most = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
                let count = (end - ring.read).min(most);
                let Some(to) = buffer.get_mut(..count as usize) else {
                    return Ok(0);
                };
                let from = ring.memory + u64::from(ring.read);
                self.file.seek(SeekFrom::Start(from))?;
                self.file.read_exact(to)?;
                self.set_index(self.up, true, behind(ring.read, count, ring.size))?;
                return Ok(count as usize);
            }
            if Instant::now() >= deadline {
                return Ok(0);
            }
            sleep(PAUSE);
        }
    }

    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(ring) = self.ring(self.down)? {
                let used = (ring.write + ring.size - ring.read) % ring.size;
                let room = (ring.size - 1 - used).min(ring.size - ring.write);
                let count = rest.len().min(room as usize);
                let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                if count > 0 {
                    let to = ring.memory + u64::from(ring.write);
                    self.file.seek(SeekFrom::Start(to))?;
                    self.file.write_all(now)?;
                    let index = behind(ring.write, count as u32, ring.size);
                    self.set_index(self.down, false, index)?;
                    rest = later;
                    continue;
                }
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the guest does not take what is sent",
                ));
            }
            sleep(PAUSE);
        }
        Ok(())
    }
}
