//! Programs for other processors, recorded under QEMU, in any byte order and word size. `kymo` on this machine and
//! babeltrace2 find every call in the order of the program's source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// Another architecture.
struct Machine {
    /// The Rust target.
    target: &'static str,
    compiler: &'static str,
    qemu: &'static str,
    /// Its properties in the identity.
    word: u64,
    order: &'static str,
}

const POWERPC: Machine = Machine {
    target: "powerpc-unknown-linux-gnu",
    compiler: "powerpc-linux-gnu-gcc",
    qemu: "qemu-ppc",
    word: 32,
    order: "be",
};

const POWERPC64: Machine = Machine {
    target: "powerpc64-unknown-linux-gnu",
    compiler: "powerpc64-linux-gnu-gcc",
    qemu: "qemu-ppc64",
    word: 64,
    order: "be",
};

const AARCH64: Machine = Machine {
    target: "aarch64-unknown-linux-gnu",
    compiler: "aarch64-linux-gnu-gcc",
    qemu: "qemu-aarch64",
    word: 64,
    order: "le",
};

/// An entry (true) or exit, and the function's name.
type Step = (bool, String);

/// The operations of one thread of the program (`host/read/tests/programs/two_threads.c`).
fn work() -> Vec<Step> {
    let step = |enter, name: &str| (enter, name.to_owned());
    let mut steps = vec![step(true, "work")];
    for _ in 0..10 {
        steps.push(step(true, "branch"));
        for _ in 0..100 {
            steps.extend([step(true, "leaf"), step(false, "leaf")]);
        }
        steps.push(step(false, "branch"));
    }
    steps.extend((0..20).map(|_| step(true, "recurse")));
    steps.extend((0..20).map(|_| step(false, "recurse")));
    steps.push(step(false, "work"));
    steps
}

/// The operations of the main thread.
fn main_thread() -> Vec<Step> {
    let step = |enter, name: &str| (enter, name.to_owned());
    let mut steps = vec![step(true, "main")];
    steps.extend(work());
    steps.extend([
        step(true, "handler"),
        step(true, "leaf"),
        step(false, "leaf"),
        step(false, "handler"),
        step(false, "main"),
    ]);
    steps
}

/// Builds the program for the machine and runs it; returns the program and its recording.
fn record(machine: &Machine) -> (PathBuf, PathBuf) {
    tools::require(&[Need::Foreign, Need::Checks]).unwrap();
    let library = library::for_linux(&BareRust::find_for(machine.target).unwrap()).unwrap();
    let folder = run::target_dir().join("foreign").join(machine.target);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (program, raw) = (folder.join("program"), folder.join("raw.kymo"));
    let mut compiler = Command::new(machine.compiler);
    compiler
        // Statically linked, so that QEMU needs no libraries of that machine.
        .args(["-O0", "-g", "-static", "-finstrument-functions"])
        .args(["-Wall", "-Werror", "-pthread", "-Wl,--build-id"])
        .arg(run::root().join("host/read/tests/programs/two_threads.c"))
        .arg("-I")
        .arg(run::root().join("device/c/include"))
        .arg(&library)
        .arg("-o")
        .arg(&program);
    run::run(&mut compiler).unwrap();
    let mut qemu = Command::new(machine.qemu);
    run::run(qemu.arg(&program).env("KYMO_OUTPUT", &raw)).unwrap();
    (program, raw)
}

/// The output of `kymo verb` in JSON, one value per line.
fn kymo(kymo: &Path, verb: &str, program: &Path, input: &Path) -> Vec<Value> {
    let mut command = Command::new(kymo);
    command
        .args([verb, "--format", "json", "--elf"])
        .arg(program);
    let text = run::output(command.arg(input)).unwrap();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

/// Enters and exits by thread, from `kymo show`.
fn steps(events: &[Value]) -> BTreeMap<u64, Vec<Step>> {
    let mut threads = BTreeMap::<u64, Vec<Step>>::new();
    let mut time = 0;
    for event in events {
        assert_eq!(event["type"], "event", "no gap and no repair");
        let now = event["time_ns"].as_u64().unwrap();
        assert!(now >= time, "the order is that of time");
        time = now;
        let enter = match event["name"].as_str().unwrap() {
            "enter" => true,
            "exit" => false,
            _ => continue,
        };
        let thread = event["thread"].as_u64().unwrap();
        let name = event["function"].as_str().unwrap().to_owned();
        threads.entry(thread).or_default().push((enter, name));
    }
    threads
}

fn every_call_in_its_order(machine: &Machine) {
    let (program, raw) = record(machine);
    let bench = kymo::build(Profile::Debug).unwrap();

    let info = kymo(&bench, "info", &program, &raw).remove(0);
    assert_eq!(info["lost"], 0, "{info}");
    assert_eq!(info["gaps"], 0, "{info}");
    // Before the identity there are numbers, any byte of which may be a line feed.
    let bytes = fs::read(&raw).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let identity = text.split_once("kymo identify: ").unwrap().1;
    let line = identity.lines().next().unwrap();
    let described = format!("word={} order={} ", machine.word, machine.order);
    assert!(line.contains(&described), "{line}");

    let show = kymo(&bench, "show", &program, &raw);
    let threads = steps(&show);
    assert_eq!(threads.len(), 2, "{:?}", threads.keys());
    let (main, other): (Vec<_>, Vec<_>) = threads
        .into_values()
        .partition(|steps| steps.first().is_some_and(|(_, name)| name == "main"));
    assert_eq!(main, [main_thread()]);
    assert_eq!(other, [work()]);
    let marked = |event: &&Value| event["label"] == "half" && event["fields"]["value"] == 42;
    assert_eq!(show.iter().filter(marked).count(), 1, "the named marker");

    // As a trace directory, which is self-contained by its metadata.
    let trace = raw.with_extension("trace");
    let mut save = Command::new(&bench);
    save.arg("trace").arg(&raw).arg("--elf").arg(&program);
    run::run(save.arg("--output").arg(&trace)).unwrap();
    assert_eq!(
        kymo(&bench, "info", &program, &trace)[0]["events"],
        info["events"]
    );
    let other = Command::new("babeltrace2").arg(&trace).output().unwrap();
    let warnings = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.success() && warnings.is_empty(), "{warnings}");
    let text = String::from_utf8(other.stdout).unwrap();
    assert_eq!(info["events"], text.lines().count() as u64);
    let entered = |name: &str| {
        let named = format!("\"{name}\"");
        let enter = |line: &&str| line.contains(" enter: ") && line.contains(&named);
        text.lines().filter(enter).count()
    };
    let entries = ["leaf", "branch", "recurse", "work", "handler", "main"].map(entered);
    assert_eq!(entries, [2001, 20, 40, 2, 1, 1]);
}

#[test]
fn of_32_bits_and_big_endian() {
    every_call_in_its_order(&POWERPC);
}

#[test]
fn of_64_bits_and_big_endian() {
    every_call_in_its_order(&POWERPC64);
}

#[test]
fn of_64_bits_and_little_endian() {
    every_call_in_its_order(&AARCH64);
}

/// Compiled with `-pg`, which calls `_mcount` after each prologue (`device/c/wrap/pg.c`), and with patchable entries
/// (`device/c/wrap/patchable.c`).
#[test]
fn profiled_calls_of_aarch64() {
    tools::require(&[Need::Foreign, Need::Checks]).unwrap();
    let library = library::for_linux(&BareRust::find_for(AARCH64.target).unwrap()).unwrap();
    let folder = run::target_dir().join("foreign/profiled");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let device = run::root().join("device");
    // The last program checks its own code.
    const PATCHABLE: &str = "-fpatchable-function-entry=2";
    let ways = [
        ("profiled", "-pg"),
        ("profiled", PATCHABLE),
        ("patchable", PATCHABLE),
    ];
    let levels = ["-O0", "-O2", "-Os"].into_iter();
    for (level, (source, way)) in levels.flat_map(|level| ways.map(|way| (level, way))) {
        let patchable = way == PATCHABLE;
        let on = if source == "patchable" { "0" } else { "1" };
        let (program, raw) = (folder.join("program"), folder.join("raw.kymo"));
        let compile = |source: &str, options: &[&str]| {
            let object = folder.join(format!("{}.o", source.replace('/', "-")));
            let mut compiler = Command::new(AARCH64.compiler);
            compiler.args([
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pthread",
                "-I",
            ]);
            compiler.arg(device.join("c/include")).args(options);
            compiler
                .args(["-c", "-o"])
                .arg(&object)
                .arg(device.join(source));
            run::run(&mut compiler).unwrap();
            object
        };
        let mut link = Command::new(AARCH64.compiler);
        link.args(["-static", "-pthread", "-o"]).arg(&program);
        link.arg(compile(
            &format!("tests/programs/{source}.c"),
            &[level, way],
        ));
        link.arg(compile("c/wrap/pg.c", &["-O2"]));
        if patchable {
            link.arg(compile("c/wrap/patchable.c", &["-O2"]));
        }
        link.arg(&library);
        link.arg("-Wl,--wrap=_setjmp,-u,_setjmp,--wrap=longjmp,-u,longjmp");
        run::run(&mut link).unwrap();
        let _ = fs::remove_file(&raw);
        let mut qemu = Command::new(AARCH64.qemu);
        // For each function its location, and its number of calls.
        let printed = run::output(
            qemu.arg(&program)
                .env("KYMO_OUTPUT", &raw)
                .env("KYMO_ON", on),
        )
        .unwrap();
        let expected: BTreeMap<String, u64> = printed
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].to_owned(), words[2].parse().unwrap())
            })
            .collect();
        let bench = kymo::build(Profile::Debug).unwrap();
        let rows = kymo(&bench, "report", &program, &raw);
        let found: BTreeMap<String, u64> = rows
            .iter()
            .map(|row| {
                let name = row["function"].as_str().unwrap();
                // With `-pg` the hook is called after the prologue.
                let name = match patchable {
                    true => name,
                    false => name.split('+').next().unwrap(),
                };
                (name.to_owned(), row["count"].as_u64().unwrap())
            })
            .filter(|(name, _)| name != "shared")
            .collect();
        assert_eq!(found, expected, "{source} {level} {way}");
    }
}
