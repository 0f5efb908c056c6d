//! Who runs: the threads and interrupts of a tree, their names, and which of them each stream
//! shows at the moment.

use anstyle::Style;
use kymo_analysis::calls::{TrackId, TrackInfo, TrackKind};
use kymo_analysis::titles;
use kymo_event::{Cpu, Identities, StreamId, Time, TraceInfo};

use super::front::Front;
use super::line::{BLANK, GAP};
use crate::render::duration::push_padded;
use crate::render::palette::paint;
use crate::render::threads::{ThreadNames, cell};
use crate::render::times::Times;

/// The column of actors is as wide as its longest name, within these limits.
const WIDTHS: std::ops::RangeInclusive<usize> = 6..=20;

/// A track as the tree sees it.
#[derive(Debug)]
pub struct Actor {
    /// How many calls are open.
    pub open: u32,
    /// The indentation of its outermost call: an interrupt continues what it interrupts.
    pub base: u32,
    /// What to call it, unlike any other.
    pub name: String,
    /// The name cut or filled up to the width of the column, as it is written.
    cell: String,
    /// What its lines begin with.
    front: Front,
    cpu: Option<Cpu>,
    /// Where it acted last.
    stream: StreamId,
    /// For an interrupt that is active: what it interrupts.
    interrupts: Option<TrackId>,
    is_span: bool,
}

impl Actor {
    /// What a line of it begins with. `cpu`: that of the line, if there is a column for it.
    #[inline]
    pub fn front(&mut self, times: &Times, time: Time, cpu: Option<Option<Cpu>>) -> &Front {
        if !self.front.move_to(time, cpu) {
            self.front = Front::new(times, time, cpu, &self.cell);
        }
        &self.front
    }

    /// Whether it is of spans, which call nothing.
    pub const fn is_span(&self) -> bool {
        self.is_span
    }

    /// The processor that it belongs to, if it belongs to one.
    pub const fn cpu(&self) -> Option<Cpu> {
        self.cpu
    }
}

/// The columns of a line behind its time, with no duration: the processor if there is a column for that, and who acts
/// there, as `cell` has it.
pub fn columns(cpu: Option<Option<Cpu>>, cell: &str) -> String {
    let mut columns = format!("{GAP}{BLANK}");
    match cpu {
        Some(Some(cpu)) => {
            columns.push_str("  ");
            push_padded(&mut columns, cpu.0.into(), 3);
        }
        Some(None) => columns.push_str("    -"),
        None => {}
    }
    for part in ["  ", cell, "  | "] {
        columns.push_str(part);
    }
    columns
}

/// All tracks, and what is running.
#[derive(Debug)]
pub struct Actors {
    by_track: Vec<Option<Actor>>,
    /// By stream: the track that acts.
    acting: Vec<Option<TrackId>>,
    /// By stream: the thread that has the processor.
    running: Vec<Option<TrackId>>,
    stream_cpus: Vec<Option<Cpu>>,
    threads: ThreadNames,
    width: usize,
    style: Style,
}

impl Actors {
    /// Nobody has acted yet. Their names are written in `style`.
    pub fn new(info: &TraceInfo, style: Style) -> Self {
        let threads = ThreadNames::new(info);
        let interrupts = info.identities.interrupts().iter();
        let interrupts = interrupts.filter_map(|interrupt| interrupt.name.as_deref());
        let widest = interrupts.map(|name| name.chars().count()).max();
        let width = widest.unwrap_or(0).max(threads.widest());
        Self {
            by_track: Vec::new(),
            acting: Vec::new(),
            running: Vec::new(),
            stream_cpus: info.streams.iter().map(|stream| stream.cpu).collect(),
            threads,
            width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
            style,
        }
    }

    /// The width of the column.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Takes what is known of a track.
    pub fn know(&mut self, track: TrackId, info: &TrackInfo, identities: &Identities) {
        let own_name = match info.kind {
            TrackKind::Thread { thread } => thread.and_then(|id| identities.thread_name(id)),
            TrackKind::Interrupt { irq, .. } => identities.interrupt_name(irq),
            TrackKind::Span { .. } => None,
        };
        let name = match info.kind {
            TrackKind::Thread { thread: None } => "-".to_owned(),
            TrackKind::Thread { thread: Some(id) } => {
                self.threads.name(identities.tid(id), own_name)
            }
            TrackKind::Span { .. } => "span".to_owned(),
            TrackKind::Interrupt { irq, .. } => {
                own_name.map_or_else(|| titles::interrupt_number(identities, irq), str::to_owned)
            }
        };
        let mut painted = String::new();
        paint(&mut painted, self.style, &cell(&name, self.width));
        let cell = painted;
        let index = track.0 as usize;
        if self.by_track.len() <= index {
            self.by_track.resize_with(index + 1, || None);
        }
        match &mut self.by_track[index] {
            Some(actor) => {
                actor.name = name;
                actor.cell = cell;
                actor.front = Front::default();
            }
            unknown => {
                *unknown = Some(Actor {
                    open: 0,
                    base: 0,
                    name,
                    cell,
                    front: Front::default(),
                    cpu: info.cpu,
                    stream: info.stream,
                    interrupts: None,
                    is_span: info.is_span(),
                });
            }
        }
    }

    /// What is known of a track.
    pub fn get(&self, track: TrackId) -> Option<&Actor> {
        self.by_track.get(track.0 as usize)?.as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, track: TrackId) -> Option<&mut Actor> {
        self.by_track.get_mut(track.0 as usize)?.as_mut()
    }

    /// Takes over the streams that came into the trace since: those of a text come with its lines.
    pub fn learn(&mut self, info: &TraceInfo) {
        let new = info.streams.iter().skip(self.stream_cpus.len());
        self.stream_cpus.extend(new.map(|stream| stream.cpu));
    }

    /// The processor that a stream belongs to, if it belongs to one.
    pub fn stream_cpu(&self, stream: StreamId) -> Option<Cpu> {
        *self.stream_cpus.get(stream.0 as usize)?
    }

    /// A track does something in a stream.
    #[inline]
    pub fn appear(&mut self, stream: StreamId, track: TrackId) -> Option<&mut Actor> {
        // A span is beside what acts.
        if !self.get(track).is_some_and(Actor::is_span) {
            replace(&mut self.acting, stream, track);
        }
        let actor = self.get_mut(track)?;
        actor.stream = stream;
        Some(actor)
    }

    /// The stream in which a track acted last.
    pub fn last_stream(&self, track: TrackId) -> StreamId {
        self.get(track).map_or(StreamId(0), |actor| actor.stream)
    }

    /// An interrupt begins in a stream: it continues the indentation of what acts there.
    pub fn interrupt(&mut self, stream: StreamId, track: TrackId) {
        let acting = self.acting.get(stream.0 as usize).copied().flatten();
        let interrupted = acting.filter(|acting| *acting != track);
        let base = interrupted.and_then(|interrupted| self.get(interrupted));
        let base = base.map_or(0, |actor| actor.base.saturating_add(actor.open));
        if let Some(actor) = self.get_mut(track) {
            actor.base = base;
            actor.interrupts = interrupted;
        }
    }

    /// An interrupt ends in a stream, and what it interrupted goes on.
    pub fn resume(&mut self, stream: StreamId, track: TrackId) {
        let interrupted = self
            .get_mut(track)
            .and_then(|actor| actor.interrupts.take());
        if let Some(interrupted) = interrupted {
            replace(&mut self.acting, stream, interrupted);
        }
    }

    /// A thread gets the processor of a stream; gives the one that had it before.
    pub fn switch(&mut self, stream: StreamId, track: TrackId) -> Option<TrackId> {
        replace(&mut self.acting, stream, track);
        replace(&mut self.running, stream, track)
    }
}

/// Puts a track in the place of the one that a stream had; gives that.
fn replace(tracks: &mut Vec<Option<TrackId>>, stream: StreamId, track: TrackId) -> Option<TrackId> {
    let index = stream.0 as usize;
    if tracks.len() <= index {
        tracks.resize(index + 1, None);
    }
    tracks[index].replace(track)
}
