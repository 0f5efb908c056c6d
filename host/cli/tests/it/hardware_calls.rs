//! Calls of hardware trace in `kymo hotspots --children` and `kymo report`: what is certain of them, and where functions begin.

use kymo_fixtures::captures;

use crate::coresight::{kymo, stdout};

/// Functions with what they called: self is all that ran, and total what the table of functions says.
#[test]
fn hot_spots_have_children() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/r5f-freertos").display().to_string();
    let json = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let text = stdout(&[arguments, &["--format", "json", &input]].concat());
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    };
    let rows = json(&["hotspots", "--children"]);
    let number = |row: &serde_json::Value, member: &str| row[member].as_u64().expect("a number");
    let own: u64 = rows
        .iter()
        .map(|row| number(row, "self_instructions"))
        .sum();
    assert_eq!(own, 232_205);
    for row in json(&["report"]) {
        let of_function = rows
            .iter()
            .filter(|known| known["function"] == row["function"]);
        let total: u64 = of_function
            .map(|row| number(row, "total_instructions"))
            .sum();
        let same = |other: &&serde_json::Value| other["function"] == row["function"];
        if rows.iter().filter(same).count() == 1 {
            assert_eq!(total, number(&row, "total_instructions"), "{row}");
        }
    }
}

/// Where trace is damaged, counts with callees are bounds, as those of the report.
#[test]
fn hot_spots_with_children_have_bounds() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/r5f-zephyr").display().to_string();
    let rows = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let output = kymo(&[arguments, &["--format", "json", &input]].concat());
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    };
    let key = |row: &serde_json::Value, count: &str| -> String {
        let members = [
            "function",
            "total_instructions",
            "total_max_instructions",
            "self_instructions",
            "self_max_instructions",
        ];
        let members = members.map(|member| row[member].to_string());
        format!(
            "{} {members:?} {}",
            row[count],
            row[&format!("{count}_max")]
        )
    };
    let hot = rows(&["hotspots", "--children"]);
    let mut bounds: Vec<_> = hot.iter().map(|row| key(row, "calls")).collect();
    let report = rows(&["report"]);
    let mut expected: Vec<_> = report.iter().map(|row| key(row, "count")).collect();
    bounds.sort();
    expected.sort();
    assert_eq!(bounds, expected);
    let text = kymo(&["hotspots", "--children", &input]);
    let printed = String::from_utf8_lossy(&text.stderr);
    assert!(
        printed.contains("times are at least what is shown (≥)"),
        "{printed}"
    );
    assert!(String::from_utf8_lossy(&text.stdout).contains('≥'));
    // Instructions before damage are in the bounds of the calls that ran them.
    let own = hot.iter().map(|row| row["self_instructions"].as_u64());
    assert!(own.map(Option::unwrap_or_default).sum::<u64>() > 10_950);
}

/// Without symbols functions begin where calls lead, not where the trace begins or goes on: nothing but calls counts.
#[test]
fn functions_without_symbols_begin_where_they_are_called() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    // A shared epilogue in which the trace begins, and a loop in which it goes on behind losses.
    for (input, address, most) in [
        ("perf/cc1-head.perf.data", "0x4d2488", 1),
        ("snapshots/juno-uname-002", "0x7f8e5997f4", 4),
    ] {
        let input = folder.join(input).display().to_string();
        let text = stdout(&["report", "--format", "json", &input]);
        let lines = text.lines().map(serde_json::from_str);
        let rows: Vec<serde_json::Value> = lines.collect::<Result<_, _>>().expect("JSON");
        let found = rows.iter().filter(|row| row["function"] == address);
        let counts: Vec<_> = found.map(|row| row["count"].as_u64()).collect();
        assert!(
            counts.iter().all(|count| *count <= Some(most)),
            "{address}: {counts:?}"
        );
    }
}

/// What is known of calls that the trace found open, and of what runs behind a gap, is the same of an export that is read back.
#[test]
fn an_export_has_what_is_certain_of_calls() {
    let Some(captures) = captures::coresight() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rows) in [("juno-uname-002", 75), ("r5f-zephyr", 58)] {
        let input = captures.join("snapshots").join(name);
        let input = input.display().to_string();
        let result = folder.path().join(name).display().to_string();
        kymo(&["export", "--to", "ctf", "-o", &result, &input]);
        let ours = figures(&input);
        assert_eq!(ours.len(), rows, "{name}");
        assert_eq!(ours, figures(&result), "{name}");
    }
}

/// What a report says of each function.
fn figures(input: &str) -> Vec<String> {
    let text = kymo(&["report", "--format", "json", input]).stdout;
    let text = String::from_utf8(text).expect("text");
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let members = [
            "function",
            "total_instructions",
            "self_instructions",
            "self_max_instructions",
            "count",
            "count_max",
        ];
        members.map(|member| line[member].to_string()).join(" ")
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}
