//! Call stacks, rebuilt from enters and exits while they stream by.
//!
//! A trace holds enters and exits in the order in which they happened on a processor; what a reader
//! wants are calls: begin, end, nesting, time. Between the two stand thread switches, interrupts,
//! `longjmp`, traces that begin and end in the middle of everything, and losses. [`Calls`] deals
//! with them in one place, so that no table and no picture has to, and says of every call how sure
//! it is.
//!
//! # Tracks
//! Every thread and every interrupt has a stack of its own, a *track*. Which track an event belongs
//! to follows from the interrupts that are being served on its processor and from the thread that
//! it names. Where a stream belongs to a thread of a Linux process, that thread takes the place of a
//! processor, with all streams that belong to it; signals are its interrupts. Where an event names
//! neither, its stream takes that place.
//!
//! # Time
//! A track has the processor or not, and only one track of a processor has it at a time: an
//! interrupt takes it from the thread (or interrupt) that it interrupts, a switch from one thread
//! to the other. [`End::duration`] counts the time in which the call's own track had it. Where the source's
//! time steps back, a clock was ahead before (some timers are, for a moment): the step is taken off what
//! has been counted since it went ahead, for whichever track that was, so that calls during which it went ahead
//! and back are as long as they were; they are in doubt all the same ([`Doubt::clock`]). What calls have been
//! charged that had ended by then is told by a step of its own ([`Step::ClockAhead`]).
//!
//! # Jumps
//! Where the trace has marks of `setjmp` and `longjmp`, a jump ends exactly the calls that it leaves
//! ([`How::Jumped`]); that is knowledge, not repair.
//!
//! # Repair
//! - An exit of a function further out closes what is open above it ([`Repair::Unwound`]): that is
//!   what exceptions leave, and `longjmp` without marks. Of several open calls of that function it is taken to be
//!   the innermost one's.
//! - An exit of a function that is not open at all is an orphan ([`How::Orphan`]). Its call began
//!   before everything that was entered since the trace (or its last loss) began, so that is closed
//!   as unwound.
//!   (An exit just behind a switch of threads of what the other thread entered last is none: that is
//!   the code that switches.)
//! - A loss leaves open what is open, in doubt ([`Doubt::loss`]), unless it is of a stream that never had
//!   any calls ([`StreamInfo::without_calls`]). An exit that fits a call in doubt
//!   closes it, and those above it as [`Repair::Lost`]. Interrupts are not kept open over a loss;
//!   where the trace tells that one is being served behind it, what it does is no thread's.
//!   A call that [`LOSSES_SURVIVED`] losses passed without any sign of life is closed as lost.
//! - Recording off closes everything, on all tracks, as [`How::RecordingOff`]: that was wanted.
//! - The end of the trace closes the rest as [`How::Open`].
//!
//! Memory grows with threads × depth, not with the trace.

mod functions;
mod interrupts;
mod jumps;
mod lane;
mod losses;
mod place;
mod step;
mod threads;
mod track;

#[cfg(test)]
mod tests;

pub use step::{
    Begin, CallId, Callee, Counts, Doubt, End, How, Repair, Step, TrackId, TrackInfo, TrackKind,
};

use std::collections::HashMap;

use kymo_event::{Event, EventKind, Irq, StreamId, StreamInfo, ThreadId, TraceInfo};

use crate::hash::FastMap;

use lane::{Lane, LaneKey};
use track::Track;

/// How many losses a call stays open without a sign of life (an exit that fits it or a call that it
/// made before the loss).
pub const LOSSES_SURVIVED: u32 = 4;

/// How to rebuild calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The deepest stack that is followed; what is deeper is counted ([`Counts::too_deep`]). It
    /// bounds memory where exits are missing or recursion runs away.
    pub max_depth: u32,
}

/// How deep interrupts are followed that interrupt each other; what is deeper is counted
/// ([`Counts::too_deep`]). No processor has as many priorities.
pub const NESTED_INTERRUPTS: usize = 256;

impl Default for Options {
    /// 65,536 calls deep.
    fn default() -> Self {
        Self { max_depth: 1 << 16 }
    }
}

/// Rebuilds calls from events.
///
/// Give it every event of the trace in order with [`push`](Self::push), then call
/// [`finish`](Self::finish). Steps go to the closure as they become known; those of one event come
/// together, and a [`Step::Track`] comes before anything else on its track.
#[derive(Debug)]
pub struct Calls {
    options: Options,
    counts: Counts,
    calls: u64,
    tracks: Vec<Track>,
    threads: FastMap<ThreadId, usize>,
    interrupts: FastMap<(usize, Irq, usize), usize>,
    lanes: Vec<Lane>,
    lane_keys: FastMap<LaneKey, usize>,
    /// The streams of which events are missing between the last one and the next. (By stream: another
    /// one of the same processor or thread may go on meanwhile.)
    in_gap: Vec<StreamId>,
    /// Whether recording is on, once the trace has told.
    recording: Option<bool>,
    thread_names: HashMap<ThreadId, String>,
    interrupt_names: HashMap<Irq, String>,
    streams: Vec<StreamInfo>,
}

impl Calls {
    /// Knows of no call yet. `info` gives names, and tells which streams belong to threads and
    /// which to processors.
    pub fn new(info: &TraceInfo, options: Options) -> Self {
        Self {
            options,
            counts: Counts::default(),
            calls: 0,
            tracks: Vec::new(),
            threads: FastMap::default(),
            interrupts: FastMap::default(),
            lanes: Vec::new(),
            lane_keys: FastMap::default(),
            in_gap: Vec::new(),
            recording: None,
            thread_names: info.threads.iter().cloned().collect(),
            interrupt_names: info.interrupts.iter().cloned().collect(),
            streams: info.streams.clone(),
        }
    }

    /// What has been counted so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What a track is; `None` for a number that no step has had.
    pub fn track(&self, track: TrackId) -> Option<&TrackInfo> {
        Some(&self.tracks.get(usize::try_from(track.0).ok()?)?.info)
    }

    /// Takes the next event, and gives the steps that follow from it to `out`.
    pub fn push(&mut self, event: &Event, out: &mut impl FnMut(Step<'_>)) {
        match &event.kind {
            EventKind::ThreadName { thread, name } => {
                return self.name_thread(*thread, name, event, out);
            }
            EventKind::IsrName { irq, name } => return self.name_interrupt(*irq, name, event, out),
            EventKind::Gap(gap) => return self.gap(gap, event, out),
            // It happened nowhere.
            EventKind::Costs(_) => return out(Step::Event { track: None, event }),
            _ => {}
        }
        let lane = self.lane(event);
        self.in_gap.retain(|stream| *stream != event.stream);
        self.advance(lane, event.time, out);
        match event.kind {
            EventKind::Enter {
                function,
                call_site,
            } => {
                let track = self.context(lane, event, out);
                self.lanes[lane].crossed = None;
                self.enter(track, function, call_site, event.time, out);
            }
            EventKind::Exit { function } => {
                let track = self.context(lane, event, out);
                self.exit(lane, track, function, event.time, out);
            }
            EventKind::SwitchedIn => {
                let track = self.thread_of(lane, event, out);
                self.switch_in(lane, track, event.time, true, out);
            }
            EventKind::SwitchedOut => self.switch_out(lane, event, out),
            EventKind::IsrEnter { irq } => self.interrupt(lane, irq, event, out),
            EventKind::IsrExit { irq } => self.interrupt_end(lane, irq, event, out),
            EventKind::Recording { on, .. } => self.recording(lane, on, event, out),
            EventKind::SetJmp { env } => self.set_jump(lane, env, event, out),
            EventKind::LongJmp { env } => self.jump(lane, env, event, out),
            _ => {
                let track = self.context(lane, event, out);
                let track = Some(self.id(track));
                out(Step::Event { track, event });
            }
        }
    }

    /// Closes what is open at the end of the trace. A call on a processor ends with the last event
    /// of that processor (or thread, where streams belong to threads); a call of a thread that
    /// waits, with the last event of all.
    pub fn finish(&mut self, out: &mut impl FnMut(Step<'_>)) {
        let last = self.lanes.iter().filter_map(|lane| lane.last).max();
        let Some(last) = last else {
            return;
        };
        for lane in 0..self.lanes.len() {
            let end = self.lanes[lane].last.unwrap_or(last);
            self.end_interrupts(lane, 0, end, |_| How::Open, out);
        }
        for track in 0..self.tracks.len() {
            let on = self.tracks[track].on.and_then(|lane| self.lanes[lane].last);
            self.close(track, 0, on.unwrap_or(last), |_| How::Open, out);
        }
    }
}
