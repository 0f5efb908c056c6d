//! Coroutines: frames that a thread abandoned without a return and resumes later.
//!
//! `swapcontext` and the switches of small kernels return to an address that is not the innermost frame's return
//! address. [`Suspended`] keeps the frames that such a return closes, with the address to which the innermost of them
//! would have returned. When a function whose own caller is known, and is another one, returns to that address, the
//! frames open again on top of the stack: the coroutine counts as called by the function that resumed it.
//!
//! A `longjmp` closes frames in the same way. Nothing returns to them afterwards, so the kept frames are never used.

use super::stack::{Frame, Kind, REACH, Shared, Stack};
use super::step::{Arrival, Entered, Step};

/// Limit of suspended coroutines of one thread, each with up to [`REACH`] frames. A new one replaces the oldest.
const KEPT: usize = 64;

/// Limit of suspended frames of a recording. Frames beyond it are found again as after a loss.
const FRAMES: usize = 1 << 18;

/// Frames of a suspended coroutine.
#[derive(Debug)]
pub(super) struct Suspended {
    /// From the outermost frame inwards, without the function that switched away.
    frames: Vec<Frame>,
    /// Return address of the function that switched away.
    resume: u64,
}

impl Stack {
    /// Keeps the frames from index `bottom` on before a return to the caller of the first of them closes them.
    pub(super) fn suspend(&mut self, bottom: usize, shared: &mut Shared) {
        let Some((last, frames)) = self.frames.get(bottom..).and_then(<[_]>::split_last) else {
            return;
        };
        let is_calls = |frame: &Frame| matches!(frame.kind, Kind::Function(_));
        let (false, Some(resume)) = (frames.is_empty(), last.return_address) else {
            return;
        };
        if self.doubtful != 0 || !is_calls(last) || !frames.iter().all(is_calls) {
            return;
        }
        let frames = frames.to_vec();
        self.keep(Suspended { frames, resume }, shared);
    }

    fn keep(&mut self, suspended: Suspended, shared: &mut Shared) {
        let frames = suspended.frames.len();
        let of_thread = |stack: &Self| {
            let all = stack.suspended.iter();
            all.map(|suspended| suspended.frames.len()).sum::<usize>()
        };
        while !self.suspended.is_empty()
            && (self.suspended.len() >= KEPT || of_thread(self) + frames > REACH)
        {
            let oldest = self.suspended.remove(0);
            shared.suspended -= oldest.frames.len();
        }
        if frames <= REACH && shared.suspended + frames <= FRAMES {
            shared.suspended += frames;
            self.suspended.push(suspended);
        }
    }

    /// Drops all suspended coroutines, because the code that ran meanwhile is unknown.
    pub(super) fn forget_suspended(&mut self, shared: &mut Shared) {
        for suspended in self.suspended.drain(..) {
            shared.suspended -= suspended.frames.len();
        }
    }

    /// Resumes the coroutine that waits for a return to this address, if any.
    pub(super) fn resume_suspended(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        out: &mut impl FnMut(Step),
    ) -> bool {
        let Some(top) = self.frames.last().copied() else {
            return false;
        };
        // Only a function with a known caller tells a switch: it does not return to that caller.
        if self.doubtful != 0 || top.return_address.is_none() {
            return false;
        }
        let Some((index, depth)) = self.waiting(at.address) else {
            return false;
        };
        let mut found = self.suspended.remove(index);
        shared.suspended -= found.frames.len();
        if let Some(depth) = depth {
            // An outer coroutine resumes; the one that it had started stays suspended.
            let frames = found.frames.split_off(depth);
            let resume = found.resume;
            self.keep(Suspended { frames, resume }, shared);
        }
        let mut frames = found.frames;
        if frames.first().is_some_and(|first| first.kind == top.kind) {
            // Drop the function that had switched to it.
            frames.remove(0);
        }
        if let Some(first) = frames.first_mut()
            && first.return_address == top.return_address
        {
            // It had taken over the frame of the function that switched to it, so that frame's return address is not
            // its own.
            first.return_address = None;
            first.is_begun = true;
        }
        for frame in frames {
            let (Kind::Function(function), return_address) = (frame.kind, frame.return_address)
            else {
                continue;
            };
            if self.push(frame, shared) {
                out(Step::Enter {
                    function,
                    return_address,
                    how: Entered::Resumed,
                });
            }
        }
        true
    }

    /// Index of the coroutine that has waited longest for a return to an address. For one that started other
    /// coroutines, also the number of its own frames.
    fn waiting(&self, address: u64) -> Option<(usize, Option<usize>)> {
        let waits = |suspended: &Suspended| suspended.resume == address;
        if let Some(index) = self.suspended.iter().position(waits) {
            return Some((index, None));
        }
        let mut all = self.suspended.iter().enumerate();
        all.find_map(|(index, suspended)| {
            let returns = |frame: &Frame| frame.return_address == Some(address);
            let depth = suspended.frames.iter().rposition(returns)?;
            // An outer coroutine needs at least one frame of its own.
            (depth > 0).then_some((index, Some(depth)))
        })
    }
}
