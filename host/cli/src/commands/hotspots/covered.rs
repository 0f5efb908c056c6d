//! `kymo hotspots --coverage`: instruction, line and branch coverage of each function.

use kymo_export::json::Object;

use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::counting::Counted;
use crate::hardware::coverage::{Covered, CoveredFunction, coverage};
use crate::hardware::part::{Addresses, CodeArgs};
use crate::hardware::program::Programs;
use crate::render::table::{Align, Table};

/// Prints at most `number` functions of the binaries that executed.
pub fn print(
    counted: &[Counted<'_>],
    programs: &mut Programs,
    chosen: (&CodeArgs, &Addresses),
    format: Format,
    number: usize,
    context: &mut Context,
) -> Result<(), Report> {
    let all = coverage(counted, programs, chosen);
    let mut rows: Vec<(&Covered, &CoveredFunction)> = all
        .iter()
        .flat_map(|covered| {
            covered
                .functions
                .iter()
                .map(move |function| (covered, function))
        })
        .collect();
    // Executed functions first, those with the most instructions not executed at the top.
    rows.sort_by_key(|(_, function)| {
        let (ran, all) = function.instructions;
        (ran == 0, std::cmp::Reverse(all - ran))
    });
    let entered = rows
        .iter()
        .filter(|(_, function)| function.instructions.0 > 0);
    let sum = |part: fn(&CoveredFunction) -> (u64, u64)| {
        let parts = rows.iter().map(|(_, function)| part(function));
        parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    };
    let (instructions, lines, branches) = (
        sum(|function| function.instructions),
        sum(CoveredFunction::line_counts),
        sum(CoveredFunction::branch_counts),
    );
    context.note(format_args!(
        "{} of {} functions ran, {} instructions, {} lines, {} ways of conditional branches",
        entered.count(),
        rows.len(),
        of(instructions),
        of(lines),
        of(branches)
    ));
    rows.truncate(number);
    if format == Format::Json {
        return json(&rows, context);
    }
    let mut table = Table::new([
        ("COVERED", Align::Right),
        ("INSTRUCTIONS", Align::Right),
        ("LINES", Align::Right),
        ("BRANCHES", Align::Right),
        ("ENTRIES", Align::Right),
        ("FILE", Align::Left),
        ("FUNCTION", Align::Left),
    ]);
    for (covered, function) in &rows {
        let (ran, all) = function.instructions;
        table.row([
            format!("{:.1} %", 100.0 * ran as f64 / all.max(1) as f64),
            fraction(function.instructions),
            fraction(function.line_counts()),
            fraction(function.branch_counts()),
            function.entries.to_string(),
            covered.program.name.clone(),
            function.name.clone(),
        ]);
    }
    let (out, palette) = context.out();
    table.write(out, palette)?;
    Ok(())
}

fn fraction((ran, all): (u64, u64)) -> String {
    match all {
        0 => "-".to_owned(),
        all => format!("{ran}/{all}"),
    }
}

fn of((ran, all): (u64, u64)) -> String {
    format!("{ran} of {all}")
}

fn json(rows: &[(&Covered, &CoveredFunction)], context: &mut Context) -> Result<(), Report> {
    let mut line = Vec::new();
    for (covered, function) in rows {
        line.clear();
        let (lines, branches) = (function.line_counts(), function.branch_counts());
        let location = function.location.as_ref();
        let mut object = Object::begin(&mut line);
        object
            .member("file", covered.program.path.as_str())
            .member("function", function.name.as_str())
            .member("source", location.map(|location| location.file.as_str()))
            .member("line", location.and_then(|location| location.line))
            .member("entries", function.entries)
            .member("instructions_ran", function.instructions.0)
            .member("instructions", function.instructions.1)
            .member("lines_ran", lines.0)
            .member("lines", lines.1)
            .member("branch_ways_gone", branches.0)
            .member("branch_ways", branches.1);
        object.end();
        line.push(b'\n');
        context.out().0.write_all(&line)?;
    }
    Ok(())
}
