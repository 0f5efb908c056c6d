//! Input and output of the call stacks: programs, edges of execution, and the resulting steps of a stack.

use crate::element::{Context, Leave, Range, Unsynced};

/// Functions and threads of a program.
pub trait Program {
    /// Function or code that contains an address.
    fn place(&mut self, context: &Context, address: u64) -> Place;

    /// Thread that runs in a context. The program defines the numbers.
    fn thread(&mut self, context: &Context) -> u32;

    /// Function that represents instructions whose path is unknown; `None` to count them for no function.
    fn unknown_path(&mut self, _context: &Context) -> Option<Place> {
        None
    }

    /// Whether the branch at the end of a range is a call although its opcode is not a call's.
    fn is_call(&mut self, _range: &Range) -> bool {
        false
    }

    /// Whether the branch at the end of a range returns from an exception, which the decoder does not tell of A32 and
    /// T32 (not all protocols have a packet for it).
    fn returns_from_exception(&mut self, _range: &Range) -> bool {
        false
    }

    /// Whether a branch to an address is an exception return (`EXC_RETURN` of the M profile), so that no code is there.
    fn is_exception_return(&mut self, _address: u64) -> bool {
        false
    }

    /// Whether an exception resets the processor in a context.
    fn is_reset(&mut self, _context: &Context, _number: u32) -> bool {
        false
    }
}

/// Function or code that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a function.
    Function {
        /// Number that the program defines.
        function: u32,
        /// Whether it begins at the address.
        is_start: bool,
    },
    /// In code without known functions.
    Unknown {
        /// Number that the program defines, for example for a file in an address space.
        code: u32,
    },
}

/// Last step of execution before an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The trace began, or was not followed for a while.
    Nothing,
    /// Trace was lost.
    Lost,
    /// Tracing paused after a range that ended so, at this address, and has resumed.
    Pause(Leave, u64),
    /// The last range ended so, at this address.
    Range(Leave, u64),
    /// An exception was taken.
    Exception,
    /// An exception's handler ended.
    ExceptionReturn,
}

/// Arrival of execution at an address, possibly in another function.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub(super) before: Before,
    pub(super) address: u64,
    /// Where the address is.
    pub place: Place,
    /// Whether user code runs, not the kernel.
    pub(super) is_user: bool,
}

/// Possible change of the current function. [`Edges`](super::Edges) find them in the elements of a source, and
/// [`Stacks`](super::Stacks) apply them.
#[derive(Clone, Copy, Debug)]
pub enum Edge {
    /// Execution arrives at an address.
    Arrive(Arrival),
    /// An exception is taken, or the program requests it.
    Exception(Cut),
    /// The current function has returned to untraced code.
    Returned,
    /// The processor is reset: all frames on it end.
    Reset,
    /// Execution switches to another thread.
    Thread {
        /// Number that the program defines.
        thread: u32,
    },
    /// Another program replaces the thread's.
    Replaced,
    /// The instructions up to the next edge are unknown.
    Lost(Lost),
    /// Tracing begins or resumes.
    TraceOn,
    /// Code and trace disagree: see [`Step::Mismatch`].
    Mismatch {
        /// Address of the instruction.
        address: u64,
        /// Number of instructions of the current range before it; 0 if the range begins behind it.
        behind: u32,
    },
}

/// Exception, and the point that it interrupts.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub(super) number: u32,
    pub(super) return_address: Option<u64>,
    pub(super) before: Before,
    /// Whether it is taken at the end of another handler (tail-chaining), and returns to where that would have
    /// returned.
    pub(super) is_chained: bool,
}

/// Change of a thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A function is entered.
    Enter {
        /// Which.
        function: u32,
        /// Return address, if it was called.
        return_address: Option<u64>,
        /// How execution entered it.
        how: Entered,
    },
    /// A function is exited.
    Exit {
        /// Which.
        function: u32,
        /// Number of its callees that end with it, without a return of their own.
        unwound: u32,
        /// Whether it has not returned either: a jump went past it, to a function further out.
        is_left: bool,
    },
    /// An exception is taken, or the program requested it.
    Exception {
        /// Exception number.
        number: u32,
    },
    /// Execution resumes at the address that an exception interrupted, or its handler ends otherwise.
    ExceptionEnd {
        /// Exception number.
        number: u32,
    },
    /// The processor is reset. The steps after this one close the open frames.
    Reset,
    /// Execution switches to another thread.
    Thread {
        /// Which.
        thread: u32,
    },
    /// Execution switches to another task whose thread no context names.
    Stack {
        /// Number of its stack: 0 is the stack with which the trace begins.
        number: u32,
        /// Whether it is the only task that was interrupted at the address at which it resumes.
        is_certain: bool,
    },
    /// The instructions up to the next step are unknown.
    Lost(Lost),
    /// Tracing begins, or resumes after it was off or filtered.
    TraceOn,
    /// Code and trace disagree: an unconditional branch was not taken, or execution did not continue with the
    /// instruction after one that is no branch.
    Mismatch {
        /// Address of the instruction.
        address: u64,
    },
}

/// How execution entered a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entered {
    /// By a call.
    Call,
    /// By a jump from a function that ended with it.
    TailCall,
    /// Execution was found in it; the trace does not have its call.
    Found,
    /// It is a function of a resumed coroutine, entered before and abandoned without a return.
    Resumed,
}

/// Reason why the executed instructions are unknown.
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
    /// Instructions ran on an unknown path; their number, 0 if unknown.
    NoPath(u32),
    /// Tracing was off for a while, and resumed at another address.
    Paused,
}
