//! Remarks about a trace, besides its contents.

use super::{Trace, is_empty_dump};
use crate::context::Context;

/// What durations are where it is not recorded when threads run.
pub const WALL_TIMES: &str =
    "wall times, with what passed while a thread had no CPU: thread switches are not recorded";

impl Trace {
    /// Reports oddities of a trace after it was read, such as an empty saved dump. Those of a live target have been
    /// reported already.
    pub fn remark(&self, context: &Context) {
        if self.sent.is_none() && is_empty_dump(self.info()) {
            context.note(
                "the dump is empty: the target had been dumped before, or its trigger had not been \
                 entered since it started",
            );
        }
        if self.info().wall_times {
            context.note(format_args!("durations are {WALL_TIMES}"));
        }
        self.remark_beyond(context);
    }

    /// Passes on the reader's remarks and notes, starting with these numbers.
    pub(super) fn remark_read(&self, (remarks, notes): (usize, usize), context: &Context) {
        for note in self.info().notes.iter().skip(notes) {
            context.note(format_args!("{}: {note}", self.name));
        }
        for remark in self.info().remarks.iter().skip(remarks) {
            context.warn(format_args!("{}: {remark}", self.name));
        }
    }

    /// Reports problems found while the trace was read, and whether it has more functions or threads than Kymo keeps.
    pub fn remark_beyond(&self, context: &Context) {
        self.remark_read(self.remarked, context);
        let beyond = self.info().identities.beyond();
        for (events, what) in [
            (beyond.functions, "functions"),
            (beyond.threads, "threads"),
            (beyond.interrupts, "interrupts"),
            (beyond.spaces, "address spaces"),
            (beyond.mappings, "mappings"),
        ] {
            if events > 0 {
                context.warn(format_args!(
                    "{}: more {what} than are kept: {events} mentions of others count as one",
                    self.name
                ));
            }
        }
    }
}
