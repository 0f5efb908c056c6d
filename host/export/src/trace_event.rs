//! Trace-event JSON, for `chrome://tracing`, Perfetto, and many small viewers.
//!
//! The format is old and wordy (some 70 bytes an event) but everything reads it. What becomes what
//! is as in [`perfetto`](crate::perfetto), with two differences: the format has no states of
//! threads, so each CPU is a lane of its own that shows which thread ran; and tracks are lanes of
//! one process, threads or not.
//!
//! Times are microseconds. They are written as decimals with three digits behind the point, so
//! that no nanosecond is lost here; a reader that holds them as a double loses some after 104 days.
//! What was recorded at another time, while the clock was ahead or behind a step back, has that time in
//! nanoseconds as `recorded_ns`.
//! Calls are begin and end events rather than complete ones: those would have to wait for the end
//! of the call, and viewers disagree on how complete events of equal time nest.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};

use kymo_analysis::calls::{Begin, Calls, End, How, TrackId};
use kymo_analysis::steady::{RECORDED, recorded};
use kymo_event::{Cpu, Event, EventKind, Field, Gap, StreamId, Time};

use crate::Summary;
use crate::draw::Draw;
use crate::ending;
use crate::format::{Context, Destination, Format, Shape, Sink};
use crate::gaps::OpenGaps;
use crate::json_object::Object;
use crate::lanes::{Lanes, gaps_title};
use crate::names::Names;

/// Trace-event JSON.
pub static FORMAT: Format = Format {
    name: "trace-event",
    extensions: &["json"],
    about: "trace-event JSON: for chrome://tracing and other viewers; large",
    shape: Shape::File,
    binary: false,
    steady: true,
    open,
};

/// The number of the process that all lanes belong to.
const PID: u32 = 1;

/// The lane of what belongs to no track. No track has this number.
const TRACE_LANE: u32 = 0;

/// Text is handed on when it fills this many bytes.
const BUFFER_BYTES: usize = 1 << 16;

fn open<'a>(context: Context<'a>, destination: Destination<'a>) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(TraceEvent {
        out: destination.writer()?,
        calls: Calls::new(context.info, Default::default()),
        file: File::new(context),
    }))
}

/// The sink.
struct TraceEvent<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    calls: Calls,
    file: File<'a>,
}

impl Sink for TraceEvent<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.file.before(event);
        self.calls.push(event, &mut |step| self.file.step(&step));
        if self.file.text.len() >= BUFFER_BYTES {
            self.out.write_all(&self.file.text)?;
            self.file.text.clear();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &mut Summary) -> io::Result<()> {
        self.calls.finish(&mut |step| self.file.step(&step));
        self.file.finish();
        self.out.write_all(&self.file.text)?;
        self.out.flush()?;
        summary.count_calls(self.calls.counts());
        summary.held += self.file.held;
        summary.left_out += self.file.left_out;
        Ok(())
    }
}

/// Microseconds with three decimals.
struct Microseconds(Time);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time(ns) = self.0;
        let sign = if ns < 0 { "-" } else { "" };
        let ns = ns.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ns / 1_000, ns % 1_000)
    }
}

/// The text of the file, and what of it is not finished.
struct File<'a> {
    context: Context<'a>,
    text: Vec<u8>,
    names: Names<'a>,
    lanes: Lanes,
    /// The time of the last entry of every lane, by its number.
    last: BTreeMap<u32, Time>,
    /// The lanes of the CPUs.
    cpus: BTreeMap<Cpu, CpuLane>,
    /// The lanes for gaps.
    gaps: BTreeMap<StreamId, u32>,
    open_gaps: OpenGaps,
    /// The time of the last event.
    now: Time,
    /// When it was recorded, if that is not where it stands.
    recorded: Option<Time>,
    /// The latest time so far.
    latest: Time,
    held: u64,
    left_out: u64,
}

/// The lane of a CPU.
struct CpuLane {
    number: u32,
    /// The track of the thread that it shows as running.
    running: Option<TrackId>,
}

impl<'a> File<'a> {
    fn new(context: Context<'a>) -> Self {
        let mut file = Self {
            context,
            text: b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n".to_vec(),
            names: Names::new(context),
            lanes: Lanes::default(),
            last: BTreeMap::new(),
            cpus: BTreeMap::new(),
            gaps: BTreeMap::new(),
            open_gaps: OpenGaps::default(),
            now: Time(0),
            recorded: None,
            latest: Time(i64::MIN),
            held: 0,
            left_out: 0,
        };
        // The first entry is the only one without a comma before it.
        let mut entry = Object::new(&mut file.text);
        entry
            .text("ph", "M")
            .raw("pid", PID)
            .text("name", "process_name")
            .object("args", |args| {
                args.text("name", &context.options.program);
            });
        entry.end();
        name_lane(&mut file.text, TRACE_LANE, "trace");
        file
    }

    /// What an event means before it is looked into: the end of its stream's gaps.
    fn before(&mut self, event: &Event) {
        self.now = event.time;
        let held = (event.time < self.latest).then_some(event.time);
        self.recorded = recorded(event).or(held);
        self.latest = self.latest.max(event.time);
        let ended = self.open_gaps.ended_by(event);
        self.end_gaps(event.stream, ended);
    }

    fn end_gaps(&mut self, stream: StreamId, count: usize) {
        if let Some(&lane) = self.gaps.get(&stream) {
            for _ in 0..count {
                self.entry("E", lane, self.now, |_, _| {});
            }
        }
    }

    /// Ends what is still open, and the file.
    fn finish(&mut self) {
        for (stream, count) in self.open_gaps.rest() {
            self.end_gaps(stream, count);
        }
        let running: Vec<u32> = self
            .cpus
            .values()
            .filter(|cpu| cpu.running.is_some())
            .map(|cpu| cpu.number)
            .collect();
        for lane in running {
            self.entry("E", lane, self.now, |_, _| {});
        }
        self.text.extend_from_slice(b"\n]}\n");
    }

    /// An entry of a lane. What would stand before the lane's last entry is held at its time.
    fn entry(
        &mut self,
        phase: &str,
        lane: u32,
        time: Time,
        write: impl FnOnce(&mut Object<'_>, &Names<'_>),
    ) {
        let last = self.last.entry(lane).or_insert(time);
        if time < *last {
            self.held += 1;
        }
        *last = time.max(*last);
        self.text.extend_from_slice(b",\n");
        let mut entry = Object::new(&mut self.text);
        entry
            .text("ph", phase)
            .raw("pid", PID)
            .raw("tid", lane)
            .raw("ts", Microseconds(*last));
        if let Some(recorded) = self.recorded {
            entry.raw(RECORDED, recorded);
        }
        write(&mut entry, &self.names);
        entry.end();
    }

    /// Something of no length: on its track, or for the whole process if it has none.
    fn instant(&mut self, track: Option<TrackId>, event: &Event, name: &str, fields: &[Field]) {
        let lane = track.and_then(|track| self.lane(track));
        let scope = if lane.is_some() { "t" } else { "p" };
        self.entry("i", lane.unwrap_or(TRACE_LANE), event.time, |entry, _| {
            entry
                .text("s", scope)
                .text("name", name)
                .object("args", |args| {
                    let more = event
                        .fields
                        .iter()
                        .filter(|field| fields.iter().all(|known| known.name != field.name));
                    args.fields(fields.iter().chain(more));
                });
        });
    }

    fn gap(&mut self, event: &Event, gap: &Gap) {
        let lost = self.open_gaps.begins(event.stream, gap);
        let lane = *self.gaps.entry(event.stream).or_insert_with(|| {
            let number = self.lanes.extra();
            let title = gaps_title(self.context.info, event.stream);
            name_lane(&mut self.text, number, &title);
            number
        });
        let phase = if lost { "B" } else { "i" };
        self.entry(phase, lane, event.time, |entry, _| {
            if !lost {
                entry.text("s", "t");
            }
            entry
                .text("name", &gap.to_string())
                .text("cat", "gap")
                .object("args", |args| {
                    args.text("kind", gap.name()).fields(&event.fields);
                });
        });
    }

    /// The number of a track's lane, which is named before something stands on it for the first
    /// time. What happens on tracks that were never announced is counted.
    fn lane(&mut self, track: TrackId) -> Option<u32> {
        let Some((lane, new)) = self.lanes.show(track) else {
            self.left_out += 1;
            return None;
        };
        if new {
            name_lane(&mut self.text, lane.number, &lane.title);
        }
        Some(lane.number)
    }
}

impl<'a> Draw<'a> for File<'a> {
    fn names(&mut self) -> &mut Names<'a> {
        &mut self.names
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn left_out(&mut self) -> &mut u64 {
        &mut self.left_out
    }

    fn retitle(&mut self, track: TrackId) {
        if let Some(lane) = self.lanes.get(track) {
            name_lane(&mut self.text, lane.number, &lane.title);
        }
    }

    fn begin(&mut self, begin: &Begin) {
        let Some(lane) = self.lane(begin.track) else {
            return;
        };
        let name = self.names.id(begin.callee);
        self.entry("B", lane, begin.time, |entry, names| {
            entry.text("name", names.get(name));
            if let Some(site) = begin.call_site {
                entry.object("args", |args| {
                    args.text("call site", &site.to_string());
                });
            }
        });
    }

    fn end(&mut self, end: &End) {
        let Some(lane) = self.lane(end.track) else {
            return;
        };
        let orphan = (end.how == How::Orphan).then(|| self.names.id(end.callee));
        let phase = if orphan.is_some() { "i" } else { "E" };
        self.entry(phase, lane, end.time, |entry, names| {
            if let Some(name) = orphan {
                entry
                    .text("s", "t")
                    .text("name", &ending::orphan(names.get(name)));
            }
            let mut notes = ending::notes(end).peekable();
            if notes.peek().is_some() {
                entry.object("args", |args| {
                    for (what, why) in notes {
                        args.text(what, why);
                    }
                });
            }
        });
    }

    fn state(&mut self, track: TrackId, time: Time, cpu: Cpu, running: bool) {
        if self.lane(track).is_none() {
            return;
        }
        let lane = self.cpus.entry(cpu).or_insert_with(|| {
            let number = self.lanes.extra();
            name_lane(&mut self.text, number, &format!("CPU {cpu}"));
            CpuLane {
                number,
                running: None,
            }
        });
        let number = lane.number;
        // A switch in ends what ran before; a switch out only what it is about.
        let ends = lane.running.is_some_and(|ran| running || ran == track);
        if ends || running {
            lane.running = running.then_some(track);
        }
        if ends {
            self.entry("E", number, time, |_, _| {});
        }
        if running {
            let thread = self.lanes.get(track).map(|lane| lane.title.clone());
            self.entry("B", number, time, |entry, _| {
                entry.text("name", thread.as_deref().unwrap_or_default());
            });
        }
    }

    fn event(&mut self, track: Option<TrackId>, event: &Event) {
        match &event.kind {
            EventKind::Gap(gap) => self.gap(event, gap),
            // Tracks tell the names; what recording costs, and what a target says of itself, happens at no
            // moment.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } => {}
            EventKind::Costs(_) | EventKind::Fact => {}
            // Where a jump may lead is seen when it does; times of day are the clock's affair.
            EventKind::SetJmp { .. } | EventKind::WallClock { .. } | EventKind::Time => {}
            EventKind::Marker { label, value } => {
                let name = label.as_deref().unwrap_or("marker");
                self.instant(track, event, name, &[Field::new("value", *value)]);
            }
            EventKind::Recording { on, cause } => {
                let name = if *on { "recording on" } else { "recording off" };
                self.instant(track, event, name, &[Field::new("cause", cause.name())]);
            }
            EventKind::Context { priority, mode } => {
                let fields = [
                    Field::new("priority", i64::from(*priority)),
                    Field::new("mode", u64::from(*mode)),
                ];
                self.instant(track, event, "context", &fields);
            }
            _ => self.instant(track, event, &event.name, &[]),
        }
    }
}

/// Tells the name of a lane; a later one replaces it.
fn name_lane(text: &mut Vec<u8>, lane: u32, name: &str) {
    text.extend_from_slice(b",\n");
    let mut entry = Object::new(text);
    entry
        .text("ph", "M")
        .raw("pid", PID)
        .raw("tid", lane)
        .text("name", "thread_name")
        .object("args", |args| {
            args.text("name", name);
        });
    entry.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_every_nanosecond() {
        for (ns, text) in [
            (0, "0.000"),
            (1, "0.001"),
            (-1, "-0.001"),
            (1_000_000_007, "1000000.007"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            assert_eq!(Microseconds(Time(ns)).to_string(), text);
        }
    }
}
