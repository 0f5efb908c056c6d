//! What a hook needs at every call, in the order in which it needs it.
//!
//! Hooks exist twice: as portable Rust ([`Cursor::enter`], [`Cursor::exit`]) and, for some
//! processors, as assembly in `device/arch`. Both work on the structures of this file, and write the
//! same bytes; the offsets are constants here, and are checked. Whatever is not usual (the record is
//! far from the one before, the packet is full, a table is kept, nothing is recorded at all) they
//! leave to the *slow path*, which is the same for both.
//!
//! A hook first looks at the gate's word, without masking interrupts:
//!
//! | [`Gate`]'s word | what to do |
//! |---|---|
//! | 0 | nothing |
//! | the address of the [`Hot`] | record |
//! | anything else | on entry, if the function is the trigger: slow path; else nothing |
//!
//! (The last row holds before RAM is initialized, too: the slow path looks for a magic number.) To
//! record is to mask interrupts and, if [`end`](Cursor::end) allows it, to write a record at
//! [`at`](Cursor::at). That check is the one that counts: whoever closes the gate, freezes the buffer
//! or needs to see every event lowers `end`, with interrupts masked.
//!
//! On an exit that is the stopper's, too, the slow path is taken.

use core::cell::Cell;
#[cfg(feature = "cost")]
use core::mem::MaybeUninit;
#[cfg(not(loom))]
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use kymo_wire::event::{
    ByteOrder, EventId, Form, Layout, OTHER_BITS, OTHER_BYTES, Shape, WordSize,
};

use crate::Target;
#[cfg(feature = "conditions")]
use crate::conditions::Conditions;
pub use crate::gate::CODE_BIT;
use crate::gate::Gate;
#[cfg(not(loom))]
use crate::gate::WORDS_BEFORE;
use crate::unaligned::{put16, put32, put64};

/// Calls are counted ([`Cursor::depth`]), so that exits are named where a reader could not know their
/// function. Else all packets are [nested](kymo_wire::packet::PacketHeader::FLAG_NESTED), and the
/// depth is always 1.
pub const COUNTING: bool = cfg!(feature = "depth");

/// What [`Cursor::depth`] begins with, and is raised and lowered from, where every exit is named
/// ([`Target::NAMES_EXITS`]): as a signed number it is never above 0.
pub const NAMING: usize = (isize::MIN / 2) as usize;

/// Whether this count of calls says that every exit is named.
#[inline(always)]
pub(crate) const fn names_exits<T: Target>(depth: usize) -> bool {
    T::NAMES_EXITS && (depth as isize) < 0
}

/// Whether the reader knows what an exit leaves that does not say so.
#[inline(always)]
pub(crate) const fn is_counted<T: Target>(depth: usize) -> bool {
    depth != 0 && !names_exits::<T>(depth)
}

/// Where the next record of a stream goes, and all that is needed to write it if it is an entry or
/// exit. For one context at a time. Every field is a word of the machine.
#[repr(C)]
#[derive(Debug)]
pub struct Cursor {
    /// The low bits of the last record's time ([`low`]).
    pub last: Cell<usize>,
    /// Where the next record goes: all before it in the open packet is whole.
    pub at: AtomicPtr<u8>,
    /// How many calls were entered in this packet, in this run of one thread, and have not been left:
    /// so many exits need no function.
    pub depth: Cell<usize>,
    /// The register that counts the time: 32 bits, upwards, without end. Null if time is had in
    /// another way (then `end` keeps assembly from reading it).
    pub counter: Cell<*const u32>,
    /// A record may be written if `at` is below this. It leaves room for the longest one
    /// ([`Layout::fast_bytes`]). 0: everything takes the slow path.
    pub end: AtomicUsize,
    /// The address of function 0, with [`CODE_BIT`].
    pub text_base: Cell<usize>,
    /// [`Layout::function_shift`].
    pub function_shift: Cell<usize>,
    /// What [`end`](Self::end) is for hooks, for everything else: 0 also where these may go on.
    pub limit: AtomicUsize,
}

/// What a [`Cursor`] says of the records before: the words up to the count of open calls.
#[cfg(feature = "cost")]
pub(crate) type Saved = [MaybeUninit<usize>; 3];

/// A cursor and the gate of the recorder whose only one it is: what a hook of one processor finds
/// under one address, in `.data`.
#[repr(C)]
#[derive(Debug)]
pub struct Hot {
    /// Of the one stream.
    pub cursor: Cursor,
    /// The recorder's.
    pub gate: Gate,
}

// SAFETY: the cells of the cursor are for one context at a time, who sees to it is the driver's
// business; the gate has atomics only.
unsafe impl Sync for Hot {}

/// The words of a [`Hot`], counted from its beginning, for assembly: the offset in bytes is this
/// times the size of a word.
pub mod word {
    /// [`Cursor::last`](super::Cursor::last).
    pub const LAST: usize = 0;
    /// [`Cursor::at`](super::Cursor::at).
    pub const AT: usize = 1;
    /// [`Cursor::depth`](super::Cursor::depth).
    pub const DEPTH: usize = 2;
    /// [`Cursor::counter`](super::Cursor::counter).
    pub const COUNTER: usize = 3;
    /// [`Cursor::end`](super::Cursor::end).
    pub const END: usize = 4;
    /// [`Cursor::text_base`](super::Cursor::text_base).
    pub const TEXT_BASE: usize = 5;
    /// [`Cursor::function_shift`](super::Cursor::function_shift).
    pub const FUNCTION_SHIFT: usize = 6;
    /// What the end is for all but hooks.
    pub const LIMIT: usize = 7;
    /// [`Gate`](super::Gate): the trigger, with [`CODE_BIT`](super::CODE_BIT).
    pub const TRIGGER: usize = 8;
    /// [`Gate`](super::Gate): the word.
    pub const GATE: usize = 9;
    /// [`Gate`](super::Gate): the stopper, with [`CODE_BIT`](super::CODE_BIT).
    pub const STOPPER: usize = 10;
}

#[cfg(not(loom))]
const _: () = {
    let word = size_of::<usize>();
    assert!(offset_of!(Hot, cursor.last) == word::LAST * word);
    assert!(offset_of!(Hot, cursor.at) == word::AT * word);
    assert!(offset_of!(Hot, cursor.depth) == word::DEPTH * word);
    assert!(offset_of!(Hot, cursor.counter) == word::COUNTER * word);
    assert!(offset_of!(Hot, cursor.end) == word::END * word);
    assert!(offset_of!(Hot, cursor.text_base) == word::TEXT_BASE * word);
    assert!(offset_of!(Hot, cursor.function_shift) == word::FUNCTION_SHIFT * word);
    assert!(offset_of!(Hot, cursor.limit) == word::LIMIT * word);
    let gate = offset_of!(Hot, gate);
    assert!(gate == WORDS_BEFORE * word);
    assert!(gate + Gate::TRIGGER_OFFSET == word::TRIGGER * word);
    assert!(gate + Gate::WORD_OFFSET == word::GATE * word);
    assert!(gate + Gate::STOPPER_OFFSET == word::STOPPER * word);
};

/// The part of a time that cursors keep: on 32-bit targets the low 32 bits.
#[inline(always)]
pub const fn low<T: Target>(time: u64) -> usize {
    match T::LAYOUT.word {
        WordSize::Bits32 => time as u32 as usize,
        WordSize::Bits64 => time as usize,
    }
}

/// How far the time `now` is from `then`, both cut by [`low`].
#[inline(always)]
pub(crate) const fn distance<T: Target>(now: usize, then: usize) -> usize {
    match T::LAYOUT.word {
        WordSize::Bits32 => (now as u32).wrapping_sub(then as u32) as usize,
        WordSize::Bits64 => now.wrapping_sub(then),
    }
}

impl Hot {
    /// A recorder that has not been set up: the first hook does it. `this` is the address at which
    /// it will lie, which hooks find in the gate's word (at another address they would do nothing).
    pub const fn new(this: *const Self) -> Self {
        Self {
            cursor: Cursor::new(),
            gate: Gate::new(this.cast_mut().cast()),
        }
    }

    /// The same with trigger and stopper that act only when `conditions` says so.
    #[cfg(feature = "conditions")]
    pub const fn with(this: *const Self, conditions: &'static Conditions) -> Self {
        let mut hot = Self::new(this);
        hot.gate.set_conditions(conditions);
        hot
    }
}

impl Cursor {
    /// Without memory: everything takes the slow path. All zero.
    pub const fn new() -> Self {
        Self {
            last: Cell::new(0),
            at: AtomicPtr::new(core::ptr::null_mut()),
            depth: Cell::new(0),
            counter: Cell::new(core::ptr::null()),
            end: AtomicUsize::new(0),
            text_base: Cell::new(0),
            function_shift: Cell::new(0),
            limit: AtomicUsize::new(0),
        }
    }

    /// Where the next record goes. A reader of memory at any moment sees whole records up to
    /// there.
    #[inline(always)]
    pub fn at(&self) -> *mut u8 {
        self.at.load(Ordering::Relaxed)
    }

    /// What it says of the records before, for [`restore`](Self::restore). With nobody else at it.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn save(&self) -> Saved {
        let this: *const Self = self;
        // SAFETY: every field is a word of the machine, and there is nothing between them.
        unsafe { this.cast::<Saved>().read() }
    }

    /// Makes that again what it was, with nobody else at it; everything takes the slow path then.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn restore(&self, saved: Saved) {
        let this: *const Self = self;
        // SAFETY: as above; every field may be changed by who shares it.
        unsafe { this.cast_mut().cast::<Saved>().write(saved) };
        self.close();
    }

    /// Whether a hook may write here at this moment.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        (self.at() as usize) < self.end.load(Ordering::Relaxed)
    }

    /// Whether records might be written if only there was room left in the packet.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        let limit = self.limit();
        limit != 0 && self.at() as usize >= limit
    }

    /// Whether anything but hooks may write here at this moment.
    #[inline(always)]
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Lets all write below `limit`, hooks too if `fast`.
    #[inline(always)]
    pub(crate) fn open(&self, limit: usize, fast: bool) {
        self.limit.store(limit, Ordering::Relaxed);
        let end = if fast { limit } else { 0 };
        self.end.store(end, Ordering::Relaxed);
    }

    /// From now on everything takes the slow path, until that opens it again.
    #[inline(always)]
    pub fn close(&self) {
        self.limit.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
    }

    /// The number of a function: one that has none in any form gives a great one.
    #[inline(always)]
    pub(crate) fn number<T: Target>(&self, function: usize) -> usize {
        let distance = (function | CODE_BIT).wrapping_sub(self.text_base.get());
        let shift = self.function_shift.get() as u32;
        // What is not a multiple has bits at the upper end then.
        match T::LAYOUT.word {
            WordSize::Bits32 => (distance as u32).rotate_right(shift) as usize,
            WordSize::Bits64 => distance.rotate_right(shift),
        }
    }

    /// Records that `function` was entered at `now` (cut by [`low`]), if that is usual; false if it
    /// is for the slow path.
    ///
    /// # Safety
    /// Below `end` there is memory for [`Layout::fast_bytes`] bytes at `at`, which nobody else writes.
    #[inline(always)]
    pub unsafe fn enter<T: Target>(&self, now: usize, function: usize) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { self.enter_below::<T>(end, now, self.number::<T>(function)) }
    }

    /// The same of the function with this [`number`](Self::number), if there is room below `end`.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) unsafe fn enter_below<T: Target>(
        &self,
        end: usize,
        now: usize,
        number: usize,
    ) -> bool {
        let layout = T::LAYOUT;
        let (short, long) = (Form::EnterShort, Form::EnterLong);
        if self.at() as usize >= end {
            return false;
        }
        let distance = distance::<T>(now, self.last.get());
        // Each form by itself, so that its shifts and masks are constants.
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe {
            if fits::<T>(short, distance, number) {
                self.write(layout, short, now, number as u32);
            } else if fits::<T>(long, distance, number) {
                self.write(layout, long, now, number as u32);
            } else {
                return false;
            }
        }
        if COUNTING {
            self.depth.set(self.depth.get() + 1);
        }
        true
    }

    /// Records that the function that was entered last was left at `now`, if that is usual; false if
    /// it is for the slow path.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub unsafe fn exit<T: Target>(&self, now: usize) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { self.exit_below::<T>(end, now) }
    }

    /// The same, if there is room below `end`.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) unsafe fn exit_below<T: Target>(&self, end: usize, now: usize) -> bool {
        let layout = T::LAYOUT;
        let depth = self.depth.get();
        let distance = distance::<T>(now, self.last.get());
        let fits = |form| distance >> layout.shape.time_bits(form) == 0;
        if !is_counted::<T>(depth) || self.at() as usize >= end {
            return false;
        }
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe {
            if fits(Form::ExitShort) {
                self.write(layout, Form::ExitShort, now, 0);
            } else if fits(Form::ExitLong) {
                self.write(layout, Form::ExitLong, now, 0);
            } else {
                return false;
            }
        }
        if COUNTING {
            self.depth.set(depth - 1);
        }
        true
    }

    /// Records that `function` was left at `now`, and that it was this one, because its entry is not
    /// in this packet; false if it is, or for the slow path.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub unsafe fn exit_named<T: Target>(&self, now: usize, function: usize) -> bool {
        let Layout { shape, order, .. } = T::LAYOUT;
        let distance = distance::<T>(now, self.last.get());
        let number = self.number::<T>(function);
        if is_counted::<T>(self.depth.get())
            || number as u64 >> shape.named_bits() != 0
            || !self.is_open()
            || distance >> OTHER_BITS != 0
        {
            return false;
        }
        let named = shape.named_bits() as usize / 8;
        let header = Shape::other_header(order, EventId::ExitNamed, now as u64);
        let at = self.at();
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe {
            store(order, at, header, OTHER_BYTES);
            store(order, at.add(OTHER_BYTES), number as u64, named);
            self.commit(at.add(OTHER_BYTES + named), now);
        }
        true
    }

    /// # Safety
    /// There is memory for [`Layout::fast_bytes`] bytes at `at`.
    #[inline(always)]
    unsafe fn write(&self, layout: Layout, form: Form, now: usize, function: u32) {
        let Layout { shape, order, .. } = layout;
        let record = shape.call_record(order, form, now as u64, function);
        let at = self.at();
        // SAFETY: by this function's contract.
        unsafe {
            store(order, at, record, shape.bytes(form));
            self.commit(at.add(shape.bytes(form)), now);
        }
    }

    /// Makes records whole: all before `at` counts from now on. `now` is the last one's time, cut by
    /// [`low`].
    #[inline(always)]
    pub(crate) fn commit(&self, at: *mut u8, now: usize) {
        // The order that a debugger or a crash sees. Another thread reads only packets that have
        // been closed.
        compiler_fence(Ordering::Release);
        self.at.store(at, Ordering::Relaxed);
        self.last.set(now);
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a time this far from the last one, and a function of this number, fit an entry of this form. (A compiler
/// that is to make code small would call a closure.)
#[inline(always)]
fn fits<T: Target>(form: Form, distance: usize, number: usize) -> bool {
    let shape = T::LAYOUT.shape;
    distance >> shape.time_bits(form) == 0 && number as u64 >> shape.function_bits(form) == 0
}

/// Stores the low `bytes` bytes of `value` at `at`, in this byte order, and anything behind them up
/// to the next power of two.
///
/// # Safety
/// There is memory for so many bytes. `bytes` is 1 to 4, 6 or 8.
#[inline(always)]
pub(crate) unsafe fn store(order: ByteOrder, at: *mut u8, value: u64, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        match bytes {
            1 => at.write(value as u8),
            2 => put16(at, ordered16(order, value as u16)),
            3 | 4 => {
                let value = match order {
                    ByteOrder::Little => (value as u32).to_le(),
                    ByteOrder::Big => ((value as u32) << (32 - 8 * bytes)).to_be(),
                };
                put32(at, value);
            }
            _ => {
                let value = match order {
                    ByteOrder::Little => value.to_le(),
                    ByteOrder::Big => (value << (64 - 8 * bytes)).to_be(),
                };
                put64(at, value);
            }
        }
    }
}

const fn ordered16(order: ByteOrder, value: u16) -> u16 {
    match order {
        ByteOrder::Little => value.to_le(),
        ByteOrder::Big => value.to_be(),
    }
}

/// The longest record of the fast path is stored by one integer of this size.
const _: () = assert!(Shape::Compact.bytes(Form::EnterLong) == 4);
const _: () = assert!(Shape::Wide.bytes(Form::EnterLong) == 8);
