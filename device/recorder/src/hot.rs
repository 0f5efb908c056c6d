//! Data that a hook needs at every call, in the order of access.
//!
//! Hooks exist twice: as portable Rust ([`Cursor::enter`], [`Cursor::exit`]) and, for some processors, as assembly in
//! `device/arch`. Both work on the structures of this file and write the same bytes; the offsets are constants here,
//! and are checked at compile time. Hooks leave all other cases (the time is far from the previous record's, the packet
//! is full, a table is kept, nothing is recorded at all) to the *slow path*, which both share.
//!
//! A hook first loads the gate's word, without masking interrupts:
//!
//! | [`Gate`]'s word | action |
//! |---|---|
//! | 0 | nothing |
//! | the address of the [`Hot`] | record |
//! | anything else | on entry, if the function is the trigger: slow path; else nothing |
//!
//! (The last row also applies before RAM is initialized: the slow path checks a magic number.) To record, the hook
//! masks interrupts and, if [`end`](Cursor::end) allows it, writes a record at [`at`](Cursor::at). The check of `end`
//! is the decisive one: code that closes the gate, freezes the buffer or needs every event on the slow path lowers
//! `end`, with interrupts masked.
//!
//! The exit of the stopper takes the slow path, too.

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

/// Whether calls are counted ([`Cursor::depth`]), so that exits name their function only where a reader could not know
/// it. Otherwise all packets are [nested](kymo_wire::packet::PacketHeader::FLAG_NESTED), and the depth is always 1.
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

/// Write position of a stream, with all that is needed to write the next record if that is an entry or exit. Only one
/// context at a time may use it. Every field is one machine word.
#[repr(C)]
#[derive(Debug)]
pub struct Cursor {
    /// The low bits of the last record's time ([`low`]).
    pub last: Cell<usize>,
    /// Address of the next record: all records before it in the open packet are complete.
    pub at: AtomicPtr<u8>,
    /// Number of calls that were entered in this packet, without a thread switch since, and are still open: so many
    /// exits need no function.
    pub depth: Cell<usize>,
    /// Address of the free-running 32-bit up-counter that is the clock. Null if the time is read in another way (`end`
    /// is then 0, so that assembly never reads the counter).
    pub counter: Cell<*const u32>,
    /// A hook may write a record if `at` is below this address, which leaves room for the longest one
    /// ([`Layout::fast_bytes`]). 0: everything takes the slow path.
    pub end: AtomicUsize,
    /// The address of function 0, with [`CODE_BIT`].
    pub text_base: Cell<usize>,
    /// [`Layout::function_shift`].
    pub function_shift: Cell<usize>,
    /// The bound of the slow path, as [`end`](Self::end) is that of hooks. It may be set while `end` is 0.
    pub limit: AtomicUsize,
}

/// Saved state of a [`Cursor`] that depends on previous records: the words up to and including the depth.
#[cfg(feature = "cost")]
pub(crate) type Saved = [MaybeUninit<usize>; 3];

/// The cursor and the gate of a recorder with one stream: on one processor hooks find both at one address, in `.data`.
#[repr(C)]
#[derive(Debug)]
pub struct Hot {
    /// The cursor of the only stream.
    pub cursor: Cursor,
    /// The recorder's gate.
    pub gate: Gate,
}

// SAFETY: the cells of the cursor are for one context at a time, which the driver ensures; the gate has atomics only.
unsafe impl Sync for Hot {}

/// Word indices of the fields of a [`Hot`], for assembly: the offset in bytes is the index times the size of a word.
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
    /// The `limit` of a [`Cursor`](super::Cursor).
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

/// The part of a time that cursors keep: the low 32 bits on 32-bit targets.
#[inline(always)]
pub const fn low<T: Target>(time: u64) -> usize {
    match T::LAYOUT.word {
        WordSize::Bits32 => time as u32 as usize,
        WordSize::Bits64 => time as usize,
    }
}

/// Ticks from `then` to `now`, both truncated by [`low`].
#[inline(always)]
pub(crate) const fn distance<T: Target>(now: usize, then: usize) -> usize {
    match T::LAYOUT.word {
        WordSize::Bits32 => (now as u32).wrapping_sub(then as u32) as usize,
        WordSize::Bits64 => now.wrapping_sub(then),
    }
}

impl Hot {
    /// A recorder that the first hook will set up. `this` is the address that it will have: the gate's word must equal
    /// it, otherwise hooks don't record.
    pub const fn new(this: *const Self) -> Self {
        Self {
            cursor: Cursor::new(),
            gate: Gate::new(this.cast_mut().cast()),
        }
    }

    /// The same with `conditions` under which trigger and stopper act.
    #[cfg(feature = "conditions")]
    pub const fn with(this: *const Self, conditions: &'static Conditions) -> Self {
        let mut hot = Self::new(this);
        hot.gate.set_conditions(conditions);
        hot
    }
}

impl Cursor {
    /// A cursor without memory: everything takes the slow path. All zero.
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

    /// Address of the next record. A reader of memory finds complete records up to there at any time.
    #[inline(always)]
    pub fn at(&self) -> *mut u8 {
        self.at.load(Ordering::Relaxed)
    }

    /// Saves the state that depends on previous records, for [`restore`](Self::restore). The caller has exclusive
    /// access.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn save(&self) -> Saved {
        let this: *const Self = self;
        // SAFETY: every field is a word of the machine, and there is nothing between them.
        unsafe { this.cast::<Saved>().read() }
    }

    /// Restores a saved state, with exclusive access; everything takes the slow path afterwards.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn restore(&self, saved: Saved) {
        let this: *const Self = self;
        // SAFETY: as above; every field may be changed by the context that uses it.
        unsafe { this.cast_mut().cast::<Saved>().write(saved) };
        self.close();
    }

    /// Whether a hook may write a record now.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        (self.at() as usize) < self.end.load(Ordering::Relaxed)
    }

    /// Whether only the lack of room in the packet prevents the slow path from writing.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        let limit = self.limit();
        limit != 0 && self.at() as usize >= limit
    }

    /// The bound of the slow path; 0 if it may not write.
    #[inline(always)]
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Permits records below `limit`, by hooks too if `fast`.
    #[inline(always)]
    pub(crate) fn open(&self, limit: usize, fast: bool) {
        self.limit.store(limit, Ordering::Relaxed);
        let end = if fast { limit } else { 0 };
        self.end.store(end, Ordering::Relaxed);
    }

    /// Sends everything to the slow path until that opens the cursor again.
    #[inline(always)]
    pub fn close(&self) {
        self.limit.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
    }

    /// The number of a function. An address that has no number in any form gives one that is too large for all forms.
    #[inline(always)]
    pub(crate) fn number<T: Target>(&self, function: usize) -> usize {
        let distance = (function | CODE_BIT).wrapping_sub(self.text_base.get());
        let shift = self.function_shift.get() as u32;
        // The rotation moves the low bits of an address that is no multiple of the granularity to the upper end.
        match T::LAYOUT.word {
            WordSize::Bits32 => (distance as u32).rotate_right(shift) as usize,
            WordSize::Bits64 => distance.rotate_right(shift),
        }
    }

    /// Records that `function` was entered at `now` (truncated by [`low`]), if it fits a short form; returns false if
    /// the slow path must record it.
    ///
    /// # Safety
    /// Below `end` there is memory for [`Layout::fast_bytes`] bytes at `at`, which nobody else writes.
    #[inline(always)]
    pub unsafe fn enter<T: Target>(&self, now: usize, function: usize) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { self.enter_below::<T>(end, now, self.number::<T>(function)) }
    }

    /// Records the entry of the function with this [`number`](Self::number), if there is room below `end`.
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
        let (short, long) = (Form::EnterShort, Form::EnterLong);
        if self.at() as usize >= end {
            return false;
        }
        let distance = distance::<T>(now, self.last.get());
        // Each form separately, so that its shifts and masks are constants.
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe {
            if fits::<T>(short, distance, number) {
                self.write::<T>(short, now, number as u32);
            } else if fits::<T>(long, distance, number) {
                self.write::<T>(long, now, number as u32);
            } else {
                return false;
            }
        }
        if COUNTING {
            self.depth.set(self.depth.get() + 1);
        }
        true
    }

    /// Records that the innermost open function exited at `now`, if it fits a short form; returns false if the slow
    /// path must record it.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub unsafe fn exit<T: Target>(&self, now: usize) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { self.exit_below::<T>(end, now) }
    }

    /// The same, with the bound `end`.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) unsafe fn exit_below<T: Target>(&self, end: usize, now: usize) -> bool {
        let depth = self.depth.get();
        let distance = distance::<T>(now, self.last.get());
        let fits = |form| distance >> T::LAYOUT.shape.time_bits(form) == 0;
        if !is_counted::<T>(depth) || self.at() as usize >= end {
            return false;
        }
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe {
            if fits(Form::ExitShort) {
                self.write::<T>(Form::ExitShort, now, 0);
            } else if fits(Form::ExitLong) {
                self.write::<T>(Form::ExitLong, now, 0);
            } else {
                return false;
            }
        }
        if COUNTING {
            self.depth.set(depth - 1);
        }
        true
    }

    /// Records that `function` exited at `now`, with its number, because its entry is not in this packet. Returns false
    /// if the entry is, or if the slow path must record it.
    ///
    /// # Safety
    /// As of [`enter`](Self::enter).
    #[inline(always)]
    pub unsafe fn exit_named<T: Target>(&self, now: usize, function: usize) -> bool {
        let shape = T::LAYOUT.shape;
        if !self.is_open() || is_counted::<T>(self.depth.get()) {
            return false;
        }
        let distance = distance::<T>(now, self.last.get());
        let number = self.number::<T>(function);
        if number as u64 >> shape.named_bits() != 0 || distance >> OTHER_BITS != 0 {
            return false;
        }
        let named = shape.named_bits() as usize / 8;
        // SAFETY: by this function's contract; `at` is below `end`.
        unsafe { self.write_other::<T>(EventId::ExitNamed, now, number as u64, named) };
        true
    }

    /// Writes a record of this form.
    ///
    /// # Safety
    /// There is memory for [`Layout::fast_bytes`] bytes at `at`.
    #[inline(always)]
    pub(crate) unsafe fn write<T: Target>(&self, form: Form, now: usize, function: u32) {
        let Layout { shape, order, .. } = T::LAYOUT;
        let record = shape.call_record(order, form, now as u64, function);
        let at = self.at();
        // SAFETY: by this function's contract.
        unsafe {
            store(order, at, record, shape.bytes(form));
            self.commit(at.add(shape.bytes(form)), now);
        }
    }

    /// Writes a record of another kind, whose fields are the low `bytes` bytes of `fields`.
    ///
    /// # Safety
    /// There is memory for its [`OTHER_BYTES`] and the fields at `at`, rounded up as of [`store`].
    #[inline(always)]
    pub(crate) unsafe fn write_other<T: Target>(
        &self,
        id: EventId,
        now: usize,
        fields: u64,
        bytes: usize,
    ) {
        let order = T::LAYOUT.order;
        let header = Shape::other_header(order, id, now as u64);
        let at = self.at();
        // SAFETY: by this function's contract.
        unsafe {
            store(order, at, header, OTHER_BYTES);
            store(order, at.add(OTHER_BYTES), fields, bytes);
            self.commit(at.add(OTHER_BYTES + bytes), now);
        }
    }

    /// Writes a `time` record.
    ///
    /// # Safety
    /// There is memory for its 8 bytes at `at`.
    #[inline(always)]
    pub(crate) unsafe fn write_time<T: Target>(&self, now: u64) {
        let (order, at) = (T::LAYOUT.order, self.at());
        // SAFETY: by this function's contract.
        unsafe {
            store(order, at, Shape::time_record(order, now), 8);
            self.commit(at.add(8), low::<T>(now));
        }
    }

    /// Commits records: all before `at` are complete from now on. `now` is the last one's time, truncated by [`low`].
    #[inline(always)]
    pub(crate) fn commit(&self, at: *mut u8, now: usize) {
        // This is the order that a debugger or a crash handler sees. Other threads read only closed packets.
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

/// Whether an entry of this form can hold a time this far from the last one and a function of this number. (A function
/// and not a closure, because compilers that optimize for size would call the closure.)
#[inline(always)]
fn fits<T: Target>(form: Form, distance: usize, number: usize) -> bool {
    let shape = T::LAYOUT.shape;
    distance >> shape.time_bits(form) == 0 && number as u64 >> shape.function_bits(form) == 0
}

/// Stores the low `bytes` bytes of `value` at `at`, in this byte order. The bytes behind them, up to the next power of
/// two, become undefined.
///
/// # Safety
/// There is memory for `bytes` bytes, rounded up to a power of two. `bytes` is 1 to 4, 6 or 8.
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

/// The longest record of the fast path is stored as one integer of this size.
const _: () = assert!(Shape::Compact.bytes(Form::EnterLong) == 4);
const _: () = assert!(Shape::Wide.bytes(Form::EnterLong) == 8);
