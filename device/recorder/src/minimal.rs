//! The minimal recorder: records only calls, on one processor, for targets that have 1.5 KiB for it.
//!
//! It has the same hooks as the others ([`hot`](crate::hot)) and writes the same packets, with a smaller slow path than
//! [`single`](crate::single)'s. It lacks: link, names, profile table, trigger and stopper, the program's own events,
//! and the count of calls, so all its packets are [nested](PacketHeader::FLAG_NESTED). Machine words have 32 bits, and
//! so does the clock: an up-counting register.
//!
//! Packets are read from memory only. [`set_recording`](Minimal::set_recording)ing recording off closes the packet, so that all packets
//! state their length; while recording is on, the newest one's records end at the cursor's [`at`](Cursor::at).
//!
//! The slow path writes records by the same functions as hooks ([`Cursor`]), always in the long forms, which need no
//! choice: it is rare. (Through [`Stream`](crate::encode::Stream), the slow path of the larger recorders, hooks alone take
//! 6,120 bytes in the place of 1,348.)

use core::cell::Cell;
use core::ptr::null_mut;

use kymo_wire::event::{
    ByteOrder, Cause, EventId, Form, OTHER_BYTES, PacketHeader, Shape, WordSize,
};

use crate::Edge;
use crate::buffer::{MAX_PACKET, MIN_PACKET};
use crate::config::{CONFIG_VERSION, Config, FIXED, START_ON};
use crate::gate::Look;
use crate::header::Header;
use crate::hot::{CODE_BIT, Cursor, Hot, distance, low};
use crate::memory::Memory;
use crate::single::SinglePort;

/// Distance from the last record at which a tick writes a `time` record: a quarter of the 32-bit wraparound, so that
/// the next tick is still in time.
const FAR: usize = 1 << 30;

/// The recorder behind a [`Hot`]. All zero at first.
///
/// All methods may be called from any context, except from those that can't be masked.
#[derive(Debug)]
pub struct Minimal<P> {
    port: P,
    /// Whether the configuration was applied.
    ready: Cell<bool>,
    /// A time before that of the last record, by less than half a wraparound of 32 bits, or equal to it.
    time: Cell<u64>,
    /// Start of the newest packet; null before the first one.
    start: Cell<*mut u8>,
    /// Bound of the slow path's writes to it; null while no packet is open.
    limit: Cell<*mut u8>,
    /// Number of packets begun.
    begun: Cell<u32>,
    /// Number of events lost because a fixed buffer was full.
    discarded: Cell<u32>,
}

// SAFETY: everything is used with interrupts masked only, on the one processor.
unsafe impl<P: Sync> Sync for Minimal<P> {}

/// A record of the slow path.
#[derive(Clone, Copy)]
enum Record {
    /// Entry of this function.
    Enter(usize),
    Exit,
    /// Recording was turned on, or off.
    Recording(bool),
    /// Only a time.
    Time,
}

/// Most bytes that the slow path writes for one event: a time, and the entry of a function without a number.
const MOST: usize = 8 + OTHER_BYTES + 4;

impl<P: SinglePort> Minimal<P> {
    const HEADER: usize = P::LAYOUT.header_bytes();

    /// A recorder that the first hook sets up. All zero if `port` is.
    pub const fn new(port: P) -> Self {
        const {
            assert!(matches!(P::LAYOUT.word, WordSize::Bits32));
            assert!(matches!(P::LAYOUT.shape, Shape::Compact));
        }
        Self {
            port,
            ready: Cell::new(false),
            time: Cell::new(0),
            start: Cell::new(null_mut()),
            limit: Cell::new(null_mut()),
            begun: Cell::new(0),
            discarded: Cell::new(0),
        }
    }

    /// The processor's port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The compiler's hooks, where there are none in assembly: `function` was entered or exited.
    #[inline(always)]
    pub fn call(&self, hot: &Hot, config: &Config, edge: Edge, function: usize) {
        if hot.gate.look() != Look::Open {
            return;
        }
        let was = self.port.mask();
        // SAFETY: `end` is within the open packet; interrupts are masked.
        let done = hot.cursor.is_open()
            && unsafe {
                let now = self.counter(&hot.cursor) as usize;
                match edge {
                    Edge::Enter => hot.cursor.enter::<P>(now, function),
                    Edge::Exit => hot.cursor.exit::<P>(now),
                }
            };
        self.port.unmask(was);
        if !done {
            self.slow_call(hot, config, edge, function);
        }
    }

    /// Slow path of the hooks. `function` is without [`CODE_BIT`].
    #[inline(always)]
    pub fn slow_call(&self, hot: &Hot, config: &Config, edge: Edge, function: usize) {
        let record = match edge {
            Edge::Enter => Record::Enter(function),
            Edge::Exit => Record::Exit,
        };
        self.slow(hot, config, record);
    }

    /// Turns recording on or off. While it is off, every packet in the buffer is complete.
    pub fn set_recording(&self, hot: &Hot, config: &Config, on: bool) {
        let was = self.port.mask();
        // The set-up determines whether recording is on, so it comes first.
        if self.set_up(hot, config) && (hot.gate.look() == Look::Open) != on {
            hot.gate.set_word(true);
            self.record(hot, config, Record::Recording(on));
            if !on {
                self.close(&hot.cursor);
                hot.gate.set_word(false);
            }
        }
        self.port.unmask(was);
    }

    /// Tick for a periodic interrupt, at least four times per wraparound of the counter: maintains the clock's upper
    /// bits while nothing else is recorded.
    pub fn tick(&self, hot: &Hot, config: &Config) {
        let was = self.port.mask();
        if self.ready.get() {
            let cursor = &hot.cursor;
            let now = self.now(cursor);
            if distance::<P>(low::<P>(now), cursor.last.get()) >= FAR {
                if self.limit.get().is_null() {
                    self.keep(cursor, now);
                } else {
                    self.record(hot, config, Record::Time);
                }
            }
        }
        self.port.unmask(was);
    }

    /// Records one event; masks interrupts.
    #[inline(never)]
    fn slow(&self, hot: &Hot, config: &Config, record: Record) {
        let was = self.port.mask();
        // Hooks also call this before RAM is initialized: then the word is unlikely to be the right one.
        if hot.gate.look() == Look::Open
            && self.set_up(hot, config)
            && hot.gate.look() == Look::Open
        {
            self.record(hot, config, record);
        }
        self.port.unmask(was);
    }

    /// Applies the configuration if that has not been done; returns false if it is unusable. Then nothing will ever be
    /// recorded.
    #[inline(never)]
    fn set_up(&self, hot: &Hot, config: &Config) -> bool {
        if self.ready.get() {
            return true;
        }
        let cursor = &hot.cursor;
        let counter = if config.counter.is_null() {
            self.port.find_register()
        } else {
            Some(config.counter)
        };
        let buffer = config.buffer as usize;
        let usable = config.version == CONFIG_VERSION
            && buffer != 0
            && (buffer | config.packet_size as usize).is_multiple_of(8)
            && (MIN_PACKET..=MAX_PACKET).contains(&config.packet_size)
            && config.buffer_size / 2 >= config.packet_size;
        let (Some(counter), true) = (counter, usable) else {
            hot.gate.set_word(false);
            return false;
        };
        cursor.counter.set(counter);
        cursor.text_base.set(config.text_base as usize | CODE_BIT);
        let shift = match config.function_shift {
            shift @ 1..=31 => shift as usize,
            _ => P::LAYOUT.function_shift as usize,
        };
        cursor.function_shift.set(shift);
        let now = self.counter(cursor);
        self.keep(cursor, now.into());
        hot.gate.set_word(config.flags & START_ON != 0);
        self.ready.set(true);
        true
    }

    /// Reads the counter, with interrupts masked.
    #[inline(always)]
    fn counter(&self, cursor: &Cursor) -> u32 {
        // SAFETY: the program, or the port, names a counter that may be read at any time.
        unsafe { self.port.read(cursor.counter.get()) }
    }

    /// The time of the last record.
    #[inline(always)]
    fn last(&self, cursor: &Cursor) -> u64 {
        let time = self.time.get();
        let last = cursor.last.get() as u32;
        time.wrapping_add(last.wrapping_sub(time as u32).into())
    }

    /// The current time.
    #[inline(always)]
    fn now(&self, cursor: &Cursor) -> u64 {
        let last = self.last(cursor);
        let now = self.counter(cursor);
        last.wrapping_add(now.wrapping_sub(last as u32).into())
    }

    /// Restarts the time at `now`.
    #[inline(always)]
    fn keep(&self, cursor: &Cursor, now: u64) {
        self.time.set(now);
        cursor.last.set(low::<P>(now));
    }

    /// Writes a record, with interrupts masked.
    #[inline(never)]
    fn record(&self, hot: &Hot, config: &Config, record: Record) {
        let shape = P::LAYOUT.shape;
        let cursor = &hot.cursor;
        let now = self.now(cursor);
        if cursor.at() >= self.limit.get() && !self.change_packet(cursor, config, now) {
            let lost = u32::from(!matches!(record, Record::Time));
            self.discarded.set(self.discarded.get().wrapping_add(lost));
            // The newest packet reports the losses behind it. There is one, otherwise a slot would be free.
            // SAFETY: the packet's header is ours.
            unsafe {
                Memory::<P>::put32(
                    self.start.get(),
                    PacketHeader::DISCARDED_OFFSET,
                    self.discarded.get(),
                );
            }
            return;
        }
        let short = low::<P>(now);
        let far = distance::<P>(short, cursor.last.get()) >> shape.time_bits(Form::EnterLong) != 0;
        // SAFETY: below the limit there is room for all that one call of this function writes.
        unsafe {
            if far || matches!(record, Record::Time) {
                cursor.write_time::<P>(now);
            }
            match record {
                Record::Enter(function) => {
                    let number = cursor.number::<P>(function);
                    if number as u64 >> shape.function_bits(Form::EnterLong) == 0 {
                        cursor.write::<P>(Form::EnterLong, short, number as u32);
                    } else {
                        cursor.write_other::<P>(EventId::EnterFar, short, function as u64, 4);
                    }
                }
                Record::Exit => cursor.write::<P>(Form::ExitLong, short, 0),
                Record::Recording(on) => {
                    let fields = [on.into(), Cause::Command as u8];
                    let fields = match P::LAYOUT.order {
                        ByteOrder::Little => u16::from_le_bytes(fields),
                        ByteOrder::Big => u16::from_be_bytes(fields),
                    };
                    cursor.write_other::<P>(EventId::Recording, short, fields.into(), 2);
                }
                Record::Time => {}
            }
        }
        self.time.set(now);
    }

    /// Closes the open packet, if there is one.
    fn close(&self, cursor: &Cursor) {
        if self.limit.get().is_null() {
            return;
        }
        let start = self.start.get();
        let content = (cursor.at() as usize).wrapping_sub(start as usize) as u32;
        // SAFETY: the packet's header is ours.
        unsafe { Header::end::<P>(start, self.last(cursor), content) };
        self.limit.set(null_mut());
        cursor.close();
    }

    /// Closes the open packet and begins the next one at `now`; returns false if there is no free slot.
    fn change_packet(&self, cursor: &Cursor, config: &Config, now: u64) -> bool {
        self.close(cursor);
        let size = config.packet_size as usize;
        let buffer: *mut u8 = config.buffer.cast();
        let end = buffer.wrapping_add(config.buffer_size as usize);
        let newest = self.start.get();
        let mut start = buffer;
        if !newest.is_null() {
            start = newest.wrapping_add(size);
            if start.wrapping_add(size) > end {
                if config.flags & FIXED != 0 {
                    return false;
                }
                start = buffer;
            }
        }
        let flags = PacketHeader::flags_byte(P::LAYOUT.order, PacketHeader::FLAG_NESTED, 0);
        let identity = u32::from_be_bytes([0, flags, 0, 0]);
        let identity = match P::LAYOUT.order {
            ByteOrder::Little => identity.swap_bytes(),
            ByteOrder::Big => identity,
        };
        let begun = self.begun.get();
        let header = Header {
            identity,
            sequence: begun,
            discarded: 0,
            now,
            thread: 0,
        };
        // SAFETY: a slot has room for a header, and its offset in the buffer is a multiple of 8 bytes.
        unsafe { header.begin::<P>(start) };
        self.begun.set(begun.wrapping_add(1));
        self.start.set(start);
        let place_end = start.wrapping_add(size);
        self.limit.set(place_end.wrapping_sub(MOST - 1));
        cursor.commit(start.wrapping_add(Self::HEADER), low::<P>(now));
        self.time.set(now);
        // This recorder does not count calls; where the portable hooks do, an exit at 0 takes the slow path.
        cursor.depth.set(1);
        cursor.open(place_end as usize - (P::LAYOUT.fast_bytes() - 1), true);
        true
    }
}
