//! Subcommands for a live target with Zephyr's own instrumentation, simulated by `kymo_fixtures::zephyr_target`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;

use super::{command, data, err, fails, good, out, run};
use kymo_fixtures::captures;
use kymo_fixtures::zephyr_target::recorded::body;
use kymo_fixtures::zephyr_target::{BANNER, Cut, Fake, State};

/// Pointers to `compute` and `leaf` of the demonstration program.
const COMPUTE: u32 = 0x0800_0035;
const LEAF: u32 = 0x0800_0025;

/// Reads the records between the marks of a fixture.
fn records(fixture: &str) -> Vec<u8> {
    let bytes = fs::read(data().join(fixture)).expect("the fixture");
    let position = |mark: &[u8]| bytes.windows(4).position(|window| window == mark);
    let begin = position(b"-*-#").expect("a dump") + 4;
    let end = position(b"-*-!").expect("its end");
    bytes[begin..end].to_vec()
}

/// Creates a device with the recordings in the fixtures.
pub fn state() -> State {
    State {
        trigger: COMPUTE,
        stopper: 0,
        ..State::new(records("zephyr.dump"), records("zephyr-profile.dump"))
    }
}

/// Runs a subcommand against a device.
pub fn on(fake: &Fake, arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    command.args(["--target", &fake.address()]);
    if fake.state().cut.is_none() && !fake.state().needs_prefix {
        // No timeout is expected, so a long one does not slow the test down.
        command.env("KYMO_PATIENCE", "20");
    }
    command.output().expect("it runs")
}

/// Asserts that the device received no empty line, and no reboots but those requested.
fn unhurt(fake: &Fake, reboots: u32) {
    let state = fake.state();
    assert_eq!(state.reboots, reboots);
    assert!(state.lines.iter().all(|line| !line.is_empty()));
}

#[test]
fn a_status_tells_what_it_was_built_to_do() {
    let fake = Fake::start(state());
    let text = good(&on(&fake, &["status", "--elf", "demo.elf"]));
    for part in [
        "runs        Zephyr's own instrumentation",
        "can         trace, profile, reboot, keep trigger and stopper over a reboot",
        "trigger     0x8000034  compute  ",
        "stopper     none",
    ] {
        assert!(text.contains(part), "expected {part:?} in\n{text}");
    }
    let older = Fake::start(State {
        status: "1 0",
        ..state()
    });
    let text = good(&on(&older, &["status"]));
    assert!(text.contains("can         trace, reboot\n"), "{text}");
    assert!(text.contains("trigger     0x8000035\n"), "{text}");
    let json = good(&on(
        &older,
        &["status", "--format", "json", "--symbols", "demo.nm"],
    ));
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["protocol"], "zephyr");
    assert_eq!(json["can_profile"], false);
    assert_eq!(json["retained"], Value::Null);
    assert_eq!(json["trigger_function"], "compute");
    unhurt(&fake, 0);
}

#[test]
fn ping_and_reboot() {
    let fake = Fake::start(state());
    assert_eq!(good(&on(&fake, &["ping"])), "pong\n");
    let output = on(&fake, &["reboot", "--console"]);
    assert!(good(&output).ends_with("has rebooted\n"));
    assert!(err(&output).ends_with(BANNER), "{}", err(&output));
    unhurt(&fake, 1);
    // With --protocol, the kind of target is not detected.
    let output = on(&fake, &["ping", "--protocol", "zephyr"]);
    assert_eq!(good(&output), "pong\n");
    fails(
        &on(&fake, &["ping", "--protocol", "kymo"]),
        &["runs Zephyr's own instrumentation, not Kymo", "help: "],
    );
}

#[test]
fn a_live_trace_looks_like_a_saved_one() {
    for view in [
        &["--elf", "demo.elf"][..],
        &["--elf", "demo.elf", "-a"],
        &["--events"],
        &["--format", "json"],
    ] {
        let saved = good(&run(&[&["show", "zephyr.dump"], view].concat()));
        let fake = Fake::start(state());
        let live = on(&fake, &[&["trace"], view].concat());
        assert_eq!(good(&live), saved);
        let printed = err(&live);
        assert!(
            printed.contains("until it is rebooted (`kymo reboot`)"),
            "{printed}"
        );
        // The target has forgotten its recording.
        let again = on(&fake, &["trace", "--events"]);
        assert_eq!(good(&again).lines().count(), 1, "the header");
        let printed = err(&again);
        assert_eq!(printed.matches("the dump is empty").count(), 1, "{printed}");
        unhurt(&fake, 0);
    }
    let fake = Fake::start(state());
    let shown = run(&["report", &fake.address(), "--elf", "demo.elf"]);
    let saved = run(&["report", "zephyr.dump", "--elf", "demo.elf"]);
    assert_eq!(good(&shown), good(&saved));
}

#[test]
fn every_kind_of_output_is_written() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a name")
            .to_owned()
    };
    for name in ["a.pftrace", "b.json", "c.kymo", "d", "e.svg"] {
        let fake = Fake::start(state());
        let output = on(&fake, &["trace", "--elf", "demo.elf", "-o", &path(name)]);
        assert_eq!(good(&output), "", "{name}: nothing goes to stdout");
        // The same output from the saved dump.
        let from = ["trace", "zephyr.dump", "--elf", "demo.elf", "-o"];
        good(&run(
            &[&from[..], &[&path(&format!("saved-{name}"))]].concat()
        ));
    }
    let raw = fs::read(path("c.kymo")).expect("a raw file");
    assert_eq!(
        raw,
        [b"-*-#", &records("zephyr.dump")[..], b"-*-!\r\n"].concat()
    );
    let events = good(&run(&["show", "zephyr.dump", "--events"]));
    for name in ["c.kymo", "saved-c.kymo"] {
        assert_eq!(good(&run(&["show", &path(name), "--events"])), events);
    }
    // Trace directories have the names of functions.
    let shown = good(&run(&["show", &path("d")]));
    assert!(shown.contains("compute() {"), "{shown}");
    assert_eq!(good(&run(&["show", &path("saved-d")])), shown);

    // Default names as in zaru.
    let fake = Fake::start(state());
    let mut export = command(&["trace", "-e", "-d", "--target", &fake.address()]);
    good(&export.current_dir(folder.path()).output().expect("it runs"));
    let tef = fs::read(path("trace_event.json")).expect("trace-event JSON");
    let tef: Value = serde_json::from_slice(&tef).expect("JSON");
    assert!(tef["traceEvents"].is_array() || tef.is_array());
    fake.change(|state| state.dumped = 0);
    good(&on(&fake, &["trace", "--export-tef", "-o", &path("other")]));
    let other = fs::read(path("other")).expect("a file");
    assert!(other == fs::read(path("trace_event.json")).expect("a file"));
}

#[test]
fn trigger_and_stopper_are_set_listed_and_disabled() {
    let fake = Fake::start(state());
    let listed = "trigger: 0x8000034  compute  ./demo.c:8\nstopper: none\n";
    let list = ["trace", "--list", "--elf", "demo.elf"];
    assert_eq!(good(&on(&fake, &list)), listed);

    // The pointers on the target have the Thumb bit, even if the symbols lack it.
    for symbols in [["--elf", "demo.elf"], ["--symbols", "demo.nm"]] {
        let couple = ["trace", "--couple", "leaf", symbols[0], symbols[1]];
        let output = on(&fake, &couple);
        assert!(good(&output).starts_with("trigger: 0x8000024  leaf"));
        assert!(err(&output).contains("--reboot"), "{}", err(&output));
        assert_eq!((fake.state().trigger, fake.state().stopper), (LEAF, LEAF));
        good(&on(&fake, &["trace", "-t", "0x8000034"]));
        assert_eq!(fake.state().trigger, COMPUTE);
    }
    // Setting does not fetch a dump, which would delete the recording.
    assert_eq!(fake.state().dumped, 0);
    good(&on(&fake, &["trace", "-t", "0", "-s", "none"]));
    assert_eq!((fake.state().trigger, fake.state().stopper), (0, 0));
    let text = good(&on(&fake, &["trace", "-l"]));
    assert_eq!(text, "trigger: none\nstopper: none\n");
    // If the Thumb bit is unknown, there is a warning; an address with the bit is accepted.
    let unsure = on(&fake, &["trace", "-t", "leaf", "--symbols", "demo.nm"]);
    good(&unsure);
    assert!(err(&unsure).contains("as 0x8000025"), "{}", err(&unsure));
    let sure = on(&fake, &["trace", "-t", "0x8000025", "--symbols", "demo.nm"]);
    assert!(good(&sure).starts_with("trigger: 0x8000024  leaf"));
    assert_eq!(fake.state().trigger, LEAF);
    assert!(!err(&sure).contains("warning"), "{}", err(&sure));
    fails(
        &on(&fake, &["trace", "-t", "lead", "--elf", "demo.elf"]),
        &["there is no function lead", "leaf"],
    );
    fails(
        &on(&fake, &["trace", "-t", "nosuch", "--elf", "demo.elf"]),
        &["there is no function nosuch", "the program that runs there"],
    );
    fake.change(|state| state.trigger = 0x1234_5671);
    let text = good(&on(&fake, &list));
    assert!(
        text.contains("no function of these symbols begins there"),
        "{text}"
    );
    unhurt(&fake, 0);

    let together = on(
        &fake,
        &[
            "trace", "-r", "-c", "leaf", "--wait", "0", "--elf", "demo.elf",
        ],
    );
    assert!(good(&together).contains("compute() {"));
    assert_eq!((fake.state().trigger, fake.state().stopper), (LEAF, LEAF));
    unhurt(&fake, 1);
}

#[test]
fn what_is_not_kept_over_a_reboot_is_said() {
    let fake = Fake::start(State {
        retained: false,
        status: "1 1 0",
        ..state()
    });
    let output = on(
        &fake,
        &[
            "trace", "-r", "-t", "leaf", "--wait", "0", "--elf", "demo.elf",
        ],
    );
    good(&output);
    for part in [
        "only until it is rebooted",
        "has not kept trigger and stopper",
    ] {
        assert!(err(&output).contains(part), "{}", err(&output));
    }
}

#[test]
fn a_profile_has_totals() {
    let fake = Fake::start(state());
    let arguments = ["--elf", "demo.elf", "-n", "3"];
    let live = on(&fake, &[&["profile"][..], &arguments].concat());
    let saved = run(&[&["profile", "zephyr-profile.dump"][..], &arguments].concat());
    assert_eq!(good(&live), good(&saved));
    assert!(
        err(&live).contains("until it is rebooted"),
        "{}",
        err(&live)
    );
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("table");
    let path = path.to_str().expect("a name");
    good(&on(&fake, &["profile", "-o", path]));
    let kept = run(&[&["profile", path][..], &arguments].concat());
    assert_eq!(good(&kept), good(&saved));
}

#[test]
fn what_the_firmware_lacks_is_said() {
    let fake = Fake::start(State {
        status: "1 0 1",
        profile: None,
        ..state()
    });
    fails(
        &on(&fake, &["profile"]),
        &["keeps no profile table", "MODE_STATISTICAL", "kymo trace"],
    );
    let fake = Fake::start(State {
        status: "0 1 1",
        trace: None,
        ..state()
    });
    fails(
        &on(&fake, &["trace"]),
        &["records no calls", "MODE_CALLGRAPH", "kymo profile"],
    );
    fails(
        &on(&fake, &["record", "-o", "nowhere"]),
        &[
            "runs Zephyr's own instrumentation, not Kymo",
            "can't stream",
        ],
    );
    fails(&on(&fake, &["command", "on"]), &["no other commands"]);
    unhurt(&fake, 0);
}

#[test]
fn a_dump_that_breaks_off_is_shown_as_far_as_it_came() {
    let whole = good(&run(&["show", "zephyr.dump", "--elf", "demo.elf"]));
    let size = 30;
    for (cut, message) in [
        (Cut::Reboot, "did it start again?"),
        (Cut::Close, "bytes arrived"),
        (Cut::Lost(7), "on the way"),
    ] {
        let fake = Fake::start(State {
            cut: Some((10 * size + 3, cut)),
            ..state()
        });
        let output = on(&fake, &["trace", "--elf", "demo.elf"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(message), "{}", err(&output));
        let shown = out(&output);
        let first = whole.lines().take(8).collect::<Vec<_>>().join("\n");
        assert!(shown.starts_with(&first), "{shown}");
    }
}

/// The output is checked before the fetch, because the target sends its recording only once.
#[test]
fn an_output_that_cannot_be_written_costs_nothing() {
    let fake = Fake::start(state());
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("file"), "").expect("a file");
    for name in ["no/x.kymo", "no/x.json", "no/x.pftrace", "file/d"] {
        let output = on(&fake, &["trace", "-o", &path(name)]);
        fails(&output, &["cannot write"]);
    }
    let export = ["export", "-o", &path("no/x.json"), &fake.address()];
    fails(&run(&export), &["cannot write"]);
    assert_eq!(fake.state().dumped, 0);
    good(&on(&fake, &["trace", "-o", &path("x.json")]));
}

/// A full disk is noticed only after the fetch.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_in_the_end_is_kept_elsewhere() {
    let folder = tempfile::tempdir().expect("a directory");
    let sent = [b"-*-#", &records("zephyr.dump")[..], b"-*-!\r\n"].concat();
    for (name, arguments) in [
        ("full.kymo", &["trace", "-o", "full.kymo"][..]),
        ("full.json", &["trace", "-o", "full.json"]),
        ("full.json", &["export", "-o", "full.json"]),
        ("stdout", &["trace", "--events"]),
    ] {
        let place = folder.path().join(name);
        if !place.exists() {
            std::os::unix::fs::symlink("/dev/full", &place).expect("a link");
        }
        let kept = tempfile::tempdir().expect("a directory");
        let fake = Fake::start(state());
        let address = fake.address();
        let mut command = command(arguments);
        match arguments[0] {
            "export" => command.arg(&address),
            _ => command.args(["--target", &address]),
        };
        if name == "stdout" {
            let full = fs::File::create("/dev/full").expect("the full device");
            command.stdout(full);
        }
        let output = command
            .env("TMPDIR", kept.path())
            .current_dir(folder.path())
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(err(&output).contains("is kept in"), "{}", err(&output));
        let files: Vec<_> = fs::read_dir(kept.path()).expect("it is there").collect();
        let [Ok(file)] = files.as_slice() else {
            panic!("{files:?}");
        };
        assert_eq!(fs::read(file.path()).expect("a dump"), sent);
    }
}

/// Some firmware dumps each time its buffer is full.
#[test]
fn dumps_that_come_unasked_are_shown_before_the_rest() {
    let fake = Fake::start(State {
        unrequested: [records("zephyr.dump")].into(),
        ..state()
    });
    let output = on(&fake, &["trace", "--elf", "demo.elf", "--wait", "0"]);
    let text = good(&output);
    assert_eq!(text.matches("worker() {").count(), 2, "{text}");
    assert!(text.contains("~~~~~~ events discarded ~~~~~~"), "{text}");
    assert!(
        err(&output).contains("buffer was full once"),
        "{}",
        err(&output)
    );
}

#[test]
fn console_text_goes_around_the_result() {
    let fake = Fake::start(State {
        chatter: Some("Philosopher 3 EATING\r\n"),
        ..state()
    });
    let output = on(&fake, &["trace", "--elf", "demo.elf", "--console"]);
    let saved = good(&run(&["show", "zephyr.dump", "--elf", "demo.elf"]));
    assert_eq!(good(&output), saved);
    assert!(err(&output).contains("Philosopher 3"), "{}", err(&output));
}

/// The simulated target sends the stream of a real one between the two commands.
#[test]
fn the_stream_of_zephyrs_tracing_is_recorded() {
    let Some(root) = captures::zephyr_with_metadata() else {
        return;
    };
    let trace = root.join("ctf_uart_mps2/trace");
    let stream = fs::read(trace.join("channel0_0")).expect("a stream");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = format!("tcp:{}", listener.local_addr().expect("an address"));
    let device = std::thread::spawn({
        let stream = stream.clone();
        move || {
            let (mut line, _) = listener.accept().expect("a host");
            let mut command = [0; 7];
            line.read_exact(&mut command).expect("a command");
            assert_eq!(&command, b"enable\r");
            // The rest of the device's buffer follows the command to stop.
            let (first, rest) = stream.split_at(stream.len() - 500);
            line.write_all(first).expect("the host reads");
            let mut command = [0; 8];
            line.read_exact(&mut command).expect("a command");
            assert_eq!(&command, b"disable\r");
            line.write_all(rest).expect("the host reads");
            let _ = line.read(&mut command);
        }
    });
    let folder = tempfile::tempdir().expect("a directory");
    let output = folder.path().join("trace");
    let output = output.to_str().expect("a name");
    let metadata = trace.join("metadata");
    let (size, metadata) = ((stream.len() - 500).to_string(), metadata.to_str());
    let arguments = [
        "record",
        &address,
        "-o",
        output,
        "--protocol",
        "zephyr-tracing",
        "--metadata",
        metadata.expect("a name"),
        "--size",
        &size,
    ];
    let recorded = run(&arguments);
    device.join().expect("the device's part");
    assert_eq!(good(&recorded), "");
    assert!(fs::read(folder.path().join("trace/channel0_0")).expect("a stream") == stream);
    let original = trace.to_str().expect("a name");
    let shown = run(&["show", "--events", output]);
    let expected = run(&["show", "--events", original]);
    assert!(out(&shown) == out(&expected), "{}", err(&shown));
    // An earlier recording is not overwritten.
    fails(&run(&arguments), &["is not empty"]);
}

/// Captures converted by the command have the number of records that their README states.
#[test]
fn captured_devices_are_traced() {
    let root = captures::zephyr_instrumentation();
    for (folder, trace, records, name) in [
        (
            "instr_default",
            "cap1/11_dump_trace.bin",
            222,
            "sys_dlist_is_empty",
        ),
        ("instr_big", "cap_big/04_dump_trace.bin", 3_390, "main"),
        (
            "instr_trace_only",
            "cap_to/04_dump_trace.bin",
            4_416,
            "main",
        ),
    ] {
        let folder = root.join(folder);
        let fake = Fake::start(State {
            fragments: Some(4_096),
            ..State::new(body(&folder.join(trace)), Vec::new())
        });
        let symbols = folder.join("symbols.nm.txt");
        let symbols = symbols.to_str().expect("a path");
        let output = on(&fake, &["trace", "--format", "json", "--symbols", symbols]);
        let text = good(&output);
        let events = text
            .lines()
            .filter(|line| line.contains("\"type\":\"event\""));
        assert_eq!(events.count(), records);
        assert!(text.contains(name));
    }
}
