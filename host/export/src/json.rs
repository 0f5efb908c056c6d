//! JSON Lines: every event as one object in one line, for scripts.
//!
//! `type` is `event` or `gap`. An event has `time_ns`, `cpu`, `thread` (a number) and
//! `thread_name`, `name` (what the source calls it), `fields` and, where there is one, the name of
//! the `function` that it enters or leaves or the `label` of a marker; what is not known is `null`.
//! A gap has, beside its place, its kind as `gap`, how many events are `lost`, and a `message`.
//!
//! These are the lines of `kymo show --format json`, without its repairs.

use std::io::{self, BufWriter, Write};

use kymo_event::{Event, EventKind};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink};
use crate::json_object::Object;
use crate::record::{Records, fields, label};

/// JSON Lines.
pub static FORMAT: Format = Format {
    name: "json",
    extensions: &["jsonl", "ndjson"],
    about: "JSON Lines, one event a line: for scripts",
    shape: Shape::File,
    binary: false,
    steady: false,
    open,
};

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(JsonLines {
        out: destination.writer()?,
        records: Records::new(context),
        line: Vec::new(),
    }))
}

/// The sink.
struct JsonLines<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    records: Records<'a>,
    line: Vec<u8>,
}

impl Sink for JsonLines<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.records.learn(event);
        let fields = fields(event);
        let gap = matches!(event.kind, EventKind::Gap(_));
        self.line.clear();
        let mut object = Object::new(&mut self.line);
        object
            .text("type", if gap { "gap" } else { "event" })
            .raw("time_ns", event.time)
            .optional("cpu", event.cpu)
            .optional("thread", event.thread.map(|thread| thread.0));
        match self.records.thread_name(event) {
            Some(name) => object.text("thread_name", name),
            None => object.raw("thread_name", "null"),
        };
        if gap {
            object.fields(&fields);
        } else {
            object.text("name", &event.name).object("fields", |object| {
                object.fields(&fields);
            });
            if let Some(function) = self.records.function(event) {
                object.text("function", function);
            }
            if let Some(label) = label(event) {
                object.text("label", label);
            }
        }
        object.end();
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    fn finish(mut self: Box<Self>, _summary: &mut Summary) -> io::Result<()> {
        self.out.flush()
    }
}
