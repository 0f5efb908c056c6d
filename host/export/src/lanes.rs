//! How tracks of calls are numbered and titled in the formats of trace viewers.
//!
//! Viewers think in Linux's terms: a thread has a small number, and two threads of one name are
//! told apart by it. A target's thread is often the address of its control block, and an interrupt
//! has no such number at all. So every track gets a number that no other track has, which is the
//! thread's own where that is one that Linux could have given, and a title that no other track has.

use std::collections::HashSet;
use std::fmt;

use kymo_analysis::calls::{TrackId, TrackInfo, TrackKind};
use kymo_event::{StreamId, ThreadId, TraceInfo};

use crate::names;

/// The largest thread number that Linux gives (`PID_MAX_LIMIT`).
const LARGEST_OWN: u64 = 1 << 22;

/// A track as a viewer shows it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its number: from 1, and like no other's.
    pub number: u32,
    /// Its title, like no other's.
    pub title: String,
    /// Whether it is a thread, rather than an interrupt.
    pub thread: bool,
    /// What it is on the target, where the number does not tell.
    pub origin: Option<ThreadId>,
}

/// The tracks seen so far.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    tracks: Vec<Option<Track>>,
    numbers: HashSet<u32>,
    titles: HashSet<String>,
    next: u32,
}

/// What is known of a track, and its lane once something is shown on it: an empty lane would be
/// in the way.
#[derive(Debug)]
struct Track {
    title: String,
    kind: TrackKind,
    lane: Option<Lane>,
}

impl Lanes {
    /// Takes note of what a track is; called again when more is known. Says whether its lane is
    /// shown already, under another title.
    pub fn update(&mut self, track: TrackId, info: &TrackInfo) -> bool {
        let at = track.0 as usize;
        if self.tracks.len() <= at {
            self.tracks.resize_with(at + 1, || None);
        }
        let (wanted, kind) = (title(info), info.kind);
        let Some(place) = self.tracks.get_mut(at) else {
            return false;
        };
        if place.as_ref().is_some_and(|known| known.title == wanted) {
            return false;
        }
        let shown = place.take().and_then(|known| known.lane);
        let lane = shown.map(|lane| {
            self.titles.remove(&lane.title);
            let title = distinct(&mut self.titles, &wanted, lane.number, kind);
            Lane { title, ..lane }
        });
        let known = place.insert(Track {
            title: wanted,
            kind,
            lane,
        });
        known.lane.is_some()
    }

    /// The lane of a track on which something is to be shown, and whether that is the first time.
    /// `None` for a track that nothing is known of.
    pub fn show(&mut self, track: TrackId) -> Option<(&Lane, bool)> {
        let at = track.0 as usize;
        let known = self.tracks.get(at)?.as_ref()?;
        let new = known.lane.is_none();
        if new {
            let (kind, title) = (known.kind, known.title.clone());
            let number = self.number(thread(kind));
            let lane = Lane {
                number,
                title: distinct(&mut self.titles, &title, number, kind),
                thread: matches!(kind, TrackKind::Thread { .. }),
                origin: thread(kind).filter(|id| id.0 != u64::from(number)),
            };
            self.tracks.get_mut(at)?.as_mut()?.lane = Some(lane);
        }
        Some((self.tracks.get(at)?.as_ref()?.lane.as_ref()?, new))
    }

    /// The lane of a track, if something has been shown on it.
    pub fn get(&self, track: TrackId) -> Option<&Lane> {
        self.tracks.get(track.0 as usize)?.as_ref()?.lane.as_ref()
    }

    /// A lane for something that is no track: its number.
    pub fn extra(&mut self) -> u32 {
        self.number(None)
    }

    /// A number that is free: the thread's own if possible.
    fn number(&mut self, thread: Option<ThreadId>) -> u32 {
        let own = thread
            .filter(|id| (1..=LARGEST_OWN).contains(&id.0))
            .and_then(|id| u32::try_from(id.0).ok());
        if let Some(own) = own
            && self.numbers.insert(own)
        {
            return own;
        }
        loop {
            self.next += 1;
            if self.numbers.insert(self.next) {
                return self.next;
            }
        }
    }
}

/// The thread that a track is.
fn thread(kind: TrackKind) -> Option<ThreadId> {
    match kind {
        TrackKind::Thread { thread } => thread,
        TrackKind::Interrupt { .. } => None,
    }
}

/// A title, with what tells it from others where there is the same already.
fn distinct(titles: &mut HashSet<String>, wanted: &str, number: u32, kind: TrackKind) -> String {
    if titles.insert(wanted.to_owned()) {
        return wanted.to_owned();
    }
    let mut title = match thread(kind) {
        Some(thread) => format!("{wanted} ({})", Shown(thread)),
        None => format!("{wanted} ({number})"),
    };
    // A thread can have any name, that one too.
    while !titles.insert(title.clone()) {
        title.push('*');
    }
    title
}

/// A thread as people know it: by a small number, or by an address.
struct Shown(ThreadId);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.0 <= LARGEST_OWN {
            write!(f, "{}", self.0.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// What the lane for the gaps of a stream is called.
pub(crate) fn gaps_title(info: &TraceInfo, stream: StreamId) -> String {
    match info.stream(stream) {
        Some(stream) => format!("gaps of {}", stream.name),
        None => format!("gaps of stream {stream}"),
    }
}

/// What a track is called for itself.
fn title(info: &TrackInfo) -> String {
    let name = info.name.as_deref();
    match (info.kind, info.cpu) {
        (TrackKind::Thread { thread: Some(id) }, _) => {
            name.map_or_else(|| format!("thread {}", Shown(id)), str::to_owned)
        }
        (TrackKind::Thread { thread: None }, Some(cpu)) => format!("CPU {cpu} outside threads"),
        (TrackKind::Thread { thread: None }, None) => "outside threads".to_owned(),
        (TrackKind::Interrupt { irq, thread, level }, cpu) => {
            let mut title = names::interrupt(irq, name);
            if let Some(cpu) = cpu {
                title += &format!(" on CPU {cpu}");
            }
            if let Some(thread) = thread {
                title += &format!(" in thread {}", Shown(thread));
            }
            if level > 0 {
                title += &format!(", nested {level}");
            }
            title
        }
    }
}
