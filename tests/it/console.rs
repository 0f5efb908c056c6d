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
    build_with(name, options, &[])
}

/// The same with other parts of the library.
fn build_with(name: &str, options: &[&str], parts: &[&str]) -> (PathBuf, PathBuf) {
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
        .arg(library::for_bare_metal_with(&BareRust::find().unwrap(), parts).unwrap())
        .args(["-lgcc", "-o"])
        .arg(&elf);
    run::run(&mut compiler).unwrap();
    (folder, elf)
}

/// The board's output up to this line. The board's files are in the program's folder.
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

/// Checks that both dumps of a log contain everything that was recorded before each crash.
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

    // Lines of the identity are damaged: without the program the log is rejected, unless they had nothing that
    // matters.
    let begin = printed
        .iter()
        .rposition(|line| line.starts_with("kymo:000000"))
        .unwrap();
    let end = (begin..).find(|at| printed[*at].contains("dump ends"));
    let printed = &printed[begin - 1..=end.unwrap()];
    let file = folder.join("whole.log");
    log(&file, printed);
    let whole = lines(&["show", "--events"], &elf, &file);
    for line in 0..6 {
        let file = folder.join("headless.log");
        let mut headless = printed.to_vec();
        headless.remove(line + 1);
        log(&file, &headless);
        let info = |elf: &[&Path]| {
            let mut info = Command::new(&kymo);
            info.arg("info").arg(&file);
            elf.iter().for_each(|elf| _ = info.arg("--elf").arg(elf));
            let output = info.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            (output.status.code(), text)
        };
        let (code, errors) = info(&[]);
        if line == 0 {
            assert_eq!(code, Some(2));
            assert!(errors.contains("line 0 of the dump is missing"), "{errors}");
            assert!(errors.contains("--elf"), "{errors}");
        }
        let mut show = Command::new(&kymo);
        show.args(["show", "--events", "--format", "json", "--elf"]);
        let output = show.arg(&elf).arg(&file).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let shown = shown
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let shown: Vec<Value> = shown.collect();
        let (some, all) = (markers(&shown), markers(&whole));
        assert_eq!(some.last(), all.last(), "line {line}");
        // (The first packet, of which line 5 has the beginning, holds names.)
        assert_eq!(some, all, "line {line}: no packet of events is damaged");
    }
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

/// Parts of a library with checksums.
const SUMS: [&str; 2] = ["--features", "kymo/sums"];

/// The numbers that the program printed after a sweep: of packets `verified` and `unverified`, then of changed words.
fn swept(printed: &[String]) -> Vec<Vec<u32>> {
    let numbers = |line: &String| {
        let words = line.split(' ').filter_map(|word| word.split_once('='));
        words.map(|(_, number)| number.parse().unwrap()).collect()
    };
    let lines = printed.iter().filter(|line| line.starts_with("verified="));
    lines.map(numbers).collect()
}

#[test]
fn packets_that_a_reset_damaged_are_refused_by_their_checksums() {
    let (_, elf) = build_with("sums", &["-DSILENT", "-DSWEEP", "-DSUMS"], &SUMS);
    let printed = printed(&elf, "the end");
    let sweeps = swept(&printed);
    assert_eq!(sweeps.len(), 2, "{printed:#?}");
    for numbers in sweeps {
        let [verified, unverified, refused, newest, marked, believed] = numbers[..] else {
            panic!("{numbers:?}");
        };
        assert_eq!((verified, unverified, marked, believed), (7, 1, 0, 0));
        // All closed packets but the unused ends of their slots, and part of the newest.
        assert!(refused > 7 * 110 && newest < 128, "{refused} {newest}");
    }
}

#[test]
fn packets_without_a_checksum_are_called_not_verified() {
    let (_, elf) = build("unverified", &["-DSILENT", "-DSWEEP"]);
    let sweeps = swept(&printed(&elf, "the end"));
    assert_eq!(sweeps.len(), 2);
    for numbers in sweeps {
        let [verified, unverified, refused, _, marked, believed] = numbers[..] else {
            panic!("{numbers:?}");
        };
        assert_eq!((verified, unverified, believed), (0, 8, 0));
        // Times and sizes that do not fit are noticed, and changed values are not.
        assert!(refused > 200 && marked > 100, "{refused} {marked}");
    }
}

#[test]
fn every_view_says_what_a_reset_damaged() {
    let stderr = |words: &[&str], elf: &Path, file: &Path| {
        let kymo = kymo::build(Profile::Debug).unwrap();
        let mut command = Command::new(kymo);
        command.args(words).arg("--elf").arg(elf).arg(file);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (folder, elf) = build_with("inverted", &["-DSILENT", "-DINVERT", "-DSUMS"], &SUMS);
    let file = folder.join("console.log");
    log(&file, &printed(&elf, "the end"));
    for words in [&["show", "--events"][..], &["info"], &["report"], &["show"]] {
        let said = stderr(words, &elf, &file);
        let refused = "7 of 8 packets that survived the reset were damaged, and are left out";
        assert!(said.contains(refused), "{words:?}: {said}");
        assert!(said.contains("1 of 1 packets"), "{words:?}: {said}");
    }

    let (folder, elf) = build_with(
        "open_calls",
        &["-DSILENT", "-DLONG_CALLS"],
        &["--features", "kymo/duration"],
    );
    let file = folder.join("console.log");
    log(&file, &printed(&elf, "the end"));
    let said = stderr(&["calls"], &elf, &file);
    assert!(said.contains("8 of 8 packets"), "{said}");
    assert!(said.contains("calls that had not ended"), "{said}");
}

/// A line of the dump that a person can read: time, and what it says.
fn plain(line: &str) -> Option<(f64, String)> {
    let mut words = line.split_ascii_whitespace();
    let time = words.next().filter(|word| word.contains('.'))?;
    let thread = words.next()?;
    assert!(thread.starts_with("0x"), "{line}");
    Some((time.parse().ok()?, words.collect::<Vec<_>>().join(" ")))
}

#[test]
fn the_last_recording_is_lines_that_a_person_can_read() {
    let (folder, elf) = build("lines", &["-DLINES"]);
    let printed = printed(&elf, "the end");
    let file = folder.join("console.log");
    log(&file, &printed);
    // The other dump has the same records.
    let events = lines(&["show", "--events"], &elf, &file);
    let begins = |line: &&String| line.starts_with("*** kymo lines begin:");
    assert_eq!(printed.iter().filter(begins).count(), 2);
    let last = printed.iter().rposition(|line| begins(&line)).unwrap();
    let is_end = |line: &&String| line.starts_with("*** kymo lines end");
    let records = printed[last..].iter().take_while(|line| !is_end(line));
    let records: Vec<(f64, String)> = records.filter_map(|line| plain(line)).collect();
    assert!(records.len() > 500, "{}", records.len());
    assert!(records.is_sorted_by(|one, other| one.0 <= other.0));
    let words = |begin: &str| -> Vec<&str> {
        let all = records.iter().map(|(_, what)| what.as_str());
        all.filter_map(|what| what.strip_prefix(begin)).collect()
    };
    let values = words("marker ");
    let expected = markers(&events)
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>();
    assert_eq!(values, expected);
    let of_name = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!(words("> ").len(), of_name("enter"));
    assert_eq!(words("<").len(), of_name("exit"));
    assert_eq!(words("isr_enter 15").len(), of_name("isr_enter"));
    // All calls are those of one function, and its exits name it unless its entry was in another packet.
    let symbols = run::output(Command::new("arm-none-eabi-nm").arg(&elf)).unwrap();
    let leaf = symbols
        .lines()
        .find_map(|line| line.strip_suffix(" t leaf"));
    let leaf = u64::from_str_radix(leaf.unwrap(), 16).unwrap();
    let entered = words("> ");
    assert!(
        entered.iter().all(|it| *it == format!("{leaf:#x}")),
        "{leaf:#x} {:?}",
        entered.last()
    );
    assert!(words("< ").iter().all(|it| *it == format!("{leaf:#x}")));
    // Times are those of the other dump.
    let times = events.iter().filter(|event| event["name"] == "marker");
    let times: Vec<f64> = times
        .map(|it| it["time_ns"].as_f64().unwrap() / 1e9)
        .collect();
    let marked = records
        .iter()
        .filter(|(_, what)| what.starts_with("marker"));
    for ((time, what), expected) in marked.zip(times) {
        assert!((time - expected).abs() < 1.1e-6, "{time} {expected} {what}");
    }
    assert!(printed.contains(&"interrupt 0xf is named SysTick".to_owned()));
    let end = format!("*** kymo lines end: {} records ***", records.len());
    assert!(printed.contains(&end), "{end}");
}

#[test]
fn the_last_recording_is_in_a_file_of_the_debuggers() {
    let (folder, elf) = build("semihosting", &["-DSEMIHOSTING"]);
    let printed = printed(&elf, "the end");
    let files = printed.iter().filter(|line| *line == "HARD FAULTfile");
    assert_eq!(files.count(), 2, "{printed:#?}");
    // The markers of the second run, which truncated the file.
    let markers = markers(&lines(
        &["show", "--events"],
        &elf,
        &folder.join("dump.txt"),
    ));
    let first = *markers.first().unwrap();
    assert!(markers.iter().copied().eq(first..=23_000), "{markers:?}");
    assert!(markers.len() > 100, "{}", markers.len());
}
