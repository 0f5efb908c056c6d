//! Rust compilers for other targets.
//!
//! The recorder needs `core` for the target. Usually rustup has installed it; if rustup can't, `cargo xtask setup`
//! unpacks Debian's compiler with the sources of `core` into a separate folder, which is used here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{self, Error, Result};

/// The Rust target of the demonstration firmware: a Cortex-M3.
pub const FIRMWARE_TARGET: &str = "thumbv7m-none-eabi";

/// A Rust compiler for another target, for which it needs only `core`.
#[derive(Debug)]
pub struct BareRust {
    /// The Rust target.
    target: String,
    /// A compiler with the sources of `core`; `None` for the installed one, which has `core` compiled.
    unpacked: Option<PathBuf>,
}

impl BareRust {
    /// The compiler for [`FIRMWARE_TARGET`].
    ///
    /// # Errors
    /// If there is none.
    pub fn find() -> Result<Self> {
        Self::find_for(FIRMWARE_TARGET)
    }

    /// The compiler for `target`.
    ///
    /// # Errors
    /// If there is none.
    pub fn find_for(target: &str) -> Result<Self> {
        if installed(target) {
            return Ok(Self {
                target: target.to_owned(),
                unpacked: None,
            });
        }
        let wrapper = tools_dir().join("rustc");
        if recent(&wrapper).is_ok() {
            return Ok(Self::with(target, wrapper));
        }
        Err(Error::new(format!(
            "no Rust compiler for {target}\nhelp: rustup target add {target}, or: cargo xtask setup"
        )))
    }

    /// Creates one from a compiler with the sources of `core`.
    pub fn with(target: &str, rustc: PathBuf) -> Self {
        Self {
            target: target.to_owned(),
            unpacked: Some(rustc),
        }
    }

    /// The Rust target.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `cargo build` for the target with this compiler.
    pub fn cargo_build(&self) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--target", &self.target]);
        if let Some(rustc) = &self.unpacked {
            // The compiler is a stable one; building `core` is an unstable option of cargo.
            cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTC", rustc);
            cargo.arg("-Zbuild-std=core,compiler_builtins");
        }
        cargo
    }
}

/// Folder for tools that this repository needs and that should not be installed system-wide. It is outside the checkout
/// if possible, so that other checkouts share it.
pub fn tools_dir() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .filter(|cache| cache.is_absolute());
    match cache {
        Some(cache) => cache.join("kymo/tools"),
        None => run::root().join("target/tools"),
    }
}

/// Whether the active compiler has `core` for this target.
pub fn installed(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    rustc.current_dir(run::root());
    run::output(&mut rustc)
        .ok()
        .and_then(|dir| fs::read_dir(dir.trim()).ok())
        .is_some_and(|entries| entries.count() > 0)
}

/// Checks that this compiler works and is recent enough for Kymo.
///
/// # Errors
/// If it does not work or is too old.
pub fn recent(rustc: &Path) -> Result<()> {
    let printed = run::output(Command::new(rustc).arg("--version"))?;
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    match version(&printed) >= version(wanted) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{} is {}, and Kymo needs {wanted}",
            rustc.display(),
            printed.trim()
        ))),
    }
}

/// The first two numbers of the first word that has a dot: major and minor version.
fn version(text: &str) -> Option<(u32, u32)> {
    let word = text.split_whitespace().find(|word| word.contains('.'))?;
    let mut numbers = word.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("rustc 1.96.0 (2026-05-28)\n"), Some((1, 96)));
        assert!(version("rustc 1.100.1-nightly (abc 2027)") > version("1.88"));
        assert!(version("rustc 1.85.0 (4d91de4e4 2025-02-17)") < version("1.88"));
        assert!(version("no such thing") < version("1.88"));
    }
}
