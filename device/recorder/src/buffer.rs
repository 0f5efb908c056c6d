//! Packet buffer of one stream.
//!
//! The memory is divided into *slots* of one size (`places` in the code), which packets use in rotation. A packet's
//! header is written when the packet is begun, and completed (end time, size, losses so far) when it is closed. The
//! writer defines the content: a [`Stream`](crate::encode::Stream) of events, or items of one size. A reader gets a
//! packet without the unused rest of its slot.
//!
//! When all slots are in use, the mode decides:
//! - *overwrite* reuses the slot of the oldest packet,
//! - *fixed* begins no more packets,
//! - *stream* begins one as soon as a reader has consumed the oldest. The reader runs while the writer runs, maybe on
//!   another processor. They share two counters: [`closed`](Buffer::closed), which only the writer stores (with release
//!   ordering, after the packet is complete), and `taken`, which only the reader stores (with release ordering, after
//!   its last access to the packet). The writer loads `taken` only when it needs a slot. Neither ever waits, and no
//!   packet is visible before it is closed.
//!
//! There is one writer, which no other writer interrupts: [`single`](crate::single) and the other drivers guarantee
//! that, so nothing here is locked.

use core::cell::Cell;
use core::ops::Deref;

use kymo_wire::event::{ByteOrder, PacketHeader, WordSize};
use kymo_wire::link::{Fault, Mode, SetupError};

use crate::Target;
use crate::header::Header;
pub use crate::memory::MIN_PACKET;
use crate::memory::Memory;
use crate::sync::{AtomicU32, Ordering, add, load_acquire, store_release};

#[cfg(target_has_atomic = "ptr")]
mod abandoned;
mod pins;
#[cfg(all(test, not(loom)))]
mod tests;

use pins::Pins;

/// The packets of one stream.
///
/// All methods except the counters, and those that say so, are for the one writer, or for a reader while the writer is
/// excluded.
///
/// (Small processors access the first fields with the shortest instructions, so the most used ones come first.)
#[cfg_attr(target_pointer_width = "32", repr(C))]
#[derive(Debug)]
pub struct Buffer<T> {
    /// Whether every slot has held a packet.
    round: Cell<bool>,
    mode: Cell<Mode>,
    /// Offset of the next packet's slot.
    next: Cell<u32>,
    /// Offset of the newest packet.
    start: AtomicU32,
    /// Number of packets begun, which is the number of the next one.
    begun: AtomicU32,
    /// Number of records that could not be written.
    discarded: AtomicU32,
    /// The header's word with stream, flags and CPU, without the depth of interrupts.
    identity: Cell<u32>,
    /// Size of a slot.
    packet_bytes: Cell<u32>,
    /// Bytes of all packets that have been closed.
    bytes: AtomicU32,
    memory: Memory<T>,
    /// Reservations of packets whose records are being filled in place.
    pins: Pins,
    /// Number of packets closed.
    closed: Line<AtomicU32>,
    /// Number of packets that a reader has consumed.
    taken: Line<AtomicU32>,
    /// Offset of the reader's next packet.
    reading: Line<Cell<u32>>,
}

/// A value on a cache line of its own, where several processors may share memory: one processor stores it for the other
/// once a packet, which must not disturb the fields that each uses alone. (32-bit targets here have a single processor
/// and little RAM.)
#[derive(Debug)]
#[cfg_attr(target_pointer_width = "64", repr(align(128)))]
struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Memory for the records of a packet that has been begun.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Address of the first record.
    pub first: *mut u8,
    /// End of the packet's slot.
    pub end: *mut u8,
}

/// Size of the largest packet. Records of the fast path are less than 4096 ticks per byte apart, so a packet spans less
/// than half a wraparound of 32 bits of the clock: its times can be derived from these bits
/// ([`Cursor::last`](crate::hot::Cursor::last)).
pub const MAX_PACKET: u32 = 1 << 19;

/// Checks that a buffer of `bytes` can have packets of `packet_bytes`.
///
/// # Errors
/// Reports which of the two is out of range.
pub fn check_sizes(bytes: u32, packet_bytes: u32) -> Result<(), SetupError> {
    if !(MIN_PACKET..=MAX_PACKET).contains(&packet_bytes) || !packet_bytes.is_multiple_of(8) {
        return Err(Fault::PacketSize.of(packet_bytes as usize));
    }
    if bytes / packet_bytes < 2 || !bytes.is_multiple_of(packet_bytes) {
        return Err(Fault::BufferSize.of(bytes as usize));
    }
    Ok(())
}

impl<T: Target> Buffer<T> {
    const HEADER: u32 = T::LAYOUT.header_bytes() as u32;

    /// Offset of the count of discarded records: 4 bytes.
    pub const DISCARDED_OFFSET: usize = core::mem::offset_of!(Self, discarded);

    /// A buffer without memory, in which no packet can be begun. All zero.
    pub const fn new() -> Self {
        Self {
            memory: Memory::empty(),
            packet_bytes: Cell::new(0),
            start: AtomicU32::new(0),
            next: Cell::new(0),
            round: Cell::new(false),
            mode: Cell::new(Mode::Overwrite),
            identity: Cell::new(0),
            begun: AtomicU32::new(0),
            closed: Line(AtomicU32::new(0)),
            taken: Line(AtomicU32::new(0)),
            reading: Line(Cell::new(0)),
            pins: Pins::new(),
            discarded: AtomicU32::new(0),
            bytes: AtomicU32::new(0),
        }
    }

    /// Gives the buffer its memory. It is empty the first time; later, the caller [clears](Self::clear) it. `stream` is
    /// the kind of its packets ([`PacketHeader::stream`]), `cpu` the number of their stream.
    ///
    /// # Errors
    /// When the sizes are unusable; the buffer has no memory then.
    ///
    /// # Safety
    /// `memory` points to `bytes` initialized bytes that only this buffer uses from now on.
    pub unsafe fn set_up(
        &self,
        memory: *mut u8,
        bytes: u32,
        packet_bytes: u32,
        stream: u8,
        cpu: u16,
    ) -> Result<(), SetupError> {
        if memory.is_null() {
            return Err(Fault::NoBuffer.of(0));
        }
        if !(memory as usize).is_multiple_of(8) {
            return Err(Fault::BufferAlignment.of(memory as usize));
        }
        check_sizes(bytes, packet_bytes)?;
        // SAFETY: by this function's contract; the alignment was checked.
        unsafe { self.memory.give(memory, bytes) };
        self.packet_bytes.set(packet_bytes);
        self.identity.set(match T::LAYOUT.order {
            ByteOrder::Little => u32::from(stream) | u32::from(cpu) << 16,
            ByteOrder::Big => u32::from(stream) << 24 | u32::from(cpu),
        });
        Ok(())
    }

    /// Number of slots.
    #[inline(never)]
    pub(crate) fn places(&self) -> u32 {
        let places = self.memory.length().checked_div(self.packet_bytes.get());
        places.unwrap_or(0)
    }

    /// The thread in the newest packet's header. (Unspecified before the first packet.)
    #[inline(always)]
    pub(crate) fn head_thread(&self) -> usize {
        let place = self.memory.address(self.start.load(Ordering::Relaxed));
        let at = place.wrapping_add(PacketHeader::WORD_OFFSET);
        // SAFETY: there is memory, whose slots have room for a header.
        unsafe {
            match (T::LAYOUT.word, T::LAYOUT.order) {
                (WordSize::Bits32, ByteOrder::Little) => at.cast::<u32>().read().to_le() as usize,
                (WordSize::Bits32, ByteOrder::Big) => at.cast::<u32>().read().to_be() as usize,
                (WordSize::Bits64, ByteOrder::Little) => {
                    at.cast::<u64>().read_unaligned().to_le() as usize
                }
                (WordSize::Bits64, ByteOrder::Big) => {
                    at.cast::<u64>().read_unaligned().to_be() as usize
                }
            }
        }
    }

    /// Sets or clears the flag, in all packets from now on, that says that they hold records of calls.
    #[cfg(feature = "duration")]
    pub(crate) fn set_calls(&self, calls: bool) {
        let bit = Self::flags(PacketHeader::FLAG_CALLS, 0);
        let others = self.identity.get() & !bit;
        self.identity.set(if calls { others | bit } else { others });
    }

    /// Sets the flags of all packets from now on ([`PacketHeader::flags`]).
    pub fn set_flags(&self, flags: u8) {
        let others = self.identity.get() & !Self::flags(u8::MAX, 0);
        self.identity.set(others | Self::flags(flags, 0));
    }

    /// The number of the packets' stream.
    pub fn cpu(&self) -> u16 {
        match T::LAYOUT.order {
            ByteOrder::Little => (self.identity.get() >> 16) as u16,
            ByteOrder::Big => self.identity.get() as u16,
        }
    }

    /// Flags and depth of interrupts, positioned for the header's word.
    #[inline(always)]
    fn flags(flags: u8, isr_depth: u8) -> u32 {
        let byte = PacketHeader::flags_byte(T::LAYOUT.order, flags, isr_depth);
        match T::LAYOUT.order {
            ByteOrder::Little => u32::from(byte) << 8,
            ByteOrder::Big => u32::from(byte) << 16,
        }
    }

    /// Drops all packets and resets the counters. The caller excludes readers.
    #[inline(never)]
    pub fn clear(&self) {
        self.start.store(0, Ordering::Relaxed);
        self.next.set(0);
        self.round.set(false);
        self.reading.set(0);
        // (One by one: a loop over them takes twice the code.)
        self.begun.store(0, Ordering::Relaxed);
        self.closed.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.discarded.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Sets what happens when the buffer is full. Call it while the buffer is empty.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// What happens when the buffer is full.
    pub fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Number of packets whose content is in memory, whether a reader has consumed them or not.
    #[cfg(feature = "sums")]
    pub(crate) fn present(&self) -> u32 {
        let places = self.places();
        match self.round.get() {
            true => places,
            false => self.begun().min(places),
        }
    }

    /// The slot of the packet that was begun so many packets before the newest one: less than [`present`](Self::present).
    #[cfg(feature = "sums")]
    pub(crate) fn slot_before_newest(&self, before: u32) -> u32 {
        let newest = self.start.load(Ordering::Relaxed) / self.packet_bytes.get();
        (newest + self.places() - before) % self.places()
    }

    /// The packet in a slot that holds a closed one: its address, and its size without the unused rest.
    #[cfg(feature = "sums")]
    pub(crate) fn packet_in(&self, slot: u32) -> Option<(*const u8, usize)> {
        // SAFETY: the packet is closed, and the slice is not used any longer.
        let content = unsafe { self.content(slot * self.packet_bytes.get()) }?;
        Some((content.as_ptr(), content.len()))
    }

    /// The number of the packet in a slot.
    #[cfg(feature = "sums")]
    pub(crate) fn sequence_in(&self, slot: u32) -> u32 {
        let place = self.memory.address(slot * self.packet_bytes.get());
        // SAFETY: it begins with a header.
        unsafe { Memory::<T>::get32(place, PacketHeader::SEQUENCE_OFFSET) }
    }

    /// Counts records that could not be written.
    pub fn add_discarded(&self, records: u32) {
        add(&self.discarded, records);
    }

    /// Number of records that could not be written. Any context may call it.
    pub fn discarded(&self) -> u32 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// Number of packets begun. Any context may call it.
    pub fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Number of packets closed. Any context may call it.
    pub fn closed(&self) -> u32 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Bytes of all packets so far, modulo 2^32, if the newest one's records end at `at`. Any context may call it.
    pub fn bytes(&self, at: *const u8) -> u32 {
        let closed = self.bytes.load(Ordering::Relaxed);
        let start = self.memory.address(self.start.load(Ordering::Relaxed));
        let content = (at as usize).wrapping_sub(start as usize);
        if self.closed() == self.begun() || content > self.packet_bytes.get() as usize {
            return closed;
        }
        closed.wrapping_add(content as u32)
    }

    /// Size of a packet's slot.
    pub fn packet_bytes(&self) -> u32 {
        self.packet_bytes.get()
    }

    /// Whether a packet has been begun and not closed. Any context may call it.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.begun() != self.closed()
    }

    /// Begins a packet at `now`, while none is open; `None` if there is no free slot. The header records the running
    /// `thread` and `isr_depth`.
    #[inline(always)]
    pub fn begin(&self, now: u64, thread: usize, isr_depth: u8) -> Option<Room> {
        let begun = self.begun.load(Ordering::Relaxed);
        // Where all packets, or reserved ones, must be preserved, a slot has to be free.
        let start = if self.mode.get() != Mode::Overwrite || self.is_pinned() {
            self.free_start(begun)?
        } else {
            self.next.get()
        };
        let header = Header {
            identity: self.identity.get() | Self::flags(0, isr_depth),
            sequence: begun,
            discarded: self.discarded.load(Ordering::Relaxed),
            now,
            thread,
        };
        self.memory.written(start);
        let place = self.memory.address(start);
        // SAFETY: a slot has room for a header, and offsets of slots are multiples of 8.
        unsafe { header.begin::<T>(place) };
        self.start.store(start, Ordering::Relaxed);
        self.begun.store(begun.wrapping_add(1), Ordering::Relaxed);
        Some(Room {
            first: place.wrapping_add(Self::HEADER as usize),
            end: place.wrapping_add(self.packet_bytes.get() as usize),
        })
    }

    /// Advances to the next packet's slot, which is the oldest packet's when all are in use.
    #[inline(always)]
    fn move_on(&self, start: u32) {
        let next = start + self.packet_bytes.get();
        if next < self.memory.length() {
            self.next.set(next);
        } else {
            self.round.set(true);
            self.next.set(0);
        }
    }

    /// Offset of the next packet's slot if that is free, where all packets, or reserved ones, must be preserved.
    #[inline(never)]
    fn free_start(&self, begun: u32) -> Option<u32> {
        let mode = self.mode.get();
        let free = match mode {
            Mode::Overwrite => self.pins.oldest(begun) < self.places(),
            Mode::Stream => {
                let taken = load_acquire(&self.taken);
                begun.wrapping_sub(taken) < self.places()
            }
            // (When the buffer is full recording ends, so that the kept events have no gaps.)
            Mode::Fixed => begun < self.places(),
        };
        free.then_some(self.next.get())
    }

    /// Closes the open packet: its records end at `end`, and the last one's time is `last`.
    #[inline(always)]
    pub fn close(&self, end: *mut u8, last: u64) {
        let start = self.start.load(Ordering::Relaxed);
        self.memory.written(start);
        let place = self.memory.address(start);
        let content = (end as usize).wrapping_sub(place as usize) as u32;
        let discarded = self.discarded.load(Ordering::Relaxed);
        // SAFETY: a packet begins with a header, and offsets of slots are multiples of 8.
        unsafe {
            Memory::<T>::put32(place, PacketHeader::DISCARDED_OFFSET, discarded);
            Header::end::<T>(place, last, content);
        }
        self.move_on(start);
        add(&self.bytes, content);
        store_release(&self.closed, self.begun.load(Ordering::Relaxed));
    }

    /// Reports the losses since the newest packet was closed: for a reader that excludes the writer. Updates that
    /// packet's header; in stream mode, where closed packets are the reader's, adds an empty packet instead, if there
    /// is room.
    pub fn record_losses(&self, now: u64, thread: usize, isr_depth: u8) {
        let discarded = self.discarded.load(Ordering::Relaxed);
        if self.is_open() || discarded == self.reported() {
            return;
        }
        if self.mode.get() == Mode::Stream {
            if let Some(room) = self.begin(now, thread, isr_depth) {
                self.close(room.first, now);
            }
        } else if self.has_any() {
            let start = self.start.load(Ordering::Relaxed);
            self.memory.written(start);
            let place = self.memory.address(start);
            // SAFETY: the newest packet begins with a header.
            unsafe { Memory::<T>::put32(place, PacketHeader::DISCARDED_OFFSET, discarded) };
        }
    }

    /// Restores the count, for a caller that has undone what was recorded since.
    #[cfg(feature = "cost")]
    pub(crate) fn set_discarded(&self, discarded: u32) {
        self.discarded.store(discarded, Ordering::Relaxed);
    }

    /// In stream mode, lets the newest packet's header report losses behind it that no packet could report
    /// ([`record_losses`](Self::record_losses)) because there is no room. For a reader that excludes the writer and
    /// consumes nothing, until it [reverts this](Self::retract_losses); a later packet then reports them instead.
    /// Returns how many there are.
    #[inline(never)]
    pub fn publish_losses(&self) -> u32 {
        if self.mode.get() != Mode::Stream || self.is_open() || !self.has_any() {
            return 0;
        }
        let discarded = self.discarded.load(Ordering::Relaxed);
        let unreported = discarded.wrapping_sub(self.reported());
        self.add_reported(unreported);
        unreported
    }

    /// Reverts the newest packet's header to its state before so many losses were lent to it.
    #[inline(never)]
    pub fn retract_losses(&self, published: u32) {
        if published != 0 && self.has_any() {
            self.add_reported(published.wrapping_neg());
        }
    }

    /// Changes how many losses the newest packet reports.
    fn add_reported(&self, losses: u32) {
        let reported = self.reported().wrapping_add(losses);
        let newest = self.memory.address(self.start.load(Ordering::Relaxed));
        // SAFETY: the newest packet begins with a header; the writer is excluded.
        unsafe { Memory::<T>::put32(newest, PacketHeader::DISCARDED_OFFSET, reported) };
    }

    /// Whether any packet has been begun.
    fn has_any(&self) -> bool {
        self.begun() != 0 || self.round.get()
    }

    /// How many losses the newest packet's header reports.
    fn reported(&self) -> u32 {
        if !self.has_any() {
            return 0;
        }
        let newest = self.memory.address(self.start.load(Ordering::Relaxed));
        // SAFETY: the newest packet begins with a header.
        unsafe { Memory::<T>::get32(newest, PacketHeader::DISCARDED_OFFSET) }
    }

    /// Number of slots in use. Any context may call it.
    pub fn used(&self) -> u32 {
        let (taken, places) = (self.taken.load(Ordering::Relaxed), self.places());
        match self.mode.get() {
            // (The packet numbers may have wrapped around to 0.)
            Mode::Overwrite if self.round.get() => places,
            _ => self.begun().wrapping_sub(taken).min(places),
        }
    }

    /// Number of packets that are kept and not consumed.
    pub fn kept(&self) -> u32 {
        let places = self.places();
        match self.mode.get() {
            Mode::Stream => self
                .begun()
                .wrapping_sub(self.taken.load(Ordering::Relaxed)),
            _ if self.round.get() => places,
            _ => self.begun().min(places),
        }
    }

    /// The `n`th of the [kept](Self::kept) packets, oldest first, without the unused rest of its slot; `None` behind
    /// the last.
    ///
    /// # Safety
    /// No packet is open, and the writer is excluded as long as the slice is used.
    pub unsafe fn packet(&self, n: u32) -> Option<&[u8]> {
        let (kept, places) = (self.kept(), self.places());
        if n >= kept {
            return None;
        }
        let newest = self.start.load(Ordering::Relaxed) / self.packet_bytes.get();
        let place = (newest + places - (kept - 1 - n)) % places;
        // SAFETY: nobody writes, by this function's contract.
        unsafe { self.content(place * self.packet_bytes.get()) }
    }

    /// In stream mode: the oldest packet that is closed and not consumed, without the unused rest of its slot.
    ///
    /// # Safety
    /// The caller is the only reader. The slice is not used after [`release`](Self::release).
    pub unsafe fn next(&self) -> Option<&[u8]> {
        // SAFETY: by this function's contract.
        unsafe { self.waiting(0) }
    }

    /// In stream mode: the `n`th of the packets that are closed and not consumed, oldest first, without the unused rest
    /// of its slot; `None` behind the newest.
    ///
    /// # Safety
    /// As [`next`](Self::next): the slice is not used after its packet's release.
    pub unsafe fn waiting(&self, n: u32) -> Option<&[u8]> {
        let taken = self.taken.load(Ordering::Relaxed);
        if n >= self.ready().wrapping_sub(taken) {
            return None;
        }
        let behind = self.reading.get() / self.packet_bytes.get() + n;
        let place = behind % self.places();
        // SAFETY: the writer does not touch a closed packet until it is consumed.
        unsafe { self.content(place * self.packet_bytes.get()) }
    }

    /// Begin of the first closed packet that a reader can't get ([`waiting`](Self::waiting)) yet, because a record is
    /// being filled in it or before it; `None` if there is none.
    ///
    /// # Safety
    /// As [`next`](Self::next).
    pub unsafe fn blocked(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Relaxed);
        // Loaded before `ready`: so a packet closed in between is not taken for a withheld one.
        let closed = load_acquire(&self.closed).wrapping_sub(taken);
        let ready = self.ready().wrapping_sub(taken);
        if ready >= closed {
            return None;
        }
        let behind = self.reading.get() / self.packet_bytes.get() + ready;
        let at = behind % self.places() * self.packet_bytes.get();
        // SAFETY: nobody writes the header of a closed packet, and its slot is not reused until a reader has consumed
        // it.
        let header = unsafe { self.memory.slice(at, Self::HEADER) };
        PacketHeader::read_begin(T::LAYOUT.order, header)
    }

    /// Returns the slot of the packet that [`next`](Self::next) returned to the writer.
    ///
    /// # Safety
    /// The caller is the only reader, and `next` has returned a packet since this was last called.
    pub unsafe fn release(&self) {
        let next = self.reading.get() + self.packet_bytes.get();
        let wrapped = next >= self.memory.length();
        self.reading.set(if wrapped { 0 } else { next });
        let taken = self.taken.load(Ordering::Relaxed);
        store_release(&self.taken, taken.wrapping_add(1));
    }

    /// The packet at this offset, without the unused rest of its slot.
    ///
    /// # Safety
    /// At `at` is a packet that nobody writes to.
    unsafe fn content(&self, at: u32) -> Option<&[u8]> {
        // SAFETY: by this function's contract.
        let whole = unsafe { self.memory.slice(at, self.packet_bytes.get()) };
        whole.get(..PacketHeader::read_content(T::LAYOUT.order, whole)?)
    }
}

impl<T: Target> Default for Buffer<T> {
    fn default() -> Self {
        Self::new()
    }
}
