//! Calls of hardware trace in `kymo report`: where functions begin.

use kymo_fixtures::captures;

use crate::coresight::stdout;

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
