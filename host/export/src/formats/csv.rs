//! Comma-separated values: every record and every gap as one row, for spreadsheets and data frames.
//!
//! The columns are fixed: common properties have columns of their own, and all other fields of an event are in the last
//! one as `name=value`, separated by blanks. The format follows RFC 4180, except that lines end with a line feed only.
//!
//! Control characters in names are written as escapes (`\u{1b}`), so that a file can be shown on a terminal.
//!
//! If a trace has several spaces (processes, machines), `space` is among the fields, and `thread_space` if that of the
//! thread is another one: a thread's number or a function's address is ambiguous without it.

use std::io;

use kymo_event::{Batch, Event, EventKind, Field, TraceInfo, Wanted};

use crate::Summary;
use crate::csv::cell;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::json::Json;
use crate::listing::{Listing, gap_fields, thread_name, whole};
use crate::output::Output;

/// Comma-separated values.
pub static FORMAT: Format = Format {
    name: "csv",
    extensions: &["csv"],
    about: "comma-separated values, one event a row: for spreadsheets and data frames",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Records,
    takes: Takes::Events { in_order: false },
    names_program: false,
    merges_threads: false,
    open,
};

/// The first row, after the time.
const HEADER: &str = ",cpu,thread,thread_name,name,function,fields\n";

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    let mut out = Output::new(destination.writer()?);
    let time = format!("time_{}", info.unit.suffix());
    out.bytes.extend_from_slice(time.as_bytes());
    out.bytes.extend_from_slice(HEADER.as_bytes());
    Ok(Box::new(Csv {
        out,
        listing: Listing::new(context),
        text: String::new(),
    }))
}

/// The sink.
struct Csv<'a> {
    out: Output<'a>,
    listing: Listing<'a>,
    /// The last cell of the current row.
    text: String,
}

impl Sink for Csv<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for seen in batch.iter() {
            let event = &*whole(seen);
            // Events that the reader added to the records carry no additional information.
            if event.record {
                let rest = &mut self.text;
                rest.clear();
                if let Some(label) = event.kind.label() {
                    rest.push_str("label=");
                    kymo_event::Value::from(label).push(rest);
                }
                push_fields(rest, self.listing.fields(info, event));
                let function = self.listing.function(info, event).unwrap_or("");
                row(
                    &mut self.out.bytes,
                    info,
                    event,
                    &event.name,
                    function,
                    &self.text,
                );
            }
            if let EventKind::Gap(gap) = &event.kind {
                self.text.clear();
                push_fields(&mut self.text, &gap_fields(info, event, gap));
                row(&mut self.out.bytes, info, event, "gap", "", &self.text);
            }
            self.out.check()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceInfo, _: &mut Summary) -> io::Result<()> {
        self.out.finish()
    }
}

/// Appends `name=value` for each field, separated by blanks.
fn push_fields<'f>(text: &mut String, fields: impl IntoIterator<Item = &'f Field>) {
    for field in fields {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&field.name);
        text.push('=');
        field.value.push(text);
    }
}

/// Appends a row.
fn row(
    out: &mut Vec<u8>,
    info: &TraceInfo,
    event: &Event,
    name: &str,
    function: &str,
    fields: &str,
) {
    event.timestamp().write(out);
    out.push(b',');
    if let Some(cpu) = event.cpu {
        cpu.write(out);
    }
    out.push(b',');
    if let Some(thread) = event.thread {
        hexadecimal(out, info.identities.tid(thread).0);
    }
    for text in [
        thread_name(info, event).unwrap_or(""),
        name,
        function,
        fields,
    ] {
        out.push(b',');
        cell(out, text);
    }
    out.push(b'\n');
}

/// Appends a number with `0x`.
fn hexadecimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (number >> (4 * place)) as u32 & 15;
        out.extend(char::from_digit(digit, 16).map(|digit| digit as u8));
    }
}
