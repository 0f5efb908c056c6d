//! Records of the program's own, of any size, written in place: reserved, filled, committed or
//! discarded.
//!
//! A reserved record stands in the stream as a whole one from the beginning on, but its type says
//! that it is not finished ([`UNFINISHED`]). So whoever records
//! meanwhile just goes on behind it, and nobody ever waits; a reader that comes too early sees that
//! something was being written, and how long it is, and passes over it. To commit is one store, of the
//! type. To discard takes the record back if nothing stands behind it, and its time with it; else it
//! stays unfinished for good (also if what stood behind it has been taken back that came just while it was
//! reserved).
//!
//! What is being filled must not be overwritten. So a packet with a reserved record in it keeps its
//! place: if the ring comes round to it, events are discarded (and counted) until the record is
//! committed; in mode *stream* the reader does not get the packet before. Who reserves should not be
//! long.

use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering, compiler_fence};

use kymo_wire::event::{
    BLOCK_ALIGN, ByteOrder, EventId, Form, OTHER_BITS, OTHER_BYTES, Shape, UNFINISHED, WordSize,
};

use super::{Alone, Depth, Driver, Found, Need, Seen, Stream, Tries};
use crate::Target;
use crate::hot::{Cursor, distance, store};
use crate::unaligned::put32;

/// `u16 type, u16 length`.
const HEAD: usize = 4;

/// What stands around the data, at most.
const AROUND: usize = OTHER_BYTES + BLOCK_ALIGN + HEAD;

/// The driver says that nothing is to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shut;

/// How to take a reserved record back.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Where the stream ended before it; null: it can't be.
    at: *mut u8,
    /// The time of the last record before it, cut by [`low`](crate::hot::low): on 32-bit targets that was less
    /// than 2^32 ticks before.
    last: usize,
}

impl Undo {
    /// It can't be.
    const NONE: Self = Self {
        at: null_mut(),
        last: 0,
    };
}

/// The last reserved record and the one before that, if those can be taken back.
#[derive(Debug)]
pub(crate) struct Undos {
    newest: Cell<Undo>,
    other: Cell<Undo>,
}

impl Undos {
    /// None. All zero.
    pub const fn new() -> Self {
        Self {
            newest: Cell::new(Undo::NONE),
            other: Cell::new(Undo::NONE),
        }
    }
}

/// What was there before a record was to be reserved.
#[derive(Clone, Copy)]
struct Before {
    /// Where the stream ended.
    seen: Seen,
    /// How many packets there were.
    packet: u32,
    /// The upper half of the time.
    upper: u32,
}

/// A record that is to be reserved: where everything goes.
struct Block {
    /// Where the record begins.
    at: *mut u8,
    /// Type and length.
    head: *mut u32,
    /// Both, as they stand there.
    value: u32,
    /// Where the record ends.
    end: *mut u8,
}

impl Block {
    fn new<T: Target>(at: *mut u8, length: usize) -> Self {
        let data = data_of(at);
        let length_and_type = match T::LAYOUT.order {
            ByteOrder::Little => (u32::from(UNFINISHED) | (length as u32) << 16).to_le(),
            ByteOrder::Big => (u32::from(UNFINISHED) << 16 | length as u32).to_be(),
        };
        Self {
            at,
            head: data.wrapping_sub(HEAD).cast(),
            value: length_and_type,
            end: data.wrapping_add(length),
        }
    }
}

/// Where the data of a record goes that begins at `at`.
fn data_of(at: *mut u8) -> *mut u8 {
    let behind = at.wrapping_add(OTHER_BYTES);
    let padding = (behind as usize).wrapping_neg() % BLOCK_ALIGN;
    behind.wrapping_add(padding + HEAD)
}

impl<T: Target> Stream<T> {
    /// Reserves a record at `now` with room for `length` bytes, where nobody comes in between, and
    /// returns where they go: aligned to [`BLOCK_ALIGN`], anything in them. Null if there is no room,
    /// or could never be: that is counted. It has to be [committed](Self::commit_block) or
    /// [discarded](Self::discard_block).
    pub fn reserve_block(&self, now: u64, length: usize) -> *mut u8 {
        let reserved = self.reserve_block_by(&Alone::at(self, now), length);
        reserved.unwrap_or(null_mut())
    }

    /// The same in a driver's steps. An error if that says that nothing is to be recorded.
    #[inline(always)]
    pub(crate) fn reserve_block_by<D: Driver>(
        &self,
        driver: &D,
        length: usize,
    ) -> Result<*mut u8, Shut> {
        let Some(cursor) = self.cursor() else {
            return Ok(null_mut());
        };
        let most = self.buffer().packet_bytes() as usize;
        // With a `time` record before it, and as much padding as there ever is.
        let around = T::LAYOUT.header_bytes() + 8 + AROUND;
        if length > usize::from(u16::MAX) || around + length > most {
            driver.apart(|| self.add_discarded(1));
            return Ok(null_mut());
        }
        let need = Need {
            bytes: (AROUND + length) as u32,
            bits: OTHER_BITS,
            depth: Depth::Stays,
        };
        let before = Before {
            seen: Seen::now(cursor),
            packet: self.buffer().begun(),
            upper: self.upper(),
        };
        let mut tries = Tries::default();
        while !tries.are_over::<D>() {
            let mut data = null_mut();
            let done = driver.attempt(|now| {
                // SAFETY: the cursor is ours, and the driver keeps others away.
                let put = unsafe { self.put_block(cursor, now, length) };
                data = put.unwrap_or(data);
                if put.is_some() {
                    self.note_time(cursor, before);
                }
                put.is_some()
            });
            if done {
                return Ok(data);
            }
            match driver.room(need) {
                Found::Again => {}
                Found::Full => return Ok(null_mut()),
                Found::Shut => return Err(Shut),
            }
        }
        driver.apart(|| {
            driver.doubt();
            self.add_discarded(1);
        });
        Ok(null_mut())
    }

    /// Whether a `time` record stands there.
    fn is_time(at: *mut u8) -> bool {
        // SAFETY: the stream ends behind it, in the same packet.
        Form::of(T::LAYOUT.order, unsafe { at.read() }) == Form::Time
    }

    /// Writes all of an unfinished record but its data, pins its packet, and notes how it is taken back, where nobody
    /// comes in between. `None` if there is no room for it, or it is too far away; null, which is counted, if too many
    /// are being filled.
    ///
    /// # Safety
    /// Below the cursor's limit there is memory that nobody else writes, and the record has less than 2^16 bytes.
    #[inline(never)]
    pub(crate) unsafe fn put_block(
        &self,
        cursor: &Cursor,
        now: usize,
        length: usize,
    ) -> Option<*mut u8> {
        let (order, limit, seen) = (T::LAYOUT.order, cursor.limit(), Seen::now(cursor));
        let block = Block::new::<T>(seen.at(), length);
        let far = distance::<T>(now, seen.last()) >> OTHER_BITS != 0;
        if limit == 0 || block.end as usize >= limit + T::LAYOUT.fast_bytes() || far {
            return None;
        }
        if !self.buffer().pin() {
            self.add_discarded(1);
            return Some(null_mut());
        }
        // SAFETY: as was seen there is room for all of it.
        unsafe {
            let header = Shape::other_header(order, EventId::Block, now as u64);
            store(order, block.at, header, OTHER_BYTES);
            // The padding, and what is stored next.
            put32(block.at.wrapping_add(OTHER_BYTES), 0);
            put32(block.head.cast(), block.value);
        }
        cursor.commit(block.end, now);
        let Undos { newest, other } = &self.undos;
        other.set(newest.get());
        newest.set(Undo {
            at: seen.at(),
            last: seen.last(),
        });
        Some(block.head.wrapping_add(1).cast())
    }

    /// The record that has just been reserved is taken back with the `time` record before it, if that was made for it. (A
    /// packet that was begun for it stays.) Unless more than the lower half of the time before it would have to be known.
    fn note_time(&self, cursor: &Cursor, before: Before) {
        let newest = &self.undos.newest;
        let start = newest.get();
        let near = T::LAYOUT.word == WordSize::Bits64
            || before.upper == self.upper() && start.last <= cursor.last.get();
        if near
            && start.at == before.seen.at().wrapping_add(8)
            && before.packet == self.buffer().begun()
            && Self::is_time(before.seen.at())
        {
            newest.set(Undo {
                at: before.seen.at(),
                last: before.seen.last(),
            });
        }
    }

    /// The upper half of the last time that is known, which is not after the last record's.
    fn upper(&self) -> u32 {
        (self.known_last() >> 32) as u32
    }

    /// Finishes a reserved record: from now on it is there, with this type (not [`UNFINISHED`]).
    ///
    /// # Safety
    /// `data` came from [`reserve_block`](Self::reserve_block), and is used for the last time.
    pub unsafe fn commit_block(&self, data: *mut u8, kind: u16) {
        // SAFETY: by this function's contract.
        unsafe { Self::name_block(data, kind) };
        self.buffer().unpin(data, false);
    }

    /// The same while the stream's writer may be at work; of the type [`UNFINISHED`] it stays so.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) unsafe fn commit_block_elsewhere(&self, data: *mut u8, kind: u16) {
        if kind != UNFINISHED {
            // SAFETY: by this function's contract.
            unsafe { Self::name_block(data, kind) };
        }
        self.buffer().unpin(data, true);
    }

    /// Takes a reserved record back: wholly if nothing was recorded since. Else it stays where it is,
    /// unfinished.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    pub unsafe fn discard_block(&self, data: *mut u8) {
        self.take_back(&Alone::at(self, self.last()), data);
        self.buffer().unpin(data, false);
    }

    /// [Commits](Self::commit_block) a record in a driver's steps, or if the type is [`UNFINISHED`]
    /// [discards](Self::discard_block) it.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    #[inline(always)]
    pub(crate) unsafe fn finish_block_by(&self, driver: &impl Driver, data: *mut u8, kind: u16) {
        if kind == UNFINISHED {
            self.take_back(driver, data);
        } else {
            // SAFETY: by this function's contract.
            unsafe { Self::name_block(data, kind) };
        }
        driver.apart(|| self.buffer().unpin(data, false));
    }

    /// Stores the type of a reserved record.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    #[inline(always)]
    unsafe fn name_block(data: *mut u8, kind: u16) {
        let kind = match T::LAYOUT.order {
            ByteOrder::Little => kind.to_le(),
            ByteOrder::Big => kind.to_be(),
        };
        // What was filled in comes before that it is there, for who looks at memory at any moment.
        compiler_fence(Ordering::Release);
        // SAFETY: the type stands four bytes before the data, which is aligned to four.
        unsafe { data.sub(HEAD).cast::<u16>().write_volatile(kind) };
    }

    /// Ends the stream where it was before the record with this data, if that is the last one.
    #[inline(always)]
    fn take_back(&self, driver: &impl Driver, data: *mut u8) {
        let (Some(cursor), Undos { newest, other }) = (self.cursor(), &self.undos) else {
            return;
        };
        // Who comes in between leaves this as it is, or something behind the record.
        let undo = newest.get();
        let mut start = undo.at;
        if start.is_null() {
            return;
        }
        let timed = Self::is_time(start);
        if timed {
            start = start.wrapping_add(8);
        }
        if data_of(start) != data {
            return;
        }
        // SAFETY: a reserved record begins with its length.
        let length = unsafe { data.sub(2).cast::<u16>().read() };
        let length = match T::LAYOUT.order {
            ByteOrder::Little => u16::from_le(length),
            ByteOrder::Big => u16::from_be(length),
        };
        let end = data.wrapping_add(length.into());
        driver.apart(|| {
            if self.is_open() && cursor.at() == end {
                newest.set(other.get());
                let ago = distance::<T>(cursor.last.get(), undo.last);
                self.set_last(self.sync(cursor).wrapping_sub(ago as u64));
                cursor.commit(undo.at, undo.last);
                if timed {
                    // The slow path knows how long ago that was.
                    cursor.close();
                }
            }
        });
    }

    /// Whether there are reserved records.
    pub fn is_reserved(&self) -> bool {
        self.buffer().is_pinned()
    }
}
