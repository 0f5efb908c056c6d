//! CTF traces of any tracer: records with their names and fields.
//!
//! A dialect defines the *meanings* of events ([`Dialect`]). Without one, they are [`EventKind::Other`], which is
//! sufficient to list, count and export them.

mod machines;

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::metadata;
use kymo_ctf::{
    Absence, DecodeError, DecodeErrorKind, GapKind, MAX_LEVELS, Message, Messages, Origin, Resume,
    Run, StreamError, Trace,
};
use kymo_event::{
    Batch, Cpu, Cut, Damage, Event, EventKind, Gap, Moment, StreamId, StreamInfo, Time, TraceInfo,
    WallClock, Wanted,
};

use crate::dialects::{Built, Caches, Clock, Dialect, Sink, env_text, export};
use crate::fields::Pool;
use crate::formats::kymo::{self, Chosen};
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, ReadError, Source};

use machines::Machines;

/// Source of all CTF traces below a directory.
struct CtfSource {
    info: TraceInfo,
    messages: Messages,
    streams: Vec<Stream>,
    /// Index of the first stream of each trace.
    first: Vec<usize>,
    /// Dialect of each trace.
    dialects: Vec<Dialect>,
    /// Caches of recent identities.
    caches: Caches,
    /// Names of each stream's files.
    files: Vec<Vec<String>>,
    /// Offset of the oldest packet in each stream's file, if the file was written as a ring.
    oldest: Vec<Option<u64>>,
    wanted: Wanted,
    /// Events of each trace that are wanted with their details.
    built: Vec<Built>,
    /// Parts of earlier events, for reuse.
    pool: Pool,
    /// Error that ended reading.
    failed: Option<ReadError>,
    ended: bool,
}

/// State of a stream.
#[derive(Default)]
struct Stream {
    cpu: Option<Cpu>,
    clock: Clock,
    /// Whether there was a packet. A later sequence number does not mark the beginning.
    begun: bool,
    /// Gaps in front of the first packet, which get its time.
    waiting: Vec<Gap>,
}

/// Finds the traces in a directory and below it: at least one. If the options name the metadata, the directory is one
/// trace, and its files are the streams.
///
/// # Errors
/// [`OpenError`] if there is none, or if the metadata of one is invalid.
pub(crate) fn find(directory: &Path, options: &OpenOptions) -> Result<Vec<Trace>, OpenError> {
    let traces = match &options.metadata {
        Some(metadata) => Trace::open_described(directory, metadata).map(|trace| vec![trace]),
        None => Trace::open_all(directory),
    };
    let traces = traces.map_err(|error| refusal(directory, error))?;
    let traces = Trace::joined(traces).into_iter();
    Ok(traces.map(Trace::in_order).collect())
}

/// Returns the error for a directory that cannot be opened.
pub(crate) fn refusal(directory: &Path, error: kymo_ctf::OpenError) -> OpenError {
    match error {
        kymo_ctf::OpenError::Io { path, source } => OpenError::Io { path, source },
        kymo_ctf::OpenError::NoTrace { path } if is_of_uftrace(&path) => crate::open::unknown(
            &path,
            "a directory of uftrace's data, which uftrace reads".to_owned(),
        ),
        kymo_ctf::OpenError::NoTrace { path } => crate::open::unknown(
            &path,
            format!("a directory without metadata, here or {MAX_LEVELS} levels below"),
        ),
        kymo_ctf::OpenError::NotAFile { path, found } => OpenError::Unknown {
            path,
            expected: "a regular file in a trace directory".to_owned(),
            found: found.to_owned(),
        },
        kymo_ctf::OpenError::Metadata { path, source } => OpenError::Metadata {
            path,
            offset: source.offset as u64,
            message: source.to_string(),
        },
        other => crate::open::unknown(directory, other.to_string()),
    }
}

/// Returns whether a directory holds uftrace's data, or its default directory (`uftrace.data`).
fn is_of_uftrace(directory: &Path) -> bool {
    ["info", "uftrace.data/info"].iter().any(|name| {
        let mut head = [0; 7];
        let file = std::fs::File::open(directory.join(name));
        file.is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && &head == b"Ftrace!"
    })
}

/// Opens one stream of a trace. A file may have been written as a ring; a pipe is read as its data arrives.
///
/// # Errors
/// [`OpenError`] if the metadata is invalid.
pub(crate) fn open_stream(
    peek: Peek,
    metadata: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let path = peek.path().to_owned();
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy().into_owned();
    let files = peek.is_file().then(|| (name.clone(), path.clone()));
    let trace = Trace::open_streams(metadata, files).map_err(|error| refusal(&path, error))?;
    if kymo::is_native(trace.metadata()) {
        let piped = !peek.is_file();
        let beside = if piped { metadata } else { &path };
        let folder = match beside.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let metadata = trace.metadata().clone();
        return match path.file_name() {
            Some(name) if !piped => {
                kymo::open_directory(folder, metadata, Chosen::File(name), options)
            }
            _ => kymo::open_described(peek, folder, metadata, options),
        };
    }
    let Some(pipe) = peek.into_reader() else {
        return open_traces(&path, &[trace.in_order()], None, options);
    };
    // Data that has not arrived yet cannot be examined beforehand.
    let nothing: &[u8] = &[];
    let trace = Trace::from_plan(Arc::clone(trace.plan()), [(name, nothing)]);
    let messages = Messages::of_stream(&trace, pipe);
    open_traces(&path, &[trace], Some(messages), options)
}

/// Opens the traces that were found in a directory as one source. `messages` are theirs, if they come from elsewhere.
///
/// # Errors
/// [`OpenError`] if a file cannot be opened.
pub(crate) fn open_traces(
    directory: &Path,
    traces: &[Trace],
    messages: Option<Messages>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    for trace in traces {
        check_clocks(trace, directory)?;
    }
    let messages = match messages {
        Some(messages) => messages,
        None => Messages::merge_by(traces, decoders(options.threads))
            .map_err(|error| refusal(directory, error))?,
    };
    let mut info = TraceInfo {
        format: "ctf".to_owned(),
        ..TraceInfo::default()
    };
    let mut first = Vec::new();
    let mut dialects = Vec::new();
    let mut streams: Vec<Stream> = Vec::new();
    let mut oldest = Vec::new();
    let mut files: Vec<Vec<String>> = Vec::new();
    let mut machines = Machines::default();
    let mut origins = Vec::new();
    for trace in traces {
        let spaces = machines.spaces(trace, &mut info.identities);
        first.push(info.streams.len());
        for (index, name) in trace.stream_names().enumerate() {
            oldest.push(trace.oldest(index));
            let below = |name: &str| match trace.name() {
                "" => name.to_owned(),
                trace => format!("{trace}/{name}"),
            };
            files.push(trace.files(index).map(below).collect());
            info.streams.push(StreamInfo {
                name: below(name),
                space: spaces.code,
                machine: spaces.machine,
                ..StreamInfo::default()
            });
        }
        let mut absences = trace.absences();
        if export::is_export(trace.metadata()) {
            // An export names its files by the numbers of processors, and has files only for those with events.
            absences.retain(|absence| !matches!(absence, Absence::Missing { .. }));
        }
        info.remarks.extend(remarks(trace.name(), &absences));
        let mapping = options.mapping.as_ref();
        let mut dialect = Dialect::of(trace, mapping, spaces, &mut info.identities)?;
        let of_trace = first.last().copied().unwrap_or(0);
        for (index, stream) in info.streams.iter_mut().skip(of_trace).enumerate() {
            stream.cpu = first_cpu(trace, index, &dialect);
        }
        let export = matches!(dialect, Dialect::Export(_));
        let clock = trace.metadata().clocks.first();
        let origin = if export {
            export::origin(trace.metadata())
        } else {
            clock.filter(|clock| is_date(clock)).map(|_| 0)
        };
        origins.push(origin);
        if let (Dialect::Export(export), Some(first)) = (&dialect, first.last()) {
            export.describe(trace, directory, *first, &mut info);
        }
        // Its timer is read between its interrupt and its announcement.
        info.steps_back |= matches!(dialect, Dialect::Zephyr(_));
        dialect.describe(trace, &mut info);
        dialects.push(dialect);
    }
    // Another trace of the same machine may record the switches.
    let mut tell = HashSet::new();
    for ((trace, dialect), first) in traces.iter().zip(&dialects).zip(&first) {
        if dialect.tells_switches(trace) {
            tell.extend(info.streams.get(*first).map(|stream| stream.machine));
        }
    }
    for stream in &mut info.streams {
        stream.without_switches = !tell.contains(&stream.machine);
    }
    // What another trace knows of threads holds for all.
    info.wall_times &= !info.shows_cpus();
    let origin = common_origin(&origins);
    for ((trace, dialect), first) in traces.iter().zip(&dialects).zip(&first) {
        machines::cover_switches(trace, dialect, *first, origin, &mut info.streams);
    }
    streams.resize_with(info.streams.len(), || Stream {
        clock: Clock {
            origin,
            ..Clock::default()
        },
        ..Stream::default()
    });
    let dated = origins.iter().flatten().next();
    let moment = dated.map(|_| Moment {
        time: Time(0),
        unix_ns: origin,
    });
    info.wall_clock = WallClock::new(moment);
    let cuts: Vec<_> = traces
        .iter()
        .map(|trace| cut(trace.metadata(), origin))
        .collect();
    // With several traces, the cut is the union of theirs.
    let begins: Option<Vec<_>> = cuts.iter().map(|cut| cut.begin).collect();
    let ends: Option<Vec<_>> = cuts.iter().map(|cut| cut.end).collect();
    info.cut = Cut {
        begin: begins.and_then(|begins| begins.into_iter().min()),
        end: ends.and_then(|ends| ends.into_iter().max()),
        hidden_calls: cuts
            .iter()
            .filter_map(|cut| cut.hidden_calls)
            .reduce(u64::saturating_add),
    };
    let clocks = traces.iter().flat_map(|trace| &trace.metadata().clocks);
    let rates: HashSet<_> = clocks.map(|clock| clock.frequency).collect();
    if let (1, Some(rate)) = (rates.len(), rates.iter().next()) {
        info.clock_hz = Some(*rate);
    }
    Ok(Box::new(CtfSource {
        info,
        messages,
        streams,
        first,
        dialects,
        caches: Caches::default(),
        files,
        oldest,
        wanted: options.wanted,
        built: traces
            .iter()
            .map(|trace| Built::of(trace.metadata(), &options.events))
            .collect(),
        pool: Pool::default(),
        failed: None,
        ended: false,
    }))
}

/// Rejects a trace with a clock whose times do not fit into 64 bits of nanoseconds for a year from its offset.
fn check_clocks(trace: &Trace, directory: &Path) -> Result<(), OpenError> {
    const YEAR_S: u64 = 366 * 86_400;
    let fits = |clock: &&metadata::Clock| {
        let year = clock.frequency.saturating_mul(YEAR_S);
        clock.frequency == 0 || [0, year].iter().all(|at| clock.nanoseconds(*at).is_some())
    };
    let mut clocks = trace.metadata().clocks.iter();
    let Some(clock) = clocks.find(|clock| !fits(clock)) else {
        return Ok(());
    };
    Err(OpenError::Metadata {
        path: directory.join(trace.name()).join("metadata"),
        offset: 0,
        message: format!(
            "clock {:?}: found an offset of {} s and {} ticks, expected one whose times fit 64 bits of nanoseconds (292 years)",
            clock.name, clock.offset_seconds, clock.offset_ticks
        ),
    })
}

/// Returns the date of time 0 in nanoseconds since 1970. For an export it is the start of its target, if the export has
/// it. Several traces share one timeline in order of dates: it begins with the first one's target, or in 1970 if any of
/// them counts dates or has none.
fn common_origin(origins: &[Option<i64>]) -> i64 {
    let is_date = |origin: &Option<i64>| origin.is_none_or(|origin| origin == 0);
    match origins.iter().any(is_date) {
        true => 0,
        false => origins.first().copied().flatten().unwrap_or(0),
    }
}

/// Returns the part of a longer trace that `kymo export` has cut out.
fn cut(metadata: &metadata::Metadata, origin: i64) -> Cut {
    let time = |name| {
        let ns: i64 = env_text(metadata, name)?.parse().ok()?;
        ns.checked_sub(origin).map(Time)
    };
    Cut {
        begin: time(Cut::BEGIN_NAME),
        end: time(Cut::END_NAME),
        hidden_calls: env_text(metadata, Cut::HIDDEN_CALLS_NAME)
            .and_then(|calls| calls.parse().ok()),
    }
}

/// Returns how many of these threads decode, including the one that takes the decoded events. One is reserved for the
/// consumer of the events.
const fn decoders(threads: usize) -> usize {
    match threads {
        0 | 1 => 1,
        more => more - 1,
    }
}

/// Largest number of absent streams that are listed individually.
const ABSENCES_LISTED: usize = 8;

/// Returns remarks about empty or missing streams.
fn remarks(trace: &str, absences: &[Absence]) -> Vec<String> {
    let place = match trace {
        "" => String::new(),
        trace => format!("{trace}: "),
    };
    let listed = absences.iter().take(ABSENCES_LISTED);
    let mut remarks: Vec<String> = listed.map(|absence| format!("{place}{absence}")).collect();
    let more = absences.len().saturating_sub(ABSENCES_LISTED);
    if more > 0 {
        remarks.push(format!("{place}{more} more streams are empty or missing"));
    }
    remarks
}

/// Returns the processor in the first packet of a stream. Printers of a trace need to know before the first event
/// whether there are processors.
fn first_cpu(trace: &Trace, stream: usize, dialect: &Dialect) -> Option<Cpu> {
    let mut reader = trace.reader(stream).ok()??;
    loop {
        match reader.next_message().ok()?? {
            Message::Packet(packet) => return dialect.cpu(&packet),
            Message::Gap(_) => {}
            Message::Event(_) => return None,
        }
    }
}

/// Returns whether the times of a clock are dates: the clock declares it, or its offset is too large for the time since
/// a machine's start (LTTng declares nothing and counts from 1970).
fn is_date(clock: &metadata::Clock) -> bool {
    const TWENTY_YEARS_NS: i64 = 20 * 365 * 86_400 * 1_000_000_000;
    clock.absolute || clock.nanoseconds(0).is_some_and(|ns| ns > TWENTY_YEARS_NS)
}

impl CtfSource {
    /// Handles the next run of a stream, which may have no events.
    fn advance(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let (origin, run) = match self.messages.next_run() {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(false),
            Err(error) => return self.fail(&error, batch).map(|()| true),
        };
        let (Some(index), Some(dialect)) = (
            number(&self.first, origin),
            self.dialects.get_mut(origin.trace),
        ) else {
            return Ok(true);
        };
        let id = StreamId(u32::try_from(index).unwrap_or(u32::MAX));
        let (Some(stream), Some(info)) = (
            self.streams.get_mut(index),
            self.info.streams.get_mut(index),
        ) else {
            return Ok(true);
        };
        match run {
            Run::Events(events) => {
                let mut sink = Sink {
                    identities: &mut self.info.identities,
                    caches: &mut self.caches,
                    batch,
                    pool: &mut self.pool,
                    wanted: self.wanted,
                    built: self
                        .built
                        .get(origin.trace)
                        .and_then(|built| built.of_stream(events.packet().info().stream_class)),
                    stream: id,
                    index,
                    cpu: stream.cpu,
                    clock: stream.clock,
                    time: Time(0),
                    fields: dialect.fields(),
                };
                dialect.records(events, &mut sink);
                stream.clock = sink.clock;
                (info.start, info.end) = (stream.clock.start, stream.clock.end);
            }
            Run::Gap(lost) => {
                let lost = match lost.kind {
                    GapKind::Packets => Gap::LostPackets {
                        packets: lost.count,
                    },
                    GapKind::Events | GapKind::EarlierEvents => {
                        Gap::Discarded { events: lost.count }
                    }
                };
                // The gap is at the last event of its stream, in front of later events of other streams.
                match stream.begun {
                    true => batch.push_event(gap(id, stream.clock.last, stream.cpu, lost)),
                    false => stream.waiting.push(lost),
                }
            }
            Run::Packet(packet) => {
                let about = packet.info();
                stream.cpu = dialect.cpu(&packet);
                if !stream.begun {
                    info.cpu = stream.cpu;
                    let begin = packet.begin_ns();
                    let origin = stream.clock.origin;
                    stream.clock.last = begin.map(|ns| Time(ns.saturating_sub(origin)));
                    if let Some(packets) = about.seq_num.filter(|number| *number > 0) {
                        stream.waiting.insert(0, Gap::Overwritten { packets });
                    }
                }
                stream.begun = true;
                for lost in stream.waiting.drain(..) {
                    batch.push_event(gap(id, stream.clock.last, stream.cpu, lost));
                }
            }
        }
        Ok(true)
    }

    /// Adds a gap for an undecodable part of a stream, up to the next packet that can be found. Other streams continue.
    fn fail(
        &mut self,
        StreamError { origin, error }: &StreamError,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let index = number(&self.first, *origin).unwrap_or(usize::MAX);
        let file = usize::try_from(error.file).unwrap_or(usize::MAX);
        let files = self.files.get(index);
        let name = files.and_then(|files| files.get(file).cloned());
        let name = name.unwrap_or_default();
        let offset = error.offset / 8;
        if let DecodeErrorKind::Io(kind) = error.kind {
            return Err(ReadError::Io {
                stream: name,
                offset,
                source: kind.into(),
            });
        }
        // The events in front of the damage have been returned. The rest of the stream follows, as far as it can be
        // found.
        let skipped = self.messages.skip(*origin).ok().flatten();
        let (offset, bytes) = match skipped {
            Some(skipped) => {
                let from = skipped.from / 8;
                (from, skipped.to.map(|to| to.saturating_sub(from)))
            }
            None => (offset, None),
        };
        if let Some(remark) = skipped.and_then(|skipped| skipped.unused(&name)) {
            self.info.remarks.push(remark);
            return Ok(());
        }
        if self.info.streams.len() > 1 && skipped.is_some_and(|it| it.is_other_file) {
            let remark = format!("{name} is no stream of the trace: it has no packet");
            self.info.remarks.push(remark);
            return Ok(());
        }
        let mut message = error.to_string();
        if let Some(doubt) = doubt(error) {
            message = format!("{message}; {doubt}");
        }
        if let Some(Resume::Magic) = skipped.map(|skipped| skipped.resume) {
            message += "; what follows was found by its magic number";
        }
        let message = match self.oldest.get(index) {
            Some(Some(oldest)) => {
                format!("{message} (counted from the oldest packet, at byte {oldest} of a ring)")
            }
            _ => message,
        };
        if let Some(stream) = self.streams.get(index) {
            let id = StreamId(u32::try_from(index).unwrap_or(u32::MAX));
            let damage = Gap::Damage {
                offset,
                bytes,
                message: message.clone(),
            };
            batch.push_event(gap(id, stream.clock.last, stream.cpu, damage));
        }
        self.info.add_damage(Damage {
            stream: name,
            offset,
            message,
        });
        Ok(())
    }
}

/// Returns a note about events that were returned before their packet turned out to be damaged. A wrong byte is
/// detected only when something does not fit, some events later. If the end of a packet is missing, its beginning is
/// valid.
fn doubt(error: &DecodeError) -> Option<String> {
    if let (DecodeErrorKind::Truncated { .. }, _) | (_, 0) = (error.kind, error.event) {
        return None;
    }
    Some(match error.event {
        1 => "the event of this packet before it is counted, although a wrong byte may lie in it"
            .to_owned(),
        count => format!(
            "the {count} events of this packet before it are counted, although a wrong byte may lie in them"
        ),
    })
}

/// Returns a gap behind the last event of a stream.
fn gap(stream: StreamId, last: Option<Time>, cpu: Option<Cpu>, gap: Gap) -> Event {
    Event {
        time: last.unwrap_or_default(),
        stream,
        cpu,
        thread: None,
        kind: EventKind::Gap(gap),
        named: false,
        record: false,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    }
}

impl Source for CtfSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn threads(&self) -> usize {
        self.messages.threads()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while let Some(event) = batch.spare() {
            self.pool.take_back(event);
        }
        while !batch.is_full() && !self.ended {
            match self.advance(batch) {
                Ok(more) => self.ended = !more,
                Err(error) => (self.failed, self.ended) = (Some(error), true),
            }
        }
        match self.failed.take_if(|_| batch.is_empty()) {
            Some(error) => Err(error),
            None => Ok(!batch.is_empty()),
        }
    }
}

/// Returns the index of a stream among those of all traces.
fn number(first: &[usize], origin: Origin) -> Option<usize> {
    first.get(origin.trace)?.checked_add(origin.stream)
}
