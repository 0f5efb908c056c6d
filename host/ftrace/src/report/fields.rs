//! Raw fields: ` name=value name=value`.

use std::fmt::Write;

use crate::dat::Trace;
use crate::format::{Conversion, EventFormat, FieldFormat, Piece};
use crate::format::{Expr, Scope};

/// Appends an event's own fields.
pub(super) fn push(trace: &Trace, event: &EventFormat, data: &[u8], out: &mut String) {
    let uses = uses(event);
    let mut from = 0;
    for field in &event.fields {
        let _ = write!(out, " {}=", field.name);
        // A number is formatted as in the print format. The search for it continues behind the field before.
        let place = (!field.is_array()).then(|| {
            let behind = (from..uses.len()).chain(0..from);
            let mut behind = behind.filter(|place| {
                uses.get(*place)
                    .is_some_and(|it| it.field.offset == field.offset)
            });
            behind.next()
        });
        match place
            .flatten()
            .and_then(|place| Some((place, uses.get(place)?)))
        {
            Some((place, it)) => {
                out.push_str(if it.prefixed { "0x" } else { "" });
                trace
                    .scope()
                    .argument(it.conversion, it.argument, data, out);
                from = (place + 1) % uses.len().max(1);
            }
            None => raw(&trace.scope(), field, data, out),
        }
    }
}

/// Use of a field in a print format.
struct Use<'a> {
    field: &'a FieldFormat,
    argument: &'a Expr,
    conversion: &'a Conversion,
    /// Whether `0x` precedes it.
    prefixed: bool,
}

/// Returns the fields that a print format prints without computing with them.
fn uses(event: &EventFormat) -> Vec<Use<'_>> {
    let Some(print) = event.print() else {
        return Vec::new();
    };
    let (mut uses, mut next, mut prefixed) = (Vec::new(), 0, false);
    for piece in &print.pieces {
        match piece {
            Piece::Text(text) => prefixed = text.ends_with("0x"),
            Piece::Conversion(conversion) => {
                next += usize::from(conversion.star_width) + usize::from(conversion.star_precision);
                let argument = print.arguments.get(next);
                next += 1;
                let mut inner = argument;
                while let Some(Expr::Cast(_, of)) = inner {
                    inner = Some(of);
                }
                if let (Some(argument), Some(Expr::Field(field))) = (argument, inner) {
                    uses.push(Use {
                        field,
                        argument,
                        conversion,
                        prefixed,
                    });
                }
                prefixed = false;
            }
        }
    }
    uses
}

/// Appends a field that the print format does not print.
fn raw(scope: &Scope<'_>, field: &FieldFormat, data: &[u8], out: &mut String) {
    if field.is_array() {
        let bytes = scope.bytes(field, data);
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        let text = bytes.get(..end).unwrap_or_default();
        let printable = |byte: &u8| matches!(byte, b' '..=b'~' | 9..=13);
        if field.is_text() && text.iter().all(printable) {
            out.push_str(&String::from_utf8_lossy(text));
            return;
        }
        out.push_str("ARRAY[");
        for (place, byte) in bytes.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            let _ = write!(out, "{comma}{byte:02x}");
        }
        out.push(']');
        return;
    }
    let value = scope.field(field, data);
    let signed = |bits: u32| (value << (64 - bits)).cast_signed() >> (64 - bits);
    let _ = match (field.signed, field.size) {
        _ if field.pointer => write!(out, "{value:#x}"),
        (true, 4) => write!(out, "{}", signed(32)),
        (true, 2) => write!(out, "{:2}", signed(16)),
        (true, 1) => write!(out, "{}", signed(8)),
        (true, _) => write!(out, "{}", value.cast_signed()),
        (false, _) if field.type_name.contains("long") => write!(out, "{value:#x}"),
        (false, _) => write!(out, "{value}"),
    };
}
