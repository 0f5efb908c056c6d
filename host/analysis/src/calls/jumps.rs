//! `setjmp` and `longjmp`, where the trace records them.
//!
//! A mark at `setjmp` remembers the number of open calls on its track and the innermost of them. A `longjmp` with the
//! same environment closes the calls that were opened above since. If that innermost call is no longer there (its
//! entry or the `setjmp` itself is among lost events), nothing is closed here: the next exit shows what the jump
//! abandoned, as in a trace without marks.

use kymo_event::{Addr, EventRef};

use super::Calls;
use super::functions::unfinished;
use super::output::{Doubt, How, Step};

impl Calls {
    /// Records a `setjmp` of the running thread or handler.
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

    /// Processes a `longjmp` of the running thread or handler. A handler may jump out of itself into the code that it
    /// has interrupted.
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

/// How a call ended that a jump abandoned: by the jump, unless its exit may be among lost events.
fn left(doubt: Doubt) -> How {
    if doubt.loss {
        unfinished(doubt)
    } else {
        How::Jumped
    }
}
