//! The encoder: writes events into the packets of one stream.
//!
//! For every kind of event and every target it decides which form a record takes ([`kymo_wire::event`] defines them),
//! when a `time` record must precede it, when an exit must name its function, and when the packet is full. The fast
//! path ([`Cursor`]) writes the usual entries and exits; this slow path can record every event, and leaves the cursor
//! ready for the fast path.
//!
//! An event is recorded in three steps, because only some of the work must not be interrupted, and that part must be
//! short. First the encoder prepares the bytes, without the time. Then, uninterrupted, it reads the clock and stores
//! them, if there is room and the time is near the last record's. Otherwise `make_room` makes one change, also
//! uninterrupted (it writes a `time` record, or closes the packet and begins the next one), and the encoder tries
//! again. A driver (`Driver`) excludes other writers meanwhile: [`single`](crate::single) masks interrupts separately
//! for each step, `threads` and `cpus` once for all of them (`Alone`).
//!
//! A record is valid only once the cursor's [`at`](Cursor::at) has moved behind it, which is the last store of every
//! event except for that of the time: a reader of memory (a debugger, a crash handler, a dump of the RAM) finds
//! complete records up to there at any time.

use core::cell::Cell;

use kymo_wire::event::{Layout, PacketHeader, Shape, TIME_BITS, WordSize};
use kymo_wire::link::{Fault, MAX_FUNCTION_SHIFT, Mode, SetupError};
use kymo_wire::packet::EVENT_STREAM;

use crate::Target;
use crate::bits64::Cell64;
use crate::buffer::Buffer;
use crate::hot::{CODE_BIT, COUNTING, Cursor, NAMING, low, store};
use crate::sync::{AtomicU32, Ordering, SHARED, add};
use block::Undos;

pub use crate::buffer::{MAX_PACKET, MIN_PACKET, check_sizes};

#[cfg(target_has_atomic = "ptr")]
mod abandoned;
mod block;
#[cfg(feature = "duration")]
mod call;
mod driver;
mod event;
#[cfg(feature = "cost")]
mod probe;
mod record;
mod seen;

#[cfg(feature = "duration")]
pub(crate) use call::WholeCall;
pub(crate) use driver::{Alone, Depth, Driver, Found, Need, Tries};
#[cfg(feature = "cost")]
pub(crate) use probe::Scratch;
use record::Record;
pub(crate) use seen::Seen;

/// One stream of event packets.
///
/// All methods except [`figures`](Self::figures) are for the one writer, or for a reader while the writer is excluded.
///
/// (Small processors access the first fields with the shortest instructions, so the most used ones come first.)
#[cfg_attr(target_pointer_width = "32", repr(C))]
#[derive(Debug)]
pub struct Stream<T> {
    /// Write position. None before the stream is set up.
    cursor: Cell<Option<&'static Cursor>>,
    /// End of the open packet's slot; null while no packet is open.
    end: Cell<*mut u8>,
    /// The running thread; 0 if unknown.
    thread: Cell<usize>,
    /// Number of active interrupt handlers.
    pub(crate) isr_depth: Cell<u8>,
    /// Whether the fast path may record usual entries and exits.
    fast: Cell<bool>,
    /// How many of the active interrupts began before this packet, or at an unknown time: only the exits of the others
    /// need no number.
    isr_before: Cell<u8>,
    /// Which events the writer records directly.
    pub(crate) direct: Cell<u8>,
    /// Time of the last record that the slow path knows of, in ticks.
    last: Cell64,
    /// How many packets the events discarded since the buffer was full would have taken.
    overflow_packets: AtomicU32,
    /// Room that the last of these packets would have, in bytes.
    overflow_room: Cell<u32>,
    /// Number of times before the last record's, which were recorded as equal to it.
    backward: [AtomicU32; SHARED],
    buffer: Buffer<T>,
    pub(crate) undos: Undos,
    /// Destination of records while they are [diverted](Self::divert); null otherwise.
    #[cfg(feature = "cost")]
    scratch: Cell<*mut u8>,
}

/// Statistics of a stream. Counters start at the last clear, and wrap at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of all packets recorded (overwritten ones too).
    pub bytes: u32,
    /// Events that could not be recorded.
    pub discarded: u32,
    /// Packets begun (overwritten ones too).
    pub packets: u32,
    /// Bytes of the buffer that hold packets.
    pub used: u64,
    /// Bytes of buffer that could have held everything since the last clear.
    pub needed: u64,
    /// How often the clock went backwards (on Linux: between processors).
    pub backward: u32,
}

impl<T: Target> Stream<T> {
    /// Offset of the count of discarded events: 4 bytes.
    pub const DISCARDED_OFFSET: usize =
        core::mem::offset_of!(Self, buffer) + Buffer::<T>::DISCARDED_OFFSET;

    /// Offset of the time of the last record that the slow path knows of: 8 bytes.
    pub const LAST_OFFSET: usize = core::mem::offset_of!(Self, last);

    /// A stream without memory, which discards all events. All zero.
    pub const fn new() -> Self {
        Self {
            buffer: Buffer::new(),
            cursor: Cell::new(None),
            end: Cell::new(core::ptr::null_mut()),
            last: Cell64::new(0),
            fast: Cell::new(false),
            isr_before: Cell::new(0),
            direct: Cell::new(0),
            isr_depth: Cell::new(0),
            thread: Cell::new(0),
            overflow_packets: AtomicU32::new(0),
            overflow_room: Cell::new(0),
            backward: [const { AtomicU32::new(0) }; SHARED],
            undos: Undos::new(),
            #[cfg(feature = "cost")]
            scratch: Cell::new(core::ptr::null_mut()),
        }
    }

    /// Gives the stream its cursor, memory and CPU number. It is empty the first time; later, the caller
    /// [clears](Self::clear) it. `functions.shift` is that of the program, or 0 for the
    /// [layout's](kymo_wire::event::Layout::function_shift).
    ///
    /// # Errors
    /// When the sizes are unusable; the stream has no memory then.
    ///
    /// # Safety
    /// `memory` is the address and number of initialized bytes that only this stream uses from now on.
    pub unsafe fn set_up(
        &self,
        cursor: &'static Cursor,
        memory: (*mut u8, u32),
        packet_bytes: u32,
        cpu: u16,
        functions: Functions,
    ) -> Result<(), SetupError> {
        if functions.shift > MAX_FUNCTION_SHIFT {
            return Err(Fault::FunctionShift.of(functions.shift as usize));
        }
        // SAFETY: by this function's contract.
        unsafe {
            self.buffer
                .set_up(memory.0, memory.1, packet_bytes, EVENT_STREAM, cpu)?;
        }
        cursor.text_base.set(functions.text_base | CODE_BIT);
        cursor
            .function_shift
            .set(functions.layout::<T>().function_shift.into());
        self.cursor.set(Some(cursor));
        if !COUNTING {
            self.set_flags(0);
        }
        Ok(())
    }

    /// The packets, for a reader.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// Drops all packets and resets the counters.
    pub fn clear(&self) {
        if let Some(cursor) = self.cursor.get() {
            self.sync(cursor);
            cursor.close();
            // So that a reader of memory finds no packet either.
            cursor.at.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
        self.end.set(core::ptr::null_mut());
        self.buffer.clear();
        self.overflow_packets.store(0, Ordering::Relaxed);
        self.overflow_room.set(0);
        for backward in &self.backward {
            backward.store(0, Ordering::Relaxed);
        }
    }

    /// Sets what happens when the buffer is full. Call it while the buffer is empty.
    pub fn set_mode(&self, mode: Mode) {
        self.buffer.set_mode(mode);
    }

    /// What happens when the buffer is full.
    pub fn mode(&self) -> Mode {
        self.buffer.mode()
    }

    /// Permits the fast path for usual entries and exits, or keeps all events on the slow path: because the driver
    /// needs to see every event, or has no counter that the fast path could read.
    pub fn set_fast(&self, fast: bool) {
        self.fast.set(fast);
        self.suspend();
    }

    /// Sends the next event to the slow path: the last record is so old that the truncated time in the cursor could be
    /// ambiguous.
    pub fn suspend(&self) {
        if let Some(cursor) = self.cursor.get() {
            cursor.close();
        }
    }

    /// Notes that the gate was closed or opened. The next event takes the slow path; events may be missing before it,
    /// so exits must name their functions.
    pub fn miss(&self) {
        self.suspend();
        self.part();
        self.forget_isrs();
    }

    /// The running thread; 0 if unknown.
    pub fn thread(&self) -> usize {
        self.thread.get()
    }

    /// Makes this the stream of one thread instead of one CPU.
    pub fn belong_to(&self, thread: usize) {
        self.thread.set(thread);
        self.set_flags(PacketHeader::FLAG_THREAD);
    }

    fn set_flags(&self, flags: u8) {
        let nested = if COUNTING {
            0
        } else {
            PacketHeader::FLAG_NESTED
        };
        self.buffer.set_flags(flags | nested);
    }

    /// Sets the running thread.
    pub fn set_thread(&self, thread: usize) {
        self.thread.set(thread);
    }

    /// Counts events that were discarded for a reason outside the stream.
    pub fn add_discarded(&self, events: u32) {
        self.buffer.add_discarded(events);
    }

    /// Returns the statistics. Any context may call it at any time.
    pub fn figures(&self) -> Figures {
        let packets = self.buffer.begun();
        let packet_bytes = u64::from(self.buffer.packet_bytes());
        let overflow = self.overflow_packets.load(Ordering::Relaxed);
        let at = self.cursor.get().map_or(core::ptr::null_mut(), Cursor::at);
        Figures {
            bytes: self.buffer.bytes(at),
            discarded: self.buffer.discarded(),
            packets,
            used: u64::from(self.buffer.used()) * packet_bytes,
            needed: (u64::from(packets) + u64::from(overflow)) * packet_bytes,
            backward: self
                .backward
                .first()
                .map_or(0, |backward| backward.load(Ordering::Relaxed)),
        }
    }

    /// Whether a packet has been begun and not closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.end.get().is_null()
    }

    /// How many of the active interrupts began before this packet, or at an unknown time.
    #[inline(always)]
    pub(crate) fn isr_before(&self) -> u8 {
        self.isr_before.get()
    }

    /// Marks all active interrupts as begun at an unknown time.
    #[inline(always)]
    pub(crate) fn forget_isrs(&self) {
        self.isr_before.set(self.isr_depth.get());
    }

    /// Begins the next packet at `now` (truncated by [`low`]), where the open one is full and nothing else prevents
    /// recording; returns false if there is no free slot.
    #[inline(always)]
    pub(crate) fn change_full(&self, cursor: &Cursor, now: usize) -> bool {
        self.sync(cursor);
        self.next_packet(self.whole(now))
    }

    pub(crate) fn set_last(&self, last: u64) {
        self.last.set(last);
    }

    /// Time of the last record that the slow path knows of.
    pub(crate) fn known_last(&self) -> u64 {
        self.last.get()
    }

    fn count_backward(&self) {
        for backward in &self.backward {
            add(backward, 1);
        }
    }

    pub(crate) fn cursor(&self) -> Option<&'static Cursor> {
        self.cursor.get()
    }

    /// Time of the last record, in ticks, including records of the fast path.
    pub fn last(&self) -> u64 {
        match self.cursor.get() {
            Some(cursor) => self.sync(cursor),
            None => 0,
        }
    }

    /// Brings `last` up to date with the cursor, which holds the low bits of a time that is less than half a wraparound
    /// of these bits later.
    #[inline(always)]
    pub(crate) fn sync(&self, cursor: &Cursor) -> u64 {
        let (last, now) = (self.last.get(), cursor.last.get());
        let last = match T::LAYOUT.word {
            WordSize::Bits32 => {
                last.wrapping_add(u64::from((now as u32).wrapping_sub(last as u32)))
            }
            WordSize::Bits64 => last.wrapping_add((now as u64).wrapping_sub(last)),
        };
        self.last.set(last);
        last
    }

    /// Extends a recent time from its low bits `now`, by the last record's.
    #[inline(always)]
    pub(crate) fn whole(&self, now: usize) -> u64 {
        let last = self.last.get();
        match T::LAYOUT.word {
            WordSize::Bits32 => {
                // The last record may be later than `now`.
                let distance = (now as u32).wrapping_sub(last as u32) as i32;
                last.wrapping_add_signed(distance.into())
            }
            WordSize::Bits64 => now as u64,
        }
    }

    /// Makes one change towards room for a record at `now` (not before the last record's time), or counts the event as
    /// discarded.
    pub(crate) fn make_room(&self, need: Need, now: u64) -> Found {
        let Some(cursor) = self.cursor.get() else {
            self.buffer.add_discarded(1);
            return Found::Full;
        };
        let last = self.sync(cursor);
        let end = self.end.get();
        if end.is_null() {
            if self.next_packet(now) {
                return Found::Again;
            }
            self.discard(cursor, now, need);
            return Found::Full;
        }
        let at = cursor.at();
        let distance = now.wrapping_sub(last);
        let far = is_far::<T>(distance, need.bits);
        let bytes = T::LAYOUT.fast_bytes().max(need.bytes as usize) + if far { 8 } else { 0 };
        if at.wrapping_add(bytes) > end || distance >> TIME_BITS != 0 {
            self.next_packet(now);
            return Found::Again;
        }
        if far {
            let record = Shape::time_record(T::LAYOUT.order, now);
            // SAFETY: so many bytes are left in the packet's slot.
            unsafe { store(T::LAYOUT.order, at, record, 8) };
            self.last.set(now);
            cursor.commit(at.wrapping_add(8), low::<T>(now));
        }
        self.open(cursor);
        Found::Again
    }

    /// Closes the open packet, if any, and begins one at `now` if there is a free slot. The caller has called
    /// [`sync`](Self::sync).
    #[inline(always)]
    fn next_packet(&self, now: u64) -> bool {
        self.change_packet(true, now)
    }

    /// Closes the open packet. The caller has called [`sync`](Self::sync).
    #[inline(always)]
    fn close(&self) {
        self.change_packet(false, 0);
    }

    /// Closes the open packet and, if `begins`, begins the next one.
    #[inline(never)]
    fn change_packet(&self, begins: bool, now: u64) -> bool {
        let Some(cursor) = self.cursor.get() else {
            return false;
        };
        #[cfg(feature = "cost")]
        if self.rewind(cursor, now) {
            return true;
        }
        if self.is_open() {
            self.buffer.close(cursor.at(), self.last.get());
        }
        let thread = self.thread.get();
        let interrupts = self.isr_depth.get();
        let begun = match begins {
            true => self.buffer.begin(now, thread, interrupts),
            false => None,
        };
        // (Only where no packet follows: otherwise both are set anew.)
        let Some(room) = begun else {
            cursor.close();
            self.end.set(core::ptr::null_mut());
            return false;
        };
        Depth::Parts.apply::<T>(cursor);
        self.isr_before.set(interrupts);
        self.overflow_room.set(0);
        self.last.set(now);
        cursor.commit(room.first, low::<T>(now));
        self.end.set(room.end);
        self.open(cursor);
        true
    }

    /// Has every exit name the function that is left. Nothing has been recorded yet.
    pub fn name_exits(&self) {
        if let Some(cursor) = self.cursor().filter(|_| T::NAMES_EXITS) {
            cursor.depth.set(NAMING);
        }
    }

    /// Permits records in the open packet.
    #[inline(always)]
    fn open(&self, cursor: &Cursor) {
        let limit = self.end.get() as usize - (T::LAYOUT.fast_bytes() - 1);
        cursor.open(limit, self.fast.get());
    }

    /// Counts an event for which there is no room, and updates the state as if it had been recorded, to measure how
    /// much buffer everything would have needed.
    #[cold]
    fn discard(&self, cursor: &Cursor, now: u64, need: Need) {
        self.buffer.add_discarded(1);
        let far = is_far::<T>(now.wrapping_sub(self.last.get()), need.bits);
        let bytes = need.bytes + if far { 8 } else { 0 };
        let mut room = self.overflow_room.get();
        if bytes > room {
            add(&self.overflow_packets, 1);
            // If the packet begins with an exit, that names its function.
            room = self.buffer.packet_bytes() - T::LAYOUT.header_bytes() as u32 - 8;
            Depth::Parts.apply::<T>(cursor);
        }
        self.overflow_room.set(room.saturating_sub(bytes));
        need.depth.apply::<T>(cursor);
        self.last.set(now);
        cursor.last.set(low::<T>(now));
    }

    /// Closes the newest packet, so that everything can be read; the next event begins a new packet. Packets also
    /// report the losses since then.
    pub fn seal(&self) {
        let Some(cursor) = self.cursor.get() else {
            return;
        };
        let last = self.sync(cursor);
        self.close();
        self.buffer
            .record_losses(last, self.thread.get(), self.isr_depth.get());
    }

    /// [Seals](Self::seal) for a reader of several processors at `now`: if a stream has only ever lost events, adds an
    /// empty packet that reports them.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn seal_at(&self, now: u64) {
        if self.buffer.begun() == 0 && self.buffer.discarded() != 0 && self.next_packet(now) {
            self.close();
        }
        self.seal();
    }
}

impl<T: Target> Default for Stream<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a distance in time needs more than `bits` bits.
#[inline(always)]
fn is_far<T: Target>(distance: u64, bits: u32) -> bool {
    match T::LAYOUT.word {
        // Records have less than 32 bits of time, and shifting 64 bits takes a dozen instructions.
        WordSize::Bits32 => distance >> 32 != 0 || distance as u32 >> bits != 0,
        WordSize::Bits64 => distance >> bits != 0,
    }
}

/// Numbering of a program's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// The run-time address of function 0.
    pub text_base: usize,
    /// The granularity ([`Layout::function_shift`]); 0 for the architecture's own.
    pub shift: u32,
}

impl Functions {
    /// The layout of a program that numbers its functions so.
    pub fn layout<T: Target>(self) -> Layout {
        match self.shift {
            shift @ 1..=MAX_FUNCTION_SHIFT => Layout {
                function_shift: shift as u8,
                ..T::LAYOUT
            },
            _ => T::LAYOUT,
        }
    }
}
