//! Variable-size records that the program writes in place: it reserves, fills, and commits or discards them.
//!
//! A reserved record is in the stream from the start, as a complete record whose type says that it is not finished
//! ([`UNFINISHED`]). Other events are recorded behind it meanwhile, and no context ever waits; a reader that comes too
//! early sees that a record was being written, and its length, and skips it. Committing is one store, of the type.
//! Discarding removes the record, with the `time` record that was written for it, if it is the last one; otherwise it
//! remains unfinished. (It also remains so if it is the last one again because nested reservations behind it have been
//! discarded, and more than one of them was open at once: only the last two reservations can be removed.)
//!
//! A record that is being filled must not be overwritten, so a packet with a reserved record keeps its slot: when the
//! ring wraps around to it, events are discarded (and counted) until the program commits the record. In mode *stream*
//! the reader does not get the packet before that either. Programs should not keep a reservation for long.

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

/// Most bytes that a record has besides its data.
const AROUND: usize = OTHER_BYTES + BLOCK_ALIGN + HEAD;

/// The driver has stopped recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shut;

/// How to remove a reserved record from the stream.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Where the stream ended before it; null: it can't be removed.
    at: *mut u8,
    /// Time of the last record before it, truncated by [`low`](crate::hot::low): on 32-bit targets it was less than
    /// 2^32 ticks earlier.
    last: usize,
}

impl Undo {
    /// The record can't be removed.
    const NONE: Self = Self {
        at: null_mut(),
        last: 0,
    };
}

/// How to remove the last reserved record, and the one before that.
#[derive(Debug)]
pub(crate) struct Undos {
    newest: Cell<Undo>,
    other: Cell<Undo>,
}

impl Undos {
    /// None can be removed. All zero.
    pub const fn new() -> Self {
        Self {
            newest: Cell::new(Undo::NONE),
            other: Cell::new(Undo::NONE),
        }
    }
}

/// State of the stream before a record is reserved.
#[derive(Clone, Copy)]
struct Before {
    /// Where the stream ended.
    seen: Seen,
    /// The number of packets begun.
    packet: u32,
    /// The upper half of the last time.
    upper: u32,
}

/// Addresses of a record that is about to be reserved.
struct Block {
    /// Where the record begins.
    at: *mut u8,
    /// Address of type and length.
    head: *mut u32,
    /// Type and length, as stored.
    value: u32,
    /// End of the record.
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

/// Address of the data of a record that begins at `at`.
fn data_of(at: *mut u8) -> *mut u8 {
    let behind = at.wrapping_add(OTHER_BYTES);
    let padding = (behind as usize).wrapping_neg() % BLOCK_ALIGN;
    behind.wrapping_add(padding + HEAD)
}

impl<T: Target> Stream<T> {
    /// Reserves a record at `now` with `length` bytes of data, where no other context can interrupt. Returns the
    /// address of the data: aligned to [`BLOCK_ALIGN`], contents unspecified. Returns null, and counts a discarded
    /// event, if there is no room or never could be. The caller must [commit](Self::commit_block) or
    /// [discard](Self::discard_block) the record.
    pub fn reserve_block(&self, now: u64, length: usize) -> *mut u8 {
        let reserved = self.reserve_block_by(&Alone::at(self, now), length);
        reserved.unwrap_or(null_mut())
    }

    /// The same in the steps of a driver. Fails if that has stopped recording.
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
        // Including a preceding `time` record, and the most padding there can be.
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

    /// Whether there is a `time` record at this address.
    fn is_time(at: *mut u8) -> bool {
        // SAFETY: the stream ends behind it, in the same packet.
        Form::of(T::LAYOUT.order, unsafe { at.read() }) == Form::Time
    }

    /// Writes an unfinished record without its data, reserves its packet and notes how to remove the record, where no
    /// other context can interrupt. `None` if there is no room, or if the last record's time is too far away; null,
    /// counted as discarded, if too many records are being filled.
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
            // The padding, and bytes that the next store overwrites.
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

    /// Makes the record just reserved removable together with the `time` record before it, if that was written for it.
    /// (A packet that was begun for it remains.) Not possible where that would need more than the lower half of the
    /// previous time.
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

    /// Upper half of the last known time, which is not after the last record's.
    fn upper(&self) -> u32 {
        (self.known_last() >> 32) as u32
    }

    /// Finishes a reserved record: sets its type (not [`UNFINISHED`]).
    ///
    /// # Safety
    /// `data` came from [`reserve_block`](Self::reserve_block), and is used for the last time.
    pub unsafe fn commit_block(&self, data: *mut u8, kind: u16) {
        // SAFETY: by this function's contract.
        unsafe { Self::name_block(data, kind) };
        self.buffer().unpin(data, false);
    }

    /// The same while the stream's writer may be running; with the type [`UNFINISHED`] the record remains unfinished.
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

    /// Discards a reserved record: removes it if nothing was recorded since, otherwise leaves it unfinished.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    pub unsafe fn discard_block(&self, data: *mut u8) {
        self.take_back(&Alone::at(self, self.last()), data);
        self.buffer().unpin(data, false);
    }

    /// [Commits](Self::commit_block) a record in the steps of a driver or, if the type is [`UNFINISHED`],
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
        // Data before type, for a reader of memory at any time.
        compiler_fence(Ordering::Release);
        // SAFETY: the type stands four bytes before the data, which is aligned to four.
        unsafe { data.sub(HEAD).cast::<u16>().write_volatile(kind) };
    }

    /// Ends the stream before the record with this data, if that is the last one.
    #[inline(always)]
    fn take_back(&self, driver: &impl Driver, data: *mut u8) {
        let (Some(cursor), Undos { newest, other }) = (self.cursor(), &self.undos) else {
            return;
        };
        // A context that interrupts here leaves this unchanged, or leaves a record behind ours.
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
                    // The slow path knows the whole time.
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
