//! Folded stacks: a line for every stack, `thread;outer;inner 1234`, with nanoseconds of self time.
//!
//! The format of Brendan Gregg's flame graph scripts, which speedscope, Perfetto, inferno and many
//! others take.

use std::io;

use kymo_event::{Batch, TraceInfo, Wanted};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::json::number;
use crate::output::Output;
use crate::stacks::Stacks;

/// Folded stacks.
pub static FORMAT: Format = Format {
    name: "folded",
    extensions: &["folded"],
    about: "folded stacks with nanoseconds of self time: for speedscope, inferno, flamegraph.pl",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Meaning,
    takes: Takes::Calls,
    names_program: false,
    merges_threads: true,
    open,
};

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(Folded {
        out: Output::new(destination.writer()?),
        stacks: Stacks::new(info, context),
    }))
}

/// The sink.
struct Folded<'a> {
    out: Output<'a>,
    stacks: Stacks<'a>,
}

impl Sink for Folded<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        self.stacks.batch(info, batch);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stacks.is_complete()
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        self.stacks.finish(info, summary);
        let out = &mut self.out;
        self.stacks.lines(info, 0, |stack, ns| {
            out.bytes.extend_from_slice(stack.as_bytes());
            out.bytes.push(b' ');
            number(&mut out.bytes, ns);
            out.bytes.push(b'\n');
            out.check()
        })?;
        self.out.finish()
    }
}
