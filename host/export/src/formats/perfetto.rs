//! Perfetto's protobuf trace, for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! What becomes what:
//! - A thread is a thread track of its process, an interrupt a track of its own for every CPU (or
//!   thread, for signals); calls are slices, with file and line where the symbols have them.
//! - A space of the trace is a process. Where there is only one, it has the name of the program.
//! - Threads that get and lose a CPU are task states of Perfetto's generic kernel events, so that
//!   the CPUs show what ran on them and the threads when they did. A trace tells that a thread lost
//!   its CPU, not whether it wanted it back, so it is `STOPPED` then: `RUNNABLE` or one of the
//!   sleeps would be a guess. Of several machines, the numbers of CPUs go on from one to the next.
//! - A gap is a slice on a track for the stream's gaps, from the last event before to the first
//!   behind it, and the track that it hit says that packets were lost. A doubt of the clock is an
//!   instant there.
//! - Markers and all other events are instants with their fields as annotations.
//! - How a call ended, where it did not return, is an annotation of its slice. An exit whose begin
//!   is not in the trace is an instant: a slice would need a begin.
//!
//! The numbers of fields are in [`fields`], the encoding is in [`wire`], what a sequence of packets has
//! to say in [`sequence`], and what goes where in [`mod@file`].

mod fields;
mod file;
mod sequence;
mod wire;

use std::io::{self, Write};

use kymo_analysis::replay::Replay;
use kymo_event::{Batch, Time, TraceInfo, Wanted};

use self::file::File;
use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::output::FULL;
use crate::timeline::Timeline;

/// Perfetto's protobuf trace.
pub static FORMAT: Format = Format {
    name: "perfetto",
    extensions: &["pftrace", "perfetto-trace"],
    about: "Perfetto's protobuf trace: open it in https://ui.perfetto.dev",
    shape: Shape::File,
    binary: true,
    wanted: Wanted::Details,
    takes: Takes::Calls,
    names_program: true,
    merges_threads: false,
    open,
};

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(Perfetto {
        out: destination.writer()?,
        replay: context.replay(info),
        complete: false,
        file: None,
        context,
    }))
}

/// The sink.
struct Perfetto<'a> {
    context: Context<'a>,
    out: Box<dyn Write + 'a>,
    replay: Replay,
    complete: bool,
    /// From the first event on, whose time decides on the origin.
    file: Option<File<'a>>,
}

impl Sink for Perfetto<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        let Some(first) = batch.rows().first() else {
            return Ok(());
        };
        let begin = self.context.options.replay.window.begin;
        let file = self
            .file
            .get_or_insert_with(|| File::new(self.context, first.time.max(begin)));
        self.complete = !file.batch(info, &mut self.replay, batch);
        if file.packets().waiting().len() >= FULL {
            self.out.write_all(file.packets().waiting())?;
            file.packets().clear();
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        // A trace without events is still a trace: of a process that nothing is known of.
        let file = self
            .file
            .get_or_insert_with(|| File::new(self.context, Time(0)));
        file.finish(info, &mut self.replay, summary);
        self.out.write_all(file.packets().waiting())?;
        self.out.flush()
    }
}
