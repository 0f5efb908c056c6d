//! Trace-event JSON, for `chrome://tracing`, Perfetto, and many small viewers.
//!
//! The format is old and verbose (some 70 bytes per event) but widely supported. The mapping is that of
//! [`perfetto`](crate::formats::perfetto), with two differences: the format has no thread states, so each CPU is a row
//! that shows which thread ran; and all tracks are rows (threads, in the format's terms) of their process.
//!
//! Times are microseconds, written as decimals with three digits after the point, so that no nanosecond is lost; a
//! reader that stores them as a double loses some after 104 days. An element that was recorded at another time, because
//! the clock was ahead or stepped back, has that time in nanoseconds as `recorded_ns`. Calls are begin and end events
//! rather than complete ones: those would have to wait for the end of the call, and viewers disagree on the nesting of
//! complete events with equal times.

use std::collections::BTreeMap;
use std::io;

use kymo_analysis::calls::{Begin, Callee, End, How, TrackId};
use kymo_analysis::clock_repair::RECORDED;
use kymo_analysis::replay::Replay;
use kymo_analysis::titles;
use kymo_event::{
    Batch, Cpu, Event, EventKind, EventRef, Field, SpaceId, StreamId, Time, TraceInfo, Value,
    Wanted,
};

use crate::Summary;
use crate::end_notes;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::gaps::GapStep;
use crate::json::{Json, Object, number};
use crate::names::Names;
use crate::output::Output;
use crate::processes::New;
use crate::timeline::{Timeline, View};
use crate::tracks::gaps_title;

/// Trace-event JSON.
pub static FORMAT: Format = Format {
    name: "trace-event",
    extensions: &["json"],
    about: "trace-event JSON: for chrome://tracing and other viewers; large",
    shape: Shape::File,
    binary: false,
    wanted: Wanted::Details,
    takes: Takes::Calls,
    names_program: true,
    merges_threads: false,
    open,
};

/// Row of elements without a track. No track has this number.
const TRACE_ROW: u32 = 0;

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    Ok(Box::new(TraceEvent {
        out: Output::new(destination.writer()?),
        replay: context.replay(info),
        complete: false,
        file: File::new(context),
    }))
}

/// The sink.
struct TraceEvent<'a> {
    out: Output<'a>,
    replay: Replay,
    complete: bool,
    file: File<'a>,
}

impl Sink for TraceEvent<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        std::mem::swap(&mut self.file.text, &mut self.out.bytes);
        self.complete = !self.file.batch(info, &mut self.replay, batch);
        if let Some(last) = batch.rows().last() {
            self.file.now = last.time;
        }
        std::mem::swap(&mut self.file.text, &mut self.out.bytes);
        self.out.check()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        std::mem::swap(&mut self.file.text, &mut self.out.bytes);
        self.file.finish(info, &mut self.replay, summary);
        std::mem::swap(&mut self.file.text, &mut self.out.bytes);
        summary.held += self.file.held;
        self.out.finish()
    }
}

/// Microseconds with three decimals.
struct Microseconds(Time);

impl Json for Microseconds {
    fn write(&self, out: &mut Vec<u8>) {
        let Time(ns) = self.0;
        if ns < 0 {
            out.push(b'-');
        }
        let ns = ns.unsigned_abs();
        number(out, ns / 1_000);
        // Four digits, of which the point replaces the first.
        let point = out.len();
        number(out, 1_000 + ns % 1_000);
        if let Some(first) = out.get_mut(point) {
            *first = b'.';
        }
    }
}

/// Position of an entry: the numbers of its process and its row.
#[derive(Clone, Copy)]
struct Place {
    pid: u32,
    row: u32,
}

/// The text of the file, and the state of its rows.
struct File<'a> {
    view: View<'a>,
    text: Vec<u8>,
    /// The process of all rows that are not tracks, once it is displayed.
    process: Option<u32>,
    /// The time of the last entry of every row, by its number.
    last: BTreeMap<u32, Time>,
    /// The rows of tracks, by [`TrackId`].
    tracks: Vec<Option<Place>>,
    /// The rows of the CPUs of each machine.
    cpus: BTreeMap<(SpaceId, Cpu), CpuRow>,
    /// The rows of counters, by their process.
    counters: BTreeMap<u32, Place>,
    /// The rows for gaps.
    gaps: BTreeMap<StreamId, Place>,
    /// The time of the last event.
    now: Time,
    held: u64,
}

/// The row of a CPU.
struct CpuRow {
    place: Place,
    /// The thread that it shows as running.
    running: Option<TrackId>,
}

impl<'a> File<'a> {
    fn new(context: Context<'a>) -> Self {
        Self {
            view: View::new(context, Names::new(context)),
            text: Vec::new(),
            process: None,
            last: BTreeMap::new(),
            tracks: Vec::new(),
            cpus: BTreeMap::new(),
            counters: BTreeMap::new(),
            gaps: BTreeMap::new(),
            now: Time(0),
            held: 0,
        }
    }

    /// Ends open elements, and the file.
    fn finish(&mut self, info: &TraceInfo, replay: &mut Replay, summary: &mut Summary) {
        self.finish_steps(info, replay, summary);
        let end = self.now.min(replay.window().end);
        let running = self.cpus.values().filter(|cpu| cpu.running.is_some());
        let running: Vec<Place> = running.map(|cpu| cpu.place).collect();
        for place in running {
            self.entry("E", place, end, None, |_, _| {});
        }
        if self.process.is_none() {
            self.process(info, SpaceId(0));
        }
        self.text.extend_from_slice(b"\n]}\n");
    }

    /// The process number of a space, which is named before its first entry.
    fn process(&mut self, info: &TraceInfo, space: SpaceId) -> u32 {
        let (pid, new) = self.view.process(info, space);
        let Some(new) = new else {
            return pid;
        };
        self.name_process(pid, &new);
        if new.first {
            self.process = Some(pid);
            let row = TRACE_ROW;
            name_row(&mut self.text, Place { pid, row }, "trace");
        }
        pid
    }

    fn name_process(&mut self, pid: u32, new: &New) {
        // Only the first entry has no comma before it.
        if new.first {
            let begin = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
            self.text.extend_from_slice(begin);
        } else {
            self.text.extend_from_slice(b",\n");
        }
        let mut entry = Object::begin(&mut self.text);
        entry
            .member("ph", "M")
            .member("pid", pid)
            .member("name", "process_name")
            .object("args", |args| {
                args.member("name", &new.name);
            });
        entry.end();
    }

    /// The position of a counter: in the process that its event names, or else in that of the event's thread. Viewers
    /// use only the process of a counter.
    fn place_of_counter(&mut self, info: &TraceInfo, event: &Event, process: Option<u64>) -> Place {
        let trace = self.place(info, TRACE_ROW);
        let pid = match process {
            Some(process) => {
                let process = (event.stream, process);
                let (pid, new) = self.view.process_of_counter(info, process, true);
                if let Some(new) = new {
                    self.name_process(pid, &new);
                }
                pid
            }
            None => {
                let space = self.view.space_of_counter(info, event);
                space.map_or(trace.pid, |space| self.process(info, space))
            }
        };
        if pid == trace.pid {
            return trace;
        }
        if let Some(place) = self.counters.get(&pid) {
            return *place;
        }
        let row = self.view.tracks.extra();
        let place = Place { pid, row };
        name_row(&mut self.text, place, &format!("counters of process {pid}"));
        self.counters.insert(pid, place);
        place
    }

    /// A row in the process of elements without a track.
    fn place(&mut self, info: &TraceInfo, row: u32) -> Place {
        let pid = match self.process {
            Some(pid) => pid,
            None => {
                let thread = info.identities.threads().first();
                let stream = info.streams.first().map(|stream| stream.space);
                let space = thread.map(|thread| thread.space).or(stream);
                self.process(info, space.unwrap_or_default())
            }
        };
        Place { pid, row }
    }

    /// Writes an entry of a row. An entry before the row's last one gets the time of that.
    fn entry(
        &mut self,
        phase: &str,
        place: Place,
        time: Time,
        recorded: Option<Time>,
        write: impl FnOnce(&mut Object<'_>, &Names<'_>),
    ) {
        let last = self.last.entry(place.row).or_insert(time);
        if time < *last {
            self.held += 1;
        }
        *last = time.max(*last);
        self.text.extend_from_slice(b",\n");
        let mut entry = Object::begin(&mut self.text);
        entry
            .member("ph", phase)
            .member("pid", place.pid)
            .member("tid", place.row)
            .member("ts", Microseconds(*last));
        if let Some(recorded) = recorded {
            entry.member(RECORDED, recorded);
        }
        write(&mut entry, &self.view.names);
        entry.end();
    }

    /// Writes an instant: on its track, or for the whole process if it has none.
    fn instant(
        &mut self,
        info: &TraceInfo,
        track: Option<TrackId>,
        event: &Event,
        recorded: Option<Time>,
        name: &str,
        fields: &[Field],
    ) {
        let track = track.and_then(|track| self.track(info, track));
        let scope = if track.is_some() { "t" } else { "p" };
        let place = track.unwrap_or_else(|| self.place(info, TRACE_ROW));
        self.entry("i", place, event.time, recorded, |entry, _| {
            entry
                .member("s", scope)
                .member("name", name)
                .object("args", |args| {
                    let more = event
                        .fields
                        .iter()
                        .filter(|field| fields.iter().all(|known| known.name != field.name));
                    args.fields(fields.iter().chain(more));
                });
        });
    }

    /// The row of a track, which is named before its first entry. Elements on unknown tracks are counted.
    fn track(&mut self, info: &TraceInfo, track: TrackId) -> Option<Place> {
        let index = track.0 as usize;
        if let Some(Some(place)) = self.tracks.get(index) {
            return Some(*place);
        }
        let Some((shown, _)) = self.view.tracks.show(track) else {
            self.view.left_out += 1;
            return None;
        };
        let (row, space) = (shown.number, shown.space);
        let pid = self.process(info, space);
        let place = Place { pid, row };
        if self.tracks.len() <= index {
            self.tracks.resize(index + 1, None);
        }
        if let Some(known) = self.tracks.get_mut(index) {
            *known = Some(place);
        }
        self.retitle(info, track);
        Some(place)
    }
}

impl<'a> Timeline<'a> for File<'a> {
    fn view(&mut self) -> &mut View<'a> {
        &mut self.view
    }

    fn retitle(&mut self, _info: &TraceInfo, track: TrackId) {
        let place = self.tracks.get(track.0 as usize).copied().flatten();
        if let (Some(place), Some(shown)) = (place, self.view.tracks.get(track)) {
            name_row(&mut self.text, place, &shown.title);
        }
    }

    fn begin(&mut self, info: &TraceInfo, begin: &Begin, recorded: Option<Time>) {
        let Some(place) = self.track(info, begin.track) else {
            return;
        };
        let name = self.view.names.id(info, begin.callee);
        let caller = begin.caller.map(|it| Callee::Function(it.function));
        let caller = caller.map(|caller| self.view.names.id(info, caller));
        self.entry("B", place, begin.time, recorded, |entry, names| {
            entry.member("name", names.get(name));
            if begin.call_site.is_some() || caller.is_some() || begin.clipped {
                entry.object("args", |args| {
                    if let Some(caller) = caller {
                        args.member("caller", names.get(caller));
                    }
                    if let Some(site) = begin.call_site {
                        args.member("call site", site.to_string());
                    }
                    if begin.clipped {
                        args.member(end_notes::CLIPPED.0, end_notes::CLIPPED.1);
                    }
                });
            }
        });
    }

    fn end(&mut self, info: &TraceInfo, end: &End, recorded: Option<Time>) {
        let Some(place) = self.track(info, end.track) else {
            return;
        };
        let orphan = (end.how == How::Orphan).then(|| self.view.names.id(info, end.callee));
        let phase = if orphan.is_some() { "i" } else { "E" };
        self.entry(phase, place, end.time, recorded, |entry, names| {
            if let Some(name) = orphan {
                entry
                    .member("s", "t")
                    .member("name", end_notes::orphan(names.get(name)));
            }
            let mut notes = end_notes::notes(end).peekable();
            if notes.peek().is_some() {
                entry.object("args", |args| {
                    for (what, why) in notes {
                        args.member(what, why);
                    }
                });
            }
        });
    }

    fn state(&mut self, info: &TraceInfo, track: TrackId, time: Time, cpu: Cpu, running: bool) {
        if self.track(info, track).is_none() {
            return;
        }
        let machine = self.view.tracks.machine(track);
        if !self.cpus.contains_key(&(machine, cpu)) {
            let row = self.view.tracks.extra();
            let place = self.place(info, row);
            let title = match info.has_machines() {
                true => format!("CPU {cpu} [{}]", titles::space(info, machine)),
                false => format!("CPU {cpu}"),
            };
            name_row(&mut self.text, place, &title);
            let running = None;
            self.cpus.insert((machine, cpu), CpuRow { place, running });
        }
        let Some(row) = self.cpus.get_mut(&(machine, cpu)) else {
            return;
        };
        let place = row.place;
        // A switch in ends the thread that ran before; a switch out only its own thread.
        let ends = row.running.is_some_and(|ran| running || ran == track);
        if ends || running {
            row.running = running.then_some(track);
        }
        if ends {
            self.entry("E", place, time, None, |_, _| {});
        }
        if running {
            let thread = self.view.tracks.get(track);
            let thread = thread.map(|shown| shown.title.clone());
            self.entry("B", place, time, None, |entry, _| {
                entry.member("name", thread.as_deref().unwrap_or_default());
            });
        }
    }

    fn event(
        &mut self,
        info: &TraceInfo,
        track: Option<TrackId>,
        event: EventRef<'_>,
        recorded: Option<Time>,
    ) {
        // Without an event there is no name and no meaning to show.
        let Some(event) = event.event else {
            return;
        };
        match &event.kind {
            // A gap is on the row of its stream.
            EventKind::Gap(_) => {}
            // Names are shown by tracks; recording overhead, and a target's description of itself, have no time.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } => {}
            EventKind::Costs(_) | EventKind::Fact => {}
            // A jump shows its destination; times of day concern the clock.
            EventKind::SetJmp { .. } | EventKind::WallClock { .. } | EventKind::Time => {}
            EventKind::Marker { label, value } => {
                let name = label.as_deref().unwrap_or("marker");
                let fields = [Field::new("value", *value)];
                self.instant(info, track, event, recorded, name, &fields);
            }
            // JSON can't represent these numbers.
            EventKind::Counter { value, .. } if !value.as_f64().is_finite() => {
                self.view.left_out += 1;
            }
            EventKind::Counter {
                name,
                process,
                value,
            } => {
                let place = self.place_of_counter(info, event, *process);
                self.entry("C", place, event.time, recorded, |entry, _| {
                    entry.member("name", name.as_str()).object("args", |args| {
                        args.member("value", Value::from(*value));
                    });
                });
            }
            EventKind::Recording { on, cause } => {
                let name = if *on { "recording on" } else { "recording off" };
                let fields = [Field::new("cause", cause.name())];
                self.instant(info, track, event, recorded, name, &fields);
            }
            EventKind::Context { priority, mode } => {
                let fields = [
                    Field::new("priority", i64::from(*priority)),
                    Field::new("mode", u64::from(*mode)),
                ];
                self.instant(info, track, event, recorded, "context", &fields);
            }
            _ => self.instant(info, track, event, recorded, &event.name, &[]),
        }
    }

    fn gap(&mut self, info: &TraceInfo, step: GapStep<'_>) {
        match step {
            GapStep::Gap {
                event,
                gap,
                time,
                lost,
            } => {
                let place = match self.gaps.get(&event.stream) {
                    Some(place) => *place,
                    None => {
                        let row = self.view.tracks.extra();
                        let place = self.place(info, row);
                        name_row(&mut self.text, place, &gaps_title(info, event.stream));
                        self.gaps.insert(event.stream, place);
                        place
                    }
                };
                let phase = if lost { "B" } else { "i" };
                self.entry(phase, place, time, None, |entry, _| {
                    if !lost {
                        entry.member("s", "t");
                    }
                    entry
                        .member("name", gap.to_string())
                        .member("cat", "gap")
                        .object("args", |args| {
                            args.member("kind", gap.name()).fields(&event.fields);
                        });
                });
            }
            GapStep::End(stream, time) => {
                if let Some(place) = self.gaps.get(&stream) {
                    self.entry("E", *place, time, None, |_, _| {});
                }
            }
        }
    }
}

/// Writes the name of a row; a later one replaces it.
fn name_row(text: &mut Vec<u8>, place: Place, name: &str) {
    text.extend_from_slice(b",\n");
    let mut entry = Object::begin(text);
    entry
        .member("ph", "M")
        .member("pid", place.pid)
        .member("tid", place.row)
        .member("name", "thread_name")
        .object("args", |args| {
            args.member("name", name);
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
            let mut out = Vec::new();
            Microseconds(Time(ns)).write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
