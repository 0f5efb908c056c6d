//! Call stack of one thread, and the effect of each edge on it.

use std::collections::HashMap;

use super::Functions;
use super::step::{Arrival, Before, Cut, Entered, Lost, Place, Step};
use super::switches::Suspended;
use crate::element::Leave;

/// Limit of frames of one thread. Deeper calls get no frame, and their callers are found again on the way out.
const DEEPEST: usize = 1 << 16;

/// Number of innermost frames searched for the one to which execution returns.
pub(super) const REACH: usize = 4096;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function(u32),
    Exception(u32),
    /// Code that a signal interrupted, to which its handler finally returns.
    Resume,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: Kind,
    /// Return address, if known.
    pub return_address: Option<u64>,
    /// Code that contains the function, if the function's extent is unknown: any address of this code at which no other
    /// function begins may belong to it.
    pub code: Option<u32>,
    /// Whether it was entered by a return or an indirect jump to its start, in the frame of another function. If it
    /// does not return to the return address, it was a coroutine.
    pub is_begun: bool,
    /// Last step of execution before an exception. For the code to which a signal handler returned, that return.
    before: Before,
}

/// Way in which execution came into the middle of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// As if from a call: the frames open above the function have ended.
    Returned,
    /// By a jump of the last function.
    Jumped,
    /// After an exception or untraced code.
    Elsewhere,
}

/// State that all stacks share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Functions in code without symbols, by code and address, and whether a call led there.
    unknown: HashMap<(u32, u64), (u32, bool)>,
    /// Number of calls too deep for a frame.
    pub too_deep: u64,
    /// Number of frames of suspended coroutines, in all stacks.
    pub suspended: usize,
}

impl Shared {
    /// Function for an address in code without symbols. `is_called` tells that a call or an exception leads there, so
    /// that a function begins there from now on; otherwise execution was only found there.
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

    /// Function that begins at an address in code without symbols, if a call led there.
    fn called(&self, code: u32, address: u64) -> Option<u32> {
        let (function, is_called) = self.unknown.get(&(code, address))?;
        is_called.then_some(*function)
    }
}

/// Open calls of a thread.
#[derive(Debug, Default)]
pub(super) struct Stack {
    pub frames: Vec<Frame>,
    /// Number of outermost frames that were open when tracing paused or trace was lost, and that may have ended since.
    pub doubtful: usize,
    /// Return address of the function whose return was the last instruction before a pause.
    pub left: Option<u64>,
    /// Calls too deep for a frame, in runs: the return address and the number of calls with it in a row.
    pub hidden: Vec<(Option<u64>, u64)>,
    /// Where execution is in the innermost of the calls too deep for a frame.
    pub within: Option<Place>,
    /// Suspended coroutines, in the order of their suspension.
    pub suspended: Vec<Suspended>,
}

impl Stack {
    /// Applies an arrival at an address.
    pub fn arrive(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        if !self.hidden.is_empty() && self.arrive_hidden(at, shared) {
            return;
        }
        match at.before {
            Before::Range(Leave::Call | Leave::IndirectCall, end) => {
                let is_local = match at.place {
                    Place::Function { function, is_start } => {
                        !is_start && self.function() == Some(function)
                    }
                    Place::Unknown { .. } => false,
                };
                // A call within a function reads the PC, or calls a local routine without a symbol.
                if !is_local {
                    self.enter(at, Some(end), Entered::Call, shared, functions, out);
                }
            }
            // In code without symbols, any address counts as inside the function, even the target of a return by `br
            // x30`.
            Before::Range(Leave::IndirectJump, _)
                if matches!(at.place, Place::Function { .. }) && self.is_inside(at, shared) => {}
            Before::Range(Leave::IndirectJump, _) if self.calls_interrupted(at) => {
                self.jump(at, shared, functions, out);
            }
            Before::Range(Leave::Return | Leave::IndirectJump, _)
                if self.returns(at.address, false, shared, out)
                    || self.resume_suspended(at, shared, out) => {}
            // `ret` whose link register holds the start of a coroutine.
            Before::Range(Leave::Return, _) if self.starts(at) => {
                self.jump(at, shared, functions, out);
            }
            // A coroutine has ended and continues with its successor (`uc_link`), which takes over its frame.
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
            // The function had returned to this address before the pause.
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

    /// Resumes this stack at the interrupted address, or elsewhere in it.
    pub fn go_on(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        functions: &mut impl Functions,
        out: &mut impl FnMut(Step),
    ) {
        self.find(at, Route::Elsewhere, shared, functions, out);
    }

    /// Applies an exception.
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
                code: None,
                is_begun: false,
                before,
            },
            shared,
        );
        if is_kept {
            out(Step::Exception { number });
        }
    }

    /// Current function.
    pub fn function(&self) -> Option<u32> {
        match self.frames.last()?.kind {
            Kind::Function(function) => Some(function),
            _ => None,
        }
    }

    /// Whether execution is still in the current function, as far as its extent is known.
    fn is_inside(&self, at: &Arrival, shared: &Shared) -> bool {
        let Some(top) = self.frames.last() else {
            return false;
        };
        match at.place {
            Place::Function { function, .. } => top.kind == Kind::Function(function),
            Place::Unknown { code } => {
                let begins = shared.called(code, at.address).map(Kind::Function);
                top.code == Some(code) && begins.is_none_or(|begins| begins == top.kind)
            }
        }
    }

    /// Index of the innermost open function of the code without symbols at an arrival, if no other function begins
    /// there: its extent is unknown.
    fn innermost_of_code(&self, at: &Arrival, shared: &Shared) -> Option<usize> {
        let Place::Unknown { code } = at.place else {
            return None;
        };
        if shared.called(code, at.address).is_some() {
            return None;
        }
        let frames = self.frames.iter().enumerate().rev().take(REACH);
        let mut functions = frames.take_while(|(_, frame)| matches!(frame.kind, Kind::Function(_)));
        let (index, _) = functions.find(|(_, frame)| frame.code == Some(code))?;
        Some(index)
    }

    /// Whether a jump leads from a signal handler to the start of the function that the signal interrupted at its
    /// start. Handlers return to a trampoline by a return, so the jump is a tail call.
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

    /// Whether the current function is the trampoline to which a signal handler returned, which makes the `sigreturn`
    /// call.
    fn is_trampoline(&self) -> bool {
        match self.frames.as_slice() {
            [.., below, top] => {
                below.kind == Kind::Resume && matches!(top.before, Before::Range(Leave::Return, _))
            }
            _ => false,
        }
    }

    /// Whether a return that leads to no open frame enters a function at its start, in the frame of a called function.
    fn starts(&self, at: &Arrival) -> bool {
        let is_start = matches!(at.place, Place::Function { is_start: true, .. });
        let top = self.frames.last();
        is_start && top.is_some_and(|top| top.return_address.is_some())
    }

    /// Applies a jump, which may lead into another function.
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
            // The other function takes over the frame.
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

    /// Handles execution in the middle of another function: one that is open further out, or not known yet.
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
                // A signal handler can jump to code that the signal interrupted.
                Kind::Resume if wanted.is_some() && arrived != Route::Elsewhere => {
                    is_in_handler = true
                }
                // Frames below an exception stay open.
                _ => break,
            }
        }
        if let Some(index) = found {
            match arrived {
                Route::Elsewhere => self.unwind(index + 1, out),
                Route::Returned | Route::Jumped => self.leave_above(index, out),
            }
            return self.confirm();
        }
        let mut return_address = None;
        if arrived == Route::Returned {
            // A return to an unknown caller ends all open calls, except for those open before a pause or a loss.
            self.unwind(bottom.max(self.doubtful), out);
        } else if self.frames.len() > self.doubtful {
            let left = self.leave_top(out);
            let jumped = left.filter(|_| arrived == Route::Jumped);
            return_address = jumped.and_then(|frame| frame.return_address);
        }
        self.enter(at, return_address, Entered::Found, shared, functions, out);
    }

    /// Resumes after an exception or untraced code.
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
            // The interrupted function may be missing from the trace, or its code from the images.
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
                // Calls open before two pauses or losses are closed.
                match self.doubtful {
                    0 => self.doubtful = self.frames.len(),
                    _ => (self.doubtful, arrived) = (0, Route::Returned),
                }
                if let Some(index) = self.innermost_of_code(at, shared) {
                    self.unwind(index + 1, out);
                    return self.confirm();
                }
            }
            return self.find(at, arrived, shared, functions, out);
        };
        let frame = self.frames[index];
        self.unwind(index, out);
        let Some(end) = frame.return_address else {
            // The interrupted address is unknown; execution was on its way to this address.
            let before = match frame.before {
                Before::Range(Leave::Next, _) => Before::Range(Leave::Jump, at.address),
                before => before,
            };
            return self.arrive(&Arrival { before, ..*at }, shared, functions, out);
        };
        // The kernel resumed the thread elsewhere, in a signal handler that will return; except for addresses next to
        // the interrupted one, where the kernel skips an emulated instruction or restarts a system call.
        let is_near = end.abs_diff(at.address) <= 4;
        let is_handler = match at.place {
            Place::Function { is_start, .. } => is_start,
            Place::Unknown { .. } => self.function().is_some(),
        };
        if is_handler && !is_near && frame.kind != Kind::Resume {
            if self.is_trampoline() {
                // Another signal was pending: it interrupts the same address as the one before.
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
        let (function, code) = match at.place {
            Place::Function { function, .. } => (function, None),
            Place::Unknown { code } => {
                let is_called = how == Entered::Call;
                let function = shared.function((code, at.address), is_called, functions);
                (function, Some(code))
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
            code,
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
            false => {
                shared.too_deep += 1;
                self.hide(frame.return_address);
                self.within = match (frame.kind, frame.code) {
                    (_, Some(code)) => Some(Place::Unknown { code }),
                    (Kind::Function(function), None) => Some(Place::Function {
                        function,
                        is_start: true,
                    }),
                    _ => None,
                };
            }
        }
        is_kept
    }
}
