//! Trace IDs of each CPU's unit over time, from AUX_OUTPUT_HW_ID records.
//!
//! The kernel can assign a new ID to a unit, or reuse the ID of another unit. The last assignment before the end of a
//! trace unit's session applies to the session.

use super::buffers::{Aux, Writer};
use super::metadata::Metadata;
use crate::frames::TraceId;
use crate::source::Source;

/// ID of a sink, a trace buffer of the hardware. Trace IDs are unique among the units of one sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sink(pub u32);

/// Trace IDs valid at a time, identified by the number of changes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping(usize);

/// AUX_OUTPUT_HW_ID record: the trace ID of a CPU's unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub cpu: u32,
    pub id: TraceId,
    /// Sink in which the ID is valid. Kernels before 6.12 record none, because the ID is valid in all sinks.
    pub sink: Option<Sink>,
    /// Nanoseconds of perf's clock.
    pub time: Option<u64>,
    /// Offset of the record in the file.
    pub at: u64,
}

impl Assigned {
    /// Whether it is valid in a sink; true if either sink is unknown.
    fn is_in(&self, sink: Option<Sink>) -> bool {
        match (self.sink, sink) {
            (Some(its), Some(this)) => its == this,
            _ => true,
        }
    }
}

/// Assignments of a recording.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    /// All assignments, in order.
    all: Vec<Assigned>,
    /// Indexes of assignments that change an earlier one; the first assignment of a CPU is none.
    changes: Vec<usize>,
    has_times: bool,
}

impl Assignments {
    /// Creates the assignments of a file. `has_times` tells that AUX records have times, by which both are ordered.
    pub fn new(mut all: Vec<Assigned>, has_times: bool) -> Self {
        let has_times = has_times && all.iter().all(|assigned| assigned.time.is_some());
        all.sort_by_key(|assigned| (assigned.time.filter(|_| has_times), assigned.at));
        let mut changes = Vec::new();
        for (index, new) in all.iter().enumerate() {
            let before = all.get(..index).unwrap_or_default();
            let mut before = before.iter().filter(|old| old.is_in(new.sink));
            let of_cpu = before.clone().rfind(|old| old.cpu == new.cpu);
            let of_id = before.rfind(|old| old.id == new.id);
            if of_cpu.is_some_and(|old| old.id != new.id)
                || of_id.is_some_and(|old| old.cpu != new.cpu)
            {
                changes.push(index);
            }
        }
        Assignments {
            all,
            changes,
            has_times,
        }
    }

    /// Number of assignments before a session ended; all if the session is unknown.
    fn before(&self, aux: Option<&Aux>) -> usize {
        let Some(aux) = aux else {
            return self.all.len();
        };
        let end = aux.time(self.has_times);
        self.all.partition_point(|assigned| match assigned.time {
            Some(time) if self.has_times => time <= end,
            _ => assigned.at < end,
        })
    }

    /// Units that can have written into a CPU's buffer at an AUX record: those of the sink of the CPU's last assignment
    /// before the record.
    pub fn writer(&self, cpu: Option<u32>, aux: Option<&Aux>) -> Writer {
        let before = self.before(aux);
        let (made, later) = self.all.split_at(before);
        let is_own = |assigned: &&Assigned| Some(assigned.cpu) == cpu;
        let own = made.iter().rfind(is_own).or(later.iter().find(is_own));
        let sink = own.and_then(|assigned| assigned.sink);
        let mapping = self.changes.partition_point(|change| *change < before);
        Writer::Sink(sink, Mapping(mapping))
    }

    /// Sources of the trace of `writer`: all CPUs whose trace it can contain. If one CPU alone wrote it, its source is
    /// the first.
    pub fn sources(&self, metadata: &Metadata, writer: Writer) -> Vec<Source> {
        let (own, sink, mapping) = match writer {
            Writer::Unit { cpu } => (cpu, None, Mapping(self.changes.len())),
            Writer::Sink(sink, mapping) => (None, sink, mapping),
        };
        // Up to the next change.
        let made = self.changes.get(mapping.0).copied();
        let (made, later) = self.all.split_at(made.unwrap_or(self.all.len()));
        let mut sources = Vec::new();
        for unit in &metadata.units {
            let is_assigned = self.all.iter().any(|assigned| assigned.cpu == unit.cpu);
            let is_here = |assigned: &&Assigned| assigned.cpu == unit.cpu && assigned.is_in(sink);
            // An assignment recorded by the kernel overrides the register; assignments of other sinks are ignored.
            let own_place = made.iter().rposition(|assigned| is_here(&assigned));
            let assigned = own_place.and_then(|place| made.get(place));
            let id = match assigned.or_else(|| later.iter().find(is_here)) {
                Some(assigned) => assigned.id,
                None if is_assigned => continue,
                None => unit.protocol.trace_id(),
            };
            // Another unit has got the ID since.
            let has_lost_it =
                |other: &Assigned| other.id == id && other.cpu != unit.cpu && other.is_in(sink);
            let since = own_place.map_or(0, |place| place + 1);
            let mut since = made.get(since..).unwrap_or_default().iter();
            if is_assigned && matches!(writer, Writer::Sink(..)) && since.any(has_lost_it) {
                continue;
            }
            sources.push(Source {
                id,
                name: format!("cpu{}", unit.cpu),
                cpu: Some(unit.cpu),
                protocol: unit.protocol,
            });
        }
        sources.sort_by_key(|source| (own.is_some() && source.cpu != own, source.cpu));
        sources
    }
}
