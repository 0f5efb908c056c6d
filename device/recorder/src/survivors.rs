//! Text dump of the recording that RAM still holds after a reset, before start-up code has initialized RAM.
//!
//! A watchdog, or a fault in a fault handler, leaves a program no time to dump anything; but a reset preserves RAM. The
//! configuration (in flash) defines where packets are, and the cursor how far they reach; everything else may be
//! damaged, or be the content of RAM after power-on. So none of the recorder's structures is used as such: words are
//! read from memory as numbers, and validated. The newest packet must be valid, with its end where the cursor points;
//! those before it count as long as each has the expected number and a valid size. The reader of the text validates
//! their content.

use core::mem::offset_of;
use core::ptr;

use kymo_wire::event::PacketHeader;

use crate::Target;
use crate::config::Config;
use crate::console::Lines;
use crate::hot::{Cursor, Hot};
use crate::identity::{build_id_of, functions, identity};

/// Loads a word of memory that may hold anything.
///
/// # Safety
/// There is memory, aligned for a word.
unsafe fn word(at: *const u8) -> usize {
    // SAFETY: by this function's contract. Volatile, because the compiler must not assume what it holds.
    unsafe { ptr::read_volatile(at.cast()) }
}

/// Bytes of memory that may hold anything, as long as nobody writes there.
///
/// # Safety
/// There are so many, and the program has not been started: nobody writes to them.
unsafe fn bytes<'a>(at: usize, length: usize) -> &'a [u8] {
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(at), length) }
}

/// The header of a packet, if its size is possible.
fn header_in<T: Target>(place: &[u8], config: &Config) -> Option<PacketHeader> {
    let layout = functions(config).layout::<T>();
    let header = PacketHeader::read(layout, place)?;
    let length = header.content_bits as usize / 8;
    (layout.header_bytes()..=place.len())
        .contains(&length)
        .then_some(header)
}

/// Passes what survived of the recording of one processor to `put`; returns false, and passes nothing, if there is no
/// valid packet.
///
/// # Safety
/// The configuration is right about its memory, `hot` is where the program's is, and nothing of the program runs but
/// this: RAM is as the reset left it.
pub unsafe fn dump_text<T: Target>(
    hot: *const Hot,
    config: &Config,
    put: &mut dyn FnMut(&[u8]),
) -> bool {
    let size = config.packet_size as usize;
    let begin = config.buffer as usize;
    if size == 0 || config.buffer.is_null() || !(config.buffer_size as usize).is_multiple_of(size) {
        return false;
    }
    let cursor: *const u8 = hot.cast();
    let place = offset_of!(Hot, cursor);
    // SAFETY: both are words of it, by this function's contract.
    let (at, last) = unsafe {
        let cursor = cursor.add(place);
        (
            word(cursor.add(offset_of!(Cursor, at))),
            word(cursor.add(offset_of!(Cursor, last))),
        )
    };
    // It points behind a record, so never to the start of a slot.
    let Some(reached) = at
        .checked_sub(begin + 1)
        .filter(|it| *it < config.buffer_size as usize)
    else {
        return false;
    };
    let places = config.buffer_size as usize / size;
    let newest = reached / size;
    // SAFETY: it is within the buffer.
    let place = |n: usize| unsafe { bytes(begin + n * size, size) };
    let Some(header) = header_in::<T>(place(newest), config) else {
        return false;
    };
    let layout = functions(config).layout::<T>();
    let length = at - begin - newest * size;
    if length < layout.header_bytes() {
        return false;
    }
    let mut lines = Lines::begin(&identity::<T>(config, build_id_of(config)), put);
    let names = config.metadata_size as usize;
    if !config.metadata.is_null() && names >= layout.header_bytes() {
        // SAFETY: the program gives this memory to the recorder.
        let memory = unsafe { bytes(config.metadata as usize, names) };
        if let Some(header) = header_in::<T>(memory, config) {
            let content = header.content_bits as usize / 8;
            lines.add(memory.get(..content).unwrap_or_default());
        }
    }
    // From the oldest of the packets that follow each other without a gap.
    let follows = |back: &usize| {
        let there = place((newest + places - back) % places);
        // (Packet numbers wrap around to 0.)
        let number = header.sequence.wrapping_sub(*back as u32);
        header_in::<T>(there, config).is_some_and(|found| found.sequence == number)
    };
    let older = (1..places).take_while(follows).count();
    for back in (1..=older).rev() {
        let there = place((newest + places - back) % places);
        let content =
            header_in::<T>(there, config).map_or(0, |header| header.content_bits as usize / 8);
        lines.add(there.get(..content).unwrap_or_default());
    }
    // The newest one was not closed.
    let mut whole = header;
    whole.content_bits = length as u32 * 8;
    whole.packet_bits = whole.content_bits;
    let past = (last as u32).wrapping_sub(header.begin as u32);
    whole.end = whole.end.max(header.begin + u64::from(past));
    let mut front = [0; PacketHeader::MAX_BYTES];
    if let Some(written) = whole.write(layout, &mut front) {
        lines.add(front.get(..written).unwrap_or_default());
        lines.add(place(newest).get(written..length).unwrap_or_default());
    }
    lines.finish();
    true
}
