//! Text dump of one processor's recording. In a file of its own, so that a program that never requests it contains none
//! of its code.

use super::control::Handle;
use super::{Single, SinglePort};
use crate::config::Config;
use crate::console;
use crate::hot::Hot;
use crate::link::{Control, Subject};
use crate::plain;

impl<P: SinglePort> Single<P> {
    /// Passes the whole recording to `put`, as lines of text; nothing is recorded meanwhile. Works from any context,
    /// fault handlers too, also while a host reads a dump. Returns false, and passes nothing, if there is no recorder,
    /// or if this has interrupted the recorder: then the buffer is not consistent.
    pub fn dump_text(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        put: &mut dyn FnMut(&[u8]),
    ) -> bool {
        self.dump(hot, config, |control| console::write(control, put))
    }

    /// Does the same with lines that a person can read.
    pub fn dump_lines(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        put: &mut dyn FnMut(&[u8]),
    ) -> bool {
        self.dump(hot, config, |control| plain::write(control, put))
    }

    #[inline(always)]
    fn dump(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        write: impl FnOnce(&Handle<P>),
    ) -> bool {
        if !self.wake(hot, config) {
            return false;
        }
        let control = self.handle(hot, config);
        let was_frozen = hot.gate.state().frozen();
        if control.freeze(Subject::Trace).is_err() || !hot.gate.state().frozen() {
            return false;
        }
        write(&control);
        if !was_frozen {
            control.thaw();
        }
        true
    }
}
