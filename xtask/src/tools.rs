//! What the chores need besides Rust: found, or installed on Debian and Ubuntu.
//!
//! A person who has just cloned the repository shall get along with one command, so whatever is
//! missing is named, with the reason, and installed with apt. Nothing else of the system is
//! touched. Where installing fails (no network, no root, another distribution) the error says what
//! to install by hand.
//!
//! The target's library needs a Rust compiler for `thumbv7m-none-eabi`. That is `rustup`'s business
//! as a rule; where rustup can't deliver, Debian's `rustc-web` with `rust-web-src` (its compiler
//! for building web browsers: recent, and with the sources of `core`) is unpacked into a folder of
//! its own, because installed it would replace the system's `rustc`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::run::{self, Context, Error, Result};

/// The Rust target of the demonstration firmware: a Cortex-M3.
pub const FIRMWARE_TARGET: &str = "thumbv7m-none-eabi";

/// The processor, as GCC is told.
pub const FIRMWARE_CPU: [&str; 2] = ["-mcpu=cortex-m3", "-mthumb"];

/// What a chore needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To build the demonstration firmware and run it in QEMU.
    Firmware,
    /// To build programs for other microcontrollers, and run them.
    Processors,
    /// To build the native demonstration with GCC.
    Native,
    /// To build it with Clang too, and to hold what Kymo writes against babeltrace2.
    Checks,
    /// To build the demonstration on eight processors and run it in QEMU.
    Cpus,
    /// To build programs for other processors under Linux and run them in QEMU.
    Foreign,
}

/// One thing that a Debian package provides.
struct Tool {
    package: &'static str,
    why: &'static str,
    need: Need,
    present: fn() -> bool,
}

const TOOLS: &[Tool] = &[
    Tool {
        package: "qemu-system-arm",
        why: "runs the firmware on an emulated Cortex-M3",
        need: Need::Firmware,
        present: || answers("qemu-system-arm"),
    },
    Tool {
        package: "gcc-arm-none-eabi",
        why: "compiles the firmware",
        need: Need::Firmware,
        present: || answers("arm-none-eabi-gcc") && answers("arm-none-eabi-objcopy"),
    },
    Tool {
        package: "libnewlib-arm-none-eabi",
        why: "the firmware's C library",
        need: Need::Firmware,
        present: newlib,
    },
    Tool {
        package: "qemu-system-misc",
        why: "runs programs for RISC-V",
        need: Need::Processors,
        present: || answers("qemu-system-riscv32"),
    },
    Tool {
        package: "gcc-riscv64-unknown-elf",
        why: "compiles programs for RISC-V",
        need: Need::Processors,
        present: || answers("riscv64-unknown-elf-gcc"),
    },
    Tool {
        package: "gcc",
        why: "compiles the native demonstration",
        need: Need::Native,
        present: || answers("gcc"),
    },
    Tool {
        package: "g++",
        why: "compiles programs whose C++ names are looked up",
        need: Need::Checks,
        present: || answers("g++"),
    },
    Tool {
        package: "clang",
        why: "compiles the native demonstration once more, to check its hooks too",
        need: Need::Checks,
        present: || answers("clang"),
    },
    Tool {
        package: "babeltrace2",
        why: "reads the CTF traces that Kymo writes, as an independent check",
        need: Need::Checks,
        present: || answers("babeltrace2"),
    },
    Tool {
        package: "valgrind",
        why: "counts the instructions that reading a trace takes",
        need: Need::Checks,
        present: || answers("valgrind"),
    },
    Tool {
        package: "python3-venv",
        why: "runs Perfetto's own schema over the Perfetto traces that Kymo writes",
        need: Need::Checks,
        present: || run::succeeds(Command::new("python3").args(["-c", "import ensurepip"])),
    },
    Tool {
        package: "qemu-system-arm",
        why: "runs the demonstration on eight Cortex-A72",
        need: Need::Cpus,
        present: || answers("qemu-system-aarch64"),
    },
    Tool {
        package: "gcc-aarch64-linux-gnu",
        why: "compiles its C part, and disassembles it",
        need: Need::Cpus,
        present: || answers("aarch64-linux-gnu-gcc") && answers("aarch64-linux-gnu-objdump"),
    },
    Tool {
        package: "qemu-user",
        why: "runs programs for other processors",
        need: Need::Foreign,
        present: || {
            ["qemu-ppc", "qemu-ppc64", "qemu-aarch64"]
                .into_iter()
                .all(answers)
        },
    },
    Tool {
        package: "gcc-powerpc-linux-gnu",
        why: "compiles for PowerPC: 32 bits, big endian",
        need: Need::Foreign,
        present: || answers("powerpc-linux-gnu-gcc"),
    },
    Tool {
        package: "libc6-dev-powerpc-cross",
        why: "the C library for it",
        need: Need::Foreign,
        present: || finds("powerpc-linux-gnu-gcc", "libc.a"),
    },
    Tool {
        package: "gcc-powerpc64-linux-gnu",
        why: "compiles for PowerPC: 64 bits, big endian",
        need: Need::Foreign,
        present: || answers("powerpc64-linux-gnu-gcc"),
    },
    Tool {
        package: "libc6-dev-ppc64-cross",
        why: "the C library for it",
        need: Need::Foreign,
        present: || finds("powerpc64-linux-gnu-gcc", "libc.a"),
    },
    Tool {
        package: "gcc-aarch64-linux-gnu",
        why: "compiles for AArch64",
        need: Need::Foreign,
        present: || answers("aarch64-linux-gnu-gcc"),
    },
    Tool {
        package: "libc6-dev-arm64-cross",
        why: "the C library for it",
        need: Need::Foreign,
        present: || finds("aarch64-linux-gnu-gcc", "libc.a"),
    },
];

/// Whether a program of this name can be run.
fn answers(program: &str) -> bool {
    run::succeeds(Command::new(program).arg("--version"))
}

/// Whether a compiler has this file of its C library.
fn finds(compiler: &str, file: &str) -> bool {
    let mut gcc = Command::new(compiler);
    let gcc = gcc.arg(format!("-print-file-name={file}"));
    answers(compiler) && run::output(gcc).is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

/// Whether newlib is there for the firmware's processor. GCC prints the bare name of a file that it
/// doesn't find.
fn newlib() -> bool {
    let mut gcc = Command::new("arm-none-eabi-gcc");
    let gcc = gcc.args(FIRMWARE_CPU).arg("-print-file-name=libc.a");
    answers("arm-none-eabi-gcc")
        && run::output(gcc).is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

/// Sees to it that everything is there for these needs: installs what is missing.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<&Tool> = TOOLS
        .iter()
        .filter(|tool| needs.contains(&tool.need) && !(tool.present)())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("xtask: these Debian packages are missing and will be installed:");
    for tool in &missing {
        println!("  {:24} {}", tool.package, tool.why);
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!("install by hand: {}", packages.join(" "));
    apt_install(&packages).map_err(|error| Error::new(format!("{error}\n{by_hand}")))?;
    match missing.iter().find(|tool| !(tool.present)()) {
        None => Ok(()),
        Some(tool) => Err(Error::new(format!(
            "{} was installed and still does not work\n{by_hand}",
            tool.package
        ))),
    }
}

/// A second babeltrace2, which reads CTF 2, where tests look for it: Debian's next one, unpacked
/// beside the system by a script that comes with the test data. Nothing where there is no script;
/// the tests that want it then say so.
pub fn babeltrace21() -> Result<()> {
    let script = run::root().join("../shared/tools/get-babeltrace21.sh");
    let Some(home) = std::env::home_dir().filter(|_| script.exists()) else {
        println!("SKIPPED: no {}", script.display());
        return Ok(());
    };
    let folder = home.join(".cache/kymo/babeltrace21");
    if folder.join("babeltrace2").exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder).context(folder.display())?;
    run::run(Command::new(&script).arg(&folder))
}

/// Installs packages with apt, as root or through sudo.
fn apt_install(packages: &[&str]) -> Result<()> {
    if !answers("apt-get") {
        return Err(Error::new(
            "there is no apt-get: packages can be installed on Debian and Ubuntu only",
        ));
    }
    // The lists may be absent (a container) or old, so that a download fails; refreshing them takes
    // a while and is not always possible, so it comes second.
    if run::run(as_root(apt_get("install").args(packages))?.stdin(Stdio::null())).is_ok() {
        return Ok(());
    }
    run::run(&mut as_root(&apt_get("update"))?)
        .and_then(|()| run::run(as_root(apt_get("install").args(packages))?.stdin(Stdio::null())))
        .map_err(|error| Error::new(format!("apt could not install what is missing: {error}")))
}

/// An apt-get command that never asks and gives up when the network is silent.
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

/// The same command with root's rights.
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

/// A Rust compiler for a machine other than this, which needs no more than `core`.
#[derive(Debug)]
pub struct BareRust {
    /// The machine, as Rust calls it.
    target: String,
    /// The compiler of [`unpack`], which brings `core` as sources; `None` for the one that is
    /// installed, which has `core` compiled.
    unpacked: Option<PathBuf>,
}

impl BareRust {
    /// Finds or gets one for [`FIRMWARE_TARGET`].
    pub fn ensure() -> Result<Self> {
        Self::ensure_for(FIRMWARE_TARGET)
    }

    /// Finds or gets one for `target`.
    pub fn ensure_for(target: &str) -> Result<Self> {
        // Tests run side by side, and two that add the same target hinder each other.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock();
        let with = |unpacked| Self {
            target: target.to_owned(),
            unpacked,
        };
        if installed(target) {
            return Ok(with(None));
        }
        let wrapper = tools_dir().join("rustc");
        if recent(&wrapper).is_ok() {
            return Ok(with(Some(wrapper)));
        }
        println!("xtask: Rust's core library for {target} is missing (the recorder is written");
        println!("       in Rust); trying rustup, then Debian's rustc-web");
        if rustup(target) {
            return Ok(with(None));
        }
        unpack(&tools_dir()).map_err(|error| {
            Error::new(format!(
                "no Rust compiler for {target}: {error}\n\
                 install one by hand: rustup target add {target}"
            ))
        })?;
        Ok(with(Some(wrapper)))
    }

    /// The machine, as Rust calls it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `cargo build` for the target with this compiler.
    pub fn cargo_build(&self) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--target", &self.target]);
        if let Some(rustc) = &self.unpacked {
            // The compiler is a stable one; building `core` along is an unstable option of cargo.
            cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTC", rustc);
            cargo.arg("-Zbuild-std=core,compiler_builtins");
        }
        cargo
    }
}

/// Where things are unpacked that this repository needs and the system should not have: outside the
/// checkout where that is possible, so that the next checkout finds them.
fn tools_dir() -> PathBuf {
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
fn installed(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    rustc.current_dir(run::root());
    run::output(&mut rustc)
        .ok()
        .and_then(|dir| fs::read_dir(dir.trim()).ok())
        .is_some_and(|entries| entries.count() > 0)
}

/// Asks rustup for the target; whether it worked.
fn rustup(target: &str) -> bool {
    if !answers("rustup") {
        return false;
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", target]);
    println!("$ {}", run::line(&rustup));
    // Without a network rustup tries for longer than a person would wait.
    let limit = Duration::from_secs(240);
    let child = rustup.current_dir(run::root()).spawn();
    let done = child.and_then(|mut child| run::wait(&mut child, limit));
    done.is_ok_and(|status| status.success()) && installed(target)
}

/// Downloads Debian's compiler with what it needs that is not installed, unpacks it below `dir`,
/// and leaves a script `dir/rustc` that runs it.
fn unpack(dir: &Path) -> Result<()> {
    let debs = dir.join("debs");
    let prefix = dir.join("rustc-web");
    // Nothing of an older version may be left.
    for old in [&debs, &prefix] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir_all(&debs).context(debs.display())?;
    let wanted = ["rustc-web", "rust-web-src"];
    // Old lists name an old compiler. Where they can't be refreshed it may still be recent enough.
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
    // A Debian architecture has its libraries in a folder of its own; there is one below the prefix.
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

/// Whether this compiler works, and is recent enough for Kymo.
fn recent(rustc: &Path) -> Result<()> {
    let said = run::output(Command::new(rustc).arg("--version"))?;
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    match version(&said) >= version(wanted) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{} is {}, and Kymo needs {wanted}",
            rustc.display(),
            said.trim()
        ))),
    }
}

/// The first two numbers of the first word that has a dot: major and minor version.
fn version(text: &str) -> Option<(u32, u32)> {
    let word = text.split_whitespace().find(|word| word.contains('.'))?;
    let mut numbers = word.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
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
    fn a_program_that_is_not_there_does_not_answer() {
        assert!(answers("sh") || answers("env"));
        assert!(!answers("no-such-program-as-this"));
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("rustc 1.96.0 (2026-05-28)\n"), Some((1, 96)));
        assert!(version("rustc 1.100.1-nightly (abc 2027)") > version("1.88"));
        assert!(version("rustc 1.85.0 (4d91de4e4 2025-02-17)") < version("1.88"));
        assert!(version("no such thing") < version("1.88"));
    }

    #[test]
    #[ignore = "takes long: downloads 140 MB, and compiles core"]
    fn debians_compiler_builds_the_recorder() {
        let dir = run::target_dir().join("xtask-test-rustc-web");
        unpack(&dir).unwrap();
        let rust = BareRust {
            target: FIRMWARE_TARGET.to_owned(),
            unpacked: Some(dir.join("rustc")),
        };
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
