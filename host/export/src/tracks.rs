//! Numbers and titles of call tracks in the formats of trace viewers.
//!
//! Viewers use Linux's model: a thread has a small number, which distinguishes two threads of one name. A target's
//! thread is often identified by the address of its control block, and an interrupt has no such number at all.
//! Therefore every track gets a unique number, which is the thread's own if Linux could have assigned it, and a unique
//! title.

use std::collections::HashSet;

use kymo_analysis::calls::{TrackId, TrackInfo, TrackKind};
use kymo_analysis::titles::{self, LARGEST_OWN, Number};
use kymo_event::{SpaceId, StreamId, Tid, TraceInfo};

/// A displayed track.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Unique number, from 1, or beyond all numbers that a thread can have if the threads have numbers.
    pub number: u32,
    /// Unique title.
    pub title: String,
    /// Whether it is a thread, rather than an interrupt.
    pub thread: bool,
    /// The identifier on the target, if `number` differs from it.
    pub origin: Option<Tid>,
    /// The space of its thread or interrupt.
    pub space: SpaceId,
}

/// The tracks seen so far, by [`TrackId`].
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    tracks: Vec<Option<Track>>,
    numbers: HashSet<u32>,
    titles: HashSet<String>,
    /// The last number assigned to a track without a usable number of its own.
    next: u32,
}

/// A track, and its displayed form once it has content: an empty track is not displayed.
#[derive(Debug)]
struct Track {
    title: String,
    thread: bool,
    tid: Option<Tid>,
    space: SpaceId,
    machine: SpaceId,
    shown: Option<Shown>,
}

impl Tracks {
    /// Updates a track's metadata. Returns whether the track is already displayed, under another title.
    pub fn update(&mut self, trace: &TraceInfo, track: TrackId, info: &TrackInfo) -> bool {
        let at = track.0 as usize;
        if self.tracks.len() <= at {
            self.tracks.resize_with(at + 1, || None);
        }
        if trace.numbered_threads {
            // Small numbers belong to threads, including later ones.
            self.next = self.next.max(LARGEST_OWN as u32);
        }
        let wanted = titles::track(trace, info);
        let Some(place) = self.tracks.get_mut(at) else {
            return false;
        };
        if place.as_ref().is_some_and(|known| known.title == wanted) {
            return false;
        }
        let (is_thread, tid) = match info.kind {
            TrackKind::Thread { thread } => (true, thread.map(|id| trace.identities.tid(id))),
            TrackKind::Interrupt { .. } | TrackKind::Span { .. } => (false, None),
        };
        let space = info.space(trace);
        let stream = trace.stream(info.stream);
        let machine = stream.map(|stream| stream.machine).unwrap_or_default();
        let shown = place.take().and_then(|known| known.shown);
        let shown = shown.map(|shown| {
            self.titles.remove(&shown.title);
            let title = distinct(&mut self.titles, &wanted, shown.number, tid);
            Shown { title, ..shown }
        });
        let known = place.insert(Track {
            title: wanted,
            thread: is_thread,
            tid,
            space,
            machine,
            shown,
        });
        known.shown.is_some()
    }

    /// Displays a track, and returns whether it is displayed for the first time. `None` for an unknown track.
    pub fn show(&mut self, track: TrackId) -> Option<(&Shown, bool)> {
        let at = track.0 as usize;
        let known = self.tracks.get(at)?.as_ref()?;
        let new = known.shown.is_none();
        if new {
            let Track {
                title,
                thread,
                tid,
                space,
                ..
            } = known;
            let (title, thread, tid, space) = (title.clone(), *thread, *tid, *space);
            let number = self.number(tid);
            let shown = Shown {
                number,
                title: distinct(&mut self.titles, &title, number, tid),
                thread,
                origin: tid.filter(|tid| tid.0 != u64::from(number)),
                space,
            };
            self.tracks.get_mut(at)?.as_mut()?.shown = Some(shown);
        }
        Some((self.tracks.get(at)?.as_ref()?.shown.as_ref()?, new))
    }

    /// A track, if it is displayed.
    #[inline]
    pub fn get(&self, track: TrackId) -> Option<&Shown> {
        self.tracks.get(track.0 as usize)?.as_ref()?.shown.as_ref()
    }

    /// The machine of a track.
    pub fn machine(&self, track: TrackId) -> SpaceId {
        let known = self.tracks.get(track.0 as usize).and_then(Option::as_ref);
        known.map(|known| known.machine).unwrap_or_default()
    }

    /// A number for something that is not a track.
    pub fn extra(&mut self) -> u32 {
        self.number(None)
    }

    /// Chooses a free number: the thread's own if possible.
    fn number(&mut self, tid: Option<Tid>) -> u32 {
        let own = tid
            .filter(|tid| (1..=LARGEST_OWN).contains(&tid.0))
            .and_then(|tid| u32::try_from(tid.0).ok());
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

/// The title, with a distinguishing suffix if it is already in use.
fn distinct(titles: &mut HashSet<String>, wanted: &str, number: u32, tid: Option<Tid>) -> String {
    if titles.insert(wanted.to_owned()) {
        return wanted.to_owned();
    }
    let mut title = match tid {
        Some(tid) => format!("{wanted} ({})", Number(tid)),
        None => format!("{wanted} ({number})"),
    };
    // A thread can also be named like the result, and threads of two spaces can have the same number.
    while !titles.insert(title.clone()) {
        title.push('*');
    }
    title
}

/// The title of a track for the gaps of a stream.
pub(crate) fn gaps_title(info: &TraceInfo, stream: StreamId) -> String {
    match info.stream(stream) {
        Some(stream) => format!("gaps of {}", stream.name),
        None => format!("gaps of stream {stream}"),
    }
}
