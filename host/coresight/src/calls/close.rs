//! Closes frames: by returns, by jumps, and those that a pause or a loss may have ended.

use super::Step;
use super::stack::{Frame, Kind, REACH, Shared, Stack};

impl Stack {
    /// Closes the innermost frame as it returns, if its caller is not known and any address may be its: it would seem to go on
    /// in its caller.
    pub(super) fn leave_found(&mut self, out: &mut impl FnMut(Step)) {
        let frame = self.frames.last();
        if frame.is_some_and(|frame| frame.is_unknown && frame.return_address.is_none()) {
            self.leave_top(out);
        }
    }

    /// Closes the innermost frame, if that is a function's.
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
        });
        Some(frame)
    }

    /// Closes the innermost frame, which has returned to what is not traced.
    pub(super) fn leave_untraced(&mut self, out: &mut impl FnMut(Step)) {
        let frame = self.leave_top(out);
        self.left = frame.and_then(|frame| frame.return_address);
    }

    /// Closes frames down to the one that returns to an address, if there is one. `crosses`: also those of exceptions.
    pub(super) fn returns(
        &mut self,
        address: u64,
        crosses: bool,
        shared: &mut Shared,
        out: &mut impl FnMut(Step),
    ) -> bool {
        for (index, frame) in self.frames.iter().enumerate().rev().take(REACH) {
            let is_function = matches!(frame.kind, Kind::Function(_));
            // Also a handler that returns by an ordinary branch to where the exception came: A32 and the M profile.
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

    /// Execution is in the innermost frame: if that was doubtful, those further out are open as well.
    pub(super) fn confirm(&mut self) {
        if self.frames.len() <= self.doubtful {
            self.doubtful = 0;
        }
    }

    /// Closes all frames from `bottom` on.
    pub(super) fn unwind(&mut self, bottom: usize, out: &mut impl FnMut(Step)) {
        let doubtful = self.doubtful;
        self.doubtful = doubtful.min(bottom);
        // What was found after a pause or loss was not called by what was open before it.
        if bottom < doubtful {
            self.close(doubtful, out);
        }
        self.close(bottom, out);
    }

    fn close(&mut self, bottom: usize, out: &mut impl FnMut(Step)) {
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
                for frame in self.frames.drain(first..).rev() {
                    // One exit closes what is above it; of recursion each has to be reported.
                    if frame.kind == Kind::Function(last) {
                        out(Step::Exit {
                            function: last,
                            unwound,
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
