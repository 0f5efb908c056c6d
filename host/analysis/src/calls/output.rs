//! What a consumer sees of the reconstruction: tracks, and the steps on them.

use kymo_event::{
    Addr, Caller, Cpu, Duration, EventRef, FunctionId, InterruptId, SpaceId, StreamId, ThreadId,
    Time, TraceInfo,
};

/// A line of execution with a call stack of its own: a thread, or an interrupt handler. Or a name of spans, which lie within
/// each other as calls do.
///
/// Numbers are given from 0 in the order in which tracks appear, so they can index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// One call, unique in the trace. Numbers rise in the order in which calls are first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackInfo {
    /// A thread, an interrupt or a name of spans.
    pub kind: TrackKind,
    /// The processor, where the track belongs to one: interrupts of a CPU, and what ran on a CPU
    /// without a thread. Threads wander, so they have none.
    pub cpu: Option<Cpu>,
    /// The stream in which the track was first seen.
    pub stream: StreamId,
}

impl TrackInfo {
    /// Whether it is a thread's.
    pub const fn is_thread(&self) -> bool {
        matches!(self.kind, TrackKind::Thread { .. })
    }

    /// Whether it is of spans, which are no calls and take no time of their own.
    pub const fn is_span(&self) -> bool {
        matches!(self.kind, TrackKind::Span { .. })
    }

    /// The thread that it is of, where it is of one.
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.kind {
            TrackKind::Thread { thread } | TrackKind::Interrupt { thread, .. } => thread,
            TrackKind::Span { .. } => None,
        }
    }

    /// The space that its thread or interrupt is of.
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
        /// Which; `None` for what ran while no thread was known.
        thread: Option<ThreadId>,
    },
    /// The handlers of one interrupt on one CPU (or, for signals, in one thread).
    Interrupt {
        /// Which.
        irq: InterruptId,
        /// The thread it belongs to, where streams belong to threads; `None` where an interrupt
        /// belongs to a CPU.
        thread: Option<ThreadId>,
        /// 0, or by how many activations of the same interrupt this one is nested.
        level: u32,
    },
    /// The spans of one name on a machine, or on a processor of it.
    Span {
        /// Their name.
        function: FunctionId,
    },
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Callee {
    /// A function.
    Function(FunctionId),
    /// An interrupt: one activation of its handler. It is the bottom of the stack of its track.
    Interrupt(InterruptId),
    /// A function that the trace does not name: an exit without one, and without an enter.
    Unknown,
}

/// One step of the reconstruction.
///
/// On every track begins and ends are balanced: each [`Begin`](Step::Begin) has exactly one
/// [`End`](Step::End) with its [`CallId`], inner calls end before outer ones. An end with
/// [`How::Orphan`] has no begin.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Step<'e> {
    /// A track exists from here on, or the name of its thread or interrupt has become known or has changed
    /// ([`Identities`](kymo_event::Identities) have the name).
    Track {
        /// Its number.
        track: TrackId,
        /// What it is.
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
        /// When.
        time: Time,
        /// The processor, if known.
        cpu: Option<Cpu>,
        /// Whether it runs from here on.
        running: bool,
        /// Whether the trace has a record of it; else it is inferred from a thread's event on a
        /// processor that another thread had, or that none had.
        recorded: bool,
    },
    /// A clock stepped back, and while it was ahead it had charged a call that has ended: the duration and
    /// self time of its [`End`] are so much too long, and the durations of its callers that have ended.
    ClockAhead {
        /// The track.
        track: TrackId,
        /// The call.
        call: CallId,
        /// What was called.
        callee: Callee,
        /// How much.
        by: Duration,
    },
    /// An event that is neither a call nor a switch nor an interrupt, as it stands in the trace:
    /// marker, gap, name, context, recording on or off, anything else.
    Event {
        /// Where it happened, if that is known.
        track: Option<TrackId>,
        /// The event.
        event: EventRef<'e>,
    },
}

/// Takes the steps of the reconstruction where a closure is too slow: its `step` can be inlined where
/// millions of calls begin and end.
pub trait Observer {
    /// Takes the next step.
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
    /// What is called.
    pub callee: Callee,
    /// When.
    pub time: Time,
    /// How many calls are open below it on the track.
    pub depth: u32,
    /// The address after the call in the caller, where the source records it.
    pub call_site: Option<Addr>,
    /// Who called it, where the source says so and that one's own call need not be open.
    pub caller: Option<Caller>,
    /// Whether it began before the [window](super::Calls::open_window), which begins at `time`, or was
    /// [found](kymo_event::Row::found) open at `time`.
    pub clipped: bool,
    /// The processor it began on, if known; if it is clipped, that which its thread has at the beginning of the
    /// window, or had last.
    pub cpu: Option<Cpu>,
    /// The thread it is of; of an interrupt, the thread that it cuts into. `None` if that is not known.
    pub thread: Option<ThreadId>,
}

/// The end of a call.
///
/// Three spans are reported, all `None` for a call of whose end [nothing tells](How::NoEnd), for one whose source has no
/// times and [does not state](kymo_event::Row::untimed) how long it took, and for an orphan, whose
/// beginning nobody saw, unless its source states how long it took (`begin` is `None` then, too: no [`Begin`] belongs to
/// it):
/// [`wall`](Self::wall) is what a clock on the wall shows; [`duration`](Self::duration) leaves out
/// when the track did not run; [`self_time`](Self::self_time) leaves out the calls it made as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The track.
    pub track: TrackId,
    /// The call.
    pub call: CallId,
    /// What was called.
    pub callee: Callee,
    /// When it ended (or, by [`how`](Self::how), is taken to have ended, or began where nothing tells of its end).
    pub time: Time,
    /// How many calls are open below it on the track.
    pub depth: u32,
    /// When it began.
    pub begin: Option<Time>,
    /// From begin to end.
    pub wall: Option<Duration>,
    /// The time in which its track had the processor: without preemption, and without interrupts,
    /// which charge themselves.
    pub duration: Option<Duration>,
    /// [`duration`](Self::duration) less that of the calls it made.
    pub self_time: Option<Duration>,
    /// What of [`duration`](Self::duration) is certain: after a loss another call of the function may have begun,
    /// other threads and interrupts may have run.
    pub sure: Option<Duration>,
    /// What of [`self_time`](Self::self_time) is certain: after a loss, calls that began in it may have run.
    pub sure_self: Option<Duration>,
    /// How it ended.
    pub how: How,
    /// Why its times may be wrong.
    pub doubt: Doubt,
    /// Whether another call of the same function is open below it on the track; its duration is
    /// part of that one's.
    pub recursive: bool,
    /// Whether it began before the [window](super::Calls::open_window), or goes on
    /// [behind](super::Calls::close_window) it: `begin` or `time` is that of the window, and its times are those
    /// within. Or whether it was [found](kymo_event::Row::found) open at `begin`.
    pub clipped: bool,
    /// Whether it may not count as a call, because of lost events: it may be of a call that has had an end before (this is an exit
    /// without an entry, and that call was ended without its exit, or the other way round), or have ended in front of the window.
    pub uncounted: bool,
    /// Whether the source states [`wall`](Self::wall), so that it is certain although events were lost while it was open: no
    /// other call began as this one did.
    pub wall_is_stated: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// By an exit of its own.
    Returned,
    /// By inference.
    Repaired(Repair),
    /// Its thread went back to a `setjmp` further out, as the trace tells: the call ended at that
    /// moment, without an exit. Nothing of it is guessed.
    Jumped,
    /// Recording was turned off while it was open: this is the last moment that was wanted.
    RecordingOff,
    /// The trace ended while it was open.
    Open,
    /// Its source never tells of the ends of such calls.
    NoEnd,
    /// It returned, but nobody saw it begin: it was entered before the trace began, while recording
    /// was off, or in a gap.
    Orphan,
}

/// Why a call was closed by inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repair {
    /// A function further out returned: `longjmp`, or an exception, left the call behind. It is
    /// taken to end at the moment of that exit, for the trace does not tell when the jump was.
    /// (Where it does tell, the call ends as [`How::Jumped`].)
    Unwound,
    /// Its exit is among the lost events; where it ended is not known, only that it had ended by
    /// now.
    Lost,
}

impl Repair {
    /// One word for it in outputs.
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
    /// Events were lost while it was open: the exit may be that of another call of the same
    /// function, calls that it made are missing from it, and switches may be missing. Or its thread was switched
    /// in behind a loss that may hide a handler: some of its time may be that one's.
    pub loss: bool,
    /// The clock was uncertain or went back while it was open.
    pub clock: bool,
    /// An interrupt ended while it was open whose beginning is not in the trace: some of its time may be that
    /// one's.
    pub interrupt: bool,
    /// Nobody saw it end, and it may have gone on: its source states that it took at least that long.
    pub unseen_end: bool,
}

impl End {
    /// When it began: seen, or by what the source states of its duration.
    pub fn began(&self) -> Option<Time> {
        let stated = |wall: Duration| Time(self.time.0.saturating_sub_unsigned(wall.0));
        self.begin.or(self.wall.map(stated))
    }

    /// Whether it was seen from its begin to its end, or the source states how long it took, and all of it in the window.
    #[inline(always)]
    pub fn is_complete(&self) -> bool {
        let ended = matches!(self.how, How::Returned | How::Jumped | How::Orphan);
        self.duration.is_some() && !self.clipped && !self.doubt.unseen_end && ended
    }

    /// Whether its beginning was seen, and how long it took is not known.
    pub const fn is_untimed(&self) -> bool {
        self.begin.is_some() && self.duration.is_none()
    }

    /// How long it took is not known.
    pub(super) const fn forget_times(&mut self) {
        (self.wall, self.duration, self.self_time) = (None, None, None);
        (self.sure, self.sure_self) = (None, None);
    }

    /// Whether its times are known for certain.
    pub fn is_certain(&self) -> bool {
        (self.sure, self.sure_self) == (self.duration, self.self_time) && !self.doubt.any()
    }

    /// Whether its certain times may be less than those that it took: it was not seen whole, or they are in doubt.
    #[inline(always)]
    pub fn is_at_least(&self) -> bool {
        !self.is_complete() || self.doubt.any()
    }
}

impl Doubt {
    /// Whether there is any.
    #[inline(always)]
    pub const fn any(self) -> bool {
        self.loss || self.clock || self.interrupt || self.unseen_end
    }
}

/// What was counted on the way: nothing is inferred silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that ended by an exit of their own, interrupts included.
    pub returned: u64,
    /// Calls that a `longjmp` left which the trace tells of ([`How::Jumped`]).
    pub jumped: u64,
    /// Calls that a function further out left behind ([`Repair::Unwound`]).
    pub unwound: u64,
    /// Calls whose exit is among the lost events ([`Repair::Lost`]).
    pub lost: u64,
    /// Calls that were open when recording was turned off.
    pub recording_off: u64,
    /// Calls that were open at the end of the trace.
    pub open: u64,
    /// Exits whose enter nobody saw.
    pub orphans: u64,
    /// Calls that ended by an exit of their own, but with a [`Doubt`].
    pub doubtful: u64,
    /// Calls that were not followed because the stack was deeper than
    /// [`Options::max_depth`](super::Options::max_depth). They have no steps; their time is their
    /// caller's.
    pub too_deep: u64,
    /// Switches that no record tells of ([`Step::State`]).
    pub implied_switches: u64,
    /// Gaps with lost events.
    pub losses: u64,
    /// The same before the window: calls whose entries were lost there may be open in it.
    pub losses_before: u64,
    /// Gaps of the clock, and moments at which the time of a processor's (or, where streams belong
    /// to threads, a thread's) events went back.
    pub clock_doubts: u64,
    /// Time that a clock charged while it was ahead to calls that had ended when it stepped back: the sum
    /// of [`Step::ClockAhead`].
    pub clock_ahead: Duration,
    /// Time of all processors (or, where streams belong to threads, threads) from their first event to
    /// their last; to the end of the trace where calls are open then, or may be because events were lost.
    pub ran: Duration,
    /// Gaps in front of a processor's first event, and at the end of the trace: how much time passed in them is not known.
    pub unbounded_gaps: u64,
    /// Calls that may be missing as a whole: their entries can be among the events that were lost, here or in front of the window,
    /// and their exits too, or behind its end.
    pub missing_calls: u64,
    /// Gaps of which the source does not say how many events are missing.
    pub unknown_gaps: u64,
    /// Of [`doubtful`](Self::doubtful): calls during which no events were lost, but the clock was uncertain
    /// or went back, or the beginning of an interrupt is missing.
    pub doubtful_time: u64,
}
