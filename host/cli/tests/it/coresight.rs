//! Hardware trace on the command line, against what perf prints of the same files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_fixtures::captures;

fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().expect("kymo runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = kymo(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// What a subcommand prints of a perf.data file of the captures.
fn of_perf(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let symfs = folder.join("perf/symfs").display().to_string();
    let input = folder.join(format!("perf/{name}.perf.data"));
    let input = input.display().to_string();
    let (subcommand, rest) = arguments.split_first().expect("a subcommand");
    stdout(&[&[*subcommand, "--symfs", &symfs, &input], rest].concat())
}

/// What perf printed of it.
fn golden(folder: &Path, name: &str, what: &str) -> String {
    unpack(&folder.join(format!("perf/golden/{name}.{what}.txt.zst")))
}

fn unpack(path: &PathBuf) -> String {
    let file = std::fs::File::open(path).expect("the golden is there");
    let file = std::io::BufReader::new(file);
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("zstd");
    let mut text = String::new();
    decoder.read_to_string(&mut text).expect("text");
    text
}

/// The addresses of a branch in a line of perf's or ours: in front of `=>`, behind names in parentheses, and behind it.
fn branch(line: &str) -> (u64, u64) {
    let (from, to) = line.split_once("=>").expect("a branch");
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    // The last word that is an address: names follow it.
    let words = from.split_whitespace().rev();
    let from = words
        .filter(|word| !word.starts_with('('))
        .find_map(address);
    let to = to.split_whitespace().next().and_then(address);
    (from.expect("an address"), to.expect("an address"))
}

/// Branches equal perf's, and so do single instructions: captures of one source, for perf reads all sources of a thread
/// as one.
fn compare(name: &str) {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let ours = of_perf(&folder, name, &["branches"]);
    let theirs = golden(&folder, name, "script-b");
    for (index, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        let (is, should) = (branch(ours), branch(theirs));
        // An exception before any instruction: perf does not say where, the trace does.
        let is_known_better = ours.contains("] exception") && should.0 == 0;
        if !(is_known_better && is.1 == should.1) {
            assert_eq!(is, should, "{name}: line {index}\n{ours}\n{theirs}");
        }
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{name}");

    let address = |line: &str| {
        let words = line.split_whitespace().filter(|word| word.len() > 3);
        let mut found = words.filter_map(|word| u64::from_str_radix(word, 16).ok());
        found.next_back().expect("an address")
    };
    let theirs = golden(&folder, name, "script-i1i");
    let theirs: Vec<u64> = theirs.lines().map(address).collect();
    for every in [1, 7] {
        let ours = of_perf(&folder, name, &["branches", "--every", &every.to_string()]);
        let ours: Vec<u64> = ours
            .lines()
            .map(|line| address(line.split('(').next().expect("a part")))
            .collect();
        let expected: Vec<u64> = theirs
            .iter()
            .copied()
            .skip(every - 1)
            .step_by(every)
            .collect();
        assert!(ours == expected, "{name}: every {every}");
    }
}

#[test]
fn branches_and_instructions_are_those_of_perf() {
    for name in [
        "ricsec-fib-1",
        "ricsec-branches-1",
        "ete-001-raw",
        "etmv3-r5f-freertos",
        "aosp-perf_etm",
        "aosp-perf_with_unformatted_trace",
    ] {
        compare(name);
    }
}

/// Shares of command, file and function are those of `perf report`, line by line.
#[test]
fn hot_spots_are_those_of_perf() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    for name in ["ricsec-fib-1", "aosp-perf_etm", "cc1-head", "ete-001-raw"] {
        let mut expected = Vec::new();
        for line in golden(&folder, name, "report-i1i").lines() {
            let mut words = line.split_whitespace();
            let (Some(share), Some(command), Some(file)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(share) = share.strip_suffix('%').filter(|_| words.next().is_some()) else {
                continue;
            };
            let function = words.collect::<Vec<_>>().join(" ");
            // Address 0 is printed without its 0x.
            let digits = function.strip_prefix("0x");
            let digits = digits.or(function.strip_prefix("00000000"));
            let hex = digits.map(|digits| u64::from_str_radix(digits, 16));
            let function = match hex {
                Some(Ok(address)) => format!("{address:#x}"),
                _ => function,
            };
            expected.push(format!("{share} {command} {file} {function}"));
        }
        let ours = of_perf(&folder, name, &["hotspots", "--sort", "comm,dso,sym"]);
        let mut found: Vec<String> = ours
            .lines()
            .skip(1)
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                format!(
                    "{} {}",
                    words[0],
                    [&words[4..6], &[&*words[6..].join(" ")]].concat().join(" ")
                )
            })
            .collect();
        // perf has names for the entries of the linkage table, which no symbol has: we say their addresses.
        let count = expected.len();
        expected.retain(|row| !row.ends_with("@plt"));
        if expected.len() < count {
            found.retain(|row| expected.contains(row) || !row.contains(" 0x"));
        }
        found.sort();
        expected.sort();
        let differs = found
            .iter()
            .zip(&expected)
            .find(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{name}");
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}
