//! Comparison of every captured trace.dat with the output of trace-cmd 3.1.6.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use kymo_fixtures::captures;
use kymo_ftrace::{Records, Report, Style, Trace};

/// Captures: folder and name.
const CAPTURES: [(&str, &str); 6] = [
    ("amd64", "dat/events-mono"),
    ("amd64", "dat/function-v7"),
    ("amd64", "dat/fg-sched-v7"),
    ("amd64", "dat/fg-sched-v6"),
    ("arm64", "fg-v6"),
    ("arm64", "fg-v7"),
];

/// Returns the captures in a folder.
fn captures(folder: &Path) -> Vec<(&'static str, &'static str)> {
    let is_there = |(machine, name): &(&str, &str)| {
        captures::has(&folder.join(format!("{machine}/{name}.dat")))
    };
    let found: Vec<_> = CAPTURES.into_iter().filter(is_there).collect();
    assert!(found.len() == CAPTURES.len() || found == [("arm64", "fg-v6")]);
    found
}

#[test]
fn a_capture_of_which_the_end_is_missing_is_read_up_to_there() {
    let folder = captures::some_ftrace();
    for (machine, name) in captures(&folder) {
        let Some(file) = captures::unpacked(&folder.join(format!("{machine}/{name}.dat"))) else {
            return;
        };
        let records = |file: &[u8]| {
            let trace = Trace::parse(file).unwrap();
            let (mut count, mut damage) = (0u64, trace.damage.len());
            let mut records = Records::new(&trace, file);
            while let Some((_, step)) = records.next(&trace, file) {
                match step {
                    kymo_ftrace::Step::Record(_) => count += 1,
                    kymo_ftrace::Step::Damage(..) => damage += 1,
                    kymo_ftrace::Step::Lost(_) => {}
                }
            }
            (count, damage)
        };
        let (whole, none) = records(&file);
        let left = |bytes: usize| records(&file[..file.len() - bytes]);
        // Version 7 has the locations of its events at the end.
        let (read, some) = left(150);
        assert!(read * 100 >= whole * 99, "{name}: {read} of {whole}");
        // A truncated compressed chunk is lost as a whole.
        if whole > 20_000 {
            let (read, _) = left(file.len() / 100);
            assert!(read * 10 > whole * 8, "{name}: {read} of {whole}");
        }
        // The end of a page may be empty.
        assert!(none == 0 && (some > 0 || name.ends_with("v6")), "{name}");
    }
}

/// Line count and checksum of each complete output of trace-cmd.
fn sums(folder: &Path) -> HashMap<String, (usize, String)> {
    let text = std::fs::read_to_string(folder.join("golden/SUMS")).unwrap();
    let sum = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let lines = words.next()?.strip_prefix("lines=")?.parse().ok()?;
        Some((
            name,
            (lines, words.next()?.strip_prefix("sha256=")?.to_owned()),
        ))
    };
    text.lines().filter_map(sum).collect()
}

fn sha256(text: &str) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout)[..64].to_owned()
}

/// Returns trace-cmd's output, or its first lines.
fn golden(folder: &Path, name: &str) -> Option<String> {
    let whole = folder.join("golden").join(name);
    let packed = format!("{}.xz", whole.display());
    let path = match whole.is_file() || Path::new(&packed).is_file() {
        true => whole,
        false => folder.join(format!("golden/{name}.head20000")),
    };
    Some(String::from_utf8_lossy(&captures::unpacked(&path)?).into_owned())
}

fn report(trace: &Trace, file: &[u8], style: Style) -> String {
    let mut records = Records::new(trace, file);
    let cpus = trace
        .buffers
        .iter()
        .map(|buffer| buffer.cpus.len())
        .max()
        .unwrap_or(0);
    let mut out = format!("cpus={cpus}\n");
    let mut report = Report::new(trace, style);
    while let Some((place, step)) = records.next(trace, file) {
        report.push(place, &step, &mut out);
    }
    report.finish(&mut out);
    out
}

/// This version of trace-cmd has a fixed table of letters for task states. Newer versions, and Kymo, use the letters in
/// the kernel's own format.
pub(super) fn older_states(report: &str) -> String {
    let mut lines = String::with_capacity(report.len());
    for line in report.split_inclusive('\n') {
        match line.split_once(" ==> ") {
            Some((before, behind)) if line.contains(": sched_switch: ") => {
                let (head, states) = before.rsplit_once(' ').unwrap();
                let older = |state| match state {
                    'I' => 'W',
                    'X' => 'Z',
                    'Z' => 'X',
                    'P' => 'x',
                    other => other,
                };
                let states: String = states.chars().map(older).collect();
                lines.push_str(&format!("{head} {states} ==> {behind}"));
            }
            _ => lines.push_str(line),
        }
    }
    lines
}

#[test]
fn reports_are_those_of_trace_cmd() {
    let folder = captures::some_ftrace();
    let sums = sums(&folder);
    let mut wrong = Vec::new();
    let like_theirs = Style {
        leaves_over_losses: true,
        ..Style::default()
    };
    for (machine, capture) in captures(&folder) {
        let Some(file) = captures::unpacked(&folder.join(format!("{machine}/{capture}.dat")))
        else {
            return;
        };
        let trace = Trace::parse(&file).unwrap();
        assert_eq!(trace.damage, [], "{capture}");
        let name = format!("{machine}-{}", capture.trim_start_matches("dat/"));
        for (kind, style) in [
            ("report", like_theirs),
            (
                "report-t",
                Style {
                    nanoseconds: true,
                    ..like_theirs
                },
            ),
            (
                "report-R-t",
                Style {
                    nanoseconds: true,
                    raw: true,
                    ..like_theirs
                },
            ),
        ] {
            let name = format!("{name}.{kind}.txt");
            // Only the checksum of one output is kept.
            let ours = older_states(&report(&trace, &file, style));
            if name != "arm64-fg-v7.report-t.txt" {
                let Some(theirs) = golden(&folder, &name) else {
                    return;
                };
                let mut pairs = ours.lines().zip(theirs.lines()).enumerate();
                let differs = |ours: &str, theirs: &str| {
                    // trace-cmd takes the number of callers in a stack from the format, and reads beyond the record.
                    let is_stack = style.raw && ours.contains(" kernel_stack: ");
                    let same = ours.trim_end_matches(']');
                    ours != theirs && !(is_stack && theirs.starts_with(same))
                };
                let found = pairs.find(|(_, (ours, theirs))| differs(ours, theirs));
                if let Some((place, (ours, theirs))) = found {
                    wrong.push(format!("{name}, line {}:\n  {ours}\n  {theirs}", place + 1));
                }
            }
            let (lines, sum) = &sums[&name];
            let has_stacks = style.raw && ours.contains(" kernel_stack: ");
            if ours.lines().count() != *lines || !has_stacks && sha256(&ours) != *sum {
                wrong.push(format!(
                    "{name}: {} lines, expected {lines}",
                    ours.lines().count()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
