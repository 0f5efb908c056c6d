//! Synthetic perf.data files of kinds without a capture, made from a snapshot's bytes: metadata version 2 with trace
//! IDs in separate records, snapshot mode, one buffer for each CPU with timestamps, and pipes. The decoded instructions
//! must always be those of the snapshot.

mod losses;

use std::collections::HashMap;
use std::path::PathBuf;

use kymo_coresight::counts;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::input;
use kymo_coresight::listing::Listing;
use kymo_coresight::memory::Bytes;
use kymo_coresight::perf::{self, NotFound};
use kymo_coresight::remarks;
use kymo_coresight::selection::Selection;
use kymo_coresight::snapshot::Snapshot;
use kymo_coresight::{Protocol, Source};
use kymo_fixtures::perf_data::{AUX_OVERWRITE, AUX_RAW, AUX_TRUNCATED, Magic, PerfData, Unit};

use crate::data;

/// Instructions of all six cores, as OpenCSD and perf count them.
const INSTRUCTIONS: u64 = 31_566;

/// A snapshot of six ETMv4, in frames: `uname` on a Juno board.
struct Juno {
    snapshot: Snapshot,
    sources: Vec<Source>,
    buffer: Vec<u8>,
    /// Files of the mappings.
    files: HashMap<PathBuf, Vec<u8>>,
}

const THREAD: u32 = 4711;

impl Juno {
    fn open() -> Option<Self> {
        let folder = data::folder()?.join("snapshots/juno-uname-002");
        let snapshot = Snapshot::open(&folder).expect("a snapshot");
        let buffer = &snapshot.buffers[0];
        let sources = Source::of_buffer(&snapshot, buffer);
        let bytes = snapshot.read_buffer(buffer).expect("a buffer");
        let mut files = HashMap::new();
        for dump in snapshot.devices.iter().flat_map(|device| &device.dumps) {
            let path = PathBuf::from("/").join(&dump.file);
            files.insert(path, snapshot.read(&dump.file).expect("an image"));
        }
        Some(Juno {
            buffer: bytes,
            files,
            sources,
            snapshot,
        })
    }

    /// Trace units as perf describes them. In version 2 of the metadata, separate records have the trace IDs; the
    /// registers then have the values they had last.
    fn units(&self, version: u64) -> Vec<Unit> {
        let units = self.sources.iter().zip(0..).map(|(source, cpu)| {
            let Protocol::EtmV4(config) = source.protocol else {
                panic!("{source:?}")
            };
            let id = if version == 2 { 0 } else { config.trace_idr };
            let registers = [
                config.configr,
                id,
                config.idr0,
                config.idr1,
                config.idr2,
                0,
                0,
                0,
            ];
            Unit {
                cpu,
                magic: Magic::EtmV4,
                registers: registers[..if version == 0 { 7 } else { 8 }]
                    .iter()
                    .map(|register| u64::from(*register))
                    .collect(),
            }
        });
        units.collect()
    }

    /// Metadata, names and mappings.
    fn begin(&self, version: u64, per_cpu: bool, is_snapshot: bool) -> PerfData {
        let mut perf = PerfData::new(per_cpu);
        perf.info(version, is_snapshot, &self.units(version));
        perf.comm(THREAD, "uname");
        let core = self
            .snapshot
            .devices
            .iter()
            .find(|device| !device.dumps.is_empty());
        for dump in &core.expect("a core with images").dumps {
            let path = format!("/{}", dump.file.display());
            let size = self.files[&PathBuf::from(&path)].len() as u64 - dump.offset;
            let length = dump.length.unwrap_or(size);
            perf.mapping(
                THREAD,
                dump.address.expect("an address"),
                length,
                dump.offset,
                &path,
            );
        }
        if version == 2 {
            for (source, cpu) in self.sources.iter().zip(0..) {
                // Bits above the ID contain the sink, and bits above both the minor version.
                let value = 1 << 56 | 0x1234_5678 << 8 | u64::from(source.id.0);
                perf.hardware_id(cpu, value);
            }
        }
        perf
    }

    /// The bytes of each CPU.
    fn streams(&self) -> Vec<(u32, Vec<u8>)> {
        let frames = frames::split(&self.buffer, FrameFormat::Memory, TraceId::NONE);
        let of = |source: &Source| {
            let stream = frames.streams.iter().find(|stream| stream.id == source.id);
            stream.map_or_else(Vec::new, |stream| stream.bytes.to_vec())
        };
        self.sources
            .iter()
            .map(of)
            .zip(0..)
            .map(|(bytes, cpu)| (cpu, bytes))
            .collect()
    }

    /// Number of instructions in a file, and number of AUX records whose bytes it lacks.
    fn count(&self, bytes: &[u8]) -> (u64, u64) {
        let mut recording = perf::read(bytes).expect("a recording");
        let missing = recording.load(|mapping| {
            let file = self.files.get(&PathBuf::from(&mapping.path)).cloned();
            let file = file.map(Bytes::from).ok_or(NotFound::Nothing)?;
            Ok(vec![mapping.image(&file)])
        });
        assert_eq!(missing, []);
        let counts = recording.buffers.iter().flat_map(|buffer| {
            counts::of_buffer(
                buffer,
                EtmV4Options::default(),
                &Selection::default(),
                1,
                |_| true,
            )
        });
        (
            counts.map(|(_, counts)| counts.instructions).sum(),
            recording.missing,
        )
    }
}

/// Frames of one source: an ID, then data; the last byte holds the lowest bits of the even bytes.
pub fn framed(id: TraceId, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut bytes = bytes.iter().copied();
    let mut is_first = true;
    while bytes.len() > 0 {
        let mut frame = [0u8; 16];
        let mut at = 0;
        if is_first {
            frame[0] = id.0 << 1 | 1;
            at = 1;
        }
        is_first = false;
        while at < 15 {
            let Some(byte) = bytes.next() else {
                // The rest belongs to no source.
                if at % 2 == 1 {
                    // An odd byte completes a pair; the null source begins with the next pair.
                    frame[at] = 0;
                    at += 1;
                    continue;
                }
                frame[at] = 1;
                break;
            };
            if at % 2 == 0 {
                frame[at] = byte & 0xfe;
                frame[15] |= (byte & 1) << (at / 2);
            } else {
                frame[at] = byte;
            }
            at += 1;
        }
        all.extend(frame);
    }
    all
}

#[test]
fn a_thread_with_metadata_of_every_version_as_a_file_and_as_a_pipe() {
    let Some(juno) = Juno::open() else { return };
    let size = juno.buffer.len() as u64;
    for version in 0..3 {
        for is_pipe in [false, true] {
            // In version 2 the records with trace IDs contain the CPU.
            let mut perf = juno.begin(version, version == 2, false);
            perf.start(THREAD, 0);
            perf.aux(THREAD, 0, 0, size, 0);
            perf.buffer(Some(THREAD), 0, 0, &juno.buffer);
            let file = if is_pipe { perf.pipe() } else { perf.file() };
            assert_eq!(
                juno.count(&file),
                (INSTRUCTIONS, 0),
                "version {version}, {is_pipe}"
            );
        }
    }
}

#[test]
fn snapshots_name_their_ends() {
    let Some(juno) = Juno::open() else { return };
    let size = juno.buffer.len() as u64;
    let mut perf = juno.begin(1, false, true);
    perf.start(THREAD, 0);
    // Two snapshots of the same buffer: the counter has advanced in between, and each record has the end of its own
    // snapshot.
    for end in [size, 5 * size] {
        perf.aux(THREAD, 0, end, size, AUX_OVERWRITE);
        perf.buffer(Some(THREAD), 0, end - size, &juno.buffer);
    }
    assert_eq!(juno.count(&perf.file()), (2 * INSTRUCTIONS, 0));
}

#[test]
fn one_buffer_for_each_cpu_in_frames() {
    let Some(juno) = Juno::open() else { return };
    for version in [1, 2] {
        let mut perf = juno.begin(version, true, false);
        let buffers: Vec<_> = juno
            .streams()
            .into_iter()
            .map(|(cpu, bytes)| (cpu, framed(juno.sources[cpu as usize].id, &bytes)))
            .collect();
        for (cpu, bytes) in &buffers {
            perf.start(THREAD, *cpu);
            perf.aux(THREAD, *cpu, 0, bytes.len() as u64, 0);
        }
        for (cpu, bytes) in &buffers {
            perf.buffer(None, *cpu, 0, bytes);
        }
        assert_eq!(
            juno.count(&perf.file()),
            (INSTRUCTIONS, 0),
            "version {version}"
        );
    }
}

#[test]
fn one_buffer_for_each_cpu_without_frames() {
    let Some(juno) = Juno::open() else { return };
    let mut perf = juno.begin(1, true, false);
    // Buffers are in any order, and losses are reported.
    let mut streams = juno.streams();
    streams.reverse();
    for (cpu, bytes) in &streams {
        perf.aux(THREAD, *cpu, 0, bytes.len() as u64, AUX_RAW | AUX_TRUNCATED);
        perf.buffer(None, *cpu, 0, bytes);
        perf.aux(THREAD, *cpu, bytes.len() as u64, 0, 0);
    }
    let file = perf.file();
    assert_eq!(juno.count(&file), (INSTRUCTIONS, 0));
    assert_eq!(
        perf::read(&file)
            .expect("a recording")
            .losses
            .truncated
            .times,
        streams.len() as u64
    );
}

#[test]
fn trace_of_which_the_buffer_is_not_there_is_counted() {
    let Some(juno) = Juno::open() else { return };
    let size = juno.buffer.len() as u64;
    let mut perf = juno.begin(1, false, false);
    perf.aux(THREAD, 0, 0, size, 0);
    perf.aux(THREAD, 0, 2 * size, 64, 0);
    perf.buffer(Some(THREAD), 0, 0, &juno.buffer);
    assert_eq!(juno.count(&perf.file()), (INSTRUCTIONS, 1));
}

/// The CPU of each trace in a recording, its buffer's name and its bytes.
fn traces(recording: &perf::Recording) -> Vec<(Option<u32>, &str, Vec<u8>)> {
    let traces = input::traces(&recording.buffers);
    let trace = |parts: &Vec<input::Part>| {
        let of = |part: &input::Part| &recording.buffers[part.buffer];
        let first = &parts[0];
        let bytes = parts
            .iter()
            .flat_map(|part| of(part).frames.streams[part.stream].bytes.to_vec());
        let buffer = of(first);
        (
            buffer.sources[first.source].cpu,
            buffer.owner(),
            bytes.collect(),
        )
    };
    traces.iter().map(trace).collect()
}

#[test]
fn a_thread_that_migrates_without_trace_ids_is_decoded_for_each_cpu() {
    let Some(juno) = Juno::open() else { return };
    let mut perf = PerfData::new(true);
    // Different units: context packets of the first one have a VMID and a context ID, those of the others don't.
    let mut units = juno.units(1);
    let plain = |unit: &mut Unit| {
        unit.registers[0] &= !0xc0;
        unit.registers[4] &= !(0x1f << 5 | 0x1f << 10);
    };
    units.iter_mut().skip(1).for_each(plain);
    perf.info(1, false, &units);
    // A synchronization, trace info, and a context with the bytes that the unit's registers announce.
    let start = [&[0; 11][..], &[0x80, 1, 0]].concat();
    let with_ids = [&start[..], &[0x81, 0xd0, 7, 0, 0, 0, 9, 0, 0, 0]].concat();
    let without = [&start[..], &[0x81, 0x10]].concat();
    let runs = [(0, &with_ids), (3, &without), (0, &with_ids)];
    // One run in the first buffer, and two in the second one, which begins on the other CPU.
    let mut offset = 0;
    for runs in [&runs[..1], &runs[1..]] {
        let begin = offset;
        let mut bytes = Vec::new();
        for (cpu, run) in runs {
            perf.start(THREAD, *cpu);
            perf.aux(THREAD, *cpu, offset, run.len() as u64, AUX_RAW);
            bytes.extend(*run);
            offset += run.len() as u64;
        }
        perf.buffer(Some(THREAD), 0, begin, &bytes);
    }
    let recording = perf::read(&perf.file()).expect("a recording");
    let owner = format!("thread{THREAD}");
    assert_eq!(
        traces(&recording),
        [
            (Some(0), &*owner, with_ids.repeat(2)),
            (Some(3), &*owner, without)
        ]
    );
    for buffer in &recording.buffers {
        for line in Listing::new(&buffer.sources, &buffer.frames.streams) {
            let mut text = String::new();
            line.write(&mut text).expect("a string");
            assert!(!text.contains("RESERVED"), "{text}");
        }
    }
}

#[test]
fn trace_ids_hold_for_a_sink() {
    let Some(juno) = Juno::open() else { return };
    // More units than trace IDs: two share one, and write into separate sinks.
    let id = TraceId(0x10);
    let runs: Vec<_> = [0, 1, 2].map(|cpu| vec![0x10 + cpu; 13]).into();
    let sinks = [0x1234_5678, 0x9abc_def0, 0x1234_5678];
    let ids = [id, id, TraceId(0x11)];
    for is_thread in [false, true] {
        let mut perf = juno.begin(1, true, false);
        for ((sink, id), cpu) in sinks.iter().zip(ids).zip(0..) {
            perf.hardware_id(cpu, 1 << 56 | sink << 8 | u64::from(id.0));
        }
        let mut all = Vec::new();
        for ((run, id), cpu) in runs.iter().zip(ids).zip(0..) {
            let bytes = framed(id, run);
            perf.aux(THREAD, cpu, all.len() as u64, bytes.len() as u64, 0);
            if !is_thread {
                perf.buffer(None, cpu, all.len() as u64, &bytes);
            }
            all.extend(bytes);
        }
        if is_thread {
            perf.buffer(Some(THREAD), 0, 0, &all);
        }
        let recording = perf::read(&perf.file()).expect("a recording");
        let mut found: Vec<_> = traces(&recording)
            .into_iter()
            .map(|(cpu, _, bytes)| (cpu, bytes))
            .collect();
        found.sort();
        let expected: Vec<_> = runs
            .iter()
            .zip(0..)
            .map(|(run, cpu)| (Some(cpu), run.clone()))
            .collect();
        assert_eq!(found, expected, "{is_thread}");
    }
    // A new major version changes the meaning of the bits.
    let mut perf = juno.begin(1, true, false);
    perf.hardware_id(0, 1 << 60 | 0x10);
    let error = perf::read(&perf.file()).expect_err("unknown").to_string();
    assert!(error.contains("version 1"), "{error}");
}

#[test]
fn trace_ids_hold_until_others_are_assigned() {
    let Some(juno) = Juno::open() else { return };
    // The unit of CPU 0 gets another ID, then the unit of CPU 1 gets the first ID of CPU 0.
    let assigned = [(0, 0x30), (0, 0x31), (1, 0x30)];
    for per_cpu in [false, true] {
        for is_timed in [false, true] {
            let mut perf = juno.begin(1, true, false);
            let (mut offset, mut all) = (0, Vec::new());
            for (number, (cpu, id)) in (1..).zip(assigned) {
                let time = 1_000_000 * number;
                if !is_timed {
                    perf.at(time).hardware_id(cpu, id);
                }
                let bytes = framed(TraceId(id as u8), &[number as u8; 13]);
                let size = bytes.len() as u64;
                perf.at(time + 500_000).aux(THREAD, 0, offset, size, 0);
                offset += size;
                all.extend(bytes);
            }
            // Another buffer of the kernel is first or last in the file: only times determine the order.
            if is_timed {
                for (number, (cpu, id)) in (1..).zip(assigned) {
                    perf.at(1_000_000 * number).hardware_id(cpu, id);
                }
            }
            let thread = (!per_cpu).then_some(THREAD);
            perf.buffer(thread, 0, 0, &all);
            let recording = perf::read(&perf.file()).expect("a recording");
            let mut found: Vec<_> = traces(&recording)
                .into_iter()
                .map(|(cpu, _, bytes)| (cpu, bytes.first().copied(), bytes.len()))
                .collect();
            found.sort_by_key(|(_, first, _)| *first);
            let expected = [
                (Some(0), Some(1), 13),
                (Some(0), Some(2), 13),
                (Some(1), Some(3), 13),
            ];
            assert_eq!(found, expected, "per cpu {per_cpu}, timed {is_timed}");
        }
    }
}

#[test]
fn files_that_lack_the_sections_behind_their_data_say_so() {
    let Some(juno) = Juno::open() else { return };
    let mut perf = juno.begin(1, false, false);
    perf.aux(THREAD, 0, 0, juno.buffer.len() as u64, 0);
    perf.buffer(Some(THREAD), 0, 0, &juno.buffer);
    let mut file = perf.file();
    let whole = file.len();
    // Build IDs and the release come before the index of buffers, in that order.
    let features = 1u64 << 2 | 1 << 4;
    file[72..80].copy_from_slice(&features.to_le_bytes());
    let data_end = whole - 40;
    file.truncate(data_end);
    for entry in [(whole, 0u64), (whole, 4)] {
        file.extend((data_end as u64 + 32).to_le_bytes());
        file.extend(entry.1.to_le_bytes());
    }
    file.extend([0; 4]);
    let cut = |length: usize| {
        let recording = perf::read(&file[..length]).expect("a recording");
        let remarks = remarks::of_recording(&recording, &[]);
        let printed = |it: &remarks::Remark| it.text.contains("build IDs of files");
        let remark = remarks.into_iter().find(printed);
        remark.map(|remark| (remark.is_damage, remark.text))
    };
    assert_eq!(cut(file.len()), None);
    for length in [data_end, data_end + 8, data_end + 31, file.len() - 1] {
        let (is_damage, text) = cut(length).expect("a remark");
        // The trace is complete.
        assert!(!is_damage, "{text}");
        let expected = format!("the file ends at offset {length}, before the sections");
        assert!(text.starts_with(&expected), "{text}");
    }
}

#[test]
fn what_threads_of_perf_wrote_is_read_beside_the_records() {
    let Some(juno) = Juno::open() else { return };
    let mut perf = juno.begin(1, true, false);
    perf.aux(THREAD, 0, 0, juno.buffer.len() as u64, 0);
    let main = perf.file();
    let mut of_thread = PerfData::new(true);
    of_thread.buffer(None, 0, 0, &juno.buffer);
    let (header, size) = (
        104 + 128 + 16 + 8,
        48 + juno.buffer.len().next_multiple_of(8),
    );
    let records = of_thread.file()[header..header + size].to_vec();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("perf.data");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("data"), &main).expect("records");
    std::fs::write(folder.join("data.0"), []).expect("records");
    std::fs::write(folder.join("data.10"), &records).expect("records");
    let bytes = |path: PathBuf| {
        let recording = perf::open(&path).expect("a recording");
        let streams = recording.buffers.iter().flat_map(|it| &it.frames.streams);
        streams.map(|stream| stream.bytes.len()).sum::<usize>()
    };
    let all: usize = juno.streams().iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(bytes(folder.clone()), all);
    assert_eq!(bytes(folder.join("data")), all);
}

#[test]
fn a_pipe_has_build_ids_and_the_release_in_records() {
    let Some(juno) = Juno::open() else { return };
    let id = [0xab; 20];
    let mut perf = juno.begin(1, false, false);
    perf.mapping(THREAD, 0x7000_0000, 0x1000, 0, "/other");
    perf.build_id("/other", &id);
    perf.build_id("/short", &id[..8]);
    // A string, after its length.
    perf.feature(4, &[&[8u8, 0, 0, 0][..], b"6.12.1\0\0"].concat());
    let recording = perf::read(&perf.pipe()).expect("a recording");
    let mut mappings = recording.mappings.iter();
    let other = mappings.find(|mapping| mapping.path == "/other");
    assert_eq!(other.expect("a mapping").build_id, id);
    assert_eq!(recording.release.as_deref(), Some("6.12.1"));
}

#[test]
fn trace_of_which_no_record_says_the_cpu_is_reported() {
    let Some(juno) = Juno::open() else { return };
    let streams = juno.streams();
    let (_, bytes) = streams
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .expect("a stream");
    for per_cpu in [false, true] {
        let mut perf = juno.begin(1, per_cpu, false);
        perf.aux(THREAD, 0, 0, bytes.len() as u64, AUX_RAW);
        perf.buffer(Some(THREAD), 0, 0, bytes);
        let recording = perf::read(&perf.file()).expect("a recording");
        assert_eq!(recording.without_cpu, u64::from(!per_cpu));
        let remarks = remarks::of_recording(&recording, &[]);
        let printed = |it: &remarks::Remark| {
            it.text
                .starts_with("1 buffer decoded as trace of the first")
        };
        assert_eq!(remarks.iter().any(printed), !per_cpu);
    }
}

/// Compresses plain records into compressed ones.
type Pack<'a> = &'a dyn Fn(&[u8]) -> Vec<Vec<u8>>;

/// A zstd frame without an end, split into records at its blocks, which are not compressed. perf's records span several
/// blocks.
fn stored(bytes: &[u8]) -> Vec<Vec<u8>> {
    let size = bytes.len().div_ceil(3).max(1);
    let mut begin = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x48];
    let block = |part: &[u8]| {
        let header = (part.len() as u32) << 3;
        [
            std::mem::take(&mut begin),
            header.to_le_bytes()[..3].to_vec(),
            part.to_vec(),
        ]
        .concat()
    };
    bytes.chunks(size).map(block).collect()
}

#[test]
fn records_beside_the_trace_may_be_compressed() {
    let Some(juno) = Juno::open() else { return };
    let whole = |bytes: &[u8]| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        vec![ruzstd::encoding::compress_to_vec(bytes, level)]
    };
    let make = |pack: Pack<'_>, is_padded| {
        let mut perf = juno.begin(2, true, false);
        perf.start(THREAD, 0);
        perf.aux(THREAD, 0, 0, juno.buffer.len() as u64, 0);
        perf.compress(is_padded, pack);
        perf.buffer(Some(THREAD), 0, 0, &juno.buffer);
        perf
    };
    for is_padded in [false, true] {
        let packs: [Pack<'_>; 2] = [&|bytes| stored(bytes), &whole];
        for pack in packs {
            let all = (INSTRUCTIONS, 0);
            assert_eq!(juno.count(&make(pack, is_padded).file()), all);
            assert_eq!(juno.count(&make(pack, is_padded).pipe()), all);
        }
    }
    // Another compression, or damaged data.
    let mut perf = juno.begin(2, true, false);
    perf.feature(27, &[1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0]);
    let error = perf::read(&perf.pipe()).expect_err("another type");
    assert!(error.to_string().contains("type 2"), "{error}");
    let perf = make(&|bytes| vec![bytes.to_vec()], false);
    let error = perf::read(&perf.file()).expect_err("no zstd").to_string();
    assert!(error.contains("zstd"), "{error}");
}
