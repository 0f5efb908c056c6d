//! Metadata packet: facts that are recorded once and never overwritten, such as names, build id and clock.
//!
//! One packet of its own stream, written until it is full. A fact that it already has is not written again, so programs
//! may name a thread as often as they like. Names that don't fit are counted in the packet's `events_discarded`, which
//! a [flag](PacketHeader::FLAG_FACTS) distinguishes from lost events.
//!
//! Searching for a fact and copying a name take long, so interrupts are not masked for that. A context reserves space
//! behind all facts in one masked section, writes its fact, and commits it in another. A context that interrupts the
//! writing reserves the space behind it. All of them become visible when the last concurrent writer commits.

use core::cell::Cell;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use kymo_wire::clock_check::TickCheck;
#[cfg(feature = "cost")]
use kymo_wire::cost::{Measure, Measured};
use kymo_wire::event::{
    ByteOrder, EventId, METADATA_STREAM, MetadataType, OTHER_BYTES, PacketHeader, Shape,
};
use kymo_wire::link::{Fault, SetupError};
use kymo_wire::packet::{EVENT_STREAM, PACKET_MAGIC};

use crate::Target;
use crate::bits64::Cell64;
use crate::header::Header;
use crate::memory::Memory;
use crate::sync::{
    AtomicPtr, AtomicU32, Ordering, add, load_acquire, load_address, store_address, store_release,
};

/// Least memory for metadata, in bytes.
const LEAST_BYTES: u32 = 128;

/// Longest name that is kept, in bytes; the rest is cut off.
pub const MAX_NAME: usize = 64;

/// Number of ticks after which a stream sends the comparison of tick and clock.
const FIRST_CHECK: u32 = 16;

/// Length of the longest fact without its times, in 32-bit words: type and length, a number, and a text.
const FACT: usize = 3 + MAX_NAME / 4;

/// The packet of facts. One context at a time may write, with those that interrupt it.
#[derive(Debug)]
pub struct Metadata<T> {
    /// State of the packet: at the end of the memory that the program gives for it. Null without such memory.
    packet: AtomicPtr<Packet<T>>,
    discarded: AtomicU32,
}

/// State of the packet.
#[derive(Debug)]
struct Packet<T> {
    memory: Memory<T>,
    last: Cell64,
    /// End of the complete facts.
    written: AtomicU32,
    /// End of all facts, including those being written.
    taken: Cell<u32>,
    /// Number of facts being written.
    writers: Cell<u8>,
    /// Whether the header must not change, because of a reader.
    sealed: Cell<bool>,
    /// Comparison of the clock with the periodic tick.
    check: Check,
}

/// Comparison of the clock with the periodic tick. (It is here because the memory is the program's: without metadata it
/// can't be reported.)
#[derive(Debug)]
struct Check {
    /// Offset of its record's value; 0: there is no record.
    at: Cell<u32>,
    /// Ticks per second.
    hz: Cell<u32>,
    /// Time of the first tick; before that, of the set-up.
    from: Cell64,
    /// Number of ticks.
    ticks: Cell<u32>,
    /// Number of updates after which a reader that has the packet should read it again.
    news: AtomicU32,
}

impl Check {
    /// The comparison as of `now`.
    fn at(&self, now: u64) -> TickCheck {
        TickCheck {
            clock: now.wrapping_sub(self.from.get()),
            count: self.ticks.get().saturating_sub(1),
            hz: self.hz.get(),
        }
    }
}

impl<T: Target> Metadata<T> {
    /// Length of a fact's start: a `time` record, because facts are far apart, and the event's header.
    const TIMES: usize = 8 + OTHER_BYTES;
    /// Offset of the header's flags.
    const FLAGS: u32 = 5;
    /// Length with `type` and `length`.
    const HEADER: usize = Self::TIMES + 4;

    /// Metadata without memory. All zero.
    pub const fn new() -> Self {
        Self {
            packet: AtomicPtr::new(null_mut()),
            discarded: AtomicU32::new(0),
        }
    }

    /// Whether it has memory.
    pub fn is_set_up(&self) -> bool {
        self.kept().is_some()
    }

    /// The packet, if there is one.
    #[inline(always)]
    fn kept(&self) -> Option<&Packet<T>> {
        if !cfg!(feature = "metadata") {
            return None;
        }
        // SAFETY: it is in memory that is ours for good.
        unsafe { load_address(&self.packet).as_ref() }
    }

    /// Sets the memory, and begins the packet at `now`.
    ///
    /// # Errors
    /// When there is too little memory, or it is not aligned to 8.
    ///
    /// # Safety
    /// `buffer` points to `bytes` initialized bytes that only this packet uses from now on.
    pub unsafe fn set_up(&self, buffer: *mut u8, bytes: u32, now: u64) -> Result<(), SetupError> {
        if !cfg!(feature = "metadata") {
            return Ok(());
        }
        if !(buffer as usize).is_multiple_of(8) {
            return Err(Fault::MetadataAlignment.of(buffer as usize));
        }
        let header_bytes = T::LAYOUT.header_bytes() as u32;
        let own = size_of::<Packet<T>>() as u32;
        // Loom's atomics are larger, and models have no metadata.
        const {
            let least = T::LAYOUT.header_bytes() + size_of::<Packet<T>>();
            assert!(cfg!(loom) || least <= LEAST_BYTES as usize);
        }
        if !(LEAST_BYTES..crate::encode::MAX_PACKET).contains(&bytes) {
            return Err(Fault::MetadataSize.of(bytes as usize));
        }
        let bytes = (bytes - own) & !7;
        // `stream_id` is 0.
        const { assert!(EVENT_STREAM == 0) };
        let flags = u32::from(Self::flags(PacketHeader::FLAG_FACTS));
        let identity = match T::LAYOUT.order {
            ByteOrder::Little => u32::from(METADATA_STREAM) << 16 | flags << 8,
            ByteOrder::Big => u32::from(METADATA_STREAM) | flags << 16,
        };
        // SAFETY: by this function's contract; the alignment was checked, and there is room for a header.
        unsafe {
            // (Not `Header::begin`, which is inlined and takes 176 bytes more here. Volatile, because compilers replace a
            // loop by a call of `memset`, of 174 bytes.)
            for word in 0..header_bytes as usize / 4 {
                buffer.cast::<u32>().add(word).write_volatile(0);
            }
            Memory::<T>::put32(buffer, 0, PACKET_MAGIC);
            Memory::<T>::put32(buffer, 4, identity);
            Memory::<T>::put64(buffer, PacketHeader::BEGIN_OFFSET, now);
        }
        // (Not constants, because so many would become a call of `memset`.)
        let none = black_box(0);
        let packet = Packet {
            memory: Memory::empty(),
            last: Cell64::new(now),
            written: AtomicU32::new(header_bytes),
            taken: Cell::new(header_bytes),
            writers: Cell::new(0),
            sealed: Cell::new(false),
            check: Check {
                at: Cell::new(none),
                hz: Cell::new(none),
                from: Cell64::new(now),
                ticks: Cell::new(none),
                news: AtomicU32::new(none),
            },
        };
        // SAFETY: the packet has that length, and there is room for its state behind it.
        unsafe {
            packet.memory.give(buffer, bytes);
            let place = buffer.add(bytes as usize).cast::<Packet<T>>();
            place.write(packet);
            store_address(&self.packet, place);
        }
        self.complete();
        Ok(())
    }

    /// Moves the facts to other memory, without the counted losses: in the child of a fork. Without enough memory
    /// nothing changes.
    ///
    /// # Safety
    /// As [`set_up`](Self::set_up); no context writes facts now, or is in the middle of that.
    pub unsafe fn move_to(&self, buffer: *mut u8, bytes: u32) {
        let before = self.kept();
        let (written, last) = before.map_or((0, 0), |packet| {
            (packet.written.load(Ordering::Relaxed), packet.last.get())
        });
        if written > bytes.saturating_sub(size_of::<Packet<T>>() as u32) & !7 {
            return;
        }
        // SAFETY: by this function's contract.
        let set_up = unsafe { self.set_up(buffer, bytes, last) };
        if let (Ok(()), Some(before), Some(packet)) = (set_up, before, self.kept()) {
            let (from, to) = (before.memory.address(0), packet.memory.address(0));
            // SAFETY: so many bytes are in the one, and there is room for them in the other.
            unsafe { to.copy_from_nonoverlapping(from, written as usize) };
            packet.written.store(written, Ordering::Relaxed);
            packet.taken.set(written);
        }
        self.discarded.store(0, Ordering::Relaxed);
        self.complete();
    }

    /// Adds the name of a thread.
    pub fn thread_name(&self, now: u64, thread: usize, name: &[u8]) {
        self.add(MetadataType::ThreadName, now, thread, name);
    }

    /// Adds the name of an interrupt.
    pub fn isr_name(&self, now: u64, irq: u16, name: &[u8]) {
        self.add(MetadataType::IsrName, now, irq.into(), name);
    }

    /// Adds the build id of the program.
    pub fn build_id(&self, now: u64, id: &[u8]) {
        self.add(MetadataType::BuildId, now, 0, id);
    }

    /// Adds the clock: ticks per second, and bits of its counter.
    pub fn clock(&self, now: u64, hz: u64, bits: u32) {
        let parts = [Self::number(hz, 8), Self::number(bits.into(), 4)];
        let text = parts.as_flattened().get(..12).unwrap_or(&[]);
        self.add(MetadataType::Clock, now, 0, text);
    }

    /// Starts to compare the clock, from `now` on, with a periodic tick at `hz` per second; its record has the time
    /// `begin`. Like all functions for the tick, for one context at a time, which nothing interrupts.
    #[inline(never)]
    pub fn compare_tick(&self, now: u64, begin: u64, hz: u32) {
        let Some(Packet { check, taken, .. }) = self.kept() else {
            return;
        };
        check.hz.set(hz);
        // (No time has passed. A constant would become a call of `memset`.)
        let none = check.at(begin);
        let before = taken.get();
        let value = Self::tick_value(&none);
        self.add(MetadataType::TickCheck, begin, 0, value.as_flattened());
        if taken.get() != before {
            check.at.set(before + Self::HEADER as u32);
        }
        check.from.set(now);
    }

    /// [`TickCheck::encode`], in less code.
    #[inline(always)]
    fn tick_value(check: &TickCheck) -> [[u8; 8]; 2] {
        let (count, hz) = (u64::from(check.count), u64::from(check.hz));
        let rest = match T::LAYOUT.order {
            ByteOrder::Little => count | hz << 32,
            ByteOrder::Big => count << 32 | hz,
        };
        [Self::number(check.clock, 8), Self::number(rest, 8)]
    }

    /// Counts the tick at `now`. Returns whether the comparison is to be [recorded](Self::record_tick): at ever longer
    /// intervals, for memory after a crash, and for a stream.
    #[inline(never)]
    pub fn tick(&self, now: u64) -> bool {
        let Some(check) = self.kept().map(|packet| &packet.check) else {
            return false;
        };
        let ticks = check.ticks.get().wrapping_add(1);
        // (Starts again when the count wraps around.)
        if ticks <= 1 {
            check.from.set(now);
        }
        check.ticks.set(ticks);
        check.hz.get() != 0 && (ticks - 1).is_power_of_two()
    }

    /// The comparison of clock and tick as of `now`; `None` if there is none.
    pub fn tick_check(&self, now: u64) -> Option<TickCheck> {
        let check = self.kept().map(|packet| packet.check.at(now));
        check.filter(|check| check.hz != 0)
    }

    /// Updates the record of the comparison.
    #[inline(never)]
    pub fn record_tick(&self, now: u64) {
        if let (Some(packet), Some(check)) = (self.kept(), self.tick_check(now))
            && packet.check.at.get() != 0
            && !packet.sealed.get()
        {
            let value = Self::tick_value(&check);
            packet
                .memory
                .put(packet.check.at.get(), value.as_flattened());
            if check.count >= FIRST_CHECK {
                add(&packet.check.news, 1);
            }
        }
    }

    /// Whether there is room for the measured overhead. Names are more important: the overhead is omitted where it
    /// would take more than a third of the memory.
    #[cfg(feature = "cost")]
    pub fn has_room_for_costs(&self) -> bool {
        let Some(packet) = self.kept() else {
            return false;
        };
        // (The call that does nothing is no fact.)
        let facts = const { Measure::all(T::LAYOUT, 0, 0).len() - 1 };
        (Self::HEADER + size_of::<Measured>()) * facts * 3 <= packet.memory.length() as usize
    }

    /// Number of facts lost, and of other losses that no stream can report.
    pub fn discarded(&self) -> u32 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// A number that changes when facts are added; 0 without memory.
    pub fn state(&self) -> u32 {
        let Some(packet) = self.kept() else {
            return 0;
        };
        let written = load_acquire(&packet.written);
        written
            .wrapping_add(self.discarded())
            .wrapping_add(packet.check.news.load(Ordering::Relaxed))
            .max(1)
    }

    /// The header's byte of flags.
    const fn flags(flags: u8) -> u8 {
        PacketHeader::flags_byte(T::LAYOUT.order, flags, 0)
    }

    /// Counts lost events of threads or CPUs that have no stream to report them.
    pub fn add_discarded(&self, events: u32) {
        if events == 0 {
            return;
        }
        add(&self.discarded, events);
        if let Some(packet) = self.kept() {
            packet.memory.put(Self::FLAGS, &[Self::flags(0)]);
        }
    }

    /// Length in bytes of the number at the start of a fact's value, which identifies the named object.
    #[inline(always)]
    const fn number_bytes(kind: MetadataType) -> usize {
        match kind {
            MetadataType::ThreadName
            | MetadataType::Image
            | MetadataType::ImagePath
            | MetadataType::ImageUnloaded => T::LAYOUT.word.bytes(),
            MetadataType::IsrName => 4,
            MetadataType::Clock
            | MetadataType::BuildId
            | MetadataType::TickCheck
            | MetadataType::HostCheck
            | MetadataType::Cost
            | MetadataType::Measured => 0,
        }
    }

    /// The low `bytes` (1 to 8) bytes of a number in the target's byte order, at the front.
    #[inline(always)]
    fn number(value: u64, bytes: usize) -> [u8; 8] {
        match T::LAYOUT.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.wrapping_shl(64 - 8 * bytes as u32).to_be_bytes(),
        }
    }

    /// Adds a fact whose value is a number (an interrupt's has two bytes and two of padding) and a text of at most
    /// [`MAX_NAME`] bytes, cut between UTF-8 characters. Interrupts may be enabled.
    #[inline(never)]
    pub fn add(&self, kind: MetadataType, now: u64, number: usize, text: &[u8]) {
        let Some(packet) = self.kept() else {
            return add(&self.discarded, 1);
        };
        let mut cut = text.len();
        if cut > MAX_NAME {
            cut = MAX_NAME;
            while cut > 0 && text.get(cut).is_some_and(|byte| byte & 0xC0 == 0x80) {
                cut -= 1;
            }
        }
        let size = Self::number_bytes(kind);
        let number = match (kind, T::LAYOUT.order) {
            (MetadataType::IsrName, ByteOrder::Big) => number << 16,
            _ => number,
        };
        let (kind, length) = (kind as u64, (size + cut) as u64);
        let head = match T::LAYOUT.order {
            ByteOrder::Little => kind | length << 16,
            ByteOrder::Big => kind << 16 | length,
        };
        let mut fact = MaybeUninit::<[u32; FACT]>::uninit();
        let place = fact.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for a head, a number and a text that has been cut. Volatile as in
        // `Memory::put`.
        let fact = unsafe {
            let number_place = place.add(4).cast::<[u8; 8]>();
            place.cast::<[u8; 8]>().write(Self::number(head, 4));
            number_place.write(Self::number(number as u64, size));
            let text = text.get(..cut).unwrap_or(&[]);
            for (i, byte) in text.iter().enumerate() {
                place.add(4 + size + i).write_volatile(*byte);
            }
            core::slice::from_raw_parts(place, 4 + size + cut)
        };
        // Both begin with their length. (Not a comparison of slices, because that calls a function that the program may
        // not need otherwise.)
        let stands = |found: *const u8| {
            let found = |i: usize| {
                // SAFETY: a fact that is shorter differs in its length.
                unsafe { found.add(i).read() }
            };
            (0..).zip(fact).all(|(i, byte)| *byte == found(i))
        };
        if self.any(stands) {
            return;
        }
        let was = T::mask_interrupts();
        let at = packet.taken.get();
        let end = at + (Self::TIMES + fact.len()) as u32;
        let now = now.max(packet.last.get());
        if end > packet.memory.length() {
            add(&self.discarded, 1);
            return T::unmask_interrupts(was);
        }
        packet.taken.set(end);
        packet.last.set(now);
        packet.writers.set(packet.writers.get() + 1);
        T::unmask_interrupts(was);
        let order = T::LAYOUT.order;
        let time = Shape::time_record(order, now);
        let header = Shape::other_header(order, EventId::Metadata, now);
        let times = [Self::number(time, 8), Self::number(header, Self::TIMES - 8)];
        let times = times.as_flattened();
        packet
            .memory
            .put(at, times.get(..Self::TIMES).unwrap_or(&[]));
        packet.memory.put(at + Self::TIMES as u32, fact);
        let was = T::mask_interrupts();
        let writers = packet.writers.get() - 1;
        packet.writers.set(writers);
        if writers == 0 {
            store_release(&packet.written, packet.taken.get());
            if !packet.sealed.get() {
                self.complete();
            }
        }
        T::unmask_interrupts(was);
    }

    /// Whether the packet has a name of this thread.
    pub fn names_thread(&self, thread: usize) -> bool {
        let bytes = T::LAYOUT.word.bytes();
        let number = Self::number(thread as u64, bytes);
        let kind = Self::number(MetadataType::ThreadName as u64, 2);
        self.any(|found| {
            let same = |at: usize, bytes: &[u8]| {
                (at..).zip(bytes).all(|(at, byte)| {
                    // SAFETY: every fact has a type and a length, and that of a name a number.
                    unsafe { found.add(at).read() == *byte }
                })
            };
            same(0, kind.get(..2).unwrap_or(&[])) && same(4, number.get(..bytes).unwrap_or(&[]))
        })
    }

    /// Whether any fact satisfies `is`, which gets the address of its type.
    #[inline(always)]
    fn any(&self, is: impl Fn(*const u8) -> bool) -> bool {
        let Some(packet) = self.kept() else {
            return false;
        };
        let written = packet.written.load(Ordering::Relaxed);
        let mut at = T::LAYOUT.header_bytes() as u32;
        while at < written {
            let found = packet.memory.address(at + Self::TIMES as u32);
            if is(found) {
                return true;
            }
            // SAFETY: before `written` there are whole facts, to which nobody writes, and one begins here.
            let length = unsafe { found.add(2).cast::<[u8; 2]>().read() };
            let length = match T::LAYOUT.order {
                ByteOrder::Little => u16::from_le_bytes(length),
                ByteOrder::Big => u16::from_be_bytes(length),
            };
            at += Self::HEADER as u32 + u32::from(length);
        }
        false
    }

    /// Updates the packet's header.
    #[inline(never)]
    fn complete(&self) {
        let Some(packet) = self.kept() else {
            return;
        };
        let content = packet.written.load(Ordering::Relaxed);
        let place = packet.memory.address(0);
        packet.memory.written(0);
        // SAFETY: there is memory, which begins with a header.
        unsafe {
            let discarded = self.discarded();
            Memory::<T>::put32(place, PacketHeader::DISCARDED_OFFSET, discarded);
            Header::end::<T>(place, packet.last.get(), content);
        }
    }

    /// Updates the packet and seals it for a reader, or unseals it. Facts may still be added while it is sealed; the
    /// reader does not see them.
    pub fn seal(&self, sealed: bool) {
        let Some(packet) = self.kept() else {
            return;
        };
        self.complete();
        packet.sealed.set(sealed);
    }

    /// The packet; empty if there is no memory for it.
    ///
    /// # Safety
    /// It is [sealed](Self::seal) as long as the slice is used.
    pub unsafe fn packet(&self) -> &[u8] {
        let Some(packet) = self.kept() else {
            return &[];
        };
        let header = T::LAYOUT.header_bytes() as u32;
        // SAFETY: nobody writes to a sealed header.
        let header = unsafe { packet.memory.slice(0, header) };
        let length = PacketHeader::read_content(T::LAYOUT.order, header).unwrap_or(0) as u32;
        // SAFETY: additions to a sealed packet are written behind this.
        unsafe { packet.memory.slice(0, length) }
    }
}

impl<T: Target> Default for Metadata<T> {
    fn default() -> Self {
        Self::new()
    }
}
