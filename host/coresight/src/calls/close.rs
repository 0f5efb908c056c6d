//! Closes frames: after returns and jumps, and frames that a pause or a loss may have ended.

use super::Step;
use super::stack::{Frame, Kind, REACH, Shared, Stack};

impl Stack {
    /// Closes the innermost frame at its return, if its caller and its extent are unknown; otherwise the caller's code
    /// would be counted as part of it.
    pub(super) fn leave_found(&mut self, out: &mut impl FnMut(Step)) {
        let frame = self.frames.last();
        if frame.is_some_and(|frame| frame.code.is_some() && frame.return_address.is_none()) {
            self.leave_top(out);
        }
    }

    /// Closes the innermost frame, if it is a function's.
    pub(super) fn leave_top(&mut self, out: &mut impl FnMut(Step)) -> Option<Frame> {
        let frame = *self.frames.last()?;
        let Kind::Function(function) = frame.kind else {
            return None;
        };
        self.frames.pop();
        self.doubtful = self.doubtful.min(self.frames.len());
        out(Step::Exit {
            function,
            unwound: 0,
            is_left: false,
        });
        Some(frame)
    }

    /// Closes the innermost frame, which has returned to untraced code.
    pub(super) fn leave_untraced(&mut self, out: &mut impl FnMut(Step)) {
        self.left = match self.leave_hidden() {
            Some(return_address) => return_address,
            None => self.leave_top(out).and_then(|frame| frame.return_address),
        };
    }

    /// Closes frames down to the one with this return address, if any. `crosses` allows it to close frames of
    /// exceptions too.
    pub(super) fn returns(
        &mut self,
        address: u64,
        crosses: bool,
        shared: &mut Shared,
        out: &mut impl FnMut(Step),
    ) -> bool {
        for (index, frame) in self.frames.iter().enumerate().rev().take(REACH) {
            let is_function = matches!(frame.kind, Kind::Function(_));
            // Includes handlers that return to the interrupted address by an ordinary branch (A32 and the M profile).
            if frame.return_address == Some(address) {
                if !crosses && index + 1 < self.frames.len() {
                    self.suspend(index, shared);
                }
                self.unwind(index, out);
                self.confirm();
                return true;
            }
            if !is_function && !crosses {
                return false;
            }
        }
        false
    }

    /// Confirms that execution is in the innermost frame. If it was doubtful, this proves that all outer frames are
    /// open too.
    pub(super) fn confirm(&mut self) {
        if self.frames.len() <= self.doubtful {
            self.doubtful = 0;
        }
    }

    /// Closes all frames from `bottom` on.
    pub(super) fn unwind(&mut self, bottom: usize, out: &mut impl FnMut(Step)) {
        self.unwind_from(bottom, usize::MAX, out);
    }

    /// Closes all frames above one, into which a jump has led. If it has gone past frames, none of them has returned;
    /// of those that were open in a loss, this is not known.
    pub(super) fn leave_above(&mut self, index: usize, out: &mut impl FnMut(Step)) {
        let is_past = self.doubtful <= index + 1 && self.frames.len() > index + 2;
        let left = if is_past { index + 1 } else { usize::MAX };
        self.unwind_from(index + 1, left, out);
    }

    /// Closes all frames from `bottom` on. Those from `left` on have not returned.
    fn unwind_from(&mut self, bottom: usize, left: usize, out: &mut impl FnMut(Step)) {
        self.hidden.clear();
        let doubtful = self.doubtful;
        self.doubtful = doubtful.min(bottom);
        // The frames open before a pause or loss did not call the functions found after it.
        if bottom < doubtful {
            self.close(doubtful, left, out);
        }
        self.close(bottom, left, out);
    }

    fn close(&mut self, bottom: usize, left: usize, out: &mut impl FnMut(Step)) {
        while self.frames.len() > bottom {
            // A run of functions above an exception, or above the bottom.
            let first = self.frames[bottom..]
                .iter()
                .rposition(|frame| !matches!(frame.kind, Kind::Function(_)));
            let first = first.map_or(bottom, |index| bottom + index + 1);
            if let Some(Frame {
                kind: Kind::Function(last),
                ..
            }) = self.frames.get(first).copied()
            {
                let mut unwound = 0;
                let frames = self.frames.drain(first..).enumerate().rev();
                for (index, frame) in frames {
                    // One exit closes all frames above it; a recursive function needs one exit for each of its frames.
                    if frame.kind == Kind::Function(last) {
                        out(Step::Exit {
                            function: last,
                            unwound,
                            is_left: first + index >= left,
                        });
                        unwound = 0;
                    } else {
                        unwound += 1;
                    }
                }
            } else if let Some(frame) = self.frames.pop()
                && let Kind::Exception(number) = frame.kind
            {
                out(Step::ExceptionEnd { number });
            }
        }
    }
}
