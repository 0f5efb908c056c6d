//! `kymo calls --trees`: the slowest calls as trees, each beside the median call of its function.
//!
//! The trace is read twice: first to find these calls, then to collect their callees. Of each function, the first
//! call of each [bucket](kymo_analysis::spread) of durations is remembered, so that one with the median duration is
//! available at the end.

use std::collections::HashMap;
use std::io::Write;

use kymo_analysis::by_wall::ByWall;
use kymo_analysis::call_tree::{CallTree, Frame, Group, View};
use kymo_analysis::calls::{CallId, Callee, End, How, Step, TrackId};
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_analysis::selection::Selection;
use kymo_analysis::spread::{Spread, bucket_of};
use kymo_event::{Batch, Duration, Identities, TimeUnit, TraceInfo};

use super::row::Call;
use super::{Args, Calls, Layout, Slowest, timed};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::{Events, Moment, Trace, is_pipe, label, more, open};
use crate::names::Names;
use crate::render::count::counted;
use crate::render::duration::{Human, Seconds};
use crate::render::escape::escaped;
use crate::render::palette::Palette;
use crate::render::threads::ThreadNames;
use crate::render::unit;
use crate::span::{Span, remark_replay};
use crate::target::address_in;

/// Callees that took less than 1/`SMALL` of a call are summed in one line.
const SMALL: u64 = 200;

/// Maximum depth of lines shown, because deeper ones would be wider than any screen.
const DEEPEST: usize = 256;

/// The calls of one function.
#[derive(Default)]
struct Durations {
    spread: Spread,
    /// The first call of each bucket.
    first: HashMap<usize, CallId>,
}

/// Shows the slowest calls.
///
/// # Errors
/// When the input can be read only once, or not to its end, or the result can't be written.
pub fn show(
    args: &Args,
    trace: &mut Trace,
    part: &Part,
    context: &mut Context,
) -> Result<(), Report> {
    if args.format != Layout::Text {
        return Err(Report::new("--trees is for people; programs get the list")
            .help("leave out --trees or --format"));
    }
    let path = args.input.path();
    if is_pipe(path) || address_in(path)?.is_some() {
        return Err(Report::new(
            "--trees reads the trace twice, and this input can be read only once",
        )
        .help("save it first"));
    }
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    let mut calls = Calls::new(args, trace.info(), &symbols, part)?;
    let mut slowest = Slowest::new(Some(args.number.unwrap_or(1)));
    let mut durations: HashMap<Callee, Durations> = HashMap::new();
    // The callees of a requested function are in its tree.
    let requested = |identities: &Identities, callee: Callee| {
        let function = match callee {
            Callee::Function(id) => identities.function(id),
            _ => None,
        };
        let code = function.and_then(|function| symbols.code_of(function));
        part.asks_for(code.as_ref(), &names.callee(identities, callee))
    };
    let mut meet = |info: &TraceInfo, call: Call| {
        if !requested(&info.identities, call.end.callee) {
            return;
        }
        if call.end.is_complete()
            && let Some(duration) = call.end.duration
        {
            let of = durations.entry(call.end.callee).or_default();
            of.spread.add(duration);
            let first = of.first.entry(bucket_of(duration));
            first.or_insert(call.end.call);
        }
        let _ = slowest.take(call);
    };
    let mut span = Span::default();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        Ok(more(calls.batch(info, batch, &mut |call| meet(info, call))))
    });
    let info = trace.info();
    calls.finish(info, &mut |call| meet(info, call));
    let slowest: Vec<Call> = slowest.into_sorted().collect();
    let medians: HashMap<Callee, CallId> = durations
        .iter()
        .filter_map(|(callee, of)| {
            let median = of.spread.percentile(50.0)?;
            Some((*callee, *of.first.get(&bucket_of(median))?))
        })
        .collect();
    let wanted = slowest.iter().map(|call| call.end.call);
    let mut capture = Capture::new(wanted.chain(medians.values().copied()), args.wall);
    let options = Options {
        compensate: args.compensate,
        selection: Selection::default(),
        ..part.replay()
    };
    let mut replay = Replay::new(trace.info(), &symbols, options);
    let again = open(&args.input, &args.symbols, args.filter.wanted(), context)?;
    let mut source = label(again, &symbols);
    let mut batch = Batch::default();
    // Read errors have been reported already.
    while let Ok(true) = source.fill(&mut batch) {
        let info = source.info();
        let mut capturing = Capturing {
            capture: &mut capture,
            info,
        };
        if !replay.batch_to(info, &batch, &mut capturing) {
            break;
        }
    }
    let info = source.info();
    let mut capturing = Capturing {
        capture: &mut capture,
        info,
    };
    replay.finish_to(info, &mut capturing);

    let info = trace.info();
    let threads = ThreadNames::new(info);
    let (out, palette) = context.out();
    for (number, call) in slowest.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let callee = call.end.callee;
        let begin = Seconds {
            time: call.end.began().unwrap_or_default(),
            origin: kymo_event::Time(0),
        };
        let short = |duration| match unit::get() {
            TimeUnit::Nanoseconds => Human(duration).to_string().trim().to_owned(),
            _ => unit::in_words(duration),
        };
        let End { how, doubt, .. } = call.end;
        let is_part = call.end.clipped || matches!(how, How::Open | How::RecordingOff);
        let of_begin = match unit::get() {
            TimeUnit::Nanoseconds => "s",
            unit => unit.suffix(),
        };
        let mut title = format!(
            "{}: {}{}{}, at {} {of_begin}",
            escaped(&names.callee(&info.identities, callee)),
            if is_part { "≥" } else { "" },
            short(call.end.duration.unwrap_or_default()),
            if doubt.any() || matches!(how, How::Repaired(_)) {
                "?"
            } else {
                ""
            },
            begin.to_string().trim(),
        );
        if let Some(thread) = call.thread {
            let tid = info.identities.tid(thread);
            let name = threads.name(tid, info.identities.thread_name(thread));
            title.push_str(&format!(", thread {}", escaped(&name)));
        }
        if let Some(of) = durations.get(&callee)
            && let Some(median) = of.spread.percentile(50.0)
        {
            let calls = counted(of.spread.count(), "call");
            title.push_str(&format!("; {calls}, median {}", short(median)));
        }
        let heading = palette.heading;
        writeln!(out, "{heading}{title}{heading:#}")?;
        let median = medians.get(&callee).and_then(|call| capture.tree(*call));
        if let Some(tree) = capture.tree(call.end.call) {
            Printer {
                names: &names,
                info,
                view: View::new(tree),
                median: median.map(View::new),
            }
            .write(out, palette)?;
        }
    }
    if slowest.is_empty() {
        part.remark_no_calls(context);
    }
    names.remark(&info.identities, context);
    read.and(remark_replay(calls.selected(), span, context))
}

/// Collects the trees of selected calls.
struct Capture {
    /// Converts to wall times, if these are wanted.
    by_wall: Option<ByWall>,
    trees: HashMap<CallId, Option<CallTree>>,
    /// The selected calls that are open, with their tracks.
    open: Vec<(TrackId, CallId)>,
}

impl Capture {
    fn new(calls: impl Iterator<Item = CallId>, by_wall: bool) -> Self {
        Self {
            by_wall: by_wall.then(ByWall::default),
            trees: calls.map(|call| (call, None)).collect(),
            open: Vec::new(),
        }
    }

    fn tree(&self, call: CallId) -> Option<&CallTree> {
        self.trees.get(&call)?.as_ref()
    }

    fn step(&mut self, info: &TraceInfo, step: &Step<'_>) {
        let track = match step {
            Step::Begin(begin) => {
                if let Some(tree) = self.trees.get_mut(&begin.call) {
                    *tree = Some(CallTree::new(false));
                    self.open.push((begin.track, begin.call));
                }
                begin.track
            }
            Step::End(end) => end.track,
            _ => return,
        };
        for (of, call) in &self.open {
            if *of == track
                && let Some(Some(tree)) = self.trees.get_mut(call)
            {
                tree.step(info, step);
            }
        }
        if let Step::End(end) = step {
            self.open.retain(|(_, call)| *call != end.call);
        }
    }
}

/// An [`Observer`] that passes steps to a [`Capture`].
struct Capturing<'c> {
    capture: &'c mut Capture,
    info: &'c TraceInfo,
}

impl Observer for Capturing<'_> {
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        let step = timed(step, self.capture.by_wall.as_mut());
        self.capture.step(self.info, &step);
    }
}

/// Writes the tree of one call.
struct Printer<'p> {
    names: &'p Names<'p>,
    info: &'p TraceInfo,
    view: View<'p>,
    median: Option<View<'p>>,
}

/// A line to be written.
enum Pending {
    /// The group, the same group in the median call, and the indentation.
    Group(Group, Option<Group>, String),
    /// The number of lines not shown, their time, and the indentation.
    More(usize, Duration, String),
}

impl Printer<'_> {
    fn write(&self, out: &mut dyn Write, palette: &Palette) -> std::io::Result<()> {
        let heading = palette.heading;
        writeln!(
            out,
            "{heading}{:>10}  {:>10}  {:>10}  {:>7}  {:>7}  CALLED{}{heading:#}",
            "TOTAL",
            "MEDIAN",
            "SELF",
            "COUNT",
            "MEDIAN",
            unit::heading()
        )?;
        let Some(root) = self.view.roots().into_iter().next() else {
            return Ok(());
        };
        let least = Duration(root.total.0 / SMALL);
        let median = self.median.as_ref();
        let median = median.and_then(|view| view.roots().into_iter().next());
        // Not recursive, because stacks can be deeper than ours. The next line is the last element.
        let mut rest = vec![Pending::Group(root, median, String::new())];
        while let Some(pending) = rest.pop() {
            let (group, median, indent) = match pending {
                Pending::Group(group, median, indent) => (group, median, indent),
                Pending::More(number, time, indent) => {
                    let (time, blank) = (Human(time), "");
                    writeln!(
                        out,
                        "{time}  {blank:>10}  {blank:>10}  {blank:>7}  {blank:>7}  {indent}({number} more)",
                    )?;
                    continue;
                }
            };
            let name = match group.frame {
                Frame::Call(callee) => self.names.callee(&self.info.identities, callee),
                _ => "(deeper calls)".into(),
            };
            let usual = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let function = palette.function;
            writeln!(
                out,
                "{}  {:>10}  {}  {:>7}  {:>7}  {indent}{function}{}{function:#}",
                Human(group.total),
                usual(median.as_ref().map(|it| Human(it.total).to_string())),
                Human(group.self_time),
                group.count,
                usual(median.as_ref().map(|it| it.count.to_string())),
                escaped(&name),
            )?;
            let below = self.view.callees(&group);
            let of_median = match (&self.median, &median) {
                (Some(view), Some(median)) => view.callees(median),
                _ => Vec::new(),
            };
            let (shown, small): (Vec<_>, Vec<_>) =
                below.into_iter().partition(|it| it.total >= least);
            if indent.len() / 2 >= DEEPEST {
                continue;
            }
            let indent = format!("{indent}  ");
            if !small.is_empty() {
                let time = small.iter().fold(Duration(0), |sum, it| sum + it.total);
                rest.push(Pending::More(small.len(), time, indent.clone()));
            }
            rest.extend(shown.into_iter().rev().map(|group| {
                let median = of_median.iter().find(|it| it.frame == group.frame);
                Pending::Group(group, median.cloned(), indent.clone())
            }));
        }
        Ok(())
    }
}
