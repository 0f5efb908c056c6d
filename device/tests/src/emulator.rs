//! Programs for a Cortex-M in an emulator: builds them, runs them to their end, and returns their output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use crate::equipment::device;

/// Checks that compiler and emulator are installed, and Rust's library for the targets; prints what is missing.
///
/// # Panics
/// In CI, when something is missing.
pub fn equipped(targets: &[&'static str]) -> bool {
    crate::equipment::equipped(&["arm-none-eabi-gcc", "qemu-system-arm"], targets)
}

/// Longer than any of the programs takes on a slow and busy machine; it ends a hang.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// The Rust target of the programs.
pub const TARGET: &str = Core::M4.target();

/// Target core of a program. A Cortex-M4 can execute all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// A Cortex-M4.
    M4,
    /// A Cortex-M0.
    M0,
}

impl Core {
    /// The Rust target.
    pub const fn target(self) -> &'static str {
        match self {
            Self::M4 => "thumbv7em-none-eabihf",
            Self::M0 => "thumbv6m-none-eabi",
        }
    }

    /// The compiler's options.
    const fn options(self) -> &'static [&'static str] {
        match self {
            // The library's calling convention, but no code enables the FPU.
            Self::M4 => &["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
            Self::M0 => &["-mcpu=cortex-m0"],
        }
    }
}

/// Builds `libkymo.a` with these features, in a separate folder.
///
/// # Panics
/// When that fails.
pub fn library(folder: &Path, features: &str) -> PathBuf {
    library_for(Core::M4, folder, features)
}

/// The same for any core.
///
/// # Panics
/// When that fails.
pub fn library_for(core: Core, folder: &Path, features: &str) -> PathBuf {
    build_library(core, folder, &["-p", "kymo-c", "--features", features]).join("libkymo.a")
}

/// Builds `libkymo_minimal.a`, in a separate folder.
///
/// # Panics
/// When that fails.
pub fn minimal_library(folder: &Path) -> PathBuf {
    build_library(Core::M4, folder, &["-p", "kymo-minimal"]).join("libkymo_minimal.a")
}

/// Builds a library, and returns its folder.
fn build_library(core: Core, folder: &Path, options: &[&str]) -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "small"])
        .args(options)
        .args(["--target", core.target(), "--target-dir"])
        .arg(folder)
        .current_dir(device())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the library builds");
    folder.join(core.target()).join("small")
}

/// A program.
#[derive(Debug)]
pub struct Program {
    elf: PathBuf,
}

impl Program {
    /// Compiles one of `tests/programs` with these options, and links it with `libraries`.
    ///
    /// # Panics
    /// When that fails.
    pub fn build(folder: &Path, source: &str, options: &[&str], libraries: &[&Path]) -> Self {
        Self::build_for(Core::M4, folder, source, options, libraries)
    }

    /// The same for any core.
    ///
    /// # Panics
    /// When that fails.
    pub fn build_for(
        core: Core,
        folder: &Path,
        source: &str,
        options: &[&str],
        libraries: &[&Path],
    ) -> Self {
        let programs = device().join("tests/programs");
        std::fs::create_dir_all(folder).expect("the folder can be made");
        let elf = folder.join(source).with_extension("elf");
        let output = Command::new("arm-none-eabi-gcc")
            .args(core.options())
            .arg("-mthumb")
            .args([
                "-mgeneral-regs-only",
                "-O2",
                "-g",
                "-nostdlib",
                "-ffreestanding",
            ])
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
            .args(["-ffunction-sections", "-Wl,--gc-sections", "-I"])
            .arg(device().join("c/include"))
            .args(options)
            .arg("-T")
            .arg(programs.join("board.ld"))
            .arg(programs.join(source))
            .args(libraries)
            .args(["-lgcc", "-o"])
            .arg(&elf)
            .output()
            .expect("the compiler runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        Self { elf }
    }

    /// The addresses of its functions by name, without the Thumb bit.
    ///
    /// # Panics
    /// When they can't be read.
    pub fn functions(&self) -> BTreeMap<String, u64> {
        let output = Command::new("arm-none-eabi-nm").arg(&self.elf).output();
        let output = output.expect("nm runs").stdout;
        let function = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            (words.next()?.eq_ignore_ascii_case("t"))
                .then_some((words.next()?.to_owned(), address & !1))
        };
        String::from_utf8_lossy(&output)
            .lines()
            .filter_map(function)
            .collect()
    }

    /// Runs it to its end in `folder`, where it writes its files.
    ///
    /// # Panics
    /// When it does not report its end.
    pub fn run(&self, folder: &Path) -> Said {
        let said = folder.join("said.txt");
        let file = std::fs::File::create(&said).expect("a file can be made");
        let mut qemu = Command::new("qemu-system-arm")
            .args(["-M", "mps2-an386", "-icount", "shift=6", "-singlestep"])
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
            .args(["-semihosting-config", "enable=on,target=native", "-kernel"])
            .arg(&self.elf)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file)
            .spawn()
            .expect("QEMU runs");
        let started = Instant::now();
        while qemu.try_wait().expect("QEMU runs").is_none() {
            if started.elapsed() > PATIENCE {
                let _ = qemu.kill();
                let _ = qemu.wait();
                panic!("still running after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = Said::parse(&std::fs::read_to_string(&said).expect("it said something"));
        assert!(said.ended, "{said:?}");
        said
    }
}

/// Output of a program: lines with a name and a number.
#[derive(Debug, Default)]
pub struct Said {
    numbers: BTreeMap<String, u32>,
    /// The offsets in the watched code at which interrupts preempted.
    pub struck: Vec<u32>,
    ended: bool,
}

impl Said {
    fn parse(text: &str) -> Self {
        let mut said = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                None => said.ended = line == "end",
                Some((name, number)) => {
                    let number = number.parse().expect("a number");
                    if name == "struck" {
                        said.struck.push(number);
                    } else {
                        said.numbers.insert(name.to_owned(), number);
                    }
                }
            }
        }
        said
    }

    /// The number printed with this name.
    ///
    /// # Panics
    /// When it was not printed.
    pub fn number(&self, name: &str) -> u32 {
        *self
            .numbers
            .get(name)
            .unwrap_or_else(|| panic!("nothing was said of {name}: {self:?}"))
    }
}
