//! Calls of hardware trace in `kymo hotspots --children` and `kymo report`: bounds of their counts, and the begins of
//! functions.

use kymo_fixtures::captures;

use crate::coresight::{kymo, stdout};

/// With callees: the sum of self is the number of all instructions, and totals equal those of `kymo report`.
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
    assert_eq!(own, 232_204);
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

/// In damaged trace, counts with callees are bounds, as in `kymo report`.
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
    // The bounds of calls include the instructions before damage.
    let own = hot.iter().map(|row| row["self_instructions"].as_u64());
    assert!(own.map(Option::unwrap_or_default).sum::<u64>() > 10_950);
}

/// Without symbols, functions begin at the targets of calls, not at addresses where the trace begins or resumes. Only
/// calls are counted.
#[test]
fn functions_without_symbols_begin_where_they_are_called() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    // The trace begins in a shared epilogue, and resumes in a loop after losses.
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

/// An export that is read back gives the same bounds for calls that were open at the begin, and for code behind a gap.
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

/// Returns the values of each function in `kymo report`.
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

/// Symbols given for images without any tell where functions begin, so that tail calls are calls.
#[test]
fn symbols_beside_an_image_are_the_borders_of_functions() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    // T32: `bl first` and a loop; at 0x10 `first` with `b second`, at 0x20 `second` with `bx lr`.
    let mut code = [0xbf00u16; 0x12];
    code[..3].copy_from_slice(&[0xf000, 0xf806, 0xe7fe]);
    (code[8], code[0x10]) = (0xe006, 0x4770);
    let code: Vec<u8> = code.iter().flat_map(|half| half.to_le_bytes()).collect();
    write("code", &code);
    // A synchronization, trace info, trace on, address and context; three branches, the address of the return, the loop.
    let trace = [
        &[0; 11][..],
        &[0x80, 0x01, 0x00, 0x04, 0x83, 0, 0x80, 0, 0, 0x20],
        &[0xf7, 0xf7, 0xf7, 0x9b, 0x02, 0x80, 0, 0, 0xf7],
    ]
    .concat();
    write("trace", &trace);
    let input = write(
        "x.toml",
        b"buffer = 'trace'\nframes = 'none'\n[[source]]\nprotocol = 'ETMv4'\nregisters = { TRCIDR0 = 0x8000e81, \
          TRCIDR1 = 0x4100f403 }\n[[image]]\nfile = 'code'\naddress = 0x8000\n",
    );
    let names = write(
        "names",
        b"00008000 T main\n00008010 T first\n00008020 T second\n",
    );
    for command in [&["report"][..], &["hotspots", "--children"]] {
        let text = stdout(&[command, &["--format", "json", "--symbols", &names, &input]].concat());
        for function in ["main", "first", "second"] {
            let name = format!("\"function\":\"{function}\"");
            assert_eq!(text.matches(&name).count(), 1, "{function}: {text}");
        }
    }
}

/// The titles of trees have the trace's unit, which is no second.
#[test]
fn titles_of_trees_have_the_unit() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/r5f-freertos").display().to_string();
    let text = stdout(&["calls", "--trees", "-n", "1", &input]);
    let title = text.lines().next().expect("a title");
    assert_eq!(title.matches(" instructions").count(), 2, "{title}");
    assert!(title.contains(", at "), "{title}");
}
