//! Branches with an interrupt at their target before it executes, and profiles of addresses within a run.

use std::process::Command;

use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;

/// Address of the code, which has three instructions.
const HERE: u64 = 0x40_0000;

/// Runs a subcommand on a recording with this trace, and returns its stdout.
fn stdout(trace: &Trace, words: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let words_of_code = [0xd503_201fu32, 0xd503_201f, 0xd65f_03c0];
    let code = words_of_code.iter().flat_map(|word| word.to_le_bytes());
    std::fs::write(folder.path().join("three"), code.collect::<Vec<_>>()).expect("code");
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let size = trace.bytes.len() as u64;
    perf.at(9000).aux(0, 0, 0, size, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, perf.file()).expect("a recording");
    let (subcommand, options) = words.split_first().expect("a subcommand");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.arg(subcommand).arg(&input);
    command.arg("--symfs").arg(folder.path()).args(options);
    let output = command.output().expect("kymo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Creates a trace that runs the code once and returns to its begin, where an interrupt occurs before any instruction.
fn interrupted() -> Trace {
    let mut trace = Trace::new(true).run(1, HERE);
    let address = |trace: &mut Trace| {
        let mut long = HERE.to_le_bytes();
        (long[0], long[1]) = ((HERE >> 2 & 0x7f) as u8, (HERE >> 9 & 0x7f) as u8);
        trace.bytes.push(0x9d);
        trace.bytes.extend(long);
    };
    // The target of the return; then an IRQ, whose address is not the target of a branch.
    address(&mut trace);
    trace.bytes.extend([0x06, 0x1d]);
    address(&mut trace);
    trace
}

#[test]
fn a_branch_to_where_an_interrupt_comes_is_there() {
    let trace = interrupted();
    let listed = stdout(&trace, &["branches", "--format", "json"]);
    let branches: Vec<(Option<u64>, Option<u64>)> = listed
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            (line["from"].as_u64(), line["to"].as_u64())
        })
        .collect();
    let branch = (Some(HERE + 8), Some(HERE));
    assert!(branches.contains(&branch), "{listed}");
    let profile = stdout(&trace, &["export", "--to", "autofdo", "-o", "-"]);
    assert!(profile.contains("8->0:1"), "{profile}");
    assert!(!profile.contains("8->0:2"), "{profile}");
}

#[test]
fn a_profile_of_addresses_has_no_others() {
    let trace = Trace::new(true).run(1, HERE).run(1, HERE);
    let profile = |addresses: &str| {
        let words = ["export", "--to", "autofdo", "-o", "-", "--address"];
        stdout(&trace, &[&words[..], &[addresses]].concat())
    };
    let all = profile("0x400000..0x40000c");
    assert!(all.starts_with("1\n0-8:2\n"), "{all}");
    let middle = profile("0x400004..0x400008");
    assert!(middle.starts_with("1\n4-4:2\n0\n0\n"), "{middle}");
    let end = profile("0x400004..0x40000c");
    assert!(end.starts_with("1\n4-8:2\n"), "{end}");
}
