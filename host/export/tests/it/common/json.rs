//! Trace-event JSON read back with `serde_json`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::timeline::{Entry, Timeline, What};

/// Converts a decimal number of microseconds to nanoseconds, digit by digit because a double would round.
fn nanoseconds(text: &str) -> i64 {
    let (whole, fraction) = text.split_once('.').expect("a point");
    assert_eq!(fraction.len(), 3, "three digits behind the point: {text}");
    format!("{whole}{fraction}").parse().expect("digits")
}

/// Reads a file, all of whose entries must be known.
pub fn read(bytes: &[u8]) -> Timeline {
    let file: Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(file["displayTimeUnit"], "ns");
    // Parsing loses digits of times, so they are read from the text, which has one entry per line.
    let text = std::str::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("{\"ph\""))
        .collect();
    let entries = file["traceEvents"].as_array().unwrap();
    assert_eq!(lines.len(), entries.len(), "an entry a line");
    let mut timeline = Timeline::default();
    let mut processes = BTreeMap::new();
    for (line, entry) in lines.iter().zip(entries) {
        let pid = entry["pid"].as_u64().unwrap();
        let phase = entry["ph"].as_str().unwrap();
        if phase == "M" && entry["name"] == "process_name" {
            let name = entry["args"]["name"].as_str().unwrap().to_owned();
            let old = processes.insert(pid, name);
            assert_eq!(old, None, "a process is named once");
            continue;
        }
        let process: &String = &processes[&pid];
        let row = timeline.rows.entry(entry["tid"].as_u64().unwrap());
        let row = row.or_default();
        assert!(row.process.is_empty() || row.process == *process);
        row.process.clone_from(process);
        let name = || entry["name"].as_str().unwrap().to_owned();
        let what = match phase {
            "M" => {
                assert_eq!(entry["name"], "thread_name");
                entry["args"]["name"]
                    .as_str()
                    .unwrap()
                    .clone_into(&mut row.name);
                continue;
            }
            "B" => What::Begin(name()),
            "E" => What::End,
            "C" => What::Counter(format!("{} = {}", name(), entry["args"]["value"])),
            "i" => {
                assert!(matches!(entry["s"].as_str(), Some("t" | "p")));
                What::Instant(name())
            }
            other => panic!("phase {other}"),
        };
        let (_, time) = line.split_once("\"ts\":").expect("a time");
        let time = nanoseconds(time.split([',', '}']).next().unwrap());
        let notes: BTreeMap<String, String> = match entry["args"].as_object() {
            Some(args) => args
                .iter()
                .map(|(name, value)| match value.as_str() {
                    Some(text) => (name.clone(), text.to_owned()),
                    None => (name.clone(), value.to_string()),
                })
                .collect(),
            None => BTreeMap::new(),
        };
        row.entries.push(Entry { time, what, notes });
    }
    timeline.processes = processes;
    timeline
}
