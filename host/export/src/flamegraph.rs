//! A flame graph: one SVG file that a browser shows, with search and zoom.
//!
//! Drawn by `inferno` from the same stacks that [`folded`](crate::folded) writes. The width of a
//! frame is time on the CPU. A function has the same colour in every graph, so that two graphs can
//! be compared by eye.

use std::io::{self, BufWriter, Write};

use inferno::flamegraph::{self, Options};
use kymo_event::Event;

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink};
use crate::stacks::Stacks;

/// A flame graph.
pub static FORMAT: Format = Format {
    name: "flamegraph",
    extensions: &["svg"],
    about: "a flame graph (SVG): open it in a browser",
    shape: Shape::File,
    binary: false,
    steady: true,
    open,
};

/// Frames narrower than one of so many parts of the picture would be less than a pixel, so their
/// stacks aren't drawn; they can be most of all stacks.
const PARTS: u64 = 10_000;

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(FlameGraph {
        out: destination.writer()?,
        title: &context.options.program,
        stacks: Stacks::new(context),
    }))
}

/// The sink.
struct FlameGraph<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    title: &'a str,
    stacks: Stacks<'a>,
}

impl Sink for FlameGraph<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.stacks.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &mut Summary) -> io::Result<()> {
        self.stacks.finish(summary);
        let mut lines = Vec::new();
        self.stacks.lines(PARTS, |stack, ns| {
            lines.push(format!("{stack} {ns}"));
            Ok(())
        })?;
        let mut options = Options::default();
        self.title.clone_into(&mut options.title);
        // A picture travels without the command line that made it, so it says itself what is missing.
        options.subtitle = Some(format!("width: time on the CPU; {summary}"));
        "ns".clone_into(&mut options.count_name);
        options.hash = true;
        let empty = lines.is_empty();
        match flamegraph::from_lines(
            &mut options,
            lines.iter().map(String::as_str),
            &mut self.out,
        ) {
            // A trace without calls makes a picture that says so, and that is what it is.
            Err(error) if !(empty && error.kind() == io::ErrorKind::InvalidData) => {
                return Err(error);
            }
            _ => {}
        }
        self.out.flush()
    }
}
