//! What a program tells about its code, and what happens to the stacks of its threads.

use crate::element::{Context, Unsynced};

/// Functions that a program has, and the threads that run.
pub trait Program {
    /// The function that has an address, and whether it begins there. `None` if nothing is known of the address.
    fn function(&mut self, context: &Context, address: u64) -> Option<Place>;

    /// The function that stands for an address of which nothing is known. `is_called`: a call or an exception leads
    /// there, so a function begins there from now on. Otherwise execution was only found there.
    fn unknown(&mut self, context: &Context, address: u64, is_called: bool) -> u32;

    /// The function of [`Program::unknown`] that begins at an address: one that was called there.
    fn called(&self, context: &Context, address: u64) -> Option<u32>;

    /// The thread that runs in a context. Numbers are the program's own.
    fn thread(&mut self, context: &Context) -> u32;
}

/// An address in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function, by a number of the program's.
    pub function: u32,
    /// Whether it begins at the address.
    pub is_start: bool,
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
    /// Another thread runs from here on.
    Thread {
        /// Which.
        thread: u32,
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
