//! Inputs with hardware trace, opened: what is to be decoded, by source.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::Stream;
use kymo_coresight::input::{Buffer, open_snapshot};
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::perf;
use kymo_coresight::{Error, Protocol, etmv3, etmv4, ptm};

use super::clock::Measure;
use super::lane::{Part, ProcessOf, Work};
use super::program::Binaries;
use super::software::is_software;
use crate::{OpenError, OpenOptions};

/// What an input has.
pub(super) struct Input {
    pub lanes: Vec<Lane>,
    pub measure: Measure,
    pub conversion: Option<perf::TimeConversion>,
    /// Build IDs by paths of files, as far as they are recorded.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Threads by their numbers.
    pub threads: BTreeMap<u32, perf::Thread>,
    /// The process of a thread, where the trace is of processes and a kernel, and not of one machine.
    pub process_of: Option<Arc<ProcessOf>>,
    /// What is missing.
    pub remarks: Vec<String>,
    /// Where the file ends, if that is before the end of the recording.
    pub cut_at: Option<u64>,
}

/// A source of trace.
pub(super) struct Lane {
    pub name: String,
    pub cpu: Option<u32>,
    pub protocol: Protocol,
    pub work: Work,
}

/// Opens a snapshot directory.
pub(super) fn snapshot(path: &Path) -> Result<Input, OpenError> {
    let (buffers, missing) = open_snapshot(path).map_err(|error| refused(path, error))?;
    let binaries = Binaries::new(None);
    let mut input = Input::of(buffers.into_iter().map(|it| (it, None)), binaries, None);
    input.remarks.extend(missing.iter().map(Error::to_string));
    Ok(input)
}

/// Opens a perf.data file, `bytes` of `path`.
pub(super) fn perf(path: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Input, OpenError> {
    let mut recording = perf::read(bytes).map_err(|error| refused(path, error))?;
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
    let buffers = buffers.into_iter().map(|buffer| {
        let thread = buffer.thread;
        (buffer, thread)
    });
    let mut input = Input::of(buffers, binaries, Some(Arc::new(process)));
    input.build_ids = recording
        .mappings
        .iter()
        .filter(|mapping| !mapping.build_id.is_empty())
        .map(|mapping| (mapping.path.clone(), mapping.build_id.clone()))
        .collect();
    input.threads = threads;
    input.conversion = recording.conversion;
    input.cut_at = recording.cut_at;
    for lane in &mut input.lanes {
        lane.work.conversion = recording.conversion;
    }
    let more = missing.len().saturating_sub(MISSING_TOLD);
    let told = missing.iter().take(MISSING_TOLD);
    input.remarks.extend(told.map(perf::Missing::to_string));
    if more > 0 {
        let remark = format!("no file for {more} more mappings: what ran there is not followed");
        input.remarks.push(remark);
    }
    if recording.truncated > 0 {
        let times = recording.truncated;
        let remark = format!("the kernel lost trace {times} times (flags of AUX records)");
        input.remarks.push(remark);
    }
    if recording.missing > 0 {
        let records = recording.missing;
        let remark = format!("{records} AUX records left out: no buffer has their bytes");
        input.remarks.push(remark);
    }
    Ok(input)
}

/// Mappings without a file that are told one by one.
const MISSING_TOLD: usize = 8;

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
    /// The sources of buffers that follow each other. Each buffer comes with the thread that it is of.
    fn of(
        buffers: impl Iterator<Item = (Buffer, Option<u32>)>,
        binaries: Binaries,
        process_of: Option<Arc<ProcessOf>>,
    ) -> Self {
        let binaries = Arc::new(binaries);
        let mut lanes: Vec<Lane> = Vec::new();
        // Buffers of one CPU or thread follow each other; what one source wrote into them is one stream.
        let mut known: HashMap<(String, u8, usize), usize> = HashMap::new();
        for (buffer, thread) in buffers {
            let buffer = Arc::new(buffer);
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
                    stream: index,
                    source: place,
                };
                if let Some(lane) = known.get(&key).and_then(|lane| lanes.get_mut(*lane)) {
                    lane.work.parts.push(part);
                    continue;
                }
                known.insert(key, lanes.len());
                lanes.push(Lane {
                    name: format!("{owner}/{}", source.name),
                    cpu: source.cpu,
                    protocol: source.protocol,
                    work: Work {
                        parts: vec![part],
                        measure: Measure::Instructions,
                        conversion: None,
                        binaries: Arc::clone(&binaries),
                        thread,
                        process_of: process_of.clone(),
                        options: EtmV4Options::default(),
                    },
                });
            }
        }
        let measure = measure(&lanes);
        for lane in &mut lanes {
            lane.work.measure = match is_software(&lane.protocol) {
                true => Measure::Timestamps,
                false => measure,
            };
        }
        Input {
            lanes,
            measure,
            conversion: None,
            build_ids: HashMap::new(),
            threads: BTreeMap::new(),
            process_of,
            remarks: Vec::new(),
            cut_at: None,
        }
    }
}

/// What the times of these sources can be made of: timestamps if all have them, else cycles if all count them.
fn measure(lanes: &[Lane]) -> Measure {
    let mut times = lanes
        .iter()
        .filter(|lane| !is_software(&lane.protocol))
        .map(time_of)
        .peekable();
    if times.peek().is_none() {
        return Measure::Timestamps;
    }
    times
        .flatten()
        .fold(Measure::Timestamps, |all, one| match (all, one) {
            (Measure::Timestamps, Measure::Timestamps) => Measure::Timestamps,
            (Measure::Instructions, _) | (_, Measure::Instructions) => Measure::Instructions,
            // A source without timestamps is without cycles too, unless it is configured to count.
            _ => Measure::Cycles,
        })
}

/// What times of a source can be made of; `None` if nothing in it needs a time.
fn time_of(lane: &Lane) -> Option<Measure> {
    let (stamps, cycles) = match &lane.protocol {
        Protocol::EtmV4(config) => (config.configr >> 11 & 1 == 1, config.counts_cycles()),
        Protocol::EtmV3(config) => (config.cr >> 28 & 1 == 1, config.is_cycle_accurate()),
        Protocol::Ptm(config) => (config.cr >> 28 & 1 == 1, config.is_cycle_accurate()),
        Protocol::Stm(_) | Protocol::Itm(_) => return None,
    };
    let mut has_executed = false;
    let mut first = None;
    for part in &lane.work.parts {
        let Some(stream) = part.buffer.frames.streams.get(part.stream) else {
            continue;
        };
        for packet in packets(&lane.protocol, stream) {
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
            if stamps && time.is_some_and(|time| *first.get_or_insert(time) != time) {
                return Some(Measure::Timestamps);
            }
            if has_executed && !stamps {
                break;
            }
        }
    }
    has_executed.then_some(match cycles {
        true => Measure::Cycles,
        false => Measure::Instructions,
    })
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
