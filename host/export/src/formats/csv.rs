//! Comma-separated values: every event as one row, for spreadsheets and data frames.
//!
//! The columns are always the same: what most questions are about has a column of its own, and
//! everything else an event says stands in the last one as `name=value`, separated by blanks. As
//! RFC 4180 says, except that lines end in a line feed alone.
//!
//! Control characters in names are written as escapes (`\u{1b}`): a file can be shown on a terminal.
//!
//! Where a trace has several spaces (processes, machines), `space` is among the fields, and `thread_space` where
//! that of the thread is another one: a thread's number or a function's address means nothing without it.

use std::io;

use kymo_event::{Batch, EventKind, TraceInfo, Wanted};

use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::json::Json;
use crate::listing::{Listing, label, thread_name, whole};
use crate::output::Output;

/// Comma-separated values.
pub static FORMAT: Format = Format {
    name: "csv",
    extensions: &["csv"],
    about: "comma-separated values, one event a row: for spreadsheets and data frames",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Everything,
    takes: Takes::Events { in_order: false },
    names_program: false,
    merges_threads: false,
    open,
};

/// The first row.
const HEADER: &str = "time_ns,cpu,thread,thread_name,name,function,fields\n";

fn open<'a>(
    _info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    let mut out = Output::new(destination.writer()?);
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
    /// The last cell of the row at hand.
    text: String,
}

impl Sink for Csv<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for seen in batch.iter() {
            let event = &*whole(seen);
            let rest = &mut self.text;
            rest.clear();
            if let Some(label) = label(event) {
                rest.push_str("label=");
                kymo_event::Value::from(label).push(rest);
            }
            for field in self.listing.fields(info, event) {
                if !rest.is_empty() {
                    rest.push(' ');
                }
                rest.push_str(&field.name);
                rest.push('=');
                field.value.push(rest);
            }
            let name = match &event.kind {
                EventKind::Gap(_) => "gap",
                _ => &event.name,
            };
            let out = &mut self.out.bytes;
            event.time.write(out);
            out.push(b',');
            if let Some(cpu) = event.cpu {
                cpu.write(out);
            }
            out.push(b',');
            if let Some(thread) = event.thread {
                hexadecimal(out, info.identities.tid(thread).0);
            }
            out.push(b',');
            cell(out, thread_name(info, event).unwrap_or(""));
            out.push(b',');
            cell(out, name);
            out.push(b',');
            cell(out, self.listing.function(info, event).unwrap_or(""));
            out.push(b',');
            cell(out, &self.text);
            out.push(b'\n');
            self.out.check()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceInfo, _: &mut Summary) -> io::Result<()> {
        self.out.finish()
    }
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

/// Appends a text, in quotes where it needs them, and with escapes for control characters.
fn cell(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'"');
    if text.as_bytes().iter().all(plain) {
        return out.extend_from_slice(text.as_bytes());
    }
    let quoted = text.contains([',', '"', '\n']);
    if quoted {
        out.push(b'"');
    }
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\"\""),
            // These are plain text in a quoted cell.
            '\n' | '\t' => out.push(character as u8),
            _ if character.is_control() => {
                let escape = character.escape_default();
                out.extend(escape.map(|character| character as u8));
            }
            _ => {
                let mut bytes = [0; 4];
                out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
            }
        }
    }
    if quoted {
        out.push(b'"');
    }
}
