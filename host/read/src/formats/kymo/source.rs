//! [`Source`] of a complete recording: merges its streams by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::Plan;
use kymo_ctf::metadata::Metadata;
use kymo_event::{
    Batch, Cpu, Event, Identities, Moment, SpaceKind, StreamId, StreamInfo, Time, TraceInfo,
    WallClock, Wanted,
};
use kymo_wire::event::PacketHeader;
use kymo_wire::link::Identity;

use super::clock_checks::{CheckFacts, keep};
use super::clocks::{Clocks, Moments};
use super::describe::{Description, Unusable, check_version};
use super::feed::Input;
use super::heads::Heads;
use super::marker_names::MarkerNames;
use super::names::Facts;
use super::packets::{Piece, Pieces};
use super::row_stream::{Decoder, RowStream, Shared};
use super::stream::{RINGS, Stream};
use super::streams::{StreamKind, StreamNumber, StreamRange, find_streams};
use super::whole_calls::{WAITING, WholeCalls};
use super::write::{Program, has_items, metadata_text};
use crate::bytes::Bytes;
use crate::dialects::kymo::Dialect;
use crate::source::add_damage;
use crate::{OpenError, OpenOptions, ReadError, Source, describe_events};

/// Inputs of up to this many bytes hold at most [`WAITING`] records of calls.
const FEW_CALLS: usize = WAITING * 4;

/// Input of one stream.
#[derive(Clone)]
struct Part {
    info: StreamInfo,
    kind: StreamKind,
    /// The `cpu_id` and `stream_id` of its packets.
    number: StreamNumber,
    input: Input,
}

/// Reader of a complete Kymo recording.
#[derive(Debug)]
pub(super) struct NativeSource {
    info: TraceInfo,
    dialect: Dialect,
    decoder: Decoder,
    readers: Vec<Reader>,
    /// The streams that have not ended, ordered by the times of their next events.
    order: BinaryHeap<Reverse<(Time, usize)>>,
    /// Whether some packets record a call as one record.
    whole_calls: bool,
}

/// Reader of one stream.
#[derive(Debug)]
enum Reader {
    /// Decodes the bytes directly.
    Rows(Box<RowStream>),
    /// Decodes through CTF, with the names and fields of all events.
    Events {
        stream: Box<Stream>,
        next: Option<Event>,
        /// The times of its first and last records so far.
        span: Option<(Time, Time)>,
    },
}

impl Reader {
    /// Adds events up to time `limit` to the batch, as many as fit. Returns the time of the next
    /// event.
    fn run(&mut self, shared: &mut Shared<'_>, limit: Time, batch: &mut Batch) -> Option<Time> {
        let (stream, next, span) = match self {
            Self::Rows(stream) => return stream.run(shared, limit, batch),
            Self::Events { stream, next, span } => (stream, next, span),
        };
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => stream.next(shared.dialect, shared.identities, shared.damage)?,
            };
            if batch.is_full() || event.time > limit {
                let time = event.time;
                *next = Some(event);
                return Some(time);
            }
            if event.record {
                let (start, end) = span.unwrap_or((event.time, event.time));
                *span = Some((start.min(event.time), end.max(event.time)));
            }
            batch.push_event(event);
        }
    }

    /// The times of the first and last records returned so far.
    const fn span(&self) -> Option<(Time, Time)> {
        match self {
            Self::Rows(stream) => stream.span,
            Self::Events { span, .. } => *span,
        }
    }
}

impl NativeSource {
    /// Creates a reader of these streams.
    ///
    /// `origin` is the time of tick 0 of the clock, in nanoseconds since 1970 in UTC, if known from
    /// another source than the streams.
    fn new(
        plan: &Arc<Plan>,
        mut dialect: Dialect,
        mut info: TraceInfo,
        mut inputs: Vec<Part>,
        origin: Option<i64>,
    ) -> Self {
        if inputs.iter().any(|part| part.kind == StreamKind::Thread)
            && let Some(space) = info.identities.space_mut(dialect.space)
        {
            space.kind = SpaceKind::Process;
            info.wall_times = true;
        }
        let Clocks {
            wall,
            printed,
            corrections,
            check,
        } = clocks(plan, &mut inputs);
        let origin = origin.map(|unix_ns| Moment {
            time: Time(0),
            unix_ns,
        });
        info.wall_clock = wall.or_else(|| WallClock::new(origin));
        info.clock_corrections = printed;
        info.in_order = true;
        let mut facts = CheckFacts::default();
        let mut spans = Vec::new();
        let (mut readers, mut whole_calls) = (Vec::new(), false);
        for (index, (part, correction)) in (0..).zip(inputs.into_iter().zip(corrections)) {
            let Part {
                info: mut stream,
                kind,
                input,
                ..
            } = part;
            let id = StreamId(index);
            if kind == StreamKind::Metadata {
                let names = Stream::new(plan, id, kind, input.clone());
                (dialect.moved, facts) = Facts::default().read_all(&mut info, names, &dialect);
            }
            let is_usual = matches!(kind, StreamKind::Cpu | StreamKind::Thread);
            let heads = Heads::of(&input);
            stream.whole_calls |= heads.whole_calls;
            whole_calls |= heads.whole_calls;
            info.streams.push(stream);
            info.in_order &= heads.in_order && correction.is_none();
            if kind != StreamKind::Metadata {
                spans.extend(heads.span);
            }
            let reader = if is_usual && dialect.wanted < Wanted::Everything && heads.events {
                Reader::Rows(Box::new(RowStream::new(id, kind, input, correction)))
            } else {
                let stream = Stream::new(plan, id, kind, input).corrected(correction);
                Reader::Events {
                    stream: Box::new(stream),
                    next: None,
                    span: None,
                }
            };
            readers.push(reader);
        }
        let first = spans.iter().map(|(first, _)| *first).min();
        let last = spans.iter().map(|(_, last)| *last).max();
        let span = last.zip(first).map_or(0, |(last, first)| last - first);
        let checks = facts.checks(dialect.clock_hz, span);
        keep(&mut info, checks.into_iter().chain(check).collect());
        facts.remark(&mut info);
        // The times of the first events are not known yet.
        let order = (0..readers.len()).map(|index| Reverse((Time(i64::MIN), index)));
        Self {
            info,
            decoder: Decoder::new(&dialect),
            dialect,
            order: order.collect(),
            readers,
            whole_calls,
        }
    }

    /// Like [`new`](Self::new), but splits calls that are one record into entries and exits.
    fn open(
        plan: &Arc<Plan>,
        dialect: Dialect,
        info: TraceInfo,
        inputs: Vec<Part>,
        origin: Option<i64>,
    ) -> Box<dyn Source> {
        let wanted = dialect.wanted;
        let bytes: usize = inputs.iter().map(|part| part.input.range.len()).sum();
        let again = || {
            let wanted = Wanted::Meaning;
            let dialect = Dialect {
                wanted,
                ..dialect.clone()
            };
            (dialect, info.clone(), inputs.clone())
        };
        let again = (bytes > FEW_CALLS).then(again);
        let source = Self::new(plan, dialect, info, inputs, origin);
        if !source.whole_calls {
            return Box::new(source);
        }
        let calls = WholeCalls::new(source, wanted);
        Box::new(match again {
            Some((dialect, info, inputs)) => {
                calls.read_before(Self::new(plan, dialect, info, inputs, origin))
            }
            None => calls,
        })
    }

    /// Reads events of a stream up to time `limit`, as many as fit into the batch.
    fn run(&mut self, index: usize, limit: Time, batch: &mut Batch) {
        let Self {
            info,
            dialect,
            decoder,
            readers,
            order,
            ..
        } = self;
        let TraceInfo {
            streams,
            damage,
            more_damage,
            identities,
            ..
        } = info;
        let (Some(reader), Some(stream)) = (readers.get_mut(index), streams.get_mut(index)) else {
            return;
        };
        let mut shared = Shared {
            dialect,
            decoder,
            identities,
            damage: &mut |offset, message| {
                add_damage(damage, more_damage, &stream.name, offset, message)
            },
        };
        let next = reader.run(&mut shared, limit, batch);
        order.extend(next.map(|next| Reverse((next, index))));
        if let Some((start, end)) = reader.span() {
            (stream.start, stream.end) = (Some(start), Some(end));
        }
    }
}

impl Source for NativeSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while !batch.is_full()
            && let Some(Reverse((_, index))) = self.order.pop()
        {
            // At equal times, the stream with the lower index precedes the other.
            let limit = match self.order.peek() {
                Some(Reverse((time, other))) if index < *other => *time,
                Some(Reverse((time, _))) => Time(time.0.saturating_sub(1)),
                None => Time(i64::MAX),
            };
            self.run(index, limit, batch);
        }
        Ok(!batch.is_empty())
    }
}

/// Compares the streams' clocks by their wall-clock records.
fn clocks(plan: &Plan, parts: &mut [Part]) -> Clocks {
    let Some(clock) = plan.metadata().clocks.first() else {
        return Clocks::default();
    };
    let moments = parts.iter_mut().map(|part| {
        let reported = match part.kind {
            StreamKind::Items => Moments::default(),
            _ => Moments::of_stream(&mut part.input, clock),
        };
        (part.kind, part.number.cpu, reported)
    });
    let mut clocks = Clocks::compare(&moments.collect::<Vec<_>>());
    clocks.follow(parts.iter().map(|part| match part.kind {
        // A processor's items use its clock.
        StreamKind::Items => {
            let cpu = u32::from(part.number.cpu) % RINGS;
            parts.iter().position(|other| {
                other.kind == StreamKind::Cpu && u32::from(other.number.cpu) == cpu
            })
        }
        _ => None,
    }));
    clocks
}

/// Opens a dump in memory, as received from a target: `missing` are the parts of `bytes` that never
/// arrived. `target` names its origin in messages.
///
/// # Errors
/// [`OpenError::Identity`] if the identity is not valid for a recording.
pub fn open_dump(
    identity: &Identity,
    bytes: Vec<u8>,
    missing: &[Range<u64>],
    target: &str,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    open_packets(identity, Bytes::from(bytes), 0, missing, options)
        .map_err(|why| why.of_identity(target.into()))
}

/// Opens the packets of a dump or raw file, which begin at offset `start`.
///
/// # Errors
/// [`Unusable`](super::describe::Unusable) if the identity is not valid for a recording.
pub(super) fn open_packets(
    identity: &Identity,
    bytes: Bytes,
    start: usize,
    missing: &[Range<u64>],
    options: &OpenOptions,
) -> Result<Box<dyn Source>, Unusable> {
    check_version(identity.protocol, Some(identity.layout.shape))?;
    let layout = identity.layout;
    let heads = Pieces::new(layout, &bytes, missing)
        .starting_at(start)
        .heads_only();
    let streams = find_streams(heads);
    let items = has_items(streams.iter().map(|stream| &stream.number));
    let mut text = metadata_text(identity, "", None, &Program::default(), items);
    MarkerNames::default().write(&mut text);
    let parsed = Metadata::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let plan = Plan::new(parsed.metadata).map_err(|error| error.to_string())?;
    let description = Description::new(plan.metadata(), options.wanted)?;
    let (mut info, dialect) = (description.info(), description.dialect);
    let missing: Arc<[Range<u64>]> = missing.into();
    let parts = streams.into_iter().map(|stream| {
        let StreamRange { number, kind, .. } = stream;
        let first = First {
            number,
            flags: stream.flags,
            thread: stream.thread,
        };
        Part {
            info: stream_info(
                &dialect,
                &mut info.identities,
                kind.file_name(number.cpu),
                kind,
                &first,
            ),
            kind,
            number,
            input: Input {
                layout,
                bytes: bytes.clone(),
                missing: missing.clone(),
                range: stream.bytes,
                number: Some(number),
                suspect: Arc::default(),
            },
        }
    });
    let parts: Vec<_> = parts.collect();
    Ok(NativeSource::open(
        &Arc::new(plan),
        dialect,
        info,
        parts,
        None,
    ))
}

/// Selection of a trace directory's streams. The metadata streams are always read.
pub(crate) enum Chosen<'a> {
    /// All.
    All,
    /// The one of this file name.
    File(&'a OsStr),
    /// One that was read from a pipe instead of the directory.
    Piped(Bytes),
}

/// Opens the streams of a trace directory with Kymo's own metadata.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or the metadata lacks something.
pub(crate) fn open_directory(
    directory: &Path,
    mut metadata: Metadata,
    chosen: Chosen<'_>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let refuse = |why: Unusable| {
        why.of(directory.join("metadata"), |path, message| {
            let offset = 0;
            OpenError::Metadata {
                path,
                offset,
                message,
            }
        })
    };
    let origin = take_origin(&mut metadata);
    let plan = Plan::new(metadata).map_err(|error| refuse(error.to_string().into()))?;
    let description = Description::new(plan.metadata(), options.wanted).map_err(refuse)?;
    let (mut info, dialect) = (description.info(), description.dialect);
    let declared = description.declared;
    let layout = dialect.layout;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let named = options.metadata.as_ref();
    let named = named.and_then(|path| path.canonicalize().ok());
    let mut files = Vec::new();
    let (only, piped) = match chosen {
        Chosen::All => (None, None),
        Chosen::File(name) => (Some(name), None),
        Chosen::Piped(bytes) => (Some(OsStr::new("-")), Some(bytes)),
    };
    files.extend(piped.map(|bytes| ("-".to_owned(), bytes)));
    for entry in fs::read_dir(directory).map_err(io(directory))? {
        let entry = entry.map_err(io(directory))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = fs::metadata(&path).map_err(io(&path))?.file_type();
        if name == "metadata" || name.starts_with('.') || !kind.is_file() {
            continue;
        }
        if named.is_some() && path.canonicalize().ok() == named {
            continue;
        }
        let file = File::open(&path).map_err(io(&path))?;
        files.push((name, Bytes::of_file(&file).map_err(io(&path))?));
    }
    let mut streams = Vec::new();
    for (name, bytes) in files {
        let first = Pieces::new(layout, &bytes, &[])
            .heads_only()
            .find_map(|piece| match piece {
                Piece::Packet(packet) => Some(packet.header),
                Piece::Damage(_) => None,
            });
        let kind = StreamKind::of_file(&name, first.as_ref());
        if kind != StreamKind::Metadata && only.is_some_and(|only| *name != *only) {
            continue;
        }
        let there = first.is_some();
        let first = First {
            number: first
                .as_ref()
                .map_or_else(Default::default, StreamNumber::of),
            flags: first.map_or(0, |header| header.flags),
            thread: first.map_or(0, |header| header.thread),
        };
        let part = Part {
            info: stream_info(&dialect, &mut info.identities, name, kind, &first),
            kind,
            number: first.number,
            input: Input {
                layout,
                range: 0..bytes.len(),
                bytes,
                missing: Arc::default(),
                number: None,
                suspect: Arc::default(),
            },
        };
        // Streams without a packet sort last.
        streams.push(((!there, first.number), part));
    }
    streams.sort_by(|(a, left), (b, right)| (a, &left.info.name).cmp(&(b, &right.info.name)));
    let parts = streams.into_iter().map(|(_, part)| part).collect();
    let source = NativeSource::open(&Arc::new(plan), dialect, info, parts, origin);
    Ok(describe_events(source, declared))
}

/// Returns the time of tick 0 of a trace directory's clock, in nanoseconds since 1970 in UTC, and removes it
/// from the metadata: the times of every form of recording count from the start of the target.
pub(super) fn take_origin(metadata: &mut Metadata) -> Option<i64> {
    let clock = metadata.clocks.first_mut()?;
    let origin = clock.nanoseconds(0).filter(|_| clock.absolute);
    (clock.offset_seconds, clock.offset_ticks, clock.absolute) = (0, 0, false);
    origin
}

/// Header fields of a stream's first packet.
pub(super) struct First {
    pub(super) number: StreamNumber,
    pub(super) flags: u8,
    pub(super) thread: u64,
}

/// Describes a stream by its first packet.
pub(super) fn stream_info(
    dialect: &Dialect,
    identities: &mut Identities,
    name: String,
    kind: StreamKind,
    first: &First,
) -> StreamInfo {
    let of_thread = match kind {
        StreamKind::Thread => true,
        StreamKind::Items => first.flags & PacketHeader::FLAG_THREAD != 0,
        StreamKind::Cpu | StreamKind::Metadata => false,
    };
    let number = u32::from(first.number.cpu);
    StreamInfo {
        name,
        space: dialect.space,
        cpu: match kind {
            StreamKind::Cpu => Some(Cpu(number)),
            StreamKind::Items if !of_thread => Some(Cpu(number % RINGS)),
            _ => None,
        },
        thread: if of_thread {
            dialect.thread(identities, first.thread)
        } else {
            None
        },
        timeless: kind == StreamKind::Metadata,
        without_calls: kind == StreamKind::Items,
        whole_calls: first.flags & PacketHeader::FLAG_CALLS != 0,
        ..StreamInfo::default()
    }
}
