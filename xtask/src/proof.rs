//! Checks of the recorder's `unsafe` code and memory ordering in `cargo xtask test`, in addition to ordinary tests:
//! models in which threads interleave in every order, and the tests under sanitizers and Miri, which need a nightly
//! compiler. If there is none, rustup tries to install one. If that fails, the checks are skipped with a message, which
//! is repeated at the end of the run. It is an error only in CI, because no other test needs a nightly compiler, except
//! fuzzing in `cargo xtask test --long`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kymo_targets::run::{self, Error, Result};

use crate::test::report::Done;

/// Time-out for rustup to install a compiler.
const PATIENCE: Duration = Duration::from_secs(900);

/// Tests that run in one process and build nothing: a sanitizer's flags would affect any build.
const TESTS: [&str; 8] = [
    "cpus", "encode", "items", "link", "profile", "single", "stream", "threads",
];

/// Tests that run in Miri: threads, and rings that are read while they are written.
const INTERPRETED: [&str; 2] = ["items", "threads"];

/// Why sanitizers and Miri are skipped.
const NO_NIGHTLY: &str = "there is no nightly compiler: rustup toolchain install nightly";

/// Why Miri is skipped.
const NO_MIRI: &str = "Miri is not installed: rustup +nightly component add miri rust-src";

/// Why the thread sanitizer is skipped.
const NO_SOURCE: &str =
    "the standard library's source is not installed: rustup +nightly component add rust-src";

/// Skips a check; in CI this is an error.
fn leave_out(why: &'static str) -> Result<Done> {
    match std::env::var("CI").as_deref() {
        Ok("true") => Err(Error::new(why)),
        _ => Ok(Done::Skipped(why)),
    }
}

/// Runs rustup and waits for it.
fn rustup(words: &[&str]) {
    let mut rustup = Command::new("rustup");
    println!("$ {}", run::line(rustup.args(words)));
    if let Ok(mut child) = rustup.spawn() {
        // The caller checks the result.
        let _ = run::wait(&mut child, PATIENCE);
    }
}

/// Runs the models of the buffer and the threads, with more preemptions if `long`. `cargo` is `cargo test` in the
/// device's workspace.
pub fn models(cargo: &mut Command, long: bool) -> Result<()> {
    cargo.args(["-p", "kymo-recorder", "--lib"]);
    cargo.arg("--target-dir").arg(folder("models"));
    cargo.env("RUSTFLAGS", "--cfg loom");
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    // The name of the module, as a filter for the harness.
    cargo.args(["--", "model::"]);
    if long {
        cargo.env("LOOM_MAX_PREEMPTIONS", "4");
    }
    run::run(cargo)
}

/// A sanitizer of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitizer {
    /// Invalid memory accesses, also after a free.
    Address,
    /// Data races.
    Thread,
}

/// Runs the device's tests under a sanitizer. `nightly` is `cargo +nightly` in the device's workspace.
pub fn sanitized(nightly: &mut Command, sanitizer: Sanitizer) -> Result<Done> {
    if !ensure(nightly) {
        return leave_out(NO_NIGHTLY);
    }
    // With an explicit target the flags don't apply to build scripts and procedural macros.
    nightly.args(["test", "--target", &host()?, "-p", "kymo-device-tests"]);
    for test in TESTS {
        nightly.args(["--test", test]);
    }
    match sanitizer {
        Sanitizer::Address => {
            nightly.arg("--target-dir").arg(folder("address"));
            nightly.env(
                "RUSTFLAGS",
                "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer",
            );
            // Tests leak on purpose: their buffers must live as long as the program.
            nightly.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        Sanitizer::Thread => {
            if !has_source()? {
                add_component("rust-src");
            }
            if !has_source()? {
                return leave_out(NO_SOURCE);
            }
            // The sanitizer has to see the synchronization inside the standard library, or it sometimes reports ordered
            // accesses as a race. Therefore the library is built with it, once, with the panic strategy of tests.
            nightly.args(["-Zbuild-std", "--target-dir"]);
            nightly.arg(folder("thread"));
            nightly.env("RUSTFLAGS", "-Zsanitizer=thread");
            nightly.env("CARGO_PROFILE_DEV_PANIC", "unwind");
        }
    }
    run::run(nightly).map(|()| Done::Whole)
}

/// Whether the nightly compiler has the source of its standard library.
fn has_source() -> Result<bool> {
    let mut sysroot = Command::new("rustc");
    sysroot.args(["+nightly", "--print", "sysroot"]);
    let sysroot = run::output(&mut sysroot)?;
    let manifest = "lib/rustlib/src/rust/library/Cargo.lock";
    Ok(Path::new(sysroot.trim()).join(manifest).is_file())
}

/// Installs a component of the nightly toolchain with rustup.
fn add_component(name: &str) {
    rustup(&["component", "add", "--toolchain", "nightly", name]);
}

/// Runs tests in Miri, which checks for undefined behaviour and lets a load return every value that memory ordering
/// permits.
pub fn interpreted(nightly: &mut Command) -> Result<Done> {
    if !ensure(nightly) {
        return leave_out(NO_NIGHTLY);
    }
    // Miri first builds its own standard library, whose source may be missing.
    let mut set_up = Command::new(nightly.get_program());
    set_up.args(nightly.get_args()).args(["miri", "setup"]);
    set_up.current_dir(run::root());
    if !run::succeeds(&mut set_up) {
        add_component("rust-src");
        add_component("miri");
        if !run::succeeds(&mut set_up) {
            return leave_out(NO_MIRI);
        }
    }
    nightly.args(["miri", "test", "-p", "kymo-device-tests"]);
    for test in INTERPRETED {
        nightly.args(["--test", test]);
    }
    nightly.arg("--target-dir").arg(folder("miri")).env(
        "MIRIFLAGS",
        "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-permissive-provenance",
    );
    run::run(nightly).map(|()| Done::Whole)
}

/// Whether there is a nightly compiler, after an attempt to install one.
fn ensure(nightly: &Command) -> bool {
    if !is_there(nightly) {
        rustup(&["toolchain", "install", "nightly", "--profile", "minimal"]);
    }
    is_there(nightly)
}

/// Whether there is a nightly compiler.
fn is_there(nightly: &Command) -> bool {
    let mut version = Command::new(nightly.get_program());
    version.args(nightly.get_args()).arg("--version");
    run::succeeds(&mut version)
}

/// This machine's target triple.
fn host() -> Result<String> {
    let version = run::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Error::new("rustc names no host"))?;
    Ok(host.to_owned())
}

/// Separate folder for a build that other builds must not mix with.
fn folder(name: &str) -> std::path::PathBuf {
    run::target_dir().join("proof").join(name)
}
