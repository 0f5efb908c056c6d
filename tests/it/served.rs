//! Programs on Linux with a socket (`KYMO_SOCKET`), which need no code for it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::{library, run};
use serde_json::Value;

/// Executes commands of one letter: works, or makes a child that works endlessly.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int child_work(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
int main(void) {
    char letter;
    while (read(0, &letter, 1) == 1) {
        if (letter == 'w')
            for (int i = 0; i < 1000; i++) work(i);
        if (letter == 'f' && fork() == 0)
            for (int i = 0;; i++) { child_work(i); usleep(1000); if (i == 100) printf("%d\n", getpid()), fflush(stdout); }
    }
    return 0;
}
"#;

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A folder with the program in it.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("served-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("program.c"), PROGRAM).unwrap();
    let library = library::for_this_machine().unwrap();
    let specs = library.with_file_name("kymo.specs");
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-g",
        "-O1",
        "-finstrument-functions",
        "program.c",
        "-o",
        "program",
    ])
    .arg(format!("-specs={}", specs.display()));
    run::run(gcc.current_dir(&folder)).unwrap();
    folder
}

/// The running program.
struct Program {
    child: Child,
    reported: Option<ChildStdin>,
    printed: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Program {
    /// Starts the program in a folder, with a socket of this name. Returns when the socket exists.
    fn start(folder: &Path, socket: &str, mode: &str) -> Self {
        let mut child = Command::new(folder.join("program"))
            .current_dir(folder)
            .env("KYMO_SOCKET", socket)
            .env("KYMO_MODE", mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            reported: child.stdin.take(),
            printed: BufReader::new(child.stdout.take().unwrap()),
            child,
            folder: folder.to_owned(),
        }
    }

    /// Waits for this process's socket.
    fn socket(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        until("a socket", || UnixStream::connect(&path).is_ok());
        path
    }

    fn tell(&mut self, letters: &str) {
        let reported = self.reported.as_mut().unwrap();
        reported.write_all(letters.as_bytes()).unwrap();
    }

    fn end(&mut self) {
        self.reported = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(verb: &str, socket: &Path) -> Command {
    let mut command = Command::new(kymo::build(Profile::Debug).unwrap());
    command.env("KYMO_PATIENCE", "20");
    command.args([verb, "--target", &format!("unix:{}", socket.display())]);
    command
}

/// The number of calls of each function in a recording.
fn calls(recording: &Path) -> BTreeMap<String, u64> {
    let mut report = Command::new(kymo::build(Profile::Debug).unwrap());
    report.args(["report", "--format", "json"]).arg(recording);
    let text = run::output(&mut report).unwrap();
    let row = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["function"].as_str().unwrap().to_owned();
        (name, line["count"].as_u64().unwrap())
    };
    text.lines().map(row).collect()
}

fn state(socket: &Path) -> Value {
    let text = run::output(ask("status", socket).args(["--format", "json"])).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_program_is_recorded_until_it_ends() {
    let folder = folder("whole");
    let mut program = Program::start(&folder, "socket", "stream");
    let socket = program.socket("socket");
    program.tell("w");
    let recording = folder.join("recording");
    let mut record = ask("record", &socket);
    record.arg("-o").arg(&recording);
    let record = record.stderr(Stdio::piped()).spawn().unwrap();
    until("a recording", || recording.join("metadata").exists());
    let mut second = ask("status", &socket);
    let second = second.env("KYMO_PATIENCE", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success(), "{printed}");
    assert!(printed.contains("answers one host at a time"), "{printed}");
    program.tell("ww");
    program.end();
    let output = record.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("the program has ended"), "{printed}");
    assert_eq!(calls(&recording)["work"], 3000, "{printed}");
    assert!(!socket.exists(), "it was taken away");
}

/// Without `--elf`: the trace names the program's file.
#[test]
fn live_views_have_the_names_of_the_files_that_are_there() {
    let folder = folder("names");
    let mut program = Program::start(&folder, "socket", "stream");
    let socket = program.socket("socket");
    program.tell("w");
    let fetched = run::output(&mut ask("trace", &socket)).unwrap();
    let report = run::output(&mut ask("report", &socket)).unwrap();
    let target = format!("unix:{}", socket.display());
    let mut follow = Command::new(kymo::build(Profile::Debug).unwrap());
    follow.env("KYMO_PATIENCE", "20");
    follow.args(["show", "--follow", &target]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(follow.stdout.take().unwrap());
    program.tell("w");
    let mut followed = String::new();
    while !followed.ends_with('\n') {
        assert_ne!(printed.read_line(&mut followed).unwrap(), 0);
    }
    program.end();
    printed.read_to_string(&mut followed).unwrap();
    assert!(follow.wait().unwrap().success());
    for (view, text) in [("trace", fetched), ("report", report), ("follow", followed)] {
        let calls = text.lines().filter(|line| line.contains("work"));
        assert!(calls.count() > 0, "{view}: {text}");
        assert!(!text.contains("0x"), "{view}: {text}");
    }
}

#[test]
fn a_host_that_goes_away_in_the_middle_holds_nothing_up() {
    let folder = folder("gone");
    let mut program = Program::start(&folder, "socket", "overwrite");
    let socket = program.socket("socket");
    program.tell("w");
    let mut host = UnixStream::connect(&socket).unwrap();
    // The dump excludes all threads until it is done.
    host.write_all(b"\rdump_trace\r").unwrap();
    let mut some = [0; 100];
    host.read_exact(&mut some).unwrap();
    drop(host);
    // The next connection is accepted when the last one has been closed.
    assert_eq!(state(&socket)["recording"], true);
    program.tell("w");
    until("a thousand calls more", || {
        state(&socket)["recorded_bytes"].as_u64() > Some(14_000)
    });
    let recording = folder.join("later.kymo");
    run::run(ask("trace", &socket).arg("-o").arg(&recording)).unwrap();
    assert_eq!(calls(&recording)["work"], 2000);
    assert_eq!(state(&socket)["discarded"], 0);
    program.end();
}

#[test]
fn a_second_host_waits_for_the_first() {
    let folder = folder("second");
    let mut program = Program::start(&folder, "socket", "overwrite");
    let socket = program.socket("socket");
    program.tell("w");
    let connect = || {
        let mut host = UnixStream::connect(&socket).unwrap();
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        host.write_all(b"\rping\r").unwrap();
        host
    };
    let mut answer = [0; 16];
    let mut first = connect();
    assert!(first.read(&mut answer).unwrap() > 0);
    let mut second = connect();
    let soon = Duration::from_millis(300);
    second.set_read_timeout(Some(soon)).unwrap();
    let early = second.read(&mut answer);
    assert!(early.is_err(), "{early:?}");
    first.write_all(b"ping\r").unwrap();
    assert!(first.read(&mut answer).unwrap() > 0);
    drop(first);
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(second.read(&mut answer).unwrap() > 0);
    drop(second);
    program.end();
}

#[test]
fn a_fork_has_a_socket_of_its_own() {
    let folder = folder("fork");
    let mut program = Program::start(&folder, "socket", "overwrite");
    let socket = program.socket("socket");
    program.tell("w");
    until("it works", || {
        state(&socket)["recorded_bytes"].as_u64() > Some(7000)
    });
    let mut host = UnixStream::connect(&socket).unwrap();
    host.set_read_timeout(Some(PATIENCE)).unwrap();
    host.write_all(b"\rping\r").unwrap();
    let mut answer = [0; 16];
    assert!(host.read(&mut answer).unwrap() > 0);
    program.tell("f");
    let mut pid = String::new();
    program.printed.read_line(&mut pid).unwrap();
    let pid = pid.trim();
    let child = program.socket(&format!("socket.{pid}"));
    // The child does not inherit the parent's connection.
    program.end();
    let end = loop {
        match host.read(&mut answer) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(end && !socket.exists());
    let recording = folder.join("child.kymo");
    run::run(ask("trace", &child).arg("-o").arg(&recording)).unwrap();
    let calls = calls(&recording);
    assert!(
        calls["child_work"] > 10 && !calls.contains_key("work"),
        "{calls:?}"
    );
    // The socket file of a killed process is replaced.
    run::run(Command::new("kill").args(["-9", pid])).unwrap();
    until("it is gone", || UnixStream::connect(&child).is_err());
    assert!(child.exists());
    let name = format!("socket.{pid}");
    let mut next = Program::start(&folder, &name, "overwrite");
    let child = next.socket(&name);
    // While it runs, another program in the same environment gets a separate socket.
    let mut other = Program::start(&folder, &name, "overwrite");
    let beside = other.socket(&format!("{name}.{}", other.child.id()));
    for socket in [&child, &beside] {
        assert_eq!(state(socket)["recording"], true);
    }
    other.end();
    next.end();
    assert!(!child.exists() && !beside.exists());
}
