//! A flame graph: one SVG file for a browser, with search and zoom.
//!
//! `inferno` draws it from the same stacks that [`folded`](crate::formats::folded) writes. The width of a frame is
//! time on the CPU. A function has the same colour in every graph, so that two graphs can be compared visually.

use std::io::{self, BufWriter, Write};

use inferno::flamegraph::{self, Options};
use kymo_event::{Batch, TimeUnit, TraceInfo, Wanted};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::stacks::Stacks;

/// A flame graph.
pub static FORMAT: Format = Format {
    name: "flamegraph",
    extensions: &["svg"],
    about: "a flame graph (SVG): open it in a browser",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Meaning,
    takes: Takes::Calls,
    names_program: true,
    merges_threads: true,
    open,
};

/// Frames narrower than this fraction of the picture would be less than a pixel, so their stacks are not drawn; they
/// can be the majority of all stacks.
const PARTS: u64 = 10_000;

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(FlameGraph {
        out: BufWriter::new(destination.writer()?),
        title: &context.options.program,
        stacks: Stacks::new(info, context),
    }))
}

/// The sink.
struct FlameGraph<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    title: &'a str,
    stacks: Stacks<'a>,
}

impl Sink for FlameGraph<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        self.stacks.batch(info, batch);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stacks.is_complete()
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        self.stacks.finish(info, summary);
        let mut lines = Vec::new();
        self.stacks.lines(info, PARTS, |stack, ns| {
            lines.push(format!("{stack} {ns}"));
            Ok(())
        })?;
        let mut options = Options::default();
        // XML allows no control characters.
        options.title = self.title.replace(char::is_control, " ");
        // The picture is used without the command line that made it, so it includes what is missing.
        let width = match info.unit {
            TimeUnit::Nanoseconds => "time on the CPU",
            unit => unit.suffix(),
        };
        options.subtitle = Some(format!("width: {width}; {summary}"));
        info.unit.suffix().clone_into(&mut options.count_name);
        options.hash = true;
        let empty = lines.is_empty();
        match flamegraph::from_lines(
            &mut options,
            lines.iter().map(String::as_str),
            &mut self.out,
        ) {
            // A trace without calls makes a picture with that message, which is the correct result.
            Err(error) if !(empty && error.kind() == io::ErrorKind::InvalidData) => {
                return Err(error);
            }
            _ => {}
        }
        self.out.flush()
    }
}
