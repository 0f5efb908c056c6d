//! Trace buffers: which part of which one each AUX record names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::metadata::Metadata;
use super::sideband::Sideband;
use crate::element::Unsynced;
use crate::frames::{self, FrameFormat, Frames, TraceId};
use crate::memory::Session;
use crate::source::Source;

/// An AUX record: a session of the trace unit, and the part of a buffer that it recorded into.
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
        // In snapshot mode the offset is that of the end.
        match self.flags & AUX_OVERWRITE {
            0 => self.offset,
            _ => self.offset.wrapping_sub(self.size),
        }
    }

    /// What is missing behind it.
    pub fn lost(&self) -> Option<Unsynced> {
        let flags = [
            (AUX_TRUNCATED, Unsynced::Truncated),
            (AUX_PARTIAL, Unsynced::Partial),
            (AUX_COLLISION, Unsynced::Collision),
        ];
        let mut lost = flags.iter().filter(|(flag, _)| self.flags & flag != 0);
        lost.next().map(|(_, why)| *why)
    }

    fn time(&self, has_times: bool) -> u64 {
        match self.time {
            Some(time) if has_times => time,
            _ => self.at,
        }
    }
}

/// A buffer: where it lies in the file, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub start: usize,
    pub size: usize,
    pub offset: u64,
    pub thread: Option<u32>,
    pub cpu: Option<u32>,
}

/// Whose a buffer or record is.
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
}

/// The buffers of a file by owner and offset, to find the one of a record.
struct Index {
    /// Offset and number of each owner's buffers.
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
        Index { by_owner, all }
    }

    /// The buffer in which a record's bytes begin. A record without bytes can be at the end of one.
    fn find(&self, places: &[Place], aux: &Aux) -> Option<usize> {
        let start = aux.start();
        let owners = [
            aux.thread.map(|(_, thread)| Owner::Thread(thread)),
            aux.cpu.map(Owner::Cpu),
        ];
        let own = owners.iter().flatten();
        let own = own.filter_map(|owner| self.by_owner.get(owner));
        // A record that does not say whose it is, is anyone's.
        let is_anyones = |place: &Place| match (place.thread, place.cpu) {
            (Some(_), _) => aux.thread.is_none(),
            (_, Some(_)) => aux.cpu.is_none(),
            _ => true,
        };
        own.map(|list| (list, true))
            .chain([(&self.all, false)])
            .find_map(|(list, is_own)| {
                let after = list.partition_point(|(offset, _)| *offset <= start);
                let (offset, _) = list.get(after.checked_sub(1)?)?;
                // The first of several at one offset.
                let first = list.partition_point(|(other, _)| other < offset);
                let mut found = list.get(first..after)?.iter().map(|(_, index)| *index);
                found.find(|index| {
                    places.get(*index).is_some_and(|place| {
                        let within = start - place.offset;
                        let end = place.size as u64 + u64::from(aux.size == 0);
                        within < end && (is_own || is_anyones(place))
                    })
                })
            })
    }
}

/// A buffer with what its sessions filled.
pub(super) struct Filled {
    pub frames: Frames<'static>,
    pub sessions: Arc<Vec<Session>>,
    pub cpu: Option<u32>,
}

/// Splits the buffers of a file into streams, session by session. With the number of AUX records of which no buffer has the
/// bytes.
pub(super) fn read(
    bytes: &[u8],
    places: &[Place],
    all: &[Aux],
    sideband: &Sideband,
) -> (Vec<Filled>, u64) {
    let index = Index::new(places);
    let mut missing = 0;
    let mut of_place: BTreeMap<usize, Vec<(&Aux, Session)>> = BTreeMap::new();
    let starts = sideband.trace_starts();
    let mut ends: HashMap<Option<Owner>, u64> = HashMap::new();
    for aux in all {
        let place = index.find(places, aux);
        let owner = place.and_then(|place| places.get(place)?.owner());
        let end = aux.time(sideband.has_times());
        let mut begin = ends.insert(owner, end).unwrap_or_default();
        if let Some(Owner::Thread(thread)) = owner {
            let starts = starts.get(&thread).map(Vec::as_slice).unwrap_or_default();
            let before = starts.partition_point(|start| *start <= end);
            let last = before.checked_sub(1).and_then(|last| starts.get(last));
            begin = begin.max(last.copied().unwrap_or_default());
        }
        match place {
            Some(place) => {
                let session = Session { begin, end };
                of_place.entry(place).or_default().push((aux, session));
            }
            None => missing += u64::from(aux.size > 0),
        }
    }
    let buffers = places.iter().enumerate().map(|(number, place)| {
        let data = bytes.get(place.start..).unwrap_or_default();
        let data = data.get(..place.size).unwrap_or(data);
        let mut filled = Filled {
            frames: Frames::default(),
            sessions: Arc::default(),
            cpu: place.cpu,
        };
        let mut sessions = Vec::new();
        for (aux, session) in of_place.remove(&number).unwrap_or_default() {
            let within = usize::try_from(aux.start() - place.offset).unwrap_or(usize::MAX);
            let part = data.get(within..).unwrap_or_default();
            let size = usize::try_from(aux.size).unwrap_or(usize::MAX);
            let part = part.get(..size).unwrap_or(part);
            if !part.is_empty() {
                filled.cpu = filled.cpu.or(aux.cpu);
                let format = match aux.flags & AUX_RAW {
                    0 => FrameFormat::Memory,
                    _ => FrameFormat::Unformatted,
                };
                let frames = frames::split(part, format, TraceId::NONE);
                let number = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
                filled.frames.append(frames, within as u64, number);
                sessions.push(session);
            }
            if let Some(why) = aux.lost() {
                filled.frames.lose(why);
            }
        }
        if all.is_empty() {
            let frames = frames::split(data, FrameFormat::Memory, TraceId::NONE);
            filled.frames.append(frames, 0, 0);
        }
        filled.sessions = Arc::new(sessions);
        filled
    });
    (buffers.collect(), missing)
}

/// The sources of all CPUs, the one of `cpu` first: a buffer without frames is its.
pub(super) fn sources(
    metadata: &Metadata,
    ids: &[(u32, TraceId)],
    cpu: Option<u32>,
) -> Vec<Source> {
    let mut sources: Vec<_> = metadata
        .units
        .iter()
        .map(|unit| {
            // An ID that the kernel recorded when it was assigned counts more than the register.
            let id = ids
                .iter()
                .rev()
                .find(|(cpu, _)| *cpu == unit.cpu)
                .map(|(_, id)| *id);
            let id = id.unwrap_or(unit.protocol.trace_id());
            (
                unit.cpu,
                Source {
                    id,
                    name: format!("cpu{}", unit.cpu),
                    cpu: Some(unit.cpu),
                    protocol: unit.protocol,
                },
            )
        })
        .collect();
    sources.sort_by_key(|(number, _)| (Some(*number) != cpu, *number));
    sources.into_iter().map(|(_, source)| source).collect()
}
