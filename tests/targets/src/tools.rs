//! Programs that builds and tests need besides Rust, and the Debian packages that provide them.
//!
//! This module only checks. `cargo xtask setup` installs missing packages, and prints why they are needed.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Error, Result};

/// The processor of the demonstration firmware, as GCC's options name it.
pub const FIRMWARE_CPU: [&str; 2] = ["-mcpu=cortex-m3", "-mthumb"];

/// Requirements of a task besides Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To build the demonstration firmware and run it in QEMU.
    Firmware,
    /// To build programs for other microcontrollers, and run them.
    Processors,
    /// To build the native demonstration with GCC.
    Native,
    /// To build it with Clang too, and to compare Kymo's output with babeltrace2's.
    Checks,
    /// To build the demonstration on eight processors and run it in QEMU.
    Cpus,
    /// To build programs for other processors under Linux and run them in QEMU.
    Foreign,
    /// To record a Linux kernel in QEMU.
    Guest,
}

impl Need {
    /// All needs.
    pub const ALL: [Self; 7] = [
        Self::Firmware,
        Self::Processors,
        Self::Native,
        Self::Checks,
        Self::Cpus,
        Self::Foreign,
        Self::Guest,
    ];
}

/// A requirement that a Debian package provides.
#[derive(Debug)]
pub struct Tool {
    /// The Debian package.
    pub package: &'static str,
    /// Its purpose, as `cargo xtask setup` prints it.
    pub why: &'static str,
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
        package: "libopencsd-bin",
        why: "lists CoreSight packets as text, to be measured beside",
        need: Need::Checks,
        present: || Path::new("/usr/bin/trc_pkt_lister").is_file(),
    },
    Tool {
        package: "libopencsd-dev",
        why: "decodes CoreSight trace, as an independent check and to be measured beside",
        need: Need::Checks,
        present: || Path::new("/usr/include/opencsd/c_api/opencsd_c_api.h").is_file(),
    },
    Tool {
        package: "valgrind",
        why: "counts the instructions that reading a trace takes",
        need: Need::Checks,
        present: || answers("valgrind"),
    },
    Tool {
        package: "uftrace",
        why: "analyses the same calls as kymo, as a measure of what that takes",
        need: Need::Checks,
        present: || answers("uftrace"),
    },
    Tool {
        package: "babeltrace",
        why: "lttnganalyses, which reads the kernel traces that Kymo writes, calls it",
        need: Need::Checks,
        present: || run::succeeds(Command::new("babeltrace").arg("--list")),
    },
    Tool {
        package: "python3-babeltrace",
        why: "reads the kernel traces that Kymo writes for lttnganalyses",
        need: Need::Checks,
        present: || {
            run::succeeds(Command::new("/usr/bin/python3").args(["-c", "import babeltrace"]))
        },
    },
    Tool {
        package: "trace-cmd",
        why: "the import bench compares with it",
        need: Need::Checks,
        // It has no --version.
        present: || run::succeeds(Command::new("trace-cmd").arg("options")),
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
        package: "qemu-system-x86",
        why: "runs a Linux kernel whose ftrace is recorded",
        need: Need::Guest,
        present: || answers("qemu-system-x86_64"),
    },
    Tool {
        package: "trace-cmd",
        why: "reads the trace.dat files that Kymo writes, as an independent check",
        need: Need::Guest,
        // It has no --version.
        present: || run::succeeds(Command::new("trace-cmd").arg("options")),
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
pub fn answers(program: &str) -> bool {
    run::succeeds(Command::new(program).arg("--version"))
}

/// Whether a compiler finds this file of its C library.
fn finds(compiler: &str, file: &str) -> bool {
    let mut gcc = Command::new(compiler);
    let gcc = gcc.arg(format!("-print-file-name={file}"));
    answers(compiler) && run::output(gcc).is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

/// Whether newlib is installed for the firmware's processor. GCC prints just the name of a file that it doesn't find.
fn newlib() -> bool {
    let mut gcc = Command::new("arm-none-eabi-gcc");
    let gcc = gcc.args(FIRMWARE_CPU).arg("-print-file-name=libc.a");
    answers("arm-none-eabi-gcc")
        && run::output(gcc).is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

/// The tools for these needs that are not installed.
pub fn missing(needs: &[Need]) -> Vec<&'static Tool> {
    TOOLS
        .iter()
        .filter(|tool| needs.contains(&tool.need) && !(tool.present)())
        .collect()
}

/// Checks that the tools for these needs are installed.
///
/// # Errors
/// Names the packages that are missing.
pub fn require(needs: &[Need]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    Err(Error::new(format!(
        "missing Debian packages: {}\nhelp: install them with: cargo xtask setup",
        packages.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_does_not_answer() {
        assert!(answers("sh") || answers("env"));
        assert!(!answers("no-such-program-as-this"));
    }
}
