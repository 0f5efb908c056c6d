//! What a program tells about its code, what moves execution there, and what follows from that for the stacks of its threads.

use crate::element::{Context, Leave, Range, Unsynced};

/// Functions that a program has, and the threads that run.
pub trait Program {
    /// Where an address is.
    fn place(&mut self, context: &Context, address: u64) -> Place;

    /// The thread that runs in a context. Numbers are the program's own.
    fn thread(&mut self, context: &Context) -> u32;

    /// Whether the branch that a range ends with is a call, which the branch alone does not say.
    fn is_call(&mut self, _range: &Range) -> bool {
        false
    }

    /// Whether a branch to an address returns from an exception (`EXC_RETURN` of the M profile), so that no code is there.
    fn is_exception_return(&mut self, _address: u64) -> bool {
        false
    }

    /// Whether an exception starts everything anew that runs in a context.
    fn is_reset(&mut self, _context: &Context, _number: u32) -> bool {
        false
    }
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a function.
    Function {
        /// Which, by a number of the program's.
        function: u32,
        /// Whether it begins at the address.
        is_start: bool,
    },
    /// In code of which no functions are known.
    Unknown {
        /// Which, by a number of the program's: a file in an address space, say.
        code: u32,
    },
}

/// How execution came to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The trace begins, or was not followed for a while.
    Nothing,
    /// Trace was lost.
    Lost,
    /// Tracing went off behind a range that ended so, at this address, and is on again.
    Pause(Leave, u64),
    /// The range before ended so, at this address.
    Range(Leave, u64),
    /// An exception came.
    Exception,
    /// An exception's handler ended.
    ExceptionReturn,
}

/// Execution comes to an address, and may be in another function there.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub(super) before: Before,
    pub(super) address: u64,
    /// Where the address is.
    pub place: Place,
    /// Whether a program runs, and no kernel.
    pub(super) is_user: bool,
}

/// Something that moves execution between functions: what [`Edges`](super::Edges) find in the elements of a source, and
/// [`Stacks`](super::Stacks) take.
#[derive(Clone, Copy, Debug)]
pub enum Edge {
    /// Execution comes to an address.
    Arrive(Arrival),
    /// An exception cuts in, or is asked for.
    Exception(Cut),
    /// The function that runs has returned, and where to is not traced.
    Returned,
    /// The processor starts anew: nothing that is open on it goes on.
    Reset,
    /// Another thread runs from here on.
    Thread {
        /// Which, by a number of the program's.
        thread: u32,
    },
    /// The program of the thread is replaced by another one.
    Replaced,
    /// What executed is not known, up to the next edge.
    Lost(Lost),
    /// Tracing begins, or goes on.
    TraceOn,
    /// The code says something else than the trace: see [`Step::Mismatch`].
    Mismatch {
        /// Address of the instruction.
        address: u64,
    },
}

/// An exception and where it cuts in.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub(super) number: u32,
    pub(super) return_address: Option<u64>,
    pub(super) before: Before,
    /// It comes as the handler before it ends, in its place: it returns to where that would have returned.
    pub(super) is_chained: bool,
}

/// Something that happened to the stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A function is entered.
    Enter {
        /// Which.
        function: u32,
        /// Where it returns to, if it was called.
        return_address: Option<u64>,
        /// How execution came there.
        how: Entered,
    },
    /// A function is left.
    Exit {
        /// Which.
        function: u32,
        /// Functions that it called and that are left with it, without a return of their own.
        unwound: u32,
    },
    /// An exception cuts in, or was asked for.
    Exception {
        /// By its number.
        number: u32,
    },
    /// Execution goes on where an exception cut in, or its handler ends otherwise.
    ExceptionEnd {
        /// By its number.
        number: u32,
    },
    /// The processor starts anew. What was open there is closed by the steps behind it.
    Reset,
    /// Another thread runs from here on.
    Thread {
        /// Which.
        thread: u32,
    },
    /// Another task runs from here on, of which no context names the thread.
    Stack {
        /// Which: 0 is the one with which the trace begins.
        number: u32,
        /// Whether no other task was interrupted at the address where it goes on.
        is_certain: bool,
    },
    /// What executed is not known, up to the next step.
    Lost(Lost),
    /// Tracing begins, or goes on after it was switched off or a filter kept it from tracing.
    TraceOn,
    /// The code says something else than the trace: a branch without a condition was not taken, or execution goes on
    /// elsewhere than behind the instruction.
    Mismatch {
        /// Address of the instruction.
        address: u64,
    },
}

/// How execution came into a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entered {
    /// By a call.
    Call,
    /// By a jump from a function that ended with it.
    TailCall,
    /// It was found there: the call is not in the trace.
    Found,
    /// It is a function of a coroutine that goes on: it was entered before, and left without a return.
    Resumed,
}

/// Why it is not known what executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The decoder lost the trace.
    Unsynced(Unsynced),
    /// The trace unit lost packets.
    Overflow,
    /// No image has the code at this address.
    NoCode(u64),
    /// The trace does not have the address.
    NoAddress,
    /// Instructions on an unknown path, so many if that is known.
    NoPath(u32),
    /// Tracing was off for a while, and execution goes on elsewhere than where it went off.
    Paused,
}
