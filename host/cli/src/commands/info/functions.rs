//! Source adapter for `kymo info`: collects the functions that events name.

use kymo_analysis::arrange::Arrange;
use kymo_analysis::replay::Window;
use kymo_event::{Batch, FunctionId, TraceInfo};
use kymo_read::{ReadError, Source};

/// Passes events on, with the same times as in tables and exports, and marks the functions of calls.
pub struct Functions<'a> {
    source: &'a mut dyn Source,
    /// Moves events that were recorded while a clock was ahead.
    arrange: Arrange,
    /// Last batch of the source, if its clock stepped back.
    found: Batch,
    /// Functions of calls, indexed by [`FunctionId`].
    met: Vec<bool>,
    ended: bool,
    /// Error of the source, returned after the last batch.
    failed: Option<ReadError>,
}

impl<'a> Functions<'a> {
    /// Wraps a source from which nothing has been read.
    pub fn of(source: &'a mut dyn Source) -> Self {
        Self {
            source,
            arrange: Arrange::new(Window::default(), true),
            found: Batch::default(),
            met: Vec::new(),
            ended: false,
            failed: None,
        }
    }

    /// Whether each function had a call, indexed by [`FunctionId`].
    pub fn met(self) -> Vec<bool> {
        self.met
    }

    /// Arranges the events of a batch from a source whose clock stepped back.
    fn arrange(&mut self, batch: &mut Batch) {
        std::mem::swap(&mut self.found, batch);
        batch.clear();
        let info = self.source.info();
        let arranged = self.arrange.take(info, &self.found);
        arranged.iter().for_each(|event| batch.push_ref(event));
        if self.ended {
            let rest = self.arrange.finish(info);
            rest.iter().for_each(|event| batch.push_ref(event));
        }
    }
}

impl Source for Functions<'_> {
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while batch.is_empty() && !self.ended {
            match self.source.fill(batch) {
                Ok(more) => self.ended = !more,
                Err(error) => (self.failed, self.ended) = (Some(error), true),
            }
            if self.source.info().steps_back {
                self.arrange(batch);
            }
        }
        self.met
            .resize(self.source.info().identities.functions().len(), false);
        for row in batch.rows() {
            if row.kind.is_of_call()
                && let Some(FunctionId(id)) = row.of_function()
                && let Some(met) = self.met.get_mut(id as usize)
            {
                *met = true;
            }
        }
        match self.failed.take_if(|_| batch.is_empty()) {
            Some(error) => Err(error),
            None => Ok(!batch.is_empty()),
        }
    }
}
