//! Perfetto's protobuf trace, for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! What becomes what:
//! - A thread is a thread track of the process, an interrupt a track of its own for every CPU (or
//!   thread, for signals); calls are slices, with file and line where the symbols have them.
//! - Threads that get and lose a CPU are task states of Perfetto's generic kernel events, so that
//!   the CPUs show what ran on them and the threads when they did. A trace tells that a thread lost
//!   its CPU, not whether it wanted it back, so it is `STOPPED` then: `RUNNABLE` or one of the
//!   sleeps would be a guess.
//! - A gap is a slice on a track for the stream's gaps, from the last event before to the first
//!   behind it, and the track that it hit says that packets were lost. A doubt of the clock is an
//!   instant there.
//! - Markers and all other events are instants with their fields as annotations.
//! - How a call ended, where it did not return, is an annotation of its slice. An exit whose begin
//!   is not in the trace is an instant: a slice would need a begin that nobody saw.
//!
//! The numbers of fields are in [`fields`], the encoding is in [`wire`], what a sequence of packets has
//! to say in [`sequence`], and what goes where in [`mod@file`].

mod fields;
mod file;
mod sequence;
mod wire;

use std::io::{self, BufWriter, Write};

use kymo_analysis::calls::Calls;
use kymo_event::{Event, Time};

use self::file::File;
use crate::Summary;
use crate::draw::Draw;
use crate::format::{Context, Destination, Format, Shape, Sink};

/// Perfetto's protobuf trace.
pub static FORMAT: Format = Format {
    name: "perfetto",
    extensions: &["pftrace", "perfetto-trace"],
    about: "Perfetto's protobuf trace: open it in https://ui.perfetto.dev",
    shape: Shape::File,
    binary: true,
    steady: true,
    open,
};

/// Packets are handed on when they fill this many bytes.
const BUFFER_BYTES: usize = 1 << 16;

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(Perfetto {
        out: destination.writer()?,
        calls: Calls::new(context.info, Default::default()),
        file: None,
        context,
    }))
}

/// The sink.
struct Perfetto<'a> {
    context: Context<'a>,
    out: BufWriter<Box<dyn Write + 'a>>,
    calls: Calls,
    /// From the first event on, whose time decides on the origin.
    file: Option<File<'a>>,
}

impl Sink for Perfetto<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let file = self
            .file
            .get_or_insert_with(|| File::new(self.context, event.time));
        file.before(event);
        self.calls.push(event, &mut |step| file.step(&step));
        if file.packets().len() >= BUFFER_BYTES {
            self.out.write_all(file.packets())?;
            file.packets().clear();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &mut Summary) -> io::Result<()> {
        // A trace without events is still a trace: of a process that nothing is known of.
        let file = self
            .file
            .get_or_insert_with(|| File::new(self.context, Time(0)));
        self.calls.finish(&mut |step| file.step(&step));
        file.finish(summary);
        self.out.write_all(file.packets())?;
        self.out.flush()?;
        summary.count_calls(self.calls.counts());
        Ok(())
    }
}
