//! Recognises calls that contain calls of the same function.

use std::collections::HashMap;

use kymo_event::{FunctionId, Time};

use super::{Track, WAITING};

/// The begin of each function's most recently ended call, per track.
#[derive(Debug, Default)]
pub(super) struct LastBegun {
    times: HashMap<(Track, FunctionId), Time>,
    forgot: bool,
}

impl LastBegun {
    /// Adds a call that has ended; returns whether it contains, or may contain, calls of the same function.
    ///
    /// Calls of a track end in order: if the previous call began earlier, so did all that ended before it. If a call
    /// and its callee began in the same tick, the outer one may appear to begin 1 ns later. (Consecutive calls begin
    /// that close to each other only if the first one took no longer.)
    pub(super) fn add(&mut self, track: Track, function: FunctionId, begin: Time) -> bool {
        if self.times.len() >= WAITING {
            self.times.clear();
            self.forgot = true;
        }
        let before = self.times.insert((track, function), begin);
        self.forgot || before.is_some_and(|before| before.0.saturating_add(1) >= begin.0)
    }
}
