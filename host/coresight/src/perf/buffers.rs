//! Trace buffers, and their division into sessions by AUX records.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::assignments::{Assignments, Mapping, Sink};
use super::sideband::Sideband;
use crate::element::Unsynced;
use crate::frames::{self, FrameFormat, Frames, TraceId};
use crate::memory::Session;

/// AUX record: a session of the trace unit, and the part of a buffer that it wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aux {
    pub offset: u64,
    pub size: u64,
    pub flags: u64,
    pub thread: Option<(u32, u32)>,
    pub cpu: Option<u32>,
    /// Nanoseconds of perf's clock.
    pub time: Option<u64>,
    /// Offset of the record in the file.
    pub at: u64,
}

/// AUX flags.
const AUX_TRUNCATED: u64 = 1;
const AUX_OVERWRITE: u64 = 2;
const AUX_PARTIAL: u64 = 4;
const AUX_COLLISION: u64 = 8;
const AUX_RAW: u64 = 0x100;

impl Aux {
    /// Offset of its first byte.
    fn start(&self) -> u64 {
        // In snapshot mode, the offset is that of the end.
        match self.flags & AUX_OVERWRITE {
            0 => self.offset,
            _ => self.offset.wrapping_sub(self.size),
        }
    }

    /// Loss of trace after this record, if reported: the first of several reasons.
    pub fn lost(&self) -> Option<Unsynced> {
        self.losses().next()
    }

    /// Reasons of the loss of trace after this record.
    pub fn losses(&self) -> impl Iterator<Item = Unsynced> {
        let flags = [
            (AUX_TRUNCATED, Unsynced::Truncated),
            (AUX_PARTIAL, Unsynced::Partial),
            (AUX_COLLISION, Unsynced::Collision),
        ];
        let is_set = self.flags;
        let lost = flags.into_iter();
        let lost = lost.filter(move |(flag, _)| is_set & flag != 0);
        lost.map(|(_, why)| why)
    }

    pub fn time(&self, has_times: bool) -> u64 {
        match self.time {
            Some(time) if has_times => time,
            _ => self.at,
        }
    }
}

/// Position of a buffer in the file, and its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub start: usize,
    pub size: usize,
    pub offset: u64,
    pub thread: Option<u32>,
    pub cpu: Option<u32>,
}

/// Owner of a buffer or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Thread(u32),
    Cpu(u32),
}

impl Place {
    fn owner(&self) -> Option<Owner> {
        let thread = self.thread.map(Owner::Thread);
        thread.or(self.cpu.map(Owner::Cpu))
    }

    /// Whether the buffer, or the file, ends before the bytes of a record that begins in it.
    fn lacks_end(&self, aux: &Aux, file: &[u8]) -> bool {
        let size = self.size.min(file.len().saturating_sub(self.start)) as u64;
        let end = self.offset.saturating_add(size);
        // In snapshot mode, a record may be longer than what was kept of the ring.
        aux.flags & AUX_OVERWRITE == 0 && aux.start().saturating_add(aux.size) > end
    }
}

/// perf pads the bytes of each buffer to a multiple of this.
const PADDING: u64 = 8;

/// Index of a file's buffers by owner and offset, to find the buffer of a record.
struct Index {
    /// End of each buffer's trace, without the padding behind it as far as another buffer follows.
    ends: Vec<u64>,
    /// Whether another buffer begins exactly at each one's end, so that it has no padding.
    is_whole: Vec<bool>,
    /// Offsets and numbers of each owner's buffers.
    by_owner: HashMap<Owner, Vec<(u64, usize)>>,
    all: Vec<(u64, usize)>,
}

impl Index {
    fn new(places: &[Place]) -> Self {
        let mut by_owner: HashMap<Owner, Vec<(u64, usize)>> = HashMap::new();
        let mut all: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(index, place)| (place.offset, index))
            .collect();
        all.sort_unstable();
        for (offset, index) in &all {
            if let Some(owner) = places.get(*index).and_then(Place::owner) {
                by_owner.entry(owner).or_default().push((*offset, *index));
            }
        }
        let mut ends: Vec<u64> = places
            .iter()
            .map(|place| place.offset.saturating_add(place.size as u64))
            .collect();
        let mut is_whole = vec![false; places.len()];
        for list in by_owner.values() {
            for ((_, index), (next, _)) in list.iter().zip(list.iter().skip(1)) {
                if let Some(is_whole) = is_whole.get_mut(*index) {
                    *is_whole = ends.get(*index) == Some(next);
                }
                if let Some(end) = ends.get_mut(*index)
                    && *next < *end
                    && *end - *next < PADDING
                {
                    *end = *next;
                }
            }
        }
        Index {
            ends,
            is_whole,
            by_owner,
            all,
        }
    }

    /// Whether the bytes of a record are the padding of its buffer: perf pads the trace of a buffer to 8 bytes with
    /// zeros, and trace of its own ends with something else, or goes on in the next buffer.
    fn is_padding(&self, place: usize, of: &Place, aux: &Aux, bytes: &[u8]) -> bool {
        let end = self.ends.get(place).copied().unwrap_or_default();
        let within = usize::try_from(aux.start() - of.offset).unwrap_or(usize::MAX);
        let own = bytes.get(of.start..).unwrap_or_default();
        let own = own.get(..of.size).unwrap_or(own);
        let own = own.get(within..).unwrap_or_default();
        let size = usize::try_from(aux.size).unwrap_or(usize::MAX);
        let own = own.get(..size).unwrap_or(own);
        let is_whole = self.is_whole.get(place).copied().unwrap_or_default();
        let is_at_end = !is_whole && end.saturating_sub(aux.start()) < PADDING;
        aux.size > 0 && aux.size < PADDING && is_at_end && own.iter().all(|byte| *byte == 0)
    }

    /// Number of the buffer in which a record's bytes begin. A record without bytes can be at the end of a buffer.
    fn find(&self, places: &[Place], aux: &Aux) -> Option<usize> {
        let start = aux.start();
        let owners = [
            aux.thread.map(|(_, thread)| Owner::Thread(thread)),
            aux.cpu.map(Owner::Cpu),
        ];
        let own = owners.iter().flatten();
        let own = own.filter_map(|owner| self.by_owner.get(owner));
        // A record without an owner matches buffers of every owner.
        let is_of_any = |place: &Place| match (place.thread, place.cpu) {
            (Some(_), _) => aux.thread.is_none(),
            (_, Some(_)) => aux.cpu.is_none(),
            _ => true,
        };
        own.map(|list| (list, true))
            .chain([(&self.all, false)])
            .find_map(|(list, is_own)| {
                let after = list.partition_point(|(offset, _)| *offset <= start);
                let (offset, _) = list.get(after.checked_sub(1)?)?;
                // Start with the first of several buffers at one offset.
                let first = list.partition_point(|(other, _)| other < offset);
                let mut found = list.get(first..after)?.iter().map(|(_, index)| *index);
                found.find(|index| {
                    places.get(*index).is_some_and(|place| {
                        let end = self.ends.get(*index).copied().unwrap_or_default();
                        let is_before = start < end || aux.size == 0 && start == end;
                        start >= place.offset && is_before && (is_own || is_of_any(place))
                    })
                })
            })
    }
}

/// Trace of one writer in a buffer.
pub(super) struct Filled {
    /// Index of the buffer among those of the file.
    pub place: usize,
    pub frames: Frames<'static>,
    pub sessions: Arc<Vec<Session>>,
    pub writer: Writer,
}

/// Writer of a part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The unit of one CPU, without trace IDs.
    Unit { cpu: Option<u32> },
    /// All units of a sink, under their trace IDs; the units of all sinks if the sink is unknown.
    Sink(Option<Sink>, Mapping),
}

/// Splits the buffers of a file into streams, session by session. A buffer that several units wrote without trace IDs,
/// or with trace of several sinks, becomes as many buffers. Also returns the number of AUX records whose bytes, or last
/// bytes, are in no buffer.
pub(super) fn read(
    bytes: &[u8],
    places: &[Place],
    all: &[Aux],
    ids: &Assignments,
    sideband: &Sideband,
) -> (Vec<Filled>, u64) {
    let index = Index::new(places);
    let mut missing = 0;
    let mut of_place: BTreeMap<usize, Vec<Record<'_>>> = BTreeMap::new();
    let (starts, first_starts) = (sideband.trace_starts(), sideband.first_starts());
    let mut ends: HashMap<Option<Owner>, u64> = HashMap::new();
    // Offset at which the trace of each owner continues, if nothing is missing there.
    let mut next: HashMap<Option<Owner>, (u64, Layout)> = HashMap::new();
    for aux in all {
        let place = index.find(places, aux);
        let place = place.filter(|place| {
            let of = places.get(*place);
            of.is_none_or(|of| !index.is_padding(*place, of, aux, bytes))
        });
        let owner = place.and_then(|place| places.get(place)?.owner());
        let end = aux.time(sideband.has_times());
        let before = ends.insert(owner, end);
        let mut begin = before.unwrap_or_default();
        if let (None, Some(Owner::Cpu(cpu))) = (before, owner) {
            let start = first_starts.get(&cpu).filter(|start| **start <= end);
            begin = start.copied().unwrap_or_default();
        }
        if let Some(Owner::Thread(thread)) = owner {
            let starts = starts.get(&thread).map(Vec::as_slice).unwrap_or_default();
            let before = starts.partition_point(|start| *start <= end);
            let last = before.checked_sub(1).and_then(|last| starts.get(last));
            begin = begin.max(last.copied().unwrap_or_default());
        }
        match place {
            Some(place) => {
                let session = Session { begin, end };
                let is_ring = aux.flags & AUX_OVERWRITE != 0;
                let cpu = places.get(place).and_then(|place| place.cpu).or(aux.cpu);
                let layout = match aux.flags & AUX_RAW {
                    0 => (ids.writer(cpu, Some(aux)), FrameFormat::Memory),
                    _ => (Writer::Unit { cpu }, FrameFormat::Unformatted),
                };
                let adjoins = !is_ring && next.get(&owner) == Some(&(aux.offset, layout));
                let lacks_end = places.get(place).is_some_and(|of| of.lacks_end(aux, bytes));
                missing += u64::from(lacks_end);
                if is_ring || aux.lost().is_some() || lacks_end {
                    next.remove(&owner);
                } else if aux.size > 0 {
                    next.insert(owner, (aux.offset.wrapping_add(aux.size), layout));
                }
                of_place.entry(place).or_default().push(Record {
                    aux,
                    session,
                    cpu,
                    layout,
                    adjoins,
                });
            }
            None => missing += u64::from(aux.size > 0),
        }
    }
    let mut parts: Vec<Vec<Part>> = places.iter().map(|_| Vec::new()).collect();
    // Trace of each owner that the next record may continue, also in the next buffer.
    let mut open: HashMap<Option<Owner>, Chain<'_>> = HashMap::new();
    // Buffer to which the last bytes of each owner were added.
    let mut homes: HashMap<Option<Owner>, usize> = HashMap::new();
    // Buffers whose trace all continues that of earlier ones.
    let mut is_empty = vec![false; places.len()];
    for (number, place) in places.iter().enumerate() {
        let data = bytes.get(place.start..).unwrap_or_default();
        let data = data.get(..place.size).unwrap_or(data);
        if all.is_empty() {
            let mut part = Part::new(ids.writer(place.cpu, None));
            let frames = frames::split(data, FrameFormat::Memory, TraceId::NONE);
            part.frames.append(frames, 0, 0, false);
            parts[number].push(part);
            continue;
        }
        let owner = place.owner();
        for record in of_place.remove(&number).unwrap_or_default() {
            let aux = record.aux;
            let within = usize::try_from(aux.start() - place.offset).unwrap_or(usize::MAX);
            let part = data.get(within..).unwrap_or_default();
            let size = usize::try_from(aux.size).unwrap_or(usize::MAX);
            let size = size.min(part.len());
            if size > 0 {
                let new = Chain::new(&record, number, data, within..within + size);
                let chain = open.get_mut(&owner);
                let home = match chain.and_then(|chain| chain.take(&new).then_some(chain.place)) {
                    Some(home) => home,
                    None => {
                        if let Some(whole) = open.insert(owner, new) {
                            whole.finish(&mut parts);
                        }
                        number
                    }
                };
                is_empty[number] = home != number && parts[number].is_empty();
                homes.insert(owner, home);
            }
            // A record without bytes has no layout.
            let writers = [record.layout.0, Writer::Unit { cpu: record.cpu }];
            let wrote = |part: &&mut Part| writers.contains(&part.writer);
            let lacks_end = place.lacks_end(aux, bytes).then_some(Unsynced::Truncated);
            if let Some(why) = aux.lost().or(lacks_end) {
                if let Some(whole) = open.remove(&owner) {
                    whole.finish(&mut parts);
                }
                // What is lost without further bytes is behind those of an earlier buffer.
                let home = homes.get(&owner).copied().unwrap_or(number);
                let parts = parts[home].iter_mut().filter(wrote);
                parts.for_each(|part| part.frames.lose(why));
            }
        }
    }
    let mut rest: Vec<_> = open.into_values().collect();
    rest.sort_by_key(|chain| chain.place);
    rest.into_iter().for_each(|chain| chain.finish(&mut parts));
    let mut buffers = Vec::new();
    for (number, mut parts) in parts.into_iter().enumerate() {
        if parts.is_empty() && !is_empty[number] {
            let cpu = places.get(number).and_then(|place| place.cpu);
            parts.push(Part::new(Writer::Unit { cpu }));
        }
        buffers.extend(parts.into_iter().map(|part| part.finish(number)));
    }
    (buffers, missing)
}

/// Writer of trace, and its frame format.
type Layout = (Writer, FrameFormat);

/// AUX record with the times of its session.
struct Record<'a> {
    aux: &'a Aux,
    session: Session,
    cpu: Option<u32>,
    layout: Layout,
    /// Whether it begins where the previous record ended, without a loss.
    adjoins: bool,
}

/// Bytes of AUX records that form one continuous trace. perf writes a record whenever it has read a buffer, and
/// restarts its decoder at each. A trace unit that was restarted for this synchronizes, and a formatter that was
/// restarted names the source of its first byte; bytes that do neither continue those of the previous record, also
/// where perf divided them into two AUXTRACE records.
struct Chain<'a> {
    layout: Layout,
    /// Index of the buffer in which it begins.
    place: usize,
    /// Offset of its first byte in that buffer.
    offset: u64,
    /// Buffer with its bytes; a copy of the bytes if they are of several buffers.
    data: Cow<'a, [u8]>,
    bytes: Range<usize>,
    session: Session,
    adjoins: bool,
    /// Whether each of its streams begins with a synchronization.
    is_synchronized: bool,
    /// Streams of the bytes, if they are of one record.
    frames: Option<Frames<'a>>,
}

/// Zeros of the shortest synchronization of a trace unit behind a formatter: that of an ETMv3 or PTM.
const LEAST_ZEROS: usize = 5;

/// Zeros of the synchronization of an ETE, whose trace is not formatted.
const ETE_ZEROS: usize = 11;

impl<'a> Chain<'a> {
    fn new(record: &Record<'_>, place: usize, data: &'a [u8], bytes: Range<usize>) -> Self {
        let own = data.get(bytes.clone()).unwrap_or_default();
        let frames = frames::split(own, record.layout.1, TraceId::NONE);
        let streams = frames.streams.iter();
        let mut streams = streams.filter(|stream| !stream.bytes.is_empty());
        // A record may end within a synchronization, of which the rest is none.
        let zeros = match record.layout.1 {
            FrameFormat::Unformatted => ETE_ZEROS,
            _ => LEAST_ZEROS,
        };
        Chain {
            layout: record.layout,
            place,
            offset: bytes.start as u64,
            data: Cow::Borrowed(data),
            session: record.session,
            adjoins: record.adjoins,
            is_synchronized: frames.unnamed_bytes == 0
                && streams.all(|stream| stream.is_synchronized(zeros)),
            frames: Some(frames),
            bytes,
        }
    }

    fn own(&self) -> &[u8] {
        self.data.get(self.bytes.clone()).unwrap_or_default()
    }

    /// Appends the bytes of a record that continue this chain. Returns whether they do.
    fn take(&mut self, next: &Chain<'_>) -> bool {
        const FRAME: usize = 16;
        let is_raw = self.layout.1 == FrameFormat::Unformatted;
        let is_whole = is_raw || self.bytes.len().is_multiple_of(FRAME);
        if !next.adjoins || !is_whole || next.is_synchronized {
            return false;
        }
        match &mut self.data {
            Cow::Borrowed(_) if self.place == next.place => self.bytes.end = next.bytes.end,
            Cow::Borrowed(_) => self.data = Cow::Owned([self.own(), next.own()].concat()),
            Cow::Owned(data) => data.extend_from_slice(next.own()),
        }
        if let Cow::Owned(data) = &self.data {
            self.bytes = 0..data.len();
        }
        self.session.end = next.session.end;
        self.frames = None;
        true
    }

    /// Adds its streams to the writer's part of its buffer.
    fn finish(mut self, parts: &mut [Vec<Part>]) {
        let Some(parts) = parts.get_mut(self.place) else {
            return;
        };
        let (writer, format) = self.layout;
        let frames = self.frames.take();
        let split = || frames::split(self.own(), format, TraceId::NONE);
        let frames = frames.unwrap_or_else(split);
        let known = parts.iter().position(|part| part.writer == writer);
        let known = known.unwrap_or_else(|| {
            parts.push(Part::new(writer));
            parts.len() - 1
        });
        let part = &mut parts[known];
        let number = u32::try_from(part.sessions.len()).unwrap_or(u32::MAX);
        let goes_on = self.adjoins && self.is_synchronized;
        part.frames.append(frames, self.offset, number, goes_on);
        part.sessions.push(self.session);
    }
}

/// Part of a buffer under construction.
struct Part {
    frames: Frames<'static>,
    sessions: Vec<Session>,
    writer: Writer,
}

impl Part {
    fn new(writer: Writer) -> Self {
        Part {
            frames: Frames::default(),
            sessions: Vec::new(),
            writer,
        }
    }

    fn finish(self, place: usize) -> Filled {
        Filled {
            place,
            frames: self.frames,
            sessions: Arc::new(self.sessions),
            writer: self.writer,
        }
    }
}
