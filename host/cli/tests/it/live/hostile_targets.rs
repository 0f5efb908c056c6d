//! Targets that refuse commands, send control characters, forget their recording after a dump, or disappear.

use std::fs;
use std::time::{Duration, Instant};

use kymo_wire::event::PacketHeader;
use tempfile::TempDir;

use super::{LinkCommand, command, err, fails, good, on, out, state, zephyr};
use kymo_fixtures::target::{Fake, Faults, State, wait_until};
use kymo_fixtures::zephyr_target;

/// Asserts that a text has no control characters other than line feeds and tabs.
fn no_controls(text: &str) {
    let unsafe_for_terminals = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    assert!(!text.contains(unsafe_for_terminals), "{text:?}");
}

#[test]
fn a_recording_ends_in_time_although_the_target_refuses_each_stream() {
    let mut refusing = state("demo.kymo");
    refusing.faults.refuse = Some(("stream", "no stream"));
    let fake = Fake::start(refusing);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let trace = trace.to_str().expect("a path of this test");
    let started = Instant::now();
    let output = on(
        &fake,
        &["record", "-o", trace, "--duration", "1s", "--retry", "600"],
    );
    // Much shorter than the time that --retry allows, even on a busy machine.
    assert!(started.elapsed() < Duration::from_secs(300));
    fails(&output, &["refused `stream", "no stream", "trying again"]);
    let commands = fake.state().commands;
    let attempts = commands
        .iter()
        .filter(|command| matches!(command, LinkCommand::StreamOn { .. }))
        .count();
    assert!((1..=12).contains(&attempts), "{attempts} in a second");
    // Repeated warnings are folded into a few lines.
    assert!(
        err(&output).matches("warning:").count() <= 3,
        "{}",
        err(&output)
    );
}

#[test]
fn a_target_that_gives_no_packet_is_given_up_after_the_retry_time() {
    let mut refusing = state("demo.kymo");
    refusing.faults.refuse = Some(("stream", "no stream"));
    let fake = Fake::start(refusing);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let trace = trace.to_str().expect("a path of this test");
    let output = on(&fake, &["record", "-o", trace, "--retry", "1"]);
    fails(
        &output,
        &["no stream", "no packet came within 1 s of attempts"],
    );
}

/// The process is killed by SIGKILL, so it can't finish its files.
#[test]
fn a_recording_that_is_killed_can_be_read() {
    let target = state("demo.kymo");
    let (layout, trace) = (target.identity.layout, target.trace.clone());
    let fake = Fake::start(target);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("trace");
    let input = path.to_str().expect("a path of this test");
    let mut process = command(&["record", "-o", input, "--target", &fake.address()])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it runs");
    let mut rest = &trace[..];
    let mut packets = 0;
    while let Some(header) = PacketHeader::read(layout, rest) {
        let (packet, behind) = rest.split_at(header.packet_bits as usize / 8);
        fake.record(packet.to_vec());
        packets += 1;
        let written = || {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let sizes = entries.filter(|entry| entry.file_name() != "metadata");
            sizes
                .filter_map(|entry| entry.metadata().ok())
                .map(|file| file.len())
                .sum::<u64>()
        };
        let expected = (trace.len() - behind.len()) as u64;
        wait_until("the packet is written", || written() >= expected);
        // The recording is also readable while it is written.
        good(&command(&["info", input]).output().expect("it runs"));
        rest = behind;
    }
    process.kill().expect("it runs");
    process.wait().expect("it ends");
    let info = good(&command(&["info", input]).output().expect("it runs"));
    let saved = good(&command(&["info", "demo.kymo"]).output().expect("it runs"));
    let events = |text: &str| text.lines().nth(3).map(str::to_owned);
    assert!(packets > 2);
    assert_eq!(events(&info), events(&saved), "{info}");
}

#[test]
fn what_a_target_says_is_escaped() {
    const EVIL: &str = "no \u{1b}]0;title\u{7} \u{1b}[31m";
    let mut evil = state("demo.kymo");
    evil.status = format!("{} error={EVIL}", evil.status);
    let fake = Fake::start(evil);
    for arguments in [
        &["status"][..],
        &["status", "--format", "json"],
        &["trace", "--events"],
    ] {
        let output = on(&fake, arguments);
        no_controls(&good(&output));
        no_controls(&err(&output));
    }
    let refusing = State {
        faults: Faults {
            refuse: Some(("clear", EVIL)),
            ..Faults::default()
        },
        ..state("demo.kymo")
    };
    let output = on(&Fake::start(refusing), &["command", "clear"]);
    fails(&output, &["no \\x1b]0;title\\x07 \\x1b[31m"]);
    no_controls(&err(&output));
    let stranger = State {
        faults: Faults {
            stranger: Some("login\u{1b}[2J: "),
            ..Faults::default()
        },
        ..state("demo.kymo")
    };
    let output = on(&Fake::start(stranger), &["status"]);
    assert_eq!(output.status.code(), Some(2));
    no_controls(&err(&output));
}

/// Lines and colours of the program are shown; other control sequences are removed.
#[test]
fn the_console_of_a_target_is_filtered() {
    let fake = zephyr_target::Fake::start(zephyr_target::State {
        banner: "*** Booting Zephyr OS build ***\r\n\u{1b}[1;32mlog\u{1b}[0m \u{1b}]0;t\u{7}\r\n",
        ..zephyr::state()
    });
    let output = zephyr::on(&fake, &["reboot", "--console"]);
    good(&output);
    let printed = err(&output);
    assert!(
        printed.contains("\r\n\u{1b}[1;32mlog\u{1b}[0m \\x1b]0;t\\x07\r\n"),
        "{printed:?}"
    );
}

/// A dump that a target can't send again is saved to a file by all subcommands.
#[test]
fn a_dump_that_comes_only_once_is_kept() {
    for arguments in [
        &["info"][..],
        &["report", "--elf", "demo.elf"],
        &["show", "--events"],
        &["trace", "--events"],
    ] {
        let folder = TempDir::new().unwrap();
        let fake = zephyr_target::Fake::start(zephyr::state());
        let mut requested = command(arguments);
        requested.env("TMPDIR", folder.path());
        requested.env("KYMO_PATIENCE", "20");
        requested.args(["--target", &fake.address()]);
        let output = requested.output().expect("it runs");
        let live = good(&output);
        let printed = err(&output);
        let path = printed.split("kept in ").nth(1).expect("a name");
        let path = path.split(',').next().expect("a name");
        assert!(path.starts_with(folder.path().to_str().unwrap()), "{path}");
        let saved = out(&command(arguments).arg(path).output().expect("it runs"));
        // Live and saved dump differ only in the name of the stream.
        let same = |text: &str| text.split("STREAM").next().map(str::to_owned);
        assert_eq!(same(&live), same(&saved), "{arguments:?}");
        // A second dump is empty, and is not saved.
        let mut again = command(arguments);
        again.env("TMPDIR", folder.path());
        again.env("KYMO_PATIENCE", "20");
        again.args(["--target", &fake.address()]);
        let output = again.output().expect("it runs");
        assert!(!err(&output).contains("kept in"), "{}", err(&output));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_target_is_named_by_position_in_every_subcommand() {
    let fake = Fake::start(state("demo.kymo"));
    let address = fake.address();
    let run = |arguments: &[&str]| {
        let mut command = command(arguments);
        command
            .env("KYMO_PATIENCE", "20")
            .output()
            .expect("it runs")
    };
    assert_eq!(good(&run(&["ping", &address])), "pong\n");
    assert!(good(&run(&["status", &address])).contains(&address));
    assert_eq!(good(&run(&["command", "off", &address])), "ok\n");
    assert_eq!(good(&run(&["command", "mode", "fixed", &address])), "ok\n");
    for subcommand in ["info", "report", "show", "trace", "profile"] {
        let by_position = good(&run(&[subcommand, &address]));
        assert_eq!(good(&run(&[subcommand, "--target", &address])), by_position);
    }
    let listed = good(&run(&["trace", &address, "--list"]));
    assert!(listed.starts_with("trigger: none"), "{listed}");
    fails(
        &run(&["trace", "demo.kymo", "--list"]),
        &["demo.kymo is a saved recording, not a target"],
    );
    assert!(good(&run(&["reboot", &address])).ends_with("has rebooted\n"));
}
