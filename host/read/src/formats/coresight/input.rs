//! Inputs with hardware trace, opened: what is to be decoded, by source.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::Stream;
use kymo_coresight::input::{Buffer, open_raw, open_snapshot};
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::perf;
use kymo_coresight::remarks::{self, Remark};
use kymo_coresight::{Error, Protocol, etmv3, etmv4, ptm};

use super::clock::Measure;
use super::program::Binaries;
use super::software::is_software;
use super::unit::{Part, ProcessOf, Work};
use crate::{OpenError, OpenOptions};

/// What an input has.
pub(super) struct Input {
    pub units: Vec<Unit>,
    pub measure: Measure,
    /// What is taken off timestamps that are beyond the times of events.
    pub origin: u64,
    pub conversion: Option<perf::TimeConversion>,
    /// Build IDs by paths of files, as far as they are recorded.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Threads by their numbers.
    pub threads: BTreeMap<u32, perf::Thread>,
    /// The process of a thread, where the trace is of processes and a kernel, and not of one machine.
    pub process_of: Option<Arc<ProcessOf>>,
    /// What is missing or damaged, of the input and its buffers.
    pub remarks: Vec<Remark>,
}

/// A source of trace.
pub(super) struct Unit {
    pub name: String,
    pub cpu: Option<u32>,
    pub protocol: Protocol,
    pub id: u8,
    pub work: Work,
}

/// Refuses what is said of a recording of perf, where the input is none.
fn only_of_perf(path: &Path, options: &OpenOptions) -> Result<(), OpenError> {
    let given = [
        ("--symfs", &options.symfs),
        ("--vmlinux", &options.kernel),
        ("--buildid-dir", &options.buildid_dir),
    ];
    match given.iter().find(|(_, given)| given.is_some()) {
        None => Ok(()),
        Some((option, _)) => Err(OpenError::HardwareTrace {
            path: path.to_owned(),
            message: format!("{option} is for recordings of perf with hardware trace"),
        }),
    }
}

/// Opens a raw buffer.
pub(super) fn raw(path: &Path, options: &OpenOptions) -> Result<Input, OpenError> {
    only_of_perf(path, options)?;
    let buffers = open_raw(path, &options.trace).map_err(|error| refused(path, error))?;
    Ok(Input::of(buffers, Binaries::new(None), None, Vec::new()))
}

/// Opens a snapshot directory.
pub(super) fn snapshot(path: &Path, options: &OpenOptions) -> Result<Input, OpenError> {
    only_of_perf(path, options)?;
    let found = open_snapshot(path, &options.trace).map_err(|error| refused(path, error));
    let (buffers, missing) = found?;
    let binaries = Binaries::new(None);
    let mut input = Input::of(buffers, binaries, None, Vec::new());
    input
        .remarks
        .splice(0..0, remarks::of_snapshot(missing.iter()));
    Ok(input)
}

/// Opens a perf.data file, `bytes` of `path`.
pub(super) fn perf(path: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Input, OpenError> {
    let mut recording = perf::read(bytes).map_err(|error| refused(path, error))?;
    if options.trace.any() {
        return Err(OpenError::HardwareTrace {
            path: path.to_owned(),
            message: "--trace-frames and --trace-image are for snapshots and raw buffers"
                .to_owned(),
        });
    }
    let places = perf::Places {
        symfs: options.symfs.clone(),
        kernel: options.kernel.clone(),
        cache: options.buildid_dir.clone(),
    };
    let mut files = perf::Files::of_recording(path, &recording, &places);
    let missing = recording.load(|mapping| files.images(mapping));
    let binaries = Binaries::new(files.kernel_symbols());
    let threads = std::mem::take(&mut recording.threads);
    let processes: HashMap<u32, u32> = threads
        .iter()
        .map(|(thread, known)| (*thread, known.process))
        .collect();
    let process = move |thread: u32| processes.get(&thread).copied().unwrap_or(thread);
    let buffers = std::mem::take(&mut recording.buffers);
    let of_recording = remarks::of_recording(&recording, &missing);
    let mut input = Input::of(buffers, binaries, Some(Arc::new(process)), missing);
    input.remarks.splice(0..0, of_recording);
    input.build_ids = recording
        .mappings
        .iter()
        .filter(|mapping| !mapping.build_id.is_empty())
        .map(|mapping| (mapping.path.clone(), mapping.build_id.clone()))
        .collect();
    input.threads = threads;
    input.conversion = recording.conversion;
    for unit in &mut input.units {
        unit.work.conversion = recording.conversion;
    }
    Ok(input)
}

fn refused(path: &Path, error: Error) -> OpenError {
    match error {
        Error::Io { path, source } => OpenError::Io { path, source },
        error => OpenError::HardwareTrace {
            path: path.to_owned(),
            message: error.to_string(),
        },
    }
}

impl Input {
    /// The sources of buffers that follow each other. `absent` are files that the input has not.
    fn of(
        buffers: Vec<Buffer>,
        binaries: Binaries,
        process_of: Option<Arc<ProcessOf>>,
        absent: Vec<perf::Missing>,
    ) -> Self {
        let remarks = remarks::of_buffers(&buffers);
        let (binaries, absent) = (Arc::new(binaries), Arc::new(absent));
        let mut units: Vec<Unit> = Vec::new();
        // Buffers of one CPU or thread follow each other; what one source wrote into them is one stream.
        let mut known: HashMap<(String, u8, usize), usize> = HashMap::new();
        for (number, buffer) in buffers.into_iter().enumerate() {
            let (thread, buffer) = (buffer.thread, Arc::new(buffer));
            for (index, stream) in buffer.frames.streams.iter().enumerate() {
                let Some(place) = buffer.source_of(stream) else {
                    continue;
                };
                let Some(source) = buffer.sources.get(place) else {
                    continue;
                };
                let owner = buffer.name.split('@').next().unwrap_or_default();
                let key = (owner.to_owned(), stream.id.0, place);
                let part = Part {
                    buffer: Arc::clone(&buffer),
                    number,
                    stream: index,
                    source: place,
                };
                if let Some(unit) = known.get(&key).and_then(|unit| units.get_mut(*unit)) {
                    unit.work.parts.push(part);
                    continue;
                }
                known.insert(key, units.len());
                units.push(Unit {
                    name: format!("{owner}/{}", source.name),
                    cpu: source.cpu,
                    protocol: source.protocol,
                    id: source.id.0,
                    work: Work {
                        parts: vec![part],
                        measure: Measure::Instructions,
                        origin: 0,
                        conversion: None,
                        binaries: Arc::clone(&binaries),
                        thread,
                        process_of: process_of.clone(),
                        absent: Arc::clone(&absent),
                        options: EtmV4Options::default(),
                    },
                });
            }
        }
        let (measure, origin) = measure(&units);
        for unit in &mut units {
            unit.work.origin = origin;
            unit.work.measure = match is_software(&unit.protocol) {
                true => Measure::Timestamps,
                false => measure,
            };
        }
        Input {
            units,
            measure,
            origin,
            conversion: None,
            build_ids: HashMap::new(),
            threads: BTreeMap::new(),
            process_of,
            remarks,
        }
    }
}

/// The least timestamp that is no time of an event: these have a sign.
const TOO_LATE: u64 = 1 << 63;

/// Packets of a source that is not configured to send timestamps, among which some are looked for: registers are not always
/// recorded.
const LOOKED_AT: usize = 1 << 16;

/// What the times of these sources can be made of: timestamps if all have them, else cycles if all count them. And what is
/// taken off timestamps.
fn measure(units: &[Unit]) -> (Measure, u64) {
    let traced = units.iter().filter(|unit| !is_software(&unit.protocol));
    let times: Vec<_> = traced.filter_map(time_of).collect();
    let is_late = times
        .iter()
        .any(|(_, first)| first.is_some_and(|first| first >= TOO_LATE));
    let all = times.into_iter().map(|(measure, _)| measure);
    let measure = all.fold(Measure::Timestamps, |all, one| match (all, one) {
        (Measure::Timestamps, Measure::Timestamps) => Measure::Timestamps,
        (Measure::Instructions, _) | (_, Measure::Instructions) => Measure::Instructions,
        // A source without timestamps is without cycles too, unless it is configured to count.
        _ => Measure::Cycles,
    });
    (measure, if is_late { TOO_LATE } else { 0 })
}

/// What times of a source can be made of, and its first timestamp; `None` if nothing in it needs a time.
fn time_of(unit: &Unit) -> Option<(Measure, Option<u64>)> {
    let (stamps, cycles) = match &unit.protocol {
        Protocol::EtmV4(config) => (config.configr >> 11 & 1 == 1, config.counts_cycles()),
        Protocol::EtmV3(config) => (config.cr >> 28 & 1 == 1, config.is_cycle_accurate()),
        Protocol::Ptm(config) => (config.cr >> 28 & 1 == 1, config.is_cycle_accurate()),
        Protocol::Stm(_) | Protocol::Itm(_) => return None,
    };
    let mut has_executed = false;
    let mut first = None;
    let mut looked_at = 0;
    for part in &unit.work.parts {
        let Some(stream) = part.buffer.frames.streams.get(part.stream) else {
            continue;
        };
        for packet in packets(&unit.protocol, stream) {
            let time = match packet {
                Packet::EtmV4(packet) => match packet.fields {
                    etmv4::Fields::Timestamp { value, .. } => Some(value),
                    etmv4::Fields::Atoms(_) => {
                        has_executed = true;
                        None
                    }
                    _ => None,
                },
                Packet::EtmV3(packet) => match packet.fields {
                    etmv3::Fields::Timestamp(value) => Some(value),
                    etmv3::Fields::PHeader { .. } => {
                        has_executed = true;
                        None
                    }
                    _ => None,
                },
                Packet::Ptm(packet) => match packet.fields {
                    ptm::Fields::Timestamp { value, .. } => Some(value),
                    ptm::Fields::Atoms(_) => {
                        has_executed = true;
                        None
                    }
                    _ => None,
                },
                Packet::Stm(_) | Packet::Itm(_) => None,
            };
            // Two different ones make a clock.
            if time.is_some_and(|time| *first.get_or_insert(time) != time) {
                return Some((Measure::Timestamps, first));
            }
            looked_at += 1;
            if has_executed && !stamps && looked_at >= LOOKED_AT {
                break;
            }
        }
    }
    let measure = match cycles {
        true => Measure::Cycles,
        false => Measure::Instructions,
    };
    has_executed.then_some((measure, first))
}

/// The packets of a stream.
fn packets<'a>(
    protocol: &'a Protocol,
    stream: &'a Stream<'_>,
) -> impl Iterator<Item = Packet> + 'a {
    let ends = stream.resets.iter().copied().chain([stream.bytes.len()]);
    let mut start = 0;
    ends.flat_map(move |end| {
        let bytes = stream.bytes.get(..end).unwrap_or_default();
        let decoder = PacketDecoder::new(protocol, bytes, start);
        start = end;
        decoder
    })
}
