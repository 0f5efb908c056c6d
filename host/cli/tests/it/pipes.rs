//! Recordings that come through a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn kymo(arguments: &[&str]) -> Command {
    let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
    kymo.args(arguments).current_dir(data());
    kymo.env("NO_COLOR", "1");
    kymo.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    kymo
}

/// Its output when these bytes come through a pipe, so many at once.
fn piped(arguments: &[&str], bytes: &[u8], at_once: usize) -> Output {
    let mut child = kymo(arguments).spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || {
        for chunk in bytes.chunks(at_once) {
            if pipe.write_all(chunk).is_err() {
                break;
            }
        }
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends");
    output
}

fn text(bytes: &[u8], name: &str) -> String {
    String::from_utf8_lossy(bytes).replace(name, "stdin")
}

#[test]
fn a_recording_through_a_pipe_is_shown_like_the_file() {
    for name in [
        "demo.kymo",
        "cut.kymo",
        "damaged.kymo",
        "windows.kymo",
        "dates.kymo",
        "items.kymo",
    ] {
        let bytes = fs::read(data().join(name)).expect("it is committed");
        for view in [
            &["show"][..],
            &["show", "-e"],
            &["show", "--format", "json"],
        ] {
            let file = kymo(&[view, &[name]].concat()).output().expect("it runs");
            for at_once in [bytes.len(), 97] {
                let pipe = piped(&[view, &["-"]].concat(), &bytes, at_once);
                let what = format!("{name} {view:?} {at_once}");
                assert_eq!(text(&pipe.stdout, name), text(&file.stdout, name), "{what}");
                assert_eq!(text(&pipe.stderr, name), text(&file.stderr, name), "{what}");
                assert_eq!(pipe.status.code(), file.status.code(), "{what}");
            }
        }
    }
}

/// Whether something is shown of what has come, though the pipe stays open.
fn is_shown_at_once(arguments: &[&str], bytes: &[u8]) {
    let mut child = kymo(arguments).spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(bytes).expect("it is read");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (sender, shown) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.by_ref().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let first = shown.recv_timeout(std::time::Duration::from_secs(20));
    drop(pipe);
    child.wait().expect("it ends");
    reader.join().expect("it ends");
    assert!(
        first.is_ok(),
        "{arguments:?}: nothing before the end of the pipe"
    );
}

#[test]
fn what_comes_through_a_pipe_is_shown_as_it_comes() {
    let demo = fs::read(data().join("demo.kymo")).expect("it is committed");
    is_shown_at_once(&["show", "-e", "-"], &demo);
    is_shown_at_once(&["show", "--format", "json", "-"], &demo);
    is_shown_at_once(&["show", "-"], &demo);
    let mut encoder = Encoder::new(CORTEX_M, 0, 0x20);
    for call in 0..2000 {
        encoder.record(call * 100, &Op::Enter(call as u32 % 9));
        encoder.record(call * 100 + 60, &Op::Exit(call as u32 % 9));
    }
    let stream = encoder.bytes();
    is_shown_at_once(&["show", "-e", "--metadata", "demo/metadata", "-"], &stream);
}
