//! What `cargo xtask test` does about the recorder's `unsafe` and its memory ordering, beside ordinary
//! tests: models in which threads meet in every order, and the tests once more under sanitizers and
//! Miri, which need a nightly compiler. Where there is none rustup is asked for one; if it has none either
//! that is said, and once more at the end of the run. It is a failure in CI alone, because no other test
//! needs one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kymo_targets::run::{self, Error, Result};

use crate::test::report::Done;

/// For how long rustup may look for a compiler.
const PATIENCE: Duration = Duration::from_secs(900);

/// The tests that run in one process and build nothing. (A sanitizer's flags would go into whatever
/// they built.)
const TESTS: [&str; 8] = [
    "cpus", "encode", "items", "link", "profile", "single", "stream", "threads",
];

/// Those that Miri interprets: threads, and rings that are read while they are written.
const INTERPRETED: [&str; 2] = ["items", "threads"];

/// Why sanitizers and Miri are left out.
const NO_NIGHTLY: &str = "there is no nightly compiler: rustup toolchain install nightly";

/// Why Miri is.
const NO_MIRI: &str = "Miri is not installed: rustup +nightly component add miri rust-src";

/// Why the thread sanitizer is.
const NO_SOURCE: &str =
    "the standard library's source is not installed: rustup +nightly component add rust-src";

/// Leaves something out, unless that is a failure.
fn leave_out(why: &'static str) -> Result<Done> {
    match std::env::var("CI").as_deref() {
        Ok("true") => Err(Error::new(why)),
        _ => Ok(Done::Skipped(why)),
    }
}

/// Asks rustup for something, and waits for it.
fn rustup(words: &[&str]) {
    let mut rustup = Command::new("rustup");
    println!("$ {}", run::line(rustup.args(words)));
    if let Ok(mut child) = rustup.spawn() {
        // What has come of it is looked at afterwards.
        let _ = run::wait(&mut child, PATIENCE);
    }
}

/// Plays the models of the buffer and the threads through; with more preemptions if it may take
/// `long`. `cargo` is `cargo test` in the device's workspace.
pub fn models(cargo: &mut Command, long: bool) -> Result<()> {
    cargo.args(["-p", "kymo-recorder", "--lib"]);
    cargo.arg("--target-dir").arg(folder("models"));
    cargo.env("RUSTFLAGS", "--cfg loom");
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    // The name of the module, for the harness.
    cargo.args(["--", "model::"]);
    if long {
        cargo.env("LOOM_MAX_PREEMPTIONS", "4");
    }
    run::run(cargo)
}

/// A sanitizer of the compiler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitizer {
    /// Memory that is not there, or not there any more.
    Address,
    /// Data that two threads use at once.
    Thread,
}

/// Runs the device's tests under a sanitizer. `nightly` is `cargo +nightly` in the device's workspace.
pub fn sanitized(nightly: &mut Command, sanitizer: Sanitizer) -> Result<Done> {
    if !ensure(nightly) {
        return leave_out(NO_NIGHTLY);
    }
    // A target that is named keeps the flags from what runs while compiling.
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
            // Tests leak on purpose: what they record into must live as long as a program.
            nightly.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        Sanitizer::Thread => {
            if !has_source()? {
                add_component("rust-src");
            }
            if !has_source()? {
                return leave_out(NO_SOURCE);
            }
            // It has to see how the standard library hands things from thread to thread, or it takes
            // what lies in order for a race, now and then: the library is built with it, once, with
            // the way to panic that tests have.
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

/// Asks rustup for a component of the nightly toolchain.
fn add_component(name: &str) {
    rustup(&["component", "add", "--toolchain", "nightly", name]);
}

/// Runs tests in Miri, which knows what a program may do at all, and lets a load see
/// every value that memory ordering allows.
pub fn interpreted(nightly: &mut Command) -> Result<Done> {
    if !ensure(nightly) {
        return leave_out(NO_NIGHTLY);
    }
    // It builds its own standard library first, of which the source may be missing.
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

/// Whether there is a nightly compiler, after rustup was asked for one if there was none.
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

/// This machine, as Rust calls it.
fn host() -> Result<String> {
    let version = run::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Error::new("rustc names no host"))?;
    Ok(host.to_owned())
}

/// Where something is built that other builds must not be mixed with.
fn folder(name: &str) -> std::path::PathBuf {
    run::target_dir().join("proof").join(name)
}
