//! Comments of the tree: how a call ended, and events that are not steps of a call.

use std::borrow::Cow;
use std::fmt::Write;

use kymo_analysis::calls::{End, How, Repair};
use kymo_event::{Event, EventKind, push_fields};

/// Whether a call needs a remark.
pub fn is_remarkable(end: &End) -> bool {
    end.how != How::Returned || end.clipped
}

/// The remark on a call: how it ended, and whether a bound of the window clips it.
pub fn remark(end: &End) -> Option<Cow<'static, str>> {
    let how = match end.how {
        How::Returned => None,
        How::Jumped => Some("left by longjmp"),
        How::Repaired(Repair::Unwound) => Some("unwound by a jump"),
        How::Repaired(Repair::Lost) => Some("its return is lost"),
        How::RecordingOff => Some("recording went off"),
        How::NoEnd => None,
        How::Open => Some("still open"),
        How::Orphan if end.wall.is_some() => Some("entered before, above what it called"),
        How::Orphan => Some("entered before"),
    };
    match (how, end.clipped) {
        (Some(how), true) => Some(format!("clipped, {how}").into()),
        (None, true) => Some("clipped".into()),
        (how, false) => how.map(Cow::Borrowed),
    }
}

/// Appends the text of an event that is not a step of a call.
pub fn remark_event(event: &Event, out: &mut String) {
    // Writing to a string can't fail.
    let _ = match &event.kind {
        EventKind::Gap(gap) => write!(out, "~~~~~~ {gap} ~~~~~~"),
        EventKind::Recording { on, cause } => {
            let on = if *on { "on" } else { "off" };
            write!(out, "/* recording {on} ({}) */", cause.name())
        }
        EventKind::Marker {
            label: Some(label),
            value,
        } => {
            out.push_str("/* ");
            comment(out, |out| out.push_str(label));
            write!(out, ": {value} */")
        }
        EventKind::Counter { name, value, .. } => {
            out.push_str("/* ");
            comment(out, |out| out.push_str(name));
            write!(out, " = {value} */")
        }
        EventKind::Marker { label: None, value } => write!(out, "/* marker {value} */"),
        _ => {
            out.push_str("/* ");
            comment(out, |out| {
                out.push_str(&event.name);
                if !event.fields.is_empty() {
                    out.push_str(": ");
                    push_fields(&event.fields, out);
                }
            });
            out.push_str(" */");
            Ok(())
        }
    };
}

/// Appends text of the program, made safe for a comment on one line.
fn comment(out: &mut String, write: impl FnOnce(&mut String)) {
    let start = out.len();
    write(out);
    // May be or begin a control character, or end a comment.
    let doubtful = |byte: u8| byte < b' ' || matches!(byte, b'*' | 0x7f | 0xc2);
    let text = out.get(start..).unwrap_or_default();
    if text.bytes().fold(false, |any, byte| any | doubtful(byte)) {
        let text = text.replace("*/", "* /");
        let text = text.replace(|c: char| c.is_control(), " ");
        out.truncate(start);
        out.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_ends_where_it_is_meant_to() {
        for (text, expected) in [
            ("plain é", "/* plain é"),
            ("a */ b", "/* a * / b"),
            ("a * b", "/* a * b"),
            ("one\ntwo\u{7f}\u{85}", "/* one two  "),
        ] {
            let mut out = "/* ".to_owned();
            comment(&mut out, |out| out.push_str(text));
            assert_eq!(out, expected);
        }
    }
}
