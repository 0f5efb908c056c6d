//! Fuzz targets. Ordinary tests also run them on damaged copies of real traces.
//!
//! They return for any valid or invalid input, and panic if an invariant is violated.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::Plan;
use crate::metadata::{Metadata, Scope};
use crate::read::{Container, Message, Projection, Run, StreamReader, Value, Visitor};
use crate::text::Layout;

/// Any bytes as metadata: parsing gives an error or a model, and the text of the model parses to an equal model, in
/// both versions.
pub fn metadata(bytes: &[u8]) {
    let Ok(parsed) = Metadata::parse(bytes) else {
        return;
    };
    if let Ok(text) = parsed.metadata.to_ctf2() {
        let again = Metadata::parse(text.as_bytes());
        let again = again.and_then(|again| again.metadata.to_ctf2());
        assert_eq!(again.as_ref(), Ok(&text));
    }
    let Ok(text) = parsed.metadata.to_tsdl() else {
        return;
    };
    match Metadata::parse(text.as_bytes()) {
        Ok(again) => assert_eq!(again.metadata, parsed.metadata, "{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// A plan without fast paths, as a reference for the results of the fast paths.
#[must_use]
pub fn slow(metadata: &Metadata) -> Option<Arc<Plan>> {
    let mut plan = Plan::new(metadata.clone()).ok()?;
    plan.flat.clear();
    for stream in &mut plan.streams {
        stream.header_table = None;
        stream.events.iter_mut().for_each(|event| event.body = None);
    }
    Some(Arc::new(plan))
}

/// All output of a reader for a stream, skipping damage: a line for each message and each field, and each event as
/// text.
#[must_use]
pub fn reported(plan: &Arc<Plan>, stream: &[u8]) -> Vec<String> {
    let mut reader = StreamReader::new(plan.clone(), io::Cursor::new(stream.to_vec()));
    let layout = Layout::new(plan.metadata(), "").compiled(plan);
    let mut lines = Lines(Vec::new());
    let names = some_fields(plan.metadata());
    let projection = Projection::new(plan, names.iter().copied());
    let scopes = Scope::ALL.into_iter().cycle();
    let scoped = Projection::of_scopes(plan, scopes.zip(names.iter().copied()));
    loop {
        match reader.next_run() {
            Ok(Some(Run::Events(events))) => {
                for event in events {
                    let place = (event.offset(), event.size(), event.number());
                    let time = (event.ticks(), event.time_ns());
                    lines
                        .0
                        .push(format!("{place:?} {time:?} {}", event.class_index()));
                    event.visit_all(&mut lines);
                    let mut bare = Bare(Vec::new());
                    event.visit_all(&mut bare);
                    lines.0.push(bare.0.join(", "));
                    let mut text = Vec::new();
                    layout.event(&mut text, &event);
                    lines.0.push(String::from_utf8_lossy(&text).into_owned());
                    let mut values = vec![None; names.len()];
                    for projection in [&projection, &scoped] {
                        event.project(projection, &mut values);
                        lines.0.push(format!("{values:?}"));
                    }
                    for scope in Scope::ALL {
                        event.visit(scope, &mut lines);
                    }
                }
            }
            Ok(Some(Run::Packet(packet))) => {
                lines.0.push(format!("{:?}", packet.info()));
                packet.visit(Scope::PacketHeader, &mut lines);
                packet.visit(Scope::PacketContext, &mut lines);
            }
            Ok(Some(Run::Gap(gap))) => lines.0.push(format!("{gap:?}")),
            Ok(None) => return lines.0,
            Err(error) => match reader.skip() {
                Ok(skipped) => lines.0.push(format!("{error:?} {skipped:?}")),
                Err(_) => return lines.0,
            },
        }
    }
}

/// The names of a few fields of the events, one of them twice.
fn some_fields(metadata: &Metadata) -> Vec<&str> {
    const SOME: usize = 5;
    let mut names = BTreeSet::new();
    for (stream, class) in metadata.streams.iter().enumerate() {
        for event in 0..class.events.len() {
            let scopes = Scope::ALL
                .into_iter()
                .filter(|it| *it >= Scope::EventHeader);
            let roots = scopes.filter_map(|scope| metadata.scope(stream, event, scope));
            names.extend(
                roots
                    .flat_map(|root| &root.members)
                    .map(|it| it.name.as_str()),
            );
        }
    }
    let step = names.len() / SOME + 1;
    let mut names: Vec<&str> = names.into_iter().step_by(step).collect();
    names.extend(names.last().copied());
    names
}

/// Records everything.
struct Lines(Vec<String>);

impl<'a> Visitor<'a> for Lines {
    fn scope(&mut self, scope: Scope) {
        self.0.push(format!("{scope:?}"));
    }

    fn value(&mut self, name: &'a str, value: Value<'a>) {
        self.0.push(format!("{name}: {value:?}"));
    }

    fn begin(&mut self, name: &'a str, container: Container) {
        self.0.push(format!("{name} begins: {container:?}"));
    }

    fn end(&mut self, container: Container) {
        self.0.push(format!("{container:?} ends"));
    }
}

/// Records values without their nesting.
struct Bare(Vec<String>);

impl<'a> Visitor<'a> for Bare {
    const NESTED: bool = false;

    fn value(&mut self, name: &'a str, value: Value<'a>) {
        self.0.push(format!("{name}: {value:?}"));
    }
}

/// Metadata, a zero byte, and the bytes of a stream: reads every field of every event, skipping damage.
///
/// Returns the number of events.
pub fn stream(bytes: &[u8]) -> u64 {
    let split = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let (metadata, stream) = bytes.split_at(split);
    let Ok(parsed) = Metadata::parse(metadata) else {
        return 0;
    };
    let Ok(plan) = Plan::new(parsed.metadata) else {
        return 0;
    };
    let (plan, stream) = (Arc::new(plan), stream.get(1..).unwrap_or(&[]));
    if stream.len() <= SHORT
        && let Some(slow) = slow(plan.metadata())
    {
        assert_eq!(reported(&plan, stream), reported(&slow, stream));
    }
    events(plan, stream)
}

/// Maximum size in bytes of a stream that is also read without the fast paths.
const SHORT: usize = 1 << 12;

/// The same for a stream with known metadata.
pub fn events(plan: Arc<Plan>, stream: &[u8]) -> u64 {
    let mut reader = StreamReader::new(plan, io::Cursor::new(stream.to_vec()));
    let mut count = 0;
    let mut places = Places::default();
    let mut reached = 0;
    loop {
        let message = match reader.next_message() {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(error) => {
                let skipped = reader.skip().expect("bytes in memory can be read");
                let skipped = skipped.expect("there was an error");
                assert_eq!(skipped.error, error);
                assert!(skipped.from >= reached * 8, "{skipped:?}");
                if let Some(to) = skipped.to {
                    assert!(to > reached, "skipping moves on: {skipped:?}");
                    reached = to;
                }
                continue;
            }
        };
        match message {
            Message::Event(event) => {
                count += 1;
                let _ = (event.time_ns(), event.field("no such field").is_some());
                for scope in Scope::ALL {
                    event.visit(scope, &mut places);
                }
                assert!(event.size() > 0);
            }
            Message::Packet(packet) => packet.visit(Scope::PacketContext, &mut places),
            Message::Gap(gap) => assert_ne!(gap.count, Some(0)),
        }
        assert_eq!(places.depth, 0, "what begins also ends");
    }
    assert!(
        reader.next_message().is_ok_and(|message| message.is_none()),
        "nothing follows the end"
    );
    count
}

#[derive(Default)]
struct Places {
    depth: usize,
}

impl<'a> Visitor<'a> for Places {
    fn value(&mut self, _: &'a str, value: Value<'a>) {
        let _ = (value.label(), value.text());
    }

    fn begin(&mut self, _: &'a str, _: Container) {
        self.depth += 1;
    }

    fn end(&mut self, _: Container) {
        self.depth -= 1;
    }
}
