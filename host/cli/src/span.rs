//! Time span of a trace, and messages for an empty selection.

use kymo_analysis::replay::{Replay, Window};
use kymo_event::{Batch, Filter, Row, StreamId, Subject, Time, TimeUnit, TraceInfo, Unmet};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, UnseenInRecords};
use crate::render::count::counted;
use crate::render::duration::Seconds;
use crate::render::unit;

/// The time span of a trace's events, as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    bounds: Option<(Time, Time)>,
}

impl Span {
    /// Extends the span by the next events.
    pub fn meet(&mut self, info: &TraceInfo, batch: &Batch) {
        let timed = |row: &&Row| has_time(info, row.stream);
        let rows = batch.rows();
        let begin = match self.bounds {
            Some((begin, _)) => Some(begin),
            None => rows.iter().find(timed).map(|row| row.time),
        };
        let end = rows.iter().rev().find(timed).map(|row| row.time);
        let before = self.bounds.map(|(_, end)| end);
        self.bounds = begin.zip(end.max(before));
    }

    /// Extends the span by the time of a record; records of several streams may be out of order.
    fn meet_time(&mut self, time: Time) {
        let (begin, end) = self.bounds.unwrap_or((time, time));
        self.bounds = Some((begin.min(time), end.max(time)));
    }

    /// Whether an event after a window has been seen.
    pub fn is_behind(&self, window: Window) -> bool {
        self.bounds.is_some_and(|(_, end)| end > window.end)
    }

    /// The first and the last time.
    pub const fn bounds(&self) -> Option<(Time, Time)> {
        self.bounds
    }
}

/// Whether the events of a stream have times.
pub fn has_time(info: &TraceInfo, stream: StreamId) -> bool {
    !info.stream(stream).is_some_and(|stream| stream.timeless)
}

/// Reports that no event was selected, because an option may be misspelt. `left_out` is the number of excluded
/// events.
pub fn remark_nothing_chosen(window: Window, left_out: u64, span: Span, context: &Context) {
    let excluded = match left_out {
        0 => String::new(),
        _ => format!(" ({} excluded)", counted(left_out, "event")),
    };
    let Some((begin, end)) = span.bounds() else {
        return context.warn(format_args!("no event matches these filters{excluded}"));
    };
    let seconds = |time| {
        let origin = Time(0);
        let unit = match unit::get() {
            TimeUnit::Nanoseconds => "s",
            unit => unit.suffix(),
        };
        format!(
            "{} {unit}",
            Seconds { time, origin }.to_string().trim_start()
        )
    };
    // Nothing after the end of a window is read.
    let runs = if window.end < begin {
        format!("begins at {}", seconds(begin))
    } else {
        format!("runs from {} to {}", seconds(begin), seconds(end))
    };
    let what = if window.begin > end || window.end < begin || window.begin > window.end {
        "no event is between --begin and --end"
    } else {
        "no event matches these filters"
    };
    context.warn(format_args!("{what}{excluded}; the trace {runs}"));
}

/// Counts the records that a layout of raw records has written and excluded.
#[derive(Clone, Debug, Default)]
pub struct RecordCount {
    span: Span,
    shown: u64,
    left_out: u64,
    /// The number of excluded records that name no thread.
    nameless: u64,
    unseen: UnseenInRecords,
}

impl RecordCount {
    /// Starts without records. `streams` are those of the trace.
    pub fn new(filter: &FilterArgs, streams: Vec<String>) -> Self {
        Self {
            unseen: UnseenInRecords::new(filter, streams),
            ..Self::default()
        }
    }

    /// Whether also records of streams that were not chosen are to be [met](Self::meet).
    pub fn seeks(&self) -> bool {
        self.unseen.is_open()
    }

    /// Takes the thread and the processor of a record, which options may name.
    pub fn meet(&mut self, record: &impl Subject) {
        if self.seeks() {
            self.unseen.meet(record);
        }
    }

    /// Counts a record, and returns whether the filter wants it.
    pub fn wants(&mut self, filter: &Filter, record: &impl Subject) -> bool {
        self.meet(record);
        if let Some(time) = record.time() {
            self.span.meet_time(time);
        }
        let wanted = filter.wants(record);
        if wanted {
            self.shown += 1;
        } else {
            self.left_out += 1;
            let nameless = record.thread().is_none() && record.thread_name().is_none();
            self.nameless += u64::from(nameless);
        }
        wanted
    }

    /// Reports if nothing was selected, or if a selection of threads could not be applied to all records.
    ///
    /// # Errors
    /// If options name a thread, processor or stream that the trace does not have, or if threads are selected, and no
    /// record names one.
    pub fn remark(&self, filter: &Filter, context: &Context) -> Result<(), Report> {
        self.unseen.check()?;
        if !filter.threads.is_empty() && self.nameless > 0 {
            if self.shown == 0 && self.nameless == self.left_out {
                let what = "--thread chooses records by the thread they name, and none names one";
                return Err(Report::new(what).help(
                    "`kymo show --events --thread` knows the thread of a record from the switches before it",
                ));
            }
            context.warn(format_args!(
                "{} left out because they name no thread; `kymo show --events --thread` knows it from switches",
                counted(self.nameless, "record")
            ));
        }
        if self.shown == 0 && self.left_out > 0 {
            let (begin, end) = filter.span();
            remark_nothing_chosen(Window { begin, end }, self.left_out, self.span, context);
        }
        Ok(())
    }
}

/// Checks the fields that conditions refer to, after nothing was selected.
///
/// # Errors
/// If no event has one of them; the report lists the existing fields. `named`: whether events were chosen by name.
pub fn check_fields(unmet: &Unmet, named: bool) -> Result<(), Report> {
    /// Maximum number of names listed; further ones are only counted.
    const LISTED: usize = 40;
    let missing: Vec<&str> = unmet.fields().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = unmet.names().collect();
    let known = match names.get(..LISTED) {
        _ if names.is_empty() => "they have none".to_owned(),
        Some(first) if names.len() > LISTED => {
            let more = names.len() - LISTED;
            format!("their fields are {} and {more} more", first.join(", "))
        }
        _ => format!("their fields are {}", names.join(", ")),
    };
    let missing = missing.join(" or ");
    let events = if named { "event of that name" } else { "event" };
    Err(Report::new(format_args!("no {events} has a field {missing}")).help(known))
}

/// Reports if no event of a trace was in the window, or selected.
///
/// # Errors
/// If nothing was selected because conditions refer to fields that no event has.
pub fn remark_replay(replay: &Replay, span: Span, context: &Context) -> Result<(), Report> {
    let Some((begin, _)) = span.bounds() else {
        return Ok(());
    };
    let window = replay.window();
    let chosen = replay.chosen().unwrap_or_default();
    let none_chosen = chosen.kept == 0 && chosen.left_out > 0;
    if none_chosen || !replay.has_begun() || window.end < begin {
        remark_nothing_chosen(window, chosen.left_out, span, context);
    }
    if chosen.undecided > 0 {
        context.note(format_args!(
            "{} shown although --min-duration may exclude it: its end was too far away",
            counted(chosen.undecided, "call")
        ));
    }
    match replay.unmet().filter(|_| none_chosen) {
        Some(unmet) => check_fields(unmet, false),
        None => Ok(()),
    }
}
