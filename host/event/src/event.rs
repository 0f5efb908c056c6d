//! Events and their meaning.

use std::borrow::Cow;

use crate::{
    Addr, Cpu, Duration, Field, FunctionId, Identities, InterruptId, Quantity, RecordingCost,
    StreamId, ThreadId, Time, Value,
};

/// One recorded event, or one known loss.
///
/// This is the convenient form. Analyses of millions of events use the [`Row`](crate::Row)s of a
/// [`Batch`](crate::Batch), which convert to this.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Timestamp. Events of one stream are in recording order, and their times do not go back unless the source's did
    /// ([`Gap::TimeBackward`] precedes such an event).
    pub time: Time,
    /// The stream that contains it.
    pub stream: StreamId,
    /// The CPU of the event, if known.
    pub cpu: Option<Cpu>,
    /// The thread that was running, if known; inside an interrupt handler, the interrupted one. For a switch out, the
    /// thread that lost the CPU; for a switch in, the one that got it.
    pub thread: Option<ThreadId>,
    /// Its meaning.
    pub kind: EventKind,
    /// For an exit: its record names the function. Targets that omit the function, where nesting tells it, write such a
    /// record where nesting would not tell it. The longer record has a higher overhead.
    pub named: bool,
    /// Whether it is a record of the input. Events that the reader adds (a [`Gap`] without a record, the second half of
    /// a thread switch) are not.
    pub record: bool,
    /// The timestamp of its record, if it differs from [`time`](Self::time): Linux's function graph tracer writes the
    /// record of an entry after the call began, and that of an exit after it ended.
    pub stamp: Option<Time>,
    /// Its name in the source. Empty if it is not a record, or if names were not [wanted](crate::Wanted).
    pub name: Cow<'static, str>,
    /// Its fields in the source, if they were [wanted](crate::Wanted).
    pub fields: Vec<Field>,
}

/// Field names that tracers use for the text of a message: `trace_marker` of ftrace, `tracef` of LTTng, SystemView
/// prints.
const MESSAGES: [&str; 4] = ["buf", "msg", "message", "text"];

impl Event {
    /// Whether `is_it` accepts its name, its label (for a marker or counter) or its message (a text field with one of
    /// the usual names, without the line ending).
    pub fn says(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let mut fields = self.fields.iter();
        let message = fields.find_map(|field| match &field.value {
            Value::Text(text) if MESSAGES.contains(&&*field.name) => {
                Some(text.trim_end_matches(['\r', '\n']))
            }
            _ => None,
        });
        is_it(&self.name) || self.kind.label().is_some_and(&is_it) || message.is_some_and(is_it)
    }

    /// The timestamp of its record, for lists of records in the order of the input.
    pub fn timestamp(&self) -> Time {
        self.stamp.unwrap_or(self.time)
    }
}

/// Meaning of an event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A function was entered.
    Enter {
        /// The function.
        function: FunctionId,
        /// The address after the call in the caller, where the source records it.
        call_site: Option<Addr>,
    },
    /// A function exits.
    Exit {
        /// The function; `None` if the source leaves it to nesting.
        function: Option<FunctionId>,
    },
    /// A function was called; the source never records the ends of such calls.
    Called {
        /// The function.
        function: FunctionId,
        /// The calling function, if the source records it. Its own call may be missing from the trace.
        caller: Option<Caller>,
    },
    /// A named stretch of time begins: a lock is held, interrupts are disabled. Unlike a call it may overlap calls, and
    /// may end in another thread. Spans of the same name nest: a [`SpanEnd`](Self::SpanEnd) ends the one that began
    /// last.
    SpanBegin {
        /// Its name.
        function: FunctionId,
        /// Whether each CPU has such spans of its own, rather than the whole machine.
        per_cpu: bool,
    },
    /// A span ends.
    SpanEnd {
        /// Its name.
        function: FunctionId,
        /// As in the matching [`SpanBegin`](Self::SpanBegin).
        per_cpu: bool,
    },
    /// A whole call of the event's thread, timestamped at its end (or at the last time it was seen). Only formats that
    /// record whole calls have it; their readers make an entry and an exit of it.
    Call(WholeCall),
    /// The event's thread got its CPU.
    SwitchedIn,
    /// The event's thread lost its CPU.
    SwitchedOut,
    /// A waiting thread became ready to run. The event's thread, or an interrupt that preempts it, woke it.
    Ready {
        /// The thread that became ready.
        thread: ThreadId,
    },
    /// An interrupt handler began on the event's CPU (or thread, for signals).
    IsrEnter {
        /// The interrupt.
        irq: InterruptId,
    },
    /// An interrupt handler ended.
    IsrExit {
        /// The interrupt, if the source names it.
        irq: Option<InterruptId>,
    },
    /// A value or label that the program recorded.
    Marker {
        /// Its label, if it has one.
        label: Option<String>,
        /// Its value.
        value: u64,
    },
    /// A new value of a quantity, valid until the next one: used memory, the length of a queue, a frequency.
    Counter {
        /// Its name. Counters with the same name, process and [space](crate::Space) (of the event's thread, or else of
        /// its stream) are the same counter.
        name: String,
        /// The number of its process, if the source states it.
        process: Option<u64>,
        /// Its value, in the source's unit.
        value: Quantity,
    },
    /// The name of a thread, also valid for earlier events.
    ThreadName {
        /// The thread.
        thread: ThreadId,
        /// The name.
        name: String,
    },
    /// The name of an interrupt.
    IsrName {
        /// The interrupt.
        irq: InterruptId,
        /// The name.
        name: String,
    },
    /// Recording overhead, as the target measured it.
    Costs(Vec<RecordingCost>),
    /// The priority or mode of the event's thread, if the source records it.
    Context {
        /// The priority, in the target's own order.
        priority: i32,
        /// The mode, as the architecture numbers it.
        mode: u32,
    },
    /// Recording was turned on or off. Nothing between off and on counts as lost.
    Recording {
        /// Whether recording is on from here.
        on: bool,
        /// The cause.
        cause: RecordingCause,
    },
    /// The event's thread called `setjmp`, the target of a later `longjmp` with this environment.
    SetJmp {
        /// The address of its `jmp_buf`.
        env: Addr,
    },
    /// The event's thread returns to its `setjmp` with this environment: the calls made since are abandoned without
    /// exits.
    LongJmp {
        /// The address of its `jmp_buf`.
        env: Addr,
    },
    /// The time of day at this event.
    WallClock {
        /// Nanoseconds since 1970-01-01 00:00 UTC.
        unix_ns: u64,
        /// Uncertainty in nanoseconds, in either direction; 0 if unknown.
        uncertainty_ns: u32,
    },
    /// Timestamp record without a meaning of its own: it carries the time of the next record, which is too far from the
    /// previous one for a time difference.
    Time,
    /// A fact about the target, recorded once and stored in [`TraceInfo`](crate::TraceInfo): its build id, for example.
    /// It has no time of its own.
    Fact,
    /// A loss or an uncertainty.
    Gap(Gap),
    /// Any other event of the program or its system; its name and fields describe it.
    Other,
}

impl EventKind {
    /// The label of a marker, or the name of a counter.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Marker { label, .. } => label.as_deref(),
            Self::Counter { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The function that is entered, exits or is called, or the name of a span, if the event names it.
    pub const fn function(&self) -> Option<FunctionId> {
        match self {
            Self::Enter { function, .. }
            | Self::Called { function, .. }
            | Self::SpanBegin { function, .. }
            | Self::SpanEnd { function, .. } => Some(*function),
            Self::Exit { function } => *function,
            _ => None,
        }
    }

    /// The interrupt that is entered or left, if it is known.
    pub const fn interrupt(&self) -> Option<InterruptId> {
        match self {
            Self::IsrEnter { irq } => Some(*irq),
            Self::IsrExit { irq } => *irq,
            _ => None,
        }
    }
}

/// Call site, as an offset within the calling function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The calling function.
    pub function: FunctionId,
    /// Offset in bytes of the return address from the start of that function; 0 if unknown.
    pub offset: u32,
}

impl Caller {
    /// The address after the call, if known.
    pub fn call_site(&self, identities: &Identities) -> Option<Addr> {
        let start = identities.function(self.function)?.address?;
        let site = start.0.checked_add(self.offset.into())?;
        (self.offset != 0).then_some(Addr(site))
    }
}

/// A whole call in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeCall {
    /// The function.
    pub function: FunctionId,
    /// Its duration, up to the event's time.
    pub duration: Duration,
    /// Its duration without that of its callees, recorded or not.
    pub self_time: Duration,
    /// How it ended.
    pub end: CallEnd,
}

/// How a [`WholeCall`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned.
    Returned,
    /// It was still open when it was recorded.
    Open,
    /// It ended before it was recorded, in an unknown way.
    Lost,
}

/// Cause for which recording was turned on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordingCause {
    /// The build configuration.
    Build,
    /// The trigger or stopper function.
    Function,
    /// A command, or a call by the program.
    Command,
    /// The source does not state it.
    Unknown,
}

impl RecordingCause {
    /// Its name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Function => "function",
            Self::Command => "command",
            Self::Unknown => "unknown",
        }
    }
}

/// A loss, with its position and size. It follows the last event before the loss in its stream, with the time of that
/// event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Gap {
    /// Events that the target could not record between here and the next event of the stream.
    Discarded {
        /// Their number; `None` if the source does not state it.
        events: Option<u64>,
    },
    /// Missing packets with an unknown number of events (overwritten, or lost in transport).
    LostPackets {
        /// Their number; `None` if the source does not state it.
        packets: Option<u64>,
    },
    /// The beginning of the stream was overwritten: there were events before the first one.
    Overwritten {
        /// Number of packets.
        packets: u64,
    },
    /// After lost events: interrupt handlers active from here on whose entries were lost. (Positioned where the source
    /// reports it, not at the last event before the loss.)
    InInterrupt {
        /// Number of handlers, nested in each other.
        depth: u32,
    },
    /// After lost events: a call of the event's thread has ended, and its exit is missing from the trace. (Positioned
    /// where the source shows it, for example by the depth of the next call, not at the last event before the loss.)
    MissingExit {
        /// Time since the call was entered.
        ago: Duration,
    },
    /// The clock is uncertain here.
    Clock(ClockGap),
    /// The source's time goes back at the next event.
    TimeBackward {
        /// The difference.
        by: Duration,
    },
    /// Bytes that could not be read.
    Damage {
        /// Their offset in the stream's file or dump.
        offset: u64,
        /// Number of bytes skipped; 0 if bytes never arrived, `None` for all the rest.
        bytes: Option<u64>,
        /// The reason.
        message: String,
    },
}

/// Uncertainty of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockGap {
    /// Minimum time since the previous event; whole wraparounds of the counter may have to be added.
    pub at_least: Duration,
}

impl Gap {
    /// One-word name for machine-readable output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Discarded { .. } => "discarded",
            Self::LostPackets { .. } => "lost_packets",
            Self::Overwritten { .. } => "overwritten",
            Self::InInterrupt { .. } => "in_interrupt",
            Self::MissingExit { .. } => "missing_exit",
            Self::Clock(_) => "clock",
            Self::TimeBackward { .. } => "time_backward",
            Self::Damage { .. } => "damage",
        }
    }

    /// Whether events are missing, so that what happened in the meantime is unknown; also if another gap has counted
    /// them.
    pub const fn is_loss(&self) -> bool {
        match self {
            Self::Discarded { .. } => true,
            _ => !matches!(self.lost_events(), Some(0)),
        }
    }

    /// Number of missing events, if known; 0 if none are missing (clock, time) or the gap before has counted them.
    pub const fn lost_events(&self) -> Option<u64> {
        match self {
            Self::Discarded { events } => *events,
            Self::LostPackets { .. } | Self::Overwritten { .. } | Self::Damage { .. } => None,
            // The gap before has counted the events.
            Self::Clock(_)
            | Self::TimeBackward { .. }
            | Self::InInterrupt { .. }
            | Self::MissingExit { .. } => Some(0),
        }
    }
}

/// Formats it as a sentence.
impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        match self {
            Self::Discarded { events: Some(n) } => write!(f, "{n} event{} discarded", plural(*n)),
            Self::Discarded { events: None } => f.write_str("events discarded"),
            Self::LostPackets { packets: Some(n) } => write!(f, "{n} packet{} lost", plural(*n)),
            Self::LostPackets { packets: None } => f.write_str("packets lost"),
            Self::Overwritten { packets } => {
                write!(
                    f,
                    "{packets} earlier packet{} overwritten",
                    plural(*packets)
                )
            }
            Self::InInterrupt { depth } => write!(
                f,
                "inside {depth} interrupt handler{} whose beginning was lost",
                plural(u64::from(*depth))
            ),
            Self::MissingExit { ago } => write!(
                f,
                "the exit of a call that was entered {} before is missing",
                ago.with_unit()
            ),
            Self::Clock(gap) => write!(
                f,
                "clock uncertain: at least {} passed, maybe turns of the counter more",
                gap.at_least.with_unit()
            ),
            Self::TimeBackward { by } => write!(f, "time goes back by {}", by.with_unit()),
            Self::Damage {
                offset,
                bytes: Some(0),
                message,
            } => write!(f, "damage at offset {offset}: {message}"),
            Self::Damage {
                offset,
                bytes: Some(bytes),
                message,
            } => write!(f, "{bytes} bytes at offset {offset} passed over: {message}"),
            Self::Damage {
                offset, message, ..
            } => write!(
                f,
                "the rest from offset {offset} could not be read: {message}"
            ),
        }
    }
}
