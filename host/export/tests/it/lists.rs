//! Contents of the formats that list events.

use std::sync::Arc;

use crate::common::traces;
use kymo_event::EventKind;
use kymo_export::{Destination, Export, ExportError, Formats, Options, Shape};
use serde_json::{Value, json};

#[test]
fn json_has_a_line_for_every_event_and_gap() {
    for (name, trace) in traces::all() {
        let (bytes, summary) = trace.export("json");
        let lines: Vec<Value> = std::str::from_utf8(&bytes)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), trace.events.len(), "{name}");
        for (line, event) in lines.iter().zip(&trace.events) {
            assert_eq!(line["time_ns"], event.time.0);
            let gap = matches!(event.kind, EventKind::Gap(_));
            assert_eq!(line["type"], if gap { "gap" } else { "event" });
        }
        let gaps = lines.iter().filter(|line| line["type"] == "gap").count();
        assert_eq!(summary.gaps, gaps as u64);
    }
}

#[test]
fn json_says_what_an_event_means_and_what_its_source_said() {
    let (bytes, _) = traces::broken().export("json");
    let text = std::str::from_utf8(&bytes).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let place = json!({"cpu": 0, "thread": 0x2000_0100, "thread_name": "worker"});
    let with_place = |mut value: Value| {
        let members = value.as_object_mut().unwrap();
        members.extend(place.as_object().unwrap().clone());
        value
    };
    assert!(lines.contains(&with_place(json!({
        "type": "event", "time_ns": 110, "name": "enter",
        "fields": {"function": 0x1000}, "function": "a"
    }))));
    assert!(lines.contains(&with_place(json!({
        "type": "gap", "time_ns": 155, "gap": "discarded", "lost": 37,
        "message": "37 events discarded"
    }))));
    assert!(lines.contains(&with_place(json!({
        "type": "event", "time_ns": 2025, "name": "tick",
        "fields": {"count": 5, "what": "a \"thing\"", "where": 0xE000_E010_u32}
    }))));
}

#[test]
fn json_names_functions_and_markers() {
    let (bytes, _) = traces::whole().export("json");
    let text = std::str::from_utf8(&bytes).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let marker = lines.iter().find(|line| line["label"] == "half way");
    assert_eq!(marker.unwrap()["fields"], json!({"value": 7}));
    assert!(
        lines
            .iter()
            .any(|line| line["function"] == traces::ODD_NAME)
    );
    let switch = lines
        .iter()
        .find(|line| line["name"] == "switched_in")
        .unwrap();
    assert_eq!(switch.get("function"), None);
}

#[test]
fn csv_has_the_same_columns_in_every_row() {
    let (bytes, _) = traces::broken().export("csv");
    let text = std::str::from_utf8(&bytes).unwrap();
    let rows: Vec<Vec<String>> = text.lines().map(cells).collect();
    assert!(
        rows.iter().all(|row| row.len() == rows[0].len()),
        "{rows:?}"
    );
    assert_eq!(rows.len(), 1 + traces::broken().events.len());
    assert!(
        rows.contains(
            &[
                "110",
                "0",
                "0x20000100",
                "worker",
                "enter",
                "a",
                "function=0x1000"
            ]
            .map(str::to_owned)
            .to_vec()
        )
    );
    let tick = rows.iter().find(|row| row[4] == "tick").unwrap();
    assert_eq!(tick[6], "count=5 what=\"a \\\"thing\\\"\" where=0xe000e010");
    let whole = traces::whole().export("csv").0;
    let text = std::str::from_utf8(&whole).unwrap();
    let rows: Vec<Vec<String>> = text.lines().map(cells).collect();
    assert!(rows.iter().any(|row| row[5] == traces::ODD_NAME));
    assert!(
        rows.iter()
            .any(|row| row[6] == "label=\"half way\" value=7")
    );
}

#[test]
fn no_name_reaches_a_terminal_as_a_command() {
    let mut writer = traces::Writer::new();
    let hostile = "\u{1b}[31m\u{9b}2J,\r\u{7f}ü";
    let (function, irq) = (writer.function(traces::A), writer.irq(15));
    let thread = writer.thread(traces::WORKER_1);
    let identities = &mut writer.trace.info.identities;
    identities.name_function(function, hostile);
    identities.name_thread(thread, hostile);
    identities.name_interrupt(irq, hostile);
    writer.at(10).enter(traces::A).at(15).isr_enter(15);
    writer.at(17).isr_exit(15).at(20).exit(traces::A);
    for format in ["csv", "json", "folded", "flamegraph", "trace-event"] {
        let (bytes, _) = writer.trace.export(format);
        let text = String::from_utf8(bytes).unwrap();
        let command = text
            .chars()
            .find(|c| c.is_control() && !['\n', '\t'].contains(c));
        assert_eq!(command, None, "{format}");
        assert!(text.contains('ü'), "{format}");
    }
    let text = String::from_utf8(writer.trace.export("csv").0).unwrap();
    let row = cells(text.lines().nth(1).unwrap());
    assert_eq!(row[3], "\\u{1b}[31m\\u{9b}2J,\\r\\u{7f}ü");
}

/// The cells of a row; none of the test rows contains a line break.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut characters = row.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cells.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    assert!(!quoted, "{row}");
    cells
}

#[test]
fn a_source_that_fails_leaves_a_whole_file_of_what_came_before() {
    let trace = traces::whole();
    let mut out = Vec::new();
    let destination = Destination::Writer(Box::new(&mut out));
    let format = Formats::built_in().by_name("trace-event").unwrap();
    let (symbols, options) = (Arc::default(), Options::default());
    let export = Export::new(format, &trace.info, &symbols, destination, &options);
    let mut export = export.unwrap();
    let events = trace.events.iter().take(5).cloned().collect();
    assert!(export.batch(&trace.info, &events).unwrap());
    // The live source is disconnected.
    let summary = export.finish(&trace.info).unwrap();
    assert_eq!(summary.events, 5);
    serde_json::from_slice::<Value>(&out).expect("whole JSON");
}

#[test]
fn a_destination_of_the_wrong_shape_is_refused() {
    let trace = traces::whole();
    let result = trace.write(
        "perfetto",
        &Arc::default(),
        Destination::Directory(std::path::Path::new("nowhere")),
        &Options::default(),
    );
    assert!(matches!(
        result,
        Err(ExportError::Shape {
            expected: Shape::File,
            found: Shape::Directory,
            ..
        })
    ));
}

#[test]
fn formats_are_found_by_name_and_by_the_ending_of_a_file() {
    let formats = Formats::built_in();
    for format in formats.iter() {
        assert_eq!(formats.by_name(format.name).unwrap().name, format.name);
        for extension in format.extensions {
            let path = format!("trace.{extension}");
            assert_eq!(formats.by_path(path.as_ref()).unwrap().name, format.name);
        }
    }
    assert!(formats.by_path("trace".as_ref()).is_none());
    assert!(formats.by_name("Perfetto").is_none());
}
