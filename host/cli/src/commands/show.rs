//! `kymo show`: the trace as text, or as JSON Lines for programs.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use kymo_analysis::calls::{self, Calls, Step, TrackId, TrackInfo};
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_event::{Cpu, Duration, Event, EventKind, Gap, Identities, ThreadId, Value, Wanted};
use kymo_export::json::Object;

use crate::args::{Format, InputArgs, SymbolArgs};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::event_filter::Chooser;
use crate::filter::{FilterArgs, Part};
use crate::follow::Follow;
use crate::input::{Events, Moment, Trace, more};
use crate::live_stream::StreamArgs;
use crate::names::Names;
use crate::render::ftrace::Tracer;
use crate::render::listing::Listing;
use crate::render::times::{TimeKind, Times};
use crate::render::tree::{Tree, TreeOptions};
use crate::render::unit;
use crate::rescue::is_empty_dump;
use crate::span::{Span, has_time, remark_replay};
use crate::systemview;
use crate::target::{TargetArgs, address_in};
use members::{callee, reason};

mod babeltrace;
mod ftrace;
mod members;
mod trace_cmd;

/// The options of `kymo show`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo show trace/ --elf firmware.elf              every call, with its duration
  kymo show trace/ --elf firmware.elf | less       jump about, search
  kymo show --depth 3 --thread main trace/         the outer calls of one thread
  kymo show --function luaV_execute trace/         only what happens within a function
  kymo show --follow tcp:localhost:4000            what it does, as it does it
  kymo show --follow systemview:localhost:19111    the same of a target with SystemView's recorder
  kymo show --compensate trace/                    durations without what recording took
  kymo show --events trace/                        the events as they were recorded
  kymo show -e --event 'sched_*' --where 'tid == 42' kernel/   of another tracer's trace
  kymo show --format babeltrace trace/             any CTF as babeltrace2 prints it
  kymo show --format ftrace trace/                 calls as ftrace's function_graph prints them
  kymo show --format trace-cmd trace.dat           records of ftrace as trace-cmd report prints them
  kymo show --format json trace/ | jq .name        one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// Go on with what comes: from a live target, or from a directory that `kymo record` writes. Until
    /// ctrl-C.
    #[arg(short = 'F', long)]
    follow: bool,

    #[command(flatten)]
    stream: StreamArgs,

    #[command(flatten)]
    view: ViewArgs,

    /// How to print the trace.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Layout,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// How to print a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// For people.
    Text,
    /// For programs: JSON, one object a line.
    Json,
    /// As babeltrace2 prints CTF: every record with all its fields.
    Babeltrace,
    /// As ftrace's tracer function_graph prints calls, with times and tasks.
    Ftrace,
    /// As ftrace's tracer function_duration prints them: one line a call, at its end.
    FtraceDuration,
    /// As `trace-cmd report` prints a trace.dat; with --events the fields as they are (`report -R`).
    TraceCmd,
}

/// Number of bytes after which lines are written.
const LINES: usize = 1 << 16;

/// What to show of a trace, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ViewArgs {
    /// List the events as they were recorded, instead of a tree of calls.
    #[arg(short, long)]
    pub events: bool,

    /// Show durations by the clock on the wall. Without this they are the time in which the call's
    /// thread had its processor: without preemption, and without interrupts.
    #[arg(long)]
    pub wall: bool,

    /// Show times by the trace's own clock, since the first event, or as dates. In JSON events get a
    /// date beside their time.
    #[arg(long, value_name = "KIND", default_value = "absolute")]
    pub time: TimeKind,

    /// Take off the durations what recording took, as the target measured it on itself.
    #[arg(long)]
    pub compensate: bool,

    /// Leave out the function's name at its return.
    #[arg(short, long)]
    pub annotation: bool,

    #[command(flatten)]
    pub filter: FilterArgs,
}

impl ViewArgs {
    /// How much of each event must be decoded to show it.
    pub fn wanted(&self, format: Format) -> Wanted {
        if self.events || format == Format::Json {
            Wanted::Records
        } else {
            self.filter.wanted().max(Wanted::Details)
        }
    }

    /// Refuses options for the display of calls where events are listed.
    ///
    /// # Errors
    /// If such an option was given.
    pub fn check(&self, format: Format) -> Result<(), Report> {
        match (format, self.events) {
            (Format::Json, _) => self.refuse_call_options("--format json"),
            (Format::Text, true) => self.refuse_call_options("--events"),
            (Format::Text, false) => Ok(()),
        }
    }

    /// Refuses options that apply only to calls; `what` lists events.
    fn refuse_call_options(&self, what: &str) -> Result<(), Report> {
        self.filter.refuse_call_options(what)?;
        refuse(self.wall, "--wall", what)?;
        refuse(self.compensate, "--compensate", what)?;
        refuse(self.annotation, "--annotation", what)
    }
}

/// Refuses an option if it was given.
fn refuse(given: bool, option: &str, what: &str) -> Result<(), Report> {
    match given {
        false => Ok(()),
        true => Err(
            Report::new(format_args!("{option} has no meaning for {what}"))
                .help("`kymo show` without it shows calls, `kymo report` sums them up"),
        ),
    }
}

/// Refuses additional recordings, where the layout is that of a tool's records.
fn refuse_with(input: &InputArgs, what: &str) -> Result<(), Report> {
    match input.ctf.with.as_slice() {
        [] => Ok(()),
        _ => Err(Report::new(format_args!(
            "{what} shows one recording, not others --with it"
        ))
        .help("`kymo show --events` lists the events of all of them on one time line")),
    }
}

/// Shows a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; all readable parts are shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let view = &args.view;
    let tracer = match args.format {
        Layout::Ftrace => Some(Tracer::FunctionGraph),
        Layout::FtraceDuration => Some(Tracer::FunctionDuration),
        _ => None,
    };
    if tracer.is_some() {
        ftrace::check(view)?;
    }
    let format = match args.format {
        Layout::Text | Layout::Ftrace | Layout::FtraceDuration => Format::Text,
        Layout::Json => Format::Json,
        Layout::Babeltrace => {
            let what = "--format babeltrace";
            view.refuse_call_options(what)?;
            refuse(view.events, "--events", what)?;
            refuse(args.follow, "--follow", what)?;
            refuse(view.time != TimeKind::Absolute, "--time", what)?;
            refuse_with(&args.input, what)?;
            return babeltrace::show(&args.input, &view.filter, context);
        }
        Layout::TraceCmd => {
            let what = "--format trace-cmd";
            view.refuse_call_options(what)?;
            refuse(args.follow, "--follow", what)?;
            refuse(view.time != TimeKind::Absolute, "--time", what)?;
            refuse_with(&args.input, what)?;
            return trace_cmd::show(&args.input, view, context);
        }
    };
    view.check(format)?;
    let wanted = view.wanted(format);
    let systemview = systemview::address_in(args.input.path(), args.input.baud)?;
    if let Some(address) = systemview {
        args.input.ctf.refuse_with("a live target")?;
        view.filter.refuse_to_look_ahead("a live target")?;
        let (input, symbols) = (&args.input, &args.symbols);
        let mut follow = systemview::Follow::target(&address, input, symbols, wanted, context)?;
        let part = view.filter.part(input, symbols, &mut follow, context)?;
        match tracer {
            Some(tracer) => ftrace::show(&mut follow, view, &part, tracer, context)?,
            None => show(&mut follow, view, part, format, context)?,
        }
        return follow.verdict();
    }
    // Standard input is shown as it arrives, with and without the option.
    let is_piped = args.input.path() == Path::new("-");
    if args.follow && !is_piped && !crate::rtems::is_address(args.input.path()) {
        args.input.ctf.refuse_with("--follow")?;
        view.filter.refuse_to_look_ahead("--follow")?;
        let path = args.input.path();
        let mut follow = match address_in(path)? {
            Some(address) => {
                let target = TargetArgs::at(address, args.input.baud);
                Follow::target(target, args.stream, &args.symbols, wanted, context)?
            }
            None => Follow::directory(path, &args.symbols, wanted, context)?,
        };
        let part = view
            .filter
            .part(&args.input, &args.symbols, &mut follow, context)?;
        match tracer {
            Some(tracer) => ftrace::show(&mut follow, view, &part, tracer, context)?,
            None => show(&mut follow, view, part, format, context)?,
        }
        return follow.verdict().map(|()| ExitCode::SUCCESS);
    }
    let mut input = args.input.clone();
    // Dates need the times of day, which may be anywhere in a recording.
    input.as_it_comes = view.time != TimeKind::Date;
    if view.events || format == Format::Json {
        input.events = view.filter.filter().events;
    }
    let mut trace = Trace::open(&input, &args.symbols, wanted, context)?;
    let part = view
        .filter
        .part(&args.input, &args.symbols, &mut trace, context);
    let shown = part.and_then(|part| match tracer {
        Some(tracer) => ftrace::show(&mut trace, view, &part, tracer, context),
        None => show(&mut trace, view, part, format, context),
    });
    shown.map_err(|report| trace.kept(report))?;
    trace.remark(context);
    trace.verdict()
}

/// Shows a trace to its end, from any source. `part` selects what is shown.
///
/// # Errors
/// When the trace can't be read to its end, or the result can't be written.
pub fn show(
    trace: &mut dyn Events,
    view: &ViewArgs,
    part: Part,
    format: Format,
    context: &mut Context,
) -> Result<(), Report> {
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    match format {
        Format::Json => json(trace, view, part, &names, context)?,
        Format::Text if view.events => listing(trace, view, part, &names, context)?,
        Format::Text => tree(trace, view, &part, &names, context)?,
    }
    names.remark(&trace.info().identities, context);
    Ok(())
}

/// Shows calls.
fn tree(
    trace: &mut dyn Events,
    view: &ViewArgs,
    part: &Part,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let symbols = trace.symbols();
    let options = TreeOptions {
        no_annotation: view.annotation,
        wall: view.wall,
        some_calls: part.chooses_by_function(),
        some_threads: part.chooses_threads(),
        depth: part.depth(),
        times: Times::of(view.time, trace)?,
    };
    if view.compensate {
        compensated::check(trace.info())?;
    }
    let replay_options = Options {
        compensate: view.compensate,
        ..part.replay()
    };
    let mut replay = Replay::new(trace.info(), &symbols, replay_options);
    let mut span = Span::default();
    let mut calls = 0u64;
    let (out, palette) = context.out();
    let mut tree = Tree::new(out, palette, trace.info(), names, options);
    tree.heading()?;
    let mut whole = Duration::default();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            tree.flush()?;
            return Ok(more(true));
        };
        span.meet(info, batch);
        tree.learn(info);
        let mut drawing = Drawing::new(&mut tree, &info.identities, view.compensate);
        let goes_on = replay.batch_to(info, batch, &mut drawing);
        drawing.written?;
        (whole, calls) = (whole + drawing.whole, calls + drawing.calls);
        Ok(more(goes_on))
    });
    // Everything read before a failure is shown to its end.
    let mut drawing = Drawing::new(&mut tree, &trace.info().identities, view.compensate);
    replay.finish_to(trace.info(), &mut drawing);
    drawing.written?;
    (whole, calls) = (whole + drawing.whole, calls + drawing.calls);
    tree.finish()?;
    if let Some(compensation) = replay.compensation() {
        let below_zero = compensation.below_zero();
        compensated::remark(compensation, whole, below_zero, "call", context);
    }
    let any = part.is_everything() || replay.chosen().is_none_or(|chosen| chosen.kept > 0);
    if calls == 0 && any && !is_empty_dump(trace.info()) {
        part.remark_no_calls(context);
    }
    read.and(remark_replay(&replay, span, context))
}

/// Passes steps to a tree, and sums the self time and the number of calls.
struct Drawing<'t, 'o> {
    tree: &'t mut Tree<'o>,
    identities: &'t Identities,
    /// The first error of writing.
    written: io::Result<()>,
    /// Whether the sum of times is wanted.
    adds_up: bool,
    /// The self time of all calls, and their number.
    whole: Duration,
    calls: u64,
}

impl<'t, 'o> Drawing<'t, 'o> {
    const fn new(tree: &'t mut Tree<'o>, identities: &'t Identities, adds_up: bool) -> Self {
        Self {
            tree,
            identities,
            adds_up,
            written: Ok(()),
            whole: Duration(0),
            calls: 0,
        }
    }
}

impl Observer for Drawing<'_, '_> {
    #[inline(always)]
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        if self.adds_up {
            self.whole += self_time(&step);
        }
        self.calls += u64::from(matches!(step, Step::End(_)));
        if self.written.is_ok() {
            self.written = self.tree.step(self.identities, origin, &step);
        }
    }
}

/// The self time of a call that a step ends.
fn self_time(step: &Step<'_>) -> Duration {
    match step {
        Step::End(end) => end.self_time.unwrap_or_default(),
        _ => Duration::default(),
    }
}

fn listing(
    trace: &mut dyn Events,
    view: &ViewArgs,
    part: Part,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let times = Times::of(view.time, trace)?;
    let window = part.window();
    let mut chooser = Chooser::new(part.filter);
    let mut span = Span::default();
    let (out, palette) = context.out();
    let mut listing = Listing::new(out, palette, trace.info(), names, times);
    listing.heading()?;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            listing.flush()?;
            return Ok(more(true));
        };
        span.meet(info, batch);
        for event in batch.iter() {
            if !chooser.keeps(event, info, names) {
                continue;
            }
            match event.event {
                Some(event) => listing.event(&info.identities, event)?,
                None => listing.event(&info.identities, &event.to_event())?,
            }
        }
        Ok(more(!span.is_behind(window)))
    });
    read.and(chooser.remark(span, context))
}

/// Writes one object a line: `event` for each record, `gap` where events are missing, `repair` where a call ended
/// without its own exit or its begin is not in the trace.
fn json(
    trace: &mut dyn Events,
    view: &ViewArgs,
    part: Part,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let times = Times::of(view.time, trace)?;
    let window = part.window();
    let mut chooser = Chooser::new(part.filter);
    let mut span = Span::default();
    let (out, _) = context.out();
    // Repairs are computed from all events as recorded, whichever of them are listed.
    let mut calls = Calls::new(trace.info(), calls::Options::default());
    let mut tracks = Tracks::new();
    let mut behind = false;
    let mut lines = Vec::new();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            out.flush()?;
            return Ok(more(true));
        };
        let identities = &info.identities;
        span.meet(info, batch);
        calls.learn(info);
        for event in batch.iter() {
            let timed = has_time(info, event.row.stream);
            if timed && event.row.time > window.end && !behind {
                behind = true;
                calls.close_window(window.end, &mut |step| {
                    repair_line(&mut lines, &step, None, &mut tracks, identities, names);
                });
            }
            let chosen = chooser.keeps(event, info, names);
            if chosen {
                match event.event {
                    Some(event) => event_line(&mut lines, event, identities, names, &times),
                    None => event_line(&mut lines, &event.to_event(), identities, names, &times),
                }
            }
            if behind {
                continue;
            }
            let cpu = event.row.cpu();
            calls.push(event, &mut |step| match step {
                Step::Track { track, info } => set_track(&mut tracks, track, &info),
                step if chosen => {
                    repair_line(&mut lines, &step, cpu, &mut tracks, identities, names);
                }
                _ => {}
            });
            if lines.len() >= LINES {
                unit::name_members(&mut lines);
                out.write_all(&lines)?;
                lines.clear();
            }
        }
        unit::name_members(&mut lines);
        out.write_all(&lines)?;
        lines.clear();
        Ok(more(!span.is_behind(window)))
    });
    let identities = &trace.info().identities;
    let begun = span.bounds().is_some_and(|(_, end)| end >= window.begin);
    if !behind && begun {
        calls.finish(&mut |step| {
            repair_line(&mut lines, &step, None, &mut tracks, identities, names);
        });
    }
    unit::name_members(&mut lines);
    out.write_all(&lines)?;
    read.and(chooser.remark(span, context))
}

fn event_line(
    line: &mut Vec<u8>,
    event: &Event,
    identities: &Identities,
    names: &Names<'_>,
    times: &Times,
) {
    let thread = event.thread.map(|thread| identities.tid(thread));
    // A gap that the reader found by itself has no record, so it gets no `event` line.
    if event.record {
        let mut object = Object::begin(line);
        let time = event.timestamp();
        object.member("type", "event").member("time_ns", time);
        if let Some(date) = times.date(time) {
            object.member("date", &*date.to_string());
        }
        object
            .member("cpu", event.cpu)
            .member("thread", thread)
            .member("name", &*event.name)
            .member("fields", event.fields.as_slice());
        if let Some(function) = event.kind.function() {
            object.member("function", &*names.function(identities, function));
        }
        if let Some(label) = event.kind.label() {
            object.member("label", label);
        }
        match &event.kind {
            EventKind::Marker { value, .. } => {
                object.member("value", *value);
            }
            EventKind::Counter { process, value, .. } => {
                if let Some(process) = process {
                    object.member("process", *process);
                }
                object.member("value", Value::from(*value));
            }
            _ => {}
        }
        object.end();
        line.push(b'\n');
    }
    if let EventKind::Gap(gap) = &event.kind {
        let mut object = Object::begin(line);
        object
            .member("type", "gap")
            .member("time_ns", event.time)
            .member("cpu", event.cpu)
            .member("thread", thread)
            .member("gap", gap.name())
            .member("lost", gap.lost_events());
        if let Gap::Damage { offset, .. } = gap {
            object.member("offset", *offset);
        }
        object.member("message", gap.to_string());
        object.end();
        line.push(b'\n');
    }
}

/// Thread of each track, for the lines of repairs. Indexed by [`TrackId`].
type Tracks = Vec<Option<ThreadId>>;

fn repair_line(
    line: &mut Vec<u8>,
    step: &Step<'_>,
    cpu: Option<Cpu>,
    tracks: &mut Tracks,
    identities: &Identities,
    names: &Names<'_>,
) {
    let end = match step {
        Step::Track { track, info } => {
            set_track(tracks, *track, info);
            return;
        }
        Step::End(end) => end,
        _ => return,
    };
    let Some(reason) = reason(end.how) else {
        return;
    };
    let thread = tracks.get(end.track.0 as usize).copied().flatten();
    let mut object = Object::begin(line);
    object
        .member("type", "repair")
        .member("time_ns", end.time)
        .member("cpu", cpu)
        .member("thread", thread.map(|thread| identities.tid(thread)))
        .member("reason", reason);
    callee(&mut object, end, identities, names);
    object
        .member("depth", end.depth)
        .member("begin_ns", end.begin);
    object.end();
    line.push(b'\n');
}

fn set_track(tracks: &mut Tracks, track: TrackId, info: &TrackInfo) {
    let index = track.0 as usize;
    if tracks.len() <= index {
        tracks.resize(index + 1, None);
    }
    tracks[index] = info.thread();
}
