//! Comparison of the instructions in perf.data files with perf's own counts.

use std::path::{Path, PathBuf};

use kymo_coresight::element::{Element, Range};
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::input::Buffer;
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::perf::{self, Files, Mapping, Recording};
use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;

use crate::data;

/// The file of a mapping, below the folder of binaries.
fn file(folder: &Path, mapping: &Mapping) -> Option<Vec<u8>> {
    let path = PathBuf::from(mapping.path.trim_start_matches('/'));
    std::fs::read(folder.join("perf/symfs").join(path)).ok()
}

/// Gives a recording the binaries of the folder.
fn load(recording: &mut Recording, folder: &Path) {
    let mut files = Files::below(vec![folder.join("perf/symfs")]);
    recording.load(|mapping| files.images(mapping));
}

/// All ranges.
fn ranges(buffer: &Buffer) -> Vec<Range> {
    let listing = Listing::decoding(
        &buffer.sources,
        &buffer.frames.streams,
        &buffer.code,
        EtmV4Options::default(),
    );
    listing
        .filter_map(|line| match line {
            Line::Element {
                element: Element::Range(range),
                ..
            } => Some(range),
            _ => None,
        })
        .collect()
}

/// Instructions of all ranges.
fn instructions(buffer: &Buffer) -> u64 {
    let ranges = ranges(buffer);
    ranges.iter().map(|range| u64::from(range.count)).sum()
}

fn count(name: &str) -> Option<u64> {
    let folder = data::folder()?;
    let path = folder.join("perf").join(format!("{name}.perf.data"));
    let mut recording = perf::open(&path).expect("a recording");
    load(&mut recording, &folder);
    Some(recording.buffers.iter().map(instructions).sum())
}

fn check(name: &str, expected: u64) {
    if let Some(found) = count(name) {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn simpleperf_formatted_with_and_without_an_index() {
    check("aosp-perf_etm", 944);
    check("aosp-perf_etm.fixed", 944);
}

#[test]
fn simpleperf_unformatted() {
    check("aosp-perf_with_unformatted_trace", 944);
    check("aosp-perf_with_unformatted_trace.fixed", 944);
}

#[test]
fn both_versions_of_metadata() {
    check("juno-uname-002-v0", 31_566);
    check("juno-uname-002-v1", 31_566);
}

#[test]
fn one_thread_of_each_protocol() {
    check("ricsec-fib-1", 77_438);
    check("ricsec-branches-1", 74_912);
    check("ete-001-raw", 90_654);
    // perf prints 232,205, with one that is cancelled (see `elements::is_wrong`).
    check("etmv3-r5f-freertos", 232_204);
    // perf prints 59,238: it does not give the decoder the registers that report a return stack.
    check("ptm-tc2-raw", 192_073);
}

#[test]
fn a_module_without_symbols_of_the_kernel() {
    // The module's text is a page after its start, where the space for veneers ends. perf counts 1,648 instructions: it
    // does not follow calls, which are not relocated in the file, and decodes all of the file's bytes.
    let Some(folder) = data::folder() else { return };
    let path = folder.join("perf/aosp-perf_kernel.perf.data");
    let mut recording = perf::open(&path).expect("a recording");
    load(&mut recording, &folder);
    let ranges: Vec<_> = recording.buffers.iter().flat_map(ranges).collect();
    let text = 0xffff_ff99_f589_7000..0xffff_ff99_f589_72fc;
    assert!(!ranges.is_empty());
    for range in &ranges {
        assert!(
            text.contains(&range.start) && range.end <= text.end,
            "{range:x?}"
        );
        assert!(!range.has_no_opcode, "{range:x?}");
    }
    assert_eq!(ranges[0].start, text.start);
}

#[test]
fn many_cpus() {
    check("cc1-head", 4_851_250);
}

#[test]
fn the_newest_metadata_has_the_same_layout() {
    let Some(folder) = data::folder() else { return };
    let path = folder.join("perf/juno-uname-002-v1.perf.data");
    let mut bytes = std::fs::read(path).expect("a recording");
    // AUXTRACE_INFO: its type, the type of CoreSight, and the version.
    let version = [3u8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let at = bytes
        .windows(16)
        .position(|window| window == version)
        .expect("metadata");
    bytes[at + 8] = 2;
    let mut recording = perf::read(&bytes).expect("a recording");
    load(&mut recording, &folder);
    assert_eq!(
        recording.buffers.iter().map(instructions).sum::<u64>(),
        31_566
    );
    // The error for Intel PT contains its name.
    bytes[at] = 1;
    let error = perf::read(&bytes).expect_err("no CoreSight").to_string();
    assert!(error.contains("Intel PT"), "{error}");
}

#[test]
fn build_ids_beside_the_records() {
    let Some(folder) = data::folder() else { return };
    let recording = perf::open(&folder.join("perf/ricsec-fib-1.perf.data")).expect("a recording");
    let mapping = recording
        .mappings
        .iter()
        .find(|mapping| mapping.path.ends_with("/fib"));
    let file = file(&folder, mapping.expect("a mapping")).expect("a file");
    let id = kymo_coresight::memory::build_id(&file).expect("a build ID");
    assert_eq!(mapping.map(|mapping| &mapping.build_id), Some(&id));
}

#[test]
fn timestamps_become_nanoseconds_where_the_counter_is_the_kernel_s() {
    let Some(folder) = data::folder() else { return };
    let path = folder.join("perf/ete-001-raw.perf.data");
    let plain = std::fs::read(path).expect("a recording");
    // A record is added at the end of the data, whose size is at offset 48 in the header.
    let number = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
    };
    let end = number(&plain, 40) + number(&plain, 48);
    let mut record = vec![79, 0, 0, 0, 0, 0, 32, 0];
    for field in [4u64, 1 << 5, 1000] {
        record.extend(field.to_le_bytes());
    }
    let mut bytes = plain.clone();
    bytes.splice(end..end, record);
    let size = (number(&plain, 48) + 32) as u64;
    bytes[48..56].copy_from_slice(&size.to_le_bytes());
    // The trace unit does not report that its timestamps are from that counter.
    assert_eq!(perf::read(&bytes).expect("a recording").conversion, None);
    // ETE's metadata: magic, CPU, 8 or 9 parameters; the ninth is the source of timestamps.
    let magic = [0x50u8; 8];
    let at = bytes.windows(8).position(|found| found == magic).unwrap();
    let parameters = number(&bytes, at + 16);
    let behind = at + 24 + 8 * parameters;
    if parameters == 8 {
        bytes.splice(behind..behind, 1u64.to_le_bytes());
        bytes[at + 16] = 9;
        // AUXTRACE_INFO and the data become 8 bytes longer.
        let info = at - 40;
        let longer = u16::from_le_bytes([bytes[info + 6], bytes[info + 7]]) + 8;
        bytes[info + 6..info + 8].copy_from_slice(&longer.to_le_bytes());
        bytes[48..56].copy_from_slice(&(size + 8).to_le_bytes());
    } else {
        bytes[behind - 8..behind].copy_from_slice(&1u64.to_le_bytes());
    }
    let conversion = perf::read(&bytes).expect("a recording").conversion;
    assert_eq!(conversion.map(|it| it.nanoseconds(100)), Some(1200));
}

#[test]
fn a_record_that_begins_within_a_synchronization_continues_the_one_before() {
    let first = Trace::new(true).run(1, 0x40_0000).bytes;
    let second = Trace::new(true).run(1, 0x40_0000).bytes;
    let whole = [&first[..], &second].concat();
    for cut in 0..=12 {
        let mut perf = recording(true, |_| {});
        let border = (first.len() + cut) as u64;
        perf.at(9000).aux(0, 0, 0, border, AUX_RAW);
        let rest = whole.len() as u64 - border;
        perf.at(9100).aux(0, 0, border, rest, AUX_RAW);
        perf.buffer(None, 0, 0, &whole);
        let recording = perf::read(&perf.file()).expect("a recording");
        let stream = &recording.buffers[0].frames.streams[0];
        let starts: Vec<_> = stream.segments().map(|segment| segment.start).collect();
        // Only a whole synchronization is where the trace unit may have been restarted.
        let expected = match cut {
            0 => vec![0, first.len()],
            _ => vec![0],
        };
        assert_eq!(starts, expected, "cut {cut}");
    }
}
