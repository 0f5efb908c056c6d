//! Recordings of RTEMS's events: saved ones, and live ones from a record server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use kymo_fixtures::rtems_record::{LAYOUTS, Stream};

fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().unwrap()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Creates a stream of two processors with `rounds` rounds of a thread that writes.
fn stream(rounds: u64) -> (Stream, usize) {
    let mut stream = Stream::new(LAYOUTS[1], 10, 2, 64, 1_000_000);
    stream
        .thread(0x0901_0001, "IDLE")
        .thread(0x0a01_0001, "UI1 ");
    let mut half = 0;
    for round in 0..rounds {
        let now = 1_000_000 + round * 5_000;
        for cpu in 0..2 {
            stream.processor(cpu).uptime(now);
            stream
                .item(now + 1, 306, 0x0901_0001 + cpu)
                .item(now + 1, 305, 0x0a01_0001 + cpu);
            stream.item(now + 10, 338, 0x1000).item(now + 10, 22, 3);
            stream.item(now + 30, 339, 0x1000).item(now + 30, 142, 7);
            stream.item(now + 40, 512, round);
        }
        if round == rounds / 2 {
            half = stream.bytes.len();
        }
    }
    (stream, half)
}

/// The item of a loss has no time of its own, and the time of the record before the loss is not the end of the loss.
#[test]
fn the_time_of_a_second_loss_before_a_pair_is_no_threads() {
    let (idle, first, second) = (0x0901_0001, 0x0a01_0001, 0x0a01_0002);
    let folder = tempfile::tempdir().unwrap();
    for version in [9, 10] {
        // Version 9 has different event numbers.
        let (switch_out, switch_in, line) = match version {
            9 => (303, 302, 89),
            _ => (306, 305, 101),
        };
        let ms = 1_000;
        let mut stream = Stream::new(LAYOUTS[0], version, 1, 16, 1_000_000);
        stream
            .thread(idle, "IDLE")
            .thread(first, "T00")
            .thread(second, "T01");
        let switch = |stream: &mut Stream, at, from, to| {
            stream.item(at, switch_out, from).item(at, switch_in, to);
        };
        // Version 9 records the read position of the ring, version 10 the number of lost items.
        let mut read = 0;
        let mut chunk = |stream: &mut Stream, lost: u64, items: u64| {
            stream.processor(0);
            match (version, lost) {
                (9, _) => {
                    stream.ring(read, read + lost + items);
                    read += lost + items;
                }
                (_, 0) => {}
                _ => {
                    stream.overflow(lost);
                }
            }
        };
        chunk(&mut stream, 0, 5);
        stream.uptime(5_000 * ms);
        switch(&mut stream, 5_000 * ms + 1, idle, first);
        stream.item(5_001 * ms, line, 1);
        // T01 runs up to 5.022 s.
        chunk(&mut stream, 100, 15);
        for at in 0..13 {
            stream.item(5_021 * ms + at, line, 2);
        }
        switch(&mut stream, 5_022 * ms, second, first);
        chunk(&mut stream, 50, 15);
        for at in 0..11 {
            stream.item(5_030 * ms + at, line, 3);
        }
        stream.uptime(5_030 * ms + 20);
        switch(&mut stream, 5_031 * ms, second, first);
        chunk(&mut stream, 0, 1);
        stream.item(5_032 * ms, line, 4);
        let file = folder.path().join("two-losses.bin");
        std::fs::write(&file, &stream.bytes).unwrap();
        let output = kymo(&[
            "report",
            "--by",
            "thread",
            "--format",
            "json",
            file.to_str().unwrap(),
        ]);
        let (out, errors) = text(&output);
        let rows: Vec<serde_json::Value> = out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let run = |name: &str| {
            let row = rows.iter().find(|row| row["thread"] == name);
            row.map_or_else(
                || panic!("{name}: {out}{errors}"),
                |row| row["run_ns"].clone(),
            )
        };
        assert_eq!(
            (run("T00"), run("T01")),
            (1_999_000.into(), 2_000_000.into()),
            "version {version}: {out}{errors}"
        );
    }
}

/// A record server that sends these bytes to one client: the first part, then the rest on request.
fn server(bytes: Vec<u8>, half: usize, go: Receiver<()>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (first, rest) = bytes.split_at(half);
        // The pieces do not end at item boundaries.
        for piece in first.chunks(61) {
            // The client may have exited with an error.
            let _ = client.write_all(piece);
        }
        let _ = go.recv();
        // The client may have closed the connection already.
        let _ = client.write_all(rest);
    });
    (format!("rtems:127.0.0.1:{port}"), thread)
}

#[test]
fn a_record_server_is_recorded_byte_by_byte() {
    let (stream, half) = stream(20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    let file_name = file.to_str().unwrap();
    let (go, wait) = channel();
    go.send(()).unwrap();
    let (address, thread) = server(stream.bytes.clone(), half, wait);
    let output = kymo(&["record", &address, "-o", file_name, "--format", "json"]);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    thread.join().unwrap();
    assert!(std::fs::read(&file).unwrap() == stream.bytes);
    assert!(
        out.contains(&format!("\"bytes\":{}", stream.bytes.len())),
        "{out}"
    );
    // The recording is an input for other subcommands.
    let output = kymo(&["info", file_name]);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    for part in [
        "rtems-record",
        "arch       ARM",
        "bsp        realview",
        "UI1",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // The limit is exact.
    let (go, wait) = channel();
    go.send(()).unwrap();
    let (address, thread) = server(stream.bytes.clone(), half, wait);
    let output = kymo(&["record", &address, "-o", file_name, "--limit", "1000"]);
    assert!(output.status.success(), "{}", text(&output).1);
    assert!(std::fs::read(&file).unwrap() == stream.bytes[..1000]);
    thread.join().unwrap();
}

/// A limit on the size of files simulates a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_whole_items() {
    let (stream, half) = stream(400);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    for blocks in [0, 13] {
        let (go, wait) = channel();
        go.send(()).unwrap();
        let (address, thread) = server(stream.bytes.clone(), half, wait);
        let line = "trap '' XFSZ; ulimit -f $0; exec \"$@\"";
        let output = Command::new("sh")
            .args(["-c", line, &blocks.to_string(), env!("CARGO_BIN_EXE_kymo")])
            .args(["record", &address, "--format", "json", "-o"])
            .arg(&file)
            .output()
            .unwrap();
        thread.join().unwrap();
        let (out, errors) = text(&output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("File too large"), "{errors}");
        assert!(
            errors.contains("and what the target sent since"),
            "{errors}"
        );
        let kept = std::fs::read(&file).unwrap();
        assert!(stream.bytes.starts_with(&kept));
        assert!(out.contains(&format!("\"bytes\":{},", kept.len())), "{out}");
        if blocks == 0 {
            assert!(
                kept.is_empty() && errors.contains("nothing is kept"),
                "{errors}"
            );
            continue;
        }
        let size = format!(
            "what arrived until then is in {} ({} bytes)",
            file.display(),
            kept.len()
        );
        assert!(errors.contains(&size), "{errors}");
        let info = kymo(&["info", "--format", "json", file.to_str().unwrap()]);
        let (info, errors) = text(&info);
        assert!(info.contains("\"errors\":[]"), "{info}{errors}");
        let info: serde_json::Value = serde_json::from_str(info.trim()).unwrap();
        let summary: serde_json::Value = serde_json::from_str(out.trim()).unwrap();
        assert_eq!(info["events"], summary["events"]);
    }
}

#[test]
fn a_duration_ends_a_recording_of_a_target_that_says_nothing_more() {
    let (stream, half) = stream(20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    let file_name = file.to_str().unwrap();
    let (go, wait) = channel();
    let (address, thread) = server(stream.bytes.clone(), half, wait);
    let output = kymo(&["record", &address, "-o", file_name, "--duration", "1s"]);
    assert!(output.status.success(), "{}", text(&output).1);
    assert!(std::fs::read(&file).unwrap() == stream.bytes[..half]);
    drop(go);
    thread.join().unwrap();
}

#[test]
fn a_recording_that_the_user_ends_within_an_item_is_whole() {
    let (stream, half) = stream(20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    let file_name = file.to_str().unwrap();
    let (go, wait) = channel();
    let (address, thread) = server(stream.bytes.clone(), half + 5, wait);
    let output = kymo(&["record", &address, "-o", file_name, "--duration", "1s"]);
    assert!(output.status.success(), "{}", text(&output).1);
    assert!(std::fs::read(&file).unwrap() == stream.bytes[..half]);
    drop(go);
    thread.join().unwrap();
    // A stream that ends within an item is damaged.
    let (address, thread) = server(stream.bytes[..half + 5].to_vec(), half, {
        let (go, wait) = channel();
        go.send(()).unwrap();
        wait
    });
    let output = kymo(&["record", &address, "-o", file_name]);
    assert_eq!(output.status.code(), Some(2));
    assert!(std::fs::read(&file).unwrap() == stream.bytes[..half + 5]);
    thread.join().unwrap();
}

#[test]
fn a_log_with_two_dumps_is_two_machines_and_one_can_be_chosen() {
    let (first, second) = (stream(3).0, stream(5).0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("console.log");
    let log = format!(
        "{}reset\n{}",
        first.log(false, "[1] "),
        second.log(true, "[2] ")
    );
    std::fs::write(&file, log).unwrap();
    let file_name = file.to_str().unwrap();
    let writes = |arguments: &[&str]| {
        let output = kymo(&[&["report", "--format", "json"], arguments, &[file_name]].concat());
        let (out, errors) = text(&output);
        assert!(output.status.success(), "{errors}");
        let mut rows = out.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            row
        });
        let row = rows.find(|row| row["function"] == "write").unwrap();
        (row["count"].as_u64().unwrap(), errors)
    };
    let (both, errors) = writes(&[]);
    assert_eq!(both, 16);
    assert!(errors.contains("there are 2 dumps in the log"), "{errors}");
    assert_eq!(writes(&["--dump", "1"]).0, 6);
    assert_eq!(writes(&["--dump", "2"]).0, 10);
    let output = kymo(&["info", file_name]);
    let (out, _) = text(&output);
    assert!(out.contains("cpu1 of dump 2"), "{out}");
    // Threads of the two dumps are distinct.
    let output = kymo(&["report", "--by", "thread", file_name]);
    let (out, errors) = text(&output);
    assert_eq!(out.matches("UI1").count(), 2, "{out}{errors}");
    for refused in ["0", "3"] {
        let output = kymo(&["info", "--dump", refused, file_name]);
        assert_eq!(output.status.code(), Some(2), "{refused}");
    }
}

#[test]
fn dates_are_known_where_the_user_tells_when_the_target_started() {
    let (stream, _) = stream(3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    std::fs::write(&file, &stream.bytes).unwrap();
    let file_name = file.to_str().unwrap();
    let zero = ["--time-zero", "2026-11-21T17:20:00.5Z"];
    let output = kymo(&[&["info", file_name], &zero[..]].concat());
    let (out, errors) = text(&output);
    assert!(
        out.contains("date       2026-11-21T17:20:0"),
        "{out}{errors}"
    );
    let show = ["show", "--events", "--time", "date", file_name];
    let (out, errors) = text(&kymo(&[&show[..], &zero].concat()));
    assert!(out.contains("2026-11-21T17:20:0"), "{out}{errors}");
    let (_, errors) = text(&kymo(&show));
    assert!(errors.contains("--time-zero"), "{errors}");
    // Exports for other tools have the dates, too.
    let kernel = folder.path().join("kernel");
    let export = ["export", "--to", "lttng", "-o", kernel.to_str().unwrap()];
    let output = kymo(&[&export[..], &[file_name], &zero].concat());
    assert!(output.status.success(), "{}", text(&output).1);
    let metadata = std::fs::read_to_string(kernel.join("metadata")).unwrap();
    let seconds = "offset_s = 1795281600;";
    assert!(metadata.contains(seconds), "{metadata}");
    assert!(metadata.contains("offset = 500000000;"), "{metadata}");
}

#[test]
fn what_a_record_server_sends_is_shown_as_it_comes() {
    let (stream, half) = stream(40);
    let (go, wait) = channel();
    let (address, thread) = server(stream.bytes, half, wait);
    let mut child = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .args(["show", "--follow", "--events", &address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    // The server sends the second half only after events of the first half were shown.
    let seen = lines
        .by_ref()
        .filter(|line| line.contains("USER_0"))
        .take(5)
        .count();
    assert_eq!(seen, 5);
    go.send(()).unwrap();
    let rest = lines.filter(|line| line.contains("USER_0")).count();
    assert_eq!(rest, 75);
    assert!(child.wait().unwrap().success());
    thread.join().unwrap();
}

#[test]
fn a_part_can_be_around_a_span() {
    let mut stream = Stream::new(LAYOUTS[1], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(1_000_000);
    stream.item(1_000_010, 512, 1);
    // A lock with a wait, and the time for which it is held.
    stream.item(1_005_000, 89, 0x40).item(1_005_010, 90, 0x40);
    stream.item(1_005_020, 95, 0x40).item(1_005_030, 513, 2);
    stream.item(1_009_000, 514, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.bin");
    std::fs::write(&path, stream.bytes).unwrap();
    let path = path.to_str().unwrap();
    let shown = |around: &str| {
        let arguments = [
            "show", "--events", "--around", around, "--margin", "1us", path,
        ];
        let output = kymo(&arguments);
        (output.status.success(), text(&output))
    };
    let (all, _) = text(&kymo(&["report", path]));
    let name = all.lines().find(|line| line.contains("wait for")).unwrap();
    let name = name.split_once("wait for").unwrap().1.trim();
    let (found, (events, errors)) = shown(&format!("wait for {name}"));
    assert!(found, "{errors}");
    assert!(
        !events.contains("USER_0") && !events.contains("USER_2"),
        "{events}"
    );
    assert!(events.contains("ISR_LOCK_ACQUIRE_ENTRY"), "{events}");
    let (found, (_, errors)) = shown("wait for nothing");
    assert!(!found);
    assert!(
        errors.contains("there is no event wait for nothing"),
        "{errors}"
    );
}

#[test]
fn damage_is_told_with_its_offset_and_what_came_before() {
    let (mut stream, _) = stream(3);
    let good = stream.bytes.len();
    stream.processor(9);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bin");
    std::fs::write(&file, &stream.bytes).unwrap();
    let output = kymo(&["show", "--events", file.to_str().unwrap()]);
    let (out, errors) = text(&output);
    assert!(!output.status.success());
    assert_eq!(
        out.lines().filter(|line| line.contains("USER_0")).count(),
        6
    );
    assert!(errors.contains(&format!("offset {good}")), "{errors}");
    assert!(errors.contains("from 0 to 1, found 9"), "{errors}");
    // The input is refused, with a JSON object for programs.
    stream.bytes[4] ^= 1;
    std::fs::write(&file, &stream.bytes).unwrap();
    let output = kymo(&["info", "--format", "json", file.to_str().unwrap()]);
    let (out, errors) = text(&output);
    assert!(!output.status.success());
    assert!(errors.contains("magic number"), "{errors}");
    assert!(out.contains("\"offset\":4"), "{out}");
}

#[test]
fn events_have_the_names_of_a_file() {
    let (stream, _) = stream(2);
    let folder = tempfile::tempdir().unwrap();
    let (file, names) = (
        folder.path().join("capture.bin"),
        folder.path().join("names.ini"),
    );
    std::fs::write(&file, &stream.bytes).unwrap();
    std::fs::write(&names, "[EventNames]\n0x200 = FrameBegin\n").unwrap();
    let input = file.to_str().unwrap();
    let output = kymo(&[
        "show",
        "--events",
        "--event-names",
        names.to_str().unwrap(),
        input,
    ]);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    assert_eq!(out.matches("FrameBegin").count(), 4, "{out}");
    let output = kymo(&["report", input]);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    assert!(out.contains("write"), "{out}");
    std::fs::write(&names, "[EventNames]\nFrame = 1\n").unwrap();
    let output = kymo(&["show", "--event-names", names.to_str().unwrap(), input]);
    assert!(text(&output).1.contains("line 2"), "{}", text(&output).1);
}
