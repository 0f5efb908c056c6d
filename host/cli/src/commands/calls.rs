//! `kymo calls`: table with one row per call.
//!
//! Rows appear as calls end, so memory grows only with threads and depth. With `-n` only the slowest calls are kept.

mod row;
mod trees;

use std::collections::{BinaryHeap, VecDeque};
use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use kymo_analysis::by_wall::ByWall;
use kymo_analysis::calls::{CallId, Callee, End, Step, TrackId};
use kymo_analysis::replay::{Options, Replay};
use kymo_analysis::selection::Selection;
use kymo_event::{Batch, Cpu, Duration, ThreadId, TimeUnit, TraceInfo};
use kymo_read::coresight::FORMAT;
use kymo_symbols::Symbols;

use crate::args::{InputArgs, SymbolArgs, rows};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Part};
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::span::{Span, remark_replay};
use row::{Call, Slow, Writer};

/// The options of `kymo calls`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo calls -n 20 trace/ --elf firmware.elf       the twenty slowest calls
  kymo calls --trees --function parse trace/       why was the slowest call so slow?
  kymo calls --function alloc* trace/              every call of these, with its duration
  kymo calls --min-duration 1ms --last 5s trace/   what took long lately
  kymo calls --wall -n 20 trace/                   what took longest with what it waited for
  kymo calls --format csv trace/ > calls.csv       for a spreadsheet
  kymo calls --format json trace/ | jq .duration_ns    one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// Only the N slowest calls, the slowest first; 0 for all. Without this all calls, in the order in which they end.
    #[arg(short = 'n', long, value_name = "N", value_parser = rows)]
    number: Option<usize>,

    /// Show the slowest calls (one, or as many as -n says) as trees of what they called, beside the median call of the
    /// same function. Files are read twice for it.
    #[arg(long)]
    trees: bool,

    /// Durations and self times by the clock on the wall: with what passed while the thread did not run, and with interrupts.
    #[arg(long, conflicts_with = "compensate")]
    wall: bool,

    /// Take off the durations what recording took, as the target measured it on itself.
    #[arg(long)]
    compensate: bool,

    #[command(flatten)]
    filter: FilterArgs,

    /// How to print the calls.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Layout,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// How to print calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// For people.
    Text,
    /// For programs: JSON, one object a line.
    Json,
    /// For spreadsheets: values separated by commas, with a line of names.
    Csv,
}

/// Lists the calls of a trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the readable calls are listed before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let mut trace = Trace::open(&args.input, &args.symbols, args.filter.wanted(), context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context);
    let listed = part.and_then(|part| match args.trees {
        true => trees::show(args, &mut trace, &part, context),
        false => list(args, &mut trace, &part, context),
    });
    listed.map_err(|report| trace.kept(report))?;
    trace.remark(context);
    trace.verdict()
}

fn list(args: &Args, trace: &mut Trace, part: &Part, context: &mut Context) -> Result<(), Report> {
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    let mut calls = Calls::new(args, trace.info(), &symbols, part)?;
    let mut span = Span::default();
    let mut slowest = Slowest::new(args.number);
    let mut shown = 0u64;
    let (out, palette) = context.out();
    let mut writer = Writer::new(out, *palette, args, trace.info(), &names);
    writer.heading()?;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        let mut written = Ok(());
        let goes_on = calls.batch(info, batch, &mut |call| {
            shown += 1;
            if let Some(call) = slowest.take(call)
                && written.is_ok()
            {
                written = writer.call(info, &call);
            }
        });
        written?;
        Ok(more(goes_on))
    });
    let info = trace.info();
    let mut written = Ok(());
    calls.finish(info, &mut |call| {
        shown += 1;
        if let Some(call) = slowest.take(call)
            && written.is_ok()
        {
            written = writer.call(info, &call);
        }
    });
    written?;
    let slowest: Vec<_> = slowest.into_sorted().collect();
    for call in &slowest {
        writer.call(info, call)?;
    }
    if let (Some(call), Layout::Text) = (slowest.first(), args.format) {
        note_disasm(args, info, call, context);
    }
    names.remark(&info.identities, context);
    if shown == 0 {
        part.remark_no_calls(context);
    }
    read.and(remark_replay(calls.selected(), span, context))
}

/// Suggests how to show the instructions of the slowest call of a hardware trace.
fn note_disasm(args: &Args, info: &TraceInfo, call: &Call, context: &Context) {
    let Some(begin) = call.end.begin.filter(|_| info.format == FORMAT) else {
        return;
    };
    let (begin, end) = (begin.0, call.end.time.0);
    let cpu = call
        .cpu
        .map_or(String::new(), |cpu| format!("--cpu {cpu} "));
    let part = match info.unit {
        TimeUnit::Nanoseconds => format!("{cpu}--begin {begin}ns --end {end}ns"),
        TimeUnit::Ticks => format!("{cpu}--begin {begin} --end {end}"),
        TimeUnit::Instructions => format!("--instructions {begin}..{end}"),
        TimeUnit::Cycles => return,
    };
    let input = args.input.path().display();
    let given: Vec<_> = args.input.ctf.binaries.named().collect();
    let same = match given.is_empty() {
        true => String::new(),
        false => format!(" with the same {}", given.join(", ")),
    };
    context.note(format_args!(
        "`kymo disasm {part} {input}`{same} opens the slowest call instruction by instruction"
    ));
}

/// The calls of a part of a trace, as they end. Depth and caller are those of the trace, regardless of the selection.
struct Calls {
    /// The replay of the whole window.
    replay: Replay,
    open: OpenCalls,
    /// The replay of the selection, unless that is everything, and the calls that have ended in it but not in the
    /// other.
    chosen: Option<(Replay, VecDeque<CallId>)>,
    by_wall: Option<ByWall>,
    min_duration: Duration,
}

impl Calls {
    fn new(
        args: &Args,
        info: &TraceInfo,
        symbols: &Arc<Symbols>,
        part: &Part,
    ) -> Result<Self, Report> {
        if args.compensate {
            compensated::check(info)?;
        }
        let mut selected = Options {
            compensate: args.compensate,
            ..part.replay()
        };
        // Calls are reported when they end, so their durations are known then.
        let min_duration = std::mem::take(&mut selected.selection.min_duration);
        let all = Options {
            selection: Selection::default(),
            ..selected.clone()
        };
        let chosen = !selected.selection.is_everything();
        Ok(Self {
            replay: Replay::new(info, symbols, all),
            open: OpenCalls::default(),
            chosen: chosen.then(|| (Replay::new(info, symbols, selected), VecDeque::new())),
            by_wall: args.wall.then(ByWall::default),
            min_duration,
        })
    }

    /// Processes the next events, and passes the calls that end to `give`. Returns whether more events are needed.
    fn batch(&mut self, info: &TraceInfo, batch: &Batch, give: &mut impl FnMut(Call)) -> bool {
        if let Some((replay, ended)) = &mut self.chosen {
            replay.batch(info, batch, &mut |_, step| note_end(&step, ended));
        }
        let Self {
            replay,
            open,
            chosen,
            by_wall,
            min_duration,
        } = self;
        let mut chosen = chosen.as_mut().map(|(_, ended)| ended);
        replay.batch(info, batch, &mut |_, step| {
            if let Some(call) = open.step(&timed(step, by_wall.as_mut()))
                && call.is_one_of(chosen.as_deref_mut(), *min_duration)
            {
                give(call);
            }
        })
    }

    fn finish(&mut self, info: &TraceInfo, give: &mut impl FnMut(Call)) {
        if let Some((replay, ended)) = &mut self.chosen {
            replay.finish(info, &mut |_, step| note_end(&step, ended));
        }
        let Self {
            replay,
            open,
            chosen,
            by_wall,
            min_duration,
        } = self;
        let mut chosen = chosen.as_mut().map(|(_, ended)| ended);
        replay.finish(info, &mut |_, step| {
            if let Some(call) = open.step(&timed(step, by_wall.as_mut()))
                && call.is_one_of(chosen.as_deref_mut(), *min_duration)
            {
                give(call);
            }
        });
    }

    /// The replay with the numbers of selected events.
    const fn selected(&self) -> &Replay {
        match &self.chosen {
            Some((replay, _)) => replay,
            None => &self.replay,
        }
    }
}

/// A step with the kind of times that is shown.
fn timed<'e>(step: Step<'e>, by_wall: Option<&mut ByWall>) -> Step<'e> {
    match by_wall {
        Some(by_wall) => by_wall.step(step),
        None => step,
    }
}

fn note_end(step: &Step<'_>, ended: &mut VecDeque<CallId>) {
    if let Step::End(end) = step {
        ended.push_back(end.call);
    }
}

impl Call {
    /// Whether it is among the selected calls, which end in the same order, and took long enough.
    fn is_one_of(&self, chosen: Option<&mut VecDeque<CallId>>, least: Duration) -> bool {
        let is_chosen = match chosen {
            None => true,
            Some(ended) if ended.front() == Some(&self.end.call) => ended.pop_front().is_some(),
            Some(_) => false,
        };
        // A call of unknown duration may have been long.
        let long = self.end.duration.is_none_or(|duration| duration >= least);
        is_chosen && long
    }
}

/// The open calls, by track, because their ends do not have the processor and thread of their begin.
#[derive(Default)]
struct OpenCalls {
    tracks: Vec<Track>,
}

#[derive(Default)]
struct Track {
    /// The thread of the track, if it has one.
    thread: Option<ThreadId>,
    /// The track's last processor.
    cpu: Option<Cpu>,
    open: Vec<Opened>,
}

#[derive(Clone, Copy)]
struct Opened {
    callee: Callee,
    cpu: Option<Cpu>,
    thread: Option<ThreadId>,
    /// The caller, where the source records it.
    caller: Option<Callee>,
}

impl OpenCalls {
    /// Processes a step. Returns the call that it ends.
    fn step(&mut self, step: &Step<'_>) -> Option<Call> {
        match step {
            Step::Track { track, info } => {
                let track = self.track(*track);
                track.thread = info.thread();
                track.cpu = track.cpu.or(info.cpu);
            }
            Step::State { track, cpu, .. } => {
                let track = self.track(*track);
                track.cpu = cpu.or(track.cpu);
            }
            Step::Begin(begin) => {
                let track = self.track(begin.track);
                track.cpu = begin.cpu.or(track.cpu);
                // The callees of an interrupt belong to the interrupted thread.
                let outermost = track.open.first().and_then(|call| call.thread);
                track.open.push(Opened {
                    callee: begin.callee,
                    cpu: begin.cpu,
                    thread: begin.thread.or(outermost).or(track.thread),
                    caller: begin.caller.map(|it| Callee::Function(it.function)),
                });
            }
            Step::End(end) => return Some(self.end(end)),
            _ => {}
        }
        None
    }

    fn end(&mut self, end: &End) -> Call {
        let track = self.track(end.track);
        // An orphan is not among the open calls.
        let opened = end.begin.and_then(|_| track.open.pop());
        Call {
            end: *end,
            cpu: opened.map_or(track.cpu, |opened| opened.cpu),
            thread: opened.map_or(track.thread, |opened| opened.thread),
            caller: opened
                .and_then(|opened| opened.caller)
                .or(track.open.last().map(|caller| caller.callee)),
        }
    }

    fn track(&mut self, track: TrackId) -> &mut Track {
        let index = track.0 as usize;
        if self.tracks.len() <= index {
            self.tracks.resize_with(index + 1, Track::default);
        }
        &mut self.tracks[index]
    }
}

/// The slowest calls, unless all are wanted.
struct Slowest {
    number: Option<usize>,
    /// The fastest of them first.
    kept: BinaryHeap<Slow>,
}

impl Slowest {
    fn new(number: Option<usize>) -> Self {
        Self {
            number,
            kept: BinaryHeap::new(),
        }
    }

    /// Keeps a call, or returns it if all are wanted.
    fn take(&mut self, call: Call) -> Option<Call> {
        let Some(number) = self.number else {
            return Some(call);
        };
        // A call whose begin was not seen has no duration.
        if let Some(slow) = Slow::new(call) {
            self.kept.push(slow);
            if self.kept.len() > number {
                self.kept.pop();
            }
        }
        None
    }

    /// The kept calls, slowest first.
    fn into_sorted(self) -> impl Iterator<Item = Call> {
        self.kept.into_sorted_vec().into_iter().map(Slow::into_call)
    }
}
