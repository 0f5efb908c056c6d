//! Tests of the C interface with C programs that are compiled and run: the example is compared with the same one in
//! Rust, and a second program builds a trace from bytes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the captures; `None`, with a message, if it is missing.
fn snapshots() -> Option<PathBuf> {
    let named = std::env::var_os("KYMO_DATA").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = named
        .clone()
        .unwrap_or_else(beside)
        .join("coresight/snapshots");
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        named.is_none(),
        "KYMO_DATA is set, and there is no {}",
        folder.display()
    );
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        folder.display()
    );
    None
}

/// The folder with the shared library and the example in Rust. Cargo does not build the library for tests, because they
/// cannot link it.
fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--lib", "--examples", "--manifest-path"]);
        cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        cargo.arg("--target-dir").arg(&target);
        let output = cargo.output().expect("cargo");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        target.join("debug")
    })
}

/// Compiles a C program with the library, as its users do.
fn compile(source: &Path, name: &str) -> PathBuf {
    let place = built();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-L")
        .arg(place)
        .arg("-lkymo_coresight")
        .arg(format!("-Wl,-rpath,{}", place.display()))
        .output()
        .expect("a C compiler");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_examples_in_c_and_rust_print_the_same() {
    let Some(folder) = snapshots() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hotspots.c");
    let program = compile(&source, "hotspots");
    let example = built().join("examples/hotspots-rust");
    let fib = folder.join("ricsec-fib-1");
    for path in ["ricsec-fib-1", "TC2", "juno_r1_1", "rme_test"].map(|name| folder.join(name)) {
        let path = path.to_str().expect("a path in UTF-8");
        for arguments in [&[path][..], &["--ranges", path]] {
            let (c, rust) = (run(&program, arguments), run(&example, arguments));
            assert!(c == rust, "{path}:\n{c}\n{rust}");
        }
    }
    // The instructions that OpenCSD and perf count, as a total and as single ranges.
    let fib = fib.to_str().expect("a path in UTF-8");
    let first = run(&program, &[fib]);
    assert!(
        first.starts_with("77438 instructions in 15599 ranges, "),
        "{first}"
    );
    let ranges = run(&program, &["--ranges", fib]);
    let counts = ranges
        .lines()
        .map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
    assert_eq!(counts.sum::<Option<u64>>(), Some(77_438));
    let output = Command::new(&program)
        .arg("/nowhere")
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("/nowhere"),
        "{error}"
    );
}

#[test]
fn the_example_says_which_files_are_missing() {
    let Some(folder) = snapshots() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hotspots.c");
    let program = compile(&source, "hotspots-missing");
    let recording = folder.join("../perf/aosp-perf_with_unformatted_trace.perf.data");
    let output = Command::new(&program).arg(recording).output();
    let errors = output.expect("it runs").stderr;
    let errors = String::from_utf8_lossy(&errors);
    for expected in [
        "warning: no file for ",
        ", of which there is no file, first to ",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
}

#[test]
fn a_trace_put_together_by_hand() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/by_hand.c");
    let program = compile(&source, "by_hand");
    assert_eq!(run(&program, &[]), "all is well\n");
}
