//! The binary `kymo`, as `cargo build` makes it.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Result};

/// The variable that names the binary of the debug profile, where it has just been built with all tests.
/// (Built by itself it has other features of the crates that it shares with them, so that cargo builds those
/// once more.)
pub const BUILT: &str = "KYMO_BUILT";

/// How the binary `kymo` is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As it is shipped, optimized across all crates.
    Shipping,
    /// Optimized.
    Release,
    /// As tests are built.
    Debug,
}

/// Builds the binary `kymo` and returns its path.
pub fn build(profile: Profile) -> Result<PathBuf> {
    if let (Profile::Debug, Some(built)) = (profile, std::env::var_os(BUILT)) {
        return Ok(built.into());
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "kymo"]);
    let folder = match profile {
        Profile::Shipping => {
            cargo.args(["--profile", "shipping"]);
            "shipping"
        }
        Profile::Release => {
            cargo.arg("--release");
            "release"
        }
        Profile::Debug => "debug",
    };
    run::run(cargo.current_dir(run::root()))?;
    Ok(run::target_dir().join(folder).join("kymo"))
}
