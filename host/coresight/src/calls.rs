//! Elements to calls: which functions were entered and left, and which exceptions cut in.
//!
//! What a block of code says of that (its function, how it ends) is looked up once and remembered by the block's number;
//! a range that stays within its function costs two comparisons. Nothing is known here of events or symbols: a
//! [`Program`] says which function has an address.
//!
//! # Rules
//! - A call opens a frame that remembers where it returns to. A return to the address of a frame further out closes
//!   those above it as well: a `longjmp`, or an exception of C++.
//! - A jump to the start of another function is a tail call: the function ends, and the other one takes its frame.
//! - A jump or return into the middle of another function closes frames down to that function, if it is open, also those
//!   of a signal's handler (`siglongjmp`). If it is not, execution was found there: the trace does not have its call. What
//!   is jumped to returns where the function that jumped would have: the code has no symbols (the stubs that bind a
//!   function at its first call, say).
//! - Where nothing is known of the code, a function begins where a call or an exception leads, and nowhere else: where
//!   execution is found, it may be in the middle of a loop. What is found returns to a caller that is not known.
//! - An exception opens a frame of its own. Its end is a return from exceptions, or, where the handler is not traced, that
//!   tracing begins again. If execution goes on elsewhere (a signal handler), the frame of the exception is replaced by
//!   one that returns where the exception came, so that the end of the handler is known.
//! - Where tracing goes on behind the instruction that it paused after, nothing is missing but what was called there.
//!   Elsewhere, and after a loss, the calls that were open may still be: [`Lost`] marks them. They stay open below what is
//!   found, until execution returns among them, or is found elsewhere after one more pause or loss.
//! - Each thread has a stack of its own, chosen by the context. A kernel writes its context register while it switches
//!   stacks, so that both halves of a switch fit the stacks of their threads.

mod close;
mod step;

pub use step::{Entered, Lost, Place, Program, Step};

use std::collections::HashMap;

use crate::element::{Context, Element, Leave, Range, TraceOn, Transaction, Unsynced};
use crate::flow::BlockId;

/// Frames of one thread that are kept; what is deeper is given without them, and found again on the way out.
const DEEPEST: usize = 1 << 16;

/// Frames among which the one is looked for to which execution returns.
const REACH: usize = 4096;

/// Threads whose stacks are kept. Hostile traces have billions.
const THREADS: usize = 1 << 16;

/// What a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Function(u32),
    Exception(u32),
    /// Where a signal handler returns to, in the end.
    Resume,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: Kind,
    /// Where execution goes on behind it, if that is known.
    return_address: Option<u64>,
    /// For a function of which nothing is known: any address where no other function begins may be its.
    is_unknown: bool,
    /// For an exception: how the code before it was left.
    before: Before,
}

/// How execution came to the next range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
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

/// How execution came into the middle of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// As if from a call: frames that were open have ended.
    Returned,
    /// By a jump of the function that ran.
    Jumped,
    /// Behind an exception, or after what was not traced.
    Elsewhere,
}

/// Follows the elements of one source.
#[derive(Debug)]
pub struct Calls {
    /// Instructions so far.
    instructions: u64,
    context: Context,
    thread: u32,
    stack: Vec<Frame>,
    /// The outermost frames, so many, that were open when tracing paused or trace was lost: they may have ended since.
    doubtful: usize,
    /// Stacks of threads that do not run, and how many of their frames are doubtful.
    waiting: HashMap<u32, (Vec<Frame>, usize)>,
    before: Before,
    /// Of each block: its function. Outer `None`: not looked up yet.
    places: Vec<Option<Option<Place>>>,
    /// Calls that are too deep to be kept.
    too_deep: u64,
}

impl Calls {
    /// Begins with the thread that runs in no known context.
    pub fn new(program: &mut impl Program) -> Self {
        let context = Context::default();
        Calls {
            instructions: 0,
            context,
            thread: program.thread(&context),
            stack: Vec::new(),
            doubtful: 0,
            waiting: HashMap::new(),
            before: Before::Nothing,
            places: Vec::new(),
            too_deep: 0,
        }
    }

    /// Instructions that executed so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The thread that runs.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Calls that were not followed because they were more than 65,536 deep.
    pub fn too_deep(&self) -> u64 {
        self.too_deep
    }

    /// Forgets what is known of blocks: their numbers no longer hold.
    pub fn forget_code(&mut self) {
        self.places.clear();
    }

    /// The program of the thread is replaced by another one: nothing of its stack is left.
    pub fn replace(&mut self, out: &mut impl FnMut(Step)) {
        self.unwind(0, out);
        self.before = Before::Nothing;
    }

    /// Takes the next element. Its steps happened before the instructions that it adds.
    #[inline]
    pub fn element(
        &mut self,
        element: &Element,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        match element {
            Element::Range(range) => self.range(range, program, out),
            other => self.other(other, program, out),
        }
    }

    #[inline]
    fn range(&mut self, range: &Range, program: &mut impl Program, out: &mut impl FnMut(Step)) {
        let place = self.place(range.block, range.start, program);
        let stays = match (self.stack.last(), self.before, place) {
            (
                Some(Frame {
                    kind: Kind::Function(function),
                    ..
                }),
                Before::Range(Leave::Next | Leave::Jump, _),
                Some(place),
            ) => *function == place.function,
            _ => false,
        };
        if !stays {
            self.arrive(range.start, place, program, out);
        }
        if let Before::Range(Leave::Next, end) = self.before
            && end != range.start
        {
            out(Step::Mismatch { address: end });
        }
        if !range.is_taken && range.is_mismatch() {
            out(Step::Mismatch {
                address: range.end.wrapping_sub(u64::from(range.last.size)),
            });
        }
        self.instructions += u64::from(range.count);
        self.before = Before::Range(range.leave(), range.end);
    }

    #[inline]
    fn place(
        &mut self,
        block: Option<BlockId>,
        address: u64,
        program: &mut impl Program,
    ) -> Option<Place> {
        let Some(block) = block else {
            return program.function(&self.context, address);
        };
        let index = block as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        match self.places[index] {
            Some(place) => place,
            None => {
                let place = program.function(&self.context, address);
                self.places[index] = Some(place);
                place
            }
        }
    }

    /// Execution comes to an address.
    fn arrive(
        &mut self,
        address: u64,
        place: Option<Place>,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        let before = self.before;
        match before {
            Before::Range(Leave::Call | Leave::IndirectCall, end) => {
                let is_local = place.is_some_and(|place| {
                    !place.is_start && self.function() == Some(place.function)
                });
                // A call within a function is a way to learn the PC, or a routine of its own without a name.
                if !is_local {
                    self.enter(address, place, Some(end), Entered::Call, program, out);
                }
            }
            // Of unknown code any address seems to be within the function, also the one that `br x30` returns to.
            Before::Range(Leave::IndirectJump, _)
                if place.is_some() && self.is_inside(address, place, program) => {}
            Before::Range(Leave::Return | Leave::IndirectJump, _)
                if self.returns(address, false, out) => {}
            Before::Range(Leave::Return, _) => {
                self.leave_found(out);
                self.find(address, place, Came::Returned, program, out);
            }
            Before::Range(Leave::ExceptionReturn, _) | Before::ExceptionReturn => {
                self.resume(address, place, program, out);
            }
            Before::Pause(Leave::Next | Leave::Call | Leave::IndirectCall, end)
                if end == address =>
            {
                self.jump(address, place, program, out);
            }
            Before::Pause(..) => {
                if !self.stack.is_empty() {
                    out(Step::Lost(Lost::Paused));
                }
                self.resume(address, place, program, out);
            }
            Before::Nothing | Before::Lost => self.resume(address, place, program, out),
            Before::Exception => {
                self.enter(address, place, None, Entered::Call, program, out);
            }
            Before::Range(..) => self.jump(address, place, program, out),
        }
    }

    /// The function that runs.
    fn function(&self) -> Option<u32> {
        match self.stack.last()?.kind {
            Kind::Function(function) => Some(function),
            _ => None,
        }
    }

    /// Whether execution is still in the function that ran, as far as that is known.
    fn is_inside(&self, address: u64, place: Option<Place>, program: &impl Program) -> bool {
        match (self.stack.last(), place) {
            (
                Some(Frame {
                    kind: Kind::Function(function),
                    ..
                }),
                Some(place),
            ) => *function == place.function,
            (Some(frame), None) if frame.is_unknown => {
                let begins = program.called(&self.context, address).map(Kind::Function);
                begins.is_none_or(|begins| begins == frame.kind)
            }
            _ => false,
        }
    }

    /// A jump, which may lead into another function.
    fn jump(
        &mut self,
        address: u64,
        place: Option<Place>,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        if self.is_inside(address, place, program) {
            return;
        }
        let is_start = match place {
            Some(place) => place.is_start,
            None => program.called(&self.context, address).is_some(),
        };
        if is_start {
            // The function gives its frame to the other one.
            let frame = self.leave_top(out);
            let return_address = frame.and_then(|frame| frame.return_address);
            let how = match frame {
                Some(_) => Entered::TailCall,
                None => Entered::Found,
            };
            return self.enter(address, place, return_address, how, program, out);
        }
        self.find(address, place, Came::Jumped, program, out);
    }

    /// Execution is in the middle of a function that did not run before: it is open further out, or was not seen yet.
    fn find(
        &mut self,
        address: u64,
        place: Option<Place>,
        came: Came,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        if self.is_inside(address, place, program) {
            return self.confirm();
        }
        let mut bottom = self.stack.len();
        let (mut found, mut is_in_handler) = (None, false);
        for (index, frame) in self.stack.iter().enumerate().rev().take(REACH) {
            match (frame.kind, place) {
                (Kind::Function(function), Some(place)) if function == place.function => {
                    found = Some(index);
                    break;
                }
                (Kind::Function(_), _) if is_in_handler => {}
                (Kind::Function(_), _) => bottom = index,
                // A handler of a signal can jump to what the signal interrupted.
                (Kind::Resume, Some(_)) if came != Came::Elsewhere => is_in_handler = true,
                // What an exception interrupted is not left by it.
                _ => break,
            }
        }
        if let Some(index) = found {
            self.unwind(index + 1, out);
            return self.confirm();
        }
        let mut return_address = None;
        if came == Came::Returned {
            // A return to what was not seen leaves all that was, but for calls that were open before a pause or a loss.
            self.unwind(bottom.max(self.doubtful), out);
        } else if self.stack.len() > self.doubtful {
            let left = self.leave_top(out);
            let jumped = left.filter(|_| came == Came::Jumped);
            return_address = jumped.and_then(|frame| frame.return_address);
        }
        self.enter(address, place, return_address, Entered::Found, program, out);
    }

    /// Execution goes on behind an exception, or after it was not traced for a while.
    fn resume(
        &mut self,
        address: u64,
        place: Option<Place>,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        if self.returns(address, true, out) {
            return;
        }
        let mut frames = self.stack.iter();
        let exception = frames.rposition(|frame| !matches!(frame.kind, Kind::Function(_)));
        let is_return = matches!(
            self.before,
            Before::ExceptionReturn | Before::Range(Leave::ExceptionReturn, _)
        );
        let has_ended = |index: &usize| {
            let is_exception = matches!(self.stack[*index].kind, Kind::Exception(_));
            let is_innermost = index + 1 == self.stack.len();
            is_return || is_exception && (self.context.level == Some(0) || is_innermost)
        };
        let Some(index) = exception.filter(has_ended) else {
            let mut came = Came::Elsewhere;
            if matches!(self.before, Before::Lost | Before::Pause(..)) {
                // What was open before two of them is given up.
                match self.doubtful {
                    0 => self.doubtful = self.stack.len(),
                    _ => (self.doubtful, came) = (0, Came::Returned),
                }
            }
            return self.find(address, place, came, program, out);
        };
        if self.stack[index].return_address.is_none() {
            // Where it came is not known: it was on the way to here.
            let before = self.stack[index].before;
            self.unwind(index, out);
            self.before = match before {
                Before::Range(Leave::Next, _) => Before::Range(Leave::Jump, address),
                before => before,
            };
            return self.arrive(address, place, program, out);
        }
        // The kernel sends the thread elsewhere: to a handler of a signal, which will come back.
        let frame = self.stack[index];
        self.unwind(index, out);
        // Unless it goes on next to it: an instruction is skipped that was emulated, or a system call starts again.
        let is_near = frame
            .return_address
            .is_some_and(|end| end.abs_diff(address) <= 4);
        let is_handler = place.is_some_and(|place| place.is_start)
            || place.is_none() && self.function().is_some();
        if is_handler && !is_near && frame.kind != Kind::Resume {
            self.push(Frame {
                kind: Kind::Resume,
                ..frame
            });
            self.enter(address, place, None, Entered::Call, program, out);
        } else {
            self.find(address, place, Came::Elsewhere, program, out);
        }
    }

    fn enter(
        &mut self,
        address: u64,
        place: Option<Place>,
        return_address: Option<u64>,
        how: Entered,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        let function = match place {
            Some(place) => place.function,
            None => program.unknown(&self.context, address, how == Entered::Call),
        };
        let frame = Frame {
            kind: Kind::Function(function),
            return_address,
            is_unknown: place.is_none(),
            before: Before::Nothing,
        };
        if self.push(frame) {
            out(Step::Enter {
                function,
                return_address,
                how,
            });
        }
    }

    fn push(&mut self, frame: Frame) -> bool {
        if self.stack.len() >= DEEPEST {
            self.too_deep += 1;
            return false;
        }
        self.stack.push(frame);
        true
    }

    #[cold]
    fn other(&mut self, element: &Element, program: &mut impl Program, out: &mut impl FnMut(Step)) {
        match *element {
            Element::Context(context) => {
                self.context = context;
                let thread = program.thread(&context);
                if thread != self.thread {
                    self.switch(thread, out);
                }
            }
            Element::Exception {
                number,
                return_address,
                ..
            } => self.exception(number, return_address, program, out),
            // Behind an instruction that returns from exceptions, it says the same again.
            Element::ExceptionReturn
                if !matches!(self.before, Before::Range(Leave::ExceptionReturn, _)) =>
            {
                self.before = Before::ExceptionReturn;
            }
            Element::TraceOn { why, .. } => {
                // An ETMv4 has said so by a packet of its own.
                if why == TraceOn::Overflow && self.before != Before::Lost {
                    self.lose(Lost::Overflow, out);
                }
                self.before = match self.before {
                    Before::Range(Leave::ExceptionReturn, _) | Before::Exception => Before::Nothing,
                    Before::Range(leave, end) => Before::Pause(leave, end),
                    before => before,
                };
                out(Step::TraceOn);
            }
            Element::NoSync(Unsynced::Init) => self.before = Before::Nothing,
            Element::NoSync(why) => self.lose(Lost::Unsynced(why), out),
            Element::NotAccessible { address, .. } => {
                // Where execution is and how it got there is known. A jump there is a tail call, by the stub of a library say.
                let is_jump = matches!(
                    self.before,
                    Before::Range(Leave::Jump | Leave::IndirectJump, _)
                );
                let place = program.function(&self.context, address);
                let place = place.map(|place| Place {
                    is_start: place.is_start || is_jump,
                    ..place
                });
                self.arrive(address, place, program, out);
                self.lose(Lost::NoCode(address), out);
            }
            Element::AddressUnknown => self.lose(Lost::NoAddress, out),
            // Execution goes on behind the instruction that began the transaction, in its function.
            Element::Transaction(Transaction::Fail) => {
                if let Before::Range(_, end) = self.before {
                    self.before = Before::Range(Leave::Jump, end);
                }
            }
            Element::RangeWithoutPath { count, .. } => {
                self.lose(Lost::NoPath(count), out);
                self.instructions += u64::from(count);
            }
            _ => {}
        }
    }

    fn lose(&mut self, why: Lost, out: &mut impl FnMut(Step)) {
        self.before = match why {
            // Where execution was is known, or nothing was traced.
            Lost::NoCode(_) | Lost::Unsynced(Unsynced::Reset | Unsynced::EndOfTrace) => {
                Before::Nothing
            }
            _ => Before::Lost,
        };
        out(Step::Lost(why));
    }

    fn exception(
        &mut self,
        number: u32,
        return_address: Option<u64>,
        program: &mut impl Program,
        out: &mut impl FnMut(Step),
    ) {
        // Of ETMv3, and where an exception comes upon another one, the packet does not have it.
        let return_address = return_address.or(match self.before {
            Before::Range(Leave::Next, end) => Some(end),
            _ => None,
        });
        let is_under_way = match self.before {
            Before::Range(leave, _) => leave != Leave::Next,
            before => before == Before::ExceptionReturn,
        };
        if is_under_way && let Some(address) = return_address {
            // What was on its way when the exception came has arrived.
            let place = program.function(&self.context, address);
            self.arrive(address, place, program, out);
        }
        let before = self.before;
        let is_kept = self.push(Frame {
            kind: Kind::Exception(number),
            return_address,
            is_unknown: false,
            before,
        });
        if is_kept {
            out(Step::Exception { number });
        }
        self.before = Before::Exception;
    }

    fn switch(&mut self, thread: u32, out: &mut impl FnMut(Step)) {
        let stack = std::mem::take(&mut self.stack);
        if self.waiting.len() >= THREADS {
            self.waiting.clear();
        }
        self.waiting.insert(self.thread, (stack, self.doubtful));
        (self.stack, self.doubtful) = self.waiting.remove(&thread).unwrap_or_default();
        if matches!(self.before, Before::Pause(..)) {
            // It was another thread that was traced before.
            self.before = Before::Nothing;
        }
        self.thread = thread;
        out(Step::Thread { thread });
    }
}
