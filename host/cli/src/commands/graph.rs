//! `kymo graph`: call tree from callers to callees, or from callees to callers.

use std::io::Write;
use std::process::ExitCode;

use kymo_analysis::by_wall::ByWall;
use kymo_analysis::call_tree::{CallTree, DEEPEST as TOLD_APART, Frame, Group, View};
use kymo_analysis::calls::{Callee, Step, TrackId};
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_analysis::titles;
use kymo_event::{Duration, TraceInfo};
use kymo_export::json::Object;

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::FilterArgs;
use crate::input::{Events, Moment, Trace, more};
use crate::names::{self, Names};
use crate::render::count::{are, counted};
use crate::render::duration::Human;
use crate::render::escape::escaped;
use crate::render::palette::Palette;
use crate::render::share::percent;
use crate::render::unit;
use crate::span::{Span, remark_replay};

/// Maximum depth of lines shown, because deeper ones would be wider than any screen.
const DEEPEST: usize = 512;

/// The options of `kymo graph`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo graph trace/ --elf firmware.elf           what called what, and how long that took
  kymo graph --function parse trace/             only what is below this function
  kymo graph --callers trace/                    functions by their own time, and who called them
  kymo graph --callers-of malloc trace/          who called this, and what it took for whom
  kymo graph --threads-apart --depth 3 trace/    the uppermost calls of each thread
  kymo graph --wall --function read trace/       with the time in which it waited
  kymo graph --format json trace/ | jq .self_ns  one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// From callees to callers: each function by the time it took itself, below it who called it for how much of that.
    #[arg(long, conflicts_with = "callers_of")]
    callers: bool,

    /// From this function to its callers, by the time it took with what it called. Repeatable.
    #[arg(long, value_name = "FUNCTION")]
    callers_of: Vec<String>,

    /// Leave out what took less than so many percent of the whole, or of the functions that are chosen; what is left out is
    /// summed up.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    min_share: f64,

    /// Tell threads apart: each has a tree of its own.
    #[arg(long, conflicts_with_all = ["callers", "callers_of"])]
    threads_apart: bool,

    /// Times by the clock on the wall: with what passed while the thread did not run, and with interrupts.
    #[arg(long)]
    wall: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// An observer that passes steps to a call tree.
struct Growing<'t> {
    tree: &'t mut CallTree,
    by_wall: &'t mut Option<ByWall>,
    info: &'t TraceInfo,
    threads: &'t mut Vec<Option<String>>,
}

impl Observer for Growing<'_> {
    #[inline(always)]
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        if let Step::Track { track, info } = &step
            && info.is_thread()
        {
            let index = track.0 as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, None);
            }
            self.threads[index] = Some(titles::track(self.info, info));
        }
        match self.by_wall {
            Some(by_wall) => self.tree.step(self.info, &by_wall.step(step)),
            None => self.tree.step(self.info, &step),
        }
    }
}

/// The total self time of all calls.
#[derive(Default)]
struct Whole {
    sum: Duration,
    by_wall: Option<ByWall>,
}

impl Observer for Whole {
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        let step = match &mut self.by_wall {
            Some(by_wall) => by_wall.step(step),
            None => step,
        };
        if let Step::End(end) = step {
            self.sum += end.sure_self.unwrap_or_default();
        }
    }
}

/// Shows the call tree of a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the tree of all readable parts is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let wanted = args.filter.wanted();
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context)?;
    let symbols = trace.symbols();
    let chosen = names::choose(&args.callers_of, &symbols, trace.info())?;
    let mut replay = Replay::new(trace.info(), &symbols, part.replay());
    let mut tree = CallTree::new(args.threads_apart);
    let mut threads = Vec::new();
    // Percentages are relative to all calls in the window, including those that are not shown.
    let all = Options {
        window: part.window(),
        ..Options::default()
    };
    let mut all = Replay::new(trace.info(), &symbols, all);
    let by_wall = || args.wall.then(ByWall::default);
    let mut whole = Whole {
        sum: Duration(0),
        by_wall: by_wall(),
    };
    let mut tree_by_wall = by_wall();
    let mut span = Span::default();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        if part.chooses_calls() {
            all.batch_to(info, batch, &mut whole);
        }
        let mut growing = Growing {
            tree: &mut tree,
            by_wall: &mut tree_by_wall,
            info,
            threads: &mut threads,
        };
        Ok(more(replay.batch_to(info, batch, &mut growing)))
    });
    let mut growing = Growing {
        tree: &mut tree,
        by_wall: &mut tree_by_wall,
        info: trace.info(),
        threads: &mut threads,
    };
    replay.finish_to(trace.info(), &mut growing);

    let whole = match part.chooses_calls() {
        true => {
            all.finish_to(trace.info(), &mut whole);
            whole.sum
        }
        false => tree.sums()[0],
    };
    let view = View::new(&tree);
    let names = Names::new(&symbols);
    let info = trace.info();
    let upward = args.callers || !args.callers_of.is_empty();
    let roots = if !args.callers_of.is_empty() {
        let identities = &info.identities;
        view.calls_of(|callee| {
            let name = names.callee(identities, callee);
            let code = match callee {
                Callee::Function(id) => identities.function(id).and_then(|it| symbols.code_of(it)),
                _ => None,
            };
            let mut chosen = chosen.iter();
            chosen.any(|choice| choice.matches(code.as_ref(), &name))
        })
    } else if args.callers {
        view.leaves()
    } else {
        view.roots()
    };
    let requested = !args.callers_of.is_empty() || part.chooses_by_function();
    let shown = match requested {
        true => roots.iter().fold(Duration(0), |sum, it| sum + it.below),
        false => whole,
    };
    let (out, palette) = context.out();
    let mut nodes = tree.nodes().iter();
    let mut printer = Printer {
        view: &view,
        upward,
        requested,
        whole,
        least: Duration((shown.0 as f64 * (args.min_share / 100.0).clamp(0.0, 1.0)) as u64),
        names: &names,
        info,
        threads: &threads,
        is_wall: args.wall || info.wall_times,
        has_bounds: nodes.any(|node| node.at_least && node.without_end < node.count),
        next: 0,
        cut: 0,
    };
    match args.format.format {
        Format::Text => printer.text(out, palette, &roots)?,
        Format::Json => printer.json(out, &roots)?,
    }
    let (cut, is_bounded) = (
        printer.cut,
        printer.has_bounds && args.format.format == Format::Text,
    );
    names.remark(&info.identities, context);
    if cut > 0 {
        context.note(format_args!(
            "what is below {} of {DEEPEST} levels is not shown",
            counted(cut, "line")
        ));
    }
    if tree.deeper() > 0 {
        context.note(format_args!(
            "stacks are told apart up to {TOLD_APART} calls: {} deeper, and in the lines (deeper calls)",
            are(tree.deeper(), "call")
        ));
    }
    if roots.is_empty() {
        match tree.nodes().len() {
            // Only the root.
            0..=1 => part.remark_no_calls(context),
            _ => context.note(format_args!(
                "there is no call of {} in this part of the trace",
                args.callers_of.join(", ")
            )),
        }
    }
    if is_bounded {
        context.note(
            "times marked ≥ are at least that: of some calls not all was seen, or is certain",
        );
    }
    let late = tree.late();
    if late > 0 {
        context.note(format_args!(
            "{} not in the tree, and what they called is not below them: of these the trace has the ends alone, with \
             their durations",
            are(late, "call")
        ));
    }
    if tree.orphans() > late {
        context.note(format_args!(
            "{} not in the tree: nobody saw them begin",
            are(tree.orphans() - late, "call")
        ));
    }
    let counts = replay.counts();
    if counts.losses > 0 {
        context.note(format_args!(
            "events were lost in {}: times are what is certain, and calls may be missing",
            counted(counts.losses, "place")
        ));
    } else if counts.losses_before > 0 {
        context
            .note("events were lost in front of this part: calls that began there may be missing");
    }
    read.and(remark_replay(&replay, span, context))?;
    trace.remark(context);
    trace.verdict()
}

/// The number of calls of a line; `None` for a thread or a space.
const fn calls(group: &Group) -> Option<u64> {
    match group.frame {
        Frame::Call(_) | Frame::Deeper => Some(group.count),
        Frame::Root | Frame::Space(_) | Frame::Track(_) => None,
    }
}

/// Writes lines of a view.
struct Printer<'p> {
    view: &'p View<'p>,
    upward: bool,
    /// Whether the topmost lines are requested functions.
    requested: bool,
    whole: Duration,
    /// Minimum time of the lines shown.
    least: Duration,
    names: &'p Names<'p>,
    info: &'p TraceInfo,
    /// The titles of threads, indexed by [`TrackId`].
    threads: &'p [Option<String>],
    /// Whether times have a column for marks, because some are lower bounds.
    has_bounds: bool,
    /// Whether times are wall times.
    is_wall: bool,
    /// The number of the next line in JSON.
    next: u64,
    /// Number of lines with further lines below that are too deep to be shown.
    cut: u64,
}

impl Printer<'_> {
    fn name(&self, frame: Frame) -> String {
        match frame {
            Frame::Call(callee) => self.names.callee(&self.info.identities, callee).to_string(),
            Frame::Space(space) => titles::space(self.info, space),
            Frame::Track(TrackId(track)) => {
                let title = self.threads.get(track as usize).cloned().flatten();
                title.unwrap_or_else(|| "(thread)".to_owned())
            }
            Frame::Deeper => "(deeper calls)".to_owned(),
            Frame::Root => String::new(),
        }
    }

    /// The lines below a line.
    fn below(&self, group: &Group) -> Vec<Group> {
        match self.upward {
            true => self.view.callers(group),
            false => self.view.callees(group),
        }
    }

    fn text(
        &mut self,
        out: &mut dyn Write,
        palette: &Palette,
        roots: &[Group],
    ) -> std::io::Result<()> {
        let (time, order) = match self.upward {
            true => ("TIME", "FUNCTION, AND BELOW IT ITS CALLERS"),
            false => ("TOTAL", "FUNCTION, AND BELOW IT WHAT IT CALLED"),
        };
        let heading = palette.heading;
        let mark = if self.has_bounds { " " } else { "" };
        writeln!(
            out,
            "{heading}{mark}{:>10}  {:>7}  {mark}{:>10}  {:>10}  {order}{}{heading:#}",
            time,
            "%",
            "SELF",
            "COUNT",
            unit::heading()
        )?;
        // Requested functions are shown even below the minimum share.
        let top = match self.requested {
            true => (roots.iter().rev().cloned().collect(), None),
            false => self.kept(roots.to_vec()),
        };
        // Groups yet to be written, by level, the first one last, with their indentation. A stack instead of recursion,
        // because traced stacks can be deeper than that of this process.
        let mut rest = vec![(top, String::new())];
        while let Some(((groups, left_out), indent)) = rest.last_mut() {
            let Some(group) = groups.pop() else {
                let line = left_out.take();
                if let Some((number, time)) = line {
                    let (time, indent) = (Human(time), indent.clone());
                    writeln!(
                        out,
                        "{mark}{time}  {:>7}  {mark}{:>10}  {:>10}  {indent}({number} more)",
                        "", "", ""
                    )?;
                }
                rest.pop();
                continue;
            };
            let is_last = groups.is_empty() && left_out.is_none();
            let indent = indent.clone();
            let mut name = self.name(group.frame);
            name = escaped(&name).into_owned();
            let function = palette.function;
            // The durations of all its calls are unknown.
            let is_timeless = group.without_end > 0 && group.total == Duration(0);
            let bounded = |time: Duration| match group.at_least {
                _ if is_timeless => format!("{mark}{:>12}", "-"),
                true => format!("≥{}", Human(time)),
                false => format!("{mark}{}", Human(time)),
            };
            let share = match is_timeless {
                true => "-".to_owned(),
                false => percent(group.total, self.whole),
            };
            writeln!(
                out,
                "{}  {share:>7}  {}  {:>10}  {indent}{function}{name}{function:#}",
                bounded(group.total),
                bounded(group.self_time),
                calls(&group).map_or("-".to_owned(), |count| count.to_string()),
            )?;
            if rest.len() >= DEEPEST {
                self.cut += u64::from(!self.below(&group).is_empty());
            } else {
                let below = match indent.strip_suffix("+- ") {
                    Some(before) if is_last => format!("{before}   +- "),
                    Some(before) => format!("{before}|  +- "),
                    None => "+- ".to_owned(),
                };
                rest.push((self.kept(self.below(&group)), below));
            }
        }
        Ok(())
    }

    /// The visible groups of a level, first one last, and the number of the others with their time.
    fn kept(&self, groups: Vec<Group>) -> (Vec<Group>, Option<(u64, Duration)>) {
        let is_shown = |group: &Group| group.below >= self.least;
        let (mut kept, small): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_shown);
        kept.reverse();
        let time = small.iter().fold(Duration(0), |sum, it| sum + it.total);
        let left_out = (!small.is_empty()).then_some((small.len() as u64, time));
        (kept, left_out)
    }

    /// Writes one object a line; callees have the number of their caller's line. The sum of lines that are not shown
    /// is part of the line above them, and for topmost lines an object of its own.
    fn json(&mut self, out: &mut dyn Write, roots: &[Group]) -> std::io::Result<()> {
        let (top, left_out) = match self.requested {
            true => (roots.iter().rev().cloned().collect(), None),
            false => self.kept(roots.to_vec()),
        };
        self.json_below(out, top, None, 0)?;
        if let Some((number, time)) = left_out {
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object
                .member("left_out", number)
                .member("left_out_ns", time);
            object.end();
            unit::name_members(&mut line);
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Writes the lines of groups, first one last, and those below them.
    fn json_below(
        &mut self,
        out: &mut dyn Write,
        groups: Vec<Group>,
        parent: Option<u64>,
        depth: usize,
    ) -> std::io::Result<()> {
        for group in groups.iter().rev() {
            let id = self.next;
            self.next += 1;
            let name = self.name(group.frame);
            let below = self.below(group);
            let is_cut = depth >= DEEPEST;
            self.cut += u64::from(is_cut && !below.is_empty());
            let (below, left_out) = match is_cut {
                true => (Vec::new(), None),
                false => self.kept(below),
            };
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object
                .member("id", id)
                .member("parent", parent)
                .member("depth", depth as u64)
                .member("function", name.as_str())
                .member("count", calls(group))
                .member("total_ns", group.total)
                .member("self_ns", group.self_time)
                .member("longest_ns", calls(group).map(|_| group.longest))
                .member("at_least", group.at_least);
            if self.is_wall {
                object.member("by_wall", true);
            }
            if group.without_end > 0 {
                object.member("without_end", group.without_end);
            }
            if let Frame::Call(Callee::Function(id)) = group.frame
                && let Some(address) = self.info.identities.function(id).and_then(|it| it.address)
            {
                object.member("address", address);
            }
            if let Some((number, time)) = left_out {
                object
                    .member("left_out", number)
                    .member("left_out_ns", time);
            }
            object.end();
            unit::name_members(&mut line);
            line.push(b'\n');
            out.write_all(&line)?;
            self.json_below(out, below, Some(id), depth + 1)?;
        }
        Ok(())
    }
}
