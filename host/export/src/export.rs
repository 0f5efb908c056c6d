//! An export from its first batch to its end.

use std::sync::Arc;

use kymo_analysis::arrange::Arrange;
use kymo_analysis::replay::{self, Window};
use kymo_event::{Batch, TraceInfo};
use kymo_symbols::Symbols;

use crate::cut::Cut;
use crate::{Context, Destination, ExportError, Format, Sink, Summary, Takes};

/// What the user can choose beside the format.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the traced program: the process name in a timeline, the title of a flame graph.
    pub program: String,
    /// Whether stacks begin with their thread in the formats that add up stacks; otherwise the stacks of all threads
    /// are added.
    pub thread_roots: bool,
    /// Part of the trace: window and selection; and whether to subtract recording overhead.
    pub replay: replay::Options,
}

impl Default for Options {
    /// Defaults to an unnamed program, stacks by thread, and the whole trace.
    fn default() -> Self {
        Self {
            program: "program".to_owned(),
            thread_roots: true,
            replay: replay::Options::default(),
        }
    }
}

/// Conversion of a trace to another format: [`batch`](Self::batch) by batch, then [`finish`](Self::finish).
///
/// An export that is finished early (for example because its source failed) is a complete file of the events before
/// that.
pub struct Export<'a> {
    sink: Box<dyn Sink + 'a>,
    arrange: Arrange,
    /// Drops events that the sink does not process.
    cut: Option<Cut>,
    /// Events that were not dropped.
    kept: Batch,
    window: Window,
    summary: Summary,
}

impl std::fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export")
            .field("window", &self.window)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

impl<'a> Export<'a> {
    /// Begins an export; `info` is the trace's metadata before its first event.
    ///
    /// # Errors
    /// [`ExportError::Shape`] if the destination is a file and the format a directory or vice versa,
    /// [`ExportError::Selection`] if the format lists events and the selection is by calls, [`ExportError::Write`] if
    /// the destination can't be written.
    pub fn new(
        format: &Format,
        info: &TraceInfo,
        symbols: &'a Arc<Symbols>,
        destination: Destination<'a>,
        options: &'a Options,
    ) -> Result<Self, ExportError> {
        if format.shape != destination.shape() {
            return Err(ExportError::Shape {
                format: format.name,
                expected: format.shape,
                found: destination.shape(),
            });
        }
        let (in_order, cut) = match format.takes {
            Takes::Calls => (true, None),
            Takes::Events { in_order } => {
                // A format that can't go back in time can be read as a trace.
                let cut = Cut::new((format.name, in_order), info, &options.replay, symbols)?;
                (in_order, Some(cut).filter(|cut| !cut.keeps_all()))
            }
        };
        let context = Context { symbols, options };
        let window = options.replay.window;
        let repairs = in_order && options.replay.repair_clock;
        // Sinks that reconstruct calls apply the window themselves.
        let cuts = match format.takes {
            Takes::Calls => Window::default(),
            Takes::Events { .. } => window,
        };
        Ok(Self {
            sink: (format.open)(info, context, destination)?,
            arrange: Arrange::new(cuts, repairs),
            cut,
            kept: Batch::default(),
            window,
            summary: Summary::default(),
        })
    }

    /// Processes the next events, in time order; `info` is the current metadata. Returns `false` when the window is
    /// over: no more events are needed.
    ///
    /// # Errors
    /// [`ExportError::Write`] if writing failed.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> Result<bool, ExportError> {
        let mut arrange = std::mem::take(&mut self.arrange);
        let taken = self.take(info, arrange.take(info, batch));
        self.arrange = arrange;
        taken?;
        Ok(!self.sink.is_complete())
    }

    /// Processes events with corrected times.
    fn take(&mut self, info: &TraceInfo, batch: &Batch) -> Result<(), ExportError> {
        let Some(cut) = &mut self.cut else {
            self.summary.take(batch, self.window);
            self.sink.batch(info, batch)?;
            return Ok(());
        };
        self.kept.clear();
        cut.take(info, batch, &mut self.kept);
        self.summary.exclude(batch, &self.kept);
        self.summary.take(&self.kept, self.window);
        self.sink.batch(info, &self.kept)?;
        Ok(())
    }

    /// Completes the export.
    ///
    /// # Errors
    /// [`ExportError::Write`] if writing failed.
    pub fn finish(mut self, info: &TraceInfo) -> Result<Summary, ExportError> {
        let rest = self.arrange.finish(info);
        if !rest.is_empty() {
            self.take(info, &rest)?;
        }
        if let Some(counts) = self.arrange.repaired() {
            self.summary.count_steps(counts);
        }
        if let Some(cut) = &self.cut {
            (self.summary.cut, self.summary.opened) = cut.bounds();
        }
        self.sink.finish(info, &mut self.summary)?;
        Ok(self.summary)
    }
}
