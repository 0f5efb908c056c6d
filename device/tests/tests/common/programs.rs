//! Shared code of tests of C programs: builds the library and the programs, and reads the files that they save.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub use kymo_device_tests::device;
use kymo_device_tests::{Packet, packets, packets_of_jumps};
use kymo_wire::link::Identity;

/// Builds the library, once.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_library(&[]))
}

/// Builds the library with hooks in Rust instead of assembly, once.
#[allow(dead_code, reason = "not every test needs it")]
pub fn portable_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_library(&["portable"]))
}

/// Builds the library with conditions of trigger and stopper, once.
#[allow(dead_code, reason = "not every test needs it")]
pub fn conditional_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_library(&["conditions"]))
}

/// Builds the library with these features.
fn build_library(features: &[&str]) -> PathBuf {
    let folder = ["library", &features.join("-")].concat();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "kymo-c"])
        .args(["--features", &features.join(",")])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(device())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the library builds");
    target.join("release/libkymo.a")
}

/// The available compilers.
pub fn compilers() -> Vec<&'static str> {
    let there = |compiler: &&str| {
        Command::new(compiler)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let all = ["gcc", "clang"];
    let found: Vec<&str> = all.into_iter().filter(there).collect();
    if found.len() < all.len() {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "both {all:?} are needed, found {found:?}"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: of {all:?} only {found:?} are installed"
        );
    }
    found
}

/// Builds a program and returns its path.
#[allow(dead_code, reason = "not every test needs it")]
pub fn build(compiler: &str, program: &str, flags: &[&str]) -> PathBuf {
    build_with(library(), compiler, program, flags)
}

/// Builds a program with this library and returns its path.
#[allow(dead_code, reason = "not every test needs it")]
pub fn build_with(library: &Path, compiler: &str, program: &str, flags: &[&str]) -> PathBuf {
    // Tests run side by side: no two may write, or run what the other writes, under one name.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let number = BUILDS.fetch_add(1, Ordering::Relaxed);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-{compiler}-{number}"));
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-g"])
        .args(flags)
        .arg("-I")
        .arg(device().join("c/include"))
        .arg(device().join(format!("tests/programs/{program}.c")))
        .arg("-o")
        .arg(&out)
        .arg(library)
        .arg("-lpthread")
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} by {compiler}: {errors}");
    out
}

/// Reads a raw file: the target's identity, and its packets.
#[allow(dead_code, reason = "not every test needs it")]
pub fn raw_file(path: &Path) -> (Identity, Vec<Packet>) {
    let (identity, bytes) = identified(path);
    let packets = packets(&bytes, identity.layout, identity.text_base);
    (identity, packets)
}

/// The packets of a program that jumps out of hooks.
#[allow(dead_code, reason = "not every test needs it")]
pub fn raw_file_of_jumps(path: &Path) -> Vec<Packet> {
    let (identity, bytes) = identified(path);
    packets_of_jumps(&bytes, identity.layout, identity.text_base)
}

/// Splits a raw file into the target's identity and the rest.
fn identified(path: &Path) -> (Identity, Vec<u8>) {
    let bytes = std::fs::read(path).expect("the file was saved");
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("the first line is text");
    let line = std::str::from_utf8(&bytes[..end]).expect("the first line is text");
    let identity = Identity::parse(line).expect("the first line is the identity");
    (identity, bytes[end + 1..].to_vec())
}
