//! Outputs of subcommands: files are complete or absent and never replace their own input, and text is safe for a
//! terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args(arguments)
        .current_dir(data())
        .env("NO_COLOR", "1");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fails(output: &Output, parts: &[&str]) {
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for part in parts {
        assert!(printed.contains(part), "expected {part:?} in\n{printed}");
    }
}

fn str(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Asserts that neither output has control characters other than line feeds and tabs.
fn no_controls(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = text(bytes);
        let unsafe_for_terminals = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(unsafe_for_terminals), "{text:?}");
    }
}

/// Creates a CTF 2 trace of `events` events of one byte, named `name` (in JSON's escapes).
fn ctf2(folder: &Path, name: &str, events: usize) -> PathBuf {
    let number =
        r#"{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian""#;
    let fragments = [
        r#"{"type":"preamble","version":2}"#.to_owned(),
        r#"{"type":"trace-class"}"#.to_owned(),
        format!(
            r#"{{"type":"data-stream-class","id":0,"event-record-header-field-class":{{"type":"structure","member-classes":[{{"name":"id","field-class":{number},"roles":["event-record-class-id"]}}}}]}}}}"#
        ),
        format!(
            r#"{{"type":"event-record-class","id":0,"name":"{name}","payload-field-class":{{"type":"structure","member-classes":[{{"name":"x","field-class":{number}}}}}]}}}}"#
        ),
    ];
    let metadata: String = fragments
        .iter()
        .map(|fragment| format!("\u{1e}{fragment}\n"))
        .collect();
    let trace = folder.join("trace");
    fs::create_dir(&trace).expect("a directory");
    fs::write(trace.join("metadata"), metadata).expect("a file");
    fs::write(trace.join("stream"), vec![0; 2 * events]).expect("a file");
    trace
}

#[test]
fn names_in_a_trace_are_escaped() {
    let folder = TempDir::new().unwrap();
    let trace = ctf2(folder.path(), r"\u001b[31mE\u009b\n", 3);
    let trace = str(&trace);
    for arguments in [
        &["show"][..],
        &["show", "--events"],
        &["show", "--format", "json"],
        &["report"],
        &["info"],
        &["info", "--format", "json"],
    ] {
        let output = run(&[arguments, &[trace]].concat());
        no_controls(&output);
    }
    let listed = text(&run(&["show", "--events", trace]).stdout);
    assert!(listed.contains(r"\x1b[31mE\x9b\n: x = 0"), "{listed}");
    // JSON has the name unchanged, in its own escapes.
    let json = text(&run(&["show", "--format", "json", trace]).stdout);
    let event: serde_json::Value =
        serde_json::from_str(json.lines().next().expect("a line")).expect("an object");
    assert_eq!(event["name"], "\u{1b}[31mE\u{9b}\n");
}

#[test]
fn names_of_symbols_are_escaped() {
    let folder = TempDir::new().unwrap();
    let nm = folder.path().join("x.nm");
    let names = fs::read_to_string(data().join("demo.nm")).expect("the fixture");
    fs::write(&nm, names.replace("compute", "com\u{1b}[2Jpute")).expect("a file");
    for arguments in [
        &["report"][..],
        &["show"],
        &["show", "--events"],
        &["profile"],
    ] {
        let output = run(&[arguments, &["demo.kymo", "--symbols", str(&nm)]].concat());
        no_controls(&output);
        assert!(
            text(&output.stdout).contains(r"com\x1b[2Jpute"),
            "{arguments:?}"
        );
    }
}

#[test]
fn names_of_files_and_arguments_are_escaped() {
    for arguments in [
        &["info", "no\u{1b}]0;t\u{7}such"][..],
        &["info", "--\u{1b}[31m"],
        &["export", "--to", "\u{1b}[31m", "demo.kymo"],
        &["show", "demo.kymo", "--function", "\u{1b}[31m"],
        &["ping", "--target", "tcp:\u{1b}[31m"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        no_controls(&output);
    }
}

/// Messages can't be written, but the exit code is correct.
#[test]
fn a_closed_or_full_stderr_is_no_crash() {
    for redirection in ["2>&-", "2>/dev/full"] {
        for arguments in [
            "--no-such",
            "info no-such",
            "report demo.kymo --elf other.elf",
        ] {
            let line = format!("exec \"$KYMO\" {arguments} {redirection}");
            let status = Command::new("sh")
                .args(["-c", &line])
                .env("KYMO", env!("CARGO_BIN_EXE_kymo"))
                .current_dir(data())
                .stdout(Stdio::null())
                .status()
                .expect("a shell");
            let expected = if arguments.starts_with("report") {
                0
            } else {
                2
            };
            assert_eq!(status.code(), Some(expected), "{line}");
        }
    }
}

/// An output is refused under any path that leads to its input, and the input is not changed.
#[test]
fn an_output_is_never_its_own_input() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let trace = ctf2(folder.path(), "e", 3);
    for file in ["demo.elf", "demo.nm", "demo.kymo"] {
        fs::copy(data().join(file), at(file)).expect("a copy");
    }
    fs::hard_link(trace.join("stream"), at("linked")).expect("a link");
    let (elf, nm, raw) = (at("demo.elf"), at("demo.nm"), at("demo.kymo"));
    let stream = trace.join("stream");
    let metadata = trace.join("metadata");
    let around = at("trace/../trace/stream");
    let new = trace.join("new.json");
    let linked = at("linked");
    let files = [&stream, &metadata, &elf, &nm, &raw];
    let before: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (input, output) in [
        (&trace, &stream),
        (&trace, &metadata),
        (&trace, &around),
        (&trace, &linked),
        (&trace, &new),
        (&trace, &elf),
        (&trace, &nm),
        (&stream, &metadata),
        (&raw, &raw),
        (&raw, &elf),
    ] {
        let symbols = ["--elf", str(&elf), "--symbols", str(&nm)];
        for subcommand in [&["export", "--to", "json"][..], &["trace", "--perfetto"]] {
            let rest = ["-o", str(output), str(input)];
            let output = run(&[subcommand, &rest, &symbols].concat());
            if text(&output.stderr).contains("--perfetto contradicts the name") {
                continue;
            }
            fails(&output, &["it is left as it is"]);
        }
    }
    let output = run(&["trace", "-o", str(&raw), str(&raw)]);
    fails(&output, &["it is left as it is"]);
    let memory = [
        "record",
        "gdb:127.0.0.1:1",
        "--elf",
        str(&elf),
        "-o",
        str(&elf),
    ];
    fails(&run(&memory), &["it is left as it is"]);
    let after: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(before == after && !new.exists());
}

/// Files given by other options, files beside a recording, and redirected files are inputs, too.
#[test]
fn an_output_is_no_other_file_that_is_read() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (raw, other, beside) = (at("demo.kymo"), at("other"), at("SYSVIEW_FreeRTOS.txt"));
    fs::copy(data().join("demo.kymo"), &raw).expect("a copy");
    for file in [&other, &beside] {
        fs::write(file, "as it is").unwrap();
    }
    let image = format!("{},offset=4@0x1000", other.display());
    for (option, value) in [
        ("--description", str(&other)),
        ("--event-names", str(&other)),
        ("--with", str(&other)),
        ("--vmlinux", str(&other)),
        ("--trace-image", &image),
    ] {
        let rest = ["-o", str(&other), option, value, str(&raw)];
        let output = run(&[&["export", "--to", "csv"][..], &rest].concat());
        fails(&output, &["it is left as it is"]);
    }
    let output = run(&["export", "--to", "csv", "-o", str(&beside), str(&raw)]);
    fails(&output, &["it is left as it is"]);
    for file in [&other, &beside] {
        assert_eq!(fs::read(file).unwrap(), b"as it is");
    }
    if cfg!(unix) {
        let before = fs::read(&raw).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
            .args(["export", "--to", "csv", "-o", str(&raw), "-"])
            .stdin(fs::File::open(&raw).unwrap())
            .output()
            .unwrap();
        fails(&output, &["it is left as it is"]);
        assert!(fs::read(&raw).unwrap() == before);
    }
}

/// An earlier recording is kept until the target has sent its first bytes.
#[test]
fn a_recording_of_nothing_takes_no_other_ones_place() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("before");
    for kind in ["rtems", "systemview"] {
        fs::write(&path, "a recording").unwrap();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || drop(server.accept()));
        let address = format!("{kind}:127.0.0.1:{port}");
        let output = run(&["record", &address, "-o", str(&path)]);
        thread.join().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert_eq!(fs::read(&path).unwrap(), b"a recording", "{kind}");
    }
}

/// Lists the names in a directory, without those of the inputs.
fn outputs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "trace").collect()
}

/// An export that is interrupted at any time keeps the old file and leaves no new one.
#[cfg(unix)]
#[test]
fn an_interrupted_export_leaves_what_was_there() {
    for (signal, format, name) in [("INT", "json", "x.json"), ("TERM", "ctf", "x")] {
        let folder = TempDir::new().unwrap();
        // Much more data than the export can write before the signal.
        let trace = ctf2(folder.path(), "e", 20_000_000);
        let output = folder.path().join(name);
        if format == "json" {
            fs::write(&output, "old").expect("a file");
        }
        let line = ["export", "--to", format, "-o", str(&output), str(&trace)];
        let mut process = command(&line)
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let deadline = Instant::now() + Duration::from_secs(300);
        while !outputs(folder.path())
            .iter()
            .any(|name| name.ends_with(".part"))
        {
            assert!(Instant::now() < deadline && process.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(2));
        }
        let kill = format!("kill -{signal} {}", process.id());
        let killed = Command::new("sh").args(["-c", &kill]).status();
        assert!(killed.expect("a shell").success());
        assert_eq!(process.wait().expect("it ends").code(), Some(130));
        if format == "json" {
            assert_eq!(fs::read_to_string(&output).unwrap(), "old");
            assert_eq!(outputs(folder.path()), [name]);
        } else {
            assert!(outputs(folder.path()).is_empty());
        }
    }
}

/// A limit on the size of files simulates a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_what_was_there() {
    let folder = TempDir::new().unwrap();
    let trace = ctf2(folder.path(), "e", 100_000);
    let output = folder.path().join("x.json");
    fs::write(&output, "old").expect("a file");
    for (format, output) in [("json", &output), ("ctf", &folder.path().join("x"))] {
        let line = "trap '' XFSZ; ulimit -f 16; exec \"$KYMO\" \"$@\"";
        let result = Command::new("sh")
            .args(["-c", line, "sh", "export", "--to", format, "-o"])
            .args([output, &trace])
            .env("KYMO", env!("CARGO_BIN_EXE_kymo"))
            .output()
            .expect("a shell");
        fails(&result, &["File too large"]);
    }
    assert_eq!(fs::read_to_string(&output).unwrap(), "old");
    assert_eq!(outputs(folder.path()), ["x.json"]);
}

/// A pipe as an output is written directly, so that its reader gets everything.
#[cfg(unix)]
#[test]
fn a_pipe_is_written_as_it_is() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe.json");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let export = std::thread::spawn({
        let pipe = pipe.clone();
        move || run(&["export", "-o", str(&pipe), "demo.kymo"])
    });
    let got = fs::read(&pipe).expect("the pipe");
    assert_eq!(export.join().expect("it runs").status.code(), Some(0));
    let file = folder.path().join("file.json");
    assert_eq!(
        run(&["export", "-o", str(&file), "demo.kymo"])
            .status
            .code(),
        Some(0)
    );
    assert!(!got.is_empty() && got == fs::read(&file).expect("the file"));
}

/// An existing trace directory is replaced by a complete one, or kept.
#[test]
fn a_trace_directory_is_replaced_as_a_whole() {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("t");
    for fixture in ["demo.kymo", "threads.kymo"] {
        let output = run(&["trace", fixture, "-o", str(&trace)]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let saved = run(&["show", "--events", str(&trace)]);
        assert_eq!(
            text(&saved.stdout),
            text(&run(&["show", "--events", fixture]).stdout)
        );
    }
    fs::write(trace.join("mine"), "").expect("a file");
    fails(&run(&["trace", "demo.kymo", "-o", str(&trace)]), &["mine"]);
    let saved = run(&["show", "--events", str(&trace)]);
    assert!(!saved.stdout.is_empty());
    assert_eq!(outputs(folder.path()), ["t"]);
}

#[test]
fn files_beside_the_input_are_regular_files() {
    for option in ["--elf", "--symbols", "--mapping", "--metadata"] {
        let output = run(&["show", option, "/dev/zero", "demo"]);
        fails(&output, &["/dev/zero", "expected a regular file"]);
    }
}

#[test]
fn cut_and_empty_buffers_of_hardware_trace_are_told() {
    let scratch = TempDir::new().unwrap();
    for file in fs::read_dir(data().join("coresight")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), scratch.path().join(file.file_name())).unwrap();
    }
    let trace = scratch.path().join("trace.bin");
    let whole = fs::read(&trace).unwrap();
    for (bytes, expected) in [(37, "5 bytes left out"), (0, "the buffer has no trace")] {
        fs::write(&trace, &whole[..bytes]).unwrap();
        fails(&run(&["packets", str(scratch.path())]), &[expected]);
    }
}

#[test]
fn help_that_can_not_be_written_is_an_error() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        kymo_fixtures::skipped("there is no /dev/full here");
        return;
    };
    let output = command(&["--help"]).stdout(full).output().unwrap();
    fails(&output, &["cannot write the help"]);
}

/// Reaching the limit on the size of files is an error like a full disk, and leaves no files.
#[cfg(unix)]
#[test]
fn a_limit_of_file_sizes_is_said_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    let mut text = "# tracer: function\n".to_owned();
    for number in 0..20_000 {
        text += &format!("  prog-1 [000] ..... 10.{number:06}: step{number} <-caller\n");
    }
    std::fs::write(&trace, text).unwrap();
    let command = format!(
        "ulimit -f 100; exec {} export --to json -o {}/x.json {}",
        env!("CARGO_BIN_EXE_kymo"),
        folder.path().display(),
        trace.display()
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("x.json: File too large"), "{printed}");
    let files = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["trace.txt"]);
}
