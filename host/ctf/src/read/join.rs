//! Streams that a tracer wrote into several files, one behind the other.
//!
//! LTTng begins a new file of a stream when the old one has the size that the user chose (`chan_0_0`, `chan_0_1`), and
//! a new directory, with the metadata once more, when a session is rotated or a snapshot is taken. Packets state which
//! stream they belong to, and their number in it. Read in that order, the files are one stream. Packets that two
//! snapshots have in common are read once.
//!
//! LTTng numbers packets since 2.8. Snapshots of older ones are parts of one trace if they have packets in common, byte by
//! byte, and all others begin behind the end of the one before: packets count by their begins then.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::event::{Packet, PacketInfo};
use super::ring::HEAD;
use super::stream::{Message, StreamReader};
use super::trace::{Source, Trace};
use crate::metadata::{Metadata, StreamClass};

/// Identity of a stream within a trace: its class, its instance, its processor.
type Key = (usize, u64, Option<u64>);

/// A file of a stream.
struct Piece {
    /// Index among the streams of the trace.
    index: usize,
    /// Number and begin of its first packet.
    first: (u64, Option<u64>),
}

/// Identity and number of a packet; `None` if it does not state both. (A processor can have several streams.)
/// `by_begin`: its begin stands for a number.
fn identity(packet: &PacketInfo, by_begin: bool) -> Option<(Key, u64)> {
    let (instance, number) = match by_begin {
        false => (packet.stream_instance?, packet.seq_num?),
        true if packet.seq_num.is_some() => return None,
        true => (packet.stream_instance.unwrap_or(0), packet.begin_ticks?),
    };
    let key = (packet.stream_class, instance, packet.cpu_id);
    (!packet.foreign).then_some((key, number))
}

/// What tells a packet from others: its begin, end and size.
type Stated = (u64, Option<u64>, Option<u64>);

/// The packets of a trace by stream and number.
#[derive(Default)]
struct Packets {
    known: BTreeMap<(Key, u64), Known>,
    /// Whether the begin of a packet stands for its number.
    by_begin: bool,
}

/// What a packet states, and where it is: its file, its offset and its bytes.
struct Known {
    stated: Stated,
    file: Arc<Source>,
    at: u64,
    bytes: Option<u64>,
}

/// Number of bytes that are compared at once.
const AT_ONCE: usize = 64 << 10;

impl Packets {
    /// The packets of a trace; `None` if one of them does not state which it is or when it began, or numbers do not
    /// follow the time.
    fn of(trace: &Trace) -> Option<Self> {
        Self::identified(trace, false).or_else(|| Self::identified(trace, true))
    }

    fn identified(trace: &Trace, by_begin: bool) -> Option<Self> {
        let mut known = BTreeMap::new();
        for (_, source) in &trace.streams {
            let file = Arc::new(source.clone());
            for (at, packet) in trace.heads(source) {
                let (key, number) = identity(&packet, by_begin)?;
                let packet = Known {
                    stated: (packet.begin_ticks?, packet.end_ticks, packet.size),
                    file: Arc::clone(&file),
                    at,
                    bytes: packet.size.map(|bits| bits / 8),
                };
                known.insert((key, number), packet);
            }
        }
        let packets = Self { known, by_begin };
        packets.is_in_order().then_some(packets)
    }

    fn is_in_order(&self) -> bool {
        let mut pairs = self.known.iter().zip(self.known.iter().skip(1));
        pairs.all(|(before, behind)| self.follow(before, behind))
    }

    /// Whether the time of two packets follows their numbers, if they are of one stream.
    fn follow(
        &self,
        ((one, _), before): (&(Key, u64), &Known),
        ((other, _), behind): (&(Key, u64), &Known),
    ) -> bool {
        let end = match self.by_begin {
            true => before.stated.1,
            false => Some(before.stated.0),
        };
        one != other || end.is_some_and(|end| end <= behind.stated.0)
    }

    /// Adds those of another trace, unless they contradict each other: a number stands for two packets, numbers do not
    /// follow the time, or no stream is in both. Packets without numbers must be the same, too, byte by byte.
    fn join(&mut self, other: &mut Self) -> bool {
        if self.by_begin != other.by_begin {
            return false;
        }
        let contradicts = |(at, it): (&_, &Known)| {
            let known = self.known.get(at);
            known.is_some_and(|known| known.stated != it.stated)
        };
        if other.known.iter().any(contradicts) {
            return false;
        }
        let mut keys = other.known.keys().map(|(key, _)| *key);
        let is_known = |key| {
            let mut of_stream = self.known.range((key, 0)..=(key, u64::MAX));
            of_stream.next().is_some()
        };
        if !(self.known.is_empty() || other.known.is_empty() || keys.any(is_known)) {
            return false;
        }
        let fits = |new: (&(Key, u64), &Known)| {
            let before = self.known.range(..new.0).next_back();
            let behind = self.known.range((Excluded(new.0), Unbounded)).next();
            before.is_none_or(|before| self.follow(before, new))
                && behind.is_none_or(|behind| self.follow(new, behind))
        };
        if !other.known.iter().all(fits) || self.by_begin && !self.has_common(other) {
            return false;
        }
        for (at, packet) in std::mem::take(&mut other.known) {
            self.known.entry(at).or_insert(packet);
        }
        true
    }

    /// Whether two traces have packets in common whose bytes are the same. Damage may have changed some, but those of two
    /// recordings that differ by chance in nothing that heads state are all different.
    fn has_common(&self, other: &Self) -> bool {
        let common = other.known.iter();
        let common = common.filter_map(|(at, it)| Some((it, self.known.get(at)?)));
        let mut buffers = [vec![0; AT_ONCE], vec![0; AT_ONCE]];
        let (mut equal, mut different) = (0, 0);
        for (one, other) in common {
            match one.is_same(other, &mut buffers) {
                Some(true) => equal += 1,
                Some(false) => different += 1,
                None => {}
            }
        }
        equal > different
    }
}

impl Known {
    /// Whether the bytes of two packets are the same; `None` if one of them is cut, which shows nothing.
    fn is_same(&self, other: &Self, [of_one, of_two]: &mut [Vec<u8>; 2]) -> Option<bool> {
        let open = |it: &Self| Some(it.file.open_at(it.at).ok()?.take(it.bytes?));
        let (mut one, mut two) = (open(self)?, open(other)?);
        let (mut left, mut is_same) = (self.bytes?.max(other.bytes?), true);
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(AT_ONCE).min(AT_ONCE);
            let (of_one, of_two) = (of_one.get_mut(..count)?, of_two.get_mut(..count)?);
            one.read_exact(of_one).ok()?;
            two.read_exact(of_two).ok()?;
            is_same &= of_one == of_two;
            left -= count as u64;
        }
        Some(is_same)
    }
}

impl Trace {
    /// Joins traces that are parts of one: they have the same UUID, the metadata of one contains that of the other, and
    /// their packets state that they belong to the same streams, and continue or repeat each other. (A UUID alone does
    /// not suffice: some programs have one for all their runs.)
    #[must_use]
    pub fn joined(traces: Vec<Self>) -> Vec<Self> {
        let mut joined: Vec<(Self, OnceCell<Option<Packets>>)> = Vec::new();
        'traces: for trace in traces {
            let mut packets = OnceCell::new();
            for (other, of_other) in &mut joined {
                let (one, two) = (trace.metadata(), other.metadata());
                if !contains(one, two) && !contains(two, one) {
                    continue;
                }
                of_other.get_or_init(|| Packets::of(other));
                packets.get_or_init(|| Packets::of(&trace));
                let packets = packets.get_mut().and_then(Option::as_mut);
                if let (Some(Some(all)), Some(packets)) = (of_other.get_mut(), packets)
                    && all.join(packets)
                {
                    other.by_begin = all.by_begin;
                    other.take(trace);
                    continue 'traces;
                }
            }
            joined.push((trace, packets));
        }
        joined.into_iter().map(|(trace, _)| trace).collect()
    }

    /// Adds the streams of another part of the same trace.
    fn take(&mut self, other: Self) {
        if contains(other.metadata(), self.metadata()) {
            self.plan = Arc::clone(&other.plan);
        }
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        let file_name = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let known: Vec<String> = self.streams.iter().map(|(it, _)| file_name(it)).collect();
        let both = common(&self.name, &other.name);
        let below = |name: &str, stream: &str| match name.strip_prefix(&both) {
            Some("") | None => stream.to_owned(),
            Some(folder) => format!("{}/{stream}", folder.trim_start_matches('/')),
        };
        for (name, _) in &mut self.streams {
            *name = below(&self.name, name);
        }
        let new = other.streams.into_iter().filter(|(name, source)| {
            source.length() != Some(0) || !known.contains(&file_name(name))
        });
        let new = new.map(|(name, source)| (below(&other.name, &name), source));
        self.streams.extend(new);
        self.name = both;
    }

    /// Joins the files of each stream.
    pub(super) fn join_files(&mut self) {
        if self.streams.len() < 2 {
            return;
        }
        let mut files: BTreeMap<Key, Vec<Piece>> = BTreeMap::new();
        for (index, (_, source)) in self.streams.iter().enumerate() {
            let first = self.packet_at(source, 0);
            if let Some((first, (key, number))) =
                first.and_then(|it| Some((it, identity(&it, self.by_begin)?)))
            {
                files.entry(key).or_default().push(Piece {
                    index,
                    first: (number, first.begin_ticks),
                });
            }
        }
        let mut gone = Vec::new();
        for (key, mut pieces) in files {
            pieces.sort_by_key(|piece| piece.first);
            if pieces.len() < 2 || !self.follow(key, &pieces) {
                continue;
            }
            gone.extend(pieces.iter().skip(1).map(|piece| piece.index));
            let parts = pieces.iter().filter_map(|it| self.streams.get(it.index));
            let parts = Source::Joined(parts.cloned().collect());
            if let Some((name, source)) = pieces
                .first()
                .and_then(|first| self.streams.get_mut(first.index))
            {
                *name = format!("{name} and {} more", pieces.len() - 1);
                *source = parts;
            }
        }
        let mut index = 0..;
        self.streams
            .retain(|_| index.next().is_some_and(|index| !gone.contains(&index)));
    }

    /// Whether these files are one stream: each has packets of this stream alone, in order of their numbers, and only
    /// those in different directories have packets in common.
    fn follow(&self, key: Key, pieces: &[Piece]) -> bool {
        let mut folders = Vec::new();
        let mut last: Option<u64> = None;
        for piece in pieces {
            let Some((_, source)) = self.streams.get(piece.index) else {
                return false;
            };
            let folder = source.folder();
            let mut before: Option<u64> = None;
            // Damage is reported when the packets are read.
            for (_, packet) in self.heads(source) {
                let Some((_, number)) =
                    identity(&packet, self.by_begin).filter(|(of, _)| *of == key)
                else {
                    return false;
                };
                let repeats = last.is_some_and(|last| number <= last);
                if before.is_some_and(|before| number <= before)
                    || repeats && folders.contains(&folder)
                {
                    return false;
                }
                before = Some(number);
            }
            last = last.max(before);
            folders.push(folder);
        }
        true
    }

    /// The packets of a file up to the first that cannot be read, with their offsets: what they state about themselves.
    pub(super) fn heads<'s>(
        &'s self,
        source: &'s Source,
    ) -> impl Iterator<Item = (u64, PacketInfo)> + 's {
        let length = source.length().unwrap_or(0);
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let at = next.take().filter(|at| *at < length)?;
            let packet = self.packet_at(source, at)?;
            let bytes = packet.size.map(|bits| bits / 8).filter(|bytes| *bytes > 0);
            next = bytes.and_then(|bytes| at.checked_add(bytes));
            Some((at, packet))
        })
    }

    /// What the packet at an offset states about itself.
    pub(super) fn packet_at(&self, source: &Source, at: u64) -> Option<PacketInfo> {
        self.packet_with(source, at, |packet| *packet.info())
    }

    /// What `read` takes from the head of the packet at an offset.
    pub(super) fn packet_with<T>(
        &self,
        source: &Source,
        at: u64,
        read: impl FnOnce(Packet<'_>) -> T,
    ) -> Option<T> {
        let input = source.open_at(at).ok()?;
        let mut reader = StreamReader::with_chunk(Arc::clone(self.plan()), input, HEAD);
        loop {
            match reader.next_message().ok()?? {
                Message::Gap(_) => {}
                Message::Packet(packet) => return Some(read(packet)),
                Message::Event(_) => return None,
            }
        }
    }
}

/// The directory that two paths have in common.
fn common(one: &str, other: &str) -> String {
    let both = one.split('/').zip(other.split('/'));
    let both = both.take_while(|(one, other)| one == other);
    both.map(|(part, _)| part).collect::<Vec<_>>().join("/")
}

/// Whether two metadata describe one trace, and the first describes all that the second does.
fn contains(more: &Metadata, less: &Metadata) -> bool {
    let classes = |less: &StreamClass| {
        more.streams.iter().any(|more| {
            let mut more = more.clone();
            more.events
                .retain(|event| less.events.iter().any(|it| it.id == event.id));
            more == *less
        })
    };
    more.uuid.is_some()
        && more.uuid == less.uuid
        && more.byte_order == less.byte_order
        && more.clocks == less.clocks
        && more.packet_header == less.packet_header
        && less.streams.iter().all(classes)
}
