//! Self times of hardware trace without times: rows account for every executed instruction, also behind losses.

use kymo_fixtures::captures;

use crate::coresight::kymo;

/// Rows of a table, or an input's description, of a snapshot that may be damaged.
fn objects(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = kymo(arguments);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn every_instruction_is_of_a_row() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    // Execution at addresses that the trace does not tell; code that does not fit the trace; overflows; Q elements.
    for (name, without_path) in [
        ("ete_ip", 0),
        ("juno_r1_1", 0),
        ("r5f-zephyr", 0),
        ("juno-uname-002", 0),
        ("q_elem", 33),
    ] {
        let input = folder.join("snapshots").join(name).display().to_string();
        let about = &objects(&["info", "--format", "json", &input])[0];
        let rows = objects(&["report", "--format", "json", &input]);
        let own = |row: &serde_json::Value| row["self_instructions"].as_u64().expect("a number");
        let sum: u64 = rows.iter().map(own).sum();
        let all = about["instructions"].as_u64().expect("a number") + without_path;
        assert_eq!(sum, all, "{name}");
        let unknown = rows
            .iter()
            .filter(|row| row["function"] == "[unknown path]");
        // How many ran on an unknown path is known.
        for row in unknown.clone() {
            assert!(!row["avg_instructions"].is_null(), "{name}: {row}");
        }
        assert_eq!(unknown.map(own).sum::<u64>(), without_path, "{name}");
        // How many instructions ran in code without a file is not known.
        for row in rows.iter().filter(|row| row["function"] == "[no code]") {
            for figure in ["avg_instructions", "min_instructions", "max_instructions"] {
                assert!(row[figure].is_null(), "{name}: {row}");
            }
        }
    }
}
