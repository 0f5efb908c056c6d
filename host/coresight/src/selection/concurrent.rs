//! Context IDs that execute on several sources at the same time: no single thread has them.
//!
//! A bare-metal system leaves CONTEXTIDR at 0 or at one value on all cores. A thread that migrates executes on one core
//! at a time. The trace's timestamps tell the two apart: a core with uninterrupted trace of one context from one
//! timestamp to another has executed that context all the time between them.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use crate::input::{Buffer, Part};
use crate::isa::SyncReason;
use crate::listing::{Packet, PacketDecoder};
use crate::source::Protocol;
use crate::{etmv3, etmv4, ptm};

/// Context IDs that executed on several sources at once, by the timestamps of the trace. The timestamps of all sources
/// must be of one clock. Each source is given by the [parts](crate::input::traces) that it wrote.
pub fn concurrent(buffers: &[Buffer], traces: &[Vec<Part>]) -> BTreeSet<u32> {
    let has_contexts = |parts: &&Vec<Part>| {
        let source = parts
            .first()
            .and_then(|part| buffers.get(part.buffer)?.sources.get(part.source));
        let is_of_thread = parts
            .iter()
            .filter_map(|part| buffers.get(part.buffer))
            .any(|buffer| buffer.thread.is_some());
        !is_of_thread && source.is_some_and(|source| source.protocol.traces_instructions())
    };
    let traces: Vec<_> = traces.iter().filter(has_contexts).collect();
    if traces.len() < 2 {
        return BTreeSet::new();
    }
    let runs = thread::scope(|scope| {
        let readers: Vec<_> = traces
            .iter()
            .map(|parts| scope.spawn(|| runs_of(buffers, parts)))
            .collect();
        let runs = readers.into_iter().map(|reader| reader.join());
        runs.map(Result::unwrap_or_default).collect::<Vec<_>>()
    });
    let mut of_ids: BTreeMap<u32, Vec<(Run, usize)>> = BTreeMap::new();
    for (source, runs) in runs.into_iter().enumerate() {
        for run in runs {
            of_ids.entry(run.id).or_default().push((run, source));
        }
    }
    let ids = of_ids.into_iter();
    ids.filter_map(|(id, runs)| is_on_several(runs).then_some(id))
        .collect()
}

/// Context IDs in the trace of a buffer's source, given by its index; with 0, which is no thread's ID under a kernel.
pub fn contexts(buffer: &Buffer, source: usize) -> BTreeSet<u32> {
    let Some(protocol) = buffer.sources.get(source).map(|it| it.protocol) else {
        return BTreeSet::new();
    };
    let streams = buffer.streams().filter(|(known, _)| *known == source);
    let packets = streams.flat_map(|(_, stream)| {
        stream.segments().flat_map(move |segment| {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            PacketDecoder::new(&protocol, bytes, segment.start)
        })
    });
    let ids = packets.filter_map(|packet| match Mark::of(&protocol, &packet)? {
        Mark::Context(id) | Mark::Break(Some(id)) => Some(id),
        _ => None,
    });
    ids.collect()
}

/// Execution of one context between two timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    id: u32,
    begin: u64,
    end: u64,
}

/// Whether two sources executed at once. Timestamps are taken at slightly different points on each core, so an overlap
/// counts if it has half of the shorter run.
fn is_on_several(mut runs: Vec<(Run, usize)>) -> bool {
    runs.sort_unstable_by_key(|(run, _)| run.begin);
    let mut open: Vec<(Run, usize)> = Vec::new();
    for (run, source) in runs {
        open.retain(|(other, _)| other.end > run.begin);
        for (other, on) in &open {
            let overlap = other.end.min(run.end) - run.begin;
            let shorter = (other.end - other.begin).min(run.end - run.begin);
            if *on != source && overlap >= shorter.div_ceil(2) {
                return true;
            }
        }
        open.push((run, source));
    }
    false
}

/// Part of a packet that matters here.
enum Mark {
    Time(u64),
    Context(u32),
    /// Instructions executed.
    Executed,
    /// Nothing is known of what executed before. The context from here on, if the packet has it.
    Break(Option<u32>),
}

impl Mark {
    fn of(protocol: &Protocol, packet: &Packet) -> Option<Self> {
        let sync = |reason, id: Option<u32>| match reason {
            SyncReason::Periodic => id.map(Mark::Context),
            _ => Some(Mark::Break(id)),
        };
        match packet {
            Packet::EtmV4(packet) => match packet.fields {
                etmv4::Fields::Atoms(_) | etmv4::Fields::Q(_) => Some(Mark::Executed),
                etmv4::Fields::Timestamp { value, .. } => Some(Mark::Time(value)),
                etmv4::Fields::Context(Some(known)) | etmv4::Fields::AddressContext(_, known) => {
                    let id = match protocol {
                        Protocol::EtmV4(config) if config.vmid_is_thread() => known.vmid,
                        _ => known.context_id,
                    };
                    id.map(Mark::Context)
                }
                _ => match packet.kind {
                    etmv4::Kind::TraceOn
                    | etmv4::Kind::Overflow
                    | etmv4::Kind::Discard
                    | etmv4::Kind::NotSync
                    | etmv4::Kind::BadSequence => Some(Mark::Break(None)),
                    _ => None,
                },
            },
            Packet::EtmV3(packet) => match packet.fields {
                etmv3::Fields::PHeader { .. } => Some(Mark::Executed),
                etmv3::Fields::Timestamp(value) => Some(Mark::Time(value)),
                etmv3::Fields::ContextId(id) => Some(Mark::Context(id)),
                etmv3::Fields::ISync(isync) => sync(isync.reason, isync.id),
                _ => None,
            },
            Packet::Ptm(packet) => match packet.fields {
                ptm::Fields::Atoms(_) => Some(Mark::Executed),
                ptm::Fields::Timestamp { value, .. } => Some(Mark::Time(value)),
                ptm::Fields::ContextId(id) => Some(Mark::Context(id)),
                ptm::Fields::ISync {
                    reason, context, ..
                } => sync(reason, context.id),
                ptm::Fields::Branch(branch) => branch
                    .context
                    .and_then(|context| context.id)
                    .map(Mark::Context)
                    .or(Some(Mark::Executed)),
                _ => None,
            },
            Packet::Stm(_) | Packet::Itm(_) => None,
        }
    }
}

/// Runs of a source, up to a timestamp that goes back: from there on its times are of another clock, or damaged.
fn runs_of(buffers: &[Buffer], parts: &[Part]) -> Vec<Run> {
    let mut reader = Reader::default();
    for part in parts {
        let Some(buffer) = buffers.get(part.buffer) else {
            continue;
        };
        let (Some(stream), Some(source)) = (
            buffer.frames.streams.get(part.stream),
            buffer.sources.get(part.source),
        ) else {
            continue;
        };
        for segment in stream.segments() {
            reader.end();
            reader.id = None;
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            for packet in PacketDecoder::new(&source.protocol, bytes, segment.start) {
                if let Some(mark) = Mark::of(&source.protocol, &packet)
                    && !reader.take(&mark)
                {
                    return reader.runs;
                }
            }
        }
    }
    reader.end();
    reader.runs
}

#[derive(Debug, Default)]
struct Reader {
    id: Option<u32>,
    /// First and last timestamp of the current run.
    times: Option<(u64, u64)>,
    /// Whether instructions executed since the last timestamp.
    executed: bool,
    latest: u64,
    runs: Vec<Run>,
}

impl Reader {
    /// Takes the next packet. Returns whether the times go forward.
    fn take(&mut self, mark: &Mark) -> bool {
        match *mark {
            Mark::Executed => self.executed = true,
            Mark::Break(id) => {
                self.end();
                self.id = id.or(self.id);
            }
            Mark::Context(id) if self.id != Some(id) => {
                self.end();
                self.id = Some(id);
            }
            Mark::Context(_) | Mark::Time(0) => {}
            Mark::Time(time) if time < self.latest => return false,
            Mark::Time(time) => {
                self.latest = time;
                let executed = std::mem::take(&mut self.executed);
                match &mut self.times {
                    Some((_, end)) if executed => *end = time,
                    _ => {
                        self.end();
                        self.times = Some((time, time));
                    }
                }
            }
        }
        true
    }

    /// Ends the current run.
    fn end(&mut self) {
        self.executed = false;
        if let Some((begin, end)) = self.times.take()
            && let Some(id) = self.id
            && end > begin
        {
            self.runs.push(Run { id, begin, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_on_several_of(runs: &[(u64, u64, usize)]) -> bool {
        let runs = runs.iter().map(|(begin, end, source)| {
            let (begin, end) = (*begin, *end);
            (Run { id: 7, begin, end }, *source)
        });
        is_on_several(runs.collect())
    }

    #[test]
    fn runs_of_a_thread_that_migrates_follow_one_another() {
        assert!(!is_on_several_of(&[(0, 10, 0), (10, 20, 1), (20, 30, 0)]));
        // The cores take their timestamps at different points.
        assert!(!is_on_several_of(&[(0, 11, 0), (10, 20, 1), (19, 30, 0)]));
        assert!(!is_on_several_of(&[(0, 10, 0), (2, 8, 0)]), "one source");
        assert!(is_on_several_of(&[
            (0, 100, 0),
            (200, 300, 0),
            (210, 220, 1)
        ]));
        assert!(is_on_several_of(&[(0, 10, 0), (5, 15, 1)]));
        assert!(is_on_several_of(&[(0, 10, 0), (0, 1, 1)]));
    }

    fn runs(marks: &[Mark]) -> Vec<(u32, u64, u64)> {
        let mut reader = Reader::default();
        let goes_on = marks.iter().all(|mark| reader.take(mark));
        if goes_on {
            reader.end();
        }
        let runs = reader.runs.iter();
        runs.map(|run| (run.id, run.begin, run.end)).collect()
    }

    #[test]
    fn a_run_ends_where_the_trace_does_not_show_what_executed() {
        use Mark::{Break, Context, Executed, Time};
        let found = runs(&[
            Context(7),
            Executed,
            Time(10),
            Executed,
            Time(20),
            Executed,
            Time(30),
            // Tracing is off for a while.
            Break(None),
            Time(50),
            Executed,
            Time(60),
            Context(8),
            Executed,
            Time(70),
            // Nothing executes.
            Time(80),
            Executed,
            Time(90),
            // An I-sync at which tracing begins again names the context.
            Break(Some(9)),
            Time(100),
            Executed,
            Time(110),
        ]);
        assert_eq!(
            found,
            [(7, 10, 30), (7, 50, 60), (8, 80, 90), (9, 100, 110)]
        );
        // A damaged time: the run up to it, and all that follows, say nothing.
        let found = runs(&[
            Context(7),
            Time(10),
            Executed,
            Time(u64::MAX),
            Executed,
            Time(30),
            Executed,
            Time(40),
        ]);
        assert_eq!(found, []);
    }
}
