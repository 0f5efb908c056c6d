//! A board that crashes and prints its recording on its console, read from a log with other lines.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use serde_json::Value;

/// Compiles the program for the board into an empty folder.
fn build(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    tools::require(&[Need::Firmware]).unwrap();
    let folder = run::target_dir().join("firmware-test/console").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let elf = folder.join("program.elf");
    let programs = run::root().join("device/tests/programs");
    let mut compiler = Command::new("arm-none-eabi-gcc");
    compiler
        .args(FIRMWARE_CPU)
        .args(["-Os", "-g", "-Wall", "-Wextra", "-Werror", "-nostdlib"])
        .args(["-ffreestanding", "-Wl,--gc-sections", "-Wl,-z,noexecstack"])
        .args(["-ffunction-sections", "-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg("-T")
        .arg(programs.join("board.ld"))
        .args(options)
        .arg(programs.join("fatal.c"))
        .arg(library::for_bare_metal(&BareRust::find().unwrap()).unwrap())
        .args(["-lgcc", "-o"])
        .arg(&elf);
    run::run(&mut compiler).unwrap();
    (folder, elf)
}

/// The board's output up to this line. (Its files are beside the program.)
fn printed(elf: &Path, last: &str) -> Vec<String> {
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an385", "-icount", "shift=6", "-display", "none"])
        .args(["-monitor", "none", "-serial", "stdio"])
        .args(["-semihosting-config", "enable=on,target=native", "-kernel"])
        .arg(elf)
        .current_dir(elf.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut qemu = Background::start(&mut qemu).unwrap();
    let mut printed = Vec::new();
    for line in BufReader::new(qemu.take_stdout().unwrap()).lines() {
        let line = line.unwrap();
        let is_last = line == last;
        printed.push(line);
        if is_last {
            return printed;
        }
    }
    panic!("it ended early: {printed:#?}");
}

/// A log as a terminal program stores it, with other lines in between.
fn log(file: &Path, printed: &[String]) {
    let mut text = String::new();
    for (n, line) in printed.iter().enumerate() {
        text += &format!(
            "[2026-11-26 21:50:{:02}.{n:06}] ttyUSB0| {line}\r\n",
            n % 60
        );
        if n % 7 == 3 {
            text += "wifi: kymo: beacon timeout\n";
        }
    }
    fs::write(file, text).unwrap();
}

fn lines(words: &[&str], elf: &Path, input: &Path) -> Vec<Value> {
    let kymo = kymo::build(Profile::Debug).unwrap();
    let mut command = Command::new(kymo);
    command
        .args(words)
        .args(["--format", "json", "--elf"])
        .arg(elf);
    let text = run::output(command.arg(input)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The marker values of the program, in the order in which they were found.
fn markers(events: &[Value]) -> Vec<u64> {
    let of_it = events.iter().filter(|event| event["name"] == "marker");
    let value = |event: &Value| event["fields"]["value"].as_u64().unwrap();
    of_it.map(value).collect()
}

/// Both dumps of a log contain everything that was recorded before each crash.
fn both_lives(elf: &Path, file: &Path) {
    for (options, life) in [
        (&["show", "--events"][..], 2),
        (&["show", "--events", "--dump", "1"], 1),
    ] {
        let events = lines(options, elf, file);
        let markers = markers(&events);
        // Up to the last marker recorded before the fault, without a gap.
        let last = life * 10_000 + 3000;
        let first = *markers.first().unwrap();
        assert!(markers.iter().copied().eq(first..=last), "{markers:?}");
        assert!(markers.len() > 100, "{}", markers.len());
    }
}

#[test]
fn each_death_is_in_the_log() {
    let (folder, elf) = build("fatal", &[]);
    let printed = printed(&elf, "the end");
    let file = folder.join("console.log");
    log(&file, &printed);

    both_lives(&elf, &file);
    let info = lines(&["info"], &elf, &file);
    assert_eq!(info[0]["format"], "kymo", "{}", info[0]);
    assert!(info[0]["errors"].as_array().is_none_or(Vec::is_empty));
    let report = lines(&["report"], &elf, &file);
    let leaf = report.iter().find(|row| row["function"] == "leaf").unwrap();
    assert!(leaf["count"].as_u64() > Some(100), "{leaf}");

    // A line that was damaged on the console becomes a gap; the rest is read.
    let place = printed
        .iter()
        .rposition(|line| line.starts_with("kymo:000020"))
        .unwrap();
    let mut damaged = printed.clone();
    damaged[place].replace_range(20..24, "????");
    let file = folder.join("damaged.log");
    log(&file, &damaged);
    let kymo = kymo::build(Profile::Debug).unwrap();
    let mut show = Command::new(&kymo);
    show.args(["show", "--events", "--format", "json", "--elf"]);
    let output = show.arg(&elf).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let shown = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let shown: Vec<Value> = shown.collect();
    let gaps = shown.iter().filter(|line| line["type"] == "gap").count();
    assert!(gaps > 0);
    let some = markers(&shown);
    assert_eq!(some.last(), Some(&23_000));
    assert!(some.is_sorted() && some.len() > 100, "{}", some.len());

    // Without a target's identity the log is rejected.
    let file = folder.join("headless.log");
    let first = |line: &&String| !line.starts_with("kymo:000000");
    let headless: Vec<String> = printed.iter().filter(first).cloned().collect();
    log(&file, &headless);
    let refused = Command::new(kymo).arg("info").arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("line 0 of the dump is missing"), "{errors}");
}

#[test]
fn what_survives_a_silent_death_is_said_by_the_next_start() {
    let (folder, elf) = build("silent", &["-DSILENT"]);
    let printed = printed(&elf, "the end");
    // After power-on there is no recording.
    assert_eq!(printed[..3], ["reset", "nothing", "first life"]);
    assert_eq!(printed.iter().filter(|line| *line == "nothing").count(), 1);
    let file = folder.join("console.log");
    log(&file, &printed);
    both_lives(&elf, &file);

    let (_, elf) = build("damage", &["-DSILENT", "-DDAMAGE"]);
    let printed = self::printed(&elf, "the end");
    assert_eq!(printed.iter().filter(|line| *line == "nothing").count(), 3);
    assert!(
        !printed.iter().any(|line| line.contains("kymo")),
        "{printed:#?}"
    );
}

#[test]
fn the_last_recording_is_in_a_file_of_the_debuggers() {
    let (folder, elf) = build("semihosting", &["-DSEMIHOSTING"]);
    let printed = printed(&elf, "the end");
    let files = printed.iter().filter(|line| *line == "HARD FAULTfile");
    assert_eq!(files.count(), 2, "{printed:#?}");
    // The second life's, which had the file emptied.
    let markers = markers(&lines(
        &["show", "--events"],
        &elf,
        &folder.join("dump.txt"),
    ));
    let first = *markers.first().unwrap();
    assert!(markers.iter().copied().eq(first..=23_000), "{markers:?}");
    assert!(markers.len() > 100, "{}", markers.len());
}
