//! Output of the table as text, or as one JSON object per row.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use kymo_analysis::schedule::Schedule;
use kymo_analysis::titles;
use kymo_event::Duration;
use kymo_export::json::Object;

use super::by::By;
use super::columns::{COLUMNS, Column, Needs, USUAL, Whole};
use super::entry::{Entry, Place};
use crate::render::count::counted;
use crate::render::palette::Palette;
use crate::render::share::percent;
use crate::render::table::Table;
use crate::render::unit;

/// Writes the table as text.
pub fn text(
    out: &mut dyn Write,
    palette: &Palette,
    by: &[By],
    columns: &[&Column],
    entries: &[Entry],
    whole: Whole,
) -> std::io::Result<()> {
    let of = by.last().copied().unwrap_or_default();
    let headings: Vec<_> = columns
        .iter()
        .map(|column| match column.name {
            "name" => (of.heading().into(), of.align()),
            _ => (column.title(), column.align()),
        })
        .collect();
    let mut table = Table::new(headings.iter().map(|(title, align)| (&**title, *align)));
    let shared = Shared::of(by, columns, entries);
    for entry in entries {
        table.row(columns.iter().map(|column| match column.name {
            "name" if of == By::Thread => shared.thread(entry),
            "name" => shared.name(entry),
            "thread" => shared.thread(entry),
            _ => column.cell(entry, whole),
        }));
    }
    table.write(out, palette)
}

/// Names that several rows share although they are of different functions or threads.
struct Shared<'e> {
    /// The number of rows with each name, where only the name identifies them.
    names: HashMap<&'e str, u32>,
    /// The thread numbers for each name, unless a column shows them.
    threads: HashMap<&'e str, HashSet<&'e str>>,
}

impl<'e> Shared<'e> {
    fn of(by: &[By], columns: &[&Column], entries: &'e [Entry]) -> Self {
        let mut names: HashMap<&str, u32> = HashMap::new();
        let mut threads: HashMap<&str, HashSet<&str>> = HashMap::new();
        let numbered = columns.iter().any(|column| column.name == "id");
        for entry in entries {
            if by.len() == 1 {
                *names.entry(entry.name()).or_default() += 1;
            }
            if let (Some(name), Some(number), false) =
                (entry.label(By::Thread), &entry.thread, numbered)
            {
                threads.entry(name).or_default().insert(number);
            }
        }
        Self { names, threads }
    }

    /// A thread's name, with its number if several threads share the name.
    fn thread(&self, entry: &Entry) -> String {
        let name = entry.label(By::Thread).unwrap_or("-");
        let shared = self
            .threads
            .get(name)
            .is_some_and(|numbers| numbers.len() > 1);
        match entry.thread.as_ref().filter(|_| shared) {
            Some(number) => format!("{name}  ({number})"),
            None => name.to_owned(),
        }
    }

    /// The name of a row, with an addition if several rows share the name.
    fn name(&self, entry: &Entry) -> String {
        let mut name = entry.name().to_owned();
        let shared = self.names.get(entry.name()) > Some(&1);
        if !matches!(entry.labels.last(), Some((By::Function, _))) {
            return name;
        }
        match (entry.place, &entry.location) {
            // Static functions may share a name; their locations distinguish them.
            (Place::Function(_), Some(location)) if shared => {
                name.push_str(&format!("  ({location})"));
            }
            (Place::Function(address), None) if shared => {
                name.push_str(&format!("  ({:#x})", address.0));
            }
            (Place::Interrupt(kind, irq), _) => {
                let number = titles::numbered(kind, irq);
                if name != number {
                    name.push_str(&format!("  ({number})"));
                }
            }
            _ => {}
        }
        name
    }
}

/// Writes one object a line: the usual members, and those of other columns. `is_wall`: the times are wall times.
pub fn json(
    out: &mut dyn Write,
    by: &[By],
    columns: &[&Column],
    entry: &Entry,
    whole: Whole,
    is_wall: bool,
) -> std::io::Result<()> {
    let row = &entry.row;
    let complete = |duration: Duration| (row.complete > 0).then_some(duration);
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    for by in by {
        let label = entry.label(*by);
        match label.and_then(|label| label.parse::<u64>().ok()) {
            Some(cpu) if *by == By::Cpu => object.member(by.member(), cpu),
            _ => object.member(by.member(), label),
        };
    }
    if let Some(number) = entry.thread.as_ref().filter(|_| entry.run.is_none()) {
        object.member("id", number);
    }
    object
        .member("count", row.count)
        .member("count_max", entry.count_max)
        .member("total_ns", row.total)
        .member("total_max_ns", entry.total_max)
        .member("self_ns", row.self_time)
        .member("self_max_ns", entry.self_max)
        .member("min_ns", complete(row.min))
        .member("max_ns", complete(row.max))
        .member("avg_ns", complete(entry.average));
    if let Some(taken) = &entry.taken {
        object
            .member("total_cost_ns", taken.total)
            .member("total_bound_ns", taken.total_bound)
            .member("self_cost_ns", taken.self_time)
            .member("self_bound_ns", taken.self_bound);
    }
    object
        .member("complete", row.complete)
        .member("left_by_longjmp", row.jumped)
        .member("unwound", row.unwound)
        .member("lost", row.lost)
        .member("doubtful", row.doubtful)
        .member("orphans", row.orphans)
        .member("open", row.open)
        .member("clipped", row.clipped);
    if row.without_end > 0 {
        object.member("without_end", row.without_end);
    }
    if row.stated > 0 {
        object.member("stated", row.stated);
    }
    if is_wall {
        object.member("by_wall", true);
    }
    match entry.place {
        Place::Function(address) => object.member("address", address),
        Place::Interrupt(_, irq) => object.member("irq", irq),
        Place::Name | Place::Unknown => &mut object,
    };
    if let Some(location) = &entry.location {
        object
            .member("file", &location.file)
            .member("line", location.line);
    }
    let of_runs = |column: &&&Column| column.needs == Needs::Schedule;
    if entry.run.is_some() {
        let all: Vec<_> = COLUMNS.iter().collect();
        for column in all.iter().filter(of_runs) {
            column.member(entry, whole, &mut object);
        }
    }
    let properties = ["name", "function", "file", "line"];
    let reported = |column: &Column| {
        let name = column.name;
        let is_property = properties.contains(&name) || by.iter().any(|by| by.column() == name);
        is_property || USUAL.contains(&name) || name == "bound"
    };
    let others = columns.iter().filter(|column| !of_runs(column));
    for column in others.filter(|column| !reported(column)) {
        column.member(entry, whole, &mut object);
    }
    object.end();
    unit::name_members(&mut line);
    line.push(b'\n');
    out.write_all(&line)
}

/// Reports below a table of threads how long no thread ran except idle ones.
pub fn idle(out: &mut dyn Write, schedule: &Schedule) -> std::io::Result<()> {
    let Some(idle) = schedule.idle() else {
        return Ok(());
    };
    let processors = schedule.cpus().count() as u64;
    let all = schedule.all();
    let share = percent(idle, all);
    let idle = unit::in_words(idle);
    let of = counted(processors, "processor");
    let mut spans: Vec<_> = schedule
        .cpus()
        .map(|(machine, ..)| schedule.span(machine))
        .collect();
    spans.dedup();
    match spans[..] {
        [span] => {
            let span = unit::in_words(span);
            write!(out, "\nidle {idle}, {share} % of {of} for {span}")?;
        }
        // With several machines, each is relative to its own time.
        _ => write!(out, "\nidle {idle}, {share} % of the time of {of}")?,
    }
    let others = [
        ("between threads", schedule.switching()),
        ("not known what ran", schedule.unknown()),
    ];
    for (what, time) in others {
        if time > Duration(0) {
            let share = percent(time, all);
            write!(out, "; {what}: {}, {share} %", unit::in_words(time))?;
        }
    }
    writeln!(out)
}
