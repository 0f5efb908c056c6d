//! Packets of a Cortex-M's DWT in an ITM's stream: prohibited samples, packets of Armv8-M, and global timestamps.

use std::process::{Command, Output};

fn kymo(arguments: &[&str]) -> Output {
    let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
    kymo.args(arguments).output().expect("kymo runs")
}

/// Runs a subcommand on an ITM's buffer, and returns both outputs.
fn printed(arguments: &[&str], bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let synchronized = [&[0, 0, 0, 0, 0, 0x80], bytes].concat();
    let input = folder.path().join("itm.bin");
    std::fs::write(&input, synchronized).expect("a buffer");
    let input = input.display().to_string();
    let raw = [
        "--trace-frames",
        "none",
        "--trace-source",
        "ITM,id=1",
        &input,
    ];
    let output = kymo(&[arguments, &raw].concat());
    let both = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A local timestamp: 64 ticks after the last one.
const LATER: [u8; 2] = [0xc0, 0x40];

/// Entry to and exit from an exception (SysTick).
const ENTRY: [u8; 3] = [0x0e, 15, 0x10];
const EXIT: [u8; 3] = [0x0e, 15, 0x20];

/// Encodes a global timestamp of 26 bits.
fn global(value: u32) -> [u8; 5] {
    let part = |shift: u32| (value >> shift & 0x7f) as u8;
    let last = part(21) & 0x1f;
    [0x94, part(0) | 0x80, part(7) | 0x80, part(14) | 0x80, last]
}

#[test]
fn samples_that_a_core_does_not_allow_are_no_sleep() {
    let sample = [0x17, 0, 0x80, 0, 0];
    let bytes = [
        &sample[..],
        &LATER,
        &[0x15, 0xff],
        &LATER,
        &[0x15, 0],
        &LATER,
    ]
    .concat();
    let rows = printed(&["report", "--samples"], &bytes);
    for row in ["33.33 %", "(prohibited)", "(sleeping)", "0x8000"] {
        assert!(rows.contains(row), "{row}: {rows}");
    }
}

#[test]
fn packets_of_armv8_m_have_their_names() {
    // Comparator 1 matched; counters 0 and 2 of the performance monitors wrapped around.
    let bytes = [&[0x55, 1][..], &LATER, &[0x1d, 5], &LATER].concat();
    let events = printed(&["show", "--events"], &bytes);
    assert!(events.contains("data_match: comparator = 1"), "{events}");
    assert!(events.contains("pmu_overflow: counters = 5"), "{events}");
}

#[test]
fn global_timestamps_are_times_where_there_are_no_others() {
    let bytes = [
        &global(1000)[..],
        &ENTRY,
        &global(1050),
        &EXIT,
        &global(1100),
    ];
    let bytes = bytes.concat();
    let shown = printed(&["show"], &bytes);
    assert!(shown.contains("1100          50?"), "{shown}");
    // Entry and exit are each between two timestamps.
    assert!(!shown.contains("no timestamps"), "{shown}");
    let upper = [0xb4, 0x81, 0x80, 0x80, 0];
    let bytes = [
        &global(7)[..],
        &upper,
        &ENTRY,
        &global(9),
        &EXIT,
        &global(20),
    ]
    .concat();
    let info = printed(&["info"], &bytes);
    // The packet with the upper bits follows the one with the lower bits.
    assert!(info.contains("span       13 ticks"), "{info}");
}

#[test]
fn an_itm_without_timestamps_says_no_durations() {
    let bytes = [ENTRY, EXIT].concat();
    let report = printed(&["report"], &bytes);
    assert!(report.contains("an ITM sends no timestamps"), "{report}");
    assert!(report.contains("0?"), "{report}");
    // Text has no duration, so missing timestamps do not matter.
    let text = printed(&["show", "--events"], &[0x01, b'a', 0x01, b'\n']);
    assert!(!text.contains("no timestamps"), "{text}");
}

#[test]
fn processes_of_a_trace_without_any_are_refused_alike() {
    let bytes = [&ENTRY[..], &LATER, &EXIT, &LATER].concat();
    for subcommand in ["packets", "ranges", "report", "show"] {
        let refused = printed(&[subcommand, "--process", "x"], &bytes);
        let expected = "--process: the trace does not tell processes";
        assert!(refused.contains(expected), "{subcommand}: {refused}");
    }
}
