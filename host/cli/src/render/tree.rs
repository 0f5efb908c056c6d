//! Text output that looks like C: calls with their nesting and their durations.
//!
//! ```text
//!        TIME [s]    DURATION  CPU  THREAD   CALLS
//!     0.000012000                0  main     | lua_pcall() {
//!     0.000013000    1.250 us    0  main     |   luaD_call();
//!     0.000015000                0  SysTick  |   ==> SysTick (irq 15) {
//!     0.000015100    0.900 us    0  SysTick  |     tick();
//!     0.000016200    1.200 us    0  SysTick  |   } <== SysTick
//!     0.000017000    3.800 us    0  main     | } /* lua_pcall */
//! ```
//!
//! The time of a line is that of the begin for a call on one line or an opened block, and that of the end for `}`.
//! Every actor (thread, interrupt) has its own indentation; an interrupt continues that of the code it interrupts.
//! Uncertain facts are comments or have a mark: a `?` behind a duration means that it may be wrong, because events
//! were lost or the end of the call was inferred.
//!
//! If a clock ran ahead and stepped back, times are shown as recorded, and durations as they were: the times of the
//! steps have been repaired before, and each step has the distance by which it was moved ([`Tree::moved`]). A call with
//! only one moved end has a `?`.
//!
//! Whether a call fits on one line (`f();`) is known only from the next step. [`Tree`] looks ahead by one step in
//! each stream for this ([`lines`](super::lines)).

mod actors;
pub mod comment;
mod front;
mod line;
mod switches;

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

use kymo_analysis::calls::{Begin, CallId, Callee, End, How, Repair, Step, TrackId};
use kymo_analysis::clock_repair::RECORDED;
use kymo_analysis::replay::Origin;
use kymo_analysis::titles;
use kymo_event::{
    Caller, Cpu, EventKind, EventRef, FunctionId, Identities, StreamId, Time, TraceInfo,
};

use super::duration::WIDTH;
use super::lines::LineBuffer;
use super::palette::{Palette, paint, paint_with};
use super::times::Times;
use crate::names::Names;
use actors::Actors;
use comment::{is_remarkable, remark, remark_event};
use front::Front;
use line::{BLANK, FOLDED, LEAF, column, wide_column};
use switches::{Idles, Left};

/// Options of the tree.
#[derive(Debug, Default)]
pub struct TreeOptions {
    /// Omit the function's name at its return.
    pub no_annotation: bool,
    /// Only some calls are shown: thread switches without visible calls are omitted.
    pub some_calls: bool,
    /// Only some threads are shown: of a switch, only the thread that gets the processor is known.
    pub some_threads: bool,
    /// Maximum number of levels; an interrupt continues the levels of the code it interrupts.
    pub depth: Option<u32>,
    /// Show wall times instead of the time in which the call's thread had its processor.
    pub wall: bool,
    /// Format of times.
    pub times: Times,
}

/// Writes steps as text. See the [module](self).
pub struct Tree<'a> {
    out: &'a mut dyn Write,
    palette: Palette,
    options: TreeOptions,
    page: Page,
    functions: Functions<'a>,
    /// The delay between the next step and its recorded time, in nanoseconds.
    moved: i64,
    /// The same for the begins of open calls, unless it is 0.
    begins_moved: HashMap<CallId, i64>,
    /// The caller of the call that began last, where the source records it.
    caller: Option<Caller>,
    idles: Idles,
}

/// Parts from which lines are composed.
struct Page {
    lines: LineBuffer,
    times: Times,
    actors: Actors,
    /// Whether there is a processor column, which is omitted where streams belong to threads.
    cpus: bool,
}

/// Formatted names of functions.
struct Functions<'a> {
    names: &'a Names<'a>,
    palette: Palette,
    /// Indexed by [`FunctionId`].
    written: Vec<Option<Written>>,
}

/// The formatted name of a function: escaped and painted once, for all its lines.
#[derive(Default)]
struct Written {
    /// At a call: `f()`.
    call: String,
    /// At the end of a block: `} /* f */`.
    end: String,
}

/// Position of a line: time, processor, track and indentation.
#[derive(Clone, Copy)]
struct Place {
    time: Time,
    /// The processor; if `None`, that of the track or of the stream.
    cpu: Option<Cpu>,
    track: Option<TrackId>,
    /// Levels of indentation.
    indent: u32,
}

impl<'a> Tree<'a> {
    /// A tree that writes to `out`; `info` describes the threads and processors.
    pub fn new(
        out: &'a mut dyn Write,
        palette: &Palette,
        info: &TraceInfo,
        names: &'a Names<'a>,
        options: TreeOptions,
    ) -> Self {
        Self {
            out,
            palette: *palette,
            page: Page {
                lines: LineBuffer::default(),
                times: options.times.clone(),
                actors: Actors::new(info, palette.actor),
                cpus: info.shows_cpus(),
            },
            functions: Functions {
                names,
                palette: *palette,
                written: Vec::new(),
            },
            options,
            moved: 0,
            begins_moved: HashMap::new(),
            caller: None,
            idles: Idles::new(info.idle_is_no_thread),
        }
    }

    /// The time at which an event was recorded.
    const fn recorded(&self, time: Time) -> Time {
        Time(time.0.saturating_add(self.moved))
    }

    /// Writes the headings of the columns.
    ///
    /// # Errors
    /// Those of writing.
    pub fn heading(&mut self) -> io::Result<()> {
        let heading = self.palette.heading;
        let cpu = if self.page.cpus { "  CPU" } else { "" };
        writeln!(
            self.out,
            "{heading}{}  {:>WIDTH$} {cpu}  {:<actor$}  CALLS{heading:#}",
            self.page.times.heading(),
            "DURATION",
            "THREAD",
            actor = self.page.actors.width(),
        )
    }

    /// Adds the threads and processors that the trace has gained since. Must be called before the steps of a batch.
    pub fn learn(&mut self, info: &TraceInfo) {
        self.page.actors.learn(info);
    }

    /// Writes a step; `origin` is the event that it results from, or `None` at the end of the trace.
    ///
    /// # Errors
    /// Those of writing.
    #[inline(always)]
    pub fn step(
        &mut self,
        identities: &Identities,
        origin: Option<Origin>,
        step: &Step<'_>,
    ) -> io::Result<()> {
        self.moved = origin.map_or(0, |origin| origin.moved);
        // An end that results from another stream's event is shown where the call was last seen, because recording is
        // turned off on all processors at once.
        let stream = match (step, origin) {
            (Step::End(end), _) if !ends_by_itself(end.how) => {
                self.page.actors.last_stream(end.track)
            }
            (_, Some(origin)) => origin.stream,
            (_, None) => return Ok(()),
        };
        if !self.idles.is_empty() {
            self.show_idle(stream, step)?;
        }
        match step {
            Step::Track { track, info } => {
                self.page.actors.know(*track, info, identities);
                Ok(())
            }
            Step::Begin(begin) => self.begin(stream, begin, identities),
            Step::End(end) => self.end(stream, end, identities),
            Step::State {
                track,
                time,
                cpu,
                running: true,
                recorded,
            } => self.switch(stream, *track, *time, *cpu, *recorded),
            Step::State {
                track, time, cpu, ..
            } => self.idles.leave(Left {
                stream,
                track: *track,
                time: *time,
                recorded: self.recorded(*time),
                cpu: *cpu,
            }),
            Step::Event { track, event } => self.event(stream, *track, *event),
            _ => Ok(()),
        }
    }

    /// Writes the lines that were held back. Must be called at the end of the trace.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(&mut self) -> io::Result<()> {
        for left in self.idles.take(|_| true) {
            self.idle(left)?;
        }
        self.page.lines.settle();
        self.page.lines.write(self.out)
    }

    /// Flushes all lines that are not held back.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.page.lines.write(self.out)?;
        self.out.flush()
    }

    fn begin(
        &mut self,
        stream: StreamId,
        begin: &Begin,
        identities: &Identities,
    ) -> io::Result<()> {
        if matches!(begin.callee, Callee::Interrupt(_)) {
            self.page.actors.interrupt(stream, begin.track);
        }
        if self.moved != 0 {
            self.begins_moved.insert(begin.call, self.moved);
        }
        let Some(actor) = self.page.actors.appear(stream, begin.track) else {
            return Ok(());
        };
        actor.open = begin.depth.saturating_add(1);
        self.caller = begin.caller;
        let indent = actor.base.saturating_add(begin.depth);
        if self.is_too_deep(indent) {
            return Ok(());
        }
        let place = Place {
            time: self.recorded(begin.time),
            cpu: None,
            track: Some(begin.track),
            indent,
        };
        let rare;
        let callee: &str = match begin.callee {
            Callee::Function(id) => &self.functions.written(id, identities).call,
            _ => {
                rare = self.callee(begin.callee, begin.track, identities);
                &rare
            }
        };
        let (text, begins, column) = self.page.line(stream, place);
        text.extend_from_slice(callee.as_bytes());
        let lines = &mut self.page.lines;
        lines.hold(stream, begin.call, begins, column);
        lines.write_some(self.out)
    }

    fn end(&mut self, stream: StreamId, end: &End, identities: &Identities) -> io::Result<()> {
        let begin_moved = match self.begins_moved.is_empty() {
            true => 0,
            false => self.begins_moved.remove(&end.call).unwrap_or(0),
        };
        let Some(actor) = self.page.actors.appear(stream, end.track) else {
            return Ok(());
        };
        actor.open = end.depth;
        let (is_span, indent) = (actor.is_span(), actor.base.saturating_add(end.depth));
        if matches!(end.callee, Callee::Interrupt(_)) {
            self.page.actors.resume(stream, end.track);
        }
        if self.is_too_deep(indent) {
            return Ok(());
        }
        let duration = if self.options.wall {
            end.wall
        } else {
            end.duration
        };
        let doubt = end.doubt.any()
            || matches!(end.how, How::Repaired(_))
            || (begin_moved != self.moved && end.begin.is_some());
        let usual = duration.and_then(|duration| column(duration, doubt));
        let wide;
        let column: Option<&[u8]> = match (&usual, duration) {
            (Some(usual), _) => Some(usual),
            (None, Some(duration)) => {
                wide = wide_column(duration, doubt);
                Some(&wide)
            }
            (None, None) => None,
        };
        let lines = &mut self.page.lines;
        if let Some(ending) = lines.release(stream, end.call, column) {
            // Its callees are not shown, but the fact that it has some is.
            let deep = !is_span && end.self_time != end.duration;
            ending.extend_from_slice(if deep { FOLDED } else { LEAF });
            let remark = match (end.how, self.caller) {
                // Its end came with its begin.
                (How::NoEnd, Some(caller)) => {
                    let caller = self.functions.names.function(identities, caller.function);
                    Some((self.palette.dim, format!("called by {caller}")))
                }
                _ if !is_remarkable(end) => None,
                _ => remark(end).map(|remark| (self.palette.warning, remark.into_owned())),
            };
            if let Some((style, remark)) = remark {
                let mut text = "  ".to_owned();
                paint(&mut text, style, &format!("/* {remark} */"));
                ending.extend_from_slice(text.as_bytes());
            }
            ending.push(b'\n');
            return lines.write_some(self.out);
        }
        let place = Place {
            time: self.recorded(end.time),
            cpu: None,
            track: Some(end.track),
            indent,
        };
        let rare;
        let closing: &str = match end.callee {
            Callee::Function(id) if !self.options.no_annotation && !is_remarkable(end) => {
                &self.functions.written(id, identities).end
            }
            _ => {
                rare = self.closing(end, identities);
                &rare
            }
        };
        let (text, _, place) = self.page.line(stream, place);
        text.extend_from_slice(closing.as_bytes());
        if let Some(column) = column {
            self.page.lines.fill(place, column);
        }
        self.page.end(self.out)
    }

    /// The remark at the end of a call of several lines, if it is more than the name, or less.
    fn closing(&self, end: &End, identities: &Identities) -> String {
        let mut text = String::new();
        let Palette {
            dim,
            warning,
            actor,
            ..
        } = self.palette;
        if end.how != How::Open {
            text.push('}');
        }
        let remark = remark(end);
        if let Callee::Interrupt(_) = end.callee {
            text.push_str(" <== ");
            paint(&mut text, actor, self.actor_name(end.track));
            if let Some(remark) = remark {
                text.push_str("  ");
                paint(&mut text, warning, &format!("/* {remark} */"));
            }
            return text;
        }
        // The indentation does not identify an orphan or an open call.
        let alone = matches!(end.how, How::Orphan | How::Open);
        let function = match end.callee {
            _ if !alone && self.options.no_annotation => None,
            Callee::Function(id) => Some(self.functions.names.function(identities, id)),
            _ => Some(UNKNOWN.into()),
        };
        let (style, comment) = match (function, remark) {
            (Some(function), Some(remark)) => (warning, format!("/* {function}: {remark} */")),
            (Some(function), None) => (dim, format!("/* {function} */")),
            (None, Some(remark)) => (warning, format!("/* {remark} */")),
            (None, None) => return text,
        };
        if end.how != How::Open {
            text.push(' ');
        }
        paint(&mut text, style, &comment);
        text
    }

    fn event(
        &mut self,
        stream: StreamId,
        track: Option<TrackId>,
        seen: EventRef<'_>,
    ) -> io::Result<()> {
        let Palette {
            warning,
            marker,
            dim,
            ..
        } = self.palette;
        // Marks of jumps and timestamp events have no line.
        let Some(event) = seen.event else {
            return Ok(());
        };
        let style = match &event.kind {
            EventKind::Gap(_) => warning,
            EventKind::Recording { .. } => dim,
            // The value of a counter at the begin of the window.
            EventKind::Counter { .. } if !event.record => return Ok(()),
            EventKind::Marker { .. } | EventKind::Counter { .. } => marker,
            // An event that only ends a source has no line either.
            EventKind::Other if event.name.is_empty() => return Ok(()),
            EventKind::Other | EventKind::Ready { .. } => dim,
            // Names are in their column already. Priorities and timestamp events are shown only in the list of
            // events.
            _ => return Ok(()),
        };
        // The time shown here is the recorded one.
        let stripped;
        let event = match self.moved {
            0 => event,
            _ => {
                let mut copy = event.clone();
                copy.fields.retain(|field| field.name != RECORDED);
                stripped = copy;
                &stripped
            }
        };
        let open = track.and_then(|track| self.page.actors.get(track));
        let indent = match (&event.kind, open) {
            // Gaps and changes of recording affect everything shown.
            (EventKind::Gap(_) | EventKind::Recording { .. }, _) | (_, None) => 0,
            (_, Some(actor)) => actor.base.saturating_add(actor.open),
        };
        if self.is_too_deep(indent) {
            return Ok(());
        }
        // Events lost on a processor may belong to any thread.
        let of_cpu = self.page.cpus && matches!(event.kind, EventKind::Gap(_));
        let place = Place {
            time: self.recorded(event.time),
            cpu: event.cpu.or_else(|| self.page.actors.stream_cpu(stream)),
            track: track.filter(|_| !of_cpu),
            indent,
        };
        let mut comment = String::new();
        paint_with(&mut comment, style, |text| remark_event(event, text));
        // An event within a call opens its block, although a thread's items have a stream of their own.
        let stream = match (&event.kind, track) {
            (EventKind::Gap(_), _) | (_, None) => stream,
            (_, Some(track)) => self.page.actors.last_stream(track),
        };
        let (text, ..) = self.page.line(stream, place);
        text.extend_from_slice(comment.as_bytes());
        self.page.end(self.out)
    }

    fn is_too_deep(&self, indent: u32) -> bool {
        self.options.depth.is_some_and(|most| indent >= most)
    }

    /// A callee that is not a named function, formatted as a call: `==> SysTick (irq 15)`.
    fn callee(&self, callee: Callee, track: TrackId, identities: &Identities) -> String {
        let mut text = String::new();
        match callee {
            Callee::Interrupt(id) => {
                let name = self.actor_name(track);
                let number = titles::interrupt_number(identities, id);
                text.push_str("==> ");
                paint(&mut text, self.palette.actor, name);
                if *name != number {
                    text.push_str(&format!(" ({number})"));
                }
            }
            Callee::Unknown | Callee::Function(_) => {
                paint(&mut text, self.palette.function, UNKNOWN);
                text.push_str("()");
            }
        }
        text
    }

    fn actor_name(&self, track: TrackId) -> &str {
        self.page.actors.get(track).map_or("", |actor| &actor.name)
    }
}

impl Page {
    /// Begins a line of a stream with the columns in front of calls. Returns the text to append to, the line's begin
    /// in it, and its duration column.
    #[inline]
    fn line(&mut self, stream: StreamId, place: Place) -> (&mut Vec<u8>, usize, Range<usize>) {
        let text = self.lines.begin(stream);
        let begin = text.len();
        let stream_cpu = match (self.cpus, place.cpu) {
            (true, None) => self.actors.stream_cpu(stream),
            _ => None,
        };
        let blank;
        let front = match place.track.and_then(|track| self.actors.get_mut(track)) {
            Some(actor) => {
                let cpu = place.cpu.or(actor.cpu()).or(stream_cpu);
                actor.front(&self.times, place.time, self.cpus.then_some(cpu))
            }
            None => {
                let cpu = self.cpus.then_some(place.cpu.or(stream_cpu));
                let nobody = " ".repeat(self.actors.width());
                blank = Front::new(&self.times, place.time, cpu, &nobody);
                &blank
            }
        };
        front.push(place.indent, text);
        let column = begin + front.column();
        (text, begin, column..column + BLANK.len())
    }

    /// Ends the current line.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.end();
        self.lines.write_some(out)
    }
}

impl Functions<'_> {
    /// The formatted name of a function.
    #[inline]
    fn written(&mut self, id: FunctionId, identities: &Identities) -> &Written {
        let index = id.0 as usize;
        if !matches!(self.written.get(index), Some(Some(_))) {
            self.write(id, identities);
        }
        self.written[index].get_or_insert_default()
    }

    #[cold]
    fn write(&mut self, id: FunctionId, identities: &Identities) {
        let name = self.names.function(identities, id);
        let (mut call, mut end) = (String::new(), "} ".to_owned());
        paint(&mut call, self.palette.function, &name);
        // A demangled C++ name already has its parameters.
        if !name.ends_with(')') {
            call.push_str("()");
        }
        paint(&mut end, self.palette.dim, &format!("/* {name} */"));
        let index = id.0 as usize;
        if self.written.len() <= index {
            self.written.resize_with(index + 1, || None);
        }
        self.written[index] = Some(Written { call, end });
    }
}

/// The name of a function that the trace does not name.
const UNKNOWN: &str = "an unknown function";

/// Whether an end results from an event of the call's own thread.
fn ends_by_itself(how: How) -> bool {
    match how {
        How::Returned | How::Orphan | How::Jumped | How::NoEnd | How::Repaired(Repair::Unwound) => {
            true
        }
        How::RecordingOff | How::Open | How::Repaired(Repair::Lost) => false,
    }
}
