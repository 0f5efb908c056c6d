//! Processors on which the recorder is measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::listing::{Function, Instruction, Listing};
use crate::bench::log;
use crate::bench::marks::Bytes;
use kymo_targets::compile::Compiler;
use kymo_targets::run::{self, Context, Result};

/// A processor: how to build programs for it, and how to run them instruction by instruction. Options have the syntax
/// of a shell.
#[derive(Debug)]
pub struct Machine {
    /// The Rust target, also its name in the table.
    pub target: &'static str,
    /// Prefix of the names of its compiler and its other tools.
    tools: &'static str,
    options: &'static str,
    /// The linker script in `bench`, and its options; none for a hosted program.
    script: Option<(&'static str, &'static str)>,
    /// The emulator; none for a hosted program, which the processor itself executes.
    qemu: &'static str,
    /// The instruction that masks interrupts: name, and a part of its operands.
    mask: (&'static str, &'static str),
    /// The instruction that unmasks them.
    unmask: (&'static str, &'static str),
}

/// A program's execution.
#[derive(Debug)]
pub struct Run {
    /// The addresses of the executed instructions, in order.
    pub executed: Vec<u64>,
    /// Bytes recorded by its rows.
    pub bytes: Vec<Bytes>,
}

/// Options of every emulator.
const QEMU: &str = "-display none -monitor none -serial stdio -singlestep -d exec,nochain";

/// Greatest size of a log in bytes: forty times that of the longest. A program that hangs would fill the disk.
const LOG_BYTES: u64 = 4 << 30;

/// All processors. The argument of `-icount` is the duration of an instruction (2^n ns), selected so that the clock
/// runs about as fast as the core.
pub const MACHINES: [Machine; 6] = [
    Machine {
        target: "thumbv7em-none-eabihf",
        tools: "arm-none-eabi-",
        options: "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -mgeneral-regs-only",
        qemu: "qemu-system-arm -M mps2-an386 -semihosting-config enable=on -icount shift=6",
        ..CORTEX_M
    },
    CORTEX_M,
    // Code for a Cortex-M0, run by a Cortex-M3, which has all of its instructions: QEMU's boards with a Cortex-M0 have
    // no counter that can be read directly.
    Machine {
        target: "thumbv6m-none-eabi",
        options: "-mcpu=cortex-m0 -mthumb",
        ..CORTEX_M
    },
    Machine {
        target: "riscv32imac-unknown-none-elf",
        tools: "riscv64-unknown-elf-",
        options: "-march=rv32imac_zicsr -mabi=ilp32 -mcmodel=medany",
        script: Some((
            "virt.ld",
            "-Wl,--defsym=RAM=0x80000000 -Wl,--no-warn-rwx-segments",
        )),
        qemu: "qemu-system-riscv32 -M virt -bios none -icount shift=0",
        mask: ("csrrc", "mstatus"),
        unmask: ("csrs", "mstatus"),
    },
    Machine {
        target: "aarch64-unknown-none",
        tools: "aarch64-linux-gnu-",
        // The compiler targets Linux, but the program is bare metal.
        options: "-mcpu=cortex-a72 -mno-outline-atomics -fno-pic -U__linux__",
        script: Some((
            "virt.ld",
            "-Wl,--defsym=RAM=0x40080000 -Wl,--no-warn-rwx-segments -static -no-pie",
        )),
        qemu: "qemu-system-aarch64 -M virt -cpu cortex-a72 -nic none -icount shift=3",
        mask: ("msr", "daifset,"),
        unmask: ("msr", "daif,"),
    },
    Machine {
        target: "x86_64-unknown-linux-gnu",
        tools: "",
        options: "-fno-pie",
        script: None,
        qemu: "",
        // A hosted program masks nothing.
        mask: ("", ""),
        unmask: ("", ""),
    },
];

const CORTEX_M: Machine = Machine {
    target: "thumbv7m-none-eabi",
    tools: "arm-none-eabi-",
    options: "-mcpu=cortex-m3 -mthumb",
    script: Some(("arm.ld", "")),
    qemu: "qemu-system-arm -M mps2-an385 -semihosting-config enable=on -icount shift=6",
    mask: ("cpsid", "i"),
    unmask: ("msr", "PRIMASK"),
};

impl Machine {
    /// Whether programs run under an operating system.
    pub fn hosted(&self) -> bool {
        self.script.is_none()
    }

    /// The compiler, with the options for the processor.
    pub fn gcc(&self) -> Command {
        let mut gcc = Command::new(format!("{}gcc", self.tools));
        gcc.args(self.options.split_whitespace());
        gcc
    }

    /// One of the other tools.
    pub fn tool(&self, name: &str) -> Command {
        Command::new(format!("{}{name}", self.tools))
    }

    /// Builds a program from `sources`, files in `bench`, with additional `options`, and `libraries`.
    pub fn build(
        &self,
        name: &str,
        sources: &[&str],
        options: &[&str],
        libraries: &[PathBuf],
    ) -> Result<PathBuf> {
        let bench = run::root().join("device/bench");
        let folder = run::target_dir().join("bench").join(self.target);
        std::fs::create_dir_all(&folder).context(folder.display())?;
        let elf = folder.join(name).with_extension("elf");
        let mut compiler = Compiler::new(format!("{}gcc", self.tools));
        compiler
            .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
            .args([
                "-ffunction-sections",
                "-fdata-sections",
                "-Wl,--gc-sections",
            ])
            .args(self.options.split_whitespace())
            .args(options)
            .include(&run::root().join("device/c/include"));
        match self.script {
            Some((script, options)) => {
                let script = bench.join(script);
                compiler
                    .args(["-ffreestanding", "-nostdlib", "-Wl,--build-id=none"])
                    // No loader uses that information.
                    .args(["-Wl,--no-warn-execstack"])
                    .args(options.split_whitespace())
                    .args([format!("-Wl,-T,{}", script.display())])
                    .args([bench.join("start.S")]);
            }
            None => {
                compiler.args(["-static", "-no-pie"]);
            }
        }
        let mut command = compiler.command();
        command.args(sources.iter().map(|source| bench.join(source)));
        run::make(command.args(libraries), &elf)?;
        Ok(elf)
    }

    /// Runs a program instruction by instruction, at least its functions `rows`.
    ///
    /// # Errors
    /// When it can't be run, or its logs can't be read.
    pub fn execute<'a>(
        &self,
        elf: &Path,
        rows: impl IntoIterator<Item = &'a Function>,
    ) -> Result<Run> {
        let log = elf.with_extension("log");
        let mut words = self.qemu.split_whitespace();
        let mut addresses = Vec::new();
        let mut command = match words.next() {
            Some(program) => {
                let mut qemu = run::limited(program, LOG_BYTES);
                qemu.args(words).args(QEMU.split_whitespace());
                qemu.arg("-D").arg(&log).arg("-kernel");
                qemu
            }
            None => {
                let step = elf.with_file_name("step");
                let source = run::root().join("device/bench/step.c");
                let mut gcc = Command::new("gcc");
                run::make(gcc.args(["-O2", "-Wall", "-Wextra"]).arg(&source), &step)?;
                let mut step = run::limited(step, LOG_BYTES);
                step.arg(&log);
                let begins = rows.into_iter().map(|row| format!("{:x}", row.address));
                addresses.extend(begins);
                step
            }
        };
        let saved = elf.with_extension("kymo");
        let _ = std::fs::remove_file(&saved);
        let printed = run::output(command.arg(elf).args(addresses).env("KYMO_OUTPUT", &saved))?;
        let bytes = if self.hosted() {
            // A program without the recorder saves nothing.
            Bytes::saved(&printed, &std::fs::read(&saved).unwrap_or_default())?
        } else {
            Bytes::printed(&printed)
        };
        let text = std::fs::read_to_string(&log).context(log.display())?;
        Ok(Run {
            executed: log::executed(&text),
            bytes,
        })
    }

    /// The program's disassembly.
    pub fn list(&self, elf: &Path) -> Result<Listing> {
        let disassembly = run::output(
            self.tool("objdump")
                .args(["-d", "--no-show-raw-insn"])
                .arg(elf),
        )?;
        let symbols = run::output(self.tool("nm").arg("-S").arg(elf))?;
        Ok(Listing::read(&disassembly, &symbols, self.hosted()))
    }

    /// Whether interrupts are masked after this instruction.
    pub fn masks(&self, instruction: &Instruction) -> bool {
        is(instruction, self.mask)
    }

    /// Whether interrupts may occur again after this instruction.
    pub fn unmasks(&self, instruction: &Instruction) -> bool {
        is(instruction, self.unmask)
    }
}

/// Whether an instruction has this name, and its operands contain this text.
fn is(instruction: &Instruction, (name, operands): (&str, &str)) -> bool {
    instruction.name == name && instruction.operands.contains(operands)
}
