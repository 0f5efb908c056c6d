//! Line-by-line comparison of packets with the reference tool.

use std::collections::BTreeMap;
use std::ops::Range;

use kymo_coresight::Source;
use kymo_coresight::frames::{self, TraceId};
use kymo_coresight::listing::{Entry, Line, Listing, Value};
use kymo_coresight::snapshot::Snapshot;

use crate::data;

/// The listing of a range of a snapshot's buffers, one buffer after the other.
fn listing(name: &str, buffers: Range<usize>) -> Option<String> {
    let folder = data::folder()?;
    let snapshot = Snapshot::open(&folder.join("snapshots").join(name)).expect("a snapshot");
    let mut text = String::new();
    for buffer in &snapshot.buffers[buffers] {
        let sources = Source::of_buffer(&snapshot, buffer);
        let bytes = snapshot.read_buffer(buffer).expect("a buffer");
        let frames = frames::split(&bytes, buffer.format, TraceId::NONE);
        for entry in Listing::new(&sources, &frames.streams) {
            let start = text.len();
            entry.write(&mut text).expect("text");
            if let Line::Packet(entry) = &entry {
                values_are_all(entry, &text[start..]);
            }
            text.push('\n');
        }
    }
    Some(text)
}

/// Checks that every number in a packet's text, and the original kind of an invalid packet, are also available as a
/// named value.
fn values_are_all(entry: &Entry<'_>, line: &str) {
    let (_, text) = line.split_once('\t').expect("a text");
    let (_, text) = text.split_once(':').expect("a name");
    let values = entry.packet.values(&entry.source.protocol);
    let numbers: Vec<u64> = values
        .iter()
        .filter_map(|(_, value)| match value {
            Value::Number(value) | Value::Bits(value) => Some(*value),
            Value::Signed(value) => u64::try_from(*value).ok(),
            Value::Flag(_) | Value::Text(_) => None,
        })
        .collect();
    for part in text.split("0x").skip(1) {
        // The packet's low bits (~[0x12]) and the meaning of a DWT value are parts of another number.
        let digits = part.split(|letter: char| !letter.is_ascii_hexdigit());
        let Some(Ok(number)) = digits.map(|text| u64::from_str_radix(text, 16)).next() else {
            continue;
        };
        let is_part = |mask: u64| numbers.iter().any(|value| value & mask == number);
        let mask = (number + 1).checked_next_power_of_two().unwrap_or(0);
        let is_there = is_part(u64::MAX) || is_part(0x1ff) || is_part(mask.wrapping_sub(1));
        assert!(is_there, "{number:#x} in {line}: {values:?}");
    }
    if let Some(began_as) = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit('[').next())
        && began_as.contains('_')
    {
        assert!(
            values.iter().any(|(name, _)| *name == "began_as"),
            "{line}: {values:?}"
        );
    }
}

fn compare(name: &str, golden: &str, buffers: Range<usize>) {
    let Some(ours) = listing(name, buffers) else {
        return;
    };
    let folder = data::folder().expect("it was there");
    let theirs = data::golden(&folder, golden);
    let gave_up = theirs.contains("Data Path fatal error");
    let theirs = by_id(data::packet_lines(&theirs));
    let ours = by_id(ours.lines().collect());
    for (id, theirs) in &theirs {
        let ours = ours.get(id).map(Vec::as_slice).unwrap_or_default();
        for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            if !is_later_unsynced(ours, theirs) && !is_other_by_design(ours, theirs) {
                assert_eq!(ours.trim_end(), theirs.trim_end(), "{golden}: line {index}");
            }
        }
        // Our decoder continues where the reference stops (data trace of an ETMv3, bytes outside of frames).
        if !gave_up {
            let last = (ours.last(), theirs.last());
            assert_eq!(ours.len(), theirs.len(), "{golden}: {last:?}");
        }
    }
    if !gave_up {
        assert_eq!(ours.len(), theirs.len(), "{golden}: trace IDs");
    }
}

/// Lines by trace ID. Each source is compared separately: the reference prints unsynchronized bytes of one source
/// between packets of another at positions that depend on how it collects them.
fn by_id(lines: Vec<&str>) -> BTreeMap<&str, Vec<&str>> {
    let mut sources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // For the other protocols, the sizes of unsynchronized pieces depend on the chunks that the reference reads. For an
    // STM these bytes are stale memory.
    for line in lines.into_iter().filter(|line| !line.contains("NOTSYNC")) {
        let id = line.split(';').nth(1).expect("a line has an ID");
        sources.entry(id).or_default().push(line);
    }
    sources
}

/// Whether the lines differ only in the offset of bytes after unsynchronized ones. The reference uses the position
/// after the last unsynchronized byte, even if that is a frame's last byte or a synchronization of the port, which no
/// source wrote. We use the first byte itself.
fn is_later_unsynced(ours: &str, theirs: &str) -> bool {
    let split = |line: &str| -> Option<(u64, String)> {
        let (offset, rest) = line.strip_prefix("Idx:")?.split_once(';')?;
        Some((offset.parse().ok()?, rest.to_owned()))
    };
    let (Some((our_offset, ours)), Some((their_offset, theirs))) = (split(ours), split(theirs))
    else {
        return false;
    };
    ours == theirs && ours.contains("NOT_SYNC") && their_offset < our_offset
}

/// Whether the lines differ on purpose.
fn is_other_by_design(ours: &str, theirs: &str) -> bool {
    let text = |line: &str| line.split_once('\t').map(|(_, text)| text.to_owned());
    // The first synchronization of an STM: the reference invents its bytes, and numbers it differently from later ones.
    let is_stm_sync = theirs.contains("ASYNC:Alignment") && text(ours) == text(theirs);
    // Bytes cut off by the end: the reference lists those of an ETMv3 as a complete packet.
    let is_cut = ours.contains("INCOMPLETE_EOT. ");
    // The reference clears two bits of a global timestamp before it prints the bytes.
    let is_global_timestamp = theirs.contains("ITM_GTS_1") && text(ours) == text(theirs);
    is_stm_sync || is_cut || is_global_timestamp
}

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] fn $test() { compare($name, concat!($name, ".dec"), 0..1); })*
    };
}

equal! {
    tc2: "TC2";
    tc2_ptm_rstk_t32: "tc2-ptm-rstk-t32";
    r5f_freertos: "r5f-freertos";
    r5f_zephyr: "r5f-zephyr";
    stm_only: "stm_only";
    stm_only_juno: "stm_only-juno";
    stm_issue_27: "stm-issue-27";
    itm_only_raw: "itm_only_raw";
    ack_test: "001-ack_test";
    a55_test_tpiu: "a55-test-tpiu";
    a57_single_step: "a57_single_step";
    bugfix_exact_match_head: "bugfix-exact-match-head";
    ete_bc_instr: "ete-bc-instr";
    ete_ite_instr: "ete-ite-instr";
    ete_wfet: "ete-wfet";
    ete_ip: "ete_ip";
    ete_spec_1: "ete_spec_1";
    ete_spec_3: "ete_spec_3";
    event_test: "event_test";
    infrastructure: "infrastructure";
    init_short_addr: "init-short-addr";
    juno_uname_002: "juno-uname-002";
    juno_uname_002_tpiu: "juno-uname-002-tpiu";
    juno_r1_1: "juno_r1_1";
    maxspec78_commopt0: "maxspec78_commopt0";
    pauth_lr: "pauth_lr";
    q_elem: "q_elem";
    ricsec_branches_1: "ricsec-branches-1";
    ricsec_fib_1: "ricsec-fib-1";
    rme_test: "rme_test";
    src_addr: "src_addr";
    ss_ib_el1ns: "ss_ib_el1ns";
    test_file_mem_offsets: "test-file-mem-offsets";
    texit_poe2: "texit-poe2";
    tme_simple: "tme_simple";
    tme_tcancel: "tme_tcancel";
    trace_file_cid_vmid: "trace_file_cid_vmid";
    ts_bit64_set: "ts_bit64_set";
}

#[test]
fn second_buffers() {
    compare("infrastructure", "infrastructure.dec.src2", 1..2);
    compare("juno_r1_1", "juno_r1_1.dec.src2", 1..2);
}

/// Buffers that the reference reads as sessions of one source, one after the other.
#[test]
fn sessions() {
    for (name, buffers) in data::SESSIONS {
        compare(name, &format!("{name}.dec.multi"), 0..buffers);
    }
}
