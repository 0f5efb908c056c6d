//! `kymo show`: the trace as text, or as JSON Lines for programs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;

use clap::ValueEnum;
use kymo_analysis::calls::{self, Callee, Calls, Counts, End, How, Step, TrackId, TrackKind};
use kymo_analysis::steady::{self, Steady};
use kymo_event::{Addr, Cpu, Duration, Event, EventKind, Field, Gap, ThreadId, TraceInfo};

use crate::args::{Format, InputArgs, SymbolArgs};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Selection};
use crate::follow::Follow;
use crate::input::{Events, Moment, Trace};
use crate::live_stream::StreamArgs;
use crate::names::{self, Names};
use crate::render::json::Object;
use crate::render::listing::Listing;
use crate::render::threads::ThreadNames;
use crate::render::times::{TimeKind, Times};
use crate::render::tree::{Tree, TreeOptions};
use crate::sent::is_empty_dump;
use crate::target::{TargetArgs, address_in};

mod babeltrace;

/// Where the names of functions are to be found.
const LISTED: &str = "`kymo report --sort name` lists the functions of the trace";

/// The options of `kymo show`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo show trace/ --elf firmware.elf              every call, with its duration
  kymo show trace/ --elf firmware.elf | less       jump about, search
  kymo show --depth 3 --thread main trace/         the outer calls of one thread
  kymo show --function luaV_execute trace/         only what happens within a function
  kymo show --follow tcp:localhost:4000            what it does, as it does it
  kymo show --compensate trace/                    durations without what recording took
  kymo show --events trace/                        the events as they were recorded
  kymo show -e --event 'sched_*' --where 'tid == 42' kernel/   of another tracer's trace
  kymo show --format babeltrace trace/             any CTF as babeltrace2 prints it
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
}

/// What to show of a trace, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ViewArgs {
    /// List the events as they were recorded, instead of a tree of calls.
    #[arg(short, long)]
    pub events: bool,

    /// Show only this thread, by name or number, and the interrupts that cut into it. Repeatable.
    #[arg(long, value_name = "THREAD")]
    pub thread: Vec<String>,

    /// Show only what happens within calls of this function. Repeatable.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "events")]
    pub function: Vec<String>,

    /// Show this many levels of calls.
    #[arg(long, value_name = "N", conflicts_with = "events")]
    pub depth: Option<u32>,

    /// Show durations by the clock on the wall. Without this they are the time in which the call's
    /// thread had its processor: without preemption, and without interrupts.
    #[arg(long, conflicts_with = "events")]
    pub wall: bool,

    /// Show times by the trace's own clock, since the first event, or as dates. In JSON events get a
    /// date beside their time.
    #[arg(long, value_name = "KIND", default_value = "absolute")]
    pub time: TimeKind,

    /// Take off the durations what recording took, as the target measured it on itself.
    #[arg(long, conflicts_with = "events")]
    pub compensate: bool,

    /// Leave out the function's name at its return.
    #[arg(short, long, conflicts_with = "events")]
    pub annotation: bool,

    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Shows a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; what can be read of it is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let view = &args.view;
    let format = match args.format {
        Layout::Text => Format::Text,
        Layout::Json => Format::Json,
        Layout::Babeltrace => {
            let filter = view.filter.filter(&view.thread);
            return babeltrace::show(&args.input, filter, context);
        }
    };
    let fields = view.events || format == Format::Json || view.filter.needs_fields();
    if args.follow {
        let path = &args.input.input;
        let mut follow = match address_in(path)? {
            Some(address) => {
                let target = TargetArgs::at(address, args.input.baud);
                Follow::target(target, args.stream, &args.symbols, fields, context)?
            }
            None => Follow::directory(path, &args.symbols, fields, context)?,
        };
        show(&mut follow, view, format, context)?;
        return follow.verdict().map(|()| ExitCode::SUCCESS);
    }
    let mut trace = Trace::open(&args.input, &args.symbols, fields, context)?;
    show(&mut trace, view, format, context).map_err(|report| trace.kept(report))?;
    trace.remark_empty(context);
    trace.verdict()
}

/// Shows a trace to its end, wherever it came from.
///
/// # Errors
/// When the trace can't be read to its end, or the result can't be written.
pub fn show(
    trace: &mut dyn Events,
    view: &ViewArgs,
    format: Format,
    context: &mut Context,
) -> Result<(), Report> {
    if view.compensate && format == Format::Json {
        let report = Report::new("--compensate is for calls, and JSON lists events as recorded");
        return Err(report.help("`kymo report --compensate --format json` gives times by function"));
    }
    let mut selection = Selection::new(view.filter.filter(&[]));
    let all = selection.is_everything();
    let trace: &mut dyn Events = &mut selection.of(trace);
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    match format {
        Format::Json => json(trace, view, &names, context)?,
        Format::Text if view.events => listing(trace, view, &names, context)?,
        Format::Text => {
            let no_calls = tree(trace, view, &names, context)?;
            if no_calls && all {
                context.note("there are no calls in this trace; --events lists what there is");
            } else if no_calls && !selection.leaves_nothing() {
                context.note("there are no calls among these events; --events lists them");
            }
        }
    }
    selection.remark(context);
    names.remark(context);
    Ok(())
}

/// Whether there were no calls, which is to be remarked upon.
fn tree(
    trace: &mut dyn Events,
    view: &ViewArgs,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<bool, Report> {
    let symbols = trace.symbols();
    let mut functions = Vec::new();
    for name in &view.function {
        let found = names::by_name(&symbols, name, LISTED)?;
        functions.extend(found.iter().map(|function| function.address()));
    }
    let options = TreeOptions {
        no_annotation: view.annotation,
        depth: view.depth,
        wall: view.wall,
        functions,
        threads: view.thread.clone(),
        times: Times::new(view.time, trace.info())?,
    };
    let function = |address: Addr| names.function(address);
    let (out, palette) = context.out();
    let mut compensation = match view.compensate {
        true => Some(compensated::compensation(trace.info())?),
        false => None,
    };
    let mut whole = Duration::default();
    let mut calls = Calls::new(trace.info(), calls::Options::default());
    let mut tree = Tree::new(out, palette, trace.info(), &function, options);
    tree.heading()?;
    let mut take = |tree: &mut Tree<'_>, event: &Event, moved: i64| {
        tree.moved(moved);
        if let Some(compensation) = &mut compensation {
            compensation.event(event);
        }
        let mut written = Ok(());
        calls.push(event, &mut |mut step| {
            if let Some(compensation) = &mut compensation {
                compensation.step(Some(event.stream), &mut step);
                whole += self_time(&step);
            }
            if written.is_ok() {
                written = tree.step(Some(event.stream), &step);
            }
        });
        written
    };
    // Where a clock ran ahead and stepped back, durations are those that passed.
    let mut steady = trace.info().steps_back.then(Steady::default);
    let mut written = Ok(());
    let read = trace.walk(&mut |moment| {
        match (moment, &mut steady) {
            (Moment::Pause, _) => tree.flush()?,
            (Moment::Event(event), None) => take(&mut tree, event, 0)?,
            (Moment::Event(event), Some(steady)) => {
                steady.push(with_recorded(event), &mut |mut event| {
                    let moved = take_recorded(&mut event);
                    if written.is_ok() {
                        written = take(&mut tree, &event, moved);
                    }
                });
                std::mem::replace(&mut written, Ok(()))?;
            }
        }
        Ok(())
    });
    if let Some(steady) = &mut steady {
        steady.finish(&mut |mut event| {
            let moved = take_recorded(&mut event);
            if written.is_ok() {
                written = take(&mut tree, &event, moved);
            }
        });
    }
    tree.moved(0);
    // What was read before a failure is shown to its end.
    calls.finish(&mut |mut step| {
        if let Some(compensation) = &mut compensation {
            compensation.step(None, &mut step);
            whole += self_time(&step);
        }
        if written.is_ok() {
            written = tree.step(None, &step);
        }
    });
    written?;
    tree.finish()?;
    let met_thread = tree.met_thread();
    if let Some(compensation) = &compensation {
        let below_zero = compensation.below_zero();
        compensated::remark(compensation, whole, below_zero, "call", context);
    }
    if !met_thread {
        no_thread(&view.thread, context);
    }
    read?;
    Ok(met_thread && ends(calls.counts()) == 0 && !is_empty_dump(trace.info()))
}

/// An event for [`Steady`], which moves gaps, too, but says only of events when they were recorded.
fn with_recorded(event: &Event) -> Event {
    let mut event = event.clone();
    if matches!(event.kind, EventKind::Gap(_)) {
        let recorded = Field::new(steady::RECORDED, event.time.0);
        event.fields.push(recorded);
    }
    event
}

/// How much later than its time an event was recorded, in nanoseconds; taken off its fields.
fn take_recorded(event: &mut Event) -> i64 {
    let Some(recorded) = steady::recorded(event) else {
        return 0;
    };
    event.fields.retain(|field| field.name != steady::RECORDED);
    recorded.0.saturating_sub(event.time.0)
}

/// The time that a step tells of a call without its callees.
fn self_time(step: &Step<'_>) -> Duration {
    match step {
        Step::End(end) => end.self_time.unwrap_or_default(),
        _ => Duration::default(),
    }
}

fn listing(
    trace: &mut dyn Events,
    view: &ViewArgs,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let function = |address: Addr| names.function(address);
    let mut threads = Threads::new(trace.info(), view);
    let times = Times::new(view.time, trace.info())?;
    let (out, palette) = context.out();
    let mut listing = Listing::new(out, palette, trace.info(), &function, times);
    listing.heading()?;
    trace.walk(&mut |moment| {
        match moment {
            Moment::Event(event) if threads.wants(event) => listing.event(event)?,
            Moment::Event(_) => {}
            Moment::Pause => listing.flush()?,
        }
        Ok(())
    })?;
    threads.remark(context);
    Ok(())
}

/// How many calls there were, whole or not.
fn ends(counts: &Counts) -> u64 {
    counts.returned
        + counts.jumped
        + counts.unwound
        + counts.lost
        + counts.recording_off
        + counts.open
        + counts.orphans
}

fn no_thread(wanted: &[String], context: &Context) {
    let wanted = wanted.join(", ");
    context.warn(format_args!(
        "nothing in the trace is of thread {wanted}; `kymo info` lists the threads with names"
    ));
}

/// Which events are wanted, by their threads.
struct Threads<'a> {
    wanted: &'a [String],
    known: Vec<(ThreadId, String)>,
    met: bool,
}

impl<'a> Threads<'a> {
    fn new(info: &TraceInfo, view: &'a ViewArgs) -> Self {
        Self {
            wanted: &view.thread,
            known: info.threads.clone(),
            met: false,
        }
    }

    /// Gaps are always wanted: what is missing may have been of any thread.
    fn wants(&mut self, event: &Event) -> bool {
        if self.wanted.is_empty() || matches!(event.kind, EventKind::Gap(_)) {
            return true;
        }
        if let EventKind::ThreadName { thread, name } = &event.kind {
            self.known.push((*thread, name.clone()));
        }
        let mut named = self.known.iter().rev();
        let name = named.find(|(id, _)| Some(*id) == event.thread);
        let name = name.map(|(_, name)| name.as_str());
        let wanted = ThreadNames::is_one_of(event.thread, name, self.wanted);
        self.met |= wanted;
        wanted
    }

    /// Says so if there was nothing of the threads that are wanted.
    fn remark(&self, context: &Context) {
        if !self.wanted.is_empty() && !self.met {
            no_thread(self.wanted, context);
        }
    }
}

/// One object a line: `event` for each record, `gap` where something is missing, `repair` where a
/// call ended without an exit of its own or its beginning is not in the trace.
fn json(
    trace: &mut dyn Events,
    view: &ViewArgs,
    names: &Names<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let mut threads = Threads::new(trace.info(), view);
    let times = Times::new(view.time, trace.info())?;
    let (out, _) = context.out();
    let mut calls = Calls::new(trace.info(), calls::Options::default());
    let mut tracks = Tracks::new();
    let read = trace.walk(&mut |moment| {
        let Moment::Event(event) = moment else {
            return Ok(out.flush()?);
        };
        let wanted = threads.wants(event);
        if wanted {
            event_line(out, event, names, &times)?;
        }
        let cpu = event.cpu;
        let mut written = Ok(());
        calls.push(event, &mut |step| {
            if wanted && written.is_ok() {
                written = repair_line(out, &step, cpu, &mut tracks, names);
            }
        });
        Ok(written?)
    });
    let mut written = Ok(());
    calls.finish(&mut |step| {
        if written.is_ok() {
            written = repair_line(out, &step, None, &mut tracks, names);
        }
    });
    written?;
    threads.remark(context);
    read
}

fn event_line(
    out: &mut dyn Write,
    event: &Event,
    names: &Names<'_>,
    times: &Times,
) -> io::Result<()> {
    let (time, cpu) = (event.time.0, event.cpu.map(|cpu| cpu.0));
    let thread = event.thread.map(|thread| thread.0);
    // A gap that the reader found by itself is no record.
    if !event.name.is_empty() {
        let mut object = Object::begin(out)?;
        object.member("type", "event")?;
        object.member("time_ns", time)?;
        if let Some(date) = times.date(event.time) {
            object.member("date", &*date.to_string())?;
        }
        object.member("cpu", cpu)?;
        object.member("thread", thread)?;
        object.member("name", &*event.name)?;
        object.member("fields", event.fields.as_slice())?;
        if let EventKind::Enter { function, .. }
        | EventKind::Exit {
            function: Some(function),
        } = event.kind
        {
            object.member("function", &*names.function(function))?;
        }
        if let EventKind::Marker {
            label: Some(label), ..
        } = &event.kind
        {
            object.member("label", label)?;
        }
        object.end()?;
        out.write_all(b"\n")?;
    }
    if let EventKind::Gap(gap) = &event.kind {
        let mut object = Object::begin(out)?;
        object.member("type", "gap")?;
        object.member("time_ns", time)?;
        object.member("cpu", cpu)?;
        object.member("thread", thread)?;
        object.member("gap", gap.name())?;
        object.member("lost", gap.lost_events())?;
        if let Gap::Damage { offset, .. } = gap {
            object.member("offset", *offset)?;
        }
        object.member("message", gap.to_string())?;
        object.end()?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The threads of tracks, to tell where a repair was made.
type Tracks = HashMap<TrackId, Option<ThreadId>>;

fn repair_line(
    out: &mut dyn Write,
    step: &Step<'_>,
    cpu: Option<Cpu>,
    tracks: &mut Tracks,
    names: &Names<'_>,
) -> io::Result<()> {
    let end = match step {
        Step::Track { track, info } => {
            let (TrackKind::Thread { thread } | TrackKind::Interrupt { thread, .. }) = info.kind;
            tracks.insert(*track, thread);
            return Ok(());
        }
        Step::End(end) => end,
        _ => return Ok(()),
    };
    let Some(reason) = reason(end.how) else {
        return Ok(());
    };
    let thread = tracks.get(&end.track).copied().flatten();
    let mut object = Object::begin(out)?;
    object.member("type", "repair")?;
    object.member("time_ns", end.time.0)?;
    object.member("cpu", cpu.map(|cpu| cpu.0))?;
    object.member("thread", thread.map(|thread| thread.0))?;
    object.member("reason", reason)?;
    callee(&mut object, end, names)?;
    object.member("depth", end.depth)?;
    object.member("begin_ns", end.begin.map(|begin| begin.0))?;
    object.end()?;
    out.write_all(b"\n")
}

fn callee(object: &mut Object<'_>, end: &End, names: &Names<'_>) -> io::Result<()> {
    let (name, address): (Option<Rc<str>>, _) = match end.callee {
        Callee::Function(address) => (Some(names.function(address)), Some(address.0)),
        Callee::Interrupt(irq) => (Some(format!("irq {irq}").into()), None),
        Callee::Unknown => (None, None),
    };
    object.member("function", name.as_deref())?;
    object.member("address", address)?;
    Ok(())
}

/// Why a call has no exit, or no begin. Of these only `longjmp` is told by the trace; the others are
/// inferred.
fn reason(how: How) -> Option<&'static str> {
    match how {
        // Nothing, for recording was meant to end here.
        How::Returned | How::RecordingOff => None,
        How::Repaired(repair) => Some(repair.name()),
        How::Jumped => Some("longjmp"),
        How::Open => Some("open"),
        How::Orphan => Some("orphan"),
    }
}
