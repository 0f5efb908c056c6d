//! The stack of one thread: what an edge does to it.

use std::collections::HashMap;

use super::Functions;
use super::step::{Arrival, Before, Cut, Entered, Lost, Place, Step};
use super::switches::Suspended;
use crate::element::Leave;

/// Frames of one thread that are kept; what is deeper is given without them, and found again on the way out.
const DEEPEST: usize = 1 << 16;

/// Frames among which the one is looked for to which execution returns.
pub(super) const REACH: usize = 4096;

/// What a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function(u32),
    Exception(u32),
    /// Where a signal handler returns to, in the end.
    Resume,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: Kind,
    /// Where execution goes on behind it, if that is known.
    pub return_address: Option<u64>,
    /// For a function of which nothing is known: any address where no other function begins may be its.
    pub is_unknown: bool,
    /// A return or an indirect jump to its start began it, in the frame of another function. If it returns elsewhere than to
    /// the return address, it was a coroutine.
    pub is_begun: bool,
    /// For an exception: how the code before it was left. For what a signal's handler returned to: that return.
    before: Before,
}

/// How execution came into the middle of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// As if from a call: frames that were open have ended.
    Returned,
    /// By a jump of the function that ran.
    Jumped,
    /// Behind an exception, or after what was not traced.
    Elsewhere,
}

/// What all stacks share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Functions in code without symbols, by the code and their address, and whether a call led there.
    unknown: HashMap<(u32, u64), (u32, bool)>,
    /// Calls that are too deep to be kept.
    pub too_deep: u64,
    /// Frames of coroutines that do not run, in all stacks.
    pub suspended: usize,
}

impl Shared {
    /// The function that stands for an address of which nothing is known. `is_called`: a call or an exception leads there,
    /// so a function begins there from now on. Otherwise execution was only found there.
    fn function(
        &mut self,
        (code, address): (u32, u64),
        is_called: bool,
        functions: &mut impl Functions,
    ) -> u32 {
        let known = self.unknown.entry((code, address));
        let (function, was_called) = known.or_insert_with(|| (functions(code, address), false));
        *was_called |= is_called;
        *function
    }

    /// The function that begins at such an address: one that was called there.
    fn called(&self, code: u32, address: u64) -> Option<u32> {
        let (function, is_called) = self.unknown.get(&(code, address))?;
        is_called.then_some(*function)
    }
}

/// The calls of a thread that are open.
#[derive(Debug, Default)]
pub(super) struct Stack {
    pub frames: Vec<Frame>,
    /// The outermost frames, so many, that were open when tracing paused or trace was lost: they may have ended since.
    pub doubtful: usize,
    /// Where the function returned to that ran last before a pause, if it did.
    pub left: Option<u64>,
    /// Coroutines that do not run, in the order in which they were left.
    pub suspended: Vec<Suspended>,
}

impl Stack {
    /// Execution comes to an address.
    pub fn arrive(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        match at.before {
            Before::Range(Leave::Call | Leave::IndirectCall, end) => {
                let is_local = match at.place {
                    Place::Function { function, is_start } => {
                        !is_start && self.function() == Some(function)
                    }
                    Place::Unknown { .. } => false,
                };
                // A call within a function is a way to learn the PC, or a routine of its own without a name.
                if !is_local {
                    self.enter(at, Some(end), Entered::Call, shared, functions, out);
                }
            }
            // Of unknown code any address seems to be within the function, also the one that `br x30` returns to.
            Before::Range(Leave::IndirectJump, _)
                if matches!(at.place, Place::Function { .. }) && self.is_inside(at, shared) => {}
            Before::Range(Leave::IndirectJump, _) if self.calls_interrupted(at) => {
                self.jump(at, shared, functions, out);
            }
            Before::Range(Leave::Return | Leave::IndirectJump, _)
                if self.returns(at.address, false, shared, out)
                    || self.resume_suspended(at, shared, out) => {}
            // `ret` with an address in the link register where a coroutine begins.
            Before::Range(Leave::Return, _) if self.starts(at) => {
                self.jump(at, shared, functions, out);
            }
            // A coroutine has ended, where the way to the next one begins (`uc_link`). That is in the frame that it had.
            Before::Range(Leave::Return, _)
                if self.frames.last().is_some_and(|top| top.is_begun) =>
            {
                let frame = self.leave_top(out);
                let return_address = frame.and_then(|frame| frame.return_address);
                self.enter(at, return_address, Entered::Found, shared, functions, out);
            }
            Before::Range(Leave::Return, _) => {
                self.leave_found(out);
                self.find(at, Route::Returned, shared, functions, out);
            }
            Before::Range(Leave::ExceptionReturn, _) | Before::ExceptionReturn => {
                self.resume(at, shared, functions, out);
            }
            Before::Pause(Leave::Next | Leave::Call | Leave::IndirectCall, end)
                if end == at.address =>
            {
                self.jump(at, shared, functions, out);
            }
            // It had returned to here.
            Before::Pause(Leave::Return, _) if self.left == Some(at.address) => {
                self.left = None;
                self.find(at, Route::Elsewhere, shared, functions, out);
            }
            Before::Pause(..) => {
                if !self.frames.is_empty() {
                    out(Step::Lost(Lost::Paused));
                }
                self.resume(at, shared, functions, out);
            }
            Before::Nothing | Before::Lost => self.resume(at, shared, functions, out),
            Before::Exception => self.enter(at, None, Entered::Call, shared, functions, out),
            Before::Range(..) => self.jump(at, shared, functions, out),
        }
    }

    /// Execution goes on in this stack, where it was interrupted, or somewhere in it.
    pub fn go_on(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        self.find(at, Route::Elsewhere, shared, functions, out);
    }

    /// An exception cuts in.
    pub fn exception(&mut self, cut: &Cut, shared: &mut Shared, out: &mut impl FnMut(Step)) {
        let Cut {
            number,
            mut return_address,
            mut before,
            is_chained,
        } = *cut;
        if is_chained {
            let is_exception = |frame: &Frame| matches!(frame.kind, Kind::Exception(_));
            let ended = self.frames.iter().rposition(is_exception);
            if let Some((index, ended)) = ended.and_then(|it| Some((it, *self.frames.get(it)?))) {
                (return_address, before) = (ended.return_address, ended.before);
                self.unwind(index, out);
            }
        }
        let is_kept = self.push(
            Frame {
                kind: Kind::Exception(number),
                return_address,
                is_unknown: false,
                is_begun: false,
                before,
            },
            shared,
        );
        if is_kept {
            out(Step::Exception { number });
        }
    }

    /// The function that runs.
    fn function(&self) -> Option<u32> {
        match self.frames.last()?.kind {
            Kind::Function(function) => Some(function),
            _ => None,
        }
    }

    /// Whether execution is still in the function that ran, as far as that is known.
    fn is_inside(&self, at: &Arrival, shared: &Shared) -> bool {
        let Some(top) = self.frames.last() else {
            return false;
        };
        match at.place {
            Place::Function { function, .. } => top.kind == Kind::Function(function),
            Place::Unknown { code } => {
                let begins = shared.called(code, at.address).map(Kind::Function);
                top.is_unknown && begins.is_none_or(|begins| begins == top.kind)
            }
        }
    }

    /// Whether a jump leads from a signal's handler to the start of a function at which the signal came. A handler goes back by
    /// a return, to a trampoline: this is a tail call.
    fn calls_interrupted(&self, at: &Arrival) -> bool {
        let is_start = matches!(at.place, Place::Function { is_start: true, .. });
        let mut frames = self.frames.iter().rev().take(REACH);
        let first = frames.find(|frame| {
            !matches!(frame.kind, Kind::Function(_)) || frame.return_address == Some(at.address)
        });
        is_start
            && first.is_some_and(|frame| {
                frame.kind == Kind::Resume && frame.return_address == Some(at.address)
            })
    }

    /// Whether what runs is what a signal's handler returned to, which asks the kernel to go on behind the signal.
    fn is_trampoline(&self) -> bool {
        match self.frames.as_slice() {
            [.., below, top] => {
                below.kind == Kind::Resume && matches!(top.before, Before::Range(Leave::Return, _))
            }
            _ => false,
        }
    }

    /// Whether a return that leads to no open frame begins a function, in the place of one that was called.
    fn starts(&self, at: &Arrival) -> bool {
        let is_start = matches!(at.place, Place::Function { is_start: true, .. });
        let top = self.frames.last();
        is_start && top.is_some_and(|top| top.return_address.is_some())
    }

    /// A jump, which may lead into another function.
    fn jump(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        if self.is_inside(at, shared) {
            return;
        }
        let is_start = match at.place {
            Place::Function { is_start, .. } => is_start,
            Place::Unknown { code } => shared.called(code, at.address).is_some(),
        };
        if is_start {
            // The function gives its frame to the other one.
            let frame = self.leave_top(out);
            let return_address = frame.and_then(|frame| frame.return_address);
            let how = match frame {
                Some(_) => Entered::TailCall,
                None => Entered::Found,
            };
            return self.enter(at, return_address, how, shared, functions, out);
        }
        self.find(at, Route::Jumped, shared, functions, out);
    }

    /// Execution is in the middle of a function that did not run before: it is open further out, or was not seen yet.
    fn find(
        &mut self,
        at: &Arrival,
        arrived: Route,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        if self.is_inside(at, shared) {
            return self.confirm();
        }
        let wanted = match at.place {
            Place::Function { function, .. } => Some(Kind::Function(function)),
            Place::Unknown { .. } => None,
        };
        let mut bottom = self.frames.len();
        let (mut found, mut is_in_handler) = (None, false);
        for (index, frame) in self.frames.iter().enumerate().rev().take(REACH) {
            match frame.kind {
                kind if Some(kind) == wanted => {
                    found = Some(index);
                    break;
                }
                Kind::Function(_) if is_in_handler => {}
                Kind::Function(_) => bottom = index,
                // A handler of a signal can jump to what the signal interrupted.
                Kind::Resume if wanted.is_some() && arrived != Route::Elsewhere => {
                    is_in_handler = true
                }
                // What an exception interrupted is not left by it.
                _ => break,
            }
        }
        if let Some(index) = found {
            self.unwind(index + 1, out);
            return self.confirm();
        }
        let mut return_address = None;
        if arrived == Route::Returned {
            // A return to what was not seen leaves all that was, but for calls that were open before a pause or a loss.
            self.unwind(bottom.max(self.doubtful), out);
        } else if self.frames.len() > self.doubtful {
            let left = self.leave_top(out);
            let jumped = left.filter(|_| arrived == Route::Jumped);
            return_address = jumped.and_then(|frame| frame.return_address);
        }
        self.enter(at, return_address, Entered::Found, shared, functions, out);
    }

    /// Execution goes on behind an exception, or after it was not traced for a while.
    fn resume(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        if matches!(at.before, Before::Lost | Before::Pause(..)) {
            self.forget_suspended(shared);
        }
        if self.returns(at.address, true, shared, out) {
            // What was interrupted may not have been seen, or without its code.
            if let Place::Function { function, .. } = at.place
                && self.function() != Some(function)
            {
                self.find(at, Route::Elsewhere, shared, functions, out);
            }
            return;
        }
        let mut frames = self.frames.iter();
        let exception = frames.rposition(|frame| !matches!(frame.kind, Kind::Function(_)));
        let is_return = matches!(
            at.before,
            Before::ExceptionReturn | Before::Range(Leave::ExceptionReturn, _)
        );
        let has_ended = |index: &usize| {
            let is_exception = matches!(self.frames[*index].kind, Kind::Exception(_));
            let is_innermost = index + 1 == self.frames.len();
            is_return || is_exception && (at.is_user || is_innermost)
        };
        let Some(index) = exception.filter(has_ended) else {
            let mut arrived = Route::Elsewhere;
            if matches!(at.before, Before::Lost | Before::Pause(..)) {
                // What was open before two of them is given up.
                match self.doubtful {
                    0 => self.doubtful = self.frames.len(),
                    _ => (self.doubtful, arrived) = (0, Route::Returned),
                }
            }
            return self.find(at, arrived, shared, functions, out);
        };
        let frame = self.frames[index];
        self.unwind(index, out);
        let Some(end) = frame.return_address else {
            // Where it came is not known: it was on the way to here.
            let before = match frame.before {
                Before::Range(Leave::Next, _) => Before::Range(Leave::Jump, at.address),
                before => before,
            };
            return self.arrive(&Arrival { before, ..*at }, shared, functions, out);
        };
        // The kernel sends the thread elsewhere: to a handler of a signal, which will come back. Unless it goes on next to
        // it: an instruction is skipped that was emulated, or a system call starts again.
        let is_near = end.abs_diff(at.address) <= 4;
        let is_handler = match at.place {
            Place::Function { is_start, .. } => is_start,
            Place::Unknown { .. } => self.function().is_some(),
        };
        if is_handler && !is_near && frame.kind != Kind::Resume {
            if self.is_trampoline() {
                // Another signal waited: it came where the one before did.
                self.leave_top(out);
            } else {
                let kind = Kind::Resume;
                self.push(Frame { kind, ..frame }, shared);
            }
            self.enter(at, None, Entered::Call, shared, functions, out);
        } else {
            self.find(at, Route::Elsewhere, shared, functions, out);
        }
    }

    fn enter(
        &mut self,
        at: &Arrival,
        return_address: Option<u64>,
        how: Entered,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        let (function, is_unknown) = match at.place {
            Place::Function { function, .. } => (function, false),
            Place::Unknown { code } => {
                let is_called = how == Entered::Call;
                let function = shared.function((code, at.address), is_called, functions);
                (function, true)
            }
        };
        let top = self.frames.last();
        let before = match at.before {
            Before::Range(Leave::Return, _) if top.is_some_and(|it| it.kind == Kind::Resume) => {
                at.before
            }
            _ => Before::Nothing,
        };
        let is_begun = how == Entered::TailCall
            && matches!(
                at.before,
                Before::Range(Leave::Return | Leave::IndirectJump, _)
            );
        let frame = Frame {
            kind: Kind::Function(function),
            return_address,
            is_unknown,
            is_begun,
            before,
        };
        if self.push(frame, shared) {
            out(Step::Enter {
                function,
                return_address,
                how,
            });
        }
    }

    pub(super) fn push(&mut self, frame: Frame, shared: &mut Shared) -> bool {
        let is_kept = self.frames.len() < DEEPEST;
        match is_kept {
            true => self.frames.push(frame),
            false => shared.too_deep += 1,
        }
        is_kept
    }
}
