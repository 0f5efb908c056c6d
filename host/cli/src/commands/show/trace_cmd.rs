//! `kymo show --format trace-cmd`: prints records of ftrace in the text layout of `trace-cmd report`, for users and
//! scripts that depend on it.
//!
//! The lines come directly from ftrace's records, not from the event model: every record has one line, spelt as by
//! trace-cmd. Lost events have lines of their own, as in trace-cmd; damage is reported on stderr.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

use kymo_event::{Cpu, Filter, Operand, Subject, Tid, Time};
use kymo_ftrace::{EventFormat, FieldFormat, Place, Records, Report as Layout, Step, Style, Trace};
use kymo_read::FtraceTrace;

use super::ViewArgs;
use crate::args::InputArgs;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::check_bounds;
use crate::render::escape::TerminalWriter;
use crate::span::RecordCount;

/// Bytes of text collected before they are written.
const CHUNK: usize = 1 << 16;

/// Writes the selected records.
///
/// # Errors
/// When the input is no binary trace of ftrace, or is damaged; all readable records are written before.
pub fn show(input: &InputArgs, view: &ViewArgs, context: &mut Context) -> Result<ExitCode, Report> {
    view.filter.refuse_to_look_ahead("--format trace-cmd")?;
    view.filter.refuse_hardware_options("a trace of ftrace")?;
    let mut filter = view.filter.filter();
    check_bounds(&filter)?;
    let path = input.path();
    let opened = FtraceTrace::open(path).map_err(|error| Report::caused_by(&error))?;
    let Some(opened) = opened else {
        let what = format!(
            "{}: expected a trace.dat, or a directory of raw ring-buffer pages",
            path.display()
        );
        return Err(Report::new(what).help(
            "trace-cmd's layout is for those; `kymo show --events` lists the events of any trace",
        ));
    };
    let (trace, bytes) = (&opened.trace, opened.bytes());
    let mut records = Records::new(trace, bytes);
    let streams = records
        .cpu_buffers()
        .map(|(buffer, cpu)| stream_name(trace, buffer, cpu));
    let streams: Vec<String> = streams.collect();
    let mut count = RecordCount::new(&view.filter, streams.clone());
    let streams = streams.iter().map(|name| filter.streams.wants(name));
    let streams: Vec<bool> = streams.collect();
    let style = Style {
        raw: view.events,
        ..Style::default()
    };
    let mut layout = Layout::new(trace, style);
    let everything = filter.is_everything();
    let mut damage = trace.damage.first().map(ToString::to_string);
    let cpus = trace.buffers.iter().map(|buffer| buffer.cpus.len()).max();
    let mut lines = String::with_capacity(CHUNK * 2);
    lines.push_str(&format!("cpus={}\n", cpus.unwrap_or(0)));
    let mut started = false;
    while let Some((place, step)) = records.next(trace, bytes) {
        if let Step::Damage(error, _) = &step {
            damage.get_or_insert_with(|| error.to_string());
        }
        if !everything {
            if !started && matches!(step, Step::Record(_)) {
                started = true;
                filter = filter.from_start(time(place));
            }
            if let Step::Record(record) = &step
                && count.seeks()
            {
                count.meet(&Found::new(trace, place, record.data));
            }
            let wanted = streams.get(place.cpu_buffer) == Some(&true)
                && match &step {
                    Step::Record(record) => {
                        let found = Found::new(trace, place, record.data);
                        count.wants(&filter, &found.of_thread(&filter))
                    }
                    _ => filter.keeps_gap(Some(time(place)), Some(Cpu(place.cpu))),
                };
            if !wanted {
                continue;
            }
        }
        layout.push(place, &step, &mut lines);
        if lines.len() >= CHUNK {
            write(&mut lines, context)?;
        }
    }
    layout.finish(&mut lines);
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

fn time(place: Place) -> Time {
    Time(i64::try_from(place.time).unwrap_or(i64::MAX))
}

/// Name of the stream of a CPU's records, as in `kymo info`.
fn stream_name(trace: &Trace, buffer: usize, cpu: u32) -> String {
    match trace.buffers.get(buffer).map(|it| it.name.as_str()) {
        None | Some("") => format!("cpu{cpu}"),
        Some(buffer) => format!("{buffer}/cpu{cpu}"),
    }
}

/// Writes whole lines and clears the buffer. Lines are escaped on a terminal; otherwise they have the same bytes as
/// those of trace-cmd.
fn write(lines: &mut String, context: &mut Context) -> io::Result<()> {
    if context.shows_output() {
        TerminalWriter::new(context.out().0).write_all(lines.as_bytes())?;
    } else {
        context.out().0.write_all(lines.as_bytes())?;
    }
    lines.clear();
    Ok(())
}

/// A record as the subject of a filter.
struct Found<'a> {
    trace: &'a Trace,
    place: Place,
    data: &'a [u8],
    format: Option<&'a EventFormat>,
    pid: i32,
}

impl<'a> Found<'a> {
    fn new(trace: &'a Trace, place: Place, data: &'a [u8]) -> Self {
        let number =
            |from: usize, to: usize| data.get(from..to).map_or(0, |it| trace.order.number(it));
        Self {
            trace,
            place,
            data,
            format: trace.formats.get(number(0, 2) as u16),
            pid: (number(4, 8) as u32).cast_signed(),
        }
    }

    /// Treats a switch as a record of the next task if the filter selects threads and the previous one is not among
    /// them. Without this, only the switches away from a selected task would be shown.
    fn of_thread(self, filter: &Filter) -> Self {
        let alone = Filter {
            threads: filter.threads.clone(),
            ..Filter::default()
        };
        if filter.threads.is_empty() || alone.wants(&self) {
            return self;
        }
        let is_switch = |format: &&EventFormat| {
            matches!(
                (&*format.system, &*format.name),
                ("sched", "sched_switch") | ("ftrace", "context_switch")
            )
        };
        let next = self.format.filter(is_switch);
        let next = next.and_then(|format| format.field("next_pid"));
        let next = next.map(|field| self.trace.scope().field(field, self.data) as u32);
        Self {
            pid: next.map_or(self.pid, u32::cast_signed),
            ..self
        }
    }

    fn operand(&self, field: &FieldFormat) -> Option<Operand<'a>> {
        let scope = self.trace.scope();
        if field.is_array() {
            return field
                .is_text()
                .then(|| Operand::Text(scope.text(field, self.data)));
        }
        let value = scope.field(field, self.data);
        let unused = 64 - 8 * field.size.clamp(1, 8) as u32;
        Some(Operand::Integer(match field.signed {
            true => ((value << unused).cast_signed() >> unused).into(),
            false => value.into(),
        }))
    }
}

impl Subject for Found<'_> {
    fn time(&self) -> Option<Time> {
        Some(time(self.place))
    }

    fn name(&self) -> &str {
        self.format.map_or("", |format| &format.name)
    }

    fn cpu(&self) -> Option<Cpu> {
        Some(Cpu(self.place.cpu))
    }

    fn thread(&self) -> Option<Tid> {
        u64::try_from(self.pid).ok().map(Tid)
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        self.trace.comms.get(self.pid).map(Cow::Borrowed)
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        match path.strip_prefix("context.").unwrap_or(path) {
            "pid"
                if self
                    .format
                    .is_none_or(|format| format.field("pid").is_none()) =>
            {
                Some(Operand::Integer(self.pid.into()))
            }
            path => self.operand(self.format?.field(path)?),
        }
    }
}
