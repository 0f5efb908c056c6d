//! Programs that are compiled with `-pg` (`c/wrap/pg.c`) or patchable entries (`c/wrap/patchable.c`): on Linux, and with
//! `-pg` on a Cortex-M4 in an emulator.

#[path = "common/programs.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{compilers, device, library, raw_file_of_jumps};
use kymo_device_tests::Kind;
use kymo_device_tests::emulator::{self, Program, equipped};

/// Compiles, or links.
fn run(compiler: &mut Command) {
    let output = compiler.output().expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler:?}: {errors}");
}

/// How a program calls hooks: options of the compiler, and files that are linked.
struct Way {
    options: &'static [&'static str],
    wraps: &'static [&'static str],
    /// Whether hooks know where the function begins.
    is_exact: bool,
}

const PATCHABLE: &str = "-fpatchable-function-entry=7,5";
const PG: &[&str] = &["c/wrap/pg.c"];
const BOTH: &[&str] = &["c/wrap/pg.c", "c/wrap/patchable.c"];

const WAYS: [Way; 5] = [
    Way {
        options: &["-pg", "-mfentry"],
        wraps: PG,
        is_exact: true,
    },
    Way {
        options: &["-pg"],
        wraps: PG,
        is_exact: false,
    },
    Way {
        options: &["-pg", "-mfentry", "-fcf-protection=full"],
        wraps: PG,
        is_exact: true,
    },
    Way {
        options: &[PATCHABLE],
        wraps: BOTH,
        is_exact: true,
    },
    Way {
        options: &[PATCHABLE, "-fcf-protection=full"],
        wraps: BOTH,
        is_exact: true,
    },
];

/// Builds a program; `n` is the number of the way.
fn build(compiler: &str, source: &str, n: usize) -> PathBuf {
    build_with(compiler, source, &WAYS[n], &n.to_string(), &[])
}

/// Builds a program in a way of this name, with these options of the linker.
fn build_with(compiler: &str, source: &str, way: &Way, n: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let plain = |source: &str| source.replace(['/', '.'], "-");
    let name = format!("{}-{compiler}-{n}", plain(source));
    let object = |source: &str, options: &[&str]| {
        let to = folder.join(format!("{name}-{}.o", plain(source)));
        let mut command = Command::new(compiler);
        command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
        command.arg(device().join("c/include")).args(options);
        run(command
            .args(["-c", "-o"])
            .arg(&to)
            .arg(device().join(source)));
        to
    };
    let program = folder.join(&name);
    let mut link = Command::new(compiler);
    link.arg("-o").arg(&program);
    link.arg(object(source, way.options));
    link.args(way.wraps.iter().map(|wrap| object(wrap, &[])));
    link.arg(library());
    run(link
        .args([
            "-lpthread",
            "-Wl,--wrap=_setjmp,-u,_setjmp,--wrap=longjmp,-u,longjmp",
        ])
        .args(options));
    program
}

/// What a program prints: functions by address, with their names, and how often they were called.
fn functions(text: &str) -> BTreeMap<u64, (&str, u64)> {
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = words[1].trim_start_matches("0x");
        let address = u64::from_str_radix(address, 16).expect("an address");
        (address, (words[0], words[2].parse().expect("a number")))
    });
    lines.collect()
}

/// Runs a program; returns its text and the file that it records.
fn record(program: &Path, on: &str) -> (String, PathBuf) {
    record_with(program, on, &[])
}

/// Runs a program with these arguments.
fn record_with(program: &Path, on: &str, arguments: &[&str]) -> (String, PathBuf) {
    let file = program.with_extension("kymo");
    let output = Command::new(program)
        .args(arguments)
        .env("KYMO_OUTPUT", &file)
        .env("KYMO_ON", on)
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "{program:?}: {}: {text}",
        output.status
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors, "", "{program:?}");
    (text, file)
}

#[test]
fn every_call_of_a_profiled_program_is_recorded() {
    for compiler in compilers() {
        for (n, way) in WAYS.iter().enumerate() {
            let program = build(compiler, "tests/programs/profiled.c", n);
            let name = program.display();
            let (text, file) = record(&program, "1");
            let functions = functions(&text);
            let mut entered = BTreeMap::<&str, u64>::new();
            let mut exits = 0;
            for packet in raw_file_of_jumps(&file) {
                assert_eq!(packet.discarded, 0);
                for record in &packet.records {
                    match record.kind {
                        Kind::Enter(at) => {
                            let (address, (function, _)) =
                                functions.range(..=at).next_back().expect("a function");
                            let exact = !way.is_exact || *address == at;
                            assert!(exact, "{name}: {function} {at:#x}");
                            *entered.entry(function).or_default() += 1;
                        }
                        Kind::Exit(_) => exits += 1,
                        _ => {}
                    }
                }
            }
            let expected: BTreeMap<&str, u64> = functions.into_values().collect();
            assert_eq!(entered, expected, "{name}");
            // All return but those that longjmp leaves. (main's exit is that of the program.)
            let all: u64 = expected.values().sum();
            assert_eq!(exits, all - expected["jump"], "{name}");
        }
    }
}

/// How often functions of a recording were entered, and how many events it lacks.
fn entries(file: &Path, functions: &BTreeMap<u64, (&str, u64)>) -> (BTreeMap<String, u64>, u64) {
    let (mut entered, mut lost) = (BTreeMap::new(), BTreeMap::new());
    for packet in raw_file_of_jumps(file) {
        lost.insert(packet.cpu, u64::from(packet.discarded));
        for record in &packet.records {
            // Functions that are recorded with an offset are shorter than this.
            if let Kind::Enter(at) = record.kind
                && let Some((address, (function, _))) = functions.range(..=at).next_back()
                && at - address < 32
            {
                *entered.entry((*function).to_owned()).or_default() += 1;
            }
        }
    }
    (entered, lost.into_values().sum())
}

#[test]
fn calls_that_do_not_return_leave_no_frames() {
    for compiler in compilers() {
        for n in 0..WAYS.len() {
            let program = build(compiler, "tests/programs/abandoned.c", n);
            let (text, file) = record(&program, "1");
            let functions = functions(&text);
            let (entered, lost) = entries(&file, &functions);
            let expected: BTreeMap<String, u64> = functions
                .into_values()
                .map(|(name, calls)| (name.to_owned(), calls))
                .collect();
            assert_eq!(entered, expected, "{}", program.display());
            assert_eq!(lost, 0, "{}", program.display());
        }
    }
}

#[test]
fn calls_that_are_too_deep_are_lost_events() {
    for compiler in compilers() {
        for n in [1, 3] {
            let program = build(compiler, "tests/programs/abandoned.c", n);
            let (text, file) = record_with(&program, "1", &["1000"]);
            let (entered, lost) = entries(&file, &functions(&text));
            // The frames are 256, of which main has one.
            let deep = entered["deep"];
            assert_eq!(deep, 255, "{}", program.display());
            assert_eq!(lost, 2 * (1000 - deep), "{}", program.display());
        }
    }
}

#[test]
fn patchable_entries_are_no_ops_while_nothing_is_recorded() {
    for compiler in compilers() {
        for n in [3, 4] {
            let program = build(compiler, "tests/programs/patchable.c", n);
            // The program checks its own code.
            let (text, file) = record(&program, "0");
            let functions = functions(&text);
            let mut entered = BTreeMap::<&str, u64>::new();
            for record in raw_file_of_jumps(&file).iter().flat_map(|it| &it.records) {
                if let Kind::Enter(at) = record.kind
                    && let Some((function, _)) = functions.get(&at)
                {
                    *entered.entry(function).or_default() += 1;
                }
            }
            let expected: BTreeMap<&str, u64> = functions.into_values().collect();
            assert_eq!(entered, expected, "{}", program.display());
        }
    }
}

#[test]
fn other_no_ops_are_refused_with_the_right_option() {
    let wrong: [&'static [&'static str]; 4] = [
        &["-fpatchable-function-entry=7"],
        &["-fpatchable-function-entry=8,6"],
        &["-fpatchable-function-entry=2"],
        &["-fpatchable-function-entry=7", "-fcf-protection=full"],
    ];
    for compiler in compilers() {
        for (n, options) in wrong.into_iter().enumerate() {
            let way = Way {
                options,
                wraps: BOTH,
                is_exact: true,
            };
            let name = format!("wrong-{n}");
            let program = build_with(compiler, "tests/programs/abandoned.c", &way, &name, &[]);
            let output = Command::new(&program)
                .arg("100")
                .env("KYMO_OUTPUT", program.with_extension("kymo"))
                .output()
                .expect("the program runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            let name = format!("{compiler} {options:?}: {errors}");
            assert!(output.status.success(), "{name}");
            let lines: Vec<&str> = errors.lines().collect();
            assert_eq!(lines.len(), 3, "{name}");
            for at in [0, 2] {
                assert!(lines[at].contains(PATCHABLE), "{name}");
            }
            assert!(!errors.contains("-finstrument-functions"), "{name}");
        }
    }
}

#[test]
fn a_library_is_unloaded_while_threads_turn_recording_on_and_off() {
    let program = build_with(
        "gcc",
        "tests/programs/unloaded.c",
        &WAYS[3],
        "3",
        &["-rdynamic"],
    );
    let library = program.with_extension("so");
    let object = program.with_extension("wrap.o");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-fPIC", "-c", "-I"]);
    command.arg(device().join("c/include"));
    command.arg(device().join("c/wrap/patchable.c"));
    run(command.arg("-o").arg(&object));
    let mut command = Command::new("gcc");
    command.args(["-O2", "-fPIC", "-shared", "-DLIBRARY", PATCHABLE, "-I"]);
    command.arg(device().join("c/include"));
    command.arg(device().join("tests/programs/unloaded.c"));
    run(command.arg(&object).arg("-o").arg(&library));
    // Without KYMO_OUTPUT: only the hooks matter.
    let output = Command::new(&program)
        .arg(&library)
        .arg("3000")
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert_eq!(text, "unloaded 3000\n");
    assert_eq!(errors, "");
}

#[test]
fn a_cortex_m_is_profiled() {
    if !equipped(&[emulator::TARGET]) {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profiled-cortex-m");
    let pg = device().join("c/wrap/pg.c");
    let options = [
        "-pg",
        "-DKYMO_PG_THREADS=2",
        pg.to_str().expect("a path in Unicode"),
    ];
    let program = Program::build(&folder, "profiled_m.c", &options, &[]);
    let said = program.run(&folder);
    assert_eq!(said.number("wrong"), 0);
    // It says so within `run`, which is profiled itself.
    assert_eq!(said.number("depth"), 1);
    let (lows, highs) = (said.number("lows"), said.number("highs"));
    assert!(lows > 100 && highs > 100, "{lows} {highs}");
    // `run`, `places` and its calls; 23 in each round; a handler and one call, or two.
    assert_eq!(
        said.number("entered"),
        2 + 12 + 1000 * 23 + 2 * lows + 3 * highs
    );
    // Both handlers preempted on top of the deepest call, somewhere.
    assert!(said.number("most") >= 11 + 2, "{said:?}");
    // Interrupts came within the trampolines: entry and return are 11 and 6 instructions.
    assert!(
        said.struck.iter().filter(|at| **at < 48).count() >= 10,
        "{said:?}"
    );
}
