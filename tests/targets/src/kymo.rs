//! Builds of the binary `kymo`.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Result};

/// Environment variable with the path of the debug binary if it was just built together with all tests. (A separate
/// build enables other features of shared crates, so that cargo would rebuild those.)
pub const BUILT: &str = "KYMO_BUILT";

/// Build profile of the binary `kymo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As shipped, optimized across all crates.
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
