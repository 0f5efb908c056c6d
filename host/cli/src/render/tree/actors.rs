//! Actors of a tree: its threads and interrupts, their names, and the one that runs in each stream.

use std::collections::HashMap;

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

/// Limits for the width of the actor column, which fits its longest name.
const WIDTHS: std::ops::RangeInclusive<usize> = 6..=20;

/// A track in the tree.
#[derive(Debug)]
pub struct Actor {
    /// The number of open calls.
    pub open: u32,
    /// The indentation of its outermost call: an interrupt continues that of the code it interrupts.
    pub base: u32,
    /// Its unique display name.
    pub name: String,
    /// The name cut or padded to the column's width.
    cell: String,
    /// The front of its lines.
    front: Front,
    cpu: Option<Cpu>,
    /// The stream of its last action.
    stream: StreamId,
    /// For an active interrupt: the interrupted track.
    interrupts: Option<TrackId>,
    is_span: bool,
}

impl Actor {
    /// The begin of one of its lines. `cpu` is that of the line, if there is a column for it.
    #[inline]
    pub fn front(&mut self, times: &Times, time: Time, cpu: Option<Option<Cpu>>) -> &Front {
        if !self.front.move_to(time, cpu) {
            self.front = Front::new(times, time, cpu, &self.cell);
        }
        &self.front
    }

    /// Whether it is a track of spans, which call nothing.
    pub const fn is_span(&self) -> bool {
        self.is_span
    }

    /// The processor that it belongs to, if any.
    pub const fn cpu(&self) -> Option<Cpu> {
        self.cpu
    }
}

/// The columns of a line after its time, with an empty duration: the processor if there is a column for it, and the
/// actor's `cell`.
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

/// All tracks, and the running ones.
#[derive(Debug)]
pub struct Actors {
    by_track: Vec<Option<Actor>>,
    /// Per stream: the track that acts.
    acting: Vec<Option<TrackId>>,
    /// The thread that has the processor, by stream and, for a stream of several processors, by processor.
    running: HashMap<(StreamId, Option<Cpu>), TrackId>,
    stream_cpus: Vec<Option<Cpu>>,
    threads: ThreadNames,
    width: usize,
    style: Style,
}

impl Actors {
    /// Starts without actors. Names are painted in `style`.
    pub fn new(info: &TraceInfo, style: Style) -> Self {
        let threads = ThreadNames::new(info);
        let interrupts = info.identities.interrupts().iter();
        let interrupts = interrupts.filter_map(|interrupt| interrupt.name.as_deref());
        let widest = interrupts.map(|name| name.chars().count()).max();
        let width = widest.unwrap_or(0).max(threads.widest());
        Self {
            by_track: Vec::new(),
            acting: Vec::new(),
            running: HashMap::new(),
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

    /// Adds or updates a track.
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

    /// The actor of a track.
    pub fn get(&self, track: TrackId) -> Option<&Actor> {
        self.by_track.get(track.0 as usize)?.as_ref()
    }

    /// The actor of a track, mutable.
    pub fn get_mut(&mut self, track: TrackId) -> Option<&mut Actor> {
        self.by_track.get_mut(track.0 as usize)?.as_mut()
    }

    /// Adds the streams that the trace has gained since: those of a text appear with its lines.
    pub fn learn(&mut self, info: &TraceInfo) {
        let new = info.streams.iter().skip(self.stream_cpus.len());
        self.stream_cpus.extend(new.map(|stream| stream.cpu));
    }

    /// The processor that a stream belongs to, if any.
    pub fn stream_cpu(&self, stream: StreamId) -> Option<Cpu> {
        *self.stream_cpus.get(stream.0 as usize)?
    }

    /// Records that a track acts in a stream.
    #[inline]
    pub fn appear(&mut self, stream: StreamId, track: TrackId) -> Option<&mut Actor> {
        // A span runs beside the acting track.
        if !self.get(track).is_some_and(Actor::is_span) {
            replace(&mut self.acting, stream, track);
        }
        let actor = self.get_mut(track)?;
        actor.stream = stream;
        Some(actor)
    }

    /// The stream of a track's last action.
    pub fn last_stream(&self, track: TrackId) -> StreamId {
        self.get(track).map_or(StreamId(0), |actor| actor.stream)
    }

    /// Begins an interrupt in a stream: it continues the indentation of the acting track.
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

    /// Ends an interrupt in a stream; the interrupted track continues.
    pub fn resume(&mut self, stream: StreamId, track: TrackId) {
        let interrupted = self
            .get_mut(track)
            .and_then(|actor| actor.interrupts.take());
        if let Some(interrupted) = interrupted {
            replace(&mut self.acting, stream, interrupted);
        }
    }

    /// Gives a thread the processor of a stream, or one of its processors. Returns the thread that had it before.
    pub fn switch(
        &mut self,
        stream: StreamId,
        cpu: Option<Cpu>,
        track: TrackId,
    ) -> Option<TrackId> {
        replace(&mut self.acting, stream, track);
        let cpu = self.stream_cpu(stream).or(cpu);
        self.running.insert((stream, cpu), track)
    }
}

/// Replaces the track of a stream.
fn replace(tracks: &mut Vec<Option<TrackId>>, stream: StreamId, track: TrackId) {
    let index = stream.0 as usize;
    if tracks.len() <= index {
        tracks.resize(index + 1, None);
    }
    tracks[index] = Some(track);
}
