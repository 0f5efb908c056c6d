//! Duration mode: calls above a threshold, with one record each. Tested on a program in which the durations of calls
//! follow from their instruction counts, in an emulator that counts instructions, and on the demonstration firmware.

mod advice;
mod conditions;
mod debugger;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::port;
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use serde_json::Value;

/// Nanoseconds per instruction with `-icount shift=6`, per tick of the clock, and per round of a loop in `spin.c`.
const INSTRUCTION: u64 = 64;
const TICK: u64 = 40;
const ROUND: u64 = 2 * INSTRUCTION;

/// Time-out on a slow machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running program, and a folder for its recordings.
struct Board {
    kymo: PathBuf,
    elf: PathBuf,
    folder: PathBuf,
    target: String,
    /// The running QEMU, which ends when this is dropped.
    _qemu: Box<dyn std::any::Any>,
    port: u16,
}

impl Board {
    fn folder(name: &str) -> (PathBuf, PathBuf) {
        tools::require(&[Need::Firmware]).unwrap();
        let kymo = kymo::build(Profile::Debug).unwrap();
        let folder = run::target_dir().join("firmware-test/duration").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        (kymo, folder)
    }

    /// The demonstration firmware.
    fn firmware(name: &str) -> Self {
        let (kymo, folder) = Self::folder(name);
        let elf = firmware::build(Hooks::Duration, &BareRust::find().unwrap()).unwrap();
        let qemu = Qemu::boot(&elf, &folder, false).unwrap();
        Self {
            kymo,
            elf,
            folder,
            target: qemu.target(),
            _qemu: Box::new(qemu),
            port: 0,
        }
    }

    /// The program in `spin.c`.
    fn spin(name: &str) -> Self {
        Self::spin_with(name, library::WITH_DURATION)
    }

    /// As [`spin`](Self::spin), with these parts of the library.
    fn spin_with(name: &str, parts: &str) -> Self {
        Self::spin_so(name, parts, &[], &[])
    }

    /// The same with these options for the compiler and the emulator.
    fn spin_so(name: &str, parts: &str, compile: &[&str], emulate: &[&str]) -> Self {
        let (kymo, folder) = Self::folder(name);
        let parts = library::parts(Some(parts)).unwrap();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let library = library::for_bare_metal_with(&BareRust::find().unwrap(), &parts).unwrap();
        let elf = folder.join("spin.elf");
        let mut compiler = Command::new("arm-none-eabi-gcc");
        compiler
            .args(FIRMWARE_CPU)
            .args([
                "-Os",
                "-g",
                "-Wall",
                "-Werror",
                "-nostdlib",
                "-Wl,--gc-sections",
            ])
            .args(compile)
            .args(["-finstrument-functions", "-ffunction-sections", "-I"])
            .arg(run::root().join("device/c/include"))
            .arg("-T")
            .arg(run::root().join("device/tests/programs/board.ld"))
            .arg(run::root().join("tests/it/duration/spin.c"))
            .arg(library)
            .arg("-o")
            .arg(&elf);
        run::run(&mut compiler).unwrap();
        let port = port::free().unwrap();
        let mut qemu = Command::new("qemu-system-arm");
        qemu.args(["-M", "mps2-an385", "-icount", "shift=6", "-display", "none"])
            .args(["-monitor", "none", "-serial"])
            .arg(format!("tcp:127.0.0.1:{port},server=on,wait=on,nodelay=on"))
            .args(emulate)
            .arg("-kernel")
            .arg(&elf)
            .stdin(Stdio::null());
        let mut process = Background::start(&mut qemu).unwrap();
        drop(port::connect(&mut process, port, PATIENCE).unwrap());
        Self {
            kymo,
            elf,
            folder,
            target: format!("tcp:127.0.0.1:{port}"),
            _qemu: Box::new(process),
            port,
        }
    }

    /// Makes `spin.c` do its work this many times, and waits for it.
    fn work(&self, times: usize) {
        self.say('!', times);
    }

    /// Makes `spin.c` damage the data that it retains over a reboot.
    fn damage(&self) {
        self.say('#', 1);
    }

    fn say(&self, what: char, times: usize) {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for _ in 0..times {
            write!(stream, "{}\r", String::from(what).repeat(6)).unwrap();
            while !lines.next().unwrap().unwrap().contains("done") {}
        }
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([subcommand, "--target", &self.target]);
        command
    }

    /// Sends a command, and returns the answer.
    fn ask(&self, words: &str) -> String {
        run::output(self.command("command").arg(words)).unwrap()
    }

    /// Records the target with these options, and saves the trace.
    fn trace(&self, name: &str, options: &[&str]) -> PathBuf {
        let trace = self.folder.join(name);
        let mut command = self.command("trace");
        command.arg("--elf").arg(&self.elf).args(options);
        run::run(command.arg("--output").arg(&trace)).unwrap();
        trace
    }

    /// The calls of a trace.
    fn calls(&self, trace: &Path) -> Vec<Call> {
        let mut command = Command::new(&self.kymo);
        command
            .args(["calls", "--format", "json", "--elf"])
            .arg(&self.elf);
        let output = run::output(command.arg(trace)).unwrap();
        let lines = output.lines().map(|line| {
            let call: Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| call[name].as_u64().unwrap();
            Call {
                function: call["function"].as_str().unwrap().to_owned(),
                caller: call["caller"].as_str().unwrap_or("").to_owned(),
                begin: number("begin_ns"),
                wall: number("wall_ns"),
                own: number("self_ns"),
                depth: number("depth"),
                open: call["ended"] != "returned",
            }
        });
        lines.collect()
    }
}

#[derive(Clone, Debug)]
struct Call {
    function: String,
    caller: String,
    begin: u64,
    wall: u64,
    own: u64,
    depth: u64,
    open: bool,
}

/// The calls of a function, in the order of their beginnings.
fn of<'c>(calls: &'c [Call], function: &str) -> Vec<&'c Call> {
    let mut found: Vec<_> = calls
        .iter()
        .filter(|call| call.function == function)
        .collect();
    found.sort_by_key(|call| call.begin);
    found
}

#[test]
fn durations_are_those_of_the_instructions() {
    let board = Board::spin("spin");
    // Work at the build's threshold of 100 us. A handler may interrupt one of the rounds.
    board.work(3);
    let trace = board.trace("long", &[]);
    let calls = board.calls(&trace);
    for call in &calls {
        assert!(call.wall >= 100_000, "{call:?}");
    }
    // The shortest of three calls for each length of a loop.
    let mut spins: BTreeMap<u64, u64> = BTreeMap::new();
    for call in of(&calls, "spin") {
        let rounds =
            [1024, 2048, 3000, 4096].map(|rounds| (call.wall.abs_diff(rounds * ROUND), rounds));
        let (_, rounds) = rounds.into_iter().min().unwrap();
        let shortest = spins.entry(rounds).or_insert(call.wall);
        *shortest = call.wall.min(*shortest);
        assert_eq!(call.own, call.wall, "{call:?}");
    }
    assert_eq!(of(&calls, "spin").len(), 3 * 4, "{spins:?}");
    let beyond: Vec<u64> = spins
        .iter()
        .map(|(rounds, ns)| ns - rounds * ROUND)
        .collect();
    // Between the clock readings of both hooks, the number of instructions is the same in each call.
    assert!(beyond.iter().all(|ns| *ns < 40 * INSTRUCTION), "{spins:?}");
    let (least, most) = (beyond.iter().min().unwrap(), beyond.iter().max().unwrap());
    assert!(most - least <= 2 * TICK, "{spins:?}");

    // Unrecorded calls are not part of their caller's self time.
    for call in of(&calls, "many") {
        let tiny = (call.wall - call.own) / 1000;
        assert!((10..40).contains(&(tiny / INSTRUCTION)), "{call:?}");
    }
    // Nesting is reconstructed. The target's stack has 24 frames: one is reserved, and two are used by the calls around
    // these.
    let deep = of(&calls, "deep");
    assert_eq!(deep.len(), 3 * 21);
    for pair in deep.windows(2).filter(|pair| pair[1].depth > pair[0].depth) {
        assert_eq!(pair[1].depth, pair[0].depth + 1);
        assert_eq!(pair[1].caller, "deep");
    }
    assert!(deep.iter().any(|call| call.caller == "all"));
    assert_eq!(of(&calls, "outer").len(), 3);
    let all = of(&calls, "all");
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|call| call.caller == "serve" && !call.open));
    let serve = of(&calls, "serve");
    assert!(serve.len() == 1 && serve[0].open && serve[0].depth == 0);
    let status = board.ask("duration");
    assert!(status.contains("on=1 threshold=2500 depth=0"), "{status}");
    // 19 levels more, three times.
    assert!(status.contains("too_deep=57 unmatched=0"), "{status}");
    // The trace reports this to any reader; and the self times are correct all the same.
    let mut info = Command::new(&board.kymo);
    info.args(["info", "--format", "json"]).arg(&trace);
    let info: Value = serde_json::from_str(&run::output(&mut info).unwrap()).unwrap();
    assert_eq!(info["lost"], 57, "{info}");

    // A second dump contains the open call again, and no other call twice.
    let again = board.calls(&board.trace("again", &[]));
    assert_eq!(of(&again, "serve").len(), 1);
    assert_eq!(again.len(), calls.len());

    // Other readers support the records.
    let output = run::output(Command::new("babeltrace2").arg(&trace)).unwrap();
    let calls_there = output
        .lines()
        .filter(|line| line.contains(" call: "))
        .count();
    assert_eq!(calls_there, calls.len() - 1);
    assert_eq!(
        output
            .lines()
            .filter(|line| line.contains(" call_open: "))
            .count(),
        1
    );
}

#[test]
fn what_is_filtered_is_not_recorded() {
    let board = Board::spin("filtered");
    let options = [
        "--threshold",
        "100us",
        "--hide",
        "spin",
        "--depth",
        "4",
        "--stop-at",
        "stop_here",
    ];
    board.trace("nothing", &[&options[..], &["--wait", "0"]].concat());
    board.work(1);
    let status = run::output(board.command("status").args(["--format", "json"])).unwrap();
    assert!(status.contains("\"recording\":false"), "{status}");
    let check = |calls: &[Call]| {
        assert!(of(calls, "spin").is_empty() && of(calls, "tiny").is_empty());
        assert_eq!(
            calls.iter().map(|call| call.depth).max(),
            Some(3),
            "{calls:?}"
        );
        // `serve` is present only if it was entered since recording was turned on.
        let served = of(calls, "serve").len();
        assert_eq!(of(calls, "deep").len(), 3 - served);
        assert_eq!(of(calls, "many").len(), 2);
        // Recording stopped within these calls.
        for name in ["outer", "all"] {
            let found = of(calls, name);
            assert!(found.len() == 1 && found[0].open, "{name}: {calls:?}");
        }
    };
    check(&board.calls(&board.trace("stopped", &[])));

    // Selects one function, and then excludes the calls within others.
    board.trace(
        "nothing",
        &["--threshold", "0", "--function", "spin", "--wait", "0"],
    );
    board.work(1);
    let calls = board.calls(&board.trace("alone", &[]));
    assert_eq!(of(&calls, "spin").len(), calls.len());
    assert_eq!(calls.len(), 15);
    let deep = format!("{:#x}", address(&board.elf, "deep"));
    board.ask("duration filter all record");
    board.ask(&format!("duration filter {deep} below"));
    board.ask("clear");
    board.work(1);
    let calls = board.calls(&board.trace("below", &[]));
    assert!(of(&calls, "deep").is_empty() && of(&calls, "tiny").len() == 2000);

    // The settings survive a reboot, to trace what follows it immediately.
    board.trace("nothing", &[&options[..], &["--wait", "0"]].concat());
    run::run(&mut board.command("reboot")).unwrap();
    let status = board.ask("duration");
    assert!(status.contains("on=1 threshold=2500 depth=4"), "{status}");
    assert!(!status.contains("stop_at=0x0 "), "{status}");
    board.work(1);
    check(&board.calls(&board.trace("rebooted", &[])));

    // Back to entries and exits.
    board.trace("nothing", &["--threshold", "off", "--wait", "0"]);
    board.work(1);
    let calls = board.calls(&board.trace("off", &[]));
    assert_eq!(of(&calls, "tiny").len(), 2000);
}

#[test]
fn recording_stops_behind_what_went_wrong() {
    let board = Board::spin("frozen");
    let is_on = || {
        let status = run::output(board.command("status").args(["--format", "json"])).unwrap();
        status.contains("\"recording\":true")
    };
    // The only call of `spin` with 3000 rounds is the third above 250 us; its caller is `outer`.
    let condition = [
        "--freeze",
        "spin > 250us",
        "--from",
        "outer",
        "--hit",
        "2",
        "--after",
        "2",
    ];
    board.trace(
        "nothing",
        &[&["--threshold", "100us", "--wait", "0"], &condition[..]].concat(),
    );
    board.work(1);
    assert!(is_on(), "it was called from there once");
    board.work(1);
    assert!(!is_on());
    let calls = board.calls(&board.trace("first", &[]));
    // Two calls after it, and the calls open at that time.
    let last: Vec<_> = calls.iter().filter(|call| !call.open).collect();
    let ended = last
        .iter()
        .max_by_key(|call| call.begin + call.wall)
        .unwrap();
    assert_eq!(ended.function, "outer", "{calls:?}");
    assert_eq!(of(&calls, "all").iter().filter(|call| call.open).count(), 1);
    // The condition is armed again without a reboot.
    board.ask("clear");
    board.ask("on");
    board.work(1);
    assert!(is_on());
    board.work(1);
    assert!(!is_on());
    // The conditions survive a reboot.
    let settings = || {
        let answer = board.ask("duration");
        // How often it has acted is counted from the start.
        let (settings, _counts) = answer.split_once(" acted=").unwrap();
        settings.to_owned()
    };
    let set = settings();
    assert!(set.ends_with(" hit=2 after=2 times=0"), "{set}");
    run::run(&mut board.command("reboot")).unwrap();
    assert_eq!(settings(), set);
    board.work(1);
    assert!(is_on());
    board.work(1);
    assert!(!is_on());
    // Corrupted data in RAM is not used: then the build's defaults apply.
    board.damage();
    let output = board.command("reboot").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success()
            && text.contains("duration mode's settings did not survive the reboot"),
        "{text}"
    );
    let status = board.ask("duration");
    assert!(status.contains("on=1 threshold=2500 depth=0 "), "{status}");
    assert!(status.contains(" freeze=0x0 "), "{status}");
    // The second entry, whatever the duration of the call.
    let options = [
        "--threshold",
        "100us",
        "--wait",
        "0",
        "--stop-at",
        "stop_here",
        "--hit",
        "2",
    ];
    board.trace("nothing", &options);
    board.work(1);
    assert!(is_on());
    board.work(1);
    assert!(!is_on());
}

#[test]
fn recording_stops_at_an_event() {
    let board = Board::spin("events");
    let is_on = || {
        let status = run::output(board.command("status").args(["--format", "json"])).unwrap();
        status.contains("\"recording\":true")
    };
    let arm = |options: &[&str]| {
        let always = ["--threshold", "100us", "--wait", "0"];
        board.trace("nothing", &[&always[..], options].concat());
    };
    // The marker of the second round, and the call that recorded it.
    arm(&["--freeze", "marker == 2", "--after", "1"]);
    board.work(1);
    assert!(is_on());
    board.work(1);
    assert!(!is_on());
    let trace = board.trace("marker", &[]);
    let mut show = Command::new(&board.kymo);
    show.args(["show", "--events", "--format", "json", "--elf"]);
    let shown = run::output(show.arg(&board.elf).arg(&trace)).unwrap();
    let events = shown
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events: Vec<Value> = events.collect();
    let marker = |event: &Value| event["name"] == "marker" && event["fields"]["value"] == 2;
    let at = events.iter().position(marker).unwrap();
    let behind = events[at + 1..]
        .iter()
        .filter(|event| event["name"] == "call");
    assert_eq!(behind.count(), 1, "{:#?}", &events[at..]);
    let calls = board.calls(&trace);
    let last = calls.iter().filter(|call| !call.open);
    let last = last.max_by_key(|call| call.begin + call.wall).unwrap();
    assert_eq!(last.function, "outer", "{calls:?}");

    // The second time that the handler of exception 11 interrupts `outer`, which is open then.
    arm(&["--freeze", "irq == 11", "--from", "outer", "--hit", "2"]);
    board.work(1);
    assert!(is_on());
    board.work(1);
    assert!(!is_on());
    let calls = board.calls(&board.trace("irq", &[]));
    let open = of(&calls, "outer").into_iter().filter(|call| call.open);
    assert_eq!(open.count(), 1, "{calls:?}");
    // An interruption of another function does not count.
    arm(&["--freeze", "irq == 11", "--from", "many"]);
    board.work(1);
    assert!(is_on());
    // Nor does one while the gate is disabled.
    arm(&["--freeze", "irq == 11"]);
    board.ask("disable");
    board.work(1);
    board.ask("enable");
    assert!(is_on());
    // Without a threshold all calls are recorded.
    board.trace(
        "nothing",
        &["--freeze", "spin > 300us", "--after", "2", "--wait", "0"],
    );
    assert!(board.ask("duration").contains("threshold=0 "));
    board.work(1);
    assert!(!is_on());
    let calls = board.calls(&board.trace("frozen", &[]));
    let long = |call: &&Call| call.function == "spin" && call.wall > 300_000;
    assert_eq!(calls.iter().filter(long).count(), 1, "{calls:?}");
    assert!(calls.iter().any(|call| call.wall < 10_000), "{calls:?}");
}

/// The address of a function, or of a variable.
fn address(elf: &Path, function: &str) -> u64 {
    let symbols = run::output(Command::new("arm-none-eabi-nm").arg(elf)).unwrap();
    let line = symbols
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")));
    let (digits, _) = line.unwrap().split_once(' ').unwrap();
    u64::from_str_radix(digits, 16).unwrap()
}

#[test]
fn threads_have_stacks_of_their_own() {
    let board = Board::firmware("threads");
    let trace = board.trace("first", &["--threshold", "100us", "--wait", "3"]);
    let calls = board.calls(&trace);
    assert!(calls.len() > 100);
    let status = board.ask("duration");
    assert!(status.contains("too_deep=0"), "{status}");
    // The rounds of both threads overlap in time.
    let rounds = of(&calls, "program_round");
    assert!(rounds.len() >= 2, "{calls:?}");
    for call in &calls {
        assert!(call.wall >= 100_000 && call.own <= call.wall, "{call:?}");
        assert!(!call.function.starts_with("0x"), "{call:?}");
    }
}
