//! The list of all columns.

use kymo_event::Duration;

use super::super::by::By;
use super::super::entry::{Entry, Run};
use super::{Column, Get, Needs, Value, Whole};

/// All columns, in the order in which help lists them.
pub static COLUMNS: [Column; 47] = [
    column("count", "COUNT", "calls", |it, _| {
        Value::Count(it.row.count)
    }),
    column(
        "missing",
        "",
        "calls that may be missing besides, where events were lost or calls too deep to follow",
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
            spread_of(it, spread.and_then(|spread| spread.standard_deviation()))
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
            |it, _| {
                let Some(wall) = it.statistic.as_ref().map(|statistic| statistic.wall) else {
                    return Value::None;
                };
                let most = it.total_max.filter(|_| !it.wall_is_unbounded);
                at_least(it, wall.total, most.map(|_| wall.total_max))
            },
        )
    },
    Column {
        needs: Needs::Statistics,
        ..column("off-cpu", "OFF CPU", "what of WALL did not run", |it, _| {
            // If the processor time is a lower bound, the function may have run in this time.
            match it.off_cpu {
                Some(off) if it.off_cpu_in_doubt => Value::Doubtful(off),
                off => time(off),
            }
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
    Column {
        needs: Needs::CallSites,
        ..column(
            "call-sites",
            "CALL SITES",
            "from how many places it is called, where the trace records that",
            |it, _| match it.call_sites {
                None | Some(0) => Value::None,
                Some(sites) => Value::Count(sites),
            },
        )
    },
    of_run("id", "ID", "the number that the target gives it", |it| {
        text(it.number.as_deref())
    }),
    of_run("priority", "PRIO", "the priority of a thread", |it| {
        it.priority.map_or(Value::None, Value::Number)
    }),
    of_run("runs", "RUNS", "how often it began to run", |it| {
        Value::Count(it.time.count)
    }),
    of_run(
        "run",
        "RUN",
        "how long it ran, without what interrupted it",
        |it| bound(it, it.time.run),
    ),
    of_run(
        "load%",
        "LOAD %",
        "share of RUN in the time of the trace; idle threads have none",
        |it| match it.span {
            None => Value::None,
            Some(span) if it.at_least => Value::ShareAtLeast(it.time.run, span),
            Some(span) => Value::Share(it.time.run, span),
        },
    ),
    of_run(
        "run-min",
        "RUN MIN",
        "the shortest time at a stretch",
        |it| run(it, it.time.min),
    ),
    of_run(
        "run-avg",
        "RUN AVG",
        "the average time at a stretch",
        |it| time(it.time.average()),
    ),
    of_run(
        "run-max",
        "RUN MAX",
        "the longest time at a stretch",
        |it| run(it, it.time.max),
    ),
    of_run(
        "readies",
        "READIES",
        "how often a thread was ready before it ran",
        |it| Value::Count(it.time.ready.count),
    ),
    of_run(
        "ready-min",
        "READY MIN",
        "the shortest time from ready to running",
        |it| ready(it, it.time.ready.min),
    ),
    of_run(
        "ready-avg",
        "READY AVG",
        "the average time from ready to running",
        |it| time(it.time.ready.average()),
    ),
    of_run(
        "ready-max",
        "READY MAX",
        "the longest time from ready to running",
        |it| ready(it, it.time.ready.max),
    ),
    of_run("stack", "STACK", "the bytes of a thread's stack", |it| {
        it.stack
            .map_or(Value::None, |stack| Value::Count(stack.bytes))
    }),
    of_run(
        "used",
        "USED",
        "how many of these were in use at most",
        |it| {
            let used = it.stack.and_then(|stack| stack.used);
            used.map_or(Value::None, Value::Count)
        },
    ),
    of_run(
        "idle",
        "IDLE",
        "how long a processor had nothing to do but to run an idle thread",
        |it| it.time.idle.map_or(Value::None, |idle| bound(it, idle)),
    ),
    of(By::File, "the source file"),
    of(
        By::Line,
        "the line in the source at which the function stands",
    ),
    of(By::CallSite, "where it is called from, with --by call-site"),
    of(By::Thread, "the thread, with --by thread"),
    of(By::Irq, "the interrupt, with --by irq"),
    of(By::Cpu, "the processor on which calls began, with --by cpu"),
    of(By::Space, "the address space"),
    column(
        "object",
        "OBJECT",
        "the file that holds the function, of traces that tell",
        |it, _| text(it.object.as_deref()),
    ),
    Column {
        name: "function",
        ..of(By::Function, "the function or interrupt")
    },
    column(
        "name",
        "NAME",
        "what the row is of: the last of --by",
        |it, _| Value::Text(it.name()),
    ),
];

const fn of(by: By, what: &'static str) -> Column {
    column(
        by.column(),
        by.heading(),
        what,
        match by {
            By::Function => |it, _| text(it.label(By::Function)),
            By::File => |it, _| text(it.label(By::File)),
            By::Line => |it, _| text(it.label(By::Line)),
            By::CallSite => |it, _| text(it.label(By::CallSite)),
            By::Thread => |it, _| text(it.label(By::Thread)),
            By::Irq => |it, _| text(it.label(By::Irq)),
            By::Cpu => |it, _| {
                let cpu = it.label(By::Cpu).and_then(|cpu| cpu.parse().ok());
                cpu.map_or(Value::None, Value::Count)
            },
            By::Space => |it, _| text(it.label(By::Space)),
        },
    )
}

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
        get: Get::Calls(value),
    }
}

const fn of_run(
    name: &'static str,
    heading: &'static str,
    what: &'static str,
    value: for<'e> fn(&'e Run) -> Value<'e>,
) -> Column {
    Column {
        name,
        heading,
        what,
        needs: Needs::Schedule,
        get: Get::Run(value),
    }
}

fn at_least(entry: &Entry, time: Duration, most: Option<Duration>) -> Value<'static> {
    // Calls whose begin or end was not recorded have no duration.
    if entry.row.ends() == entry.row.without_time() {
        Value::None
    } else if entry.is_at_least(time, most) {
        Value::AtLeast(time)
    } else {
        Value::Time(time)
    }
}

fn complete(entry: &Entry, time: Duration) -> Value<'static> {
    let doubts = entry.row.clock.max(entry.row.doubtful);
    // Durations stated by exits are wall times.
    let stated = if entry.by_wall { 0 } else { entry.row.stated };
    match (entry.row.complete, doubts.max(stated)) {
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
    spread_of(entry, spread.and_then(|spread| spread.percentile(percent)))
}

/// Value of the distribution of durations, marked as doubtful if that of complete calls is.
fn spread_of(entry: &Entry, of: Option<Duration>) -> Value<'static> {
    of.map_or(Value::None, |of| complete(entry, of))
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::None, Value::Text)
}

fn run(of: &Run, time: Duration) -> Value<'_> {
    match of.time.complete {
        0 => Value::None,
        _ => Value::Time(time),
    }
}

fn bound(of: &Run, time: Duration) -> Value<'static> {
    match of.at_least {
        true => Value::AtLeast(time),
        false => Value::Time(time),
    }
}

fn ready(of: &Run, time: Duration) -> Value<'_> {
    match of.time.ready.count {
        0 => Value::None,
        _ => Value::Time(time),
    }
}
