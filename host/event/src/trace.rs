//! What is known of a trace as a whole.

use crate::{
    Addr, ClockCheck, Cpu, Identities, RecordingCost, SpaceId, StreamId, ThreadId, Time, TimeUnit,
    WallClock,
};

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
    /// What part of a longer trace it is, if it was cut from one.
    pub cut: Cut,
    /// What times and durations count.
    pub unit: TimeUnit,
    /// Ticks of the target's clock a second, if the trace tells.
    pub clock_hz: Option<u64>,
    /// The clock by which its times count, where that is one that others record by, too, and has not been moved: `sched_clock`
    /// or `mono` of Linux, whose times are the same in all recordings between two starts of the kernel.
    pub clock: Option<String>,
    /// The time of day by the times of the events, if the trace tells.
    pub wall_clock: Option<WallClock>,
    /// What was done to the times of processors whose clocks differ; empty if nothing was.
    pub clock_corrections: Vec<ClockCorrection>,
    /// What the target's clock was compared with, where it is one whose rate the target states; `None` of other
    /// traces.
    pub clock_checks: Option<Vec<ClockCheck>>,
    /// Whether the clock may step back while events are recorded ([`Gap::TimeBackward`](crate::Gap)), as
    /// some sources' clocks do; where it is known to go on only, that is false.
    pub steps_back: bool,
    /// Whether the source has no times: those of the events are made of durations, for each thread by itself.
    pub untimed: bool,
    /// Whether the source sees to it that no event's time lies before that of the event in front of it.
    pub in_order: bool,
    /// What recording cost the traced program, if the trace tells.
    pub costs: Vec<RecordingCost>,
    /// Whether [`Tid`](crate::Tid)s are the small numbers of a system, which people read in decimal, and not
    /// addresses.
    pub numbered_threads: bool,
    /// Whether the idle task of a CPU is no thread: one that leaves its CPU while no other gets it leaves it idle.
    pub idle_is_no_thread: bool,
    /// Whether events say their CPU, though no stream may be known yet: a text has its streams by its lines.
    pub has_cpus: bool,
    /// Whether the trace tells of which process a thread is, by its space.
    pub has_processes: bool,
    /// What the trace says of its target besides, for people: what it is (`device`, `operating system`) and the
    /// value, in the order in which outputs show them.
    pub about: Vec<(String, String)>,
    /// The functions, threads and interrupts that the events name. They grow while events are read.
    pub identities: Identities,
    /// What could not be read, as far as it is known: the first places ([`TraceInfo::add_damage`]).
    pub damage: Vec<Damage>,
    /// Places that could not be read beyond those in `damage`.
    pub more_damage: u64,
    /// What is missing or odd without being damage, for people: streams that are empty or not there.
    pub remarks: Vec<String>,
}

/// Where a trace was cut from a longer one, as it says itself. The default is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// From when on it was wanted. What stands before that is there to show what was open then.
    pub begin: Option<Time>,
    /// Up to when. What is open at its end goes on up to then, and behind it.
    pub end: Option<Time>,
    /// How many calls may be open at the begin of which the trace has nothing, because events were lost before; `u64::MAX` if that is
    /// not known, `None` if nothing was lost. What is open there may have ended, then.
    pub hidden_calls: Option<u64>,
}

impl Cut {
    /// What a CTF trace calls [`begin`](Self::begin) in its environment: nanoseconds by its clock, in decimal.
    pub const BEGIN_NAME: &'static str = "kymo_window_begin_ns";
    /// The same of [`end`](Self::end).
    pub const END_NAME: &'static str = "kymo_window_end_ns";
    /// The same of [`hidden_calls`](Self::hidden_calls): a number in decimal.
    pub const HIDDEN_CALLS_NAME: &'static str = "kymo_window_hidden_calls";
}

/// Places of damage that are kept one by one. Hostile input has millions.
const MAX_DAMAGE: usize = 100;

impl TraceInfo {
    /// Whether its events say their CPU, as far as is known by now: not where streams belong to threads.
    pub fn shows_cpus(&self) -> bool {
        self.has_cpus || self.streams.iter().any(|stream| stream.cpu.is_some())
    }

    /// Adds a place that could not be read. Behind the first hundred they are only counted, so that memory is bounded.
    pub fn add_damage(&mut self, damage: Damage) {
        damage.add_to(&mut self.damage, &mut self.more_damage);
    }

    /// The number of places that could not be read.
    pub fn damaged_places(&self) -> u64 {
        self.damage.len() as u64 + self.more_damage
    }

    /// Whether it is of a format, or one of several recordings is that were put on one time line.
    pub fn is_of(&self, format: &str) -> bool {
        self.format.split('+').any(|part| part == format)
    }

    /// Whether several machines recorded it.
    pub fn has_machines(&self) -> bool {
        let mut machines = self.streams.iter().map(|stream| stream.machine);
        let first = machines.next();
        machines.any(|machine| Some(machine) != first)
    }

    /// The stream of this number, if it is one of the trace's.
    pub fn stream(&self, id: StreamId) -> Option<&StreamInfo> {
        self.streams.get(usize::try_from(id.0).ok()?)
    }
}

/// How much an instruction trace has, besides what becomes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Packets of its protocol.
    pub packets: u64,
    /// Elements: what the packets say, with the code.
    pub elements: u64,
    /// Elements that are ranges of instructions.
    pub ranges: u64,
    /// Instructions that ran.
    pub instructions: u64,
}

impl TraceCounts {
    /// Adds those of another stream.
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
    /// What to call it: its file's name, as a rule.
    pub name: String,
    /// The space in which its addresses and names mean something.
    pub space: SpaceId,
    /// The machine that recorded it, by a space that stands for it: where the numbers of processors mean something, and
    /// what is open ends with the last event.
    pub machine: SpaceId,
    /// The processor that it belongs to, if it belongs to one.
    pub cpu: Option<Cpu>,
    /// The thread that it belongs to, if it belongs to one (a stream of a Linux process).
    pub thread: Option<ThreadId>,
    /// The trace ID of its source, of hardware trace.
    pub trace_id: Option<u8>,
    /// What its trace has, of hardware trace, once it is read.
    pub counts: Option<TraceCounts>,
    /// Whether it holds only what is to be known once (names and the like), which happened at no
    /// moment: its times are not the trace's.
    pub timeless: bool,
    /// Whether it can hold no calls, no switches of threads, and no interrupts (only items, say): what is lost
    /// of it says nothing of those.
    pub without_calls: bool,
    /// Whether one record is one call, not an entry or an exit alone: so many calls may be missing as records are lost.
    pub whole_calls: bool,
    /// Whether it tells of each exit that is missing ([`Gap::MissingExit`](crate::Gap::MissingExit)), because its records have the
    /// depths of calls: then a call that losses passed is open until that, or its exit, comes.
    pub tells_missing: bool,
    /// Whether its trace never tells which thread has a processor: then an event of one says nothing of the others, and all
    /// times are those between a thread's own events.
    pub without_switches: bool,
    /// The time of its first event, once known.
    pub start: Option<Time>,
    /// The time of its last event, once known.
    pub end: Option<Time>,
}

/// How the times of a processor were changed to be those of another one's clock: both recorded the time
/// of day now and then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockCorrection {
    /// Whose times were changed.
    pub cpu: Cpu,
    /// By whose clock they are now.
    pub reference: Cpu,
    /// How often it recorded the time of day.
    pub moments: u64,
    /// What was added at the first of these times, in nanoseconds.
    pub first_ns: i64,
    /// What was added at the last.
    pub last_ns: i64,
    /// How certain that is, either way, in nanoseconds: by how much the two clocks' times of day
    /// scatter around straight lines, or what is said or has to be supposed where they are few.
    pub uncertainty_ns: u64,
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

impl Damage {
    /// Adds it to the places that are kept, or counts it where there are a hundred.
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
