//! The file into which a Linux process records: its buffers, mapped.
//!
//! A program that is killed, crashes or calls `_exit` saves nothing. So if `KYMO_OUTPUT` names a file, the recorder
//! keeps its buffers in it, mapped shared: the recording is in the file however the process ends. A process that exits
//! normally replaces this file by a plain one (the identity line, then packets). This module describes the files of the
//! other processes.
//!
//! The file begins with a [header]. From [`REGION_ALIGN`] to the end of the file there are *regions*, each a multiple
//! of [`REGION_ALIGN`] long; the last one can be all zeros. A region holds the packets of one stream together with the
//! recorder's own state, as in the memory of the process; its header contains their offsets. The newest packet of a
//! stream is incomplete: its records reach up to the address that the recorder keeps, as in a dump of memory
//! ([`note`](crate::note)).
//!
//! All numbers are in the byte order of the process, and have the widths given here on every machine.

use crate::event::ByteOrder;

/// First eight bytes of the file.
pub const MAGIC: [u8; 8] = *b"KymoProc";

/// Version of this layout.
pub const VERSION: u32 = 1;

/// Alignment of regions in bytes: the largest page size of the supported machines.
pub const REGION_ALIGN: usize = 64 << 10;

/// Size of a pair of clock values: u64 ticks, u64 nanoseconds of `CLOCK_MONOTONIC_RAW` at the same time.
pub const PAIR_BYTES: usize = 16;

/// Header of the file: offsets of its fields.
pub mod header {
    /// u32: [`VERSION`](super::VERSION).
    pub const VERSION: usize = 8;
    /// u32: [`ORDER_MARK`], which shows the byte order.
    pub const ORDER: usize = 12;
    /// Value at [`ORDER`].
    pub const ORDER_MARK: u32 = 0x0102_0304;
    /// u32: the process id.
    pub const PROCESS: usize = 16;
    /// u32: 1 if ticks are those of the processor's counter, 0 if they are nanoseconds.
    pub const COUNTER: usize = 20;
    /// u64: the time at which the process started, in clock ticks after boot (`starttime` of proc(5)). With the process
    /// id it shows whether the process still runs.
    pub const STARTED: usize = 24;
    /// A [pair](super::PAIR_BYTES): both clocks when the recorder was set up.
    pub const FIRST_PAIR: usize = 32;
    /// u32: events that were lost because their thread had no buffer. The fields before it never change.
    pub const LOST: usize = 48;
    /// u64: size of the file in bytes, including the last region that was begun; 0 in files of older recorders.
    pub const USED: usize = 56;
    /// u32: [`region::BYTES`](super::region::BYTES); 0 in files of older recorders, whose regions have no fields from
    /// [`region::FRAMES`](super::region::FRAMES) on.
    pub const REGION_BYTES: usize = 64;
    /// u32: buffers of threads that are in the process's memory alone, because the file could not be extended; 0 in
    /// files of older recorders.
    pub const MEMORY_ONLY: usize = 68;
    /// The identity of the process as a line of text ([`Identity`](crate::link::Identity)). Its clock frequency is 1 if
    /// the pairs determine it.
    pub const IDENTITY: usize = 512;
    /// Size of the header.
    pub const BYTES: usize = 4096;
}

/// Header of a region: offsets of its fields. Offsets in the fields are relative to the start of the region.
pub mod region {
    /// u32: [`MAGIC`], stored last.
    pub const MARK: usize = 0;
    /// Value at [`MARK`].
    pub const MAGIC: u32 = 0x4B59_4D52;
    /// u32: [`EVENTS`], [`METADATA`] or [`RECORDS`].
    pub const KIND: usize = 4;
    /// u64: the size of the region in bytes.
    pub const SIZE: usize = 8;
    /// u64: its address in the memory of the process.
    pub const ADDRESS: usize = 16;
    /// u64: offset of its packets.
    pub const PACKETS: usize = 24;
    /// u64: number of bytes for packets.
    pub const PACKETS_BYTES: usize = 32;
    /// u32: size of a packet in bytes.
    pub const PACKET_BYTES: usize = 40;
    /// u32: the thread, by the system's id.
    pub const THREAD: usize = 44;
    /// u32: offset of the address (a word) up to which the newest packet's records reach.
    pub const AT: usize = 48;
    /// u32: offset of the count of the stream's discarded events (u32).
    pub const DISCARDED: usize = 52;
    /// u32: offset of the count of lost events that are not counted in the stream (u32).
    pub const LOST: usize = 56;
    /// u32: offset of the first ring of RTEMS-shaped records ([`ring`](crate::note::ring)).
    pub const RINGS: usize = 60;
    /// u32: distance from one ring to the next.
    pub const RING_STRIDE: usize = 64;
    /// u32: number of rings.
    pub const RING_COUNT: usize = 68;
    /// 16 bytes: the kernel's name of the thread, padded with zeros.
    pub const NAME: usize = 72;
    /// Size of [`NAME`].
    pub const NAME_BYTES: usize = 16;
    /// u32: number of pairs of clock values that the thread has written. The newest one is at [`PAIRS`] + `count % 2` *
    /// [`PAIR_BYTES`](super::PAIR_BYTES); with 0 there is none.
    pub const PAIR_COUNT: usize = 88;
    /// u32: time at which the thread writes the next pair, for its own use.
    pub const PAIR_DUE: usize = 92;
    /// Two pairs, written alternately.
    pub const PAIRS: usize = 96;
    /// u32: offset of the shadow stack of duration mode; 0: the thread is not in that mode. The stack consists of
    /// frames, the outermost call first, up to a frame whose function is 0. Each begins with three words: the function,
    /// the ticks of its callees that have ended, the time in ticks at which it began.
    pub const FRAMES: usize = 128;
    /// u32: maximum number of frames.
    pub const FRAME_COUNT: usize = 132;
    /// u32: distance from one frame to the next.
    pub const FRAME_STRIDE: usize = 136;
    /// u32: offset of the time of the thread's last entry or exit in duration mode (u64, in ticks; 0: none).
    pub const LAST_CALL: usize = 140;
    /// u32: the number of the thread's stream (`cpu_id` of its packets).
    pub const STREAM: usize = 144;
    /// Size of the header.
    pub const BYTES: usize = 192;

    /// [`KIND`]: the events of one thread.
    pub const EVENTS: u32 = 1;
    /// [`KIND`]: the metadata packet, which is always complete.
    pub const METADATA: u32 = 2;
    /// [`KIND`]: packets of RTEMS-shaped records, which a ring in another region uses.
    pub const RECORDS: u32 = 3;
}

/// Determines the byte order of a file with this start; `None` if it is of another format or version.
pub fn order(bytes: &[u8]) -> Option<ByteOrder> {
    let bytes = bytes.get(..header::ORDER + 4)?;
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| {
            read_u32(*order, bytes, header::ORDER) == Some(header::ORDER_MARK)
                && read_u32(*order, bytes, header::VERSION) == Some(VERSION)
        })
}

/// Reads the 32-bit number at an offset; `None` beyond the end.
pub fn read_u32(order: ByteOrder, bytes: &[u8], at: usize) -> Option<u32> {
    let number = *bytes.get(at..)?.first_chunk()?;
    Some(match order {
        ByteOrder::Little => u32::from_le_bytes(number),
        ByteOrder::Big => u32::from_be_bytes(number),
    })
}

/// Reads the 64-bit number at an offset; `None` beyond the end.
pub fn read_u64(order: ByteOrder, bytes: &[u8], at: usize) -> Option<u64> {
    let number = *bytes.get(at..)?.first_chunk()?;
    Some(match order {
        ByteOrder::Little => u64::from_le_bytes(number),
        ByteOrder::Big => u64::from_be_bytes(number),
    })
}

/// A pair of clock values: ticks, and nanoseconds at the same time.
pub type Pair = (u64, u64);

fn read_pair(order: ByteOrder, bytes: &[u8], at: usize) -> Option<Pair> {
    Some((read_u64(order, bytes, at)?, read_u64(order, bytes, at + 8)?))
}

/// Returns the newest pair that the thread of a region has written.
pub fn newest_pair(order: ByteOrder, region: &[u8]) -> Option<Pair> {
    let count = read_u32(order, region, region::PAIR_COUNT).filter(|count| *count != 0)?;
    read_pair(
        order,
        region,
        region::PAIRS + count as usize % 2 * PAIR_BYTES,
    )
}

/// Returns the frequency of a file's clock in ticks per second, where `newest` is the newest pair of all its threads;
/// `None` if it cannot be determined.
pub fn clock_hz(order: ByteOrder, bytes: &[u8], newest: Option<Pair>) -> Option<u64> {
    const SECOND: u128 = 1_000_000_000;
    if read_u32(order, bytes, header::COUNTER)? == 0 {
        return Some(SECOND as u64);
    }
    let (first_ticks, first_ns) = read_pair(order, bytes, header::FIRST_PAIR)?;
    let (ticks, ns) = newest?;
    let passed = ns.checked_sub(first_ns).filter(|passed| *passed != 0)?;
    let ticks = ticks.checked_sub(first_ticks)?;
    let hz = u128::from(ticks) * SECOND / u128::from(passed);
    u64::try_from(hz).ok().filter(|hz| *hz != 0)
}

/// Returns the nanoseconds over which [`clock_hz`] was measured; `None` if it was not.
pub fn measured_ns(order: ByteOrder, bytes: &[u8], newest: Option<Pair>) -> Option<u64> {
    let counter = read_u32(order, bytes, header::COUNTER)?;
    let (_, first_ns) = read_pair(order, bytes, header::FIRST_PAIR)?;
    let passed = newest?.1.checked_sub(first_ns)?;
    (counter != 0).then_some(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_pair_gives_the_rate() {
        let mut bytes = [0; header::BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(header::VERSION, &VERSION.to_be_bytes());
        put(header::ORDER, &header::ORDER_MARK.to_be_bytes());
        put(header::COUNTER, &1u32.to_be_bytes());
        put(header::FIRST_PAIR, &1000u64.to_be_bytes());
        put(header::FIRST_PAIR + 8, &500u64.to_be_bytes());
        assert_eq!(order(&bytes), Some(ByteOrder::Big));
        assert_eq!(clock_hz(ByteOrder::Big, &bytes, None), None);
        let mut thread_buffer = [0; region::BYTES];
        assert_eq!(newest_pair(ByteOrder::Big, &thread_buffer), None);
        let slot = region::PAIRS + PAIR_BYTES;
        thread_buffer[slot..slot + 8].copy_from_slice(&4000u64.to_be_bytes());
        thread_buffer[slot + 8..slot + 16].copy_from_slice(&1500u64.to_be_bytes());
        thread_buffer[region::PAIR_COUNT + 3] = 3;
        let newest = newest_pair(ByteOrder::Big, &thread_buffer);
        assert_eq!(newest, Some((4000, 1500)));
        assert_eq!(
            clock_hz(ByteOrder::Big, &bytes, newest),
            Some(3_000_000_000)
        );
        bytes[header::VERSION + 3] = 9;
        assert_eq!(order(&bytes), None);
    }
}
