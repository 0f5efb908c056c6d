//! Programs that are compiled with `-pg` (`c/wrap/pg.c`): on Linux, and on a Cortex-M4 in an emulator.

#[path = "common/programs.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;
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

#[test]
fn every_call_of_a_profiled_program_is_recorded() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for compiler in compilers() {
        for (n, options) in [
            &["-mfentry"][..],
            &[],
            &["-mfentry", "-fcf-protection=full"],
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("profiled-{compiler}-{n}");
            let object = |source: &str, options: &[&str]| {
                let path = Path::new(source);
                let stem = path.file_stem().expect("a name").to_string_lossy();
                let to = folder.join(format!("{name}-{stem}.o"));
                let mut command = Command::new(compiler);
                command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
                command.arg(device().join("c/include")).args(options);
                run(command
                    .args(["-c", "-o"])
                    .arg(&to)
                    .arg(device().join(source)));
                to
            };
            let profiled = [&["-pg"], options].concat();
            let program = folder.join(&name);
            let mut link = Command::new(compiler);
            link.arg("-o").arg(&program);
            link.arg(object("tests/programs/profiled.c", &profiled));
            link.arg(object("c/wrap/pg.c", &[])).arg(library());
            run(link.args([
                "-lpthread",
                "-Wl,--wrap=_setjmp,-u,_setjmp,--wrap=longjmp,-u,longjmp",
            ]));
            let file = program.with_extension("kymo");
            let output = Command::new(&program)
                .env("KYMO_OUTPUT", &file)
                .output()
                .expect("the program runs");
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(output.status.success(), "{name}: {text}");

            // By address: the name, and how often it was called.
            let functions: BTreeMap<u64, (&str, u64)> = text
                .lines()
                .map(|line| {
                    let words: Vec<&str> = line.split(' ').collect();
                    let address = words[1].trim_start_matches("0x");
                    let address = u64::from_str_radix(address, 16).expect("an address");
                    (address, (words[0], words[2].parse().expect("a number")))
                })
                .collect();
            let mut entered = BTreeMap::<&str, u64>::new();
            let mut exits = 0;
            for packet in raw_file_of_jumps(&file) {
                assert_eq!(packet.discarded, 0);
                for record in &packet.records {
                    match record.kind {
                        Kind::Enter(at) => {
                            let (address, (function, _)) =
                                functions.range(..=at).next_back().expect("a function");
                            // Without -mfentry it is called somewhere in the function.
                            let is_exact = options.contains(&"-mfentry");
                            assert!(!is_exact || *address == at, "{name}: {function} {at:#x}");
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
