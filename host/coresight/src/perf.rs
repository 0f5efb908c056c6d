//! CoreSight trace in a perf.data file, of Linux perf or of Android's simpleperf.
//!
//! Trace comes as AUXTRACE records, each a buffer of one CPU or one thread; AUX records say which part of it was one run
//! of the trace unit. AUXTRACE_INFO has the registers that configure each CPU's unit, mappings where code was. The index
//! of the AUXTRACE feature is not needed: the records are found by walking through the file.
//!
//! The reader is our own, of the few records that matter here: a crate for the container (`linux-perf-data`) gives just
//! these as raw bytes, sorts and copies the others, and brings decompression that a trace of several gigabytes has no use
//! for.

mod fields;
mod metadata;
mod sample_id;
mod time;

pub use time::TimeConversion;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::Error;
use crate::frames::{self, FrameFormat, Frames, TraceId};
use crate::input::Buffer;
use crate::memory::{Bytes, Image, Images, MemorySpace};
use crate::source::Source;
use fields::{number, text, word};
use metadata::Metadata;
use sample_id::SampleId;

/// The first bytes of the file.
pub const MAGIC: &[u8; 8] = b"PERFILE2";

/// A mapping of a file into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Process; `None` for the kernel.
    pub process: Option<u32>,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// The file.
    pub path: String,
    /// Build ID, if recorded with the mapping; else empty.
    pub build_id: Vec<u8>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Its name, the last one that it had; empty if none is known.
    pub name: String,
}

/// What a perf.data file has of CoreSight trace.
#[derive(Debug)]
pub struct Recording {
    /// Trace buffers. Their sources have no code yet.
    pub buffers: Vec<Buffer>,
    /// Executable mappings, in the order of the file.
    pub mappings: Vec<Mapping>,
    /// AUX records that say that trace was lost.
    pub truncated: u64,
    /// AUX records of which no buffer has the bytes.
    pub missing: u64,
    /// Where the file ends, if that is before the end of the recording.
    pub cut_at: Option<u64>,
    /// Threads that were named or forked, by their numbers.
    pub threads: BTreeMap<u32, Thread>,
    /// The process of each buffer, if it is one thread's.
    pub processes: Vec<Option<u32>>,
    /// How timestamps become nanoseconds, if they are of the counter of which the file says so.
    pub conversion: Option<TimeConversion>,
}

impl Recording {
    /// Gives the buffers code. `read` finds a mapping's file; what it does not find is returned.
    pub fn load(&mut self, mut read: impl FnMut(&Mapping) -> Option<Vec<u8>>) -> Vec<Mapping> {
        let mut missing: HashMap<String, Mapping> = HashMap::new();
        let mut loaded: Vec<(&Mapping, Image)> = Vec::new();
        // Mappings of one file differ in offsets and processes; its build ID decides which file that is.
        let mut files: HashMap<(&str, &[u8]), Option<Bytes>> = HashMap::new();
        for mapping in &self.mappings {
            let file = files
                .entry((&mapping.path, &mapping.build_id))
                .or_insert_with(|| read(mapping).map(Bytes::from));
            let Some(file) = file else {
                missing
                    .entry(mapping.path.clone())
                    .or_insert_with(|| mapping.clone());
                continue;
            };
            let image = Image {
                name: mapping.path.clone(),
                address: mapping.address,
                file_offset: mapping.offset,
                bytes: file.part(mapping.offset, mapping.length),
                space: MemorySpace::ANY,
            };
            loaded.push((mapping, image));
        }
        for (buffer, process) in self.buffers.iter_mut().zip(&self.processes) {
            // A mapping replaces what was there before: the newest comes first.
            let images: Images = loaded
                .iter()
                .rev()
                .filter(|(mapping, _)| {
                    process.is_none() || mapping.process.is_none() || mapping.process == *process
                })
                .map(|(_, image)| image.clone())
                .collect();
            buffer.code = vec![images; buffer.sources.len()];
        }
        let mut missing: Vec<_> = missing.into_values().collect();
        missing.sort_by(|a, b| a.path.cmp(&b.path));
        missing
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] if it is no perf.data or damaged, [`Error::OtherTrace`] if its hardware trace is of
/// another kind.
pub fn open(path: &Path) -> Result<Recording, Error> {
    read(&crate::file::read(path)?)
}

/// Reads a perf.data file in memory.
///
/// # Errors
/// As [`open`].
pub fn read(bytes: &[u8]) -> Result<Recording, Error> {
    let header = Header::read(bytes)?;
    let mut walk = Walk {
        sample_id: header.sample_id,
        ..Walk::default()
    };
    walk.is_cut = header.is_cut;
    walk.records(bytes, header.data.clone())?;
    let ids = build_ids(bytes, &header);
    for mapping in &mut walk.mappings {
        if let Some(id) = ids
            .get(&mapping.path)
            .filter(|_| mapping.build_id.is_empty())
        {
            mapping.build_id.clone_from(id);
        }
    }
    walk.finish(bytes)
}

/// The build IDs that the file has beside its records, by path: the feature `BUILD_ID` of its header.
fn build_ids(bytes: &[u8], header: &Header) -> HashMap<String, Vec<u8>> {
    const FEATURES: usize = 72;
    const BUILD_ID: u64 = 1 << 2;
    const MISC_SIZE: u32 = 1 << 15;
    let mut ids = HashMap::new();
    let features = number(bytes, FEATURES).filter(|_| !header.is_piped);
    let Some(features) = features.filter(|features| features & BUILD_ID != 0) else {
        return ids;
    };
    // The sections of the features are in the order of their bits.
    let section = header.data.end + 16 * (features & (BUILD_ID - 1)).count_ones() as usize;
    let place = |at| number(bytes, at).and_then(|value| usize::try_from(value).ok());
    let (Some(mut at), Some(size)) = (place(section), place(section + 8)) else {
        return ids;
    };
    let end = at.saturating_add(size);
    while let (true, Some(sizes)) = (at < end, word(bytes, at.saturating_add(4))) {
        let (misc, size) = (sizes & 0xffff, (sizes >> 16) as usize);
        let record = bytes.get(at..at.saturating_add(size));
        let Some(record) = record.filter(|_| size > 36) else {
            break;
        };
        let length = match misc & MISC_SIZE {
            0 => 20,
            _ => usize::from(record[32]).min(20),
        };
        ids.insert(text(record, 36), record[12..12 + length].to_vec());
        at += size;
    }
    ids
}

/// Where the records are, and how they end.
struct Header {
    data: std::ops::Range<usize>,
    sample_id: SampleId,
    is_piped: bool,
    /// Whether the data end behind the end of the file.
    is_cut: bool,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |offset: u64, expected, found: String| Error::Format {
            offset,
            expected,
            found,
        };
        if bytes.get(..8) != Some(MAGIC) {
            let found = format!("{:02x?}", bytes.get(..8).unwrap_or(bytes));
            return Err(wrong(0, "PERFILE2", found));
        }
        let size = number(bytes, 8).unwrap_or_default();
        if size == 16 {
            // Piped: records follow, attributes among them.
            return Ok(Header {
                data: 16..bytes.len(),
                sample_id: SampleId::default(),
                is_piped: true,
                is_cut: false,
            });
        }
        let field = |at| {
            number(bytes, at).ok_or_else(|| {
                wrong(
                    bytes.len() as u64,
                    "a header of 104 bytes",
                    "the end".into(),
                )
            })
        };
        let (attrs, data, data_size) = (field(24)?, field(40)?, field(48)?);
        let place = |value: u64| {
            usize::try_from(value)
                .unwrap_or(usize::MAX)
                .min(bytes.len())
        };
        let sample_id = SampleId::of_attr(bytes.get(place(attrs)..).unwrap_or_default());
        let data_end = data.saturating_add(data_size);
        let end = if data_size == 0 {
            bytes.len()
        } else {
            place(data_end)
        };
        Ok(Header {
            data: place(data)..end.max(place(data)),
            sample_id,
            is_piped: false,
            is_cut: data_end > bytes.len() as u64,
        })
    }
}

/// A run of the trace unit: the part of a buffer that an AUX record names.
#[derive(Clone, Copy, Debug)]
struct Run {
    offset: u64,
    size: u64,
    flags: u64,
    thread: Option<(u32, u32)>,
    cpu: Option<u32>,
}

/// AUX flags.
const AUX_TRUNCATED: u64 = 1;
const AUX_OVERWRITE: u64 = 2;
const AUX_RAW: u64 = 0x100;

/// A buffer: where it lies in the file, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    size: usize,
    offset: u64,
    thread: Option<u32>,
    cpu: Option<u32>,
}

#[derive(Default)]
struct Walk {
    sample_id: SampleId,
    /// Whether the file ends before the recording does.
    is_cut: bool,
    metadata: Option<Metadata>,
    runs: Vec<Run>,
    places: Vec<Place>,
    /// CPU and trace ID.
    ids: Vec<(u32, TraceId)>,
    mappings: Vec<Mapping>,
    threads: BTreeMap<u32, Thread>,
    conversion: Option<TimeConversion>,
}

impl Walk {
    fn records(&mut self, bytes: &[u8], data: std::ops::Range<usize>) -> Result<(), Error> {
        let mut at = data.start;
        while at + 8 <= data.end {
            let (Some(kind), Some(sizes)) = (word(bytes, at), word(bytes, at + 4)) else {
                break;
            };
            let (misc, size) = (sizes & 0xffff, (sizes >> 16) as usize);
            if at + size > bytes.len() {
                self.is_cut = true;
                break;
            }
            let Some(record) = bytes
                .get(at + 8..at + size.max(8))
                .filter(|_| size >= 8 && at + size <= data.end)
            else {
                return Err(Error::Format {
                    offset: at as u64,
                    expected: "a record that ends before the data does",
                    found: format!("{size} bytes of type {kind}"),
                });
            };
            at += size;
            match kind {
                1 => self.mmap(record, misc),
                3 => self.comm(record),
                7 => self.fork(record),
                10 => self.mmap2(record, misc),
                11 => self.aux(record),
                12 => self.trace_start(record),
                21 => self.hardware_id(record),
                64 if self.sample_id.0 == 0 => self.sample_id = SampleId::of_attr(record),
                70 => self.metadata = Some(Metadata::read(record, at as u64)?),
                79 => self.conversion = TimeConversion::read(record),
                71 => at += self.auxtrace(record, at, data.end),
                81 | 83 => {
                    return Err(Error::Format {
                        offset: at as u64,
                        expected: "uncompressed records",
                        found:
                            "a compressed one (record without -z, or decompress with perf inject)"
                                .into(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn mmap(&mut self, record: &[u8], misc: u32) {
        const MISC_DATA: u32 = 1 << 13;
        if misc & MISC_DATA == 0 {
            self.mapping(record, misc, 32, Vec::new());
        }
    }

    fn mmap2(&mut self, record: &[u8], misc: u32) {
        const MISC_BUILD_ID: u32 = 1 << 14;
        const PROT_EXEC: u32 = 4;
        if word(record, 56).is_some_and(|protection| protection & PROT_EXEC == 0) {
            return;
        }
        let mut build_id = Vec::new();
        if misc & MISC_BUILD_ID != 0 {
            let size = usize::from(record.get(32).copied().unwrap_or_default()).min(20);
            build_id = record.get(36..36 + size).unwrap_or_default().to_vec();
        }
        self.mapping(record, misc, 64, build_id);
    }

    fn mapping(&mut self, record: &[u8], misc: u32, name: usize, build_id: Vec<u8>) {
        let (Some(process), Some(address), Some(length), Some(offset)) = (
            word(record, 0),
            number(record, 8),
            number(record, 16),
            number(record, 24),
        ) else {
            return;
        };
        const CPU_MODE: u32 = 7;
        const KERNEL: u32 = 1;
        let is_kernel = misc & CPU_MODE == KERNEL || process == u32::MAX;
        self.mappings.push(Mapping {
            process: (!is_kernel).then_some(process),
            address,
            length,
            offset,
            path: text(record, name),
            build_id,
        });
    }

    fn comm(&mut self, record: &[u8]) {
        if let (Some(process), Some(thread)) = (word(record, 0), word(record, 4)) {
            // Linux has 15 bytes for it; forks copy it.
            let name = text(record.get(..72).unwrap_or(record), 8);
            self.threads.insert(thread, Thread { process, name });
        }
    }

    /// A thread begins with the name of its parent.
    fn fork(&mut self, record: &[u8]) {
        if let (Some(process), Some(thread), Some(parent)) =
            (word(record, 0), word(record, 8), word(record, 12))
        {
            let parent = self.threads.get(&parent);
            let name = parent.map_or_else(String::new, |parent| parent.name.clone());
            self.threads.insert(thread, Thread { process, name });
        }
    }

    /// A thread of which trace begins.
    fn trace_start(&mut self, record: &[u8]) {
        if let (Some(process), Some(thread)) = (word(record, 0), word(record, 4)) {
            let known = self.threads.entry(thread).or_default();
            known.process = process;
        }
    }

    fn aux(&mut self, record: &[u8]) {
        if let (Some(offset), Some(size), Some(flags)) =
            (number(record, 0), number(record, 8), number(record, 16))
        {
            let (thread, cpu) = self.sample_id.of(record);
            self.runs.push(Run {
                offset,
                size,
                flags,
                thread,
                cpu,
            });
        }
    }

    fn hardware_id(&mut self, record: &[u8]) {
        let (_, cpu) = self.sample_id.of(record);
        if let (Some(value), Some(cpu)) = (number(record, 0), cpu) {
            self.ids.push((cpu, TraceId(value as u8)));
        }
    }

    /// A buffer; how many bytes of it follow the record.
    fn auxtrace(&mut self, record: &[u8], start: usize, end: usize) -> usize {
        let (Some(size), Some(offset), Some(thread), Some(cpu)) = (
            number(record, 0),
            number(record, 8),
            word(record, 28),
            word(record, 32),
        ) else {
            return 0;
        };
        let whole = usize::try_from(size).unwrap_or(usize::MAX);
        let size = whole.min(end - start.min(end));
        self.is_cut |= size < whole;
        let none = u32::MAX;
        self.places.push(Place {
            start,
            size,
            offset,
            thread: (cpu == none).then_some(thread),
            cpu: (cpu != none).then_some(cpu),
        });
        size
    }

    fn finish(self, bytes: &[u8]) -> Result<Recording, Error> {
        let Some(metadata) = &self.metadata else {
            return Err(Error::Format {
                offset: bytes.len() as u64,
                expected: "an AUXTRACE_INFO record",
                found: "the end: the recording has no hardware trace".into(),
            });
        };
        let mut recording = Recording {
            buffers: Vec::new(),
            mappings: self.mappings,
            truncated: self
                .runs
                .iter()
                .filter(|run| run.flags & AUX_TRUNCATED != 0)
                .count() as u64,
            missing: 0,
            cut_at: self.is_cut.then_some(bytes.len() as u64),
            threads: self.threads,
            processes: Vec::new(),
            conversion: self.conversion.filter(|_| metadata.has_virtual_time()),
        };
        let mut used = vec![false; self.runs.len()];
        for place in &self.places {
            let data = &bytes[place.start..place.start + place.size];
            let mut frames = Frames::default();
            let mut process = None;
            let mut cpu = place.cpu;
            for (run, used) in self.runs.iter().zip(&mut used) {
                let is_owner = match (place.thread, place.cpu) {
                    (Some(thread), _) => run.thread.is_none_or(|(_, owner)| owner == thread),
                    (_, Some(cpu)) => run.cpu.is_none_or(|owner| owner == cpu),
                    _ => true,
                };
                // In snapshot mode the offset is that of the end.
                let start = if run.flags & AUX_OVERWRITE != 0 {
                    run.offset.wrapping_sub(run.size)
                } else {
                    run.offset
                };
                let Some(within) = start
                    .checked_sub(place.offset)
                    .and_then(|at| usize::try_from(at).ok())
                else {
                    continue;
                };
                let Some(part) = data
                    .get(within..)
                    .filter(|rest| is_owner && !rest.is_empty())
                else {
                    continue;
                };
                if *used || run.size == 0 {
                    continue;
                }
                *used = true;
                let part = &part[..usize::try_from(run.size)
                    .unwrap_or(usize::MAX)
                    .min(part.len())];
                process = process.or(run.thread.map(|(process, _)| process));
                cpu = cpu.or(run.cpu);
                let format = if run.flags & AUX_RAW != 0 {
                    FrameFormat::Unformatted
                } else {
                    FrameFormat::Memory
                };
                frames.append(frames::split(part, format, TraceId::NONE), within as u64);
            }
            if self.runs.is_empty() {
                frames.append(frames::split(data, FrameFormat::Memory, TraceId::NONE), 0);
            }
            let (owner, number) = match (place.cpu, place.thread) {
                (Some(cpu), _) => ("cpu", cpu),
                (_, thread) => ("thread", thread.unwrap_or_default()),
            };
            recording.buffers.push(Buffer {
                name: format!("{owner}{number}@{:#x}", place.offset),
                sources: sources(metadata, &self.ids, cpu),
                code: Vec::new(),
                frames,
                thread: place.thread.filter(|_| place.cpu.is_none()),
            });
            recording.processes.push(place.thread.and(process));
        }
        let unused = self
            .runs
            .iter()
            .zip(&used)
            .filter(|(run, used)| run.size > 0 && !**used);
        recording.missing = unused.count() as u64;
        Ok(recording)
    }
}

/// The sources of all CPUs, the one of `cpu` first: a buffer without frames is its.
fn sources(metadata: &Metadata, ids: &[(u32, TraceId)], cpu: Option<u32>) -> Vec<Source> {
    let mut sources: Vec<_> = metadata
        .units
        .iter()
        .map(|unit| {
            // An ID that the kernel told when it was assigned counts more than the register.
            let id = ids
                .iter()
                .rev()
                .find(|(cpu, _)| *cpu == unit.cpu)
                .map(|(_, id)| *id);
            let id = id.unwrap_or(unit.protocol.trace_id());
            (
                unit.cpu,
                Source {
                    id,
                    name: format!("cpu{}", unit.cpu),
                    cpu: Some(unit.cpu),
                    protocol: unit.protocol,
                },
            )
        })
        .collect();
    sources.sort_by_key(|(number, _)| (Some(*number) != cpu, *number));
    sources.into_iter().map(|(_, source)| source).collect()
}
