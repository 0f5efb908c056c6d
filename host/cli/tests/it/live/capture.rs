//! Start and stop of recording on a target: trigger, stopper, and commands.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{LinkCommand, STATUS, command, err, fails, good, interrupt, on, run, state};
use kymo_fixtures::target::{Fake, wait_until};

#[test]
fn trigger_and_stopper_are_set_by_name_and_listed() {
    let fake = Fake::start(state("demo.kymo"));
    good(&on(
        &fake,
        &["trace", "-t", "main", "-s", "worker", "--elf", "demo.elf"],
    ));
    let now = fake.state();
    assert_eq!((now.trigger, now.stopper), (0x0800_007A, 0x0800_0070));
    assert!(now.commands.contains(&LinkCommand::Clear));
    let text = good(&on(&fake, &["trace", "-l", "--symbols", "demo.nm"]));
    assert_eq!(
        text,
        "trigger: 0x800007a  main\nstopper: 0x8000070  worker\n"
    );
    let text = good(&on(
        &fake,
        &["trace", "-l", "-c", "leaf", "--symbols", "demo.nm"],
    ));
    assert_eq!(text, "trigger: 0x8000024  leaf\nstopper: 0x8000024  leaf\n");
    let between = now
        .commands
        .iter()
        .skip_while(|command| **command != LinkCommand::Disable)
        .take_while(|command| {
            **command != LinkCommand::Status && **command != LinkCommand::ListSets
        });
    assert_eq!(
        between.copied().collect::<Vec<_>>(),
        [
            LinkCommand::Disable,
            LinkCommand::Off,
            LinkCommand::Trigger(0x0800_007A),
            LinkCommand::Stopper(0x0800_0070),
            LinkCommand::Clear,
            LinkCommand::Enable,
        ],
        "the new trigger can't fire before the buffer is clear"
    );
    let text = good(&on(
        &fake,
        &["trace", "-l", "-t", "none", "-s", "0x8000034"],
    ));
    assert_eq!(text, "trigger: none\nstopper: 0x8000034\n");
}

#[test]
fn a_target_is_enabled_again_whatever_it_refuses() {
    for word in ["off", "trigger", "stopper", "clear"] {
        let mut state = state("demo.kymo");
        state.faults.refuse = Some((word, "not today"));
        let fake = Fake::start(state);
        let output = on(&fake, &["trace", "-c", "main", "--symbols", "demo.nm"]);
        fails(
            &output,
            &["refused `", "not today", "help: ", "kymo trace --list"],
        );
        let commands = fake.state().commands;
        assert_eq!(commands.last(), Some(&LinkCommand::Enable), "{word}");
        assert!(!commands.contains(&LinkCommand::DumpTrace));
    }
    let mut state = state("demo.kymo");
    state.faults.refuse = Some(("enable", "not today"));
    let fake = Fake::start(state);
    let output = on(&fake, &["trace", "-c", "main", "--symbols", "demo.nm"]);
    fails(&output, &["not today", "kymo command enable"]);
}

#[test]
fn names_are_not_looked_up_in_another_build() {
    let fake = Fake::start(state("demo.kymo"));
    let output = on(&fake, &["trace", "-t", "main", "--elf", "other.elf"]);
    fails(
        &output,
        &["the symbols are of build ", "runs build 5a5a5a", "help: "],
    );
    assert!(!fake.state().commands.contains(&LinkCommand::Disable));
    // An address is accepted without a check if the symbols are of another build.
    let addresses = &["trace", "-l", "-t", "0x8000036", "-s", "0x8000035"];
    let output = on(&fake, &[addresses, &["--elf", "other.elf"][..]].concat());
    good(&output);
    assert!(!err(&output).contains("no function"), "{}", err(&output));
    // With symbols of the same build, an address is checked. The Thumb bit is ignored.
    let output = on(&fake, &[addresses, &["--elf", "demo.elf"][..]].concat());
    good(&output);
    let messages = err(&output);
    assert_eq!(messages.matches("warning: ").count(), 1, "{messages}");
    assert!(
        messages.contains("no function begins at 0x8000036, it is inside of 0x8000034  compute"),
        "{messages}"
    );
    let output = on(&fake, &["trace", "-l", "-t", "0x20", "--elf", "demo.elf"]);
    assert!(
        err(&output).contains("no function is known at 0x20"),
        "{}",
        err(&output)
    );
}

#[test]
fn commands_are_sent_as_they_are() {
    let fake = Fake::start(state("demo.kymo"));
    for words in [&["on"][..], &["mode", "fixed"], &["mode fixed"], &["clear"]] {
        assert_eq!(good(&on(&fake, &[&["command"], words].concat())), "ok\n");
    }
    assert_eq!(
        good(&on(&fake, &["command", "listsets"])),
        "trigger=0x0 stopper=0x0\n"
    );
    let mode = LinkCommand::parse(b"mode fixed").expect("a command");
    assert_eq!(
        fake.state().commands,
        [
            LinkCommand::On,
            mode.expect("one"),
            mode.expect("one"),
            LinkCommand::Clear,
            LinkCommand::ListSets,
        ]
    );
}

#[test]
fn names_that_are_none_or_several_change_nothing() {
    let fake = Fake::start(state("demo.kymo"));
    let output = on(
        &fake,
        &["trace", "-t", "main", "-s", "comptue", "--elf", "demo.elf"],
    );
    fails(&output, &["no function comptue", "compute"]);
    let dir = tempfile::tempdir().expect("a directory");
    let twice = dir.path().join("twice.nm");
    fs::write(
        &twice,
        "08000100 00000010 t init\n08000200 00000010 t init\n",
    )
    .expect("a file");
    let twice = twice.to_str().expect("a name");
    let output = on(&fake, &["trace", "-c", "init", "--symbols", twice]);
    fails(
        &output,
        &["2 functions", "0x8000100  init", "0x8000200  init"],
    );
    fails(
        &on(&fake, &["trace", "-t", "0xyz"]),
        &["0xyz is no address"],
    );
    let now = fake.state();
    assert_eq!((now.trigger, now.stopper), (0, 0));
    assert!(!now.commands.contains(&LinkCommand::Off));
}

#[test]
fn a_single_shot_is_asked_for_and_taken_back() {
    let fake = Fake::start(state("demo.kymo"));
    let once = |fake: &Fake| {
        let commands = fake.state().commands;
        let once = commands.iter().filter_map(|command| match command {
            LinkCommand::Once(once) => Some(*once),
            _ => None,
        });
        once.collect::<Vec<_>>()
    };
    let set = ["trace", "-l", "-c", "0x8000034", "--once"];
    let text = good(&on(&fake, &set));
    assert!(text.ends_with("the trigger does nothing\n"), "{text}");
    good(&on(&fake, &set));
    assert_eq!(once(&fake), [true]);
    good(&on(&fake, &set[..4]));
    assert_eq!(once(&fake), [true, false]);
    assert!(!good(&on(&fake, &["trace", "-l"])).contains("once"));
    fake.change(|state| {
        state.status = STATUS.to_owned() + " once=1 spent=1";
    });
    let text = good(&on(&fake, &["status"]));
    assert!(text.contains("off: its single shot is over"), "{text}");
}

#[test]
fn what_does_not_survive_a_reboot_is_said() {
    let mut forgets = state("demo.kymo");
    forgets.trigger = 0x0800_007A;
    forgets.faults.forgets_sets = true;
    let fake = Fake::start(forgets);
    let output = on(&fake, &["reboot"]);
    good(&output);
    let text = err(&output);
    assert!(
        text.contains("did not survive the reboot, they were trigger=0x800007a stopper=0x0 and are trigger=0x0"),
        "{text}"
    );
    assert!(text.contains("kymo_config.retained"), "{text}");
    let output = on(&fake, &["reboot"]);
    good(&output);
    assert!(!err(&output).contains("survive"), "{}", err(&output));
}

#[test]
fn what_the_recorder_calls_and_is_instrumented_is_named() {
    let mut inner = state("demo.kymo");
    inner.status = STATUS.to_owned() + " refused=12 refused_function=0x800007a";
    let fake = Fake::start(inner);
    let text = good(&on(&fake, &["status", "--symbols", "demo.nm"]));
    assert!(
        text.contains("12 hooks called from inside a hook"),
        "{text}"
    );
    assert!(text.contains("the last was 0x800007a  main"), "{text}");
}

#[test]
fn a_configuration_that_is_wrong_is_explained() {
    let mut wrong = state("demo.kymo");
    wrong.status = STATUS.to_owned() + " error=packet_size value=500";
    let fake = Fake::start(wrong);
    let text = good(&on(&fake, &["status"]));
    assert!(
        text.contains("packet_size is 500: must be a multiple of 8, from 128 to 524288"),
        "{text}"
    );
}

#[test]
fn a_reboot_waits_for_the_capture() {
    let mut waiting = state("demo.kymo");
    waiting.trigger = 0x0800_007A;
    waiting.status = STATUS.replace("bytes=444", "bytes=0");
    let fake = Fake::start(waiting);
    let started = Instant::now();
    let output = on(&fake, &["trace", "-r", "--wait", "1"]);
    assert!(started.elapsed() >= Duration::from_secs(1));
    good(&output);
    assert!(err(&output).contains("trigger was not entered within 1 s"));
    assert!(fake.state().commands.contains(&LinkCommand::Reboot));

    // The status distinguishes a target without a trigger from one that waits for its trigger.
    let text = good(&on(&fake, &["status"]));
    assert!(text.contains("off: waits for its trigger, or"), "{text}");
    let none = Fake::start(state("demo.kymo"));
    let text = good(&on(&none, &["status"]));
    assert!(
        text.contains("off: there is no trigger; `kymo command on`"),
        "{text}"
    );

    // There is no wait for a recording that has stopped, or that cannot start.
    for (status, message) in [
        (STATUS, ""),
        (&STATUS.replace("bytes=444", "bytes=0"), "no trigger"),
    ] {
        let mut other = state("demo.kymo");
        other.status = status.to_owned();
        let fake = Fake::start(other);
        let started = Instant::now();
        let output = on(&fake, &["trace", "-r", "--wait", "86400"]);
        good(&output);
        assert!(err(&output).contains(message), "{}", err(&output));
        assert!(started.elapsed() < Duration::from_secs(3600));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_wait_and_gets_what_there_is() {
    let mut waiting = state("demo.kymo");
    waiting.trigger = 0x0800_007A;
    waiting.status = STATUS.replace("on=0", "on=1");
    waiting.stopper = 0x0800_007A;
    let fake = Fake::start(waiting);
    let mut process = command(&["trace", "-r", "--wait", "86400", "--events"]);
    process.args(["--target", &fake.address()]);
    process.stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = process.spawn().expect("it runs");
    let statuses = || {
        let commands = fake.state().commands;
        let status = commands
            .iter()
            .filter(|command| **command == LinkCommand::Status);
        status.count()
    };
    // Some requests belong to the reboot; more than four show that it polls for the end of the capture.
    wait_until("it waits", || statuses() > 4);
    interrupt(&process);
    let output = process.wait_with_output().expect("it ends");
    assert_eq!(
        good(&output),
        good(&run(&["show", "demo.kymo", "--events"]))
    );
    assert!(
        err(&output).contains("no longer waiting"),
        "{}",
        err(&output)
    );
}

/// A full disk is noticed only after the whole dump was fetched.
#[cfg(target_os = "linux")]
#[test]
fn what_was_fetched_and_cannot_be_written_is_kept_elsewhere() {
    let folder = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("full.kymo")).expect("a link");
    let kept = tempfile::tempdir().expect("a directory");
    let fake = Fake::start(state("demo.kymo"));
    let output = command(&["trace", "-o", "full.kymo", "--target", &fake.address()])
        .env("TMPDIR", kept.path())
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    fails(&output, &["full.kymo", "what the target sent is kept in"]);
    let files: Vec<_> = fs::read_dir(kept.path()).expect("it is there").collect();
    let [Ok(file)] = files.as_slice() else {
        panic!("{files:?}");
    };
    let shown = good(&run(&[
        "show",
        "--events",
        file.path().to_str().expect("text"),
    ]));
    assert!(shown.lines().count() > 10, "{shown}");
}
