//! Columns of a table of functions.
//!
//! # To add a column
//! Add a line to [`COLUMNS`] in `columns/list.rs`: its name, its description, and its value, by which rows are sorted
//! and filtered.

mod list;

use std::borrow::Cow;
use std::cmp::Ordering;

use kymo_event::{Condition, Cpu, Duration, Operand, Subject, Tid, Time, TraceInfo};
use kymo_export::json::Object;

use super::by::By;
use super::entry::{Entry, Run};
use crate::diagnostic::Report;
use crate::render::duration::Human;
use crate::render::share::percent;
use crate::render::table::Align;
use crate::render::unit;
pub use list::COLUMNS;

/// A column.
pub struct Column {
    /// Its name on the command line, in conditions, and in JSON (where times end in `_ns`).
    pub name: &'static str,
    /// Its heading.
    pub heading: &'static str,
    /// Its description.
    pub what: &'static str,
    /// The analysis that it needs.
    pub needs: Needs,
    get: Get,
}

/// Source of a column's value.
#[derive(Clone, Copy)]
enum Get {
    /// From calls.
    Calls(for<'e> fn(&'e Entry, Whole) -> Value<'e>),
    /// From the run times of threads, interrupts and processors.
    Run(for<'e> fn(&'e Run) -> Value<'e>),
}

/// Analyses that a column needs besides the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// Distribution of durations, and wall times.
    Statistics,
    /// Callers and callees.
    Relations,
    /// Call sites.
    CallSites,
    /// Run times of threads and interrupts.
    Schedule,
}

/// The total self time in the window, to which shares are relative.
pub type Whole = Duration;

/// The value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'e> {
    Count(u64),
    Number(i64),
    Time(Duration),
    /// A time that is a lower bound.
    AtLeast(Duration),
    /// A time in doubt because of a clock or a loss.
    Doubtful(Duration),
    /// A share of the whole.
    Share(Duration, Whole),
    /// A share that is a lower bound.
    ShareAtLeast(Duration, Whole),
    Text(&'e str),
    /// Unknown, or nonexistent.
    None,
}

/// The default columns.
pub const USUAL: [&str; 9] = [
    "count", "missing", "total", "self", "self%", "avg", "min", "max", "name",
];

/// The default columns for many programs and libraries: of hardware trace, or of several processes.
const OF_FILES: [&str; 11] = [
    "count", "missing", "total", "self", "self%", "avg", "min", "max", "space", "object", "name",
];

/// The default columns for one process with shared libraries.
const OF_PROCESS: [&str; 10] = [
    "count", "missing", "total", "self", "self%", "avg", "min", "max", "object", "name",
];

/// The default columns for a trace and the properties by which calls are grouped: only functions have files.
pub fn usual(info: &TraceInfo, by: &[By]) -> &'static [&'static str] {
    if !by.contains(&By::Function) {
        return &USUAL;
    }
    let spaces = info.identities.spaces().iter();
    let files: Vec<_> = spaces.map(|space| space.mappings.len()).collect();
    if files.iter().filter(|files| **files > 0).count() > 1
        || info.is_of(kymo_read::coresight::FORMAT)
    {
        &OF_FILES
    } else if files.iter().any(|files| *files > 1) {
        &OF_PROCESS
    } else {
        &USUAL
    }
}

/// Whether functions of several address spaces share a name, so that their rows look alike.
pub fn has_namesakes(entries: &[Entry]) -> bool {
    let mut spaces = std::collections::HashMap::new();
    entries.iter().any(|entry| {
        let space = entry.label(By::Space);
        space.is_some() && *spaces.entry(entry.name()).or_insert(space) != space
    })
}

/// The default columns of a table of threads, where the trace has run times.
pub const OF_THREADS: [&str; 13] = [
    "id",
    "priority",
    "runs",
    "run",
    "load%",
    "run-min",
    "run-avg",
    "run-max",
    "ready-avg",
    "ready-max",
    "stack",
    "used",
    "name",
];

/// The default columns of a table of interrupts.
pub const OF_INTERRUPTS: [&str; 8] = [
    "id", "runs", "run", "load%", "run-min", "run-avg", "run-max", "name",
];

/// The default columns of a table of processors.
pub const OF_CPUS: [&str; 5] = ["name", "runs", "run", "load%", "idle"];

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Time,
    Text,
}

impl Column {
    fn kind(&self) -> Kind {
        match self.name {
            "name" | "function" | "file" | "line" | "call-site" | "thread" | "irq" | "space"
            | "object" | "child" | "id" => Kind::Text,
            "count" | "missing" | "callers" | "callees" | "child-count" | "call-sites"
            | "total%" | "self%" | "load%" | "priority" | "runs" | "readies" | "stack" | "used"
            | "cpu" => Kind::Number,
            _ => Kind::Time,
        }
    }

    /// Its heading; for times in a trace without times, with their unit.
    pub fn title(&self) -> Cow<'static, str> {
        match self.kind() {
            Kind::Time => format!("{}{}", self.heading, unit::heading()).into(),
            Kind::Number | Kind::Text => self.heading.into(),
        }
    }

    /// The column with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        COLUMNS.iter().find(|column| column.name == name)
    }

    /// How its cells are aligned.
    pub fn align(&self) -> Align {
        match (self.kind(), self.name) {
            (_, "id") => Align::Right,
            (Kind::Text, _) | (_, "missing") => Align::Left,
            _ => Align::Right,
        }
    }

    /// Whether its value is known only from the exits of calls.
    fn is_of_ends(&self) -> bool {
        let is_time = self.kind() == Kind::Time;
        is_time || matches!(self.name, "total%" | "self%")
    }

    /// Its value in a row.
    pub fn value<'e>(&self, entry: &'e Entry, whole: Whole) -> Value<'e> {
        match self.get {
            Get::Calls(_) if entry.is_without_ends() && self.is_of_ends() => Value::None,
            Get::Calls(get) => get(entry, whole),
            Get::Run(get) => entry.run.as_ref().map_or(Value::None, get),
        }
    }

    /// Its text in a row.
    pub fn cell(&self, entry: &Entry, whole: Whole) -> String {
        match self.value(entry, whole) {
            Value::Count(count) if self.name == "missing" => match count {
                0 => String::new(),
                count => format!("(+{count})"),
            },
            Value::None if self.name == "missing" => "(+?)".to_owned(),
            Value::Count(count) => count.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Time(time) => Human(time).to_string(),
            Value::AtLeast(time) => format!("≥{}", Human(time)),
            Value::Doubtful(time) => format!("{}?", Human(time)),
            Value::Share(part, whole) => percent(part, whole),
            Value::ShareAtLeast(part, whole) => format!("≥{}", percent(part, whole)),
            Value::Text(text) => text.to_owned(),
            Value::None => "-".to_owned(),
        }
    }

    /// Its name in outputs for programs: a time's name ends in its unit.
    pub fn member_name(&self, unit: &str) -> String {
        let name = self.name.replace('-', "_").replace('%', "_percent");
        match self.kind() {
            Kind::Time => format!("{name}_{unit}"),
            Kind::Number | Kind::Text => name,
        }
    }

    /// The order of two rows: names ascending, everything else descending.
    pub fn order(&self, one: &Entry, other: &Entry, whole: Whole) -> Ordering {
        let number = |entry| self.operand(entry, whole);
        match (number(one), number(other)) {
            (Some(Operand::Text(a)), Some(Operand::Text(b))) => a.cmp(&b),
            (Some(Operand::Integer(a)), Some(Operand::Integer(b))) => b.cmp(&a),
            (Some(Operand::Real(a)), Some(Operand::Real(b))) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }

    /// The value for comparisons: times in nanoseconds, shares in percent.
    fn operand<'e>(&self, entry: &'e Entry, whole: Whole) -> Option<Operand<'e>> {
        Some(match self.value(entry, whole) {
            Value::Count(count) => Operand::Integer(count.into()),
            Value::Number(number) => Operand::Integer(number.into()),
            Value::Time(time) | Value::AtLeast(time) | Value::Doubtful(time) => {
                Operand::Integer(time.0.into())
            }
            Value::Share(part, whole) | Value::ShareAtLeast(part, whole) => {
                Operand::Real(part.0 as f64 * 100.0 / whole.0.max(1) as f64)
            }
            Value::Text(text) => Operand::Text(Cow::Borrowed(text)),
            Value::None => return None,
        })
    }

    /// Adds it to an object that has the usual ones.
    pub fn member(&self, entry: &Entry, whole: Whole, object: &mut Object<'_>) {
        let name = self.member_name("ns");
        match self.value(entry, whole) {
            Value::Count(count) => object.member(&name, count),
            Value::Number(number) => object.member(&name, number),
            Value::Time(time) | Value::AtLeast(time) | Value::Doubtful(time) => {
                object.member(&name, time)
            }
            Value::Share(part, whole) | Value::ShareAtLeast(part, whole) => {
                object.member(&name, part.0 as f64 * 100.0 / whole.0.max(1) as f64)
            }
            Value::Text(text) => object.member(&name, text),
            Value::None => object.member(&name, None::<u64>),
        };
    }
}

/// The requested columns: names separated by commas, or, after a `+`, names to be inserted into the usual ones before
/// `name`.
///
/// # Errors
/// When there is no such column.
pub fn chosen(text: Option<&str>, usual: &[&str]) -> Result<Vec<&'static Column>, String> {
    let named = |name: &str| {
        Column::named(name.trim()).ok_or_else(|| format!("there is no column {name:?}"))
    };
    let usual = usual.iter().filter_map(|name| Column::named(name));
    let Some(text) = text else {
        return Ok(usual.collect());
    };
    let Some(added) = text.strip_prefix('+') else {
        let columns: Vec<&Column> = text.split(',').map(named).collect::<Result<_, _>>()?;
        let mut names = std::collections::HashSet::new();
        return match columns.iter().find(|column| !names.insert(column.name)) {
            Some(twice) => Err(format!("{} is there twice", twice.name)),
            None => Ok(columns),
        };
    };
    let mut columns: Vec<&Column> = usual.collect();
    let place = columns.iter().position(|column| column.name == "name");
    let place = place.unwrap_or(columns.len());
    let added = added
        .split(',')
        .map(|name| named(name.trim_start_matches('+')));
    let added: Vec<_> = added.collect::<Result<_, _>>()?;
    columns.splice(place..place, added);
    Ok(columns)
}

/// A row as the subject of conditions.
pub struct Requested<'e>(pub &'e Entry, pub Whole);

impl Subject for Requested<'_> {
    fn time(&self) -> Option<Time> {
        None
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn cpu(&self) -> Option<Cpu> {
        None
    }
    fn thread(&self) -> Option<Tid> {
        None
    }
    fn thread_name(&self) -> Option<Cow<'_, str>> {
        None
    }
    fn field(&self, path: &str) -> Option<Operand<'_>> {
        Column::named(path)?.operand(self.0, self.1)
    }
}

/// A condition on rows.
#[derive(Clone, Debug)]
pub struct Having {
    text: String,
    condition: Condition,
    unit: Unit,
}

/// The unit of the value in a condition on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Not a time.
    None,
    /// A unit of time.
    Time,
    /// A time without a unit.
    Count,
}

impl Having {
    /// The condition for the open trace.
    ///
    /// # Errors
    /// If a time has a unit and the trace has no time, or the other way round.
    pub fn condition(&self) -> Result<Condition, Report> {
        let is_time = unit::get().is_time();
        let help = match (self.unit, is_time) {
            (Unit::Count, true) => "give a unit such as 50ms or 80us".to_owned(),
            (Unit::Time, false) => {
                let unit = unit::get().suffix();
                format!("times of this trace count {unit}: give a number without a unit")
            }
            _ => return Ok(self.condition.clone()),
        };
        Err(Report::new(format_args!("--having {:?} has the wrong unit", self.text)).help(help))
    }
}

/// Parses a condition on rows. Times need a unit; counts and shares are numbers.
///
/// # Errors
/// When the text is not a condition, the column does not exist, or the value is not of its kind.
pub fn having(text: &str) -> Result<Having, String> {
    let has = |condition, unit| Having {
        text: text.to_owned(),
        condition,
        unit,
    };
    let condition: Condition = text.parse().map_err(|error| format!("{error}"))?;
    let Some(column) = Column::named(condition.field()) else {
        let field = condition.field();
        return Err(format!("there is no column {field:?}; {}", names()));
    };
    let value = text.rsplit(['<', '>', '=', '~']).next().unwrap_or_default();
    let value = value.trim();
    match column.kind() {
        Kind::Text => Ok(has(condition, Unit::None)),
        Kind::Number if value.parse::<f64>().is_ok() => Ok(has(condition, Unit::None)),
        // In a trace without times, a count in its unit.
        Kind::Time if value.parse::<u64>().is_ok() => Ok(has(condition, Unit::Count)),
        Kind::Number => Err(format!("{} is a number, found {value:?}", column.name)),
        Kind::Time if value.ends_with('s') => {
            let ns = crate::filter::duration(value)?.0;
            let before = text.rfind(value).and_then(|place| text.get(..place));
            let text = format!("{}{ns}", before.unwrap_or_default());
            let condition = text.parse().map_err(|error| format!("{error}"))?;
            Ok(has(condition, Unit::Time))
        }
        Kind::Time => Err(format!(
            "{} is a time: expected one with a unit such as 50ms or 80us, found {value:?}",
            column.name
        )),
    }
}

/// The names of all columns, for messages and help.
pub fn names() -> String {
    let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    format!("there are {}", names.join(", "))
}

/// The list of columns for help.
pub fn help() -> String {
    let mut text = "Columns:\n".to_owned();
    let list = |text: &mut String, wanted: bool| {
        let of_runs = |column: &&Column| (column.needs == Needs::Schedule) == wanted;
        for column in COLUMNS.iter().filter(of_runs) {
            text.push_str(&format!("  {:<12} {}\n", column.name, column.what));
        }
    };
    list(&mut text, false);
    text.push_str("\nWith --by thread, irq or cpu also:\n");
    list(&mut text, true);
    text
}
