//! Properties that scripts rely on and transcripts can't show: valid JSON, exports to files, closed pipes, manual pages
//! and completion scripts.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kymo_fixtures::captures;
use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, identity};
use serde_json::Value;

/// Command `kymo`, run in the directory of the fixtures.
fn kymo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"))
        .env("NO_COLOR", "1");
    command
}

fn run(arguments: &[&str]) -> Output {
    kymo().args(arguments).output().expect("it runs")
}

/// Parses the lines of stdout as JSON.
fn lines(output: &Output) -> Vec<Value> {
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).expect("every line is JSON"))
        .collect()
}

/// All inputs (whole recordings, damaged ones, and files that are no recording), with the expected exit code.
const INPUTS: [(&str, i32); 11] = [
    ("windows.kymo", 0),
    ("processors.kymo", 0),
    ("demo", 0),
    ("demo.kymo", 0),
    ("threads.kymo", 0),
    ("no-events.kymo", 0),
    ("cut.kymo", 2),
    ("damaged.kymo", 2),
    ("torn-identity.kymo", 2),
    ("empty", 2),
    ("README.md", 2),
];

/// Inputs are mapped, so truncating one while it is read would kill the process and destroy the recording.
#[test]
fn a_recording_is_never_written_over_itself() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("demo.kymo");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.kymo");
    let bytes = fs::read(data).unwrap();
    fs::write(&file, &bytes).unwrap();
    let name = file.to_str().unwrap();
    for arguments in [&["trace"][..], &["export", "--to", "perfetto"]] {
        let output = run(&[arguments, &[name, "-o", name]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("is the input itself"), "{printed}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
}

#[test]
fn info_is_one_object_for_any_input() {
    for (input, code) in INPUTS.into_iter().chain([("missing", 2)]) {
        let output = run(&["info", "--format", "json", input]);
        assert_eq!(output.status.code(), Some(code), "{input}");
        let objects = lines(&output);
        let [object] = objects.as_slice() else {
            panic!("{input}: {objects:?}");
        };
        for member in ["events", "gaps"] {
            assert!(object[member].is_u64(), "{input}: {member}: {object}");
        }
        for member in ["format", "lost", "start_ns", "end_ns"] {
            assert!(object.get(member).is_some(), "{input}: {member}: {object}");
        }
        for stream in object["streams"].as_array().expect("a list") {
            for member in ["name", "cpu", "events", "lost"] {
                assert!(stream.get(member).is_some(), "{input}: {member}: {stream}");
            }
        }
        let errors = object["errors"].as_array().expect("a list");
        assert_eq!(errors.is_empty(), code == 0, "{input}: {errors:?}");
        for error in errors {
            assert!(error["offset"].is_u64(), "{input}: {error}");
            assert!(error["message"].is_string(), "{input}: {error}");
        }
    }
}

#[test]
fn show_gives_as_many_events_as_info_counts() {
    for (input, code) in INPUTS {
        let info = lines(&run(&["info", "--format", "json", input]));
        let output = run(&["show", "--format", "json", input]);
        assert_eq!(output.status.code(), Some(code), "{input}");
        let lines = lines(&output);
        let count = |what: &str| lines.iter().filter(|line| line["type"] == what).count();
        assert_eq!(Value::from(count("event")), info[0]["events"], "{input}");
        assert_eq!(Value::from(count("gap")), info[0]["gaps"], "{input}");
        assert_eq!(
            count("event") + count("gap") + count("repair"),
            lines.len(),
            "{input}: nothing else"
        );
        for line in lines.iter().filter(|line| line["type"] == "event") {
            for member in ["cpu", "thread"] {
                assert!(line.get(member).is_some(), "{line}");
            }
            assert!(line["time_ns"].is_i64(), "{line}");
            assert!(line["name"].is_string(), "{line}");
            assert!(line["fields"].is_object(), "{line}");
        }
    }
}

#[test]
fn jumps_that_the_trace_does_not_tell_are_warned_of_once() {
    let raw = tempfile::tempdir().expect("a directory");
    let csv = raw.path().join("out.csv");
    let csv = csv.to_str().expect("a name");
    let json = ["--format", "json"];
    for subcommand in [
        &["info"][..],
        &["show"],
        &["report"],
        &["profile"],
        &["trace"],
        &["export", "--to", "csv", "--output", csv],
    ] {
        for input in ["demo", "demo.kymo"] {
            let warnings = |elf| {
                let output = run(&[subcommand, &["--elf", elf, input]].concat());
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{subcommand:?} {input}: {text}");
                text.matches("warning: the program calls longjmp").count()
            };
            assert_eq!(warnings("jumps.elf"), 1, "{subcommand:?} {input}");
            assert_eq!(warnings("jumps-marked.elf"), 0, "{subcommand:?} {input}");
            assert_eq!(warnings("demo.elf"), 0, "{subcommand:?} {input}");
        }
    }
    let reported = |elf| {
        let output = run(&[&["info"], &json[..], &["--elf", elf, "demo"]].concat());
        lines(&output)[0]["warnings"].clone()
    };
    let warnings = reported("jumps.elf");
    let options = "-Wl,--wrap=setjmp,-u,setjmp,--wrap=longjmp,-u,longjmp";
    let warning = warnings[0].as_str().expect("a text");
    assert!(warning.contains(options), "{warning}");
    assert_eq!(warnings.as_array().map(Vec::len), Some(1));
    assert_eq!(reported("jumps-marked.elf"), Value::Array(Vec::new()));
}

#[test]
fn report_lines_have_their_members() {
    let output = run(&["report", "--format", "json", "--elf", "demo.elf", "demo"]);
    let lines = lines(&output);
    let leaf = lines
        .iter()
        .find(|line| line["function"] == "leaf")
        .expect("leaf is called");
    for member in ["count", "total_ns", "self_ns", "min_ns", "max_ns", "line"] {
        assert!(leaf[member].is_u64(), "{member}: {leaf}");
    }
    assert_eq!(leaf["count"], 5);
    assert_eq!(leaf["file"], "./demo.c");
}

#[test]
fn a_raw_file_from_stdin_is_shown_like_the_file() {
    let file = fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.kymo"));
    let output = kymo()
        .args(["show", "-"])
        .stdin(file.expect("it is committed"))
        .output()
        .expect("it runs");
    assert_eq!(output.stdout, run(&["show", "demo.kymo"]).stdout);
    assert!(output.status.success());
}

/// Creates a recording whose text is much larger than the capacity of a pipe and of all buffers.
fn large(directory: &Path) -> PathBuf {
    let mut encoder = Encoder::new(CORTEX_M, 0, 0x20);
    for call in 0..20_000 {
        encoder.record(call * 100, &Op::Enter(call as u32 % 1000));
        encoder.record(call * 100 + 60, &Op::Exit(call as u32 % 1000));
    }
    let path = directory.join("large.kymo");
    let mut file = format!("{}\n", identity(CORTEX_M)).into_bytes();
    file.extend(encoder.bytes());
    fs::write(&path, file).expect("it can be written");
    path
}

/// Reads the files of an export, which is a directory or a single file.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if path.is_file() {
        return vec![(path.to_owned(), fs::read(path).unwrap())];
    }
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut all: Vec<_> = entries.flat_map(|it| files(&it.unwrap().path())).collect();
    all.sort();
    all
}

/// Creates a trace in which each stream is repeated many times, so that its clock steps back and packets are lost;
/// `None` without captures.
fn repeated(place: &Path) -> Option<String> {
    const TIMES: usize = 40;
    let from = captures::ctf()?;
    let from = from.join("lttng-recorded/lttng213-ctf1-cyg-fast/trace/ust/uid/0/64-bit");
    let into = place.join("repeated");
    fs::create_dir(&into).unwrap();
    for (name, times) in [("metadata", 1), ("ch_0", TIMES), ("ch_1", TIMES)] {
        let bytes = fs::read(from.join(name)).ok()?;
        fs::write(into.join(name), bytes.repeat(times)).unwrap();
    }
    Some(into.to_str()?.to_owned())
}

#[test]
fn any_number_of_threads_gives_the_same() {
    const VIEWS: [&[&str]; 7] = [
        &["report"],
        &["show"],
        &["show", "--events"],
        &["show", "--format", "json"],
        &["info", "--format", "json"],
        &["calls"],
        &["graph"],
    ];
    let place = tempfile::tempdir().unwrap();
    let large = large(place.path());
    let ctf = place.path().join("ctf");
    let [large, ctf] = [&large, &ctf].map(|path| path.to_str().expect("UTF-8"));
    let exported = run(&["export", "--to", "ctf", large, "-o", ctf]);
    assert!(exported.status.success(), "{exported:?}");
    let small = INPUTS.map(|(input, _)| input.to_owned());
    let folder = captures::ctf();
    let others = [
        "lttng-recorded/lttng213-ctf1-cyg/trace",
        "babeltrace/ctf1-deterministic-ordering-a-corrupted",
    ];
    let others = folder
        .iter()
        .flat_map(|folder| others.map(|name| folder.join(name)));
    let others = others
        .filter(|path| path.exists())
        .map(|path| path.to_str().unwrap().to_owned());
    for input in small
        .into_iter()
        .chain(others)
        .chain([large, ctf].map(str::to_owned))
        .chain(repeated(place.path()))
    {
        let input = input.as_str();
        for arguments in VIEWS {
            let with = |threads| run(&[arguments, &["--threads", threads, input]].concat());
            let one = with("1");
            for threads in ["2", "4"] {
                assert_eq!(with(threads), one, "{arguments:?} {input} {threads}");
            }
        }
        for format in [
            "perfetto",
            "trace-event",
            "folded",
            "flamegraph",
            "csv",
            "json",
            "ctf",
            "ctf2",
            "lttng",
        ] {
            let out = place.path().join("out");
            let with = |threads| {
                let to = out.to_str().unwrap();
                let options = ["export", "--to", format, "-o", to, "--threads", threads];
                let ran = run(&[&options[..], &[input]].concat());
                let written = files(&out);
                let _ = fs::remove_file(&out).or_else(|_| fs::remove_dir_all(&out));
                (ran, written)
            };
            let (one, written) = with("1");
            for threads in ["2", "4"] {
                let (ran, found) = with(threads);
                assert_eq!(ran, one, "{format} {input} {threads}");
                assert!(found == written, "{format} {input} {threads}");
            }
        }
    }
}

#[test]
fn a_recording_of_another_version_is_not_taken_for_a_damaged_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("old.kymo");
    let mut old = identity(CORTEX_M);
    old.protocol = 1;
    fs::write(&path, format!("{old}\n")).unwrap();
    let refused = run(&["show", path.to_str().expect("UTF-8")]);
    let printed = String::from_utf8(refused.stderr).expect("UTF-8");
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed.contains("found one of format 1"), "{printed}");
    assert!(
        printed.contains("help: another version of Kymo made it"),
        "{printed}"
    );
    assert!(!printed.contains("binary mode"), "{printed}");
}

#[test]
fn what_was_overwritten_is_told() {
    let mut encoder = Encoder::new(CORTEX_M, 0, 0x20);
    for call in 0..1000 {
        encoder.record(call * 100, &Op::Enter(1));
        encoder.record(call * 100 + 60, &Op::Exit(1));
    }
    encoder.bytes();
    let newest: Vec<u8> = encoder.packets.split_off(3).concat();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("newest.kymo");
    let identity = format!("{}\n", identity(CORTEX_M)).into_bytes();
    fs::write(&path, [identity, newest].concat()).expect("it can be written");
    let path = path.to_str().expect("UTF-8");
    let info = lines(&run(&["info", "--format", "json", path]));
    assert_eq!(info[0]["overwritten_packets"], 3);
    assert_eq!(info[0]["lost"], 0, "nothing is missing in between");
    let info = String::from_utf8(run(&["info", path]).stdout).expect("UTF-8");
    assert!(
        info.contains("3 packets, overwritten by newer ones"),
        "{info}"
    );
    let report = String::from_utf8(run(&["report", path]).stderr).expect("UTF-8");
    let expected = "the table is of the newest that was recorded: 3 packets before it, overwritten";
    assert!(report.contains(expected), "{report}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let large = large(scratch.path());
    let large = large.to_str().expect("a plain path");
    for arguments in [&["show", large][..], &["show", "--format", "json", large]] {
        let mut child = kymo()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut first = String::new();
        let mut stdout = BufReader::with_capacity(1, child.stdout.take().expect("piped"));
        stdout.read_line(&mut first).expect("a line");
        drop(stdout);
        let mut stderr = String::new();
        let mut pipe = child.stderr.take().expect("piped");
        pipe.read_to_string(&mut stderr).expect("text");
        let code = child.wait().expect("it ends").code();
        assert_eq!((code, &*stderr), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn an_input_that_is_shortened_while_it_is_read_is_an_error() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let large = large(scratch.path());
    let mut child = kymo()
        .args(["show", large.to_str().expect("a plain path")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut first = String::new();
    let mut stdout = BufReader::with_capacity(1, child.stdout.take().expect("piped"));
    stdout.read_line(&mut first).expect("a line");
    // The process is blocked until its output is read, so it has not read the whole input yet.
    let file = fs::OpenOptions::new().write(true).open(&large);
    file.and_then(|file| file.set_len(0))
        .expect("it is shorter");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("it ends");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("error: an input was shortened"), "{stderr}");
}

#[test]
fn a_full_disk_is_an_error() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        kymo_fixtures::skipped("there is no /dev/full here");
        return;
    };
    let output = kymo()
        .args(["show", "demo"])
        .stdout(full)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("error: cannot write the result"),
        "{stderr}"
    );
}

#[test]
fn every_format_is_written_where_it_was_asked_for() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    for format in kymo_export::Formats::built_in().iter() {
        let name = match format.extensions.first() {
            Some(extension) => format!("{}.{extension}", format.name),
            None => format.name.to_owned(),
        };
        let path = scratch.path().join(name);
        let out = path.to_str().expect("a plain path");
        let output = run(&[
            "export",
            "--to",
            format.name,
            "-o",
            out,
            "--elf",
            "demo.elf",
            "demo",
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {stderr}", format.name);
        match format.shape {
            kymo_export::Shape::File => {
                let written = fs::read(&path).expect("it is there");
                assert!(!written.is_empty(), "{}", format.name);
                let piped = run(&["export", "--to", format.name, "--elf", "demo.elf", "demo"]);
                assert!(
                    piped.stdout == written,
                    "{}: stdout is the same",
                    format.name
                );
            }
            kymo_export::Shape::Directory => {
                assert!(path.join("metadata").is_file(), "{}", format.name);
                let again = run(&["export", "--to", format.name, "-o", out, "demo"]);
                assert_eq!(
                    again.status.code(),
                    Some(2),
                    "an old export is not mixed with a new"
                );
            }
        }
    }
}

/// Uses `script`, which runs a command in a terminal of its own.
#[cfg(target_os = "linux")]
#[test]
fn what_is_no_text_is_not_written_to_a_terminal() {
    let in_terminal = |arguments: &str| {
        let mut script = Command::new("script");
        script
            .args(["-qec", &format!("$KYMO {arguments}"), "/dev/null"])
            .current_dir(kymo().get_current_dir().expect("the fixtures"))
            .env("KYMO", env!("CARGO_BIN_EXE_kymo"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        let output = script.output().expect("script (util-linux) is there");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), printed)
    };
    let (code, printed) = in_terminal("export --to perfetto demo.kymo");
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("help: give a file with -o"), "{printed}");
    let (code, printed) = in_terminal("export --to perfetto demo.kymo | cat > /dev/null");
    assert!(code == Some(0) && printed.contains("note: "), "{printed}");
    let (code, printed) = in_terminal("export --to csv demo.kymo");
    assert!(
        code == Some(0) && printed.contains("time_ns,cpu"),
        "{printed}"
    );
}

#[test]
fn there_is_a_page_for_every_verb() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let directory = scratch.path().join("man1");
    let output = run(&["man", directory.to_str().expect("a plain path")]);
    assert!(output.status.success());
    for page in [
        "kymo",
        "kymo-show",
        "kymo-report",
        "kymo-info",
        "kymo-export",
    ] {
        let text = fs::read_to_string(directory.join(format!("{page}.1"))).expect("a page");
        assert!(text.contains(".SH EXAMPLES"), "{page}");
    }
}

/// Any byte of a file can be corrupt, and any file can be truncated: there is still a result and an exit code, and the
/// output is valid.
#[test]
fn damage_is_told_and_never_a_crash() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let whole = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.kymo"));
    let whole = whole.expect("it is committed");
    let path = scratch.path().join("damaged.kymo");
    let input = path.to_str().expect("a plain path");
    let cuts = (0..whole.len())
        .step_by(23)
        .map(|end| whole[..end].to_vec());
    let flips = (0..whole.len()).step_by(11).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    for (i, bytes) in cuts.chain(flips).enumerate() {
        fs::write(&path, &bytes).expect("it can be written");
        let arguments: &[&str] = match i % 4 {
            0 => &["show", input],
            1 => &["show", "--format", "json", input],
            2 => &["info", "--format", "json", input],
            _ => &["report", "--format", "json", input],
        };
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(2) => assert!(
                stderr.contains("error: "),
                "{arguments:?}, number {i}: {stderr}"
            ),
            other => panic!("{arguments:?}, number {i}: {other:?}: {stderr}"),
        }
        if arguments.contains(&"json") {
            lines(&output);
        }
    }
}
