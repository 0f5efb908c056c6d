//! `kymo hotspots --children`: functions with the instructions of their callees, as in `perf report --children`.
//!
//! perf derives these from sampled call chains. Hardware trace has the whole path, so every call counts completely.
//! Where trace is missing, counts are lower bounds, as in `kymo report`.

use std::process::ExitCode;
use std::sync::Arc;

use kymo_analysis::calls::Callee;
use kymo_analysis::profile::{Bounds, Profile};
use kymo_analysis::replay::{Options, Replay};
use kymo_analysis::titles;
use kymo_event::{Addr, Batch, Duration, TraceInfo, Wanted};
use kymo_export::json::Object;
use kymo_read::OpenOptions;
use kymo_symbols::Symbols;

use super::Args;
use crate::args::Format;
use crate::commands::report::doubts::Doubts;
use crate::commands::report::entry::is_at_least;
use crate::commands::report::replays::Shown;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::open_options;
use crate::input::{Trace, name_of, refused};
use crate::render::table::{Align, Table};
use crate::render::unit;

/// Counts of one function.
struct Line {
    function: String,
    file: String,
    calls: u64,
    /// Upper bound on the number of calls; `None` if the number of missing calls is unknown.
    calls_max: Option<u64>,
    total: Share,
    own: Share,
}

/// Instructions or time of a function, with bounds.
struct Share {
    /// Lower bound.
    least: u64,
    /// Upper bound, if known.
    most: Option<u64>,
    /// Whether the value may be above `least`.
    is_at_least: bool,
}

impl Share {
    /// Formats the lower bound, with the same mark (`≥`) as in `kymo report`.
    fn cell(&self) -> String {
        match self.is_at_least {
            true => format!("≥{}", self.least),
            false => self.least.to_string(),
        }
    }
}

/// Prints the functions with the largest total (self and callees) first.
///
/// # Errors
/// When the input can't be read.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let path = &args.hardware.input;
    let options = OpenOptions {
        symbols: args.symbols.files(),
        debug_directories: args.symbols.debug_dir.clone(),
        ..open_options(
            &args.hardware.binaries,
            &args.symbols.elf,
            context.open_options(Wanted::Meaning),
        )
    };
    let source = kymo_read::open(path, &options).map_err(|error| refused(&error))?;
    if source.info().format != kymo_read::coresight::FORMAT {
        let report = Report::new(format_args!("{} has no hardware trace", path.display()));
        return Err(report.help("kymo report shows self and total times of any trace"));
    }
    let mut trace = Trace::new(name_of(path), source, &args.symbols, context)?;
    let symbols = trace.symbols();
    let mut replay = Replay::new(trace.info(), &symbols, Options::default());
    let (mut shown, mut batch) = (Shown::default(), Batch::default());
    loop {
        let source = trace.source();
        match source.fill(&mut batch) {
            Ok(true) => replay.batch_to(source.info(), &batch, &mut shown),
            Ok(false) => break,
            Err(error) => return Err(trace.unreadable(&error)),
        };
    }
    replay.finish_to(trace.info(), &mut shown);
    let bounds = Bounds::of(replay.counts(), &shown.profile);
    let mut lines = lines(trace.info(), &symbols, (&shown.profile, &bounds));
    let whole: u64 = lines.iter().map(|line| line.own.least).sum();
    lines.sort_by(|a, b| {
        let by_heat = (b.total.least, b.own.least).cmp(&(a.total.least, a.own.least));
        by_heat.then_with(|| (&a.function, &a.file).cmp(&(&b.function, &b.file)))
    });
    lines.truncate(args.number.unwrap_or(usize::MAX));
    let share = |part: u64| part as f64 / whole.max(1) as f64;
    match args.format.format {
        Format::Text => {
            let unit = unit::heading();
            let headings = [
                "CHILDREN".to_owned(),
                "SELF".to_owned(),
                format!("TOTAL{unit}"),
                format!("SELF{unit}"),
                "CALLS".to_owned(),
            ];
            let numbers = headings.iter().map(|name| (name.as_str(), Align::Right));
            let texts = [("FILE", Align::Left), ("FUNCTION", Align::Left)];
            let mut table = Table::new(numbers.chain(texts));
            for line in &lines {
                table.row([
                    format!("{:.2} %", 100.0 * share(line.total.least)),
                    format!("{:.2} %", 100.0 * share(line.own.least)),
                    line.total.cell(),
                    line.own.cell(),
                    line.calls.to_string(),
                    line.file.clone(),
                    line.function.clone(),
                ]);
            }
            let (out, palette) = context.out();
            table.write(out, palette)?;
        }
        Format::Json => {
            let mut text = Vec::new();
            for line in &lines {
                text.clear();
                let mut object = Object::begin(&mut text);
                object
                    .member("file", line.file.as_str())
                    .member("function", line.function.as_str())
                    .member("calls", line.calls)
                    .member("calls_max", line.calls_max)
                    .member("total_ns", line.total.least)
                    .member("total_max_ns", line.total.most)
                    .member("self_ns", line.own.least)
                    .member("self_max_ns", line.own.most)
                    .member("children", share(line.total.least))
                    .member("share", share(line.own.least));
                object.end();
                unit::name_members(&mut text);
                text.push(b'\n');
                context.out().0.write_all(&text)?;
            }
        }
    }
    let rows: Vec<_> = shown.profile.rows().collect();
    Doubts::of(rows.iter().map(|(_, row)| row)).remark_bounds(context);
    shown.missing.remark(&bounds, context);
    trace.remark(context);
    trace.verdict()
}

/// Collects the functions of a profile, with names, files and bounds.
fn lines(
    info: &TraceInfo,
    symbols: &Arc<Symbols>,
    (profile, bounds): (&Profile, &Bounds),
) -> Vec<Line> {
    let identities = &info.identities;
    let lines = profile.rows().map(|(callee, row)| {
        let mut file = "-".to_owned();
        let function = match callee {
            Callee::Function(id) => identities.function(id).map_or_else(String::new, |known| {
                let space = identities.space(known.space);
                let mapping = known
                    .mapping
                    .and_then(|number| space.and_then(|space| space.mappings.get(number as usize)));
                if let Some(mapping) = mapping {
                    let path = mapping.path.as_str();
                    path.rsplit('/')
                        .next()
                        .unwrap_or(path)
                        .clone_into(&mut file);
                }
                let address = known.address.unwrap_or(Addr(0));
                let name = symbols.name_of(known).map(str::to_owned);
                name.unwrap_or_else(|| format!("{:#x}", address.0))
            }),
            Callee::Interrupt(id) => titles::interrupt(identities, id),
            Callee::Unknown => "(unknown)".to_owned(),
        };
        // The duration of a call that began before the recording is unknown, so the function has no upper bound.
        let whole = row.without_time() == 0;
        let share = |least: Duration, most: Option<Duration>| {
            let most = most.filter(|_| whole);
            Share {
                least: least.0,
                most: most.map(|most| most.0),
                is_at_least: is_at_least(&row, least, most),
            }
        };
        Line {
            function,
            file,
            calls: row.count,
            calls_max: bounds.count(&row),
            total: share(row.total, bounds.total(&row)),
            own: share(row.self_time, bounds.self_time(&row)),
        }
    });
    lines
        .filter(|line| line.calls > 0 || line.own.least > 0)
        .collect()
}
