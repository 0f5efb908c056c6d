//! Control block of SEGGER's RTT in an image of a target's memory.
//!
//! ```text
//! char id[16]; i32 up; i32 down; channel[up]; channel[down]
//! channel: pointer name, buffer; u32 size, write, read, flags
//! ```
//!
//! Pointers are 4 or 8 bytes. The target writes at `write`; the host reads from `read` on.

use core::ops::Range;

/// Start of a control block, padded with zeros to 16 bytes.
pub const ID: &[u8; 16] = b"SEGGER RTT\0\0\0\0\0\0";

/// Maximum number of channels in one direction of a valid block.
const CHANNELS: u32 = 255;

/// Memory layout of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether pointers are 8 bytes.
    pub wide: bool,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
}

impl Layout {
    /// All layouts, the most common one first.
    pub const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(true, false),
        Self::new(false, true),
        Self::new(true, true),
    ];

    const fn new(wide: bool, big_endian: bool) -> Self {
        Self { wide, big_endian }
    }

    const fn channel_bytes(self) -> usize {
        if self.wide { 32 } else { 24 }
    }
}

/// A channel's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Address of its name, 0 for none.
    pub name: u64,
    /// Address of its buffer.
    pub buffer: u64,
    /// Size of the buffer in bytes.
    pub size: u32,
    /// Index of the next byte to write.
    pub write: u32,
    /// Index of the next byte to read.
    pub read: u32,
    /// Mode in bits 0 and 1.
    pub flags: u32,
}

impl Channel {
    /// Returns the parts of the buffer that were written, oldest first: two, because it is a ring. With `all` the whole
    /// ring, for a target that overwrites old data; otherwise the data that was not read yet.
    pub const fn parts(&self, all: bool) -> [Range<u64>; 2] {
        let (write, size) = (self.write as u64, self.size as u64);
        let first = if all { write } else { self.read as u64 };
        match all || first > write {
            true => [
                self.buffer.saturating_add(first)..self.buffer.saturating_add(size),
                self.buffer..self.buffer.saturating_add(write),
            ],
            false => [
                self.buffer.saturating_add(first)..self.buffer.saturating_add(write),
                self.buffer..self.buffer,
            ],
        }
    }
}

/// A control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlBlock<'a> {
    layout: Layout,
    up: u32,
    down: u32,
    channels: &'a [u8],
}

impl<'a> ControlBlock<'a> {
    /// Parses the block at the start of `bytes`; `None` if its counts or channels are invalid.
    pub fn parse(bytes: &'a [u8], layout: Layout) -> Option<Self> {
        let rest = bytes.strip_prefix(ID)?;
        let [up, down] = [0, 4].map(|at| number(rest, at, 4, layout.big_endian));
        let (up, down) = (u32::try_from(up?).ok()?, u32::try_from(down?).ok()?);
        let channels = rest.get(8..)?;
        let block = Self {
            layout,
            up,
            down,
            channels,
        };
        let are_few = up > 0 && up <= CHANNELS && down <= CHANNELS;
        let bytes = (up as usize + down as usize) * layout.channel_bytes();
        let are_channels = |channel: Channel| {
            channel.size == 0 || channel.write < channel.size && channel.read < channel.size
        };
        let is_one = are_few && channels.len() >= bytes && block.all().all(are_channels);
        (is_one && block.up().any(|channel| channel.size > 0)).then_some(block)
    }

    /// Returns the block's pointer size and byte order.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the channels from the target to the host.
    pub fn up(&self) -> impl Iterator<Item = Channel> + use<'a> {
        self.all().take(self.up as usize)
    }

    /// Returns all channels: those to the host, then those to the target.
    pub fn all(&self) -> impl Iterator<Item = Channel> + use<'a> {
        let Layout { wide, big_endian } = self.layout;
        let channels = self.channels.chunks_exact(self.layout.channel_bytes());
        let count = self.up.saturating_add(self.down) as usize;
        channels.take(count).filter_map(move |bytes| {
            let pointer = if wide { 8 } else { 4 };
            let field = |place: usize| {
                let at = 2 * pointer + 4 * place;
                u32::try_from(number(bytes, at, 4, big_endian)?).ok()
            };
            Some(Channel {
                name: number(bytes, 0, pointer, big_endian)?,
                buffer: number(bytes, pointer, pointer, big_endian)?,
                size: field(0)?,
                write: field(1)?,
                read: field(2)?,
                flags: field(3)?,
            })
        })
    }
}

fn number(bytes: &[u8], at: usize, size: usize, big_endian: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(match big_endian {
        true => bytes.iter().fold(0, add),
        false => bytes.iter().rev().fold(0, add),
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn block(layout: Layout) -> Vec<u8> {
        let mut bytes = ID.to_vec();
        let mut put = |value: u64, size: usize| {
            let all = value.to_be_bytes();
            let mut field = all[8 - size..].to_vec();
            if !layout.big_endian {
                field.reverse();
            }
            bytes.extend(field);
        };
        let pointer = if layout.wide { 8 } else { 4 };
        for count in [2, 1] {
            put(count, 4);
        }
        for channel in 0..3 {
            put(0x100, pointer);
            put(0x2000_0000 + channel * 0x100, pointer);
            for field in [64, 10, 20, 2] {
                put(field, 4);
            }
        }
        bytes
    }

    #[test]
    fn blocks_of_all_layouts_are_read_in_theirs_alone() {
        for layout in Layout::ALL {
            let bytes = block(layout);
            let found: Vec<_> = Layout::ALL
                .into_iter()
                .filter(|other| ControlBlock::parse(&bytes, *other).is_some())
                .collect();
            assert_eq!(found, [layout]);
            let block = ControlBlock::parse(&bytes, layout).unwrap();
            let up: Vec<_> = block.up().collect();
            assert_eq!(up.len(), 2);
            assert_eq!((up[1].buffer, up[1].size), (0x2000_0100, 64));
            assert_eq!(
                up[0].parts(false),
                [0x2000_0014..0x2000_0040, 0x2000_0000..0x2000_000a]
            );
            assert_eq!(
                up[0].parts(true),
                [0x2000_000a..0x2000_0040, 0x2000_0000..0x2000_000a]
            );
            assert_eq!(ControlBlock::parse(&bytes[..bytes.len() - 1], layout), None);
        }
    }
}
