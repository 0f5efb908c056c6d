//! Options that select a part of a trace.
//!
//! They have the same meaning in every subcommand. A window (`--begin`, `--end`, `--last`, `--around`) clips calls at
//! its bounds, and limits lists of events to it. All other options only select what is shown, and change no duration.
//! A subcommand or format that can't honour an option refuses it ([`FilterArgs::refuse_call_options`]).

mod hardware;
mod times;
mod unseen;

use std::ops::Range;
use std::sync::Arc;

use kymo_analysis::replay::{self, Window};
use kymo_analysis::selection::{FunctionChoice, Selection};
use kymo_coresight::frames::TraceId;
use kymo_event::{
    Batch, Bound, Choice, Condition, Cpu, Cut, Duration, Filter, Pattern, ProcessChoice, Row,
    RowKind, ThreadChoice, Tid, Time, TraceInfo, Wanted,
};
use kymo_read::Source;
use kymo_symbols::Symbols;

use crate::args::{InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::part;
use crate::input::{Events, is_pipe, label, open};
use crate::names;
use crate::render::unit;
use crate::span::Span;
use crate::target::address_in;

pub use times::duration;
use times::given_duration;
pub use times::{Given, given};
pub use unseen::{Unseen, UnseenInRecords, nothing};

/// Default time shown before and after an event.
const MARGIN: Duration = Duration(1_000_000);

/// Which part of a trace: of every subcommand that reads one.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub struct FilterArgs {
    /// From this time on: seconds by the trace's clock, or with a + after its first event. Units can be
    /// given: 12.5, +250ms, 80us, +5ns. What is open then is clipped.
    #[arg(long, value_name = "TIME", value_parser = given, allow_hyphen_values = true)]
    begin: Option<Given>,

    /// Up to this time.
    #[arg(long, value_name = "TIME", value_parser = given, allow_hyphen_values = true)]
    end: Option<Given>,

    /// The end of the trace, so long: 50ms. Files are read twice for it.
    #[arg(long, value_name = "DURATION", value_parser = given_duration, conflicts_with_all = ["begin", "end"])]
    last: Option<Given>,

    /// Around the first event or span of this name, or marker of this label, with * and ? as wildcards. Files are read
    /// twice for it.
    #[arg(long, value_name = "EVENT", conflicts_with_all = ["begin", "end", "last"])]
    around: Option<String>,

    /// How much before and after the event of --around [default: 1ms].
    #[arg(long, value_name = "DURATION", value_parser = given_duration, requires = "around")]
    margin: Option<Given>,

    /// Only events of this name, and markers and counters that are called so, with * and ? as wildcards; of calls,
    /// those that begin with such an event. Repeatable.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,

    /// No events of this name, nor markers and counters that are called so. Repeatable.
    #[arg(long, value_name = "NAME")]
    drop_event: Vec<String>,

    /// Only streams of this name (`kymo info` lists them). Repeatable.
    #[arg(long, value_name = "NAME")]
    stream: Vec<String>,

    /// No streams of this name. Repeatable.
    #[arg(long, value_name = "NAME")]
    drop_stream: Vec<String>,

    /// Only the source of hardware trace with this trace ID, hexadecimal. Repeatable.
    #[arg(long, visible_alias = "trace-id", value_name = "ID", value_parser = part::trace_id)]
    id: Vec<TraceId>,

    /// Only what happened on this processor. Repeatable.
    #[arg(long, value_name = "CPU")]
    cpu: Vec<u32>,

    /// Only what happened in threads of this process, where the trace names processes (ftrace, hardware trace of
    /// perf): its number, or its name with * and ? as wildcards. Repeatable.
    #[arg(long, visible_alias = "pid", value_name = "PROCESS")]
    process: Vec<String>,

    /// Only what happened in this thread, and in interrupts that cut into it: its number, or its name with *
    /// and ? as wildcards. Repeatable.
    #[arg(long, value_name = "THREAD")]
    thread: Vec<String>,

    /// Only events whose field compares so: 'ret < 0', 'comm == idle', 'function == main', 'state ~ RUN*'.
    /// Repeatable: all have to hold.
    #[arg(long = "where", value_name = "FIELD OP VALUE")]
    condition: Vec<Condition>,

    /// Only calls of this function or interrupt and what happens within them: its name with * and ? as
    /// wildcards, or its address (0x...). Repeatable.
    #[arg(long, visible_alias = "symbol", value_name = "FUNCTION")]
    function: Vec<String>,

    /// Only calls of functions with code at these addresses, and what happens within them: START..END, END not
    /// included. Repeatable.
    #[arg(long, visible_alias = "range", value_name = "ADDRESSES", value_parser = part::addresses)]
    address: Vec<Range<u64>>,

    /// No calls of this function or interrupt; what they call is shown. Repeatable.
    #[arg(long, value_name = "FUNCTION")]
    hide: Vec<String>,

    /// Only so many levels of the calls that are shown.
    #[arg(long, value_name = "N")]
    depth: Option<u32>,

    /// Only calls that took at least so long: 50us.
    #[arg(long, value_name = "DURATION", value_parser = given_duration)]
    min_duration: Option<Given>,
}

/// Calls chosen by name or level.
#[derive(Clone, Debug, Default)]
pub struct CallChoice {
    pub functions: Vec<String>,
    pub hide: Vec<String>,
    pub depth: Option<u32>,
}

impl FilterArgs {
    /// Removes the options that choose calls by name or level, for callers that let the target apply them.
    pub fn take_calls(&mut self) -> CallChoice {
        CallChoice {
            functions: std::mem::take(&mut self.function),
            hide: std::mem::take(&mut self.hide),
            depth: self.depth.take(),
        }
    }

    /// How much of each event must be decoded to apply the filter.
    pub fn wanted(&self) -> Wanted {
        let by_name = !self.event.is_empty() || !self.drop_event.is_empty();
        if by_name || !self.condition.is_empty() {
            Wanted::Everything
        } else {
            Wanted::Meaning
        }
    }

    /// Whether any of the options was given.
    pub fn any(&self) -> bool {
        let looked_for = self.last.is_some() || self.around.is_some();
        let bounded = self.begin.is_some() || self.end.is_some();
        looked_for
            || bounded
            || self.call_option().is_some()
            || !self.unbounded().filter.is_everything()
    }

    /// The given option, if any, that applies only to calls.
    fn call_option(&self) -> Option<&'static str> {
        let given = [
            (!self.function.is_empty(), "--function"),
            (!self.address.is_empty(), "--address"),
        ];
        let given = given.into_iter().find(|(given, _)| *given);
        let option = given.map(|(_, option)| option);
        option.or(self.level_option())
    }

    /// The given option, if any, that chooses calls by more than their code.
    fn level_option(&self) -> Option<&'static str> {
        let given = [
            (!self.hide.is_empty(), "--hide"),
            (self.depth.is_some(), "--depth"),
            (self.min_duration.is_some(), "--min-duration"),
        ];
        let given = given.into_iter().find(|(given, _)| *given);
        given.map(|(_, option)| option)
    }

    /// The given option, if any, that requires reading the trace in advance.
    fn looks_ahead(&self) -> Option<&'static str> {
        match (&self.last, &self.around) {
            (Some(_), _) => Some("--last"),
            (_, Some(_)) => Some("--around"),
            _ => None,
        }
    }

    /// Refuses options that require reading the whole trace in advance; `what` can't do that.
    ///
    /// # Errors
    /// If such an option was given.
    pub fn refuse_to_look_ahead(&self, what: &str) -> Result<(), Report> {
        match self.looks_ahead() {
            None => Ok(()),
            Some(option) => Err(Report::new(format_args!(
                "{option} reads the trace twice, which {what} does not"
            ))
            .help("give --begin and --end")),
        }
    }

    /// Refuses options that apply only to calls; `what` lists events.
    ///
    /// # Errors
    /// If such an option was given.
    pub fn refuse_call_options(&self, what: &str) -> Result<(), Report> {
        match self.call_option() {
            None => Ok(()),
            Some(option) => Err(Report::new(format_args!(
                "{option} chooses calls, and {what} lists events"
            ))
            .help("leave it out; `kymo show`, `report` and `calls` show calls")),
        }
    }

    /// The selected part of an input. Reads the input in advance where the end of the trace or one of its events must
    /// be known.
    ///
    /// # Errors
    /// If that is impossible, because a pipe or a target can be read only once, or if there is no such event.
    pub fn part(
        &self,
        input: &InputArgs,
        elf: &SymbolArgs,
        trace: &mut dyn Events,
        context: &Context,
    ) -> Result<Part, Report> {
        for (given, option) in [
            (&self.begin, "--begin"),
            (&self.end, "--end"),
            (&self.last, "--last"),
            (&self.margin, "--margin"),
            (&self.min_duration, "--min-duration"),
        ] {
            given.as_ref().map_or(Ok(()), |given| given.check(option))?;
        }
        self.check_places(trace.info())?;
        let bounded = self.begin.is_some() || self.end.is_some();
        trace.expect(Unseen::new(self));
        if bounded || self.last.is_some() || self.around.is_some() {
            refuse_untimed(trace, "no part of it can be chosen by time")?;
        }
        let mut part = self.unbounded();
        let symbols = &trace.symbols();
        part.functions = names::choose(&self.function, symbols, trace.info())?;
        let ranges = self.address.iter().cloned();
        part.functions.extend(ranges.map(FunctionChoice::Addresses));
        part.hide = names::choose(&self.hide, symbols, trace.info())?;
        part.cut = trace.info().cut;
        match self.look_ahead(input, elf, symbols, context)? {
            Some((begin, end)) => part.set_bounds(begin, end),
            None if part.filter.needs_start() => {
                let start = trace.start()?.max(part.cut.begin).unwrap_or_default();
                part.filter = part.filter.from_start(start);
            }
            None => {}
        }
        check_bounds(&part.filter)?;
        Ok(part)
    }

    /// The bounds that only reading the whole trace in advance can give; `None` if no option needs them, or there are
    /// no events.
    ///
    /// # Errors
    /// Those of [`part`](Self::part).
    pub fn look_ahead(
        &self,
        input: &InputArgs,
        elf: &SymbolArgs,
        symbols: &Arc<Symbols>,
        context: &Context,
    ) -> Result<Option<(Time, Time)>, Report> {
        let Some(option) = self.looks_ahead() else {
            return Ok(None);
        };
        if is_pipe(input.path()) || address_in(input.path())?.is_some() {
            return Err(Report::new(format_args!(
                "{option} reads the trace twice, and this input can be read only once"
            ))
            .help("save it first, or give --begin and --end"));
        }
        let wanted = match self.around {
            Some(_) => Wanted::Everything,
            None => Wanted::Meaning,
        };
        let around = self.around.as_deref().map(Pattern::new);
        let mut source = label(open(input, elf, wanted, context)?, symbols);
        let mut batch = Batch::default();
        let mut span = Span::default();
        let mut met = None;
        // Read errors are reported when the trace itself is read.
        while let (None, Ok(true)) = (met, source.fill(&mut batch)) {
            span.meet(source.info(), &batch);
            met = around
                .as_ref()
                .and_then(|pattern| first_named(source.info(), &batch, pattern));
        }
        let duration = |given: &Option<Given>| given.as_ref().and_then(Given::duration);
        if let Some(last) = duration(&self.last) {
            return Ok(span.bounds().map(|(_, end)| (back(end, last), end)));
        }
        let margin = duration(&self.margin).unwrap_or(MARGIN);
        match met {
            Some(met) => Ok(Some((back(met, margin), met + margin))),
            None => {
                let name = self.around.as_deref().unwrap_or_default();
                let report = Report::new(format_args!("there is no event {name} in the trace"));
                Err(report.help("`kymo show --events` lists the events"))
            }
        }
    }

    /// The filter for events, with bounds that may be relative to the first one.
    pub fn filter(&self) -> Filter {
        self.unbounded().filter
    }

    /// The selected part, without bounds that require reading the trace in advance.
    fn unbounded(&self) -> Part {
        let patterns = |list: &[String]| list.iter().map(Pattern::new).collect();
        let choice = |keep: &[String], drop: &[String]| Choice {
            keep: patterns(keep),
            drop: patterns(drop),
        };
        let threads = self.thread.iter().map(|thread| thread_choice(thread));
        let processes = self.process.iter().map(|process| process_choice(process));
        Part {
            filter: Filter {
                begin: self.begin.as_ref().and_then(Given::bound),
                end: self.end.as_ref().and_then(Given::bound),
                events: choice(&self.event, &self.drop_event),
                streams: choice(&self.stream, &self.drop_stream),
                trace_ids: self.id.iter().map(|id| id.0).collect(),
                cpus: self.cpu.iter().copied().map(Cpu).collect(),
                processes: processes.collect(),
                threads: threads.collect(),
                conditions: self.condition.clone(),
            },
            functions: Vec::new(),
            hide: Vec::new(),
            depth: self.depth,
            cut: Cut::default(),
            min_duration: self
                .min_duration
                .as_ref()
                .and_then(Given::duration)
                .unwrap_or_default(),
        }
    }
}

/// Refuses a text without times, for `what` needs times: such a trace has only an order of events per thread.
///
/// # Errors
/// If it has none, or when it can't be read so far.
pub fn refuse_untimed(trace: &mut dyn Events, what: &str) -> Result<(), Report> {
    if trace.info().format == "ftrace" {
        trace.start()?;
    }
    if !trace.info().untimed {
        return Ok(());
    }
    let report = Report::new(format_args!("the text has no times: {what}"));
    Err(report.help("trace with the option funcgraph-abstime, or save trace.dat or trace_pipe_raw"))
}

/// Refuses a window that ends before it begins.
///
/// # Errors
/// If it does. Bounds relative to a first event that is not known yet are compared only with each other.
pub fn check_bounds(filter: &Filter) -> Result<(), Report> {
    let (begin, end) = match (filter.begin, filter.end) {
        (Some(Bound::At(begin)), Some(Bound::At(end))) => (begin, end),
        (Some(Bound::AfterStart(begin)), Some(Bound::AfterStart(end))) => {
            let time = |after: Duration| Time(i64::try_from(after.0).unwrap_or(i64::MAX));
            (time(begin), time(end))
        }
        _ => return Ok(()),
    };
    check_order(begin, end, unit::in_words)
}

/// Refuses a begin behind the end; `in_words` formats how far.
///
/// # Errors
/// If it is.
pub fn check_order(
    begin: Time,
    end: Time,
    in_words: impl FnOnce(Duration) -> String,
) -> Result<(), Report> {
    if begin <= end {
        return Ok(());
    }
    let later = in_words(Duration(begin.0.abs_diff(end.0)));
    Err(
        Report::new(format_args!("--begin is {later} later than --end"))
            .help("both are times of the trace; --end is no duration"),
    )
}

/// The selected part of a trace.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// By time, and by properties of events.
    pub filter: Filter,
    functions: Vec<FunctionChoice>,
    hide: Vec<FunctionChoice>,
    depth: Option<u32>,
    min_duration: Duration,
    /// The part of a longer trace that the input is.
    cut: Cut,
}

impl Part {
    /// Sets the time range.
    pub const fn set_bounds(&mut self, begin: Time, end: Time) {
        self.filter.begin = Some(Bound::At(begin));
        self.filter.end = Some(Bound::At(end));
    }

    /// Whether it is the whole trace.
    pub fn is_everything(&self) -> bool {
        let calls = self.functions.is_empty() && self.hide.is_empty() && self.depth.is_none();
        calls && self.min_duration == Duration(0) && self.filter.is_everything()
    }

    /// Reports that it contains no calls.
    pub fn remark_no_calls(&self, context: &Context) {
        let trace = match self.is_everything() {
            true => "this trace",
            false => "this part of the trace",
        };
        context.note(format_args!(
            "there are no calls in {trace}; `kymo show --events` lists what there is, `kymo report --by thread` the threads"
        ));
    }

    /// Whether calls are filtered by function, so that a running thread may show none.
    pub fn chooses_by_function(&self) -> bool {
        let Filter {
            events, conditions, ..
        } = &self.filter;
        let by_event = *events != Choice::default() || !conditions.is_empty();
        by_event
            || !self.functions.is_empty()
            || !self.hide.is_empty()
            || self.min_duration > Duration(0)
    }

    /// Whether nothing but a window, threads and processors is selected.
    pub fn chooses_places_alone(&self) -> bool {
        let filter = &self.filter;
        let of_streams = filter.streams != Choice::default() || !filter.trace_ids.is_empty();
        !self.chooses_by_function() && !of_streams && self.depth.is_none()
    }

    /// Whether a function is among those requested by name, or none is requested.
    pub fn asks_for(&self, code: Option<&Range<u64>>, name: &str) -> bool {
        let mut functions = self.functions.iter();
        self.functions.is_empty() || functions.any(|choice| choice.matches(code, name))
    }

    /// Whether threads are selected.
    pub fn chooses_threads(&self) -> bool {
        self.filter.chooses_threads()
    }

    /// The number of levels of calls shown; `None` for all.
    pub const fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// Whether calls are selected, and not only a window.
    pub fn chooses_calls(&self) -> bool {
        !self.replay().selection.is_everything()
    }

    /// The options for its replay.
    pub fn replay(&self) -> replay::Options {
        replay::Options {
            window: self.window(),
            selection: Selection {
                events: Filter {
                    begin: None,
                    end: None,
                    ..self.filter.clone()
                },
                functions: self.functions.clone(),
                hide: self.hide.clone(),
                depth: self.depth,
                min_duration: self.min_duration,
            },
            ..replay::Options::default()
        }
    }

    /// The time range.
    pub fn window(&self) -> Window {
        let (begin, end) = self.filter.span();
        Window {
            begin: self.cut.begin.map_or(begin, |cut| cut.max(begin)),
            end: self.cut.end.map_or(end, |cut| cut.min(end)),
        }
    }
}

/// The time of the first event with such a name, marker with such a label, or begin of such a span.
fn first_named(info: &TraceInfo, batch: &Batch, pattern: &Pattern) -> Option<Time> {
    let span_of = |row: &Row| {
        let function = row
            .of_function()
            .filter(|_| row.kind == RowKind::SpanBegin)?;
        info.identities.function(function)?.name.as_deref()
    };
    let is_named = |row: &&Row| {
        let event = batch.event_of(row);
        event.is_some_and(|event| event.says(|text| pattern.matches(text)))
            || span_of(row).is_some_and(|name| pattern.matches(name))
    };
    let found = batch.rows().iter().find(is_named);
    found.map(|row| row.time)
}

fn back(time: Time, by: Duration) -> Time {
    Time(time.0.saturating_sub_unsigned(by.0))
}

/// Parses a thread: its id, decimal or as displayed, or its name.
fn thread_choice(text: &str) -> ThreadChoice {
    let id = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    id.map_or_else(
        || ThreadChoice::Named(Pattern::new(text)),
        |id| ThreadChoice::Id(Tid(id)),
    )
}

/// Parses a process: its number, or its name.
fn process_choice(text: &str) -> ProcessChoice {
    match text.parse() {
        Ok(number) => ProcessChoice::Id(number),
        Err(_) => ProcessChoice::Named(Pattern::new(text)),
    }
}

#[cfg(test)]
mod tests;
