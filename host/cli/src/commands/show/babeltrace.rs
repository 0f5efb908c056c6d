//! `kymo show --format babeltrace`: prints CTF traces in the text layout of babeltrace2, for users and scripts that
//! depend on it.
//!
//! The lines come directly from the CTF records, not from the event model: they have every field, spelt as by
//! babeltrace2 with `--clock-seconds --no-delta --fields=all`. Lost events and damage are reported on stderr, as by
//! babeltrace2.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_ctf::text::Layout;
use kymo_ctf::{GapKind, Messages, Run, Trace};
use kymo_event::Time;

use crate::args::InputArgs;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, check_bounds};
use crate::records::{Record, file_name, stream_name};
use crate::render::escape::TerminalWriter;
use crate::span::RecordCount;

/// Bytes of text collected before they are written.
const CHUNK: usize = 1 << 16;
/// Capacity beyond [`CHUNK`] for the last line, in bytes. Longer lines are rare.
const LINE: usize = 1 << 12;

/// Writes the selected events.
///
/// # Errors
/// When the input is no CTF trace, or is damaged; all readable events are written before.
pub fn show(
    input: &InputArgs,
    filter: &FilterArgs,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    filter.refuse_to_look_ahead("--format babeltrace")?;
    filter.refuse_hardware_options("CTF")?;
    let (args, mut filter) = (filter, filter.filter());
    check_bounds(&filter)?;
    let traces = open(input)?;
    let refuse = |error| Report::caused_by(&error);
    let mut messages = Messages::merge(&traces).map_err(refuse)?;
    let layouts = Layout::of(&traces);
    let wanted: Vec<Vec<bool>> = traces
        .iter()
        .map(|trace| {
            let names = trace.stream_names();
            names.map(|name| filter.streams.wants(name)).collect()
        })
        .collect();
    let everything = filter.is_everything();
    let mut damage = None;
    let mut lines = Vec::with_capacity(CHUNK + LINE);
    let mut started = false;
    let streams = traces.iter().flat_map(Trace::stream_names);
    let mut count = RecordCount::new(args, streams.map(str::to_owned).collect());
    loop {
        let (origin, run) = match messages.next_run() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) => {
                let origin = error.origin;
                let stream = file_name(&traces, origin, error.error.file);
                let skipped = messages.skip(origin).ok().flatten();
                if let Some(remark) = skipped.and_then(|skipped| skipped.unused(&stream)) {
                    context.warn(remark);
                    continue;
                }
                damage.get_or_insert_with(|| format!("{stream}: {}", error.error));
                // The packets behind the damage are valid: reading continues there.
                if let Some(skipped) = skipped
                    && let Some(to) = skipped.to
                {
                    let from = skipped.from / 8;
                    context.warn(format_args!(
                        "{stream}: bytes {from} to {to} are passed over"
                    ));
                }
                continue;
            }
        };
        let streams = wanted.get(origin.trace);
        if streams.and_then(|streams| streams.get(origin.stream)) != Some(&true) {
            if let Run::Events(events) = run
                && count.seeks()
            {
                let records = events.into_iter();
                records.for_each(|event| {
                    count.meet(&Record {
                        event: &event,
                        origin: 0,
                    })
                });
            }
            continue;
        }
        match run {
            Run::Packet(_) => {}
            Run::Gap(gap) => {
                let what = match gap.kind {
                    GapKind::Events | GapKind::EarlierEvents => "events discarded",
                    GapKind::Packets => "packets lost",
                };
                let count = gap.count.map_or("some".to_owned(), |n| n.to_string());
                let stream = stream_name(&traces, origin.trace, origin.stream);
                context.warn(format_args!("{stream}: {count} {what}"));
            }
            Run::Events(events) => {
                let Some(layout) = layouts.get(origin.trace) else {
                    continue;
                };
                for event in events {
                    if !started {
                        started = true;
                        let first = event.time_ns().unwrap_or_default();
                        filter = filter.from_start(Time(first));
                    }
                    let record = Record {
                        event: &event,
                        origin: 0,
                    };
                    if everything || count.wants(&filter, &record) {
                        layout.event(&mut lines, &event);
                        lines.push(b'\n');
                    }
                    if lines.len() >= CHUNK {
                        write(&mut lines, context)?;
                    }
                }
            }
        }
    }
    write(&mut lines, context)?;
    context.out().0.flush()?;
    if let Err(refusal) = count.remark(&filter, context) {
        // The rest of the trace may have what options name.
        damage.into_iter().for_each(|first| context.warn(first));
        return Err(refusal);
    }
    match damage {
        None => Ok(ExitCode::SUCCESS),
        Some(first) => Err(Report::new(first).help("all that could be read was given")),
    }
}

/// Writes whole lines and clears the buffer. Lines are escaped on a terminal; otherwise they have the same bytes as
/// those of babeltrace2.
fn write(lines: &mut Vec<u8>, context: &mut Context) -> io::Result<()> {
    if context.shows_output() {
        TerminalWriter::new(context.out().0).write_all(lines)?;
    } else {
        context.out().0.write_all(lines)?;
    }
    lines.clear();
    Ok(())
}

/// Help for an input that is not CTF.
const OTHER_INPUTS: &str = "babeltrace's layout is of CTF traces: `kymo export --to ctf` makes one of any input, and \
                            `kymo show --events` lists the events of any";

/// Opens the CTF traces of an input: a directory, or one stream with its metadata.
fn open(input: &InputArgs) -> Result<Vec<Trace>, Report> {
    let path = input.path();
    let refuse = |error: kymo_ctf::OpenError| Report::caused_by(&error).help(OTHER_INPUTS);
    let named = input.ctf.metadata.is_some();
    let folder = kymo_read::folder_of_metadata(path).filter(|_| !named);
    if path.is_dir() || folder.is_some() {
        let traces = Trace::open_all(folder.unwrap_or(path)).map_err(refuse)?;
        return Ok(Trace::joined(traces)
            .into_iter()
            .map(Trace::in_order)
            .collect());
    }
    let beside = path.with_file_name("metadata");
    let metadata = input.ctf.metadata.as_deref().unwrap_or(&beside);
    let name = path.file_name().unwrap_or(path.as_os_str());
    let file = if path != Path::new("-") {
        path.to_owned()
    } else if input.ctf.metadata.is_some() {
        PathBuf::from("/dev/stdin")
    } else {
        return Err(
            Report::new("what comes from stdin is one stream of a CTF trace")
                .help("--metadata FILE says where its metadata is"),
        );
    };
    let stream = (name.to_string_lossy().into_owned(), file);
    Ok(vec![
        Trace::open_streams(metadata, [stream]).map_err(refuse)?,
    ])
}
