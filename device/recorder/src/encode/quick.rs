//! A record that is ready to be stored but for its time, for processors that do so in assembly.
//!
//! Only a few instructions may be masked, so all that can be known before is computed before: where the
//! record goes, what is stored, what comes of the cursor, and one more word that is changed with it.
//! That holds as long as nobody records anything meanwhile, which is looked at ([`Seen`]) when
//! interrupts are masked.

use core::cell::Cell;
use core::ptr::null_mut;

use kymo_wire::event::{ByteOrder, EventId, Shape, WordSize};

use super::{Level, Record};
use crate::Target;
use crate::hot::Cursor;

/// How far a stream had come: words, in this order, for assembly.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    last: usize,
    at: *mut u8,
    /// Where the time is read.
    counter: *const u32,
}

impl Seen {
    /// At this moment.
    #[inline(always)]
    pub(crate) fn now(cursor: &Cursor) -> Self {
        Self {
            last: cursor.last.get(),
            at: cursor.at(),
            counter: cursor.counter.get(),
        }
    }

    /// The same, but that the time is read there.
    #[inline(always)]
    pub(crate) fn read_at(self, counter: *const u32) -> Self {
        Self { counter, ..self }
    }

    /// Where it ended.
    #[inline(always)]
    pub(crate) fn at(self) -> *mut u8 {
        self.at
    }

    /// The last record's time, cut by [`low`](crate::hot::low).
    #[inline(always)]
    pub(crate) fn last(self) -> usize {
        self.last
    }

    /// Nothing has been recorded since. (A ring that came round to the same place has taken time.)
    #[inline(always)]
    pub(crate) fn holds(self, cursor: &Cursor) -> bool {
        cursor.at() == self.at && cursor.last.get() == self.last
    }
}

/// What is stored beside a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// Null for nothing.
    to: *mut usize,
    value: usize,
}

impl Store {
    /// Nothing.
    pub const NOTHING: Self = Self {
        to: null_mut(),
        value: 0,
    };

    /// This word.
    #[inline(always)]
    pub fn of(to: &Cell<usize>, value: usize) -> Self {
        let to = to.as_ptr();
        Self { to, value }
    }

    /// This level.
    #[inline(always)]
    pub fn of_level(to: &Level, value: u8) -> Self {
        let to: *const Level = to;
        Self {
            to: to.cast_mut().cast(),
            value: value.into(),
        }
    }
}

/// A record of a processor of 32 bits, little-endian, as assembly finds it: words, in this order.
#[repr(C)]
#[derive(Debug)]
pub struct Quick {
    /// [`Cursor::last`] as it was.
    last: usize,
    /// [`Cursor::at`] as it was.
    at: *mut u8,
    /// [`Cursor::counter`].
    counter: *const u32,
    /// The record's first word, with nothing in bits 8 to 23, where the time goes.
    head: u32,
    /// The limit must be above this.
    end: usize,
    /// The record's second word.
    second: u32,
    /// [`Cursor::at`] as it will be.
    next: *mut u8,
    /// [`Cursor::depth`] as it will be.
    depth: usize,
    /// Where one more word goes: the record's third one, or what else is to change; to `spare` if
    /// nothing is.
    to: *mut usize,
    /// That word.
    value: usize,
    /// The time at which it was stored.
    now: usize,
    spare: Cell<usize>,
}

impl Quick {
    /// So many bytes more than a record needs are stored, as whole words are.
    pub(crate) const MORE: usize = 1;

    /// Makes a record ready, after which so many `calls` are open; `None` if it is too long, or has too much beside it.
    #[inline(always)]
    pub(crate) fn new<T: Target>(
        cursor: &Cursor,
        seen: Seen,
        record: &Record,
        calls: usize,
        store: Store,
    ) -> Option<Self> {
        if T::LAYOUT.word != WordSize::Bits32 || T::LAYOUT.order != ByteOrder::Little {
            return None;
        }
        let (head, [second, third], bytes, beyond) = record.words()?;
        let (to, value) = match (beyond, store.to.is_null()) {
            (0, _) => (store.to, store.value),
            (_, true) => (seen.at.wrapping_add(8).cast(), third as usize),
            _ => return None,
        };
        Some(Self {
            last: seen.last,
            at: seen.at,
            counter: cursor.counter.get(),
            head,
            end: seen.at as usize + beyond + Self::MORE,
            second,
            next: seen.at.wrapping_add(bytes),
            depth: calls,
            to,
            value,
            now: 0,
            spare: Cell::new(0),
        })
    }

    /// Makes a record ready that is [filled in place](crate::block): with type and length, where they go, and
    /// where it ends.
    #[inline(always)]
    pub(crate) fn block<T: Target>(
        cursor: &Cursor,
        seen: Seen,
        head: (*mut u32, u32),
        end: *mut u8,
    ) -> Self {
        Self {
            last: seen.last,
            at: seen.at,
            counter: cursor.counter.get(),
            head: Shape::other_header(ByteOrder::Little, EventId::Block, 0) as u32,
            end: (end as usize).wrapping_sub(T::LAYOUT.fast_bytes()),
            // The padding; what is stored last goes over the rest of it.
            second: 0,
            next: end,
            depth: cursor.depth.get(),
            to: head.0.cast(),
            value: head.1 as usize,
            now: 0,
            spare: Cell::new(0),
        }
    }

    /// The time is read there.
    #[inline(always)]
    pub(crate) fn read_at(&mut self, counter: *const u32) {
        self.counter = counter;
    }

    /// The record as it is stored: where it is now, and not moved any more.
    pub(crate) fn settle(&mut self) -> &mut Self {
        if self.to.is_null() {
            self.to = self.spare.as_ptr();
        }
        self
    }

    /// The time at which it was stored, cut by [`low`](crate::hot::low).
    pub(crate) fn now(&self) -> usize {
        self.now
    }
}
