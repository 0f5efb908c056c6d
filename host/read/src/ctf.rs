//! CTF traces of any tracer: every record as it stands, with its name and fields.
//!
//! What the events *mean* is a dialect's to say ([`Dialect`]). Without one they are
//! [`EventKind::Other`], which is enough to list, count and export them.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use kymo_ctf::metadata::Clock;
use kymo_ctf::{DecodeErrorKind, GapKind, Message, Messages, Origin, Resume, StreamError, Trace};
use kymo_event::{
    Cpu, Damage, Duration, Event, EventKind, Gap, Moment, StreamId, StreamInfo, Time, TraceInfo,
    WallClock,
};

use tempfile::NamedTempFile;

use crate::dialects::{Dialect, Meaning, export};
use crate::fields::Pool;
use crate::{OpenError, OpenOptions, ReadError, Source};

/// The CTF traces below a directory, as one.
struct CtfSource {
    info: TraceInfo,
    messages: Messages,
    streams: Vec<Stream>,
    /// For each trace the number of its first stream.
    first: Vec<usize>,
    /// What the records of each trace mean.
    dialects: Vec<Dialect>,
    /// What the record at hand means.
    meanings: Vec<Meaning>,
    /// For each stream where its oldest packet begins in its file, if it was written around a ring.
    oldest: Vec<Option<u64>>,
    /// For each trace when time 0 was by its clock: an export's times begin with the target.
    origins: Vec<i64>,
    ready: VecDeque<Event>,
    fields: bool,
    /// What is left of events that were given out and taken back.
    pool: Pool,
    failed: bool,
    /// The stream, where it came through a pipe; it goes away with this.
    _spooled: Option<NamedTempFile>,
}

/// Where a stream stands.
#[derive(Default)]
struct Stream {
    cpu: Option<Cpu>,
    /// The time of the last event.
    last: Option<Time>,
    /// Whether a packet was seen, after which a first sequence number is no beginning.
    begun: bool,
    /// Gaps that wait for the beginning of their packet, for their time.
    waiting: Vec<Gap>,
}

/// Finds the traces in a directory and below it: at least one.
///
/// # Errors
/// [`OpenError`] if there is none, or the metadata of one cannot be used.
pub(crate) fn find(directory: &Path) -> Result<Vec<Trace>, OpenError> {
    let traces = Trace::open_all(directory).map_err(|error| refusal(directory, error))?;
    Ok(traces.into_iter().map(Trace::in_order).collect())
}

/// Why a directory cannot be opened.
pub(crate) fn refusal(directory: &Path, error: kymo_ctf::OpenError) -> OpenError {
    match error {
        kymo_ctf::OpenError::Io { path, source } => OpenError::Io { path, source },
        kymo_ctf::OpenError::NoTrace { path } => crate::open::unknown(
            &path,
            "a directory without metadata, here or below".to_owned(),
        ),
        kymo_ctf::OpenError::Metadata { path, source } => OpenError::Metadata {
            path,
            offset: source.offset as u64,
            message: source.to_string(),
        },
        other => crate::open::unknown(directory, other.to_string()),
    }
}

/// Opens the traces that were found in a directory, as one. `spooled` is kept as long as they are read.
///
/// # Errors
/// [`OpenError`] if a file cannot be opened.
pub(crate) fn open_traces(
    directory: &Path,
    traces: &[Trace],
    spooled: Option<NamedTempFile>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let messages = Messages::merge(traces).map_err(|error| refusal(directory, error))?;
    let mut info = TraceInfo {
        format: "ctf".to_owned(),
        ..TraceInfo::default()
    };
    let mut first = Vec::new();
    let mut dialects = Vec::new();
    let mut origins = Vec::new();
    let mut oldest = Vec::new();
    for trace in traces {
        first.push(info.streams.len());
        for (index, name) in trace.stream_names().enumerate() {
            oldest.push(trace.oldest(index));
            let name = match trace.name() {
                "" => name.to_owned(),
                trace => format!("{trace}/{name}"),
            };
            info.streams.push(StreamInfo {
                name,
                cpu: first_cpu(trace, index),
                ..StreamInfo::default()
            });
        }
        let dialect = Dialect::of(trace, options.mapping.as_ref())?;
        let export = matches!(dialect, Dialect::Export);
        let clock = trace.metadata().clocks.first();
        let origin = if export {
            export::origin(trace.metadata())
        } else {
            clock.filter(|clock| is_date(clock)).map(|_| 0)
        };
        let moment = origin.map(|unix_ns| Moment {
            time: Time(0),
            unix_ns,
        });
        info.wall_clock = info.wall_clock.take().or_else(|| WallClock::new(moment));
        origins.push(origin.unwrap_or(0));
        if export && let Some(first) = first.last() {
            export::describe(trace, directory, *first, &mut info);
        }
        // Its timer is read between its interrupt and its announcement.
        info.steps_back |= matches!(dialect, Dialect::Zephyr(_));
        dialect.describe(trace, &mut info);
        dialects.push(dialect);
    }
    let clocks = traces.iter().flat_map(|trace| &trace.metadata().clocks);
    let rates: HashSet<_> = clocks.map(|clock| clock.frequency).collect();
    if let (1, Some(rate)) = (rates.len(), rates.iter().next()) {
        info.clock_hz = Some(*rate);
    }
    Ok(Box::new(CtfSource {
        streams: info.streams.iter().map(|_| Stream::default()).collect(),
        info,
        messages,
        first,
        dialects,
        meanings: Vec::new(),
        oldest,
        origins,
        ready: VecDeque::new(),
        fields: options.fields,
        pool: Pool::default(),
        failed: false,
        _spooled: spooled,
    }))
}

/// The processor that the first packet of a stream names. Whoever prints a trace wants to know before its
/// first event whether there are any.
fn first_cpu(trace: &Trace, stream: usize) -> Option<Cpu> {
    let mut reader = trace.reader(stream).ok()??;
    loop {
        match reader.next_message().ok()?? {
            Message::Packet(packet) => return cpu(packet.info().cpu_id),
            Message::Gap(_) => {}
            Message::Event(_) => return None,
        }
    }
}

/// The processor of this number.
fn cpu(number: Option<u64>) -> Option<Cpu> {
    u32::try_from(number?).ok().map(Cpu)
}

/// Whether the times of a clock are dates: it says so, or counts from a moment later than any machine's
/// start can be taken for (LTTng says nothing, and counts from 1970).
fn is_date(clock: &Clock) -> bool {
    const TWENTY_YEARS_NS: i64 = 20 * 365 * 86_400 * 1_000_000_000;
    clock.absolute || clock.nanoseconds(0).is_some_and(|ns| ns > TWENTY_YEARS_NS)
}

impl CtfSource {
    /// Takes the next message, which may be none that is an event.
    fn advance(&mut self) -> Result<bool, ReadError> {
        let (origin, message) = match self.messages.next_message() {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(false),
            Err(error) => return self.fail(&error).map(|()| true),
        };
        let origin_of_trace = origin.trace;
        let Some(index) = number(&self.first, origin) else {
            return Ok(true);
        };
        let id = StreamId(u32::try_from(index).unwrap_or(u32::MAX));
        let (Some(stream), Some(info)) = (
            self.streams.get_mut(index),
            self.info.streams.get_mut(index),
        ) else {
            return Ok(true);
        };
        let gap = |stream: &Stream, gap| Event {
            time: stream.last.unwrap_or_default(),
            stream: id,
            cpu: stream.cpu,
            thread: None,
            kind: EventKind::Gap(gap),
            named: false,
            name: "".into(),
            fields: Vec::new(),
        };
        let origin = self.origins.get(origin_of_trace).copied().unwrap_or(0);
        let time_of = |ns: i64| Time(ns.saturating_sub(origin));
        match message {
            Message::Gap(lost) => stream.waiting.push(match lost.kind {
                GapKind::Packets => Gap::LostPackets {
                    packets: lost.count,
                },
                GapKind::Events => Gap::Discarded { events: lost.count },
            }),
            Message::Packet(packet) => {
                let about = packet.info();
                stream.cpu = cpu(about.cpu_id);
                if !stream.begun {
                    info.cpu = stream.cpu;
                    stream.last = packet.begin_ns().map(time_of);
                    if let Some(packets) = about.seq_num.filter(|number| *number > 0) {
                        stream.waiting.insert(0, Gap::Overwritten { packets });
                    }
                }
                stream.begun = true;
                for lost in std::mem::take(&mut stream.waiting) {
                    self.ready.push_back(gap(stream, lost));
                }
            }
            Message::Event(event) => {
                // Without a clock, events keep the place that they have in their stream.
                let Some(dialect) = self.dialects.get_mut(origin_of_trace) else {
                    return Ok(true);
                };
                dialect.meanings(&event, stream.cpu, &mut self.meanings);
                if self.meanings.is_empty() {
                    return Ok(true);
                }
                let time = dialect
                    .time_ns(&event, index)
                    .map(time_of)
                    .or(stream.last)
                    .unwrap_or_default();
                if let Some(by) = stream.last.and_then(|last| last.since(time))
                    && by > Duration(0)
                {
                    self.ready.push_back(gap(stream, Gap::TimeBackward { by }));
                }
                stream.last = Some(time);
                info.start = Some(info.start.map_or(time, |start| start.min(time)));
                info.end = Some(info.end.map_or(time, |end| end.max(time)));
                for meaning in self.meanings.drain(..) {
                    let (name, fields) = match (meaning.is_record, self.fields) {
                        (false, _) => (String::new(), Vec::new()),
                        (true, wanted) => {
                            let pool = &mut self.pool;
                            let name = meaning.name.unwrap_or_else(|| name(&event, pool));
                            let fields = wanted.then(|| dialect.fields(&event, pool));
                            (name, fields.unwrap_or_default())
                        }
                    };
                    self.ready.push_back(Event {
                        time,
                        stream: id,
                        cpu: stream.cpu.or(meaning.cpu),
                        thread: meaning.thread,
                        kind: meaning.kind,
                        named: false,
                        name: name.into(),
                        fields,
                    });
                }
            }
        }
        Ok(true)
    }

    /// Where a stream cannot be decoded there is a gap, up to the next packet that can be found. The others go on.
    fn fail(&mut self, StreamError { origin, error }: &StreamError) -> Result<(), ReadError> {
        let index = number(&self.first, *origin).unwrap_or(usize::MAX);
        let info = self.info.streams.get(index);
        let name = info.map_or_else(String::new, |info| info.name.clone());
        let offset = error.offset / 8;
        if let DecodeErrorKind::Io(kind) = error.kind {
            self.failed = true;
            return Err(ReadError::Io {
                stream: name,
                offset,
                source: kind.into(),
            });
        }
        // All before the damage has been given out; what can be found of the stream behind it follows.
        let skipped = self.messages.skip(*origin).ok().flatten();
        let (offset, bytes) = match skipped {
            Some(skipped) => {
                let from = skipped.from / 8;
                (from, skipped.to.map(|to| to.saturating_sub(from)))
            }
            None => (offset, None),
        };
        let message = match skipped.map(|skipped| skipped.resume) {
            Some(Resume::Magic) => format!("{error}; what follows was found by its magic number"),
            _ => error.to_string(),
        };
        let message = match self.oldest.get(index) {
            Some(Some(oldest)) => {
                format!("{message} (counted from the oldest packet, at byte {oldest} of a ring)")
            }
            _ => message,
        };
        let stream = self.streams.get(index);
        self.ready.push_back(Event {
            time: stream.and_then(|stream| stream.last).unwrap_or_default(),
            stream: StreamId(u32::try_from(index).unwrap_or(u32::MAX)),
            cpu: stream.and_then(|stream| stream.cpu),
            thread: None,
            kind: EventKind::Gap(Gap::Damage {
                offset,
                bytes,
                message: message.clone(),
            }),
            named: false,
            name: "".into(),
            fields: Vec::new(),
        });
        self.info.damage.push(Damage {
            stream: name,
            offset,
            message,
        });
        Ok(())
    }
}

impl Source for CtfSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Event>, ReadError> {
        while self.ready.is_empty() && !self.failed {
            if !self.advance()? {
                break;
            }
        }
        Ok(self.ready.pop_front())
    }

    fn take_back(&mut self, event: Event) {
        self.pool.take_back(event);
    }
}

/// The number of a stream among those of all traces.
fn number(first: &[usize], origin: Origin) -> Option<usize> {
    first.get(origin.trace)?.checked_add(origin.stream)
}

/// The name of an event; one without a name (a record has to be called something) by its number.
fn name(event: &kymo_ctf::Event<'_>, pool: &mut Pool) -> String {
    match event.name() {
        "" => format!("event {}", event.class().id),
        name => pool.text(name),
    }
}
