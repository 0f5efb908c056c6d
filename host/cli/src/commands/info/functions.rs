//! The events of a source as a summary counts them, and the functions that they name.

use kymo_analysis::arrange::Arrange;
use kymo_analysis::replay::Window;
use kymo_event::{Batch, FunctionId, TraceInfo};
use kymo_read::{ReadError, Source};

/// Passes events on, with the times that tables and exports give them, and remembers the functions that they name.
pub struct Functions<'a> {
    source: &'a mut dyn Source,
    /// Moves what was recorded while a clock was ahead.
    arrange: Arrange,
    /// What the source gave last, if it has to be arranged.
    found: Batch,
    /// By [`FunctionId`].
    met: Vec<bool>,
    ended: bool,
    /// Why nothing more can be read, once that is so.
    failed: Option<ReadError>,
}

impl<'a> Functions<'a> {
    /// Those of a source, of which nothing has been read.
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

    /// The functions that were met, by their ids.
    pub fn met(self) -> Vec<bool> {
        self.met
    }

    /// Arranges what the source gave, which has a clock that stepped back.
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
