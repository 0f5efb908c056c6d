//! `cargo xtask setup`: installs the requirements of builds and tests besides Rust, on Debian and Ubuntu.
//!
//! Every missing package is printed with its reason before it is installed with apt. If the installation fails (no
//! network, no root, another distribution), the error names the packages to install by hand.
//!
//! Rust for other targets comes from rustup. If rustup fails, Debian's `rustc-web` with `rust-web-src` (its compiler
//! for building web browsers: recent, and with the sources of `core`) is unpacked into a separate folder, because an
//! installation would replace the system's `rustc`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_targets::run::{self, Context, Error, Result};
use kymo_targets::rust::{BareRust, FIRMWARE_TARGET, installed, recent, tools_dir};
use kymo_targets::tools::{self, Need, answers};
use kymo_targets::{cpus, guest};

/// Targets that tests build for, beside this machine.
const RUST_TARGETS: [&str; 8] = [
    FIRMWARE_TARGET,
    "thumbv6m-none-eabi",
    "thumbv7em-none-eabihf",
    "riscv32imac-unknown-none-elf",
    cpus::TARGET,
    "aarch64-unknown-linux-gnu",
    "powerpc-unknown-linux-gnu",
    "powerpc64-unknown-linux-gnu",
];

/// Installs everything that is missing.
pub fn everything() -> Result<()> {
    packages(&Need::ALL)?;
    for target in RUST_TARGETS {
        rust_for(target)?;
    }
    babeltrace21()?;
    guest()
}

/// Installs the missing packages for these needs.
pub fn packages(needs: &[Need]) -> Result<()> {
    let missing = tools::missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    println!("setup: these Debian packages are missing and will be installed:");
    for tool in &missing {
        println!("  {:24} {}", tool.package, tool.why);
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!("help: install by hand: {}", packages.join(" "));
    apt_install(&packages).map_err(|error| Error::new(format!("{error}\n{by_hand}")))?;
    match tools::missing(needs).first() {
        None => Ok(()),
        Some(tool) => Err(Error::new(format!(
            "{} was installed and still does not work\n{by_hand}",
            tool.package
        ))),
    }
}

/// Provides a Rust compiler for a target.
pub fn rust_for(target: &str) -> Result<BareRust> {
    if let Ok(rust) = BareRust::find_for(target) {
        return Ok(rust);
    }
    println!("setup: Rust's core library for {target} is missing (the recorder is written");
    println!("       in Rust); trying rustup, then Debian's rustc-web");
    if !rustup(target) {
        unpack(&tools_dir()).map_err(|error| {
            Error::new(format!(
                "no Rust compiler for {target}: {error}\n\
                 help: install one by hand: rustup target add {target}"
            ))
        })?;
    }
    BareRust::find_for(target)
}

/// Downloads a second babeltrace2, which reads CTF 2, from Debian's next release, and unpacks it into a separate
/// folder, where tests look for it. Without it those tests are skipped with a message.
fn babeltrace21() -> Result<()> {
    let Some(home) = std::env::home_dir() else {
        return Ok(());
    };
    let folder = home.join(".cache/kymo/babeltrace21");
    if folder.join("babeltrace2").exists() {
        return Ok(());
    }
    println!("setup: fetching babeltrace2 2.1 (an independent reader of CTF 2; 40 MB) into");
    println!("       {}", folder.display());
    fs::create_dir_all(&folder).context(folder.display())?;
    let script = run::root().join("xtask/get-babeltrace21.sh");
    if let Err(error) = run::run(Command::new(&script).arg(&folder)) {
        println!("setup: going on without it: {error}");
    }
    Ok(())
}

/// Downloads a Linux kernel for QEMU and a shell, and unpacks both into a separate folder. Without them the tests that
/// boot it are skipped with a message.
fn guest() -> Result<()> {
    let Some(folder) = guest::folder().filter(|_| guest::Kernel::find().is_none()) else {
        return Ok(());
    };
    println!("setup: fetching a Linux kernel to run in QEMU (its ftrace is recorded; 30 MB) into");
    println!("       {}", folder.display());
    if let Err(error) = fetch_guest(&folder) {
        println!("setup: going on without it: {error}");
    }
    Ok(())
}

/// Downloads and unpacks the packages of the guest.
fn fetch_guest(folder: &Path) -> Result<()> {
    let [metapackage, shell] = guest::PACKAGES;
    let depends = run::output(Command::new("apt-cache").args(["depends", metapackage]))?;
    let kernel = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .ok_or_else(|| Error::new(format!("{metapackage} depends on no kernel")))?;
    let debs = folder.join("debs");
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(&debs).context(debs.display())?;
    let mut download = Command::new("apt-get");
    download.args(["download", "-q"]);
    download.args([&format!("linux-image-{kernel}"), shell]);
    run::run(download.current_dir(&debs))?;
    for deb in fs::read_dir(&debs).context(debs.display())? {
        let deb = deb.context(debs.display())?.path();
        run::run(Command::new("dpkg").arg("-x").arg(deb).arg(folder))?;
    }
    fs::remove_dir_all(&debs).context(debs.display())?;
    match guest::Kernel::find() {
        Some(_) => Ok(()),
        None => Err(Error::new("the packages hold no kernel")),
    }
}

/// Installs packages with apt, as root or through sudo.
fn apt_install(packages: &[&str]) -> Result<()> {
    if !answers("apt-get") {
        return Err(Error::new(
            "there is no apt-get: packages can be installed on Debian and Ubuntu only",
        ));
    }
    // The package lists may be missing (in a container) or outdated, so that a download fails. Refreshing them takes
    // time and is not always possible, so it is the second attempt.
    if run::run(as_root(apt_get("install").args(packages))?.stdin(Stdio::null())).is_ok() {
        return Ok(());
    }
    run::run(&mut as_root(&apt_get("update"))?)
        .and_then(|()| run::run(as_root(apt_get("install").args(packages))?.stdin(Stdio::null())))
        .map_err(|error| Error::new(format!("apt could not install what is missing: {error}")))
}

/// An apt-get command that is not interactive and has a network time-out.
fn apt_get(verb: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.args([verb, "-y", "-q", "--no-install-recommends"]);
    for option in [
        "Acquire::http::Timeout=30",
        "Acquire::Retries=2",
        "DPkg::Lock::Timeout=120",
    ] {
        command.args(["-o", option]);
    }
    command
}

/// The same command with root privileges.
fn as_root(command: &Command) -> Result<Command> {
    let frontend = "DEBIAN_FRONTEND=noninteractive";
    let root = run::output(Command::new("id").arg("-u"))?.trim() == "0";
    let mut wrapped = if root {
        Command::new("env")
    } else if answers("sudo") {
        let mut sudo = Command::new("sudo");
        sudo.arg("env");
        sudo
    } else {
        return Err(Error::new(
            "installing packages needs root, and there is no sudo",
        ));
    };
    wrapped
        .arg(frontend)
        .arg(command.get_program())
        .args(command.get_args());
    Ok(wrapped)
}

/// Installs the target with rustup; returns whether that succeeded.
fn rustup(target: &str) -> bool {
    if !answers("rustup") {
        return false;
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", target]);
    println!("$ {}", run::line(&rustup));
    // Without a network rustup retries for longer than a user would wait.
    let limit = Duration::from_secs(240);
    let child = rustup.current_dir(run::root()).spawn();
    let done = child.and_then(|mut child| run::wait(&mut child, limit));
    done.is_ok_and(|status| status.success()) && installed(target)
}

/// Downloads Debian's compiler with its missing dependencies, unpacks it below `dir`, and creates a script `dir/rustc`
/// that runs it.
fn unpack(dir: &Path) -> Result<()> {
    let debs = dir.join("debs");
    let prefix = dir.join("rustc-web");
    // Files of an older version must not remain.
    for old in [&debs, &prefix] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir_all(&debs).context(debs.display())?;
    let wanted = ["rustc-web", "rust-web-src"];
    // Outdated lists name an old compiler, which may be recent enough if they can't be refreshed.
    let refreshed = as_root(&apt_get("update")).and_then(|mut update| run::run(&mut update));
    if let Err(error) = refreshed {
        println!("xtask: the lists of packages could not be refreshed: {error}");
    }
    let closure = run::output(
        Command::new("apt-cache")
            .args(["depends", "--recurse", "--no-recommends", "--no-suggests"])
            .args(["--no-conflicts", "--no-breaks", "--no-replaces"])
            .arg("--no-enhances")
            .args(wanted),
    )?;
    let packages: Vec<&str> = closure
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .filter(|package| !package_installed(package))
        .collect();
    run::run(
        Command::new("apt-get")
            .args(["download", "-q"])
            .args(&packages)
            .current_dir(&debs),
    )?;
    for entry in fs::read_dir(&debs).context(debs.display())? {
        let deb = entry.context(debs.display())?.path();
        if deb.extension() == Some(OsStr::new("deb")) {
            run::run(Command::new("dpkg").arg("-x").arg(&deb).arg(&prefix))?;
        }
    }
    // Libraries of a Debian architecture are in a folder of their own; it also exists below the prefix.
    let multiarch = run::output(Command::new("gcc").arg("-print-multiarch"))?;
    let libraries = prefix.join("usr/lib").join(multiarch.trim());
    let script = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n",
        libraries.display(),
        prefix.join("usr/bin/rustc").display()
    );
    let wrapper = dir.join("rustc");
    fs::write(&wrapper, script).context(wrapper.display())?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).context(wrapper.display())?;
    recent(&wrapper)
}

/// Whether dpkg has a package installed.
fn package_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status} ", package]);
    let Ok(output) = query.stdin(Stdio::null()).output() else {
        return false;
    };
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .any(|status| status == "installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "takes long: downloads 140 MB, and compiles core"]
    fn debians_compiler_builds_the_recorder() {
        let dir = run::target_dir().join("xtask-test-rustc-web");
        unpack(&dir).unwrap();
        let rust = BareRust::with(FIRMWARE_TARGET, dir.join("rustc"));
        let mut cargo = rust.cargo_build();
        cargo.args(["-p", "kymo-c", "--profile", "small", "--manifest-path"]);
        cargo.arg(run::root().join("device/Cargo.toml"));
        run::run(cargo.arg("--target-dir").arg(dir.join("target"))).unwrap();
        let library = format!("target/{FIRMWARE_TARGET}/small/libkymo.a");
        assert!(dir.join(library).exists());
    }

    #[test]
    fn apt_never_asks() {
        let command = apt_get("install");
        assert!(command.get_args().any(|arg| arg == "-y"));
        if let Ok(command) = as_root(&command) {
            let line = run::line(&command);
            assert!(line.contains("DEBIAN_FRONTEND=noninteractive apt-get install"));
        }
    }
}
