//! Targets of jumps on a track.

use kymo_event::Addr;

use super::Track;
use crate::calls::frames::Frame;
use crate::calls::output::CallId;

/// The target of a `longjmp`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The number of open calls.
    depth: usize,
    /// The innermost of them, which called `setjmp`; `None` if no call was open. If another call has this depth now,
    /// the mark is void.
    call: Option<CallId>,
}

/// Maximum number of marks. More environments than calls can be open exist only if marks are void.
const MARKS: usize = 1 << 16;

impl Mark {
    /// Whether the call that set the mark is still open, and with it all outer ones.
    fn holds(&self, frames: &[Frame]) -> bool {
        match self.depth.checked_sub(1) {
            None => true,
            Some(top) => frames.get(top).map(|frame| frame.call) == self.call,
        }
    }
}

impl Track {
    /// Records that a jump with `env` returns here.
    pub fn mark(&mut self, env: Addr) {
        if self.hidden > 0 {
            // This target is not followed, and an earlier one with the same environment is void.
            self.marks.remove(&env);
            return;
        }
        if self.marks.len() >= MARKS && !self.marks.contains_key(&env) {
            let frames = &self.frames;
            self.marks.retain(|_, mark| mark.holds(frames));
            if self.marks.len() >= MARKS {
                return;
            }
        }
        let mark = Mark {
            depth: self.frames.len(),
            call: self.frames.last().map(|frame| frame.call),
        };
        self.marks.insert(env, mark);
    }

    /// The number of calls that a jump with `env` leaves open; `None` if unknown.
    pub fn jump_target(&self, env: Addr) -> Option<usize> {
        let mark = self.marks.get(&env)?;
        mark.holds(&self.frames).then_some(mark.depth)
    }

    /// The valid marks: the number of calls open there, and the environment; outermost first.
    pub fn marks(&self) -> Vec<(usize, Addr)> {
        let marks = self
            .marks
            .iter()
            .filter(|(_, mark)| mark.holds(&self.frames));
        let mut marks: Vec<_> = marks.map(|(env, mark)| (mark.depth, *env)).collect();
        marks.sort_unstable();
        marks
    }
}
