//! The events that hooks pass to the encoder.

use kymo_wire::event::{ByteOrder, Cause, EventId};

use crate::Target;

/// One end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The function is entered.
    Enter,
    /// The function exits.
    Exit,
}

impl Edge {
    /// The event for this end of a call of `function` from `caller`.
    pub fn of(self, function: usize, caller: usize) -> Event {
        match self {
            Self::Enter => Event::EnterFrom { function, caller },
            Self::Exit => Event::Exit(function),
        }
    }
}

/// An event to be recorded. Addresses, threads and names are words of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A function was entered.
    Enter(usize),
    /// A function was entered from a known call site.
    EnterFrom {
        /// The function.
        function: usize,
        /// The return address.
        caller: usize,
    },
    /// A function exited.
    Exit(usize),
    /// Thread, priority or mode changed without a recorded switch.
    Context {
        /// The thread that runs.
        thread: usize,
        /// Its priority, on the system's own scale.
        priority: i16,
        /// Its mode, as the architecture numbers it.
        mode: u16,
    },
    /// A thread got the processor.
    SwitchedIn(usize),
    /// A thread lost the processor.
    SwitchedOut(usize),
    /// An interrupt handler began.
    IsrEnter(u16),
    /// An interrupt handler ended.
    IsrExit(u16),
    /// A number that the program records.
    Marker(u32),
    /// A number that the program records under a name.
    NamedMarker {
        /// The address of a constant, NUL-terminated string in the program's image.
        name: usize,
        /// The number.
        value: u32,
    },
    /// `setjmp` is about to be called with this buffer.
    Setjmp(usize),
    /// `longjmp` is about to be called with this buffer.
    Longjmp(usize),
    /// The wall-clock time.
    WallClock {
        /// Nanoseconds since 1970 UTC.
        ns: u64,
        /// Uncertainty in nanoseconds, either way; 0 if unknown.
        uncertainty: u32,
    },
    /// The clock is uncertain between the previous event and this one.
    ClockGap {
        /// Lower bound of the time that passed, in ticks.
        ticks: u64,
    },
    /// Recording was turned on or off.
    Recording {
        /// Whether it is on now.
        on: bool,
        /// Why it changed.
        cause: Cause,
    },
}

/// An event that is neither a short entry nor a short exit: the id of its record, and the record's two numbers, of at
/// most one word each.
pub type Parts = (EventId, usize, usize);

/// The same for events whose first number may be longer than a word. They are rare, and change nothing but the stream.
pub type Parts64 = (EventId, u64, u32);

impl Event {
    /// The call site of an entry, if known; else 0.
    #[inline(always)]
    pub const fn caller(&self) -> usize {
        match *self {
            Self::EnterFrom { caller, .. } => caller,
            _ => 0,
        }
    }

    /// Splits the event into parts, for the longest form of record that names no function or thread without need.
    ///
    /// # Errors
    /// Returns `Parts64` for an event with a number that can be longer than a word.
    #[inline(always)]
    pub fn parts<T: Target>(self) -> Result<Parts, Parts64> {
        // Combines two small fields into one number.
        let pair = |first: u32, second: u32, bits: u32| match T::LAYOUT.order {
            ByteOrder::Little => first | second << bits,
            ByteOrder::Big => first << bits | second,
        };
        let parts = match self {
            // Usual entries and exits have short records; this covers the functions that don't fit them.
            Self::Enter(function) => (EventId::EnterFar, function, 0),
            Self::EnterFrom { function, caller } => (EventId::EnterFarFrom, function, caller),
            Self::Exit(function) => (EventId::ExitFar, function, 0),
            Self::Context {
                thread,
                priority,
                mode,
            } => {
                let more = pair(u32::from(priority as u16), mode.into(), 16);
                (EventId::Context, thread, more as usize)
            }
            Self::SwitchedIn(thread) => (EventId::SwitchedIn, thread, 0),
            Self::SwitchedOut(thread) => (EventId::SwitchedOut, thread, 0),
            Self::IsrEnter(irq) => (EventId::IsrEnter, irq.into(), 0),
            Self::IsrExit(irq) => (EventId::IsrExitNamed, irq.into(), 0),
            Self::Marker(value) => (EventId::Marker, value as usize, 0),
            Self::NamedMarker { name, value } => (EventId::NamedMarker, name, value as usize),
            Self::Setjmp(buffer) => (EventId::Setjmp, buffer, 0),
            Self::Longjmp(buffer) => (EventId::Longjmp, buffer, 0),
            Self::WallClock { ns, uncertainty } => {
                return Err((EventId::WallClock, ns, uncertainty));
            }
            Self::ClockGap { ticks } => return Err((EventId::ClockGap, ticks, 0)),
            Self::Recording { on, cause } => {
                let both = pair(on.into(), cause as u32, 8);
                (EventId::Recording, both as usize, 0)
            }
        };
        Ok(parts)
    }
}

/// Whether a [`Recording`](EventId::Recording) record with this first number turns recording on.
pub(crate) fn turns_recording_on<T: Target>(first: usize) -> bool {
    match T::LAYOUT.order {
        ByteOrder::Little => first & 0xFF != 0,
        ByteOrder::Big => first >> 8 != 0,
    }
}
