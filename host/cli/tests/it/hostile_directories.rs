//! Hostile CTF directories are refused or read with bounded memory, with an exit code that shows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).env("NO_COLOR", "1");
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates a trace whose packets begin with a magic number and the UUID of the trace.
fn trace(folder: &Path) -> PathBuf {
    let trace = folder.join("trace");
    fs::create_dir(&trace).expect("a directory");
    let metadata = "/* CTF 1.8 */\n\
        typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
        typealias integer { size = 32; align = 8; signed = false; } := u32;\n\
        trace { major = 1; minor = 8; byte_order = le; \
        uuid = \"01010101-0101-0101-0101-010101010101\"; \
        packet.header := struct { u32 magic; u8 uuid[16]; }; };\n\
        stream { packet.context := struct { u32 packet_size; u32 content_size; }; \
        event.header := struct { u8 id; }; };\n\
        event { id = 0; name = \"e\"; fields := struct { u8 a; }; };\n";
    fs::write(trace.join("metadata"), metadata).expect("a file");
    trace
}

/// Creates a packet with one event.
fn packet(uuid: u8) -> Vec<u8> {
    let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    packet.extend([uuid; 16]);
    for _ in 0..2 {
        packet.extend((30_u32 * 8).to_le_bytes());
    }
    packet.extend([0, 7]);
    packet
}

/// 2 MB of magic numbers are half a million damaged packets. The memory limit is below the size of a list of all of
/// them (690 MB for 20 MB).
#[cfg(target_os = "linux")]
#[test]
fn damage_without_end_takes_bounded_memory() {
    let folder = TempDir::new().unwrap();
    let trace = trace(folder.path());
    let magics = 0xc1fc_1fc1_u32.to_le_bytes().repeat(500_000);
    fs::write(trace.join("s"), magics).expect("a file");
    for subcommand in ["report", "info"] {
        let output = Command::new("sh")
            .args([
                "-c",
                "ulimit -v 65536; exec \"$KYMO\" \"$@\"",
                "sh",
                subcommand,
                // A second thread would reserve as much address space as the limit.
                "--threads=1",
            ])
            .arg(&trace)
            .env("KYMO", env!("CARGO_BIN_EXE_kymo"))
            .output()
            .expect("a shell");
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{subcommand}: {printed}");
        assert!(printed.contains("more)"), "{printed}");
        if subcommand == "info" {
            let lines = text(&output.stdout);
            assert!(lines.contains("more damaged places"), "{lines}");
            assert!(lines.lines().count() < 300);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_a_trace_directory_is_refused() {
    for name in ["metadata", "s2"] {
        let folder = TempDir::new().unwrap();
        let trace = trace(folder.path());
        fs::write(trace.join("s"), packet(1)).expect("a file");
        let _ = fs::remove_file(trace.join(name));
        let made = Command::new("mkfifo").arg(trace.join(name)).status();
        assert!(made.expect("mkfifo").success());
        for subcommand in [
            &["info"][..],
            &["report"],
            &["show"],
            &["export", "--to", "json"],
        ] {
            let path = trace.to_str().expect("a path of this test");
            let output = run(&[subcommand, &[path]].concat());
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{subcommand:?}: {printed}");
            assert!(printed.contains("expected a regular file"), "{printed}");
            assert!(printed.contains("a pipe"), "{printed}");
        }
    }
}

#[test]
fn a_foreign_stream_is_an_error_behind_the_events_of_the_others() {
    let folder = TempDir::new().unwrap();
    let trace = trace(folder.path());
    for (name, uuid) in [("a", 1), ("b", 2), ("c", 1)] {
        fs::write(trace.join(name), packet(uuid)).expect("a file");
    }
    let output = run(&["info", "--format", "json", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(info["events"], 2);
    let errors = info["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0]["stream"], "b");
    let message = errors[0]["message"].as_str().expect("a text");
    assert!(message.contains("belongs to another trace"), "{message}");
}

#[test]
fn an_empty_or_missing_stream_is_told() {
    let folder = TempDir::new().unwrap();
    let trace = trace(folder.path());
    for (name, content) in [
        ("chan_0", packet(1)),
        ("chan_2", packet(1)),
        ("chan_3", Vec::new()),
    ] {
        fs::write(trace.join(name), content).expect("a file");
    }
    let output = run(&["info", "--format", "json", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "nothing is damaged");
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let warnings = info["warnings"].to_string();
    for part in ["chan_3 is empty", "chan_1 is missing"] {
        assert!(warnings.contains(part), "{warnings}");
        assert!(text(&output.stderr).contains(part));
    }
}
