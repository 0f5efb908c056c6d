//! The columns that a table of functions can have.
//!
//! # To add a column
//! Add a line to [`COLUMNS`]: what it is called, what it shows, and its value, by which rows are sorted and chosen.

use std::borrow::Cow;
use std::cmp::Ordering;

use kymo_event::{Condition, Cpu, Duration, Operand, Subject, Tid, Time};
use kymo_export::json::Object;

use super::entry::Entry;
use crate::render::duration::Human;
use crate::render::share::percent;
use crate::render::table::Align;

/// A column.
pub struct Column {
    /// What it is called on the command line, in conditions, and in JSON (where times end in `_ns`).
    pub name: &'static str,
    /// What stands above it.
    pub heading: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// What has to be known for it.
    pub needs: Needs,
    pub value: for<'e> fn(&'e Entry, Whole) -> Value<'e>,
}

/// What a column needs besides the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// How durations are spread, and times by the wall.
    Statistics,
    /// Who calls whom.
    Relations,
}

/// All of the self time in the window, of which shares are.
pub type Whole = Duration;

/// What stands in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'e> {
    Count(u64),
    Time(Duration),
    /// A time that is a lower bound.
    AtLeast(Duration),
    /// A time that a clock makes doubtful.
    Doubtful(Duration),
    /// A part of the whole.
    Share(Duration, Whole),
    Text(&'e str),
    /// It is not known, or there is none.
    None,
}

/// All columns, in the order in which help lists them.
pub static COLUMNS: [Column; 23] = [
    column("count", "COUNT", "calls", |it, _| {
        Value::Count(it.row.count)
    }),
    column(
        "missing",
        "",
        "calls that may be missing besides, where events were lost",
        |it, _| {
            it.count_max
                .map_or(Value::None, |most| Value::Count(most - it.row.count))
        },
    ),
    column(
        "total",
        "TOTAL",
        "time in the function and what it called; recursion counts once",
        |it, _| at_least(it, it.row.total, it.total_max),
    ),
    column("self", "SELF", "time in the function itself", |it, _| {
        at_least(it, it.row.self_time, it.self_max)
    }),
    column(
        "bound",
        "±",
        "how much SELF may still be wrong, with --compensate",
        |it, _| time(it.taken.as_ref().map(|taken| taken.self_bound)),
    ),
    column(
        "total%",
        "TOTAL %",
        "share of TOTAL in all self time",
        |it, whole| Value::Share(it.row.total, whole),
    ),
    column(
        "self%",
        "SELF %",
        "share of SELF in all self time",
        |it, whole| Value::Share(it.row.self_time, whole),
    ),
    column("avg", "AVG", "the average of complete calls", |it, _| {
        complete(it, it.average)
    }),
    column("min", "MIN", "the shortest", |it, _| {
        complete(it, it.row.min)
    }),
    column("max", "MAX", "the longest", |it, _| {
        complete(it, it.row.max)
    }),
    Column {
        needs: Needs::Statistics,
        ..column("stddev", "STDDEV", "their standard deviation", |it, _| {
            let spread = it.statistic.as_ref().map(|statistic| &statistic.spread);
            time(spread.and_then(|spread| spread.standard_deviation()))
        })
    },
    Column {
        needs: Needs::Statistics,
        ..column(
            "p50",
            "P50",
            "the duration that half of them don't exceed (1 % exact)",
            |it, _| percentile(it, 50.0),
        )
    },
    Column {
        needs: Needs::Statistics,
        ..column("p90", "P90", "that 90 % of them don't exceed", |it, _| {
            percentile(it, 90.0)
        })
    },
    Column {
        needs: Needs::Statistics,
        ..column("p99", "P99", "that 99 % of them don't exceed", |it, _| {
            percentile(it, 99.0)
        })
    },
    Column {
        needs: Needs::Statistics,
        ..column(
            "wall",
            "WALL",
            "TOTAL by the clock on the wall, with preemption and interrupts",
            |it, _| time(it.statistic.as_ref().map(|statistic| statistic.wall.total)),
        )
    },
    Column {
        needs: Needs::Statistics,
        ..column("off-cpu", "OFF CPU", "what of WALL did not run", |it, _| {
            time(it.statistic.as_ref().map(|_| it.off_cpu))
        })
    },
    Column {
        needs: Needs::Relations,
        ..column(
            "callers",
            "CALLERS",
            "how many functions call it",
            |it, _| Value::Count(it.relations.callers),
        )
    },
    Column {
        needs: Needs::Relations,
        ..column(
            "callees",
            "CALLEES",
            "how many functions it calls",
            |it, _| Value::Count(it.relations.callees),
        )
    },
    Column {
        needs: Needs::Relations,
        ..column(
            "child-time",
            "CHILD TIME",
            "the time of CHILD under this function",
            |it, _| time(it.relations.child.as_ref().map(|child| child.time)),
        )
    },
    Column {
        needs: Needs::Relations,
        ..column(
            "child-count",
            "CHILD COUNT",
            "calls of CHILD by this function",
            |it, _| {
                it.relations
                    .child
                    .as_ref()
                    .map_or(Value::None, |child| Value::Count(child.count))
            },
        )
    },
    Column {
        needs: Needs::Relations,
        ..column(
            "child",
            "CHILD",
            "the function that took most of its time under this one",
            |it, _| {
                it.relations
                    .child
                    .as_ref()
                    .map_or(Value::None, |child| Value::Text(&child.name))
            },
        )
    },
    column("file", "FILE", "the source file", |it, _| {
        it.location
            .as_ref()
            .map_or(Value::None, |location| Value::Text(&location.file))
    }),
    column("name", "FUNCTION", "the function or interrupt", |it, _| {
        Value::Text(&it.name)
    }),
];

/// The columns of a table for which nobody said which.
pub const USUAL: [&str; 9] = [
    "count", "missing", "total", "self", "self%", "avg", "min", "max", "name",
];

const fn column(
    name: &'static str,
    heading: &'static str,
    what: &'static str,
    value: for<'e> fn(&'e Entry, Whole) -> Value<'e>,
) -> Column {
    Column {
        name,
        heading,
        what,
        needs: Needs::Nothing,
        value,
    }
}

fn at_least(entry: &Entry, time: Duration, most: Option<Duration>) -> Value<'static> {
    // There is no duration of a call that nobody saw begin.
    if entry.row.count == entry.row.orphans {
        Value::None
    } else if entry.is_at_least(time, most) {
        Value::AtLeast(time)
    } else {
        Value::Time(time)
    }
}

fn complete(entry: &Entry, time: Duration) -> Value<'static> {
    match (entry.row.complete, entry.row.clock) {
        (0, _) => Value::None,
        (_, 0) => Value::Time(time),
        _ => Value::Doubtful(time),
    }
}

fn time(time: Option<Duration>) -> Value<'static> {
    time.map_or(Value::None, Value::Time)
}

fn percentile(entry: &Entry, percent: f64) -> Value<'static> {
    let spread = entry.statistic.as_ref().map(|statistic| &statistic.spread);
    time(spread.and_then(|spread| spread.percentile(percent)))
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Time,
    Text,
}

impl Column {
    fn kind(&self) -> Kind {
        match self.name {
            "name" | "file" | "child" => Kind::Text,
            "count" | "missing" | "callers" | "callees" | "child-count" | "total%" | "self%" => {
                Kind::Number
            }
            _ => Kind::Time,
        }
    }

    /// The column of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = match name {
            "function" => "name",
            name => name,
        };
        COLUMNS.iter().find(|column| column.name == name)
    }

    /// How its cells are aligned.
    pub fn align(&self) -> Align {
        match self.name {
            "name" | "file" | "child" | "missing" => Align::Left,
            _ => Align::Right,
        }
    }

    /// What stands in a row of it.
    pub fn cell(&self, entry: &Entry, whole: Whole) -> String {
        match (self.value)(entry, whole) {
            Value::Count(count) if self.name == "missing" => match count {
                0 => String::new(),
                count => format!("(+{count})"),
            },
            Value::None if self.name == "missing" => "(+?)".to_owned(),
            Value::Count(count) => count.to_string(),
            Value::Time(time) => Human(time).to_string(),
            Value::AtLeast(time) => format!("≥{}", Human(time)),
            Value::Doubtful(time) => format!("{}?", Human(time)),
            Value::Share(part, whole) => percent(part, whole),
            Value::Text(text) => text.to_owned(),
            Value::None => "-".to_owned(),
        }
    }

    /// Which of two rows comes first: names rise, everything else falls.
    pub fn order(&self, one: &Entry, other: &Entry, whole: Whole) -> Ordering {
        let number = |entry| self.operand(entry, whole);
        match (number(one), number(other)) {
            (Some(Operand::Text(a)), Some(Operand::Text(b))) => a.cmp(&b),
            (Some(Operand::Integer(a)), Some(Operand::Integer(b))) => b.cmp(&a),
            (Some(Operand::Real(a)), Some(Operand::Real(b))) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }

    /// The value as something that compares: times in nanoseconds, shares in percent.
    fn operand<'e>(&self, entry: &'e Entry, whole: Whole) -> Option<Operand<'e>> {
        Some(match (self.value)(entry, whole) {
            Value::Count(count) => Operand::Integer(count.into()),
            Value::Time(time) | Value::AtLeast(time) | Value::Doubtful(time) => {
                Operand::Integer(time.0.into())
            }
            Value::Share(part, whole) => {
                Operand::Real(part.0 as f64 * 100.0 / whole.0.max(1) as f64)
            }
            Value::Text(text) => Operand::Text(Cow::Borrowed(text)),
            Value::None => return None,
        })
    }

    /// Adds it to an object that has the usual ones.
    pub fn member(&self, entry: &Entry, whole: Whole, object: &mut Object<'_>) {
        let name = self.name.replace('-', "_").replace('%', "_percent");
        match (self.value)(entry, whole) {
            Value::Count(count) => object.member(&name, count),
            Value::Time(time) | Value::AtLeast(time) | Value::Doubtful(time) => {
                object.member(&format!("{}_ns", name), time)
            }
            Value::Share(part, whole) => {
                object.member(&name, part.0 as f64 * 100.0 / whole.0.max(1) as f64)
            }
            Value::Text(text) => object.member(&name, text),
            Value::None => object.member(&name, None::<u64>),
        };
    }
}

/// The columns that were asked for: names separated by commas, or behind a `+` those that are to be added to the usual
/// ones, before the name.
///
/// # Errors
/// When there is no such column.
pub fn chosen(text: Option<&str>) -> Result<Vec<&'static Column>, String> {
    let named = |name: &str| {
        Column::named(name.trim()).ok_or_else(|| format!("there is no column {name:?}"))
    };
    let usual = || {
        USUAL
            .iter()
            .filter_map(|name| Column::named(name))
            .collect()
    };
    let Some(text) = text else {
        return Ok(usual());
    };
    let Some(added) = text.strip_prefix('+') else {
        let columns: Vec<&Column> = text.split(',').map(named).collect::<Result<_, _>>()?;
        let mut names = std::collections::HashSet::new();
        return match columns.iter().find(|column| !names.insert(column.name)) {
            Some(twice) => Err(format!("{} is there twice", twice.name)),
            None => Ok(columns),
        };
    };
    let mut columns: Vec<&Column> = usual();
    let place = columns.len() - 1;
    let added = added
        .split(',')
        .map(|name| named(name.trim_start_matches('+')));
    let added: Vec<_> = added.collect::<Result<_, _>>()?;
    columns.splice(place..place, added);
    Ok(columns)
}

/// A row as something that a condition asks.
pub struct Asked<'e>(pub &'e Entry, pub Whole);

impl Subject for Asked<'_> {
    fn time(&self) -> Option<Time> {
        None
    }
    fn name(&self) -> &str {
        &self.0.name
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

/// Reads a condition on rows. What a time is compared with has a unit; counts and shares are numbers.
///
/// # Errors
/// When it is none, there is no such column, or the value is not of its kind.
pub fn having(text: &str) -> Result<Condition, String> {
    let condition: Condition = text.parse().map_err(|error| format!("{error}"))?;
    let Some(column) = Column::named(condition.field()) else {
        let field = condition.field();
        return Err(format!("there is no column {field:?}; {}", names()));
    };
    let value = text.rsplit(['<', '>', '=', '~']).next().unwrap_or_default();
    let value = value.trim();
    match column.kind() {
        Kind::Text => Ok(condition),
        Kind::Number if value.parse::<f64>().is_ok() => Ok(condition),
        Kind::Number => Err(format!("{} is a number, found {value:?}", column.name)),
        Kind::Time if value.ends_with('s') => {
            let ns = crate::filter::duration(value)?.0;
            let before = text.rfind(value).and_then(|place| text.get(..place));
            let text = format!("{}{ns}", before.unwrap_or_default());
            text.parse().map_err(|error| format!("{error}"))
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
    for column in &COLUMNS {
        text.push_str(&format!("  {:<12} {}\n", column.name, column.what));
    }
    text
}
