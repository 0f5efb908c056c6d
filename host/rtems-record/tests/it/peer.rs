//! Comparison of ids, order, data and times with the output of `rtems-record-lttng` for the same inputs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;
use kymo_rtems_record::EventId;

use crate::common::{Read, read};

/// Events that the peer's client inserts.
const MADE: [&str; 2] = ["TIME_ADJUSTMENT", "UNRELIABLE_TIME"];

/// Items that the peer does not list.
const OMITTED: [EventId; 6] = [
    EventId::VERSION,
    EventId::PROCESSOR,
    EventId::PROCESSOR_MAXIMUM,
    EventId::THREAD_ID,
    EventId::THREAD_NAME,
    EventId::THREAD_CREATE,
];

/// Row of the peer's list.
#[derive(Debug)]
struct Row {
    ns: i64,
    name: String,
    fields: Vec<String>,
}

/// The peer's list, by processor. A processor's rows that are not synchronized follow an `UNRELIABLE_TIME`.
fn rows(path: &Path) -> HashMap<u8, Vec<Row>> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut all: HashMap<u8, Vec<Row>> = HashMap::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let cpu = columns.next().unwrap().parse().unwrap();
        all.entry(cpu).or_default().push(Row {
            ns: columns.next().unwrap().parse().unwrap(),
            name: columns.next().unwrap().to_owned(),
            fields: columns.map(str::to_owned).collect(),
        });
    }
    all
}

/// Returns the name and data of a row's item, as far as the peer keeps them.
fn printed(row: &Row) -> (String, Option<u64>) {
    let number = |place: usize| {
        let text = row.fields.get(place)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<i64>().ok().map(|it| it as u64),
        }
    };
    let name = match row.name.as_str() {
        "irq_handler_entry" => "INTERRUPT_ENTRY",
        "irq_handler_exit" => "INTERRUPT_EXIT",
        name => name,
    };
    (name.to_owned(), number(0))
}

fn compare(case: &str, folder: &Path, found: &Read) {
    let peer = rows(&folder.join("peer/events.tsv.gz"));
    for (cpu, rows) in peer {
        let mut out = None;
        let items = found.records.iter().filter(|record| {
            record.is_item && record.cpu == cpu && !OMITTED.contains(&record.event)
        });
        // A switch is one event in the peer's list, if both of its items exist.
        let items = items.filter(|record| match record.event {
            EventId::THREAD_SWITCH_OUT => {
                out = Some(record.time);
                false
            }
            EventId::THREAD_SWITCH_IN => out.take() == Some(record.time),
            _ => true,
        });
        let items: Vec<_> = items.collect();
        // These items waited for an uptime pair that never arrived: their times are unreliable.
        let unreliable = rows.iter().position(|row| row.name == "UNRELIABLE_TIME");
        let mut adjusted = 0;
        let mut last = i64::MIN;
        let mut listed = 0;
        let mut expected = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| !MADE.contains(&row.name.as_str()));
        for item in &items {
            let (place, row) = expected
                .next()
                .unwrap_or_else(|| panic!("{case}: CPU {cpu}: {item:?} is not the peer's"));
            listed += 1;
            let (name, data) = printed(row);
            let is_switch = item.event == EventId::THREAD_SWITCH_IN;
            let own = if is_switch {
                "sched_switch"
            } else {
                item.event.name(10)
            };
            assert_eq!(own, name, "{case}: CPU {cpu}: item {listed}: {item:?}");
            if is_switch {
                let next = row.fields.get(5).and_then(|tid| tid.parse::<i64>().ok());
                // The peer writes 0 for an idle thread.
                assert!(
                    next == Some(item.data as u32 as i32 as i64) || next == Some(0),
                    "{case}: {row:?} {item:?}"
                );
            } else if let Some(data) = data {
                let size = u64::MAX
                    >> if found.header.format.item_bytes() == 8 {
                        32
                    } else {
                        0
                    };
                assert_eq!(
                    item.data & size,
                    data & size,
                    "{case}: CPU {cpu}: item {listed}"
                );
            }
            // The peer's time does not advance while it adjusts it.
            let before = place.checked_sub(1).and_then(|place| rows.get(place));
            let is_adjusted = before.is_some_and(|row| row.name == "TIME_ADJUSTMENT");
            if unreliable.is_none_or(|from| place < from) && !is_adjusted {
                assert!(
                    (item.time - row.ns).abs() <= 1,
                    "{case}: CPU {cpu}: item {listed} {item:?}, {row:?}"
                );
            } else {
                adjusted += 1;
            }
            assert!(last <= item.time, "{case}: CPU {cpu}: {item:?}");
            last = item.time;
        }
        assert_eq!(
            expected.next().map(|it| it.1.name.as_str()),
            None,
            "{case}: CPU {cpu}: missing behind {listed} items"
        );
        if unreliable.is_none() {
            assert!(
                adjusted * 20 < listed + 100,
                "{case}: {adjusted} of {listed} adjusted"
            );
        }
    }
}

#[test]
fn all_valid_cases_are_what_the_peer_makes_of_them() {
    let folder = captures::some_rtems_record();
    let index = fs::read_to_string(folder.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let mut compared = 0;
    for case in index.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        if name.starts_with("error-") {
            continue;
        }
        let folder = folder.join(name);
        let input = fs::read(folder.join(case["input"].as_str().unwrap())).unwrap();
        let found = read(&input);
        assert_eq!(found.faults, [], "{name}");
        compare(name, &folder, &found);
        compared += 1;
    }
    let all = index.as_array().unwrap().len();
    assert_eq!(compared, if all > 3 { 12 } else { 2 });
}
