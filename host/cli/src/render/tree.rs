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
//! ahead for that by one step in each stream, and keeps back what happens in other streams
//! meanwhile so that lines stay in the order of time ([`queue`]).

mod actors;
pub mod comment;
mod line;
pub mod queue;

use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

use kymo_analysis::calls::{Begin, CallId, Callee, End, How, Repair, Step, TrackId};
use kymo_analysis::clock_repair::RECORDED;
use kymo_analysis::replay::Origin;
use kymo_event::{Cpu, EventKind, EventRef, FunctionId, Identities, StreamId, Time, TraceInfo};

use super::duration::WIDTH;
use super::palette::{Palette, paint};
use super::times::Times;
use crate::names::Names;
use actors::{Actors, columns};
use comment::{remark, remark_event};
use line::{Line, OPENING};
use queue::Queue;

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
    names: &'a Names<'a>,
    options: TreeOptions,
    actors: Actors,
    queue: Queue<Line>,
    /// Lines that have been written, whose room serves again.
    spare: Vec<Vec<u8>>,
    /// By [`FunctionId`]: how its name is written.
    functions: Vec<Option<Written>>,
    /// Whether there is a column for the processor: not where streams belong to threads.
    cpus: bool,
    /// How much later than it happened the next step was recorded, in nanoseconds.
    moved: i64,
    /// The same of the begins of open calls, where it is anything.
    begins_moved: HashMap<CallId, i64>,
}

/// How the name of a function is written: escaped and painted once, for all lines that have it.
struct Written {
    /// Where it is called: `f() {`.
    call: String,
    /// At the end of a block: `} /* f */`.
    end: String,
}

/// Where and when a line belongs.
#[derive(Clone, Copy)]
struct Place {
    time: Time,
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
            names,
            options,
            actors: Actors::new(info, palette.actor),
            queue: Queue::default(),
            spare: Vec::new(),
            functions: Vec::new(),
            cpus: info.streams.iter().any(|stream| stream.cpu.is_some()),
            moved: 0,
            begins_moved: HashMap::new(),
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
        let cpu = if self.cpus { "  CPU" } else { "" };
        writeln!(
            self.out,
            "{heading}{}  {:>WIDTH$} {cpu}  {:<actor$}  CALLS{heading:#}",
            self.options.times.heading(),
            "DURATION",
            "THREAD",
            actor = self.actors.width(),
        )
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
            (Step::End(end), _) if !ends_by_itself(end.how) => self.actors.last_stream(end.track),
            (_, Some(origin)) => origin.stream,
            (_, None) => return Ok(()),
        };
        match step {
            Step::Track { track, info } => {
                self.actors.know(*track, info, identities);
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
            Step::Event { track, event } => self.event(stream, *track, *event),
            // A thread that loses its processor is shown when another one gets it.
            _ => Ok(()),
        }
    }

    /// Writes what was kept back. To be called when the trace is at its end.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(&mut self) -> io::Result<()> {
        self.queue.settle_all();
        self.drain()
    }

    /// Hands on what is written, as far as it is not kept back.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(
        &mut self,
        stream: StreamId,
        begin: &Begin,
        identities: &Identities,
    ) -> io::Result<()> {
        if matches!(begin.callee, Callee::Interrupt(_)) {
            self.actors.interrupt(stream, begin.track);
        }
        self.actors.came_up(stream, begin.track);
        if self.moved != 0 {
            self.begins_moved.insert(begin.call, self.moved);
        }
        let Some(actor) = self.actors.get_mut(begin.track) else {
            return Ok(());
        };
        actor.open = begin.depth.saturating_add(1);
        let indent = actor.base.saturating_add(begin.depth);
        if self.is_too_deep(indent) {
            return Ok(());
        }
        let place = Place {
            time: begin.time,
            cpu: self.cpu(begin.track, stream),
            track: Some(begin.track),
            indent,
        };
        let mut line = self.line(place);
        self.callee(&mut line, begin.callee, begin.track, identities);
        self.queue.hold(stream, begin.call, line);
        self.drain()
    }

    fn end(&mut self, stream: StreamId, end: &End, identities: &Identities) -> io::Result<()> {
        self.actors.came_up(stream, end.track);
        let begin_moved = match self.begins_moved.is_empty() {
            true => 0,
            false => self.begins_moved.remove(&end.call).unwrap_or(0),
        };
        let Some(actor) = self.actors.get_mut(end.track) else {
            return Ok(());
        };
        actor.open = end.depth;
        let indent = actor.base.saturating_add(end.depth);
        if matches!(end.callee, Callee::Interrupt(_)) {
            self.actors.resume(stream, end.track);
        }
        if self.is_too_deep(indent) {
            return Ok(());
        }
        let place = Place {
            time: end.time,
            cpu: self.cpu(end.track, stream),
            track: Some(end.track),
            indent,
        };
        let duration = if self.options.wall {
            end.wall
        } else {
            end.duration
        };
        let doubt = end.doubt.any()
            || matches!(end.how, How::Repaired(_))
            || (begin_moved != self.moved && end.begin.is_some());
        // What it called is not shown, but that it did is.
        let deep = end.self_time != end.duration;
        if let Some(line) = self.queue.release(stream, end.call) {
            line.close(deep);
            if let Some(duration) = duration {
                line.set_duration(duration, doubt);
            }
            if let Some(remark) = remark(end) {
                let warning = self.palette.warning;
                line.push("  ").paint(warning, &format!("/* {remark} */"));
            }
        } else {
            let mut line = self.line(place);
            if let Some(duration) = duration {
                line.set_duration(duration, doubt);
            }
            self.closing(&mut line, end, identities);
            self.queue.push(stream, line);
        }
        self.drain()
    }

    /// What stands at the end of a call of several lines.
    fn closing(&mut self, line: &mut Line, end: &End, identities: &Identities) {
        let remark = remark(end);
        if let Callee::Function(id) = end.callee
            && remark.is_none()
            && !self.options.no_annotation
        {
            line.push(&self.written(id, identities).end);
            return;
        }
        let Palette {
            dim,
            warning,
            actor,
            ..
        } = self.palette;
        if end.how != How::Open {
            line.push("}");
        }
        if let Callee::Interrupt(_) = end.callee {
            let name = self.actor_name(end.track);
            line.push(" <== ").paint(actor, name);
            if let Some(remark) = remark {
                line.push("  ").paint(warning, &format!("/* {remark} */"));
            }
            return;
        }
        // Nobody can tell from the indentation what an orphan or an open call is.
        let alone = matches!(end.how, How::Orphan | How::Open);
        let named = alone || !self.options.no_annotation;
        let function = self.function_name(end.callee, identities);
        let space = if end.how == How::Open { "" } else { " " };
        match (named, remark) {
            (true, Some(remark)) => line
                .push(space)
                .paint(warning, &format!("/* {function}: {remark} */")),
            (true, None) => line.push(space).paint(dim, &format!("/* {function} */")),
            (false, Some(remark)) => line.push(space).paint(warning, &format!("/* {remark} */")),
            (false, None) => line,
        };
    }

    fn switch(
        &mut self,
        stream: StreamId,
        track: TrackId,
        time: Time,
        cpu: Option<Cpu>,
        recorded: bool,
    ) -> io::Result<()> {
        let before = self.actors.switch(stream, track);
        // The first thread of a stream is in the column.
        let before = before.filter(|before| *before != track);
        if before.is_none() && !(self.options.some_threads && recorded) {
            return Ok(());
        }
        let shows = |track| self.actors.get(track).is_some_and(|actor| actor.open > 0);
        if self.options.some_calls && !shows(track) && !before.is_some_and(shows) {
            return Ok(());
        }
        let place = Place {
            time,
            cpu: cpu.or_else(|| self.cpu(track, stream)),
            track: Some(track),
            indent: 0,
        };
        let style = self.palette.actor;
        let inferred = if recorded { "" } else { " (no record of it)" };
        let mut line = self.line(place);
        line.paint_with(style, |text| {
            let now = self.actor_name(track);
            text.push_str("------ ");
            if let Some(before) = before {
                text.push_str(self.actor_name(before));
                text.push(' ');
            }
            for part in ["=> ", now, inferred, " ------"] {
                text.push_str(part);
            }
        });
        self.queue.push(stream, line);
        self.drain()
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
            EventKind::Marker { .. } => marker,
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
        let open = track.and_then(|track| self.actors.get(track));
        let indent = match (&event.kind, open) {
            // What is missing or switched on and off concerns all that is shown.
            (EventKind::Gap(_) | EventKind::Recording { .. }, _) | (_, None) => 0,
            (_, Some(actor)) => actor.base.saturating_add(actor.open),
        };
        if self.is_too_deep(indent) {
            return Ok(());
        }
        // What is lost on a processor may have been of any thread.
        let of_cpu = self.cpus && matches!(event.kind, EventKind::Gap(_));
        let place = Place {
            time: event.time,
            cpu: event.cpu.or_else(|| self.actors.stream_cpu(stream)),
            track: track.filter(|_| !of_cpu),
            indent,
        };
        let mut line = self.line(place);
        line.paint_with(style, |text| remark_event(event, text));
        // What happens within a call opens its block, although a thread's items have a stream of their own.
        let stream = match (&event.kind, track) {
            (EventKind::Gap(_), _) | (_, None) => stream,
            (_, Some(track)) => self.actors.last_stream(track),
        };
        self.queue.push(stream, line);
        self.drain()
    }

    fn drain(&mut self) -> io::Result<()> {
        while let Some(line) = self.queue.pop() {
            let line = line.finish();
            self.out.write_all(&line)?;
            self.spare.push(line);
        }
        Ok(())
    }

    /// The beginning of a line: its columns, as far as they are known, and its indentation.
    fn line(&mut self, place: Place) -> Line {
        let spare = self.spare.pop().unwrap_or_default();
        let mut line = Line::new(spare, self.recorded(place.time), &self.options.times);
        let cpu = self.cpus.then_some(place.cpu);
        match place.track.and_then(|track| self.actors.get_mut(track)) {
            Some(actor) => line.columns(actor.columns(cpu)),
            None => {
                let blank = " ".repeat(self.actors.width());
                line.columns(&columns(cpu, &blank));
            }
        }
        line.indent(place.indent);
        line
    }

    fn is_too_deep(&self, indent: u32) -> bool {
        self.options.depth.is_some_and(|most| indent >= most)
    }

    fn cpu(&self, track: TrackId, stream: StreamId) -> Option<Cpu> {
        self.actors.cpu(track, stream)
    }

    /// A callee as it is called: `f() {`, `==> SysTick (irq 15) {`.
    fn callee(&mut self, line: &mut Line, callee: Callee, track: TrackId, identities: &Identities) {
        match callee {
            Callee::Function(id) => {
                line.push(&self.written(id, identities).call);
            }
            Callee::Interrupt(id) => {
                let irq = identities.irq(id);
                let name = self.actor_name(track);
                let number = format!("irq {irq}");
                line.push("==> ").paint(self.palette.actor, name);
                if *name != number {
                    line.push(&format!(" ({number})"));
                }
                line.push(OPENING);
            }
            Callee::Unknown => {
                let function = self.palette.function;
                line.paint(function, UNKNOWN).push("()").push(OPENING);
            }
        }
    }

    /// How the name of a function is written.
    #[inline]
    fn written(&mut self, id: FunctionId, identities: &Identities) -> &Written {
        let index = id.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        let Palette { function, dim, .. } = self.palette;
        self.functions[index].get_or_insert_with(|| {
            let name = self.names.function(identities, id);
            let (mut call, mut end) = (String::new(), "} ".to_owned());
            paint(&mut call, function, &name);
            // A demangled C++ name has its parameters already.
            if !name.ends_with(')') {
                call.push_str("()");
            }
            call.push_str(OPENING);
            paint(&mut end, dim, &format!("/* {name} */"));
            Written { call, end }
        })
    }

    fn actor_name(&self, track: TrackId) -> &str {
        self.actors.get(track).map_or("", |actor| &actor.name)
    }

    fn function_name(&self, callee: Callee, identities: &Identities) -> Rc<str> {
        match callee {
            Callee::Function(id) => self.names.function(identities, id),
            _ => UNKNOWN.into(),
        }
    }
}

/// What a function is called that the trace does not name.
const UNKNOWN: &str = "an unknown function";

/// Whether the event from which an end follows is one of its own thread.
fn ends_by_itself(how: How) -> bool {
    match how {
        How::Returned | How::Orphan | How::Jumped | How::Repaired(Repair::Unwound) => true,
        How::RecordingOff | How::Open | How::Repaired(Repair::Lost) => false,
    }
}
