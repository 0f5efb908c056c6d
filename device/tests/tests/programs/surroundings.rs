//! Programs in environments that refuse, limit or share resources that a recording needs.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kymo_device_tests::Kind;
use kymo_wire::event::METADATA_STREAM;
use kymo_wire::process_file;

use super::common::{build, compilers, device, raw_file};

#[test]
fn a_hook_is_no_cancellation_point() {
    for compiler in compilers() {
        let program = build(compiler, "cancelled", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "by {compiler}: {text}");
        let (identity, _) = raw_file(&file);
        assert!(identity.streams > 0);
    }
}

#[test]
fn what_a_full_stream_lost_without_a_reader_stands_in_the_file() {
    for compiler in compilers() {
        let program = build(compiler, "full_stream", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let status = Command::new(&program)
            .env("KYMO_OUTPUT", &file)
            .env("KYMO_MODE", "stream")
            .env("KYMO_BUFFER", "64k")
            .status();
        assert!(status.expect("the program runs").success());
        let (_, packets) = raw_file(&file);
        let mut events = packets
            .iter()
            .filter(|packet| packet.cpu != METADATA_STREAM);
        let calls = events.clone().flat_map(|packet| &packet.records);
        let calls = calls.filter(|record| matches!(record.kind, Kind::Enter(_) | Kind::Exit(_)));
        let lost = events.next_back().map_or(0, |packet| packet.discarded);
        // Two for each call of `leaf`, and main. What else is recorded now and then (times of day) may be lost too.
        let reported = calls.count() as u32 + lost;
        assert!(
            (200_002..200_050).contains(&reported),
            "by {compiler}: {reported}"
        );
        assert!(lost > 0);
    }
}

#[test]
fn a_limit_of_the_files_size_does_not_end_the_program() {
    let program = build("gcc", "limited", &["-finstrument-functions"]);
    // Too little for the header of the file; for all threads; for one that begins later, and for what is
    // written at the end.
    for (case, limit) in [
        ("ulimit -f 16; exec \"$0\"", ""),
        ("ulimit -f 1000; exec \"$0\"", ""),
        ("exec \"$0\" $1", "100000"),
    ] {
        let file = program.with_extension(format!("{}.kymo", case.len()));
        let output = Command::new("bash")
            .args(["-c", case])
            .arg(&program)
            .arg(limit)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{case}: {:?}: {errors}",
            output.status
        );
        assert_eq!(output.stdout, b"alive\n", "{case}");
        assert!(
            errors.contains("the file would be too large"),
            "{case}: {errors}"
        );
    }
}

/// Starts a program that has recorded events and waits.
fn start(program: &Path, file: &Path) -> Child {
    Command::new(program)
        .env("KYMO_OUTPUT", file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Waits until it records.
fn wait_for_start(child: &mut Child) {
    let mut line = [0; 10];
    let output = child.stdout.as_mut().expect("it is piped");
    output.read_exact(&mut line).expect("it says so");
    assert_eq!(line, *b"recording\n");
}

/// Lets it end; returns its standard error.
fn finish(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An empty folder beside a program.
fn folder(program: &Path) -> PathBuf {
    let folder = program.with_extension("files");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn programs_that_begin_at_once_have_files_of_their_own() {
    const PROGRAMS: usize = 8;
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    for _ in 0..5 {
        let folder = folder(&program);
        let file = folder.join("s");
        // One has ended before.
        assert_eq!(finish(start(&program, &file)), "");
        let mut running: Vec<Child> = (0..PROGRAMS).map(|_| start(&program, &file)).collect();
        running.iter_mut().for_each(wait_for_start);
        let mut found = names(&folder);
        assert_eq!(found.len(), PROGRAMS + 1, "{found:?}");
        found.retain(|name| name != "s.old");
        assert_eq!(found.len(), PROGRAMS, "{found:?}");
        let mut processes: Vec<u32> = running.iter().map(Child::id).collect();
        for name in &found {
            let bytes = fs::read(folder.join(name)).expect("a file");
            assert!(bytes.starts_with(&process_file::MAGIC), "{name}");
            let at = process_file::header::PROCESS;
            let process = bytes[at..].first_chunk().expect("a header");
            let process = u32::from_ne_bytes(*process);
            processes.retain(|other| *other != process);
        }
        assert_eq!(processes, [], "each has its own");
        for child in running {
            assert_eq!(finish(child), "");
        }
        assert_eq!(names(&folder).len(), PROGRAMS + 1);
        for name in found {
            assert!(!raw_file(&folder.join(name)).1.is_empty());
        }
    }
}

#[test]
fn a_file_that_is_renamed_while_the_program_runs_is_not_lost() {
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    let folder = folder(&program);
    let file = folder.join("s");
    let mut first = start(&program, &file);
    wait_for_start(&mut first);
    fs::rename(&file, folder.join("moved")).expect("it is there");
    let mut second = start(&program, &file);
    wait_for_start(&mut second);
    let errors = finish(first);
    assert!(errors.contains("was renamed or removed"), "{errors}");
    assert!(errors.contains("s.1"), "{errors}");
    assert_eq!(finish(second), "");
    assert_eq!(names(&folder), ["moved", "s", "s.1"]);
}

#[test]
fn links_are_followed_and_stay() {
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    let folder = folder(&program);
    fs::create_dir(folder.join("far")).expect("a folder");
    symlink("far/file", folder.join("link")).expect("a link");
    for _ in 0..2 {
        assert_eq!(finish(start(&program, &folder.join("link"))), "");
    }
    assert_eq!(names(&folder), ["far", "link"]);
    assert_eq!(names(&folder.join("far")), ["file", "file.old"]);
    assert!(folder.join("link").is_symlink());
    assert!(!raw_file(&folder.join("link")).1.is_empty());

    // As /dev/stdout is one: what it leads to is somebody else's, and keeps its name and content.
    let link = folder.join("stdout");
    symlink("/proc/self/fd/1", &link).expect("a link");
    let out = folder.join("out");
    let status = Command::new(&program)
        .env("KYMO_OUTPUT", &link)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).expect("a file"))
        .status()
        .expect("the program runs");
    assert!(status.success());
    assert!(link.is_symlink());
    assert_eq!(names(&folder), ["far", "link", "out", "stdout"]);
    let bytes = fs::read(&out).expect("a file");
    assert!(bytes.starts_with(b"recording\n"));
    assert!(bytes.len() > 600, "the recording is behind it");
}

#[test]
fn a_pipe_that_nobody_reads_does_not_stop_the_program() {
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    let folder = folder(&program);
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let errors = finish(start(&program, &pipe));
    assert!(errors.contains("a pipe that nobody reads"), "{errors}");
    // With a reader it gets the recording. (Opening the other end waits until there is one.)
    let mut child = start(&program, &pipe);
    wait_for_start(&mut child);
    let reader = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(reader).expect("a pipe"));
    let writer = fs::OpenOptions::new().write(true).open(&pipe);
    assert_eq!(finish(child), "");
    drop(writer.expect("a pipe"));
    assert!(reader.join().expect("it ends").len() > 600);
    assert_eq!(names(&folder), ["pipe"]);
}

#[test]
fn a_socket_replaces_nothing_but_a_socket() {
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    let folder = folder(&program);
    fs::write(folder.join("precious"), "text").expect("a file");
    fs::write(folder.join("behind"), "text").expect("a file");
    symlink("behind", folder.join("link")).expect("a link");
    symlink("nothing", folder.join("loose")).expect("a link");
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    drop(UnixListener::bind(folder.join("stale")).expect("a socket"));
    let start = |socket: &str| {
        let child = Command::new(&program)
            .env("KYMO_SOCKET", socket)
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        child.expect("the program starts")
    };
    let before = names(&folder);
    let path = folder.display().to_string();
    for wrong in ["precious", "link", "loose", "pipe", ".", "/", path.as_str()] {
        let errors = finish(start(wrong));
        assert!(
            errors.contains("kymo: no host can connect to ") && errors.contains("is not a socket"),
            "{wrong}: {errors}"
        );
        assert_eq!(names(&folder), before, "{wrong}");
    }
    for kept in ["precious", "behind"] {
        let text = fs::read_to_string(folder.join(kept)).expect("it is still there");
        assert_eq!(text, "text", "{kept}");
    }
    // A socket that nobody serves is replaced. What has its name in the end stays, if it is another file.
    let mut child = start("stale");
    wait_for_start(&mut child);
    UnixStream::connect(folder.join("stale")).expect("it is served");
    fs::remove_file(folder.join("stale")).expect("it is there");
    fs::write(folder.join("stale"), "text").expect("a file");
    assert_eq!(finish(child), "");
    assert_eq!(names(&folder), before);
}

#[test]
fn a_buffer_that_is_too_small_is_refused() {
    let program = build("gcc", "waiting", &["-finstrument-functions"]);
    let run = |value: &str| {
        let child = Command::new(&program)
            .env("KYMO_BUFFER", value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        finish(child.expect("the program starts"))
    };
    for wrong in ["1", "100", "8191", "4G", "4096M", "64q", "-1", "k"] {
        let errors = run(wrong);
        assert!(
            errors.contains(
                "KYMO_BUFFER is not used: expected 0 (4 MiB), or 8192 to 4294967295 bytes"
            ),
            "{wrong}: {errors}"
        );
    }
    for right in ["8192", "8k", "1G"] {
        assert_eq!(run(right), "", "{right}");
    }
    // 0 is the default size, as in kymo_config_t: each thread's buffer lies in the file.
    let file = program.with_extension("kymo");
    let mut child = Command::new(&program);
    child.env("KYMO_OUTPUT", &file).env("KYMO_BUFFER", "0");
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().expect("the program starts");
    wait_for_start(&mut child);
    assert!(fs::metadata(&file).expect("it is there").len() > 4 << 20);
    assert_eq!(finish(child), "");
}

#[test]
fn sizes_are_checked_when_a_configuration_is_compiled_and_when_it_runs() {
    let sizes = |packets: u32, packet: u32, stacks: u32| {
        [
            format!("-DPACKETS={packets}"),
            format!("-DPACKET_SIZE={packet}"),
            format!("-DSTACKS={stacks}"),
        ]
    };
    for compiler in compilers() {
        let good = sizes(16, 512, 4);
        let good = good.each_ref().map(String::as_str);
        for (flags, says) in [
            (&good[..], "good 0\n"),
            (
                &["-DBY_HAND"],
                "packet_size: must be a multiple of 8, from 128 to 524288 500\n",
            ),
        ] {
            let program = build(compiler, "configured", flags);
            let output = Command::new(program).output().expect("it runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout), says, "{compiler}");
        }
        for (sizes, rule) in [
            (sizes(16, 500, 4), "packet_size must be a multiple of 8"),
            (sizes(1, 512, 4), "there must be at least 2 packets"),
            (sizes(16, 512, 1), "shadow_stacks must be from 2 to 32"),
        ] {
            let output = Command::new(compiler)
                .args(sizes)
                .args(["-fsyntax-only", "-I"])
                .arg(device().join("c/include"))
                .arg(device().join("tests/programs/configured.c"))
                .output()
                .expect("the compiler runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && errors.contains(rule),
                "{errors}"
            );
        }
    }
}
