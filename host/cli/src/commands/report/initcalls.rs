//! `kymo report --initcalls`: initcalls of a booting kernel.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::process::ExitCode;

use kymo_analysis::initcalls::{Evidence, Initcall, Initcalls};
use kymo_analysis::replay::Window;
use kymo_event::{Duration, Time};
use kymo_export::json::Object;

use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::{Events, Moment, Trace, more};
use crate::render::count::counted;
use crate::render::duration::{Human, Seconds};
use crate::render::table::{Align, Table};

/// Shows the initcalls, longest first.
///
/// # Errors
/// When the input is damaged; the table of all readable parts is shown before.
pub fn run(
    trace: &mut Trace,
    part: &Part,
    (number, format): (Option<usize>, Format),
    context: &mut Context,
) -> Result<ExitCode, Report> {
    if part.chooses_threads() || !part.filter.cpus.is_empty() {
        return Err(Report::new("initcalls are chosen by time alone")
            .help("leave out the options that choose threads or processors"));
    }
    let window = part.window();
    let mut initcalls = Initcalls::default();
    let read = trace.walk(&mut |moment| {
        if let Moment::Batch(info, batch) = moment {
            initcalls.batch(info, batch);
        }
        Ok(more(true))
    });
    let Some((evidence, mut list, left_out)) = initcalls.finish() else {
        context.warn(
            "the trace tells of no initcall: kymo record --ftrace --boot prints how a boot is traced",
        );
        read?;
        return trace.verdict();
    };
    // Initcalls that began before the trace have no begin, so they are in no window.
    let whole = window == Window::default();
    list.retain(|it| {
        whole
            || it
                .start
                .is_some_and(|start| window.begin <= start && start <= window.end)
    });
    let sum = list
        .iter()
        .filter_map(|it| it.duration)
        .fold(Duration(0), |sum, it| sum + it);
    let count = list.len() as u64;
    list.sort_by_key(|it| Reverse(it.duration));
    list.truncate(number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match format {
        Format::Text => {
            let right = |name| (name, Align::Right);
            let columns = vec![
                right("START"),
                right("TIME"),
                right("RESULT"),
                ("LEVEL", Align::Left),
                ("INITCALL", Align::Left),
            ];
            let mut table = Table::new(columns);
            for initcall in &list {
                table.row(cells(initcall));
            }
            table.write(out, palette)?;
            writeln!(out, "\n{}, {}", counted(count, "initcall"), sum.with_unit())?;
        }
        Format::Json => {
            for initcall in &list {
                json(out, initcall)?;
            }
        }
    }
    match evidence {
        Evidence::Calls => context.note(
            "initcalls are the longest callees of do_one_initcall: events (trace_event=initcall:*) tell their levels",
        ),
        Evidence::Messages => context.note("times are those that the kernel printed (initcall_debug)"),
        _ => {}
    }
    if left_out > 0 {
        context.warn(format_args!(
            "too many to keep: {} left out",
            counted(left_out, "initcall")
        ));
    }
    read?;
    trace.remark(context);
    trace.verdict()
}

fn cells(initcall: &Initcall) -> Vec<String> {
    let none = || "-".to_owned();
    let seconds = |time| {
        let origin = Time(0);
        Seconds { time, origin }.to_string().trim_start().to_owned()
    };
    let human = |time| Human(time).to_string().trim_start().to_owned();
    vec![
        initcall.start.map_or_else(none, seconds),
        initcall.duration.map_or_else(none, human),
        initcall
            .result
            .map_or_else(none, |result| result.to_string()),
        initcall.level.clone().unwrap_or_else(none),
        initcall.name.clone(),
    ]
}

/// Writes an initcall as one object.
fn json(out: &mut dyn Write, initcall: &Initcall) -> io::Result<()> {
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    object
        .member("initcall", &*initcall.name)
        .member("level", initcall.level.as_deref())
        .member("start_ns", initcall.start.map(|time| time.0))
        .member("duration_ns", initcall.duration)
        .member("result", initcall.result);
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
