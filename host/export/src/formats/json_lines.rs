//! JSON Lines: every event as one object in one line, for scripts.
//!
//! `type` is `event` or `gap`. An event has `time_ns`, `cpu`, `thread` (a number) and
//! `thread_name`, `name` (what the source calls it), `fields` and, where there is one, the name of
//! the `function` that it enters or leaves or the `label` of a marker; what is not known is `null`.
//! A gap has, beside its place, its kind as `gap`, how many events are `lost`, and a `message`.
//! Where a trace has several spaces (processes, machines), `space` is among the fields, and `thread_space` where
//! that of the thread is another one: a thread's number or a function's address means nothing without it.
//!
//! These are the lines of `kymo show --format json`, without its repairs.

use std::io;

use kymo_event::{Batch, EventKind, TraceInfo, Wanted};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::json::Object;
use crate::listing::{Listing, label, thread_name, whole};
use crate::output::Output;

/// JSON Lines.
pub static FORMAT: Format = Format {
    name: "json",
    extensions: &["jsonl", "ndjson"],
    about: "JSON Lines, one event a line: for scripts",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Everything,
    takes: Takes::Events { in_order: false },
    names_program: false,
    merges_threads: false,
    open,
};

fn open<'a>(
    _info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(JsonLines {
        out: Output::new(destination.writer()?),
        listing: Listing::new(context),
    }))
}

/// The sink.
struct JsonLines<'a> {
    out: Output<'a>,
    listing: Listing<'a>,
}

impl Sink for JsonLines<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for seen in batch.iter() {
            let event = &*whole(seen);
            let gap = matches!(event.kind, EventKind::Gap(_));
            let thread = event.thread.map(|thread| info.identities.tid(thread));
            let mut object = Object::begin(&mut self.out.bytes);
            object
                .member("type", if gap { "gap" } else { "event" })
                .member("time_ns", event.time)
                .member("cpu", event.cpu)
                .member("thread", thread)
                .member("thread_name", thread_name(info, event));
            if gap {
                object.fields(self.listing.fields(info, event));
            } else {
                object
                    .member("name", &*event.name)
                    .object("fields", |object| {
                        object.fields(self.listing.fields(info, event));
                    });
                if let Some(function) = self.listing.function(info, event) {
                    object.member("function", function);
                }
                if let Some(label) = label(event) {
                    object.member("label", label);
                }
            }
            object.end();
            self.out.bytes.push(b'\n');
            self.out.check()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceInfo, _: &mut Summary) -> io::Result<()> {
        self.out.finish()
    }
}
