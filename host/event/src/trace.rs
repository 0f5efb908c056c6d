//! Information about a trace as a whole.

use std::path::PathBuf;

use crate::{
    Addr, ClockCheck, Cpu, Identities, RecordingCost, SpaceId, StreamId, ThreadId, Time, TimeUnit,
    WallClock,
};

/// Description of a trace: known before its events are read, except for what only the end of the trace tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceInfo {
    /// The format of the input: `kymo`, `ctf`, ...
    pub format: String,
    /// Its streams; a [`StreamId`] is an index into them.
    pub streams: Vec<StreamInfo>,
    /// The build id of the traced program, if the trace records it.
    pub build_id: Option<Vec<u8>>,
    /// The run-time address of the start of the program's text, if the trace records it. It differs from the address in
    /// the ELF file for position-independent programs.
    pub text_base: Option<Addr>,
    /// The window that the trace covers, if it was cut from a longer one.
    pub cut: Cut,
    /// Unit of times and durations.
    pub unit: TimeUnit,
    /// Frequency of the target's clock in hertz, if the trace records it.
    pub clock_hz: Option<u64>,
    /// The trace's clock, if other recordings use the same one and its times were not shifted: `sched_clock` or `mono`
    /// of Linux, whose times are comparable across all recordings made between two boots of the kernel.
    pub clock: Option<String>,
    /// Number of the tracing session, if times are as recorded: recordings of guests name that of their host.
    pub session: Option<u64>,
    /// The session onto whose clock its times have been moved: those of a guest onto its host's.
    pub moved_to_session: Option<u64>,
    /// Maps event times to the time of day, if the trace records it.
    pub wall_clock: Option<WallClock>,
    /// Corrections of the times of CPUs whose clocks differ; empty if none was applied.
    pub clock_corrections: Vec<ClockCorrection>,
    /// Results of comparing the target's clock with others, if the target states its clock's rate; `None` for other
    /// traces.
    pub clock_checks: Option<Vec<ClockCheck>>,
    /// Whether the clock may step back while events are recorded ([`Gap::TimeBackward`](crate::Gap)), as some sources'
    /// clocks do; false where the clock is known to be monotonic.
    pub steps_back: bool,
    /// Whether the source has no times: the events' times are then made from durations, separately for each thread.
    pub untimed: bool,
    /// Whether the source guarantees that no event's time is earlier than that of the event before it.
    pub in_order: bool,
    /// Whether durations of calls are wall times, with what passed while their thread had no CPU: the source records the
    /// threads' events, but not when they run.
    pub wall_times: bool,
    /// Overhead of recording in the traced program, if the trace records it.
    pub costs: Vec<RecordingCost>,
    /// Whether [`Tid`](crate::Tid)s are the small numbers of an operating system, shown in decimal, rather than
    /// addresses.
    pub numbered_threads: bool,
    /// Whether the idle task of a CPU is not a thread: a thread that leaves its CPU while no other gets it leaves it idle.
    pub idle_is_no_thread: bool,
    /// Whether events state their CPU even though no stream may be known yet: in text formats each line names its
    /// stream.
    pub has_cpus: bool,
    /// Whether the trace tells the process of a thread, by the thread's space.
    pub has_processes: bool,
    /// Events of an export of ours that are no records of the exported trace: its gaps, and what was concluded of it.
    pub added_events: u64,
    /// Files given for symbols that the reader has refused or applied itself, because they are not of all code of the trace:
    /// no other address gets a name of them.
    pub settled_symbols: Vec<PathBuf>,
    /// Further facts about the target, for display: a label (`device`, `operating system`) and a value, in display
    /// order.
    pub about: Vec<(String, String)>,
    /// The functions, threads and interrupts that the events name. They grow while events are read.
    pub identities: Identities,
    /// The first places that could not be read ([`TraceInfo::add_damage`]), as far as reading has come.
    pub damage: Vec<Damage>,
    /// Number of places that could not be read, besides those in `damage`.
    pub more_damage: u64,
    /// Oddities that are not damage, for display: streams that are empty or missing.
    pub remarks: Vec<String>,
    /// Facts that hold for any trace of this kind and neither lose nor doubt anything, as texts for people: for example the
    /// bytes before the first synchronization of a ring buffer. Known when the trace is opened.
    pub notes: Vec<String>,
}

/// Window of a trace that was cut from a longer one, as the trace states it. The default: not cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Begin of the requested window. Earlier events only show which calls were open at that time.
    pub begin: Option<Time>,
    /// End of the requested window. Calls still open at the end of the trace continue to this time and beyond.
    pub end: Option<Time>,
    /// Number of calls that may be open at the begin without any event in the trace, because earlier events were lost;
    /// `u64::MAX` if unknown, `None` if nothing was lost. Calls open there may then have ended already.
    pub hidden_calls: Option<u64>,
}

impl Cut {
    /// Name of [`begin`](Self::begin) in the environment of a CTF trace: nanoseconds of its clock, in decimal.
    pub const BEGIN_NAME: &'static str = "kymo_window_begin_ns";
    /// Name of [`end`](Self::end) there, in the same format.
    pub const END_NAME: &'static str = "kymo_window_end_ns";
    /// Name of [`hidden_calls`](Self::hidden_calls) there: a decimal number.
    pub const HIDDEN_CALLS_NAME: &'static str = "kymo_window_hidden_calls";
}

/// Places of damage stored individually. Hostile input has millions.
const MAX_DAMAGE: usize = 100;

impl TraceInfo {
    /// Whether its events state their CPU, as far as is known now: false if the streams belong to threads.
    pub fn shows_cpus(&self) -> bool {
        self.has_cpus || self.streams.iter().any(|stream| stream.cpu.is_some())
    }

    /// Adds a place that could not be read. Only the first hundred are stored, the others counted, which bounds memory.
    pub fn add_damage(&mut self, damage: Damage) {
        damage.add_to(&mut self.damage, &mut self.more_damage);
    }

    /// The number of places that could not be read.
    pub fn damaged_places(&self) -> u64 {
        self.damage.len() as u64 + self.more_damage
    }

    /// Whether its format is `format`, or one of several merged recordings has that format.
    pub fn is_of(&self, format: &str) -> bool {
        self.format.split('+').any(|part| part == format)
    }

    /// Whether several machines recorded it.
    pub fn has_machines(&self) -> bool {
        let mut machines = self.streams.iter().map(|stream| stream.machine);
        let first = machines.next();
        machines.any(|machine| Some(machine) != first)
    }

    /// The stream with this number, if the trace has it.
    pub fn stream(&self, id: StreamId) -> Option<&StreamInfo> {
        self.streams.get(usize::try_from(id.0).ok()?)
    }
}

/// Statistics of an instruction trace, besides its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Packets of its protocol.
    pub packets: u64,
    /// Decoded elements, made from packets and the program's code.
    pub elements: u64,
    /// Elements that are ranges of instructions.
    pub ranges: u64,
    /// Instructions that ran.
    pub instructions: u64,
}

impl TraceCounts {
    /// Adds the counts of another stream.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.elements += other.elements;
        self.ranges += other.ranges;
        self.instructions += other.instructions;
    }
}

/// One stream of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamInfo {
    /// Display name, usually the name of its file.
    pub name: String,
    /// The space of its addresses and names.
    pub space: SpaceId,
    /// The machine that recorded it, identified by a space. It is the scope of CPU numbers, and its last event ends
    /// whatever is still open.
    pub machine: SpaceId,
    /// The CPU that it belongs to, if it belongs to one.
    pub cpu: Option<Cpu>,
    /// The thread that it belongs to, if it belongs to one (as the streams of a Linux process do).
    pub thread: Option<ThreadId>,
    /// For hardware trace, the trace ID of its source.
    pub trace_id: Option<u8>,
    /// For hardware trace, its statistics, once it is read.
    pub counts: Option<TraceCounts>,
    /// Whether it holds only facts recorded once (names and the like) without a time of their own: its times are not
    /// times of the trace.
    pub timeless: bool,
    /// Whether it cannot hold calls, thread switches or interrupts (only items, for example): then its losses do not
    /// affect those.
    pub without_calls: bool,
    /// Whether one record is a whole call rather than an entry or exit: then a lost record is one missing call.
    pub whole_calls: bool,
    /// Whether it reports every missing exit ([`Gap::MissingExit`](crate::Gap::MissingExit)), because its records have
    /// call depths: then a call that was open across a loss stays open until that gap or its exit.
    pub marks_missing_exits: bool,
    /// Whether nothing is known of what its CPU runs behind its [end](Self::end): what records it was off.
    pub is_silent_behind: bool,
    /// Whether its trace never records which thread has a CPU: then an event of one thread tells nothing about others,
    /// and all durations are those between a thread's own events.
    pub without_switches: bool,
    /// The first and the last time at which it records every thread switch of its CPU, where other streams of the
    /// machine record none and may cover more time: outside of it, it is unknown which thread has the CPU.
    pub switches: Option<(Time, Time)>,
    /// The time of its first event, once known.
    pub start: Option<Time>,
    /// The time of its last event, once known.
    pub end: Option<Time>,
}

/// Correction that maps the times of one CPU to another one's clock. It is possible where both recorded the time of day
/// from time to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockCorrection {
    /// The CPU whose times were changed.
    pub cpu: Cpu,
    /// The CPU whose clock they now follow.
    pub reference: Cpu,
    /// Number of times of day that `cpu` recorded.
    pub moments: u64,
    /// Nanoseconds added at the first of these times.
    pub first_ns: i64,
    /// Nanoseconds added at the last of these times.
    pub last_ns: i64,
    /// Uncertainty in nanoseconds, in either direction: the scatter of both clocks' times of day around straight lines,
    /// or, where these are few, a stated or assumed value.
    pub uncertainty_ns: u64,
}

/// Part of the input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The stream's file or dump.
    pub stream: String,
    /// The offset in bytes.
    pub offset: u64,
    /// What is wrong.
    pub message: String,
}

impl Damage {
    /// Adds it to `places`, or to the count `more` if `places` has a hundred already.
    pub fn add_to(self, places: &mut Vec<Self>, more: &mut u64) {
        if places.len() < MAX_DAMAGE {
            places.push(self);
        } else {
            *more += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_and_its_first_places_are_kept() {
        let mut info = TraceInfo::default();
        for offset in 0..5_000_000 {
            info.add_damage(Damage {
                stream: String::new(),
                offset,
                message: String::new(),
            });
        }
        assert_eq!(info.damaged_places(), 5_000_000);
        assert_eq!(info.damage.len(), MAX_DAMAGE);
        assert_eq!(info.damage.last().map(|damage| damage.offset), Some(99));
    }
}
