//! Raw memory of packets.
//!
//! A hook can't afford the bounds check of a slice besides the check for the packet's end, and other code (a dump, a
//! debugger after a crash) reads the bytes while the writer owns them. So this is a pointer and a length with the few
//! accesses that recording needs.

use core::cell::Cell;
use core::marker::PhantomData;

use kymo_wire::event::ByteOrder;

use crate::Target;
use crate::sync::Owned;

/// Size of the smallest packet: a header and a few events.
pub const MIN_PACKET: u32 = 128;

/// Memory that one writer fills. Empty until it is given some.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    base: Cell<*mut u8>,
    length: Cell<u32>,
    /// In a model, one object for each slot of the buffer, whose packets have the smallest size.
    places: [Owned; 4],
    target: PhantomData<T>,
}

impl<T: Target> Memory<T> {
    /// No memory yet. All zero, so that it takes no flash.
    pub const fn empty() -> Self {
        Self {
            base: Cell::new(core::ptr::null_mut()),
            length: Cell::new(0),
            places: [const { Owned::new() }; 4],
            target: PhantomData,
        }
    }

    /// Sets the memory: `length` bytes from `base` on.
    ///
    /// # Safety
    /// They are valid for reads and writes for as long as `self` is used, initialized, aligned to
    /// 8, and nobody else writes to them.
    pub unsafe fn give(&self, base: *mut u8, length: u32) {
        self.base.set(base);
        self.length.set(length);
    }

    /// Length in bytes.
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// The object that represents, in a model, the slot with the byte at `at`.
    #[inline(always)]
    fn place(&self, at: u32) -> &Owned {
        let [first, ..] = &self.places;
        let number = at / MIN_PACKET;
        self.places.get(number as usize).unwrap_or(first)
    }

    /// Marks, for a model, a write of the slot with the byte at `at`.
    #[inline(always)]
    pub fn written(&self, at: u32) {
        self.place(at).written();
    }

    /// Address of the byte at `at`, which may be the end.
    pub fn address(&self, at: u32) -> *mut u8 {
        self.base.get().wrapping_add(at as usize)
    }

    /// Stores a number `offset` bytes behind `place` (an [`address`](Self::address)), in the target's byte order.
    ///
    /// # Safety
    /// There are 4 bytes of this memory, at a multiple of 4.
    #[inline(always)]
    pub unsafe fn put32(place: *mut u8, offset: usize, value: u32) {
        let value = match T::LAYOUT.order {
            ByteOrder::Little => value.to_le(),
            ByteOrder::Big => value.to_be(),
        };
        // SAFETY: by this function's contract.
        unsafe { place.add(offset).cast::<u32>().write(value) };
    }

    /// Loads a number that [`put32`](Self::put32) stored.
    ///
    /// # Safety
    /// It was stored there.
    #[inline(always)]
    pub unsafe fn get32(place: *const u8, offset: usize) -> u32 {
        // SAFETY: by this function's contract.
        let value = unsafe { place.add(offset).cast::<u32>().read() };
        match T::LAYOUT.order {
            ByteOrder::Little => u32::from_le(value),
            ByteOrder::Big => u32::from_be(value),
        }
    }

    /// Stores a 64-bit number in the same way.
    ///
    /// # Safety
    /// There are 8 bytes of this memory, at a multiple of 4.
    #[inline(always)]
    pub unsafe fn put64(place: *mut u8, offset: usize, value: u64) {
        let (low, high) = (value as u32, (value >> 32) as u32);
        let (first, second) = match T::LAYOUT.order {
            ByteOrder::Little => (low, high),
            ByteOrder::Big => (high, low),
        };
        // SAFETY: by this function's contract.
        unsafe {
            Self::put32(place, offset, first);
            Self::put32(place, offset + 4, second);
        }
    }

    /// Copies `bytes` to `at`, if there is memory for them.
    #[inline(never)]
    pub fn put(&self, at: u32, bytes: &[u8]) {
        let end = (at as usize).checked_add(bytes.len());
        if end.is_none_or(|end| end > self.length.get() as usize) {
            return;
        }
        self.written(at);
        let to = self.address(at);
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: in bounds (checked). Volatile, because compilers replace such a loop by a call of `memcpy`, which
            // takes most of a kilobyte in a program without it.
            unsafe { to.add(i).write_volatile(*byte) };
        }
    }

    /// The `length` bytes at `at`; empty if there are fewer.
    ///
    /// # Safety
    /// Nobody writes to them while the slice is used.
    pub unsafe fn slice(&self, at: u32, length: u32) -> &[u8] {
        if at
            .checked_add(length)
            .is_none_or(|end| end > self.length.get())
            || self.base.get().is_null()
        {
            return &[];
        }
        self.place(at).read();
        // SAFETY: in bounds (checked), initialized by `give`'s contract, not written by ours.
        unsafe { core::slice::from_raw_parts(self.address(at), length as usize) }
    }
}
