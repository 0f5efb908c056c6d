//! Coroutines: a thread that goes on in other frames, which it left without closing them.
//!
//! `swapcontext` and the switches of small kernels return to an address that no open frame has. The frames that such a
//! return closes are kept by [`Suspended`], with the address to which the innermost of them would have returned. When
//! execution returns there, from a function whose own caller is known and elsewhere, they are opened again, above what is
//! open: the coroutine runs below the function that let it go on.
//!
//! A `longjmp` closes frames in the same way. Nothing returns to them afterwards, so what is kept of it is never found.

use super::stack::{Frame, Kind, REACH, Shared, Stack};
use super::step::{Arrival, Entered, Step};

/// Coroutines of one thread that are kept, with as many frames as are [looked through](REACH). The oldest one makes room.
const KEPT: usize = 64;

/// Frames of all coroutines of a recording that are kept. What is beyond is found again as after a loss.
const FRAMES: usize = 1 << 18;

/// The frames of a coroutine that does not run.
#[derive(Debug)]
pub(super) struct Suspended {
    /// From the outermost one on, without the function that switched away.
    frames: Vec<Frame>,
    /// Where that function returns to.
    resume: u64,
}

impl Stack {
    /// Keeps the frames from `bottom` on, which a return to the caller of the first one closes.
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

    /// Forgets the coroutines that do not run: what ran meanwhile is not known.
    pub(super) fn forget_suspended(&mut self, shared: &mut Shared) {
        for suspended in self.suspended.drain(..) {
            shared.suspended -= suspended.frames.len();
        }
    }

    /// Goes on with the coroutine that waits for a return to this address, if there is one.
    pub(super) fn resume_suspended(
        &mut self,
        at: &Arrival,
        shared: &mut Shared,
        out: &mut impl FnMut(Step),
    ) -> bool {
        let Some(top) = self.frames.last().copied() else {
            return false;
        };
        // A function that does not return to its caller: of one whose caller is not known, nothing follows.
        if self.doubtful != 0 || top.return_address.is_none() {
            return false;
        }
        let Some((index, depth)) = self.waiting(at.address) else {
            return false;
        };
        let mut found = self.suspended.remove(index);
        shared.suspended -= found.frames.len();
        if let Some(depth) = depth {
            // It is a coroutine further out that goes on; the one that it had started still waits.
            let frames = found.frames.split_off(depth);
            let resume = found.resume;
            self.keep(Suspended { frames, resume }, shared);
        }
        let mut frames = found.frames;
        if frames.first().is_some_and(|first| first.kind == top.kind) {
            // The function that had switched to it.
            frames.remove(0);
        }
        if let Some(first) = frames.first_mut()
            && first.return_address == top.return_address
        {
            // It had taken the frame of the function that switched to it, and does not return for that.
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

    /// The coroutine that waits for a return to an address: the one that has waited longest. Of one that started it, the
    /// frames that it has.
    fn waiting(&self, address: u64) -> Option<(usize, Option<usize>)> {
        let waits = |suspended: &Suspended| suspended.resume == address;
        if let Some(index) = self.suspended.iter().position(waits) {
            return Some((index, None));
        }
        let mut all = self.suspended.iter().enumerate();
        all.find_map(|(index, suspended)| {
            let returns = |frame: &Frame| frame.return_address == Some(address);
            let depth = suspended.frames.iter().rposition(returns)?;
            // Without any frame below there is nothing to go on with.
            (depth > 0).then_some((index, Some(depth)))
        })
    }
}
