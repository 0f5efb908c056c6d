//! Subcommands for live targets, tested with simulated targets: see `kymo_fixtures::target`, and
//! `kymo_fixtures::zephyr_target` for Zephyr's own instrumentation.

mod capture;
mod doctor;
mod hostile_targets;
mod profile;
mod stream;
mod zephyr;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use kymo_fixtures::target::{self, Fake, Faults, State, wait_until};
use kymo_wire::link::{Capabilities, Command as LinkCommand, Identity};
use kymo_wire::profile::{Entry, TableHeader};
use serde_json::Value;

/// Default status of a target.
const STATUS: &str = "enabled=1 on=0 mode=overwrite used=444 needed=444 bytes=444 discarded=0 \
                      packets=4 functions=2 slots=8 no_slot=0 damaged=0";

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Creates a target with the recording in a fixture.
fn state(fixture: &str) -> State {
    let file = fs::read(data().join(fixture)).expect("the fixture");
    let end = file.iter().position(|byte| *byte == b'\n').expect("a line");
    let line = std::str::from_utf8(&file[..end]).expect("text");
    let identity = Identity {
        capabilities: Capabilities {
            trace: true,
            profile: true,
            reboot: true,
            retained: true,
            sure_clock: true,
            stream: true,
            duration: false,
            conditions: false,
        },
        ..Identity::parse(line).expect("an identity")
    };
    State {
        identity,
        status: STATUS.to_owned(),
        ..State::new(file[end + 1..].to_vec(), table(0))
    }
}

/// Creates a profile table of `compute` and `leaf`.
fn table(no_slot: u64) -> Vec<u8> {
    let layout = target::identity().layout;
    let header = TableHeader {
        order: layout.order,
        word: layout.word,
        entries: 2,
        slots: 8,
        no_slot,
        too_deep: 0,
        unmatched: 1,
        clock_hz: 25_000_000,
        recorded: 1_000_000,
        replaced: no_slot.min(3),
        replaced_total: no_slot * 25,
    };
    let entry = |address, count, total, self_time| Entry {
        address,
        count,
        total,
        self_time,
        min: 25,
        max: 250,
        recursive: false,
    };
    let mut bytes = header.to_bytes().to_vec();
    for entry in [
        entry(0x0800_0025, 30, 300, 300),
        entry(0x0800_0035, 20, 1_000, 700),
    ] {
        bytes.extend(&entry.to_bytes(layout.word, layout.order)[..Entry::bytes(layout.word)]);
    }
    bytes
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args(arguments)
        .current_dir(data())
        .env("NO_COLOR", "1")
        // More than the default because this machine may be busy, but limited for tests with targets that never answer.
        .env("KYMO_PATIENCE", "4");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it runs")
}

/// Runs a subcommand against a target.
fn on(fake: &Fake, arguments: &[&str]) -> Output {
    let address = fake.address();
    let mut command = command(arguments);
    if fake.state().faults.nothing_is_missing() {
        // No timeout is expected, so a long one does not slow the test down.
        command.env("KYMO_PATIENCE", "20");
    }
    command.args(["--target", &address]);
    command.output().expect("it runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Returns stdout of a subcommand that must succeed.
fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    out(output)
}

/// Sends SIGINT, as ctrl-C does.
fn interrupt(process: &Child) {
    // The shell's builtin, because not every machine has the program `kill`.
    let line = format!("kill -INT {}", process.id());
    let kill = Command::new("sh").args(["-c", &line]).status();
    assert!(kill.expect("a shell runs").success());
}

/// Asserts that a subcommand failed and that its messages contain these parts.
fn fails(output: &Output, parts: &[&str]) {
    let messages = err(output);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("error: "), "{messages}");
    for part in parts {
        assert!(messages.contains(part), "expected {part:?} in\n{messages}");
    }
}

#[test]
fn status_tells_all_that_the_target_says() {
    let mut state = state("demo.kymo");
    state.trigger = 0x0800_0034;
    let fake = Fake::start(state);
    let text = good(&on(&fake, &["status", "--elf", "demo.elf"]));
    for part in [
        "build id    5a5a5a",
        "clock       25000000 Hz",
        "trigger     0x8000034  compute  ",
        "stopper     none",
        "recorded    444 bytes, 0 events discarded",
        "profile     2 functions in 8 slots",
    ] {
        assert!(text.contains(part), "expected {part:?} in\n{text}");
    }
    let json = good(&on(
        &fake,
        &["status", "--format", "json", "--symbols", "demo.nm"],
    ));
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["recording"], false);
    assert_eq!(json["recorded_bytes"], 444);
    assert_eq!(json["trigger_function"], "compute");
    assert_eq!(json["stopper"], Value::Null);
}

#[test]
fn ping_and_reboot() {
    let fake = Fake::start(state("demo.kymo"));
    assert_eq!(good(&on(&fake, &["ping"])), "pong\n");
    let output = on(&fake, &["reboot", "--console"]);
    assert!(good(&output).ends_with("has rebooted\n"));
    // A warning shows whether the rebooted target runs another program.
    for (elf, other) in [("demo.elf", false), ("other.elf", true)] {
        let output = on(&fake, &["reboot", "--elf", elf]);
        assert!(good(&output).ends_with("has rebooted\n"));
        assert_eq!(err(&output).contains("is another build"), other, "{elf}");
    }
    assert_eq!(err(&output), "*** booting ***\r\n");
    let mut cannot = state("demo.kymo");
    cannot.identity.capabilities.reboot = false;
    let fake = Fake::start(cannot);
    fails(
        &on(&fake, &["reboot"]),
        &["refused `reboot`", "cannot reboot", "help: `kymo status`"],
    );
}

#[test]
fn a_live_trace_looks_like_a_saved_one() {
    let fake = Fake::start(state("demo.kymo"));
    for view in [
        &["--elf", "demo.elf"][..],
        &["--elf", "demo.elf", "-a"],
        &["--events"],
        &["--format", "json"],
    ] {
        let saved = good(&run(&[&["show", "demo.kymo"], view].concat()));
        assert_eq!(good(&on(&fake, &[&["trace"], view].concat())), saved);
        assert_eq!(good(&run(&[&["trace", "demo.kymo"], view].concat())), saved);
    }
    let positional = run(&["trace", &fake.address(), "--events"]);
    assert_eq!(
        out(&positional),
        good(&run(&["show", "demo.kymo", "--events"]))
    );
}

#[test]
fn every_kind_of_output_is_written() {
    let fake = Fake::start(state("demo.kymo"));
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a name").to_owned();
    for name in ["a.pftrace", "b.json", "c.kymo", "d", "e.svg"] {
        let output = on(&fake, &["trace", "--elf", "demo.elf", "-o", &path(name)]);
        assert_eq!(good(&output), "", "{name}: nothing goes to stdout");
        assert!(err(&output).contains(name), "{}", err(&output));
    }
    let raw = fs::read(path("c.kymo")).expect("a raw file");
    // The file has the packets unchanged, followed by the measurements of the target's clock.
    let trace = fake.state().trace;
    assert!(raw.windows(trace.len()).any(|bytes| bytes == trace));
    let shown = good(&run(&["show", "demo.kymo", "--events"]));
    let kept = good(&run(&["show", &path("c.kymo"), "--events"]));
    let kept: Vec<_> = kept
        .split_inclusive('\n')
        .filter(|line| !line.contains("metadata: type = 11, "))
        .collect();
    assert_eq!(kept.concat(), shown);
    // The directory has the names of functions and markers.
    let shown = good(&run(&["show", "demo.kymo", "--elf", "demo.elf"]));
    assert!(shown.contains("frame: 1"), "{shown}");
    assert_eq!(good(&run(&["show", &path("d")])), shown);
    let json = fs::read(path("b.json")).expect("trace-event JSON");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert!(json["traceEvents"].is_array() || json.is_array());
    assert!(fs::metadata(path("a.pftrace")).expect("it is there").len() > 100);

    // The default name of the output, as in the RFC.
    let output = command(&["trace", "-p", "--target", &fake.address()])
        .current_dir(dir.path())
        .output()
        .expect("it runs");
    good(&output);
    assert!(dir.path().join("perfetto.json").exists());
    let output = on(&fake, &["trace", "-p", "-o", &path("named-otherwise")]);
    good(&output);
    assert_eq!(
        fs::read(path("named-otherwise")).expect("a file"),
        fs::read(path("perfetto.json")).expect("a file")
    );
    // A note reports that an earlier trace was replaced.
    let output = on(&fake, &["trace", "--elf", "demo.elf", "-o", &path("d")]);
    good(&output);
    assert!(
        err(&output).contains("the trace that was there is replaced"),
        "{}",
        err(&output)
    );
    for name in ["a.kymo", "a.svg", "a.csv"] {
        fails(
            &on(&fake, &["trace", "-p", "-o", &path(name)]),
            &["--perfetto contradicts", name, "help: "],
        );
    }
    // An export with several files gets a default name.
    let input = data().join("demo.kymo");
    let input = input.to_str().expect("a name");
    let mut export = command(&["export", "--to", "ctf", input]);
    let output = export.current_dir(dir.path()).output().expect("it runs");
    good(&output);
    assert!(dir.path().join("demo.ctf/metadata").exists());
    // A directory with other files is not changed.
    fs::create_dir(path("full")).expect("a directory");
    fs::write(path("full/thesis"), "years of work").expect("a file");
    fails(&on(&fake, &["trace", "-o", &path("full")]), &["thesis"]);
    assert_eq!(
        fs::read(path("full/thesis")).expect("a file"),
        b"years of work"
    );
}

#[test]
fn every_verb_that_reads_takes_a_target() {
    let mut full = state("demo.kymo");
    full.status = STATUS.replace("discarded=0", "discarded=7");
    let fake = Fake::start(full);
    let address = fake.address();
    for arguments in [
        &["show", "--elf", "demo.elf"][..],
        &["report", "--elf", "demo.elf"],
        &["export", "--to", "folded", "--elf", "demo.elf"],
        &["show", "--format", "json"],
    ] {
        let live = run(&[arguments, &[address.as_str()]].concat());
        assert_eq!(
            good(&live),
            good(&run(&[arguments, &["demo.kymo"]].concat()))
        );
        assert!(
            err(&live).contains("could not record 7 events"),
            "{}",
            err(&live)
        );
    }
    let info = |input: &str| -> Value {
        let text = good(&run(&["info", "--format", "json", input]));
        serde_json::from_str(&text).expect("one object")
    };
    assert_eq!(info(&address)["events"], info("demo.kymo")["events"]);

    let mut cut = state("demo.kymo");
    cut.faults.close_at = Some(2);
    let fake = Fake::start(cut);
    for subcommand in ["show", "report", "info"] {
        fails(
            &run(&[subcommand, &fake.address()]),
            &["240 of 396 bytes arrived", "kept"],
        );
    }
    let nowhere = run(&["info", "--format", "json", "tcp:nowhere"]);
    fails(&nowhere, &["port behind the host", "help: "]);
    let object: Value = serde_json::from_str(&out(&nowhere)).expect("one object");
    assert_eq!(object["format"], Value::Null);
}

#[test]
fn what_did_not_fit_is_said() {
    let mut small = state("demo.kymo");
    small.status = STATUS
        .replace("needed=444", "needed=100000")
        .replace("discarded=0", "discarded=7");
    let fake = Fake::start(small);
    let output = on(&fake, &["trace", "--events"]);
    good(&output);
    let messages = err(&output);
    assert!(messages.contains("takes 100000 bytes"), "{messages}");
    assert!(
        messages.contains("a buffer of 100352 bytes would have held it (this one has 65536)"),
        "{messages}"
    );
    assert!(messages.contains("could not record 7 events"), "{messages}");
}

#[test]
fn an_empty_buffer_is_said() {
    let mut empty = state("no-events.kymo");
    empty.status = STATUS.replace("bytes=444", "bytes=0");
    let fake = Fake::start(empty);
    let output = on(&fake, &["trace"]);
    good(&output);
    assert!(
        err(&output).contains("recorded nothing yet"),
        "{}",
        err(&output)
    );
    let mut nothing = state("no-events.kymo");
    nothing.trace.clear();
    good(&on(&Fake::start(nothing), &["trace"]));
}

#[test]
fn another_build_and_unknown_addresses_are_said() {
    let fake = Fake::start(state("demo.kymo"));
    let output = on(&fake, &["trace", "--elf", "other.elf"]);
    good(&output);
    let messages = err(&output);
    assert_eq!(messages.matches("another build").count(), 1, "{messages}");
    let output = on(&fake, &["trace"]);
    assert!(good(&output).contains("0x8000034()"));
    assert!(
        err(&output).contains("shown by address"),
        "{}",
        err(&output)
    );
    let dir = tempfile::tempdir().expect("a directory");
    let elsewhere = dir.path().join("elsewhere.nm");
    fs::write(&elsewhere, "20000000 00000010 T far_away\n").expect("a file");
    let output = on(
        &fake,
        &["trace", "--symbols", elsewhere.to_str().expect("a name")],
    );
    assert!(good(&output).contains("0x8000034()"));
}

#[test]
fn a_bad_line_costs_nothing_but_time() {
    let mut noisy = state("demo.kymo");
    noisy.faults = Faults {
        damage_every: Some(5),
        console_inside_every: Some(2),
        torn_identities: 1,
        ..Faults::default()
    };
    let fake = Fake::start(noisy);
    let output = on(&fake, &["trace", "--events", "--console"]);
    let shown = good(&run(&["show", "demo.kymo", "--events"]));
    assert_eq!(good(&output), shown);
    assert!(err(&output).contains("inside 2\r\n"), "{}", err(&output));
}

#[test]
fn targets_that_do_not_answer_are_told_apart() {
    let free = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let refused = format!("tcp:{}", free.local_addr().expect("an address"));
    drop(free);
    fails(
        &run(&["ping", "--target", &refused]),
        &["nothing listens", "help: "],
    );
    fails(
        &run(&["ping", "--serial", "no-such-port"]),
        &["no-such-port does not exist"],
    );
    for subcommand in ["trace", "profile"] {
        fails(
            &run(&[subcommand, "tcp:nowhere"]),
            &["port behind the host"],
        );
        // A memory device is not taken for a serial port, so the error is about its content.
        #[cfg(target_os = "linux")]
        fails(
            &run(&[subcommand, "/dev/null"]),
            &["/dev/null: the file is empty"],
        );
    }
    #[cfg(unix)]
    fails(
        &run(&["ping", "--serial", "/dev/null"]),
        &["cannot open /dev/null", "help: a serial port is"],
    );
    fails(
        &run(&["ping", "--target", "tcp:nowhere"]),
        &["port behind the host"],
    );
    let faulty = |faults| {
        Fake::start(State {
            faults,
            ..state("demo.kymo")
        })
    };
    let silent = faulty(Faults {
        silent: true,
        ..Faults::default()
    });
    fails(
        &on(&silent, &["trace"]),
        &["no answer from tcp:", "kymo_link_poll"],
    );
    let mut ping = command(&["ping", "--target", &silent.address()]);
    let output = ping.env("KYMO_PATIENCE", "endless").output();
    fails(
        &output.expect("it runs"),
        &["KYMO_PATIENCE must be 1 to 1000", "endless"],
    );
    let stranger = faulty(Faults {
        stranger: Some("what do you mean?\r\n"),
        ..Faults::default()
    });
    fails(
        &on(&stranger, &["profile"]),
        &["does not answer as a Kymo target", "what do you mean?"],
    );
    let shell = faulty(Faults {
        stranger: Some("login: "),
        ..Faults::default()
    });
    fails(&on(&shell, &["status"]), &["\"login:\"", "--baud"]);
}

#[test]
fn a_target_that_hangs_leaves_a_partial_trace() {
    let mut hanging = state("demo.kymo");
    hanging.faults.hang_at = Some(2);
    let fake = Fake::start(hanging);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("partial");
    let path = path.to_str().expect("a name");
    let output = on(&fake, &["trace", "-o", path]);
    fails(&output, &["fell silent", "240 of 396 bytes arrived"]);
    let output = run(&["info", path]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "what is kept is a trace: {}",
        err(&output)
    );
}

#[test]
fn a_cut_connection_leaves_a_partial_trace() {
    let mut cut = state("demo.kymo");
    cut.faults.close_at = Some(2);
    let fake = Fake::start(cut);
    let output = on(&fake, &["trace", "--elf", "demo.elf"]);
    fails(&output, &["was lost", "240 of 396 bytes arrived"]);
    assert!(out(&output).contains("main"), "{}", out(&output));
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_what_arrived() {
    let mut slow = state("demo.kymo");
    slow.trace = slow.trace.repeat(400);
    slow.faults.slow = Some(Duration::from_millis(100));
    let fake = Fake::start(slow);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("partial.kymo");
    let name = path.to_str().expect("a name");
    let mut process = command(&["trace", "-o", name, "--target", &fake.address()]);
    let process = process.stderr(Stdio::piped()).spawn().expect("it runs");
    wait_until("the dump is asked for", || {
        fake.state().commands.contains(&LinkCommand::DumpTrace)
    });
    // The interrupt comes after some pieces of the dump were sent.
    wait_until("some of it is sent", || fake.state().sent > 30);
    interrupt(&process);
    let output = process.wait_with_output().expect("it ends");
    fails(&output, &["broken off", "bytes arrived", "kept"]);
    let saved = fs::metadata(&path).expect("the file is there").len();
    assert!(saved > 444, "{saved}");
}

#[test]
fn targets_that_lack_something_say_so() {
    let mut bare = state("demo.kymo");
    bare.identity.capabilities = Capabilities::default();
    let fake = Fake::start(bare);
    fails(
        &on(&fake, &["trace"]),
        &["records no events", "kymo profile"],
    );
    fails(
        &on(&fake, &["profile"]),
        &["no profile table", "kymo trace"],
    );
}

#[test]
fn a_clock_that_is_wrong_is_not_called_certain() {
    let mut wrong = state("demo.kymo");
    wrong.faults.slow_clock = 10;
    wrong.faults.tick = " tick_hz=1000 tick_count=500 tick_clock=1250000";
    let fake = Fake::start(wrong);
    let text = good(&on(&fake, &["status"]));
    let clock = text.lines().find(|line| line.starts_with("clock"));
    let clock = clock.expect("a line of the clock");
    for part in [
        "runs at 0.100 times its rate by its periodic tick (1000 Hz)",
        "times its rate by the clock of this computer",
    ] {
        assert!(clock.contains(part), "expected {part:?} in {clock}");
    }
    let json = good(&on(&fake, &["status", "--format", "json"]));
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["clock_verdict"], "differs");
    assert_eq!(json["clock_checks"][1]["reference"], "host");
    // `trace` warns when it shows the recording, and saved recordings keep the result for later readers. By this
    // computer's clock the rate is about 0.1 times the nominal one, and less if the machine is busy.
    const WARNED: &str =
        "times may be wrong: the target's clock (25000000 Hz as it is configured) runs at 0.";
    let output = on(&fake, &["trace"]);
    assert!(err(&output).contains(WARNED), "{}", err(&output));
    let scratch = tempfile::tempdir().expect("a directory");
    for name in ["wrong", "wrong.kymo"] {
        let path = scratch.path().join(name);
        let path = path.to_str().expect("text");
        good(&on(&fake, &["trace", "-o", path]));
        let output = run(&["report", path]);
        assert!(err(&output).contains(WARNED), "{}", err(&output));
        let info = good(&run(&["info", "--format", "json", path]));
        let info: Value = serde_json::from_str(&info).expect("one object");
        assert_eq!(info["clock_verdict"], "differs");
    }
}

#[test]
fn a_clock_is_verified_or_called_unverified() {
    let mut right = state("demo.kymo");
    right.faults.tick = " tick_hz=1000 tick_count=500 tick_clock=12500000";
    let fake = Fake::start(right);
    let json = good(&on(&fake, &["status", "--format", "json"]));
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["clock_verdict"], "agrees");
    assert!(!err(&on(&fake, &["trace"])).contains("times may be wrong"));
    // A saved recording without such measurements has an unverified clock.
    let info = good(&run(&["info", "demo.kymo"]));
    assert!(
        info.contains("25000000 ticks a second, unverified: "),
        "{info}"
    );
}
