//! `kymo report --by thread|irq`: who had the processors.

use std::io::{self, Write};
use std::process::ExitCode;

use kymo_analysis::schedule::{RunTime, Schedule};
use kymo_event::{Duration, InterruptId, Stack, ThreadId, TraceInfo};
use kymo_export::json::Object;

use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::{Events, Moment, Trace, more};
use crate::render::count::counted;
use crate::render::duration::Human;
use crate::render::palette::Palette;
use crate::render::share::percent;
use crate::render::table::{Align, Table};

/// What a row of the table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// A function.
    #[default]
    Function,
    /// A thread: how long it ran, and waited to run.
    Thread,
    /// An interrupt: how long its handlers ran.
    Irq,
}

/// A row.
struct Entry {
    name: String,
    /// The number that its target gives it.
    number: String,
    run: RunTime,
    priority: Option<i64>,
    stack: Option<Stack>,
}

/// Shows the table of threads or interrupts, most run time first.
///
/// # Errors
/// When the input is damaged; the table of what can be read is shown before.
pub fn run(
    by: By,
    trace: &mut Trace,
    part: &Part,
    (number, format): (Option<usize>, Format),
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let mut schedule = Schedule::new(part.window());
    let read = trace.walk(&mut |moment| {
        if let Moment::Batch(info, batch) = moment {
            schedule.batch(info, batch);
        }
        Ok(more(true))
    });
    schedule.finish();
    let mut entries = match by {
        By::Irq => interrupts(&schedule, trace.info()),
        _ => threads(&schedule, trace.info()),
    };
    entries.sort_by(|one, other| {
        let order = other.run.run.cmp(&one.run.run);
        order.then_with(|| one.name.cmp(&other.name))
    });
    entries.truncate(number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match format {
        Format::Text => text(out, palette, by, &entries, &schedule)?,
        Format::Json => {
            for entry in &entries {
                json(out, by, entry, schedule.span())?;
            }
        }
    }
    if schedule.switches() == 0 {
        context.note("the trace tells of no thread switches and interrupts");
    }
    if schedule.gaps() > 0 {
        let gaps = counted(schedule.gaps(), "gap");
        context.warn(format_args!(
            "{gaps}: counts are at least these, and times uncertain"
        ));
    }
    read?;
    trace.verdict()
}

fn threads(schedule: &Schedule, info: &TraceInfo) -> Vec<Entry> {
    let threads = (0..).zip(info.identities.threads());
    let known = threads.filter_map(|(id, thread)| {
        let number = match info.numbered_threads {
            true => thread.tid.0.to_string(),
            false => thread.tid.to_string(),
        };
        Some(Entry {
            name: thread.name.as_deref().unwrap_or(&number).to_owned(),
            number,
            run: *schedule.thread(ThreadId(id))?,
            priority: thread.priority,
            stack: thread.stack,
        })
    });
    known.collect()
}

fn interrupts(schedule: &Schedule, info: &TraceInfo) -> Vec<Entry> {
    let interrupts = (0..).zip(info.identities.interrupts());
    let known = interrupts.filter_map(|(id, interrupt)| {
        let number = interrupt.irq.to_string();
        let name = interrupt.name.as_deref().map(str::to_owned);
        Some(Entry {
            name: name.unwrap_or_else(|| format!("irq {number}")),
            number,
            run: *schedule.interrupt(InterruptId(id))?,
            priority: None,
            stack: None,
        })
    });
    known.collect()
}

/// A time that may not be known.
fn shown(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| {
        Human(time).to_string().trim_start().to_owned()
    })
}

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    by: By,
    entries: &[Entry],
    schedule: &Schedule,
) -> io::Result<()> {
    let right = |name| (name, Align::Right);
    let mut columns = vec![("NAME", Align::Left), right("ID")];
    let of_threads = by == By::Thread;
    if of_threads {
        columns.push(right("PRIO"));
    }
    columns.extend(["COUNT", "RUN", "LOAD%", "MIN", "AVG", "MAX"].map(right));
    if of_threads {
        columns.extend(["READY AVG", "READY MAX", "STACK", "USED"].map(right));
    }
    let mut table = Table::new(columns);
    for entry in entries {
        let run = &entry.run;
        let complete = |time: Duration| (run.complete > 0).then_some(time);
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![entry.name.clone(), entry.number.clone()];
        if of_threads {
            cells.push(number(entry.priority.map(|it| it.to_string())));
        }
        cells.extend([
            run.count.to_string(),
            shown(Some(run.run)),
            percent(run.run, schedule.span()),
            shown(complete(run.min)),
            shown(run.average()),
            shown(complete(run.max)),
        ]);
        if of_threads {
            let waited = (run.ready.count > 0).then_some(run.ready.max);
            cells.extend([
                shown(run.ready.average()),
                shown(waited),
                number(entry.stack.map(|stack| stack.bytes.to_string())),
                number(entry.stack.and_then(|stack| Some(stack.used?.to_string()))),
            ]);
        }
        table.row(cells);
    }
    table.write(out, palette)?;
    if of_threads && schedule.switches() > 0 {
        let processors = schedule.processors() as u64;
        let all = Duration(schedule.span().0.saturating_mul(processors.max(1)));
        let share = percent(schedule.idle(), all);
        let idle = schedule.idle().with_unit();
        let of = counted(processors, "processor");
        writeln!(
            out,
            "\nidle {idle}, {share} % of {of} for {}",
            schedule.span().with_unit()
        )?;
    }
    Ok(())
}

/// One object a line.
fn json(out: &mut dyn Write, by: By, entry: &Entry, span: Duration) -> io::Result<()> {
    let run = &entry.run;
    let complete = |time: Duration| (run.complete > 0).then_some(time);
    let waited = |time: Duration| (run.ready.count > 0).then_some(time);
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    object
        .member(if by == By::Irq { "irq" } else { "thread" }, &*entry.name)
        .member("id", &*entry.number)
        .member("count", run.count)
        .member("run_ns", run.run)
        .member("load", run.run.0 as f64 / span.0.max(1) as f64)
        .member("span_ns", span)
        .member("min_ns", complete(run.min))
        .member("max_ns", complete(run.max))
        .member("average_ns", run.average());
    if by == By::Thread {
        object
            .member("priority", entry.priority)
            .member("ready_count", run.ready.count)
            .member("ready_average_ns", run.ready.average())
            .member("ready_min_ns", waited(run.ready.min))
            .member("ready_max_ns", waited(run.ready.max))
            .member("stack_bytes", entry.stack.map(|stack| stack.bytes))
            .member("stack_used_bytes", entry.stack.and_then(|stack| stack.used));
    }
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
