//! Stripped binaries of a recording: names and lines come from separate files of debug information.

use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;

use crate::coresight::kymo;

/// Runs a tool for files of AArch64; `None` if this machine does not have it.
fn tool(name: &str, arguments: &[&Path]) -> Option<()> {
    let mut command = Command::new(format!("aarch64-linux-gnu-{name}"));
    let status = match command.args(arguments).status() {
        Ok(status) => status,
        Err(error) => {
            kymo_fixtures::missing(&format!("{:?}: {error}", command.get_program()));
            return None;
        }
    };
    assert!(status.success(), "{name} {arguments:?}");
    Some(())
}

#[test]
fn names_of_stripped_binaries_come_from_debug_files() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let copy = tempfile::tempdir().expect("a folder");
    let snapshot = folder.join("snapshots/ricsec-fib-1");
    for entry in std::fs::read_dir(&snapshot).expect("a snapshot") {
        let path = entry.expect("an entry").path();
        let to = copy.path().join(path.file_name().expect("a name"));
        std::fs::write(&to, std::fs::read(&path).expect("a file")).expect("a copy");
    }
    let input = copy.path().display().to_string();
    let out = |words: &[&str]| -> String {
        let output = kymo(&[words, &[&input]].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    let words: [&[&str]; 3] = [
        &["report", "--format", "json"],
        &["hotspots", "--format", "json"],
        &["hotspots", "--coverage", "--format", "json"],
    ];
    let before = words.map(out);
    assert!(before[0].contains("\"main\""), "{}", before[0]);
    let (program, full) = (copy.path().join("fib"), copy.path().join("full"));
    std::fs::rename(&program, &full).expect("a file");
    let only = Path::new("--only-keep-debug");
    let strip = Path::new("--strip-all");
    let names = copy.path().join("elsewhere/.build-id");
    let id = kymo_coresight::memory::build_id(&std::fs::read(&full).expect("a file"));
    let id: Vec<String> = id
        .expect("a build ID")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let names = names.join(&id[0]);
    std::fs::create_dir_all(&names).expect("a folder");
    let names = names.join(format!("{}.debug", id[1..].concat()));
    if tool("objcopy", &[only, &full, &names]).is_none() {
        return;
    }
    tool("objcopy", &[strip, &full, &program]);
    assert!(!out(words[0]).contains("\"main\""));
    // Beside the file, as its debug link says.
    let (beside, linked) = (copy.path().join("names.debug"), copy.path().join("linked"));
    std::fs::copy(&names, &beside).expect("a copy");
    let link = format!("--add-gnu-debuglink={}", beside.display());
    tool("objcopy", &[Path::new(&link), &program, &linked]);
    let stripped = std::fs::read(&program).expect("a file");
    std::fs::rename(&linked, &program).expect("a file");
    assert!(out(words[0]).contains("\"main\""));
    std::fs::remove_file(&beside).expect("it is there");
    std::fs::write(&program, stripped).expect("a file");
    let elsewhere = copy.path().join("elsewhere").display().to_string();
    let full = full.display().to_string();
    for option in [["--debug-dir", &elsewhere], ["--elf", &full]] {
        for (words, before) in words.iter().zip(&before) {
            // A table of calls has lines of files that are given.
            let after = out(&[words, &option[..]].concat());
            let rows = |text: &str| -> Vec<(String, String)> {
                let rows = text.lines().map(|line| {
                    let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
                    let count = ["self_ticks", "instructions"].map(|it| row[it].to_string());
                    (row["function"].to_string(), count.concat())
                });
                let mut rows: Vec<_> = rows.collect();
                rows.sort();
                rows
            };
            assert_eq!(rows(&after), rows(before), "{words:?} {option:?}");
        }
    }
}
