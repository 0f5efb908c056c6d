//! Records of the program's own, of any size, written in place: reserved, filled, committed or
//! discarded.
//!
//! A reserved record stands in the stream as a whole one from the beginning on, but its type says
//! that it is not finished ([`UNFINISHED`]). So whoever records
//! meanwhile just goes on behind it, and nobody ever waits; a reader that comes too early sees that
//! something was being written, and how long it is, and passes over it. To commit is one store, of the
//! type. To discard takes the record back if nothing stands behind it, and its time with it; else it
//! stays unfinished for good.
//!
//! What is being filled must not be overwritten. So a packet with a reserved record in it keeps its
//! place: if the ring comes round to it, events are discarded (and counted) until the record is
//! committed; in mode *stream* the reader does not get the packet before. Who reserves should not be
//! long.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use kymo_wire::event::{BLOCK_ALIGN, ByteOrder, EventId, Form, Layout, UNFINISHED};

use crate::Target;
use crate::encode::{Alone, Depth, Driver, Found, Need, Stream};
use crate::hot::{Cursor, distance, low, store};
use crate::unaligned::put32;

/// How many reserved records can be taken back again, each when nothing stands behind it.
const UNDOS: usize = 2;

/// `u16 type, u16 length`.
const HEAD: usize = 4;

/// The driver says that nothing is to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shut;

/// How to take a reserved record back.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Where the record ends.
    end: *mut u8,
    /// Where the stream ended before it.
    at: *mut u8,
    /// The time of the last record before it.
    last: u64,
}

/// The reserved records that can be taken back: those at the end of the stream, the last one last.
#[derive(Debug)]
pub(crate) struct Undos {
    undos: [Cell<Undo>; UNDOS],
    count: Cell<u8>,
}

impl Undos {
    pub const fn new() -> Self {
        const NONE: Undo = Undo {
            end: core::ptr::null_mut(),
            at: core::ptr::null_mut(),
            last: 0,
        };
        Self {
            undos: [const { Cell::new(NONE) }; UNDOS],
            count: Cell::new(0),
        }
    }

    fn last(&self) -> Option<Undo> {
        let last = usize::from(self.count.get()).checked_sub(1)?;
        self.undos.get(last).map(Cell::get)
    }

    fn push(&self, undo: Undo) {
        // What does not end where this begins has something behind it, and stays.
        if self.last().is_some_and(|last| last.end != undo.at) {
            self.count.set(0);
        }
        if let Some(place) = self.undos.get(usize::from(self.count.get())) {
            place.set(undo);
            self.count.set(self.count.get() + 1);
        }
    }
}

impl<T: Target> Stream<T> {
    /// Reserves a record at `now` with room for `length` bytes, where nobody comes in between, and
    /// returns where they go: aligned to [`BLOCK_ALIGN`], anything in them. `None` if there is no room,
    /// or could never be: that is counted. It has to be [committed](Self::commit_block) or
    /// [discarded](Self::discard_block).
    pub fn reserve_block(&self, now: u64, length: usize) -> Option<*mut u8> {
        self.reserve_block_by(&Alone::at(self, now), length).ok()?
    }

    /// The same in a driver's steps. An error if that says that nothing is to be recorded.
    #[inline(always)]
    pub(crate) fn reserve_block_by(
        &self,
        driver: &impl Driver,
        length: usize,
    ) -> Result<Option<*mut u8>, Shut> {
        let Some(cursor) = self.cursor() else {
            return Ok(None);
        };
        let most = self.buffer().packet_bytes() as usize;
        // With a `time` record before it, and as much padding as there ever is.
        let around = T::LAYOUT.header_bytes() + 8 + Self::AROUND;
        if length > usize::from(u16::MAX) || around + length > most {
            self.add_discarded(1);
            return Ok(None);
        }
        let need = Need {
            bytes: (Self::AROUND + length) as u32,
            bits: T::LAYOUT.shape.time_bits(Form::Other),
            depth: Depth::Stays,
        };
        let before = Cell::new(None);
        let data = Cell::new(core::ptr::null_mut());
        loop {
            let done = driver.attempt(|now| {
                let first = (cursor.at(), self.last(), self.buffer().begun());
                let before = before.get().unwrap_or_else(|| {
                    before.set(Some(first));
                    first
                });
                // SAFETY: the cursor is ours, and the driver keeps others away.
                let found = unsafe { self.put_block(cursor, now, length, before) };
                data.set(found.unwrap_or(core::ptr::null_mut()));
                found.is_some()
            });
            if done {
                return Ok(Some(data.get()));
            }
            match driver.room(need) {
                Found::Again => {}
                Found::Full => return Ok(None),
                Found::Shut => return Err(Shut),
            }
        }
    }

    /// Writes all of an unfinished record but its data, and returns where that goes; `None` if there is
    /// no room for it, or it is too far away. `before`: where the stream ended before anything was done
    /// for it, at which time, and in which packet.
    ///
    /// # Safety
    /// Below the cursor's limit there is memory that nobody else writes.
    unsafe fn put_block(
        &self,
        cursor: &Cursor,
        now: usize,
        length: usize,
        before: (*mut u8, u64, u32),
    ) -> Option<*mut u8> {
        let Layout { shape, order, .. } = T::LAYOUT;
        let at = cursor.at();
        let limit = cursor.limit();
        let far = distance::<T>(now, cursor.last.get()) >> shape.time_bits(Form::Other) != 0;
        if limit == 0
            || at as usize + Self::AROUND + length >= limit + T::LAYOUT.fast_bytes()
            || far
        {
            return None;
        }
        let last = self.last();
        // A packet that was begun for it stays; a `time` record does not.
        let undo = match before {
            (from, last, packet)
                if packet == self.buffer().begun()
                    && at == from.wrapping_add(8)
                    // SAFETY: a record stands there, as the stream ends behind it in the same packet.
                    && Form::of(order, unsafe { from.read() }) == Form::Time =>
            {
                (from, last)
            }
            _ => (at, last),
        };
        let header = shape.bytes(Form::Other);
        let behind = at.wrapping_add(header);
        let padding = (behind as usize).wrapping_neg() % BLOCK_ALIGN;
        let data = behind.wrapping_add(padding + HEAD);
        let head = match order {
            ByteOrder::Little => (u32::from(UNFINISHED) | (length as u32) << 16).to_le(),
            ByteOrder::Big => (u32::from(UNFINISHED) << 16 | length as u32).to_be(),
        };
        // SAFETY: as was seen there is room for all of it.
        unsafe {
            let record = shape.other_header(order, EventId::Block, now as u64);
            store(order, at, record, header);
            // The padding, and what is stored next.
            put32(behind, 0);
            put32(data.sub(HEAD), head);
        }
        let end = data.wrapping_add(length);
        cursor.commit(end, now);
        let (at, last) = undo;
        self.undos.push(Undo { end, at, last });
        self.buffer().pin();
        Some(data)
    }

    /// What stands around the data, at most.
    const AROUND: usize = T::LAYOUT.shape.bytes(Form::Other) + BLOCK_ALIGN + HEAD;

    /// Finishes a reserved record: from now on it is there, with this type (not [`UNFINISHED`]).
    ///
    /// # Safety
    /// `data` came from [`reserve_block`](Self::reserve_block), and is used for the last time.
    pub unsafe fn commit_block(&self, data: *mut u8, kind: u16) {
        let kind = match T::LAYOUT.order {
            ByteOrder::Little => kind.to_le(),
            ByteOrder::Big => kind.to_be(),
        };
        // What was filled in comes before that it is there, for who looks at memory at any moment.
        compiler_fence(Ordering::Release);
        // SAFETY: the type stands four bytes before the data, which is aligned to four.
        unsafe { data.sub(HEAD).cast::<u16>().write_volatile(kind) };
        self.buffer().unpin();
    }

    /// Takes a reserved record back: wholly if nothing was recorded since. Else it stays where it is,
    /// unfinished.
    ///
    /// # Safety
    /// As of [`commit_block`](Self::commit_block).
    pub unsafe fn discard_block(&self, data: *mut u8) {
        if let (Some(cursor), Some(undo)) = (self.cursor(), self.undos.last())
            && self.is_open()
            && undo.end == cursor.at()
            && (undo.at..undo.end).contains(&data.wrapping_sub(1))
        {
            self.undos.count.set(self.undos.count.get() - 1);
            self.go_back(cursor, undo);
        }
        self.buffer().unpin();
    }

    /// Ends the stream where it was before.
    fn go_back(&self, cursor: &Cursor, undo: Undo) {
        self.set_last(undo.last);
        cursor.commit(undo.at, low::<T>(undo.last));
    }

    /// Whether there are reserved records.
    pub fn is_reserved(&self) -> bool {
        self.buffer().is_pinned()
    }
}
