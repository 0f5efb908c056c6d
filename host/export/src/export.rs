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
    /// What the traced program is called: the name of the process in a timeline, the title of a
    /// flame graph.
    pub program: String,
    /// Whether stacks begin with their thread in the formats that add up stacks; else what all
    /// threads did is one sum.
    pub thread_roots: bool,
    /// Which part of the trace: window and selection; and whether to take off what recording took.
    pub replay: replay::Options,
}

impl Default for Options {
    /// A program without a name, stacks by thread, and all of the trace.
    fn default() -> Self {
        Self {
            program: "program".to_owned(),
            thread_roots: true,
            replay: replay::Options::default(),
        }
    }
}

/// A trace on its way into another format: [`batch`](Self::batch) by batch, then [`finish`](Self::finish).
///
/// An export that is finished early (because its source failed, say) is a whole file of what came before.
pub struct Export<'a> {
    sink: Box<dyn Sink + 'a>,
    arrange: Arrange,
    /// What leaves out events that the sink does not look at.
    cut: Option<Cut>,
    /// Events that were not left out.
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
    /// Begins an export; `info` is what is known of the trace before its first event.
    ///
    /// # Errors
    /// [`ExportError::Shape`] if the destination is a file and the format a directory or the other way
    /// round, [`ExportError::Selection`] if the format lists events and the selection asks for calls,
    /// [`ExportError::Write`] if the destination can't be written.
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
                // What can't go back in time is a trace.
                let cut = Cut::new((format.name, in_order), info, &options.replay, symbols)?;
                (in_order, Some(cut).filter(|cut| !cut.keeps_all()))
            }
        };
        let context = Context { symbols, options };
        let window = options.replay.window;
        let repairs = in_order && options.replay.repair_clock;
        // Who rebuilds calls cuts by itself.
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

    /// Takes the next events, in the order of time; `info` is what is known of the trace by now. `false` when
    /// the window is over: no more events are needed.
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

    /// Takes events whose times are right.
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
