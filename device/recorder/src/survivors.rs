//! Text dump of the recording that RAM still holds after a reset, before start-up code has initialized RAM.
//!
//! A watchdog, or a fault in a fault handler, leaves a program no time to dump anything; but a reset preserves RAM. The
//! configuration (in flash) defines where packets are, and the cursor how far they reach; everything else may be
//! damaged, or be the content of RAM after power-on. So none of the recorder's structures is used as such: words are
//! read from memory as numbers, and validated. The cursor shows which packet is the newest, and where it ends; those
//! before it must have the numbers that follow from that one's, or from that of the packet before it if a checksum
//! verifies it.
//!
//! A packet with a [checksum](crate::sums) is refused if that does not match. In any other the records must fill the
//! content, and the last one's time must be the packet's end. That finds a damaged header or time, but no damaged
//! value: such a packet counts as not verified. The end of the text has the numbers of all three.

use core::mem::offset_of;
use core::ptr;

use kymo_wire::event::{Layout, PacketHeader};
use kymo_wire::link::console::Survived as Counts;
use kymo_wire::packet::EVENT_STREAM;
use kymo_wire::walk::Walk;

use crate::Target;
use crate::config::Config;
use crate::console::Lines;
use crate::hot::{Cursor, Hot};
use crate::identity::{build_id_of, functions, identity};
use crate::sums::{Sums, Verdict};

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

/// Whether the records of a packet fill its content, and the last one's time is `end`, as far as `mask` says.
fn is_consistent(layout: Layout, header: &PacketHeader, content: &[u8], end: (u64, u64)) -> bool {
    let mut walk = Walk::new(layout, header, content);
    while walk.offset() < content.len() {
        if !matches!(walk.next(), Ok(Some(_))) {
            return false;
        }
    }
    let (end, mask) = end;
    header.stream == EVENT_STREAM && (walk.clock ^ end) & mask == 0
}

/// The packets of a recording that survived a reset.
struct Survivors<'a> {
    layout: Layout,
    config: &'a Config,
    sums: Sums,
    /// Number of slots.
    slots: usize,
    /// The slot of the newest packet, and its number.
    newest: (usize, u32),
}

impl<'a> Survivors<'a> {
    /// The slot that was used so many packets before the newest one.
    fn slot(&self, back: usize) -> usize {
        (self.newest.0 + self.slots - back) % self.slots
    }

    /// The memory of a slot.
    ///
    /// # Safety
    /// As of [`dump_text`].
    unsafe fn memory(&self, slot: usize) -> &'a [u8] {
        let size = self.config.packet_size as usize;
        // SAFETY: by this function's contract: it is within the buffer.
        unsafe { bytes(self.config.buffer as usize + slot * size, size) }
    }

    /// The packet before the newest one, if its checksum verifies it.
    ///
    /// # Safety
    /// As of [`dump_text`].
    unsafe fn verified_number<T: Target>(&self) -> Option<u32> {
        let slot = self.slot(1);
        // SAFETY: by this function's contract.
        let memory = unsafe { self.memory(slot) };
        let header = header_in::<T>(memory, self.config)?;
        let content = memory.get(..header.content_bits as usize / 8)?;
        let verdict = self.sums.check(slot, header.sequence, content);
        (verdict == Verdict::Verified).then_some(header.sequence)
    }

    /// The content of the packet that was closed so many packets before the newest one was begun, and what is known of
    /// it; `None` if there is none with that number.
    ///
    /// # Safety
    /// As of [`dump_text`].
    unsafe fn closed<T: Target>(&self, back: usize) -> Option<(&'a [u8], Verdict)> {
        let slot = self.slot(back);
        // SAFETY: by this function's contract.
        let memory = unsafe { self.memory(slot) };
        // (Packet numbers wrap around to 0.)
        let number = self.newest.1.wrapping_sub(back as u32);
        let header = header_in::<T>(memory, self.config).filter(|it| it.sequence == number);
        let Some(header) = header else {
            // What is there had a checksum.
            let damaged = self.sums.has(slot, number);
            return damaged.then_some((&[], Verdict::Damaged));
        };
        let content = memory.get(..header.content_bits as usize / 8)?;
        let end = (header.end, u64::MAX);
        let verdict = match self.sums.check(slot, number, content) {
            Verdict::Unverified if !is_consistent(self.layout, &header, content, end) => {
                Verdict::Damaged
            }
            verdict => verdict,
        };
        Some((content, verdict))
    }
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
    sums: Sums,
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
    let layout = functions(config).layout::<T>();
    let mut found = Survivors {
        layout,
        config,
        sums,
        slots: config.buffer_size as usize / size,
        newest: (reached / size, 0),
    };
    let slot = found.newest.0;
    // SAFETY: by this function's contract.
    let (newest, before) = unsafe { (found.memory(slot), found.verified_number::<T>()) };
    let header = header_in::<T>(newest, config);
    let number = before.map(|number| number.wrapping_add(1));
    let Some(number) = number.or(header.map(|header| header.sequence)) else {
        return false;
    };
    found.newest.1 = number;
    // (It was not closed, as a rule, and the cursor has only the low bits of the time.)
    let end = (last as u64, u64::from(u32::MAX));
    let content = newest.get(..at - begin - slot * size).unwrap_or_default();
    let header = header.filter(|header| {
        header.sequence == number
            && content.len() >= layout.header_bytes()
            && is_consistent(layout, header, content, end)
    });
    // From the oldest packet on; those between that and the newest which cannot be found are damaged.
    // SAFETY: by this function's contract.
    let closed = |back: usize| unsafe { found.closed::<T>(back) };
    let older = (1..found.slots)
        .rev()
        .find(|back| closed(*back).is_some())
        .unwrap_or(0);
    if older == 0 && header.is_none() {
        return false;
    }
    let mut counts = Counts::default();
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
    for back in (1..=older).rev() {
        match closed(back) {
            Some((_, Verdict::Damaged)) | None => counts.refused += 1,
            Some((content, verdict)) => {
                counts.add(verdict == Verdict::Verified);
                lines.add(content);
            }
        }
    }
    match header {
        Some(mut whole) => {
            counts.add(false);
            counts.lacks_open_calls = whole.flags & PacketHeader::FLAG_CALLS != 0;
            whole.content_bits = content.len() as u32 * 8;
            whole.packet_bits = whole.content_bits;
            let past = (last as u32).wrapping_sub(whole.begin as u32);
            whole.end = whole.end.max(whole.begin.saturating_add(past.into()));
            let mut front = [0; PacketHeader::MAX_BYTES];
            if let Some(written) = whole.write(layout, &mut front) {
                lines.add(front.get(..written).unwrap_or_default());
                lines.add(content.get(written..).unwrap_or_default());
            }
        }
        None => counts.refused += 1,
    }
    lines.finish_survivors(counts);
    true
}
