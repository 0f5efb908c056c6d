//! Public types of the reconstruction: tracks, and the steps on them.

use kymo_event::{
    Addr, Caller, Cpu, Duration, EventRef, FunctionId, InterruptId, SpaceId, StreamId, ThreadId,
    Time, TraceInfo,
};

/// A line of execution with a call stack of its own: a thread or an interrupt handler. Also the spans of one name,
/// which nest as calls do.
///
/// Ids count from 0 in the order in which tracks appear, so they can index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// One call, unique in the trace. Ids rise in the order in which calls are first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Properties of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackInfo {
    /// A thread, an interrupt or a name of spans.
    pub kind: TrackKind,
    /// The processor, where the track belongs to one: interrupts of a CPU, and code that ran on a CPU without a
    /// thread. `None` for threads, because they migrate.
    pub cpu: Option<Cpu>,
    /// The stream in which the track was first seen.
    pub stream: StreamId,
}

impl TrackInfo {
    /// Whether the track is a thread's.
    pub const fn is_thread(&self) -> bool {
        matches!(self.kind, TrackKind::Thread { .. })
    }

    /// Whether the track holds spans, which are no calls and take no time of their own.
    pub const fn is_span(&self) -> bool {
        matches!(self.kind, TrackKind::Span { .. })
    }

    /// The thread of the track, if it has one.
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.kind {
            TrackKind::Thread { thread } | TrackKind::Interrupt { thread, .. } => thread,
            TrackKind::Span { .. } => None,
        }
    }

    /// The space of the track's thread or interrupt.
    pub fn space(&self, trace: &TraceInfo) -> SpaceId {
        let identities = &trace.identities;
        let space = match self.kind {
            TrackKind::Thread { thread } => {
                let thread = thread.and_then(|id| identities.threads().get(id.0 as usize));
                thread.map(|thread| thread.space)
            }
            TrackKind::Interrupt { irq, .. } => {
                let interrupt = identities.interrupts().get(irq.0 as usize);
                interrupt.map(|interrupt| interrupt.space)
            }
            TrackKind::Span { .. } => None,
        };
        let of_stream = || trace.stream(self.stream).map(|stream| stream.space);
        space.or_else(of_stream).unwrap_or_default()
    }
}

/// The kinds of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackKind {
    /// A thread.
    Thread {
        /// Its id; `None` for code that ran while no thread was known.
        thread: Option<ThreadId>,
    },
    /// The handlers of one interrupt on one CPU (or, for signals, in one thread).
    Interrupt {
        /// Its id.
        irq: InterruptId,
        /// The thread that the interrupt belongs to, where streams belong to threads; `None` where it belongs to a
        /// CPU.
        thread: Option<ThreadId>,
        /// The number of activations of the same interrupt within which this one is nested.
        level: u32,
    },
    /// The spans of one name, on a machine or on one of its processors.
    Span {
        /// Their name.
        function: FunctionId,
    },
}

/// The function or interrupt that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Callee {
    /// A function.
    Function(FunctionId),
    /// An interrupt: one activation of its handler. It is the bottom of the stack of its track.
    Interrupt(InterruptId),
    /// A function that the trace does not name: the callee of an exit that has neither an id nor an enter.
    Unknown,
}

/// One step of the reconstruction.
///
/// On every track begins and ends are balanced: each [`Begin`](Step::Begin) has exactly one [`End`](Step::End) with
/// its [`CallId`], and inner calls end before outer ones. An end with [`How::Orphan`] has no begin.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Step<'e> {
    /// A track exists from here on, or the name of its thread or interrupt has become known or has changed
    /// ([`Identities`](kymo_event::Identities) have the name).
    Track {
        /// Its id.
        track: TrackId,
        /// Its properties.
        info: TrackInfo,
    },
    /// A call begins.
    Begin(Begin),
    /// A call ends.
    End(End),
    /// A thread gets or loses a processor.
    State {
        /// The thread's track.
        track: TrackId,
        /// The time of the change.
        time: Time,
        /// The processor, if known.
        cpu: Option<Cpu>,
        /// Whether the thread runs from here on.
        running: bool,
        /// Whether the trace has a record of the change. Otherwise it is inferred from an event of the thread on a
        /// processor that had another thread or none.
        recorded: bool,
    },
    /// A clock stepped back, and while it was ahead it had charged a call that has ended: the times of its [`End`] are
    /// too long. One step for that call, and one for each of its callers that have ended, too. (Not for callers that
    /// ended in the same tick as what they called.)
    ClockAhead(Ahead),
    /// Any event that is neither a call nor a switch nor an interrupt, unchanged: marker, gap, name, context,
    /// recording on or off, and others.
    Event {
        /// The track on which it happened, if known.
        track: Option<TrackId>,
        /// The event.
        event: EventRef<'e>,
    },
}

/// The excess of a call that has ended, from a clock that was ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The track.
    pub track: TrackId,
    /// The call.
    pub call: CallId,
    /// What was called.
    pub callee: Callee,
    /// The excess of its duration.
    pub by: Duration,
    /// Whether its self time is too long as well: the clock was ahead in the call itself, not in a callee.
    pub own: bool,
    /// Whether the call is [recursive](End::recursive).
    pub recursive: bool,
}

/// Receives the steps of the reconstruction where a closure is too slow: `step` can be inlined where millions of
/// calls begin and end.
pub trait Observer {
    /// Processes the next step.
    fn step(&mut self, step: Step<'_>);
}

/// A closure as an [`Observer`].
pub(super) struct Each<'f, F>(pub &'f mut F);

impl<F: FnMut(Step<'_>)> Observer for Each<'_, F> {
    fn step(&mut self, step: Step<'_>) {
        (self.0)(step);
    }
}

/// The begin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The track.
    pub track: TrackId,
    /// The call.
    pub call: CallId,
    /// The function or interrupt that is called.
    pub callee: Callee,
    /// The time of the begin.
    pub time: Time,
    /// The number of calls open below it on the track.
    pub depth: u32,
    /// The address after the call in the caller, where the source records it.
    pub call_site: Option<Addr>,
    /// The caller, where the source records it. The caller's own call need not be open.
    pub caller: Option<Caller>,
    /// Whether it began before the [window](super::Calls::open_window), which begins at `time`, or was
    /// [found](kymo_event::Row::found) open at `time`.
    pub clipped: bool,
    /// The processor it began on, if known. For a clipped call, the one that its thread has at the beginning of the
    /// window, or had last.
    pub cpu: Option<Cpu>,
    /// The thread of the call; for an interrupt, the interrupted thread. `None` if unknown.
    pub thread: Option<ThreadId>,
}

/// The end of a call.
///
/// Reports three durations:
/// - [`wall`](Self::wall): wall-clock time from begin to end.
/// - [`duration`](Self::duration): the same without the time in which the track did not run.
/// - [`self_time`](Self::self_time): the same without its callees, too.
///
/// All three are `None` for a call whose end [is never recorded](How::NoEnd), for one whose source has no times and
/// [does not state](kymo_event::Row::untimed) a duration, and for an orphan, whose begin was not seen, unless its
/// source states its duration (`begin` is `None` even then, because no [`Begin`] belongs to it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The track.
    pub track: TrackId,
    /// The call.
    pub call: CallId,
    /// What was called.
    pub callee: Callee,
    /// When it ended; by [`how`](Self::how), this may be inferred, or be the time of the begin where no end is
    /// recorded.
    pub time: Time,
    /// The number of calls open below it on the track.
    pub depth: u32,
    /// When it began.
    pub begin: Option<Time>,
    /// The wall time from begin to end.
    pub wall: Option<Duration>,
    /// The time in which its track had the processor: without preemption, and without interrupts, which are charged
    /// themselves.
    pub duration: Option<Duration>,
    /// [`duration`](Self::duration) minus that of its callees.
    pub self_time: Option<Duration>,
    /// The part of [`duration`](Self::duration) that is certain: after a loss another call of the function may have
    /// begun, and other threads and interrupts may have run.
    pub sure: Option<Duration>,
    /// The part of [`self_time`](Self::self_time) that is certain: after a loss, callees may have run.
    pub sure_self: Option<Duration>,
    /// How it ended.
    pub how: How,
    /// Why its times may be wrong.
    pub doubt: Doubt,
    /// Whether another call of the same function is open below it on the track; this call's duration is part of that
    /// one's.
    pub recursive: bool,
    /// Whether it began before the [window](super::Calls::open_window) or continues
    /// [after](super::Calls::close_window) it: `begin` or `time` is then the window's, and the durations count within
    /// it. Also set for a call that was [found](kymo_event::Row::found) open at `begin`.
    pub clipped: bool,
    /// Whether, because of lost events, it may not count as a call. It may be a call that was reported with an end
    /// before (an exit without an entry whose call was closed without its exit, or the reverse), or may have ended
    /// before the window.
    pub uncounted: bool,
    /// Whether the source states [`wall`](Self::wall). It is then certain although events were lost while the call
    /// was open, because no other call began when this one did.
    pub wall_is_stated: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// By an exit of its own.
    Returned,
    /// By inference.
    Repaired(Repair),
    /// By a jump that the trace records: its thread went back to a `setjmp` further out, and the call ended then,
    /// without an exit. Exact, not inferred.
    Jumped,
    /// Recording was turned off while it was open; this is the last recorded time.
    RecordingOff,
    /// The trace ended while it was open.
    Open,
    /// Its source never records the ends of such calls.
    NoEnd,
    /// It returned, but its begin was not seen: it was entered before the trace began, while recording was off, or in
    /// a gap.
    Orphan,
}

/// Why a call was closed by inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repair {
    /// An outer function returned: `longjmp` or an exception abandoned the call. It is taken to end at that exit,
    /// because the trace does not record the jump. (Where the trace does, the call ends as [`How::Jumped`].)
    Unwound,
    /// Its exit is among the lost events. When it ended is unknown, only that it had ended by `time`.
    Lost,
}

impl Repair {
    /// Its name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unwound => "unwound",
            Self::Lost => "lost",
        }
    }
}

/// Why the times of a call may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// Events were lost while it was open: the exit may belong to another call of the same function, callees may be
    /// missing from it, and switches may be missing. Or its thread was switched in after a loss that may hide a
    /// handler, and some of its time may be the handler's.
    pub loss: bool,
    /// The clock was uncertain or went back while it was open.
    pub clock: bool,
    /// An interrupt ended while it was open whose begin is not in the trace: some of its time may be the interrupt's.
    pub interrupt: bool,
    /// Its end was not seen, and it may have run longer: the source states a lower bound.
    pub unseen_end: bool,
}

impl End {
    /// The time at which it began: seen, or derived from the duration that the source states.
    pub fn began(&self) -> Option<Time> {
        let stated = |wall: Duration| Time(self.time.0.saturating_sub_unsigned(wall.0));
        self.begin.or(self.wall.map(stated))
    }

    /// Whether all of it lies in the window and it either was seen from begin to end or has a stated duration.
    #[inline(always)]
    pub fn is_complete(&self) -> bool {
        let ended = matches!(self.how, How::Returned | How::Jumped | How::Orphan);
        self.duration.is_some() && !self.clipped && !self.doubt.unseen_end && ended
    }

    /// Whether its begin was seen but its duration is unknown.
    pub const fn is_untimed(&self) -> bool {
        self.begin.is_some() && self.duration.is_none()
    }

    /// Marks all durations as unknown.
    pub(super) const fn forget_times(&mut self) {
        (self.wall, self.duration, self.self_time) = (None, None, None);
        (self.sure, self.sure_self) = (None, None);
    }

    /// The upper bound of its self time, unless a clock is in doubt or its end was not seen. If no track was charged
    /// with the time of a loss, all of its time may be its own except for callees that were seen before.
    pub fn self_max(&self) -> Option<Duration> {
        let seen = self.self_time?;
        let bounds = (self.wall, self.sure, self.sure_self);
        match bounds {
            (Some(wall), Some(sure), Some(own))
                if self.doubt.loss && self.duration.is_some_and(|it| it < wall) =>
            {
                Some(seen.max(wall - (sure - own)))
            }
            _ => Some(seen),
        }
    }

    /// Whether its times are certain.
    pub fn is_certain(&self) -> bool {
        (self.sure, self.sure_self) == (self.duration, self.self_time) && !self.doubt.any()
    }

    /// Whether its certain times are lower bounds: it was not seen whole, or is in doubt.
    #[inline(always)]
    pub fn is_at_least(&self) -> bool {
        !self.is_complete() || self.doubt.any()
    }
}

impl Doubt {
    /// Whether any doubt is set.
    #[inline(always)]
    pub const fn any(self) -> bool {
        self.loss || self.clock || self.interrupt || self.unseen_end
    }
}

/// Counters of the reconstruction, so that nothing is inferred silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that ended by an exit of their own, interrupts included.
    pub returned: u64,
    /// Calls that ended by a recorded `longjmp` ([`How::Jumped`]).
    pub jumped: u64,
    /// Calls that the return of an outer function abandoned ([`Repair::Unwound`]).
    pub unwound: u64,
    /// Calls whose exit is among the lost events ([`Repair::Lost`]).
    pub lost: u64,
    /// Calls that were open when recording was turned off.
    pub recording_off: u64,
    /// Calls that were open at the end of the trace.
    pub open: u64,
    /// Exits whose enter was not seen.
    pub orphans: u64,
    /// Calls that ended by an exit of their own, but with a [`Doubt`].
    pub doubtful: u64,
    /// Calls that were not followed because the stack was deeper than
    /// [`Options::max_depth`](super::Options::max_depth). They have no steps, and their time counts for their caller.
    pub too_deep: u64,
    /// Switches without a record ([`Step::State`]).
    pub implied_switches: u64,
    /// Gaps with lost events.
    pub losses: u64,
    /// Gaps with lost events before the window: calls whose entries were lost there may be open in it.
    pub losses_before: u64,
    /// Gaps of the clock, and steps back in the time of a processor's events (or of a thread's, where streams belong
    /// to threads).
    pub clock_doubts: u64,
    /// Excess time that a clock, while it was ahead, charged to calls that had ended when it stepped back: the sum of
    /// [`Step::ClockAhead`] over self times.
    pub clock_ahead: Duration,
    /// Time of all processors (or of all threads, where streams belong to threads) from their first event to their
    /// last; up to the end of the trace where calls are open then, or may be open because events were lost.
    pub ran: Duration,
    /// Gaps before a processor's first event, and at the end of the trace: their length is unknown.
    pub unbounded_gaps: u64,
    /// Calls that may be missing entirely: their entries may be among the events lost here or before the window, and
    /// their exits as well, or after its end.
    pub missing_calls: u64,
    /// Gaps for which the source does not record the number of missing events.
    pub unknown_gaps: u64,
    /// Of [`doubtful`](Self::doubtful): calls during which no events were lost, but the clock was uncertain
    /// or went back, or the beginning of an interrupt is missing.
    pub doubtful_time: u64,
}
