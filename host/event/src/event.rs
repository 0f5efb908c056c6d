//! Events and what they mean.

use std::borrow::Cow;

use crate::{
    Addr, Cpu, Duration, Field, FunctionId, Identities, InterruptId, Quantity, RecordingCost,
    StreamId, ThreadId, Time, Value,
};

/// One thing that happened, or one thing that is known to be missing.
///
/// The convenient form: analyses that look at millions of events take the
/// [`Row`](crate::Row)s of a [`Batch`](crate::Batch), of which this can be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When. Events of one stream come in the order in which they were recorded, and their times
    /// do not go back unless the source's did ([`Gap::TimeBackward`] comes before such a one).
    pub time: Time,
    /// The stream it stands in.
    pub stream: StreamId,
    /// The processor it happened on, if known.
    pub cpu: Option<Cpu>,
    /// The thread that ran at that moment, if known; inside an interrupt handler, the interrupted
    /// one. Of a switch out, the thread that lost the CPU; of a switch in, the one that got it.
    pub thread: Option<ThreadId>,
    /// What it means.
    pub kind: EventKind,
    /// Of an exit: its record names the function that it leaves. A target that leaves that to
    /// nesting writes such a record where nesting would not tell, and it costs more.
    pub named: bool,
    /// Whether it is a record of the input. What the reader adds (a [`Gap`] that no record tells of, the
    /// second half of a thread switch) is not.
    pub record: bool,
    /// The timestamp of its record, where that is another one than [`time`](Self::time): a kernel's function graph
    /// writes the record of an entry after the call began, and that of an exit after it ended.
    pub stamp: Option<Time>,
    /// What the source calls it. Empty if it is no record, or if names were not
    /// [wanted](crate::Wanted).
    pub name: Cow<'static, str>,
    /// Its fields, as the source has them, if they were [wanted](crate::Wanted).
    pub fields: Vec<Field>,
}

/// What tracers call the field with the text of a message: `trace_marker` of ftrace, `tracef` of LTTng, prints of SystemView.
const MESSAGES: [&str; 4] = ["buf", "msg", "message", "text"];

impl Event {
    /// Whether its name, its label as a marker or counter, or its message (a field that is called so, without the end of its line) is one
    /// that `is_it` takes.
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

    /// The timestamp of its record, for lists of records as they stand in the input.
    pub fn timestamp(&self) -> Time {
        self.stamp.unwrap_or(self.time)
    }
}

/// What an event means.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A function was entered.
    Enter {
        /// Which.
        function: FunctionId,
        /// The address after the call in the caller, where the source records it.
        call_site: Option<Addr>,
    },
    /// A function was left.
    Exit {
        /// Which; `None` where the source leaves it to nesting.
        function: Option<FunctionId>,
    },
    /// A function was called, and its source never tells of the ends of such calls.
    Called {
        /// Which.
        function: FunctionId,
        /// The function that called it, where the source says so; that one's own call need not be in the trace.
        caller: Option<Caller>,
    },
    /// A stretch of time with a name begins: a lock is held, interrupts are disabled. It is no call: it may overlap calls,
    /// and end in another thread. It ends at the next [`SpanEnd`](Self::SpanEnd) of the same name; such as begin meanwhile
    /// lie within it.
    SpanBegin {
        /// What it is called.
        function: FunctionId,
        /// Whether each processor has such spans of its own, rather than the whole machine.
        per_cpu: bool,
    },
    /// It ends.
    SpanEnd {
        /// What it is called.
        function: FunctionId,
        /// As at its begin.
        per_cpu: bool,
    },
    /// A whole call of the event's thread, whose time is that of its end (or at which it was seen last). Only formats
    /// that record calls so have it, and what reads them makes an entry and an exit of it.
    Call(WholeCall),
    /// The event's thread got its processor.
    SwitchedIn,
    /// The event's thread lost its processor.
    SwitchedOut,
    /// A thread that waited could go on from here, as soon as it gets a processor. The event's thread, or
    /// an interrupt that cuts into it, saw to that.
    Ready {
        /// Which.
        thread: ThreadId,
    },
    /// An interrupt handler began on the event's CPU (or thread, for signals).
    IsrEnter {
        /// Which.
        irq: InterruptId,
    },
    /// An interrupt handler ended.
    IsrExit {
        /// Which, where the source says so.
        irq: Option<InterruptId>,
    },
    /// The program says something.
    Marker {
        /// What it is called, if it has a name.
        label: Option<String>,
        /// Its value.
        value: u64,
    },
    /// A quantity has a new value, which holds until its next one: used memory, the length of a queue, a frequency.
    Counter {
        /// What it is called. Counters of one name, one process and one [space](crate::Space) (that of the event's thread, or
        /// else of its stream) are one.
        name: String,
        /// The number of the process that it is of, where its source says so.
        process: Option<u64>,
        /// Its value, in the unit that the source uses.
        value: Quantity,
    },
    /// The name of a thread is known from here on (and holds for the past as well).
    ThreadName {
        /// Whose.
        thread: ThreadId,
        /// The name.
        name: String,
    },
    /// The name of an interrupt is known.
    IsrName {
        /// Whose.
        irq: InterruptId,
        /// The name.
        name: String,
    },
    /// What recording costs is known.
    Costs(Vec<RecordingCost>),
    /// The priority or mode of the event's thread, where the source tells it.
    Context {
        /// The priority, in the target's own order.
        priority: i32,
        /// The mode, as the architecture numbers it.
        mode: u32,
    },
    /// Recording was turned on or off: what lies between off and on is not lost, it was not wanted.
    Recording {
        /// Whether it is on from here.
        on: bool,
        /// Why.
        cause: RecordingCause,
    },
    /// The event's thread marked where a `longjmp` of this environment is to lead.
    SetJmp {
        /// The address of its `jmp_buf`.
        env: Addr,
    },
    /// The event's thread goes back to where it called `setjmp` with this environment: the calls
    /// that it has made since are left without an exit.
    LongJmp {
        /// The address of its `jmp_buf`.
        env: Addr,
    },
    /// The time of day at the moment of this event.
    WallClock {
        /// Nanoseconds since 1970-01-01 00:00 UTC.
        unix_ns: u64,
        /// By how many nanoseconds that may be wrong, either way; 0 if that is not known.
        uncertainty_ns: u32,
    },
    /// Nothing: a record of its own for the time of the next one, which is too far from the record before
    /// to say it itself.
    Time,
    /// What a target says of itself, once, and [`TraceInfo`](crate::TraceInfo) holds: which build it is,
    /// say. It happened at no moment.
    Fact,
    /// Something is missing or uncertain here.
    Gap(Gap),
    /// Anything else that the program or its system says: its name and fields tell.
    Other,
}

impl EventKind {
    /// What a marker or a counter is called.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Marker { label, .. } => label.as_deref(),
            Self::Counter { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The function that is entered, left or called, or the name of a span, if it is named.
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
}

/// Where a function was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The function that called it.
    pub function: FunctionId,
    /// How many bytes behind the start of that function the call returns to; 0 if that is not known.
    pub offset: u32,
}

impl Caller {
    /// The address after the call, if it is known.
    pub fn call_site(&self, identities: &Identities) -> Option<Addr> {
        let start = identities.function(self.function)?.address?;
        let site = start.0.checked_add(self.offset.into())?;
        (self.offset != 0).then_some(Addr(site))
    }
}

/// A call that is one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeCall {
    /// Which function.
    pub function: FunctionId,
    /// How long it took, up to the event's time.
    pub duration: Duration,
    /// The same without the calls that it made, recorded or not.
    pub self_time: Duration,
    /// How it came to its end.
    pub end: CallEnd,
}

/// How a [`WholeCall`] came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned.
    Returned,
    /// It had not ended when it was recorded.
    Open,
    /// It ended before it was recorded, and nobody saw how.
    Lost,
}

/// Why recording was turned on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordingCause {
    /// The build said so.
    Build,
    /// The trigger or stopper function.
    Function,
    /// A command or a call of the program's.
    Command,
    /// The source does not say.
    Unknown,
}

impl RecordingCause {
    /// The word for it in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Function => "function",
            Self::Command => "command",
            Self::Unknown => "unknown",
        }
    }
}

/// A loss, with its place and size. It stands in its stream just behind the last event before the
/// loss, with the time of that event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Gap {
    /// The target could not record this many events between here and the next event of the
    /// stream.
    Discarded {
        /// How many; `None` if the source does not say.
        events: Option<u64>,
    },
    /// Packets with an unknown number of events are missing (overwritten, or lost on the way).
    LostPackets {
        /// How many; `None` if the source does not say.
        packets: Option<u64>,
    },
    /// The beginning of the stream was overwritten: events before the first one existed.
    Overwritten {
        /// How many packets.
        packets: u64,
    },
    /// Behind lost events: so many interrupt handlers are active from here on whose
    /// beginnings are among what was lost. (It stands where the source says so, not at the last
    /// event before the loss.)
    InInterrupt {
        /// How many, nested in each other.
        depth: u32,
    },
    /// Behind lost events: a call of the event's thread has ended, and its exit is not in the trace. (It stands
    /// where the source shows it, by the depth of the next call say, not at the last event before the loss.)
    MissingExit {
        /// How long before this event the call was entered.
        ago: Duration,
    },
    /// The clock is uncertain here.
    Clock(ClockGap),
    /// The source's time goes back at the next event.
    TimeBackward {
        /// By how much.
        by: Duration,
    },
    /// Bytes that could not be read.
    Damage {
        /// Where they begin, in the stream's file or dump.
        offset: u64,
        /// How many were passed over; 0 where some never came, `None` for all the rest.
        bytes: Option<u64>,
        /// Why.
        message: String,
    },
}

/// An uncertainty of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockGap {
    /// At least this much time passed since the event before; maybe whole turns of the counter
    /// more.
    pub at_least: Duration,
}

impl Gap {
    /// One word for it, in outputs for programs.
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

    /// Whether events are missing, and so what happened meanwhile is not known: also where another gap has counted them.
    pub const fn is_loss(&self) -> bool {
        match self {
            Self::Discarded { .. } => true,
            _ => !matches!(self.lost_events(), Some(0)),
        }
    }

    /// How many events are missing, as far as that is known; 0 where none are (clock, time)
    /// or the gap before says.
    pub const fn lost_events(&self) -> Option<u64> {
        match self {
            Self::Discarded { events } => *events,
            Self::LostPackets { .. } | Self::Overwritten { .. } | Self::Damage { .. } => None,
            // The loss before it has counted the events.
            Self::Clock(_)
            | Self::TimeBackward { .. }
            | Self::InInterrupt { .. }
            | Self::MissingExit { .. } => Some(0),
        }
    }
}

/// A sentence for people.
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
