//! A whole recording as a [`Source`]: its streams merged by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::Plan;
use kymo_ctf::metadata::Metadata;
use kymo_event::{
    Cpu, Damage, Event, EventKind, Moment, RecordingCost, StreamId, StreamInfo, Time, TraceInfo,
    Value, WallClock,
};
use kymo_wire::event::{MetadataType, PacketHeader};
use kymo_wire::link::Identity;

use super::clocks::{Clocks, Moments};
use super::describe::{Description, Unusable, check_version};
use super::feed::Input;
use super::packets::{Piece, Pieces};
use super::stream::{RINGS, Stream};
use super::streams::{StreamKind, StreamNumber, StreamRange, find_streams};
use super::write::{has_items, metadata_text};
use crate::bytes::Bytes;
use crate::dialects::kymo::{Dialect, thread_id};
use crate::{OpenError, OpenOptions, ReadError, Source};

/// So much damage is listed one by one in [`TraceInfo::damage`]; a file of nothing else must not
/// fill the memory. (As events, all of it is told.)
pub(super) const DAMAGE_LISTED: usize = 10_000;

/// So many names are taken from a recording, for the same reason.
const NAMES_LISTED: usize = 100_000;

/// A stream to be read.
struct Part {
    info: StreamInfo,
    kind: StreamKind,
    /// The `cpu_id` of its packets.
    number: StreamNumber,
    input: Input,
}

/// A recording of Kymo's own.
#[derive(Debug)]
pub(super) struct NativeSource {
    info: TraceInfo,
    dialect: Dialect,
    streams: Vec<Stream>,
    /// The next event of each stream ...
    heads: Vec<Option<Event>>,
    /// ... and the order in which they come.
    order: BinaryHeap<Reverse<(Time, usize)>>,
    /// The stream that is left when all others have ended: there is nothing to merge any more, and
    /// its next event is not in `heads`.
    alone: Option<usize>,
}

impl NativeSource {
    /// A recording of these streams.
    ///
    /// `origin` is when tick 0 of the clock was, in nanoseconds since 1970 in UTC, if something else
    /// than the streams tells that.
    fn new(
        plan: &Arc<Plan>,
        description: Description,
        inputs: Vec<Part>,
        origin: Option<i64>,
    ) -> Self {
        let mut info = description.info();
        let Clocks {
            wall,
            said,
            corrections,
        } = clocks(plan, &inputs);
        let origin = origin.map(|unix_ns| Moment {
            time: Time(0),
            unix_ns,
        });
        info.wall_clock = wall.or_else(|| WallClock::new(origin));
        info.clock_corrections = said;
        let mut streams = Vec::new();
        for (index, (part, correction)) in (0..).zip(inputs.into_iter().zip(corrections)) {
            let Part {
                info: stream,
                kind,
                input,
                ..
            } = part;
            let id = StreamId(index);
            if kind == StreamKind::Metadata {
                let names = Stream::new(plan, id, kind, input.clone());
                read_names(&mut info, names, &description.dialect);
            }
            info.streams.push(stream);
            streams.push(Stream::new(plan, id, kind, input).corrected(correction));
        }
        let mut source = Self {
            info,
            dialect: description.dialect,
            heads: streams.iter().map(|_| None).collect(),
            streams,
            order: BinaryHeap::new(),
            alone: None,
        };
        for index in 0..source.streams.len() {
            source.advance(index);
        }
        source
    }

    /// The next event of a stream.
    #[inline]
    fn fetch(&mut self, index: usize) -> Option<Event> {
        let stream = self.streams.get_mut(index)?;
        let name = self
            .info
            .streams
            .get(index)
            .map_or("", |stream| &stream.name);
        let listed = &mut self.info.damage;
        stream.next(&self.dialect, &mut |offset, mut message| {
            if listed.len() < DAMAGE_LISTED {
                if listed.len() + 1 == DAMAGE_LISTED {
                    message.push_str(" (and more damage, which is not listed)");
                }
                listed.push(Damage {
                    stream: name.to_owned(),
                    offset,
                    message,
                });
            }
        })
    }

    /// Gets the next event of a stream ready to be merged.
    fn advance(&mut self, index: usize) {
        let event = self.fetch(index);
        if let Some(event) = &event {
            self.order.push(Reverse((event.time, index)));
        }
        if let Some(head) = self.heads.get_mut(index) {
            *head = event;
        }
    }
}

impl Source for NativeSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Event>, ReadError> {
        let (index, event) = if let Some(index) = self.alone {
            (index, self.fetch(index))
        } else {
            let Some(Reverse((_, index))) = self.order.pop() else {
                return Ok(None);
            };
            let event = self.heads.get_mut(index).and_then(Option::take);
            if self.order.is_empty() {
                self.alone = Some(index);
            } else {
                self.advance(index);
            }
            (index, event)
        };
        if let Some(event) = &event
            && !event.name.is_empty()
            && let Some(stream) = self.info.streams.get_mut(index)
        {
            stream.start = Some(
                stream
                    .start
                    .map_or(event.time, |start| start.min(event.time)),
            );
            stream.end = Some(stream.end.map_or(event.time, |end| end.max(event.time)));
        }
        Ok(event)
    }
}

/// What the times of day in the streams tell.
fn clocks(plan: &Plan, parts: &[Part]) -> Clocks {
    let Some(clock) = plan.metadata().clocks.first() else {
        return Clocks::default();
    };
    let moments = parts.iter().map(|part| {
        let told = match part.kind {
            StreamKind::Items => Moments::default(),
            _ => Moments::of_stream(&part.input, clock),
        };
        (part.kind, part.number.cpu, told)
    });
    let mut clocks = Clocks::compare(&moments.collect::<Vec<_>>());
    clocks.follow(parts.iter().map(|part| match part.kind {
        // A processor's items go by its clock.
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

/// Reads the names of threads and interrupts, what recording costs, and the build id if nothing
/// else told it.
pub(super) fn read_names(info: &mut TraceInfo, mut stream: Stream, dialect: &Dialect) {
    while let Some(event) = stream.next(dialect, &mut |_, _| {}) {
        match event.kind {
            EventKind::ThreadName { thread, name } if info.threads.len() < NAMES_LISTED => {
                info.threads.push((thread, name));
            }
            EventKind::IsrName { irq, name } if info.interrupts.len() < NAMES_LISTED => {
                info.interrupts.push((irq, name));
            }
            // A later one of the same kind takes the place of an earlier one.
            EventKind::Costs(costs) => {
                for cost in costs {
                    let same = |other: &RecordingCost| {
                        (other.recorded, other.from) == (cost.recorded, cost.from)
                    };
                    info.costs.retain(|other| !same(other));
                    info.costs.push(cost);
                }
            }
            EventKind::Fact if info.build_id.is_none() => {
                let field = |name| event.fields.iter().find(|field| field.name == name);
                let kind = Value::Unsigned(MetadataType::BuildId as u64);
                if field("type").is_some_and(|field| field.value == kind)
                    && let Some(Value::Bytes(id)) = field("value").map(|field| &field.value)
                {
                    info.build_id = Some(id.clone());
                }
            }
            _ => {}
        }
    }
}

/// Opens a dump that is in memory, as it came from a target: `missing` are the parts of `bytes`
/// that never arrived. `target` is what it came from, for messages.
///
/// # Errors
/// [`OpenError::Identity`] if the identity cannot be that of a recording.
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

/// Opens the packets of a dump or raw file, which begin at `start`.
///
/// # Errors
/// What is wrong with the identity.
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
    let streams = find_streams(layout, heads);
    let items = has_items(streams.iter().map(|stream| &stream.number));
    let text = metadata_text(identity, "", None, std::iter::empty(), items);
    let parsed = Metadata::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let plan = Plan::new(parsed.metadata).map_err(|error| error.to_string())?;
    let description = Description::new(plan.metadata(), options.fields)?;
    let missing: Arc<[Range<u64>]> = missing.into();
    let parts = streams.into_iter().map(|stream| {
        let StreamRange { number, kind, .. } = stream;
        let first = First {
            number,
            flags: stream.flags,
            thread: stream.thread,
        };
        Part {
            info: stream_info(kind.file_name(number.cpu), kind, &first),
            kind,
            number,
            input: Input {
                layout,
                bytes: bytes.clone(),
                missing: missing.clone(),
                range: stream.bytes,
                number: Some(number),
            },
        }
    });
    let parts = parts.collect();
    Ok(Box::new(NativeSource::new(
        &Arc::new(plan),
        description,
        parts,
        None,
    )))
}

/// Opens the streams of a trace directory whose metadata is our own.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or the metadata lacks something.
pub(crate) fn open_directory(
    directory: &Path,
    mut metadata: Metadata,
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
    let description = Description::new(plan.metadata(), options.fields).map_err(refuse)?;
    let layout = description.dialect.layout;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let mut streams = Vec::new();
    for entry in fs::read_dir(directory).map_err(io(directory))? {
        let entry = entry.map_err(io(directory))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = fs::metadata(&path).map_err(io(&path))?.file_type();
        if name == "metadata" || name.starts_with('.') || !kind.is_file() {
            continue;
        }
        let file = File::open(&path).map_err(io(&path))?;
        let bytes = Bytes::of_file(&file).map_err(io(&path))?;
        let first = Pieces::new(layout, &bytes, &[])
            .heads_only()
            .find_map(|piece| match piece {
                Piece::Packet(packet) => Some(packet.header),
                Piece::Damage(_) => None,
            });
        let kind = StreamKind::of_file(&name, first.as_ref());
        let there = first.is_some();
        let first = First {
            number: first
                .as_ref()
                .map_or_else(Default::default, StreamNumber::of),
            flags: first.map_or(0, |header| header.flags),
            thread: first.map_or(0, |header| header.thread),
        };
        let part = Part {
            info: stream_info(name, kind, &first),
            kind,
            number: first.number,
            input: Input {
                layout,
                range: 0..bytes.len(),
                bytes,
                missing: Arc::default(),
                number: None,
            },
        };
        // Streams without a packet come last.
        streams.push(((!there, first.number), part));
    }
    streams.sort_by(|(a, left), (b, right)| (a, &left.info.name).cmp(&(b, &right.info.name)));
    let parts = streams.into_iter().map(|(_, part)| part).collect();
    Ok(Box::new(NativeSource::new(
        &Arc::new(plan),
        description,
        parts,
        origin,
    )))
}

/// When tick 0 was by the clock of a trace directory, in nanoseconds since 1970 in UTC. It is taken out
/// of the metadata: the times of a recording begin with the target, in whatever form it is kept.
pub(super) fn take_origin(metadata: &mut Metadata) -> Option<i64> {
    let clock = metadata.clocks.first_mut()?;
    let origin = clock.nanoseconds(0).filter(|_| clock.absolute);
    (clock.offset_seconds, clock.offset_ticks, clock.absolute) = (0, 0, false);
    origin
}

/// What the first packet of a stream says.
pub(super) struct First {
    pub(super) number: StreamNumber,
    pub(super) flags: u8,
    pub(super) thread: u64,
}

/// What is known of a stream from its first packet.
pub(super) fn stream_info(name: String, kind: StreamKind, first: &First) -> StreamInfo {
    let of_thread = match kind {
        StreamKind::Thread => true,
        StreamKind::Items => first.flags & PacketHeader::FLAG_THREAD != 0,
        StreamKind::Cpu | StreamKind::Metadata => false,
    };
    let number = u32::from(first.number.cpu);
    StreamInfo {
        name,
        cpu: match kind {
            StreamKind::Cpu => Some(Cpu(number)),
            StreamKind::Items if !of_thread => Some(Cpu(number % RINGS)),
            _ => None,
        },
        thread: if of_thread {
            thread_id(first.thread)
        } else {
            None
        },
        timeless: kind == StreamKind::Metadata,
        without_calls: kind == StreamKind::Items,
        ..StreamInfo::default()
    }
}
