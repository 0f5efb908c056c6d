//! Tools that tests need in addition to the compiler that builds them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The folder of the device's workspace.
pub fn device() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package lies in it")
}

/// Checks that these programs are installed, and Rust's library for these targets; prints what is missing.
///
/// # Panics
/// In CI, when something is missing.
pub fn equipped(programs: &[&'static str], targets: &[&'static str]) -> bool {
    let answers = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let has_library = |target: &str| {
        let libraries = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", target])
            .output();
        libraries.is_ok_and(|output| {
            let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success() && Path::new(&folder).is_dir()
        })
    };
    let programs = programs.iter().filter(|program| !answers(program));
    let targets = targets.iter().filter(|target| !has_library(target));
    let missing: Vec<&str> = programs.chain(targets).copied().collect();
    if !missing.is_empty() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "needed and not installed: {missing:?}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: not installed: {missing:?}");
    }
    missing.is_empty()
}
