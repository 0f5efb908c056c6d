//! Formatter of events as lines of text, in the layout of `babeltrace2`.
//!
//! The layout is that of `babeltrace2 --clock-seconds --no-delta --fields=all`, which is well known and parsed by
//! scripts:
//!
//! ```text
//! [1795261717.865412141] vm:ust:app:(1393):TRACE_INFO (6) my:event: { cpu_id = 0 }, { vtid = 7 }, { n = 1, s = "x" }
//! ```

mod fields;
mod format;
mod line;
mod program;
mod run;

use std::sync::Arc;

use crate::metadata::{EnvValue, EventClass, Metadata, StreamClass};
use crate::plan::{Plan, StreamPlan};
use crate::read::{Event, Trace};
use fields::Fields;
use line::{Label, Line};
use program::{Enumerations, Program};

/// Formats events of one trace.
#[derive(Debug, Clone)]
pub struct Layout {
    enumerations: Enumerations,
    /// Indexed by stream class.
    streams: Vec<StreamText>,
    /// The plan that the programs were compiled from: they do not work for events of another plan.
    plan: Option<Arc<Plan>>,
}

/// Properties shared by the events of a stream class.
#[derive(Debug, Clone)]
struct StreamText {
    /// Whether its packet context has fields to show, and the program for that, if there is one.
    shows_context: bool,
    context: Option<Program>,
    /// Indexed by event class.
    events: Vec<EventText>,
}

/// An event class.
#[derive(Debug, Clone)]
struct EventText {
    /// Text between the time and the fields.
    head: Box<[Label]>,
    /// Program that shows all fields after the header, if they have one.
    body: Option<Program>,
    /// Bytes to reserve for a line without long values.
    room: usize,
}

impl Layout {
    /// Creates a layout for each of several traces that are shown together.
    ///
    /// Traces with the same UUID are parts of one trace and are shown without a name of their own.
    #[must_use]
    pub fn of(traces: &[Trace]) -> Vec<Self> {
        let name = |trace: &Trace| {
            let uuid = trace.metadata().uuid;
            let parts = traces
                .iter()
                .filter(|other| other.metadata().uuid == uuid)
                .count();
            if uuid.is_some() && parts > 1 {
                String::new()
            } else {
                trace.name().to_owned()
            }
        };
        traces
            .iter()
            .map(|trace| Self::new(trace.metadata(), &name(trace)).compiled(trace.plan()))
            .collect()
    }

    /// Creates a layout for a trace with this metadata and this name. It is slower than a layout created by
    /// [`of`](Self::of), which is compiled.
    #[must_use]
    pub fn new(metadata: &Metadata, name: &str) -> Self {
        let host = env_text(metadata, "hostname");
        let mut prefix = String::new();
        for part in [host.as_deref().unwrap_or(""), name] {
            if !prefix.is_empty() && !part.is_empty() {
                prefix.push('/');
            }
            prefix.push_str(part);
        }
        let process = env_text(metadata, "vpid").map(|id| format!("({id})"));
        let sources = [
            host,
            env_text(metadata, "domain"),
            env_text(metadata, "procname"),
            process,
        ];
        let sources: Vec<String> = sources.into_iter().flatten().collect();
        prefix.push_str(&sources.join(":"));
        let event = |class: &EventClass| {
            let head = head(&prefix, !sources.is_empty(), class);
            EventText {
                head: Label::all(head.as_bytes()).collect(),
                body: None,
                room: head.len() + ROOM,
            }
        };
        let streams = metadata.streams.iter().map(|stream| StreamText {
            shows_context: shows_context(stream),
            context: None,
            events: stream.events.iter().map(event).collect(),
        });
        Self {
            streams: streams.collect(),
            enumerations: Enumerations::default(),
            plan: None,
        }
    }

    /// Compiles as much as possible, for events of this plan.
    pub(crate) fn compiled(mut self, plan: &Arc<Plan>) -> Self {
        for (stream, compiled) in self.streams.iter_mut().zip(&plan.streams) {
            stream.compile(plan, compiled, &mut self.enumerations);
        }
        self.plan = Some(Arc::clone(plan));
        self
    }

    /// Appends the line of an event, without a line break.
    pub fn event(&self, out: &mut Vec<u8>, event: &Event<'_>) {
        let packet = event.packet();
        let stream = self.streams.get(packet.info().stream_class);
        let text = stream.and_then(|stream| stream.events.get(event.class_index()));
        let known = |plan| Arc::ptr_eq(plan, packet.plan());
        if self.plan.as_ref().is_some_and(known)
            && let (Some(stream), Some(text)) = (stream, text)
            && let (Some(context), Some(body)) = (&stream.context, &text.body)
        {
            let (start, mut room) = (out.len(), text.room);
            loop {
                out.resize(start + room, 0);
                let mut line = Line::new(out.get_mut(start..).unwrap_or(&mut []));
                if let Some(time) = event.time_ns() {
                    format::seconds(&mut line, time);
                }
                text.head.iter().for_each(|label| label.put(&mut line));
                if stream.shows_context {
                    let (place, start) = packet.context();
                    self.enumerations.run(context, &place, start, &mut line);
                }
                let (place, start_of_body) = event.body();
                self.enumerations
                    .run(body, &place, start_of_body, &mut line);
                if let Some(length) = line.length() {
                    out.truncate(start + length);
                    return;
                }
                // Some value is longer than the reserved space.
                room *= 2;
            }
        }
        if let Some(time) = event.time_ns() {
            format::seconds(out, time);
        }
        match text {
            Some(text) => text.head.iter().for_each(|label| label.put(out)),
            None => out.extend_from_slice(b"<unknown>: "),
        }
        let mut fields = Fields::new(out);
        if stream.is_some_and(|stream| stream.shows_context) {
            fields.packet_context(&packet);
        }
        event.visit_body(&mut fields);
        fields.finish();
    }
}

/// Bytes usually needed besides the head and labels: for a time, some values and the rest of a chunk.
const ROOM: usize = 256;

impl StreamText {
    fn compile(&mut self, plan: &Plan, stream: &StreamPlan, enumerations: &mut Enumerations) {
        let flat = |program: Option<u32>| plan.flat.get(program? as usize);
        self.context = match stream.packet_context {
            Some(context) if self.shows_context => {
                flat(context.flat).and_then(|ops| program::context(ops, enumerations))
            }
            _ => Some(Program::default()),
        };
        if self.context.is_none() {
            return;
        }
        for (event, compiled) in self.events.iter_mut().zip(&stream.events) {
            let ops = compiled.body.as_ref();
            event.body = ops.and_then(|ops| program::body(ops, self.shows_context, enumerations));
            let programs = [&self.context, &event.body].into_iter().flatten();
            event.room += programs.map(|program| program.labels).sum::<usize>();
        }
    }
}

/// Text between the time of an event and its fields; `sources` is set if there is anything besides the trace's name.
fn head(prefix: &str, mut sources: bool, class: &EventClass) -> String {
    let mut head = prefix.to_owned();
    let mut add = |part: String| {
        if std::mem::replace(&mut sources, true) {
            head.push(':');
        }
        head.push_str(&part);
    };
    if let Some(level) = class.log_level
        && let Some(name) = usize::try_from(level)
            .ok()
            .and_then(|level| LEVELS.get(level))
    {
        add(format!("TRACE_{name} ({level})"));
    }
    if let Some(uri) = &class.emf_uri {
        add(uri.clone());
    }
    if sources {
        head.push(' ');
    }
    let name = if class.name.is_empty() {
        "<unknown>"
    } else {
        &class.name
    };
    head.push_str(name);
    head.push_str(": ");
    head
}

/// Whether the packet context has fields to show.
fn shows_context(stream: &StreamClass) -> bool {
    let members = stream.packet_context.iter().flat_map(|root| &root.members);
    let mut roles = members.map(|member| member.class.as_integer().and_then(|class| class.role));
    roles.any(|role| !fields::is_hidden(role))
}

/// Names of the log levels of LTTng-UST, by number.
const LEVELS: [&str; 15] = [
    "EMERG",
    "ALERT",
    "CRIT",
    "ERR",
    "WARNING",
    "NOTICE",
    "INFO",
    "DEBUG_SYSTEM",
    "DEBUG_PROGRAM",
    "DEBUG_PROCESS",
    "DEBUG_MODULE",
    "DEBUG_UNIT",
    "DEBUG_FUNCTION",
    "DEBUG_LINE",
    "DEBUG",
];

fn env_text(metadata: &Metadata, name: &str) -> Option<String> {
    Some(match metadata.env(name)? {
        EnvValue::Text(text) => text.clone(),
        EnvValue::Integer(number) => number.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Messages};

    /// One field of each kind that has a compiled step, in two scopes.
    const METADATA: &str = r#"/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };
        stream {
            packet.context := struct { integer { size = 16; } content_size; u8 cpu_id; u8 extra; };
            event.header := struct { u8 id; };
            event.context := struct { u8 which; };
        };
        event {
            name = "all"; id = 7;
            fields := struct {
                integer { size = 3; } low;
                integer { size = 5; signed = true; } signed;
                integer { size = 12; signed = true; base = 16; } hex;
                integer { size = 4; base = 2; } binary;
                string text;
                u8 count;
                u8 numbers[count];
                integer { size = 8; align = 8; encoding = UTF8; } name[4];
                enum : u8 { "few" = 0 ... 9, "ten" = 10 } label;
                enum : u8 { none = 0, some = 1 } tag;
                variant <tag> { struct { u8 a; } none; string some; } choice;
                floating_point { exp_dig = 8; mant_dig = 24; align = 32; } real;
            };
        };"#;

    #[test]
    fn every_kind_of_step() {
        let mut stream = vec![0, 0, 3, 9];
        for (label, tag) in [(9u8, 0u8), (10, 1), (11, 1)] {
            // The payload has the alignment of its last field.
            stream.extend_from_slice(&[7, 5, 0, 0, 0xe8 | 2, 0xfe, 0x5f]);
            stream.extend_from_slice(b"it's & #1, of more than sixteen bytes\0");
            stream.extend_from_slice(&[2, 0, 200, b'a', b'?', 0, b'x', label, tag]);
            stream.extend_from_slice(if tag == 0 { &[42] } else { b"some\0" });
            stream.resize(stream.len().next_multiple_of(4), 0);
            stream.extend_from_slice(&(-0.5f32).to_le_bytes());
        }
        let bits = stream.len() as u16 * 8;
        stream[..2].copy_from_slice(&bits.to_le_bytes());
        let trace =
            Trace::from_memory(METADATA.as_bytes(), [("s", &stream[..])]).expect("metadata");
        let layout = Layout::of(std::slice::from_ref(&trace)).remove(0);
        assert!(layout.streams[0].events[0].body.is_some(), "compiled");
        let mut lines = Vec::new();
        let mut messages = Messages::merge([&trace]).expect("opens");
        let reported = messages.for_each(|_, message| {
            if let Message::Event(event) = message {
                layout.event(&mut lines, &event);
                lines.push(b'\n');
            }
        });
        reported.expect("decodes");
        let same = r#"low = 2, signed = -3, hex = 0xFFE, binary = 0b0101, text = "it\'s & #1, of more than sixteen bytes", count = 2, numbers = [ [0] = 0, [1] = 200 ], name = "a\?""#;
        let expected = [
            r#"label = ( "few" : container = 9 ), tag = ( "none" : container = 0 ), choice = { { a = 42 } }, real = -0.5"#,
            r#"label = ( "ten" : container = 10 ), tag = ( "some" : container = 1 ), choice = { "some" }, real = -0.5"#,
            r#"label = ( <unknown> : container = 11 ), tag = ( "some" : container = 1 ), choice = { "some" }, real = -0.5"#,
        ]
        .map(|rest| format!("all: {{ cpu_id = 3, extra = 9 }}, {{ which = 5 }}, {{ {same}, {rest} }}\n"));
        assert_eq!(String::from_utf8_lossy(&lines), expected.concat());
    }

    #[test]
    fn a_long_value_finds_room() {
        const METADATA: &str = r#"/* CTF 1.8 */
            trace { major = 1; minor = 8; byte_order = le; };
            stream {};
            event { name = "e"; fields := struct { string s; }; };"#;
        let texts = (0..2_000).step_by(7).map(|length| "x".repeat(length));
        let texts: Vec<String> = texts.collect();
        let stream = texts.join("\0") + "\0";
        let trace = Trace::from_memory(METADATA.as_bytes(), [("s", stream.as_bytes())]);
        let trace = trace.expect("metadata");
        let layout = Layout::of(std::slice::from_ref(&trace)).remove(0);
        let mut expected = texts.iter();
        let mut messages = Messages::merge([&trace]).expect("opens");
        let reported = messages.for_each(|_, message| {
            if let Message::Event(event) = message {
                let mut line = b"before ".to_vec();
                layout.event(&mut line, &event);
                let text = expected.next().expect("as many");
                let expected = format!("before e: {{ s = \"{text}\" }}");
                assert_eq!(String::from_utf8_lossy(&line), expected);
            }
        });
        reported.expect("decodes");
        assert_eq!(expected.next(), None);
    }
}
