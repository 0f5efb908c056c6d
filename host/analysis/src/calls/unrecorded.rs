//! Times at which a processor's thread switches are not recorded although its other events are: the stream that records
//! the switches covers less time than the others, or has lost events. Other threads may have run in the meantime.

use kymo_event::{Cpu, SpaceId, StreamInfo, Time};

use super::Calls;
use super::cpu_state::CpuKey;

/// The times at which the switches of processors are recorded; only of machines some of whose streams record none.
#[derive(Debug)]
pub(super) struct Unrecorded {
    /// Per processor: the first and the last time, reversed if there is none.
    recorded: Vec<((SpaceId, Cpu), (Time, Time))>,
    /// The processors whose switches are recorded later than now, by the time at which that ends, latest first.
    ends: Vec<(Time, (SpaceId, Cpu))>,
}

impl Unrecorded {
    pub fn new(streams: &[StreamInfo]) -> Self {
        let mut recorded: Vec<((SpaceId, Cpu), (Time, Time))> = Vec::new();
        let machines: Vec<SpaceId> = streams
            .iter()
            .filter(|stream| stream.switches.is_some())
            .map(|stream| stream.machine)
            .collect();
        for stream in streams {
            let Some(cpu) = stream.cpu.filter(|_| machines.contains(&stream.machine)) else {
                continue;
            };
            let place = (stream.machine, cpu);
            let (begin, end) = stream.switches.unwrap_or((Time(i64::MAX), Time(i64::MIN)));
            match recorded.iter_mut().find(|(known, _)| *known == place) {
                Some((_, known)) => *known = (known.0.min(begin), known.1.max(end)),
                None => recorded.push((place, (begin, end))),
            }
        }
        let mut ends: Vec<_> = recorded
            .iter()
            .filter(|(_, (begin, end))| begin <= end)
            .map(|(place, (_, end))| (*end, *place))
            .collect();
        ends.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
        Self { recorded, ends }
    }

    /// The next time at which the records of some processor's switches end.
    pub fn next_end(&self) -> Time {
        let next = self.ends.last();
        next.map_or(Time(i64::MAX), |(end, _)| *end)
    }

    /// Whether a thread of a machine may run unseen at `time`, on any of its processors.
    pub fn anywhere(&self, machine: SpaceId, time: Time) -> bool {
        let mut of_machine = self.recorded.iter().filter(|((it, _), _)| *it == machine);
        of_machine.any(|(_, (begin, end))| time < *begin || *end < time)
    }

    /// Whether the switches of a processor are not recorded at `time`.
    fn on(&self, place: (SpaceId, Cpu), time: Time) -> bool {
        let known = self.recorded.iter().find(|(it, _)| *it == place);
        known.is_some_and(|(_, (begin, end))| time < *begin || *end < time)
    }
}

impl Calls {
    /// Whether the switches of a processor are not recorded at `time`.
    pub(super) fn is_unrecorded(&self, cpu: usize, time: Time) -> bool {
        if self.unrecorded.recorded.is_empty() {
            return false;
        }
        let CpuKey::Cpu(machine, number) = self.cpus[cpu].key else {
            return false;
        };
        let lost = self.in_gap.iter().any(|stream| {
            self.streams.get(stream.0 as usize).is_some_and(|stream| {
                stream.tells_switches && (stream.machine, stream.cpu) == (machine, Some(number))
            })
        });
        lost || self.unrecorded.on((machine, number), time)
    }

    /// Puts the calls of a track in doubt if the switches of its processor are not recorded: called where one begins.
    pub(super) fn doubt_unrecorded(&mut self, cpu: usize, track: usize, time: Time) {
        if self.is_unrecorded(cpu, time) {
            self.tracks[track].doubt_loss();
        }
    }

    /// Handles the ends of the records of switches before `time`: from there on, threads may run unseen.
    pub(super) fn end_records(&mut self, time: Time) {
        while let Some((_, (machine, cpu))) = self.unrecorded.ends.pop_if(|(end, _)| *end < time) {
            self.epoch += 1;
            let key = CpuKey::Cpu(machine, cpu);
            for track in 0..self.tracks.len() {
                let found = &self.tracks[track];
                let elsewhere = found.on.is_some_and(|on| self.cpus[on].key != key);
                if found.machine == machine && found.info.is_thread() && !elsewhere {
                    self.tracks[track].doubt_loss();
                }
            }
        }
    }
}
