//! Row of one call as text, JSON or CSV.

use std::cmp::{Ordering, Reverse};
use std::fmt::Write as _;
use std::io::{self, Write};

use kymo_analysis::calls::{CallId, Callee, End, How};
use kymo_event::{Cpu, Duration, Identities, ThreadId, Time, TimeUnit, TraceInfo};
use kymo_export::json::Object;

use super::{Args, Layout};
use crate::names::Names;
use crate::render::duration::{Human, Seconds, WIDTH};
use crate::render::palette::{Palette, paint};
use crate::render::threads::{ThreadNames, cell};
use crate::render::unit;

/// Maximum width of the thread column.
const WIDEST: usize = 20;

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its end.
    pub end: End,
    /// The processor that it began on, if known.
    pub cpu: Option<Cpu>,
    /// The thread of the call; for an interrupt, the interrupted thread; if known.
    pub thread: Option<ThreadId>,
    /// The caller, if known.
    pub caller: Option<Callee>,
}

/// A call ordered by duration: slowest first, and of equal ones the earlier one.
#[derive(Clone, Copy, Debug)]
pub struct Slow(Reverse<Duration>, CallId, Call);

impl Slow {
    /// `None` if the call has no duration.
    pub fn new(call: Call) -> Option<Self> {
        Some(Self(Reverse(call.end.duration?), call.end.call, call))
    }

    /// The call.
    pub const fn into_call(self) -> Call {
        self.2
    }
}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Slow {}

impl PartialOrd for Slow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slow {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// How a call ended, as one word.
const fn ended(how: How) -> &'static str {
    match how {
        How::Returned => "returned",
        How::Repaired(repair) => repair.name(),
        How::Jumped => "longjmp",
        How::RecordingOff => "recording-off",
        How::NoEnd => "not-recorded",
        How::Open => "open",
        How::Orphan => "orphan",
    }
}

/// Writes calls.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    palette: Palette,
    layout: Layout,
    names: &'a Names<'a>,
    threads: ThreadNames,
    width: usize,
    /// Whether durations are wall times.
    by_wall: bool,
    /// Whether durations are wall times, requested or not.
    is_wall: bool,
    /// Whether times are derived from durations, because the trace has none.
    untimed: bool,
    line: Vec<u8>,
    text: String,
}

impl<'a> Writer<'a> {
    /// A writer to `out`; `info` describes the threads.
    pub fn new(
        out: &'a mut dyn Write,
        palette: Palette,
        args: &Args,
        info: &TraceInfo,
        names: &'a Names<'a>,
    ) -> Self {
        let threads = ThreadNames::new(info);
        Self {
            out,
            palette,
            layout: args.format,
            by_wall: args.wall,
            is_wall: args.wall || info.wall_times,
            names,
            width: threads.widest().clamp(6, WIDEST),
            threads,
            untimed: info.untimed,
            line: Vec::new(),
            text: String::new(),
        }
    }

    /// Writes the names of the columns.
    ///
    /// # Errors
    /// Those of writing.
    pub fn heading(&mut self) -> io::Result<()> {
        let heading = self.palette.heading;
        match self.layout {
            Layout::Text => writeln!(
                self.out,
                "{heading}{:>15}  {:>WIDTH$}   {:>WIDTH$}   CPU  {:<threads$}  DEPTH  {:<13}  FUNCTION  (CALLER){heading:#}",
                match unit::get() {
                    TimeUnit::Nanoseconds if self.untimed => "BEGIN (made)".to_owned(),
                    TimeUnit::Nanoseconds => "BEGIN [s]".to_owned(),
                    unit => format!("[{}]", unit.suffix()),
                },
                if self.is_wall { "WALL" } else { "DURATION" },
                "SELF",
                "THREAD",
                "ENDED",
                threads = self.width
            ),
            Layout::Json => Ok(()),
            Layout::Csv => {
                let unit = unit::get().suffix();
                let made = if self.untimed { "made_" } else { "" };
                let duration = if self.by_wall { "wall" } else { "duration" };
                writeln!(
                    self.out,
                    "thread,thread_name,cpu,function,begin_{made}{unit},{duration}_{unit},self_{unit},depth,caller,ended,doubtful,clipped"
                )
            }
        }
    }

    /// Writes a call.
    ///
    /// # Errors
    /// Those of writing.
    pub fn call(&mut self, info: &TraceInfo, call: &Call) -> io::Result<()> {
        let identities = &info.identities;
        match self.layout {
            Layout::Text => self.text(identities, call),
            Layout::Json => self.json(identities, call),
            Layout::Csv => self.csv(identities, call),
        }
        self.out.write_all(&self.line)
    }

    fn text(&mut self, identities: &Identities, call: &Call) {
        let end = &call.end;
        let text = &mut self.text;
        text.clear();
        match end.began() {
            Some(time) => Seconds {
                time,
                origin: Time(0),
            }
            .push(text),
            None => text.push_str("              -"),
        }
        // Whether more of it lies outside the part that is shown.
        let part = end.clipped || matches!(end.how, How::Open | How::RecordingOff);
        let doubt = end.doubt.any() || matches!(end.how, How::Repaired(_));
        // Time in which events were lost may belong to calls that are not in the trace.
        let unsure = end.sure_self != end.self_max();
        for (duration, at_least, mark) in [
            (end.duration, part, if doubt { '?' } else { ' ' }),
            (end.sure_self, part || unsure, ' '),
        ] {
            text.push_str(if at_least { " ≥" } else { "  " });
            match duration {
                Some(duration) => Human(duration).push(text),
                None => text.push_str("         -"),
            }
            text.push(mark);
        }
        let cpu = call.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let thread = match call.thread {
            Some(id) => self
                .threads
                .name(identities.tid(id), identities.thread_name(id)),
            None => "-".to_owned(),
        };
        let thread = cell(&thread, self.width);
        // Writing to a string can't fail.
        let _ = write!(text, " {cpu:>4}  ");
        paint(text, self.palette.actor, &thread);
        let _ = write!(text, "  {:>5}  {:<13}  ", end.depth, ended(end.how));
        paint(
            text,
            self.palette.function,
            &self.names.callee(identities, end.callee),
        );
        if let Some(caller) = call.caller {
            let caller = self.names.callee(identities, caller);
            paint(text, self.palette.dim, &format!("  ({caller})"));
        }
        text.push('\n');
        self.line.clear();
        self.line.extend_from_slice(text.as_bytes());
    }

    fn json(&mut self, identities: &Identities, call: &Call) {
        let end = &call.end;
        self.line.clear();
        let mut object = Object::begin(&mut self.line);
        let thread = call.thread;
        object
            .member("thread", thread.map(|id| identities.tid(id)))
            .member(
                "thread_name",
                thread.and_then(|id| identities.thread_name(id)),
            )
            .member("cpu", call.cpu)
            .member("function", &*self.names.callee(identities, end.callee))
            .member("begin_ns", end.began())
            .member("duration_ns", end.duration)
            .member("self_ns", end.sure_self)
            .member("self_max_ns", end.self_max())
            .member("depth", end.depth)
            .member(
                "caller",
                call.caller
                    .map(|caller| self.names.callee(identities, caller))
                    .as_deref(),
            )
            .member("ended", ended(end.how))
            .member("end_ns", end.time)
            .member("wall_ns", end.wall)
            .member("doubtful", end.doubt.any())
            .member("clipped", end.clipped);
        if self.is_wall {
            object.member("by_wall", true);
        }
        if self.untimed {
            // The times are only an order, because the text had durations alone.
            object.member("times_are_made", true);
        }
        match end.callee {
            Callee::Function(id) => {
                let function = identities.function(id);
                let address = function.and_then(|function| function.address);
                object.member("address", address);
            }
            Callee::Interrupt(id) => {
                object.member("irq", identities.irq(id));
            }
            Callee::Unknown => {}
        }
        object.end();
        unit::name_members(&mut self.line);
        self.line.push(b'\n');
    }

    fn csv(&mut self, identities: &Identities, call: &Call) {
        let end = &call.end;
        let text = &mut self.text;
        text.clear();
        let number = |text: &mut String, number: Option<String>| {
            text.push_str(&number.unwrap_or_default());
            text.push(',');
        };
        let thread = call.thread;
        number(text, thread.map(|id| identities.tid(id).0.to_string()));
        quote(
            text,
            thread
                .and_then(|id| identities.thread_name(id))
                .unwrap_or(""),
        );
        text.push(',');
        number(text, call.cpu.map(|cpu| cpu.to_string()));
        quote(text, &self.names.callee(identities, end.callee));
        text.push(',');
        number(text, end.began().map(|time| time.to_string()));
        number(text, end.duration.map(|duration| duration.to_string()));
        number(text, end.sure_self.map(|duration| duration.to_string()));
        number(text, Some(end.depth.to_string()));
        let caller = call.caller;
        let caller = caller.map(|caller| self.names.callee(identities, caller));
        quote(text, caller.as_deref().unwrap_or(""));
        text.push(',');
        text.push_str(ended(end.how));
        text.push(',');
        let _ = writeln!(text, "{},{}", end.doubt.any(), end.clipped);
        self.line.clear();
        self.line.extend_from_slice(text.as_bytes());
    }
}

/// Adds a value of CSV.
fn quote(out: &mut String, text: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'"';
    if text.bytes().all(is_plain) {
        return out.push_str(text);
    }
    let mut quoted = Vec::new();
    kymo_export::csv::cell(&mut quoted, text);
    out.push_str(&String::from_utf8_lossy(&quoted));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_csv_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("main", "main"),
            ("f(int, char)", "\"f(int, char)\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
        ] {
            let mut out = String::new();
            quote(&mut out, text);
            assert_eq!(out, expected);
        }
    }
}
