//! JSON of hardware trace: packets, elements and instructions have the same members in all subcommands.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;

/// Runs a subcommand on a snapshot, and returns the lines of stdout. Any exit code is accepted, because some captures
/// are damaged.
fn lines(folder: &Path, words: &[&str], name: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(words).args(["--format", "json"]);
    command.arg(folder.join("snapshots").join(name));
    let output = command.output().expect("kymo runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

fn kind(line: &str) -> &str {
    let rest = line.strip_prefix("{\"type\":\"").expect("a type first");
    rest.split('"').next().expect("a type")
}

/// Parses the numeric member `name` of a line.
fn number(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).expect("a member");
    let end = rest.find([',', '}']).expect("an end");
    rest[..end].parse().expect("a number")
}

#[test]
fn an_element_is_the_same_object_in_all_subcommands() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    // ETMv4, ETE without frames and with instrumentation, PTM, ETMv3, STM, ITM; wrong packets.
    for name in [
        "a57_single_step",
        "ete-ite-instr",
        "tc2-ptm-rstk-t32",
        "r5f-zephyr",
        "stm_only-juno",
        "itm_only_raw",
    ] {
        let ranges = lines(&folder, &["ranges"], name);
        assert!(!ranges.is_empty(), "{name}");
        let packets = lines(&folder, &["packets", "--decode"], name);
        let elements = packets.iter().filter(|line| kind(line) != "packet");
        assert!(elements.eq(&ranges), "{name}: elements of packets");

        let disasm = lines(&folder, &["disasm"], name);
        let known: BTreeSet<&String> = ranges.iter().collect();
        let is_instruction = |line: &&String| kind(line) == "instruction";
        for gap in disasm.iter().filter(|line| !is_instruction(line)) {
            assert!(known.contains(gap), "{name}: {gap}");
        }
        let of_ranges = ranges.iter().filter(|line| kind(line) == "range");
        let instructions: u64 = of_ranges.map(|line| number(line, "instructions")).sum();
        let listed: Vec<_> = disasm.iter().filter(is_instruction).collect();
        assert_eq!(listed.len() as u64, instructions, "{name}");
        let places = |line: &&String| (number(line, "trace_id"), number(line, "offset"));
        let listed: BTreeSet<_> = listed.iter().copied().map(|line| places(&line)).collect();
        let of_ranges = ranges.iter().filter(|line| kind(line) == "range");
        let expected: BTreeSet<_> = of_ranges.map(|line| places(&line)).collect();
        assert_eq!(listed, expected, "{name}: places of instructions");
    }
}
