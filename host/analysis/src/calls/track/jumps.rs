//! Where jumps lead on a track.

use kymo_event::Addr;

use super::Track;
use crate::calls::frames::Frame;
use crate::calls::output::CallId;

/// Where a `longjmp` leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// How many calls were open.
    depth: usize,
    /// The innermost of them, which called `setjmp`; `None` if none was. If another call has its
    /// place now, the mark is void.
    call: Option<CallId>,
}

/// More environments than calls can be open are only there if marks are void.
const MARKS: usize = 1 << 16;

impl Mark {
    /// Whether the call that set it is still open, and with it all further out.
    fn holds(&self, frames: &[Frame]) -> bool {
        match self.depth.checked_sub(1) {
            None => true,
            Some(top) => frames.get(top).map(|frame| frame.call) == self.call,
        }
    }
}

impl Track {
    /// Remembers that a jump with `env` leads to here.
    pub fn mark(&mut self, env: Addr) {
        if self.hidden > 0 {
            // Where it leads is not followed, and where another of the same place led is over.
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

    /// How many calls a jump with `env` leaves open; `None` if that is not known.
    pub fn jump_target(&self, env: Addr) -> Option<usize> {
        let mark = self.marks.get(&env)?;
        mark.holds(&self.frames).then_some(mark.depth)
    }

    /// Where jumps lead: how many calls are open there, and the environment, the outermost first.
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
