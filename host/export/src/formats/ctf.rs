//! A CTF trace directory, 1.8 or 2, for `babeltrace2`, Trace Compass and any other reader of CTF.
//!
//! Each stream of the source becomes a stream of the export, with the same events; functions and interrupts are labels,
//! so that readers show names without symbols. The layout is in [`schema`], the conversion of events in [`record`].
//!
//! A trace of a Kymo target is already CTF. The export is longer, but contains the names, and has no bit-packed
//! fields.
//!
//! Several [`machines`] become one trace each, in separate directories.
//!
//! Gaps use CTF's own mechanisms where they exist: discarded events are counted in the packets, missing packets leave
//! a hole in the sequence numbers. All other gaps are events. Time can't go back within a CTF stream, so earlier times
//! are raised to the time of the event before.

mod machines;
mod numbers;
mod record;
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use kymo_ctf::metadata::{EnvValue, Version};
use kymo_ctf::{CreateError, Datum, StreamFile, StreamWriter, TraceWriter, WriteError};
use kymo_event::{
    Batch, Duration, Event, EventKind, Gap, SpaceId, StreamId, Time, TraceInfo, Wanted,
};

use self::machines::Machines;
use self::numbers::Numbers;
use self::record::{Record, Texts};
use self::schema::{OF_CPU, OTHER};
use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::listing::whole;

/// A CTF 1.8 trace directory.
pub static FORMAT: Format = Format {
    name: "ctf",
    extensions: &[],
    about: "a CTF 1.8 trace directory with the names in it: for babeltrace2 and Trace Compass",
    shape: Shape::Directory,
    binary: true,
    wanted: Wanted::Everything,
    takes: Takes::Events { in_order: true },
    names_program: true,
    merges_threads: false,
    open: |info, context, destination| open(info, context, destination, Version::Ctf18),
};

/// A CTF 2 trace directory.
pub static FORMAT_2: Format = Format {
    name: "ctf2",
    about: "the same as CTF 2: for babeltrace2 from 2.1 on",
    open: |info, context, destination| open(info, context, destination, Version::Ctf2),
    ..FORMAT
};

/// Number of events per packet: readers seek by packets, and keep one in memory.
const PACKET_EVENTS: u32 = 4096;

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
    version: Version,
) -> io::Result<Box<dyn Sink + 'a>> {
    let directory = destination.directory()?;
    Ok(match info.has_machines() {
        true => Box::new(Machines::new(context, directory, version)),
        false => Box::new(Ctf::new(context, directory.to_owned(), version)),
    })
}

/// The sink.
struct Ctf<'a> {
    context: Context<'a>,
    directory: PathBuf,
    version: Version,
    /// The machine of these events, if the trace has several.
    machine: Option<SpaceId>,
    numbers: Numbers,
    texts: Texts,
    /// Set with the first event, whose time determines the origin of the clock.
    trace: Option<Trace>,
    streams: BTreeMap<StreamId, Stream>,
    /// The stream classes in use.
    classes: BTreeSet<usize>,
    held: u64,
    fields_left_out: u64,
    /// The events that are records of the source.
    recorded: u64,
}

/// State shared by all streams.
struct Trace {
    /// Its metadata has no labels at first: they don't change the layout.
    writer: TraceWriter,
    /// The time of tick 0.
    base: Time,
}

impl Sink for Ctf<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for seen in batch.iter() {
            let event = &*whole(seen);
            self.recorded += u64::from(event.record);
            let base = self.trace(info, event.time)?.base;
            if !self.streams.contains_key(&event.stream) {
                let stream = self.stream(info, event.stream)?;
                self.streams.insert(event.stream, stream);
            }
            let Some(stream) = self.streams.get_mut(&event.stream) else {
                continue;
            };
            if let EventKind::Gap(gap) = &event.kind
                && stream.gap(gap)?
            {
                continue;
            }
            let ticks = match event.time.since(base) {
                Some(distance) if distance.0 >= stream.last => distance.0,
                _ => {
                    self.held += 1;
                    stream.last
                }
            };
            if let Some(by) = stream.goes_back(event) {
                let gap = Event {
                    kind: EventKind::Gap(Gap::TimeBackward { by }),
                    name: "".into(),
                    fields: Vec::new(),
                    ..event.clone()
                };
                let record = Record::new(
                    (&gap, seen.row),
                    &info.identities,
                    &mut self.numbers,
                    &mut self.texts,
                    stream.cpu.is_some(),
                );
                stream.write(ticks, &record)?;
            }
            let record = Record::new(
                (event, seen.row),
                &info.identities,
                &mut self.numbers,
                &mut self.texts,
                stream.cpu.is_some(),
            );
            self.fields_left_out += u64::from(record.cut);
            stream.write(ticks, &record)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        let base = self.trace(info, Time(0))?.base;
        let mut written = 0;
        for stream in std::mem::take(&mut self.streams).into_values() {
            written += stream.written;
            stream.finish()?;
        }
        let added = written.saturating_sub(self.recorded);
        if let Some(trace) = &self.trace {
            let mut metadata =
                schema::metadata((info, self.machine), self.context, base, &self.numbers);
            let facts = crate::cut::facts(info, summary.cut).into_iter();
            let facts = facts.map(|(name, ns)| (name.to_owned(), EnvValue::Text(ns)));
            metadata.environment.extend(facts);
            if added > 0 {
                let added = EnvValue::Text(added.to_string());
                metadata
                    .environment
                    .push(("kymo_added_events".to_owned(), added));
            }
            for (number, id) in self.numbers.threads() {
                let about = schema::about_thread(&info.identities, number, id);
                metadata.environment.extend(about);
            }
            // Some readers of CTF 2, which support at most one class, reject a class without streams.
            if !self.classes.is_empty() {
                let mut position = 0;
                metadata.streams.retain(|_| {
                    position += 1;
                    self.classes.contains(&(position - 1))
                });
            }
            trace.writer.describe(&metadata).map_err(not_made)?;
        }
        summary.added += added;
        summary.held += self.held;
        summary.fields_left_out += self.fields_left_out;
        Ok(())
    }
}

impl<'a> Ctf<'a> {
    /// Creates the sink without writing anything.
    fn new(context: Context<'a>, directory: PathBuf, version: Version) -> Self {
        Self {
            context,
            directory,
            version,
            machine: None,
            numbers: Numbers::default(),
            texts: Texts::default(),
            trace: None,
            streams: BTreeMap::new(),
            classes: BTreeSet::new(),
            held: 0,
            fields_left_out: 0,
            recorded: 0,
        }
    }

    /// The shared state, which is created at the first event, whose time is `first`.
    fn trace(&mut self, info: &TraceInfo, first: Time) -> io::Result<&mut Trace> {
        let trace = match self.trace.take() {
            Some(trace) => trace,
            None => {
                // Ticks are not negative, so a trace that begins before its clock's origin begins at tick 0; any other
                // keeps its times as ticks.
                let base = first.min(Time(0));
                let of = (info, self.machine);
                let metadata = schema::metadata(of, self.context, base, &Numbers::default());
                let writer = TraceWriter::create(&self.directory, metadata, self.version);
                Trace {
                    writer: writer.map_err(not_made)?,
                    base,
                }
            }
        };
        Ok(self.trace.insert(trace))
    }

    /// Creates a stream.
    fn stream(&mut self, info: &TraceInfo, id: StreamId) -> io::Result<Stream> {
        let stream = info.stream(id);
        let name = stream.map(|stream| stream.name.as_str());
        let name = name.filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("stream-{id}"), str::to_owned);
        // The machine's name is already that of the directory.
        let machine = self.machine.and_then(|id| info.identities.space(id));
        let below = machine.and_then(|it| name.strip_prefix(&it.name)?.strip_prefix('/'));
        let name = below.unwrap_or(&name);
        let cpu = stream.and_then(|stream| stream.cpu).map(|cpu| cpu.0);
        let class = if cpu.is_some() { OF_CPU } else { OTHER };
        self.classes.insert(class);
        let trace = self.trace(info, Time(0))?;
        Ok(Stream {
            writer: trace.writer.stream(class, name).map_err(failed)?,
            cpu,
            last: 0,
            latest: None,
            events: None,
            discarded: 0,
            unreported: false,
            written: 0,
        })
    }
}

/// A stream of the export.
struct Stream {
    writer: StreamWriter<StreamFile>,
    /// The CPU of its packets; `None` if its events carry their CPU.
    cpu: Option<u32>,
    /// The tick of its last event.
    last: u64,
    /// The source's time of its last event; `None` if the source itself reports that time goes back.
    latest: Option<Time>,
    /// Number of events in the open packet; `None` without one.
    events: Option<u32>,
    /// Number of events lost so far.
    discarded: u64,
    /// Number of its events.
    written: u64,
    /// Whether there is a loss that no packet has reported yet.
    unreported: bool,
}

impl Stream {
    /// Processes a gap; returns whether CTF can represent it completely, between two packets.
    fn gap(&mut self, gap: &Gap) -> io::Result<bool> {
        let (reported, events, packets) = match gap {
            // (Events counted by another stream are not in this stream's count.)
            Gap::Discarded {
                events: Some(events @ 1..),
            } => (true, *events, 0),
            Gap::LostPackets {
                packets: Some(packets),
            } => (true, 0, *packets),
            // CTF can only represent it by a sequence number that doesn't begin at 0, which few readers check.
            Gap::Overwritten { packets } => (false, 0, *packets),
            _ => (false, 0, 0),
        };
        if events > 0 || packets > 0 {
            if events > 0 {
                // They are behind those of the packet that counts them. Readers determine their number from the
                // difference to the packet before.
                self.begin_packet()?;
                if self.discarded == 0 {
                    self.end_packet()?;
                    self.begin_packet()?;
                }
                self.discarded = self.discarded.saturating_add(events);
            }
            self.end_packet()?;
            self.writer.skip_packets(packets);
            self.unreported = packets > 0;
        }
        Ok(reported)
    }

    /// How far the event's time is before that of the event before, if the source does not report it.
    fn goes_back(&mut self, event: &Event) -> Option<Duration> {
        let is_reported = matches!(event.kind, EventKind::Gap(Gap::TimeBackward { .. }));
        let before = match is_reported {
            true => self.latest.take(),
            false => self.latest.replace(event.time),
        };
        let by = before?.since(event.time)?;
        (!is_reported && by > Duration(0)).then_some(by)
    }

    fn write(&mut self, ticks: u64, record: &Record<'_>) -> io::Result<()> {
        self.last = ticks;
        self.begin_packet()?;
        let class = record.class.position();
        let written = self.writer.event(class, ticks, record.data());
        written.map_err(failed)?;
        self.written += 1;
        let events = self.events.unwrap_or(0) + 1;
        self.events = Some(events);
        if events >= PACKET_EVENTS {
            self.end_packet()?;
        }
        Ok(())
    }

    /// Begins a packet at the last tick, unless one is open.
    fn begin_packet(&mut self) -> io::Result<()> {
        if self.events.is_none() {
            let cpu = self.cpu.map(Datum::from);
            let context = cpu.as_slice();
            self.writer
                .begin_packet(self.last, context)
                .map_err(failed)?;
            self.events = Some(0);
            self.unreported = false;
        }
        Ok(())
    }

    /// Closes the open packet, if there is one, at the last tick.
    fn end_packet(&mut self) -> io::Result<()> {
        if self.events.take().is_some() {
            self.writer
                .end_packet(self.last, self.discarded)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Closes the stream. A loss after its last event is reported by a packet without events.
    fn finish(mut self) -> io::Result<()> {
        if self.unreported {
            self.begin_packet()?;
        }
        self.end_packet()?;
        self.writer.finish().map_err(failed)?;
        Ok(())
    }
}

/// Converts a write error: an invalid record is our bug, any other error the file's.
fn failed(error: WriteError) -> io::Error {
    match error {
        WriteError::Io(error) => error,
        error => io::Error::other(error),
    }
}

/// Converts an error of creating the directory in the same way.
fn not_made(error: CreateError) -> io::Error {
    match error {
        CreateError::Io { source, .. } => source,
        error => io::Error::other(error),
    }
}
