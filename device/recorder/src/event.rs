//! What can happen, as the hooks say it to the encoder.

use kymo_wire::event::{ByteOrder, Cause, EventId};

use crate::Target;

/// One end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The function is entered.
    Enter,
    /// The function is left.
    Exit,
}

impl Edge {
    /// This end of a call of `function`, from the place `caller`.
    pub fn of(self, function: usize, caller: usize) -> Event {
        match self {
            Self::Enter => Event::EnterFrom { function, caller },
            Self::Exit => Event::Exit(function),
        }
    }
}

/// Something that happened. Addresses, threads and names are words of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A function was entered.
    Enter(usize),
    /// A function was entered from a place that is known: its call site.
    EnterFrom {
        /// The function.
        function: usize,
        /// Where it returns to.
        caller: usize,
    },
    /// A function was left.
    Exit(usize),
    /// Thread, priority or mode changed without a recorded switch.
    Context {
        /// The thread that runs.
        thread: usize,
        /// Its priority, in the system's own order.
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
    /// The program says something.
    Marker(u32),
    /// The same with a name.
    NamedMarker {
        /// The address of a constant, NUL-terminated string in the program's image.
        name: usize,
        /// What it says.
        value: u32,
    },
    /// `setjmp` is about to be called with this buffer.
    Setjmp(usize),
    /// `longjmp` is about to be called with this buffer.
    Longjmp(usize),
    /// It is this time in the world.
    WallClock {
        /// Nanoseconds since 1970 UTC.
        ns: u64,
        /// By how many that may be wrong, either way; 0 if that is not known.
        uncertainty: u32,
    },
    /// The clock is uncertain from here back to the event before.
    ClockGap {
        /// The least time that passed, in ticks.
        ticks: u64,
    },
    /// Recording was turned on or off.
    Recording {
        /// Whether it is on now.
        on: bool,
        /// Why.
        cause: Cause,
    },
}

/// What is neither a usual entry nor a usual exit: the id of its record, and the two numbers in it, which are no
/// longer than a word.
pub type Parts = (EventId, usize, usize);

/// The same where the first number may be longer; rare, and nothing but its record comes of it.
pub type Parts64 = (EventId, u64, u32);

impl Event {
    /// Where a function was called from, if that is known; else 0.
    #[inline(always)]
    pub const fn caller(&self) -> usize {
        match *self {
            Self::EnterFrom { caller, .. } => caller,
            _ => 0,
        }
    }

    /// The event in parts, in the longest form that does not name more than it must.
    ///
    /// # Errors
    /// One with a number that can be longer than a word.
    #[inline(always)]
    pub fn parts<T: Target>(self) -> Result<Parts, Parts64> {
        // Two small fields as one number.
        let pair = |first: u32, second: u32, bits: u32| match T::LAYOUT.order {
            ByteOrder::Little => first | second << bits,
            ByteOrder::Big => first << bits | second,
        };
        let parts = match self {
            // These have records of other kinds; their functions are what is left here.
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

/// Whether the first number of a [`Recording`](EventId::Recording) says that it is on.
pub(crate) fn turns_on<T: Target>(first: usize) -> bool {
    match T::LAYOUT.order {
        ByteOrder::Little => first & 0xFF != 0,
        ByteOrder::Big => first >> 8 != 0,
    }
}
