//! The trace as text that looks like C: calls with their nesting and their durations.
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
//! A line stands at the moment at which it begins to be true: a call that is one line at its
//! beginning, `}` at the end. Every actor (thread, interrupt) has its own indentation; an interrupt
//! continues that of what it interrupts. Whatever the trace does not tell for sure is a comment or
//! has a mark: a `?` behind a duration says that it may be wrong, because something was lost or
//! the end of the call was inferred.
//!
//! Where a clock ran ahead and stepped back, times are those that were recorded, and durations those that
//! passed: the times of the steps have been repaired before, and each has how far it was moved
//! ([`Tree::moved`]). A call of which only the one end was moved has a `?`.
//!
//! Whether a call is one line (`f();`) is known only when the next thing happens. [`Tree`] looks
//! ahead for that by one step in each stream ([`lines`](super::lines)).

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

/// How to show a trace.
#[derive(Debug, Default)]
pub struct TreeOptions {
    /// Leave out the function's name at its return.
    pub no_annotation: bool,
    /// Only some calls are shown: switches of threads that show none are left out.
    pub some_calls: bool,
    /// Only some threads are shown: of a switch, only the thread that gets the processor is known.
    pub some_threads: bool,
    /// So many levels are shown: an interrupt continues those of what it cuts into.
    pub depth: Option<u32>,
    /// Show durations by the clock on the wall, instead of the time in which the call's thread had
    /// its processor.
    pub wall: bool,
    /// What times are shown as.
    pub times: Times,
}

/// Writes steps as text. See the [module](self).
pub struct Tree<'a> {
    out: &'a mut dyn Write,
    palette: Palette,
    options: TreeOptions,
    page: Page,
    functions: Functions<'a>,
    /// How much later than it happened the next step was recorded, in nanoseconds.
    moved: i64,
    /// The same of the begins of open calls, where it is anything.
    begins_moved: HashMap<CallId, i64>,
    /// Who made the call that began last, where its source says so.
    caller: Option<Caller>,
    idles: Idles,
}

/// What lines are put together of.
struct Page {
    lines: LineBuffer,
    times: Times,
    actors: Actors,
    /// Whether there is a column for the processor: not where streams belong to threads.
    cpus: bool,
}

/// How the names of functions are written.
struct Functions<'a> {
    names: &'a Names<'a>,
    palette: Palette,
    /// By [`FunctionId`].
    written: Vec<Option<Written>>,
}

/// How the name of a function is written: escaped and painted once, for all lines that have it.
#[derive(Default)]
struct Written {
    /// Where it is called: `f()`.
    call: String,
    /// At the end of a block: `} /* f */`.
    end: String,
}

/// Where and when a line belongs.
#[derive(Clone, Copy)]
struct Place {
    time: Time,
    /// The processor; else that of the track or of the stream.
    cpu: Option<Cpu>,
    track: Option<TrackId>,
    /// Levels of indentation.
    indent: u32,
}

impl<'a> Tree<'a> {
    /// A tree that writes to `out`; `info` tells which threads and processors there are.
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

    /// When something was recorded.
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

    /// Takes over what came into the trace since. To be called before the steps of a batch.
    pub fn learn(&mut self, info: &TraceInfo) {
        self.page.actors.learn(info);
    }

    /// Takes a step that follows from an event of a stream; from none, at the end of the trace.
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
        // What happens to a call in other streams' events, or after them, happens where it was
        // seen last: recording goes off on all processors at once.
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

    /// Writes what was kept back. To be called when the trace is at its end.
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

    /// Hands on what is written, as far as it is not kept back.
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
            // What it called is not shown, but that it did is.
            let deep = !is_span && end.self_time != end.duration;
            ending.extend_from_slice(if deep { FOLDED } else { LEAF });
            let remark = match (end.how, self.caller) {
                // Its end came with its beginning.
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

    /// What stands at the end of a call of several lines, where that is more than its name, or less.
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
        // Nobody can tell from the indentation what an orphan or an open call is.
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
        // Marks of jumps, and what carries the clock on, have no line.
        let Some(event) = seen.event else {
            return Ok(());
        };
        let style = match &event.kind {
            EventKind::Gap(_) => warning,
            EventKind::Recording { .. } => dim,
            // The value that a counter has at the beginning of the window.
            EventKind::Counter { .. } if !event.record => return Ok(()),
            EventKind::Marker { .. } | EventKind::Counter { .. } => marker,
            // What says no more than that a source has ended has no line either.
            EventKind::Other if event.name.is_empty() => return Ok(()),
            EventKind::Other | EventKind::Ready { .. } => dim,
            // Names are in their column already; priorities, and what carries the clock on, are for the
            // listing of events.
            _ => return Ok(()),
        };
        // When it was recorded is its time here.
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
            // What is missing or switched on and off concerns all that is shown.
            (EventKind::Gap(_) | EventKind::Recording { .. }, _) | (_, None) => 0,
            (_, Some(actor)) => actor.base.saturating_add(actor.open),
        };
        if self.is_too_deep(indent) {
            return Ok(());
        }
        // What is lost on a processor may have been of any thread.
        let of_cpu = self.page.cpus && matches!(event.kind, EventKind::Gap(_));
        let place = Place {
            time: self.recorded(event.time),
            cpu: event.cpu.or_else(|| self.page.actors.stream_cpu(stream)),
            track: track.filter(|_| !of_cpu),
            indent,
        };
        let mut comment = String::new();
        paint_with(&mut comment, style, |text| remark_event(event, text));
        // What happens within a call opens its block, although a thread's items have a stream of their own.
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

    /// A callee that is no function of a name, as it is called: `==> SysTick (irq 15)`.
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
    /// Begins a line of a stream with what stands in front of calls: gives the text that it goes on in, where in that it
    /// begins, and where its column for a duration is.
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

    /// Ends the line that was begun.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.end();
        self.lines.write_some(out)
    }
}

impl Functions<'_> {
    /// How the name of a function is written.
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
        // A demangled C++ name has its parameters already.
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

/// What a function is called that the trace does not name.
const UNKNOWN: &str = "an unknown function";

/// Whether the event from which an end follows is one of its own thread.
fn ends_by_itself(how: How) -> bool {
    match how {
        How::Returned | How::Orphan | How::Jumped | How::NoEnd | How::Repaired(Repair::Unwound) => {
            true
        }
        How::RecordingOff | How::Open | How::Repaired(Repair::Lost) => false,
    }
}
