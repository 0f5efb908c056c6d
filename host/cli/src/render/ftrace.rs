//! Calls in the output format of ftrace: the layouts of its tracers `function_graph`, with absolute times and tasks,
//! and `function_duration`, which has one line per call, at its end.
//!
//! ```text
//! #     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
//! #      |          |     |    |           |   |                     |   |   |   |
//!    60.702471 |   1)     ls-113     |               |        putname() {
//!    60.702473 |   1)     ls-113     |   1.642 us    |          kmem_cache_free();
//!    60.702475 |   1)     ls-113     |   4.176 us    |        } /* putname */
//! ```
//!
//! Durations are wall times, as in ftrace. A mark before one shows its magnitude: `+` more than 10 us, `!` 100 us,
//! `#` 1 ms, `*` 10 ms, `@` 100 ms, `$` 1 s.
//! (Linux, kernel/trace/trace_functions_graph.c; for function_duration the patches of Tim Bird.)

use std::io::{self, Write};
use std::ops::Range;
use std::rc::Rc;

use kymo_analysis::calls::{Callee, End, How, Repair, Step, TrackId, TrackInfo, TrackKind};
use kymo_analysis::replay::Origin;
use kymo_event::{Cpu, Duration, EventKind, EventRef, Identities, StreamId, ThreadId, Time};

use super::escape::escaped;
use super::lines::LineBuffer;
use super::tree::comment::remark_event;
use crate::names::Names;

/// The tracer whose layout is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    FunctionGraph,
    FunctionDuration,
}

/// Width of a task: its name and number, with half of the padding before it.
const TASK: usize = 14;
/// Number of characters shown of its name.
const COMM: usize = 7;
/// The duration column of a line without one.
const NO_DURATION: &str = "              ";

/// Writes steps in the layout of a tracer.
pub struct Ftrace<'a> {
    out: &'a mut dyn Write,
    names: &'a Names<'a>,
    tracer: Tracer,
    /// Omit the function's name at its return.
    no_annotation: bool,
    /// Indexed by [`TrackId`].
    tracks: Vec<Track>,
    /// The thread that was shown last, per processor.
    shown: Vec<(Option<Cpu>, String)>,
    lines: LineBuffer,
    /// Number of calls without a line, because their durations are unknown.
    left_out: u64,
}

#[derive(Clone, Default)]
struct Track {
    info: Option<TrackInfo>,
    cpu: Option<Cpu>,
    /// The thread of the track; for an interrupt, the interrupted thread.
    thread: Option<ThreadId>,
    base: u32,
    open: u32,
}

impl<'a> Ftrace<'a> {
    /// A writer to `out`.
    pub fn new(
        out: &'a mut dyn Write,
        names: &'a Names<'a>,
        tracer: Tracer,
        no_annotation: bool,
    ) -> Self {
        Self {
            out,
            names,
            tracer,
            no_annotation,
            tracks: Vec::new(),
            shown: Vec::new(),
            lines: LineBuffer::default(),
            left_out: 0,
        }
    }

    /// Writes the tracer's heading.
    ///
    /// # Errors
    /// Those of writing.
    pub fn heading(&mut self) -> io::Result<()> {
        self.out.write_all(match self.tracer {
            Tracer::FunctionGraph => {
                b"# tracer: function_graph
#
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
"
            }
            Tracer::FunctionDuration => {
                b"# tracer: function_duration
#
# CPU  TASK/PID        CALLTIME       DURATION                  FUNCTION CALLS
# |    |    |            |              |   |                     |   |   |   |
"
            }
        })
    }

    /// Writes a step.
    ///
    /// # Errors
    /// Those of writing.
    pub fn step(
        &mut self,
        identities: &Identities,
        origin: Option<Origin>,
        step: &Step<'_>,
    ) -> io::Result<()> {
        let stream = origin.map_or(StreamId::default(), |origin| origin.stream);
        match step {
            Step::Track { track, info } => {
                let known = self.track(*track);
                known.info = Some(*info);
                known.cpu = known.cpu.or(info.cpu);
                known.thread = info.thread().or(known.thread);
            }
            Step::State {
                track,
                cpu,
                running: true,
                ..
            } => {
                let known = self.track(*track);
                known.cpu = cpu.or(known.cpu);
            }
            Step::Begin(begin) => {
                let base = match begin.callee {
                    Callee::Interrupt(_) => self.interrupted(begin.thread, begin.cpu),
                    _ => self.track(begin.track).base,
                };
                let known = self.track(begin.track);
                known.cpu = begin.cpu.or(known.cpu);
                known.thread = begin.thread.or(known.thread);
                (known.base, known.open) = (base, begin.depth + 1);
                if self.tracer == Tracer::FunctionDuration {
                    return Ok(());
                }
                let indent = base + begin.depth;
                let name = self.name(begin.callee, identities);
                let place = (begin.track, begin.time, stream);
                let (begins, column) =
                    self.line(place, identities, None, indent, &format!("{name}()"));
                self.lines.hold(stream, begin.call, begins, column);
            }
            Step::End(end) => self.end(end, stream, identities)?,
            Step::Event { track, event } => self.event(*track, *event, stream, identities)?,
            _ => {}
        }
        self.lines.write_some(self.out)
    }

    /// Writes the lines that were held back. Must be called at the end of the trace.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(&mut self) -> io::Result<()> {
        self.lines.settle();
        self.lines.write(self.out)
    }

    /// The number of calls that this layout can't show, because their durations are unknown.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Flushes all lines that are not held back.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.lines.write(self.out)?;
        self.out.flush()
    }

    fn end(&mut self, end: &End, stream: StreamId, identities: &Identities) -> io::Result<()> {
        let known = self.track(end.track);
        known.open = end.depth;
        let indent = known.base + end.depth;
        let name = self.name(end.callee, identities);
        if self.tracer == Tracer::FunctionDuration {
            let (Some(begin), Some(wall)) = (end.began(), end.wall) else {
                self.left_out += 1;
                return Ok(());
            };
            let cpu = cpu(self.track(end.track).cpu);
            let task = self.task(end.track, identities);
            let (seconds, rest) = split(begin, 1_000_000_000);
            let (column, text) = match has_exit(end) {
                true => (duration(Some(wall)), format!("{name}{}", remark(end))),
                false => (duration(None), unfinished(end, &name)),
            };
            let line = format!(
                " {cpu}) {task} | {seconds:>5}.{rest:09} |  {column}|  {:width$}{text}\n",
                "",
                width = 2 * indent as usize
            );
            return self.out.write_all(line.as_bytes());
        }
        let tail = remark(end);
        if !has_exit(end) {
            let place = (end.track, end.time, stream);
            self.line(place, identities, None, indent + 1, &unfinished(end, &name));
            self.lines.end();
            return Ok(());
        }
        let column = duration(end.wall);
        let held = self
            .lines
            .release(stream, end.call, Some(column.as_bytes()));
        if let Some(ending) = held {
            ending.extend_from_slice(format!(";{tail}\n").as_bytes());
            return Ok(());
        }
        let alone = end.begin.is_none() || end.how != How::Returned;
        let text = match self.no_annotation && !alone {
            true => "}".to_owned(),
            false => format!("}} /* {name} */{tail}"),
        };
        let place = (end.track, end.time, stream);
        self.line(place, identities, end.wall, indent, &text);
        self.lines.end();
        Ok(())
    }

    fn event(
        &mut self,
        track: Option<TrackId>,
        event: EventRef<'_>,
        stream: StreamId,
        identities: &Identities,
    ) -> io::Result<()> {
        let Some(whole) = event.event.filter(|_| self.tracer == Tracer::FunctionGraph) else {
            return Ok(());
        };
        if let EventKind::Gap(gap) = &whole.kind {
            let lost = gap
                .lost_events()
                .map_or("SOME".to_owned(), |lost| lost.to_string());
            // Earlier lines must come first.
            self.lines.settle();
            let line = format!("CPU:{} [LOST {lost} EVENTS]", cpu(whole.cpu));
            self.lines.begin(stream).extend_from_slice(line.as_bytes());
            self.lines.end();
            return Ok(());
        }
        let is_shown = matches!(
            whole.kind,
            EventKind::Marker { .. }
                | EventKind::Counter { .. }
                | EventKind::Other
                | EventKind::Ready { .. }
        );
        let Some(track) = track.filter(|_| is_shown) else {
            return Ok(());
        };
        let mut text = String::new();
        remark_event(whole, &mut text);
        let indent = self.track(track).base + self.track(track).open;
        let place = (track, whole.time, stream);
        self.line(place, identities, None, indent, &text);
        self.lines.end();
        Ok(())
    }

    /// Begins a line, after a note of a switch if the processor has another thread now. Returns the line's begin, and
    /// its duration column.
    fn line(
        &mut self,
        (track, time, stream): (TrackId, Time, StreamId),
        identities: &Identities,
        shown: Option<Duration>,
        indent: u32,
        text: &str,
    ) -> (usize, Range<usize>) {
        let of = self.track(track).cpu;
        let (cpu, task) = (cpu(of), self.task(track, identities));
        let place = self.shown.iter().position(|(shown, _)| *shown == of);
        let before = match place {
            Some(place) => Some(std::mem::replace(&mut self.shown[place].1, task.clone())),
            None => {
                self.shown.push((of, task.clone()));
                None
            }
        };
        let (seconds, rest) = split(time, 1_000_000_000);
        let lines = self.lines.begin(stream);
        if let Some(before) = before.filter(|before| *before != task) {
            let line = "------------------------------------------";
            let switch = format!(" {line}\n {cpu}) {before} => {task}\n {line}\n\n");
            lines.extend_from_slice(switch.as_bytes());
        }
        let begin = lines.len();
        let front = format!("{seconds:>5}.{:06} |  {cpu:>2}) {task} | ", rest / 1_000);
        lines.extend_from_slice(front.as_bytes());
        let column = lines.len();
        lines.extend_from_slice(duration(shown).as_bytes());
        let column = column..lines.len();
        let width = 2 * indent as usize;
        lines.extend_from_slice(format!("|  {:width$}{text}", "").as_bytes());
        (begin, column)
    }

    /// The depth of the calls that an interrupt preempts.
    fn interrupted(&self, thread: Option<ThreadId>, cpu: Option<Cpu>) -> u32 {
        let of = |track: &&Track| match (thread, track.info.map(|info| info.kind)) {
            (Some(_), Some(TrackKind::Thread { thread: of })) => of == thread,
            (None, Some(TrackKind::Thread { .. })) => cpu.is_some() && track.cpu == cpu,
            _ => false,
        };
        let found = self.tracks.iter().find(of);
        found.map_or(0, |track| track.base + track.open)
    }

    fn task(&mut self, track: TrackId, identities: &Identities) -> String {
        let (name, number) = match self.track(track).thread {
            Some(thread) => (
                identities.thread_name(thread).unwrap_or("<...>").to_owned(),
                identities.tid(thread).0.to_string(),
            ),
            None => ("<...>".to_owned(), "0".to_owned()),
        };
        let name: String = escaped(&name).chars().take(COMM).collect();
        let text = format!("{name}-{number}");
        let spaces = TASK.saturating_sub(text.chars().count());
        let before = spaces / 2;
        format!("{:before$}{text}{:after$}", "", "", after = spaces - before)
    }

    fn name(&self, callee: Callee, identities: &Identities) -> Rc<str> {
        let name = self.names.callee(identities, callee);
        match escaped(&name) {
            std::borrow::Cow::Borrowed(_) => name,
            std::borrow::Cow::Owned(name) => name.into(),
        }
    }

    fn track(&mut self, track: TrackId) -> &mut Track {
        let index = track.0 as usize;
        if self.tracks.len() <= index {
            self.tracks.resize(index + 1, Track::default());
        }
        &mut self.tracks[index]
    }
}

/// A processor's number; `-` if unknown.
fn cpu(cpu: Option<Cpu>) -> String {
    cpu.map_or("-".to_owned(), |cpu| cpu.to_string())
}

/// Whether the end of a call is in the trace. Otherwise no line may look like its exit with a duration when the text
/// is read back.
const fn has_exit(end: &End) -> bool {
    !matches!(
        end.how,
        How::Open | How::RecordingOff | How::Repaired(Repair::Lost)
    )
}

/// The comment that replaces an exit.
fn unfinished(end: &End, name: &str) -> String {
    let why = super::tree::comment::remark(end).unwrap_or_default();
    format!("/* {name}(): {why} */")
}

/// How a call ended, unless it returned.
fn remark(end: &End) -> String {
    match super::tree::comment::remark(end) {
        Some(remark) => format!(" /* {remark} */"),
        None => String::new(),
    }
}

fn split(time: Time, unit: u64) -> (i64, u64) {
    let unit = i64::try_from(unit).unwrap_or(i64::MAX);
    (
        time.0.div_euclid(unit),
        time.0.rem_euclid(unit).unsigned_abs(),
    )
}

/// A duration with its mark: at most seven digits, of which three are nanoseconds if they fit.
fn duration(duration: Option<Duration>) -> String {
    let Some(Duration(ns)) = duration else {
        return NO_DURATION.to_owned();
    };
    let mark = match ns {
        1_000_000_001.. => '$',
        100_000_001.. => '@',
        10_000_001.. => '*',
        1_000_001.. => '#',
        100_001.. => '!',
        10_001.. => '+',
        _ => ' ',
    };
    let mut digits = (ns / 1_000).to_string();
    if digits.len() < 7 {
        let room = (7 - digits.len()).min(3);
        let nanoseconds = format!("{:03}", ns % 1_000);
        digits = format!("{digits}.{}", nanoseconds.get(..room).unwrap_or_default());
    }
    let spaces = 8usize.saturating_sub(digits.len());
    format!("{mark} {digits} us {:spaces$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_kernel_does() {
        let shown = |ns| format!("{}|", duration(Some(Duration(ns))));
        assert_eq!(shown(542), "  0.542 us    |");
        assert_eq!(shown(10_000), "  10.000 us   |");
        assert_eq!(shown(56_003), "+ 56.003 us   |");
        assert_eq!(shown(104_646), "! 104.646 us  |");
        assert_eq!(shown(1_126_734), "# 1126.734 us |");
        assert_eq!(shown(12_345_678), "* 12345.67 us |");
        assert_eq!(shown(123_456_789), "@ 123456.7 us |");
        assert_eq!(shown(1_234_567_891), "$ 1234567 us  |");
        assert_eq!(duration(None).len(), shown(542).len() - 1);
    }
}
