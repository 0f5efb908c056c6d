//! The recording of one processor as text: apart, so that a program that never asks for it has none of its code.

use super::{Single, SinglePort};
use crate::config::Config;
use crate::console;
use crate::hot::Hot;
use crate::link::{Control, Subject};

impl<P: SinglePort> Single<P> {
    /// Gives all that was recorded to `put`, as lines of text; meanwhile nothing is recorded. From any context, fault handlers
    /// too, also while a host reads a dump. False, and nothing is given, if there is no recorder, or this interrupted it in the
    /// middle of its work: then the buffer is not consistent.
    pub fn dump_text(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        put: &mut dyn FnMut(&[u8]),
    ) -> bool {
        if !self.wake(hot, config) {
            return false;
        }
        let control = self.handle(hot, config);
        let was_frozen = hot.gate.state().frozen();
        if control.freeze(Subject::Trace).is_err() || !hot.gate.state().frozen() {
            return false;
        }
        console::write(&control, put);
        if !was_frozen {
            control.thaw();
        }
        true
    }
}
