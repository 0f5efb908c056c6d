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
//! to follows from the interrupts that are active on its processor and from the thread that
//! it names. Where a stream belongs to a thread of a Linux process, that thread takes the place of a
//! processor, with all streams that belong to it; signals are its interrupts. Where an event names
//! neither, its stream takes that place. Spans, which are no calls, have tracks by their names.
//!
//! # Time
//! A track has the processor or not, and only one track of a processor has it at a time: an
//! interrupt takes it from the thread (or interrupt) that it interrupts, a switch from one thread
//! to the other. [`End::duration`] counts the time in which the call's own track had it. Where the source's
//! time steps back, a clock was ahead before (some timers are, for a moment): the step is taken off what
//! has been counted since it went ahead, for whichever track that was, so that calls during which it went ahead
//! and back are as long as they were; they are in doubt all the same ([`Doubt::clock`]). What calls have been
//! charged that had ended by then is reported by a step of its own ([`Step::ClockAhead`]).
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
//!   as unwound. Where the source states how long it took, that is by the wall ([`End::wall`]): on the processor it was at
//!   least what it called since then, and at most all of that.
//!   (An exit just behind a switch of threads of what the other thread entered last is none: that is
//!   the code that switches.)
//! - A loss leaves open what is open, in doubt ([`Doubt::loss`]), unless it is of a stream that never had
//!   any calls ([`StreamInfo::without_calls`]). An exit that fits a call in doubt
//!   closes it, and those above it as [`Repair::Lost`]. Interrupts are not kept open over a loss;
//!   where the trace tells that one is active behind it, what it does is no thread's. Until a thread that
//!   was switched in there returns from a call that it had open by then, one may be, and the calls of threads
//!   that come from other processors are in doubt.
//!   A call that [`LOSSES_SURVIVED`] losses passed without any sign of life is closed as lost, unless its stream tells of each
//!   exit that is missing.
//! - Times that count instructions pass only with what was seen. Behind a loss they are certain again for a call from where
//!   it is seen to run: a row says so, or a callee returns to it.
//! - A call that is [found](Row::found) open began before, it is not known when: its times are lower bounds
//!   ([`End::clipped`]).
//! - Recording off closes everything, on all tracks, as [`How::RecordingOff`]: that was wanted.
//! - The end of the trace closes the rest as [`How::Open`], at the last event of all of its machine: a thread that waits
//!   has no events. A thread that is known to have ended is closed at its own last one.
//!
//! Memory grows with threads × depth, not with the trace.

mod context;
mod cpu_state;
mod frames;
mod functions;
mod interrupts;
mod jumps;
mod losses;
mod output;
mod repeats;
mod spans;
mod straight;
mod threads;
mod track;
mod whole;
mod window;

#[cfg(test)]
mod tests;

pub use output::{
    Begin, CallId, Callee, Counts, Doubt, End, How, Observer, Repair, Step, TrackId, TrackInfo,
    TrackKind,
};

use kymo_event::{
    Cpu, EventKind, EventRef, InterruptId, Row, RowKind, SpaceId, StreamId, StreamInfo, ThreadId,
    Time, TimeUnit, TraceInfo,
};

use crate::hash::FastMap;

use cpu_state::{CpuKey, CpuState};
use straight::Place;
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
    /// The tracks of threads, by [`ThreadId`]; [`NO_TRACK`] for those that have none.
    threads: Vec<usize>,
    interrupts: FastMap<(usize, InterruptId, usize), usize>,
    spans: FastMap<spans::Key, spans::Spans>,
    cpus: Vec<CpuState>,
    cpu_keys: FastMap<CpuKey, usize>,
    /// The streams of which events are missing between the last one and the next. (By stream: another
    /// one of the same processor or thread may go on meanwhile.)
    in_gap: Vec<StreamId>,
    /// On which machines recording is on, or off, once the trace says so.
    recording: FastMap<SpaceId, bool>,
    /// Whether the event at hand tells a thread's priority, which the program's own scheduler does.
    in_context: bool,
    streams: Vec<Stream>,
    /// Whether no time steps back, so that nobody has to know who was charged with what.
    in_order: bool,
    /// Whether times are counts of the instructions in the trace: what passes up to a gap was seen.
    in_instructions: bool,
    /// Counts what is no enter or exit, so that the [straight path](straight) notices; from 1.
    epoch: u64,
    /// When the [window](Self::open_window) begins.
    window: Option<Time>,
    /// Calls that may have had one end of two, behind losses.
    half_seen: repeats::HalfSeen,
    lost_before: losses::LostBefore,
    /// Whether the trace was cut from one that had lost events by then.
    lossy_cut: bool,
}

/// In [`Calls::threads`]: no track.
const NO_TRACK: usize = usize::MAX;

/// What is known of a stream.
#[derive(Debug)]
struct Stream {
    /// The processor that it belongs to, if it belongs to one.
    cpu: Option<Cpu>,
    /// The thread that it belongs to, if it belongs to one.
    thread: Option<ThreadId>,
    machine: SpaceId,
    without_calls: bool,
    whole_calls: bool,
    marks_missing_exits: bool,
    without_switches: bool,
    /// The [place](Row::place) of an event whose processor is known: `state`.
    requested: Option<u64>,
    state: usize,
    place: Place,
}

impl Stream {
    fn new(info: &StreamInfo) -> Self {
        Self {
            cpu: info.cpu,
            thread: info.thread,
            machine: info.machine,
            without_calls: info.without_calls,
            whole_calls: info.whole_calls,
            marks_missing_exits: info.marks_missing_exits,
            without_switches: info.without_switches,
            requested: None,
            state: 0,
            place: Place::default(),
        }
    }
}

impl Calls {
    /// Knows of no call yet. `info` tells which streams belong to threads and which to processors.
    pub fn new(info: &TraceInfo, options: Options) -> Self {
        Self {
            options,
            counts: Counts::default(),
            calls: 0,
            tracks: Vec::new(),
            threads: Vec::new(),
            interrupts: FastMap::default(),
            spans: FastMap::default(),
            cpus: Vec::new(),
            cpu_keys: FastMap::default(),
            in_gap: Vec::new(),
            recording: FastMap::default(),
            in_context: false,
            streams: info.streams.iter().map(Stream::new).collect(),
            in_order: info.in_order,
            in_instructions: info.unit == TimeUnit::Instructions,
            epoch: 1,
            window: None,
            half_seen: repeats::HalfSeen::default(),
            lost_before: losses::LostBefore::of_cut(info.cut.hidden_calls),
            lossy_cut: info.cut.hidden_calls.is_some(),
        }
    }

    /// Takes over the streams that came into the trace since. To be called before the events of a batch.
    pub fn learn(&mut self, info: &TraceInfo) {
        let new = info.streams.iter().skip(self.streams.len());
        self.streams.extend(new.map(Stream::new));
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
    pub fn push(&mut self, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let row = event.row;
        if self.run_to(std::slice::from_ref(row), false, &mut output::Each(out)) > 0 {
            return;
        }
        if matches!(row.kind, RowKind::Enter | RowKind::Exit) {
            self.call(row, out);
        } else {
            self.epoch += 1;
            self.other(event, out);
        }
    }

    /// Takes an enter or exit that is not on the [straight path](straight).
    #[inline(never)]
    fn call(&mut self, row: &Row, out: &mut impl FnMut(Step<'_>)) {
        let cpu = self.arrive(row, out);
        let track = self.context(cpu, row, out);
        match (row.kind, row.of_function()) {
            // A source names the function of every enter.
            (RowKind::Enter, Some(function)) => {
                self.cpus[cpu].crossed = None;
                self.enter(track, function, row.call_site(), row, out);
            }
            (_, function) => {
                if let Some(own) = row.self_time() {
                    self.tracks[track].hide_callees(function, own);
                }
                self.exit(cpu, track, function, row, out);
            }
        }
        self.remember_place(row, cpu, track);
    }

    /// Takes an event that is no enter or exit.
    #[inline(never)]
    fn other(&mut self, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let row = event.row;
        if row.kind == RowKind::Rare {
            return self.rare(event, out);
        }
        let cpu = self.arrive(row, out);
        match row.kind {
            RowKind::SwitchedIn => {
                let track = self.thread_of(cpu, row, out);
                self.switch_in(cpu, track, row.time, true, out);
            }
            RowKind::SwitchedOut => self.switch_out(cpu, row, out),
            RowKind::IsrEnter => {
                if let Some(irq) = row.of_interrupt() {
                    self.interrupt(cpu, irq, row, out);
                }
            }
            RowKind::IsrExit => self.interrupt_end(cpu, row.of_interrupt(), row, out),
            RowKind::Called => {
                let track = self.context(cpu, row, out);
                if let Some(function) = row.of_function() {
                    self.called(track, function, row, out);
                }
            }
            RowKind::SpanBegin | RowKind::SpanEnd => {
                if let Some(function) = row.of_function() {
                    self.span(cpu, function, event, out);
                }
            }
            RowKind::SetJmp => self.set_jump(cpu, row.environment(), event, out),
            RowKind::LongJmp => self.jump(cpu, row.environment(), event, out),
            RowKind::Time if row.is_last_time() => {
                self.last_time(cpu, row, out);
                self.anything(cpu, event, out);
            }
            _ => self.anything(cpu, event, out),
        }
    }

    /// An event comes from its processor: time passes there, and the gap of its stream is over.
    #[inline]
    fn arrive(&mut self, row: &Row, out: &mut impl FnMut(Step<'_>)) -> usize {
        let cpu = self.cpu_of(row);
        if !self.in_gap.is_empty() {
            self.in_gap.retain(|stream| *stream != row.stream);
        }
        self.advance(cpu, row.time, out);
        cpu
    }

    /// Takes an event that a row can't say.
    fn rare(&mut self, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let kind = event.event.map(|event| &event.kind);
        match kind {
            Some(EventKind::ThreadName { thread, .. }) => {
                return self.name_thread(*thread, event, out);
            }
            Some(EventKind::IsrName { irq, .. }) => return self.name_interrupt(*irq, event, out),
            Some(EventKind::Gap(gap)) => return self.gap(gap, event, out),
            // It happened nowhere.
            Some(EventKind::Costs(_)) => return out(Step::Event { track: None, event }),
            _ => {}
        }
        self.in_context = matches!(kind, Some(EventKind::Context { .. }));
        let cpu = self.arrive(event.row, out);
        self.in_context = false;
        match kind {
            Some(EventKind::Recording { on, .. }) => self.recording(cpu, *on, event, out),
            Some(EventKind::Call(call)) => self.whole_call(cpu, call, event.row, out),
            _ => self.anything(cpu, event, out),
        }
    }

    /// Takes an event that is neither a call nor a switch nor an interrupt.
    fn anything(&mut self, cpu: usize, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let track = self.context(cpu, event.row, out);
        if let (RowKind::Other, Some(function)) = (event.row.kind, event.row.of_function()) {
            self.tracks[track].runs(function);
        }
        let track = Some(self.id(track));
        out(Step::Event { track, event });
    }
}
