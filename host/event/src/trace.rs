//! What is known of a trace as a whole.

use crate::{Addr, Cpu, Irq, RecordingCost, StreamId, ThreadId, Time, WallClock};

/// A trace, before (and, for what only its end can tell, after) its events are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceInfo {
    /// The format it was read from: `kymo`, `ctf`, ...
    pub format: String,
    /// Its streams; a [`StreamId`] is an index into them.
    pub streams: Vec<StreamInfo>,
    /// The build id of the traced program, if the trace tells.
    pub build_id: Option<Vec<u8>>,
    /// The run-time address of the start of the program's text, if the trace tells: with position-
    /// independent programs it is not the address in the ELF.
    pub text_base: Option<Addr>,
    /// Ticks of the target's clock a second, if the trace tells.
    pub clock_hz: Option<u64>,
    /// The time of day by the times of the events, if the trace tells.
    pub wall_clock: Option<WallClock>,
    /// What was done to the times of processors whose clocks differ; empty if nothing was.
    pub clock_corrections: Vec<ClockCorrection>,
    /// Whether the clock may step back while events are recorded ([`Gap::TimeBackward`](crate::Gap)), as
    /// some sources' clocks do; where it is known to go on only, that is false.
    pub steps_back: bool,
    /// What recording cost the traced program, if the trace tells.
    pub costs: Vec<RecordingCost>,
    /// Whether threads are known by the small numbers of a system, which people read in decimal, and not
    /// by addresses.
    pub numbered_threads: bool,
    /// Names of threads that are known beforehand.
    pub threads: Vec<(ThreadId, String)>,
    /// Names of interrupts that are known beforehand.
    pub interrupts: Vec<(Irq, String)>,
    /// Functions that the trace itself names, in the order of their addresses.
    pub functions: Vec<Function>,
    /// What could not be read, as far as it is known.
    pub damage: Vec<Damage>,
}

impl TraceInfo {
    /// The stream of this number, if it is one of the trace's.
    pub fn stream(&self, id: StreamId) -> Option<&StreamInfo> {
        self.streams.get(usize::try_from(id.0).ok()?)
    }

    /// The name of a thread, if it is known.
    pub fn thread_name(&self, thread: ThreadId) -> Option<&str> {
        let named = self.threads.iter().find(|(id, _)| *id == thread)?;
        Some(&named.1)
    }
}

/// One stream of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamInfo {
    /// What to call it: its file's name, as a rule.
    pub name: String,
    /// The processor that it belongs to, if it belongs to one.
    pub cpu: Option<Cpu>,
    /// The thread that it belongs to, if it belongs to one (a stream of a Linux process).
    pub thread: Option<ThreadId>,
    /// Whether it holds only what is to be known once (names and the like), which happened at no
    /// moment: its times are not the trace's.
    pub timeless: bool,
    /// Whether it can hold no calls, no switches of threads, and no interrupts (only items, say): what is lost
    /// of it says nothing of those.
    pub without_calls: bool,
    /// The time of its first event, once known.
    pub start: Option<Time>,
    /// The time of its last event, once known.
    pub end: Option<Time>,
}

/// How the times of a processor were changed to be those of another one's clock: both told the time
/// of day now and then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockCorrection {
    /// Whose times were changed.
    pub cpu: Cpu,
    /// By whose clock they are now.
    pub reference: Cpu,
    /// How often it told the time of day.
    pub moments: u64,
    /// What was added at the first of these times, in nanoseconds.
    pub first_ns: i64,
    /// What was added at the last.
    pub last_ns: i64,
    /// How certain that is, either way, in nanoseconds: by how much the two clocks' times of day
    /// scatter around straight lines, or what is said or has to be supposed where they are few.
    pub uncertainty_ns: u64,
}

/// A function that a trace names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it begins.
    pub address: Addr,
    /// Its name.
    pub name: String,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where: the stream's file or dump.
    pub stream: String,
    /// The offset in bytes.
    pub offset: u64,
    /// What is wrong.
    pub message: String,
}
