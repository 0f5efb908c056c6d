//! Comma-separated values: every event as one row, for spreadsheets and data frames.
//!
//! The columns are always the same: what most questions are about has a column of its own, and
//! everything else an event says stands in the last one as `name=value`, separated by blanks. As
//! RFC 4180 says, except that lines end in a line feed alone.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use kymo_event::{Event, EventKind, Field};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink};
use crate::record::{Records, fields, label};

/// Comma-separated values.
pub static FORMAT: Format = Format {
    name: "csv",
    extensions: &["csv"],
    about: "comma-separated values, one event a row: for spreadsheets and data frames",
    shape: Shape::File,
    binary: false,
    steady: false,
    open,
};

/// The first row.
const HEADER: &str = "time_ns,cpu,thread,thread_name,name,function,fields\n";

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    let mut out = destination.writer()?;
    out.write_all(HEADER.as_bytes())?;
    Ok(Box::new(Csv {
        out,
        records: Records::new(context),
    }))
}

/// The sink.
struct Csv<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    records: Records<'a>,
}

impl Sink for Csv<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.records.learn(event);
        let mut rest = String::new();
        let label = label(event).map(|label| Field::new("label", label));
        for field in label.into_iter().chain(fields(event)) {
            let blank = if rest.is_empty() { "" } else { " " };
            // Writing to a `String` cannot fail.
            let _ = write!(rest, "{blank}{}={}", field.name, field.value);
        }
        let name = match &event.kind {
            EventKind::Gap(_) => "gap",
            _ => &event.name,
        };
        let out = &mut self.out;
        write!(out, "{},", event.time)?;
        if let Some(cpu) = event.cpu {
            write!(out, "{cpu}")?;
        }
        out.write_all(b",")?;
        if let Some(thread) = event.thread {
            write!(out, "{thread}")?;
        }
        out.write_all(b",")?;
        cell(out, self.records.thread_name(event).unwrap_or(""))?;
        let function = self.records.function(event).unwrap_or("");
        for text in [name, function, &rest] {
            out.write_all(b",")?;
            cell(out, text)?;
        }
        out.write_all(b"\n")
    }

    fn finish(mut self: Box<Self>, _summary: &mut Summary) -> io::Result<()> {
        self.out.flush()
    }
}

/// A text, in quotes where it needs them.
fn cell(out: &mut impl Write, text: &str) -> io::Result<()> {
    if text.contains([',', '"', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}
