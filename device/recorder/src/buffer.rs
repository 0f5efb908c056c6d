//! The buffer: packets of one stream in a piece of memory.
//!
//! The memory is cut into *places* of one size, which packets take in turn. A packet's header is
//! written when it is begun, and completed (end, size, losses so far) when it is closed; what stands
//! between is its writer's business: a [`Stream`](crate::encode::Stream) of events, or items of one
//! size. A packet that is read is as long as its content; its place is only where it lies.
//!
//! When all places are taken,
//! - *overwrite* gives the oldest packet's place to the new one,
//! - *fixed* begins no more packets,
//! - *stream* begins one as soon as a reader has taken the oldest. It reads while the writer writes,
//!   on another processor maybe. They share two numbers: [`closed`](Buffer::closed), which only the
//!   writer stores (with release: the packet is whole before), and `taken`, which only the reader
//!   stores (with release: it is done with the packet before). The writer looks at `taken` when it
//!   needs a place, never else; nobody waits, and no packet is seen before it is closed.
//!
//! There is one writer, which is never interrupted by another (who guarantees that is the business
//! of [`single`](crate::single) and `threads`), so nothing here is locked.

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
/// All methods but the counters and those that say so are for the one writer, or for a reader while
/// the writer is held off.
///
/// (In this order what is used most takes the shortest instructions of a small processor.)
#[cfg_attr(target_pointer_width = "32", repr(C))]
#[derive(Debug)]
pub struct Buffer<T> {
    /// All places have held a packet.
    round: Cell<bool>,
    mode: Cell<Mode>,
    /// Where the next one will.
    next: Cell<u32>,
    /// Where the newest packet begins.
    start: AtomicU32,
    /// How many packets have been begun: the number of the next one.
    begun: AtomicU32,
    /// Records that could not be written.
    discarded: AtomicU32,
    /// The header's word with stream, flags and cpu, but for the interrupts.
    identity: Cell<u32>,
    /// The size of a place.
    packet_bytes: Cell<u32>,
    /// The content of all packets that have been closed.
    bytes: AtomicU32,
    memory: Memory<T>,
    /// What is being filled in place.
    pins: Pins,
    /// How many packets have been closed.
    closed: Line<AtomicU32>,
    /// How many packets a reader has taken.
    taken: Line<AtomicU32>,
    /// Where the reader's next packet lies.
    reading: Line<Cell<u32>>,
}

/// Something on a cache line of its own, where several processors may share memory: what one of them
/// stores for the other, once a packet, must not disturb what each stores for itself. (Of the targets
/// with 32 bits none has several here, and all have little RAM.)
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

/// Where the records of a packet that has been begun go.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The first one.
    pub first: *mut u8,
    /// The end of the packet's place.
    pub end: *mut u8,
}

/// The largest packet. Records of the fast path are less than 4096 ticks a byte apart, so that a
/// packet spans less than half a turn of 32 bits of the clock: then its times can be told from these
/// bits ([`Cursor::last`](crate::hot::Cursor::last)).
pub const MAX_PACKET: u32 = 1 << 19;

/// Whether a buffer of `bytes` can have packets of `packet_bytes`.
///
/// # Errors
/// Which of the two is out of range.
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

    /// Where the count of discarded records is, in bytes from the beginning: 4 bytes.
    pub const DISCARDED_OFFSET: usize = core::mem::offset_of!(Self, discarded);

    /// Without memory: no packet can be begun. All zero.
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

    /// Gives the buffer its memory. It is empty if it never had any, else it is to be
    /// [cleared](Self::clear). `stream` is what its packets hold
    /// ([`PacketHeader::stream`]), `cpu` the number of their stream.
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

    /// How many packets there is room for.
    #[inline(never)]
    fn places(&self) -> u32 {
        let places = self.memory.length().checked_div(self.packet_bytes.get());
        places.unwrap_or(0)
    }

    /// The thread in the newest packet's header. (Before there is one, anything.)
    #[inline(always)]
    pub(crate) fn head_thread(&self) -> usize {
        let place = self.memory.address(self.start.load(Ordering::Relaxed));
        let at = place.wrapping_add(PacketHeader::WORD_OFFSET);
        // SAFETY: there is memory, whose places have room for a header.
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

    /// Adds or takes away what all packets from now on say of their calls.
    #[cfg(feature = "duration")]
    pub(crate) fn set_calls(&self, calls: bool) {
        let bit = Self::flags(PacketHeader::FLAG_CALLS, 0);
        let others = self.identity.get() & !bit;
        self.identity.set(if calls { others | bit } else { others });
    }

    /// What all packets from now on say of themselves ([`PacketHeader::flags`]).
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

    /// Flags and interrupts as they stand in the header's word.
    #[inline(always)]
    fn flags(flags: u8, isr_depth: u8) -> u32 {
        let byte = PacketHeader::flags_byte(T::LAYOUT.order, flags, isr_depth);
        match T::LAYOUT.order {
            ByteOrder::Little => u32::from(byte) << 8,
            ByteOrder::Big => u32::from(byte) << 16,
        }
    }

    /// Forgets all packets and counts from the beginning again. No reader is at work.
    #[inline(never)]
    pub fn clear(&self) {
        self.start.store(0, Ordering::Relaxed);
        self.next.set(0);
        self.round.set(false);
        self.reading.set(0);
        // (Each by itself: a loop over them takes twice the code.)
        self.begun.store(0, Ordering::Relaxed);
        self.closed.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.discarded.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// What happens when the buffer is full. To be changed while it is empty.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// What happens when the buffer is full.
    pub fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Counts records that could not be written.
    pub fn add_discarded(&self, records: u32) {
        add(&self.discarded, records);
    }

    /// How many records could not be written. Anybody may ask.
    pub fn discarded(&self) -> u32 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// How many packets have been begun. Anybody may ask.
    pub fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// How many packets have been closed. Anybody may ask.
    pub fn closed(&self) -> u32 {
        self.closed.load(Ordering::Relaxed)
    }

    /// How many bytes all packets have had, modulo 2^32, if the newest one's records reach to `at`.
    /// Anybody may ask.
    pub fn bytes(&self, at: *const u8) -> u32 {
        let closed = self.bytes.load(Ordering::Relaxed);
        let start = self.memory.address(self.start.load(Ordering::Relaxed));
        let content = (at as usize).wrapping_sub(start as usize);
        if self.closed() == self.begun() || content > self.packet_bytes.get() as usize {
            return closed;
        }
        closed.wrapping_add(content as u32)
    }

    /// The size of a packet's place.
    pub fn packet_bytes(&self) -> u32 {
        self.packet_bytes.get()
    }

    /// Whether a packet has been begun and not closed. Anybody may ask.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.begun() != self.closed()
    }

    /// Begins a packet at `now`, where none is open; `None` if there is no place for it. `thread` and
    /// `isr_depth` are what the header says of that moment.
    #[inline(always)]
    pub fn begin(&self, now: u64, thread: usize, isr_depth: u8) -> Option<Room> {
        let begun = self.begun.load(Ordering::Relaxed);
        // Packets are not given up, or not all?
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
        // SAFETY: a place has room for a header, and places are multiples of 8.
        unsafe { header.begin::<T>(place) };
        self.start.store(start, Ordering::Relaxed);
        self.begun.store(begun.wrapping_add(1), Ordering::Relaxed);
        Some(Room {
            first: place.wrapping_add(Self::HEADER as usize),
            end: place.wrapping_add(self.packet_bytes.get() as usize),
        })
    }

    /// Chooses the next packet's place, which is that of the oldest one when all are taken.
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

    /// Where the next packet goes if that place is free, where packets are not given up, or not all.
    #[inline(never)]
    fn free_start(&self, begun: u32) -> Option<u32> {
        let mode = self.mode.get();
        let free = match mode {
            Mode::Overwrite => self.pins.oldest(begun) < self.places(),
            Mode::Stream => {
                let taken = load_acquire(&self.taken);
                begun.wrapping_sub(taken) < self.places()
            }
            // (Once it is full nothing more goes in, so that what is kept has no holes.)
            Mode::Fixed => begun < self.places(),
        };
        free.then_some(self.next.get())
    }

    /// Closes the packet that is open: its records end at `end`, the last was at `last`.
    #[inline(always)]
    pub fn close(&self, end: *mut u8, last: u64) {
        let start = self.start.load(Ordering::Relaxed);
        self.memory.written(start);
        let place = self.memory.address(start);
        let content = (end as usize).wrapping_sub(place as usize) as u32;
        let discarded = self.discarded.load(Ordering::Relaxed);
        // SAFETY: a packet begins with a header, and places are multiples of 8.
        unsafe {
            Memory::<T>::put32(place, PacketHeader::DISCARDED_OFFSET, discarded);
            Header::end::<T>(place, last, content);
        }
        self.move_on(start);
        add(&self.bytes, content);
        store_release(&self.closed, self.begun.load(Ordering::Relaxed));
    }

    /// Tells, in packets that have been closed, what was lost since: for a reader that has the writer
    /// held off. In stream mode, where closed packets are the reader's, an empty one is added for it,
    /// if there is room.
    pub fn tell_losses(&self, now: u64, thread: usize, isr_depth: u8) {
        let discarded = self.discarded.load(Ordering::Relaxed);
        if self.is_open() || discarded == self.told() {
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

    /// Counts so many, for who has undone what came since.
    #[cfg(feature = "cost")]
    pub(crate) fn set_discarded(&self, discarded: u32) {
        self.discarded.store(discarded, Ordering::Relaxed);
    }

    /// Lets the header of the newest packet tell, in stream mode, of losses behind it that no packet could tell of
    /// ([`tell_losses`](Self::tell_losses)) because there is no room: for a reader that holds the writer off and
    /// takes nothing away, until it [takes them back](Self::take_losses_back). A later packet will tell of them in their
    /// place. Returns how many they are.
    #[inline(never)]
    pub fn lend_losses(&self) -> u32 {
        if self.mode.get() != Mode::Stream || self.is_open() || !self.has_any() {
            return 0;
        }
        let discarded = self.discarded.load(Ordering::Relaxed);
        let untold = discarded.wrapping_sub(self.told());
        self.add_told(untold);
        untold
    }

    /// Lets the header of the newest packet be again what it was before so many losses were lent to it.
    #[inline(never)]
    pub fn take_losses_back(&self, lent: u32) {
        if lent != 0 && self.has_any() {
            self.add_told(lent.wrapping_neg());
        }
    }

    /// Changes how many losses the newest packet tells of.
    fn add_told(&self, losses: u32) {
        let told = self.told().wrapping_add(losses);
        let newest = self.memory.address(self.start.load(Ordering::Relaxed));
        // SAFETY: the newest packet begins with a header; the writer is held off.
        unsafe { Memory::<T>::put32(newest, PacketHeader::DISCARDED_OFFSET, told) };
    }

    /// Whether there has been a packet.
    fn has_any(&self) -> bool {
        self.begun() != 0 || self.round.get()
    }

    /// How many of the records that could not be written a header tells of: that of the newest packet.
    fn told(&self) -> u32 {
        if !self.has_any() {
            return 0;
        }
        let newest = self.memory.address(self.start.load(Ordering::Relaxed));
        // SAFETY: the newest packet begins with a header.
        unsafe { Memory::<T>::get32(newest, PacketHeader::DISCARDED_OFFSET) }
    }

    /// How many places hold packets. Anybody may ask.
    pub fn used(&self) -> u32 {
        let (taken, places) = (self.taken.load(Ordering::Relaxed), self.places());
        match self.mode.get() {
            // (Their numbers may have begun again at 0.)
            Mode::Overwrite if self.round.get() => places,
            _ => self.begun().wrapping_sub(taken).min(places),
        }
    }

    /// How many packets are kept, and not taken.
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

    /// The `n`th of the packets that are [kept](Self::kept), oldest first, as long as its content;
    /// `None` behind the last.
    ///
    /// # Safety
    /// No packet is open, and the writer is held off as long as the slice is used.
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

    /// In stream mode: the oldest packet that is closed and not yet taken, as long as its content.
    ///
    /// # Safety
    /// The caller is the only reader. The slice is not used after [`release`](Self::release).
    pub unsafe fn next(&self) -> Option<&[u8]> {
        // SAFETY: by this function's contract.
        unsafe { self.waiting(0) }
    }

    /// In stream mode: the `n`th of the packets that are closed and not yet taken, oldest first, as
    /// long as its content; `None` behind the newest.
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
        // SAFETY: the writer leaves a closed packet alone until it is taken.
        unsafe { self.content(place * self.packet_bytes.get()) }
    }

    /// When the first of the packets began that are closed and do not [wait](Self::waiting), because a record
    /// is being filled in it or before it; `None` if there is none.
    ///
    /// # Safety
    /// As [`next`](Self::next).
    pub unsafe fn withheld(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Relaxed);
        // Before what is ready: what is closed meanwhile is not held back.
        let closed = load_acquire(&self.closed).wrapping_sub(taken);
        let ready = self.ready().wrapping_sub(taken);
        if ready >= closed {
            return None;
        }
        let behind = self.reading.get() / self.packet_bytes.get() + ready;
        let at = behind % self.places() * self.packet_bytes.get();
        // SAFETY: of a closed packet nobody writes the header, and its place is not given away until a
        // reader has taken it.
        let header = unsafe { self.memory.slice(at, Self::HEADER) };
        PacketHeader::read_begin(T::LAYOUT.order, header)
    }

    /// Gives the place of the packet that [`next`](Self::next) returned back to the writer.
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
