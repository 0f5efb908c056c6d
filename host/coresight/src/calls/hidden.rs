//! Calls too deep for a frame. Only their return addresses are kept, so that their returns close no other frames.

use super::stack::{REACH, Shared, Stack};
use super::step::{Arrival, Before, Place};
use crate::element::Leave;

/// Limit of runs of equal return addresses of one stack. A recursion of several functions needs one for each call.
const RUNS: usize = 1 << 16;

impl Stack {
    /// Adds a call without a frame. Beyond the limit of runs, the calls are forgotten, and their callers are found again
    /// on the way out.
    pub(super) fn hide(&mut self, return_address: Option<u64>) {
        let runs = self.hidden.len();
        match self.hidden.last_mut() {
            Some((known, count)) if *known == return_address => *count += 1,
            _ if runs >= RUNS => self.hidden.clear(),
            _ => self.hidden.push((return_address, 1)),
        }
    }

    /// Applies an arrival while calls without a frame are open. Returns false if none of them is open any more, so that
    /// the arrival concerns the frames.
    pub(super) fn arrive_hidden(&mut self, at: &Arrival, shared: &mut Shared) -> bool {
        let is_hidden = match at.before {
            Before::Range(Leave::Call | Leave::IndirectCall, end) => {
                shared.too_deep += 1;
                self.hide(Some(end));
                true
            }
            Before::Exception => {
                shared.too_deep += 1;
                self.hide(None);
                true
            }
            // Also into a part of a function that has a name of its own, and back.
            Before::Range(Leave::Next | Leave::Jump, _) => true,
            // A jump into the middle of another function leaves the calls, for example `longjmp`.
            Before::Range(Leave::IndirectJump, _) => {
                self.return_hidden(at.address) || self.stays_hidden(at)
            }
            Before::Range(Leave::Return | Leave::ExceptionReturn, _) | Before::ExceptionReturn => {
                self.return_hidden(at.address)
            }
            Before::Pause(Leave::Next | Leave::Call | Leave::IndirectCall, end) => {
                end == at.address
            }
            Before::Pause(Leave::Return, _) => self.left.take() == Some(at.address),
            _ => false,
        };
        match is_hidden {
            true => self.within = Some(at.place),
            false => self.hidden.clear(),
        }
        is_hidden
    }

    /// Whether an arrival is in the function that executes without a frame, or at the start of another one, which takes
    /// its place.
    fn stays_hidden(&self, at: &Arrival) -> bool {
        match (at.place, self.within) {
            (Place::Function { is_start: true, .. }, _) => true,
            (
                Place::Function { function, .. },
                Some(Place::Function {
                    function: within, ..
                }),
            ) => function == within,
            (Place::Unknown { code }, Some(Place::Unknown { code: within })) => code == within,
            _ => false,
        }
    }

    /// Ends the innermost call without a frame, if any, which has returned to untraced code. Returns its return address.
    pub(super) fn leave_hidden(&mut self) -> Option<Option<u64>> {
        let (returns, count) = self.hidden.last_mut()?;
        let returns = *returns;
        *count -= 1;
        if *count == 0 {
            self.hidden.pop();
        }
        Some(returns)
    }

    /// Ends the innermost call without a frame that returns to an address, and all within it. Returns whether there is
    /// one.
    fn return_hidden(&mut self, address: u64) -> bool {
        let mut runs = self.hidden.iter().rev().take(REACH);
        let Some(within) = runs.position(|(returns, _)| *returns == Some(address)) else {
            return false;
        };
        self.hidden.truncate(self.hidden.len() - within);
        self.leave_hidden();
        true
    }
}
