//! Streaming reconstruction of call stacks from enter and exit events.
//!
//! A trace holds enters and exits in the order in which they happened on a processor. An analysis needs calls: begin,
//! end, nesting, time. Thread switches, interrupts, `longjmp`, traces that begin and end within calls, and lost
//! events lie between the two. [`Calls`] handles all of these in one place, so that tables and graphs need not, and
//! reports for every call how reliable it is.
//!
//! # Tracks
//! Every thread and every interrupt has a call stack of its own, a *track*. The track of an event follows from the
//! interrupts that are active on its processor and from the thread that the event names. Where a stream belongs to a
//! thread of a Linux process, that thread with all its streams acts as the processor, and signals are its interrupts.
//! Where an event has neither processor nor thread, its stream acts as the processor. Spans are not calls; each span
//! name has a track.
//!
//! # Time
//! Only one track has a processor at a time: an interrupt takes it from the thread (or interrupt) that it interrupts,
//! a switch passes it from one thread to the other. [`End::duration`] counts the time in which the call's own track
//! had the processor.
//!
//! Where the source's time steps back, the clock was ahead before (some timers are, briefly). The step is subtracted
//! from the time that was counted since the clock went ahead, on whichever track was charged. Calls during which the
//! clock went ahead and back thus keep their true length, but are in doubt ([`Doubt::clock`]). [`Step::ClockAhead`]
//! reports the excess of calls that had already ended.
//!
//! # Jumps
//! Where the trace records `setjmp` and `longjmp`, a jump ends exactly the calls that it leaves ([`How::Jumped`]).
//! This is exact, not a repair.
//!
//! # Repair
//! - An exit of an outer function closes the calls above it ([`Repair::Unwound`]): exceptions, and `longjmp` without
//!   marks, leave such calls open. If several calls of that function are open, the exit belongs to the innermost.
//! - An exit of a function that is not open at all is an orphan ([`How::Orphan`]). Its call began before everything
//!   entered since the start of the trace (or since its last loss), so those calls are closed as unwound. A duration
//!   that the source states for it is wall time ([`End::wall`]): the processor time was at least that of its callees
//!   since then, and at most all of the wall time.
//!   (An exit directly after a thread switch, of the function that the other thread entered last, is no orphan: it
//!   belongs to the code that switches threads.)
//! - Where the switches of a processor are not recorded, but its other events are ([`StreamInfo::switches`], and losses
//!   of that stream alone), the time of calls may be other threads': calls that begin there are in doubt.
//! - After a loss, open calls stay open, in doubt ([`Doubt::loss`]), unless the stream never had any calls
//!   ([`StreamInfo::without_calls`]). An exit that fits a call in doubt closes it, and those above it as
//!   [`Repair::Lost`]. Interrupts are not kept open across a loss. If the trace shows that one is active after it,
//!   its events belong to no thread. Until a thread that was switched in there returns from a call that was open at
//!   the loss, an interrupt may be active, and the calls of threads that come from other processors are in doubt.
//!   A call that saw [`LOSSES_SURVIVED`] losses without any sign of life is closed as lost, unless its stream marks
//!   each missing exit.
//! - Times that count instructions advance only with recorded instructions. After a loss they are certain again for a
//!   call from where it is seen to run: a row says so, or a callee returns to it.
//! - A thread that is switched in on a processor without having been switched out of the other keeps its time there if
//!   that switch comes soon after (the processors' clocks differ). Otherwise it may have left that processor at any time,
//!   and its calls are in doubt. So are calls whose exit is said to be missing, from the last switch of their thread on.
//! - A call that is [found](Row::found) open began earlier, at an unknown time: its times are lower bounds
//!   ([`End::clipped`]).
//! - Recording off closes everything, on all tracks, as [`How::RecordingOff`], because the user requested it.
//! - The end of the trace closes the rest as [`How::Open`], at the last event of the whole machine, because a waiting
//!   thread has no events. A thread that is known to have exited is closed at its own last event.
//!
//! Memory grows with threads × depth, not with the length of the trace.

mod clock;
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
mod unrecorded;
mod whole;
mod window;

#[cfg(test)]
mod tests;

pub use output::{
    Ahead, Begin, CallId, Callee, Counts, Doubt, End, How, Observer, Repair, Step, TrackId,
    TrackInfo, TrackKind,
};

use kymo_event::{
    Cpu, EventKind, EventRef, InterruptId, Row, RowKind, SpaceId, StreamId, StreamInfo, ThreadId,
    Time, TimeUnit, TraceInfo,
};

use crate::hash::FastMap;

use cpu_state::{CpuKey, CpuState};
use straight::Place;
use track::Track;
use unrecorded::Unrecorded;

/// Number of losses for which a call stays open without a sign of life (an exit that fits it, or one that fits a call
/// that it made before the loss).
pub const LOSSES_SURVIVED: u32 = 4;

/// Options of the reconstruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum depth of a stack; deeper calls are only counted ([`Counts::too_deep`]). Bounds memory where exits are
    /// missing or recursion runs away.
    pub max_depth: u32,
}

/// Maximum nesting depth of interrupts; deeper ones are only counted ([`Counts::too_deep`]). No processor has as many
/// priorities.
pub const NESTED_INTERRUPTS: usize = 256;

impl Default for Options {
    /// 65,536 calls deep.
    fn default() -> Self {
        Self { max_depth: 1 << 16 }
    }
}

/// Rebuilds calls from events.
///
/// Pass every event of the trace in order to [`push`](Self::push), then call [`finish`](Self::finish). The closure
/// receives steps as they become known. The steps of one event come together, and a [`Step::Track`] comes before
/// anything else on its track.
#[derive(Debug)]
pub struct Calls {
    options: Options,
    counts: Counts,
    calls: u64,
    tracks: Vec<Track>,
    /// The tracks of threads, indexed by [`ThreadId`]; [`NO_TRACK`] for threads without one.
    threads: Vec<usize>,
    interrupts: FastMap<(usize, InterruptId, usize), usize>,
    spans: FastMap<spans::Key, spans::Spans>,
    cpus: Vec<CpuState>,
    /// The tracks of threads that a loss of a processor's events may concern, in order: those with a processor or
    /// open calls. Others are removed when a loss next walks through them, and listed again with their next processor.
    exposed: Vec<usize>,
    cpu_keys: FastMap<CpuKey, usize>,
    /// The streams in which events are missing between the last one and the next. (Per stream, because another stream
    /// of the same processor or thread may continue.)
    in_gap: Vec<StreamId>,
    /// Whether recording is on, per machine, once the trace records it.
    recording: FastMap<SpaceId, bool>,
    /// Whether the current event records a thread's priority, as the program's own scheduler does.
    in_context: bool,
    streams: Vec<Stream>,
    /// Whether time never steps back, so that charges need not be remembered.
    in_order: bool,
    /// Whether times are counts of the instructions in the trace, so that time up to a gap is fully recorded.
    in_instructions: bool,
    /// Version counter, from 1: rises with every event that is neither enter nor exit, and whenever remembered CPU
    /// states become invalid, so that the [straight path](straight) notices.
    epoch: u64,
    /// Begin of the [window](Self::open_window).
    window: Option<Time>,
    /// Calls that, because of losses, may have been reported with only one of their two ends.
    half_seen: repeats::HalfSeen,
    lost_before: losses::LostBefore,
    /// Whether the trace was cut from one that had already lost events.
    lossy_cut: bool,
    /// Where switches are not recorded although other events are.
    unrecorded: Unrecorded,
    /// Whether a switch was recorded.
    has_switches: bool,
    /// The threads whose number a later one has: how many, and by thread.
    followed: (u64, Vec<bool>),
}

/// Marks a thread without a track in [`Calls::threads`].
const NO_TRACK: usize = usize::MAX;

/// Properties of a stream.
#[derive(Debug)]
struct Stream {
    /// The processor that the stream belongs to, if any.
    cpu: Option<Cpu>,
    /// The thread that the stream belongs to, if any.
    thread: Option<ThreadId>,
    machine: SpaceId,
    without_calls: bool,
    whole_calls: bool,
    marks_missing_exits: bool,
    without_switches: bool,
    /// Whether the thread switches of its processor are recorded in it, and not in its other streams.
    tells_switches: bool,
    /// The [place](Row::place) of the events whose CPU state is cached in `state`.
    requested: Option<u64>,
    state: usize,
    place: Place,
    /// The CPU states that have had events of the stream.
    states: Vec<usize>,
    /// Whether it is among [`Calls::in_gap`].
    is_in_gap: bool,
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
            tells_switches: info.switches.is_some(),
            requested: None,
            state: 0,
            place: Place::default(),
            states: Vec::new(),
            is_in_gap: false,
        }
    }
}

impl Calls {
    /// Starts without any calls. `info` lists which streams belong to threads and which to processors.
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
            exposed: Vec::new(),
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
            unrecorded: Unrecorded::new(&info.streams),
            has_switches: false,
            followed: (0, Vec::new()),
        }
    }

    /// Adds the streams and ended threads that the trace has gained since. Must be called before the events of a batch.
    pub fn learn(&mut self, info: &TraceInfo) {
        let followed = info.identities.followed();
        if followed != self.followed.0 {
            let threads = info.identities.threads().iter();
            self.followed = (followed, threads.map(|thread| thread.followed).collect());
        }
        let new = info.streams.iter().skip(self.streams.len());
        let known = self.streams.len();
        self.streams.extend(new.map(Stream::new));
        if self.streams.len() > known {
            self.unrecorded = Unrecorded::new(&info.streams);
        }
    }

    /// The counts so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The properties of a track; `None` for a number that no step has reported.
    pub fn track(&self, track: TrackId) -> Option<&TrackInfo> {
        Some(&self.tracks.get(usize::try_from(track.0).ok()?)?.info)
    }

    /// Processes the next event and passes the resulting steps to `out`.
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

    /// Processes an enter or exit that is not on the [straight path](straight).
    #[inline(never)]
    fn call(&mut self, row: &Row, out: &mut impl FnMut(Step<'_>)) {
        let cpu = self.arrive(row, out);
        let track = self.context(cpu, row, out);
        match (row.kind, row.of_function()) {
            // A source names the function of every enter.
            (RowKind::Enter, Some(function)) => {
                self.cpus[cpu].crossed = None;
                self.charge_move(track, row.time, false);
                self.enter(track, function, row.call_site(), row, out);
                self.doubt_unrecorded(cpu, track, row.time);
            }
            (_, function) => {
                self.charge_move(track, row.time, true);
                if let Some(own) = row.self_time() {
                    self.tracks[track].hide_callees(function, own);
                }
                self.exit(cpu, track, function, row, out);
            }
        }
        self.remember_place(row, cpu, track);
    }

    /// Processes an event that is neither enter nor exit.
    #[inline(never)]
    fn other(&mut self, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let row = event.row;
        if row.kind == RowKind::Rare {
            return self.rare(event, out);
        }
        let cpu = self.arrive(row, out);
        match row.kind {
            RowKind::SwitchedIn => {
                self.has_switches = true;
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

    /// Finds the processor of an event, ends the gap of its stream and advances the processor's clock.
    #[inline]
    fn arrive(&mut self, row: &Row, out: &mut impl FnMut(Step<'_>)) -> usize {
        let cpu = self.cpu_of(row);
        if !self.in_gap.is_empty() {
            self.end_gap(row.stream);
        }
        self.end_records(row.time);
        self.advance(cpu, row.time, out);
        cpu
    }

    /// Processes an event that a row can't represent.
    fn rare(&mut self, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let kind = event.event.map(|event| &event.kind);
        match kind {
            Some(EventKind::ThreadName { thread, .. }) => {
                return self.name_thread(*thread, event, out);
            }
            Some(EventKind::IsrName { irq, .. }) => return self.name_interrupt(*irq, event, out),
            Some(EventKind::Gap(gap)) => return self.gap(gap, event, out),
            // It belongs to no processor.
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

    /// Processes an event that is neither a call nor a switch nor an interrupt.
    fn anything(&mut self, cpu: usize, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let track = self.context(cpu, event.row, out);
        if let (RowKind::Other, Some(function)) = (event.row.kind, event.row.of_function()) {
            self.tracks[track].runs(function);
        }
        let track = Some(self.id(track));
        out(Step::Event { track, event });
    }
}
