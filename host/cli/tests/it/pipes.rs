//! Recordings read from a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kymo_fixtures::captures;
use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, identity};
use kymo_wire::event::{METADATA_STREAM, PacketHeader};

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

/// Runs `kymo` with these bytes on a pipe, written in pieces of `at_once` bytes, and returns its output.
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
        "processors.kymo",
        "threads.kymo",
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

/// Splits a recording into packets, each with its processor.
fn packets_of(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut packets = Vec::new();
    while let Some(header) = PacketHeader::read(CORTEX_M, bytes) {
        let (packet, rest) = bytes.split_at(header.packet_bits as usize / 8);
        packets.push((header.cpu, packet));
        bytes = rest;
    }
    packets
}

/// One packet is truncated, or its header states a much larger length.
#[test]
fn damage_in_a_pipe_is_where_the_file_has_it() {
    let demo = fs::read(data().join("demo.kymo")).expect("it is committed");
    let magic = kymo_wire::packet::PACKET_MAGIC.to_le_bytes();
    let starts = demo.windows(4).enumerate();
    let starts = starts.filter(|(_, bytes)| *bytes == magic).map(|it| it.0);
    let starts: Vec<usize> = starts.collect();
    let folder = tempfile::tempdir().expect("a folder");
    // Without the packet of names, because its damage has no time: with a pipe it is only in the messages.
    for pair in starts.windows(2).skip(1) {
        let [start, end] = [pair[0], pair[1]];
        let cut = [&demo[..end - 20], &demo[end..]].concat();
        let mut long = demo.clone();
        // A high bit of the packet's length.
        long[start + PacketHeader::CONTENT_OFFSET + 4 + 3] ^= 4;
        for (n, bytes) in [cut, long].into_iter().enumerate() {
            let path = folder.path().join("x.kymo");
            fs::write(&path, &bytes).expect("it can be written");
            let path = path.to_str().expect("a path in Unicode");
            let file = kymo(&["show", "-e", path]).output().expect("it runs");
            let pipe = piped(&["show", "-e", "-"], &bytes, 97);
            let what = format!("{start}..{end}, {n}");
            assert_eq!(text(&pipe.stdout, path), text(&file.stdout, path), "{what}");
            assert_eq!(text(&pipe.stderr, path), text(&file.stderr, path), "{what}");
        }
    }
}

#[test]
fn names_that_come_again_through_a_pipe_are_shown_like_those_of_the_file() {
    const REPEATS: usize = 5_000;
    let demo = fs::read(data().join("demo.kymo")).expect("it is committed");
    let start = 1 + demo.iter().position(|byte| *byte == b'\n').expect("a line");
    let (identity, packets) = demo.split_at(start);
    let names = packets_of(packets);
    let names = names.iter().find(|packet| packet.0 == METADATA_STREAM);
    let (_, names) = names.expect("names");
    let mut encoder = Encoder::new(CORTEX_M, 0, 0x20);
    for call in 0..4000 {
        encoder.record(call * 100, &Op::Enter(call as u32 % 9));
        encoder.record(call * 100 + 60, &Op::Exit(call as u32 % 9));
    }
    let stream = encoder.bytes();
    let others = packets_of(&stream);
    assert!(others.len() > 50, "{}", others.len());
    let mut bytes = identity.to_vec();
    for (_, packet) in &others {
        bytes.extend(*packet);
        bytes.extend(names.repeat(REPEATS / others.len() + 1));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("names.kymo");
    fs::write(&file, &bytes).expect("it is written");
    let file = file.to_str().expect("UTF-8");
    let expected = kymo(&["show", "-e", file]).output().expect("it runs");
    let pipe = piped(&["show", "-e", "-"], &bytes, 4096);
    assert_eq!(text(&pipe.stderr, file), text(&expected.stderr, file));
    // Damage of names is listed first for a file, and in the order of arrival for a pipe.
    let of_kind = |output: &Output, names: bool| {
        let text = text(&output.stdout, file);
        let is_name = |line: &&str| line.contains(" metadata: ") || line.contains("packets lost");
        let lines = text.lines().filter(|line| is_name(line) == names);
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for names in [false, true] {
        let (pipe, file) = (of_kind(&pipe, names), of_kind(&expected, names));
        assert_eq!(pipe.len(), file.len());
        let first = pipe.iter().zip(&file).find(|(pipe, file)| pipe != file);
        assert_eq!(first, None, "the first that differs");
    }
    assert!(of_kind(&pipe, true).len() > REPEATS);
}

/// Creates the stream of a processor with this number of calls.
fn calls_of(cpu: u16, calls: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(CORTEX_M, cpu, 0x20 + u64::from(cpu));
    for call in 0..calls {
        let (begin, function) = (call * 100 + u64::from(cpu) * 30, call as u32 % 9);
        encoder.record(begin, &Op::Enter(function));
        encoder.record(begin + 20, &Op::Exit(function));
    }
    encoder.bytes()
}

/// Creates a recording of a target with two processors, whose packets alternate in groups of `packets_at_once`.
fn two_streams(calls: u64, packets_at_once: usize) -> Vec<u8> {
    let mut identity = identity(CORTEX_M);
    identity.streams = 2;
    let mut bytes = format!("{identity}\n").into_bytes();
    let streams = [calls_of(0, calls), calls_of(1, calls)];
    let mut packets = streams.each_ref().map(|stream| packets_of(stream));
    while packets.iter().any(|packets| !packets.is_empty()) {
        for packets in &mut packets {
            let turn = packets_at_once.min(packets.len());
            bytes.extend(packets.drain(..turn).flat_map(|(_, packet)| packet));
        }
    }
    bytes
}

#[test]
fn streams_of_a_pipe_are_put_in_order_as_far_as_buffers_reach() {
    const ALL: usize = usize::MAX;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("two.kymo");
    let file = file.to_str().expect("UTF-8");
    // A dump, with one stream behind the other; a live stream, with alternating packets; and a dump larger than the
    // buffers.
    for (calls, at_once, in_order) in [(3000, ALL, true), (30_000, 1, true), (30_000, ALL, false)] {
        let bytes = two_streams(calls, at_once);
        fs::write(file, &bytes).expect("it is written");
        let expected = kymo(&["show", "-e", file]).output().expect("it runs");
        let pipe = piped(&["show", "-e", "-"], &bytes, 4096);
        let sorted = |output: &Output| {
            let mut lines: Vec<_> = output.stdout.split(|byte| *byte == b'\n').collect();
            lines.sort_unstable();
            lines.concat()
        };
        assert!(sorted(&pipe) == sorted(&expected), "{calls} {at_once}");
        assert_eq!(
            pipe.stdout == expected.stdout,
            in_order,
            "{calls} {at_once}"
        );
        let printed = String::from_utf8_lossy(&pipe.stderr);
        assert_eq!(
            printed.contains("came behind later ones"),
            !in_order,
            "{printed}"
        );
    }
    // The buffers could hold all of this, but events are shown as soon as both streams have reached their time.
    is_shown_at_once(&["show", "-e", "-"], &two_streams(3000, 1));
}

/// Asserts that something is shown while the pipe is still open.
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

#[test]
fn dumps_of_zephyr_are_shown_when_they_have_come() {
    let captures = captures::zephyr_instrumentation();
    let dump = |name: &str| fs::read(captures.join(name)).expect("a capture");
    let trace = dump("instr_default/cap1/11_dump_trace.bin");
    let profile = dump("instr_default/cap1/10_dump_profile.bin");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dumps.bin");
    let file = file.to_str().expect("UTF-8");
    let text_around = [b"*** Booting ***\r\n", &trace[..], b"uart:~$ \r\n", &trace].concat();
    let cut = trace.get(..trace.len() * 2 / 3).expect("a part");
    for bytes in [
        trace.clone(),
        text_around,
        [&profile[..], &trace].concat(),
        [&trace[..], cut].concat(),
        [&trace[..], &[0xFF; 100]].concat(),
    ] {
        fs::write(file, &bytes).expect("it is written");
        for view in [&["show", "-e"][..], &["show", "--format", "json"]] {
            let expected = kymo(&[view, &[file]].concat()).output().expect("it runs");
            for at_once in [bytes.len(), 97] {
                let pipe = piped(&[view, &["-"]].concat(), &bytes, at_once);
                let what = format!("{view:?} {} {at_once}", bytes.len());
                let lines =
                    |output: &Output| text(&output.stdout, file).replace("\"-", "\"dumps.bin");
                assert!(lines(&pipe) == lines(&expected), "{what}");
                assert_eq!(pipe.status.code(), expected.status.code(), "{what}");
            }
        }
    }
    is_shown_at_once(&["show", "-e", "-"], &trace);
    is_shown_at_once(&["show", "-"], &trace);
}

#[test]
fn a_copy_that_finds_no_room_is_said_to_be_one() {
    let demo = fs::File::open(data().join("demo.kymo")).expect("it is committed");
    let mut kymo = kymo(&["report", "-"]);
    kymo.stdin(demo).env("TMPDIR", "/no/such/place");
    let output = kymo.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("its copy, which this format needs"),
        "{printed}"
    );
    assert!(printed.contains("/no/such/place: "), "{printed}");
    assert!(printed.contains("help: save it to a file"), "{printed}");
}
