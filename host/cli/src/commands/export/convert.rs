//! `kymo export --to ctf|ctf2` of a CTF trace: copies its raw records.
//!
//! Names, fields and values of all tracers are kept, so the result has the same meaning for every tool as the source.
//! Kymo's own recordings are not copied like this; their meaning is written instead.
//!
//! For a window, the records before it that are needed to understand it ([`Before`]) are kept, and the state dump at
//! the begin of a tracer's trace. The environment has the bounds of the window, so that `kymo` shows only that.

use std::path::Path;
use std::process::ExitCode;

use kymo_analysis::replay::Window;
use kymo_ctf::convert::{Conversion, ConvertError, Damage, Select, Summary};
use kymo_ctf::metadata::{EnvValue, Version};
use kymo_ctf::{CreateError, Event, Message, Messages, Packet};
use kymo_event::{Cpu, Cut, Filter, StreamId, Subject as _, Time};
use kymo_export::Format;
use kymo_read::{CtfTrace, OpenOptions};

use super::before::Before;
use super::check_empty;
use crate::args::InputArgs;
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::input::refused;
use crate::output::OutputDirectory;
use crate::records::Record;
use crate::render::count::counted;
use crate::span::{Span, remark_nothing_chosen};
use crate::target::address_in;

/// The CTF version of a format, if it has one.
pub fn version(format: &Format) -> Option<Version> {
    match format.name {
        "ctf" => Some(Version::Ctf18),
        "ctf2" => Some(Version::Ctf2),
        _ => None,
    }
}

/// The traces of an input, if it is CTF but not Kymo's own. `None` if other recordings share its time line.
///
/// # Errors
/// When it is CTF but can't be read.
pub fn traces(input: &InputArgs) -> Result<Option<Vec<CtfTrace>>, Report> {
    if address_in(input.path())?.is_some() || !input.ctf.with.is_empty() {
        return Ok(None);
    }
    let options = OpenOptions {
        metadata: input.ctf.metadata.clone(),
        ..OpenOptions::default()
    };
    kymo_read::ctf_traces(input.path(), &options).map_err(|error| refused(&error))
}

/// Converts traces into a directory: a single one directly, several into subdirectories of their names.
///
/// # Errors
/// When a trace can't be converted, or is damaged without `--repair`; everything before the damage is written.
pub fn run(
    traces: &[CtfTrace],
    version: Version,
    (filter, before): (Filter, Before),
    repair: bool,
    output: &Path,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    check_empty(output)?;
    let directory = OutputDirectory::create(output)?;
    let whenever = Filter {
        begin: None,
        end: None,
        ..filter.clone()
    };
    let mut first_damage = None;
    let mut streams = 0;
    for source in traces {
        let trace = &source.trace;
        let into = |output: &Path| match traces.len() {
            1 => output.to_owned(),
            _ => output.join(trace.name()),
        };
        let mut conversion = Conversion::new(version);
        conversion.repair = repair;
        let mut wanted = Wanted {
            filter: &filter,
            whenever: &whenever,
            before: &before,
            source,
            timeless: false,
            next_stream: streams,
            records: 0,
        };
        streams += trace.stream_names().len() as u32;
        let summary = conversion
            .run(trace, into(directory.temporary()), &mut wanted)
            .map_err(|error| failed(&into(output), error))?;
        tell(&into(output), version, &summary, context);
        if first_damage.is_none() {
            first_damage = summary.damage.into_iter().next();
        }
    }
    directory.finish(|| Ok(()))?;
    match first_damage {
        Some(damage) if !repair => {
            let Damage { stream, error, .. } = damage;
            Err(Report::new(format_args!("{stream}: {error}"))
                .help("what comes before the damage is written; --repair goes on behind it"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Makes the bounds of a filter absolute.
///
/// # Errors
/// When the first event can't be read.
pub fn from_start(filter: Filter, traces: &[CtfTrace]) -> Result<Filter, Report> {
    Ok(match filter.needs_start() {
        true => filter.from_start(first_time(traces)?),
        false => filter,
    })
}

/// The bound of an earlier cut in a trace's environment, in nanoseconds by its clock.
fn cut(source: &CtfTrace, name: &str) -> Option<i64> {
    match source.trace.metadata().env(name)? {
        EnvValue::Text(ns) => ns.parse().ok(),
        EnvValue::Integer(ns) => Some(*ns),
    }
}

/// The time of the first event of all traces.
fn first_time(traces: &[CtfTrace]) -> Result<Time, Report> {
    let mut first = None;
    for source in traces {
        let CtfTrace { trace, origin, .. } = source;
        let messages = Messages::merge([trace]);
        let mut messages = messages.map_err(|error| Report::caused_by(&error))?;
        let timeless: Vec<bool> = trace
            .stream_names()
            .map(|name| source.is_timeless(name))
            .collect();
        let time = loop {
            match messages.next_message() {
                Ok(Some((from, Message::Event(event))))
                    if timeless.get(from.stream) != Some(&true) =>
                {
                    break event.time_ns();
                }
                Ok(None) => break None,
                // Damage is reported when the trace is converted.
                Ok(Some(_)) | Err(_) => {}
            }
        };
        let time = time.max(cut(source, Cut::BEGIN_NAME));
        let time = time.map(|time| Time(time.saturating_sub(*origin)));
        first = first.into_iter().chain(time).min();
    }
    Ok(first.unwrap_or_default())
}

/// The filter for the records of a trace.
struct Wanted<'a> {
    filter: &'a Filter,
    /// The filter without bounds of time.
    whenever: &'a Filter,
    before: &'a Before,
    source: &'a CtfTrace,
    /// Whether all of the current stream is wanted, because its records have no time.
    timeless: bool,
    /// The index of the next stream among those of all traces.
    next_stream: u32,
    /// The number of records seen in the current stream.
    records: u64,
}

impl Select for Wanted<'_> {
    fn stream(&mut self, name: &str) -> bool {
        self.timeless = self.source.is_timeless(name);
        self.next_stream += 1;
        self.records = 0;
        self.timeless || self.filter.streams.wants(name)
    }

    fn span(&self) -> (i64, i64) {
        if self.timeless {
            return (i64::MIN, i64::MAX);
        }
        let (begin, end) = self.filter.span();
        let moment = |time: Time| match time.0 {
            i64::MIN | i64::MAX => time.0,
            ns => ns.saturating_add(self.source.origin),
        };
        (moment(begin), moment(end))
    }

    fn packet(&mut self, packet: &Packet<'_>) -> bool {
        let cpu = packet.info().cpu_id;
        let cpu = cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(Cpu);
        self.timeless || cpu.is_none() || self.filter.wants_cpu(cpu)
    }

    fn event(&mut self, event: &Event<'_>) -> bool {
        let record = Record {
            event,
            origin: self.source.origin,
        };
        self.timeless || self.filter.wants(&record)
    }

    fn outside(&mut self, event: &Event<'_>) -> bool {
        let origin = self.source.origin;
        let record = Record { event, origin };
        let begin = self.filter.span().0;
        if self.timeless || record.time().is_none_or(|time| time >= begin) {
            return false;
        }
        // A record without meaning for the reader.
        let kind = || event.field("kind")?.text();
        if event.name() == "gap" && kind().as_deref() == Some("overwritten") {
            return false;
        }
        let number = self.records;
        self.records += 1;
        let stream = StreamId(self.next_stream.saturating_sub(1));
        let needed = event.name().contains("statedump") || self.before.has(stream, number);
        needed && self.whenever.wants(&record)
    }

    fn facts(&self, beyond: bool) -> Vec<(String, EnvValue)> {
        let (begin, end) = self.filter.span();
        let origin = self.source.origin;
        let fact = |name: &str, ns: i64| (name.to_owned(), EnvValue::Text(ns.to_string()));
        // A part of a part begins at the later of both begins.
        let begin = Some(begin).filter(|begin| begin.0 != i64::MIN);
        let begin = begin.map(|begin| begin.0.saturating_add(origin));
        let begin = begin.filter(|begin| cut(self.source, Cut::BEGIN_NAME) < Some(*begin));
        let end = Some(end.0.saturating_add(origin)).filter(|_| beyond);
        let end = end.filter(|end| cut(self.source, Cut::END_NAME).is_none_or(|cut| *end < cut));
        let hidden = self.before.hidden_calls.filter(|_| begin.is_some());
        let hidden = hidden.map(|calls| {
            let name = Cut::HIDDEN_CALLS_NAME.to_owned();
            (name, EnvValue::Text(calls.to_string()))
        });
        let begin = begin.map(|ns| fact(Cut::BEGIN_NAME, ns));
        begin
            .into_iter()
            .chain(end.map(|ns| fact(Cut::END_NAME, ns)))
            .chain(hidden)
            .collect()
    }
}

/// Reports the written records on stderr, and the differences from the source.
fn tell(into: &Path, version: Version, summary: &Summary, context: &Context) {
    for remark in &summary.unused {
        context.warn(remark);
    }
    for damage in &summary.damage {
        let Damage {
            stream,
            error,
            kept,
            ..
        } = damage;
        let kept = counted(*kept, "event");
        let rest = match damage
            .skipped
            .and_then(|skipped| Some((skipped.from / 8, skipped.to?)))
        {
            Some((from, to)) => format!("bytes {from} to {to} are left out"),
            None => "the rest of the stream is left out".to_owned(),
        };
        context.warn(format_args!(
            "{stream}: {error}; {kept} of that packet kept, {rest}"
        ));
    }
    let reported = summary.damage.len() as u64;
    if summary.damaged > reported {
        let more = counted(summary.damaged - reported, "more place");
        context.warn(format_args!("{more} of damage like these"));
    }
    let path = into.display();
    let mut parts = vec![
        counted(summary.events, "event"),
        counted(summary.streams, "stream"),
    ];
    let more = [
        (
            summary.outside,
            "event",
            "of those from before the window, for what is open in it",
        ),
        (summary.left_out, "event", "left out"),
        (summary.discarded, "event", "known to be lost"),
        (summary.lost_packets, "packet", "lost"),
        (
            summary.mended_times,
            "packet",
            "mended whose times did not enclose its events",
        ),
        (
            summary.backward,
            "step",
            "back in time, at which babeltrace2 stops",
        ),
    ];
    for (count, what, verb) in more {
        if count > 0 {
            parts.push(format!("{} {verb}", counted(count, what)));
        }
    }
    for (change, count) in &summary.changes {
        parts.push(format!("in {version}: {change} ({count})"));
    }
    context.note(format_args!("{path}: {}", parts.join(", ")));
    if summary.events == 0 && summary.left_out > 0 {
        let (window, span) = (Window::default(), Span::default());
        remark_nothing_chosen(window, summary.left_out, span, context);
    }
}

fn failed(into: &Path, error: ConvertError) -> Report {
    match error {
        ConvertError::Create(CreateError::Io { path, source }) => unwritable(&path, &source),
        ConvertError::Create(CreateError::Metadata(error)) => {
            Report::caused(into.display(), &error)
                .help("`kymo export` to another version of CTF, or to csv or json, takes it")
        }
        error => Report::caused(into.display(), &error),
    }
}
