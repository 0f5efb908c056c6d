//! Task stacks of a processor without thread contexts: tasks of a kernel that switches them by exception returns.
//!
//! A handler that returns to another address than the interrupted one has switched tasks. The stack that the exception
//! interrupted stays open, and resumes when a handler returns to the address at which it was interrupted.
//!
//! Tasks that yield in the same function are interrupted at the same address. Of several stacks that wait for one
//! address, the one that has waited longest resumes. If the interrupted task is one of them, the more frequent past
//! result of that handler decides whether the task itself resumes. If the resumed task then returns to the return
//! address of another candidate, that candidate replaces it. Both cases are counted as doubtful, because the code since
//! the exception may have run in the other task.

use std::collections::HashMap;

use super::Stacks;
use super::stack::{Kind, REACH, Shared, Stack};
use super::step::{Arrival, Before, Step};
use crate::element::Leave;

/// Limit of interrupted stacks of one source. A new one replaces the oldest.
const KEPT: usize = 256;

/// Task stacks of one source.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Number of the running stack; 0 is the first one.
    running: u32,
    /// Number of stacks so far.
    numbers: u32,
    /// Address to which the last exception returned, until the next exception.
    resumed: Option<u64>,
    /// Interrupted stacks, in the order of their interruption.
    waiting: Vec<Waiting>,
    /// For each exception number, the count of returns that certainly switched tasks minus the count of those that
    /// certainly did not.
    switches: HashMap<u32, i64>,
}

#[derive(Debug)]
struct Waiting {
    stack: Stack,
    number: u32,
    /// Address at which it was interrupted.
    resume: u64,
}

impl Tasks {
    /// Swaps the running stack with the waiting one at index `next`, or with a new one.
    fn switch(
        &mut self,
        stack: &mut Stack,
        resume: Option<u64>,
        next: Option<usize>,
        shared: &mut Shared,
    ) -> u32 {
        let (to, number) = match next.map(|next| self.waiting.remove(next)) {
            Some(found) => (found.stack, found.number),
            None => {
                self.numbers += 1;
                (Stack::default(), self.numbers)
            }
        };
        let mut from = std::mem::replace(stack, to);
        from.forget_suspended(shared);
        let before = std::mem::replace(&mut self.running, number);
        if let Some(resume) = resume {
            if self.waiting.len() >= KEPT {
                self.waiting.remove(0);
            }
            self.waiting.push(Waiting {
                stack: from,
                number: before,
                resume,
            });
        }
        number
    }

    /// Index of the stack that has waited longest for an address, and whether others wait for it too.
    fn waiting_at(&self, address: u64) -> Option<(usize, bool)> {
        let mut all = self.waiting.iter().enumerate();
        let (first, _) = all.find(|(_, it)| it.resume == address)?;
        Some((first, all.any(|(_, it)| it.resume == address)))
    }
}

impl Stacks {
    /// Switches stacks if execution arrives in another task. Returns whether the frames of that task continue, so that
    /// the arrival enters or exits no other function.
    pub(super) fn switch_task(
        &mut self,
        source: usize,
        place: usize,
        at: &Arrival,
        out: &mut impl FnMut(Step),
    ) -> bool {
        let (Some(stack), true) = (self.stacks.get_mut(place), self.has_tasks) else {
            return false;
        };
        let tasks = self.tasks.entry(source).or_default();
        match at.before {
            Before::Range(Leave::ExceptionReturn, _) | Before::ExceptionReturn => {}
            Before::Range(Leave::Return, _) => {
                let Some(resumed) = tasks.resumed else {
                    return false;
                };
                if stack.returns_here(at.address) {
                    return false;
                }
                // The resumed stack was the wrong one.
                let next = tasks
                    .waiting
                    .iter()
                    .position(|it| it.resume == resumed && it.stack.returns_from_top(at.address));
                if next.is_some() {
                    let number = tasks.switch(stack, Some(resumed), next, &mut self.shared);
                    self.doubtful_switches += 1;
                    out(Step::Stack {
                        number,
                        is_certain: false,
                    });
                }
                return false;
            }
            Before::Lost | Before::Nothing | Before::Pause(..) => {
                tasks.resumed = None;
                return false;
            }
            _ => return false,
        }
        tasks.resumed = Some(at.address);
        let Some(interrupted) = stack.interrupted() else {
            return false;
        };
        let next = tasks.waiting_at(at.address);
        let handler = stack.exception_number();
        let switches = tasks.switches.entry(handler).or_default();
        let goes_on =
            stack.returns_to_interrupted(at.address) || interrupted.abs_diff(at.address) <= 4;
        let is_guess = goes_on && next.is_some();
        if !is_guess {
            *switches += if goes_on { -1 } else { 1 };
        }
        if goes_on && !(is_guess && interrupted == at.address && *switches > 0) {
            if next.is_some() {
                // Another task was interrupted at the same address, so the resumed one is a guess.
                stack.end_exception(out);
                self.doubtful_switches += 1;
                out(Step::Stack {
                    number: tasks.running,
                    is_certain: false,
                });
                return true;
            }
            return false;
        }
        // A fault handler can repair a failure and resume the function at another address.
        if next.is_none() && stack.is_within_interrupted(at) {
            return false;
        }
        stack.end_exception(out);
        let (next, is_doubtful) = next.map_or((None, false), |(it, doubt)| (Some(it), doubt));
        let is_doubtful = is_doubtful || is_guess;
        let number = tasks.switch(stack, Some(interrupted), next, &mut self.shared);
        self.doubtful_switches += u64::from(is_doubtful);
        out(Step::Stack {
            number,
            is_certain: !is_doubtful,
        });
        true
    }
}

impl Stack {
    /// Index of the innermost exception.
    fn exception_at(&self) -> Option<usize> {
        let mut frames = self.frames.iter();
        let index = frames.rposition(|frame| !matches!(frame.kind, Kind::Function(_)))?;
        matches!(self.frames.get(index)?.kind, Kind::Exception(_)).then_some(index)
    }

    /// Number of the innermost exception.
    fn exception_number(&self) -> u32 {
        let frame = self.exception_at().and_then(|it| self.frames.get(it));
        match frame.map(|frame| frame.kind) {
            Some(Kind::Exception(number)) => number,
            _ => 0,
        }
    }

    /// Address that the innermost exception interrupted.
    fn interrupted(&self) -> Option<u64> {
        self.frames.get(self.exception_at()?)?.return_address
    }

    /// Whether any open exception interrupted this address.
    fn returns_to_interrupted(&self, address: u64) -> bool {
        let mut frames = self.frames.iter().rev().take(REACH);
        frames.any(|frame| {
            !matches!(frame.kind, Kind::Function(_)) && frame.return_address == Some(address)
        })
    }

    /// Whether execution resumes in the function that the innermost exception interrupted, and not at its start.
    fn is_within_interrupted(&self, at: &Arrival) -> bool {
        let below = self.exception_at().and_then(|it| it.checked_sub(1));
        let below = below.and_then(|it| self.frames.get(it));
        match at.place {
            super::Place::Function { function, is_start } => {
                !is_start && below.is_some_and(|it| it.kind == Kind::Function(function))
            }
            super::Place::Unknown { code } => below.is_some_and(|it| it.code == Some(code)),
        }
    }

    /// Ends the innermost exception and all frames of its handler.
    fn end_exception(&mut self, out: &mut impl FnMut(Step)) {
        if let Some(index) = self.exception_at() {
            self.unwind(index, out);
        }
    }

    /// Whether an open function above the innermost exception has this return address.
    fn returns_here(&self, address: u64) -> bool {
        let frames = self.frames.iter().rev().take(REACH);
        let mut frames = frames.take_while(|frame| matches!(frame.kind, Kind::Function(_)));
        frames.any(|frame| frame.return_address == Some(address))
    }

    /// Whether the innermost function has this return address.
    fn returns_from_top(&self, address: u64) -> bool {
        let top = self.frames.last();
        top.is_some_and(|top| top.return_address == Some(address))
    }
}
