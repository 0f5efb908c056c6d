//! Calls too deep for a frame. Only their return addresses are kept, so that their returns close no other frames.

use super::stack::{REACH, Shared, Stack};
use super::step::{Arrival, Before};
use crate::element::Leave;

/// Limit of runs of equal return addresses of one stack. A recursion needs one for each place that calls.
const RUNS: usize = 1 << 12;

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
        match at.before {
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
            Before::Range(Leave::Next | Leave::Jump, _) => true,
            Before::Range(Leave::IndirectJump, _) => {
                self.return_hidden(at.address);
                true
            }
            Before::Range(Leave::Return | Leave::ExceptionReturn, _) | Before::ExceptionReturn
                if self.return_hidden(at.address) =>
            {
                true
            }
            _ => {
                self.hidden.clear();
                false
            }
        }
    }

    /// Ends the innermost call without a frame that returns to an address, and all within it. Returns whether there is
    /// one.
    fn return_hidden(&mut self, address: u64) -> bool {
        let mut runs = self.hidden.iter().rev().take(REACH);
        let Some(within) = runs.position(|(returns, _)| *returns == Some(address)) else {
            return false;
        };
        self.hidden.truncate(self.hidden.len() - within);
        if let Some((_, count)) = self.hidden.last_mut() {
            *count -= 1;
            if *count == 0 {
                self.hidden.pop();
            }
        }
        true
    }
}
