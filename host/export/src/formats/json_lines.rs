//! JSON Lines: every record and every gap as one object in one line, for scripts.
//!
//! `type` is `event` or `gap`. An event has `time_ns`, `cpu`, `thread` (a number) and `thread_name`, `name` (the
//! source's name for it), `fields` and, where there is one, the name of the `function` that it enters or exits or the
//! `label` of a marker; unknown values are `null`. A gap has, beside its position, its kind as `gap`, how many events
//! are `lost`, and a `message`. If a trace has several spaces (processes, machines), `space` is among the fields, and
//! `thread_space` if that of the thread is another one: a thread's number or a function's address is ambiguous without
//! it.
//!
//! These are the lines of `kymo show --format json`, without its repairs.

use std::io;

use kymo_event::{Batch, Event, EventKind, TimeUnit, TraceInfo, Wanted};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::json::Object;
use crate::listing::{Listing, gap_fields, thread_name, whole};
use crate::output::Output;

/// JSON Lines.
pub static FORMAT: Format = Format {
    name: "json",
    extensions: &["jsonl", "ndjson"],
    about: "JSON Lines, one event a line: for scripts",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Records,
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
            // Events that the reader added to the records carry no additional information.
            if event.record {
                let mut object = begin(&mut self.out.bytes, "event", info, event);
                object
                    .member("name", &*event.name)
                    .object("fields", |object| {
                        object.fields(self.listing.fields(info, event));
                    });
                if let Some(function) = self.listing.function(info, event) {
                    object.member("function", function);
                }
                if let Some(label) = event.kind.label() {
                    object.member("label", label);
                }
                object.end();
                self.out.bytes.push(b'\n');
            }
            if let EventKind::Gap(gap) = &event.kind {
                let mut object = begin(&mut self.out.bytes, "gap", info, event);
                object.fields(&gap_fields(info, event, gap));
                object.end();
                self.out.bytes.push(b'\n');
            }
            self.out.check()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceInfo, _: &mut Summary) -> io::Result<()> {
        self.out.finish()
    }
}

/// Begins a line with the type and position of the event.
fn begin<'o>(out: &'o mut Vec<u8>, kind: &str, info: &TraceInfo, event: &Event) -> Object<'o> {
    let mut object = Object::begin(out);
    object
        .member("type", kind)
        .member(time_member(info), event.timestamp())
        .member("cpu", event.cpu)
        .member(
            "thread",
            event.thread.map(|thread| info.identities.tid(thread)),
        )
        .member("thread_name", thread_name(info, event));
    object
}

/// Name of the member with the time.
const fn time_member(info: &TraceInfo) -> &'static str {
    match info.unit {
        TimeUnit::Nanoseconds => "time_ns",
        TimeUnit::Instructions => "time_instructions",
        TimeUnit::Cycles => "time_cycles",
        TimeUnit::Ticks => "time_ticks",
    }
}
