//! Reconstruction of calls on a thread of its own, while the trace is read.

use kymo_analysis::replay::{self, Feeder, Replay};
use kymo_event::{Batch, TraceInfo};
use kymo_read::{ReadError, Source};

use super::Trace;
use crate::context::Context;

impl Trace {
    /// Moves the reconstruction of calls to another thread, if one is available and all of a saved trace is replayed,
    /// so that an export is written in parallel. `options` are those of the replay that receives the steps.
    pub fn replay_ahead(mut self, options: &mut replay::Options, context: &Context) -> Self {
        let is_new = !self.is_live && self.read.is_empty() && self.sent.is_none();
        let is_whole = options.is_whole(self.source.info());
        if !(is_new && is_whole && context.threads() > self.source.threads()) {
            return self;
        }
        let replay = Replay::new(self.source.info(), &self.symbols, options.clone());
        let feeder = Feeder::new(replay);
        options.steps = Some(feeder.steps());
        self.source = Box::new(kymo_read::read_ahead(Box::new(Replaying {
            source: self.source,
            feeder: Some(feeder),
        })));
        self
    }
}

/// A source whose calls are rebuilt while it is read.
struct Replaying {
    source: Box<dyn Source>,
    /// `None` after the end of the trace.
    feeder: Option<Feeder>,
}

impl Source for Replaying {
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let filled = self.source.fill(batch);
        let info = self.source.info();
        if let (Ok(true), Some(feeder)) = (&filled, &mut self.feeder) {
            feeder.batch(info, batch);
        } else if let Some(feeder) = self.feeder.take() {
            // Everything read before a failure is shown to its end.
            feeder.finish(info);
        }
        filled
    }
}
