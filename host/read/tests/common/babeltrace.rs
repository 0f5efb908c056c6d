//! Another reader's view of a trace directory.

use std::path::Path;
use std::process::Command;

use kymo_read::{Events, OpenOptions, open};

/// The times (ns) and names of all records, as babeltrace2 sees them.
fn babeltrace(command: &Path, trace: &Path) -> Vec<(i64, String)> {
    let output = Command::new(command)
        .arg(trace)
        .args(["--clock-seconds", "--no-delta"])
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert_eq!(complaints, "", "a warning");
    // [0.000040280] enter: { cpu_id = 0, ... }, { function = ( "main" : container = 7 ) }
    let line = |line: &str| {
        let (time, rest) = line.strip_prefix('[')?.split_once("] ")?;
        let (seconds, nanoseconds) = time.split_once('.')?;
        let time =
            seconds.parse::<i64>().ok()? * 1_000_000_000 + nanoseconds.parse::<i64>().ok()?;
        let name = rest.split_once(':')?.0.rsplit(' ').next()?;
        Some((time, name.to_owned()))
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|text| line(text).unwrap_or_else(|| panic!("{text}")))
        .collect()
}

/// Holds what we read of `trace` against what babeltrace2 (`command`) reads, which must not warn.
/// Times may differ by `tolerance` ns. Returns how many records there are.
pub fn agrees(command: &Path, trace: &Path, tolerance: i64) -> u64 {
    let mut theirs = babeltrace(command, trace);
    // Ours begin with the target, theirs where the metadata says that was.
    let metadata = std::fs::read(trace.join("metadata")).unwrap();
    let metadata = kymo_ctf::metadata::Metadata::parse(&metadata).unwrap();
    let origin = metadata.metadata.clocks[0].nanoseconds(0).unwrap();
    let mut source = open(trace, &OpenOptions::default()).unwrap();
    let mut ours: Vec<_> = Events(&mut *source)
        .map(Result::unwrap)
        .map(|event| (event.time.0 + origin, event.name.into_owned()))
        .collect();
    assert_eq!(ours.len(), theirs.len());
    // Events of one time in several streams have no order.
    ours.sort();
    theirs.sort();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let apart = (ours.0 - theirs.0).abs();
        assert!(apart <= tolerance, "{ours:?}, babeltrace2: {theirs:?}");
    }
    let names = |records: &[(i64, String)]| {
        let mut names: Vec<_> = records.iter().map(|(_, name)| name.clone()).collect();
        names.sort();
        names
    };
    assert!(names(&ours) == names(&theirs), "other names");
    ours.len() as u64
}
