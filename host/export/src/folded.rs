//! Folded stacks: a line for every stack, `thread;outer;inner 1234`, with nanoseconds of self time.
//!
//! The format of Brendan Gregg's flame graph scripts, which speedscope, Perfetto, inferno and many
//! others take.

use std::io::{self, BufWriter, Write};

use kymo_event::Event;

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink};
use crate::stacks::Stacks;

/// Folded stacks.
pub static FORMAT: Format = Format {
    name: "folded",
    extensions: &["folded"],
    about: "folded stacks with nanoseconds of self time: for speedscope, inferno, flamegraph.pl",
    shape: Shape::File,
    binary: false,
    steady: true,
    open,
};

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(Folded {
        out: destination.writer()?,
        stacks: Stacks::new(context),
    }))
}

/// The sink.
struct Folded<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    stacks: Stacks<'a>,
}

impl Sink for Folded<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.stacks.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &mut Summary) -> io::Result<()> {
        self.stacks.finish(summary);
        let out = &mut self.out;
        self.stacks
            .lines(0, |stack, ns| writeln!(out, "{stack} {ns}"))?;
        out.flush()
    }
}
