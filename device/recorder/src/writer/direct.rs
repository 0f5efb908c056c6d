//! Direct encoding of thread switches, interrupts and markers, where no other context can interrupt. Covers nearly all
//! of these events. The general path handles the rest (another form, a full packet, a distant time, a profile table),
//! and does the same in more steps.

use kymo_wire::event::{ByteOrder, EventId, OTHER_BYTES, Shape, WordSize};

use super::{Threads, Writer};
use crate::hot::{COUNTING, Cursor};
use crate::profile::Profile;
use crate::unaligned::{put32, put64};
use crate::{Event, Target};

/// No event is recorded directly: the clock is a function of the program's.
const NONE: u8 = 0;
/// Markers are recorded directly.
const MARKERS: u8 = 1;
/// Interrupts are, too: there is no table that they would change.
const INTERRUPTS: u8 = 2;
/// Switches are, too: the program reports them.
const SWITCHES: u8 = 3;

/// Destination and time of a record.
pub(crate) struct Place<'a> {
    pub cursor: &'a Cursor,
    /// Address of the record.
    pub at: *mut u8,
    /// The time, truncated by [`low`](crate::hot::low).
    pub now: usize,
}

impl<T: Target> Writer<T> {
    /// Most bytes that a record of this event takes; `None` if it is not recorded directly. (A constant for a constant
    /// kind of event.)
    #[inline(always)]
    pub(crate) fn direct_bytes(event: Event) -> Option<usize> {
        let word = T::LAYOUT.word.bytes();
        let payload = match event {
            Event::Marker(_) => 4,
            Event::NamedMarker { .. } => word + 4,
            // Stored as a whole word, of which the last bytes are ignored.
            Event::SwitchedIn(_) => word,
            Event::SwitchedOut(_) | Event::IsrEnter(_) | Event::IsrExit(_) => 1,
            _ => return None,
        };
        matches!(T::LAYOUT.order, ByteOrder::Little).then_some(OTHER_BYTES + payload)
    }

    /// Whether this event needs nothing but a record, as far as that is known before other contexts are excluded. If
    /// so, the cursor has a counter.
    #[inline(always)]
    pub(crate) fn is_direct(&self, event: Event) -> bool {
        let least = match event {
            Event::Marker(_) | Event::NamedMarker { .. } => MARKERS,
            Event::IsrEnter(irq) if irq > 0xFF => return false,
            Event::IsrEnter(_) | Event::IsrExit(_) => INTERRUPTS,
            Event::SwitchedIn(_) | Event::SwitchedOut(_) => SWITCHES,
            _ => return false,
        };
        self.stream.direct.get() >= least
    }

    /// Whether an entry or exit of this function needs nothing but a record and the table. If so, the cursor has a
    /// counter.
    #[inline(always)]
    pub(crate) fn is_tabled(&self, function: usize) -> bool {
        self.profile.table().is_some() && !self.may_be_promoted(function)
    }

    /// Records an entry or exit at `now` (truncated by [`low`](crate::hot::low)) and updates the table, where no other
    /// context can interrupt; returns false if it needs another form.
    ///
    /// # Safety
    /// The cursor is the stream's.
    #[inline(always)]
    pub(crate) unsafe fn call_direct<const EXIT: bool>(
        &self,
        cursor: &Cursor,
        now: usize,
        function: usize,
    ) -> bool {
        let Some(table) = self.profile.get().filter(|table| table.runs_now()) else {
            return false;
        };
        // SAFETY: the cursor's limit leaves room for a record, and no other context interrupts.
        let done = unsafe {
            if EXIT {
                cursor.exit_below::<T>(cursor.limit(), now)
            } else {
                let number = cursor.number::<T>(function);
                cursor.enter_below::<T>(cursor.limit(), now, number)
            }
        };
        if done {
            let now = self.stream.whole(now);
            // SAFETY: a stack runs.
            unsafe {
                if EXIT {
                    Profile::end(table, function, now);
                } else {
                    Profile::begin(table, function, now);
                }
            }
        }
        done
    }

    /// Chooses which events are recorded directly.
    pub(super) fn choose_direct(&self) {
        let direct = match self.threads.get() {
            _ if !self.fast.get() => NONE,
            _ if self.profile.table().is_some() => MARKERS,
            Threads::Reported => SWITCHES,
            _ => INTERRUPTS,
        };
        self.stream.direct.set(direct);
    }

    /// Records an event, where no other context can interrupt; returns the end of its record, or `None` if it needs
    /// another form.
    ///
    /// # Safety
    /// At `place` there is memory for [so many](Self::direct_bytes) bytes, which nobody else writes.
    #[inline(always)]
    pub(crate) unsafe fn record_direct(&self, place: &Place<'_>, event: Event) -> Option<*mut u8> {
        let word = T::LAYOUT.word.bytes();
        let Place { cursor, at, now } = *place;
        let payload = at.wrapping_add(OTHER_BYTES);
        let head = |id| Shape::other_header(ByteOrder::Little, id, now as u64) as u32;
        let depth = &self.stream.isr_depth;
        // SAFETY: by this function's contract.
        unsafe {
            match event {
                Event::Marker(value) => {
                    put32(at, head(EventId::Marker));
                    put32(payload, value);
                    Some(payload.wrapping_add(4))
                }
                Event::NamedMarker { name, value } => {
                    put32(at, head(EventId::NamedMarker));
                    put_word::<T>(payload, name);
                    let payload = payload.wrapping_add(word);
                    put32(payload, value);
                    Some(payload.wrapping_add(4))
                }
                Event::IsrEnter(irq) => {
                    let level = depth.get();
                    if level == u8::MAX {
                        return None;
                    }
                    put32(at, head(EventId::IsrEnter) | u32::from(irq) << 24);
                    self.served.note(level, irq);
                    depth.set(level + 1);
                    Some(payload.wrapping_add(1))
                }
                Event::IsrExit(irq) => {
                    let level = depth.get();
                    if level <= self.stream.isr_before()
                        || level == u8::MAX
                        || self.served.at(level - 1) != Some(irq)
                    {
                        return None;
                    }
                    put32(at, head(EventId::IsrExit));
                    depth.set(level - 1);
                    Some(payload)
                }
                Event::SwitchedOut(thread) => {
                    if thread == 0 || thread != self.stream.thread() {
                        return None;
                    }
                    put32(at, head(EventId::SwitchedOut));
                    self.stream.set_thread(0);
                    cursor.depth.set(usize::from(!COUNTING));
                    Some(payload)
                }
                Event::SwitchedIn(thread) => {
                    self.stream.set_thread(thread);
                    cursor.depth.set(usize::from(!COUNTING));
                    let (id, value, bytes) = match self.stream.near(thread) {
                        Some(near) => (EventId::SwitchedInNear, near as usize, 2),
                        None => (EventId::SwitchedIn, thread, word),
                    };
                    put32(at, head(id));
                    put_word::<T>(payload, value);
                    Some(payload.wrapping_add(bytes))
                }
                _ => None,
            }
        }
    }
}

/// Stores a word of the target, least significant byte first.
///
/// # Safety
/// There is memory for it.
#[inline(always)]
unsafe fn put_word<T: Target>(at: *mut u8, value: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        match T::LAYOUT.word {
            WordSize::Bits32 => put32(at, value as u32),
            WordSize::Bits64 => put64(at, value as u64),
        }
    }
}
