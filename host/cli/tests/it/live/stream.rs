//! Streams from a target that records: `kymo record`, and `kymo show --follow`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use kymo_wire::event::PacketHeader;
use serde_json::Value;
use tempfile::TempDir;

use super::{LinkCommand, command, err, fails, good, interrupt, on, run, state};
use kymo_fixtures::target::{Fake, Faults, STARTED, State, wait_until};

/// Creates a target with an empty recording; returns it with the packets of a fixture, for the test to record.
fn streaming(fixture: &str, faults: Faults) -> (Fake, Vec<Vec<u8>>) {
    let state = state(fixture);
    let mut rest = &state.trace[..];
    let mut packets = Vec::new();
    while let Some(header) = PacketHeader::read(state.identity.layout, rest) {
        let (packet, behind) = rest.split_at(header.packet_bits as usize / 8);
        packets.push(packet.to_vec());
        rest = behind;
    }
    assert!(rest.is_empty() && packets.len() > 2);
    // If the connection breaks, the window ends there, so that packets behind the acknowledged ones remain.
    let window = match faults.close_after.or(faults.mute_after) {
        Some(acknowledged) => acknowledged,
        None => state.window,
    };
    let fake = Fake::start(State {
        faults,
        window,
        ..state
    });
    (fake, packets)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Background process of `kymo`, killed if the test fails.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("it runs"))
    }

    fn lines(&mut self) -> std::io::Lines<BufReader<ChildStdout>> {
        let pipe = self.0.stdout.take().expect("a pipe");
        BufReader::new(pipe).lines()
    }

    /// Interrupts the process and returns its exit code.
    fn interrupt(&mut self) -> Option<i32> {
        interrupt(&self.0);
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Size of a stream's file in the recording, in bytes.
fn recorded(directory: &TempDir, file: &str) -> u64 {
    fs::metadata(directory.path().join("trace").join(file)).map_or(0, |file| file.len())
}

#[test]
fn what_is_recorded_is_what_a_dump_would_have_been() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    for packet in &packets {
        fake.record(packet.clone());
    }
    let output = on(
        &fake,
        &[
            "record",
            "-o",
            text(&trace),
            "--events",
            "30",
            "--format",
            "json",
            "--elf",
            "demo.elf",
        ],
    );
    let summary: Value = serde_json::from_str(&good(&output)).expect("one object");
    assert_eq!(summary["packets"], packets.len());
    let info = |input: &str| -> Value {
        serde_json::from_str(&good(&run(&["info", "--format", "json", input]))).expect("one object")
    };
    let (saved, of_dump) = (info(text(&trace)), info("demo.kymo"));
    assert_eq!(saved["events"], of_dump["events"]);
    assert_eq!(saved["lost"], of_dump["lost"]);
    assert_eq!(summary["lost"], of_dump["lost"]);
    let show = |input: &str| good(&run(&["show", input, "--elf", "demo.elf"]));
    assert_eq!(show(text(&trace)), show("demo.kymo"));
    // The error of the date is within its stated uncertainty plus one tick.
    let source = kymo_read::open(&trace, &kymo_read::OpenOptions::default()).expect("a trace");
    let date = source
        .info()
        .wall_clock
        .as_ref()
        .expect("the date is known");
    let wrong = date.unix_ns(kymo_event::Time(0)).abs_diff(STARTED as i64);
    let printed = summary["wall_clock_uncertainty_ns"]
        .as_u64()
        .expect("it is said");
    assert!(wrong <= printed + 40, "{wrong} of {printed} ns");
    // The target received the time of day, and the commands to turn recording on and off.
    let commands = fake.state().commands;
    assert!(commands.contains(&LinkCommand::On) && commands.contains(&LinkCommand::Off));
    let reported = |command: &LinkCommand| matches!(command, LinkCommand::WallClock { .. });
    assert!(commands.iter().any(reported));
}

#[test]
fn a_recording_is_whole_however_it_ends() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let mut recorder = Running::start(&["record", &fake.address(), "-o", text(&trace)]);
    let (first, others) = packets.split_at(2);
    for packet in first {
        fake.record(packet.clone());
    }
    wait_until("both packets are written", || {
        fake.state().released == first.len()
    });
    // Kills the recorder with SIGKILL.
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    let info = good(&run(&["info", "--format", "json", text(&trace)]));
    let info: Value = serde_json::from_str(&info).expect("one object");
    assert!(info["events"].as_u64() > Some(0), "{info}");
    assert_eq!(info["errors"].as_array().map(Vec::len), Some(0), "{info}");

    // The next recorder gets the remaining packets; after ctrl-C the recording is complete.
    let mut recorder = Running::start(&["record", &fake.address(), "-o", text(&trace)]);
    for packet in others {
        fake.record(packet.clone());
    }
    wait_until("all packets are acknowledged", || {
        fake.state().released == packets.len()
    });
    assert_eq!(recorder.interrupt(), Some(0));
    good(&run(&["info", text(&trace)]));
}

#[test]
fn a_connection_that_breaks_is_made_again_and_nothing_is_lost_or_twice() {
    let faults = Faults {
        close_after: Some(2),
        lose_every: Some(6),
        ..Faults::default()
    };
    let (fake, packets) = streaming("demo.kymo", faults);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    for packet in &packets {
        fake.record(packet.clone());
    }
    let output = on(
        &fake,
        &[
            "record",
            "-o",
            text(&trace),
            "--retry",
            "60",
            "--events",
            "30",
        ],
    );
    good(&output);
    assert!(err(&output).contains("trying again"), "{}", err(&output));
    let sizes: usize = packets.iter().map(Vec::len).sum();
    let files = recorded(&folder, "cpu0") + recorded(&folder, "target");
    assert_eq!(files, sizes as u64);
}

#[test]
fn a_clock_that_is_measured_anew_is_the_same_within_what_measuring_scatters() {
    // Values in Hz, for a clock of 25 MHz.
    for (clock_scatter, same) in [(1, true), (250, true), (250_000, false)] {
        let faults = Faults {
            close_after: Some(2),
            clock_scatter,
            ..Faults::default()
        };
        let (fake, packets) = streaming("demo.kymo", faults);
        for packet in &packets {
            fake.record(packet.clone());
        }
        let folder = TempDir::new().unwrap();
        let trace = folder.path().join("trace");
        let retry = if same { "60" } else { "1" };
        let output = on(
            &fake,
            &[
                "record",
                "-o",
                text(&trace),
                "--retry",
                retry,
                "--events",
                "30",
            ],
        );
        if same {
            good(&output);
            assert!(err(&output).contains("trying again"), "{}", err(&output));
        } else {
            fails(&output, &["another program"]);
        }
    }
}

#[test]
fn a_connection_that_has_fallen_silent_is_closed_before_the_next() {
    // Like QEMU, the simulated target serves one connection at a time: it does not answer while the silent one is open.
    let faults = Faults {
        mute_after: Some(2),
        ..Faults::default()
    };
    let (fake, packets) = streaming("demo.kymo", faults);
    for packet in &packets {
        fake.record(packet.clone());
    }
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let address = fake.address();
    let mut recorder = command(&["record", "--target", &address, "-o", text(&trace)]);
    recorder.args(["--retry", "60", "--events", "30"]);
    let output = recorder.env("KYMO_PATIENCE", "2").output().unwrap();
    good(&output);
    assert!(err(&output).contains("trying again"), "{}", err(&output));
    let sizes: usize = packets.iter().map(Vec::len).sum();
    let files = recorded(&folder, "cpu0") + recorded(&folder, "target");
    assert_eq!(files, sizes as u64);
}

#[test]
fn what_a_target_did_not_send_is_asked_for_again_and_what_it_keeps_back_is_told() {
    let (fake, packets) = streaming(
        "demo.kymo",
        Faults {
            end: " reserved=2",
            ..Faults::default()
        },
    );
    let all = packets.len();
    for packet in &packets {
        fake.record(packet.clone());
    }
    // The target forgets the stream before the host ends it.
    fake.change(|state| state.faults.forget_after = Some(all));
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let arguments = ["record", "-o", text(&trace), "--duration", "1s"];
    let output = on(&fake, &[&arguments[..], &["--format", "json"]].concat());
    let summary: Value = serde_json::from_str(&good(&output)).expect("one object");
    assert_eq!(summary["packets"], all);
    assert_eq!(summary["reconnected"], 1);
    assert_eq!(summary["withheld_streams"], 2);
    let printed = err(&output);
    assert!(printed.contains("trying again"), "{printed}");
    assert!(
        printed.contains("the end of 2 streams is missing"),
        "{printed}"
    );
}

#[test]
fn a_target_that_cannot_stream_is_told_apart() {
    let mut state = state("demo.kymo");
    state.identity.capabilities.stream = false;
    let fake = Fake::start(state);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    fails(
        &on(&fake, &["record", "-o", text(&trace)]),
        &["cannot stream", "help: `kymo trace`"],
    );
    assert!(!trace.exists());
    fails(
        &run(&["show", "--follow", &fake.address()]),
        &["cannot stream"],
    );
    fails(
        &run(&["show", "--follow", text(folder.path())]),
        &["metadata"],
    );
}

#[test]
fn what_comes_is_shown_as_it_comes() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    for format in ["text", "json"] {
        let mut show = Running::start(&[
            "show",
            "--follow",
            "--events",
            "--format",
            format,
            &fake.address(),
        ]);
        for packet in &packets {
            fake.record(packet.clone());
        }
        // The stream stays open without further packets, so all events must be shown immediately, except for the 5
        // lines about the end.
        let whole = good(&run(&["show", "--events", "--format", format, "demo.kymo"]));
        let lines = whole.lines().count();
        let shown = show.lines().take(lines - 5).map(|line| line.expect("text"));
        assert_eq!(shown.count(), lines - 5);
        assert_eq!(show.interrupt(), Some(0));
    }
}

/// A program has a stream for each thread, and may have more threads than the limit of open files.
#[cfg(unix)]
#[test]
fn there_may_be_more_streams_than_open_files() {
    const STREAMS: u16 = 2000;
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    // A large window, so that many packets are in flight at once.
    fake.change(|state| state.window = 64);
    let layout = fake.state().identity.layout;
    let of_cpu = |packet: &&Vec<u8>| PacketHeader::read(layout, packet).expect("one").cpu == 0;
    // Without the first packet: its record that recording is turned on applies to all streams.
    let two: Vec<_> = packets.iter().filter(of_cpu).skip(1).take(2).collect();
    assert_eq!(two.len(), 2);
    // The first packets of all streams precede the second ones.
    for (sequence, packet) in (0..).zip(&two) {
        for number in 0..STREAMS {
            let mut header = PacketHeader::read(layout, packet).expect("one");
            header.cpu = number;
            (header.sequence, header.discarded) = (sequence, 0);
            header.flags |= PacketHeader::FLAG_THREAD;
            header.thread = u64::from(number) + 1;
            let mut packet = packet.to_vec();
            header.write(layout, &mut packet).expect("room");
            fake.record(packet);
        }
    }
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let limited = |arguments: &[&str]| {
        let kymo = command(arguments);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
            .arg(kymo.get_program())
            .args(kymo.get_args())
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running(shell.spawn().expect("it runs"))
    };
    let mut recorder = limited(&["record", &fake.address(), "-o", text(&trace)]);
    let all = two.len() * usize::from(STREAMS);
    wait_until("all packets are acknowledged", || {
        assert_eq!(recorder.0.try_wait().expect("a child"), None);
        fake.state().released == all
    });
    assert_eq!(recorder.interrupt(), Some(0));
    let size: u64 = two.iter().map(|packet| packet.len() as u64).sum();
    for number in 0..STREAMS {
        assert_eq!(recorded(&folder, &format!("thread-{number}")), size);
    }
    // The recording can be read under the same limit, at once or with --follow.
    let mut show = limited(&["show", "--events", "--format", "json", text(&trace)]);
    let is_event = |line: &String| line.starts_with("{\"type\":\"event\"");
    let lines = show.lines().map(|line| line.expect("text"));
    let count = lines.filter(is_event).count();
    assert!(count > 2 * usize::from(STREAMS), "{count}");
    let mut show = limited(&["show", "-F", "--events", "--format", "json", text(&trace)]);
    let lines = show.lines().map(|line| line.expect("text"));
    assert_eq!(lines.filter(is_event).take(count).count(), count);
    assert_eq!(show.interrupt(), Some(0));
}

/// A packet for which there is no room on the disk is not in the recording, not even partially.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_whole_packets() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    let layout = fake.state().identity.layout;
    let of_cpu = |packet: &&Vec<u8>| PacketHeader::read(layout, packet).expect("one").cpu == 0;
    let packet = packets.iter().find(of_cpu).expect("events");
    for sequence in 0..400 {
        let mut header = PacketHeader::read(layout, packet).expect("one");
        header.sequence = sequence;
        let mut packet = packet.clone();
        header.write(layout, &mut packet).expect("room");
        fake.record(packet);
    }
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    // The limit leaves room for the metadata.
    let line = "ulimit -f 101; exec \"$0\" \"$@\"";
    let kymo = command(&["record", &fake.address(), "-o", text(&trace)]);
    let output = std::process::Command::new("sh")
        .args(["-c", line])
        .arg(kymo.get_program())
        .args(kymo.get_args())
        .env("NO_COLOR", "1")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("what arrived until then is in"));
    let size = recorded(&folder, "cpu0");
    assert!(
        size > 10_000 && size.is_multiple_of(packet.len() as u64),
        "{size}"
    );
    let info = good(&run(&["info", text(&trace)]));
    assert!(!info.contains("damaged"), "{info}");
}

#[test]
fn what_comes_is_dated() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    for packet in packets {
        fake.record(packet);
    }
    let address = fake.address();
    let follow = ["show", "--follow", "--events", "--time"];
    for (times, expected) in [("date", "2023-11-14T22:13:2"), ("relative", "    0.00")] {
        let mut show = Running::start(&[&follow[..], &[times, &address]].concat());
        // After the heading, the first event of a thread.
        let line = show.lines().map(|line| line.expect("text"));
        let line = line.skip(1).find(|line| line.contains(" 0  "));
        let line = line.expect("events");
        assert!(line.contains(expected), "{line}");
        assert_eq!(show.interrupt(), Some(0));
        for packet in streaming("demo.kymo", Faults::default()).1 {
            fake.record(packet);
        }
    }
}

#[test]
fn a_directory_is_followed_while_it_is_recorded() {
    let (fake, packets) = streaming("demo.kymo", Faults::default());
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let mut recorder = Running::start(&["record", &fake.address(), "-o", text(&trace)]);
    fake.record(packets[0].clone());
    fake.record(packets[1].clone());
    wait_until("the recording has begun", || recorded(&folder, "cpu0") > 0);
    let mut show = Running::start(&["show", "-F", "--format", "json", text(&trace)]);
    let mut lines = show.lines();
    let event = |line: Option<std::io::Result<String>>| -> Value {
        serde_json::from_str(&line.expect("a line").expect("text")).expect("an object")
    };
    assert_eq!(event(lines.next())["type"], "event");
    for packet in &packets[2..] {
        fake.record(packet.clone());
    }
    let last = good(&run(&["show", "--format", "json", "demo.kymo"]));
    let last: Value = last
        .lines()
        .rev()
        .map(|line| serde_json::from_str::<Value>(line).expect("an object"))
        .find(|object| object["type"] == "event")
        .expect("events");
    while event(lines.next())["time_ns"] != last["time_ns"] {}
    assert_eq!(show.interrupt(), Some(0));
    assert_eq!(recorder.interrupt(), Some(0));
}
