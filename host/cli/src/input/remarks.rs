//! What a user should know of a trace besides what is shown of it.

use super::{Trace, is_empty_dump};
use crate::context::Context;

impl Trace {
    /// Says, once it is read, what is odd about it, as a saved dump that holds nothing. Of a live target that has been
    /// said.
    pub fn remark(&self, context: &Context) {
        if self.sent.is_none() && is_empty_dump(self.info()) {
            context.note(
                "the dump is empty: the target had been dumped before, or its trigger had not been \
                 entered since it started",
            );
        }
        self.remark_beyond(context);
    }

    /// Passes on what the reader remarks, from the remark of this number on.
    pub(super) fn remark_read(&self, from: usize, context: &Context) {
        for note in self.info().notes.iter().filter(|_| from == 0) {
            context.note(format_args!("{}: {note}", self.name));
        }
        for remark in self.info().remarks.iter().skip(from) {
            context.warn(format_args!("{}: {remark}", self.name));
        }
    }

    /// Says what turned up while the trace was read, and whether it has more functions or threads than Kymo keeps.
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
