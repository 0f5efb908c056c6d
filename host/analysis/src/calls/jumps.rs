//! `setjmp` and `longjmp`, where the trace has marks of them.
//!
//! A mark at `setjmp` remembers how many calls are open on its track, and which is the innermost. A
//! `longjmp` with the same environment closes what has been opened above since. If that call is not
//! where it was any more (its entry or the `setjmp` itself is among lost events), nothing is closed
//! here: the next exit shows what the jump left, as in a trace without marks.

use kymo_event::{Addr, EventRef};

use super::Calls;
use super::functions::unfinished;
use super::output::{Doubt, How, Step};

impl Calls {
    /// The thread or handler at work calls `setjmp`.
    pub(super) fn set_jump(
        &mut self,
        cpu: usize,
        env: Addr,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = self.context(cpu, event.row, out);
        self.tracks[track].mark(env);
        let track = Some(self.id(track));
        out(Step::Event { track, event });
    }

    /// The thread or handler at work calls `longjmp`. A handler may leave itself by it, and go back
    /// into what it has interrupted.
    pub(super) fn jump(
        &mut self,
        cpu: usize,
        env: Addr,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let here = self.context(cpu, event.row, out);
        let track = Some(self.id(here));
        out(Step::Event { track, event });
        let found = &self.cpus[cpu];
        let below = found.interrupts.iter().copied().enumerate().rev();
        let handlers = below.map(|(level, track)| (level + 1, track));
        let thread = match found.interrupts.as_slice() {
            [] => Some(here),
            _ => found.thread,
        };
        let place = handlers
            .chain(thread.map(|track| (0, track)))
            .find_map(|(level, track)| {
                let depth = self.tracks[track].jump_target(env)?;
                Some((level, track, depth))
            });
        let Some((level, track, depth)) = place else {
            return;
        };
        if self.cpus[cpu].interrupts.len() > level {
            self.end_interrupts(cpu, level, event.row.time, left, out);
        }
        self.close(track, depth, event.row.time, left, out);
        self.tracks[track].forget_hidden();
    }
}

/// How a call ended that a jump has left open: by the jump, unless its exit may be among events that
/// were lost.
fn left(doubt: Doubt) -> How {
    if doubt.loss {
        unfinished(doubt)
    } else {
        How::Jumped
    }
}
