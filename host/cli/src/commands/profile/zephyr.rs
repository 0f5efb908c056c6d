//! `kymo profile` for targets with Zephyr's own instrumentation, and for tables saved from them.
//!
//! Such a table has one number for each function: its total time (self and callees) in all threads. The other columns
//! stay empty, because totals are no basis for them: shares of a sum of totals would count the same time many times.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kymo_event::Identities;
use kymo_read::zephyr_instrumentation::{FunctionTotal, ProfileDump, decode_profile};
use kymo_symbols::Symbols;
use kymo_zephyr_instrumentation::{Hints, Kind};

use super::{Args, first};
use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::name_of;
use crate::names::Names;
use crate::output::write_file;
use crate::render::duration::Human;
use crate::render::json::Object;
use crate::render::palette::Palette;
use crate::render::table::{Align, Table};
use crate::target::{LiveZephyr, ZEPHYR_WAIT};

/// Fetches and shows the table of a live target.
pub fn live(args: &Args, mut live: LiveZephyr, context: &mut Context) -> Result<ExitCode, Report> {
    let status = live.status()?;
    if !status.profile {
        let report = Report::new("this target keeps no profile table");
        let report = report.help("build it with CONFIG_INSTRUMENTATION_MODE_STATISTICAL");
        return Err(if status.trace {
            report.help("it records calls: `kymo trace`, and `kymo report` of what that saves")
        } else {
            report
        });
    }
    if args.reboot {
        live.reboot(context)?;
        live.wait(args.wait.unwrap_or(ZEPHYR_WAIT), context);
    }
    let fetched = live.fetch(Kind::Profile, context)?;
    let bytes = fetched.as_sent();
    if let Some(path) = &args.output {
        write_file(path, &bytes)?;
        context.note(format_args!("{}: {} bytes", path.display(), bytes.len()));
    }
    let incomplete = fetched.incomplete;
    let table = decode_profile(&live.name(), &bytes, &Hints::default());
    let table = table.map_err(|error| {
        let report = || Report::caused(live.name(), &error);
        incomplete.clone().unwrap_or_else(report)
    })?;
    let shown = show(args, &table, context);
    // The reason for missing entries is more useful than the number of them.
    incomplete.map_or(shown, Err)
}

/// Reads the table in a file; `None` for any other file.
pub fn kept(path: &Path) -> Option<ProfileDump> {
    if !path.is_file() {
        return None;
    }
    table_in(&name_of(path), &fs::read(path).ok()?)
}

/// Decodes a table from the bytes of a target; `None` if they are something else.
pub fn table_in(name: &str, bytes: &[u8]) -> Option<ProfileDump> {
    let table = decode_profile(name, bytes, &Hints::default()).ok()?;
    table.layout.is_some().then_some(table)
}

/// Shows a table.
pub fn show(args: &Args, table: &ProfileDump, context: &mut Context) -> Result<ExitCode, Report> {
    let symbols = args.symbols.load(&LiveZephyr::info(), context)?;
    let names = Names::new(&symbols);
    let rows = &table.functions;
    let shown = first(rows, args.number);
    let (out, palette) = context.out();
    match args.format.format {
        Format::Text => text(out, palette, shown, &names)?,
        Format::Json => {
            for row in shown {
                json(out, row, &names, &symbols)?;
            }
        }
    }
    if shown.len() < rows.len() {
        let more = rows.len() - shown.len();
        context.note(format_args!("{more} more functions: -n shows more"));
    }
    if rows.is_empty() {
        context.note(
            "the table is empty: was the trigger entered since the target started (`kymo trace \
             --list`)?",
        );
    }
    let senseless = rows.iter().filter(|row| row.total.is_none()).count();
    if senseless > 0 {
        let functions = match senseless {
            1 => "1 function has".to_owned(),
            many => format!("{many} functions have"),
        };
        context.warn(format_args!(
            "{functions} no total: the target's clock stepped back meanwhile, and the sum of times \
             became negative"
        ));
    }
    names.remark(&Identities::default(), context);
    let Some(damage) = table.damage.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    Err(Report::new(format_args!(
        "{}: damaged at offset {}: {}",
        damage.stream, damage.offset, damage.message
    ))
    .help("the entries that could be read are shown"))
}

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    rows: &[FunctionTotal],
    names: &Names<'_>,
) -> io::Result<()> {
    let mut table = Table::new([("TOTAL", Align::Right), ("FUNCTION", Align::Left)]);
    for row in rows {
        table.row([
            row.total
                .map_or("-".to_owned(), |total| Human(total).to_string()),
            names.at(row.address).to_string(),
        ]);
    }
    table.write(out, palette)
}

/// Writes a function as one line of JSON, with the same members as `kymo report`. Values that the target does not count
/// are null.
fn json(
    out: &mut dyn Write,
    row: &FunctionTotal,
    names: &Names<'_>,
    symbols: &Symbols,
) -> io::Result<()> {
    let unknown = None::<u64>;
    let mut object = Object::begin(out)?;
    object.member("function", &*names.at(row.address))?;
    object.member("count", unknown)?;
    object.member("total_ns", row.total.map(|total| total.0))?;
    object.member("self_ns", unknown)?;
    object.member("min_ns", unknown)?;
    object.member("max_ns", unknown)?;
    object.member("avg_ns", unknown)?;
    object.member("raw_total_ns", row.raw_total_ns)?;
    object.member("address", row.address.0)?;
    if let Some(location) = symbols.location(row.address) {
        object.member("file", &location.file)?;
        object.member("line", location.line)?;
    }
    object.end()?;
    out.write_all(b"\n")
}
