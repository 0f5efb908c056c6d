//! Packets, line by line against the reference tool.

use std::collections::BTreeMap;

use kymo_coresight::frames::{self, TraceId};
use kymo_coresight::snapshot::Snapshot;
use kymo_coresight::{Source, listing};

use crate::data;

/// The listing of one of a snapshot's buffers, the first by default.
fn listing(name: &str, buffer: usize) -> Option<String> {
    let folder = data::folder()?;
    let snapshot = Snapshot::open(&folder.join("snapshots").join(name)).expect("a snapshot");
    let buffer = &snapshot.buffers[buffer];
    let sources = Source::of_buffer(&snapshot, buffer);
    let bytes = snapshot.read_buffer(buffer).expect("a buffer");
    let frames = frames::split(&bytes, buffer.format, TraceId::NONE);
    let mut text = String::new();
    listing::packets(&sources, &frames.streams, &mut text).expect("text");
    Some(text)
}

fn compare(name: &str, golden: &str, buffer: usize) {
    let Some(ours) = listing(name, buffer) else {
        return;
    };
    let folder = data::folder().expect("it was there");
    let theirs = data::golden(&folder, golden);
    let theirs = by_id(data::packet_lines(&theirs));
    let ours = by_id(ours.lines().collect());
    for (id, theirs) in &theirs {
        let ours = ours.get(id).map(Vec::as_slice).unwrap_or_default();
        for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            if !is_later_unsynced(ours, theirs) {
                assert_eq!(ours.trim_end(), theirs.trim_end(), "{golden}: line {index}");
            }
        }
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{golden}: ours {:?}, theirs {:?}",
            ours.last(),
            theirs.last()
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{golden}: trace IDs");
}

/// Lines by trace ID. Each source is compared for itself: when the reference prints unsynchronized bytes of one between
/// the packets of another depends on how it collects them.
fn by_id(lines: Vec<&str>) -> BTreeMap<&str, Vec<&str>> {
    let mut sources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in lines {
        let id = line.split(';').nth(1).expect("a line has an ID");
        sources.entry(id).or_default().push(line);
    }
    sources
}

/// The reference numbers what follows unsynchronized bytes from the position behind the last one, even where that is a
/// frame's last byte or a synchronization of the port, which no source wrote. We name the first byte itself.
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

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] fn $test() { compare($name, concat!($name, ".dec"), 0); })*
    };
}

equal! {
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
